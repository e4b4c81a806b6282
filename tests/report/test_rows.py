"""Sums over a row's entries do not depend on other rows, not even in the last bit; matrices and masked arrays as input."""

import numpy as np
import pytest

from vips import BayesianLogisticRegression, PrivacyPlan, SigmoidBeliefNetwork
from vips.core.exact.rowwise import row_dots, row_norms
from vips.data import check_data


@pytest.mark.parametrize("width", [1, 4095, 4097, 8193, 20_000])
def test_norms_are_functions_of_their_row(width):
    rows = np.random.default_rng(0).normal(size=(5, width))
    together = row_norms(rows)
    np.testing.assert_array_equal(together, [row_norms(rows[[n]])[0] for n in range(5)])
    np.testing.assert_array_equal(together, [row_norms(rows[n:])[0] for n in range(5)])
    np.testing.assert_allclose(together, np.linalg.norm(rows, axis=1), rtol=1e-13)
    np.testing.assert_array_equal(row_dots(rows, rows), [row_dots(rows[[n]], rows[[n]])[0] for n in range(5)])


@pytest.mark.parametrize("kind", [np.asmatrix, np.ma.masked_array])
def test_matrices_and_masked_arrays_are_taken_as_plain_arrays(kind):
    """Their comparisons have other shapes, which once raised errors, but only for data with a defective record."""
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=2)
    X = np.array([[0.0, 1.0], [1.0, 1.0], [np.nan, 1.0]])
    assert type(check_data(kind(X))._X) is np.ndarray
    SigmoidBeliefNetwork(2, privacy=plan).fit(kind(X))
    BayesianLogisticRegression(privacy=plan, max_norm=1.0).fit(kind(X), np.array([0, 1, 1]))


def test_norms_do_not_depend_on_the_order_in_memory_of_a_table():
    """Data frames store tables by columns."""
    rows = np.asfortranarray(np.random.default_rng(0).normal(size=(40, 50)))
    alone = np.concatenate([row_norms(rows[n : n + 1]) for n in range(40)])
    for selection in (np.arange(40), [3], [3, 9], [0, 1, 2]):
        np.testing.assert_array_equal(row_norms(rows[selection]), alone[selection])
    np.testing.assert_array_equal(row_norms(rows[:, ::-1][:, ::-1]), alone)
