"""Ragged rows: values below each other, and where each row begins. Everything that has such rows copies them here.

============  ==========================================================
sequences     a row is a sequence, its values are steps
texts         a row is a document, its values are bytes
CSR matrices  a row is a record, its values are entries and their columns
============  ==========================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from vips.core.exact.compiled import compiled
from vips.core.exact.threads import run_ranges

__all__ = ["Ragged", "divides", "gathered", "offsets_of", "places", "range_of_rows", "some_rows"]

_LEAST_VALUES = 50_000  # below it, one thread copies
_COPIED_WHOLE = (1, 2, 4, 8)  # bytes of values that are copied as integers: few types to compile for


class Ragged:
    """Rows of different lengths, in memory or memory-mapped: row i is ``storage[begins[i] : begins[i] + lengths[i]]``.

    ``ragged[rows]`` selects rows and reads none of them; ``values`` reads them, once.

    Parameters
    ----------
    storage : ndarray of shape (n_values, ...)
    begins : ndarray of int64, shape (n_rows,), or None
        None: the rows stand one after the other, and nothing else is in ``storage``.
    lengths : ndarray of int64, shape (n_rows,)
        An attribute, too.
    """

    def __init__(self, storage: np.ndarray, begins: np.ndarray | None, lengths: np.ndarray) -> None:
        self._stored, self.lengths = (storage, begins), lengths

    @classmethod
    def of_rows(cls, storage: np.ndarray, begins: np.ndarray | None, lengths: np.ndarray) -> Self:
        """Rows of any class of ragged rows, without checks."""
        rows = object.__new__(cls)
        Ragged.__init__(rows, storage, begins, lengths)
        return rows

    @property
    def storage(self) -> np.ndarray:
        """Where the rows lie, beside others."""
        return self._stored[0]

    @property
    def begins(self) -> np.ndarray:
        """Where each row begins in ``storage``."""
        begins = self._stored[1]
        return self.offsets[:-1] if begins is None else begins

    @cached_property
    def offsets(self) -> np.ndarray:
        """Where each row begins in ``values``, and where the last one ends; shape (n_rows + 1,)."""
        return offsets_of(self.lengths)

    @property
    def values(self) -> np.ndarray:
        """Values of all rows, one row after the other. Those of a selection can be written, and are in C order."""
        if self._stored[1] is not None:  # kernels are compiled for such arrays
            self._stored = np.require(self.packed().storage, requirements=["C", "W"]), None
        return self._stored[0]

    def packed(self) -> Self:
        """The same rows and no others: a view if they stand together, else a copy."""
        storage, begins = self._stored
        if begins is None:
            return self
        if len(begins) and np.array_equal(begins, begins[0] + self.offsets[:-1]):
            return self.of_rows(storage[begins[0] : begins[0] + self.offsets[-1]], None, self.lengths)
        return self.of_rows(gathered(storage, begins, self.offsets), None, self.lengths)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, and shape of a value."""
        return len(self.lengths), *self.storage.shape[1:]

    @property
    def dtype(self) -> np.dtype:
        """dtype of the values."""
        return self.storage.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the values and the offsets."""
        return self.values.nbytes + self.offsets.nbytes

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[np.ndarray]:
        """The values of each row."""
        return (self.storage[a : a + n] for a, n in zip(self.begins.tolist(), self.lengths.tolist(), strict=True))

    def __getitem__(self, index: slice | np.ndarray | Sequence[int]) -> Self:
        """Some of the rows, as NumPy indexes them."""
        chosen = index if isinstance(index, slice) else np.arange(len(self))[index]
        if np.ndim(self.lengths[chosen]) != 1:
            raise TypeError("Choose rows by a slice or an array; `list(rows)` gives their arrays.")
        return self.of_rows(self.storage, self.begins[chosen], self.lengths[chosen])

    def first(self, n_values: int | None) -> Self:
        """At most the first ``n_values`` values of each row; None: all."""
        if n_values is None or (self.lengths <= n_values).all():
            return self
        return self.of_rows(self.storage, self.begins, np.minimum(self.lengths, n_values))

    def without_ids(self) -> Self:
        """The same rows, of nobody: what a fit reads."""
        return self.of_rows(*self._stored, self.lengths)

    def copy(self) -> Self:
        """With arrays of its own."""
        return self.of_rows(self.packed().storage.copy(), None, self.lengths.copy())

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of several, one after the other. At least one."""
        if len(parts) == 1:
            return parts[0]
        values, lengths = (np.concatenate([getattr(part, name) for part in parts]) for name in ("values", "lengths"))
        return cls.of_rows(values, None, lengths)

    def __getstate__(self) -> dict:
        """What a pickle holds: these rows, and no others of their storage."""
        return {"_stored": self.packed()._stored, "lengths": self.lengths}


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Where each row begins if all stand one after the other, and where the last one ends."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def places(lengths: np.ndarray, begins: np.ndarray | int = 0) -> np.ndarray:
    """Where each value of all rows is, if row i begins at ``begins[i]``; with ``begins=0`` its place in its row."""
    offsets = offsets_of(lengths)
    return np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], lengths)


def divides(offsets: np.ndarray, n_values: int) -> bool:
    """Whether these offsets are integers that ascend from 0 to the number of values."""
    if offsets.ndim != 1 or not len(offsets) or offsets.dtype.kind not in "iu":
        return False
    return bool(offsets[0] == 0 and offsets[-1] == n_values and (offsets[1:] >= offsets[:-1]).all())


def gathered(storage: np.ndarray, begins: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """A copy of rows, one after the other: row i is read from ``begins[i]`` on, and written from ``offsets[i]`` on."""
    if not storage.flags.c_contiguous or storage.dtype.itemsize not in _COPIED_WHOLE or storage.dtype.hasobject:
        return np.ascontiguousarray(storage[places(np.diff(offsets), begins)])
    width = int(np.prod(storage.shape[1:]))
    copies = np.empty((offsets[-1], *storage.shape[1:]), storage.dtype)
    source, target = (np.asarray(values).reshape(-1).view(f"u{values.itemsize}") for values in (storage, copies))
    starts, ends = begins.astype(np.int64) * width, offsets.astype(np.int64) * width
    run_ranges(lambda i, j: _copy_rows(source, starts, ends, i, j, target), ends, least_work=_LEAST_VALUES)
    return copies


@compiled(nogil=True)
def _copy_rows(
    source: np.ndarray, begins: np.ndarray, offsets: np.ndarray, first: int, last: int, target: np.ndarray
) -> None:
    for i in range(first, last):
        row = target[offsets[i] : offsets[i + 1]]
        values = source[begins[i] : begins[i] + len(row)]
        for j in range(len(row)):
            row[j] = values[j]


# -- CSR matrices: SciPy's slices drop entries of nonexistent columns, by which a defective record is found -------------------


def range_of_rows(X: Any, rows: slice) -> Any:
    """Rows ``start`` to ``stop`` of a CSR matrix with all their entries, as a view."""
    indptr = X.indptr[rows.start : rows.stop + 1]
    stored = slice(indptr[0], indptr[-1])
    return _csr(X, X.data[stored], X.indices[stored], indptr - indptr[0])


def some_rows(X: Any, rows: np.ndarray) -> Any:
    """``X[rows]`` of a CSR matrix, with all their entries."""
    if X.data.dtype.kind not in "biuf" or X.data.itemsize > 8 or X.indices.dtype != X.indptr.dtype:
        return X[rows]
    begins = X.indptr[rows]
    offsets = offsets_of(X.indptr[rows + 1] - begins)
    data, indices = (gathered(stored, begins, offsets) for stored in (X.data, X.indices))
    return _csr(X, data, indices, offsets.astype(X.indptr.dtype))


def _csr(X: Any, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray) -> Any:
    """A matrix like X of these arrays, which a constructor would check or copy."""
    result = type(X)((len(indptr) - 1, X.shape[1]), dtype=X.dtype)
    result.data, result.indices, result.indptr = data, indices, indptr
    return result
