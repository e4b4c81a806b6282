"""Draws of true counts given noisy ones, over which noise-aware posteriors of count models are mixed.

A count S ≥ 0 is released with Gaussian noise of known deviation s. S itself is a Poisson count, whose rate has a
Gamma(α, 0) prior, so that  p(S | noisy) ∝ Γ(S + α) / Γ(S + 1) · exp(-(noisy - S)² / 2s²)  and, given S, the rate is
Gamma(α + S, 1). Rates divided by their sum have the Dirichlet posterior of proportions, for any number of records.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

__all__ = ["draw_rates"]

_N_GRID = 1024
# Counts further than this many standard deviations of the noise from the noisy count are neglected.
_REACH = 8.0
# Entries that are processed at once.
_PIECE = 4096


def draw_rates(noisy: np.ndarray, noise_std: float, prior: float, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of Poisson rates given noisy counts, shape (n_draws, *noisy.shape).

    Parameters
    ----------
    noisy : ndarray
    noise_std : float or ndarray of the same shape
        s > 0.
    prior : float
        α > 0.
    """
    flat, noise_std = np.ravel(noisy), np.broadcast_to(noise_std, np.shape(noisy)).ravel()
    draws = np.empty((n_draws, len(flat)))
    for first in range(0, len(flat), _PIECE):
        piece = slice(first, first + _PIECE)
        draws[:, piece] = _counts(flat[piece], noise_std[piece], prior, n_draws, rng)
    return rng.standard_gamma(prior + draws).reshape(n_draws, *np.shape(noisy))


def _counts(
    noisy: np.ndarray, noise_std: np.ndarray, prior: float, n_draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draws of S from a grid of cells; the weight of a cell is the density at its midpoint."""
    least = np.maximum(noisy - _REACH * noise_std, 0.0)
    # far below 0 the noise's density falls like an exponential of mean s² / |noisy|
    tail = np.minimum(_REACH * noise_std, 40.0 * noise_std**2 / np.maximum(-noisy, 1e-300))
    width = np.where(noisy > 0.0, noisy + _REACH * noise_std - least, tail)
    middles = least[:, None] + width[:, None] * (np.arange(_N_GRID) + 0.5) / _N_GRID
    log_weights = gammaln(middles + prior) - gammaln(middles + 1.0)
    log_weights -= 0.5 * np.square((noisy[:, None] - middles) / noise_std[:, None])
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    cumulative = np.cumsum(weights, axis=1)
    cumulative /= cumulative[:, -1:]
    uniform = rng.random((n_draws, len(noisy)))
    cells = np.empty(uniform.shape, dtype=np.int64)
    for i in range(len(noisy)):
        cells[:, i] = np.searchsorted(cumulative[i], uniform[:, i], side="right")
    cells = np.minimum(cells, _N_GRID - 1)
    return least + width * (cells + rng.random(cells.shape)) / _N_GRID
