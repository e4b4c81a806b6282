"""Checks of arguments, each with one wording: numbers in a range, integers, choices, δ, levels, dtypes, schedules."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

__all__ = [
    "check_choice",
    "check_delta",
    "check_dtype_of_computation",
    "check_integer",
    "check_level",
    "check_max_norm",
    "check_number",
    "check_schedule",
    "levels_to_user",
]


def check_number(
    name: str,
    value: object,
    low: float,
    high: float,
    allowed: str,
    open_low: bool = False,
    open_high: bool = False,
) -> None:
    """Raise ValueError unless ``value`` is a real number (no boolean) in the range; ``allowed`` is the range in words."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    number = _as_float(value) if is_number else np.nan  # comparisons in float16 would overflow
    above = number > low if open_low else number >= low
    below = number < high if open_high else number <= high
    if not (above and below):
        raise ValueError(f"`{name}` must be {allowed}, got {value!r}.")


def _as_float(value) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of more than 308 digits
        return np.inf if value > 0 else -np.inf


def check_max_norm(max_norm: object, is_private: bool, longer_rows: str) -> None:
    """Raise ValueError unless ``max_norm`` is a public bound on the rows' norm, or None in a fit that is not private.

    ``longer_rows`` says what becomes of longer rows, for the error.
    """
    if max_norm is not None:
        check_number("max_norm", max_norm, 1e-6, 1e6, "a number between 1e-6 and 1e6")
    elif is_private:
        raise ValueError(
            "`max_norm` is required for a private fit: a bound on the rows' L2 norm that is learnt from them would "
            "reveal the largest norm. Declare one, e.g. max_norm=1.0 for rows from vips.preprocessing.TableEncoder; "
            f"{longer_rows}."
        )


def check_integer(name: str, value: object, low: int = 1, high: int | None = None) -> None:
    """Raise ValueError unless ``value`` is a whole number (no boolean) from ``low`` to ``high``."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < low or (high is not None and value > high):
        allowed = f"≥ {low:,}" if high is None else f"from {low:,} to {high:,}"
        raise ValueError(f"`{name}` must be an integer {allowed}, got {value!r}.")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise ValueError unless ``value`` is one of these words."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"`{name}` must be one of {tuple(choices)}, got {value!r}.")


def check_delta(delta: object) -> None:
    """Raise ValueError unless ``delta`` is strictly between 0 and 1."""
    check_number("delta", delta, 0.0, 1.0, "strictly between 0 and 1", open_low=True, open_high=True)


def check_level(level: object) -> None:
    """Raise ValueError unless ``level`` is a probability strictly between 0 and 1."""
    check_number("level", level, 0.0, 1.0, "strictly between 0 and 1", open_low=True, open_high=True)


def check_dtype_of_computation(dtype: object) -> None:
    """Raise ValueError unless ``dtype`` is single or double precision."""
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise ValueError(f"`dtype` must be numpy.float32 or numpy.float64, got {dtype!r}.")


def check_schedule(schedule: object, example: str) -> None:
    """Raise ValueError unless ``schedule`` is None or callable; ``example`` shows what to write."""
    if schedule is not None and not callable(schedule):
        raise ValueError(f"`schedule` must be a function of the step, e.g. {example}, got {schedule!r}.")


def levels_to_user() -> int:
    """``stacklevel`` that makes a warning of the caller point at the first line outside vips."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("vips."):
        level, frame = level + 1, frame.f_back
    return level
