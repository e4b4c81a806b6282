"""Floats on one side of an exact number."""

from __future__ import annotations

import math
from fractions import Fraction

__all__ = ["rounded_down", "rounded_up"]


def rounded_down(value: Fraction) -> float:
    """The largest float that is not above ``value`` ≥ 0."""
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, 0.0)


def rounded_up(value: Fraction) -> float:
    """The smallest float that is not below ``value`` ≥ 0."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)
