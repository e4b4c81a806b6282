"""Priors of regression coefficients.

w ~ N(0, I/α), α ~ Gamma(a₀, b₀) or fixed, intercept + m'w ~ N(0, 10²); one w, α and intercept for each output
w ~ N(m, Λ⁻¹), a Gaussian that is given: the posterior of an earlier fit, say
the first one times N(w; m, (a K)⁻¹), of public records whose likelihood counts a share a of its weight (a power prior)

In the first one m is the centre of the columns: their means in an ordinary fit, what the coordinates of a private one have
released, else 0. An intercept at a far origin would be as large as m'w, and the prior would hold the slopes down.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np

from vips._support.validation import check_number
from vips.expfam import DiagonalGaussian, Gamma, Gaussian
from vips.models._centred import around
from vips.models.regression.posterior import CoefficientPosterior, DiagonalCoefficientPosterior

__all__ = ["CoefficientPrior", "KnownCoefficients"]

# Standard deviation of the intercept under its prior: wide, so that the prior of the coefficients does not shrink it.
INTERCEPT_STD = 10.0
_LOG_2PI = np.log(2.0 * np.pi)
_Posterior = CoefficientPosterior | DiagonalCoefficientPosterior


@dataclass(frozen=True)
class KnownCoefficients:
    """A Gaussian factor exp(hᵀw - ½ wᵀKw) for each output.

    Parameters
    ----------
    linear : ndarray of shape (n_outputs, d)
        h.
    precision : ndarray of shape (n_outputs, d, d), or (n_outputs, d) for a diagonal K
    """

    linear: np.ndarray
    precision: np.ndarray

    @classmethod
    def of(cls, family: Gaussian | DiagonalGaussian, *, diagonal: bool) -> KnownCoefficients:
        """The density of a Gaussian; ``diagonal`` says of which form K is to be."""
        linear, precision = np.atleast_2d(family.natural[0]), family.precision
        d = linear.shape[1]
        if isinstance(family, DiagonalGaussian) and not diagonal:
            precision = np.atleast_2d(precision)[:, :, None] * np.eye(d)
        return cls(linear, precision.reshape(-1, *([d] if diagonal else [d, d])))


@dataclass(frozen=True)
class CoefficientPrior:
    """Prior of the coefficients of every output.

    Parameters
    ----------
    alpha : Gamma, float or None
        The distribution of α, or a fixed α. None: ``known`` alone is the prior.
    n_features : int
    intercept : bool
    known : KnownCoefficients, optional
        What is known besides.
    centre : ndarray of shape (d,), optional
        m, in coordinates of the coefficients; None for 0.
    spreads : ndarray of shape (n_features,), optional
        Of the columns: the first prior is of coefficients times these; None for 1.
    """

    alpha: Gamma | float | None
    n_features: int
    intercept: bool
    known: KnownCoefficients | None = None
    centre: np.ndarray | None = None
    spreads: np.ndarray | None = None

    def initial_alpha(self, n_outputs: int) -> np.ndarray:
        """E[α] under the prior, shape (n_outputs,); 1 where there is no α."""
        if self.alpha is None:
            return np.ones(n_outputs)
        return np.full(n_outputs, float(self.alpha.shape / self.alpha.rate if self._is_learnt else self.alpha))

    def natural(self, output: int, alpha: float, weight: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """Λm, shape (d,), and Λ, shape (d, d), or (d,) if it is diagonal, given α; ``known`` counts this weight."""
        is_diagonal = self.centre is None or not self.centre.any()
        base = self.precision(alpha) if is_diagonal else self.matrix(alpha)
        if self.known is None:
            return np.zeros(len(base)), base
        precision = weight * self.known.precision[output]
        return weight * self.known.linear[output], precision + (base if precision.ndim == base.ndim else np.diag(base))

    def matrix(self, alpha: float) -> np.ndarray:
        """Λ given α, without what is known; shape (d, d)."""
        move = around(np.zeros(self.n_features + self.intercept) if self.centre is None else self.centre)
        return move.T @ (self.precision(alpha)[:, None] * move)

    def precision(self, alpha: float) -> np.ndarray:
        """Prior precision of each coefficient, given α, without what is known; shape (d,)."""
        if self.alpha is None:
            return np.zeros(self.n_features + self.intercept)
        return np.append(alpha * self._squared_spreads, [INTERCEPT_STD**-2.0] * self.intercept)

    @property
    def _squared_spreads(self) -> np.ndarray:
        return np.ones(self.n_features) if self.spreads is None else np.square(self.spreads)

    def alpha_posterior(self, means: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """q(α_j) = Gamma(a₀ + d/2, b₀ + ½ E‖w_j‖²), without the intercept; moments of shape (n_outputs, d)."""
        squares = (np.square(means) + variances)[:, : self.n_features] @ self._squared_spreads
        if not self._is_learnt:
            return self.initial_alpha(len(squares)), np.ones(len(squares))
        return np.full(len(squares), self.alpha.shape + 0.5 * self.n_features), self.alpha.rate + 0.5 * squares

    def log_density(
        self, output: int, mean: np.ndarray, alpha_shape: float, alpha_rate: float
    ) -> tuple[float, np.ndarray]:
        """log p(w) up to a constant and its gradient, α integrated out: its q(α) is that of these moments."""
        alpha = alpha_shape / alpha_rate
        linear, precision = self.natural(output, alpha)
        pulled = precision * mean if precision.ndim == 1 else precision @ mean
        value = linear @ mean - 0.5 * mean @ pulled
        if self._is_learnt:
            value += 0.5 * alpha * np.square(mean[: self.n_features]) @ self._squared_spreads
            value -= alpha_shape * np.log(alpha_rate)
        return float(value), linear - pulled

    def divergence(self, posterior: _Posterior) -> float:
        """KL of q(w) q(α) from the prior, all outputs together."""
        if self.alpha is None:
            diagonal = isinstance(posterior, DiagonalGaussian)
            given = (DiagonalGaussian if diagonal else Gaussian).from_natural(
                self.known.linear, -0.5 * self.known.precision
            )
            learnt = type(given)(np.atleast_2d(posterior.mean), posterior.precision.reshape(given.precision.shape))
            return float(np.sum(learnt.kl(given)))
        around, alpha = posterior.around, Gamma(posterior.alpha_shape, posterior.alpha_rate)
        squares = np.atleast_2d(around.mean**2 + around.var)  # E w²
        if self._is_learnt:
            divergence, mean, expected_log = alpha.kl(self.alpha), alpha.mean, alpha.expected_log
        else:
            divergence, mean, expected_log = 0.0, float(self.alpha), np.log(self.alpha)
        d = self.n_features
        log_prior = 0.5 * (d * (expected_log - _LOG_2PI) - mean * (squares[:, :d] @ self._squared_spreads))
        log_prior = log_prior + 0.5 * np.log(self._squared_spreads).sum()
        if self.intercept:
            log_prior -= 0.5 * (_LOG_2PI + squares[:, -1] / INTERCEPT_STD**2) + np.log(INTERCEPT_STD)
        return float(np.sum(divergence - log_prior - np.atleast_1d(posterior.entropy)))

    def laplace_precision(self, output: int, mean: np.ndarray, alpha_shape: float, alpha_rate: float) -> np.ndarray:
        """Prior's part of the negative Hessian of log p(w) at ``mean``, shape (d, d), α integrated out around its mean.

        In (w, log α) the Hessian has -α w beside -(a₀ + d/2): its Schur complement is E[α] I - E[α]² w w' / (a₀ + d/2).
        """
        alpha = alpha_shape / alpha_rate
        precision = self.natural(output, alpha)[1]
        precision = np.diag(precision) if precision.ndim == 1 else precision.copy()
        if self._is_learnt:
            slope = np.append(alpha * self._squared_spreads * mean[: self.n_features], [0.0] * self.intercept)
            precision -= np.outer(slope, slope) / alpha_shape
        return precision

    @property
    def _is_learnt(self) -> bool:
        return isinstance(self.alpha, Gamma)

    @staticmethod
    def check(prior: object) -> None:
        """Raise an error if this is neither a Gamma distribution nor a precision nor a Gaussian."""
        if isinstance(prior, Gaussian | DiagonalGaussian):
            return
        if hasattr(prior, "fit"):
            raise TypeError(
                "`prior` must not be a model: scikit-learn's `clone` would forget its fit. Pass its posterior, "
                "prior=model.posterior_."
            )
        is_one = isinstance(prior, Real) or (isinstance(prior, Gamma) and prior.shape.ndim == 0)
        if not is_one:
            raise ValueError(
                "`prior` must be the distribution of the coefficients' precision, vips.expfam.Gamma(shape, rate), a fixed "
                "precision, or a Gaussian of the coefficients: the `posterior_` of another fit, "
                f"vips.expfam.Gaussian(mean, precision) or Gaussian.from_covariance(mean, cov), got {prior!r}."
            )
        for value in (prior.shape, prior.rate) if isinstance(prior, Gamma) else (prior,):
            check_number("prior", float(value), 1e-10, 1e10, "made of numbers between 1e-10 and 1e10")
