"""No two coordinates of a release share a draw: within a block, between blocks of every kind, and from step to step."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from tests.mutants import check_notices
from vips import Block, PrivacyPlan
from vips.core.mechanism import noise

BLOCKS = {
    "first": Block((7, 7), symmetric=True, scale=2.0), "vector": Block((60,)),
    "several": Block((2, 5, 5), symmetric=True), "number": Block((), scale=0.5), "last": Block((40,)),
}  # fmt: skip
PLANS = {
    kind: PrivacyPlan(noise_multiplier=3.0, sampling="full", n_steps=2, clip_norm=1.0, noise=kind)
    for kind in ("gaussian", "discrete")
}


def draws(plan: PrivacyPlan) -> np.ndarray:
    """The noise of two steps in units of its deviation: of a symmetric block, the upper triangles."""
    randomness, drawn = plan.randomness(0), []
    for step in (1, 2):
        zero = {
            name: np.zeros(block.shape, np.int64 if plan.rounds_records else float) for name, block in BLOCKS.items()
        }
        for name, value in plan.add_noise(zero, BLOCKS, randomness, step).items():
            block, size = BLOCKS[name], np.shape(value)[-1:] or (1,)
            value = value / (block.scale * plan.noise_std())
            if block.symmetric:
                upper = np.triu_indices(size[0])
                value = value[..., *upper] * np.where(upper[0] == upper[1], 1.0, np.sqrt(2.0))
            drawn.append(np.ravel(value))
    return np.concatenate(drawn)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_no_draw_is_used_twice(plan):
    """A few of some 330 draws of a lattice of thousands of steps are equal, but no three in a row are."""
    values = np.rint(draws(plan) * 1e4)
    rows = np.lib.stride_tricks.sliding_window_view(values, 3)
    assert len(np.unique(rows, axis=0)) == len(rows), "coordinates share a draw"


def symmetric_blocks_repeat_the_bits_of_the_next_one(patch):
    original = noise.discrete_noise

    def discrete_noise(block, lattice, bits):
        return original(block, lattice, copy.deepcopy(bits) if block.symmetric else bits)

    patch.setattr(noise, "discrete_noise", discrete_noise)


def symmetric_blocks_repeat_the_normals_of_the_next_one(patch):
    original = noise.gaussian_noise

    def gaussian_noise(shape, symmetric, std, rng):
        return original(shape, symmetric, std, copy.deepcopy(rng) if symmetric else rng)

    patch.setattr(noise, "gaussian_noise", gaussian_noise)


@pytest.mark.parametrize(
    ("mutant", "kind"),
    [
        (symmetric_blocks_repeat_the_bits_of_the_next_one, "discrete"),
        (symmetric_blocks_repeat_the_normals_of_the_next_one, "gaussian"),
    ],
)
def test_shared_draws_are_noticed(mutant, kind, monkeypatch):
    check_notices(lambda: test_no_draw_is_used_twice(PLANS[kind]), mutant, monkeypatch, "share a draw")
