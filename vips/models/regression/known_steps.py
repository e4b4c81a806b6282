"""A noisy step under a prior that knows something: that of a given posterior, or of public records.

All is in units in which a row has norm at most 1, for one output.

===========  ==================================================================================
symbol       meaning
===========  ==================================================================================
ḡ, s         averaged noisy residuals, which were summed at m_i, and the deviation of their noise
P            averaged precision, denoised; ḡ has the variance P + s² at the true coefficients
f            P (P + s²)⁻¹: share of ḡ that is signal
h, K         linear term and precision of what is known; a: the weight that it gets
Λ            base + a K, the prior's precision
===========  ==================================================================================

Given the noisy residuals, coefficients have the precision Λ + f P, and their mean is where f ḡ = Λ m - a h: without noise the
textbook's update, and where noise hides a direction, the prior's mean.

Public records may be of another population. The weight a of their likelihood is the one under which the noisy residuals, carried
to the public records' own mean m₀ by P, are most probable (empirical Bayes). z = ḡ + P (m̄ - m₀) has the mean P (m_a - m₀) and
the covariance P Λ⁻¹ P + P + s². Where noise hides the difference of two weights, the larger one is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve

from vips._compute.blas import cholesky, eigh

__all__ = ["WEIGHTS", "Known", "known_step"]

# Weights of public records among which a fit chooses.
WEIGHTS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0)
# A smaller weight must be more probable by this, in natural logarithms, than the best larger one.
_LEAST_GAIN = 2.0


@dataclass(frozen=True)
class Known:
    """What is known of one output's coefficients, besides the noisy totals.

    Parameters
    ----------
    linear, precision : ndarray of shape (d,), (d, d)
        h and K.
    base : ndarray of shape (d,)
        Diagonal of the rest of the prior's precision.
    start : ndarray of shape (d,)
        m₀.
    weights : sequence of float
        Among which a is chosen, descending.
    """

    linear: np.ndarray
    precision: np.ndarray
    base: np.ndarray
    start: np.ndarray
    weights: tuple[float, ...]

    def prior(self, weight: float) -> np.ndarray:
        """Λ."""
        return np.diag(self.base) + weight * self.precision


def known_step(known: Known, residual, precision, noise: tuple[float, float], old, moved):
    """Mean and precision of the coefficients after a step, and the weight a.

    Parameters
    ----------
    known : Known
    residual, precision : ndarray of shape (d,), (d, d)
        Noisy averages.
    noise : (float, float)
        Deviations of the noise in them.
    old : ndarray of shape (d,)
        Coefficients before the step.
    moved : ndarray of shape (d,)
        m̄ - m₀: from m₀ to the average of the points at which the residuals were summed.
    """
    values, vectors = eigh(like_public(precision, known.precision, noise[1]))
    values = np.maximum(values, 0.0)
    variance = values + noise[0] ** 2
    share = np.where(variance > 0.0, values / np.maximum(variance, 1e-300), 1.0)
    seen = (vectors * (share * values)) @ vectors.T  # f P
    z = vectors.T @ residual + values * (vectors.T @ moved)
    best, gain = None, -np.inf
    for weight in known.weights:
        law = known.prior(weight)
        factor, inner = cholesky(law), cholesky(law + seen)
        linear = weight * known.linear
        off = z - values * (vectors.T @ (cho_solve((factor, True), linear) - known.start))
        known_part = vectors @ (share * off)
        log_probability = (
            np.log(np.diagonal(factor)).sum()
            - np.log(np.diagonal(inner)).sum()
            - 0.5 * (off**2 / np.maximum(variance, 1e-300)).sum()
            + 0.5 * known_part @ cho_solve((inner, True), known_part)
        )
        if best is None or log_probability > gain + _LEAST_GAIN:
            best, gain = (weight, law, linear, inner), log_probability
    weight, law, linear, inner = best
    gradient = vectors @ (share * (vectors.T @ residual)) - law @ old + linear
    return old + cho_solve((inner, True), gradient), law + seen, weight


def like_public(noisy: np.ndarray, known: np.ndarray, noise_std: float) -> np.ndarray:
    """A noisy precision, shrunk towards a multiple of K by as much as noise explains the difference."""
    if noise_std == 0.0:
        return noisy
    scale = max((noisy * known).sum() / max((known * known).sum(), 1e-300), 0.0)
    rest = noisy - scale * known
    share = max(0.0, 1.0 - noise_std**2 * _free(len(noisy)) / max((rest**2).sum(), 1e-300))
    return scale * known + share * rest


def _free(d: int) -> int:
    """Squared norm of symmetric noise of variance 1, ½ off the diagonal."""
    return d * (d + 1) // 2
