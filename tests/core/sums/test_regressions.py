"""Norms of a regression's statistics: no row has one that the sum cannot keep."""

import numpy as np
import pytest

from vips.core.sums import Block
from vips.core.sums.outer import Rows
from vips.core.sums.regressions import RegressionSums

BLOCKS = {"linear": Block((3,)), "precision": Block((3, 3), symmetric=True)}


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_row_whose_own_label_is_no_number_has_no_norm(value):
    """The norm is the largest over declared labels, which are numbers; the sum reads the row's own."""
    rows, weights = np.ones((2, 3)), np.full((2, 1), 0.25)
    residual = Rows(np.array([[value], [0.5]]), np.full((2, 1), 0.5))
    statistics = RegressionSums(Rows(rows), residual, Rows(weights, weights))
    norms = statistics.norms(BLOCKS)
    assert np.isnan(norms[0])
    assert np.isfinite(norms[1])
