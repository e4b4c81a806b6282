"""States that are computed from counts of neighbouring counts."""

from __future__ import annotations

import numpy as np
import pytest

from vips.models.components.counts import Counts
from vips.models.markov.pairs import rates_of_pairs

MOVES = np.array([[0.35, 0.05, 0.0], [0.02, 0.25, 0.05], [0.03, 0.02, 0.23]])
RATES = np.array([[0.5, 9.0], [4.0, 1.0], [12.0, 1.5]])


@pytest.mark.parametrize("columns", [Counts((40,), n_bins=20), Counts((40, 40), n_bins=12)])
@pytest.mark.parametrize("floor", [0.0, 1e-4])
def test_states_are_found_from_pairs(columns, floor):
    """Also where every cell has a little more, as denoised counts have."""
    inside = columns.in_bins(RATES[:, : columns.n_columns])
    pairs = 1e6 * (inside.T @ MOVES @ inside + floor)
    moves, rates = rates_of_pairs(pairs, np.ones((3, 3), bool), columns, np.random.default_rng(0))
    order = np.argsort(rates[:, 0])
    np.testing.assert_allclose(rates[order], RATES[:, : columns.n_columns], rtol=0.03)
    np.testing.assert_allclose(moves[np.ix_(order, order)], MOVES, atol=0.01)


def test_moves_that_are_not_allowed_do_not_come():
    inside = Counts((40,), n_bins=20).in_bins(RATES[:, :1])
    allowed = np.triu(np.ones((3, 3), bool))
    moves, _ = rates_of_pairs(inside.T @ MOVES @ inside, allowed, Counts((40,), n_bins=20), np.random.default_rng(0))
    assert not moves[~allowed].any()
    assert moves.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("pairs", [np.zeros((20, 20)), np.eye(20) * 1e-300, np.eye(20)[::-1] * 1e30])
def test_any_table_has_states(pairs):
    columns = Counts((40,), n_bins=20)
    pairs = pairs[: sum(columns.bins.sizes), : sum(columns.bins.sizes)]
    moves, rates = rates_of_pairs(pairs, np.ones((2, 2), bool), columns, np.random.default_rng(0))
    assert np.isfinite(moves).all()
    assert ((rates > 0.0) & (rates <= 40.0)).all()
