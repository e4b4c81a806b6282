"""The paper's moments accountant: numerical log moments of the privacy loss of the subsampled Gaussian.

With β0 = N(0, σ²), β1 = N(1, σ²) and β = (1 - q) β0 + q β1, section 2 of Park et al. (arXiv:1611.00340), after Abadi
et al. (2016)::

    α(λ) = log max(E1, E2)      E1 = E_{z~β0}[(β0/β)^λ]      E2 = E_{z~β}[(β/β0)^λ]
    δ = min_λ exp(T α(λ) - λ ε)      ε = min_λ (T α(λ) - log δ) / λ

Both expectations are trapezoid sums over a uniform grid. The integrands are analytic and fall off as Gaussians, so
the error decreases like exp(-2π·width/step) and is far below rounding at the step used here.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

__all__ = ["DEFAULT_ORDERS", "log_moments", "paper_orders"]

# Moments of every real order > 0 are valid. Small orders serve large ε, large ones small ε.
DEFAULT_ORDERS = tuple(
    np.unique(np.concatenate([np.arange(0.1, 2.0, 0.1), np.arange(1.0, 65.0, 0.5), np.geomspace(64.0, 1024.0, 25)]))
)


def paper_orders(sampling_rate: float, noise_multiplier: float) -> tuple[float, ...]:
    """The integers 1 … ⌊σ² log(1/(q σ))⌋ to which the paper's theorem restricts λ; often none."""
    largest = noise_multiplier**2 * np.log(1.0 / (sampling_rate * noise_multiplier))
    return tuple(float(order) for order in range(1, int(np.floor(largest)) + 1))


def log_moments(sampling_rate: float, noise_multiplier: float, orders: tuple[float, ...]) -> np.ndarray:
    """α(λ) of one step for every λ in ``orders``; shape (n_orders,)."""
    q, sigma = sampling_rate, noise_multiplier
    return np.array([_log_moment(q, sigma, order) for order in orders])


def _log_moment(q: float, sigma: float, order: float) -> float:
    if q == 1.0 or sigma < 0.1:  # with so little noise, the moment without sampling, which is never smaller
        return order * (order + 1.0) / (2.0 * sigma**2)
    # E1 peaks between -λ and 0, E2 between 0 and λ + 1; 40 standard deviations on either side leave nothing out.
    step = min(sigma, sigma**2) / 32.0
    z = np.arange(-order - 40.0 * sigma, order + 1.0 + 40.0 * sigma, step)
    log_density0 = -(z**2) / (2.0 * sigma**2) - 0.5 * np.log(2.0 * np.pi * sigma**2)
    log_ratio = np.logaddexp(np.log1p(-q), np.log(q) + (2.0 * z - 1.0) / (2.0 * sigma**2))  # log β/β0
    log_step = np.log(step)
    first = logsumexp(log_density0 - order * log_ratio) + log_step
    second = logsumexp(log_density0 + (order + 1.0) * log_ratio) + log_step
    return max(first, second, 0.0)  # both are at least 0 (Jensen); rounding can fall just below
