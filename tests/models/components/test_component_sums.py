"""Sums of shares times statistics: norms, weights, rounding, and company."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from vips.core.sums import Block, runs
from vips.core.sums.runs import ComponentSums
from vips.models.components.kernels import fill_likely
from vips.privacy import Lattice

K, WIDTH = 3, 5
BLOCKS = {"count": Block((K,), scale=0.5), "cells": Block((K, WIDTH - 1), scale=3.0)}
PLACES = {"count": slice(0, 1), "cells": slice(1, None)}
OFFSETS = np.array([0, 0, 1, 7, 7, 40, 41])


def arrays(n, seed=0):
    rng = np.random.default_rng(seed)
    rows = np.hstack([np.ones((n, 1)), rng.normal(size=(n, WIDTH - 1))])
    return rows, rng.dirichlet(np.ones(K), n)


def of_runs():
    rows, shares = arrays(OFFSETS[-1])
    return ComponentSums(rows, shares, OFFSETS, PLACES)


def formed(sums):
    """Every record's statistics by hand, by block."""
    whole = np.array([
        sums.shares[a:b].T @ sums.rows[a:b] for a, b in pairwise(sums.offsets)
    ])  # fmt: skip
    return {"count": whole[:, :, 0], "cells": whole[:, :, 1:]}


@pytest.mark.parametrize("piece", [1, 10**9])
def test_sums_are_those_of_each_record(piece, monkeypatch):
    monkeypatch.setattr(runs, "_PIECE", piece)
    sums = of_runs()
    n, expected = len(sums.offsets) - 1, formed(sums)
    squares = sum((expected[name] ** 2).reshape(n, -1).sum(axis=1) / BLOCKS[name].scale ** 2 for name in BLOCKS)
    np.testing.assert_allclose(sums.norms(BLOCKS), np.sqrt(squares) * (1.0 + 1e-9), rtol=1e-12)
    weights = np.where(np.arange(n) % 3 == 0, 0.0, np.random.default_rng(1).random(n))
    for name, value in sums.weighted_sum(weights).items():
        np.testing.assert_allclose(value, np.tensordot(weights, expected[name], axes=1), rtol=1e-12, atol=1e-13)
        assert value.shape == BLOCKS[name].shape
    lattice = Lattice.for_blocks(BLOCKS, 1.0, 1.0)
    for name, value in sums.rounded_sum(weights, BLOCKS, lattice).items():
        shares = weights.reshape(-1, *[1] * (expected[name].ndim - 1)) * expected[name]
        np.testing.assert_array_equal(value, lattice.rounded(shares, BLOCKS[name]).sum(axis=0))


def test_a_record_of_weight_0_is_absent():
    sums = of_runs()
    sums.rows[OFFSETS[2] : OFFSETS[3]] = np.inf
    weights = np.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    assert all(np.isfinite(value).all() for value in sums.weighted_sum(weights).values())


def test_a_record_counts_as_if_alone_to_the_last_bit():
    sums = of_runs()
    for i, (a, b) in enumerate(pairwise(OFFSETS)):
        alone = ComponentSums(sums.rows[a:b].copy(), sums.shares[a:b].copy(), np.array([0, b - a]), PLACES)
        assert alone.norms(BLOCKS)[0] == sums.norms(BLOCKS)[i]
        chosen = np.where(np.arange(len(OFFSETS) - 1) == i, 0.3, 0.0)
        for name, value in sums.weighted_sum(chosen).items():
            np.testing.assert_array_equal(value, alone.weighted_sum(np.array([0.3]))[name])


def test_likelihoods_are_relative_to_the_largest():
    scores = np.random.default_rng(0).normal(0.0, 300.0, (20, K))
    likely, scale, largest = np.empty((20, K)), np.empty(20), scores.max(axis=1)
    exact = np.exp(scores - largest[:, None])
    fill_likely(scores, 1e-90, likely, scale)
    np.testing.assert_allclose(likely, np.maximum(exact, 1e-90), rtol=1e-12)
    np.testing.assert_array_equal(scale, largest)
