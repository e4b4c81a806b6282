"""Positive definite views of noisy precisions, from public numbers only. docs/logistic.md shows how well they work.

All is in units in which a row has norm at most 1. Symmetric noise of deviation s has eigenvalues up to √(2d) s, so an
eigenvalue of the sum below half of that carries no information: it is raised to that level. A coefficient's precision is raised
until the noise of a step is below a share of the prior's scale.
"""

from __future__ import annotations

import numpy as np

from vips.models._definite import floored

__all__ = [
    "LEAST_SHARE",
    "diagonal_step",
    "diagonal_view",
    "noise_aware_moments",
    "precision_view",
]

# Least ratio of the prior's scale to the standard deviation of a step's noise in a coefficient.
_SCALE_TO_NOISE = 6.0
# Least eigenvalue, in units of s √(d/2), which is half of the largest eigenvalue of the noise.
_NOISE_LEVEL = 1.0
# Least share of its precision that a coefficient keeps when the common direction is removed.
LEAST_SHARE = 0.3


def precision_view(precision: np.ndarray, noise_std: float, gradient_noise_std: float, alpha: float) -> np.ndarray:
    """A positive definite matrix near a noisy one.

    Parameters
    ----------
    precision : ndarray of shape (d, d)
        Σ ω x x' and symmetric noise.
    noise_std, gradient_noise_std : float
        Standard deviations of the noise: on the diagonal (÷ √2 elsewhere), and in the averaged Σ r x.
    alpha : float
        E[α]: the prior's scale is α^-½.

    Returns
    -------
    ndarray of shape (d, d)
        Tends to ``precision`` as the noise vanishes, and equals it without noise.
    """
    if noise_std == 0.0:
        return 0.5 * (precision + precision.T)
    view = floored(precision, _NOISE_LEVEL * noise_std * np.sqrt(0.5 * len(precision)))
    diagonal = np.diagonal(view)
    return view + np.diag(diagonal_view(diagonal, gradient_noise_std, alpha) - diagonal)


def diagonal_view(precision: np.ndarray, gradient_noise_std: float, alpha: float) -> np.ndarray:
    """Precisions D of the coefficients, shape (d,), raised until a step's noise s/D is a share of the prior's scale."""
    return np.maximum(precision, max(_SCALE_TO_NOISE * gradient_noise_std * np.sqrt(alpha), 1e-300))


def noise_aware_moments(
    precision: np.ndarray, prior: np.ndarray, gradient_noise_std: float
) -> tuple[np.ndarray, np.ndarray]:
    """For each coefficient: the share of its mean that is signal, and its variance given the noise.

    A total λw + noise of variance s² carries as much information about w as a total of precision f λ without noise, with
    f = λ/(λ + s²). So under the prior precision α the mean is that of a total without noise under the prior precision α/f.
    """
    known = np.maximum(precision, 1e-300)
    signal = known / (known + gradient_noise_std**2)  # f
    return signal * (known + prior) / (signal * known + prior), 1.0 / (signal * known + prior)


def diagonal_step(
    gradient: np.ndarray, precision: np.ndarray, cross: np.ndarray, weight: float, least_weight: float
) -> np.ndarray:
    """B⁻¹ gradient, where B corrects diag(precision) for the direction that all features share.

    Features that are not centred have a common direction, in which diag(precision) alone would overshoot up to d times. If
    they are independent otherwise, Σ ω x x' = diag(D - m²/M) + m m'/M with m = Σ ω x and M = Σ ω.

    Parameters
    ----------
    gradient, precision, cross : ndarray of shape (d,)
        ``precision`` includes the prior's; ``cross`` is m.
    weight, least_weight : float
        M, and its lower limit.
    """
    weight = max(weight, least_weight, 1e-300)
    reduced = np.maximum(precision - cross**2 / weight, LEAST_SHARE * precision)
    solved, direction = gradient / reduced, cross / reduced
    return solved - direction * (cross @ solved) / (weight + cross @ direction)  # Sherman and Morrison
