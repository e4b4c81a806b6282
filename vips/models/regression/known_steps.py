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

from vips.models.regression.denoising import positive_definite, precision_view

__all__ = ["WEIGHTS", "Denoised", "Known", "Released", "best_weight", "known_step"]

# Weights of public records among which a fit chooses.
WEIGHTS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 0.0)
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


@dataclass(frozen=True)
class Released:
    """Noisy averages of one output.

    Parameters
    ----------
    residual, precision : ndarray of shape (d,), (d, d)
    residual_std, precision_std : float
        Deviations of the noise in them.
    """

    residual: np.ndarray
    precision: np.ndarray
    residual_std: float
    precision_std: float


class Denoised:
    """Released averages in coordinates in which P is diagonal."""

    def __init__(self, released: Released, known: Known) -> None:
        values, self.vectors = eigh(like_public(released.precision, known.precision, released.precision_std))
        self.values = np.maximum(values, 0.0)
        self.variance = np.maximum(self.values + released.residual_std**2, 1e-300)
        self.share = self.values / self.variance if released.residual_std else np.ones(len(values))
        self.seen = (self.vectors * (self.share * self.values)) @ self.vectors.T  # f P

    def times(self, values, vector):
        """A function of P times a vector."""
        return self.vectors @ (values * (self.vectors.T @ vector))


def best_weight(known: Known, denoised: Denoised, residual: np.ndarray, moved: np.ndarray) -> float:
    """The weight a of public records; ``moved`` is m̄ - m₀."""
    z = denoised.vectors.T @ residual + denoised.values * (denoised.vectors.T @ moved)
    found = []
    for weight in known.weights:
        law = known.prior(weight)
        factor, inner = cholesky(positive_definite(law)), cholesky(positive_definite(law + denoised.seen))
        mean = cho_solve((factor, True), weight * known.linear)
        off = z - denoised.values * (denoised.vectors.T @ (mean - known.start))
        part = denoised.vectors @ (denoised.share * off)
        found.append(
            np.log(np.diagonal(factor)).sum()
            - np.log(np.diagonal(inner)).sum()
            - 0.5 * (off**2 / denoised.variance).sum()
            + 0.5 * part @ cho_solve((inner, True), part)
        )
    found[0] += _LEAST_GAIN
    return known.weights[int(np.argmax(found))]


def known_step(known: Known, weight: float, released: Released, denoised: Denoised, residual, old, alpha):
    """Mean and precision of the coefficients after a step from ``old``."""
    law = known.prior(weight)
    gradient = denoised.times(denoised.share, residual) - law @ old + weight * known.linear
    view = precision_view(released.precision, released.precision_std, released.residual_std, alpha)
    step = cholesky(positive_definite(law + view))
    return old + cho_solve((step, True), gradient), positive_definite(law + denoised.seen)


def like_public(noisy: np.ndarray, known: np.ndarray, noise_std: float) -> np.ndarray:
    """A noisy precision, shrunk towards a multiple of K by as much as noise explains the difference."""
    if noise_std == 0.0:
        return noisy
    scale = max((noisy * known).sum() / max((known * known).sum(), 1e-300), 0.0)
    values, vectors = eigh(noisy - scale * known)
    hidden = noise_std * np.sqrt(2.0 * len(noisy))  # the largest eigenvalue of noise alone
    values = np.sign(values) * np.maximum(np.abs(values) - hidden, 0.0)
    return scale * known + (vectors * values) @ vectors.T
