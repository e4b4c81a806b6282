"""When an ordinary fit has come near enough to its limit to stop.

Steps of a fit without noise converge linearly: each moves the posterior by about r < 1 times the move before. After moves d and
r d, the limit is about r d (r + r² + ...) = r d · r / (1 - r) away: Aitken's estimate. The size of a move alone says too little
where steps are short. A private fit never stops early: its number of steps is public. Whether it has settled, its released
totals tell as far as they stand out from the noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import norm, t

from vips.core.posteriors import posterior_arrays
from vips.core.sums import NoisyTotals

__all__ = ["Settling", "distance", "drift"]

_LARGEST_RATE = 1.0 - 1e-6


class Settling:
    """How far the posteriors of a fit are from their limit.

    Parameters
    ----------
    tolerance : float
        Relative distance, in the norm of every array of the posterior, at which a fit has settled.
    in_units : callable, optional
        Takes a posterior to one that does not depend on the columns' units.

    Attributes
    ----------
    distance : float
        The last estimate.
    """

    def __init__(self, tolerance: float, in_units: Callable[[Any], Any] = lambda posterior: posterior) -> None:
        self.tolerance, self.in_units, self.distance = tolerance, in_units, np.inf
        self._arrays: dict[str, np.ndarray] | None = None
        self._move = np.inf

    def begin_at(self, limit) -> None:
        """A fit starts at this posterior, which is known to be its limit: one step that hardly moves it is enough."""
        self._move, self._arrays = 1.0, self._arrays_of(limit)

    def _arrays_of(self, posterior) -> dict[str, np.ndarray]:
        arrays = posterior_arrays(self.in_units(posterior))
        return {name: value for name, value in arrays.items() if value.dtype.kind == "f"}

    def has_settled(self, posterior) -> bool:
        """Whether the fit has settled at this posterior, which follows the one of the last call."""
        arrays = self._arrays_of(posterior)
        if self._arrays is not None:
            move = max((distance(self._arrays[name], value) for name, value in arrays.items()), default=0.0)
            rate = min(move / self._move, _LARGEST_RATE) if self._move > 0.0 else 0.0
            self.distance = move * max(1.0, rate / (1.0 - rate)) if np.isfinite(self._move) else np.inf
            self._move = move
        self._arrays = arrays
        return self.distance <= self.tolerance


def drift(totals: NoisyTotals) -> float:
    """Probability of so large a drift of the released totals if the fit has settled; NaN of fewer than six kept steps.

    Between the halves of the kept steps, and from the average to these: by the scatter of each entry over steps, so that noise
    and sampling are in it, and for the entry that stands out most (Bonferroni).
    """
    if len(totals.steps) < 6:
        return np.nan
    names = totals.steps[-1].totals
    values = np.array([np.concatenate([np.ravel(step.totals[name]) for name in names]) for step in totals.steps])
    average = np.concatenate([np.ravel(totals.average[name]) for name in names])
    std = np.concatenate(
        [np.ravel(np.broadcast_to(totals.noise_std[name], np.shape(totals.average[name]))) for name in names]
    )
    halves = values[: len(values) // 2], values[len(values) // 2 :]
    means, variances = zip(*((half.mean(axis=0), half.var(axis=0, ddof=1) / len(half)) for half in halves), strict=True)
    between = np.abs(means[1] - means[0]) / np.maximum(np.sqrt(sum(variances)), 1e-300)
    spread = values.std(axis=0, ddof=1) / np.sqrt(len(values)) + std
    lag = np.abs(values.mean(axis=0) - average) / np.maximum(spread, 1e-300)
    least = min(t.sf(between.max(), len(values) // 2 - 1), norm.sf(lag.max()))
    return float(min(1.0, 4.0 * len(average) * least))  # of two sides, twice


def distance(old: np.ndarray, new: np.ndarray) -> float:
    """Norm of the difference ÷ norm, of values that are finite; ∞ if none is."""
    if old.shape != new.shape:
        return np.inf
    is_finite = np.isfinite(old) & np.isfinite(new)
    if not is_finite.any() and new.size:
        return np.inf
    old, new = old[is_finite], new[is_finite]
    largest = np.abs(new).max(initial=0.0)
    if largest == 0.0:
        return float(np.any(old))
    with np.errstate(over="ignore"):  # an infinite distance
        return float(np.linalg.norm(new / largest - old / largest) / np.linalg.norm(new / largest))
