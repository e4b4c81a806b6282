"""Mixtures of independent columns, fitted to cross tables of all pairs by least squares.

    M_jk ≈ N Σ_c π_c θ_cj θ_ckᵀ

A cell counts by the inverse of the variance of the noise in it, and of one record more. Several mixtures are fitted side by
side, from other starts, and together are one with more components: they average what a single one makes of the noise. A rule,
by which two columns never have certain answers together, is one of the components: each gives one of the two up.

Fitted to released tables, they cost no budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import minimize

from vips.core.exact.blas_threads import one_blas_thread
from vips.models.tables.pairs import Pairs
from vips.models.tables.rules import Rule

__all__ = ["Mixture", "fitted"]

_N_FITS, _N_COMPONENTS, _ITERATIONS = 10, 30, 400
_SPREAD = 0.5  # of the logarithms of probabilities, at the start
_LEAST_SHARE = 1e-4  # of a level, at the start
_PULL = 0.3  # records, of each component towards the margins
_TOLERANCE = 1e-7  # of the loss, relative, at which a fit stops
_TINY = 1e-12


@dataclass(frozen=True)
class Mixture:
    """Components in which columns are independent.

    Parameters
    ----------
    shares : ndarray of shape (n_components,)
    chances : ndarray of shape (n_components, d)
        Of the levels of all columns; those of a column sum to 1.
    """

    shares: np.ndarray
    chances: np.ndarray

    def drawn(self, n: int, starts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Levels of n records, shape (n, n_columns), from 0 in each column."""
        members = rng.choice(len(self.shares), n, p=self.shares)
        drawn = np.empty((n, len(starts) - 1), np.int64)
        for j, (first, stop) in enumerate(pairwise(starts)):
            cumulative = np.cumsum(self.chances[:, first:stop], axis=1)
            cumulative /= np.maximum(cumulative[:, -1:], _TINY)
            drawn[:, j] = (rng.random(n)[:, None] >= cumulative[members, :-1]).sum(axis=1)
        return drawn

    def given(self, levels: Sequence[int], starts: np.ndarray) -> Mixture:
        """The mixture of records that have these levels, counted over all columns.

        Raises
        ------
        ValueError
            If no record of the mixture has them.
        """
        chances, shares = self.chances.copy(), self.shares.copy()
        for level in levels:
            column = np.searchsorted(starts, level, side="right") - 1
            shares *= chances[:, level]
            chances[:, starts[column] : starts[column + 1]] = 0.0
            chances[:, level] = 1.0
        if not shares.sum() > 0.0:
            raise ValueError("No synthetic row has these answers together.")
        return Mixture(shares / shares.sum(), chances)


def fitted(pairs: Pairs, rules: Sequence[Rule], rng: np.random.Generator) -> Mixture:
    """The mixtures side by side.

    Parameters
    ----------
    pairs : Pairs
    rules : sequence of Rule
    """
    with one_blas_thread():  # products are small
        fits = [_fit(pairs, _allowed(pairs, rules, rng), rng) for _ in range(_N_FITS)]
    return Mixture(
        np.concatenate([fit.shares for fit in fits]) / _N_FITS, np.concatenate([fit.chances for fit in fits])
    )


def _allowed(pairs: Pairs, rules: Sequence[Rule], rng: np.random.Generator) -> np.ndarray:
    """Which levels each component may have, shape (n_components, d).

    The column of a rule that more rules name decides: each component has a level of its own in it, drawn by the root
    of its share, so that rare ones have components, too. It gives up the other side of a rule if that level is on this one,
    else this one. What would leave a column without a level is given up on the other side.
    """
    d, margins = len(pairs.column), np.maximum(pairs.margins, 0.0)
    allowed = np.ones((min(_N_COMPONENTS, d), d), dtype=bool)
    named = Counter(column for rule in rules for column in rule.columns)
    levels = {}
    for column in named:
        weights = np.sqrt(margins + 1.0) * (pairs.column == column)
        levels[column] = rng.choice(d, len(allowed), p=weights / weights.sum())
    for columns, one, other in rules:
        first, second = (one, other) if named[columns[0]] >= named[columns[1]] else (other, one)
        decides = columns[0] if first is one else columns[1]
        for component, level in zip(allowed, levels[decides], strict=True):
            sides = (second, first) if first[level] else (first, second)
            kept = [component & ~side for side in sides]
            has_all = [np.bincount(pairs.column, side).all() for side in kept]
            component[:] = kept[0] if has_all[0] else kept[1]
    return allowed


def _fit(pairs: Pairs, allowed: np.ndarray, rng: np.random.Generator) -> Mixture:
    (K, d), column = allowed.shape, pairs.column
    same = column[:, None] == column
    size = max(pairs.size, 1.0)
    weights = np.where(same, 0.0, 1.0 / (pairs.cell_var[np.ix_(column, column)] + 1.0))
    target = pairs.table / size
    weights *= size**2
    margins = np.maximum(pairs.margins / size, _LEAST_SHARE)
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    margins /= np.add.reduceat(margins, starts)[column]
    barred = np.where(allowed, 0.0, -np.inf)

    def unpacked(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shares = np.exp(x[:K] - x[:K].max())
        logits = x[K:].reshape(-1, d) + barred
        chances = np.exp(logits - np.maximum.reduceat(logits, starts, axis=1)[:, column])
        return shares / shares.sum(), chances / np.add.reduceat(chances, starts, axis=1)[:, column]

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        shares, chances = unpacked(x)
        misses = weights * ((chances.T * shares) @ chances - target)
        of_misses = chances @ misses  # (n_components, d)
        value = 0.25 * float((misses * misses / np.where(same, 1.0, weights)).sum())
        pulls = np.where(allowed, margins / (chances + _TINY), 0.0)
        value -= _PULL * float((np.where(allowed, margins, 0.0) * np.log(chances + _TINY)).sum())
        by_chances = shares[:, None] * of_misses - _PULL * pulls
        by_shares = 0.5 * (chances * of_misses).sum(axis=1)
        mean = np.add.reduceat(chances * by_chances, starts, axis=1)[:, column]
        by_logits = chances * (by_chances - mean)
        by_log_shares = shares * (by_shares - shares @ by_shares)
        return value, np.concatenate([by_log_shares, by_logits.ravel()])

    start = np.log(margins) + _SPREAD * rng.standard_normal((K, d))
    end = minimize(
        loss, np.concatenate([np.zeros(K), start.ravel()]), jac=True, method="L-BFGS-B",
        options={"maxiter": _ITERATIONS, "maxcor": 30, "ftol": _TOLERANCE},
    )  # fmt: skip
    return Mixture(*unpacked(end.x))
