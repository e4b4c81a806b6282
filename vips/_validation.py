"""Checks of arguments: ranges of numbers, integers, δ, levels of intervals."""

from __future__ import annotations

import numpy as np

__all__ = ["check_delta", "check_integer", "check_level", "check_number"]


def check_number(name, value, low, high, allowed, open_low=False, open_high=False) -> None:
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if is_number and isinstance(value, np.generic):
        value = value.item()  # comparisons in float16 would overflow
    above = is_number and (value > low if open_low else value >= low)
    below = is_number and (value < high if open_high else value <= high)
    if not (above and below):
        raise ValueError(f"`{name}` must be {allowed}, got {value!r}.")


def check_integer(name, value) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise ValueError(f"`{name}` must be an integer ≥ 1, got {value!r}.")


def check_delta(delta) -> None:
    check_number("delta", delta, 0.0, 1.0, "strictly between 0 and 1", open_low=True, open_high=True)


def check_level(level: float) -> None:
    """Raise ValueError unless ``level`` is a probability strictly between 0 and 1."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"`level` must be strictly between 0 and 1, got {level!r}.")
