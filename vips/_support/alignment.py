"""Matching of latent components, such as topics, which have no order and must be matched before they are compared.

order = argmin over permutations of Σ_k d(a_k, b_order(k))²        (the assignment problem)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

__all__ = ["Alignment", "align"]


@dataclass(frozen=True)
class Alignment:
    """A matching of components.

    Attributes
    ----------
    order : ndarray of shape (n_components,)
        Component k of the first goes with component ``order[k]`` of the second.
    distances : ndarray of shape (n_components,)
        Distance of each matched pair.
    """

    order: np.ndarray
    distances: np.ndarray


def align(a: np.ndarray, b: np.ndarray, distance: str = "hellinger") -> Alignment:
    """Match the rows of ``b`` to those of ``a`` so that the sum of squared distances is smallest.

    Parameters
    ----------
    a, b : array of shape (n_components, n_columns)
        Distributions (which are normalised), or vectors of weights.
    distance : {"hellinger", "euclidean"}
        √(½ Σ (√a - √b)²), between 0 and 1, for distributions; or √Σ (a - b)², for vectors. Signs of vectors count, because
        those of a sigmoid belief network's weights have a meaning.

    Raises
    ------
    ValueError
        If the shapes differ, a number is not finite, or a distribution has a negative entry or no mass.

    Examples
    --------
    >>> align([[0.9, 0.1], [0.2, 0.8]], [[0.3, 0.7], [1.0, 0.0]]).order.tolist()
    [1, 0]
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(f"Components must be rows with the same columns, got shapes {a.shape} and {b.shape}.")
    if len(a) != len(b):
        raise ValueError(
            f"{len(a)} components cannot be matched one to one with {len(b)}: fit both with the same number."
        )
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("Components must be finite.")
    if distance == "hellinger":
        a, b = _roots(a), _roots(b)
    elif distance != "euclidean":
        raise ValueError(f'`distance` must be "hellinger" or "euclidean", got {distance!r}.')
    # ‖a - b‖² = ‖a‖² + ‖b‖² - 2 a'b: a permutation changes the last term only
    _, order = linear_sum_assignment(-(a @ b.T))
    squares = np.sum((a - b[order]) ** 2, axis=1)
    return Alignment(order, np.sqrt(0.5 * squares if distance == "hellinger" else squares))


def _roots(rows: np.ndarray) -> np.ndarray:
    total = rows.sum(axis=1, keepdims=True)
    if (rows < 0.0).any() or not (total > 0.0).all():
        raise ValueError("Distributions must not have negative entries, and must have mass.")
    return np.sqrt(rows / total)
