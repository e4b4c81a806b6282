import warnings
from importlib.metadata import version
from itertools import product

import numpy as np
import pytest
from polyagamma import random_polyagamma
from scipy.integrate import quad
from scipy.optimize import approx_fprime

from vips.expfam import PolyaGamma, polya_gamma_mean
from vips.expfam.polya_gamma import _series

N_DRAWS = 200_000


def standard_errors_away(draws, family, transform_at=2.0):
    """Errors of the mean, the variance and the Laplace transform at t = 2 / E ω, each in its standard errors."""
    centred, weights = draws - draws.mean(), np.exp(-transform_at / family.mean * draws)
    var = centred.var()
    return np.abs(
        [
            (draws.mean() - family.mean) / np.sqrt(family.var / len(draws)),
            (var - family.var) / np.sqrt(((centred**4).mean() - var**2) / len(draws)),
            (weights.mean() - family.laplace(transform_at / family.mean)) / (weights.std() / np.sqrt(len(draws))),
        ]
    )


WHERE_THE_METHOD_CHANGES = [
    (1.0, 5.5), (1.0, 49.9), (1.0, 50.1), (0.7, 49.9), (1.0, 300.0), (4.0, 1e3), (0.7, 1e6), (40.0, 1.0), (0.05, 0.0),
]  # fmt: skip


BETWEEN = product([0.3, 1.0, 1.5, 2.5, 4.0, 7.3, 10.0, 30.0], [0.0, 1.0, 5.0])


@pytest.mark.parametrize(
    ("shape", "tilt"),
    [
        *(pytest.param(*row, marks=() if row[1] == 1.0 else pytest.mark.slow) for row in BETWEEN),
        *WHERE_THE_METHOD_CHANGES,
    ],
)
def test_samples_are_unbiased(shape, tilt):
    family = PolyaGamma(shape, -tilt)
    assert standard_errors_away(family.sample(N_DRAWS, np.random.default_rng(0)), family).max() < 4.0


def test_the_series_and_the_exact_method_have_one_law():
    family = PolyaGamma(2.0, 1.5)
    series = _series(np.full(N_DRAWS, 2.0), np.full(N_DRAWS, 1.5), np.random.default_rng(2))
    assert standard_errors_away(series, family).max() < 4.0
    exact = family.sample(N_DRAWS, np.random.default_rng(3))
    levels = np.linspace(0.02, 0.98, 25)
    above = (series[:, None] > np.quantile(exact, levels)).mean(axis=0)
    np.testing.assert_allclose(above, 1.0 - levels, atol=4.0 * np.sqrt(2.0 * 0.25 / N_DRAWS))


def test_the_test_of_bias_sees_one_percent():
    family = PolyaGamma(2.5, 1.0)
    assert standard_errors_away(1.01 * family.sample(N_DRAWS, np.random.default_rng(4)), family).max() > 5.0


@pytest.mark.slow
@pytest.mark.skipif(version("polyagamma") != "2.0.2", reason="a statement about this version")
@pytest.mark.parametrize(
    ("method", "shape", "tilt"),
    [("alternate", 4.0, 0.0), ("saddle", 1.0, 0.0), ("gamma", 30.0, 5.0), ("devroye", 1.0, 200.0)],
)
def test_methods_that_are_not_used_are_biased(method, shape, tilt):
    draws = random_polyagamma(shape, tilt, size=N_DRAWS, method=method, random_state=5)
    assert standard_errors_away(draws, PolyaGamma(shape, tilt)).max() > 5.0


def test_sample_of_an_array_mixes_the_methods_entry_by_entry():
    family = PolyaGamma([[1.0], [2.5], [40.0]], [0.0, 3.0, 80.0])
    draws = family.sample(20_000, np.random.default_rng(5))
    assert draws.shape == (20_000, 3, 3)
    assert (np.abs(draws.mean(axis=0) - family.mean) < 5.0 * np.sqrt(family.var / 20_000)).all()


@pytest.mark.parametrize("tilt", [0.0, 1e-320, 0.99e-4, 1.01e-4, 3e-3, 0.3, 0.999999, 1.000001, 3.0, 30.0, 1e3])
def test_moments_are_accurate_to_rounding(tilt):
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        c = mpmath.mpf(max(tilt, 1e-12))
        mean = mpmath.tanh(c / 2) / (2 * c)
        var = (mpmath.sinh(c) - c) / (4 * c**3 * mpmath.cosh(c / 2) ** 2)
    family = PolyaGamma(3.0, tilt)
    assert float(family.mean / (3 * mean)) == pytest.approx(1.0, abs=1e-15)
    assert float(family.var / (3 * var)) == pytest.approx(1.0, abs=4e-15)


@pytest.mark.parametrize(("shape", "tilt"), [(1.0, 0.0), (2.0, 1.7), (0.4, 6.0)])
def test_moments_are_derivatives_of_the_laplace_transform(shape, tilt):
    family, h = PolyaGamma(shape, tilt), 1e-4
    logs = np.log(family.laplace(np.array([0.0, h, 2 * h, 3 * h])))
    assert family.mean == pytest.approx(-(-11 * logs[0] + 18 * logs[1] - 9 * logs[2] + 2 * logs[3]) / (6 * h), rel=1e-7)
    assert family.var == pytest.approx((2 * logs[0] - 5 * logs[1] + 4 * logs[2] - logs[3]) / h**2, rel=1e-4)


def test_laplace_transform_is_the_integral_against_the_density():
    # p(x | 1, 0) = Σ_n (-1)^n (2n + 1) / √(2π x³) exp(-(2n + 1)² / (8x))      Polson, Scott and Windle (2013)
    odd, signs = 2.0 * np.arange(60) + 1.0, (-1.0) ** np.arange(60)
    tilt, t = 1.3, 0.9

    def integrand(x, t):
        density = (signs * odd * np.exp(-(odd**2) / (8.0 * x))).sum() / np.sqrt(2.0 * np.pi * x**3)
        return np.exp(-t * x - 0.5 * tilt**2 * x) * np.cosh(0.5 * tilt) * density

    assert quad(integrand, 1e-6, 30.0, args=(0.0,))[0] == pytest.approx(1.0, abs=1e-7)
    assert quad(integrand, 1e-6, 30.0, args=(t,))[0] == pytest.approx(float(PolyaGamma(1.0, tilt).laplace(t)), abs=1e-7)


def test_mean_is_the_gradient_of_the_log_normalizer():
    # the natural parameter of ω is -c²/2, the log-normaliser -b log cosh(c/2)
    gradient = approx_fprime([-0.5 * 2.0**2], lambda eta: -3.0 * np.log(np.cosh(0.5 * np.sqrt(-2.0 * eta[0]))), 1e-7)
    assert polya_gamma_mean(2.0, 3.0) == pytest.approx(gradient[0], rel=1e-5)


def test_kl_is_nonnegative_zero_on_itself_and_right():
    p, q = PolyaGamma(2.0, 3.0), PolyaGamma(2.0, -0.5)
    assert p.kl(p) == 0.0
    assert p.kl(PolyaGamma(2.0)) == pytest.approx(2.0 * np.log(np.cosh(1.5)) - 1.5 * np.tanh(1.5))
    draws = p.sample(N_DRAWS, np.random.default_rng(7))
    log_ratio = (
        2.0 * np.log(np.cosh(1.5) / np.cosh(0.25)) - 0.5 * (9.0 - 0.25) * draws
    )  # the densities share p(ω | b, 0)
    assert p.kl(q) == pytest.approx(log_ratio.mean(), abs=4 * log_ratio.std() / np.sqrt(N_DRAWS))
    tilts = np.linspace(0.0, 6.0, 13)
    kl = PolyaGamma(1.5, tilts[:, None]).kl(PolyaGamma(1.5, tilts))
    assert (kl[~np.eye(13, dtype=bool)] > 0.0).all()
    with pytest.raises(ValueError, match="equal shapes"):
        p.kl(PolyaGamma(1.0, 3.0))


def test_huge_tilts_neither_overflow_nor_warn():
    family = PolyaGamma([1.0, 1.5, 2.0], [1e3, 1e300, 1e308])
    with warnings.catch_warnings(), np.errstate(over="raise", invalid="raise", divide="raise"):
        warnings.simplefilter("error")
        np.testing.assert_allclose(family.mean, [5e-4, 7.5e-301, 1e-308])
        np.testing.assert_allclose(family.var, [5e-10, 0.0, 0.0])
        np.testing.assert_allclose(family.laplace(2.0), [np.exp(-1e-3), 1.0, 1.0], rtol=1e-6)
        kl = family.kl(PolyaGamma([1.0, 1.5, 2.0]))
        np.testing.assert_allclose(kl, [250.0 - np.log(2.0), 1.5 * 0.25e300, 2.0 * 0.25e308])
        np.testing.assert_allclose(family.sample(5, np.random.default_rng(8))[:, 1:], np.tile(family.mean[1:], (5, 1)))


@pytest.mark.parametrize(("shape", "tilt"), [(0.0, 1.0), (-1.0, 1.0), (np.inf, 1.0), (1.0, np.nan), (1.0, np.inf)])
def test_bad_parameters_are_refused(shape, tilt):
    with pytest.raises(ValueError, match="shape"):
        PolyaGamma(shape, tilt)
    with pytest.raises(ValueError, match="negative"):
        PolyaGamma(1.0, 1.0).laplace(-1.0)
