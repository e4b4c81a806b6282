"""States that are computed from counts of neighbouring bins."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.stats import norm

from vips.core.phases import steps_of_shares
from vips.core.plan_phases import Phase
from vips.core.sums import Block
from vips.models.components.bins import Bins, bins_of_counts
from vips.models.components.counts import Counts
from vips.models.components.numbers import standard_numbers
from vips.models.markov.start import states_of_bins
from vips.models.markov.statistics import of_pairs_of_bins
from vips.privacy import PrivacyPlan

MOVES = np.array([[0.35, 0.05, 0.0], [0.02, 0.25, 0.05], [0.03, 0.02, 0.23]])
RATES = np.array([[0.5, 9.0], [4.0, 1.0], [12.0, 1.5]])


def counts(n_bins, n_columns=1):
    largest = (40,) * n_columns
    return Counts(largest, own_bins=bins_of_counts(largest, n_bins))


@pytest.mark.parametrize("columns", [counts(20), counts(12, 2)])
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
    columns = standard_numbers(2, n_bins)
    normals = np.stack([[[-1.2, 0.3], [0.2, 1.3], [1.3, -0.8]], [[0.3, 0.5], [0.4, 0.3], [0.5, 0.4]]], axis=2)
    inside = columns.in_bins(normals.reshape(3, -1))
    moves, states = states_of_bins(inside.T @ MOVES @ inside, np.ones((3, 3), bool), columns, np.random.default_rng(0))
    order, states = np.argsort(states[:, 0]), states.reshape(3, 2, 2)
    np.testing.assert_allclose(states[order], normals, atol=0.05)
    np.testing.assert_allclose(moves[np.ix_(order, order)], MOVES, atol=0.01)


def test_the_next_normals_are_means_and_deviations_in_the_bins():
    """They are those of many draws, each in proportion to the counts in its bin."""
    columns, normals = standard_numbers(1, 5), np.array([[[0.3, 0.8]], [[-1.0, 0.4]]])
    counts = np.array([[5.0, 1.0, 2.0, 7.0, 3.0], [2.0, 2.0, 1.0, 0.5, 0.1]])
    following = columns.values_of_bins(counts, normals.reshape(2, 2)).reshape(2, 1, 2)
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


@pytest.mark.parametrize("lengths", [[3, 0, 1, 2, 40], [5_000], []])
def test_pairs_are_those_of_all_columns_at_a_step_and_at_the_next_one(lengths):
    rng, offsets = np.random.default_rng(0), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    bins = Bins((np.arange(4.0), np.array([0.0, 1.0, 3.0])), (1.0, 1.0))
    cells = rng.integers(0, 3, (offsets[-1], 2)).astype(float)
    cells[rng.random(cells.shape) < 0.2] = np.nan
    expected, codes = np.zeros((len(lengths), 5, 5)), bins.codes(cells)
    for n, (a, b) in enumerate(pairwise(offsets)):
        for t in range(a + 1, b):
            for i, j in product(range(2), repeat=2):
                if codes[t - 1, i] >= 0 and codes[t, j] >= 0:
                    expected[n, 3 * i + codes[t - 1, i], 3 * j + codes[t, j]] += 1.0
    statistics = of_pairs_of_bins(cells, offsets, bins)
    np.testing.assert_array_equal(statistics.weighted(np.ones(len(lengths)))["pairs"], expected)
    np.testing.assert_array_equal(statistics.weighted_sum(np.ones(len(lengths)))["pairs"], expected.sum(axis=0))
    np.testing.assert_allclose(
        statistics.norms({"pairs": Block((5, 5))}), np.sqrt(np.square(expected).sum(axis=(1, 2)))
    )


def test_pairs_of_a_long_sequence_take_no_more_memory_than_the_table():
    """Or a long record could end a fit: 48 columns have 2,304 pairs at each step."""
    bins, cells = Bins((np.arange(3.0),) * 48, (1.0,) * 48), np.zeros((20_000, 48))
    tracemalloc.start()
    of_pairs_of_bins(cells, np.array([0, 20_000]), bins)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 5 * cells.nbytes


@pytest.mark.parametrize("pairs", [np.zeros((20, 20)), np.eye(20) * 1e-300, np.eye(20)[::-1] * 1e30])
def test_any_table_has_states(pairs):
    columns = counts(20)
    pairs = pairs[: sum(columns.bins.sizes), : sum(columns.bins.sizes)]
    moves, rates = states_of_bins(pairs, np.ones((2, 2), bool), columns, np.random.default_rng(0))
    assert np.isfinite(moves).all()
    assert ((rates > 0.0) & (rates <= 40.0)).all()


@pytest.mark.parametrize("n_steps", [3, 20, 3_000_000])
def test_first_phases_take_their_shares_of_the_budget(n_steps):
    """On full batches by weights, which a plan takes, on samples by numbers."""
    full = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=n_steps)
    first, second = steps_of_shares(full, n_steps, 0.05, 0.35)
    assert first["n_steps"] == second["n_steps"] == 1
    whole = first["weight"] + second["weight"] + n_steps - 2
    if n_steps < 1_000_000:
        np.testing.assert_allclose([first["weight"] / whole, second["weight"] / whole], [0.05, 0.35])
    full.with_phases((*(Phase(**of) for of in (first, second)), Phase(n_steps - 2)))
    sampled = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.1, n_steps=20)
    assert steps_of_shares(sampled, 20, 0.05, 0.35) == [{"n_steps": 1, "weight": 1.0}, {"n_steps": 7, "weight": 1.0}]
