"""Dask collections. Dask is imported only for Dask input."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vips._support.no_warnings import without_warnings
from vips._support.printable import class_and_place
from vips.core.records.checks import open_checked
from vips.core.records.partition import OpenPartition
from vips.core.records.source import DataSource, Partition
from vips.data._cell_values import as_numbers
from vips.exceptions import SourceError

__all__ = ["BlockPartition", "ComputedBlock", "DaskSource", "as_source", "is_dask"]


class DaskSource(DataSource):
    """Rows of a Dask array or data frame, with optional labels. A chunk of rows is a partition.

    With a ``dask.distributed.Client`` as the executor, workers compute and sum their own chunks, and records do not travel.
    Persist the collection if it fits in memory: otherwise every step computes it again. Other executors compute it, too.

    Parameters
    ----------
    X : dask array of shape (n_records, n_features), or dask data frame of NumPy dtypes
        In chunks of whole rows, such as ``X.rechunk({1: -1})``.
    y : dask array or series, optional
        In the same chunks of rows. A name, ``y="column"``, is not supported: write ``y=frame["column"]``.

    Raises
    ------
    ValueError
        If rows are split, or X and y are in different chunks.
    """

    def __init__(self, X, y=None) -> None:
        X, self.feature_names = _as_array(X, "X")
        if X.ndim != 2 or len(X.chunks[1]) > 1 or not isinstance(X.shape[1], int):
            raise ValueError("X must be a table in chunks of whole rows: write X.rechunk({1: -1}).")
        self._X, self.n_features = X, X.shape[1]
        self._y = None if y is None else _as_array(y, "y")[0]
        self.has_labels = y is not None
        if self.has_labels:
            rows = [np.asarray(chunks[0], dtype=float) for chunks in (X.chunks, self._y.chunks)]
            if len(rows[0]) != len(rows[1]) or not np.array_equal(*rows, equal_nan=True):
                remedy = "y.rechunk(X.chunks[0])"
                if hasattr(y, "divisions"):  # frames need not say how many rows they have
                    frames = "take both from one frame: X = frame[columns], y = frame[label]"
                    remedy = f"y.repartition(divisions=X.divisions), or {frames}"
                raise ValueError(f"X and y must be in the same chunks of rows: write {remedy}.")
            if any(len(chunks) > 1 for chunks in self._y.chunks[1:]):
                raise ValueError("y must be in chunks of whole rows.")

    @property
    def n_partitions(self) -> int:
        return self._X.numblocks[0]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        rows = self._X.chunks[0]
        if not np.isnan(np.asarray(rows, dtype=float)).any():
            return tuple(int(n) for n in rows)
        return super().sizes

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        X = _chunks(self._X)
        y = [None] * len(X) if self._y is None else _chunks(self._y)
        dtypes = self._X.dtype, None if self._y is None else self._y.dtype
        return tuple(
            BlockPartition(f"chunk {i}", *block, self.n_features, dtypes)
            for i, block in enumerate(zip(X, y, strict=True))
        )

    def partition(self, i: int) -> Partition:
        return self.partitions[i]


@dataclass(frozen=True, repr=False)
class BlockPartition(Partition):
    """A chunk that is not computed yet."""

    name: str
    X: object
    y: object
    n_features: int
    dtypes: tuple = (None, None)

    def open(self) -> OpenPartition:
        return self.open_with(None)[0]

    def open_with(self, other) -> tuple[OpenPartition, object]:
        """The records, and another chunk, computed together. SourceError if they cannot be: it omits the message of the error,
        which may quote a record."""
        import dask

        try:
            X, y, other = dask.compute(self.X, self.y, other)
        except SourceError:  # a part of another type
            raise
        except Exception as error:
            problem = class_and_place(error)
        else:
            X, y = (rows_as_declared(rows, dtype) for rows, dtype in zip((X, y), self.dtypes, strict=True))
            return ComputedBlock(self.name, X, y, self.n_features).open(), other
        # outside of `except`, so that the original error is not attached
        raise SourceError(
            f"{self.name} cannot be computed: {problem}. The error's message is not shown, because it may quote a record: "
            "compute this part alone to see it."
        )


class ComputedBlock(BlockPartition):
    """A chunk that is computed."""

    holds_records = True

    def open(self) -> OpenPartition:
        return open_checked(self.name, self.X, self.y, self.n_features)


def rows_as_declared(rows, dtype):
    """A computed chunk in its collection's declared type: numbers as floats, NaN for all else. The chunk's own type may
    depend on one record, and raises nothing.
    """
    if getattr(dtype, "kind", "O") not in "biuf" or not isinstance(rows, np.ndarray):
        return rows
    if rows.dtype.kind == "O":
        rows = as_numbers(rows.ravel(), "number").reshape(rows.shape)
    if rows.dtype.kind not in "biuf":
        return rows
    return rows.astype(np.float32 if dtype == np.float32 else np.float64, copy=False)


def column_as_declared(values, dtype, are_ids: bool):
    """The same of a computed series that orders rows; or of ids, each of which is read by itself: any objects will do."""
    kind, given = (getattr(element_type, "kind", "O") for element_type in (dtype, getattr(values, "dtype", None)))
    if not hasattr(values, "astype") or kind == given:
        return values
    if kind == "O" or (are_ids and given in "mM"):
        return values.astype(object)
    if are_ids or given != "O" or kind not in "biufM":
        return values
    import pandas as pd

    read = pd.to_datetime if kind == "M" else pd.to_numeric
    return without_warnings(lambda: read(pd.Series(values), errors="coerce"))


def _chunks(collection) -> list:
    """Chunks of rows that are not computed yet, each with its own part of the graph: the whole graph would take the records of
    all chunks along."""
    from dask.delayed import Delayed
    from dask.optimization import cull

    chunks = collection.to_delayed().reshape(collection.numblocks[0], -1)[:, 0]
    graph = dict(chunks[0].__dask_graph__()) if len(chunks) else {}
    return [Delayed(chunk.key, cull(graph, [chunk.key])[0]) for chunk in chunks]


def as_source(X, y=None) -> DataSource | None:
    """``X`` if it is a data source, a Dask collection as one, and None for anything else. Labels beside a source, which has its
    own, raise TypeError."""
    if isinstance(X, DataSource):
        if y is not None:
            raise TypeError(f"{type(X).__name__} holds its own labels: pass them to it, not to `fit`.")
        return X
    return DaskSource(X, y) if is_dask(X) else None


def is_dask(collection: object) -> bool:
    """Whether this is a Dask collection."""
    package = type(collection).__module__.partition(".")[0]
    return package in ("dask", "dask_expr") and hasattr(collection, "__dask_graph__")


def _as_array(collection, name: str) -> tuple:
    """A Dask array, and the names of its columns."""
    if not is_dask(collection):
        raise TypeError(f"{name} must be a Dask array or data frame, got {type(collection).__name__}.")
    if not hasattr(collection, "to_dask_array"):
        return collection, None
    declared = list(collection.dtypes) if collection.ndim == 2 else [collection.dtype]
    for dtype in declared:
        if not isinstance(dtype, np.dtype):
            raise TypeError(
                f"{name} needs NumPy dtypes, got {dtype}: the dtype after conversion would depend on its values."
            )
    names = tuple(map(str, collection.columns)) if collection.ndim == 2 else None
    return collection.to_dask_array(), names
