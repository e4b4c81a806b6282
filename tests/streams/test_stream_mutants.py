"""Deliberately broken streams, each of which a test must catch."""

from __future__ import annotations

import numpy as np
import pytest

from tests.streams import test_hardened, test_strategies
from tests.streams import test_partial_fit as tests
from vips import PrivacyPlan
from vips.core.correlated import BinaryTree, BufferedToeplitz
from vips.streams import release
from vips.streams.secret import Register


def noise(participation=1, mechanism="toeplitz", kind="gaussian"):
    tests.test_all_releases_together_are_the_gaussian_that_is_paid_for(mechanism, participation, 1.0, kind)


def canaries(participation=1):
    tests.test_canaries_come_near_the_claim_and_do_not_exceed_it("toeplitz", participation, "gaussian")


def rounding(name="toeplitz", decay=1.0):
    test_strategies.test_rounding_moves_draws_by_no_more_than_is_stated(name, decay)


def symmetric():
    test_hardened.test_hardened_streams_of_symmetric_blocks_are_symmetric()


def anew(strategy, t, fresh, buffers):
    """Noise of every total drawn anew: w_t = z_t - γ z_{t-1}."""
    w = fresh - strategy.decay * buffers[0]
    buffers[0] = fresh
    return w


def everybody(register, ids, most):
    return np.ones(len(list(ids)), bool), register


MUTANTS = {
    "sensitivity of one batch": (BufferedToeplitz, "sensitivity", lambda self, k=1: 1.0, noise),
    "sensitivity of one participation": (
        BufferedToeplitz, "sensitivity", lambda self, k=1, _of=BufferedToeplitz.sensitivity: _of(self, 1), lambda: noise(2),
    ),
    "a tree of one level": (BinaryTree, "sensitivity", lambda self, k=1: 1.0, lambda: noise(1, "tree")),
    "noise drawn anew for old batches": (BufferedToeplitz, "step", anew, noise),
    "no noise after the first batch": (
        BufferedToeplitz, "step", lambda self, t, fresh, buffers: fresh * (t == 1) + 1e-9 * fresh, noise,
    ),
    "canaries and sensitivity of one batch": (BufferedToeplitz, "sensitivity", lambda self, k=1: 1.0, canaries),
    "canaries and sensitivity of one participation": (
        BufferedToeplitz, "sensitivity", lambda self, k=1, _of=BufferedToeplitz.sensitivity: _of(self, 1),
        lambda: canaries(2),
    ),
    "canaries that are not clipped": (
        PrivacyPlan, "clip_weights", lambda self, norms: np.full(np.shape(norms), 0.015), canaries,
    ),
    "a lattice for records only": (BufferedToeplitz, "rounding", lambda self: 0.0, rounding),
    "a lattice for records only, of a tree that forgets": (
        BinaryTree, "rounding", lambda self: 0.0, lambda: rounding("tree", 0.9),
    ),
    "what is carried over is not rounded": (
        BufferedToeplitz, "step", lambda self, t, fresh, buffers, whole=False, _of=BufferedToeplitz.step:
        _of(self, t, fresh, buffers), rounding,
    ),
    "half of the discrete noise": (
        release, "discrete_noise", lambda *a, _of=release.discrete_noise: _of(*a) // 2, lambda: noise(kind="discrete"),
    ),
    "triangles that differ": (release, "mirrored_upper", lambda array: np.tril(array, -1) + array, symmetric),
    "a person in every batch": (Register, "admitted", everybody, tests.test_a_person_is_in_so_many_batches_and_no_more),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name, monkeypatch):
    owner, attribute, broken, check = MUTANTS[name]
    check()
    monkeypatch.setattr(owner, attribute, broken)
    with pytest.raises(AssertionError):
        check()
