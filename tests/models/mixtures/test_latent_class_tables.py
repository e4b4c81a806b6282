"""Tables of latent classes: declared categories, missing answers, hostile cells, synthetic tables, files, comparisons."""

from __future__ import annotations

import traceback
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from tests.models.mixtures.tables import LEVELS, answers
from tests.preprocessing.test_hostile_cells import CELLS, MARKS
from vips import LatentClassAnalysis, PrivacyPlan, compare, load
from vips.data import CSRShards, InMemoryData

PLAN = PrivacyPlan(noise_multiplier=2.0, sampling_rate=1.0, n_steps=4, reproducible_noise=True)
CATEGORIES = {"sex": ["f", "m"], "area": ["north", "east", "west"], "children": [0, 1, 2, 5], "member": [False, True]}


def people(n=400, seed=0, missing=0.1):
    """A data frame of strings, categoricals, numbers and booleans; codes of the same answers."""
    codes = answers(n, seed, missing)
    codes[:, 3] = np.abs(codes[:, 3])  # a column of booleans has no missing values
    words = {
        name: [None if code < 0 else listed[code] for code in column]
        for (name, listed), column in zip(CATEGORIES.items(), codes.T, strict=True)
    }
    frame = pd.DataFrame(words)
    frame["area"] = pd.Categorical(frame["area"], categories=CATEGORIES["area"])
    frame["children"] = frame["children"].astype("Int64")
    frame["member"] = frame["member"].astype(bool)
    return frame, codes


def model_of(privacy=PLAN, **settings):
    settings = {"n_components": 3, "categories": CATEGORIES, "random_state": 0} | settings
    return LatentClassAnalysis(privacy=privacy, **settings)


def test_a_data_frame_gives_the_fit_of_its_codes():
    frame, codes = people()
    fitted = model_of().fit(frame)
    expected = model_of(categories=LEVELS).fit(codes)
    np.testing.assert_array_equal(
        fitted.last_posterior_.columns["answers"].concentration,
        expected.last_posterior_.columns["answers"].concentration,
    )
    np.testing.assert_array_equal(fitted.predict_proba(frame), expected.predict_proba(codes))
    assert list(fitted.feature_names_in_) == list(CATEGORIES)
    lists = model_of(categories=[CATEGORIES[name] for name in frame])
    more = frame.assign(other=3.5)[["other", *reversed(frame.columns)]]  # of a mapping, only names count
    for same in (lists.fit(frame), lists.fit(frame.to_numpy(dtype=object)), model_of().fit(more)):
        np.testing.assert_array_equal(
            same.last_posterior_.columns["answers"].concentration,
            expected.last_posterior_.columns["answers"].concentration,
        )
    assert model_of().fit(more).predict(more).tolist() == fitted.predict(frame).tolist()


def test_without_privacy_categories_are_those_that_occur():
    frame, codes = people()
    fitted = LatentClassAnalysis(2, random_state=0, privacy=PrivacyPlan.non_private(n_steps=5)).fit(frame)
    assert fitted.categories_ == [["f", "m"], ["north", "east", "west"], [0, 1, 2, 5], [False, True]]
    of_codes = LatentClassAnalysis(2, random_state=0, privacy=PrivacyPlan.non_private(n_steps=5)).fit(codes)
    np.testing.assert_array_equal(
        fitted.last_posterior_.columns["answers"].concentration,
        of_codes.last_posterior_.columns["answers"].concentration,
    )
    as_floats = np.where(codes < 0, np.nan, codes)
    assert (
        LatentClassAnalysis(2, random_state=0).fit(as_floats).categories_
        == of_codes.categories_
        == list(map(range, LEVELS))
    )


@pytest.mark.parametrize(
    ("settings", "data", "error", "says"),
    [
        ({"categories": None}, "frame", ValueError, "`categories` is required for a private fit"),
        ({"categories": [2, 3]}, "codes", ValueError, "X has 4 columns, but 2 are declared"),
        ({}, "codes", TypeError, "declared by name, but X is an array"),
        ({"categories": CATEGORIES | {"age": [1, 2]}}, "frame", ValueError, "'age' is declared, but X has 0 columns"),
        ({"categories": [2, 3, 4, ["a", "a"]]}, "codes", ValueError, "column 3|Column 3 has a category twice"),
        ({"categories": [2, 3, 4, ["a", None]]}, "codes", ValueError, "must be strings or finite numbers"),
        ({"categories": [2, 3, 4, 0]}, "codes", ValueError, "write a list of categories"),
        ({"categories": [2, 3, 4, pd.Index(["a", "b"])]}, "codes", ValueError, "write a list of categories"),
        ({"categories": "abcd"}, "codes", ValueError, "must be a mapping"),
        ({"inference": "map"}, "frame", ValueError, "`inference`"),
        ({"answer_prior": 0.0}, "frame", ValueError, "`answer_prior`"),
        ({"clip_share": 2.0}, "frame", ValueError, "`clip_share`"),
    ],
)
def test_errors_name_public_facts(settings, data, error, says):
    frame, codes = people(20)
    with pytest.raises(error, match=says):
        model_of(**settings).fit(frame if data == "frame" else codes)


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (pd.arrays.IntervalArray.from_breaks(np.arange(21)), "its dtype is interval"),
        (pd.date_range("2020", periods=20), "its dtype is datetime64"),
        (pd.period_range("2020", periods=20, freq="D"), "its dtype is period"),
        (np.arange(20), "its categories are strings"),
    ],
)
@pytest.mark.parametrize("privacy", [PLAN, None])
def test_a_column_that_can_hold_no_category_is_refused_by_its_dtype(column, says, privacy):
    frame = people(20)[0].assign(sex=column)
    with pytest.raises(TypeError, match=says):
        model_of(privacy).fit(frame)


@pytest.mark.parametrize("column", [pd.cut(np.arange(20), [-1, 5, 20]), pd.Categorical(np.arange(20) % 2)])
def test_what_a_categorical_holds_decides_no_private_error(column):
    frame = people(20)[0].assign(sex=column)
    assert model_of(PLAN).fit(frame).n_features_in_ == frame.shape[1]
    with pytest.raises(ValueError, match=r"Column 'sex' holds .*, which is none of its categories"):
        model_of(None).fit(frame)


def test_without_privacy_a_column_without_answers_is_refused():
    for nothing in (None, np.nan, b"f"):
        with pytest.raises(ValueError, match=r"Column 'sex' holds no answer"):
            LatentClassAnalysis(2).fit(people(20)[0].assign(sex=nothing))


def test_a_private_fit_takes_no_list_and_no_matrix():
    _, codes = people(20)
    for data, says in ((codes.tolist(), "got list"), (sp.csr_array(codes), "Sparse"), (codes + 0j, "Complex")):
        with pytest.raises((TypeError, ValueError), match=says):
            model_of(categories=LEVELS).fit(data)
    with pytest.raises(ValueError, match="must hold codes"):
        LatentClassAnalysis(2).fit(codes + 0.5)


@pytest.mark.parametrize("name", CELLS)
def test_no_cell_raises_or_speaks(name, capfd):
    """A hostile cell is a missing answer: errors, warnings and output are those of a harmless table."""
    frame, _ = people(30, missing=0.0)
    objects = frame.astype(object)
    harmless = objects.copy()
    harmless.iat[4, 1] = None
    hostile = objects.to_numpy()
    hostile[4, 1] = CELLS[name]
    as_array = model_of(categories=list(CATEGORIES.values()))
    as_frame = pd.DataFrame(hostile, columns=objects.columns, dtype=object)
    expected = model_of().fit(harmless).last_posterior_.columns["answers"].concentration
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            models = [model_of().fit(as_frame), as_array.fit(hostile)]
        except Exception:
            pytest.fail(f"a cell raised: {traceback.format_exc()}")
    assert not caught
    assert not any(mark in "".join(capfd.readouterr()) for mark in MARKS)
    for model in models:
        np.testing.assert_array_equal(model.last_posterior_.columns["answers"].concentration, expected)


def test_sources_hold_codes(tmp_path):
    _, codes = people(50)
    expected = model_of(categories=LEVELS).fit(codes).last_posterior_.columns["answers"].concentration
    fitted = model_of(categories=LEVELS).fit(InMemoryData(codes, None, partition_size=16))
    np.testing.assert_allclose(fitted.last_posterior_.columns["answers"].concentration, expected, rtol=1e-9)
    sp.save_npz(tmp_path / "shard.npz", sp.csr_array(np.abs(codes)))
    shards = CSRShards([tmp_path / "shard.npz"])
    of_shards = model_of(categories=LEVELS).fit(shards)
    dense = model_of(categories=LEVELS).fit(np.abs(codes))
    np.testing.assert_allclose(
        of_shards.last_posterior_.columns["answers"].concentration,
        dense.last_posterior_.columns["answers"].concentration,
        rtol=1e-9,
    )
    with pytest.raises(TypeError, match="declare the number of codes"):
        model_of().fit(shards)


def test_names_of_a_source_are_those_of_the_categories():
    """Else codes of one column would be taken for those of another."""
    dd = pytest.importorskip("dask.dataframe")
    source = dd.from_pandas(pd.DataFrame({"x": [0, 2] * 10, "y": [0, 1] * 10}), npartitions=2)
    assert model_of(categories={"x": 3, "y": 2}).fit(source).components_.shape == (3, 5)
    for wrong in ({"y": 2, "x": 3}, {"x": 3}):
        with pytest.raises(ValueError, match="must name the columns of the source"):
            model_of(categories=wrong).fit(source)


def test_all_rows_of_a_person_are_one_record():
    frame, _ = people(60)
    plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=1.0, n_steps=3, max_rows_per_group=4)
    model = model_of(plan).fit(frame, groups=np.arange(60) // 4)
    assert "group" in model.privacy_.unit


# -- synthetic tables -------------------------------------------------------------------------------------------


def test_a_synthetic_table_has_the_names_dtypes_and_categories_of_the_data():
    frame, codes = people(1500, missing=0.0)
    model = LatentClassAnalysis(3, random_state=0, categories=CATEGORIES).fit(frame)
    synthetic, component = model.sample(20_000, random_state=1)
    np.testing.assert_allclose(
        np.bincount(component, minlength=len(model.weights_)) / 20_000, model.weights_, atol=0.02
    )
    assert (synthetic.dtypes == frame.dtypes).all()
    assert list(synthetic.columns) == list(frame.columns)
    for name in frame:
        shares, expected = (table[name].value_counts(normalize=True) for table in (synthetic, frame))
        assert (shares - expected).abs().max() < 0.02
    for one, other in (("sex", "area"), ("area", "children")):  # pairs, too
        shares, expected = (pd.crosstab(table[one], table[other], normalize=True) for table in (synthetic, frame))
        assert (shares - expected).abs().to_numpy().max() < 0.03
    assert synthetic.equals(model.sample(20_000, random_state=1)[0])
    of_codes = LatentClassAnalysis(3, random_state=0).fit(codes).sample(5, random_state=1)[0]
    assert of_codes.shape == (5, 4)
    assert of_codes.dtype.kind == "i"
    of_words = model_of(categories=list(CATEGORIES.values())).fit(frame.to_numpy(dtype=object))
    words = of_words.sample(50, random_state=0)[0]
    assert set(words[:, 1]) <= set(CATEGORIES["area"])
    assert model.sample(0)[0].shape == (0, 4)


def test_profiles_are_probabilities_by_column_and_category():
    frame, _ = people()
    model = model_of().fit(frame)
    profiles = model.class_profiles()
    np.testing.assert_allclose(profiles.groupby(level="column", sort=False).sum(), 1.0)
    assert profiles.loc[("children", 5), 2] == model.components_[2, 8]
    assert model.weights_.sum() == pytest.approx(1.0)


# -- files, comparisons, audits ---------------------------------------------------------------------------------


def test_a_saved_model_is_the_same(tmp_path):
    frame, _ = people()
    model = model_of().fit(frame)
    model.save(tmp_path / "classes.vips")
    loaded = load(tmp_path / "classes.vips")
    np.testing.assert_array_equal(loaded.score_samples(frame), model.score_samples(frame))
    assert loaded.sample(30, random_state=0)[0].equals(model.sample(30, random_state=0)[0])
    assert (loaded.sample(3)[0].dtypes == frame.dtypes).all()
    assert loaded.get_params()["categories"] == CATEGORIES


def test_private_and_plain_classes_are_compared(tmp_path):
    frame, _ = people(1500)
    private, plain = model_of().fit(frame), model_of(PrivacyPlan.non_private(n_steps=30)).fit(frame)
    comparison = compare(private, plain, frame, n_bootstrap=20)
    assert "log likelihood per record" in str(comparison)
    assert {"class 0", "class 1: sex = f", "class 2: children = 5"} <= {mover.name for mover in comparison.movers(99)}
    assert np.isfinite(comparison.to_frame()["value"]).all()
    itself = compare(private, private, frame, n_bootstrap=20)
    assert all(row.value == 0.0 for row in itself.rows)
    comparison.to_html(tmp_path / "report.html")
    assert "answers: area" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "noisy counts of classes" in str(private.privacy_)


def test_classes_in_another_order_are_matched():
    frame, _ = people(1000, missing=0.0)
    model, other = model_of().fit(frame), model_of().fit(frame)
    for fit in (model, other):  # matches would be those of other simulated records
        fit.noisy_totals_ = replace(fit.noisy_totals_, steps=())
    other.last_posterior_ = other.in_order(other.last_posterior_, np.array([2, 0, 1]))
    np.testing.assert_allclose(model.score_samples(frame), other.score_samples(frame))
    assert all(row.value == pytest.approx(0.0, abs=1e-12) for row in compare(model, other, frame, n_bootstrap=20).rows)
