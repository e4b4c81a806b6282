"""R_t, the release after batch t: the total of all batches so far with noise that is correlated over batches."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips.privacy.mechanism.noise import Randomness, discrete_noise, gaussian_noise, mirrored_upper
from vips.privacy.stream_plan import StreamPlan
from vips.statistics import Block

__all__ = ["next_release", "noise_after", "values_of"]

Arrays = Mapping[str, np.ndarray]


def next_release(
    plan: StreamPlan, t: int, total: Arrays, blocks: Mapping[str, Block], before: tuple[Arrays, Arrays] | None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """R_t, and the state of the noise after it: R_t = γ R_{t-1} + s_t + w_t.

    Parameters
    ----------
    plan : StreamPlan
        With a clip norm.
    t : int
        1, 2, …
    total : dict of str to ndarray
        s_t, the sum of the batch's clipped records; in whole units of the lattice, if there is one, and then R_t is, too.
    before : tuple or None
        What this function returned for the batch before.

    Guarantees
    ----------
    One fresh draw from the operating system, of all blocks together, is added to the total.
    """
    draws, bits = plan.of_draws, Randomness.for_fit(None, False).noise_bits(t)
    lattice, rng = draws.lattice(blocks), np.random.Generator(bits)
    released, buffers = {}, {}
    for name, block in blocks.items():
        shape = (plan.strategy.n_buffers if plan.is_private else 0, *block.shape)
        old, state = (
            (np.zeros_like(total[name]), np.zeros(shape)) if before is None else (each[name] for each in before)
        )
        old = old if plan.decay == 1.0 else plan.decay * old
        buffers[name] = state = np.array(state)
        if not plan.is_private:
            released[name] = old + total[name]
        elif lattice is None:
            fresh = gaussian_noise(block.shape, block.symmetric, draws.noise_std() * block.scale, rng)
            released[name] = old + total[name] + plan.strategy.step(t, fresh, state)
        else:
            w = plan.strategy.step(t, discrete_noise(block, lattice, bits), state, whole=True)
            w = mirrored_upper(w) if block.symmetric else w  # rounding could differ between the triangles
            released[name] = np.rint(old).astype(np.int64) + total[name] + w.astype(np.int64)
    return released, buffers


def values_of(plan: StreamPlan, released: Arrays, blocks: Mapping[str, Block]) -> dict[str, np.ndarray]:
    """R_t as numbers, by block."""
    lattice = plan.of_draws.lattice(blocks)
    if lattice is None:
        return {name: np.array(value) for name, value in released.items()}
    return {name: lattice.values(value, blocks[name]) for name, value in released.items()}


def noise_after(plan: StreamPlan, t: int, blocks: Mapping[str, Block]) -> dict[str, float]:
    """Standard deviation of the noise in an entry of R_t, by block; exact, but for the rounding of a lattice."""
    std = plan.noise_std(t) * plan.clip_norm if plan.is_private else 0.0
    return {name: std * block.scale for name, block in blocks.items()}
