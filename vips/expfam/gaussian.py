"""Gaussian distributions of vectors, with a full or a diagonal precision.

    log p(x) = (Λμ)ᵀx - ½ xᵀΛx - ½ μᵀΛμ + ½ log|Λ| - ½ d log 2π        x in R^d, Λ positive definite

==========================  ======================  ===================================================
symbol                      name                    meaning
==========================  ======================  ===================================================
μ, Λ                        ``mean, precision``     parameters
Λμ, -Λ/2                    ``natural``             natural parameters of x and of xxᵀ (x², if diagonal)
μ, Λ⁻¹                      ``mean``, ``cov``       E x and Cov x: the mean parameters are μ, Λ⁻¹ + μμᵀ
==========================  ======================  ===================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from scipy.special import expit, logit, ndtr, ndtri

from vips.core.exact import blas
from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.expfam._headline import Headline

__all__ = ["DiagonalGaussian", "Gaussian", "posterior_probabilities"]

_LOG_2PI = np.log(2.0 * np.pi)
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
_QUANTILES, _QUANTILE_WEIGHTS = np.polynomial.legendre.leggauss(32)


class _AnyGaussian(Headline, ABC):
    """Base class: everything that needs only μ, the marginals, log|Λ| and Λ times a vector."""

    mean: np.ndarray
    precision: np.ndarray
    _parameters = "mean", "precision"

    @property
    @abstractmethod
    def var(self) -> np.ndarray: ...

    @property
    @abstractmethod
    def _log_det(self) -> np.ndarray:
        """log|Λ|."""

    @abstractmethod
    def _times(self, vectors: np.ndarray) -> np.ndarray:
        """Λ times vectors of shape (..., d)."""

    @abstractmethod
    def _trace(self, other: Self) -> np.ndarray:
        """Trace of the precision of ``other`` times the covariance of this one."""

    @property
    def natural(self) -> tuple[np.ndarray, np.ndarray]:
        """Natural parameters Λμ and -Λ/2."""
        return self._times(self.mean), -0.5 * self.precision

    @property
    def log_normalizer(self) -> np.ndarray:
        """½ μᵀΛμ - ½ log|Λ| + ½ d log 2π, shape (...)."""
        n_dimensions = self.mean.shape[-1]
        return 0.5 * ((self.mean * self._times(self.mean)).sum(axis=-1) - self._log_det + n_dimensions * _LOG_2PI)

    @property
    def entropy(self) -> np.ndarray:
        """-E log p(x) = ½ d (1 + log 2π) - ½ log|Λ|, shape (...)."""
        return 0.5 * (self.mean.shape[-1] * (1.0 + _LOG_2PI) - self._log_det)

    def kl(self, other: Self) -> np.ndarray:
        """KL(self ‖ other), shape (...), for two full or two diagonal Gaussians."""
        if not (isinstance(other, type(self)) or isinstance(self, type(other))):
            raise TypeError(
                f"The divergence of a {type(self).__name__} from a {type(other).__name__} is not implemented."
            )
        # ½ (tr Λ'Σ - d + δᵀΛ'δ + log|Λ| - log|Λ'|), δ = μ - μ'
        shift = self.mean - other.mean
        distance = (shift * other._times(shift)).sum(axis=-1)
        return 0.5 * (self._trace(other) - shift.shape[-1] + distance + self._log_det - other._log_det)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Central credible interval of every coordinate, from its marginal: (lower, upper) arrays."""
        self.check_level(level)
        half_width = ndtri(0.5 + 0.5 * level) * self.std
        return self.mean - half_width, self.mean + half_width


class Gaussian(_AnyGaussian):
    """Gaussians with a full precision, one per leading index.

    Parameters
    ----------
    mean : array of shape (..., d)
        μ.
    precision : array of shape (..., d, d)
        Λ, symmetric positive definite. Asymmetry from rounding is averaged away.

    Raises
    ------
    ValueError
        If a number is not finite, the shapes do not fit, or a precision is not symmetric positive definite.

    Attributes
    ----------
    factor : ndarray of shape (..., d, d)
        Lower triangular L with Λ = LLᵀ.

    Notes
    -----
    The precision is factorised once, at construction; the covariance is computed at its first use.
    """

    _shown = ("mean",)  # the covariance of many parameters is costly

    def __init__(self, mean: np.ndarray, precision: np.ndarray) -> None:
        self.mean, self.precision, self.factor = _checked(mean, precision, "precision")

    @classmethod
    def from_natural(cls, linear: np.ndarray, quadratic: np.ndarray) -> Self:
        """From the natural parameters Λμ of x and -Λ/2 of xxᵀ."""
        family = cls(linear, -2.0 * np.asarray(quadratic))  # checks both; its mean is not yet μ
        family.mean = _read_only(family._solve(family.mean))
        return family

    @classmethod
    def from_covariance(cls, mean: ArrayLike, cov: ArrayLike) -> Self:
        """From the mean, shape (..., d), and the covariance, shape (..., d, d), which is stored unchanged."""
        mean, cov, factor = _checked(mean, cov, "cov")
        family = cls(mean, _each(blas.inverse_from_factor, factor))
        family.cov = cov
        return family

    @cached_property
    def cov(self) -> np.ndarray:
        """Λ⁻¹, shape (..., d, d)."""
        return _read_only(_each(blas.inverse_from_factor, self.factor))

    @cached_property
    def inverse_factor(self) -> np.ndarray:
        """L⁻¹, lower triangular, shape (..., d, d): xᵀ Λ⁻¹ x = ‖L⁻¹x‖²."""
        return _read_only(_each(blas.lower_inverse, self.factor))

    @cached_property
    def var(self) -> np.ndarray:
        """Variances of the marginals, shape (..., d)."""
        return _read_only(np.einsum("...ij,...ij->...j", self.inverse_factor, self.inverse_factor))

    def sample(self, size: int, rng: RandomStateLike = None) -> np.ndarray:
        """Independent draws, shape (size, ..., d)."""
        draws = as_generator(rng).standard_normal((size, *self.mean.shape))
        for index in np.ndindex(self.mean.shape[:-1]):  # Λ = LLᵀ, so L⁻ᵀz has covariance Λ⁻¹
            rows = (slice(None), *index)
            draws[rows] = solve_triangular(self.factor[index], draws[rows].T, lower=True, trans="T").T
        return draws + self.mean

    @property
    def _log_det(self) -> np.ndarray:
        return 2.0 * np.log(np.diagonal(self.factor, axis1=-2, axis2=-1)).sum(axis=-1)

    def _times(self, vectors: np.ndarray) -> np.ndarray:
        return (self.precision @ vectors[..., None])[..., 0]

    def _solve(self, vectors: np.ndarray) -> np.ndarray:
        """Λ⁻¹ times vectors of shape (..., d)."""
        solved = np.empty(vectors.shape)
        for index in np.ndindex(vectors.shape[:-1]):
            factor = self.factor[index]
            half = solve_triangular(factor, vectors[index], lower=True)
            solved[index] = solve_triangular(factor, half, lower=True, trans="T")
        return solved

    def _trace(self, other: Self) -> np.ndarray:
        return np.einsum("...ij,...ij->...", other.precision, self.cov)


class DiagonalGaussian(_AnyGaussian):
    """Gaussians with independent coordinates.

    Parameters
    ----------
    mean : array of shape (..., d)
        μ.
    precision : array of shape (..., d)
        The diagonal of Λ, positive.

    Raises
    ------
    ValueError
        If a number is not finite, the shapes differ, or a precision is not positive.
    """

    def __init__(self, mean: np.ndarray, precision: np.ndarray) -> None:
        mean, precision = np.array(mean, dtype=np.float64), np.array(precision, dtype=np.float64)
        if mean.ndim == 0 or mean.shape != precision.shape:
            raise ValueError(
                f"`mean` and `precision` must have one shape (..., d), got {mean.shape} and {precision.shape}."
            )
        if not (np.isfinite(mean).all() and np.isfinite(precision).all() and (precision > 0.0).all()):
            raise ValueError("`mean` must be finite, and `precision` positive and finite.")
        self.mean, self.precision = _read_only(mean), _read_only(precision)

    @classmethod
    def from_natural(cls, linear: np.ndarray, quadratic: np.ndarray) -> Self:
        """From the natural parameters Λμ of x and -Λ/2 of x²; both of shape (..., d)."""
        family = cls(linear, -2.0 * np.asarray(quadratic))  # checks both; its mean is not yet μ
        family.mean = _read_only(family.mean / family.precision)
        return family

    @cached_property
    def cov(self) -> np.ndarray:
        """Λ⁻¹ as full matrices, shape (..., d, d)."""
        return _read_only(self.var[..., None] * np.eye(self.mean.shape[-1]))

    @property
    def var(self) -> np.ndarray:
        """Variances of the marginals, shape (..., d)."""
        return 1.0 / self.precision

    def sample(self, size: int, rng: RandomStateLike = None) -> np.ndarray:
        """Independent draws, shape (size, ..., d)."""
        return self.mean + self.std * as_generator(rng).standard_normal((size, *self.mean.shape))

    @property
    def _log_det(self) -> np.ndarray:
        return np.log(self.precision).sum(axis=-1)

    def _times(self, vectors: np.ndarray) -> np.ndarray:
        return self.precision * vectors

    def _trace(self, other: Self) -> np.ndarray:
        return (other.precision * self.var).sum(axis=-1)


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _checked(mean: ArrayLike, matrix: ArrayLike, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read-only copies of a mean and of a symmetric positive definite matrix, and its lower Cholesky factor."""
    mean, matrix = np.array(mean, dtype=np.float64), np.asarray(matrix, dtype=np.float64)
    if mean.ndim == 0 or matrix.shape != (*mean.shape, mean.shape[-1]):
        raise ValueError(
            f"`mean` must have shape (..., d) and `{name}` shape (..., d, d), got {mean.shape} and {matrix.shape}."
        )
    if not (np.isfinite(mean).all() and np.isfinite(matrix).all()):
        raise ValueError(f"`mean` and `{name}` must be finite.")
    symmetric = 0.5 * (matrix + np.swapaxes(matrix, -2, -1))
    asymmetry, size = (np.abs(m).max(axis=(-2, -1), initial=0.0) for m in (matrix - symmetric, matrix))
    if not (asymmetry <= 1e-8 * size).all():
        raise ValueError(f"`{name}` must be symmetric.")
    try:
        factor = _each(blas.cholesky, symmetric)
    except np.linalg.LinAlgError:
        raise ValueError(f"`{name}` must be positive definite: its Cholesky factorisation fails.") from None
    return _read_only(mean), _read_only(symmetric), factor


def _each(function, matrices: np.ndarray) -> np.ndarray:
    """Apply a function of one matrix to all matrices, over leading axes."""
    if matrices.ndim == 2:
        return function(matrices)
    result = np.empty(matrices.shape)
    for index in np.ndindex(matrices.shape[:-2]):
        result[index] = function(matrices[index])
    return result


def posterior_probabilities(means: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """∫ σ(a) N(a | mean, variance) da to 2e-5, of the shape of ``means``.

    By Gauss-Hermite quadrature. This loses accuracy for standard deviations above 2: there, the integral is the average of
    Φ((mean - l) / deviation) over a logistic variable l, by Gauss-Legendre quadrature of its quantiles.
    """
    deviations = np.sqrt(variances)
    narrow, wide = np.zeros(means.shape), np.zeros(means.shape)
    for node, weight in zip(_NODES, _NODE_WEIGHTS / _NODE_WEIGHTS.sum(), strict=True):
        narrow += weight * expit(means + node * deviations)
    for node, weight in zip(logit(0.5 + 0.5 * _QUANTILES), 0.5 * _QUANTILE_WEIGHTS, strict=True):
        wide += weight * ndtr((means - node) / np.maximum(deviations, 1.0))
    return np.where(deviations > 2.0, wide, narrow)
