"""Records for attacks on a clipped sum."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from vips.core.records.arrays import InMemoryData
from vips.core.records.groups import group_numbers
from vips.core.records.partition import Records
from vips.data._sequences import Sequences
from vips.parts import SelfDescription
from vips.report.unread import TELLS_OF_NOISE

__all__ = ["Table", "hostile_records", "mixed_sequences", "mutated"]

HURTFUL = (
    0.0, 1.0, -1.0, 0.5, 3.0, 1e3, 1e9, 2.0**53, 5e-324, 1e-310, 1e-160, 3e38, 1e150, 1e160, 1e300, np.nan, np.inf,
)  # fmt: skip
CONSTANTS = (0.0, 1.0, -1.0, 0.5, 1e9, 5e-324, 1e-310, 1e-160, 3e38, 1e160, 1e300, np.nan, np.inf, -np.inf)
SCALES = (1e3, 1e9, 1e38, 1e160, 1e300, 1e-3, 1e-160, 1e-310)
LENGTHS = (1, 2, 30, 20_000)  # of sequences
STEPS = (0.0, 1.0, -1.0, 0.5, 1e9, 2.0**63, 5e-324, 1e160, 1e300, np.nan, np.inf, -np.inf)
ROWS_OF_PERSON = 30
WEIGHTS = (0.0, -0.0, 1e-310, 1e-90, 0.5, 1e308, -1.0, np.nan, np.inf, -np.inf)
LARGE_WEIGHT = 1e300  # above any that a plan declares


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
        X = sp.csr_array(X) if sp.issparse(X) else X if isinstance(X, Sequences) else np.asarray(X)
        if len(X.shape) != 2 or X.shape[0] < 2:
            raise ValueError(f"An audit needs a table with at least two records, got shape {X.shape}.")
        numbers = None if groups is None else group_numbers(groups, X.shape[0])
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        table = cls(X, None if y is None else np.asarray(y), numbers, weights)
        return table if groups is None else table.take(table.ids >= 0)

    def __len__(self) -> int:
        return self.X.shape[0]

    @property
    def are_sequences(self) -> bool:
        return isinstance(self.X, Sequences)

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

    def data(self) -> InMemoryData:
        """What the engine receives."""
        data = InMemoryData(self.X, self.y)
        data = data if self.weights is None else data.with_weights(self.weights)
        return data if self.ids is None else data.grouped(self.ids)

    def as_chunk(self):
        """What a model receives."""
        return self.X if self.y is None else Records(self.X, self.y)

    def as_float(self) -> Table:
        """With X in double precision, so that a record can be NaN."""
        return replace(self, X=self.X.astype(np.float64))

    def as_person(self) -> Table:
        """All rows as one record."""
        return replace(self, ids=np.zeros(len(self), np.int64))

    def take(self, rows) -> Table:
        """Some rows, in that order."""
        columns = self.y, self.ids, self.weights
        return Table(self.X[rows], *(None if column is None else column[rows] for column in columns))

    def repeated(self, n_rows: int = ROWS_OF_PERSON) -> Table:
        """A person whose rows are all the first one."""
        return self.take(np.zeros(n_rows, np.intp)).as_person()

    def shuffled(self, rng: np.random.Generator) -> np.ndarray:
        """The rows in a random order, but those of one record in their order: it decides which rows ``max_rows`` leaves out."""
        order = rng.permutation(len(self))
        if self.ids is not None:
            order[np.argsort(self.ids[order], kind="stable")] = np.argsort(self.ids, kind="stable")
        return order

    def dense(self, row: int) -> np.ndarray:
        """One row as a vector; the steps of a sequence, shape (length, n_features)."""
        if self.are_sequences:
            return self.X[[row]].values
        return self.X[[row]].toarray()[0] if sp.issparse(self.X) else self.X[row]

    def record(self, vector: np.ndarray, y: np.ndarray | None = None) -> Table:
        """A vector as :meth:`with_row`, in the dtype of this table, with the label ``y`` if it is given."""
        with np.errstate(all="ignore"):
            row = vector[None].astype(self.X.dtype)
        row = sp.csr_array(row) if sp.issparse(self.X) else row
        row = Sequences(row[0], np.array([0, len(vector)])) if self.are_sequences else row
        return self.with_row(row) if y is None else replace(self.with_row(row), y=y)

    def with_row(self, row) -> Table:
        """A table of one row in the container of this one, with the label and the weight of row 0."""
        return replace(self.take([0]), X=row, ids=None)

    def records(self, vectors: Mapping[str, np.ndarray]) -> dict[str, Table]:
        """One-row tables of the vectors that the dtype can hold; a float that overflows to infinity is a record, too."""
        kind, limits = self.X.dtype.kind, (0, 1)
        if kind in "iu":
            limits = np.iinfo(self.X.dtype).min, np.iinfo(self.X.dtype).max

        def is_held(vector: np.ndarray) -> bool:
            least, largest = vector.min(initial=0), vector.max(initial=0)
            return np.isfinite(vector).all() and least >= limits[0] and largest < max(limits[1], 1.5)

        return {name: self.record(vector) for name, vector in vectors.items() if kind == "f" or is_held(vector)}

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


def _distinct_ids(tables: Sequence[Table]) -> np.ndarray | None:
    """Numbers of the records of all tables; a table without ids has a record in each row."""
    if all(table.ids is None for table in tables):
        return None
    numbers = [np.arange(len(table)) if table.ids is None else table.ids for table in tables]
    firsts = np.cumsum([0, *map(len, tables)])
    return np.concatenate([
        first + np.unique(ids, return_inverse=True)[1] for first, ids in zip(firsts, numbers, strict=False)
    ])  # fmt: skip


def hostile_records(table: Table, rng: np.random.Generator) -> dict[str, Table]:
    """Tables of one record each, by name: records of ``table``, scaled ones, and extreme ones; with the largest weight, and
    some with others. With ids, persons of many rows, too.

    All have the width, container and dtype of ``table``. For an integer dtype, values that it cannot hold are left out.
    """
    rows = rng.choice(len(table), min(3, len(table)), replace=False)
    originals = [table.dense(int(row)).astype(float) for row in rows]
    if table.are_sequences:
        records = table.records(_hostile_sequences(originals, rng))
    else:
        records = table.records(_hostile_rows(originals, rng)) | _limits(table)
        if sp.issparse(table.X):
            records |= _repeated_entries(table, rng.integers(table.X.shape[1]))
        if table.y is not None:
            records |= _hostile_labels(table)
    if table.weights is not None:
        records = {name: record.weighing(LARGE_WEIGHT) for name, record in records.items()}
        records |= {f"weight {weight:g}": table.take([0]).weighing(weight) for weight in WEIGHTS}
    if table.ids is not None:
        first, *others = records.values()
        records |= {f"{ROWS_OF_PERSON} × {name}": record.repeated() for name, record in records.items()}
        records["all of these rows"] = first.joined(*others).as_person()
    return records


def _hostile_rows(originals: Sequence[np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Vectors by name: given ones, changed, and extreme ones."""
    width, sizes = len(originals[0]), np.abs(originals)
    largest = float(np.max(sizes, initial=1.0, where=~np.isnan(sizes)))  # a row may lack some entries
    vectors = {f"record {i}": row for i, row in enumerate(originals)}
    with np.errstate(over="ignore"):
        vectors |= {f"record 0 × {scale:g}": originals[0] * scale for scale in SCALES}
    vectors |= {f"record {i} × -1": -row for i, row in enumerate(originals)}
    vectors |= {f"all {value:g}": np.full(width, value) for value in CONSTANTS}
    for value in (1.0, largest, 1e9, 1e160, np.nan, np.inf):
        for name, row in (("one entry", originals[0] * 0.0), ("a record with one entry", originals[0].copy())):
            row[rng.integers(width)] = value
            vectors[f"{name} {value:g}"] = row
    for value in (2.0**53, 3e37, 3e38):
        vectors[f"every seventh {value:g}"] = np.where(np.arange(width) % 7 == 0, value, 0.0)
    for i in range(2):
        vectors[f"large pattern {i}"] = rng.integers(0, 2, width) * largest * 1e6
    return vectors


def _limits(table: Table) -> dict[str, Table]:
    """The least and the largest integer in all entries; nothing for other dtypes."""
    if table.X.dtype.kind not in "iu":
        return {}
    limits = np.iinfo(table.X.dtype).min, np.iinfo(table.X.dtype).max
    rows = {f"all {limit}": np.full((1, table.X.shape[1]), limit, table.X.dtype) for limit in limits}
    as_given = sp.csr_array if sp.issparse(table.X) else np.asarray
    return {name: table.with_row(as_given(row)) for name, row in rows.items()}


def _repeated_entries(table: Table, column: int) -> dict[str, Table]:
    """CSR may store a column several times; its value is their sum."""
    width = table.X.shape[1]
    entries = {
        "one column stored 50 times": (np.ones(50, table.X.dtype), np.full(50, column), [0, 50]),
        "stored zeros, unsorted": (np.zeros(2, table.X.dtype), np.array([width - 1, 0]), [0, 2]),
    }
    return {name: table.with_row(sp.csr_array(row, shape=(1, width))) for name, row in entries.items()}


def _hostile_labels(table: Table) -> dict[str, Table]:
    dtype = table.y.dtype
    if dtype.kind == "f":
        labels = (0.0, -1.0, 0.5, 1e9, 1e300, 5e-324, np.nan, np.inf)
    elif dtype.kind in "iu":
        labels = (0, 1, np.iinfo(dtype).min, np.iinfo(dtype).max)
    else:
        labels = (False, True)
    row = table.dense(0).astype(float)
    with np.errstate(all="ignore"):
        values = {label: np.full((1, *table.y.shape[1:]), label).astype(dtype) for label in labels}
    return {f"label {label:g}": table.record(row, y) for label, y in values.items()}


def _hostile_sequences(records: Sequence[np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Steps of one sequence each, shape (length, n_features), by name: given ones, changed, repeated, and extreme ones."""
    width, longest = records[0].shape[1], max(records, key=len)
    hostile = {f"record {i}": steps for i, steps in enumerate(records)} | {"no step": np.zeros((0, width))}
    hostile["record 0 × -1"] = -records[0]
    hostile["a long record"] = np.tile(longest, (1 + 5_000 // max(len(longest), 1), 1))
    with np.errstate(over="ignore"):
        hostile |= {f"record 0 × {scale:g}": records[0] * scale for scale in (1e3, 1e9, 1e160, 1e-3, 1e-160)}
    steps = np.concatenate(records)
    for length in LENGTHS:
        hostile |= {f"{length} × {value:g}": np.full((length, width), value) for value in STEPS[:2]}
        if len(steps):
            several = steps[rng.integers(len(steps), size=3)]
            hostile[f"{length} × one step"] = np.repeat(several[:1], length, axis=0)
            hostile[f"two steps in turn, {length}"] = np.resize(several[1:], (length, width))
            hostile[f"{length} steps at random"] = steps[rng.integers(len(steps), size=length)]
    hostile |= {f"9 × {value:g}": np.full((9, width), value) for value in STEPS}
    for value in (np.nan, np.inf, -1.0, 1e160):
        broken = longest.copy()
        broken[len(longest) // 2 : len(longest) // 2 + 1] = value
        hostile[f"a record with {value:g} in the middle"] = broken
    return hostile


def mixed_sequences(sequences: Sequences, rng: np.random.Generator) -> Sequences:
    """The sequences, in two thirds of which half of the steps come from others."""
    changed = np.repeat(np.arange(len(sequences)) % 3 > 0, sequences.lengths)
    changed &= rng.random(len(changed)) < 0.5
    others = rng.permutation(len(changed))
    return Sequences(np.where(changed[:, None], sequences.values[others], sequences.values), sequences.offsets)


def mutated(record: Table, rng: np.random.Generator) -> Table:
    """The record with up to three entries replaced by extreme ones, in every row alike."""
    vector = record.dense(0).astype(float)
    if not len(vector):  # of a sequence
        return record
    places = rng.integers(vector.size, size=rng.integers(1, 4))
    vector.flat[places] = rng.choice(HURTFUL, size=len(places))
    for row in record.records({"mutated": vector}).values():
        return row if len(record) == 1 else row.repeated(len(record))
    return record
