"""Does one record move the clipped sum by more than the plan allows? A search over neighbouring data sets.

Every law here is a statement about S(D), the engine's clipped sum of a data set D at a fixed posterior:

    sensitivity     |S(D + r) - S(D)| ≤ C,  |S(D + r) - S(D + r')| ≤ 2C
    additivity      S(D + r) - S(D) = S({r}), S({}) = 0: nothing is divided by an observed count
    independence    a record's statistics are the same alone and in a chunk, in any order and any chunks, as large ones as the
                    model's own, too: rows may depend on each other only there
    memory          S(D) is the same again after other records were seen
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import pdist

from vips.core import engine
from vips.core.execution.partitions import has_exact_rows, whole_size
from vips.core.mechanism.lattice import SENSITIVITY_FACTOR
from vips.core.phases import FitPhase
from vips.core.plan import PrivacyPlan
from vips.tools.auditing.records import Table, hostile_records, mixed_sequences, mutated
from vips.tools.auditing.report import Finding

__all__ = ["ClippedSum", "Search", "WorstPair", "as_numbers", "coordinates", "lattice_findings", "sum_findings"]

UNUSABLE = 1e150  # a record whose norm is not below this is left out
TOLERANCE = 1e-9
BASE_SIZE = 8
MUTATIONS = 20
LARGEST_MATRIX = 4e6  # entries held to compare all pairs of sums
MOST_RECORDS, MOST_BYTES = 8192, 2**27  # of one chunk
SMALL_CHUNK, LOOKED_AT = 64, 6


# -- the engine's clipped sum as a function of a data set -------------------------------------------------------


def coordinates(arrays: Mapping[str, np.ndarray], blocks: Mapping[str, object], are_whole: bool = False) -> np.ndarray:
    """All blocks as one vector of isometric coordinates, in units of their scales; or whole units of a lattice, as they are.

    A symmetric block gives its upper triangle, √2 times the off-diagonal entries: a lattice counts these in such units.
    """
    parts = []
    for name, block in blocks.items():
        array = np.asarray(arrays[name]) if are_whole else np.asarray(arrays[name]) / block.scale
        if block.symmetric:
            rows, columns = np.triu_indices(block.shape[-1])
            array = array[..., rows, columns] * (1 if are_whole else np.where(rows == columns, 1.0, np.sqrt(2.0)))
        parts.append(np.ravel(array))
    return np.concatenate(parts)


def as_numbers(total: Mapping[str, np.ndarray], blocks: Mapping[str, object], lattice) -> dict[str, np.ndarray]:
    """A total in the units of the statistics: one on a lattice is in whole steps of it."""
    return {name: np.array(lattice.values(v, blocks[name]) if lattice else v) for name, v in total.items()}


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
            # what a record adds need not be proportional to the weight of the clip
            weight = self.plan.clip_weights(norms[i : i + 1])[0] * float(norms[i] < UNUSABLE)
            arrays = statistics.weighted_sum((np.arange(len(norms)) == i) * weight)
            # the clip must cover the Frobenius norm of the array as it is, symmetric or not
            vector = [np.ravel(arrays[name]) / block.scale for name, block in self.blocks.items()]
            yield norms[i], np.concatenate(vector) / (weight or 1.0)

    def shares(self, table: Table) -> np.ndarray:
        """What each row of one chunk, as a record, adds to the sum, in :func:`coordinates`; shape (n_rows, n_coordinates)."""
        statistics = self.statistics(table)
        norms = np.asarray(statistics.norms(self.blocks), dtype=float)
        weights = np.diag(self.plan.clip_weights(norms) * (norms < UNUSABLE))
        return np.array([coordinates(statistics.weighted_sum(alone), self.blocks) for alone in weights])

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
        vector = coordinates(arrays, self.blocks, self.plan.noise == "discrete")
        if not np.isfinite(vector).all():
            self.problems.append(f"{what}: the sum is not finite any more")
            return None
        return vector

    def distance(self, first: np.ndarray, second: np.ndarray) -> float:
        """L2 distance relative to C."""
        with np.errstate(over="ignore"):  # of a broken model
            return float(np.linalg.norm((first - second).astype(float))) * self.unit / self.plan.clip_norm


@dataclass(frozen=True)
class WorstPair:
    """Two neighbouring data sets whose sums are furthest apart, and the sum (its plan and posterior) for which they are."""

    clipped_sum: ClippedSum
    without: Table
    with_record: Table
    moved: float


# -- the search ------------------------------------------------------------------------------------------------


@dataclass
class Search:
    """What was found so far, over posteriors and data sets; movements and gaps relative to C, as large as any."""

    noise: str
    added: float = 0.0  # movement of the sum by adding or removing one record
    replaced: float = 0.0
    gaps: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("independence", "additivity", "memory"), 0.0))
    norm_ratio: float = 0.0  # true norm ÷ reported norm
    largest_chunk: int = 0
    n_pairs: int = 0
    culprit: str = "none"
    misreported: str = "none"
    problems: list[str] = field(
        default_factory=list
    )  # errors, warnings and sums that are not finite, caused by a record
    worst_added: WorstPair | None = None
    worst_replaced: WorstPair | None = None

    def run(self, sums: ClippedSum, table: Table, rng: np.random.Generator, n_mutations: int = MUTATIONS) -> None:
        """Attack one posterior with records made from ``table``, then with mutations of the most successful ones."""
        sums.problems = self.problems
        records = hostile_records(table, rng)
        base = table.take(np.sort(rng.permutation(len(table))[:BASE_SIZE]))
        reference = sums(base, "the given records")
        empty = sums(base.take(slice(0)), "no record at all")
        self._compare("additivity", sums, empty, None if empty is None else np.zeros_like(empty))
        bases = {"": (base, reference)}
        if not self.n_pairs:
            equal = base.take(np.zeros(5, int))
            bases[", among equal records"] = (equal, sums(equal, "equal records"))
        moves: list[tuple[float, np.ndarray, Table]] = []
        given, best = list(records.items()), (0.0, base.take([0]))
        for i in range(len(given) + n_mutations):
            if i < len(given):
                name, record = given[i]
            else:  # half of the mutations are of the record that moved the sum most
                parent = best[1] if i % 2 else given[rng.integers(len(given))][1]
                name, record = "a mutated record", mutated(parent, rng)
            alone = sums(record, name)
            for where, (others, before) in bases.items():
                joined = others.joined(record) if rng.integers(2) else record.joined(others)
                after = sums(joined, name + where)
                moved = self._note_added(sums, name + where, others, joined, before, after)
                if alone is None or not np.isfinite(moved):
                    continue
                self._compare("additivity", sums, after - before, alone, len(joined))
                if where == "":
                    moves.append((moved, after, joined))
                    if len(moves) * len(after) > LARGEST_MATRIX:
                        del moves[int(np.argmin([move[0] for move in moves]))]
                    best = max(best, (moved, record), key=lambda pair: pair[0])
        self._note_replaced(sums, moves)
        self._orders_and_chunks(sums, base.joined(*records.values()), rng)
        self._compare("memory", sums, sums(base, "the given records"), reference, len(base))
        if self.noise == "gaussian":
            self._alone_and_together(sums, base, records)

    def _compare(self, law: str, sums, first: np.ndarray | None, second: np.ndarray | None, n_records: int = 1) -> None:
        """Two sums that are equal by a law, of so many records. None stands for an error, which is noted already."""
        if first is not None and second is not None:
            self.gaps[law] = max(self.gaps[law], sums.distance(first, second) / n_records)

    def _note_added(self, sums, name, others, joined, before, after) -> float:
        self.n_pairs += 1
        if after is None or before is None:
            return np.inf
        moved = sums.distance(after, before)
        if moved > self.added:
            self.added, self.culprit = moved, name
            self.worst_added = WorstPair(sums, others, joined, moved)
        return moved

    def _note_replaced(self, sums, moves) -> None:
        if len(moves) < 2:
            return
        self.n_pairs += len(moves) * (len(moves) - 1) // 2
        distances = pdist(np.array([after for _, after, _ in moves], dtype=float))
        pair = int(np.argmax(distances))
        moved = float(distances[pair]) * sums.unit / sums.plan.clip_norm
        if moved > self.replaced:
            first, second = (int(side[pair]) for side in np.triu_indices(len(moves), 1))
            self.replaced = moved
            self.worst_replaced = WorstPair(sums, moves[first][2], moves[second][2], moved)

    def _orders_and_chunks(self, sums, everything, rng) -> None:
        what, order = "all hostile records together", everything.shuffled(rng)
        together = sums(everything, what)
        for rows, chunk_size in ((order, None), (order, 3), (np.arange(len(everything)), 1)):
            other = sums(everything.take(rows), what, chunk_size)
            self._compare("independence", sums, other, together, len(everything))

    def _alone_and_together(self, sums, base, records) -> None:
        """Statistics of the given and the hostile records that are one row, in one chunk and alone."""
        rows = {name: record for name, record in records.items() if len(record) == 1}
        names = [f"record {i} of the chunk" for i in range(len(base))] + list(rows)
        everything = base.joined(*rows.values())
        with sums.noting("statistics"), np.errstate(all="ignore"):
            valid = everything.valid(sums.model)
            self._compare_rows(sums, everything.take(valid), range(len(valid)), [names[i] for i in valid])

    def _compare_rows(self, sums: ClippedSum, table: Table, rows: Iterable[int], names: Sequence[str]) -> None:
        """Compare norm and statistics of some rows of a chunk with those that they have alone, and norms with statistics."""
        for row, name, (norm, vector) in zip(rows, names, sums.of_rows(table, rows), strict=True):
            ((norm_alone, alone),) = sums.of_rows(table.take([row]), [0])
            if norm < UNUSABLE or norm_alone < UNUSABLE:  # else the record is left out of the sum
                gap = max(np.linalg.norm(vector - alone), abs(norm - norm_alone)) / max(np.linalg.norm(alone), 1e-150)
                self.gaps["independence"] = max(self.gaps["independence"], gap if np.isfinite(gap) else np.inf)
            for reported, statistics in ((norm, vector), (norm_alone, alone)):
                true = np.linalg.norm(statistics)
                if reported < UNUSABLE and (true > 1e-150 or np.isnan(true)):
                    ratio = true / reported if reported > 0.0 and np.isfinite(true) else np.inf
                    if ratio > self.norm_ratio:
                        self.norm_ratio, self.misreported = float(ratio), name

    def compare_large_chunk(self, sums: ClippedSum, table: Table, rng: np.random.Generator) -> None:
        """Whether a record contributes differently in a chunk of the model's size than in small ones, and than alone."""
        sums.problems, large = self.problems, large_chunk(sums.model, table, rng)
        if large is None:
            return
        size = len(large)
        self.largest_chunk = max(self.largest_chunk, size)
        steps = len(large.X.values) if large.are_sequences else 0  # in which chunks of sequences are counted
        rows_of_record = 1 + -(-steps // size)
        together, apart = (sums(large, f"a chunk of {n} records", n * rows_of_record) for n in (size, SMALL_CHUNK))
        self._compare("independence", sums, together, apart, size)
        if together is None or apart is None or self.noise == "discrete":
            return
        row = int(rng.integers(size))
        without = large.take(np.delete(np.arange(size), row))
        others = sums(without, f"a chunk of {size - 1} records", size * rows_of_record)
        difference = None if others is None else together - others
        self._compare("additivity", sums, difference, sums(large.take([row]), "one record"), size)
        rows = np.unique([0, size - 1, *rng.integers(size, size=LOOKED_AT)])
        with sums.noting(f"statistics of {size} records"), np.errstate(all="ignore"):
            starts = range(0, size, SMALL_CHUNK)
            small = np.concatenate([sums.reported_norms(large.take(slice(i, i + SMALL_CHUNK))) for i in starts])
            gaps = np.abs(sums.reported_norms(large) - small) / np.maximum(small, 1e-150)
            largest = float(np.max(np.where(np.isfinite(small), gaps, 0.0)))
            self.gaps["independence"] = max(self.gaps["independence"], largest)
            self._compare_rows(sums, large, rows, [f"record {row} of a chunk of {size}" for row in rows])


def large_chunk(model, table: Table, rng: np.random.Generator) -> Table | None:
    """Records for one chunk of the size that the engine takes; at most 8,192 records and 128 MiB.

    They are the given records, repeated, and mixtures of two: each entry comes from one of the two, so that columns keep their
    values. None if no record is valid.
    """
    valid = table.valid(model)
    if len(valid) == 0:
        return None
    stored = table.X.nnz * 12 if sp.issparse(table.X) else table.X.nbytes
    usual = max(model.default_chunk_size(), model.chunk_size)
    usual = usual if has_exact_rows(model) else whole_size(usual)
    size = int(min(usual, MOST_RECORDS, max(SMALL_CHUNK, MOST_BYTES * len(table) // max(stored, 1))))
    if table.are_sequences:
        return Table(mixed_sequences(table.take(rng.choice(valid, size)).X, rng))
    first, second = (replace(table.take(rng.choice(valid, size)), ids=None) for _ in range(2))
    from_first = rng.random(first.X.shape) < 0.5
    from_first[::3] = True
    mixed = replace(first, X=_mixture(first.X, second.X, from_first))
    usable = np.isin(np.arange(size), mixed.valid(model))
    return mixed.take(usable).joined(first.take(~usable))


def _mixture(first, second, from_first: np.ndarray):
    if not sp.issparse(first):
        return np.where(from_first, first, second)
    mixed = first.multiply(from_first) + second.multiply(~from_first)
    return sp.csr_array(mixed).astype(first.dtype)


# -- findings ---------------------------------------------------------------------------------------------------

ADVICE = {
    "independence": "a record's statistics depend on other records in its chunk: compute row i from row i and the posterior "
    "alone, with no maximum, mean or scale over the rows.",
    "additivity": "the total is not a plain sum: nothing may be divided by the number of records or the size of the sample, "
    "and a record of weight 0 must be absent, not multiplied by 0.",
    "memory": "a step depends on records of an earlier one: keep no latent variables from batch to batch.",
    "sums on the lattice": 'with noise="discrete" a record\'s rounded share must be a function of that record alone, to the '
    "last bit: in `rounded_sum`, hold no sum over records in floating point, and let no product over a chunk decide a bit.",
}


def sum_findings(search: Search) -> list[Finding]:
    """Findings on sums in floating point."""
    checked = {
        "independence": "statistics and norms of a record alone and among others, sums in another order and in other chunks, "
        f"of up to {search.largest_chunk} records",
        "additivity": "what a record adds to a sum, against what it gives alone",
        "memory": "the same sum before and after other records were seen",
    }
    norms = Finding(
        "norms",
        "norms that the model reports, against the norms of what it sums",
        f"at most {search.norm_ratio:.9g} of the norm reported ({search.misreported})",
        f"1 + {TOLERANCE:g}",
        search.norm_ratio <= 1.0 + TOLERANCE,
        "norms under-report: `norms` must be at least the joint L2 norm, over all blocks divided by their scales, of what "
        "`weighted_sum` sums. Multiply by 1 + 1e-9 to cover rounding.",
        {"ratio": search.norm_ratio},
    )
    laws = [_law(name, search.gaps[name], what, TOLERANCE) for name, what in checked.items()]
    defects = "records with NaN, infinite, huge, tiny or negative entries"
    return [_sensitivity("sensitivity", search), norms, *laws, _no_problems("defective records", search, defects)]


def lattice_findings(search: Search, used: bool) -> list[Finding]:
    """Findings on integer sums; failures are only noted unless the plan has ``used`` such sums."""
    checked = "integer sums in any order and in any chunks, and what a record adds to them"
    findings = [
        _sensitivity("sensitivity on the lattice", search),
        _law("sums on the lattice", max(search.gaps.values()), checked, 0.0),
        _no_problems("defective records on the lattice", search, "the same records, rounded"),
    ]
    return [finding if used or finding.passed else replace(finding, passed=None) for finding in findings]


def _sensitivity(name: str, search: Search) -> Finding:
    added, replaced = search.added, search.replaced  # a replaced record may move the sum twice as far as an added one
    allowed = SENSITIVITY_FACTOR if search.noise == "discrete" else 1.0 + TOLERANCE
    return Finding(
        name,
        f"movement of the clipped sum over {search.n_pairs} pairs of neighbours, relative to the clip norm",
        f"{added:.6g} when a record is added or removed ({search.culprit}), {replaced:.6g} when one is replaced",
        f"{allowed:.10g} and {2.0 * allowed:.10g}",
        added <= allowed and replaced <= 2.0 * allowed,
        "one record moves the sum further than the noise is scaled to: clip all blocks jointly, once, by norms that are never "
        "too small.",
        {"added": added, "replaced": replaced, "tightness": max(added, replaced / 2.0) / allowed},
    )


def _law(name: str, gap: float, checked: str, allowed: float) -> Finding:
    measured = f"a difference of {gap:.3g}" if gap else "no difference"
    return Finding(name, checked, measured, f"{allowed:g}", gap <= allowed, ADVICE[name], {"gap": gap})


def _no_problems(name: str, search: Search, checked: str) -> Finding:
    problems, allowed = list(dict.fromkeys(search.problems)), "no error, no warning, finite sums"
    n_more = len(problems) - 3
    measured = "; ".join([*problems[:3], *([f"and {n_more} more"] if n_more > 0 else [])]) or allowed
    advice = (
        "a record reveals itself by errors, warnings or infinite sums: let `valid_records` drop it, or give it a norm that is "
        "not finite."
    )
    return Finding(name, checked, measured, allowed, not problems, advice, {"problems": float(len(problems))})
