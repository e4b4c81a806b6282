"""What each column of a table, or of a step, is declared to hold, and the components that follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vips.data._cell_values import as_categories, as_numbers, codes_of_categories
from vips.data._declared_dtypes import check_holds_categories, check_holds_numbers, refuse_bounds_in_list
from vips.models.components.categories import Categories
from vips.models.components.columns import KINDS, Columns
from vips.models.components.component import Frame, Kind

__all__ = [
    "Column",
    "all_columns",
    "codes_of",
    "column_of_any_kind",
    "column_of_categories",
    "columns_declared",
    "is_range",
]


class Column(NamedTuple):
    """What a column holds: its kind, and what is declared of it, such as (low, high) or a list of categories."""

    kind: type[Kind]
    values: Sequence

    @property
    def takes_codes(self) -> bool:
        """Whether numbers of an array are its cells as they are."""
        return self.kind is not Categories or is_range(self.values)

    @property
    def wrong(self) -> str:
        """What a cell is that cannot be read, in words."""
        if self.kind is Categories:
            return f"none of its categories, such as {self.values[0]!r}"
        return f"no {self.kind.cell}"

    def check(self, dtype, title: str, where: str) -> None:
        """Raise TypeError or ValueError for a dtype that cannot hold such cells, from the dtype alone."""
        if self.kind is Categories:
            check_holds_categories(dtype, title, self.values)
        else:
            check_holds_numbers(dtype, title, where, in_frame=True)

    def read(self, cells) -> np.ndarray:
        """Numbers, or codes with -1 for what is no category; each from its own cell alone."""
        return codes_of(cells, self.values) if self.kind is Categories else as_numbers(cells, "number")

    def is_read(self, values: np.ndarray, cells) -> np.ndarray:
        """Which of the cells, read as these values, are such as are declared; -1 is a missing code."""
        is_read = self.kind.reads(values, self.values)
        return (
            is_read | (as_numbers(cells, "number") == -1) if self.kind is Categories and self.takes_codes else is_read
        )


def columns_declared(
    argument: str, declared: object, read: Callable[[object, object], Column], example: str
) -> list[Column]:
    """Declared columns, each read by name or place.

    Raises
    ------
    ValueError
        If they are no mapping and no list, or empty.
    """
    is_list = isinstance(declared, Sequence | np.ndarray) and not isinstance(declared, str)
    if not (is_list or isinstance(declared, Mapping)) or not len(declared):
        raise ValueError(
            f"`{argument}` must be a mapping of names of columns, or a list with one entry for each column: "
            f"{argument}={example}, say. Got {declared!r}."
        )
    items = declared.items() if isinstance(declared, Mapping) else enumerate(declared)
    return [read(name, value) for name, value in items]


def column_of_any_kind(name: object, declared: object) -> Column:
    """A column of the kind that it is declared as.

    Raises
    ------
    ValueError
        If it is none of them.
    """
    if isinstance(declared, list):
        refuse_bounds_in_list(declared, repr(name))
    declarations = ((kind, kind.declared(name, declared)) for kind in KINDS)
    return next(Column(kind, values) for kind, values in declarations if values is not None)


def column_of_categories(name: object, declared: object) -> Column:
    """A column of categories.

    Raises
    ------
    ValueError
        If they are no whole number from 1 on and no list of different strings and numbers.
    """
    if isinstance(declared, list | tuple):
        refuse_bounds_in_list(declared, repr(name))
    return Column(Categories, Categories.declared(name, declared))


def all_columns(
    declared: Sequence[Column],
    component: Callable[[type[Kind], list[Sequence]], Kind],
    frame: Frame | None = None,
) -> Columns:
    """All columns, kind by kind.

    Parameters
    ----------
    declared : sequence of Column
    component : callable
        Takes a kind, and what is declared of its columns.
    frame : Frame, optional
        Coordinates of the columns that have some, kind by kind.
    """
    places = {kind: tuple(j for j, column in enumerate(declared) if column.kind is kind) for kind in KINDS}
    places = {kind: at for kind, at in places.items() if at}
    components = (component(kind, [declared[j].values for j in at]) for kind, at in places.items())
    columns = Columns(tuple(components), tuple(places.values()))
    return columns if frame is None else columns.at(frame)


def is_range(categories: Sequence) -> bool:
    """Whether the categories are the codes 0, 1, … themselves."""
    return isinstance(categories, range) or all(
        type(category) is int and category == i for i, category in enumerate(categories)
    )


def codes_of(answers, categories: Sequence) -> np.ndarray:
    """Codes of a column of answers, each from its value alone: int32."""
    places = {category: i for i, category in enumerate(as_categories(list(categories)))}
    return codes_of_categories(answers, places, -1, -1).astype(np.int32)
