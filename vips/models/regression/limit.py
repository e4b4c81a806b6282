"""The limit of an ordinary fit, by Newton's steps: there its first step of variational Bayes starts, and is the last one.

Steps of variational Bayes are safe and short: 20 on easy tables, thousands where counts are large, since they see the curvature
ω of a bound. Their fixed point is a maximum, given v = xᵀΣx of each record, of

    Σ_n w_n (κ ψ - b log 2cosh(c/2)) + log p(μ),    c² = ψ² + v    (w: weights; α is the one that μ and Σ give)

with slope Σ w r x and curvature Σ w h x xᵀ, h = ω v/c² + b σ'(c) ψ²/c². Newton's steps find it; then Σ⁻¹ = E[α] + Σ w ω x xᵀ
and v are computed anew, until the maximum stays where it is. Some rows of a large table tell where to begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from vips.core.sums.outer import outer_sums
from vips.models._definite import positive_definite
from vips.models.regression.posterior import CoefficientPosterior
from vips.models.regression.prior import CoefficientPrior
from vips.models.regression.statistics import RegressionStatistics, variances

__all__ = ["Piece", "Table"]

# Rows with which the search begins in a table of many more: at least so many, and so many for each coefficient.
_FEW, _FEW_PER_COEFFICIENT, _MANY = 2048, 32, 4
# Rounds of Σ, and steps of one; lengths of steps at which a search ends: among few rows, of a first round, and of others; and
# the distance of the limit. All are over that of the posterior's mean from 0, in its deviations.
_MOST_ROUNDS, _MOST_STEPS, _AMONG_FEW, _ROUGH, _FINE, _NEAR = 50, 100, 1e-2, 1e-6, 1e-9, 1e-8
# Least Σ b σ'(ψ) for each coefficient: that of a label that may as well be another one is ¼.
_LEAST_INFORMATION = 1.0
_MOST_OF_ALPHA = 20  # rounds of α and Σ, which take no records
# Part of the last step's length above which the curvature is computed anew; and of a value that is rounding.
_SLOW, _ROUNDING = 0.2, 1e-10


@dataclass
class Piece:
    """Some records.

    Parameters
    ----------
    rows : callable
        Gives the rows of the design, an array or CSR of shape (n_records, d).
    weights : ndarray of shape (n_records,)
    shape, linear : ndarray of shape (n_records, n_outputs)
        b and κ.
    offset : float or ndarray of shape (n_records, 1)
    variance : float or ndarray of shape (n_records, n_outputs)
        v.
    """

    rows: Callable[[], object]
    weights: np.ndarray
    shape: np.ndarray
    linear: np.ndarray
    offset: float | np.ndarray
    variance: float | np.ndarray = 0.0

    @classmethod
    def thinned(cls, pieces: Sequence[Piece], k: int) -> Piece:
        """Every ``k``-th record of some pieces, with ``k`` times its weight."""
        rows = [piece.rows()[::k] for piece in pieces]
        rows = sp.vstack(rows, format="csr") if sp.issparse(rows[0]) else np.concatenate(rows)
        arrays = [(p.weights, p.shape, p.linear, np.broadcast_to(p.offset, (len(p.weights), 1))) for p in pieces]
        weights, *terms = (np.concatenate([array[::k] for array in of]) for of in zip(*arrays, strict=True))
        return cls(lambda: rows, k * weights, *terms)


@dataclass(frozen=True)
class Table:
    """Records in memory.

    Parameters
    ----------
    pieces : list of Piece
    units : ndarray of shape (d,)
        Coefficients of the design per natural one.
    prior : CoefficientPrior
    posterior_of : callable
        Takes mean and precision, shapes (n_outputs, d) and (n_outputs, d, d), to a posterior with its α.
    spread_of : callable
        Takes a posterior to what :func:`variances` needs.
    dtype : float32 or float64
        Of quadratic forms over CSR rows.
    """

    pieces: list[Piece]
    units: np.ndarray
    prior: CoefficientPrior
    posterior_of: Callable[[np.ndarray, np.ndarray], CoefficientPosterior]
    spread_of: Callable[[CoefficientPosterior], np.ndarray]
    dtype: type

    def limit(self, start: CoefficientPosterior) -> tuple[CoefficientPosterior, bool] | None:
        """The fixed point of variational Bayes, sought from here, and whether it was found.

        None where hardly a label is uncertain: columns separate the labels, and coefficients have hardly a limit.
        """
        k = sum(len(piece.weights) for piece in self.pieces) // max(_FEW, _FEW_PER_COEFFICIENT * len(self.units))
        is_near = False
        if k >= _MANY:
            few = replace(self, pieces=[Piece.thinned(self.pieces, k)])
            near = few._rounds(start, False, (_AMONG_FEW, _AMONG_FEW), _AMONG_FEW)
            start, is_near = (start, False) if near is None else (near[0], True)
        return self._rounds(start, is_near, (_ROUGH, _FINE), _NEAR)

    def _is_uncertain(self, mean: np.ndarray) -> bool:
        """Whether labels tell as much of each output as four uncertain ones for each coefficient."""
        information = sum(piece.weights @ at.information() for piece, _, at in self._each(mean))
        return bool(np.min(information) >= _LEAST_INFORMATION * len(self.units))

    def _rounds(
        self, posterior: CoefficientPosterior, is_near: bool, lengths: tuple[float, float], near: float
    ) -> tuple[CoefficientPosterior, bool] | None:
        before, curvature = np.inf, None
        for i in range(_MOST_ROUNDS):
            if i or is_near:  # else v = 0
                spread = self.spread_of(posterior)
                for piece in self.pieces:
                    piece.variance = variances(piece.rows(), spread, self.dtype)
            mean, length, curvature = self._most_probable(posterior, lengths[i > 0], curvature)
            if i == 0 and not self._is_uncertain(mean):
                return None
            posterior = self._with_precision(mean, posterior)
            rate = min(length / max(before, 1e-300), 1.0 - 1e-6)
            if i and length * rate / (1.0 - rate) <= near:
                return posterior, True
            before = min(length, 1.0)  # the first one is of a start anywhere
        return posterior, False

    def _most_probable(
        self, posterior: CoefficientPosterior, shortest: float, curvature: np.ndarray | None
    ) -> tuple[np.ndarray, float, np.ndarray]:
        """μ given v and the posterior's variances, shape (n_outputs, d), the length of the first step to it, and the curvature
        of the likelihood near it."""
        mean = trial = np.atleast_2d(posterior.around.mean)
        variance = np.atleast_2d(posterior.around.var)
        best, first, last, is_stale = -np.inf, None, np.inf, curvature is None
        for _ in range(_MOST_STEPS):
            value, gradient, new = self._sums(trial, is_stale)
            learnt = list(zip(trial, *self.prior.alpha_posterior(trial, variance), strict=True))
            for j, at in enumerate(learnt):
                density, slope = self.prior.log_density(j, *at)
                value, gradient[j] = value + density, gradient[j] + slope
            if not value >= best - _ROUNDING * abs(best):  # too far
                trial = 0.5 * (trial + mean)
                continue
            mean, best, curvature = trial, value, new if is_stale else curvature
            laws = [positive_definite(h + self.prior.laplace_precision(j, *learnt[j])) for j, h in enumerate(curvature)]
            steps = np.array([np.linalg.solve(law, slope) for law, slope in zip(laws, gradient, strict=True)])
            size = max(sum(at @ law @ at for law, at in zip(laws, mean, strict=True)), 1.0)
            length, trial = float(np.sqrt(max((steps * gradient).sum(), 0.0) / size)), mean + steps
            first, is_stale, last = length if first is None else first, length > _SLOW * last, length
            if length <= shortest:
                break
        return trial, first, curvature

    def _sums(self, mean: np.ndarray, with_curvature: bool) -> tuple[float, np.ndarray, np.ndarray | None]:
        """Σ w (κψ - b log 2cosh(c/2)), Σ w r x and, if asked for, Σ w h x xᵀ."""
        d, units = len(self.units), self.units
        value, gradient, curvature = 0.0, np.zeros(mean.shape), np.zeros((len(mean), d, d)) if with_curvature else None
        for piece, rows, at in self._each(mean):
            value += piece.weights @ at.bounds()
            gradient += units * (rows.T @ (piece.weights[:, None] * at.residual)).T
            if with_curvature:
                tilt = np.maximum(at.tilt, 1e-150)
                share, p = np.square(np.where(at.tilt > 0.0, at.predictor / tilt, 1.0)), expit(at.tilt)
                h = at.precision * (1.0 - share) + piece.shape * p * (1.0 - p) * share
                curvature += outer_sums(rows, piece.weights[:, None] * h)
        return value, gradient, None if curvature is None else curvature * np.outer(units, units)

    def _with_precision(self, mean: np.ndarray, posterior: CoefficientPosterior) -> CoefficientPosterior:
        """The posterior with this mean and Σ⁻¹ = E[α] + Σ w ω x xᵀ, and the α that goes with this Σ."""
        total = sum(outer_sums(rows, piece.weights[:, None] * at.precision) for piece, rows, at in self._each(mean))
        total = total * np.outer(self.units, self.units)
        shape, rate = self.prior.alpha_posterior(mean, np.atleast_2d(posterior.around.var))
        for _ in range(_MOST_OF_ALPHA):
            laws = [self.prior.natural(j, alpha)[1] for j, alpha in enumerate(shape / rate)]
            posterior = self.posterior_of(
                mean, total + np.array([np.diag(law) if law.ndim == 1 else law for law in laws])
            )
            before, rate = rate, posterior.alpha_rate
            if np.abs(rate - before).max() <= _ROUNDING * rate.max():
                break
        return posterior

    def _each(self, mean: np.ndarray) -> Iterator[tuple[Piece, object, RegressionStatistics]]:
        """Pieces, their rows, and their E-step at this mean."""
        for piece in self.pieces:
            rows, others = piece.rows(), (piece.shape, piece.linear, mean * self.units, piece.variance)
            yield piece, rows, RegressionStatistics(rows, *others, offset=piece.offset)
