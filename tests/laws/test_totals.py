"""The law of totals over executors and sources, and broken copies of the code that it must notice."""

from __future__ import annotations

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client, LocalCluster

from tests.laws import totals
from tests.laws.cases import CASES
from tests.mutants import check_notices, of_laws
from vips import PrivacyPlan
from vips.core import engine
from vips.core import plan as plan_module
from vips.core.execution.partitions import Task, added
from vips.core.mechanism import lattice as _lattice
from vips.core.mechanism import noise, sampling
from vips.data import CSRShards, DaskSource, NpySource
from vips.models.topics.statistics import DocumentStatistics

BY_NAME = {case.name: case for case in CASES}
SIZE = totals.SIZE
NOT_THE_SUM = "not the sum of its sample over the public rate"


@pytest.fixture(scope="module")
def client():
    """A cluster in threads, which starts at once."""
    cluster = LocalCluster(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0")
    with cluster, Client(cluster) as client:
        yield client


def settled(name, sampling=0):
    """A case, its records, and a plan with hardly any noise."""
    case, (settings, _) = BY_NAME[name], totals.SAMPLINGS[sampling]
    records = case.make_records(40, np.random.default_rng(6))
    return case, records, PrivacyPlan(clip_norm=case.clip_norm, **totals.HARDLY, **settings)


@pytest.mark.parametrize("name", ["beta-bernoulli", "lda"])
@pytest.mark.parametrize("sampling", [0, 2], ids=["poisson", "full"])
def test_every_executor_sums_over_the_public_rate(name, sampling, client):
    """Processes start slowly, so ``tests/core/execution/test_executors.py`` compares their sums with these, bit by bit."""
    case, records, plan = settled(name, sampling)
    data, model = totals.in_partitions(records), case.make_model(privacy=plan, random_state=totals.SEED)
    totals.check_steps(totals.steps_of(model, data, executor=client), model, records, plan, data.sizes)


def npy(folder, X):
    np.save(folder / "X.npy", X)
    return NpySource(folder / "X.npy", partition_size=SIZE)


def shards(folder, X):
    for first in range(0, X.shape[0], SIZE):
        sp.save_npz(folder / f"{first:02d}.npz", sp.csr_array(X[first : first + SIZE]))
    return CSRShards(folder)


def dask_chunks(folder, X):
    return DaskSource(da.from_array(X, chunks=(SIZE, X.shape[1])))


@pytest.mark.parametrize(
    ("make", "name"), [(npy, "proportions"), (shards, "proportions sparse"), (dask_chunks, "proportions")]
)
def test_every_source_is_summed_over_the_public_rate(make, name, tmp_path):
    case, records, plan = settled(name)
    data, model = make(tmp_path, records), case.make_model(privacy=plan, random_state=totals.SEED)
    totals.check_steps(totals.steps_of(model, data), model, records, plan, data.sizes)


# -- mutants ----------------------------------------------------------------------------------------------------


def changed_share(patch, change):
    """Multiply every partition's share by a factor of what its worker knows: ``change(n_taken, n_records, rate)``."""
    original = Task.calls

    def mutant(task, partition, coins):
        n_records = partition.open().n_records
        factor = change(len(coins.rows(n_records)), n_records, task.plan.sampling_rate)
        total = added(call() for call in original(task, partition, coins))
        return iter([lambda: {name: value * factor for name, value in total.items()}])

    patch.setattr(Task, "calls", mutant)


def divided_by_the_realised_share_of_a_partition(patch):
    changed_share(patch, lambda n_taken, n_records, rate: rate * n_records / max(n_taken, 1))


def divided_by_the_number_taken_from_a_partition(patch):
    """A mean, times the expected number of records."""
    changed_share(patch, lambda n_taken, n_records, rate: round(rate * n_records) / max(n_taken, 1))


def small_shares_left_out(patch):
    changed_share(patch, lambda n_taken, *_: float(n_taken > 1))


def divided_by_the_realised_share_of_all(patch):
    original = engine.clipped_sum

    def mutant(model, blocks, data, posterior, plan, randomness, t, workers=None):
        total = original(model, blocks, data, posterior, plan, randomness, t, workers)
        sampler = plan.sampler(randomness, t)
        realised = sum(len(sampler(i).rows(n)) for i, n in enumerate(data.sizes)) / data.n_records
        return {name: value * (plan.sampling_rate / max(realised, 1e-9)) for name, value in total.items()}

    patch.setattr(engine, "clipped_sum", mutant)


def weights_relative_to_the_chunk(patch):
    original = plan_module.clip_weights

    def mutant(norms, clip_norm):
        weights = original(norms, clip_norm)
        return weights / max(np.max(weights, initial=0.0), 1e-300)

    patch.setattr(plan_module, "clip_weights", mutant)


def last_of_the_sample_left_out(patch):
    original = sampling.poisson_sample
    patch.setattr(sampling, "poisson_sample", lambda *arguments: original(*arguments)[:-1])


def coins_of_neighbouring_rows_shared(patch):
    original = sampling._coins
    patch.setattr(sampling, "_coins", lambda a, b, *arguments: np.repeat(original(a, b, *arguments)[::2], 2)[: b - a])


def documents_averaged(patch):
    original = DocumentStatistics.weighted_sum

    def mutant(self, weights):
        return {name: value * (2.0 / (1 + len(weights))) for name, value in original(self, weights).items()}

    patch.setattr(DocumentStatistics, "weighted_sum", mutant)


def rounded_to_sixteen_units(patch):
    original = _lattice.Lattice.rounded
    patch.setattr(
        _lattice.Lattice,
        "rounded",
        lambda self, array, block: 16 * original(replace(self, unit=16 * self.unit), array, block),
    )


def a_lattice_sixteen_times_coarser(patch):
    """With noise of the same size in fewer units."""
    original = _lattice.Lattice.for_blocks.__func__

    def mutant(cls, *arguments):
        lattice = original(cls, *arguments)
        return cls(16 * lattice.unit, lattice.noise_steps // 16)

    patch.setattr(_lattice.Lattice, "for_blocks", classmethod(mutant))


def rounding_towards_zero(patch):
    patch.setattr(
        _lattice.Lattice,
        "rounded",
        lambda self, array, block: np.trunc(
            totals._embedded(np.asarray(array), block) / (self.unit * block.scale)
        ).astype(np.int64),
    )


def noise_in_sixteen_units(patch):
    original = noise.rounded_gaussian
    patch.setattr(noise, "rounded_gaussian", lambda size, steps, bits: 16 * original(size, steps // 16, bits))


def noise_in_even_units(patch):
    original = noise.rounded_gaussian
    patch.setattr(noise, "rounded_gaussian", lambda size, steps, bits: original(size, steps, bits) // 2 * 2)


@of_laws(
    [
        (divided_by_the_realised_share_of_a_partition, "totals_are_sums_over_the_public_rate", "lda", NOT_THE_SUM),
        (divided_by_the_realised_share_of_a_partition, "totals_are_sums_over_the_public_rate", "logistic", NOT_THE_SUM),
        (divided_by_the_realised_share_of_a_partition, "totals_are_sums_over_the_public_rate", "network", NOT_THE_SUM),
        (divided_by_the_number_taken_from_a_partition, "totals_are_sums_over_the_public_rate", "lda", NOT_THE_SUM),
        (small_shares_left_out, "totals_are_sums_over_the_public_rate", "lda", NOT_THE_SUM),
        (divided_by_the_realised_share_of_all, "totals_are_sums_over_the_public_rate", "proportions", NOT_THE_SUM),
        (weights_relative_to_the_chunk, "totals_are_sums_over_the_public_rate", "lda", NOT_THE_SUM),
        (last_of_the_sample_left_out, "totals_are_sums_over_the_public_rate", "beta-bernoulli", NOT_THE_SUM),
        (coins_of_neighbouring_rows_shared, "totals_are_sums_over_the_public_rate", "beta-bernoulli", NOT_THE_SUM),
        (documents_averaged, "totals_are_sums_over_the_public_rate", "lda", NOT_THE_SUM),
        (rounded_to_sixteen_units, "records_are_rounded_as_finely_as_stated", "beta-bernoulli", "nearest unit"),
        (a_lattice_sixteen_times_coarser, "records_are_rounded_as_finely_as_stated", "lda", "nearest unit"),
        (a_lattice_sixteen_times_coarser, "records_are_rounded_as_finely_as_stated", "network", "nearest unit"),
        (rounding_towards_zero, "records_are_rounded_as_finely_as_stated", "second moments", "nearest unit"),
        (a_lattice_sixteen_times_coarser, "noise_uses_every_point_of_the_lattice", "lda", "leaves points"),
        (noise_in_sixteen_units, "noise_uses_every_point_of_the_lattice", "lda", "leaves points"),
        (noise_in_even_units, "noise_uses_every_point_of_the_lattice", "beta-bernoulli", "leaves points"),
    ]
)
def test_mutant_is_noticed(mutant, law, case, says, monkeypatch):
    check_notices(lambda: getattr(totals, law)(BY_NAME[case]), mutant, monkeypatch, says)
