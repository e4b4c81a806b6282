"""Comparisons of fitted models: zero with themselves, sources of numbers, scores, arms, errors."""

import copy
import json
import pickle
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import log_loss, r2_score, roc_auc_score

import vips
from tests.tools.comparison import report_cases
from vips import (
    BayesianBinomialRegression,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    Block,
    ConjugateExponentialModel,
    DenseStatistics,
    DirichletMultinomial,
    FactorAnalysis,
    LatentDirichletAllocation,
    PrivacyPlan,
    ProbabilisticPCA,
    SigmoidBeliefNetwork,
)
from vips.datasets import load_digits_binary, make_lda_corpus
from vips.expfam import Dirichlet, Gamma
from vips.models.belief_networks.posterior import reordered
from vips.models.topics.statistics import TopicPosterior
from vips.tools.comparison import Comparison, compare
from vips.tools.comparison import movement as movements
from vips.tools.comparison.compare import plans_of_arms

PLAN = PrivacyPlan.from_epsilon(epsilon=2.0, delta=1e-5, sampling_rate=1.0, n_steps=10)
LOG_LOSS = "log-loss (lower is better)"


def labelled(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.5, 0.5, (n, 4))
    return X, (rng.random(n) < 1.0 / (1.0 + np.exp(-X @ [4.0, -4.0, 2.0, 0.0]))).astype(int)


def logistic(privacy=PLAN, **more):
    return BayesianLogisticRegression(privacy=privacy, max_norm=1.0, **more).fit(*labelled())


class Fits(dict):
    """A private and a plain fit, and their data, of what is asked for."""

    def __init__(self, models):
        super().__init__()
        self.models = models

    def __missing__(self, name):
        model, data = self.models[name]
        fits = (clone(model).set_params(privacy=plan).fit(*data) for plan in (PLAN, None))
        return self.setdefault(name, (*fits, data))


@pytest.fixture(scope="module")
def models():
    """Classes that have names of their own for their parameters."""
    X, y = labelled()
    documents = make_lda_corpus(n_documents=400, n_topics=3, n_words=40, document_length=40, random_state=0).counts
    digits = load_digits_binary().data[:300]
    classes = {
        "logistic": (BayesianLogisticRegression(max_norm=1.0), (X, y)),
        "three classes": (BayesianLogisticRegression(max_norm=1.0, classes=[0, 1, 2]), (X, y + (X[:, 3] > 0.2))),
        "diagonal": (BayesianLogisticRegression(max_norm=1.0, covariance="diagonal"), (X, y)),
        "binomial": (BayesianBinomialRegression(n_trials=2, max_norm=1.0), (X, 2 * y)),
        "linear": (
            BayesianLinearRegression(max_norm=1.0, target_range=(-4.0, 4.0)),
            (X, X @ [4.0, -4.0, 2.0, 0.0] + y),
        ),
        "principal components": (ProbabilisticPCA(1, max_norm=1.0), (X,)),
        "factors": (FactorAnalysis(1, max_norm=1.0), (X,)),
        "lda": (LatentDirichletAllocation(3, vocabulary=40, random_state=0), (documents,)),
        "sbn": (SigmoidBeliefNetwork(4, random_state=0), (digits,)),
        "sbn, full": (SigmoidBeliefNetwork(3, covariance="full", penalty="normal", random_state=0), (digits,)),
        "proportions": (DirichletMultinomial(), (np.eye(4)[y + 2 * (X[:, 3] > 0.0)],)),
    }
    return Fits(classes)


NAMES = [
    "logistic", "three classes", "diagonal", "binomial", "linear", "principal components", "factors", "lda", "sbn", "sbn, full",
    "proportions",
]  # fmt: skip
CHEAP = "logistic", "linear", "proportions"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.representatives(*CHEAP)
def test_a_model_does_not_differ_from_itself(models, name):
    private, _, data = models[name]
    comparison = compare(private, private, *data, n_bootstrap=20)
    assert len(comparison.rows) >= 6
    for row in comparison.rows:
        assert row.value == 0.0, row
        assert "private data" not in row.source
    assert all(mover.difference == 0.0 and mover.wasserstein == 0.0 for mover in comparison.movers(10**9)[:50])
    assert "None of the" in str(comparison)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.representatives(*CHEAP, "lda")
def test_every_class_has_rows_a_table_a_figure_and_words(models, name):
    private, baseline, data = models[name]
    comparison = compare(private, baseline, *data, n_bootstrap=20)
    frame, parameters = comparison.to_frame(), comparison.to_frame("parameters")
    assert len(frame) == len(comparison.rows)
    assert np.isfinite(frame["value"]).all()
    assert parameters["name"].is_unique
    assert len(parameters) == sum(len(movement.difference) for movement in comparison.movements)
    assert {"quantity", "private", "baseline", "value", "lower", "upper", "source"} <= set(frame.columns)
    axes = comparison.plot(5).axes
    assert [label.get_text() for label in axes[0].get_yticklabels()] == [
        mover.name for mover in sorted(comparison.movers(5), key=lambda mover: mover.difference)
    ]
    text = str(comparison)
    assert text.startswith(
        f"{type(private).__name__}: a private fit (ε = 2 at δ = 1e-05) against a baseline without noise."
    )
    movement, place = movements.largest(comparison.movements, 1)[0]
    assert f"the one that moved most is {movement.name(place)}, from " in text
    forward, backward = compare(private, baseline), compare(baseline, private)
    assert str(forward) == str(backward)  # the order of the two does not decide which is private
    restored = pickle.loads(pickle.dumps(comparison))
    assert str(restored) == text
    assert restored.movers(5) == comparison.movers(5)
    assert restored.to_frame("parameters").equals(comparison.to_frame("parameters"))
    assert restored.privacy == comparison.privacy


def test_divergences_are_symmetric_in_two_private_fits():
    one, other = logistic(), logistic(replace(PLAN, noise_multiplier=3.0))
    forward, backward = compare(one, other), compare(other, one)
    for name, divergence in forward.divergences.items():
        reverse = backward.divergences[name]
        np.testing.assert_array_equal(divergence.kl_private_baseline, reverse.kl_baseline_private)
        np.testing.assert_allclose(divergence.wasserstein, reverse.wasserstein, rtol=1e-9)
        np.testing.assert_allclose(divergence.total_variation_bound, reverse.total_variation_bound)
    assert "a private baseline" in str(forward)


# -- where numbers come from ---------------------------------------------------------------------------------------


def test_every_number_says_what_it_was_computed_from():
    X, y = labelled(200, seed=1)
    plain, private, other = logistic(None), logistic(), logistic()
    comparison = compare(private, other, X, y, n_bootstrap=20)
    assert comparison.source == "released"
    assert {row.source for row in comparison.rows} == {"released", "X_test: not protected"}
    assert "private data" not in str(comparison)
    assert "All numbers were computed from released values." in str(compare(private, other))
    comparison = compare(private, plain, X, y, n_bootstrap=20)  # a fit without noise reveals its records
    assert comparison.source == comparison.movers(1)[0].source == "private data"
    assert comparison[LOG_LOSS].private_source == "X_test: not protected"
    assert comparison[LOG_LOSS].baseline_source == comparison[LOG_LOSS].source == "private data; X_test: not protected"
    width = "posterior standard deviation, median, coefficients"
    assert (comparison[width].private_source, comparison[width].baseline_source) == ("released", "private data")
    assert "protect them as you protect the records" in " ".join(str(comparison).split())
    with pytest.raises(KeyError, match="There is no row 'nothing'"):
        comparison["nothing"]
    seeded = logistic(replace(PLAN, reproducible_noise=True))  # without a guarantee
    comparison = compare(private, seeded)
    assert {row.source for row in comparison.rows} == {"private data"}
    assert "without a guarantee" in str(comparison)


# -- scores --------------------------------------------------------------------------------------------------------


def test_scores_are_those_of_scikit_learn_and_of_the_models(models):
    X, y = labelled(300, seed=2)
    for private, baseline, _ in (models["logistic"], models["diagonal"]):
        comparison = compare(private, baseline, X, y, n_bootstrap=200)
        for model, side in ((private, "private"), (baseline, "baseline")):
            probabilities = model.predict_proba(X)
            assert getattr(comparison[LOG_LOSS], side) == pytest.approx(log_loss(y, probabilities))
            auc = getattr(comparison["AUC (higher is better)"], side)
            assert auc == pytest.approx(roc_auc_score(y, probabilities[:, 1]))
        row = comparison[LOG_LOSS]
        assert row.value == pytest.approx(row.private - row.baseline)
        assert row.private_interval[0] < row.private < row.private_interval[1]
        assert row.interval[0] < row.value < row.interval[1]
        assert np.diff(row.interval) < np.diff(row.private_interval)  # the same resamples for both
    private, baseline, (X, y) = models["binomial"]
    assert compare(private, baseline, X, y)["R² (higher is better)"].private == pytest.approx(
        r2_score(y, private.predict(X))
    )
    private, baseline, (X,) = models["lda"]
    row, of_sparse = (
        compare(private, baseline, table, n_bootstrap=10)["log likelihood per word (higher is better)"]
        for table in (X, sp.csr_array(X))
    )
    assert row == of_sparse
    assert row.private == pytest.approx(-np.log(private.perplexity(X)), rel=1e-6)
    private, baseline, (X,) = models["sbn"]
    row = compare(private, baseline, X, n_bootstrap=10)["evidence lower bound per record (higher is better)"]
    assert row.baseline == pytest.approx(baseline.score(X))


def test_bootstrap_intervals_have_the_width_of_the_standard_error(models):
    X, y = labelled(2000, seed=3)
    private, baseline, _ = models["logistic"]
    row = compare(private, baseline, X, y)[LOG_LOSS]
    losses = -np.log(private.predict_proba(X)[np.arange(2000), y])
    assert np.diff(row.private_interval) == pytest.approx(2 * 1.96 * losses.std() / np.sqrt(2000), rel=0.1)
    X, y = labelled(100, seed=4)  # of one class: a loss and no AUC
    comparison = compare(private, baseline, X[y == 1], y[y == 1], n_bootstrap=10)
    assert np.isfinite(comparison[LOG_LOSS].value)
    assert np.isnan(comparison["AUC (higher is better)"].value)


# -- matching and names --------------------------------------------------------------------------------------------


def of_posteriors(comparison):
    """Rows of the posterior, which the tests below put in another order; others come from totals."""
    others = "share of signal", "real topics", "misfit"
    return [row for row in comparison.rows if not any(other in row.quantity for other in others)]


def test_topics_in_another_order_are_the_same_topics(models):
    private, _, (X,) = models["lda"]
    shuffled = LatentDirichletAllocation(3, vocabulary=40, privacy=PLAN, random_state=0).fit(X)
    shuffled.once("posterior", lambda: private.in_order(private.posterior_, [2, 0, 1]))
    comparison = compare(private, shuffled)
    assert comparison.alignment.order.tolist() == [1, 2, 0]
    assert all(abs(row.value) < 1e-6 for row in of_posteriors(comparison))


@pytest.mark.repeated("sbn, full")
@pytest.mark.parametrize("name", ["sbn", "sbn, full"])
def test_hidden_units_in_another_order_are_the_same_units(models, name):
    private, shuffled = copy.copy(models[name][0]), clone(models[name][0]).fit(models[name][2][0])
    order = np.roll(np.arange(private.n_components), 1)
    for model in (private, shuffled):  # without a match, which would be read
        model.noisy_totals_ = replace(model.noisy_totals_, steps=())
        model.forget_computed()
    shuffled.last_posterior_ = reordered(private.last_posterior_, order)
    assert not np.array_equal(shuffled.last_posterior_.weights.mean, private.last_posterior_.weights.mean)
    comparison = compare(private, shuffled)
    rows = of_posteriors(comparison)
    assert all(row.value == 0.0 for row in rows if not row.quantity.startswith("2-Wasserstein"))
    assert all(row.value < 1e-9 for row in rows)


@pytest.mark.slow
def test_large_topics_are_compared_in_seconds():
    rng = np.random.default_rng(0)
    X = rng.poisson(0.05, (50, 4000))
    plans = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=1), PrivacyPlan.non_private(n_steps=1)
    private, baseline = (
        LatentDirichletAllocation(50, vocabulary=4000, privacy=plan, random_state=0).fit(X) for plan in plans
    )
    counts, order = 1000.0 * rng.gamma(0.1, 1.0, (50, 4000)) + 0.02, rng.permutation(50)
    private.once("posterior", lambda: TopicPosterior(counts))
    baseline.last_posterior_ = TopicPosterior((counts * rng.gamma(100.0, 0.01, counts.shape))[order])
    comparison = compare(private, baseline)
    np.testing.assert_array_equal(order[comparison.alignment.order], np.arange(50))
    assert comparison.divergences["topics"].kl_private_baseline.shape == (50,)
    assert len(comparison.movers(20)) == 20


def test_movers_are_named_and_sorted():
    X, y = labelled()
    table = pd.DataFrame(X, columns=["age", "height", "weight", "shoe size"])
    private, baseline = (
        BayesianLogisticRegression(privacy=plan, max_norm=1.0).fit(table, pd.Series(y)) for plan in (PLAN, None)
    )
    comparison = compare(private, baseline)
    for by in ("standardized", "absolute"):
        movers = comparison.movers(by=by)
        sizes = [abs(mover.standardized if by == "standardized" else mover.difference) for mover in movers]
        assert sizes == sorted(sizes, reverse=True)
        assert {mover.name for mover in movers} == {"age", "height", "weight", "shoe size", "intercept"}
    shift = dict(zip(["age", "height", "weight", "shoe size"], (private.coef_ - baseline.coef_)[0], strict=True))
    pooled = np.sqrt(0.5 * (private.posterior_.var + baseline.posterior_.var))
    for mover in movers:
        if mover.name != "intercept":
            assert mover.difference == pytest.approx(shift[mover.name])
    oldest = next(mover for mover in movers if mover.name == "age")
    assert oldest.standardized == pytest.approx(shift["age"] / pooled[0])
    assert [m.name for m in comparison.movers(2)] == [m.name for m in comparison.movers(5)][:2]
    for wrong in ({"by": "size"}, {"n": 0}):
        with pytest.raises(ValueError, match="must be"):
            comparison.movers(**wrong)


def test_words_and_classes_name_parameters(models):
    private, baseline, _ = models["three classes"]
    assert {mover.name.split(":")[0] for mover in compare(private, baseline).movers(10)} == {"class 0", "class 1"}
    words = [*report_cases.HOSTILE, *(f"word{i}" for i in range(35))]
    assert report_cases.topics().movers(1)[0].name.split(": ")[1] in words
    assert "→" in compare(*models["sbn"][:2]).to_frame("parameters")["name"][0]


# -- the posterior that is read ----------------------------------------------------------------------------------------


def test_the_posterior_that_is_read_is_compared(models):
    """The one that knows the noise, not that of the last step; draws are compared by their moments."""
    private, baseline, _ = models["proportions"]
    comparison = compare(private, baseline)
    means, _ = comparison.movements[0].means
    np.testing.assert_array_equal(means, private.posterior_.mean)
    assert (means != private.last_posterior_.mean).all()
    draws, theirs = private.posterior_, baseline.posterior_
    size = (draws.mean * (1.0 - draws.mean)).sum() / draws.var.sum() - 1.0
    assert comparison.divergences["parameters"].kl_private_baseline == Dirichlet(draws.mean * size).kl(theirs)
    np.testing.assert_array_equal(comparison.movements[0].stds[0], draws.std)


def test_a_posterior_that_ignores_the_noise_is_noted(models):
    private, baseline, data = models["logistic"]
    paper = clone(private).set_params(statistics="paper").fit(*data)
    assert any('statistics="centred"' in note for note in compare(paper, baseline).notes)
    assert not any("ignore the noise" in note for note in compare(private, baseline).notes)


# -- three arms ----------------------------------------------------------------------------------------------------

SHARE = "share of {} in the shift of parameters"


def test_effects_of_persons_beside_effects_of_rows_are_noted():
    X, y = labelled()
    persons = logistic().fit(X, y, groups=np.arange(len(X)) // 3)
    rows, baseline = logistic().fit(X, y), logistic(privacy=None).fit(X, y)
    for other in (rows, baseline):
        said = [note for note in compare(persons, other).notes if "not of rows" in note]
        assert len(said) == 1
        assert said[0].startswith("in the private fit, whoever has many rows counts")
    assert not any("not of rows" in note for one in (persons, rows) for note in compare(one, one).notes)
    assert any("in the baseline, whoever" in note for note in compare(rows, persons).notes)


def arms(plan, clip_norm):
    X, y = labelled(2000)
    private = BayesianLogisticRegression(privacy=replace(plan, clip_norm=clip_norm), max_norm=1.0).fit(X, y)
    baseline = BayesianLogisticRegression(max_norm=1.0).fit(X, y)
    return compare(private, baseline, X=X, y=y, may_use_private_data=True)


def test_a_tight_clip_is_told_from_noise_and_noise_from_a_clip():
    little, much = (replace(PLAN, noise_multiplier=sigma, n_steps=20) for sigma in (0.01, 60.0))
    clip, noise = arms(little, 0.05), arms(much, 10.0)
    assert clip[SHARE.format("clipping")].value > 0.95
    assert noise[SHARE.format("noise")].value == pytest.approx(1.0, abs=1e-2)  # a clip of 10 binds for hardly a record
    for comparison in (clip, noise):
        for what in ("parameters", "predictions"):
            shares = [comparison[f"share of {cause} in the shift of {what}"].value for cause in ("clipping", "noise")]
            assert sum(shares) == pytest.approx(1.0)
    neither = "shift of parameters by neither (plain arm to baseline), root mean square"
    assert clip[neither].value == pytest.approx(noise[neither].value, rel=1e-6)


def test_numbers_of_the_arms_are_private_data():
    X, y = labelled(300, seed=5)
    one, other = logistic(), logistic()
    comparison = compare(one, other, X, y, X=labelled()[0], y=labelled()[1], may_use_private_data=True, n_bootstrap=10)
    rows_of_arms = [
        row
        for row in comparison.rows
        if any(what in row.quantity for what in ("clipping", "by noise", "share of noise"))
    ]
    assert len(rows_of_arms) >= 10
    assert all(row.source.startswith("private data") for row in rows_of_arms)
    assert comparison.source == "released"  # the source of the divergences
    assert f"{LOG_LOSS}, change by clipping" in [row.quantity for row in rows_of_arms]


@pytest.mark.repeated("sbn", "lda")
@pytest.mark.parametrize("name", ["lda", "sbn", "binomial", "proportions"])
def test_every_class_has_arms(models, name):
    private, baseline, data = models[name]
    X, y = (*data, None)[:2]
    comparison = compare(private, baseline, X=X, y=y, may_use_private_data=True)
    assert 0.0 <= comparison["shift of parameters by noise, root mean square"].value < np.inf
    assert private.privacy_.plan.noise_multiplier == PLAN.noise_multiplier  # it was not fitted again itself


def test_arms_differ_from_the_private_fit_in_clip_and_noise_only():
    plan = PrivacyPlan(noise_multiplier=1.0, n_steps=7, clip_norm=0.5, sampling_rate=0.25, relation="replace_one")
    for norm, largest in ((2.0, 2.0), (np.inf, 1e6), (0.1, 0.5)):
        plain, clipped = plans_of_arms(plan, norm)
        assert plain.clip_norm == largest
        assert clipped.clip_norm == 0.5
        for arm in (plain, clipped):
            assert arm.noise_std() < 1e-5
            same = replace(
                plan, noise_multiplier=arm.noise_multiplier, clip_norm=arm.clip_norm, reproducible_noise=True
            )
            assert arm == same


# -- errors --------------------------------------------------------------------------------------------------------


def test_training_data_need_permission(models, tmp_path):
    private, plain, (X, y) = models["logistic"]
    for given, message in (
        ({"X": X, "y": y}, "may_use_private_data=True"),
        ({"y": y}, "may_use_private_data=True"),
        ({"may_use_private_data": True}, "does nothing without"),
        ({"X": X, "may_use_private_data": True}, "pass `y`"),
    ):
        with pytest.raises(ValueError, match=message):
            compare(private, plain, **given)
    ledger = vips.PrivacyLedger(tmp_path / "a.ledger", epsilon=1.0, delta=1e-6, dataset="a", unit="row")
    with ledger, pytest.raises(ValueError, match="ledger"):
        compare(private, plain, X=X, y=y, may_use_private_data=True)


def test_models_that_cannot_be_compared_are_refused(models):
    private, plain, (X, y) = models["logistic"]
    topics, _, (documents,) = models["lda"]
    words, short = [f"word{i}" for i in range(40)], PrivacyPlan(noise_multiplier=9.0, sampling="full", n_steps=1)
    one, other = (
        LatentDirichletAllocation(3, vocabulary=names, privacy=short).fit(documents) for names in (words, words[::-1])
    )
    for ours, theirs, error, message in (
        (private, topics, TypeError, "Compare two models of one class"),
        (private, X, TypeError, "fitted model of vips, got ndarray"),
        (private, BayesianLogisticRegression(), ValueError, r"`baseline` is not fitted: call baseline.fit"),
        (plain, plain, ValueError, "Neither fit added noise"),
        (private, BayesianLogisticRegression().fit(X[:, :3], y), ValueError, "n_features_in_ = 4 and .* n_features_in_ = 3"),
        (private, logistic(None, fit_intercept=False), ValueError, "fit_intercept"),
        (private, BayesianLogisticRegression().fit(X, y + 1), ValueError, "different classes"),
        (topics, LatentDirichletAllocation(2).fit(documents[:50]), ValueError, "n_components = 3 and .* n_components = 2"),
        (one, other, ValueError, "different words"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            compare(ours, theirs)


def test_test_records_must_have_labels(models):
    X, y = labelled(20)
    private, plain = models["logistic"][:2]
    for arguments, message in (
        ((X,), "pass `y_test`"),
        ((None, y), "without `X_test`"),
        ((X, y[:5]), "different numbers of rows"),
        ((X[:0], y[:0]), "no records"),
        ((X, y + 5), "labels that the models do not know"),
    ):
        with pytest.raises(ValueError, match=message):
            compare(private, plain, *arguments)
    for wrong in ({"n_bootstrap": 0}, {"level": 1.0}):
        with pytest.raises(ValueError, match="must be"):
            compare(private, plain, **wrong)


def test_an_unknown_posterior_is_refused_and_a_known_family_is_enough():
    class Rate(ConjugateExponentialModel):
        def __init__(self, privacy=None, random_state=None):
            self.privacy, self.random_state = privacy, random_state

        def blocks(self):
            return {"total": Block((2,))}

        def initial(self, rng):
            return {"total": np.zeros(2)}

        def expected_statistics(self, records, posterior):
            return DenseStatistics({"total": records})

        def to_posterior(self, average, noise_std, previous):
            return Gamma(1.0 + np.maximum(average["total"], 0.0), 1.0)

    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=2, clip_norm=1.0)
    private, plain = (Rate(privacy).fit(np.ones((20, 2))) for privacy in (plan, None))
    comparison = compare(private, plain, np.ones((5, 2)))
    assert isinstance(comparison, Comparison)
    assert [mover.name for mover in sorted(comparison.movers(), key=lambda mover: mover.name)] == ["x0", "x1"]
    assert any("X_test was not used" in note for note in comparison.notes)
    private.last_posterior_ = {"a": np.ones(3)}
    with pytest.raises(TypeError, match="The posterior of Rate is a dict"):
        compare(private, plain)


def test_optional_packages_are_asked_for_by_name(models, monkeypatch):
    comparison = compare(*models["logistic"][:2])
    for library in ("pandas", "matplotlib"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match="needs pandas"):
        comparison.to_frame()
    with pytest.raises(ImportError, match="needs matplotlib"):
        comparison.plot()
    assert str(comparison)


@pytest.mark.repeated("network")
@pytest.mark.parametrize("name", ["regression", "topics", "network"])
def test_json_holds_all_rows_and_parameters(name, tmp_path):
    comparison = getattr(report_cases, name)()
    text = comparison.to_json()
    values = json.loads(text, parse_constant=lambda constant: pytest.fail(constant))
    assert [row["quantity"] for row in values["rows"]] == [row.quantity for row in comparison.rows]
    assert len(values["parameters"]) == sum(len(movement.difference) for movement in comparison.movements)
    assert values["privacy"][0]["epsilon"] == comparison.privacy[0].epsilon()
    assert comparison.to_json(tmp_path / "comparison.json") is None
    assert (tmp_path / "comparison.json").read_text(encoding="utf-8").strip() == text
