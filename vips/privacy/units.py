"""What one record is, in words, where it is all rows of one person."""

from __future__ import annotations

__all__ = ["is_group", "unit_of_group"]

_OF_GROUP = "all rows of one "


def unit_of_group(name: str) -> str:
    """The unit of a fit with groups. A ledger whose unit is the group's name accepts it."""
    return f"{_OF_GROUP}{name}"


def is_group(unit: str | None) -> bool:
    """Whether a unit is that of a fit with groups."""
    return unit is not None and unit.startswith(_OF_GROUP)
