"""Divergences against Monte Carlo, SciPy, quadrature and matrix square roots."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.linalg import sqrtm
from scipy.stats import beta, gamma, norm, wasserstein_distance

from vips.expfam import DiagonalGaussian, Dirichlet, Gamma, Gaussian, GeneralizedInverseGaussian
from vips.tools.comparison import kl, marginals, total_variation_bound, wasserstein


def positive_definite(shape, d, rng):
    roots = rng.normal(size=(*shape, d, d))
    return roots @ np.swapaxes(roots, -2, -1) + np.eye(d)


def pair(family, rng, shape=(3,)):
    """Two distributions of a family for each of three indices."""
    draws = {
        "Gaussian": lambda: Gaussian(rng.normal(size=(*shape, 4)), positive_definite(shape, 4, rng)),
        "DiagonalGaussian": lambda: DiagonalGaussian(rng.normal(size=(*shape, 4)), rng.gamma(2.0, 1.0, (*shape, 4))),
        "Dirichlet": lambda: Dirichlet(rng.gamma(2.0, 1.0, (*shape, 5)) + 0.5),
        "Beta": lambda: Dirichlet(rng.gamma(2.0, 1.0, (*shape, 2)) + 0.5),
        "Gamma": lambda: Gamma(rng.gamma(2.0, 1.0, shape) + 0.5, rng.gamma(2.0, 1.0, shape) + 0.5),
        "GIG": lambda: GeneralizedInverseGaussian(rng.gamma(2.0, 1.0, shape), rng.gamma(2.0, 1.0, shape)),
    }
    return draws[family](), draws[family]()


FAMILIES = ["Gaussian", "DiagonalGaussian", "Dirichlet", "Beta", "Gamma", "GIG"]


@pytest.mark.parametrize("family", FAMILIES)
def test_divergences_are_one_for_each_leading_index_and_zero_of_a_thing_from_itself(family):
    p, q = pair(family, np.random.default_rng(0))
    for divergence in (kl, wasserstein, total_variation_bound):
        apart, self = divergence(p, q), divergence(p, p)
        if apart is None:
            assert divergence is wasserstein
            assert family in ("Dirichlet", "GIG")
            continue
        assert apart.shape == (3,)
        assert (apart > 0.0).all()
        assert (self == 0.0).all()
        if divergence is not kl:
            np.testing.assert_allclose(apart, divergence(q, p), rtol=1e-9)


@pytest.mark.parametrize("family", ["Gaussian", "DiagonalGaussian", "Dirichlet", "Gamma"])
def test_kl_is_the_average_log_ratio_of_draws(family):
    rng = np.random.default_rng(1)
    p, q = pair(family, rng)
    log_ratio = log_density(p, draws := p.sample(200_000, rng)) - log_density(q, draws)
    error = 5.0 * log_ratio.std(axis=0) / np.sqrt(len(log_ratio))
    assert (np.abs(log_ratio.mean(axis=0) - kl(p, q)) < error).all()


def log_density(p, x):
    if isinstance(p, Dirichlet):
        return (p.natural * np.log(x)).sum(axis=-1) - p.log_normalizer
    if isinstance(p, Gamma):
        return gamma.logpdf(x, p.shape, scale=1.0 / p.rate)
    precision = p.precision if isinstance(p, Gaussian) else p.precision[..., None] * np.eye(4)
    shift = x - p.mean
    return 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * np.einsum("...i,...ij,...j->...", shift, precision, shift)


def test_gaussian_distance_is_burés_formula_with_matrix_square_roots():
    p, q = pair("Gaussian", np.random.default_rng(2))
    for i, distance in enumerate(wasserstein(p, q)):
        root = sqrtm(p.cov[i]).real
        between = np.trace(p.cov[i] + q.cov[i] - 2.0 * sqrtm(root @ q.cov[i] @ root).real)
        assert distance**2 == pytest.approx(np.sum((p.mean[i] - q.mean[i]) ** 2) + between, rel=1e-9)
    # a full and a diagonal Gaussian go together
    p, q = pair("DiagonalGaussian", np.random.default_rng(3))
    full = Gaussian(p.mean, p.precision[..., None] * np.eye(4))
    for divergence in (kl, wasserstein, total_variation_bound):
        np.testing.assert_allclose(divergence(full, q), divergence(p, q), rtol=1e-9)
        np.testing.assert_allclose(divergence(q, full), divergence(q, p), rtol=1e-9)


def test_between_gaussians_of_one_variance_it_is_scipys_distance_of_draws():
    noise = np.random.default_rng(4).normal(size=20_000)
    p, q = DiagonalGaussian([0.0], [4.0]), DiagonalGaussian([1.3], [4.0])
    assert wasserstein(p, q) == pytest.approx(wasserstein_distance(0.5 * noise, 1.3 + 0.5 * noise), rel=1e-9)


@pytest.mark.parametrize("shapes", [(2.0, 2.0), (0.3, 4.0), (50.0, 2.5)])
def test_distances_of_gammas_and_betas_are_integrals_over_quantiles(shapes):
    a, b = shapes
    for p, q, law, other in (
        (Gamma(a, 2.0), Gamma(b, 0.5), gamma(a, scale=0.5), gamma(b, scale=2.0)),
        (Dirichlet([a, 1.5]), Dirichlet([2.0, b]), beta(a, 1.5), beta(2.0, b)),
    ):
        expected, _ = quad(lambda u: (law.ppf(u) - other.ppf(u)) ** 2, 0.0, 1.0, limit=500)  # noqa: B023
        assert wasserstein(p, q) == pytest.approx(np.sqrt(expected), rel=1e-4)


def test_marginals_are_those_of_draws():
    rng = np.random.default_rng(5)
    for family in ("Gaussian", "Dirichlet"):
        p, _ = pair(family, rng)
        margins = marginals(p)
        np.testing.assert_allclose(margins.mean[..., 0], p.mean, rtol=1e-9)
        np.testing.assert_allclose(margins.var[..., 0], p.var, rtol=1e-9)


def test_total_variation_is_below_its_bound_and_the_bound_below_one():
    for shift in (0.01, 0.5, 2.0, 10.0, 100.0):
        bound = total_variation_bound(DiagonalGaussian([0.0], [1.0]), DiagonalGaussian([shift], [1.0]))
        assert 2.0 * norm.cdf(0.5 * shift) - 1.0 <= bound <= 1.0
    p, q = DiagonalGaussian([0.0], [1.0]), DiagonalGaussian([0.0], [9.0])  # the smaller direction counts
    assert total_variation_bound(p, q) == pytest.approx(np.sqrt(0.5 * min(kl(p, q), kl(q, p))))


def test_different_families_and_shapes_are_refused():
    rng = np.random.default_rng(6)
    with pytest.raises(TypeError, match="different families"):
        kl(pair("Gamma", rng)[0], pair("Dirichlet", rng)[0])
    with pytest.raises(TypeError, match="got float"):
        kl(1.0, 2.0)
    with pytest.raises(ValueError, match="different shapes"):
        kl(Dirichlet(np.ones((2, 3))), Dirichlet(np.ones((3, 3))))
