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


def test_round_trips_and_parameters_cannot_be_changed():
    for other in (Gamma.from_natural(*FAMILY.natural), Gamma.from_arrays(FAMILY.to_arrays())):
        np.testing.assert_allclose(other.shape, FAMILY.shape, rtol=1e-15)
        np.testing.assert_array_equal(other.rate, FAMILY.rate)
    with pytest.raises(ValueError, match="read-only"):
        FAMILY.rate[0, 0] = 2.0


def test_kl_is_nonnegative_zero_on_itself_and_right():
    p, q = Gamma(2.0, 3.0), Gamma(0.7, 0.4)
    assert p.kl(p) == 0.0
    draws = p.sample(200_000, np.random.default_rng(0))
    log_ratio = stats.gamma(2.0, scale=1 / 3.0).logpdf(draws) - stats.gamma(0.7, scale=1 / 0.4).logpdf(draws)
    assert p.kl(q) == pytest.approx(log_ratio.mean(), abs=4 * log_ratio.std() / np.sqrt(len(draws)))
    assert (FAMILY.kl(q) > 0.0).all()
    assert FAMILY.kl(q).shape == (2, 3)


def test_samples_have_the_stated_law():
    draws = FAMILY.sample(20_000, np.random.default_rng(1))
    assert draws.shape == (20_000, 2, 3)
    for index in np.ndindex(2, 3):
        oracle = stats.gamma(FAMILY.shape[index], scale=1.0 / FAMILY.rate[index])
        assert stats.kstest(draws[:, *index], oracle.cdf).pvalue > 1e-4


def test_interval_holds_its_level():
    lower, upper = FAMILY.interval(0.9)
    np.testing.assert_allclose(ORACLE.cdf(lower), 0.05)
    np.testing.assert_allclose(ORACLE.cdf(upper), 0.95)
    with pytest.raises(ValueError, match="level"):
        FAMILY.interval(90)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_bad_parameters_are_refused(bad):
    with pytest.raises(ValueError, match="`shape`"):
        Gamma(bad, 1.0)
    with pytest.raises(ValueError, match="`rate`"):
        Gamma([1.0, 2.0], [bad, 1.0])
