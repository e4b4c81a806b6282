"""Random numbers for simulated records: they move a little where parameters do, and fill their law evenly."""

from __future__ import annotations

import numpy as np
from scipy import stats

__all__ = ["CoupledGenerator"]


class CoupledGenerator(np.random.Generator):
    """A generator whose laws below are inverted at stratified uniform numbers; others are NumPy's.

    NumPy rejects draws, so that a small change of a parameter changes all that follow; here each takes one uniform number. The
    n numbers of a call lie in n equal parts of [0, 1), one in each (in each column), so that means of simulated records have
    errors far smaller than independent draws would give (Latin hypercubes: McKay, Beckman and Conover, 1979).

    Parameters
    ----------
    seed : int or sequence of int
    """

    def __init__(self, seed) -> None:
        super().__init__(np.random.PCG64(seed))

    def random(self, size=None):
        draws = super().random(size)
        if np.ndim(draws) == 0:
            return draws
        parts = np.broadcast_to(np.arange(len(draws)).reshape(-1, *[1] * (draws.ndim - 1)), draws.shape)
        return (self.permuted(parts, axis=0) + draws) / max(len(draws), 1)

    def uniform(self, low=0.0, high=1.0, size=None):
        return self._inverted(stats.uniform, (low, np.subtract(high, low)), size)

    def normal(self, loc=0.0, scale=1.0, size=None):
        return self._inverted(stats.norm, (loc, scale), size)

    def standard_normal(self, size=None):
        return self.normal(size=size)

    def lognormal(self, mean=0.0, sigma=1.0, size=None):
        return np.exp(self.normal(mean, sigma, size))

    def exponential(self, scale=1.0, size=None):
        return self._inverted(stats.expon, (0.0, scale), size)

    def integers(self, low, high=None, size=None, dtype=np.int64, endpoint=False):
        if size is None:
            return super().integers(low, high, size, dtype, endpoint)
        low, high = (0, low) if high is None else (low, high)
        return np.floor(low + (high + endpoint - low) * self.random(size)).astype(dtype)

    def choice(self, a, size=None, replace=True, p=None, axis=0, shuffle=True):
        if size is None or not replace:
            return super().choice(a, size, replace, p, axis, shuffle)
        items = np.arange(a) if np.ndim(a) == 0 else np.asarray(a)
        ends = np.arange(1, len(items) + 1) / len(items) if p is None else np.cumsum(p)
        places = np.minimum(np.searchsorted(ends, self.random(size), side="right"), len(items) - 1)
        return items.take(places, axis)

    def poisson(self, lam=1.0, size=None):
        return self._inverted(stats.poisson, (lam,), size).astype(np.int64)

    def binomial(self, n, p, size=None):
        return self._inverted(stats.binom, (n, p), size).astype(np.int64)

    def negative_binomial(self, n, p, size=None):
        return self._inverted(stats.nbinom, (n, p), size).astype(np.int64)

    def standard_gamma(self, shape, size=None):
        return self._inverted(stats.gamma, (shape,), size)

    def gamma(self, shape, scale=1.0, size=None):
        return self.standard_gamma(np.broadcast_arrays(shape, scale)[0], size) * scale

    def beta(self, a, b, size=None):
        return self._inverted(stats.beta, (a, b), size)

    def dirichlet(self, alpha, size=None):
        parts = self.standard_gamma(alpha, None if size is None else (*np.atleast_1d(size), len(alpha)))
        return parts / parts.sum(axis=-1, keepdims=True)

    def _inverted(self, law, parameters, size) -> np.ndarray:
        draws = self.random(np.broadcast(*parameters).shape if size is None else size)
        return np.asarray(law.ppf(draws, *parameters))
