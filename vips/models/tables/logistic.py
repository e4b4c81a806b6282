"""Logistic regressions from cross tables of all pairs, with intervals that know the noise.

With features x, sums over the levels of a record, and y of two answers, the score of coefficients β is

    S(β) = Σ x y - Σ x σ(xᵀβ)

Its first sum is one of pairs. The second one is averaged over a law of the features' levels that has the released pairs: rows
of the mixture with weights w = exp(F λ), F their indicators of pairs, such that Fᵀw is what was released, up to noise. These
weights are the nearest to equal ones (raking; Deming and Stephan, 1940), and what a law says beyond pairs hardly moves S. B,
the least squares of x σ on F under the law, says how noise in pairs moves the average:

    Cov S = Cov of the noise in Σ x y - Bᵀ Fᵀw  +  κ Σ w r rᵀ  +  Σ w x xᵀ σ (1 - σ),    r = x σ - Bᵀ F

Coefficients are where ½ Sᵀ Cov⁻¹ S and a prior are least: noise may have left S without a root.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, logit

from vips.models.tables.pairs import Pairs
from vips.models.tables.regression import Effects, Squares, hidden_squares

__all__ = ["N_ROWS", "logistic"]

N_ROWS = 20_000  # of the mixture, that are raked
_MOST_CELLS = 16_000_000  # of these rows, twice over
_SWEEPS, _FARTHEST = 25, 5.0  # of raking over all tables, and of the logarithm of a weight in one of them
_SLACK, _LEAST_SLACK = 0.025, 0.006  # by which λ pulls from what was released: of the noise's variance, and records
_BEYOND = 500.0  # records: what a law says beyond pairs is as sure as in a sample of so many
_PRIOR = 4.0  # deviation of the log odds of a category, or of one deviation of a number
_HIDDEN = 2.0  # deviation of log odds, above which the tables hardly tell a coefficient
_LEAST_SPREAD, _WIDE = 0.02, 0.25  # deviation of numbers over their range: least of all, and by which they are hidden
_ROUNDS = 2  # of the covariance, and of coefficients under each
_STEPS, _HALVINGS, _GAIN = 30, 12, 1e-6
_SOLVES, _NEAR = 60, 1e-2  # of B


def logistic(
    pairs: Pairs, rows: np.ndarray, places: Sequence[int], target: np.ndarray, goal: int, within: np.ndarray | float,
    records_like_one: float, drawn: np.ndarray,
) -> Effects:  # fmt: skip
    """Log odds of an answer.

    Parameters
    ----------
    pairs, rows, places, goal, within, records_like_one
        As :func:`vips.models.tables.regression.linear` takes them.
    target : ndarray of shape (d,)
        1 for the answer whose odds are meant, and 0.
    drawn : ndarray of int, shape (n, n_columns)
        Rows of a mixture: levels, counted over all columns.
    """
    units = np.append(np.maximum(np.abs(rows[:-1]).max(axis=1), 1e-300), 1.0)
    rows = rows / units[:, None]
    is_counted, columns = rows[-1] > 0.0, sorted(set(places))
    drawn = drawn[is_counted[drawn[:, columns]].all(axis=1)][: _MOST_CELLS // len(columns) ** 2]
    hidden = np.append(hidden_squares(pairs, places, within), 0.0) / units**2
    within = np.broadcast_to(within, len(pairs.column)) / units[:-1, None] ** 2
    score = _Score.of(pairs, rows, list(places), target, goal, within, _Law.raked(pairs, drawn, columns))
    squares = Squares.of(pairs, rows, hidden)
    values = (row[is_counted & (pairs.column == place)] for row, place in zip(rows, places, strict=False))
    is_number = np.array([len(np.unique(of_row)) > 2 for of_row in values])
    ranges = np.where(is_number, np.ptp(rows[:-1], axis=1), 1.0)
    spreads = np.where(is_number, np.clip(squares.deviations[:-1], _LEAST_SPREAD * ranges, 0.5 * ranges), 1.0)
    prior = np.append(np.square(spreads / _PRIOR), 1e-4)
    root = np.zeros(len(rows))
    root[-1] = logit(np.clip(score.first[-1] / max(pairs.size, 1.0), 1e-4, 1.0 - 1e-4))
    for _ in range(_ROUNDS):
        precision = np.linalg.inv(score.covariance(root, records_like_one))
        root = _least(score, precision, prior, root)
    known = score.at(root)[1] @ np.linalg.solve(squares.raised, squares.shortened)
    posterior = np.linalg.inv(known.T @ precision @ known + np.diag(prior))
    is_told = np.sqrt(np.diag(posterior)[:-1]) * np.maximum(spreads, _WIDE * ranges) < _HIDDEN
    is_hidden = np.append(~is_told, False)
    return Effects(root / units, posterior / np.outer(units, units), is_hidden)


def _least(score: _Score, precision: np.ndarray, prior: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Where ½ Sᵀ Cov⁻¹ S + ½ Σ prior β² is least, by Gauss and Newton's steps."""

    def loss(root: np.ndarray) -> float:
        value = score.at(root)[0]
        return 0.5 * float(value @ precision @ value + prior @ np.square(root))

    now = loss(root)
    for _ in range(_STEPS):
        value, information = score.at(root)
        weighted = information @ precision
        step = np.linalg.solve(weighted @ information + np.diag(prior), weighted @ value - prior * root)
        for halving in range(_HALVINGS):
            then = loss(root + step / 2**halving)
            if then <= now:
                root = root + step / 2**halving
                break
        if not then < now - _GAIN:
            break
        now = then
    return root


@dataclass(frozen=True)
class _Law:
    """Rows with weights, whose tables of two columns are those released.

    Parameters
    ----------
    levels : dict of int to ndarray of shape (n,)
        Of each column, counted over all columns.
    tables : list of (int, int, ndarray, ndarray)
        Two columns, and the levels of each that are counted.
    cells : csr_array of shape (n, n_cells)
        F: the cell of each row in each table, one table after the other.
    weights : ndarray of shape (n,)
    slack : ndarray of shape (n_cells,)
    """

    levels: dict[int, np.ndarray]
    tables: list[tuple[int, int, np.ndarray, np.ndarray]]
    cells: sp.csr_array
    weights: np.ndarray
    slack: np.ndarray

    @classmethod
    def raked(cls, pairs: Pairs, drawn: np.ndarray, places: list[int]) -> _Law:
        """From rows of equal weights."""
        levels = {place: drawn[:, place] for place in places}
        # one column alone has a table with itself
        named = list(combinations(places, 2)) or [(places[0], places[0])]
        n, tables, cells, slack = len(drawn), [], [], []
        weights = np.full(n, max(pairs.size, 1.0) / max(n, 1))
        for j, k in named:
            at = [np.unique(levels[place]) for place in (j, k)]
            rows, columns = (np.searchsorted(values, levels[place]) for values, place in zip(at, (j, k), strict=True))
            tables.append((j, k, *at))
            cells.append(rows * len(at[1]) + columns)
            var = pairs.cell_var[j, k] if j != k else pairs.margin_var[j]
            slack.append(np.full(len(at[0]) * len(at[1]), _SLACK * var + _LEAST_SLACK))
        logs = [np.zeros(len(of_table)) for of_table in slack]
        released = [pairs.table[np.ix_(*at)].ravel() for _, _, *at in tables]
        for _ in range(_SWEEPS):
            for i in range(len(tables)):
                counts = np.bincount(cells[i], weights, len(logs[i]))
                move = _move(counts, released[i], slack[i], logs[i])
                logs[i] += move
                weights = weights * np.exp(move)[cells[i]]
        starts = np.cumsum([0, *map(len, slack)])
        places_of = np.array([cell + start for cell, start in zip(cells, starts, strict=False)]).T.ravel()
        indicators = sp.csr_array(
            (np.ones(len(places_of)), places_of, np.arange(0, len(places_of) + 1, len(tables))), shape=(n, starts[-1])
        )
        return cls(levels, tables, indicators, weights, np.concatenate(slack))

    def loads(self, values: np.ndarray) -> np.ndarray:
        """B, shape (n_cells, q): weighted least squares of ``values`` (n, q) on F with the slack as ridge, by conjugate
        gradients with the counts as preconditioner."""
        weighted = self._weighted
        scale = weighted.sum(axis=1)[:, None] + self.slack[:, None]
        loads = np.zeros((self.cells.shape[1], values.shape[1]))
        left = weighted @ values
        step = left / scale
        size, first = (left * step).sum(axis=0), np.maximum((left * left / scale).sum(axis=0), 1e-300)
        for _ in range(_SOLVES):
            image = weighted @ (self.cells @ step) + self.slack[:, None] * step
            length = size / np.maximum((step * image).sum(axis=0), 1e-300)
            loads += length * step
            left -= length * image
            before, size = size, (left * left / scale).sum(axis=0)
            if (size < _NEAR**2 * first).all():
                break
            step = left / scale + size / np.maximum(before, 1e-300) * step
        return loads

    @cached_property
    def _weighted(self) -> sp.csr_array:
        """Fᵀ diag(w)."""
        return self.cells.T.multiply(self.weights).tocsr()


def _move(counts: np.ndarray, released: np.ndarray, slack: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """δ with counts e^δ + slack (logs + δ) = released; 0 for cells without rows."""
    move = np.zeros(len(counts))
    for _ in range(12):
        after = counts * np.exp(move)
        move -= np.clip((after + slack * (logs + move) - released) / (after + slack), -1.0, 1.0)
    return np.where(counts > 0.0, np.clip(move, -_FARTHEST, _FARTHEST), 0.0)


@dataclass(frozen=True)
class _Score:
    """S of coefficients, and its covariance.

    Parameters
    ----------
    pairs : Pairs
    rows : ndarray of shape (q, d)
    places : list of int
    target : ndarray of shape (d,)
    goal : int
    law : _Law
    x, within : ndarray of shape (n, q)
        Features of the law's rows, and variances of the numbers in their bins.
    first : ndarray of shape (q,)
        Σ x y.
    """

    pairs: Pairs
    rows: np.ndarray
    places: list[int]
    target: np.ndarray
    goal: int
    law: _Law
    x: np.ndarray
    within: np.ndarray
    first: np.ndarray

    @classmethod
    def of(
        cls, pairs: Pairs, rows: np.ndarray, places: list[int], target: np.ndarray, goal: int, within: np.ndarray, law: _Law,
    ) -> _Score:  # fmt: skip
        target = np.where((pairs.column == goal) & (rows[-1] > 0.0), target, 0.0)
        constant = np.ones((len(law.weights), 1))
        x, within = (
            np.column_stack([row[law.levels[place]] for row, place in zip(values, places, strict=False)])
            for values in (rows, within)
        )
        first = np.append(rows[:-1] @ pairs.table @ target, pairs.margins @ target)
        x, within = np.hstack([x, constant]), np.hstack([within, 0.0 * constant])
        return cls(pairs, rows, places, target, goal, law, x, within, first)

    def at(self, root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """S, and what it falls by, Σ w x xᵀ σ (1 - σ), both without what bins add to squares (Sheppard, 1898)."""
        chances, weights = expit(self.x @ root), self.law.weights
        slopes = weights * chances * (1.0 - chances)
        by_bins = slopes @ self.within
        score = self.first - self.x.T @ (weights * chances) + by_bins * root
        return score, (self.x.T * slopes) @ self.x - np.diag(by_bins)

    def covariance(self, root: np.ndarray, records_like_one: float) -> np.ndarray:
        """Covariance of S, shape (q, q)."""
        pairs, law = self.pairs, self.law
        chances = expit(self.x @ root)
        values = self.x * chances[:, None]
        loads = law.loads(values)
        left = values - law.cells @ loads
        raised = np.append(np.maximum(pairs.raised[self.places], 1.0), 1.0)
        of_goal = max(pairs.raised[self.goal], 1.0)
        # a record without an answer is missed in some sums and not in others
        missed = (raised + of_goal - 2.0) * (np.square(self.x).T @ law.weights)
        missed *= self.first[-1] / max(pairs.size, 1.0)
        sampling = np.sqrt(np.outer(raised, raised)) * ((self.x.T * (law.weights * chances * (1.0 - chances))) @ self.x)
        sampling += np.diag(np.maximum(missed, 0.0))
        sampling += max(pairs.size / _BEYOND, 1.0) * (left.T * law.weights) @ left
        return self._noise(loads.T) + records_like_one * sampling + 1e-6 * np.eye(len(root))

    def _noise(self, loads: np.ndarray) -> np.ndarray:
        """Covariance of the noise in Σ x y less the sums of pairs by which ``loads`` (q, n_cells) tell Σ x σ."""
        pairs, q = self.pairs, len(loads)
        margins, first, tables = np.zeros((q, len(pairs.column))), 0, []
        for j, k, *at in self.law.tables:
            shape = len(at[0]), len(at[1])
            part = -loads[:, first : first + shape[0] * shape[1]].reshape(q, *shape)
            first += shape[0] * shape[1]
            if j == k:
                margins[:, at[0]] += np.diagonal(part, axis1=1, axis2=2)
                continue
            weights = np.zeros((q, (pairs.column == j).sum(), (pairs.column == k).sum()))
            starts = np.searchsorted(pairs.column, (j, k))
            weights[:, (at[0] - starts[0])[:, None], at[1] - starts[1]] = part
            tables.append((j, k, weights))
        at = pairs.column == self.goal
        for place in self.law.levels:
            is_here = np.append(np.array(self.places) == place, False)
            rows = np.where(is_here[:, None], self.rows, 0.0)[:, pairs.column == place]
            tables.append((place, self.goal, rows[:, :, None] * self.target[at]))
        margins[-1] += self.target
        return pairs.noise(tables, margins)
