"""True counts given noisy ones: what noise-aware posteriors of count models are mixed over.

A count S ≥ 0 was released with Gaussian noise of known deviation s. Before that it was a Poisson count, whose rate has a
Gamma(α, 0) prior, so that  p(S | noisy) ∝ Γ(S + α) / Γ(S + 1) · exp(-(noisy - S)² / 2s²)  and, given S, the rate is
Gamma(α + S, 1): rates divided by their sum are the Dirichlet posterior of proportions, however many records there are.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

__all__ = ["draw_rates"]

_N_GRID = 1024
# Deviations of noise beyond which a count is not looked for.
_REACH = 8.0
# Entries that are worked on at once.
_PIECE = 4096


def draw_rates(noisy: np.ndarray, noise_std: float, prior: float, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of Poisson rates given noisy counts, shape (n_draws, *noisy.shape).

    Parameters
    ----------
    noisy : ndarray
    noise_std : float
        s > 0.
    prior : float
        α > 0.
    """
    flat = np.ravel(noisy)
    draws = np.empty((n_draws, len(flat)))
    for first in range(0, len(flat), _PIECE):
        piece = slice(first, first + _PIECE)
        draws[:, piece] = _counts(flat[piece], noise_std, prior, n_draws, rng)
    return rng.standard_gamma(prior + draws).reshape(n_draws, *np.shape(noisy))


def _counts(noisy: np.ndarray, noise_std: float, prior: float, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of S, from a grid of cells whose weights are taken at their middles."""
    least = np.maximum(noisy - _REACH * noise_std, 0.0)
    # far below 0 the noise's density falls like an exponential of mean s² / |noisy|
    tail = np.minimum(_REACH * noise_std, 40.0 * noise_std**2 / np.maximum(-noisy, 1e-300))
    width = np.where(noisy > 0.0, noisy + _REACH * noise_std - least, tail)
    middles = least[:, None] + width[:, None] * (np.arange(_N_GRID) + 0.5) / _N_GRID
    log_weights = gammaln(middles + prior) - gammaln(middles + 1.0)
    log_weights -= 0.5 * np.square((noisy[:, None] - middles) / noise_std)
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    cumulative = np.cumsum(weights, axis=1)
    cumulative /= cumulative[:, -1:]
    uniform = rng.random((n_draws, len(noisy)))
    cells = np.empty(uniform.shape, dtype=np.int64)
    for i in range(len(noisy)):
        cells[:, i] = np.searchsorted(cumulative[i], uniform[:, i], side="right")
    cells = np.minimum(cells, _N_GRID - 1)
    return least + width * (cells + rng.random(cells.shape)) / _N_GRID
