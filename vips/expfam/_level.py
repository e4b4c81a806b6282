"""The check that all intervals share."""

from __future__ import annotations

__all__ = ["check_level"]


def check_level(level: float) -> None:
    """Raise ValueError unless ``level`` is a probability strictly between 0 and 1."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"`level` must be strictly between 0 and 1, got {level!r}.")
