"""What all distributions have: one line that shows them without their arrays, pickles of their parameters alone, and a word
where their intervals do not know the noise of a private fit."""

from __future__ import annotations

import warnings
from functools import cached_property

import numpy as np

from vips._support.validation import check_level, levels_to_user
from vips.exceptions import PrivacyWarning

__all__ = ["Headline", "extent"]


class Headline:
    """A short ``repr``. ``_shown`` names the moments, each an array that costs little to compute.

    A pickle holds no cached moment: whether one was computed in a fit may depend on whether there was a record.
    """

    _shown: tuple[str, ...] = ("mean", "std")
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

    def __getstate__(self) -> dict[str, object]:
        kind = type(self)
        return {
            name: value
            for name, value in vars(self).items()
            if not isinstance(getattr(kind, name, None), cached_property)
        }

    def __repr__(self) -> str:
        shown = {name: _moment(self, name) for name in self._shown}
        ranges = "; ".join(f"{name} {extent(values)}" for name, values in shown.items())
        return f"<{type(self).__name__} of shape {np.shape(self.mean)}: {ranges}>"


def extent(values: np.ndarray) -> str:
    """Smallest and largest number of an array, in words."""
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _moment(distribution, name: str) -> np.ndarray:
    if name == "std" and not hasattr(distribution, "std"):
        return np.sqrt(distribution.var)
    return getattr(distribution, name)
