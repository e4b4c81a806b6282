"""Linear regressions from cross tables of all pairs, with intervals that know the noise.

A record's features, constant and target are sums over its levels: x = V h and y = gᵀh, h the indicators of its levels. Then
A = Σ x xᵀ = V M Vᵀ and Σ x y = V M g are linear in the tables M, and so is the noise in them. The score of coefficients β,

    S(β) = V M (g - Vᵀβ),    Cov S(β) = s² A + Cov of the noise in it,    s² = Σ (y - xᵀβ)² / N

is 0 on average at the coefficients of all records. Noise makes directions of A too short, or negative: they are kept long
enough in the root of S, which must not run away, and shortened in the covariance, which must not look certain. Under the prior
an effect is of the size of the target's deviation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vips.core.exact.blas import eigh
from vips.models.tables.pairs import Pairs

__all__ = ["Effects", "linear"]

# Shares of the noise in A: its directions are at least so long in the root; and are shortened by so much in the covariance.
_FLOOR, _CAUTION = 0.5, 0.35
_HIDDEN = 0.5  # of the prior's deviation, above which the tables hardly tell a coefficient
_SEEN = 3.0  # deviations of noise that a sum of squares is taken for at least
_LEAST_VARIANCE = 1e-3  # of the target's, that is left
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


def linear(pairs: Pairs, rows: np.ndarray, target: np.ndarray, records_like_one: float = 1.0) -> Effects:
    """Least squares of a number on features.

    Parameters
    ----------
    pairs : Pairs
    rows : ndarray of shape (q, d)
        V: what each level adds to each feature; the last feature is the constant, and others have an average of 0.
    target : ndarray of shape (d,)
        g.
    records_like_one : float
        How many records tell no more than one.
    """
    size, A, variances = max(pairs.size, 1.0), rows @ pairs.table @ rows.T, pairs.variances(rows)
    # units in which noise is alike in all directions
    scale = np.sqrt(np.maximum(np.diag(A), _SEEN * np.sqrt(np.diag(variances))) + _TINY)
    noises = np.sqrt((variances / np.outer(scale, scale) ** 2).sum(axis=1))
    scale = scale * np.sqrt(np.maximum(noises / max(noises.max(), _TINY), 1e-3))
    noise = float(np.sqrt((variances / np.outer(scale, scale) ** 2).sum(axis=1).max()))
    values, vectors = eigh(A / np.outer(scale, scale))
    raised = np.maximum(values, max(_FLOOR * noise, _TINY))
    root = vectors @ ((vectors.T @ (rows @ pairs.table @ target / scale)) / raised)
    left = target - (root / scale) @ rows
    total = max(target @ pairs.table @ target / size - (pairs.margins @ target / size) ** 2, _TINY)
    variance = records_like_one * max(left @ pairs.table @ left / size, _LEAST_VARIANCE * total)
    covariance = pairs.covariance(rows / scale[:, None], np.tile(left, (len(rows), 1)))
    covariance += variance * (vectors * raised) @ vectors.T
    values = np.maximum(values, 0.0)
    shortened = values**3 / (values**2 + (_CAUTION * noise) ** 2 + _TINY**2)
    known = (vectors * shortened) @ vectors.T
    information = known @ np.linalg.solve(covariance, known)
    spreads = np.maximum(np.sqrt(np.maximum(np.diag(A), 0.0) / size), 0.5 * np.ptp(rows, axis=1))
    prior_std = np.sqrt(total) * scale / np.maximum(spreads, _TINY)
    precision = information + np.diag(np.append(prior_std[:-1] ** -2.0, 0.0)) + _TINY * np.eye(len(rows))
    estimate = np.linalg.solve(precision, information @ root)
    known = np.linalg.inv(precision)
    is_hidden = np.append(np.sqrt(np.diag(known))[:-1] > _HIDDEN * prior_std[:-1], False)
    return Effects(estimate / scale, known / np.outer(scale, scale), is_hidden)
