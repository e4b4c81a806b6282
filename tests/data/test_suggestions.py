"""What an error suggests works: each suggestion is run, and the fit that was refused succeeds."""

from __future__ import annotations

import datetime
import math
import re
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from vips import (
    BayesianLogisticRegression,
    DirichletMultinomial,
    LatentClassAnalysis,
    LatentDirichletAllocation,
    PrivacyPlan,
    PrivacyWarning,
)
from vips.preprocessing import TableEncoder

PLAN = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=2)
DAYS = ["2020-01-01", "0900-02-03", None]
COLUMNS = {
    "dates": pd.Series(np.array([*DAYS[:2], "NaT"], dtype="datetime64[s]")),
    "dates with time zone": pd.to_datetime(pd.Series([DAYS[0], None])).dt.tz_localize("Europe/Paris"),
    "Arrow dates": pd.Series([datetime.date(2020, 1, 1), None], dtype=pd.ArrowDtype(pa.date32())),
    "Arrow times": pd.Series([datetime.datetime(2020, 1, 1), None], dtype=pd.ArrowDtype(pa.timestamp("us"))),
    "durations": pd.Series(pd.to_timedelta(["1D", None])),
    "Arrow durations": pd.Series([datetime.timedelta(1), None], dtype=pd.ArrowDtype(pa.duration("us"))),
    "text": pd.Series(["1", "x", None], dtype="string"),
    "objects": pd.Series([1, "x", None, [2]], dtype=object),
    "categorical": pd.Series([1, None, 2], dtype="category"),
    "nothing": pd.Series([None, None], dtype=pd.ArrowDtype(pa.null())),
}
ARRAYS = {
    "dates": np.array([["2020-01-01", "NaT"]], dtype="datetime64[D]"),
    "durations": np.array([[1, "NaT"]], dtype="timedelta64[s]"),
    "objects": np.array([[1, 2.5]], dtype=object),
    "text": np.array([["1", "2.5"]]),
    "half precision": np.array([[1, 2.5]], dtype=np.float16),
    "other byte order": np.array([[1, 2.5]], dtype=">f8"),
}


def model():
    return DirichletMultinomial(privacy=PLAN)


FITS = {"model": lambda X: model().fit(X), "encoder": lambda X: TableEncoder([(0, 10_000)] * X.shape[1]).fit(X)}


def suggested(fit, X):
    """What the error says to write, run."""
    with pytest.raises(TypeError) as raised:
        fit(X)
    code = re.search(r"e\.g\. (.*)\.$", str(raised.value))[1]
    return eval(code, {"X": X, "numpy": np, "pandas": pd, "datetime": datetime})


@pytest.mark.parametrize("name", COLUMNS)
def test_of_a_column(name):
    X = pd.DataFrame({"a": COLUMNS[name], "b": 1.0})
    X = X.assign(a=suggested(FITS["model"], X))
    FITS["model"](X)


@pytest.mark.parametrize("name", ARRAYS)
def test_of_an_array(name):
    FITS["model"](suggested(FITS["model"], ARRAYS[name]))


@pytest.mark.parametrize("name", COLUMNS)
def test_an_encoder_reads_cells_and_asks_for_other_bounds(name):
    X = pd.DataFrame({"a": COLUMNS[name], "b": 1.0})
    if "durations" in name:
        FITS["encoder"](X.assign(a=suggested(FITS["encoder"], X)))
    elif "dates" in name or "times" in name:
        bounds = suggested(FITS["encoder"], X)
        features = TableEncoder([bounds, (0, 1)]).fit_transform(X)
        assert features[0, 0] < 0.0
        assert suggested(TableEncoder({"b": bounds}).fit, X) == (0, 100)
    else:
        assert np.isfinite(FITS["encoder"](X).transform(X)).all()


@pytest.mark.parametrize("name", ["objects", "text", "half precision", "other byte order"])
def test_an_encoder_reads_arrays(name):
    features = TableEncoder([(0, 10), (0, 10)], unit_norm=False).fit_transform(ARRAYS[name])
    np.testing.assert_allclose(features, [[-0.8, -0.5]])


@pytest.mark.parametrize("name", ["dates", "durations"])
def test_of_dates_in_a_fit_that_is_not_private(name):
    X = pd.DataFrame({"a": COLUMNS[name], "b": 1.0}).iloc[:1]
    X = X.assign(a=suggested(DirichletMultinomial().fit, X))
    DirichletMultinomial().fit(X)
    DirichletMultinomial().fit(suggested(DirichletMultinomial().fit, ARRAYS[name][:, :1].repeat(2, axis=1)))


def test_of_an_arrow_table():
    table = pa.table({"day": pa.array([datetime.date(2020, 1, 1), None]), "b": [1.0, 2.0]})
    days = suggested(model().fit, table)
    model().fit(table.set_column(0, "day", pa.array(days)))
    decimals = pa.table({"a": pa.array([Decimal("1.5"), None]), "b": [1.0, 2.0]})  # which are numbers
    assert model().fit(decimals).n_features_in_ == 2


def test_of_a_frame_that_is_not_computed_and_of_a_list():
    class Lazy:
        def collect(self):
            return np.ones((3, 2))

    for X in (Lazy(), [[1, 2], [3, 4]]):
        model().fit(suggested(model().fit, X))


def logistic(**settings):
    return BayesianLogisticRegression(privacy=PLAN, max_norm=1.0, **settings)


@pytest.mark.parametrize(
    "y",
    [
        np.array(["1", "0"]),
        np.array([1, 0], dtype=object),
        pd.Series(["1", None], dtype="string"),
        pa.array(["1", "0"]),
    ],
    ids=lambda y: f"{type(y).__name__} {getattr(y, 'dtype', '')}",
)
def test_of_labels(y):
    with pytest.raises(TypeError, match="Declare words as `classes`") as raised:
        logistic().fit(np.ones((2, 1)), y)
    code = re.search(r"e\.g\. (.*)\.$", str(raised.value))[1]
    logistic().fit(np.ones((2, 1)), eval(code, {"y": y, "pandas": pd}))
    if getattr(y, "dtype", None) != np.dtype(object):
        assert logistic(classes=["0", "1"]).fit(np.ones((2, 1)), y).classes_.tolist() == ["0", "1"]


@pytest.mark.filterwarnings("ignore:Noise hides how large")  # one column separates the labels
def test_labels_of_minus_one_and_one_are_declared():
    """The default classes, 0 and 1, are public; that a fit ignored all other labels shows when it is scored."""
    X = np.random.default_rng(0).uniform(-0.5, 0.5, (2000, 2))
    y = np.where(X[:, 0] > 0, 1, -1)
    model = logistic().fit(X, y)
    assert 'classes of y: 0 and 1 (the last one is "yes"; none were declared)' in model.privacy_.declared_public
    with pytest.raises(ValueError, match=r"e\.g\. classes=\[-1, 1\], and fit again"):
        model.score(X, y)
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=10)
    model = BayesianLogisticRegression(privacy=plan, max_norm=1.0, classes=[-1, 1]).fit(X, y)
    assert 'classes of y: -1 and 1 (the last one is "yes")' in model.privacy_.declared_public
    three = BayesianLogisticRegression(privacy=plan, max_norm=1.0, classes=[-1, 0, 1]).fit(X, y)
    assert "classes of y: -1, 0 and 1 (each against later ones)" in three.privacy_.declared_public
    assert model.score(X, pa.array(y)) > 0.9
    assert BayesianLogisticRegression(prior=1.0).fit(X, y).score(X, y) > 0.9


def test_of_weights_in_place_of_counts():
    texts = ["red blue blue", "blue", "red red blue"]
    model = LatentDirichletAllocation(2, vocabulary=["blue", "red"], privacy=PLAN)
    weights = TfidfVectorizer(vocabulary=["blue", "red"]).fit_transform(texts)
    for rows in (weights, weights[:0]):  # without any document, too
        with pytest.warns(PrivacyWarning, match="use sklearn's CountVectorizer"):
            model.fit(rows)
    counts = CountVectorizer(vocabulary=["blue", "red"]).fit_transform(texts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "There is no signal")  # in three texts
        model.fit(counts)
        model.fit(counts.astype(float).astype(int))
        model.fit(counts.astype(float).toarray())


ANSWERS = [["yes", 1], ["no", 2], [None, 3]]
DECLARED = [["no", "yes"], (0, 4)]


@pytest.mark.parametrize("X", [ANSWERS, {0: ["yes", "no", None], 1: [1, 2, 3]}], ids=["list", "dict"])
def test_of_a_list_with_words(X):
    """What is suggested works for the cells of any column, in an encoder and in models of categories."""
    encoder = TableEncoder(DECLARED, unit_norm=False)
    cells = suggested(encoder.fit, X)
    np.testing.assert_array_equal(encoder.fit_transform(cells), [[0, 1, -0.5], [1, 0, 0], [0, 0, 0.5]])
    classes = LatentClassAnalysis(1, categories=[["no", "yes"], [1, 2, 3]], privacy=PLAN)
    assert classes.fit(suggested(classes.fit, X)).n_features_in_ == 2


def test_a_list_of_words_is_taken_as_labels():
    """As an array of the same words; what is no class is none, whatever it is."""
    labels, X = ["yes", "no", None, 3, ["yes"]], np.ones((5, 1))
    fits = []
    for y in (labels, tuple(labels), pd.Series(labels, dtype=object)):
        fits.append(logistic(classes=["no", "yes"]).records_of(X, y).arrays[1].tolist())
    assert repr(fits[0]) == repr([1.0, 0.0, math.nan, math.nan, math.nan])
    assert repr(fits[0]) == repr(fits[1]) == repr(fits[2])
    with pytest.raises(TypeError, match="Declare words as `classes`"):
        logistic().fit(X, ["yes", "no", "no", "no", "no"])


@pytest.mark.parametrize("name", COLUMNS)
def test_errors_do_not_depend_on_the_records(name):
    """The same words without any record, and with the first only."""
    X, messages = pd.DataFrame({"a": COLUMNS[name], "b": 1.0}), set()
    for rows in (X, X[:1], X[:0]):
        with pytest.raises(TypeError) as raised:
            model().fit(rows)
        messages.add(str(raised.value))
    assert len(messages) == 1
