"""Stand-ins for the rows of a partition, with which a private step is taken before a record is read.

Numba compiles a kernel when it is called with new types, and keeps it in a file. Which kernels a step calls may depend on the
records: on whether there is one, on zeros, on entries that are missing. Then the names of files, and pauses, would tell. So a
step first calls all of its kernels on rows of zeros and ones, in arrays like those of the partition, whatever the records are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from vips.core.records.partition import OpenPartition
from vips.core.records.ragged import Ragged

if TYPE_CHECKING:
    from vips.core.contract import Contract

__all__ = ["SAMPLES", "form_of", "settings_of", "stand_ins_for"]

# Records of stand-ins, as samples may take them: all, neighbours, one with zeros, a defective one, none.
SAMPLES = tuple(np.array(records, np.intp) for records in ([0, 1, 2, 3], [0, 1], [0, 2], [1], [3], []))
_ENTRIES = 4  # of a row, in its first columns
_LENGTHS = (3, 1, 0, 2, 2, 4)  # of sequences
_STARTS = np.array([0, 1, 3, 5, 6])  # of records of several rows


def settings_of(model: Contract) -> tuple:
    """Class and arguments of a model, on which the types of kernels depend. For an argument of another kind, its type."""
    arguments = ((name, value) for name, value in vars(model).items() if not name.startswith("_") and name[-1] != "_")
    plain = str | bool | int | float | type | None
    return type(model), *((name, value if isinstance(value, plain) else type(value)) for name, value in arguments)


def form_of(opened: OpenPartition) -> tuple:
    """Container and types of the arrays of a partition, on which the types of kernels depend: public facts."""
    X, y = opened.X, opened.y
    arrays = [X.data, X.indices, X.indptr] if sp.issparse(X) else [getattr(X, "storage", X)]
    arrays += [] if y is None else [y]
    return type(X), opened.starts is None, *((a.dtype, a.shape[1:], a.flags.writeable) for a in arrays)


def stand_ins_for(opened: OpenPartition, labels: Any) -> OpenPartition:
    """Four records in containers like those of ``opened``: rows with entries, with few, with zeros, and with defects; with
    ``labels``, numbers, that the model knows."""
    rows: Any
    X, y, has_runs = opened.X, opened.y, opened.starts is not None
    kinds = [0, 0, 1, 2, 0, 3] if has_runs else [0, 1, 2, 3]
    if isinstance(X, Ragged):
        lengths = np.array(_LENGTHS[: len(kinds)])
        rows = X.of_rows(_like(X.storage, _rows(X.storage)[np.repeat(kinds, lengths)]), None, lengths)
    elif sp.issparse(X):
        rows = _sparse_rows(X, kinds)
    else:
        rows = _like(X, _rows(X)[kinds])
    if y is not None:
        y = _like(y, np.resize(labels, (len(kinds), *y.shape[1:])))
    return OpenPartition(rows, y, _STARTS if has_runs else None, opened.max_rows)


def _rows(array: np.ndarray) -> np.ndarray:
    """A row with entries, one with a single entry, one of zeros, and a defective one, as wide as those of the array."""
    rows = np.zeros((4, array.shape[1]))
    rows[[0, 3], :_ENTRIES] = 1.0
    rows[1, :1] = 1.0
    rows[3, :1] = _defect(array.dtype)
    return rows


def _defect(dtype: np.dtype) -> float:
    return np.nan if dtype.kind == "f" else -1.0 if dtype.kind == "i" else 0.0


def _like(array: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The values in an array of the type of ``array``, which can be written if that one can."""
    values = values.astype(array.dtype)
    values.flags.writeable = array.flags.writeable
    return values


def _sparse_rows(X: Any, kinds: list[int]) -> Any:
    """Rows of a CSR matrix; the second kind stores a zero, too."""
    n = min(_ENTRIES, X.shape[1])
    stored = [[1.0] * n, ([1.0, 0.0])[:n], [], [_defect(X.data.dtype)][:n]]
    lengths = [len(stored[kind]) for kind in kinds]
    rows = type(X)((len(kinds), X.shape[1]), dtype=X.dtype)
    rows.data = _like(X.data, np.concatenate([stored[kind] for kind in kinds]))
    rows.indices = _like(X.indices, np.concatenate([np.arange(length) for length in lengths]))
    rows.indptr = _like(X.indptr, np.concatenate([[0], np.cumsum(lengths)]))
    return rows
