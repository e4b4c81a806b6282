"""Dirichlet distributions against SciPy's."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import approx_fprime

from vips.expfam import Dirichlet

CONCENTRATIONS = [np.array([1.0, 1.0]), np.array([0.3, 2.0, 5.0]), np.array([[0.02, 0.5, 80.0], [3.0, 3.0, 3.0]])]


@pytest.mark.parametrize("concentration", CONCENTRATIONS)
def test_moments_and_entropy_against_scipy(concentration):
    family = Dirichlet(concentration)
    for row, mean, var, entropy in zip(
        np.atleast_2d(concentration), np.atleast_2d(family.mean), np.atleast_2d(family.var),
        np.atleast_1d(family.entropy), strict=True,
    ):  # fmt: skip
        oracle = stats.dirichlet(row)
        np.testing.assert_allclose(mean, oracle.mean())
        np.testing.assert_allclose(var, oracle.var())
        np.testing.assert_allclose(entropy, oracle.entropy())


@pytest.mark.parametrize("concentration", CONCENTRATIONS[:2])
def test_expected_log_is_the_gradient_of_the_log_normalizer(concentration):
    gradient = approx_fprime(concentration, lambda a: Dirichlet(a).log_normalizer, 1e-7)
    family = Dirichlet(concentration)
    np.testing.assert_allclose(family.expected_log, gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("concentration", CONCENTRATIONS)
def test_samples_have_the_stated_moments(concentration):
    family = Dirichlet(concentration)
    draws = family.sample(40_000, np.random.default_rng(1))
    assert draws.shape == (40_000, *concentration.shape)
    np.testing.assert_allclose(draws.sum(axis=-1), 1.0)
    np.testing.assert_allclose(draws.mean(axis=0), family.mean, atol=5 * np.sqrt(family.var.max() / 40_000))
    assert np.isfinite(Dirichlet(np.full(4, 1e-4)).sample(1000, np.random.default_rng(2))).all()


def test_interval_holds_its_level():
    family = Dirichlet([0.5, 2.0, 6.0])
    lower, upper = family.interval(0.9)
    draws = family.sample(20_000, np.random.default_rng(3))
    np.testing.assert_allclose(((draws > lower) & (draws < upper)).mean(axis=0), 0.9, atol=0.015)


@pytest.mark.parametrize("bad", [[0.0, 1.0], [-1.0, 1.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_bad_concentrations_are_refused(bad):
    with pytest.raises(ValueError, match="concentration"):
        Dirichlet(bad)


def test_nobody_can_change_a_distribution_from_outside():
    owned, base = np.ones(3), np.ones(3)
    owned.flags.writeable = False
    view = base[:]
    view.flags.writeable = False
    assert Dirichlet(owned).concentration is owned
    family = Dirichlet(view)
    base[:] = 2.0
    np.testing.assert_array_equal(family.concentration, 1.0)
