"""The released matrix of second moments: its noise, a view without negative moments, and changes of coordinates.

===========  ===================================================================================
symbol       meaning
===========  ===================================================================================
M            noisy Σ z zᵀ, shape (d, d)
s            deviation of the noise in a diagonal entry; off the diagonal it is s/√2
B            rows of a change of coordinates: B M Bᵀ are moments of Bz
===========  ===================================================================================

The noise E is as in the Gaussian orthogonal ensemble: in all directions alike. For vectors a, b, c, d

    Cov(aᵀE b, cᵀE d) = s²/2 (aᵀc bᵀd + aᵀd bᵀc)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from vips.core.exact.blas import eigh
from vips.models._definite import floored

__all__ = ["SecondMoments", "positive_mean"]


@dataclass(frozen=True)
class SecondMoments:
    """A noisy sum of z zᵀ.

    Parameters
    ----------
    matrix : ndarray of shape (d, d)
        M, symmetric; it may have negative eigenvalues.
    noise_std : float
        s.
    """

    matrix: np.ndarray
    noise_std: float

    @classmethod
    def of(cls, released: np.ndarray, noise_std: float) -> SecondMoments:
        """From a released matrix, which is symmetrised."""
        return cls(0.5 * (released + released.T), float(noise_std))

    def repaired(self) -> SecondMoments:
        """The view with eigenvalues of at least s. Without noise the matrix itself, unless some of them are negative."""
        values = eigh(self.matrix)[0]
        least = self.noise_std or -1e-12 * np.abs(values).max(initial=0.0)
        return self if values.min() >= least else SecondMoments(floored(self.matrix, self.noise_std), self.noise_std)


def positive_mean(value: float, std: float) -> float:
    """Mean of a positive number given that it is seen as ``value`` with Gaussian noise."""
    if std <= 0.0:
        return max(value, 1e-300)
    z = value / std
    if z < -30.0:
        return std / -z
    return value + std * np.exp(-0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) - log_ndtr(z))
