import numpy as np
import pytest
from scipy import stats
from scipy.optimize import approx_fprime

from vips.expfam import Gamma

FAMILY = Gamma([[0.3, 1.0, 7.0]], [[0.5], [20.0]])
ORACLE = stats.gamma(FAMILY.shape, scale=1.0 / FAMILY.rate)


def test_moments_entropy_and_density_against_scipy():
    assert FAMILY.mean.shape == (2, 3)
    np.testing.assert_allclose(FAMILY.mean, ORACLE.mean())
    np.testing.assert_allclose(FAMILY.var, ORACLE.var())
    np.testing.assert_allclose(FAMILY.entropy, ORACLE.entropy())
    x, (logarithmic, linear) = 0.7, FAMILY.natural
    np.testing.assert_allclose(logarithmic * np.log(x) + linear * x - FAMILY.log_normalizer, ORACLE.logpdf(x))


@pytest.mark.parametrize(("shape", "rate"), [(0.3, 0.5), (1.0, 20.0), (7.0, 2.0)])
def test_mean_parameters_are_the_gradient_of_the_log_normalizer(shape, rate):
    family = Gamma(shape, rate)
    gradient = approx_fprime(np.array(family.natural), lambda eta: Gamma.from_natural(*eta).log_normalizer, 1e-7)
    np.testing.assert_allclose([family.expected_log, family.mean], gradient, rtol=1e-5)


def test_interval_holds_its_level():
    lower, upper = FAMILY.interval(0.9)
    np.testing.assert_allclose(ORACLE.cdf(lower), 0.05)
    np.testing.assert_allclose(ORACLE.cdf(upper), 0.95)
