"""Numbers in words, and cells of tables: a number with its interval, its label and its sort key."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Cell", "at_most", "number"]

_NO_INTERVAL = (math.nan, math.nan)


def number(value: float) -> str:
    """A number with four digits; a dash if it is missing."""
    return "–" if math.isnan(value) else f"{value:.4g}".replace("inf", "∞")


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
        Source of the number; shown if there is a number.
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
        """The label, or an empty string if there is no number."""
        return "" if math.isnan(self.value) else self.label

    @property
    def key(self) -> str:
        """Sort key for the script; empty for a missing number, which comes last."""
        return "" if math.isnan(self.value) else repr(float(self.value))
