"""Uncertainty of the parameters of a linear dynamical system."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Uncertainty"]


@dataclass(frozen=True, repr=False)
class Uncertainty:
    """What a posterior of the parameters has beside its centre, a :class:`Dynamics` with Q = I, R = rate / shape, P0 = Ψ / ν.

    Parameters
    ----------
    moves : ndarray of shape (K, K)
        Covariance of each row of A.
    columns : ndarray of shape (p, K + 1, K + 1)
        Covariance of (c_i, d_i), in units of R_i.
    shapes : ndarray of shape (p,)
        Of the Gamma of 1 / R_i.
    start_count, start_dof : float
        κ and ν.
    """

    moves: np.ndarray
    columns: np.ndarray
    shapes: np.ndarray
    start_count: float
    start_dof: float

    def __post_init__(self) -> None:
        p, K = len(self.shapes), len(self.moves)
        if self.moves.shape != (K, K) or self.columns.shape != (p, K + 1, K + 1) or self.shapes.shape != (p,):
            raise ValueError("the arrays of the uncertainty do not fit together")
        numbers = [self.start_count, self.start_dof - (K - 1), *self.shapes]
        if not all(np.isfinite(value).all() for value in vars(self).values()) or not min(numbers) > 0.0:
            raise ValueError("the uncertainty is not finite, or a count is not positive")
        if min(np.linalg.eigvalsh(covariance)[0] for covariance in (self.moves, *self.columns)) <= 0.0:
            raise ValueError("a covariance of the uncertainty is not positive definite")
