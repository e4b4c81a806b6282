"""A hidden Markov model of steps with declared columns of any kind: what a family's class for it needs."""

from __future__ import annotations

from collections.abc import Sequence

from vips._support.arguments import arguments
from vips.models.components.declarations import Column, column_of_any_kind, columns_declared
from vips.models.markov.hidden import HiddenMarkovModel

__all__ = ["ColumnHMM"]


@arguments
class ColumnHMM(HiddenMarkovModel):
    """Sequences of rows, whose columns are declared as those of ``MixedLatentClassAnalysis``; categories are codes."""

    columns: Sequence = ()

    @property
    def n_features(self) -> int:
        """Columns of every sequence."""
        return len(self.columns)

    def _declared(self) -> list[Column]:
        return columns_declared("columns", self.columns, column_of_any_kind, "[(18, 100), range(51), 2]")
