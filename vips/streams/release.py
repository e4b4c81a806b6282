"""R_t, the release after batch t: the total of all batches so far with noise that is correlated over batches."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips.core.mechanism.noise import Randomness, discrete_noise, gaussian_noise, mirrored_upper
from vips.core.mechanism.release import Mechanism
from vips.core.stream_plan import StreamPlan
from vips.core.sums import Block

__all__ = ["CorrelatedNoise"]

Arrays = Mapping[str, np.ndarray]


class CorrelatedNoise(Mechanism):
    """R_t = γ R_{t-1} + s_t + w_t, where w_t depends on earlier noise.

    Parameters
    ----------
    plan : StreamPlan
        With a clip norm.
    blocks : dict of str to Block
    t : int
        Batches so far.
    state : tuple of (R_t, buffers) or None
        The release after them, and the state of the noise then; None before the first one.

    Guarantees
    ----------
    One fresh draw from the operating system, of all blocks together, is added to each total.
    """

    def __init__(
        self, plan: StreamPlan, blocks: Mapping[str, Block], t: int = 0, state: tuple[Arrays, Arrays] | None = None
    ) -> None:
        self.plan, self.blocks, self.t, self.state = plan, blocks, t, state

    def release(self, total: Arrays, step: int) -> dict[str, np.ndarray]:
        """R_t. ``total`` is s_t; in whole units of the lattice, if there is one, and then R_t is, too."""
        plan, draws, bits = self.plan, self.plan.of_draws, Randomness.for_fit(None, False).noise_bits(step)
        lattice, rng = draws.lattice(self.blocks), np.random.Generator(bits)
        released, buffers = {}, {}
        for name, block in self.blocks.items():
            shape = (plan.strategy.n_buffers if plan.is_private else 0, *block.shape)
            first = np.zeros_like(total[name]), np.zeros(shape)
            old, state = first if self.state is None else (arrays[name] for arrays in self.state)
            old = old if plan.decay == 1.0 else plan.decay * old
            buffers[name] = state = np.array(state)
            if not plan.is_private:
                released[name] = old + total[name]
            elif lattice is None:
                fresh = gaussian_noise(block.shape, block.symmetric, draws.noise_std() * block.scale, rng)
                released[name] = old + total[name] + plan.strategy.step(step, fresh, state)
            else:
                w = plan.strategy.step(step, discrete_noise(block, lattice, bits), state, whole=True)
                w = mirrored_upper(w) if block.symmetric else w  # rounding could differ between the triangles
                released[name] = np.rint(old).astype(np.int64) + total[name] + w.astype(np.int64)
        self.state, self.t = (released, buffers), step
        return released

    def std_of_average(self, step_size: Mapping[str, float] | None = None) -> dict[str, float]:
        """Standard deviation of the noise in an entry of R_t, by block; exact, but for the rounding of a lattice."""
        std = self.plan.noise_std(self.t) * self.plan.clip_norm if self.plan.is_private else 0.0
        return {name: std * block.scale for name, block in self.blocks.items()}

    def values(self) -> dict[str, np.ndarray]:
        """R_t as numbers, by block."""
        released, lattice = self.state[0], self.plan.of_draws.lattice(self.blocks)
        if lattice is None:
            return {name: np.array(value) for name, value in released.items()}
        return {name: lattice.values(value, self.blocks[name]) for name, value in released.items()}
