"""Laws of averages that are carried to the coordinates of the next posterior."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.laws.checks import FULL, as_vector, fit
from vips.core.mechanism.noise import gaussian_noise

N_DRAWS = 200


def moves(case):
    """The model, and the pairs of posteriors between which a short private fit carries its average."""
    pairs = []
    plan = replace(FULL, clip_norm=case.clip_norm, n_steps=6, noise_multiplier=0.05)
    model = case.make_model(privacy=plan, random_state=0)
    original = model.transport

    def recording(average, noise_std, previous, posterior):
        pairs.append((previous, posterior))
        return original(average, noise_std, previous, posterior)

    model.transport = recording
    fit(model, case.make_records(300, np.random.default_rng(3)))
    model.transport = original
    return model, pairs


def averages_are_carried_linearly(case):
    """Transport is linear in the average, and a function of the two posteriors: what is released once stays what it is."""
    model, pairs = moves(case)
    blocks, rng = model.blocks(), np.random.default_rng(4)
    one, other = (_noise(blocks, rng, 1.0) for _ in range(2))
    both = {name: 2.0 * one[name] - 3.0 * other[name] for name in blocks}
    std = dict.fromkeys(blocks, 1.0)
    for pair in pairs:
        a, b, c = (as_vector(model.transport(totals, std, *pair)[0], blocks) for totals in (one, other, both))
        np.testing.assert_allclose(c, 2.0 * a - 3.0 * b, rtol=1e-9, atol=1e-9 * np.abs(c).max())


def noise_is_carried_with_the_average(case):
    """Pure noise, carried, has the stated mean square in every block."""
    model, pairs = moves(case)
    blocks, rng = model.blocks(), np.random.default_rng(5)
    std = {name: 2.0 * block.scale for name, block in blocks.items()}
    for pair in pairs:
        squares, stated = dict.fromkeys(blocks, 0.0), None
        for _ in range(N_DRAWS):
            carried, stated = model.transport(_noise(blocks, rng, 2.0), std, *pair)
            for name in blocks:
                squares[name] += np.mean(np.square(carried[name])) / N_DRAWS
        for name, block in blocks.items():
            expected = np.broadcast_to(np.square(stated[name]), block.shape).copy()
            if block.symmetric:
                expected *= np.where(np.eye(block.shape[-1], dtype=bool), 1.0, 0.5)
            ratio = np.sqrt(squares[name] / max(np.mean(expected), 1e-300))
            is_exact = not squares[name] and not expected.any()
            assert is_exact or 0.85 < ratio < 1.18, f"carried noise of block {name!r} is {ratio:.3f} of the stated one"


def _noise(blocks, rng, std):
    return {
        name: gaussian_noise(block.shape, block.symmetric, std * block.scale, rng) for name, block in blocks.items()
    }


ALL = [averages_are_carried_linearly, noise_is_carried_with_the_average]
