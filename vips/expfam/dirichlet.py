"""Dirichlet distributions, one per row.

    log p(x) = Σ_v (a_v - 1) log x_v - log B(a)        x on the simplex, a > 0

==========================  ======================  ===========================
symbol                      name                    meaning
==========================  ======================  ===========================
a                           ``concentration``       parameters
a - 1                       ``natural``             natural parameters of log x
ψ(a) - ψ(Σa)                ``expected_log``        E log x, the mean parameters
==========================  ======================  ===========================

Independent Gamma rates divided by their sum are a Dirichlet if all Gammas have the same rate parameter:

    x_v = r_v / Σ_u r_u,   r_v ~ Gamma(a_v, b_v)        (Aitchison's scaled Dirichlet; b the same for all: Dirichlet(a))
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.special import betaincinv, gammaln, psi

from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.expfam._headline import Headline

__all__ = ["Dirichlet", "ScaledDirichlet"]


class Dirichlet(Headline):
    """Independent Dirichlet distributions over the last axis.

    Parameters
    ----------
    concentration : array of shape (..., n_categories)
        Positive and finite. Copied, unless it is read-only and no view of another array.

    Raises
    ------
    ValueError
        If an entry is not positive and finite.
    """

    _parameters = ("concentration",)

    def __init__(self, concentration: np.ndarray) -> None:
        concentration = np.asarray(concentration, dtype=np.float64)
        if concentration.flags.writeable or concentration.base is not None:
            concentration = concentration.copy()
        if concentration.size and not 0.0 < concentration.min() <= concentration.max() < np.inf:  # false for NaN
            raise ValueError("`concentration` must be positive and finite.")
        concentration.flags.writeable = False
        self.concentration = concentration

    @classmethod
    def from_natural(cls, natural: np.ndarray) -> Dirichlet:
        """From natural parameters a - 1."""
        return cls(np.asarray(natural) + 1.0)

    @property
    def natural(self) -> np.ndarray:
        """Natural parameters a - 1."""
        return self.concentration - 1.0

    @cached_property
    def _total(self) -> np.ndarray:
        return self.concentration.sum(axis=-1, keepdims=True)

    @property
    def mean(self) -> np.ndarray:
        """E x = a / Σa."""
        return self.concentration / self._total

    @property
    def var(self) -> np.ndarray:
        """Var x_v = m_v (1 - m_v) / (Σa + 1) with m = E x."""
        return self.mean * (1.0 - self.mean) / (self._total + 1.0)

    @cached_property
    def expected_log(self) -> np.ndarray:
        """E log x = ψ(a) - ψ(Σa): the expected natural statistics."""
        return psi(self.concentration) - psi(self._total)

    @property
    def log_normalizer(self) -> np.ndarray:
        """log B(a) = Σ log Γ(a_v) - log Γ(Σa), one per row."""
        return gammaln(self.concentration).sum(axis=-1) - gammaln(self._total[..., 0])

    @property
    def entropy(self) -> np.ndarray:
        """-E log p(x), one per row."""
        return self.log_normalizer - (self.natural * self.expected_log).sum(axis=-1)

    def kl(self, other: Dirichlet) -> np.ndarray:
        """KL(self ‖ other), one per row."""
        difference = (self.concentration - other.concentration) * self.expected_log
        return difference.sum(axis=-1) - self.log_normalizer + other.log_normalizer

    def sample(self, size: int, rng: RandomStateLike = None) -> np.ndarray:
        """Independent draws, shape (size, ..., n_categories)."""
        # in logs, because Gamma(a) underflows for small a: Gamma(a) = Gamma(a + 1) · U^(1/a)
        rng, shape = as_generator(rng), (size, *self.concentration.shape)
        logs = np.log(rng.standard_gamma(self.concentration + 1.0, shape))
        logs += np.log(rng.uniform(np.finfo(float).tiny, 1.0, shape)) / self.concentration
        draws = np.exp(logs - logs.max(axis=-1, keepdims=True))
        return draws / draws.sum(axis=-1, keepdims=True)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Central credible interval of every x_v, from its Beta marginal: (lower, upper) arrays."""
        self.check_level(level)
        remainder = self._total - self.concentration
        tail = 0.5 * (1.0 - level)
        lower, upper = (betaincinv(self.concentration, remainder, p) for p in (tail, 1.0 - tail))
        return lower, upper

    def taken(self, places: np.ndarray) -> Dirichlet:
        """The distributions at these places along the first axis."""
        return Dirichlet(self.concentration[places])


class ScaledDirichlet(Headline):
    """Independent Gamma rates over the last axis, divided by their sum.

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
