"""Does one record move the clipped sum by more than the plan allows? A search over neighbouring data sets.

Every law here is a statement about S(D), the engine's clipped sum of a data set D at a fixed posterior:

    sensitivity     |S(D + r) - S(D)| ≤ C,  |S(D + r) - S(D + r')| ≤ 2C
    additivity      S(D + r) - S(D) = S({r}), S({}) = 0: nothing is divided by an observed count
    independence    a record's statistics are the same alone and in a chunk, in any order and any chunks, as large ones as the
                    model's own, too: rows may depend on each other only there
    memory          S(D) is the same again after other records were seen
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import pdist

from vips.core.execution.partitions import has_exact_rows, whole_size
from vips.core.mechanism.lattice import SENSITIVITY_FACTOR
from vips.tools.auditing.records import Table, hostile_records, mixed_sequences, mutated
from vips.tools.auditing.report import Finding
from vips.tools.auditing.sums import UNUSABLE, ClippedSum, WorstPair

__all__ = ["Search", "lattice_findings", "sum_findings"]

TOLERANCE = 1e-9
BASE_SIZE = 8
MUTATIONS = 20
LARGEST_MATRIX = 4e6  # entries held to compare all pairs of sums
MOST_RECORDS, MOST_BYTES = 8192, 2**27  # of one chunk
SMALL_CHUNK, LOOKED_AT = 64, 6


@dataclass
class Search:
    """Largest movements found so far, over posteriors and data sets; all relative to C.

    Attributes
    ----------
    added, replaced : float
        Largest movement of the sum by adding (or removing), and by replacing, one record.
    not_additive, not_independent, remembered, inexact : float
        Largest violation of each law; ``inexact`` is of the sums on the lattice, in any order and any chunks.
    norm_ratio : float
        Largest (true norm) / (reported norm).
    largest_chunk : int
        Records in the largest chunk.
    problems : list of str
        Errors, warnings and sums that are not finite, caused by a record.
    """

    noise: str
    added: float = 0.0
    replaced: float = 0.0
    not_additive: float = 0.0
    not_independent: float = 0.0
    remembered: float = 0.0
    inexact: float = 0.0
    norm_ratio: float = 0.0
    largest_chunk: int = 0
    n_pairs: int = 0
    culprit: str = "none"
    misreported: str = "none"
    problems: list[str] = field(default_factory=list)
    worst_added: WorstPair | None = None
    worst_replaced: WorstPair | None = None

    @property
    def allowed(self) -> float:
        """Movement allowed to one added record; a replaced one may move the sum by twice that."""
        return SENSITIVITY_FACTOR if self.noise == "discrete" else 1.0 + TOLERANCE

    def run(self, sums: ClippedSum, table: Table, rng: np.random.Generator, n_mutations: int = MUTATIONS) -> None:
        """Attack one posterior with records made from ``table``, then with mutations of the most successful ones."""
        records = hostile_records(table, rng)
        base = table.take(np.sort(rng.permutation(len(table))[:BASE_SIZE]))
        reference = sums(base, "the given records")
        empty = sums(base.take(slice(0)), "no record at all")
        if empty is not None:
            self.not_additive = max(self.not_additive, sums.distance(empty, np.zeros_like(empty)))
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
                self.not_additive = max(self.not_additive, sums.distance(after - before, alone) / len(joined))
                if where == "":
                    moves.append((moved, after, joined))
                    if len(moves) * len(after) > LARGEST_MATRIX:
                        del moves[int(np.argmin([move[0] for move in moves]))]
                    best = max(best, (moved, record), key=lambda pair: pair[0])
        self._note_replaced(sums, moves)
        self._orders_and_chunks(sums, base.joined(*records.values()), rng)
        again = sums(base, "the given records")
        if again is not None and reference is not None:
            self.remembered = max(self.remembered, sums.distance(again, reference) / len(base))
        if self.noise == "gaussian":
            self._alone_and_together(sums, base, records)
        self.problems += sums.problems

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
        together = sums(everything, "all hostile records together")
        order = everything.shuffled(rng)
        for rows, chunk_size in ((order, None), (order, 3), (np.arange(len(everything)), 1)):
            other = sums(everything.take(rows), "all hostile records together", chunk_size)
            if other is None or together is None:  # an error, which is noted already
                continue
            gap = sums.distance(other, together) / len(everything)
            if self.noise == "discrete":
                self.inexact = max(self.inexact, gap)
            self.not_independent = max(self.not_independent, gap)

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
                self.not_independent = max(self.not_independent, gap if np.isfinite(gap) else np.inf)
            for reported, statistics in ((norm, vector), (norm_alone, alone)):
                true = np.linalg.norm(statistics)
                if reported < UNUSABLE and (true > 1e-150 or np.isnan(true)):
                    ratio = true / reported if reported > 0.0 and np.isfinite(true) else np.inf
                    if ratio > self.norm_ratio:
                        self.norm_ratio, self.misreported = float(ratio), name

    def compare_large_chunk(self, sums: ClippedSum, table: Table, rng: np.random.Generator) -> None:
        """Whether a record contributes differently in a chunk of the model's size than in small ones, and than alone."""
        large = large_chunk(sums.model, table, rng)
        if large is not None:
            self._compare_chunks(sums, large, rng)
            self.problems += sums.problems

    def _compare_chunks(self, sums: ClippedSum, large: Table, rng: np.random.Generator) -> None:
        size = len(large)
        self.largest_chunk = max(self.largest_chunk, size)
        steps = len(large.X.values) if large.are_sequences else 0  # in which chunks of sequences are counted
        rows_of_record = 1 + -(-steps // size)
        together, apart = (sums(large, f"a chunk of {n} records", n * rows_of_record) for n in (size, SMALL_CHUNK))
        if together is None or apart is None:
            return
        gap = sums.distance(together, apart) / size
        self.not_independent = max(self.not_independent, gap)
        if self.noise == "discrete":
            self.inexact = max(self.inexact, gap)
            return
        row = int(rng.integers(size))
        without = large.take(np.delete(np.arange(size), row))
        others = sums(without, f"a chunk of {size - 1} records", size * rows_of_record)
        alone = sums(large.take([row]), "one record")
        if others is not None and alone is not None:
            self.not_additive = max(self.not_additive, sums.distance(together - others, alone) / size)
        rows = np.unique([0, size - 1, *rng.integers(size, size=LOOKED_AT)])
        with sums.noting(f"statistics of {size} records"), np.errstate(all="ignore"):
            starts = range(0, size, SMALL_CHUNK)
            small = np.concatenate([sums.reported_norms(large.take(slice(i, i + SMALL_CHUNK))) for i in starts])
            gaps = np.abs(sums.reported_norms(large) - small) / np.maximum(small, 1e-150)
            self.not_independent = max(self.not_independent, float(np.max(np.where(np.isfinite(small), gaps, 0.0))))
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


def sum_findings(search: Search) -> list[Finding]:
    """Findings on sums in floating point."""
    return [
        _sensitivity("sensitivity", search),
        Finding(
            "norms",
            "norms that the model reports, against the norms of what it sums",
            f"at most {search.norm_ratio:.9g} of the norm reported ({search.misreported})",
            f"1 + {TOLERANCE:g}",
            search.norm_ratio <= 1.0 + TOLERANCE,
            "norms under-report: `norms` must be at least the joint L2 norm, over all blocks divided by their scales, of what "
            "`weighted_sum` sums. Multiply by 1 + 1e-9 to cover rounding.",
            {"ratio": search.norm_ratio},
        ),
        _law(
            "independence",
            search.not_independent,
            "statistics and norms of a record alone and among others, sums in another order and in other chunks, of up to "
            f"{search.largest_chunk} records",
            "a record's statistics depend on other records in its chunk: compute row i from row i and the posterior alone, "
            "with no maximum, mean or scale over the rows.",
        ),
        _law(
            "additivity",
            search.not_additive,
            "what a record adds to a sum, against what it gives alone",
            "the total is not a plain sum: nothing may be divided by the number of records or the size of the sample, and a "
            "record of weight 0 must be absent, not multiplied by 0.",
        ),
        _law(
            "memory",
            search.remembered,
            "the same sum before and after other records were seen",
            "a step depends on records of an earlier one: keep no latent variables from batch to batch.",
        ),
        _no_problems("defective records", search, "records with NaN, infinite, huge, tiny or negative entries"),
    ]


def lattice_findings(search: Search, used: bool) -> list[Finding]:
    """Findings on integer sums; failures are only noted unless the plan has ``used`` such sums."""
    findings = [
        _sensitivity("sensitivity on the lattice", search),
        _law(
            "sums on the lattice",
            max(search.inexact, search.not_additive, search.remembered),
            "integer sums in any order and in any chunks, and what a record adds to them",
            'with noise="discrete" a record\'s rounded share must be a function of that record alone, to the last bit: in '
            "`rounded_sum`, hold no sum over records in floating point, and let no product over a chunk decide a last bit.",
            allowed=0.0,
        ),
        _no_problems("defective records on the lattice", search, "the same records, rounded"),
    ]
    return [finding if used or finding.passed else replace(finding, passed=None) for finding in findings]


def _sensitivity(name: str, search: Search) -> Finding:
    added, replaced, allowed = search.added, search.replaced, search.allowed
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


def _law(name: str, gap: float, checked: str, advice: str, allowed: float = TOLERANCE) -> Finding:
    measured = f"a difference of {gap:.3g}" if gap else "no difference"
    return Finding(name, checked, measured, f"{allowed:g}", gap <= allowed, advice, {"gap": gap})


def _no_problems(name: str, search: Search, checked: str) -> Finding:
    problems = list(dict.fromkeys(search.problems))
    measured = "; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")
    return Finding(
        name,
        checked,
        measured or "no error, no warning, finite sums",
        "no error, no warning, finite sums",
        not problems,
        "a record reveals itself by errors, warnings or infinite sums: let `valid_records` drop it, or give it a norm that is "
        "not finite.",
        {"problems": float(len(problems))},
    )
