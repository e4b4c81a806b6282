"""All rows of one person are one record: which rows these are, and what a step does with them."""

from __future__ import annotations

import datetime
import decimal
import subprocess
import sys
import uuid
import warnings
from dataclasses import replace
from itertools import chain, islice, pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline

from tests.laws.cases import CASES, REPRESENTATIVES, BetaBernoulli, SecondMoments, arguments, exposures
from tests.laws.checks import last_phase
from tests.mutants import check_notices
from tests.steps import Stop, stopped_after
from vips import BayesianLogisticRegression, DirichletMultinomial, PrivacyLedger, PrivacyPlan
from vips.core import engine
from vips.core.execution import partitions
from vips.core.mechanism.lattice import SENSITIVITY_FACTOR, Lattice
from vips.core.records.groups import canonical_id, group_numbers, ids_and_numbers
from vips.core.sums import Block, DenseStatistics, RecordStatistics
from vips.data import InMemoryData, NpySource
from vips.door import Beside, persons_of
from vips.exceptions import LedgerError
from vips.models.regression.mixed.contract import MixedRegression
from vips.models.regression.mixed.posterior import MixedPosterior
from vips.preprocessing import TableEncoder

PLAN = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=2, clip_norm=1.0)
KINDS = [case for case in CASES if case.name in REPRESENTATIVES]
MIXED = {case.name: case for case in CASES if case.name in ("mixed effects", "mixed effects of counts")}
of_every_kind = pytest.mark.parametrize("case", KINDS, ids=lambda case: case.name)


def in_groups(X, y=None, groups=None, **settings):
    return InMemoryData(X, y, **settings).grouped(group_numbers(groups, len(X)))


def rows_of(data, max_rows=None):
    """The rows of a column, as a step takes them."""
    chunks = [
        list(p.open().at_most(max_rows).chunks(np.arange(n), 2))
        for p, n in zip(data.partitions, data.sizes, strict=True)
    ]
    return [row for chunk in chain(*chunks) for row in chunk.rows.ravel().tolist()]


# -- ids ----------------------------------------------------------------------------------------------------


class Hostile(str):
    def encode(self, *arguments):
        raise RuntimeError


class HostileNumber(int):
    def __int__(self):
        raise RuntimeError


SAME = [
    [1, 1.0, True, np.int8(1), np.uint64(1), np.float64(1.0), np.bool_(True), decimal.Decimal("1.00"), "1", b"1"],
    ["a", np.str_("a"), Hostile("a"), b"a", bytearray(b"a"), memoryview(b"a"), np.bytes_(b"a")],
    [-5, -5.0, "-5", decimal.Decimal(-5)], [0, False, -0.0, "0"], ["01"], ["+1"], [" 1"], ["1.0", b"1.0"], ["True"],
    [2**53 - 1, 2.0**53 - 1, str(2**53 - 1)], [2**70, decimal.Decimal(2**70), str(2**70)], [10**600], ["\ud800"], ["", b""],
    [b"\xff"], [uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"], [(1, "a"), ("1", "a")], [("1", "1a")],
    [("11", "a")],
]  # fmt: skip
NOBODY = [
    None,
    np.nan,
    pd.NA,
    pd.NaT,
    np.inf,
    1.5,
    decimal.Decimal("1.5"),
    decimal.Decimal("sNaN"),
    decimal.Decimal("Infinity"),
    decimal.Decimal("1e999999"),
    datetime.date(2020, 1, 1),
    ("a", None),
    ["a"],
    object(),
    np.timedelta64(1),
    np.float32(1.0),
    np.float16(1.0),
    np.longdouble(1.0),
    2.0**53,
    10**5000,
    np.ma.masked,
    1j,
    HostileNumber(1),
]


def test_ids_are_equal_as_stated():
    forms = [{canonical_id(value) for value in values} for values in SAME]
    assert all(len(form) == 1 for form in forms)
    assert len(set().union(*forms)) == len(SAME)
    assert None not in set().union(*forms)
    assert {canonical_id(value) for value in NOBODY} == {None}


def test_ids_are_equal_in_another_process():
    values = 1, "a", b"a", 2.0, -7
    code = f"from vips.core.records.groups import canonical_id; print([canonical_id(value) for value in {values}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env={"PYTHONHASHSEED": "5"})
    assert done.stdout.decode().strip() == str([canonical_id(value) for value in values])


@pytest.mark.parametrize("form", [np.int64, np.uint8, float, str, "S", object, "Int64", "string", "category", "int32[pyarrow]",
                                  "string[pyarrow]", pa.large_string(), pa.binary(), pa.decimal128(9, 2)])  # fmt: skip
def test_one_id_of_text_makes_no_other_persons(form):
    """It makes a column of text of a column of numbers, in which all persons are who they were."""
    numbers = np.array([7, 8, 7, 12])
    texts = numbers.astype(str)
    if isinstance(form, pa.DataType):
        ids = pa.array([*map(decimal.Decimal, texts)] if pa.types.is_decimal(form) else texts.tolist()).cast(form)
    elif isinstance(form, str) and form != "S":
        ids = pd.Series(texts if "string" in form else numbers, dtype=form)
    else:
        ids = numbers.astype(form)
    persons, places = ids_and_numbers(ids, 4)
    persons_later, places_later = ids_and_numbers(np.array([*numbers.astype(str), "X7"]), 5)
    persons, persons_later = list(persons), list(persons_later)
    assert [persons[i] for i in places] == [persons_later[i] for i in places_later[:4]]


IDS = [3, 1, 3, 2, 1, 3]
CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "int64": np.array,
    "uint8": lambda ids: np.array(ids, np.uint8),
    "float": lambda ids: np.array(ids, float),
    "strings": lambda ids: np.array(ids).astype(str),
    "bytes": lambda ids: np.array(ids).astype("S"),
    "objects": lambda ids: np.array([ids[0], float(ids[1]), *ids[2:]], object),
    "series": lambda ids: pd.Series(ids, index=[5, 5, 1, 2, 0, 9]),
    "nullable": lambda ids: pd.Series(ids, dtype="Int64"),
    "pandas strings": lambda ids: pd.Series(ids).astype("string"),
    "categories": lambda ids: pd.Series(ids).astype("category"),
    "masked": lambda ids: np.ma.array(ids),
    "arrow": pa.array,
    "arrow strings": lambda ids: pa.array(list(map(str, ids))),
    "arrow dictionary": lambda ids: pa.array(list(map(str, ids))).dictionary_encode(),
    "arrow binary": lambda ids: pa.array([bytes([number]) for number in ids]),
    "pandas of arrow": lambda ids: pd.Series(ids, dtype="int64[pyarrow]"),
    "pandas strings of arrow": lambda ids: pd.Series(list(map(str, ids)), dtype="string[pyarrow]"),
    "arrow string view": lambda ids: pa.array(list(map(str, ids)), pa.string_view()),
    "arrow binary view": lambda ids: pa.array([bytes([number]) for number in ids], pa.binary_view()),
    "arrow dictionary of views": lambda ids: pa.DictionaryArray.from_arrays(
        pa.array(ids), pa.array(list("abcd"), pa.string_view())
    ),
    "chunked dictionaries": lambda ids: pa.chunked_array(
        [pa.array(list(map(str, part))).dictionary_encode() for part in (ids[:2], ids[2:])]
    ),
    "chunked arrow": lambda ids: pa.chunked_array([ids[:2], ids[2:]]),
}


@pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS)
def test_rows_of_a_person_are_brought_together(make):
    X = np.arange(12.0).reshape(6, 2)
    data = in_groups(X, np.arange(6), groups=make(IDS), partition_size=2)
    assert data.sizes == (2, 1)
    assert data.n_records == 3
    (first, second), (third,) = (
        [(chunk.rows.y.tolist(), chunk.starts.tolist()) for chunk in p.open().chunks(np.arange(n), 1)]
        for p, n in zip(data.partitions, data.sizes, strict=True)
    )
    assert (first, second, third) == (([0, 2, 5], [0, 3]), ([1, 4], [0, 2]), ([3], [0, 1]))
    together = in_groups(X, groups=[7, 7, 2, 2, 2, "a"]).partition(0).open()
    assert np.shares_memory(together.X, X), "rows that stand together are copied"


def test_rows_of_nobody_are_left_out_and_rows_beyond_the_bound_too():
    X = np.arange(8.0)[:, None]
    ids = np.array([1, None, 1, np.nan, "x", 1, 1.5, "x"], object)
    assert in_groups(X, groups=ids).arrays[0].ravel().tolist() == [0, 2, 5, 4, 7]
    assert rows_of(in_groups(X, groups=ids), max_rows=2) == [0, 2, 4, 7]
    floats = np.array([1.0, np.nan, 1.0, np.inf, 2.0, 1.0, 1.5, 2.0])
    assert rows_of(in_groups(X, groups=floats), max_rows=1) == [0, 4]
    assert in_groups(X, groups=[None] * 8).sizes == (0,)


def test_no_id_raises_or_warns():
    signalling = np.array([1.0, 1.0, 0.0])
    signalling.view(np.uint64)[2] = 0x7FF0000000000001  # NaN
    offsets = pa.py_buffer(np.array([0, 1, 2, 3], np.int32).tobytes())
    text = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"\xffab")])
    frame = pd.DataFrame({"id": pd.arrays.ArrowExtensionArray(text)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert group_numbers(signalling, 3).tolist() == [0, 0, -1]
        assert group_numbers(text, 3).tolist() == group_numbers(frame["id"], 3).tolist() == [0, 1, 2]
        places = pa.array([0, 5, 1])  # one beyond its dictionary
        forged = pa.DictionaryArray.from_arrays(places, pa.array(["a", "b"]), safe=False)
        assert group_numbers(forged, 3).tolist() == [0, -1, 1]
        for kind in (np.int64, float, str, bytes, object):
            masked = np.ma.array(np.array([1, 1, 2]).astype(kind), mask=[0, 1, 0])
            assert group_numbers(masked, 3).tolist() == [0, -1, 1], kind


def test_strings_that_python_cannot_hold_are_ids_of_nobody():
    """NumPy holds any 32 bits as a character; Python raises where it reads one beyond Unicode."""
    for order in "<>":
        ids = np.array(["a", "b", "a", "c"]).astype(f"{order}U1")
        ids.view(f"{order}u4")[1] = 0x7FFFFFFF
        distinct, numbers = ids_and_numbers(ids, 4)
        assert list(distinct) == [b"a", b"c"]
        assert numbers.tolist() == [0, -1, 0, 1]
        assert group_numbers(ids[::-1], 4).tolist() == [0, 1, -1, 1]
    assert group_numbers(np.array(["", ""]), 2).tolist() == [0, 0]
    assert group_numbers(np.zeros(3, "U0"), 3).tolist() == [0, 0, 0]


def test_text_of_arrow_and_of_python_is_one():
    text = ["a", "ä", "", None, "a"]
    array = pa.array(text)
    kinds = [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
    for form in (array, *map(array.cast, kinds), pd.Series(text, dtype="string[pyarrow]")):
        assert group_numbers(form, 5).tolist() == group_numbers(text, 5).tolist() == [0, 1, 2, -1, 0]


# -- the step -----------------------------------------------------------------------------------------------


def clipped_sum(model, data, plan, posterior, seed=0):
    return engine.clipped_sum(model, last_phase(model), data, posterior, plan, plan.randomness(seed), 1)


def prepared(case, noise="gaussian", n_persons=15):
    """A fitted model, its posterior, a plan that takes everybody, and records with the persons of their rows."""
    plan = replace(PLAN, clip_norm=case.clip_norm, sampling_rate=1.0, noise=noise, max_rows_per_group=6)
    records = arguments(case.make_records(40, np.random.default_rng(1)))
    ids = np.random.default_rng(2).integers(0, n_persons, 40)
    model = case.make_model(privacy=plan, random_state=0).fit(*records, groups=ids)
    return model, model.last_posterior_, plan, records, ids


def grouped(model, records, ids, plan):
    model.beside = Beside(groups=ids)  # as `fit` does
    return persons_of(model, model.records_of(*records, *[None] * (2 - len(records))), ids)


def coordinates(total, blocks):
    return np.concatenate([np.ravel(np.asarray(total[name], float) / block.scale) for name, block in blocks.items()])


def without_a_person(records, ids):
    """For each person the records and ids of all others."""
    for person in np.unique(ids):
        yield [part[ids != person] for part in records], ids[ids != person]


@of_every_kind
def test_a_person_moves_the_sum_by_at_most_one_clip(case):
    model, posterior, plan, records, ids = prepared(case)
    blocks = last_phase(model).blocks
    whole = coordinates(clipped_sum(model, grouped(model, records, ids, plan), plan, posterior), blocks)
    moved = []
    for others, their_ids in without_a_person(records, ids):
        without = clipped_sum(model, grouped(model, others, their_ids, plan), plan, posterior)
        moved.append(np.linalg.norm(whole - coordinates(without, blocks)))
    assert max(moved) <= plan.clip_norm * (1.0 + 1e-6)
    assert max(moved) > 0.3 * plan.clip_norm


@of_every_kind
def test_persons_do_not_see_each_other(case):
    check_company(*prepared(case))


def check_company(model, posterior, plan, records, ids):
    whole = clipped_sum(model, grouped(model, records, ids, plan), plan, posterior)
    alone = []
    for person in np.unique(ids):
        rows = grouped(model, [part[ids == person] for part in records], ids[ids == person], plan)
        alone.append(clipped_sum(model, rows, plan, posterior))
    says, bounds = "a person is another one in company", {"rtol": 1e-6, "atol": 1e-7 * plan.clip_norm}
    for name, value in whole.items():
        np.testing.assert_allclose(value, sum(sums[name] for sums in alone), **bounds, err_msg=says)


@of_every_kind
def test_sums_are_those_of_the_rows_where_no_clip_binds(case):
    model, posterior, plan, records, ids = prepared(case)
    for noise in ("gaussian", "discrete"):
        loose = replace(plan, clip_norm=1e6, noise_multiplier=0.01, noise=noise)
        model.set_params(privacy=loose)
        data = model.records_of(*records, *[None] * (2 - len(records)))
        by_row = clipped_sum(model, data, loose, posterior)
        by_person = clipped_sum(model, grouped(model, records, ids, loose), loose, posterior)
        of_scores = {"squares"} if getattr(posterior, "search", None) is not None else set()
        for name in by_row.keys() - of_scores:  # squares of a person's score are not a sum over rows
            value = by_row[name]
            np.testing.assert_allclose(by_person[name], value, rtol=1e-9, atol=1e-6 * np.abs(value).max())


@of_every_kind
def test_a_person_of_one_row_is_a_record(case):
    plan = replace(PLAN, clip_norm=case.clip_norm, reproducible_noise=True)
    records = arguments(case.make_records(30, np.random.default_rng(1)))
    by_row = case.make_model(privacy=plan, random_state=0).fit(*records)
    by_person = case.make_model(privacy=plan, random_state=0).fit(*records, groups=np.arange(30))
    totals = by_person.noisy_totals_.average
    for name, value in by_row.noisy_totals_.average.items():
        np.testing.assert_allclose(totals[name], value, rtol=1e-6, atol=1e-8 * np.abs(value).max())


@of_every_kind
def test_rounded_sums_of_persons_stay_within_the_sensitivity(case):
    model, posterior, plan, records, ids = prepared(case, noise="discrete")
    blocks = last_phase(model).blocks
    lattice = plan.lattice(blocks)
    assert lattice.noise_steps >= 4 * replace(plan, max_rows_per_group=None).lattice(blocks).noise_steps
    whole = clipped_sum(model, grouped(model, records, ids, plan), plan, posterior)
    for others, their_ids in islice(without_a_person(records, ids), 5):
        without = clipped_sum(model, grouped(model, others, their_ids, plan), plan, posterior)
        units = []
        for name, block in blocks.items():
            difference = whole[name] - without[name]
            if block.symmetric:  # both triangles hold one coordinate
                difference = difference[..., *np.triu_indices(block.shape[-1])]
            units.append(difference.ravel().astype(float))
        assert np.linalg.norm(np.concatenate(units)) * lattice.unit <= plan.clip_norm * SENSITIVITY_FACTOR


def test_coins_are_of_persons():
    """With few persons of many rows, samples hold all rows of a person or none."""
    ids = np.repeat(np.arange(50), 40)
    X = np.zeros((2000, 50))
    X[np.arange(2000), ids] = 1.0
    plan = replace(PLAN, clip_norm=1e6, noise_multiplier=1e-6)
    model = DirichletMultinomial(privacy=plan, random_state=0).fit(X[:5], groups=ids[:5])
    totals = clipped_sum(model, in_groups(X, groups=ids, partition_size=7), plan, model.last_posterior_)
    counts = np.concatenate([np.ravel(value) for value in totals.values()])
    assert set(np.unique(counts)) == {0.0, 40.0}
    assert 5 < (counts > 0).sum() < 45


def test_a_person_of_more_rows_than_a_chunk_is_clipped_as_a_whole(monkeypatch):
    """In pieces, so that memory is bounded by the chunk."""
    rng = np.random.default_rng(0)
    X, ids, sizes = 1.0 + 0.1 * rng.normal(size=(600, 3)), np.repeat([0, 1, 2], [500, 1, 99]), []
    for noise in ("gaussian", "discrete"):
        plan = replace(PLAN, sampling_rate=1.0, noise=noise, max_rows_per_group=500)
        model = SecondMoments(privacy=plan).fit(X, groups=ids)
        whole = {}
        for chunk_size in (10_000, 50):
            model.chunk_size = chunk_size
            original = model.expected_statistics
            model.expected_statistics = lambda rows, posterior: sizes.append(len(rows)) or original(rows, posterior)  # noqa: B023
            whole[chunk_size] = clipped_sum(model, grouped(model, [X], ids, plan), plan, model.last_posterior_)
            del model.expected_statistics
        assert max(sizes[1:]) <= 240  # a chunk is filled up to a piece of BLAS
        sizes.clear()
        for name, value in whole[50].items():
            np.testing.assert_allclose(value, whole[10_000][name], rtol=1e-9)
        first = clipped_sum(model, grouped(model, [X[:500]], ids[:500], plan), plan, model.last_posterior_)
        total = coordinates(first, model.blocks()) * (plan.lattice(model.blocks()).unit if noise == "discrete" else 1.0)
        assert 0.5 * plan.clip_norm < np.linalg.norm(total) <= plan.clip_norm * 1.5  # isometric coordinates: up to √2


def test_norms_of_short_runs_are_exact_and_rows_that_cancel_keep_a_share():
    """A person of 30 rows in 30 categories has norm √30, not 30."""
    rows = np.vstack([np.eye(40)[:30], np.tile([[3.0], [-3.0]], (5, 40)), np.ones((300, 40))])
    statistics, blocks = DenseStatistics({"counts": rows}), {"counts": Block((40,), scale=2.0)}
    norms = statistics.norms(blocks)
    norms[1] = 0.0  # a row that cannot be used
    norm = statistics.run_norms(norms, blocks, np.array([0, 30, 30, 40, 340]))
    exact = [np.sqrt(29.0) / 2.0, 0.0, 30.0 * np.sqrt(40.0) / 2.0 / 16.0, 300.0 * np.sqrt(40.0) / 2.0]
    np.testing.assert_allclose(norm, exact, rtol=1e-8)


def test_norms_of_persons_in_single_precision_are_not_too_small():
    """Persons of 240 rows whose sums in single precision are below the exact ones, in more columns than are added at a time."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(0.5, 1.0, (2400, 600)).astype(np.float32)
    starts = np.arange(0, 2401, 240)
    for scale in (1.0, 3.0):
        statistics, blocks = DenseStatistics({"counts": rows}), {"counts": Block((600,), scale=scale)}
        norm = statistics.run_norms(statistics.norms(blocks), blocks, starts)
        exact = np.linalg.norm(rows.astype(np.float64).reshape(10, 240, 600).sum(axis=1), axis=1) / scale
        assert (norm >= exact).all()
        np.testing.assert_allclose(norm, exact, rtol=2e-9)
        alone = DenseStatistics({"counts": rows[240:480]})
        assert alone.run_norms(alone.norms(blocks), blocks, np.array([0, 240]))[0] == norm[1]  # to the last bit


@pytest.mark.parametrize("chunk_size", [1, 3, 7, 1000])
@pytest.mark.parametrize(("most", "rate"), [(8, 1.0), (1, 1.0), (40, 0.5)])
def test_chunks_change_nothing_of_persons_of_any_length(chunk_size, most, rate):
    """There are many persons, 8 with about 38 rows, or one with all 300, which no short chunk holds."""
    rng = np.random.default_rng(1)
    X, ids = np.eye(5)[rng.integers(0, 5, 300)], rng.integers(0, most, 300)
    plan = replace(PLAN, sampling_rate=rate, reproducible_noise=True, clip_norm=2.0)
    model = DirichletMultinomial(privacy=plan, random_state=0)
    expected = model.fit(X, groups=ids).noisy_totals_.average["counts"]
    model.chunk_size = chunk_size
    np.testing.assert_allclose(model.fit(X, groups=ids).noisy_totals_.average["counts"], expected, rtol=1e-12)


def test_a_defective_row_counts_for_nothing_and_its_person_for_the_rest():
    rng = np.random.default_rng(0)
    X, ids = rng.integers(0, 2, (30, 4)).astype(float), rng.integers(0, 8, 30)
    bad = np.concatenate([X, np.full((3, 4), np.nan), np.full((2, 4), np.inf)])
    plan = replace(PLAN, sampling_rate=1.0, reproducible_noise=True)
    expected = BetaBernoulli(privacy=plan, random_state=0).fit(X, groups=ids)
    model = BetaBernoulli(privacy=plan, random_state=0).fit(bad, groups=[*ids, *ids[:3], 99, 99])
    for name, value in expected.noisy_totals_.average.items():
        np.testing.assert_allclose(model.noisy_totals_.average[name], value, rtol=1e-12)


# -- the laws can fail ----------------------------------------------------------------------------------------


def rows_are_clipped_in_place_of_persons(patch):
    weights = lambda plan, statistics, blocks, *_: plan.clip_weights(statistics.norms(blocks))  # noqa: E731
    patch.setattr(partitions, "weights_of_rows", weights)


def norms_of_the_longest_row(patch):
    def mutant(self, norms, blocks, starts):
        return np.array([norms[first:last].max(initial=0.0) for first, last in pairwise(starts)])

    patch.setattr(RecordStatistics, "run_norms", mutant)


def last_row_of_a_person_belongs_to_the_next(patch):
    original = partitions.weights_of_rows

    def mutant(plan, statistics, blocks, starts, *others):
        shifted = np.concatenate([[0], np.maximum(starts[1:-1] - 1, 0), starts[-1:]])
        return original(plan, statistics, blocks, shifted, *others)

    patch.setattr(partitions, "weights_of_rows", mutant)


def labels_of_a_person_are_drawn_by_the_places_of_its_rows(patch):
    """In the chunk, not by its id."""
    original = MixedRegression._labels_apart

    def mutant(self, y):
        labels, words = original(self, y)
        return labels, np.arange(len(words)) / 2.0**20

    patch.setattr(MixedRegression, "_labels_apart", mutant)


@pytest.mark.parametrize("name", MIXED)
def test_persons_with_effects_of_their_own_do_not_see_each_other(name):
    """What scores lose on average is taken off by draws of labels, which are functions of the persons' ids."""
    model, posterior, *others = prepared(MIXED[name])
    parameters = np.zeros_like(posterior.parameters)
    parameters[model.n_features_in_] = -8.0  # of the intercept: rare labels, of which draws are cut
    check_company(model, MixedPosterior(parameters, posterior.parameters_cov, posterior.frame), *others)


def test_draws_by_places_are_noticed(monkeypatch):
    check = lambda: test_persons_with_effects_of_their_own_do_not_see_each_other("mixed effects")  # noqa: E731
    check_notices(check, labels_of_a_person_are_drawn_by_the_places_of_its_rows, monkeypatch, "another one in company")


def lattice_as_coarse_as_for_rows(patch):
    original = Lattice.for_blocks.__func__
    of_rows = classmethod(lambda cls, blocks, noise, clip, rows=1: original(cls, blocks, noise, clip))
    patch.setattr(Lattice, "for_blocks", of_rows)


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (rows_are_clipped_in_place_of_persons, test_a_person_moves_the_sum_by_at_most_one_clip),
        (norms_of_the_longest_row, test_a_person_moves_the_sum_by_at_most_one_clip),
        (last_row_of_a_person_belongs_to_the_next, test_persons_do_not_see_each_other),
        (lattice_as_coarse_as_for_rows, test_rounded_sums_of_persons_stay_within_the_sensitivity),
    ],
)
def test_mutant_is_noticed(mutant, check, monkeypatch):
    case = next(case for case in KINDS if case.name == "beta-bernoulli")
    check_notices(lambda: check(case), mutant, monkeypatch)


# -- the unit -----------------------------------------------------------------------------------------------


def test_report_and_ledger_speak_of_persons(tmp_path):
    X = np.random.default_rng(0).integers(0, 2, (20, 4)).astype(float)
    ids = pd.Series(np.arange(20) // 3, name="patient_id")
    model = BetaBernoulli(privacy=PLAN).fit(X, groups=ids)
    assert model.privacy_.unit == "all rows of one patient_id"
    assert BetaBernoulli(privacy=PLAN).fit(X).privacy_.unit == BetaBernoulli.unit
    assert model.fit(X).privacy_.unit == BetaBernoulli.unit
    ledger = PrivacyLedger(tmp_path / "a.ledger", 20.0, 1e-5, "patients", unit="patient_id")
    with pytest.raises(LedgerError, match="patient_id"):
        model.fit(X, ledger=ledger)
    with pytest.raises(LedgerError, match="patient_id"):
        model.fit(X, groups=ids.rename("hospital"), ledger=ledger)
    assert not ledger.runs()
    model.fit(X, groups=ids, ledger=ledger)
    assert len(ledger.runs()) == 1


def test_a_ledger_of_any_unit_does_not_mix_rows_and_persons(tmp_path):
    X, ids = np.ones((6, 4)), pd.Series([1, 1, 1, 2, 2, 2], name="pid")
    ledger = PrivacyLedger(tmp_path / "a.ledger", 20.0, 1e-5, "patients")
    BetaBernoulli(privacy=PLAN).fit(X, groups=ids, ledger=ledger)
    for groups in (None, ids.rename("other")):
        with pytest.raises(LedgerError, match="Together they would protect neither"):
            BetaBernoulli(privacy=PLAN).fit(X, groups=groups, ledger=ledger)
    BetaBernoulli(privacy=PLAN).fit(X, groups=ids, ledger=PrivacyLedger(tmp_path / "a.ledger", 20.0, 1e-5, "patients"))
    assert len(ledger.runs()) == 2


def test_the_unit_is_the_fits_whatever_the_model_says():
    class OwnWords(BetaBernoulli):
        def describe(self):
            return {"unit": "one visit", "released": ("heads",)}

    class OwnParameter(BetaBernoulli):
        def __init__(self, privacy=None, random_state=None, on_invalid="drop", unit="one household"):
            super().__init__(privacy, random_state, on_invalid)
            self.unit = unit

    ids = pd.Series([1, 1, 2, 2], name="pid")
    assert OwnWords(privacy=PLAN).fit(np.ones((4, 4)), groups=ids).privacy_.unit == "all rows of one pid"
    model = OwnParameter(privacy=PLAN).fit(np.ones((4, 4)))
    assert model.privacy_.unit == model.unit == model.get_params()["unit"] == "one household"
    # reports of persons do not speak of rows
    X, ids = np.ones((6, 4)), [1, 1, 1, 2, 2, 2]
    by_person, by_row = (str(BetaBernoulli(privacy=PLAN).fit(X, groups=groups).privacy_) for groups in (ids, None))
    assert "one record is all rows with one id" in by_person
    assert "several rows" not in by_person
    assert "one record is one row" in by_row
    assert "records of the same person in several rows" in by_row


def test_names_that_no_file_holds_are_left_out(tmp_path):
    for name in ("p\ud800", "", 5, None, ("a", "b")):
        model = BetaBernoulli(privacy=PLAN).fit(np.ones((4, 4)), groups=pd.Series([1, 1, 2, 2], name=name))
        assert model.privacy_.unit == "all rows of one group", name
        model.save(tmp_path / "m.vips")


def test_a_checkpoint_of_rows_is_not_one_of_persons(tmp_path):
    X, ids = np.random.default_rng(0).integers(0, 2, (20, 4)).astype(float), np.arange(20) // 3
    with pytest.raises(Stop):
        stopped_after(BetaBernoulli(privacy=PLAN), 1).fit(X, checkpoint=tmp_path / "fit")
    with pytest.raises(ValueError, match="unit"):
        BetaBernoulli(privacy=PLAN).fit(X, checkpoint=tmp_path / "fit", groups=ids)


# -- bad input ----------------------------------------------------------------------------------------------


SINGLE = np.zeros(20, np.float32)
OF_OTHER_TYPES = [
    np.zeros(20, "M8[s]"), pd.Series(pd.date_range("2020", periods=20, tz="UTC")), np.zeros(20, complex), SINGLE,
    np.zeros(20, np.longdouble), pd.Series(np.zeros(20), dtype="Float32"), pd.Series(np.zeros(20), dtype="float[pyarrow]"),
    pd.Series(pd.arrays.SparseArray(SINGLE)), pd.Series(SINGLE).astype("category"),
    pd.Series(np.zeros(20), dtype="Float32").astype("category"), pa.array(SINGLE), pa.array(SINGLE).dictionary_encode(),
    pd.Series(pd.period_range("2020", periods=20)), pd.Series(pd.date_range("2020", periods=20)).astype("category"),
    pa.array([2**50] * 20, pa.timestamp("s")), pa.array([2**50] * 20, pa.timestamp("s")).dictionary_encode(),
]  # fmt: skip


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ("patient", TypeError, "one id for each row"),
        (5, TypeError, "one id for each row"),
        ([1, 2], ValueError, "different numbers of rows"),
        (np.ones((20, 1)), ValueError, "2 dimensions"),
        (pd.DataFrame({"id": range(20)}), ValueError, "2 dimensions"),
        (dict.fromkeys(range(20)), TypeError, "got a dict"),
        (set(range(20)), TypeError, "got a set"),
        *((ids, TypeError, "to int64 or strings") for ids in OF_OTHER_TYPES),
    ],
)
def test_what_cannot_hold_ids_is_refused(groups, error, message):
    X = np.ones((20, 4))
    for privacy in (PLAN, None):
        with pytest.raises(error, match=message):
            BetaBernoulli(privacy=privacy).fit(X, groups=groups)


def test_combinations_without_a_guarantee_are_refused(tmp_path):
    X, ids = np.ones((20, 4)), np.arange(20)
    with pytest.raises(ValueError, match="max_rows_per_group"):
        BetaBernoulli(privacy=replace(PLAN, noise="discrete")).fit(X, groups=ids)
    with pytest.raises(ValueError, match="ids as `groups`"):
        BetaBernoulli(privacy=replace(PLAN, max_rows_per_group=3)).fit(X)
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(TypeError, match="Bring the rows of each person together"):
        BetaBernoulli(privacy=PLAN).fit(NpySource(tmp_path / "X.npy"), groups=ids)
    for groups in ([None, *range(19)], np.append(np.nan, np.arange(19.0))):
        with pytest.raises(ValueError, match="missing ids"):
            BetaBernoulli().fit(X, groups=groups)
    source = InMemoryData(X).grouped(ids // 2)
    for groups in (None, ids // 2):
        with pytest.raises(ValueError, match="several rows already"):
            BetaBernoulli(privacy=PLAN).fit(source, groups=groups)
    with pytest.raises(ValueError, match="groups already"):
        source.grouped(ids)
    with pytest.raises(ValueError, match="max_rows_per_group"):
        replace(PLAN, max_rows_per_group=0)


def test_a_million_rows_of_one_person():
    X = np.ones((1_000_000, 2))
    model = BetaBernoulli(privacy=PLAN).fit(X, groups=np.zeros(1_000_000, int))
    assert np.isfinite(model.last_posterior_["a"]).all()


# -- scikit-learn -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", {type(case.make_model()): case for case in CASES}.values(), ids=lambda case: case.name)
def test_cross_validation_hands_groups_to_the_fit_of_every_class(case):
    model = case.make_model(privacy=replace(PLAN, max_rows_per_group=4), random_state=0)
    ids, records = pd.Series(np.arange(24) // 2, name="patient_id"), case.make_records(24, np.random.default_rng(0))
    beside = {"groups": ids} | exposures(records)
    with config_context(enable_metadata_routing=True):
        scores = cross_validate(
            model.set_fit_request(**dict.fromkeys(beside, True)), *arguments(records), params=beside, cv=GroupKFold(2),
            scoring=lambda *fitted: 0.0, return_estimator=True, error_score="raise",
        )  # fmt: skip
    assert {fitted.privacy_.unit for fitted in scores["estimator"]} == {"all rows of one patient_id"}


def test_pipelines_hand_groups_to_fit():
    pipeline = make_pipeline(TableEncoder([(0, 1)] * 4), BetaBernoulli(privacy=PLAN))
    persons = pd.Series(np.arange(20) // 3, name="patient_id")
    pipeline.fit(np.arange(80).reshape(20, 4) % 2.0, betabernoulli__groups=persons)
    assert pipeline[-1].privacy_.unit == "all rows of one patient_id"


def test_masks_of_tables_and_labels_hide_what_they_hold():
    """As NaN does, in fits of both kinds; an ordinary one refuses it."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), rng.integers(0, 2, 300).astype(float)
    hidden = rng.random(X.shape) < 0.1
    plan = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=3, reproducible_noise=True)
    masked, missing = np.ma.masked_array(np.where(hidden, 1e6, X), hidden), np.where(hidden, np.nan, X)
    model = BayesianLogisticRegression(privacy=plan, max_norm=3.0, random_state=0)
    np.testing.assert_array_equal(clone(model).fit(masked, y).coef_, clone(model).fit(missing, y).coef_)
    unknown = np.ma.masked_array(y, rng.random(300) < 0.1)
    np.testing.assert_array_equal(clone(model).fit(X, unknown).coef_, clone(model).fit(X, unknown.filled(np.nan)).coef_)
    with pytest.raises(ValueError, match="NaN"):
        BayesianLogisticRegression(max_norm=3.0).fit(masked, y)
