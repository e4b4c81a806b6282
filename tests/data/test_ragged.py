"""Rows of CSR matrices that several threads copy, against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from vips.data import _ragged


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int16, np.int64, np.float32, np.float64, np.longdouble])
@pytest.mark.parametrize("pointers", [np.int32, np.int64])
def test_rows_are_those_of_scipy(dtype, pointers, monkeypatch):
    monkeypatch.setattr(_ragged, "_LEAST_VALUES", 0)
    monkeypatch.setattr("vips._compute.threads.n_threads", lambda: 3)
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.poisson(0.5, (200, 30)).astype(dtype))
    X.indptr, X.indices = X.indptr.astype(pointers), X.indices.astype(pointers)
    X.indices[:40] = 10**6  # in columns that do not exist
    for rows in (np.flatnonzero(rng.random(200) < 0.4), np.arange(200), np.array([0]), np.array([], dtype=int)):
        found, expected = _ragged.some_rows(X, rows), X[rows]
        assert type(found) is type(expected)
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
            assert not np.may_share_memory(getattr(found, name), getattr(X, name))
