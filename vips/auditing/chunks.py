"""Checks chunks as large as the model's own, because rows may depend on each other only there.

A chunk of the usual size is compared with the same records in small chunks, and with some of them alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from vips.auditing.hostile_sequences import mixed_sequences
from vips.auditing.records import Table
from vips.auditing.search import Search, each_statistics
from vips.auditing.sums import ClippedSum

__all__ = ["compare_large_chunk", "large_chunk"]

MOST_RECORDS, MOST_BYTES = 8192, 2**27  # of one chunk
SMALL_CHUNK, LOOKED_AT = 64, 6


def large_chunk(model, table: Table, rng: np.random.Generator) -> Table | None:
    """Records for one chunk of the size that the engine takes; at most 8,192 records and 128 MiB.

    They are the given records, repeated, and mixtures of two: each entry comes from one of the two, so that columns keep their
    values. None if no record is valid.
    """
    from vips.core.execution.partitions import has_exact_rows, whole_size

    valid = table.valid(model)
    if len(valid) == 0:
        return None
    stored = table.X.nnz * 12 if sp.issparse(table.X) else table.X.nbytes
    usual = max(model.default_chunk_size(), model.chunk_size)
    usual = usual if has_exact_rows(model) else whole_size(usual)
    size = int(min(usual, MOST_RECORDS, max(SMALL_CHUNK, MOST_BYTES * len(table) // max(stored, 1))))
    if table.are_sequences:
        return Table(mixed_sequences(table.take(rng.choice(valid, size)).X, rng))
    first, second = (table.take(rng.choice(valid, size)) for _ in range(2))
    from_first = rng.random(first.X.shape) < 0.5
    from_first[::3] = True
    mixed = replace(first, X=_mixture(first.X, second.X, from_first), ids=None)
    usable = np.isin(np.arange(size), mixed.valid(model))
    return mixed.take(usable).joined(replace(first, ids=None).take(~usable))


def _mixture(first, second, from_first: np.ndarray):
    if not sp.issparse(first):
        return np.where(from_first, first, second)
    mixed = first.multiply(from_first) + second.multiply(~from_first)
    return sp.csr_array(mixed).astype(first.dtype)


def compare_large_chunk(search: Search, sums: ClippedSum, table: Table, rng: np.random.Generator) -> None:
    """Note in ``search`` whether a record contributes differently in a large chunk than elsewhere."""
    large = large_chunk(sums.model, table, rng)
    if large is None:
        return
    size = len(large)
    search.largest_chunk = max(search.largest_chunk, size)
    rows_of_record = -(-len(large.X.values) // size) + 1 if large.are_sequences else 1  # chunks are counted in steps
    together, apart = (sums(large, f"a chunk of {n} records", n * rows_of_record) for n in (size, SMALL_CHUNK))
    if together is None or apart is None:
        return
    gap = sums.distance(together, apart) / size
    search.not_independent = max(search.not_independent, gap)
    if search.noise == "discrete":
        search.inexact = max(search.inexact, gap)
        return
    row = int(rng.integers(size))
    others = sums(large.take(np.delete(np.arange(size), row)), f"a chunk of {size - 1} records", size * rows_of_record)
    alone = sums(large.take([row]), "one record")
    if others is not None and alone is not None:
        search.not_additive = max(search.not_additive, sums.distance(together - others, alone) / size)
    rows = np.unique([0, size - 1, *rng.integers(size, size=LOOKED_AT)])
    _compare_statistics(search, sums, large, rows)


def _compare_statistics(search: Search, sums: ClippedSum, large: Table, rows: np.ndarray) -> None:
    """Norms of all records in the large chunk and in small ones; statistics of some in the large chunk and alone."""
    try:
        with np.errstate(all="ignore"):
            norms = _norms(sums, large)
            starts = range(0, len(large), SMALL_CHUNK)
            small = np.concatenate([_norms(sums, large.take(slice(i, i + SMALL_CHUNK))) for i in starts])
            gaps = np.abs(norms - small) / np.maximum(small, 1e-150)
            search.not_independent = max(search.not_independent, float(np.max(np.where(np.isfinite(small), gaps, 0.0))))
            for row, (norm, vector) in zip(rows, each_statistics(sums, large, rows), strict=True):
                ((norm_alone, alone),) = each_statistics(sums, large.take([row]), [0])
                search.note_statistics(f"record {row} of a chunk of {len(large)}", norm, vector, norm_alone, alone)
    except Exception as error:
        sums.problems.append(f"statistics of {len(large)} records: {type(error).__name__}: {error}")


def _norms(sums: ClippedSum, table: Table) -> np.ndarray:
    return np.asarray(sums.statistics(table).norms(sums.blocks), dtype=float)
