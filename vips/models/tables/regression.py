"""Linear regressions from cross tables of all pairs, with intervals that know the noise.

A record's features, constant and target are sums over its levels: x = V h and y = gᵀh, h the indicators of its levels. Then
A = Σ x xᵀ = V M Vᵀ and Σ x y = V M g are linear in the tables M, and so is the noise in them. The score of coefficients β,

    S(β) = V M (g - Vᵀβ),    Cov S(β) = s² R^½ A R^½ + Cov of the noise in it,    s² = Σ (y - xᵀβ)² / N

with R how much larger the target's variance is where a feature is far from its average, from the table of its column and the
target: targets of rare categories may vary more than others. S is 0 on average at the coefficients of all records. Noise makes
directions of A too short, or negative: they are kept long enough in the root of S, which must not run away, and shortened in
the covariance, which must not look certain. Under the prior an effect is of the size of the target's deviation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vips.core.exact.blas import eigh
from vips.models.tables.pairs import Pairs

__all__ = ["Effects", "Squares", "hidden_squares", "linear"]

# Shares of the noise in A: its directions are at least so long in the root; and are shortened by so much in the covariance.
_FLOOR, _CAUTION = 0.5, 0.35
_HIDDEN = 0.5  # of the prior's deviation, above which the tables hardly tell a coefficient
_SEEN = 3.0  # deviations of noise that a sum is taken for at least
_LEAST_VARIANCE = 1e-3  # of the target's, that is left
_SURE = 2.0  # deviations of noise, within which variances of the target are taken for equal
_DOUBT = 0.25  # deviation of what bins hide of a sum of squares, over what even numbers in them would
_LEAST_RATIO = 0.02  # of the target's variance at a level, over the usual
_TINY = 1e-9


@dataclass(frozen=True)
class Effects:
    """Coefficients of features, and how far they are known.

    Parameters
    ----------
    estimate : ndarray of shape (q,)
    covariance : ndarray of shape (q, q)
    is_hidden : ndarray of bool, shape (q,)
        Whether noise, or features that vary together, hide a coefficient.
    """

    estimate: np.ndarray
    covariance: np.ndarray
    is_hidden: np.ndarray

    def from_origin(self, centre: np.ndarray) -> Effects:
        """The same with the constant of features from which their ``centre`` is not taken off."""
        change = np.eye(len(self.estimate))
        change[-1, :-1] = -centre
        return Effects(change @ self.estimate, change @ self.covariance @ change.T, self.is_hidden)


def linear(
    pairs: Pairs, rows: np.ndarray, places: Sequence[int], target: np.ndarray, goal: int, within: np.ndarray | float = 0.0,
    records_like_one: float = 1.0,
) -> Effects:  # fmt: skip
    """Least squares of a number on features.

    Parameters
    ----------
    pairs : Pairs
    rows : ndarray of shape (q, d)
        V: what each level adds to each feature. The last feature is the constant; others are of one column, with an average
        of 0.
    places : sequence of int, of length q - 1
        Column of each feature.
    target : ndarray of shape (d,)
        g.
    goal : int
        Column of the target.
    within : ndarray of shape (d,)
        Variance of the numbers of each level around what it counts, by which squares of the middles of bins are too large
        (Sheppard, 1898).
    records_like_one : float
        How many records tell no more than one.
    """
    at = (pairs.column == goal) & (rows[-1] > 0.0)
    mean = float(pairs.margins[at] @ target[at]) / max(pairs.size, 1.0)
    centred = np.where(at, target - mean, 0.0)
    units = np.append(np.maximum(np.abs(rows[:-1]).max(axis=1), 1e-300), 1.0)
    hidden = np.append(hidden_squares(pairs, places, within), 0.0) / units**2
    unit = float(np.abs(centred).max()) or 1.0
    effects = _in_units(pairs, rows / units[:, None], places, centred / unit, goal, hidden, records_like_one)
    change = unit / units
    estimate = effects.estimate * change
    estimate[-1] += mean
    return Effects(estimate, effects.covariance * np.outer(change, change), effects.is_hidden)


def _in_units(
    pairs: Pairs, rows: np.ndarray, places: Sequence[int], target: np.ndarray, goal: int, hidden: np.ndarray,
    records_like_one: float,
) -> Effects:  # fmt: skip
    """The same of features and a target of about 1; ``hidden`` is what bins hide of the features' sums of squares."""
    size, squares = max(pairs.size, 1.0), Squares.of(pairs, rows, hidden)
    root = np.linalg.solve(squares.raised, rows @ pairs.table @ target)
    left = target - root @ rows
    total = max(target @ pairs.table @ target / size - (pairs.margins @ target / size) ** 2, _TINY)
    variance = max(left @ pairs.table @ left / size, _LEAST_VARIANCE * total)
    # a record without an answer is missed in some sums and not in others
    missed = (pairs.raised[pairs.column] - 1.0) * pairs.margins / size
    variance += missed @ (np.square(root[:-1] @ rows[:-1]) + np.square(target))
    ratios = np.sqrt(_ratios(pairs, rows, places, target, goal))
    ratios[:-1] *= np.sqrt(np.maximum(pairs.raised[list(places)], 1.0))
    covariance = records_like_one * variance * ratios[:, None] * squares.raised * ratios
    covariance += pairs.covariance(rows, np.tile(left, (len(rows), 1)))
    covariance += np.diag(np.square(_DOUBT * hidden * root))
    return squares.effects(root, squares.shortened, covariance, np.sqrt(total))


def hidden_squares(pairs: Pairs, places: Sequence[int], within: np.ndarray | float) -> np.ndarray:
    """Sum of squares of each feature that its bins hide."""
    return np.bincount(pairs.column, np.maximum(pairs.margins, 0.0) * within)[list(places)]


def _ratios(pairs: Pairs, rows: np.ndarray, places: Sequence[int], target: np.ndarray, goal: int) -> np.ndarray:
    """R of each feature, and 1 for the constant."""
    ratios, across = np.ones(len(rows)), np.flatnonzero(pairs.column == goal)
    is_seen = pairs.margins > _SEEN * pairs.margin_std()
    for place in set(places):
        at = np.flatnonzero((pairs.column == place) & is_seen)
        if not len(at):
            continue
        counts, table = np.maximum(pairs.margins[at], 1.0), pairs.table[np.ix_(at, across)]
        means = table @ target[across] / counts
        squares = np.square(target[across] - means[:, None])
        variances, usual = (table * squares).sum(axis=1) / counts, (table * squares).sum() / counts.sum()
        noise = np.sqrt(np.square(squares).sum(axis=1) * pairs.cell_var[place, goal]) / counts
        off = variances - usual
        off *= np.maximum(
            1.0 - np.square(_SURE * noise / np.maximum(np.abs(off), _TINY)), 0.0
        )  # as far as noise is less
        relative = np.maximum(1.0 + off / max(usual, _TINY), _LEAST_RATIO)
        for k in (k for k, column in enumerate(places) if column == place):
            far = counts * np.square(rows[k, at])
            ratios[k] = far @ relative / max(far.sum(), _TINY)
    return ratios


@dataclass(frozen=True)
class Squares:
    """A, with directions that noise has made too short.

    Parameters
    ----------
    raised, shortened : ndarray of shape (q, q)
        With directions that are long enough; and with those that look certain.
    scale : ndarray of shape (q,)
        Units of the features in which noise is about the same in all directions.
    deviations : ndarray of shape (q,)
        Of the features.
    spreads : ndarray of shape (q,)
        The same, at least half their range.
    """

    raised: np.ndarray
    shortened: np.ndarray
    scale: np.ndarray
    deviations: np.ndarray
    spreads: np.ndarray

    @classmethod
    def of(cls, pairs: Pairs, rows: np.ndarray, within: np.ndarray) -> Squares:
        A = rows @ pairs.table @ rows.T - np.diag(within)
        variances = np.array([pairs.variances(np.broadcast_to(row, rows.shape), rows) for row in rows])
        scale = np.sqrt(np.maximum(np.diag(A), _SEEN * np.sqrt(np.diag(variances))) + _TINY)
        noises = np.sqrt((variances / np.outer(scale, scale) ** 2).sum(axis=1))
        scale = scale * np.sqrt(np.maximum(noises / max(noises.max(), _TINY), 1e-3))
        units = np.outer(scale, scale)
        noise = float(np.sqrt((variances / units**2).sum(axis=1).max()))
        values, vectors = eigh(A / units)
        by_bins = np.square(vectors).T @ (within / scale**2)  # what bins hide in each direction
        raised, seen = np.maximum(values, np.maximum(_FLOOR * (noise + by_bins), _TINY)), np.maximum(values, 0.0)
        shortened = seen**3 / (seen**2 + (_CAUTION * noise + by_bins) ** 2 + _TINY**2)
        deviations = np.sqrt(np.maximum(np.diag(A), 0.0) / max(pairs.size, 1.0))
        return cls(
            (vectors * raised) @ vectors.T * units,
            (vectors * shortened) @ vectors.T * units,
            scale,
            deviations,
            np.maximum(deviations, np.maximum(0.5 * np.ptp(rows, axis=1), _TINY)),
        )

    def effects(self, root: np.ndarray, known: np.ndarray, covariance: np.ndarray, usual: float) -> Effects:
        """Coefficients of which ``known`` (β - root) has this covariance, under the prior of a ``usual`` size."""
        prior_std = usual / self.spreads
        known = known / self.scale[:, None] / self.scale
        information = known @ np.linalg.solve(covariance / np.outer(self.scale, self.scale), known)
        prior = np.append((self.scale * prior_std)[:-1] ** -2.0, 0.0)
        posterior = np.linalg.inv(information + np.diag(prior + _TINY))
        estimate = posterior @ information @ (root * self.scale) / self.scale
        posterior = posterior / np.outer(self.scale, self.scale)
        variances = np.diag(posterior)
        is_hidden = ~(
            (variances >= 0.0) & (variances <= np.square(_HIDDEN * prior_std))
        )  # rounding may make one negative
        return Effects(estimate, posterior, np.append(is_hidden[:-1], False))
