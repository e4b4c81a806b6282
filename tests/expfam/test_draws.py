import numpy as np
import pytest

from vips.expfam import Draws


def test_moments_quantiles_and_draws():
    values = np.random.default_rng(0).normal(3.0, 2.0, (20_000, 2))
    draws = Draws(values)
    np.testing.assert_allclose(draws.mean, 3.0, atol=0.06)
    np.testing.assert_allclose(draws.std, 2.0, atol=0.05)
    lower, upper = draws.interval(0.9)
    np.testing.assert_allclose(((values > lower) & (values < upper)).mean(axis=0), 0.9, atol=1e-3)
    assert draws.sample(7, np.random.default_rng(0)).shape == (7, 2)
    np.testing.assert_array_equal(Draws.from_arrays(draws.to_arrays()).draws, values)


def test_bad_draws_are_refused():
    with pytest.raises(ValueError, match="two draws"):
        Draws(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="finite"):
        Draws([1.0, np.nan])
    with pytest.raises(ValueError, match="level"):
        Draws([1.0, 2.0]).interval(95)
