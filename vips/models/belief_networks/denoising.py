"""From noisy totals to parameters of a sigmoid belief network, using public numbers only.

===================  =================================================================================
symbol               meaning
===================  =================================================================================
n, Ω_j, P_jk, p_k    totals of 1, ω_j and ω_j z̄_k, and the average z̄_k
s                    standard deviation of the noise in a total
===================  =================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["Totals", "raised", "shrunken"]

# ω lies between 0 and ¼. It is below the first bound only where |ψ| > 25; a smaller noisy total is attributed to noise.
_LEAST_OMEGA, _LARGEST_OMEGA = 0.02, 0.25
# Least average activity of a hidden unit.
_LEAST_ACTIVITY = 0.02
# Least P_jk and least Σ ω (z - p)², as a share of their values for independent ω and z. The latter affects the length of a step
# only, and applies without noise, too.
_LEAST_SHARE = 0.2


@dataclass(frozen=True)
class Totals:
    """Noisy totals, moved into the range of possible totals."""

    count: float
    activity: np.ndarray  # p, shape (K,)
    omega: np.ndarray  # Ω, shape (J,)
    precision: np.ndarray  # P, shape (J, K)
    centred: np.ndarray  # Σ_n ω_j E (z_k - p_k)², shape (J, K)

    @classmethod
    def view(cls, average: Mapping[str, np.ndarray], noise_std: Mapping[str, float], centre: float) -> Totals:
        """Shrink each row of P towards Ω_j p_k, by the share of noise in their differences."""
        noisy = noise_std["count"] > 0.0
        count = max(float(average["count"]), noise_std["count"], 1.0)
        activity = np.clip(average["hidden"] / count + centre, 0.0, 1.0)
        omega, precision = np.maximum(average["visible_precision"], 0.0), average["precision"]
        if noisy:
            activity = np.clip(activity, _LEAST_ACTIVITY, 1.0 - _LEAST_ACTIVITY)
            omega = np.clip(omega, _LEAST_OMEGA * count, _LARGEST_OMEGA * count)
        independent = np.outer(omega, activity)
        if noisy:
            differences, noise = precision - independent, noise_std["precision"] ** 2
            signal = np.maximum(np.mean(np.square(differences), axis=1, keepdims=True) - noise, 0.0)
            precision = independent + signal / (signal + noise) * differences
            precision = np.clip(precision, _LEAST_SHARE * independent, omega[:, None])
        precision = np.maximum(precision, 0.0)
        # E (z - p)² = (1 - 2p) z̄ + p²
        centred = (1.0 - 2.0 * activity) * precision + activity**2 * omega[:, None]
        centred = np.maximum(centred, _LEAST_SHARE * independent * (1.0 - activity))
        return cls(count, activity, omega, precision, centred)


def shrunken(weights: np.ndarray, noise_var: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights shrunk row by row: w τ/(τ + noise), with τ the row's mean square less that of the noise.

    Parameters
    ----------
    weights, noise_var : ndarray of shape (J, K)

    Returns
    -------
    weights, noise_var : ndarray of shape (J, K)
        The shrunk weights, and the variance of the noise that remains in them.
    """
    signal = np.mean(np.square(weights) - noise_var, axis=1, keepdims=True)
    signal = np.maximum(signal, 1e-4)
    share = signal / (signal + noise_var)
    return share * weights, share**2 * noise_var


def raised(matrices: np.ndarray, noise_std: float) -> np.ndarray:
    """Noisy symmetric matrices (J, K, K), made positive definite by a multiple of the identity.

    Symmetric noise of deviation s has eigenvalues down to -√(2K) s: 1.5 times that is added to all. (This is cheaper than
    computing the eigenvalues, J times, and flooring them.) Only where this does not suffice are eigenvalues computed.
    """
    matrices = 0.5 * (matrices + np.swapaxes(matrices, -1, -2))
    if noise_std == 0.0:
        return matrices
    n_hidden = matrices.shape[-1]
    level = 1.5 * noise_std * np.sqrt(2.0 * n_hidden)
    matrices[:, np.arange(n_hidden), np.arange(n_hidden)] += level
    try:
        np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrices)
        values = np.maximum(values, np.maximum(0.25 * level, 1e-12 * values[:, -1:]))
        matrices = (vectors * values[:, None, :]) @ np.swapaxes(vectors, -1, -2)
    return matrices
