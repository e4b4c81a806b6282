"""Steps before a private model are fitted to no record, give no output, and must keep their promises."""

import re
import traceback
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer

from tests.laws.cases import SecondMoments
from vips import DirichletMultinomial, PrivacyPlan
from vips.data import InMemoryData
from vips.preprocessing import PublicOneHotEncoder, PublicScaler, TableEncoder, make_public_pipeline

PLAN = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.5, n_steps=3, clip_norm=2.0, reproducible_noise=True)
MARK = "name@example.org"


def pipeline_of(step, **arguments):
    return make_public_pipeline(step, DirichletMultinomial(privacy=PLAN, random_state=0, **arguments))


def counts(n=20):
    return np.random.default_rng(0).poisson(1.0, (n, 3)).astype(float)


def broken(X):
    if len(X):
        warnings.warn(MARK, stacklevel=1)
        try:
            raise KeyError(MARK)
        except KeyError as error:
            raise ValueError(f"could not convert string to float: {MARK!r}") from error
    return X


def test_what_a_function_raises_is_not_quoted():
    pipeline = pipeline_of(FunctionTransformer(broken))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError) as raised:
            pipeline.fit(counts())
    assert not caught
    assert re.match(
        r"Step 'functiontransformer' raised ValueError in broken \(test_private_steps.py, line \d+\)", str(raised.value)
    )
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None
    assert MARK not in "".join(traceback.format_exception(raised.value))
    plain = make_public_pipeline(
        FunctionTransformer(broken), DirichletMultinomial(privacy=PrivacyPlan.non_private(n_steps=1))
    )
    with pytest.warns(UserWarning, match=MARK), pytest.raises(ValueError, match=MARK):
        plain.fit(counts())


def test_a_function_may_warn():
    def warn(X):
        if len(X):
            warnings.warn(MARK, stacklevel=1)
        return np.log(X)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipeline_of(FunctionTransformer(warn)).fit(-counts())


def test_floating_point_errors_are_off_where_a_caller_wants_them_raised():
    X = counts()
    X[:4, 0] = [-1.0, np.inf, 1e308, 5e-324]
    for step in (FunctionTransformer(np.sqrt), FunctionTransformer(np.exp), Normalizer()):
        with np.errstate(all="raise"):
            pipeline_of(step).fit(X)


def test_a_choice_by_density_behind_a_function_is_refused():
    pipeline = make_public_pipeline(
        FunctionTransformer(sp.csr_array),
        ColumnTransformer([("keep", "passthrough", [0, 1])]),
        DirichletMultinomial(privacy=PLAN),
    )
    for X in (counts(), counts(0), np.zeros((5, 3))):
        with pytest.raises(ValueError, match=r"counting non-zeros.*sparse_threshold=0"):
            pipeline.fit(X)
    pipeline.set_params(columntransformer__sparse_threshold=0).fit(counts())


def test_functions_inside_a_column_transformer():
    """One with a sparse result is refused by its result for no rows."""
    assert pipeline_of(ColumnTransformer([("root", FunctionTransformer(np.sqrt), [0, 1])])).fit(counts()).privacy_
    with pytest.raises(ValueError, match=r"counting non-zeros.*sparse_threshold=0"):
        pipeline_of(ColumnTransformer([("sparse", FunctionTransformer(sp.csr_array), [0, 1])])).fit(counts())


PROMISES_BROKEN = {
    "rows dropped": lambda X: X[X[:, 0] > 0],
    "columns by value": lambda X: X[:, X.any(axis=0) | (len(X) == 0)] if len(X) == 0 else X[:, :2],
    "columns learnt": lambda X: pd.get_dummies(pd.DataFrame(X).astype({0: str})).astype(float),
    "dtype by value": lambda X: X if len(X) == 0 else X.astype(int),
    "container by value": lambda X: X if len(X) == 0 else sp.csr_array(X),
    "a list": lambda X: X if len(X) == 0 else X.tolist(),
    "objects": lambda X: X if len(X) == 0 else X.astype(object),
    "strings": lambda X: X if len(X) == 0 else X.astype(str),
}


@pytest.mark.parametrize("name", PROMISES_BROKEN)
def test_results_whose_form_depends_on_values_are_refused(name):
    with pytest.raises((RuntimeError, TypeError)) as raised:
        pipeline_of(FunctionTransformer(PROMISES_BROKEN[name])).fit(counts())
    assert "may depend on values" in str(raised.value) or "got DataFrame" in str(raised.value)
    assert not re.search(r"\d", str(raised.value))  # the numbers of rows and columns are not told either


@pytest.mark.parametrize("n", [0, 1, 20])
@pytest.mark.parametrize("function", [lambda X: X / X.max(), lambda X: np.vstack(list(X))], ids=["max", "vstack"])
def test_a_function_that_needs_a_row_is_refused_with_and_without_one(function, n):
    with pytest.raises(ValueError, match=r"zero-size array|need at least one array") as raised:
        pipeline_of(FunctionTransformer(function)).fit(counts(n))
    assert "must accept this table" in raised.value.__notes__[0]


STEPS = {
    "normalizer": Normalizer(),
    "binarizer": Binarizer(threshold=0.5),
    "function": FunctionTransformer(np.sqrt),
    "scaler": PublicScaler((0, 3)),
    "table": TableEncoder({"a": (0, 1), "c": [0, 1]}),
    "pipeline": Pipeline([("bits", Binarizer()), ("keep", "passthrough")]),
    "union": FeatureUnion([("norm", Normalizer()), ("keep", "passthrough"), ("none", "drop")]),
    "columns": ColumnTransformer(
        [("norm", Normalizer(), ["a"]), ("codes", PublicOneHotEncoder({"b": [0, 1]}, sparse_output=True), ["b"])],
        remainder=FeatureUnion([("bits", Binarizer())]),
        sparse_threshold=0,
    ),
}


@pytest.mark.parametrize("frame", [True, False])
@pytest.mark.parametrize("name", STEPS)
def test_steps_are_fitted_to_no_record(name, frame):
    if name in ("columns", "table") and not frame:
        pytest.skip("columns by name")
    X = pd.DataFrame(counts(), columns=list("abc")) if frame else counts()
    fits = [pipeline_of(STEPS[name]).fit(table) for table in (X, X[:0], X[:1] * np.nan, X * 100)]
    hashes = {joblib.hash(pipeline[:-1].steps_) for pipeline in fits}
    assert len(hashes) == 1
    assert {pipeline[-1].n_features_in_ for pipeline in fits} == {fits[0][:-1].transform(X).shape[1]}
    theirs = Pipeline([("step", clone(STEPS[name]))]).fit(X)
    for part, other in zip(_leaves(fits[0].steps_[0][1]), _leaves(theirs[0]), strict=True):
        assert type(part) is type(other)
        assert isinstance(part, str) or vars(part).keys() == vars(other).keys()
    np.testing.assert_array_equal(fits[1][:-1].transform(X), theirs.transform(X))
    assert fits[0].n_features_in_ == 3
    assert getattr(fits[0], "feature_names_in_", np.array([])).tolist() == (list("abc") if frame else [])


def _leaves(step):
    if isinstance(step, Pipeline):
        inner = step.steps
    elif isinstance(step, ColumnTransformer):
        inner = step.transformers_
    else:
        inner = getattr(step, "transformer_list", [])
    yield step
    for entry in inner:
        yield from _leaves(entry[1])


def test_torn_records_count_for_nothing_behind_steps():
    X = sp.csr_array(counts())
    torn = sp.vstack([X, sp.csr_array(np.ones((2, 3)))], format="csr")
    torn.indices[-1], torn.indices[-5] = 10**6, -(10**6)
    before = torn.indices.copy()
    columns = ColumnTransformer([("keep", "passthrough", [2, 0, 1])], sparse_threshold=0)
    for step in (
        FunctionTransformer(),
        Normalizer(),
        columns,
        FeatureUnion([("a", "passthrough"), ("b", Normalizer())]),
    ):
        found = pipeline_of(step).fit(torn)[-1].posterior_.concentration
        np.testing.assert_allclose(found, pipeline_of(step).fit(X)[-1].posterior_.concentration)
    np.testing.assert_array_equal(torn.indices, before)
    whole = torn.astype(np.int64)
    np.testing.assert_allclose(  # integers cannot hold a NaN: a row of zeros
        pipeline_of(FunctionTransformer()).fit(whole)[-1].posterior_.concentration,
        pipeline_of(FunctionTransformer()).fit(X)[-1].posterior_.concentration,
    )
    assert pipeline_of(FunctionTransformer(lambda X: X[:, [0, 0]])).fit(torn)  # SciPy would read beyond its arrays


@pytest.mark.parametrize("step", [PublicScaler((0, 9)), PublicScaler({"b": (0, 9), "c": (0, 1)}), Normalizer(), Binarizer(),
                                  FunctionTransformer(np.abs), FeatureUnion([("keep", "passthrough")])], ids=str)  # fmt: skip
@pytest.mark.parametrize("container", ["array of objects", "frame of objects", "nullable frame", "list"])
def test_suggestions_work(step, container):
    X = counts()
    if isinstance(getattr(step, "bounds", None), dict) and "frame" not in container:
        pytest.skip("columns by name")
    if container == "list":
        X = X.tolist()
    elif container == "array of objects":
        X = X.astype(object)
    else:
        X = pd.DataFrame(X, columns=list("abc")).astype(object if container == "frame of objects" else "Float64")
    for _ in range(5):
        try:
            fitted = pipeline_of(step).fit(X)
            break
        except TypeError as error:
            suggestion = re.search(r"e\.g\. (.*)\.$", str(error))[1]
            written = eval(suggestion, {"X": X, "numpy": np, "pandas": pd})
            X = X.assign(**{written.name: written}) if isinstance(written, pd.Series) else written
    assert fitted.privacy_.plan == PLAN


def test_dask_collections_go_through_functions():
    da, dd = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")
    X = counts(40)
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abc")), npartitions=3)
    expected = pipeline_of(FunctionTransformer(np.sqrt)).fit(da.from_array(X, chunks=(10, 3)))
    alone = DirichletMultinomial(privacy=PLAN, random_state=0).fit(da.from_array(np.sqrt(X), chunks=(10, 3)))
    np.testing.assert_allclose(expected[-1].posterior_.concentration, alone.posterior_.concentration)
    for step in (FunctionTransformer(np.sqrt), Normalizer()):
        assert pipeline_of(step).fit(frame).n_features_in_ == 3
    with pytest.raises(TypeError, match="Dask collections, got InMemoryData"):
        pipeline_of(Normalizer()).fit(InMemoryData(X))


def test_steps_take_no_parameters_of_fit_before_a_private_model():
    with pytest.raises(TypeError, match="take no parameters of `fit`, got normalizer__sample_weight"):
        pipeline_of(Normalizer()).fit(counts(), normalizer__sample_weight=1)
    pipeline = make_public_pipeline(Normalizer(), SecondMoments(privacy=PLAN)).set_params(transform_input=["X_val"])
    with pytest.raises(ValueError, match="`transform_input`"):
        pipeline.fit(counts())
