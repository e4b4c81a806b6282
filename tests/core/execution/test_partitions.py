"""A partition's share, what its worker gets, and the tree of additions; with broken copies of the code to notice."""

from __future__ import annotations

import pickle
import threading
from dataclasses import replace
from functools import partial

import cloudpickle
import numpy as np
import pytest

from tests.laws.cases import CASES, BetaBernoulli
from tests.laws.checks import as_data
from tests.mutants import noticed
from tests.processors import with_processors
from vips import Block, DenseStatistics, PrivacyPlan
from vips.core.exact.threads import at_most, n_threads
from vips.core.execution import partitions
from vips.core.execution.partitions import Task, added
from vips.core.execution.tree import FAN_IN, TreeSum, add
from vips.core.mechanism import noise, sampling
from vips.core.mechanism.noise import Randomness
from vips.core.mechanism.sampling import PoissonCoins
from vips.core.mechanism.secret_bits import secret_bits
from vips.core.phases import phases_of, step_of
from vips.data import InMemoryData
from vips.models.topics.statistics import DocumentStatistics

PLAN = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.5, n_steps=2, clip_norm=1.5)


def data_of(records, size) -> InMemoryData:
    data = as_data(records)
    return InMemoryData(data._X, data._y, partition_size=size)


def shares_of(model, data, plan, t=1, randomness=None):
    """What workers get for one step: the task, and partitions with their coins."""
    model.n_features_in_ = data.n_features
    randomness = randomness or plan.randomness(model.random_state)
    phase, _ = step_of(phases_of(model, plan.n_steps), t)
    _, posterior = model.start(randomness.initial)
    task = Task.of_step(model, phase, posterior, plan, data.is_checked)
    sampler = plan.sampler(randomness, t)
    return task, [(partition, sampler(i)) for i, partition in enumerate(data.partitions)]


# -- the tree -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, FAN_IN - 1, FAN_IN, FAN_IN + 1, 3 * FAN_IN, FAN_IN**2, FAN_IN**2 + 5, 1000])
def test_a_stream_is_added_as_the_levels_of_a_cluster_are(n):
    rng = np.random.default_rng(n)
    totals = [{"a": rng.normal(size=3) * 10.0 ** rng.integers(-8, 8), "n": np.array(1)} for _ in range(n)]
    level = totals
    while len(level) > 1:
        level = [add(level[first : first + FAN_IN]) for first in range(0, len(level), FAN_IN)]
    tree, most = TreeSum(), 0
    for total in totals:
        tree.push({name: value.copy() for name, value in total.items()})
        most = max(most, sum(unfinished is not None for _, unfinished in tree._levels))
    result = tree.result()
    assert result["a"].tobytes() == level[0]["a"].tobytes()
    assert result["n"] == n
    assert most <= 1 + np.log(n) / np.log(FAN_IN)


def test_the_tree_is_not_a_line():
    """The test above would show nothing if every order gave the same digits."""
    totals = [{"a": np.array(value)} for value in np.random.default_rng(0).normal(size=1000)]
    tree = TreeSum()
    assert tree.result() is None
    for total in totals:
        tree.push({"a": total["a"].copy()})
    assert tree.result()["a"] != add(totals)["a"]


# -- what a worker gets ---------------------------------------------------------------------------------------------------


def walk(value, objects=None):
    """Every object inside."""
    objects = {} if objects is None else objects
    if id(value) in objects:
        return objects
    objects[id(value)] = value
    if isinstance(value, dict):
        children = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        children = list(value)
    else:
        children = list(getattr(value, "__dict__", {}).values())
    for child in children:
        walk(child, objects)
    return objects


def test_task_holds_nothing_to_make_noise_from():
    seed = 987_654_321_987_654_321
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=2, clip_norm=1.5, reproducible_noise=True)
    for state in (seed, np.random.default_rng(seed)):
        model = BetaBernoulli(privacy=plan, random_state=state)
        randomness = plan.randomness(seed)
        task, shares = shares_of(model, data_of(np.ones((30, 4)), 10), plan, randomness=randomness)
        sent = cloudpickle.dumps((task, shares))
        secret = [seed, int(noise._key(np.random.SeedSequence(randomness.noise_seed.entropy, spawn_key=(2, 1))))]
        for number in secret:
            for order in ("little", "big"):
                assert number.to_bytes(16, order).strip(b"\0") not in sent
        of_numpy = np.random.Generator, np.random.BitGenerator, np.random.SeedSequence, np.random.RandomState
        makers = (Randomness, *of_numpy)
        held = walk(pickle.loads(sent)).values()
        assert not [value for value in held if isinstance(value, makers)]
        assert not [value for value in held if type(value).__module__.startswith("randomgen")]
        assert not [value for value in held if isinstance(value, int) and value in secret]
        assert [coins.key for _, coins in shares] == [randomness.sampling_key] * 3  # only the key of the coins


def model_sent_as_it_is(patch):
    patch.setattr(Task, "__getstate__", lambda self: self.__dict__)


def randomness_sent_with_the_coins(patch):
    original = PrivacyPlan.sampler

    def mutant(self, randomness, step):
        def sampler(i):
            coins = original(self, randomness, step)(i)
            object.__setattr__(coins, "randomness", randomness)
            return coins

        return sampler

    patch.setattr(PrivacyPlan, "sampler", mutant)


# -- coins, shares, noise -------------------------------------------------------------------------------------------------


def check_a_share_computed_twice_is_the_same():
    for case in (CASES[0], next(case for case in CASES if case.name == "lda")):
        records = case.make_records(60, np.random.default_rng(0))
        model = case.make_model(privacy=PLAN, random_state=0)
        task, shares = shares_of(model, data_of(records, 20), PLAN)
        elsewhere_task, elsewhere = pickle.loads(cloudpickle.dumps((task, shares)))
        for share, again in zip(shares, elsewhere, strict=True):
            first = partitions.partition_sum(task, *share)
            for second in (partitions.partition_sum(task, *share), partitions.partition_sum(elsewhere_task, *again)):
                for name, value in first.items():
                    np.testing.assert_array_equal(second[name], value, err_msg="a share was not the same again")


def check_noise_is_drawn_once_however_many_partitions():
    """Totals of records that count for nothing are pure noise, of deviation σ C."""
    data = data_of(np.full((40, 200), np.nan), 4)
    plan = PrivacyPlan(noise_multiplier=3.0, sampling="full", n_steps=1, clip_norm=1.5)
    model = BetaBernoulli(privacy=plan)
    model.step_size = lambda t: 1.0
    values = np.concatenate([model.fit(data).noisy_totals_.average["heads"] for _ in range(10)])
    ratio = values.std() / (3.0 * 1.5)
    assert abs(ratio - 1.0) < 5.0 / np.sqrt(2.0 * len(values)), f"noise is {ratio:.2f} of what the plan states"


def coins_flipped_anew(patch):
    original = sampling.poisson_sample
    patch.setattr(
        sampling, "poisson_sample", lambda a, b, q, key, step, part: original(a, b, q, secret_bits(128), step, part)
    )


def noise_by_partition(patch):
    original = Task.calls

    def mutant(task, partition, coins):
        total, rng = added(call() for call in original(task, partition, coins)), np.random.default_rng(secret_bits(128))
        return iter([partial(noise.add_noise, total, task.blocks, task.plan.noise_std(), rng)])

    patch.setattr(Task, "calls", mutant)


# -- sums that are not copied ---------------------------------------------------------------------------------------------


class Reusing(DenseStatistics):
    """Writes every sum to the same array, as a model with large sums might."""

    kept: dict = {}

    def weighted_sum(self, weights):
        for name, value in super().weighted_sum(weights).items():
            self.kept.setdefault(name, np.empty_like(value))[...] = value
        return self.kept


def fit_reusing(plan, chunk_size):
    """Fit to five hundred rows of ones, in two partitions."""
    model = BetaBernoulli(privacy=plan)
    model.expected_statistics = lambda records, _: Reusing({"heads": records, "count": np.ones(len(records))})
    model.chunk_size = chunk_size
    Reusing.kept = {}
    return model.fit(data_of(np.ones((500, 2)), 250))


def check_arrays_of_a_model_are_not_added_to():
    model = fit_reusing(PrivacyPlan.non_private(n_steps=1), 4)
    np.testing.assert_allclose(model.last_posterior_["a"], 501.0)


def check_sums_declared_new_share_no_memory():
    """They share no memory with other sums, and a change in one sum changes no later one."""
    n_checked = 0
    for case in CASES:
        model = case.make_model(privacy=PLAN, random_state=0)
        task, ((partition, _),) = shares_of(model, data_of(case.make_records(20, np.random.default_rng(0)), 100), PLAN)
        (records,) = partition.open().chunks(np.arange(20), 1_000)
        statistics, weights = task.statistics_of(records), np.linspace(0.0, 1.0, 20)
        if not statistics.sums_are_new:
            continue
        lattice = replace(PLAN, noise="discrete").lattice(task.blocks)
        rounded_sum = partial(statistics.rounded_sum, blocks=task.blocks, lattice=lattice)
        for sums in (statistics.weighted_sum, rounded_sum):
            first, second = sums(weights), sums(weights)
            for name, value in first.items():
                value += 1
                assert not np.shares_memory(value, second[name]), f"{case.name} keeps its sums"
            for name, value in sums(weights).items():
                np.testing.assert_array_equal(value, second[name], err_msg=f"{case.name} keeps its sums")
        n_checked += 1
    assert n_checked > 0


@pytest.mark.parametrize("chunk_size", [240, 1000], ids=["chunks", "partitions"])
def test_sums_in_the_same_memory_are_not_added(chunk_size, monkeypatch):
    """A record would count twice, for more than the sensitivity."""
    monkeypatch.setattr(Reusing, "sums_are_new", True)
    with pytest.raises(ValueError, match="sums_are_new"):
        fit_reusing(replace(PLAN, sampling_rate=1.0), chunk_size)


def not_copied(patch):
    patch.setattr(Reusing, "sums_are_new", True)
    patch.setattr(np, "may_share_memory", lambda *_: False)


def sums_kept(patch):
    original = DocumentStatistics.weighted_sum

    def mutant(self, weights):
        if not hasattr(self, "kept"):
            self.kept = original(self, weights)
        return self.kept

    patch.setattr(DocumentStatistics, "weighted_sum", mutant)


CHECKS = [
    check_a_share_computed_twice_is_the_same, check_noise_is_drawn_once_however_many_partitions,
    check_arrays_of_a_model_are_not_added_to, check_sums_declared_new_share_no_memory,
]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_partitions(check):
    check()


test_mutant_is_noticed = noticed(
    (model_sent_as_it_is, test_task_holds_nothing_to_make_noise_from),
    (randomness_sent_with_the_coins, test_task_holds_nothing_to_make_noise_from),
    (coins_flipped_anew, check_a_share_computed_twice_is_the_same),
    (noise_by_partition, check_noise_is_drawn_once_however_many_partitions),
    (not_copied, check_arrays_of_a_model_are_not_added_to),
    (sums_kept, check_sums_declared_new_share_no_memory),
)


class OneNumber(BetaBernoulli):
    """Sums that do not have the shape of their block would get one noise draw for several numbers."""

    def blocks(self):
        return super().blocks() | {"heads": Block(())}


def test_sums_have_the_declared_shapes():
    model = OneNumber(privacy=PLAN)
    model.initial = lambda rng: {"heads": np.zeros(()), "count": np.zeros(())}
    model.expected_statistics = lambda records, posterior: Unchecked({"heads": records, "count": np.ones(len(records))})
    with pytest.raises(ValueError, match="'heads' is declared"):
        model.fit(np.ones((8, 3)))


def test_memory_order_does_not_tell_whether_the_sample_was_empty():
    """Rounding of later products depends on the memory order."""
    for case in CASES:
        model = case.make_model(privacy=PLAN, random_state=0)
        records = case.make_records(5, np.random.default_rng(0))
        model.takes_one_label &= np.ndim(getattr(records, "y", 0.0)) < 2  # an exposure may stand beside it
        task, ((partition, _),) = shares_of(model, data_of(records, 10), PLAN)
        for rate in (1e-12, 1.0):
            total = partitions.partition_sum(task, partition, PoissonCoins(rate, 0, 1, 0))
            assert any(value.any() for value in total.values()) is (rate == 1.0)
            assert all(value.flags.c_contiguous for value in total.values()), case.name


class Unchecked(DenseStatistics):
    def norms(self, blocks):
        return np.ones(len(self.arrays["count"]))


# -- threads --------------------------------------------------------------------------------------------------------------


def test_kernels_of_a_worker_keep_to_their_threads(monkeypatch):
    with_processors(monkeypatch, 8)
    seen = []
    with at_most(3):
        other = threading.Thread(target=lambda: seen.append(n_threads()))
        other.start()
        other.join()
        with at_most(2):
            assert n_threads() == 2
        assert n_threads() == 3
    assert n_threads() == 8
    assert seen == [8]  # a limit holds for one thread
