"""What every family promises: parameters come back, entropy and divergence are those of SciPy's densities, and samples of
positive numbers have SciPy's law."""

import numpy as np
import pytest
from scipy import stats

from tests.expfam.test_dirichlet import CONCENTRATIONS
from tests.expfam.test_gaussian import BATCHES, DIAGONAL, FULL, PRECISION, inverse
from vips.expfam import DiagonalGaussian, Dirichlet, Gamma, Gaussian, GeneralizedInverseGaussian

GAMMA = Gamma([[0.3, 1.0, 7.0]], [[0.5], [20.0]])
INVERSE = GeneralizedInverseGaussian([[0.3, 1.0, 7.0]], [[0.5], [20.0]])


def oracle(family):
    """SciPy's distribution."""
    if isinstance(family, Dirichlet):
        return stats.dirichlet(family.concentration)
    if isinstance(family, Gamma):
        return stats.gamma(family.shape, scale=1.0 / family.rate)
    if isinstance(family, GeneralizedInverseGaussian):
        a, b = family.rate, family.inverse_rate
        return stats.geninvgauss(0.0, np.sqrt(a * b), scale=np.sqrt(b / a))
    return stats.multivariate_normal(family.mean, inverse(family))


def log_density(family, draws):
    return oracle(family).logpdf(draws.T if isinstance(family, Dirichlet) else draws)


@pytest.mark.parametrize(
    ("p", "q", "batch"),
    [
        (Gamma(2.0, 3.0), Gamma(0.7, 0.4), GAMMA),
        (GeneralizedInverseGaussian(2.0, 3.0), GeneralizedInverseGaussian(0.7, 0.4), INVERSE),
        (Dirichlet([2.0, 3.0, 4.0]), Dirichlet([1.0, 1.5, 0.7]), Dirichlet(CONCENTRATIONS[2])),
        (FULL, Gaussian([0.0, -1.0, 1.0], PRECISION + 0.7 * np.eye(3)), BATCHES[0]),
        (DIAGONAL, DiagonalGaussian([0.0, -1.0, 1.0], DIAGONAL.precision + 0.7 * np.arange(3)), BATCHES[1]),
    ],
)
def test_entropy_and_divergence_are_means_over_draws(p, q, batch):
    draws = p.sample(200_000, np.random.default_rng(0))
    log_p, log_q = log_density(p, draws), log_density(q, draws)
    root = np.sqrt(len(draws))
    assert p.entropy == pytest.approx(-log_p.mean(), abs=4 * log_p.std() / root)
    error = (log_p - log_q).std() / root
    assert p.kl(q) == pytest.approx((log_p - log_q).mean(), abs=4 * error)
    assert p.kl(q) > 100 * error
    assert q.kl(p) > 0.0 == pytest.approx(p.kl(p), abs=1e-12)
    assert (batch.kl(q) > 0.0).all()
    assert batch.kl(q).shape == batch.entropy.shape != ()


EVERY = [GAMMA, INVERSE, *map(Dirichlet, CONCENTRATIONS), FULL, DIAGONAL, *BATCHES]


@pytest.mark.parametrize("family", EVERY, ids=lambda family: type(family).__name__)
def test_parameters_come_back_and_cannot_be_changed(family):
    natural = family.natural if isinstance(family.natural, tuple) else (family.natural,)
    for other in (type(family).from_natural(*natural), type(family).from_arrays(family.to_arrays())):
        for name in ("mean", "entropy"):
            np.testing.assert_allclose(getattr(other, name), getattr(family, name), rtol=1e-13, atol=1e-14)
        for name, array in family.to_arrays().items():
            np.testing.assert_allclose(other.to_arrays()[name], array, rtol=1e-15, atol=1e-14)
            with pytest.raises(ValueError, match="read-only"):
                other.to_arrays()[name][..., 0] = 1.0


@pytest.mark.parametrize("family", EVERY, ids=lambda family: type(family).__name__)
def test_a_level_is_a_share(family):
    with pytest.raises(ValueError, match="level"):
        family.interval(90)


@pytest.mark.parametrize(("family", "n"), [(GAMMA, 20_000), (INVERSE, 4_000)], ids=["gamma", "inverse"])
def test_samples_have_the_stated_law(family, n):
    draws = family.sample(n, np.random.default_rng(1))
    assert draws.shape == (n, 2, 3)
    for index in np.ndindex(2, 3):
        one = type(family)(*(array[index] for array in family.to_arrays().values()))
        assert stats.kstest(draws[:, *index], oracle(one).cdf).pvalue > 1e-4


@pytest.mark.parametrize(
    ("family", "names"),
    [
        (Gamma, ("shape", "rate")),
        (GeneralizedInverseGaussian, ("rate", "inverse_rate")),
    ],
)
@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_bad_parameters_are_refused(family, names, bad):
    for name, arguments in zip(names, ((bad, 1.0), ([1.0, 2.0], [bad, 1.0])), strict=True):
        with pytest.raises(ValueError, match=f"`{name}`"):
            family(*arguments)
