"""States that are computed from counts of neighbouring bins."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from vips.models.components.bins import Bins, bins_of_counts
from vips.models.components.counts import Counts
from vips.models.markov.pairs import NormalsInBins, states_of_bins

MOVES = np.array([[0.35, 0.05, 0.0], [0.02, 0.25, 0.05], [0.03, 0.02, 0.23]])
RATES = np.array([[0.5, 9.0], [4.0, 1.0], [12.0, 1.5]])


def counts(n_bins, n_columns=1):
    largest = (40,) * n_columns
    return Counts(largest, own_bins=bins_of_counts(largest, n_bins))


@pytest.mark.parametrize(
    "columns",
    [counts(20), counts(12, 2)],
)
@pytest.mark.parametrize("floor", [0.0, 1e-4])
def test_states_are_found_from_pairs(columns, floor):
    """Also where every cell has a little more, as denoised counts have."""
    inside = columns.in_bins(RATES[:, : columns.n_columns])
    pairs = 1e6 * (inside.T @ MOVES @ inside + floor)
    moves, rates = states_of_bins(pairs, np.ones((3, 3), bool), columns, np.random.default_rng(0))
    order = np.argsort(rates[:, 0])
    np.testing.assert_allclose(rates[order], RATES[:, : columns.n_columns], rtol=0.03)
    np.testing.assert_allclose(moves[np.ix_(order, order)], MOVES, atol=0.01)


@pytest.mark.parametrize("n_bins", [6, 9])
def test_normal_states_are_found_from_pairs(n_bins):
    columns = NormalsInBins(2, n_bins)
    normals = np.stack([[[-1.2, 0.3], [0.2, 1.3], [1.3, -0.8]], [[0.3, 0.5], [0.4, 0.3], [0.5, 0.4]]], axis=2)
    inside = columns.in_bins(normals)
    moves, found = states_of_bins(inside.T @ MOVES @ inside, np.ones((3, 3), bool), columns, np.random.default_rng(0))
    order = np.argsort(found[:, 0, 0])
    np.testing.assert_allclose(found[order], normals, atol=0.05)
    np.testing.assert_allclose(moves[np.ix_(order, order)], MOVES, atol=0.01)


def test_the_next_normals_are_means_and_deviations_in_the_bins():
    """Of many draws, each in proportion to the counts in its bin."""
    columns, normals = NormalsInBins(1, 5), np.array([[[0.3, 0.8]], [[-1.0, 0.4]]])
    counts = np.array([[5.0, 1.0, 2.0, 7.0, 3.0], [2.0, 2.0, 1.0, 0.5, 0.1]])
    following = columns.values_of_bins(counts, normals)
    for k, (mean, deviation) in enumerate(normals[:, 0]):
        x = norm(mean, deviation).ppf((np.arange(400_000) + 0.5) / 400_000)
        codes = columns.bins.codes(x[:, None])[:, 0]
        weights = (counts[k] / np.bincount(codes, minlength=5))[codes]
        average = np.average(x, weights=weights)
        np.testing.assert_allclose(following[k, 0, 0], average, atol=3e-3)
        np.testing.assert_allclose(
            following[k, 0, 1], np.sqrt(np.average((x - average) ** 2, weights=weights)), atol=3e-3
        )


@pytest.mark.parametrize("counts", [np.zeros(8), np.array([0, 0, 1e9, 0, 0, 0, 0, 0.0]), np.arange(8.0) ** 4])
def test_merged_bins_are_as_many_whatever_the_counts(counts):
    merged = Bins((np.arange(6.0), np.array([0.0, 1.0, 2.0, 5.0])), (1.0, 1.0)).merged(counts, 4)
    assert merged.sizes == [4, 3]
    for edges, last in zip(merged.edges, (5.0, 5.0), strict=True):
        assert (edges[0], edges[-1]) == (0.0, last)
        assert (np.diff(edges) > 0.0).all()


def test_merged_bins_hold_about_as_much_each():
    counts = np.random.default_rng(0).poisson(100.0, 32).astype(float)
    bins = Bins((np.arange(33.0),), (1.0,)).merged(counts, 4)
    within = np.add.reduceat(counts, bins.edges[0][:-1].astype(int))
    np.testing.assert_allclose(within, counts.sum() / 4, rtol=0.1)


def test_moves_that_are_not_allowed_do_not_come():
    inside = counts(20).in_bins(RATES[:, :1])
    allowed = np.triu(np.ones((3, 3), bool))
    moves, _ = states_of_bins(inside.T @ MOVES @ inside, allowed, counts(20), np.random.default_rng(0))
    assert not moves[~allowed].any()
    assert moves.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("pairs", [np.zeros((20, 20)), np.eye(20) * 1e-300, np.eye(20)[::-1] * 1e30])
def test_any_table_has_states(pairs):
    columns = counts(20)
    pairs = pairs[: sum(columns.bins.sizes), : sum(columns.bins.sizes)]
    moves, rates = states_of_bins(pairs, np.ones((2, 2), bool), columns, np.random.default_rng(0))
    assert np.isfinite(moves).all()
    assert ((rates > 0.0) & (rates <= 40.0)).all()
