import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import approx_fprime

from vips.expfam import GeneralizedInverseGaussian

FAMILY = GeneralizedInverseGaussian([[0.3, 1.0, 7.0]], [[0.5], [20.0]])
ORACLE = stats.geninvgauss(
    0.0, np.sqrt(FAMILY.rate * FAMILY.inverse_rate), scale=np.sqrt(FAMILY.inverse_rate / FAMILY.rate)
)


def integral(function, rate, inverse_rate):
    """∫ f(x) exp(-½ (a x + b / x)) / x dx, over log x."""

    def kernel(u):
        return function(mpmath.e**u) * mpmath.exp(-(rate * mpmath.e**u + inverse_rate * mpmath.e**-u) / 2)

    return float(mpmath.quad(kernel, [-30, -8, -3, 0, 3, 8, 30]))


@pytest.mark.parametrize(("rate", "inverse_rate"), [(1.0, 1.0), (0.02, 3.0), (50.0, 0.4), (2.0, 1e-6)])
def test_moments_against_integration(rate, inverse_rate):
    family = GeneralizedInverseGaussian(rate, inverse_rate)
    normalizer = integral(lambda x: 1, rate, inverse_rate)
    assert family.log_normalizer == pytest.approx(np.log(normalizer), rel=1e-9)
    moments = [family.mean, family.inverse_mean, family.expected_log]
    expected = [integral(f, rate, inverse_rate) / normalizer for f in (lambda x: x, lambda x: 1 / x, mpmath.log)]
    np.testing.assert_allclose(moments, expected, rtol=1e-8, atol=1e-9)


def test_moments_and_density_against_scipy():
    np.testing.assert_allclose(FAMILY.mean, ORACLE.mean(), rtol=1e-7)
    x, (linear, inverse) = 0.7, FAMILY.natural
    np.testing.assert_allclose(linear * x + inverse / x - np.log(x) - FAMILY.log_normalizer, ORACLE.logpdf(x))


@pytest.mark.parametrize(("rate", "inverse_rate"), [(0.3, 0.5), (7.0, 20.0)])
def test_mean_parameters_are_the_gradient_of_the_log_normalizer(rate, inverse_rate):
    family = GeneralizedInverseGaussian(rate, inverse_rate)

    def normalizer(natural):
        return GeneralizedInverseGaussian.from_natural(*natural).log_normalizer

    gradient = approx_fprime(np.array(family.natural), normalizer, 1e-7)
    np.testing.assert_allclose([family.mean, family.inverse_mean], gradient, rtol=1e-5)


def test_interval_holds_its_level():
    lower, upper = FAMILY.interval(0.9)
    np.testing.assert_allclose(ORACLE.cdf(upper) - ORACLE.cdf(lower), 0.9, rtol=1e-6)


def test_extremes():
    far = GeneralizedInverseGaussian([1e-12, 1e12, 1e8], [1e-12, 1e12, 1e-8])
    for moments in (far.mean, far.inverse_mean, far.expected_log, far.log_normalizer, far.entropy):
        assert np.isfinite(moments).all()
    assert (far.mean * far.inverse_mean >= 1.0).all()  # Jensen
