"""The engine's clipped sum as a function of a data set; errors and warnings are noted."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from vips.core import engine
from vips.core.phases import FitPhase
from vips.core.plan import PrivacyPlan
from vips.tools.auditing.records import Table

__all__ = ["UNUSABLE", "ClippedSum", "WorstPair", "as_numbers", "coordinates"]

UNUSABLE = 1e150  # a record whose norm is not below this is left out


def coordinates(arrays: Mapping[str, np.ndarray], blocks: Mapping[str, object]) -> np.ndarray:
    """All blocks as one vector of scaled, isometric coordinates; shape (..., n_coordinates).

    ``arrays`` may have further axes in front. A symmetric block gives its upper triangle, √2 times the off-diagonal entries.
    """
    parts = []
    for name, block in blocks.items():
        array = np.asarray(arrays[name]) / block.scale
        leading = array.ndim - len(block.shape)
        if block.symmetric:
            rows, columns = np.triu_indices(block.shape[-1])
            array = array[..., rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0))
        parts.append(array.reshape(*array.shape[:leading], -1))
    return np.concatenate(parts, axis=-1)


def as_numbers(total: Mapping[str, np.ndarray], blocks: Mapping[str, object], lattice) -> dict[str, np.ndarray]:
    """A total in the units of the statistics: one on a lattice is in whole steps of it."""
    return {name: np.array(lattice.values(v, blocks[name]) if lattice else v) for name, v in total.items()}


def _whole_units(arrays: Mapping[str, np.ndarray], blocks: Mapping[str, object]) -> np.ndarray:
    """Sums on the lattice as one vector of integers, which are isometric coordinates already."""
    parts = [
        arrays[name][(..., *np.triu_indices(block.shape[-1]))] if block.symmetric else arrays[name]
        for name, block in blocks.items()
    ]
    return np.concatenate([np.ravel(part) for part in parts])


@dataclass
class ClippedSum:
    """S(D) of a phase at one posterior; notes errors and warnings as ``problems`` instead of raising them.

    ``plan`` takes every record (q = 1). With ``noise="discrete"`` sums are integers, to be multiplied by ``unit``.
    """

    model: object
    plan: PrivacyPlan
    phase: FitPhase
    posterior: object
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.blocks = self.phase.blocks
        lattice = self.plan.lattice(self.blocks)
        self.unit = 1.0 if lattice is None else lattice.unit
        self._randomness = self.plan.randomness(0)
        self._ordinary: frozenset[str] | None = None  # warnings that do not depend on the records

    @contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """Note an error under ``what``: whatever it is, it depends on a record."""
        try:
            yield
        except Exception as error:
            self.problems.append(f"{what}: {type(error).__name__}: {error}")

    def arrays(self, table: Table, chunk_size: int | None = None) -> dict[str, np.ndarray]:
        """S(D) by block, as the engine computes it."""
        data = table.data()
        usual = self.model.chunk_size
        self.model.chunk_size = chunk_size or usual
        try:
            return engine.clipped_sum(self.model, self.phase, data, self.posterior, self.plan, self._randomness, 1)
        finally:
            self.model.chunk_size = usual

    def statistics(self, table: Table):
        """Statistics of the rows, as the engine asks for them."""
        statistics = self.phase.statistics_of(self.model, table.as_chunk(), self.posterior)
        if table.weights is not None:
            statistics.weigh(self.plan.shares_of(table.weights))
        return statistics

    def reported_norms(self, table: Table) -> np.ndarray:
        """The norms that the model reports for the rows of one chunk."""
        return np.asarray(self.statistics(table).norms(self.blocks), dtype=float)

    def of_rows(self, table: Table, rows: Iterable[int]) -> Iterator[tuple[float, np.ndarray]]:
        """Reported norm and scaled statistics of some rows of one chunk; no statistics where the norm is unusable."""
        statistics = self.statistics(table)
        norms = np.asarray(statistics.norms(self.blocks), dtype=float)
        for i in rows:
            arrays = statistics.weighted_sum((np.arange(len(norms)) == i) * float(norms[i] < UNUSABLE))
            # the clip must cover the Frobenius norm of the array as it is, symmetric or not
            vector = [np.ravel(arrays[name]) / block.scale for name, block in self.blocks.items()]
            yield norms[i], np.concatenate(vector)

    def __call__(self, table: Table, what: str, chunk_size: int | None = None) -> np.ndarray | None:
        """S(D) as one vector; None after an error or if it is not finite, which is noted under ``what``."""
        arrays = None
        with warnings.catch_warnings(record=True) as caught, self.noting(what):
            warnings.simplefilter("always")
            arrays = self.arrays(table, chunk_size)
        if arrays is None:
            return None
        messages = frozenset(str(warning.message) for warning in caught)
        if self._ordinary is None:
            self._ordinary = messages
        if messages - self._ordinary:
            self.problems.append(f"{what}: warning: {min(messages - self._ordinary)}")
        as_vector = _whole_units if self.plan.noise == "discrete" else coordinates
        vector = as_vector(arrays, self.blocks)
        if not np.isfinite(vector).all():
            self.problems.append(f"{what}: the sum is not finite any more")
            return None
        return vector

    def distance(self, first: np.ndarray | None, second: np.ndarray | None) -> float:
        """L2 distance relative to C; infinite if either sum could not be computed."""
        if first is None or second is None:
            return np.inf
        with np.errstate(over="ignore"):  # of a broken model
            return float(np.linalg.norm((first - second).astype(float))) * self.unit / self.plan.clip_norm


@dataclass(frozen=True)
class WorstPair:
    """Two neighbouring data sets whose sums are furthest apart, and the sum (its plan and posterior) for which they are."""

    clipped_sum: ClippedSum
    without: Table
    with_record: Table
    moved: float
