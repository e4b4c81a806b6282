"""Counts of areas: what is released, ids of every type, areas that nobody declared or nobody lives in, and words."""

import pickle

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from tests.laws import checks
from tests.laws.cases import CASES
from tests.models.short_audit import shorten
from tests.mutants import check_notices
from vips import (
    CheckpointError,
    PrivacyBudget,
    PrivacyPlan,
    PrivacyWarning,
    SpatialCounts,
    StreamPlan,
    audit,
    load,
    plan_for,
)
from vips.core.execution.partitions import Task
from vips.core.phases import phases_of
from vips.models.spatial.areas import Areas
from vips.persistence.archive import read_archive, write_archive
from vips.preprocessing import TableEncoder, make_private_pipeline

mpl.use("Agg")

(CASE,) = [case for case in CASES if case.name == "spatial counts"]

NAMES = ["north", "east", "south", "west"]
RING = {"north": ["east", "west"], "east": ["north", "south"], "south": ["east", "west"], "west": ["north", "south"]}
ALMOST_NONE = PrivacyPlan(noise_multiplier=1e-9, sampling_rate=1.0, n_steps=1)
PRIVATE = {"areas": RING, "max_count": 20, "privacy": ALMOST_NONE}


def visits(n=2_000, seed=0):
    rng = np.random.default_rng(seed)
    place = rng.integers(4, size=n)
    return np.array(NAMES)[place], rng.poisson(np.array([1.0, 2.0, 3.0, 2.0])[place])


def sums(model):
    return model.noisy_totals_.average


def test_sums_are_those_of_people():
    area, counts = visits()
    exposure = np.random.default_rng(1).uniform(1.0, 3.0, 2_000)
    model = SpatialCounts(**PRIVATE, exposure_bounds=np.array([1.5, 2.5])).fit(area, counts, exposure=exposure)
    places, within = np.searchsorted(sorted(NAMES), area), np.clip(exposure, 1.5, 2.5)
    order = [sorted(NAMES).index(name) for name in NAMES]
    mixing = Areas.of(RING).mixing
    np.testing.assert_allclose(sums(model)["counts"], mixing.T @ np.bincount(places, counts)[order], rtol=1e-6)
    np.testing.assert_allclose(sums(model)["exposures"], np.bincount(places, within)[order], rtol=1e-6)
    np.testing.assert_allclose(
        sums(model)["squares"] * [400.0, 6.25], [(counts**2).sum(), (within**2).sum()], rtol=1e-4
    )
    np.testing.assert_allclose(np.linalg.norm(mixing, axis=1), 1.0)


def test_the_largest_record_reaches_the_clip_norm():
    model = SpatialCounts(**PRIVATE).fit(np.array(["north"]), np.array([20.0]))
    blocks = {name: (value / model.blocks()[name].scale).ravel() for name, value in sums(model).items()}
    assert np.linalg.norm(np.concatenate(list(blocks.values()))) == pytest.approx(model.max_record_norm(), rel=1e-6)


@pytest.mark.parametrize(
    "column",
    [
        lambda ids: ids,
        lambda ids: ids.astype(float),
        lambda ids: ids.astype(str),
        lambda ids: ids.astype(object),
        lambda ids: ids.astype("S"),
        lambda ids: pd.Series(ids, dtype="category"),
        lambda ids: pd.Series(ids.astype(str), dtype="string"),
        lambda ids: pd.DataFrame({"district": ids}),
        lambda ids: ids[:, None].astype(np.int8),
    ],
)
@pytest.mark.parametrize("names", [[7, 9, 70, 8], ["7", "9", "70", "8"]])
def test_ids_of_every_type_are_the_same(column, names):
    rng = np.random.default_rng(0)
    ids, counts = np.array([7, 9, 70, 8])[rng.integers(4, size=500)], rng.poisson(1.0, 500)
    expected = SpatialCounts(areas=[7, 9, 70, 8]).fit(ids, counts)
    model = SpatialCounts(areas=names).fit(column(ids), counts)
    np.testing.assert_array_equal(model.posterior_.mean, expected.posterior_.mean)
    np.testing.assert_array_equal(model.predict(column(ids)), expected.predict(ids))
    private = SpatialCounts(areas=names, max_count=9, privacy=ALMOST_NONE).fit(column(ids), counts)
    np.testing.assert_allclose(sums(private)["exposures"], [(ids == name).sum() for name in (7, 9, 70, 8)], atol=1e-4)


def test_lists_are_read_where_records_may_be_and_refused_by_private_fits():
    area, counts = visits()
    expected = SpatialCounts(areas=RING).fit(area, counts)
    for X in (area.tolist(), area[:, None].tolist(), tuple((name,) for name in area)):
        model = SpatialCounts(areas=RING).fit(X, counts.tolist())
        np.testing.assert_array_equal(model.posterior_.mean, expected.posterior_.mean)
        np.testing.assert_array_equal(model.predict(X), expected.predict(area))
        with pytest.raises(TypeError, match=r"numpy.asarray\(X, dtype=object\)"):
            SpatialCounts(**PRIVATE).fit(X, counts)
    with pytest.raises(ValueError, match="one area for each record"):
        expected.predict([["north", 1], ["east", 2]])


def test_names_with_zeros_in_front_are_others():
    model = SpatialCounts(areas=["7", "07"], max_count=9, privacy=ALMOST_NONE).fit(
        np.array(["7", "07", "07"]), np.array([1, 2, 3])
    )
    np.testing.assert_allclose(sums(model)["exposures"], [1.0, 2.0], atol=1e-6)


@pytest.mark.parametrize("other", ["nowhere", "", None, np.nan, 1.5, -1, ("north",), pd.NaT])
def test_a_private_fit_leaves_out_records_of_no_declared_area(other):
    area, counts = visits(50)
    with_other = np.array([*area, other], dtype=object)
    model = SpatialCounts(**PRIVATE).fit(with_other, np.append(counts, 3))
    expected = SpatialCounts(**PRIVATE).fit(area, counts)
    for name, value in sums(model).items():
        np.testing.assert_allclose(value, sums(expected)[name], atol=1e-4)


def test_one_value_does_not_change_what_others_are():
    ids, counts = [7.0, 9, "70", 8], np.array([1, 2, 3, 4])
    for other in (["x"], [None], [2.5]):
        model = SpatialCounts(areas=[7, 9, 70, 8], max_count=9, privacy=ALMOST_NONE).fit(
            np.array(ids + other, dtype=object), np.append(counts, 5)
        )
        np.testing.assert_allclose(sums(model)["exposures"], 1.0, atol=1e-6)


def test_an_ordinary_fit_names_what_is_not_declared():
    area, counts = visits(50)
    area = area.astype(object)
    area[3] = "nowhere"
    with pytest.raises(ValueError, match="1 records are in no declared area: 'nowhere'"):
        SpatialCounts(areas=RING).fit(area, counts)
    model = SpatialCounts(areas=RING).fit(*visits())
    with pytest.raises(ValueError, match="in no declared area"):
        model.predict(["nowhere"])


def test_a_fit_to_nobody_says_that_all_is_hidden():
    plan = PrivacyBudget(1.0, 1e-6).plan(n_steps=1)
    model = SpatialCounts(**PRIVATE | {"privacy": plan}).fit(np.array([], dtype=str), np.array([]))
    with pytest.warns(PrivacyWarning, match="4 of 4 areas cannot be told"):
        table = model.summary()
    assert np.isfinite(table[["rate", "lower", "upper"]]).all().all()
    assert (table["hidden by"] == "noise").all()


def test_neighbours_that_do_not_agree_and_other_declarations_are_refused():
    for areas, words in (
        ({"a": ["b"], "b": []}, "not the other way round"),
        ({"a": ["c"], "b": []}, "no other one of the declared"),
        ({"a": ["a"], "b": []}, "no other one of the declared"),
        (["a"], "must be 2 to"),
        ((), "must be 2 to"),
        (["7", 7], "different names"),
        (["a", None], "different names"),
        ([b"a", b"b"], "different names"),
        ([("a", 1), ("b", 2)], "different names"),
        (np.eye(3)[[1, 2, 0]], "is a matrix, and must be a mapping"),
    ):
        with pytest.raises(ValueError, match=words):
            SpatialCounts(areas=areas).fit(["a"], [1])
    for areas, words in (
        ("ab", "must be names"),
        (b"ab", "must be names"),
        ({"a": None, "b": []}, "neighbours of 'a' in a list"),
    ):
        with pytest.raises(TypeError, match=words):
            SpatialCounts(areas=areas).fit(["a"], [1])
    for places in (
        [[0.0, 1.0]],
        [["x"], ["y"]],
        [[1.0], [1.0, 2.0]],
        np.zeros((2, 0)),
        [[1e300], [-1e300]],
        [[0.0], [np.nan]],
    ):
        with pytest.raises(ValueError, match="one row for each"):
            SpatialCounts(areas=["a", "b"], coordinates=places).fit(["a"], [1])
    with pytest.raises(TypeError, match="Got DataFrame"):  # which no file holds
        SpatialCounts(areas=["a", "b"], coordinates=pd.DataFrame(np.eye(2))).fit(["a"], [1])


def test_what_holds_no_areas_and_exposures_that_are_none_are_refused():
    model = SpatialCounts(areas=RING).fit(*visits())
    for X in (None, "north", 7, {"north": 1}):
        with pytest.raises(TypeError, match="X must be a data frame or a NumPy array"):
            model.predict(X)
    for exposure in (np.nan, -1.0, [1.0], [[1.0], [2.0]], [1.0, 0.0]):
        with pytest.raises(ValueError, match="or one for each row"):
            model.predict(["north", "east"], exposure)
    for bounds in ((1.0,), 3.0, (1.0, 2.0, 3.0)):
        with pytest.raises(ValueError, match="two numbers above 0"):
            SpatialCounts(areas=RING, exposure_bounds=bounds).fit(*visits())


def test_neighbours_in_sets_are_saved_and_other_maps_do_not_continue_a_fit(tmp_path):
    ring, row = ({name: set(near) for name, near in RING.items()} for _ in range(2))
    row["north"], row["west"] = {"east"}, {"south"}
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=2)
    model = SpatialCounts(areas=ring, max_count=9, privacy=plan).fit(*visits(), checkpoint=tmp_path / "fit")
    model.save(tmp_path / "model.vips")
    assert load(tmp_path / "model.vips").areas == ring
    with pytest.raises(CheckpointError, match="areas"):
        SpatialCounts(areas=row, max_count=9, privacy=plan).fit(*visits(), checkpoint=tmp_path / "fit")


def test_workers_get_the_map_that_the_fit_has_read():
    model = SpatialCounts(**PRIVATE)
    model.use_plan(ALMOST_NONE)
    model.prepare(None)
    model.n_features_in_ = 1
    phase = phases_of(model, 1)[0]
    task = pickle.loads(pickle.dumps(Task.of_step(model, phase, None, ALMOST_NONE, True)))
    assert "mixing" in vars(task.model._map())


def test_private_fits_ask_for_bounds_in_words():
    area, counts = visits()
    with pytest.raises(ValueError, match="`max_count` is required"):
        SpatialCounts(areas=RING, privacy=ALMOST_NONE).fit(area, counts)
    with pytest.raises(ValueError, match="`exposure_bounds` are required"):
        SpatialCounts(**PRIVATE).fit(area, counts, exposure=np.ones(2_000))
    with pytest.raises(ValueError, match=r"pass fit\(X, y, exposure"):
        SpatialCounts(**PRIVATE, exposure_bounds=(1, 2)).fit(area, counts)


def test_tables_say_which_column_holds_the_areas_and_pipelines_are_refused():
    area, counts = visits()
    table = pd.DataFrame({"age": np.arange(2_000), "district": area})
    with pytest.raises(ValueError, match="say which one holds the areas"):
        SpatialCounts(areas=RING).fit(table, counts)
    with pytest.raises(ValueError, match="X has no column 'town'"):
        SpatialCounts(areas=RING, area="town").fit(table, counts)
    model = SpatialCounts(areas=RING, area="district").fit(table, counts)
    expected = SpatialCounts(areas=RING).fit(area, counts)
    np.testing.assert_array_equal(model.posterior_.mean, expected.posterior_.mean)
    pipeline = make_private_pipeline(
        TableEncoder(), SpatialCounts(areas=RING, max_count=9), privacy=PrivacyBudget(1.0, 1e-6)
    )
    with pytest.raises(TypeError, match="reads the table itself"):
        pipeline.fit(table, counts)


def test_persons_weights_files_and_streams(tmp_path):
    area, counts = visits()
    weights = np.random.default_rng(2).uniform(0.5, 2.0, 2_000)
    plan = PrivacyPlan(noise_multiplier=1e-9, sampling_rate=1.0, n_steps=1, max_weight=2.0)
    weighted = SpatialCounts(**PRIVATE | {"privacy": plan}).fit(area, counts, sample_weight=weights)
    heavy = SpatialCounts(areas=RING).fit(area, counts)
    ratios = [np.average(counts[area == name], weights=weights[area == name]) for name in NAMES]
    np.testing.assert_allclose(weighted.posterior_.mean, np.log(ratios), atol=0.05)
    assert (weighted.posterior_.std > heavy.posterior_.std).all()

    persons = PrivacyPlan(noise_multiplier=1e-9, sampling_rate=1.0, n_steps=1, max_rows_per_group=4)
    grouped = SpatialCounts(**PRIVATE | {"privacy": persons}).fit(area, counts, groups=np.arange(2_000) // 4)
    assert (grouped.posterior_.std > 1.5 * heavy.posterior_.std).all()  # as if four rows said the same

    weighted.save(tmp_path / "model.vips")
    pd.testing.assert_frame_equal(load(tmp_path / "model.vips").rates(), weighted.rates())
    assert clone(weighted).get_params()["areas"] == RING

    stream = SpatialCounts(areas=RING, max_count=20, privacy=StreamPlan(epsilon=500.0, delta=1e-6, n_batches=2))
    for half in (slice(1_000), slice(1_000, None)):
        stream.partial_fit(area[half], counts[half])
    np.testing.assert_allclose(stream.posterior_.mean, heavy.posterior_.mean, atol=0.3)


def test_streams_take_exposures_of_each_batch():
    area, counts = visits()
    settings = {"areas": RING, "max_count": 20, "exposure_bounds": (1.0, 4.0)}
    stream = SpatialCounts(**settings, privacy=StreamPlan(epsilon=500.0, delta=1e-6, n_batches=2))
    for half, longer in ((slice(1_000), 1.0), (slice(1_000, None), 2.0)):
        stream.with_exposure(np.full(1_000, longer)).partial_fit(area[half], counts[half])
        assert vars(stream).keys().isdisjoint({"beside", "takes_one_label"})
    expected = [counts[area == name].sum() / np.repeat([1.0, 2.0], 1_000)[area == name].sum() for name in NAMES]
    np.testing.assert_allclose(stream.posterior_.mean, np.log(expected), atol=0.3)
    refused = SpatialCounts(**settings, privacy=StreamPlan(epsilon=1.0, delta=1e-6, n_batches=2))
    for labels in (counts[:3], None):
        with pytest.raises(ValueError, match=r"inconsistent|requires y|rows|lengths?"):
            refused.with_exposure(np.ones(2_000)).partial_fit(area, labels)
        assert vars(refused).keys().isdisjoint({"beside", "takes_one_label"}), "a refused batch's exposures stay"
    with pytest.raises(ValueError, match=r"with_exposure\(exposure\).partial_fit"):
        SpatialCounts(**settings, privacy=StreamPlan(epsilon=1.0, delta=1e-6, n_batches=2)).partial_fit(area, counts)


@pytest.mark.filterwarnings("ignore")
def test_files_with_numbers_that_no_fit_makes_are_refused_or_read(tmp_path):
    path, refused = tmp_path / "m", 0
    SpatialCounts(**PRIVATE).fit(*visits()).save(path)
    header, arrays = read_archive(path, "model")
    forged = {name: header[name] for name in header if name not in ("kind", "format", "version", "arrays")}
    for name, array in arrays.items():
        signs = np.where(np.arange(array.size).reshape(array.shape) % 2, 1.0, -1.0)
        for values in (
            0.0 * array,
            np.nan + array,
            1e300 + 0.0 * array,
            -1e99 + 0.0 * array,
            1e99 * signs,
            1e12 * array,
        ):
            with np.errstate(all="ignore"):
                write_archive(path, "model", forged, arrays | {name: np.asarray(values, array.dtype)})
            try:
                model = load(path)
            except ValueError as error:
                refused += "is not a file of vips that can be read here" in str(error) or pytest.fail(str(error))
                continue
            model.summary(), model.findings(), model.predict(["north"]), model.posterior_
    assert refused > 2 * len(arrays)


def test_plans_say_how_wide_intervals_will_be():
    plan = plan_for(SpatialCounts(areas=RING, max_count=9), n_records=5_000, privacy=PrivacyBudget(1.0, 1e-6))
    assert list(plan.widths.index) == NAMES
    assert (plan.widths["width"] < 5.0).all()


def test_a_map_hatches_what_is_hidden():
    rng, places = np.random.default_rng(0), np.random.default_rng(1).uniform(size=(9, 2))
    area = rng.integers(8, size=4_000)  # nobody in the last one
    model = SpatialCounts(areas=range(9), coordinates=places).fit(area, rng.poisson(np.exp(0.8 * (area % 2))))
    axes = model.plot()
    hatched = [patch.get_hatch() is not None for patch in axes.patches]
    assert hatched == (model.rates()["hidden by"] != "").tolist()
    assert f"hidden: {sum(hatched)} of {len(hatched)} areas" in axes.get_legend().get_texts()[0].get_text()
    assert hatched[8]
    square = np.array([[0, 0], [0, 1], [1, 1], [1, 0]])
    ring = SpatialCounts(areas=RING).fit(*visits())
    assert len(ring.plot({name: square + np.array([place, 0]) for place, name in enumerate(NAMES)}).patches) == 4
    with pytest.raises(ValueError, match="need `outlines`"):
        ring.plot()


def places_that_depend_on_others(patch):
    original = Areas.places_of
    patch.setattr(Areas, "places_of", lambda self, codes: original(self, codes) - len(codes) % 2)


def undeclared_areas_count_for_the_last_one(patch):
    original = Areas.places_of
    patch.setattr(Areas, "places_of", lambda self, codes: np.maximum(original(self, codes), 0))


@pytest.mark.parametrize(
    ("mutant", "law"),
    [
        (places_that_depend_on_others, checks.records_do_not_see_each_other),
        (undeclared_areas_count_for_the_last_one, checks.defective_records_change_nothing_else),
    ],
)
def test_mutant_is_noticed(mutant, law, monkeypatch):
    check_notices(lambda: law(CASE), mutant, monkeypatch)


@pytest.mark.parametrize("form", ["array", "column", "series", "frame", "list"])
@pytest.mark.slow
def test_audits_take_areas_as_fits_do(form, monkeypatch):
    shorten(monkeypatch)
    area, counts = visits(12)
    forms = {
        "array": area,
        "column": area[:, None],
        "series": pd.Series(area),
        "frame": pd.DataFrame({"area": area, "day": 1.0}),
        "list": area.tolist(),
    }
    model = SpatialCounts(
        **PRIVATE | {"area": "area", "privacy": PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=1)}
    )
    report = audit(model, forms[form], counts, n_runs=0, random_state=0)
    assert report.passed
    assert len(report.findings) > 3
