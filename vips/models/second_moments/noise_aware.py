"""Posterior of the coefficients of a linear regression given noisy moments.

    g(w) = q - Q w,   q: noisy moments of the design with the target;   Q: of the design with itself, denoised

Q is the mean of the moments given noisy ones (``denoising.py``). Noisy moments themselves would let w explain noise by noise,
in as many directions as noise hides. At the true w the mean of g is 0 and its covariance  C = Q/α + N(w): sampling, the noise
in q, and what is not known of Q, times w. So the likelihood of w has the precision Q C⁻¹ Q: where Q is large, it is Q α as
without noise; where noise hides Q, next to nothing. With weights of records, sampling varies as (Σ w² z zᵀ)/α. C depends on w
and α slowly, and is computed at the last estimate (after Bernstein and Sheldon, 2019).

An evidence maximum for λ would claim coefficients of exactly 0 where noise hides them. The deviation 1/√λ has a half-Cauchy
prior of a public scale, over which a ridge is integrated. With a λ for each coefficient, w_j has a Cauchy prior of that scale
times a factor, by mean field. Where noise hides coefficients, that prior draws them to 0: the mean predicts well, and the truth
may be elsewhere. So the covariance is that under a prior several times as wide, and knows how far its mean is from there.

A matrix of second moments given that matrix with noise: eigenvalues without what noise adds to their spread.

===========  ===================================================================================
symbol       meaning
===========  ===================================================================================
M = Q + E    released: d eigenvalues λ_i and eigenvectors; E as in ``moments.py``
v²           d s²/2: the noise's eigenvalues lie between -2v and 2v
h(λ)         average of 1/(λ - λ_j) over the eigenvalues of M
ξ_i          λ_i - 2 v² h(λ_i), what M's eigenvector i finds in Q on average
κ_ij         (ξ_i - ξ_j)/(λ_i - λ_j): share of the noise in entry i, j that is left in it
===========  ===================================================================================

ξ is the mean of Q given M if all rotations of Q are equally likely (Bun, Allez, Bouchaud and Potters, 2016, for noise of the
Gaussian orthogonal ensemble). Noise repels eigenvalues; h takes that back, so that directions which noise hides get the
average of what they hold instead of noise, positive or negative. κ is the derivative of that mean: the variance of Q given M is
that of the noise times κ, by Tweedie's formula. Without noise ξ = λ, and κ does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.isotonic import isotonic_regression

from vips.core.exact.blas import cholesky, eigh, inverse_from_factor
from vips.models._definite import positive_definite
from vips.models._newton import Released
from vips.models._variance_ratios import variance_ratios
from vips.models.second_moments.moments import SecondMoments, positive_mean
from vips.models.second_moments.posterior import LinearPosterior

__all__ = ["Denoised", "coefficients_of_scores", "noise_aware_coefficients"]

_ROUNDS, _FIELD_ROUNDS, _TOLERANCE = 8, 100, 1e-6
# Deviations of coefficients under the prior, in units of its scale. Smaller ones would hide a strong effect beside weak ones.
_GRID = np.logspace(-0.5, 2.0, 21)
_SPARSE_SCALE = 0.5
_CAUTION = 6.0  # over the prior's scale, in the covariance
_FLAT = 1e-12  # prior precision of the intercept, over its information


def noise_aware_coefficients(
    moments: SecondMoments,
    rows: np.ndarray,
    of_target: np.ndarray,
    count: float,
    n_features: int,
    penalty: str,
    squares: SecondMoments | None = None,
) -> LinearPosterior:
    """The Gaussian with the mean and covariance of the coefficients, in units in which the scale of their prior deviation is 1,
    and so is a bound on the target's variance around its expected value.

    Parameters
    ----------
    moments : SecondMoments
        Released.
    rows : ndarray of shape (d, D)
        B: coordinates of z of the columns of the design; that of the target is the last, and 0. A constant is the last row.
    of_target : ndarray of shape (D,)
        The same of the target.
    count : float
        Number of records.
    n_features : int
        Columns of the design without a constant.
    penalty : {"ridge", "ard"}
    squares : SecondMoments, optional
        Moments by squared weights, which vary as g does; None for those of records of weight 1.
    """
    noisy, last = moments.matrix, len(moments.matrix) - 1
    denoised, feature_rows = Denoised.of(noisy[:last, :last], moments.noise_std), rows[:, :last]
    design = feature_rows @ denoised.matrix @ feature_rows.T
    products = feature_rows @ (denoised.matrix @ of_target[:last] + noisy[:last, last] * of_target[last])
    sampled = design
    if squares is not None:
        sampled = feature_rows @ Denoised.of(squares.matrix[:last, :last], squares.noise_std).matrix @ feature_rows.T
    mean, cov, variance = np.zeros(len(rows)), np.zeros((len(rows), len(rows))), 1.0
    for _ in range(_ROUNDS):
        residual = of_target - mean @ rows
        total = residual @ noisy @ residual + np.sum(rows @ noisy @ rows.T * cov)
        std = moments.noise_std * (residual @ residual + np.trace(rows @ rows.T @ cov))
        variance = min(positive_mean(total, std) / count, 1.0)
        unknown = denoised.covariance_of_product(residual[:last])
        unknown[np.diag_indices(last)] += 0.5 * (moments.noise_std * residual[last]) ** 2
        varies = sampled * variance + feature_rows @ unknown @ feature_rows.T
        weighted = np.linalg.solve(varies, np.column_stack([design, products]))
        information, linear = design @ weighted[:, :-1], design @ weighted[:, -1]
        information = 0.5 * (information + information.T)
        mixed = _integrated if penalty == "ridge" else _mean_field
        mean, cov, _ = mixed(information, linear, n_features, 1.0)
    return under_penalty(information, linear, 1.0 / variance, n_features, penalty, 1.0)


def coefficients_of_scores(
    released: Released, units: np.ndarray, n_features: int, penalty: str, scale: float
) -> LinearPosterior:
    """The Gaussian with mean and covariance of coefficients in these units, given linear scores: ``vips/models/_newton.py``.

    Scores are g_t = Q (w - b_t), with Q denoised from the information, and vary as squares of scores say.
    """
    s, s_information, s_squares = released.stds.T
    c = s**-2.0 / (s**-2.0).sum() if s.all() else np.full(len(s), 1.0 / len(s))
    std, std_squares = np.linalg.norm(c * s), np.linalg.norm(c * s_squares)
    denoised = Denoised.of(np.tensordot(c, released.informations, 1), np.linalg.norm(c * s_information))
    design, point, mean = denoised.matrix, c @ released.points, released.points[-1]
    diagonal = np.maximum(np.diagonal(design), 1e-300)
    ratios = np.sqrt(np.clip(variance_ratios(c @ released.squares, std_squares, diagonal), *released.ratios))
    sampled = (1.0 + np.square(c) @ released.variance) * ratios[:, None] * design * ratios
    for _ in range(_ROUNDS):
        varies = sampled + denoised.covariance_of_product(mean - point) + std**2 * np.eye(len(point))
        weighted = np.linalg.solve(positive_definite(varies), np.column_stack([design, c @ released.scores]))
        information = design @ weighted[:, :-1] * np.outer(units, units)
        information = 0.5 * (information + information.T)
        linear = units * (design @ weighted[:, -1]) + information @ (point / units)
        given = under_penalty(information, linear, 1.0, n_features, penalty, scale)
        mean = units * given.mean
    return given


def under_penalty(
    information: np.ndarray, linear: np.ndarray, noise_precision: float, n_features: int, penalty: str, scale: float
) -> LinearPosterior:
    """The Gaussian with mean and covariance of coefficients with this likelihood, exp(hᵀw - ½ wᵀWw), under their prior."""
    mixed = _integrated if penalty == "ridge" else _mean_field
    mean, _, lam = mixed(information, linear, n_features, scale)
    wide_mean, cov, _ = mixed(information, linear, n_features, _CAUTION * scale)
    cov += np.outer(wide_mean - mean, wide_mean - mean)
    precision = positive_definite(inverse_from_factor(cholesky(positive_definite(cov))))
    return LinearPosterior(mean, precision, linear, information, noise_precision, lam)


def _integrated(information, linear, n_features: int, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and covariance of the mixture over λ, and its harmonic mean: in coordinates in which the information is diagonal."""
    slopes, others = slice(n_features), information[:n_features, n_features:]
    flat = np.diagonal(information)[n_features:] * (1.0 + _FLAT) + 1e-300  # of the intercept, if there is one
    onto = -others / flat  # the intercept's mean, by the slopes
    values, vectors = eigh(information[slopes, slopes] + onto @ others.T)
    seen = vectors.T @ (linear[slopes] + onto @ linear[n_features:])
    deviations = _GRID * scale
    precisions = np.maximum(values, 0.0) + deviations[:, None] ** -2.0
    half_cauchy = np.log(deviations) - np.log1p((deviations / scale) ** 2)  # on a grid of logarithms
    log_weights = 0.5 * (seen**2 / precisions - np.log(precisions)).sum(axis=1)
    log_weights += half_cauchy - n_features * np.log(deviations)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    means = seen / precisions
    around = means - weights @ means
    within = np.diag(weights @ (1.0 / precisions)) + (weights[:, None] * around).T @ around
    back = np.concatenate([vectors, onto.T @ vectors])
    mean, cov = back @ (weights @ means), back @ within @ back.T
    mean[n_features:] += linear[n_features:] / flat
    cov[n_features:, n_features:] += 1.0 / flat
    return mean, cov, np.full(n_features, 1.0 / (weights @ deviations**2))


def _mean_field(information, linear, n_features: int, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and covariance with q(λ_j) = Gamma(1, ½ s² + ½ E w_j²), of the prior w_j ~ Cauchy(0, s)."""
    least = (_SPARSE_SCALE * scale) ** 2
    lam = np.full(n_features, scale**-2.0)
    for _ in range(_FIELD_ROUNDS):
        mean, cov = _given(information, linear, lam)
        last, lam = lam, 2.0 / (least + (mean**2 + np.diagonal(cov))[:n_features])
        if np.abs(lam - last).max() <= _TOLERANCE * lam.max():
            break
    return mean, cov, lam


def _given(information, linear, lam: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    flat = np.full(len(linear) - len(lam), _FLAT * max(information[-1, -1], 1e-300))
    factor = cholesky(positive_definite(information + np.diag(np.append(lam, flat))))
    cov = inverse_from_factor(factor)
    return cov @ linear, cov


@dataclass(frozen=True)
class Denoised:
    """Mean and variance of a matrix of second moments given its noisy release.

    Parameters
    ----------
    matrix : ndarray of shape (d, d)
        Mean of Q, positive definite.
    vectors : ndarray of shape (d, d)
        Eigenvectors of M, as columns.
    shares : ndarray of shape (d, d)
        κ, between 0 and 1.
    noise_std : float
        s.
    """

    matrix: np.ndarray
    vectors: np.ndarray
    shares: np.ndarray
    noise_std: float

    @classmethod
    def of(cls, matrix: np.ndarray, noise_std: float) -> Denoised:
        """From a symmetric matrix, and the deviation of the noise on its diagonal."""
        values, vectors = eigh(matrix)
        d, gaps = len(values), values[:, None] - values
        if noise_std <= 0.0:
            return cls(matrix, vectors, np.ones((d, d)), 0.0)
        level = 0.5 * d * noise_std**2  # v²
        repulsion = (gaps / (gaps**2 + level / d)).mean(axis=1)  # h, smoothed over the distance of neighbours
        means = isotonic_regression(values - 2.0 * level * repulsion)
        means = np.array([positive_mean(mean, noise_std / np.sqrt(d)) for mean in means])
        shares = np.divide(means[:, None] - means, gaps, out=np.ones((d, d)), where=np.abs(gaps) > 1e-12 * noise_std)
        return cls((vectors * means) @ vectors.T, vectors, np.clip(shares, 0.0, 1.0), noise_std)

    def covariance_of_product(self, vector: np.ndarray) -> np.ndarray:
        """Covariance of Q u for a vector u."""
        inner = self.vectors.T @ vector
        within = np.diag(self.shares @ inner**2) + self.shares * np.outer(inner, inner)
        return 0.5 * self.noise_std**2 * (self.vectors @ within @ self.vectors.T)
