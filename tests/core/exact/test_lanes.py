"""Operations on registers in kernels, against NumPy."""

import numba
import numpy as np
import pytest

from vips.core.exact import lanes


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


@numba.njit(error_model="numpy")
def rows_and_columns(a, starts, factor, out, sums, columns):
    one = lanes.load(a, 0, lanes.zeros(a, 1))
    lanes.store(out, 0, max(one, -factor) - 1)
    lanes.store(out, 8, factor * min(abs(one), 0.5))
    lanes.store(out, 16, lanes.narrow(lanes.widen(one), one))
    lanes.store(sums, 0, lanes.totals(a, 0, one))
    lanes.store_transposed(columns, 0, 10, lanes.load_rows(a, starts, 0, 1, one))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_operators_and_transposition(dtype):
    a = np.random.default_rng(0).normal(size=80).astype(dtype)
    out, sums, columns = np.full(25, np.nan, dtype), np.empty(8, dtype), np.full(81, np.nan, dtype)
    starts = np.arange(8, dtype=np.int64)[::-1] * 9
    rows_and_columns(a, starts, 0.25, out, sums, columns)
    one = a[:8]
    expected = np.concatenate(
        [np.maximum(one, dtype(-0.25)) - 1, dtype(0.25) * np.minimum(np.abs(one), dtype(0.5)), one]
    )
    np.testing.assert_array_equal(out[:24], expected.astype(dtype))
    np.testing.assert_allclose(sums, a[:64].reshape(8, 8).sum(axis=1), rtol=1e-5)
    table = columns[:80].reshape(8, 10)
    np.testing.assert_array_equal(table[:, :8], np.array([a[start + 1 : start + 9] for start in starts]).T)
    assert np.isnan([*table[:, 8:].ravel(), columns[80], out[24]]).all()  # nothing beside them was written
    # bounds take the place of what is not a number
    rows_and_columns(np.full(80, np.nan, dtype), np.zeros(8, np.int64), 0.25, out, sums, columns)
    np.testing.assert_array_equal(out[:16], [-1.25] * 8 + [0.125] * 8)


@numba.njit(error_model="numpy")
def chosen_and_scaled(a, b, to_integer, out):
    """b where a < 0 and 1 elsewhere; and b times powers of two."""
    x, y = lanes.load(a, 0, lanes.zeros(a, 2)), lanes.load(b, 0, lanes.zeros(a, 2))
    lanes.store(out, 0, lanes.if_negative(x, y, lanes.spread(1.0, x)))
    lanes.store(out, 16, lanes.times_power_of_two(y, x + to_integer))


@pytest.mark.parametrize(("dtype", "digits"), [(np.float32, 23), (np.float64, 52)])
def test_choices_and_powers_of_two(dtype, digits):
    a, b, out = np.arange(-9.0, 7.0).astype(dtype), np.linspace(-2.0, -1.0, 16, dtype=dtype), np.empty(32, dtype)
    chosen_and_scaled(a, b, 1.5 * 2.0**digits, out)
    np.testing.assert_array_equal(out, np.concatenate([np.where(a < 0, b, dtype(1.0)), np.ldexp(b, a.astype(int))]))
    a[[0, 3, 5]] = np.nan, 0.0, -0.0
    chosen_and_scaled(a, b, 1.5 * 2.0**digits, out)
    np.testing.assert_array_equal(out[:16], np.where(a < 0, b, dtype(1.0)))
