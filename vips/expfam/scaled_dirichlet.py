"""Independent Gamma rates divided by their sum, one set per row: a Dirichlet if all Gammas have the same rate parameter.

x_v = r_v / Σ_u r_u,   r_v ~ Gamma(a_v, b_v)        (Aitchison's scaled Dirichlet; b the same for all: Dirichlet(a))
"""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv

from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.expfam._headline import Headline

__all__ = ["ScaledDirichlet"]


class ScaledDirichlet(Headline):
    """Distributions over the last axis.

    Parameters
    ----------
    rate_mean, rate_var : array of shape (..., n_categories)
        Mean a/b and variance a/b² of the rates; positive and finite.

    Raises
    ------
    ValueError
        If an entry is not positive and finite, or the shapes differ.

    Notes
    -----
    Means, variances and intervals are those of Betas whose moments come from the delta method; they are a Dirichlet's if
    ``rate_var = rate_mean``.
    """

    _parameters = "rate_mean", "rate_var"

    def __init__(self, rate_mean: np.ndarray, rate_var: np.ndarray) -> None:
        arrays = [np.array(array, dtype=np.float64) for array in (rate_mean, rate_var)]
        for array in arrays:
            if array.shape != arrays[0].shape or not (np.isfinite(array).all() and (array > 0.0).all()):
                raise ValueError("`rate_mean` and `rate_var` must be positive and finite, of one shape.")
            array.flags.writeable = False
        self.rate_mean, self.rate_var = arrays

    @property
    def mean(self) -> np.ndarray:
        """E x ≈ E r / Σ E r."""
        return self.rate_mean / self.rate_mean.sum(axis=-1, keepdims=True)

    @property
    def var(self) -> np.ndarray:
        """Var x_v = V/(1 + V/(m (1 - m))), V = ((1 - 2m) Var r_v + m² Σ Var r) / (Σ E r)² and m = E x."""
        m, total = self.mean, self.rate_mean.sum(axis=-1, keepdims=True)
        V = ((1.0 - 2.0 * m) * self.rate_var + m**2 * self.rate_var.sum(axis=-1, keepdims=True)) / total**2
        largest = m * (1.0 - m)  # largest variance of any distribution on [0, 1] with this mean
        return V * largest / np.maximum(largest + V, 1e-300)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Credible interval of every x_v, from the Beta of its mean and variance: (lower, upper) arrays.

        It is central, or from 0 on where the density is largest there.
        """
        self.check_level(level)
        m, var = self.mean, self.var
        size = np.maximum(m * (1.0 - m) / np.maximum(var, 1e-300) - 1.0, 1e-12)
        tail = np.where(m * size < 1.0, 0.0, 0.5 * (1.0 - level))
        lower, upper = (betaincinv(m * size, (1.0 - m) * size, p) for p in (tail, tail + level))
        return lower, upper

    def sample(self, size: int, rng: RandomStateLike = None) -> np.ndarray:
        """Independent draws, shape (size, ..., n_categories)."""
        shape, scale = self.rate_mean**2 / self.rate_var, self.rate_var / self.rate_mean
        draws = np.maximum(as_generator(rng).standard_gamma(shape, (size, *shape.shape)) * scale, 1e-300)
        return draws / draws.sum(axis=-1, keepdims=True)
