"""The start of a mixture: one component, which is split along its longest axis, and so on (binary splitting).

A split keeps count, mean and covariance of what is split: its halves are at m ± 0.8 √λ v, with λ and v the largest
eigenvalue of the covariance and its eigenvector, and lose 0.64 λ along v.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vips.core.exact.blas import eigh
from vips.core.phases import FitPhase
from vips.models._gaussians.update import Moments

__all__ = ["GROWING", "growing_phases", "lengths_of_growth", "n_splits_in_step", "split"]

_SHIFT = 0.8  # in standard deviations
GROWING = 0.5  # step size while components are split


def n_splits_in_step(n_components: int, n_steps: int) -> int:
    """As few as leave two thirds of the steps for what follows, and at least 1. Public numbers."""
    return max(1, -(-(n_components - 1) // max(1, n_steps // 3)))


def lengths_of_growth(n_components: int, n_steps: int, interval: int) -> list[int]:
    """Numbers of steps after each of which components are split, until there are ``n_components``.

    Parameters
    ----------
    n_components, n_steps : int
    interval : int
        Steps from one split to the next.
    """
    n_rounds = -(-(n_components - 1) // n_splits_in_step(n_components, n_steps))
    return [1, *[interval] * (n_rounds - 1)] if n_rounds else []


def growing_phases(lengths: Sequence[int], n_steps: int, **settings) -> list[FitPhase]:
    """Phases of so many steps, as far as ``n_steps`` reach; a phase that they cut ends without a split.

    The first step of all has step size 1, the others ``GROWING``. ``settings`` are those of :class:`vips.FitPhase`.
    """
    phases = []
    for i, length in enumerate(lengths):
        cut = {} if length <= n_steps else {"end": None}
        sizes = _first_of_all if i == 0 else lambda s: GROWING
        phases.append(FitPhase("growing", min(length, n_steps), step_size=sizes, **settings | cut))
        n_steps -= phases[-1].n_steps
    return phases


def _first_of_all(s: int) -> float:
    return 1.0 if s == 1 else GROWING


def split(
    moments: Moments, n_active: int, n_splits: int, directions: np.ndarray, kind: str, units: np.ndarray
) -> tuple[Moments, np.ndarray, np.ndarray]:
    """Split the components with the largest count × variance along the longest axis.

    Parameters
    ----------
    moments : Moments
        Of K components, of which the first ``n_active`` are in use.
    n_splits : int
    directions : ndarray of shape (K, d)
        Public draws: along them spherical components are split.
    kind : str
        Type of covariance.
    units : ndarray of shape (d,)
        In which columns are compared.

    Returns
    -------
    moments : Moments
    parent, portion : ndarray of shape (K,)
        The component from which each one comes, and its portion of that one's records.
    """
    count, weight, mean = moments.count.copy(), moments.weight.copy(), moments.mean.copy()
    covariance = moments.covariance.copy()
    parent, portion = np.arange(len(count)), np.ones(len(count))
    squares = np.outer(units, units) if kind in ("full", "tied") else np.square(units)
    for new in range(n_active, min(n_active + n_splits, len(count))):
        variances, axes = zip(
            *(_longest(matrix, kind, directions[new]) for matrix in covariance / squares), strict=True
        )
        old = int(np.argmax(count[:new] * np.broadcast_to(variances, len(count))[:new]))
        place = min(old, len(covariance) - 1)
        shift = _SHIFT * np.sqrt(variances[place]) * axes[place] * units
        share = count[old] / max(count.sum(), 1e-300) if kind == "tied" else 1.0
        lost = shift[:, None] * shift if kind in ("full", "tied") else np.square(shift)[None]
        if kind == "spherical":
            lost = np.full_like(lost, lost.mean())
        covariance[place] -= share * lost
        if len(covariance) > 1:
            covariance[new] = covariance[old]
        mean[new], mean[old] = mean[old] + shift, mean[old] - shift
        for values in (count, weight, portion):
            values[old] *= 0.5
            values[new] = values[old]
        parent[new] = parent[old]
    return replace(moments, count=count, weight=weight, mean=mean, covariance=covariance), parent, portion


def _longest(covariance: np.ndarray, kind: str, direction: np.ndarray) -> tuple[float, np.ndarray]:
    """The largest variance, and its axis."""
    if kind in ("full", "tied"):
        values, vectors = eigh(covariance)
        return max(float(values[-1]), 0.0), vectors[:, -1]
    if kind == "diag":
        axis = int(np.argmax(covariance[0]))
        return max(float(covariance[0, axis]), 0.0), np.eye(len(covariance[0]))[axis]
    return max(float(covariance[0, 0]), 0.0), direction / max(np.linalg.norm(direction), 1e-300)
