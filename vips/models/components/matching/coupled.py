"""Random numbers that move a little where parameters do: each takes one uniform number, whatever the parameters."""

from __future__ import annotations

import numpy as np
from scipy import stats

__all__ = ["CoupledGenerator"]


class CoupledGenerator(np.random.Generator):
    """A generator whose laws are inverted: NumPy's reject draws, so that a small change of a parameter changes all that follow.

    The laws that NumPy draws by scale and place (normal, exponential, uniform, …) need no change.

    Parameters
    ----------
    seed : int or sequence of int
    """

    def __init__(self, seed) -> None:
        super().__init__(np.random.PCG64(seed))

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
