"""A record's statistics are the same to the last bit, whatever else is in the chunk.

The reference is each record by itself; chunks are as the engine makes them (``partitions.filled_up``).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

from tests.laws import checks
from tests.laws.amplifying import LARGEST, MAKERS, PLAN, STRONG, NearestCentre, votes
from tests.laws.cases import CASES
from tests.mutants import check_notices
from vips import DenseStatistics, SigmoidBeliefNetwork
from vips.core import engine
from vips.core.exact import blas, rowwise, threads
from vips.core.execution import partitions
from vips.data import InMemoryData, Records, Sequences
from vips.models.belief_networks import inference as sbn_inference

pytestmark = pytest.mark.usefixtures("two_threads_of_blas")

ENDS = (*range(1, 14), 29, *range(74, 78), *range(238, 243), *range(479, 482), 600)


class Shares:
    """Norms of records, and the statistics of the first and the last one, in chunks as the engine makes them."""

    def __init__(self, make) -> None:
        self.model, self.records, self.posterior = make()
        self.phase = checks.last_phase(self.model)
        self.blocks = self.phase.blocks
        # a network computes a whole piece for a single record
        self.least_every = 8 if isinstance(self.model, SigmoidBeliefNetwork) else 1
        self.norm_alone = cache(lambda i: self.of(self.records[[i]], ends=False)[0][0])
        self.share_alone = cache(lambda i: self.of(self.records[[i]])[1][0])

    def of(self, records, ends=True):
        n = records.shape[0]
        size = None if partitions.has_exact_rows(self.model) else partitions.whole_size(self.model.chunk_size)
        statistics = self.phase.statistics_of(self.model, partitions.filled_up(records, size), self.posterior)
        norms = statistics.norms(self.blocks)
        shares = {}
        for i in {0, n - 1} if ends else ():
            total = statistics.weighted_sum((np.arange(len(norms)) == i).astype(float))
            shares[i] = np.concatenate([np.ravel(total[name]) for name in self.blocks])
        return norms[:n], shares

    def check(self, rows: np.ndarray, what: str, records=None, every=1) -> None:
        """Compare the first and the last records of these rows, in this order, and every ``every``-th one, with each of them
        alone."""
        norms, ends = self.of(self.records[rows] if records is None else records, ends=len(rows) in ENDS)
        places, every = np.arange(len(rows)), max(every, self.least_every)
        at_ends = (every > 1) & (self.least_every == 1) & (np.minimum(places, len(rows) - 1 - places) < 3)
        looked_at = np.flatnonzero((rows % every == 0) | at_ends)
        expected = np.array([self.norm_alone(i) for i in rows[looked_at].tolist()])
        different = np.flatnonzero(norms[looked_at].view(np.uint64) != expected.view(np.uint64))
        assert not len(different), f"{what}: the norms of {len(different)} of {len(rows)} records have other bits"
        for place, share in ends.items():
            np.testing.assert_array_equal(
                share, self.share_alone(int(rows[place])), err_msg=f"{what}: other statistics"
            )


@cache
def shares_of(name) -> Shares:
    """Each record alone is computed once for all tests of a model."""
    return Shares(MAKERS[name])


def check_bits(shares, sizes=range(1, LARGEST + 1), shifts=(*range(1, 25), 61, 239, 240, 241), every=1) -> None:
    for n in sizes:
        shares.check(np.arange(n), f"chunks of {n} records", every=every)
    for shift in shifts:
        shares.check(np.roll(np.arange(max(sizes)), shift), f"records in other places, by {shift}", every=every)


QUICK = [
    "network 16 x 30, single precision",
    "network 16 x 17, full covariance",
    "topics alike",
    "regression of 70 columns",
    "thin clouds",
    "classes alike",
    "nearest centre",
]


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.repeated("regression of 70 columns")
def test_no_chunk_size_and_no_place_changes_a_bit(name):
    check_bits(shares_of(name), sizes=(*range(1, 90), *range(232, 250), *range(474, 486), LARGEST), every=4)


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_no_chunk_size_and_no_place_changes_a_bit_of_any_model(name):
    check_bits(shares_of(name))


@pytest.mark.parametrize("name", MAKERS)
def test_thresholds_change_no_bit(name):
    """Sizes around 75 records (BLAS, for a large network) and 240 rows (a piece), and all remainders of a tile."""
    check_bits(shares_of(name), sizes=(*range(1, 10), 74, 75, 76, 239, 240, 241, 250), shifts=(1, 7, 10), every=4)


@pytest.mark.parametrize("name", MAKERS)
def test_memory_and_threads_change_no_bit(name, monkeypatch):
    monkeypatch.setattr(blas, "_LEAST_WORK", 0)
    shares, rows = shares_of(name), np.arange(250)
    for n_threads in (2, 3, 16):
        with monkeypatch.context() as patch:
            patch.setattr(threads, "n_threads", lambda n_threads=n_threads: n_threads)
            shares.check(rows, f"{n_threads} threads", every=4)
    for offset in (1, 2, 3, 7):
        shares.check(rows, f"memory from place {offset} on", moved(shares.records[rows], offset), every=4)


def moved(records, offset: int):
    """The same numbers ``offset`` places further on in memory."""
    if isinstance(records, Records):
        return replace(records, X=moved(records.X, offset))
    if isinstance(records, Sequences):
        return Sequences(moved(records.values, offset), records.offsets)
    if sp.issparse(records):
        return type(records)(
            (moved(records.data, offset), moved(records.indices, offset), records.indptr), records.shape
        )
    memory = np.empty(records.size + offset, records.dtype)
    memory[offset:] = np.ravel(records)
    return memory[offset:].reshape(records.shape)


# -- the sum of neighbours --------------------------------------------------------------------------------------


def largest_move(name) -> float:
    """The most by which one more record moves the engine's sum, in clip norms, over many numbers of records."""
    model, records, posterior = STRONG[name]()
    plan = replace(PLAN, clip_norm=model.default_clip())
    phase, before, largest = checks.last_phase(model), None, 0.0
    blocks = phase.blocks
    for n in [*range(72, 79), *range(238, 243)]:  # around 75 records and around a piece
        data = InMemoryData(records[:n], None)
        sums = engine.clipped_sum(model, phase, data, posterior, plan, plan.randomness(0), 1)
        total = np.concatenate([np.ravel(sums[block]) / blocks[block].scale for block in blocks])
        if before is not None:
            largest = max(largest, np.linalg.norm(total - before))
        before = total if n != 78 else None
    return largest / plan.clip_norm


@pytest.mark.parametrize("name", ["network 16 x 400", "nearest centre"])
def test_a_record_moves_the_sum_by_its_own_share(name):
    assert 0.5 < largest_move(name) <= 1.0 + 1e-9


def test_last_bits_that_depend_on_the_number_of_records_move_the_sum_by_several_clip_norms(monkeypatch):
    network_by_blas(monkeypatch)
    assert largest_move("network 16 x 400") > 3.0


def test_a_class_with_an_e_step_of_its_own_does_not_inherit_the_promise():
    class Derived(SigmoidBeliefNetwork):
        def expected_statistics(self, records, posterior):
            return super().expected_statistics(records, posterior)

    assert partitions.has_exact_rows(SigmoidBeliefNetwork(2))
    assert partitions.has_exact_rows(type("Same", (SigmoidBeliefNetwork,), {})(2))
    assert not partitions.has_exact_rows(Derived(2))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_promise_is_made_where_the_e_step_is(case):
    """Else chunks of a model that promises exact rows would be filled up."""
    model = case.make_model()
    assert partitions.has_exact_rows(model) == model.exact_rows


# -- the law can fail -------------------------------------------------------------------------------------------


def in_last_bits(rows):
    """The rows, with last bits that depend on the number of rows, as in products by BLAS."""
    return rows * rows.dtype.type(1.0 + 2.0 * np.finfo(rows.dtype).eps * (len(rows) > 75))


def last_bits_by_size(product):
    return lambda a, b: product(in_last_bits(a), b)


def network_by_blas(patch):
    patch.setattr(sbn_inference, "rowwise_product", last_bits_by_size(rowwise.rowwise_product))
    patch.setattr(sbn_inference, "zero_filled", lambda rows, _: rows)


def regression_by_blas(patch):
    from vips.models.regression import contract, statistics

    for module in (contract, statistics):
        patch.setattr(module, "rowwise_product", last_bits_by_size(rowwise.rowwise_product))


def squares_by_blas(patch):
    from vips.models.regression import statistics as regression_statistics

    original = rowwise.rowwise_squares
    patch.setattr(regression_statistics, "rowwise_squares", lambda lower, rows: original(lower, in_last_bits(rows)))


def images_by_blas(patch):
    from vips.core.sums import gaussian_kernels as kernels

    shares, images = kernels.fill_responsibilities, kernels.fill_images
    patch.setattr(kernels, "fill_responsibilities", lambda X, *others: shares(in_last_bits(X), *others))
    patch.setattr(kernels, "fill_images", lambda X, *others: images(in_last_bits(X), *others))


def answers_by_blas(patch):
    from vips.models.components import kernels

    original = kernels.responsibilities
    patch.setattr(kernels, "responsibilities", lambda places, answers, *arguments: original(
        places, answers * (1.0 + 2.0 * np.finfo(float).eps * (len(places) > 75)), *arguments
    ))  # fmt: skip


def chunks_not_filled_up(patch):
    """Chunks are not filled up, and products round like those of BLAS."""
    patch.setattr(partitions, "filled_up", lambda records, size: records)
    product = last_bits_by_size(np.matmul)
    patch.setattr(
        NearestCentre,
        "expected_statistics",
        lambda self, records, posterior: DenseStatistics({"count": votes(product(records, posterior["centres"]))}),
    )


@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        (network_by_blas, "network 16 x 30, single precision"),
        (network_by_blas, "network 16 x 400"),
        (regression_by_blas, "regression of three classes"),
        (squares_by_blas, "regression of 70 columns, paper"),
        (images_by_blas, "thin clouds"),
        (images_by_blas, "thin clouds, spherical"),
        (answers_by_blas, "classes alike"),
        (chunks_not_filled_up, "nearest centre"),
    ],
)
def test_mutants_are_noticed(mutant, name, monkeypatch):
    says = "other bits|other statistics"
    check_notices(lambda: check_bits(Shares(MAKERS[name]), sizes=(1, 60, 90), shifts=()), mutant, monkeypatch, says)
