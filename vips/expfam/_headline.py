"""What all distributions have: one line that shows them without their arrays, files and pickles of their parameters alone,
and a word where their intervals do not know the noise of a private fit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cached_property
from typing import Self

import numpy as np

from vips._support.validation import check_level, levels_to_user
from vips.exceptions import PrivacyWarning

__all__ = ["Headline", "extent", "positive_arrays"]


class Headline:
    """A short ``repr``. ``_shown`` names the moments, arrays that cost little to compute; ``_parameters`` the arguments.

    A pickle holds no cached moment: whether one was computed in a fit may depend on whether there was a record.
    """

    _shown: tuple[str, ...] = ("mean", "std")
    _parameters: tuple[str, ...]
    unaware = ""  # why its intervals do not know the noise

    def check_level(self, level: float) -> None:
        """Raise ValueError unless this can be the level of an interval; warn if intervals do not know the noise."""
        check_level(level)
        if self.unaware:
            warnings.warn(
                f"This interval does not know the noise of the private fit: it is too narrow, or far off. {self.unaware}",
                PrivacyWarning,
                stacklevel=levels_to_user(),
            )

    @property
    def std(self) -> np.ndarray:
        """Standard deviations."""
        return np.sqrt(self.var)

    def taken(self, places: np.ndarray) -> Self:
        """The distributions at these places along the first axis."""
        return type(self)(*(values[places] for values in self.to_arrays().values()))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        return {name: np.asarray(getattr(self, name)) for name in self._parameters}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Inverse of ``to_arrays``."""
        return cls(*(arrays[name] for name in cls._parameters))

    def __getstate__(self) -> dict[str, object]:
        kind = type(self)
        return {
            name: value
            for name, value in vars(self).items()
            if not isinstance(getattr(kind, name, None), cached_property)
        }

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in self._shown}
        ranges = "; ".join(f"{name} {extent(values)}" for name, values in shown.items())
        return f"<{type(self).__name__} of shape {np.shape(self.mean)}: {ranges}>"


def extent(values: np.ndarray) -> str:
    """Smallest and largest number of an array, in words."""
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def positive_arrays(**named: np.ndarray | float) -> list[np.ndarray]:
    """Copies of these arrays, broadcast with each other and read-only; ValueError unless all are positive and finite."""
    arrays = [np.array(array, dtype=np.float64) for array in np.broadcast_arrays(*named.values())]
    for name, array in zip(named, arrays, strict=True):
        if not (np.isfinite(array).all() and (array > 0.0).all()):
            raise ValueError(f"`{name}` must be positive and finite.")
        array.flags.writeable = False
    return arrays
