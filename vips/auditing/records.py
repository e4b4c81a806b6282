"""Records for attacks on a clipped sum."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from vips.auditing.hostile_sequences import hostile_sequences
from vips.core.records.arrays import InMemoryData
from vips.core.records.groups import group_numbers
from vips.data._sequences import Sequences
from vips.parts import SelfDescription
from vips.report.unread import TELLS_OF_NOISE

__all__ = ["Table", "hostile_records", "mutated"]

HURTFUL = (
    0.0, 1.0, -1.0, 0.5, 3.0, 1e3, 1e9, 2.0**53, 5e-324, 1e-310, 1e-160, 3e38, 1e150, 1e160, 1e300, np.nan, np.inf,
)  # fmt: skip
CONSTANTS = (0.0, 1.0, -1.0, 0.5, 1e9, 5e-324, 1e-310, 1e-160, 3e38, 1e160, 1e300, np.nan, np.inf, -np.inf)
ROWS_OF_PERSON = 30
WEIGHTS = (0.0, -0.0, 1e-310, 1e-90, 0.5, 1e308, -1.0, np.nan, np.inf, -np.inf)
LARGE_WEIGHT = 1e300  # above any that a plan declares
SCALES = (1e3, 1e9, 1e38, 1e160, 1e300, 1e-3, 1e-160, 1e-310)


@dataclass(frozen=True)
class Table:
    """Rows of an array or CSR matrix, or sequences, with labels and weights if there are any. All rows with one number in
    ``ids`` are one record."""

    X: np.ndarray | sp.csr_array | Sequences
    y: np.ndarray | None = None
    ids: np.ndarray | None = None
    weights: np.ndarray | None = None

    @classmethod
    def of(cls, X, y=None, groups=None, sample_weight=None) -> Table:
        """From X, y, groups and weights as ``fit`` takes them."""
        X = sp.csr_array(X) if sp.issparse(X) else X if isinstance(X, Sequences) else _array(X)
        if len(X.shape) != 2 or X.shape[0] < 2:
            raise ValueError(f"An audit needs a table with at least two records, got shape {X.shape}.")
        numbers = None if groups is None else group_numbers(groups, X.shape[0])
        weights = None if sample_weight is None else _array(sample_weight).astype(np.float64)
        table = cls(X, None if y is None else _array(y), numbers, weights)
        return table if groups is None else table.take(table.ids >= 0)

    def __len__(self) -> int:
        return self.X.shape[0]

    @property
    def are_sequences(self) -> bool:
        return isinstance(self.X, Sequences)

    @property
    def n_records(self) -> int:
        return len(self) if self.ids is None else len(np.unique(self.ids))

    def fit(self, model) -> object:
        """Fit ``model`` to these records."""
        records = (self.X,) if self.y is None else (self.X, self.y)
        if type(model).as_numbers is not SelfDescription.as_numbers:  # X holds numbers of what the model takes
            records = (InMemoryData(*records),)
        others = {"groups": self.ids, "sample_weight": self.weights}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", TELLS_OF_NOISE)  # in the noise of an audit little stands out
            return model.fit(*records, **{name: values for name, values in others.items() if values is not None})

    def valid(self, model) -> np.ndarray:
        """Places of the rows that the model takes, and whose weight counts."""
        is_valid = np.asarray(model.valid_records(self.as_chunk()))
        if self.weights is not None:
            shares = model.plan_of_fit().shares_of(self.weights)
            is_valid = is_valid & (shares > 0.0) & (shares < np.inf)
        return np.flatnonzero(is_valid)

    def data(self):
        """What the engine receives."""
        data = InMemoryData(self.X, self.y)
        data = data if self.weights is None else data.with_weights(self.weights)
        return data if self.ids is None else data.grouped(self.ids)

    def take(self, rows) -> Table:
        """Some rows, in that order."""
        columns = self.y, self.ids, self.weights
        return Table(self.X[rows], *(None if column is None else column[rows] for column in columns))

    def shuffled(self, rng: np.random.Generator) -> np.ndarray:
        """The rows in a random order, but those of one record in their order: it decides which rows ``max_rows`` leaves out."""
        order = rng.permutation(len(self))
        if self.ids is not None:
            order[np.argsort(self.ids[order], kind="stable")] = np.argsort(self.ids, kind="stable")
        return order

    def as_person(self) -> Table:
        """All rows as one record."""
        return replace(self, ids=np.zeros(len(self), np.int64))

    def dense(self, row: int) -> np.ndarray:
        """One row as a vector; the steps of a sequence, shape (length, n_features)."""
        if self.are_sequences:
            return self.X[[row]].values
        return self.X[[row]].toarray()[0] if sp.issparse(self.X) else self.X[row]

    def record(self, vector: np.ndarray, y: np.ndarray | None = None) -> Table:
        """A table of one row in the container and dtype of this one, with the weight of row 0, and its label unless given."""
        with np.errstate(all="ignore"):
            row = vector[None].astype(self.X.dtype)
        row = sp.csr_array(row) if sp.issparse(self.X) else row
        row = Sequences(row[0], np.array([0, len(vector)])) if self.are_sequences else row
        labels = None if self.y is None else (self.y[:1] if y is None else y)
        return Table(row, labels, weights=None if self.weights is None else self.weights[:1])

    def weighing(self, weight: float) -> Table:
        """The same rows with this weight, if they have weights."""
        return self if self.weights is None else replace(self, weights=np.full(len(self), weight))

    def joined(self, *others: Table) -> Table:
        """This table, then the others, none of which share a record. Rows keep their stored entries, repeated ones included."""
        tables = (self, *others)
        if sp.issparse(self.X):
            X = sp.csr_array(sp.vstack([table.X for table in tables], format="csr"))
        elif self.are_sequences:
            X = Sequences.joined([table.X for table in tables])
        else:
            X = np.concatenate([table.X for table in tables])
        y = None if self.y is None else np.concatenate([table.y for table in tables])
        weights = None if self.weights is None else np.concatenate([table.weights for table in tables])
        return Table(X, y, _distinct_ids(tables), weights)

    def as_chunk(self):
        """What a model receives."""
        from vips.core.records.partition import Records

        return self.X if self.y is None else Records(self.X, self.y)

    def as_float(self) -> Table:
        """With X in double precision, so that a record can be NaN."""
        return replace(self, X=self.X.astype(np.float64))


def hostile_records(table: Table, rng: np.random.Generator) -> dict[str, Table]:
    """Tables of one record each, by name: records of ``table``, scaled ones, and extreme ones; with the largest weight, and
    some with others.

    All have the width, container and dtype of ``table``. For an integer dtype, values that it cannot hold are left out.
    """
    width = table.X.shape[1]
    rows = rng.choice(len(table), min(3, len(table)), replace=False)
    originals = [table.dense(int(row)).astype(float) for row in rows]
    if table.are_sequences:
        steps = hostile_sequences(originals, rng)
        records = {name: table.record(sequence) for name, sequence in steps.items() if _holds(table, sequence)}
        return _weighing(table, records) if table.ids is None else _persons(_weighing(table, records))
    sizes = np.abs(originals)
    largest = float(np.max(sizes, initial=1.0, where=~np.isnan(sizes)))  # a row may lack some entries
    vectors = {f"record {i}": row for i, row in enumerate(originals)}
    with np.errstate(over="ignore"):
        vectors |= {f"record 0 × {scale:g}": originals[0] * scale for scale in SCALES}
    vectors |= {f"record {i} × -1": -row for i, row in enumerate(originals)}
    vectors |= {f"all {value:g}": np.full(width, value) for value in CONSTANTS}
    for value in (1.0, largest, 1e9, 1e160, np.nan, np.inf):
        vectors[f"one entry {value:g}"] = _one_entry(originals[0] * 0.0, rng.integers(width), value)
        vectors[f"a record with one entry {value:g}"] = _one_entry(originals[0], rng.integers(width), value)
    for value in (2.0**53, 3e37, 3e38):
        vectors[f"every seventh {value:g}"] = np.where(np.arange(width) % 7 == 0, value, 0.0)
    for i in range(2):
        vectors[f"large pattern {i}"] = rng.integers(0, 2, width) * largest * 1e6
    records = {name: table.record(vector) for name, vector in vectors.items() if _holds(table, vector)}
    if table.X.dtype.kind in "iu":
        limits = np.iinfo(table.X.dtype)
        for limit in (limits.min, limits.max):
            row = np.full((1, width), limit, table.X.dtype)
            records[f"all {limit}"] = Table(sp.csr_array(row) if sp.issparse(table.X) else row, table.record(row[0]).y)
    if sp.issparse(table.X):
        records |= _repeated_entries(table, rng.integers(width))
    if table.y is not None:
        records |= _hostile_labels(table)
    records = _weighing(table, records)
    return records if table.ids is None else _persons(records)


def _weighing(table: Table, records: dict[str, Table]) -> dict[str, Table]:
    """The records with the largest weight, and a record of the table with other weights; unchanged without weights."""
    if table.weights is None:
        return records
    records = {name: record.weighing(LARGE_WEIGHT) for name, record in records.items()}
    return records | {f"weight {weight:g}": table.take([0]).weighing(weight) for weight in WEIGHTS}


def _persons(records: dict[str, Table]) -> dict[str, Table]:
    """The given records, and such of several rows: each of the given ones many times, and all of them together."""
    first, *others = records.values()
    persons = records | {f"{ROWS_OF_PERSON} × {name}": _repeated(record) for name, record in records.items()}
    return persons | {"all of these rows": first.joined(*others).as_person()}


def _repeated(record: Table, n_rows: int = ROWS_OF_PERSON) -> Table:
    return record.take(np.zeros(n_rows, np.intp)).as_person()


def _distinct_ids(tables: Sequence[Table]) -> np.ndarray | None:
    """Numbers of the records of all tables; a table without ids has a record in each row."""
    if all(table.ids is None for table in tables):
        return None
    numbers, first = [], 0
    for table in tables:
        numbers.append(
            first + np.unique(np.arange(len(table)) if table.ids is None else table.ids, return_inverse=True)[1]
        )
        first += len(table)
    return np.concatenate(numbers)


def mutated(record: Table, rng: np.random.Generator) -> Table:
    """The record with up to three entries replaced by extreme ones, in every row alike."""
    vector = record.dense(0).astype(float)
    if not len(vector):  # of a sequence
        return record
    places = rng.integers(vector.size, size=rng.integers(1, 4))
    vector.flat[places] = rng.choice(HURTFUL, size=len(places))
    if not _holds(record, vector):
        return record
    row = record.record(vector)
    return row if len(record) == 1 else _repeated(row, len(record))


def _array(values) -> np.ndarray:
    return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)


def _one_entry(row: np.ndarray, place: int, value: float) -> np.ndarray:
    row = row.astype(float)
    row[place] = value
    return row


def _holds(table: Table, vector: np.ndarray) -> bool:
    """Whether the dtype of ``table`` can hold the vector (a float may overflow to infinity, which is a record too)."""
    dtype = table.X.dtype
    if dtype.kind == "f":
        return True
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bool(np.all(np.isfinite(vector)) and vector.min(initial=0) >= low and vector.max(initial=0) < max(high, 1.5))


def _repeated_entries(table: Table, column: int) -> dict[str, Table]:
    """CSR may store a column several times; its value is their sum."""
    width = table.X.shape[1]
    y = None if table.y is None else table.y[:1]
    repeated = (np.ones(50, table.X.dtype), np.full(50, column), [0, 50])
    zeros = (np.zeros(2, table.X.dtype), np.array([width - 1, 0]), [0, 2])
    return {
        "one column stored 50 times": Table(sp.csr_array(repeated, shape=(1, width)), y),
        "stored zeros, unsorted": Table(sp.csr_array(zeros, shape=(1, width)), y),
    }


def _hostile_labels(table: Table) -> dict[str, Table]:
    dtype = table.y.dtype
    if dtype.kind == "f":
        labels = (0.0, -1.0, 0.5, 1e9, 1e300, 5e-324, np.nan, np.inf)
    elif dtype.kind in "iu":
        labels = (0, 1, np.iinfo(dtype).min, np.iinfo(dtype).max)
    else:
        labels = (False, True)
    with np.errstate(all="ignore"):
        return {
            f"label {label:g}": table.take([0]).record(
                table.dense(0).astype(float), np.full((1, *table.y.shape[1:]), label).astype(dtype)
            )
            for label in labels
        }
