import numpy as np
import pytest

from vips.expfam import Dirichlet, ScaledDirichlet


def test_rates_known_equally_well_are_a_dirichlet():
    concentration = np.array([[3.0, 40.0, 7.0], [500.0, 20.0, 30.0]])
    ours, exact = ScaledDirichlet(concentration, concentration), Dirichlet(concentration)
    np.testing.assert_allclose(ours.mean, exact.mean)
    np.testing.assert_allclose(ours.var, exact.var, rtol=1e-9)
    for ours_bound, exact_bound in zip(ours.interval(0.9), exact.interval(0.9), strict=True):
        np.testing.assert_allclose(ours_bound, exact_bound, rtol=1e-6)


def test_moments_and_intervals_are_those_of_draws():
    mean = np.array([200.0, 300.0, 50.0, 450.0])
    ours = ScaledDirichlet(mean, np.array([800.0, 300.0, 900.0, 5000.0]))
    draws = ours.sample(100_000, np.random.default_rng(0))
    assert draws.sum(axis=-1) == pytest.approx(1.0)
    np.testing.assert_allclose(draws.mean(axis=0), ours.mean, rtol=0.02)
    np.testing.assert_allclose(draws.std(axis=0), ours.std, rtol=0.03)
    lower, upper = ours.interval(0.9)
    np.testing.assert_allclose(((lower < draws) & (draws < upper)).mean(axis=0), 0.9, atol=0.01)
    again = ScaledDirichlet.from_arrays(ours.to_arrays())
    np.testing.assert_array_equal(again.var, ours.var)


def test_intervals_begin_at_zero_where_the_density_is_largest_there():
    rates = ScaledDirichlet(np.array([1.0, 1.0, 98.0]), np.array([2.0, 0.1, 0.1]))
    draws = rates.sample(100_000, np.random.default_rng(0))
    lower, upper = rates.interval(0.9)
    assert lower[0] == 0.0 < lower[1]
    np.testing.assert_allclose(((lower <= draws) & (draws < upper)).mean(axis=0)[:2], 0.9, atol=0.02)


def test_bad_arguments():
    for arrays in ((np.ones(3), np.ones(2)), (np.ones(2), np.zeros(2)), (np.array([1.0, np.nan]), np.ones(2))):
        with pytest.raises(ValueError, match="positive and finite, of one shape"):
            ScaledDirichlet(*arrays)
    with pytest.raises(ValueError, match="level"):
        ScaledDirichlet(np.ones(3), np.ones(3)).interval(95)
