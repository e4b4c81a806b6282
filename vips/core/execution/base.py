"""The contract of executors, which compute the partitions of a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vips.core.execution.partitions import PartitionTask
from vips.core.execution.tree import Totals
from vips.core.records.source import DataSource

if TYPE_CHECKING:
    from vips.core.mechanism.sampling import PoissonCoins

__all__ = ["ATTEMPTS", "Executor", "Workers", "added_in_order"]

# How often a step is attempted when workers are lost.
ATTEMPTS = 3


class Workers(ABC):
    """An executor at work on the partitions of one fit."""

    def __init__(self, data: DataSource) -> None:
        self.data = data

    @abstractmethod
    def sum(self, task: PartitionTask, sampler: Callable[[int], PoissonCoins]) -> Totals:
        """The total of one step over all partitions, in the order of the tree.

        ``sampler(i)`` gives the coins of partition i. Returns the complete total, or raises: there are no partial totals.
        """


class Executor(ABC):
    """Where a fit computes its sums: what the argument of ``fit(..., executor=...)`` names."""

    def check(self) -> None:  # noqa: B027
        """Raise unless there are workers. Runs before anything is charged or read."""

    @abstractmethod
    @contextmanager
    def over(self, data: DataSource) -> Iterator[Workers]:
        """Workers for one fit; resources are released at the end."""


def added_in_order(shares: Iterable[Totals], task: PartitionTask) -> Totals:
    """The sum of ``shares``, in the order of the tree."""
    total = task.new_sum()
    for share in shares:
        total.push(share)
    result = total.result()
    return task.zeros() if result is None else result
