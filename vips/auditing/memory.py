"""Is a record, or a sum without noise, still in memory when a fit has ended? Weak references tell, wherever it is kept."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import scipy.sparse as sp

from vips.auditing.records import Table
from vips.auditing.replay import FrozenPlan
from vips.auditing.report import Finding
from vips.data import Sequences

__all__ = ["memory_finding"]


def memory_finding(model, plan: FrozenPlan, table: Table) -> Finding:
    """Fit ``model`` (which is changed: pass a clone) to a copy of the records, to which nothing else refers."""
    watched: list[tuple[str, weakref.ref]] = []
    table = Table(table.X.copy(), None if table.y is None else table.y.copy(), table.ids)
    _watch(watched, "the records", table.as_chunk())
    model.set_params(privacy=plan)
    object.__setattr__(plan, "add_noise", _watched(plan.add_noise, 0, "a sum without noise", watched))
    model.expected_statistics = _watched(model.expected_statistics, 0, "a chunk of the records", watched)
    with contextlib.suppress(Exception):  # the replays report errors
        table.fit(model)
    del model.expected_statistics, table
    if any(reference() is not None for _, reference in watched):
        gc.collect()
    kept = list(dict.fromkeys(name for name, reference in watched if reference() is not None))
    return Finding(
        "replay: kept in memory", "references to records, and to sums without noise, after a fit",
        ", ".join(kept) if kept else "nothing", "nothing", not kept,
        "something refers to private arrays, or to parts of them, after the fit: copy what is public, drop the rest.",
    )  # fmt: skip


def _watched(function: Callable, place: int, name: str, watched: list) -> Callable:
    """``function``, which also watches its argument at ``place``."""

    def recording(*arguments):
        _watch(watched, name, arguments[place])
        return function(*arguments)

    return recording


def _watch(watched: list[tuple[str, weakref.ref]], name: str, value: object) -> None:
    watched.extend((name, weakref.ref(part)) for part in _parts(value))


def _parts(value: object) -> Iterator[object]:
    """A table of records, or totals by block, and every array in it."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _parts(each)
    elif sp.issparse(value):
        yield from (value, value.data, value.indices, value.indptr)
    elif isinstance(value, Sequences):
        yield from (value, value.values, value.offsets)
    elif hasattr(value, "X"):
        yield from (value, *_parts(value.X), *_parts(value.y))
