"""Adds the sums of partitions as a tree. Its shape depends on their number alone, not on the executor."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

__all__ = ["FAN_IN", "Totals", "TreeSum", "add", "add_to"]

# How many totals are added to one, at every level of the tree.
FAN_IN = 16
Totals = dict[str, np.ndarray]


def add_to(total: Totals, shares: Totals) -> None:
    """Add in place. If ``shares`` were in the same memory, they would be doubled, and each record's contribution with them."""
    for name, value in shares.items():
        if np.may_share_memory(total[name], value):
            raise ValueError(
                f"Two sums of block {name!r} are in the same memory, so that records would count for more than the clip norm: "
                "`sums_are_new` is for statistics whose sums are new arrays each time."
            )
        total[name] += value


def add(totals: Iterable[Totals]) -> Totals:
    """The sum of totals, from the first to the last."""
    totals = iter(totals)
    result = {name: value.copy() for name, value in next(totals).items()}
    for total in totals:
        add_to(result, total)
    return result


class TreeSum:
    """Adds totals that arrive one after the other as a tree: 16 neighbours to one, 16 of these to one, and so on.

    The order of additions depends on the number of totals alone. It is that of ``add`` applied level by level, as on a
    cluster. One unfinished sum is kept for each level.
    """

    def __init__(self) -> None:
        self._levels: list[tuple[int, Totals | None]] = []

    def push(self, total: Totals, level: int = 0) -> None:
        """Add the next total. This object keeps it, and changes it."""
        if level == len(self._levels):
            self._levels.append((0, None))
        count, unfinished = self._levels[level]
        if unfinished is None:
            unfinished = total
        else:
            add_to(unfinished, total)
        if count + 1 < FAN_IN:
            self._levels[level] = (count + 1, unfinished)
        else:
            self._levels[level] = (0, None)
            self.push(unfinished, level + 1)

    def result(self) -> Totals | None:
        """The sum of all; None if there were none."""
        level, carried = 0, None
        while level < len(self._levels):
            if carried is not None:
                self.push(carried, level)
            carried, self._levels[level] = self._levels[level][1], (0, None)
            level += 1
        return carried
