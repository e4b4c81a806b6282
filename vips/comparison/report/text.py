"""Numbers in words, and cells of tables: a number with its interval, its label, and what it is sorted by."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Cell", "at_most", "number"]

_NO_INTERVAL = (math.nan, math.nan)


def number(value: float) -> str:
    """Four digits; a dash where there is no number."""
    return "–" if math.isnan(value) else f"{value:.4g}"


def at_most(probability: float) -> str:
    """A bound in per cent, rounded upwards."""
    return f"{math.ceil(1e3 * probability - 1e-9) / 10:g} %"


@dataclass(frozen=True)
class Cell:
    """A number in a table, as ``number_cell`` in ``templates/pieces.html`` shows it.

    Attributes
    ----------
    value : float
    label : str
        What it was computed from; shown if there is a number.
    interval : (float, float)
        Shown unless it is NaN.
    """

    value: float
    label: str = ""
    interval: tuple[float, float] = _NO_INTERVAL

    @property
    def text(self) -> str:
        """The number, rounded."""
        return number(self.value)

    @property
    def spread(self) -> str:
        """The interval in words, or nothing."""
        lower, upper = self.interval
        return "" if math.isnan(lower) else f"{number(lower)} to {number(upper)}"

    @property
    def source(self) -> str:
        """The label, or nothing where there is no number."""
        return "" if math.isnan(self.value) else self.label

    @property
    def key(self) -> str:
        """What the script sorts by; nothing for a missing number, which comes last."""
        return "" if math.isnan(self.value) else repr(float(self.value))
