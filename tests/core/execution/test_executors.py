"""Every executor gives the same posterior, also when workers or coordinators die, and no error quotes a record."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import traceback
from dataclasses import replace

import dask
import dask.array as da
import joblib
import numba
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import threadpoolctl
from distributed import Client, LocalCluster

from tests.core.execution.dying import Dies
from tests.laws.cases import CASES, BetaBernoulli, arguments, exposures
from tests.plans import REPLACED
from tests.processors import with_processors
from vips import (
    BayesianLogisticRegression,
    CategoricalHMM,
    LatentDirichletAllocation,
    PrivacyLedger,
    PrivacyPlan,
    SigmoidBeliefNetwork,
)
from vips.core.exact import threads
from vips.core.exact.threads import n_threads
from vips.core.execution import partitions
from vips.data import (
    CSRShards,
    DaskSource,
    InMemoryData,
    InMemoryTexts,
    NpySource,
    Sequences,
    SequenceSource,
    SourceError,
    TextFiles,
    TextPartitions,
    check_data,
    regroup,
    write_sequences,
)
from vips.exceptions import PartitionError
from vips.executors.resolve import resolve
from vips.models.belief_networks import posterior as sbn_posterior
from vips.models.topics import statistics as lda_statistics
from vips.preprocessing import PrivateCountVectorizer

PLAN = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=3, clip_norm=1.5, reproducible_noise=True)
CHARGED = replace(PLAN, reproducible_noise=False, noise_multiplier=20.0)
COINS = np.random.default_rng(0).integers(0, 2, (60, 3)).astype(float)


@pytest.fixture(scope="module")
def client(forkserver):
    cluster = LocalCluster(processes=True, n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with cluster, Client(cluster) as client:
        yield client


@pytest.fixture
def ledger(tmp_path):
    return PrivacyLedger(tmp_path / "a.ledger", 500.0, 1e-5, "coins")


@pytest.fixture(params=["threads", "processes", "dask"])
def executor(request, forkserver):
    named = {"threads": None, "processes": "processes"}
    return request.getfixturevalue("client") if request.param == "dask" else named[request.param]


def in_parts(*records, size=15) -> InMemoryData:
    data = InMemoryData(*records) if isinstance(records[0], Sequences) else check_data(*records)
    return InMemoryData(data._X, data._y, partition_size=size)


def arrays_of(model) -> dict[str, np.ndarray]:
    posterior = model.last_posterior_
    return posterior if isinstance(posterior, dict) else posterior.to_arrays()


def coins(**settings) -> BetaBernoulli:
    return BetaBernoulli(**({"privacy": PLAN, "random_state": 0} | settings))


def heads(executor=None, records=COINS, **settings) -> np.ndarray:
    """Numbers of the posterior of a fit."""
    data = records if isinstance(records, InMemoryData) else in_parts(records)
    return coins(**settings).fit(data, executor=executor).last_posterior_["a"]


# -- the same result ------------------------------------------------------------------------------------------------------


def check_equal(name_of_case, first, *others):
    """To the last bit."""
    for other in others:
        for name, value in first.items():
            np.testing.assert_array_equal(other[name], value, err_msg=f"{name_of_case}: {name}")


WITHOUT_EXPOSURES = [case for case in CASES if not exposures(case.make_records(2, np.random.default_rng(0)))]
FEW_AND_ALL = [
    pytest.param([case for case in CASES if case.name in ("beta-bernoulli", "proportions")], id="two"),
    pytest.param(WITHOUT_EXPOSURES, id="all", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
@pytest.mark.parametrize("cases", FEW_AND_ALL)
@pytest.mark.repeated("two-discrete")
def test_every_executor_gives_every_model_the_same_posterior(cases, noise, client):
    """Bit by bit: partitions, coins and the order of additions are the same."""
    for case in cases:
        plan = replace(PLAN, clip_norm=case.clip_norm, noise=noise, n_steps=2)
        data = in_parts(*arguments(case.make_records(40, np.random.default_rng(1))), size=10)
        fits = [
            case.make_model(privacy=plan, random_state=5).fit(data, executor=executor)
            for executor in (None, "processes", client)
        ]
        check_equal(case.name, *map(arrays_of, fits))


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
@pytest.mark.parametrize("cases", FEW_AND_ALL)
def test_the_number_of_threads_changes_no_bit(cases, noise, monkeypatch):
    """Chunks end in any order; they hold persons, some of whom are larger than a chunk, or records."""
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 5)
    original, seen = partitions.chunk_sum, set()

    def delayed(*arguments):
        seen.add(threading.get_ident())
        time.sleep(random.random() / 2_000)
        return original(*arguments)

    monkeypatch.setattr(partitions, "chunk_sum", delayed)
    for case in cases:
        records = arguments(case.make_records(60, np.random.default_rng(1)))
        for groups in (None, np.arange(60) // 8):
            most = None if groups is None else 5
            plan = replace(PLAN, clip_norm=case.clip_norm, noise=noise, n_steps=2, max_rows_per_group=most)
            fits = []
            for n in (1, 2, 5):
                monkeypatch.setattr(threads, "_processors", n)
                model = case.make_model(privacy=plan, random_state=5)
                model.chunk_size = 3
                fits.append(arrays_of(model.fit(in_parts(*records, size=25), groups=groups)))
            check_equal(case.name, *fits)
    assert len(seen) > 2


@pytest.mark.repeated("processes")
def test_every_source_gives_every_executor_the_same_posterior(executor, tmp_path):
    X, y = np.random.default_rng(2).normal(size=(60, 3)), COINS[:, 0]
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    for first in range(0, 60, 15):
        S, rows = sp.csr_array(X[first : first + 15]), slice(first, first + 15)
        parts = {"data": S.data, "indices": S.indices, "indptr": S.indptr, "y": y[rows]}
        np.savez(tmp_path / f"part_{first:02d}.npz", format=b"csr", shape=S.shape, **parts)
    files = NpySource(tmp_path / "X.npy", tmp_path / "y.npy", partition_size=15)
    collection = DaskSource(da.from_array(X, chunks=(15, 3)), da.from_array(y, chunks=15))

    def fit(source, executor):
        model = BayesianLogisticRegression(privacy=PLAN, max_norm=3.0, random_state=0)
        return model.fit(source, executor=executor).last_posterior_.mean

    expected = fit(in_parts(X, y), None)
    for source in (in_parts(X, y), files, collection):
        np.testing.assert_array_equal(fit(source, executor), expected)
    expected = fit(in_parts(sp.csr_array(X), y), None)
    np.testing.assert_array_equal(fit(CSRShards(tmp_path, labels="y"), executor), expected)


@pytest.mark.representatives("threads")
def test_every_source_of_sequences_gives_every_executor_the_same_posterior(executor, tmp_path):
    rng = np.random.default_rng(3)
    sequences = Sequences.from_list([rng.integers(0, 5, n) for n in rng.integers(0, 12, 60)])
    parts = [sequences[first : first + 15] for first in range(0, 60, 15)]
    pq.write_table(
        pa.table({"codes": [row[:, 0].tolist() for row in sequences]}), tmp_path / "s.parquet", row_group_size=15
    )
    write_sequences(parts, tmp_path / "shards")
    persons = regroup(InMemoryData(sequences), by=np.arange(60) % 20, to=tmp_path / "persons", n_partitions=4)
    for plan in (replace(PLAN, n_steps=2), PrivacyPlan.non_private(sampling_rate=1.0, n_steps=2)):

        def fit(source, executor, plan=plan):
            model = CategoricalHMM(2, n_symbols=5, max_length=20, privacy=plan, random_state=0)
            return model.fit(source, executor=executor).last_posterior_.emissions.concentration

        expected = fit(InMemoryData(sequences, partition_size=15), None)
        for source in (
            InMemoryData(sequences, partition_size=15),
            SequenceSource.from_shards(tmp_path / "shards", partition_size=15),
            SequenceSource.from_parquet(tmp_path / "s.parquet", "codes"),
            SequenceSource.from_dask(list(map(dask.delayed, parts))),
        ):
            np.testing.assert_array_equal(fit(source, executor), expected)
        np.testing.assert_array_equal(fit(persons, executor), fit(persons, None))


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
@pytest.mark.representatives("threads-gaussian", "dask-discrete")
def test_persons_on_disk_are_the_same_for_every_executor(noise, executor, tmp_path):
    rng = np.random.default_rng(2)
    X, y, ids = rng.normal(size=(200, 3)), rng.integers(0, 2, 200).astype(float), rng.integers(0, 40, 200)
    plan = replace(PLAN, noise=noise, max_rows_per_group=4)
    for i, rows in enumerate((X, sp.csr_array(X))):
        source = regroup(rows, y, by=ids, to=tmp_path / str(i), n_partitions=5)
        fits = [
            BayesianLogisticRegression(privacy=plan, max_norm=3.0, random_state=0).fit(source, executor=runner)
            for runner in (None, executor)
        ]
        np.testing.assert_array_equal(fits[1].last_posterior_.mean, fits[0].last_posterior_.mean)
        assert fits[1].privacy_.unit == "all rows of one group"


def test_more_partitions_than_a_node_of_the_tree_holds(client):
    rng = np.random.default_rng(0)
    data = in_parts(
        rng.normal(size=(300, 2)) * 10.0 ** rng.integers(-3, 3, (300, 1)), (rng.random(300) < 0.5) * 1.0, size=7
    )
    assert data.n_partitions == 43
    fits = [
        BayesianLogisticRegression(privacy=PLAN, max_norm=9.0, random_state=0).fit(data, executor=executor)
        for executor in (None, client)
    ]
    np.testing.assert_array_equal(fits[1].last_posterior_.mean, fits[0].last_posterior_.mean)


@pytest.mark.parametrize("records", [COINS[:0], np.full((20, 3), np.nan)], ids=["none", "all defective"])
def test_no_usable_record_is_ordinary(records, executor):
    np.testing.assert_array_equal(heads(executor, records), heads(None, records))


class Strict(BetaBernoulli):
    def expected_statistics(self, records, posterior):
        assert set(np.geterr().values()) == {"ignore"}
        return super().expected_statistics(records, posterior)


@pytest.mark.repeated("processes")
def test_full_batches_and_non_private_fits(executor):
    full = replace(REPLACED, reproducible_noise=True)
    for plan in (full, PrivacyPlan.non_private(sampling_rate=0.5, n_steps=3), None):
        np.testing.assert_array_equal(heads(executor, privacy=plan), heads(privacy=plan))
    Strict(privacy=PLAN, random_state=0).fit(
        in_parts(COINS), executor=executor
    )  # where floating-point warnings are off


def test_every_backend_of_joblib_gives_the_same_posterior(client):
    for settings in ({"backend": "threading", "n_jobs": 2}, {"n_jobs": 1}, {"backend": "dask", "client": client}):
        with joblib.parallel_config(**settings):
            np.testing.assert_array_equal(heads("joblib"), heads(), err_msg=str(settings))
    names = [type(resolve(name)).__name__ for name in (None, "joblib", "processes")]
    assert names == ["Threads", "Joblib", "Joblib"]


# -- losses ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("executor", "losses"),
    [("processes", 1), ("dask", 1), pytest.param("dask", 2, marks=pytest.mark.slow)],
    indirect=["executor"],
)
def test_killed_workers_cost_time_and_change_nothing(losses, executor, tmp_path, monkeypatch):
    noised, original = [], PrivacyPlan.add_noise

    def add_noise(self, total, blocks, randomness, step):
        noised.append(step)
        return original(self, total, blocks, randomness, step)

    def arm(t):
        if t == 2:
            for i in range(losses):
                (tmp_path / f"die{i}").touch()
        return type(model).__mro__[1].step_size(model, t)

    monkeypatch.setattr(PrivacyPlan, "add_noise", add_noise)
    model = Dies(str(tmp_path), PLAN, 0)
    model.step_size = arm
    fitted = model.fit(in_parts(COINS), executor=executor)
    assert not list(tmp_path.glob("die*"))
    assert noised == [1, 2, 3]  # once in each step, however often its shares were computed
    np.testing.assert_array_equal(fitted.last_posterior_["a"], heads())


def coordinator(address, checkpoint):
    original = PrivacyPlan.add_noise

    def dies(self, total, blocks, randomness, step):
        if step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, total, blocks, randomness, step)

    PrivacyPlan.add_noise = dies
    with Client(address) as client:
        coins().fit(in_parts(COINS), checkpoint=checkpoint, executor=client)


def test_a_killed_coordinator_goes_on_from_its_checkpoint(client, forkserver, tmp_path):
    checkpoint = tmp_path / "fit.vips"
    process = forkserver.Process(target=coordinator, args=(client.scheduler.address, checkpoint))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert checkpoint.exists()
    fitted = coins().fit(in_parts(COINS), checkpoint=checkpoint, executor=client)
    np.testing.assert_array_equal(fitted.last_posterior_["a"], heads())


def test_a_cluster_without_workers_and_unknown_executors_are_refused_before_anything_is_charged(ledger):
    def fit(executor):
        coins(privacy=CHARGED).fit(in_parts(COINS), ledger=ledger, executor=executor)

    with (
        LocalCluster(processes=False, n_workers=0, dashboard_address=":0") as cluster,
        Client(cluster) as without_workers,
        pytest.raises(ValueError, match="has no workers"),
    ):
        fit(without_workers)
    with pytest.raises(ValueError, match="client is closed"):
        fit(without_workers)
    for wrong, error in (("serial", ValueError), (3, TypeError), (object(), TypeError)):
        with pytest.raises(error, match="`executor` must be None"):
            fit(wrong)
    assert ledger.runs() == []


class Slow(BetaBernoulli):
    def expected_statistics(self, records, posterior):
        time.sleep(0.1)
        return super().expected_statistics(records, posterior)


def test_a_step_is_given_up_when_all_workers_have_left(ledger):
    with (
        dask.config.set({"distributed.scheduler.no-workers-timeout": "300ms"}),
        LocalCluster(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as leaving,
    ):
        leave = threading.Timer(0.5, lambda: cluster.scale(0))
        leave.start()
        with pytest.raises(PartitionError, match=r"no workers|were lost"):
            Slow(privacy=CHARGED).fit(in_parts(COINS, size=2), ledger=ledger, executor=leaving)
        leave.join()
    (run,) = ledger.runs()
    assert (run.released, run.charged) == (0, 0)


# -- what may be raised ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["threads", "dask"], indirect=True)
def test_an_invalid_record_stops_a_fit_that_asked_for_it(executor):
    bad = COINS.copy()
    bad[40] = np.nan
    with pytest.raises(ValueError, match="outside the privacy guarantee"):
        coins(on_invalid="raise", privacy=replace(PLAN, sampling_rate=1.0)).fit(in_parts(bad), executor=executor)


@pytest.mark.parametrize("executor", ["threads", "dask"], indirect=True)
def test_a_broken_shard_is_named_by_every_executor(executor, tmp_path):
    for i in range(3):
        sp.save_npz(tmp_path / f"{i}.npz", sp.csr_array(COINS))
    (tmp_path / "1.npz").write_bytes(b"PK torn")
    with pytest.raises(SourceError, match=r"1\.npz cannot be read"):
        LatentDirichletAllocation(2, vocabulary=3, privacy=PLAN).fit(CSRShards(tmp_path), executor=executor)


# -- threads --------------------------------------------------------------------------------------------------------------


class Counts(BetaBernoulli):
    seen = []

    def expected_statistics(self, records, posterior):
        blas = {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}
        self.seen.append((n_threads(), *blas))
        return super().expected_statistics(records, posterior)


@pytest.mark.parametrize("plan", [PLAN, PrivacyPlan.non_private(n_steps=3)], ids=["private", "not private"])
def test_threads_share_the_processors(plan, monkeypatch):
    with_processors(monkeypatch, 4, is_pool_new=True)
    Counts.seen.clear()
    with threadpoolctl.threadpool_limits(4, user_api="blas"):
        Counts(privacy=plan, random_state=0).fit(in_parts(COINS))
        after = {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}
    assert set(Counts.seen) == {(4, 1)}  # kernels are shared with threads that have nothing else to do
    assert after == {4}
    assert n_threads() == 4


def test_workers_of_joblib_have_an_equal_part_each(monkeypatch):
    with_processors(monkeypatch, 4)
    monkeypatch.setattr(joblib, "cpu_count", lambda: 4)
    Counts.seen.clear()
    with joblib.parallel_config(backend="threading", n_jobs=2):
        Counts(privacy=PLAN, random_state=0).fit(in_parts(COINS), executor="joblib")
    assert {kernels for kernels, *_ in Counts.seen} == {2}


class Shared(BetaBernoulli):
    """Each of three partitions is twenty pieces of work for a kernel."""

    lock, running, most, helped, prepared, exact_rows = threading.Lock(), 0, 0, False, 0, True

    def prepare(self, posterior):
        type(self).prepared += 1

    def expected_statistics(self, records, posterior):
        caller = threading.get_ident()

        def kernel(*_):
            with self.lock:
                type(self).running += 1
                type(self).most = max(self.most, self.running)
            time.sleep(0.005)
            with self.lock:
                type(self).running -= 1
            type(self).helped |= threading.get_ident() != caller

        threads.run_ranges(kernel, np.arange(20))
        return super().expected_statistics(records, posterior)


def test_a_thread_without_a_partition_helps_with_those_of_others(monkeypatch):
    with_processors(monkeypatch, 2, is_pool_new=True)
    model = Shared(privacy=replace(PLAN, sampling_rate=1.0), random_state=0).fit(in_parts(COINS, size=20))
    np.testing.assert_array_equal(
        model.last_posterior_["a"], heads(None, in_parts(COINS, size=20), privacy=model.privacy)
    )
    assert (Shared.most, Shared.helped, Shared.prepared) == (2, True, PLAN.n_steps)


@pytest.mark.parametrize(
    ("owner", "name", "model"),
    [
        (lda_statistics, "fill_word_weights", LatentDirichletAllocation(2, vocabulary=3, document_length=10)),
        (sbn_posterior, "_FullSpread", SigmoidBeliefNetwork(2, covariance="full")),
    ],
)
def test_what_all_threads_need_of_a_posterior_is_computed_once(owner, name, model, monkeypatch):
    with_processors(monkeypatch, 2)
    monkeypatch.setattr(joblib, "cpu_count", lambda: 2)
    original, calls = getattr(owner, name), []

    def slow(*arguments):
        calls.extend([None] * (len(arguments) < 4 or arguments[3] == 0))  # of words, the first range
        time.sleep(0.05)
        return original(*arguments)

    monkeypatch.setattr(owner, name, slow)
    model.set_params(privacy=PrivacyPlan.non_private(n_steps=3)).fit(in_parts(COINS))
    assert len(calls) == 3
    with joblib.parallel_config(backend="threading", n_jobs=2):
        model.fit(in_parts(COINS), executor="joblib")
    assert len(calls) == 6


@pytest.mark.parametrize(
    "executor", ["threads", "dask", pytest.param("processes", marks=pytest.mark.slow)], indirect=True
)
def test_changes_in_a_copy_on_write_map_are_fitted(executor, tmp_path):
    """Joblib sends a memory map as the name of its file, which does not hold such changes."""
    np.save(tmp_path / "X.npy", COINS)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="c")
    mapped[:30] = 1.0 - mapped[:30]
    data = InMemoryData(mapped, partition_size=15)
    np.testing.assert_array_equal(heads(executor, data), heads(None, np.array(mapped)))
    assert data.partition(0).__getstate__()["X"].base is None


# -- errors; last, because each ends joblib's processes ---------------------------------------------------------------------


class Quotes(BetaBernoulli):
    def expected_statistics(self, records, posterior):
        raise ValueError(f"cannot use {records.tolist()}")


@pytest.mark.parametrize("executor", ["processes", "dask"], indirect=True)
@pytest.mark.repeated("processes")
def test_errors_of_workers_quote_no_record(executor, monkeypatch):
    monkeypatch.setattr(PrivacyPlan, "add_noise", lambda *_: pytest.fail("noise was drawn"))
    records = np.full((30, 3), 1.0)
    with pytest.raises(PartitionError, match=r"ValueError in expected_statistics \(test_executors.py") as raised:
        Quotes(privacy=PLAN, random_state=0).fit(in_parts(records), executor=executor)
    chain, error = [], raised.value
    while error is not None:
        chain += [str(error), repr(error.args)]
        error = error.__cause__ or error.__context__
    assert "1.0" not in " ".join(chain)
    assert "cannot use" not in " ".join(traceback.format_exception(raised.value)).replace('f"cannot use', "")
    if executor == "processes":  # new processes for every error take time
        return
    with pytest.raises(ValueError, match="cannot use"):  # without privacy the error may quote records
        Quotes(privacy=PrivacyPlan.non_private(n_steps=1)).fit(in_parts(records), executor=executor)


@pytest.mark.parametrize(
    "executor", ["threads", "dask", pytest.param("processes", marks=pytest.mark.slow)], indirect=True
)
def test_errors_of_a_collection_quote_no_record(executor):
    """They are raised where Dask computes a chunk, which is not always inside a share."""

    def parse(block):
        raise ValueError(f"cannot parse {block.tolist()}")

    lazy = da.from_array(np.full((30, 3), 1.0), chunks=(15, 3)).map_blocks(parse, dtype=float)
    with pytest.raises((PartitionError, SourceError), match="ValueError") as raised:
        coins().fit(lazy, executor=executor)
    shown = "".join(traceback.format_exception(raised.value))
    assert raised.value.__context__ is None
    assert "1.0" not in str(raised.value)
    assert "[[1.0" not in shown


# -- words of texts ---------------------------------------------------------------------------------------------


@pytest.mark.representatives("threads")
def test_words_of_texts_are_the_same_with_every_executor(executor, tmp_path):
    """Vocabulary, totals, and topics of its counts; records in memory and on disk."""
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 30, 8)) for _ in range(120)]
    for i, text in enumerate(texts):
        (tmp_path / f"{i:03d}.txt").write_text(text)
    exact = PrivacyPlan(noise_multiplier=1e-9, sampling="full", n_steps=1)
    plan = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=2, clip_norm=2.0, reproducible_noise=True)
    for source in (InMemoryTexts(texts, 9), TextFiles(tmp_path, partition_size=9)):
        fits = []
        for how in (None, executor):
            words = PrivateCountVectorizer(privacy=exact, threshold_delta=0.1).fit(source, executor=how)
            model = LatentDirichletAllocation(2, vocabulary=words.vocabulary, privacy=plan, random_state=0)
            fits.append((words, model.fit(words.transform(source), executor=how)))
        (one, topics), (other, same) = fits
        assert one.vocabulary_ == other.vocabulary_ == {word: i for i, word in enumerate(sorted(one.vocabulary_))}
        assert len(one.vocabulary_) == 30
        assert other.round_totals_ == pytest.approx(one.round_totals_, abs=1e-6)
        np.testing.assert_allclose(same.components_, topics.components_, rtol=1e-12)


def test_errors_of_texts_on_a_cluster_quote_no_document(client):
    def broken():
        raise ValueError("Amalie owes me ten crowns")

    words = PrivateCountVectorizer(
        privacy=PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=1), threshold_delta=1e-6
    )
    with pytest.raises(SourceError, match="its function raised ValueError") as caught:
        words.fit(TextPartitions([broken, broken]), executor=client)
    assert "Amalie" not in "".join(traceback.format_exception(caught.value))
    assert words.fit(TextPartitions([]), executor=client).vocabulary_ == {}
