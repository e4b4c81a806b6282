"""Posterior of regression coefficients given *noisy* totals: post-processing, which costs no budget.

=====================  ================================================================================
symbol                 meaning
=====================  ================================================================================
m_i, g_i               coefficients at step i, and the noisy total of residuals there; noise of variance s²
H                      Σ_n b σ'(ψ_n) x_n x_nᵀ, the likelihood's curvature at the posterior mean
P̂                      averaged noisy total of ω x xᵀ; noise of known variance
A                      prior precision
=====================  ================================================================================

The totals of the last k steps, shifted from m_i to one μ by the curvature, g_i + c h_i with h_i = H (m_i - μ), are Gaussian
draws around the total at μ. The factor c is near 1; weights, and rows that are not Gaussian, make it differ. Since it fits the
path of the same totals, it is estimated from them, with a prior N(1, τ²). The average ḡ + c h̄ has noise of variance s²/k and
the error of c. If the true coefficients are w, the total at μ has mean H (w - μ) and variance B, approximately. So

    ḡ + c h̄ | w ~ N(H (w - μ), B + I s²/k + var(c) h̄ h̄ᵀ),      w ~ N(0, A⁻¹),

is a linear model whose posterior has a closed form; it is recomputed until μ is the posterior mean. As s → 0 its variance
becomes the sandwich H⁻¹ B H⁻¹ where the prior is weak. Without weights (B = H) it becomes the Gaussian with the curvature of
the exact posterior, not the variational one, whose variances are too small. H is unknown: matrices P are drawn given P̂ and
made positive definite, and the posteriors under them are mixed.

The fit releases the diagonal V̂ of B, and B = R^½ H R^½ with the ratios R of V̂ to the diagonal of H. Ratios differ between
coefficients if rows of a person depend on each other; what noise hides of their differences is shrunk (``variance_ratios``).

From ω to σ': ψ is approximated as Gaussian over rows, with the mean and variance for which the ω-weighted moments of (1, ψ)
equal those in P̂. Then H = r P + a correction in two directions, the constant's and that of ψ.

After Bernstein and Sheldon (2019), who treat linear regression; Kulkarni et al. (2021) treat generalised linear models by
sampling.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from vips.expfam import polya_gamma_mean
from vips.models._definite import floored
from vips.models.regression.denoising import LEAST_SHARE

__all__ = ["NoisySteps", "noise_aware_moments_of", "precision_draws", "structured_precision_draws", "variance_ratios"]

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
# Draws of H.
_N_DRAWS = 32
# Least precision in a structured draw, relative to the largest.
_LEAST_PRECISION = 1e-3
# Noise in a draw, over that in P̂. With the full noise intervals are too wide: coefficients are near where the steps were, where
# an error of H hardly moves them. Chosen on generated tables (docs/patients.md, with other seeds).
_SPREAD = 0.25
# Least ratio of the scores' variance to the curvature.
_LEAST_RATIO = 0.02
# Prior deviation τ of the factor of the curvature between steps.
_FACTOR_STD = 0.1
_MOST_ROUNDS, _TOLERANCE = 8, 1e-3


@dataclass(frozen=True)
class NoisySteps:
    """Released values of a fit's steps for one output, in coordinates of the design.

    Parameters
    ----------
    means, totals : ndarray of shape (k, d)
        m_i and g_i.
    noise_std : float
        s.
    sampling_rate : float
        q. Sampling adds the variance (1 - q)/q Σ r² x xᵀ to totals ÷ q, which is (1 - q)/q H on average.
    precisions : iterable of ndarray of shape (d, d)
        Positive definite draws of the precision without noise.
    prior : ndarray of shape (d,) or (d, d)
        A, or its diagonal.
    constant : float
        The intercept's column, the last; 0 if there is none.
    variance : (ndarray of shape (d,), float), optional
        V̂, and the standard deviation of its noise. None: B = H.
    prior_linear : ndarray of shape (d,), optional
        A times the prior mean; None for 0.
    """

    means: np.ndarray
    totals: np.ndarray
    noise_std: float
    sampling_rate: float
    precisions: Iterable[np.ndarray]
    prior: np.ndarray
    constant: float
    variance: tuple[np.ndarray, float] | None = None
    prior_linear: np.ndarray | None = None


def noise_aware_moments_of(steps: NoisySteps, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (d,) and covariance (d, d) of the coefficients given the noisy totals."""
    means, within = [], 0.0
    for precision in steps.precisions:
        mean, cov = _given_precision(steps, precision, start)
        means.append(mean)
        within = within + cov
    between = np.array(means) - np.mean(means, axis=0)
    return np.mean(means, axis=0), (within + between.T @ between) / len(means)


def precision_draws(
    noisy: np.ndarray, noise_std: float, has_intercept: bool, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Positive definite draws of a symmetric matrix P, given P with noise.

    Empirical Bayes: P is a multiple of the identity (except the intercept's entry) plus deviations, whose size is estimated.
    So the draws do not mistake noise for directions without information.

    Parameters
    ----------
    noisy : ndarray of shape (d, d)
        P̂.
    noise_std : float
        Of the noise on the diagonal; ÷ √2 elsewhere.
    has_intercept : bool
        Whether the last coordinate is the intercept's.
    """
    noisy, d = 0.5 * (noisy + noisy.T), len(noisy)
    n_features = d - has_intercept
    level = np.diagonal(noisy).copy()
    level[:n_features] = level[:n_features].mean()
    deviations = noisy - np.diag(level)
    n_free = d * (d + 1) // 2 - 1 - has_intercept  # degrees of freedom of the deviations
    level_std = np.full(d, noise_std)
    level_std[:n_features] /= np.sqrt(n_features)
    for _ in range(_N_DRAWS if noise_std > 0.0 else 1):
        upper = np.triu(rng.standard_normal((d, d)), 1) / np.sqrt(2.0)
        noise = _SPREAD * noise_std * (upper + upper.T + np.diag(rng.standard_normal(d)))
        shifts = level_std * np.append(np.full(n_features, rng.standard_normal()), rng.standard_normal(d - n_features))
        # draw of the variance of deviations and noise together, which few numbers determine only roughly
        total = (deviations**2).sum() / rng.chisquare(n_free) if n_free > 0 else np.inf
        share = max(0.0, 1.0 - noise_std**2 / total) if noise_std > 0.0 else 1.0
        drawn = np.diag(level + (1.0 - share) * shifts) + share * deviations + np.sqrt(share) * noise
        yield _without_negative(drawn)


def _without_negative(matrix: np.ndarray) -> np.ndarray:
    """The matrix with hardly any precision in directions in which it has a negative one.

    A fit wanders in a direction without precision (an empty category has one). With a precision there, the posterior would take
    the small residuals where it went for evidence that the coefficients are there.
    """
    return floored(matrix, 1e-300, share=1e-6)


def structured_precision_draws(
    noisy: Mapping[str, np.ndarray], noise_std: Mapping[str, float], rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Matrices diag(D - m²/M) + m mᵀ/M, of features that are independent but for their averages: ``diagonal_step``.

    Parameters
    ----------
    noisy, noise_std : dict
        Of D, shape (d,), m, shape (d,), and M: "precision", "cross" and "weight".
    """
    for _ in range(_N_DRAWS):
        drawn = {
            name: np.asarray(noisy[name]) + noise_std[name] * rng.standard_normal(np.shape(noisy[name]))
            for name in ("precision", "cross", "weight")
        }
        precision = np.maximum(drawn["precision"], _LEAST_PRECISION * np.abs(drawn["precision"]).max())
        cross, weight = drawn["cross"], max(float(drawn["weight"]), noise_std["weight"], 1e-300)
        yield (
            np.diag(np.maximum(precision - cross**2 / weight, LEAST_SHARE * precision))
            + np.outer(cross, cross) / weight
        )


def _given_precision(steps: NoisySteps, precision: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    prior, mu, k, q = steps.prior, start, len(steps.means), steps.sampling_rate
    prior = np.diag(prior) if prior.ndim == 1 else prior
    linear = 0.0 if steps.prior_linear is None else steps.prior_linear
    noise = steps.noise_std**2 / k * np.eye(len(prior))
    for _ in range(_MOST_ROUNDS):
        curvature = floored(_Curvatures(precision, mu[None], steps.constant).matrix(), 1e-12, share=1e-6)
        shifts = _Curvatures(precision, 0.5 * (steps.means + mu), steps.constant).times(steps.means - mu)
        roots = 1.0 if steps.variance is None else np.sqrt(variance_ratios(*steps.variance, np.diagonal(curvature)))
        scores = roots * curvature * np.reshape(roots, (-1, 1))  # B
        of_step = steps.noise_std**2 + (1.0 - q) / q * np.diagonal(scores).mean()
        total, uncertain = _carried(steps.totals, shifts, max(of_step, 1e-200))
        varies = (1.0 + (1.0 - q) / (q * k)) * scores + noise + uncertain
        weight = curvature @ np.linalg.solve(varies, curvature)
        seen = curvature @ np.linalg.solve(varies, total)
        law = weight + prior
        law = 0.5 * (law + law.T)
        last, mu = mu, np.linalg.solve(law, seen + linear + weight @ mu)
        if np.abs(mu - last).max() <= _TOLERANCE * (1.0 + np.abs(mu).max()):
            break
    cov = np.linalg.inv(law)
    return mu, 0.5 * (cov + cov.T)


def _carried(totals: np.ndarray, shifts: np.ndarray, variance: float) -> tuple[np.ndarray, np.ndarray]:
    """ḡ + c h̄, and the covariance that it has because c is not known, for totals of this variance in each coordinate."""
    mean, shift = totals.mean(axis=0), shifts.mean(axis=0)
    around = shifts - shift
    information = 1.0 / _FACTOR_STD**2 + (around**2).sum() / variance
    factor = (1.0 / _FACTOR_STD**2 - (around * (totals - mean)).sum() / variance) / information
    return mean + factor * shift, np.outer(shift, shift) / information


def variance_ratios(noisy: np.ndarray, noise_std: float, curvature: np.ndarray) -> np.ndarray:
    """Ratios R of the scores' variances to the curvature, from noisy variances.

    Ratios are taken as draws around a common value. Its variance is estimated by moments, and each ratio is its
    posterior mean: without noise the ratio itself, and the common value where noise hides it.

    Parameters
    ----------
    noisy : ndarray of shape (d,)
        V̂.
    noise_std : float
    curvature : ndarray of shape (d,)
        Diagonal of H, positive.

    Returns
    -------
    ndarray of shape (d,)
        At least ``_LEAST_RATIO``.
    """
    ratios, information = noisy / curvature, (curvature / curvature.max()) ** 2
    common = (information * ratios).sum() / information.sum()
    noise = (noise_std / curvature) ** 2
    excess = (information * ((ratios - common) ** 2 - noise)).sum() / information.sum()
    share = max(excess, 0.0) / (max(excess, 0.0) + noise + 1e-300)
    return np.maximum(common + share * (ratios - common), _LEAST_RATIO)


class _Curvatures:
    """H = r P + P U M Uᵀ P with U = (constant's direction, μ), at each of the coefficients μ, shape (k, d)."""

    def __init__(self, precision: np.ndarray, mu: np.ndarray, constant: float) -> None:
        self._precision, images = precision, mu @ precision
        seen = np.zeros((len(mu), 2, 2))  # Σ ω (1, ψ)(1, ψ)ᵀ
        seen[:, 1, 1] = np.einsum("kd,kd->k", mu, images)
        if constant > 0.0:  # the constant's direction is e/constant
            first = np.broadcast_to(precision[-1] / constant, mu.shape)
            seen[:, 0, 0], seen[:, 0, 1] = precision[-1, -1] / constant**2, images[:, -1] / constant
            seen[:, 1, 0] = seen[:, 0, 1]
        else:  # without a constant, assume rows of norm 1 for Σ ω, and E ψ = 0
            first = np.zeros(mu.shape)
            seen[:, 0, 0] = np.trace(precision)
        self._images = np.stack([first, images], axis=2)
        total = np.maximum(seen[:, 0, 0], 1e-300)
        mean, std = _unweighted(seen[:, 0, 1] / total, seen[:, 1, 1] / total)
        psi = mean[:, None] + std[:, None] * _NODES
        powers = np.stack([np.ones_like(psi), psi], axis=1)
        of_omega, of_slope = (
            (powers * (_WEIGHTS * w)[:, None]) @ powers.swapaxes(1, 2)
            for w in (polya_gamma_mean(psi), expit(psi) * expit(-psi))
        )
        self._ratio = of_slope[:, 0, 0] / of_omega[:, 0, 0]
        count, inverse = total / of_omega[:, 0, 0], np.linalg.pinv(seen)
        self._core = inverse @ (count[:, None, None] * (of_slope - self._ratio[:, None, None] * of_omega)) @ inverse

    def times(self, vectors: np.ndarray) -> np.ndarray:
        """H times a vector for each μ, shape (k, d)."""
        along = self._core @ (self._images.swapaxes(1, 2) @ vectors[:, :, None])
        return self._ratio[:, None] * (vectors @ self._precision) + (self._images @ along)[:, :, 0]

    def matrix(self) -> np.ndarray:
        """H at the first μ."""
        return self._ratio[0] * self._precision + self._images[0] @ self._core[0] @ self._images[0].T


def _unweighted(mean: np.ndarray, square: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and deviations of Gaussian ψ whose ω-weighted means and second moments are given, shape (k,)."""
    var = np.maximum(square - mean**2, 1e-6)
    centre, std = mean, np.sqrt(var)
    for _ in range(50):
        psi = centre[:, None] + std[:, None] * _NODES
        weights = _WEIGHTS * polya_gamma_mean(psi)
        weights /= weights.sum(axis=1, keepdims=True)
        first = (weights * psi).sum(axis=1)
        ratio = np.sqrt(var / (weights * (psi - first[:, None]) ** 2).sum(axis=1))
        off = np.maximum(np.abs(ratio - 1.0), np.abs(mean - first))
        centre, std = centre + mean - first, std * ratio
        if off.max() < 1e-6:
            break
    return centre, std
