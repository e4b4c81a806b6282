"""Coefficients from the gradients that a private fit released: post-processing, which costs no budget.

=====================  ================================================================================
symbol                 meaning
=====================  ================================================================================
b_t, g_t               point of step t, and the noisy total of residuals there; noise of variance s²
P̄, b̄                   average of the noisy totals of ω x xᵀ, and of the points at which they were computed
N, m, C                number, mean and covariance of the rows, taken as Gaussian; of rows and clip weights together
F(b), H(b)             N E σ(ψ) x and N E σ'(ψ) x xᵀ, ψ = xᵀb: up to a constant, the total at b is -F(b)
r_t                    mean clip weight at b_t, over that at b̄
Λ, h                   precision of the prior, and Λ times its mean
=====================  ================================================================================

A step computes its residuals without the posterior's variance, so that g_t / r_t + F(b_t) is the same for all steps but for
noise. Their average y, with weights c_t ∝ r_t², has noise of variance s²/Σ r_t². If the true coefficients are w, y has mean
F(μ) + H (w - μ) for a μ near w, and variance B. So

    y | w ~ N(F(μ) + H (w - μ), V),    V = B + I s²/Σ r_t² + diag_i ρ² Σ_l L_il ((b̄_l - μ_l)² + Cov_ll),    w ~ N(Λ⁻¹h, Λ⁻¹)

is a linear model with a closed form, (H V⁻¹ H + Λ)⁻¹ its covariance, recomputed until μ is its mean. The last term of V is the
noise in H: L_il is the variance of the noise left in P̄_il, ρ = tr H / tr P̄. As s → 0 the covariance becomes the sandwich
H⁻¹ B H⁻¹ where the prior is weak, and without weights (B = H) the curvature of the exact posterior. B = R^½ H R^½ with the
ratios R of the released variances of the scores to the diagonal of H (``variance_ratios``).

Rows: the ω-weighted moments are read off P̄, denoised, since its last column is that of a constant. ψ is Gaussian with the mean
and variance whose ω-weighted moments these are, and x is linear in ψ plus an independent part. With a likelihood of b trials ω
and σ' are b times as large, and N counts trials.

After Bernstein and Sheldon (2019), who treat linear regression; Kulkarni et al. (2021) treat generalised linear models by
sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve
from scipy.special import expit
from scipy.stats import norm

from vips._compute.blas import cholesky, eigh
from vips.expfam import polya_gamma_mean
from vips.models._definite import floored, positive_definite
from vips.models._variance_ratios import variance_ratios
from vips.models.regression.denoising import LEAST_SHARE

__all__ = [
    "Prior",
    "ReleasedGradients",
    "RowLaw",
    "best_prior",
    "clip_weights",
    "independent_law",
    "matched",
    "weighted_law",
]

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
# Least eigenvalue of the correlations of columns.
_LEAST_CORRELATION = 0.02
# Least Σ ω x² of a column, relative to the largest, where columns are independent.
_LEAST_PRECISION = 1e-3
# Longest step of a round: of the coefficients together, and of the intercept's.
_RADIUS = 3.0
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class RowLaw:
    """Gaussian law of rows: N, m, C.

    Parameters
    ----------
    count : float
    mean : ndarray of shape (d,)
    cov : ndarray of shape (d, d)
        Positive semidefinite.
    offset, spread : float
        Of ψ: mean and variance of offsets, which are independent of the rows.
    """

    count: float
    mean: np.ndarray
    cov: np.ndarray
    offset: float = 0.0
    spread: float = 0.0

    def unweighted(self, point: np.ndarray) -> RowLaw:
        """The law of rows whose moments, weighted by ω at this point, are those of ``self``."""
        centre = float(self.mean @ point) + self.offset
        variance = max(float(point @ self.cov @ point) + self.spread, 1e-9)
        mean, std = _unweighted(centre, variance)
        along, share = self.cov @ point / variance, self.spread / variance
        return RowLaw(
            self.count / float(_WEIGHTS @ polya_gamma_mean(mean + std * _NODES)),
            self.mean + (mean - centre) * along,
            self.cov + (std**2 - variance) * np.outer(along, along),
            self.offset + (mean - centre) * share,
            self.spread + (std**2 - variance) * share**2,
        )

    def predictor(self, b: np.ndarray) -> np.ndarray:
        """Nodes of ψ = xᵀb + o, shape (64,)."""
        variance = max(float(b @ self.cov @ b) + self.spread, 1e-12)
        return float(self.mean @ b) + self.offset + np.sqrt(variance) * _NODES

    def total(self, b: np.ndarray) -> np.ndarray:
        """F(b) = N (m E σ + C b E σ'), by Stein's lemma."""
        p = expit(self.predictor(b))
        return self.count * (self.mean * (_WEIGHTS @ p) + self.cov @ b * (_WEIGHTS @ (p * (1.0 - p))))

    def curvature(self, b: np.ndarray) -> np.ndarray:
        """H(b) = N (E σ' (C + m mᵀ) + E σ'' (m kᵀ + k mᵀ) + E σ''' k kᵀ) with k = C b, by Stein's lemma twice."""
        p = expit(self.predictor(b))
        slope = p * (1.0 - p)
        second, third = slope * (1.0 - 2.0 * p), slope * (1.0 - 6.0 * slope)
        first, second, third = (float(_WEIGHTS @ values) for values in (slope, second, third))
        along = self.cov @ b
        mixed = np.outer(self.mean, along)
        squares = first * (self.cov + np.outer(self.mean, self.mean)) + third * np.outer(along, along)
        return self.count * (squares + second * (mixed + mixed.T))

    @property
    def squares(self) -> np.ndarray:
        """N E x_l², shape (d,)."""
        return self.count * (np.diagonal(self.cov) + self.mean**2)

    @property
    def length(self) -> float:
        """√E ‖x‖²."""
        return float(np.sqrt(self.squares.sum() / self.count))


def _unweighted(centre: float, variance: float) -> tuple[float, float]:
    """Mean and deviation of a Gaussian ψ whose ω-weighted mean and variance are given."""
    mean, std = centre, np.sqrt(variance)
    for _ in range(50):
        psi = mean + std * _NODES
        weights = _WEIGHTS * polya_gamma_mean(psi)
        weights /= weights.sum()
        first = float(weights @ psi)
        ratio = np.sqrt(variance / float(weights @ (psi - first) ** 2))
        off = max(abs(ratio - 1.0), abs(centre - first))
        mean, std = mean + centre - first, std * ratio
        if off < 1e-6:
            break
    return mean, std


def weighted_law(precision: np.ndarray, std: float, constant: float) -> tuple[RowLaw, np.ndarray]:
    """The ω-weighted law of rows from P̄ with symmetric noise, and the variances L of the noise that is left in P̄.

    Means and N are taken as they are. Variances D become E D given D > 0, D + s φ(z)/Φ(z) with z = D/s; correlations are shrunk
    by ρ²/(ρ² + v) with the variance v = s²/(2 D_i D_j) of their noise, and ρ² by moments.

    Parameters
    ----------
    precision : ndarray of shape (d, d)
    std : float
        Deviation s of the noise on the diagonal; ÷ √2 elsewhere.
    constant : float
        Value of the last column; 0 if there is none: then rows are taken for of norm 1 and mean 0.
    """
    precision, d = 0.5 * (precision + precision.T), len(precision)
    n = d - (constant > 0.0)
    mean, left = np.zeros(d), np.full((d, d), 0.5 * std**2)
    if constant > 0.0:
        count = max(precision[n, n], std, 1e-300) / constant**2
        mean[:n], mean[n] = precision[n, :n] / (constant * count), constant
    else:
        count = max(np.trace(precision), std, 1e-300)
    cov = np.zeros((d, d))
    cov[:n, :n], share = _denoised(precision[:n, :n] - count * np.outer(mean[:n], mean[:n]), std)
    left[:n, :n] *= share
    law = RowLaw(count, mean, cov / count)
    left[np.arange(d), np.arange(d)] = np.minimum(std**2, law.squares**2)
    return law, left


def independent_law(
    average: Mapping[str, np.ndarray], noise_std: Mapping[str, float], constant: float
) -> tuple[RowLaw, np.ndarray]:
    """As :func:`weighted_law`, for columns that are independent but for their averages.

    Parameters
    ----------
    average, noise_std : dict
        Of Σ ω x², shape (d,), Σ ω x, shape (d,), and Σ ω: "precision", "cross" and "weight".
    constant : float
    """
    count = max(float(average["weight"]), noise_std["weight"], 1e-300)
    squares, mean = average["precision"] / count, average["cross"] / count
    squares = np.maximum(squares, _LEAST_PRECISION * max(np.abs(squares).max(), 1e-300))
    variances = np.maximum(squares - mean**2, LEAST_SHARE * squares)
    if constant > 0.0:
        mean[-1], variances[-1] = constant, 0.0
    law = RowLaw(count, mean, np.diag(variances))
    return law, np.diag(np.minimum(noise_std["precision"], law.squares) ** 2)


def _denoised(scatter: np.ndarray, std: float) -> tuple[np.ndarray, np.ndarray]:
    """A positive definite scatter matrix near a noisy one, and the shares of its entries that were kept."""
    variances = np.diagonal(scatter).copy()
    if std > 0.0:
        z = variances / std
        variances += std * np.exp(norm.logpdf(z) - norm.logcdf(z))
    variances = np.maximum(variances, 1e-12 * max(variances.max(), 1e-300))
    roots = np.sqrt(variances)
    correlations, upper = scatter / np.outer(roots, roots), np.triu_indices(len(scatter), 1)
    noise = 0.5 * std**2 / np.outer(variances, variances)
    share = np.ones(noise.shape)
    if std > 0.0:
        information = noise[upper] ** -2.0
        excess = (information * (correlations[upper] ** 2 - noise[upper])).sum() / max(information.sum(), 1e-300)
        size = min(max(excess, 0.0), 1.0)
        share = size / (size + noise)
    correlations = share * correlations
    np.fill_diagonal(correlations, 1.0)
    return floored(correlations, _LEAST_CORRELATION if std > 0.0 else 0.0) * np.outer(roots, roots), share


@dataclass(frozen=True)
class ReleasedGradients:
    """Released values of a fit's steps for one output, in coordinates of the design.

    Parameters
    ----------
    points, totals : ndarray of shape (k, d)
        b_t and g_t, or averages of them over several steps.
    counts : ndarray of shape (k,)
        Numbers of these steps.
    weights : ndarray of shape (k,)
        r_t.
    noise_std : float
        s, of one step.
    sampling_rate : float
        q. Sampling adds the variance (1 - q)/q Σ r² x xᵀ to totals ÷ q, which is (1 - q)/q B on average.
    law : RowLaw
    left : ndarray of shape (d, d)
        L.
    precision_trace : float
        tr P̄.
    variance : (ndarray of shape (d,), float), optional
        Released variances of the scores, and the standard deviation of their noise. None: B = H.
    """

    points: np.ndarray
    totals: np.ndarray
    counts: np.ndarray
    weights: np.ndarray
    noise_std: float
    sampling_rate: float
    law: RowLaw
    left: np.ndarray
    precision_trace: float
    variance: tuple[np.ndarray, float] | None = None

    @property
    def shares(self) -> np.ndarray:
        """c_t."""
        information = self.counts * self.weights**2
        return information / information.sum()

    def match(self) -> tuple[np.ndarray, np.ndarray]:
        """y, and the average point b̄."""
        return self.shares @ self.carried(), self.shares @ self.points

    def carried(self) -> np.ndarray:
        """g_t / r_t + F(b_t), shape (k, d): the same but for noise."""
        return self.totals / self.weights[:, None] + np.array([self.law.total(b) for b in self.points])

    def variance_of_scores(self, curvature: np.ndarray) -> np.ndarray:
        """B."""
        diagonal = _positive_diagonal(curvature)
        roots = np.ones(len(diagonal)) if self.variance is None else np.sqrt(variance_ratios(*self.variance, diagonal))
        return roots * curvature * roots[:, None]

    def variance_of_match(self, curvature: np.ndarray, off: np.ndarray) -> np.ndarray:
        """V, for squared distances ``off`` of the coefficients from b̄."""
        sampled = 1.0 + (1.0 / self.sampling_rate - 1.0) * (self.shares**2 / self.counts).sum()
        ratio = np.trace(curvature) / self.precision_trace
        noise = self.noise_std**2 / (self.counts * self.weights**2).sum() + ratio**2 * self.left @ off
        least = 1e-9 * _positive_diagonal(curvature)
        return positive_definite(sampled * self.variance_of_scores(curvature) + np.diag(noise + least))

    def scatter(self, at: np.ndarray) -> tuple[float, int]:
        """Squared distance of the carried totals from a common one, in units of their noise, and its degrees of freedom.

        It is χ² where the law of the rows holds: noise of the steps, of their samples and of H at the coefficients ``at`` are
        in the covariance of each entry of the totals, in coordinates in which scores are uncorrelated. It grows where carried
        totals depend on where they come from.
        """
        curvature = self.law.curvature(at)
        variances, basis = eigh(positive_definite(self.variance_of_scores(curvature)))
        ratio = np.trace(curvature) / self.precision_trace
        totals, off, square = self.carried() @ basis, self.points - self.shares @ self.points, 0.0
        of_steps, ones = self.noise_std**2 / (self.counts * self.weights**2), np.ones(len(totals))
        for total, variance, noise in zip(totals.T, variances, np.square(basis.T) @ self.left, strict=True):
            sampled = (1.0 / self.sampling_rate - 1.0) * max(variance, 0.0) / self.counts
            varies = cholesky(np.diag(of_steps + sampled) + ratio**2 * (off * noise) @ off.T), True
            information = cho_solve(varies, np.column_stack([total, ones]))
            square += total @ information[:, 0] - (total @ information[:, 1]) ** 2 / (ones @ information[:, 1])
        return float(square), totals.size - len(basis)


def _positive_diagonal(matrix: np.ndarray) -> np.ndarray:
    diagonal = np.diagonal(matrix)
    return np.maximum(diagonal, 1e-12 * max(diagonal.max(), 1e-80))  # squares of ratios to it do not overflow


@dataclass(frozen=True)
class Prior:
    """Λ, shape (d, d), and h, shape (d,)."""

    precision: np.ndarray
    linear: np.ndarray


def matched(
    steps: ReleasedGradients, prior: Prior, start: np.ndarray, variance: np.ndarray, n_rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and precision of the coefficients given the noisy totals: Gauss-Newton.

    Parameters
    ----------
    steps : ReleasedGradients
    prior : Prior
    start, variance : ndarray of shape (d,)
        Where to begin, and variances of the coefficients in V: under the learnt prior, also where ``prior`` is a flat one. It
        says how far coefficients may be from b̄ where H is only noise.
    n_rounds : int
    """
    mean, (total, point) = start, steps.match()
    for _ in range(n_rounds):
        curvature = steps.law.curvature(mean)
        factor = cholesky(steps.variance_of_match(curvature, (point - mean) ** 2 + variance)), True
        seen = cho_solve(factor, curvature).T  # H V⁻¹
        precision = positive_definite(seen @ curvature + prior.precision)
        gradient = seen @ (total - steps.law.total(mean)) + prior.linear - prior.precision @ mean
        step = cho_solve((cholesky(precision), True), gradient)
        step *= min(1.0, _RADIUS / max(float(np.linalg.norm(step)), 1e-300))
        mean = mean + step
        if np.abs(step).max() <= _TOLERANCE * (1.0 + np.abs(mean).max()):
            break
    return mean, precision


def best_prior(steps: ReleasedGradients, priors: Sequence[Prior], at: np.ndarray, least_gain: float) -> int:
    """Place of the prior under which the totals are most probable; the first one, unless they are e^``least_gain`` times as
    probable under another one.

    With e = y - F at the coefficients ``at``, e ~ N(H (Λ⁻¹h - at), V + H Λ⁻¹ H): empirical Bayes.
    """
    total, point = steps.match()
    curvature = steps.law.curvature(at)
    varies = cholesky(steps.variance_of_match(curvature, (point - at) ** 2)), True
    seen = cho_solve(varies, curvature).T
    off, evidence = total - steps.law.total(at), []
    for prior in priors:
        factor = cholesky(positive_definite(prior.precision))
        law = cholesky(positive_definite(prior.precision + seen @ curvature))
        moved = off - curvature @ (cho_solve((factor, True), prior.linear) - at)
        known = seen @ moved
        square = moved @ cho_solve(varies, moved) - known @ cho_solve((law, True), known)
        evidence.append(np.log(np.diagonal(factor)).sum() - np.log(np.diagonal(law)).sum() - 0.5 * square)
    evidence[0] += least_gain
    return int(np.argmax(evidence))


def clip_weights(
    laws: Sequence[RowLaw], points: np.ndarray, centre: np.ndarray, norms: Callable[[np.ndarray, float], np.ndarray]
) -> np.ndarray:
    """r_t: mean weights of clipped records at each point, over that at ``centre``.

    Parameters
    ----------
    laws : sequence of n_outputs RowLaw
    points, centre : ndarray of shape (n_outputs, k, d), (n_outputs, d)
    norms : callable
        Norms of records with these predictors, shape (64, n_outputs), and this length.
    """

    def weight(coefficients: np.ndarray) -> float:
        predictors = np.stack([law.predictor(b) for law, b in zip(laws, coefficients, strict=True)], axis=1)
        return float(_WEIGHTS @ (1.0 / norms(predictors, laws[0].length)))

    return np.array([weight(coefficients) for coefficients in points.swapaxes(0, 1)]) / weight(centre)
