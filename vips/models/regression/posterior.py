"""Coefficients of a regression: their prior and their posterior.

w ~ N(0, I/α), α ~ Gamma(a₀, b₀) or fixed, intercept ~ N(0, 10²); one w, α and intercept for each output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vips._validation import check_number
from vips.expfam import DiagonalGaussian, Gamma, Gaussian

__all__ = ["CoefficientPosterior", "CoefficientPrior", "DiagonalCoefficientPosterior"]

# Standard deviation of the intercept under its prior: wide, so that the prior of the coefficients does not shrink it.
INTERCEPT_STD = 10.0
_LOG_2PI = np.log(2.0 * np.pi)


class _Learnt:
    """Values that a step passes to the next one besides the coefficients; all of them released.

    ``alpha_shape``, ``alpha_rate``: q(α_j), shape (n_outputs,); ``step``: number of steps so far; ``path``,
    ``totals``: coefficients at which the last steps were computed, and the averages of noisy totals of residuals after them,
    shape (n_outputs, n_kept, d), in coordinates of the design.
    """

    alpha_shape: np.ndarray
    alpha_rate: np.ndarray
    step: int
    path: np.ndarray
    totals: np.ndarray

    def _learn(self, alpha_shape, alpha_rate, step: int, path, totals) -> None:
        self.alpha_shape, self.alpha_rate, self.step = np.atleast_1d(alpha_shape), np.atleast_1d(alpha_rate), step
        nothing = np.zeros((len(np.atleast_2d(self.mean)), 0, self.mean.shape[-1]))
        self.path, self.totals = (nothing if array is None else array for array in (path, totals))

    def to_arrays(self) -> dict[str, np.ndarray]:
        learnt = {"alpha_shape": self.alpha_shape, "alpha_rate": self.alpha_rate, "step": np.array(self.step)}
        return super().to_arrays() | learnt | {"path": self.path, "totals": self.totals}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]):
        learnt = arrays["alpha_shape"], arrays["alpha_rate"], int(arrays["step"]), arrays["path"], arrays["totals"]
        return cls(arrays["mean"], arrays["precision"], *learnt)


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
    """

    def __init__(self, mean, precision, alpha_shape=1.0, alpha_rate=1.0, step: int = 0, path=None, totals=None) -> None:
        super().__init__(mean, precision)
        self._learn(alpha_shape, alpha_rate, step, path, totals)


class DiagonalCoefficientPosterior(_Learnt, DiagonalGaussian):
    """As :class:`CoefficientPosterior`, with independent coefficients: ``precision`` has the shape of the mean."""

    def __init__(self, mean, precision, alpha_shape=1.0, alpha_rate=1.0, step: int = 0, path=None, totals=None) -> None:
        super().__init__(mean, precision)
        self._learn(alpha_shape, alpha_rate, step, path, totals)


@dataclass(frozen=True)
class CoefficientPrior:
    """Prior of the coefficients of every output.

    Parameters
    ----------
    alpha : (float, float) or float
        (a₀, b₀), or a fixed α.
    n_features : int
    intercept : bool
    """

    alpha: tuple[float, float] | float
    n_features: int
    intercept: bool

    def initial_alpha(self, n_outputs: int) -> np.ndarray:
        """E[α] under the prior, shape (n_outputs,)."""
        return np.full(n_outputs, self.alpha[0] / self.alpha[1] if self._is_learnt else float(self.alpha))

    def precision(self, alpha: float) -> np.ndarray:
        """Of each coefficient, given α; shape (d,)."""
        return np.append(np.full(self.n_features, alpha), [INTERCEPT_STD**-2.0] * self.intercept)

    def alpha_posterior(
        self, coefficients: _Learnt, share: np.ndarray, unknown: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """q(α_j) = Gamma(a₀ + d/2, b₀ + ½ E‖w_j‖²), without the intercept.

        ``share`` and ``unknown``, both of shape (n_outputs, d), correct E w² for noise: the share of the mean that is signal,
        and a variance that a view leaves out. Without noise they are 1 and 0. So a coefficient that noise hides carries no
        information about α, although noise moves it and short steps keep it near 0.
        """
        means, variances = np.atleast_2d(coefficients.mean), np.atleast_2d(coefficients.var)
        squares = ((share * means) ** 2 + variances + unknown)[:, : self.n_features].sum(axis=1)
        if not self._is_learnt:
            return np.full(len(squares), float(self.alpha)), np.ones(len(squares))
        return np.full(len(squares), self.alpha[0] + 0.5 * self.n_features), self.alpha[1] + 0.5 * squares

    def divergence(self, posterior: _Learnt) -> float:
        """KL of q(w) q(α) from the prior, all outputs together."""
        squares, alpha = _second_moments(posterior), Gamma(posterior.alpha_shape, posterior.alpha_rate)
        if self._is_learnt:
            divergence, mean, expected_log = alpha.kl(Gamma(*self.alpha)), alpha.mean, alpha.expected_log
        else:
            divergence, mean, expected_log = 0.0, float(self.alpha), np.log(self.alpha)
        d = self.n_features
        log_prior = 0.5 * (d * (expected_log - _LOG_2PI) - mean * squares[:, :d].sum(axis=1))
        if self.intercept:
            log_prior -= 0.5 * (_LOG_2PI + squares[:, -1] / INTERCEPT_STD**2) + np.log(INTERCEPT_STD)
        return float(np.sum(divergence - log_prior - np.atleast_1d(posterior.entropy)))

    def laplace_precision(self, mean: np.ndarray, alpha_shape: float, alpha_rate: float) -> np.ndarray:
        """Prior's part of the negative Hessian of log p(w) at ``mean``, shape (d, d), α integrated out around its mean.

        In (w, log α) the Hessian has -α w beside -(a₀ + d/2): its Schur complement is E[α] I - E[α]² w w' / (a₀ + d/2).
        """
        alpha = alpha_shape / alpha_rate
        precision = np.diag(self.precision(alpha))
        if self._is_learnt:
            slope = np.append(alpha * mean[: self.n_features], [0.0] * self.intercept)
            precision -= np.outer(slope, slope) / alpha_shape
        return precision

    @property
    def _is_learnt(self) -> bool:
        return isinstance(self.alpha, tuple)

    @staticmethod
    def check(alpha: object) -> None:
        """Raise ValueError if this is neither (shape, rate) nor a precision."""
        values = alpha if isinstance(alpha, tuple) else (alpha,)
        if isinstance(alpha, tuple) and len(alpha) != 2:
            raise ValueError(
                f"`prior` must be (shape, rate) of a Gamma distribution, or a fixed precision, got {alpha!r}."
            )
        for value in values:
            check_number("prior", value, 1e-10, 1e10, "made of numbers between 1e-10 and 1e10")


def _second_moments(posterior) -> np.ndarray:
    """E w², shape (n_outputs, d)."""
    return np.atleast_2d(posterior.mean**2 + posterior.var)
