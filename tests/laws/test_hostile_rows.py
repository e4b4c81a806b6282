"""Property-based: whatever a record holds, it moves the clipped sum by no more than the stated sensitivity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.laws import checks
from tests.laws.cases import CASES, ONE_OF_EACH_CLASS
from vips.core.exact.rowwise import PIECE
from vips.data import Sequences

HURTFUL = [
    0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    3.0,
    1e9,
    2.0**53,
    5e-324,
    1e-310,
    1e-160,
    1e150,
    1e160,
    1e300,
    3e38,
    np.nan,
    np.inf,
]
ENTRIES = st.one_of(st.sampled_from(HURTFUL), st.floats(width=64), st.integers(0, 20).map(float))


def neighbours(width):
    """Records, repeated up to three times, and one more record."""
    rows = st.integers(0, 4).flatmap(lambda n: arrays(np.float64, (n, width), elements=ENTRIES, fill=ENTRIES))
    return st.tuples(rows, arrays(np.float64, width, elements=ENTRIES, fill=ENTRIES), st.integers(1, 3))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_record_moves_the_sum_further_than_the_sensitivity(case):
    model, plan, records, posterior = checks.prepared(case, 2)
    blocks = checks.last_phase(model).blocks
    discrete = replace(plan, noise="discrete")
    lattice = discrete.lattice(blocks)
    labelled = hasattr(records, "y")
    of_label = records.y.shape[1:] if labelled else ()  # a count and its exposure are two numbers
    as_rows = sp.csr_array if sp.issparse(records.X if labelled else records) else np.asarray
    are_sequences = isinstance(records, Sequences)
    columns = records.shape[1]
    width = 6 * columns if are_sequences else columns + labelled * int(np.prod(of_label))

    def container(rows):
        if are_sequences:  # a sequence ends before its first 2⁵³
            ends = np.append(rows == 2.0**53, np.full((len(rows), 1), True), axis=1).argmax(axis=1) // columns
            steps = [row.reshape(-1, columns)[:end] for row, end in zip(rows, ends, strict=True)]
            return Sequences.from_lengths(np.concatenate([np.empty((0, columns)), *steps]), ends)
        if not labelled:
            return as_rows(rows)
        return replace(records, X=as_rows(rows[:, :columns]), y=rows[:, columns:].reshape(len(rows), *of_label))

    def total(rows, plan):
        sums = checks.clipped_sum(case, model, plan, container(rows), posterior)
        return sums if plan.noise == "gaussian" else _isometric(sums, blocks)

    few = settings.default.derandomize  # the same in every run: `make test-all` generates more, and new ones

    @settings(
        max_examples=(12 if few else 40) if case.name in ONE_OF_EACH_CLASS else 7 if few else 15,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(neighbours(width))
    @example((np.zeros((1, width)), np.ones(width), 1))  # a row for each of the two kinds of a regression's rows
    def check(drawn):
        rows, row, times = drawn
        rows = np.repeat(rows, times, axis=0)
        added = np.vstack([rows[:1], row[None], rows[1:]])
        for setting, unit, allowed in ((plan, 1.0, 1.0 + 1e-9), (discrete, lattice.unit, checks.SENSITIVITY_FACTOR)):
            before, after = total(rows, setting), total(added, setting)
            assert np.isfinite(after).all()
            moved = np.linalg.norm(after - before) * unit
            assert moved <= plan.clip_norm * allowed, f"moved by {moved}"

    check()


def _isometric(sums, blocks):
    """The whole units that ``checks.clipped_sum`` divided by the scales; for a symmetric block, one triangle."""
    parts, start = [], 0
    for block in blocks.values():
        size = int(np.prod(block.shape))
        units = sums[start : start + size] * block.scale
        start += size
        units = units.reshape(block.shape)
        parts.append(np.ravel(units[..., *np.triu_indices(block.shape[-1])] if block.symmetric else units))
    return np.concatenate(parts)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case, marks=() if case.name in ("lda", "logistic sparse", "proportions sparse") else pytest.mark.slow
        )
        for case in CASES
        if "sparse" in case.name or case.name.startswith("lda")
    ],
    ids=lambda case: case.name,
)
@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
@pytest.mark.repeated("gaussian-logistic sparse")
def test_torn_records_count_for_nothing_wherever_they_stand(case, noise):
    """A record with a column that does not exist is defective in every chunk, whole, cut, or with other records after it."""
    model, plan, records, posterior = checks.prepared(case, 6, noise=noise)
    X = records.X if hasattr(records, "y") else records
    width, total = X.shape[1], {}
    for n_after in (0, 1, 3, PIECE):
        columns = np.array([0, width + 5] * 4 + [0] * n_after, np.int32)
        indptr = np.array([0, 2, 4, 6, 8, *range(9, 9 + n_after)])
        torn = sp.csr_array((np.ones(8 + n_after), columns, indptr), shape=(4 + n_after, width))
        data = replace(records, X=torn, y=np.ones(4 + n_after)) if hasattr(records, "y") else torn
        intact = data[np.arange(4, 4 + n_after)]
        for chunk_size in (1, 2, 4, 100):
            model.chunk_size = chunk_size
            moved = checks.clipped_sum(case, model, plan, data, posterior)
            total[n_after, chunk_size] = moved - checks.clipped_sum(case, model, plan, intact, posterior)
    assert all(np.abs(moved).max() <= 1e-12 for moved in total.values())
