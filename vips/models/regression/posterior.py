"""Posterior of the coefficients of a regression, and what its steps pass on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips.expfam import DiagonalGaussian, Gaussian

__all__ = ["CoefficientPosterior", "DiagonalCoefficientPosterior"]


class _Learnt:
    """Values that a step passes to the next one besides the coefficients; all of them released.

    ``alpha_shape``, ``alpha_rate``: q(α_j), shape (n_outputs,); ``step``: number of steps so far; ``path``,
    ``totals``: coefficients at which the last steps were computed, and the averages of noisy totals of residuals after them,
    shape (n_outputs, n_kept, d), in coordinates of the design; ``public``: weight of public records in the prior, shape
    (n_outputs,), or None.
    """

    alpha_shape: np.ndarray
    alpha_rate: np.ndarray
    step: int
    path: np.ndarray
    totals: np.ndarray
    public: np.ndarray | None

    def _learn(self, alpha_shape, alpha_rate, step: int, path, totals, public) -> None:
        self.alpha_shape, self.alpha_rate, self.step = np.atleast_1d(alpha_shape), np.atleast_1d(alpha_rate), step
        nothing = np.zeros((len(np.atleast_2d(self.mean)), 0, self.mean.shape[-1]))
        self.path, self.totals = (nothing if array is None else array for array in (path, totals))
        self.public = public

    def to_arrays(self) -> dict[str, np.ndarray]:
        learnt = {"alpha_shape": self.alpha_shape, "alpha_rate": self.alpha_rate, "step": np.array(self.step)}
        learnt |= {} if self.public is None else {"public": self.public}
        return super().to_arrays() | learnt | {"path": self.path, "totals": self.totals}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]):
        learnt = arrays["alpha_shape"], arrays["alpha_rate"], int(arrays["step"]), arrays["path"], arrays["totals"]
        return cls(arrays["mean"], arrays["precision"], *learnt, arrays.get("public"))


class CoefficientPosterior(_Learnt, Gaussian):
    """Posterior of the coefficients, and of the intercept in the last place if there is one.

    Parameters
    ----------
    mean : array of shape (d,) or (n_outputs, d)
    precision : array of shape (d, d) or (n_outputs, d, d)
    alpha_shape, alpha_rate : array of shape (n_outputs,)
        Of the Gamma posterior of the prior precision α.
    step : int
        Steps that this posterior has seen.
    path, totals : array of shape (n_outputs, n_kept, d), optional
        Coefficients at which the last steps were computed, and the averaged noisy totals of residuals after them.
    public : array of shape (n_outputs,), optional
        Weight of public records in the prior, from 0 to 1.
    """

    def __init__(
        self, mean, precision, alpha_shape=1.0, alpha_rate=1.0, step: int = 0, path=None, totals=None, public=None
    ) -> None:
        super().__init__(mean, precision)
        self._learn(alpha_shape, alpha_rate, step, path, totals, public)


class DiagonalCoefficientPosterior(_Learnt, DiagonalGaussian):
    """As :class:`CoefficientPosterior`, with independent coefficients: ``precision`` has the shape of the mean."""

    def __init__(
        self, mean, precision, alpha_shape=1.0, alpha_rate=1.0, step: int = 0, path=None, totals=None, public=None
    ) -> None:
        super().__init__(mean, precision)
        self._learn(alpha_shape, alpha_rate, step, path, totals, public)
