"""A matrix of second moments given that matrix with noise: eigenvalues without what noise adds to their spread.

===========  ===================================================================================
symbol       meaning
===========  ===================================================================================
M = Q + E    released: d eigenvalues λ_i and eigenvectors; E as in ``moments.py``
v²           d s²/2: the noise's eigenvalues lie between -2v and 2v
h(λ)         average of 1/(λ - λ_j) over the eigenvalues of M
ξ_i          λ_i - 2 v² h(λ_i), what M's eigenvector i finds in Q on average
κ_ij         (ξ_i - ξ_j)/(λ_i - λ_j): share of the noise in entry i, j that is left in it
===========  ===================================================================================

ξ is the mean of Q given M if all rotations of Q are equally likely (Bun, Allez, Bouchaud and Potters, 2016, for noise of the
Gaussian orthogonal ensemble). Noise repels eigenvalues; h takes that back, so that directions which noise hides get the
average of what they hold instead of noise, positive or negative. κ is the derivative of that mean: the variance of Q given M is
that of the noise times κ, by Tweedie's formula. Without noise ξ = λ, and κ does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.isotonic import isotonic_regression

from vips.core.exact.blas import eigh
from vips.models.second_moments.moments import positive_mean

__all__ = ["Denoised"]


@dataclass(frozen=True)
class Denoised:
    """Mean and variance of a matrix of second moments given its noisy release.

    Parameters
    ----------
    matrix : ndarray of shape (d, d)
        Mean of Q, positive definite.
    vectors : ndarray of shape (d, d)
        Eigenvectors of M, as columns.
    shares : ndarray of shape (d, d)
        κ, between 0 and 1.
    noise_std : float
        s.
    """

    matrix: np.ndarray
    vectors: np.ndarray
    shares: np.ndarray
    noise_std: float

    @classmethod
    def of(cls, matrix: np.ndarray, noise_std: float) -> Denoised:
        """From a symmetric matrix, and the deviation of the noise on its diagonal."""
        values, vectors = eigh(matrix)
        d, gaps = len(values), values[:, None] - values
        if noise_std <= 0.0:
            return cls(matrix, vectors, np.ones((d, d)), 0.0)
        level = 0.5 * d * noise_std**2  # v²
        repulsion = (gaps / (gaps**2 + level / d)).mean(axis=1)  # h, smoothed over the distance of neighbours
        means = isotonic_regression(values - 2.0 * level * repulsion)
        means = np.array([positive_mean(mean, noise_std / np.sqrt(d)) for mean in means])
        shares = np.divide(means[:, None] - means, gaps, out=np.ones((d, d)), where=np.abs(gaps) > 1e-12 * noise_std)
        return cls((vectors * means) @ vectors.T, vectors, np.clip(shares, 0.0, 1.0), noise_std)

    def covariance_of_product(self, vector: np.ndarray) -> np.ndarray:
        """Covariance of Q u for a vector u."""
        inner = self.vectors.T @ vector
        within = np.diag(self.shares @ inner**2) + self.shares * np.outer(inner, inner)
        return 0.5 * self.noise_std**2 * (self.vectors @ within @ self.vectors.T)
