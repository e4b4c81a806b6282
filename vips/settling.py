"""When an ordinary fit has come near enough to its limit to stop.

Steps of a fit without noise converge linearly: each moves the posterior by about r < 1 times the move before. After moves d and
r d, the limit is about r d (r + r² + ...) = r d · r / (1 - r) away: Aitken's estimate. The size of a move alone says too little
where steps are short. A private fit never stops early: its number of steps is public.
"""

from __future__ import annotations

import numpy as np

from vips.persistence.posteriors import posterior_arrays

__all__ = ["Settling", "distance"]

_LARGEST_RATE = 1.0 - 1e-6


class Settling:
    """How far the posteriors of a fit are from their limit.

    Parameters
    ----------
    tolerance : float
        Relative distance, in the norm of every array of the posterior, at which a fit has settled.

    Attributes
    ----------
    distance : float
        The last estimate.
    """

    def __init__(self, tolerance: float) -> None:
        self.tolerance, self.distance = tolerance, np.inf
        self._arrays: dict[str, np.ndarray] | None = None
        self._move = np.inf

    def has_settled(self, posterior) -> bool:
        """Whether the fit has settled at this posterior, which follows the one of the last call."""
        arrays = {name: value for name, value in posterior_arrays(posterior).items() if value.dtype.kind == "f"}
        if self._arrays is not None:
            move = max((distance(self._arrays[name], value) for name, value in arrays.items()), default=0.0)
            rate = min(move / self._move, _LARGEST_RATE) if self._move > 0.0 else 0.0
            self.distance = move * max(1.0, rate / (1.0 - rate)) if np.isfinite(self._move) else np.inf
            self._move = move
        self._arrays = arrays
        return self.distance <= self.tolerance


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
