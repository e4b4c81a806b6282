import numpy as np
import pytest
from scipy import stats
from scipy.optimize import approx_fprime

from vips.expfam import DiagonalGaussian, Gaussian

PRECISION = np.array([[2.0, -0.6, 0.1], [-0.6, 1.0, 0.3], [0.1, 0.3, 0.5]])
FULL = Gaussian([1.0, -2.0, 0.5], PRECISION)
DIAGONAL = DiagonalGaussian([1.0, -2.0, 0.5], [0.25, 4.0, 1.0])
FULL_BATCH = Gaussian([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]], [PRECISION, 3.0 * np.eye(3) + 1.0])
DIAGONAL_BATCH = DiagonalGaussian([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]], [[0.25, 4.0, 1.0], [1.0, 2.0, 3.0]])
SINGLE, BATCHES = [FULL, DIAGONAL], [FULL_BATCH, DIAGONAL_BATCH]


def inverse(family):
    precision = family.precision if isinstance(family, Gaussian) else np.diag(family.precision)
    return np.linalg.inv(precision)


@pytest.mark.parametrize("family", SINGLE)
def test_moments_entropy_and_density_against_scipy(family):
    oracle = stats.multivariate_normal(family.mean, inverse(family))
    np.testing.assert_allclose(family.cov, oracle.cov, atol=1e-15)
    np.testing.assert_array_equal(family.cov, family.cov.T)
    np.testing.assert_allclose(family.var, np.diag(oracle.cov))
    np.testing.assert_allclose(family.std**2, family.var)
    np.testing.assert_allclose(family.entropy, oracle.entropy())
    x, (linear, quadratic) = np.array([0.3, -1.0, 2.0]), family.natural
    quadratic_form = x @ quadratic @ x if quadratic.ndim == 2 else quadratic @ x**2
    np.testing.assert_allclose(linear @ x + quadratic_form - family.log_normalizer, oracle.logpdf(x))


@pytest.mark.parametrize("family", SINGLE)
def test_mean_parameters_are_the_gradient_of_the_log_normalizer(family):
    linear, quadratic = family.natural
    gradient = approx_fprime(linear, lambda eta: type(family).from_natural(eta, quadratic).log_normalizer, 1e-7)
    np.testing.assert_allclose(gradient, family.mean, rtol=1e-5, atol=1e-5)

    def along(direction):
        return approx_fprime(
            [0.0], lambda t: type(family).from_natural(linear, quadratic + t[0] * direction).log_normalizer, 1e-7
        )

    second_moment = family.cov + np.outer(family.mean, family.mean)
    for i in range(3):
        if quadratic.ndim == 1:
            np.testing.assert_allclose(along(np.eye(3)[i]), second_moment[i, i], rtol=1e-4)
            continue
        for j in range(3):
            direction = np.zeros((3, 3))
            direction[i, j] += 0.5
            direction[j, i] += 0.5
            np.testing.assert_allclose(along(direction), second_moment[i, j], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", [FULL, FULL_BATCH])
def test_from_covariance_keeps_it(family):
    other = Gaussian.from_covariance(family.mean, family.cov)
    np.testing.assert_array_equal(other.cov, family.cov)
    np.testing.assert_allclose(other.precision, family.precision, atol=1e-14)
    with pytest.raises(ValueError, match="`cov` must be positive definite"):
        Gaussian.from_covariance(np.zeros(2), [[1.0, 2.0], [2.0, 1.0]])


@pytest.mark.parametrize("batch", BATCHES)
def test_a_batch_is_its_members(batch):
    other = type(batch)(batch.mean + 1.0, 2.0 * batch.precision)
    for i in range(2):
        member, other_member = (type(batch)(b.mean[i], b.precision[i]) for b in (batch, other))
        for name in ("cov", "var", "entropy", "log_normalizer"):
            np.testing.assert_allclose(getattr(batch, name)[i], getattr(member, name), rtol=1e-14)
        for of_batch, of_member in zip(batch.natural, member.natural, strict=True):
            np.testing.assert_allclose(of_batch[i], of_member)
        np.testing.assert_allclose(batch.kl(other)[i], member.kl(other_member))
        np.testing.assert_allclose(batch.kl(other_member)[i], member.kl(other_member))


def test_diagonal_agrees_with_full():
    full = Gaussian(DIAGONAL.mean, np.diag(DIAGONAL.precision))
    other, full_other = DiagonalGaussian(np.zeros(3), [1.0, 2.0, 3.0]), Gaussian(np.zeros(3), np.diag([1.0, 2.0, 3.0]))
    for name in ("cov", "var", "std", "entropy", "log_normalizer"):
        np.testing.assert_allclose(getattr(DIAGONAL, name), getattr(full, name))
    np.testing.assert_allclose(DIAGONAL.kl(other), full.kl(full_other))
    with pytest.raises(TypeError, match="not implemented"):
        DIAGONAL.kl(full)


@pytest.mark.parametrize("family", BATCHES)
def test_samples_have_the_stated_moments(family):
    n_draws = 50_000
    draws = family.sample(n_draws, np.random.default_rng(1))
    assert draws.shape == (n_draws, 2, 3)
    assert (np.abs(draws.mean(axis=0) - family.mean) < 5.0 * family.std / np.sqrt(n_draws)).all()
    for i in range(2):
        error = np.sqrt((np.outer(family.var[i], family.var[i]) + family.cov[i] ** 2) / n_draws)
        assert (np.abs(np.cov(draws[:, i].T) - family.cov[i]) < 5.0 * error).all()


@pytest.mark.parametrize("family", BATCHES)
def test_interval_holds_its_level(family):
    lower, upper = family.interval(0.9)
    oracle = stats.norm(family.mean, family.std)
    np.testing.assert_allclose(oracle.cdf(lower), 0.05)
    np.testing.assert_allclose(oracle.cdf(upper), 0.95)


def test_a_subclass_with_a_field_of_its_own_keeps_the_constructors():
    class WithStep(Gaussian):
        def __init__(self, mean, precision, step=0):
            super().__init__(mean, precision)
            self.step = step

    assert WithStep.from_natural(*FULL.natural).step == 0
    np.testing.assert_allclose(WithStep(FULL.mean, FULL.precision, 3).kl(FULL), 0.0, atol=1e-14)
    np.testing.assert_allclose(FULL.kl(WithStep(FULL.mean, FULL.precision, 3)), 0.0, atol=1e-14)


def test_parameters_cannot_be_changed_and_are_copies():
    mean, precision = np.zeros(2), np.eye(2)
    family = Gaussian(mean, precision)
    mean[0], precision[0, 0] = 7.0, 7.0
    assert family.mean[0] == 0.0
    assert family.precision[0, 0] == 1.0
    for array in (family.mean, family.precision, family.cov, Gaussian.from_natural(*family.natural).mean, DIAGONAL.cov):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


MATRIX, NOT_SYMMETRIC = np.eye(2), [[1.0, 0.5], [0.4, 1.0]]


@pytest.mark.parametrize(
    ("family", "mean", "precision", "message"),
    [
        (Gaussian, [0.0, np.nan], MATRIX, "finite"), (Gaussian, [0.0, 0.0], [[1.0, 0.0], [0.0, np.inf]], "finite"),
        (Gaussian, [0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]], "positive definite"),
        (Gaussian, [0.0, 0.0], NOT_SYMMETRIC, "symmetric"),
        (Gaussian, [[0.0, 0.0]] * 2, [1e9 * MATRIX, NOT_SYMMETRIC], "symmetric"),
        (Gaussian, [0.0, 0.0, 0.0], MATRIX, "shape"), (Gaussian, [0.0, 0.0], [1.0, 1.0], "shape"),
        (Gaussian, 0.0, 1.0, "shape"),
        (DiagonalGaussian, [0.0, np.inf], [1.0, 1.0], "finite"), (DiagonalGaussian, [0.0, 0.0], [1.0, np.nan], "finite"),
        (DiagonalGaussian, [0.0, 0.0], [1.0, 0.0], "positive"), (DiagonalGaussian, [0.0, 0.0], [1.0], "shape"),
        (DiagonalGaussian, [0.0, 0.0], MATRIX, "shape"),
    ],
)  # fmt: skip
def test_bad_parameters_are_refused(family, mean, precision, message):
    with pytest.raises(ValueError, match=message):
        family(mean, precision)
