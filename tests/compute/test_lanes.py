"""Operations on registers in kernels, against NumPy."""

import numba
import numpy as np
import pytest

from vips._compute import lanes


@numba.njit(error_model="numpy")
def everything(a, b, start, factor, out, sums, double):
    """out = (a + factor · b) / b of two registers from ``start`` on."""
    like = lanes.zeros(a, 2)
    x, y = lanes.load(a, start, like), lanes.load(b, start, like)
    lanes.store(out, start, (factor * y + x) / y)
    one = lanes.load(a, 0, lanes.zeros(a, 1))
    lanes.store(sums, 0, lanes.add_products(x, y, one))
    lanes.store(double, 0, lanes.widen(x))
    return lanes.total(one)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("start", [0, 8, 19])
def test_registers(dtype, start):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 5, 8)).astype(dtype)
    out, sums, double = np.full((5, 8), np.nan, dtype), np.empty(8, dtype), np.empty(16)
    total = everything(a, b, start, 3.0, out, sums, double)
    x, y = a.ravel()[start : start + 16], b.ravel()[start : start + 16]
    rtol = 10 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(out.ravel()[start : start + 16], (x + 3.0 * y) / y, rtol=10 * rtol)
    assert np.isnan(np.delete(out.ravel(), np.arange(start, start + 16))).all()  # nothing beside them was written
    np.testing.assert_allclose(sums, a[0] + (x * y).reshape(2, 8).sum(axis=0), rtol=10 * rtol, atol=rtol)
    np.testing.assert_array_equal(double, x.astype(np.float64))
    assert total == pytest.approx(a[0].sum(dtype=np.float64), rel=10 * rtol)


def test_what_is_not_a_number_stays_in_its_place():
    a = np.ones(16)
    a[[3, 12]] = np.nan, np.inf
    out, sums, double = np.empty(16), np.empty(8), np.empty(16)
    everything(a, np.ones(16), 0, 1.0, out, sums, double)
    np.testing.assert_array_equal(np.isnan(out), np.arange(16) == 3)
    np.testing.assert_array_equal(np.isinf(out), np.arange(16) == 12)
