import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer, StandardScaler

from tests.laws.cases import BetaBernoulli, SecondMoments
from vips import (
    BayesianLogisticRegression,
    LatentDirichletAllocation,
    PrivacyLedger,
    PrivacyPlan,
    SigmoidBeliefNetwork,
)
from vips.preprocessing import (
    PublicOneHotEncoder,
    PublicPipeline,
    PublicScaler,
    TableEncoder,
    make_public_pipeline,
)

PLAN = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.5, n_steps=3)
REPRODUCIBLE = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.5, n_steps=3, clip_norm=2.0, reproducible_noise=True)
COLUMNS = {"colour": ["red", "green"], "age": (0, 100)}


class Untouchable:
    """Data that must not be touched."""

    def __getattribute__(self, name):
        if name == "__class__":  # the type is public
            return Untouchable
        raise AssertionError(f"the data were touched: {name}")


class OwnScaler(PublicScaler):
    """A subclass may do anything."""


def tables(n=40):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"age": rng.uniform(0, 100, n), "colour": rng.choice(["red", "green", "other"], n)})


def identity(X):
    return X


def test_lda_behind_a_function_end_to_end():
    counts = np.random.default_rng(0).poisson(1.0, (60, 12))
    model = LatentDirichletAllocation(2, vocabulary=10, privacy=PLAN)
    pipeline = PublicPipeline([("cut", FunctionTransformer(lambda X: X[:, :10])), ("lda", model)]).fit(counts)
    shares, model = pipeline.transform(counts), pipeline[-1]
    np.testing.assert_array_equal(shares, model.transform(counts[:, :10]))
    report = pipeline.privacy_
    assert report.declared_public[: len(model.privacy_.declared_public)] == model.privacy_.declared_public
    assert report.declared_public[-1] == "the function of step 'cut' (promised: it treats each row alone)"
    assert report.plan == model.privacy_.plan
    assert "nothing learnt from the records: FunctionTransformer" in str(report)
    assert "promised" in str(report)
    assert "promised" not in str(model.privacy_)


def test_table_encoder_before_a_model_end_to_end():
    table = tables()
    pipeline = make_public_pipeline(TableEncoder(COLUMNS), SecondMoments(privacy=REPRODUCIBLE, random_state=0)).fit(
        table
    )
    assert [name for name, _ in pipeline.steps] == ["tableencoder", "secondmoments"]
    alone = SecondMoments(privacy=REPRODUCIBLE, random_state=0).fit(TableEncoder(COLUMNS).fit_transform(table))
    np.testing.assert_array_equal(pipeline[-1].posterior_["second"], alone.posterior_["second"])
    assert pipeline.privacy_.declared_public[-2:] == (
        "bounds of 1 numeric column (age: 0 to 100)",
        "categories of 1 column (colour: 2)",
    )
    assert pipeline.privacy_.to_dict()["preprocessing"].endswith("TableEncoder")
    assert pipeline.feature_names_in_.tolist() == ["age", "colour"]


def test_a_defective_record_counts_for_nothing():
    """The released values are the same without the record and with a NaN in it."""
    table = tables()
    worse = pd.concat([table, pd.DataFrame({"age": [np.nan, np.inf], "colour": ["red", [1]]})], ignore_index=True)
    fits = []
    for records in (table, worse):
        for encoder in (TableEncoder(COLUMNS), Pipeline([("t", TableEncoder(COLUMNS)), ("norm", Normalizer())])):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                pipeline = make_public_pipeline(encoder, SecondMoments(privacy=REPRODUCIBLE, random_state=0)).fit(
                    records
                )
            fits.append(pipeline[-1].posterior_["second"])
    np.testing.assert_array_equal(fits[0], fits[2])
    np.testing.assert_array_equal(fits[1], fits[3])
    assert (fits[0] != fits[1]).any()


@pytest.mark.parametrize(
    "step", [FunctionTransformer(np.sqrt), Normalizer(), Binarizer()], ids=lambda step: type(step).__name__
)
def test_no_value_of_a_record_warns_in_a_step_of_scikit_learn(step):
    X = np.ones((20, 3))
    X[:6, 0] = [-1.0, np.inf, -np.inf, np.nan, 1e308, 5e-324]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_public_pipeline(step, SecondMoments(privacy=REPRODUCIBLE)).fit(X)


def test_zero_records_are_ordinary_input():
    pipeline = make_public_pipeline(TableEncoder(COLUMNS), SecondMoments(privacy=PLAN)).fit(tables(0))
    assert np.isfinite(pipeline[-1].posterior_["second"]).all()


REFUSED = {
    "StandardScaler": StandardScaler(),
    "PCA": PCA(2),
    "OwnScaler": OwnScaler((0, 1)),
    "a column transformer's": ColumnTransformer([("z", StandardScaler(), [0])]),
    "remainder": ColumnTransformer([("u", PublicScaler((0, 1)), [0])], remainder=StandardScaler()),
    "union > z": FeatureUnion([("union", "passthrough"), ("z", StandardScaler())]),
    "inner": Pipeline([("p", "passthrough"), ("inner", Pipeline([("z", StandardScaler())]))]),
    "selects columns by a function": ColumnTransformer([("u", PublicScaler((0, 1)), lambda X: [0])]),
    "sparse_threshold=0": ColumnTransformer([("u", PublicOneHotEncoder([["a"]], sparse_output=True), [0])]),
    "validate=False": FunctionTransformer(identity, validate=True),
    "check_inverse=False": FunctionTransformer(identity, inverse_func=identity),
    "on disk": Pipeline([("p", "passthrough")], memory="/nowhere"),
    "workers": FeatureUnion([("p", "passthrough")], n_jobs=2),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_steps_that_could_learn_are_refused_before_a_private_model(reason):
    pipeline = PublicPipeline([("first", "passthrough"), ("union", REFUSED[reason]), ("model", BetaBernoulli(PLAN))])
    with pytest.raises(ValueError, match=r"Step 'union.*(Write|Use)") as error:
        pipeline.fit(Untouchable())
    wanted = {"a column transformer's": "union > z", "OwnScaler": "TableEncoder", "PCA": "without noise"}.get(
        reason, reason
    )
    assert wanted in str(error.value)
    assert not hasattr(pipeline, "privacy_")


def test_standard_scaler_may_stand_before_a_model_without_noise():
    X = np.random.default_rng(0).normal(3.0, 2.0, (50, 3))
    model = SecondMoments(privacy=PrivacyPlan.non_private(n_steps=1), random_state=0)
    pipeline = make_public_pipeline(StandardScaler(), model).fit(X)
    alone = clone(model).fit(StandardScaler().fit_transform(X))
    np.testing.assert_allclose(pipeline[-1].posterior_["second"], alone.posterior_["second"])
    assert pipeline.privacy_ == pipeline[-1].privacy_
    pipeline.set_params(secondmoments__privacy=PLAN)
    with pytest.raises(ValueError, match="StandardScaler"):
        pipeline.fit(X)


ACCEPTED = {
    "passthrough": "passthrough",
    "none": None,
    "binarizer": Binarizer(threshold=0.3),
    "normalizer": Normalizer(),
    "function": FunctionTransformer(np.abs),
    "pipeline": Pipeline([("a", Binarizer()), ("b", "passthrough")]),
    "union": FeatureUnion([("a", Normalizer()), ("b", PublicScaler((0, 1))), ("c", "drop"), ("d", "passthrough")]),
    "columns": ColumnTransformer(
        [("a", PublicScaler((0, 1)), [0, 1]), ("b", "drop", make_column_selector()), ("c", "passthrough", [2])]
    ),
    "sparse columns": ColumnTransformer(
        [("a", PublicOneHotEncoder([[0, 1]], sparse_output=True), [0])], remainder=Normalizer(), sparse_threshold=0
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_steps_that_treat_rows_alone_are_accepted(name):
    X = np.random.default_rng(0).integers(0, 2, (30, 3)).astype(float)
    columns = pd.DataFrame(X, columns=list("abc")) if name == "columns" else X
    model = SecondMoments(privacy=REPRODUCIBLE, random_state=0)
    pipeline = PublicPipeline([("step", ACCEPTED[name]), ("model", model)]).fit(columns)
    plain = Pipeline([("step", ACCEPTED[name]), ("model", clone(model))]).fit(columns)
    np.testing.assert_array_equal(pipeline[-1].posterior_["second"], plain[-1].posterior_["second"])
    assert clone(pipeline).get_params().keys() == pipeline.get_params().keys()


def test_sparse_counts_go_through_but_not_through_a_choice_by_density():
    counts = sp.csr_array(np.random.default_rng(0).poisson(0.5, (30, 6)))
    model = LatentDirichletAllocation(2, vocabulary=6, privacy=PLAN)
    columns = ColumnTransformer([("all", "passthrough", slice(0, 6))])
    with pytest.raises(ValueError, match="counting non-zeros"):
        make_public_pipeline(columns, model).fit(counts)
    assert make_public_pipeline(Normalizer(), model).fit_transform(counts).shape == (30, 2)


def test_fit_transform_checks_the_steps_too():
    model = LatentDirichletAllocation(2, vocabulary=3, privacy=PLAN)
    with pytest.raises(ValueError, match="StandardScaler"):
        make_public_pipeline(StandardScaler(), model).fit_transform(Untouchable())
    assert not hasattr(make_public_pipeline(BetaBernoulli(PLAN)), "fit_transform")
    assert not hasattr(make_public_pipeline(BetaBernoulli(PLAN)), "fit_predict")


def test_memory_is_refused_before_a_private_model(tmp_path):
    pipeline = PublicPipeline([("model", BetaBernoulli(PLAN))], memory=str(tmp_path))
    with pytest.raises(ValueError, match="`memory`"):
        pipeline.fit(Untouchable())


def test_the_last_step_must_be_a_model():
    with pytest.raises(TypeError, match="last step"):
        make_public_pipeline(PublicScaler((0, 1)), StandardScaler()).fit(Untouchable())
    sliced = make_public_pipeline(PublicScaler((0, 2)), BetaBernoulli(PLAN)).fit(np.eye(3))[:-1]
    np.testing.assert_array_equal(sliced.transform(np.eye(3)), np.eye(3) / 2)


@pytest.mark.parametrize("prefix", ["", "model__"])
def test_ledger_and_checkpoint_reach_the_model(prefix, tmp_path):
    ledger = PrivacyLedger(tmp_path / "ledger", epsilon=50.0, delta=1e-5, dataset="coins")
    pipeline = PublicPipeline([("scale", PublicScaler((0, 1))), ("model", BetaBernoulli(PLAN))])
    pipeline.fit(np.eye(5), **{f"{prefix}ledger": ledger, f"{prefix}checkpoint": tmp_path / "fit"})
    assert [run.state for run in ledger.runs()] == ["complete"]
    assert (tmp_path / "fit").exists()
    assert pipeline.privacy_.ledger["dataset"] == "coins"
    with pytest.raises(TypeError, match="twice"):
        pipeline.fit(np.eye(5), ledger=ledger, model__ledger=ledger)


def test_a_ledger_around_the_fit_is_charged_and_metadata_routing_keeps_its_rules(tmp_path):
    ledger = PrivacyLedger(tmp_path / "ledger", epsilon=50.0, delta=1e-5, dataset="coins")
    with ledger:
        make_public_pipeline(PublicScaler((0, 1)), BetaBernoulli(PLAN)).fit(np.eye(5))
    with config_context(enable_metadata_routing=True):
        model = BetaBernoulli(PLAN).set_fit_request(ledger=True)
        make_public_pipeline(PublicScaler((0, 1)), model).fit(np.eye(5), ledger=ledger)
    assert len(ledger.runs()) == 2


def test_the_report_says_what_was_declared_at_the_fit():
    pipeline = make_public_pipeline(PublicScaler((0, 1)), BetaBernoulli(PLAN))
    with pytest.raises(NotFittedError):
        _ = pipeline.privacy_
    pipeline.fit(np.eye(3))
    pipeline.set_params(publicscaler__bounds=(0, 9))
    assert "bounds of all numeric columns (0 to 1)" in pipeline.privacy_.declared_public
    with pytest.raises(TypeError, match="dtype"):
        pipeline.fit(np.eye(3).astype(object))
    with pytest.raises(NotFittedError):
        _ = pipeline.privacy_


def test_fit_leaves_its_steps_alone_and_gives_fitted_copies():
    scaler, model = PublicScaler((0, 2)), SecondMoments(privacy=PLAN)
    steps = [("scale", scaler), ("model", model)]
    pipeline = PublicPipeline(steps)
    assert pipeline.named_steps["model"] is pipeline["model"] is pipeline[-1] is model
    pipeline.fit(np.eye(3))
    assert pipeline.steps is steps
    assert steps == [("scale", scaler), ("model", model)]
    assert not hasattr(scaler, "n_features_in_")
    assert not hasattr(model, "posterior_")
    fitted = pipeline.steps_[-1][1]
    assert pipeline.named_steps["model"] is pipeline["model"] is pipeline[-1] is pipeline[1:][0] is fitted
    assert pipeline.get_params()["model"] is model
    assert fitted.posterior_["second"].shape == (3, 3)
    assert not hasattr(clone(pipeline), "steps_")


def test_settings_count_at_the_next_fit():
    pipeline = make_public_pipeline(PublicScaler((0, 1)), LatentDirichletAllocation(2, vocabulary=3, privacy=PLAN))
    shares = pipeline.fit(np.eye(3)).transform(np.eye(3))
    pipeline.set_params(publicscaler__bounds=(0, 2), latentdirichletallocation__n_components=4)
    np.testing.assert_array_equal(pipeline.transform(np.eye(3)), shares)
    assert pipeline.fit(np.eye(3)).transform(np.eye(3)).shape == (3, 4)
    np.testing.assert_array_equal(pipeline[:-1].transform(np.eye(3)), np.eye(3) / 2)


def test_a_failed_fit_leaves_nothing_fitted():
    pipeline = make_public_pipeline(PublicScaler((0, 1)), BetaBernoulli(PLAN)).fit(np.eye(3))
    with pytest.raises(TypeError, match="dtype"):
        pipeline.fit(np.eye(3).astype(object))
    for unfitted in (lambda: pipeline.privacy_, lambda: pipeline[:-1].transform(np.eye(3))):
        with pytest.raises(NotFittedError):
            unfitted()


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("when", ["before", "after"])
def test_set_output_holds_for_fitted_copies(when):
    pipeline = make_public_pipeline(
        PublicScaler((0, 1)), LatentDirichletAllocation(2, vocabulary=3, privacy=PrivacyPlan.non_private(n_steps=1))
    )
    if when == "before":
        pipeline.set_output(transform="pandas").fit(np.eye(3))
    else:
        pipeline.fit(np.eye(3)).set_output(transform="pandas")
    assert isinstance(pipeline.transform(np.eye(3)), pd.DataFrame)
    assert isinstance(pipeline.fit(np.eye(3)).transform(np.eye(3)), pd.DataFrame)


def test_methods_are_those_of_the_last_step():
    X, y = np.random.default_rng(0).uniform(-1, 1, (200, 2)), np.tile([0, 1], 100)
    X[:, 0] += y
    model = BayesianLogisticRegression(feature_norm=1.0, privacy=PLAN)
    for privacy in (PLAN, PrivacyPlan.non_private(n_steps=3)):
        pipeline = make_public_pipeline(PublicScaler((-1, 2)), clone(model).set_params(privacy=privacy))
        with pytest.raises(NotFittedError):
            pipeline.predict(X)
        pipeline.fit(X, y)
        Z, fitted = (X + 1) / 3, pipeline[-1]
        for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
            np.testing.assert_allclose(getattr(pipeline, method)(X), getattr(fitted, method)(Z))
        assert pipeline.score(X, y) == fitted.score(Z, y)
        assert pipeline.classes_.tolist() == [0, 1]
        assert not any(hasattr(pipeline, method) for method in ("transform", "inverse_transform", "score_samples"))
        assert cross_val_score(pipeline, X, y, cv=2).shape == (2,)
    network = make_public_pipeline(Normalizer(), SigmoidBeliefNetwork(2, privacy=PLAN, binarize=0.0)).fit(X)
    assert network.score_samples(X).shape == (200,)
    assert network.get_feature_names_out().tolist() == ["sigmoidbeliefnetwork0", "sigmoidbeliefnetwork1"]


@pytest.mark.parametrize("steps", [[], [("scale", PublicScaler), ("model", 3)], ["model"], None, 3])
def test_wrong_steps_are_refused_by_fit_and_not_before(steps):
    pipeline = PublicPipeline(steps)
    assert not is_classifier(pipeline)
    assert not hasattr(pipeline, "predict")
    with pytest.raises(TypeError, match="The last step of a PublicPipeline must be a vips model"):
        pipeline.fit(np.eye(3))


def test_chunk_size_is_copied_with_a_model():
    model = BetaBernoulli(PLAN)
    model.chunk_size = 7
    assert clone(model).chunk_size == make_public_pipeline(model).fit(np.eye(3))[-1].chunk_size == 7
    assert clone(BetaBernoulli(PLAN)).chunk_size == 1024
