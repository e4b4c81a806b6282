"""A noisy step under a prior that knows something: that of a given posterior, or of public records.

All is in units in which a row has norm at most 1, for one output, and computed from public records and released totals.

===========  ==================================================================================
symbol       meaning
===========  ==================================================================================
ḡ, s         averaged noisy residuals, which were summed at the points m_i, and the deviation of their noise
P            averaged precision, denoised; ḡ has the variance P + s² at the true coefficients
f            P (P + s²)⁻¹: share of ḡ that is signal
h, K         linear term and precision of what is known; a: the weight that it gets
Λ            base + a K, the prior's precision
===========  ==================================================================================

Given the noisy residuals, coefficients have the precision Λ + f P, and their mean is where f ḡ = Λ m - a h: without noise the
textbook's update, and where noise hides a direction, the prior's mean. So a fit that sees little stays with what was known.

Public records may be of another population. The weight a of their likelihood is the one under which the noisy residuals,
carried to the public records' own mean m₀ by P, are most probable (empirical Bayes; a power prior, Ibrahim and Chen, 2000):
with m̄ the average of the m_i, z = ḡ + P (m̄ - m₀) has the mean P (m_a - m₀) and the covariance P Λ⁻¹ P + P + s². The first
weight, 1, is kept unless the totals are e⁵ times as probable under another one: for records of one population that is rare.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve

from vips._compute.blas import cholesky, eigh
from vips.models._definite import positive_definite
from vips.models.regression.denoising import precision_view

__all__ = ["WEIGHTS", "Denoised", "Known", "Released", "best_weight", "known_step"]

# Weights of public records among which a fit chooses; with 0 it is a fit without them.
WEIGHTS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 0.0)
# Logarithm of the least ratio of probabilities for which the first weight is left.
_LEAST_GAIN = 5.0


@dataclass(frozen=True)
class Known:
    """What is known of one output's coefficients, besides the noisy totals.

    Parameters
    ----------
    linear, precision : ndarray of shape (d,), (d, d)
        h and K.
    base, first_base : ndarray of shape (d,)
        Diagonal of the rest of the prior's precision, under the last E[α] and under the first.
    start : ndarray of shape (d,)
        m₀.
    """

    linear: np.ndarray
    precision: np.ndarray
    base: np.ndarray
    first_base: np.ndarray
    start: np.ndarray

    def prior(self, weight: float) -> np.ndarray:
        """Λ."""
        return positive_definite(np.diag(self.base) + weight * self.precision)

    def mean(self, weight: float) -> np.ndarray:
        """m_a = Λ⁻¹ a h."""
        return _solve(self.prior(weight), weight * self.linear)


@dataclass(frozen=True)
class Released:
    """Noisy averages of one output.

    Parameters
    ----------
    residual, precision : ndarray of shape (d,), (d, d)
    residual_std, precision_std : float
        Deviations of the noise in them, above 0.
    """

    residual: np.ndarray
    precision: np.ndarray
    residual_std: float
    precision_std: float


class Denoised:
    """P, in the coordinates in which it is diagonal.

    P̂ is taken for a multiple of K plus a difference of which only eigenvalues beyond those of noise alone are kept.
    """

    def __init__(self, released: Released, known: Known) -> None:
        noisy, shape, d = released.precision, known.precision, len(known.linear)
        scale = max((noisy * shape).sum() / max((shape * shape).sum(), 1e-300), 0.0)
        values, vectors = eigh(noisy - scale * shape)
        hidden = released.precision_std * np.sqrt(2.0 * d)  # symmetric noise has no larger eigenvalues
        values = np.sign(values) * np.maximum(np.abs(values) - hidden, 0.0)
        values, self.vectors = eigh(scale * shape + (vectors * values) @ vectors.T)
        self.values = np.maximum(values, 0.0)
        self.variance = self.values + released.residual_std**2
        self.share = self.values / self.variance  # f
        self.seen = (self.vectors * (self.share * self.values)) @ self.vectors.T  # f P

    def times(self, values: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """A function of P, given by its ``values``, times a vector."""
        return self.vectors @ (values * (self.vectors.T @ vector))


def best_weight(known: Known, denoised: Denoised, residual: np.ndarray, moved: np.ndarray) -> float:
    """The weight a of public records; ``moved`` is m̄ - m₀."""
    carried = residual + denoised.times(denoised.values, moved)  # z
    evidence = []
    without = replace(known, base=known.first_base)  # α of public records without effects would keep all others small
    cases = [*((weight, known) for weight in WEIGHTS), (0.0, without)]
    for weight, case in cases:
        prior = cholesky(case.prior(weight))
        law = cholesky(positive_definite(case.prior(weight) + denoised.seen))
        off = denoised.vectors.T @ carried - denoised.values * (denoised.vectors.T @ (case.mean(weight) - known.start))
        known_part = denoised.vectors @ (denoised.share * off)
        evidence.append(
            np.log(np.diagonal(prior)).sum()
            - np.log(np.diagonal(law)).sum()
            - 0.5 * (off**2 / denoised.variance).sum()
            + 0.5 * known_part @ cho_solve((law, True), known_part)
        )
    evidence[0] += _LEAST_GAIN
    return cases[int(np.argmax(evidence))][0]


def known_step(known: Known, weight: float, released: Released, denoised: Denoised, residual, old, alpha: float):
    """Mean and precision of the coefficients after a step from ``old``, where the averaged residual is ``residual``.

    The step divides by the same raised precision as a fit without such a prior (``denoising.py``, also for ``alpha``).
    """
    prior = known.prior(weight)
    gradient = denoised.times(denoised.share, residual) - prior @ old + weight * known.linear
    view = precision_view(released.precision, released.precision_std, released.residual_std, alpha)
    return _solve(positive_definite(prior + view), gradient), positive_definite(prior + denoised.seen)


def _solve(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return cho_solve((cholesky(matrix), True), vector)
