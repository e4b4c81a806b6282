"""What noisy totals of components say: missing cells, means and variances, shrunk towards those of all records.

They use public numbers only: the totals, and the standard deviation of the noise in each. Means and variances are in
coordinates in which all records have mean 0 and variance 1.
"""

from __future__ import annotations

import numpy as np

from vips.models._denoising import posterior_mean

__all__ = ["missing_counts", "shrunken_means", "shrunken_variances"]

_LEAST = 1e-9  # of what is divided by, in records
_COMMON, _OWN = (1e-3, 1.0), (1e-4, 16.0)  # least and largest variance within components, and within one


def missing_counts(size: np.ndarray, missing: np.ndarray, noise_std: np.ndarray) -> np.ndarray:
    """Posterior means of noisy counts of missing cells, shape (K, n_columns), at most ``size``, of shape (K, 1).

    Their prior is a mixture of exponentials around the share of missing cells in all records. A share that is less than two
    standard deviations of the noise is taken for 0.
    """
    missing, noise_std = _arrays(missing, noise_std)
    total, variance = missing.sum(axis=0), np.square(noise_std).sum(axis=0)
    share = np.where(total > 2.0 * np.sqrt(variance), total / np.maximum(size.sum(), _LEAST), 0.0)
    return np.clip(posterior_mean(missing, noise_std, np.minimum(share, 1.0) * size), 0.0, size)


def shrunken_means(totals: np.ndarray, seen: np.ndarray, noise_std: np.ndarray) -> np.ndarray:
    """Posterior means of the means of components, whose prior is N(0, 1).

    Parameters
    ----------
    totals, noise_std : ndarray of shape (K, n_columns)
        Σ γ y, and the standard deviation of the noise in it.
    seen : ndarray of shape (K, n_columns)
        ≥ 0.
    """
    return totals * seen / (np.square(seen) + np.square(noise_std) + _LEAST)


def shrunken_variances(squares: np.ndarray, seen: np.ndarray, noise_std: np.ndarray) -> np.ndarray:
    """Posterior means of the variances of components, positive, whose prior is a mixture of exponentials around the common one.

    Parameters
    ----------
    squares, noise_std : ndarray of shape (K, n_columns)
        Σ γ (y - mean)², and the standard deviation of the noise in it.
    seen : ndarray of shape (K, n_columns)
        ≥ 0.
    """
    seen = np.maximum(seen, _LEAST)
    common = np.clip(squares.sum(axis=0) / seen.sum(axis=0), *_COMMON)
    squares, noise_std = _arrays(squares, noise_std)
    return np.clip(posterior_mean(squares, noise_std, common * seen) / seen, *_OWN)


def _arrays(totals: np.ndarray, noise_std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As the kernels take them."""
    return np.ascontiguousarray(totals), np.ascontiguousarray(np.maximum(noise_std, _LEAST))
