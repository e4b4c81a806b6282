"""Coordinates in which parameters are matched: scores, moves and priors of each kind of parameter.

==============  ==========================  =============================================  ===========================
chart           parameters                  coordinates δ of a move                        derivative of log p(x, z)
==============  ==========================  =============================================  ===========================
``Simplexes``   rows p of probabilities     p + p (δ - Σ p δ), since totals are linear     counts - (Σ counts) p
                                            in p
``Reals``       real numbers                θ + δ                                          given
==============  ==========================  =============================================  ===========================

A row of ``Simplexes`` has one coordinate more than it needs: its prior holds the mean of δ at 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.linalg import block_diag

__all__ = ["Chart", "Reals", "Simplexes"]

_LARGE_CHANGE = 0.3  # of a probability in one move
_FLOOR, _LEAST_FLOOR, _MOST_FLOOR = 0.2, 5e-5, 2e-3  # of probabilities: a fifth of a deviation, between these


class Chart(ABC):
    """Parameters of one kind, and the coordinates of moves from them."""

    size: int  # number of coordinates
    n_free: int  # of these that are not redundant

    @abstractmethod
    def moved(self, step: np.ndarray, cov: np.ndarray) -> Self:
        """The parameters after a move, shape (size,), whose covariance is about ``cov``."""

    @abstractmethod
    def largest(self, step: np.ndarray) -> float:
        """Size of a move, 1 being too large for a linear approximation."""

    @abstractmethod
    def prior(self) -> tuple[np.ndarray, np.ndarray]:
        """Gradient, shape (size,), and precision, shape (size, size), of a normal approximation of the prior."""

    @abstractmethod
    def draws(self, steps: np.ndarray) -> np.ndarray:
        """Parameters after each of these moves, shape (n_draws, size)."""


@dataclass(frozen=True)
class Simplexes(Chart):
    """Rows of probabilities with symmetric Dirichlet priors.

    Parameters
    ----------
    p : ndarray of shape (n_rows, n_levels)
    concentration : float
    """

    p: np.ndarray
    concentration: float

    @property
    def size(self) -> int:
        return self.p.size

    @property
    def n_free(self) -> int:
        return self.p.size - len(self.p)

    def scores(self, counts: np.ndarray) -> np.ndarray:
        """Of counts of shape (n_records, n_rows, n_levels); shape (n_records, size)."""
        return (counts - counts.sum(axis=-1, keepdims=True) * self.p).reshape(len(counts), -1)

    def moved(self, step: np.ndarray, cov: np.ndarray) -> Self:
        p = np.maximum(self.p + self._changes(step), self._floors(cov))
        return replace(self, p=p / p.sum(axis=-1, keepdims=True))

    def largest(self, step: np.ndarray) -> float:
        return float(np.abs(self._changes(step)).max(initial=0.0)) / _LARGE_CHANGE

    def prior(self) -> tuple[np.ndarray, np.ndarray]:
        n_levels = self.p.shape[1]
        per_var = n_levels * (self.concentration * n_levels + 1.0)  # of a move within the simplex, at its centre
        slopes = self._slopes()
        gradient = per_var * np.einsum("rij,rj->ri", slopes, 1.0 / n_levels - self.p)
        precision = per_var * slopes @ slopes + 1.0 / n_levels
        return gradient.ravel(), block_diag(*precision)

    def draws(self, steps: np.ndarray) -> np.ndarray:
        p = np.maximum(self.p + self._changes(steps), 0.0)
        return (p / np.maximum(p.sum(axis=-1, keepdims=True), 1e-300)).reshape(len(steps), -1)

    def _changes(self, steps: np.ndarray) -> np.ndarray:
        """Of p, by one move or several."""
        steps = steps.reshape(*steps.shape[:-1], *self.p.shape)
        return self.p * (steps - (self.p * steps).sum(axis=-1, keepdims=True))

    def _slopes(self) -> np.ndarray:
        """∂p/∂δ of each row."""
        return self.p[:, :, None] * (np.eye(self.p.shape[1]) - self.p[:, None, :])

    def _floors(self, cov: np.ndarray) -> np.ndarray:
        """Least probabilities: totals do not tell a smaller one from 0."""
        n_rows, n_levels = self.p.shape
        of_rows = np.moveaxis(np.diagonal(cov.reshape(n_rows, n_levels, n_rows, n_levels), axis1=0, axis2=2), -1, 0)
        slopes = self._slopes()
        std = np.sqrt(np.maximum(np.einsum("rij,rjk,rik->ri", slopes, of_rows, slopes), 0.0))
        return np.clip(_FLOOR * std, _LEAST_FLOOR, min(_MOST_FLOOR, 0.1 / n_levels))


@dataclass(frozen=True)
class Reals(Chart):
    """Real numbers with independent normal priors of mean 0.

    Parameters
    ----------
    values : ndarray of shape (size,)
    precision : float
    """

    values: np.ndarray
    precision: float

    @property
    def size(self) -> int:
        return self.values.size

    @property
    def n_free(self) -> int:
        return self.values.size

    def moved(self, step: np.ndarray, cov: np.ndarray) -> Self:
        return replace(self, values=self.values + step)

    def largest(self, step: np.ndarray) -> float:
        return float(np.abs(step).max(initial=0.0))

    def prior(self) -> tuple[np.ndarray, np.ndarray]:
        return -self.precision * self.values, self.precision * np.eye(self.size)

    def draws(self, steps: np.ndarray) -> np.ndarray:
        return self.values + steps
