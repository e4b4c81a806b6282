"""``PrivateSearch`` as users meet it: models, pipelines, persons, and errors from public facts alone."""

from __future__ import annotations

import copy
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from tests.own_model import GaussianMean
from tests.search.cases import PRIORS, VOTES, votes
from vips import (
    BayesianLogisticRegression,
    CategoricalHMM,
    DirichletMultinomial,
    LatentDirichletAllocation,
    PrivacyBudget,
    PrivacyPlan,
    PrivateSearch,
    PrivateTopics,
    SigmoidBeliefNetwork,
    load,
)
from vips.data import InMemoryData, Sequences
from vips.preprocessing import TableEncoder
from vips.privacy.selection import TrialCount

RNG = np.random.default_rng(1)
X = RNG.uniform(-0.5, 0.5, (2000, 3))
Y = (RNG.random(2000) < 1.0 / (1.0 + np.exp(-X @ [6.0, -6.0, 0.0]))).astype(int)
WORDS = np.where(Y > 0, "yes", "no").astype(object)
LOGISTIC = BayesianLogisticRegression(max_norm=1.0)
BUDGET = {"privacy": PrivacyBudget(2.0, 1e-6)}
REPLACED = PrivacyBudget(2.0, 1e-6, relation="replace_one")


def test_what_is_released():
    search = votes().fit(VOTES)
    assert isinstance(search.best_estimator_, DirichletMultinomial)
    assert search.best_params_ in [{"prior": prior} for prior in PRIORS["prior"]]
    assert search.best_estimator_.prior == search.best_params_["prior"]
    assert np.isfinite(search.best_score_)
    assert 1.98 < search.privacy_.epsilon() <= 2.0
    assert search.privacy_.epsilon(1e-9) > search.privacy_.epsilon(1e-5)
    assert {name for name in vars(search) if name.endswith("_")} == {
        "best_estimator_", "best_params_", "best_score_", "privacy_"
    }  # fmt: skip


def test_a_clear_winner_is_found(monkeypatch):
    """A prior that hides all categories against one that does not, in so many trials that both are among them."""
    monkeypatch.setattr(TrialCount, "draw", lambda self: 40)
    candidates = [{"prior": 1.0}, {"prior": 1e9}]
    for _ in range(3):
        search = votes(candidates=candidates, epsilon=8.0).fit(np.tile(VOTES, (20, 1)))
        assert search.best_params_ == {"prior": 1.0}


CASES = {
    "logistic": (LOGISTIC, {"prior": [1.0, 100.0]}, X, Y, {}),
    "accuracy": (LOGISTIC, {"prior": [1.0, 100.0]}, X, Y, {"score": "accuracy"}),
    "words": (clone(LOGISTIC).set_params(classes=["no", "yes"]), {"prior": [1.0, 100.0]}, X, WORDS, {}),
    "frame": (LOGISTIC, {"prior": [1.0, 100.0]}, pd.DataFrame(X, columns=list("abc")), pd.Series(Y), {}),
    "topics": (LatentDirichletAllocation(vocabulary=3), {"n_components": [1, 2]}, sp.csr_array((X > 0).astype(int)), None, {}),
    "network": (SigmoidBeliefNetwork(2), [{"n_components": 1}, {"n_components": 3}], (X > 0).astype(float), None, {}),
    "plans": (
        DirichletMultinomial(),
        {"privacy": [PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=n) for n in (1, 4)]}, VOTES, None, {},
    ),
    "sequences": (
        CategoricalHMM(2, n_symbols=2),
        {"privacy": [PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=n) for n in (1, 4)]},
        Sequences.from_list(list((X > 0).astype(int))), None, {},
    ),
    "own model": (
        GaussianMean(), {"radius": [1.0, 3.0]}, X, None,
        {"score": lambda model, X, y: -float(((X - model.last_posterior_.mean) ** 2).sum()), "score_range": (-1.0, 0.0)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_model_can_be_searched(name):
    estimator, candidates, table, labels, settings = CASES[name]
    before = clone(estimator).get_params()
    search = PrivateSearch(estimator, candidates, **BUDGET, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search.fit(table, labels)
    assert type(search.best_estimator_) is type(estimator)
    assert 1.98 < search.privacy_.epsilon() <= 2.0
    assert str(estimator.get_params()) == str(before)  # unchanged
    assert search.best_estimator_.privacy_.plan.n_steps in (1, 4, 20)
    for method in ("predict", "predict_proba", "decision_function", "transform"):
        assert hasattr(search, method) == hasattr(estimator, method)
        if hasattr(estimator, method):
            ours, theirs = getattr(search, method)(table), getattr(search.best_estimator_, method)(table)
            assert np.array_equal(ours, theirs)
    assert is_classifier(search) == is_classifier(estimator)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("logistic", np.asarray), ("logistic", list), ("network", pd.Series), ("topics", np.asarray), ("plans", list)],
)
def test_persons(name, kind):
    estimator, candidates, table, labels, settings = CASES[name]
    n_rows = table.shape[0]
    ids = kind((np.arange(n_rows) // 3).astype(str))
    search = PrivateSearch(estimator, candidates, **BUDGET, **settings).fit(table, labels, groups=ids)
    assert search.privacy_.unit == "all rows of one group"
    assert search.best_estimator_.privacy_.unit == search.privacy_.unit
    named = PrivateSearch(estimator, candidates, **BUDGET, **settings)
    assert named.fit(table, labels, groups=pd.Series(ids, name="patient")).privacy_.unit == "all rows of one patient"


def test_persons_reach_the_fit():
    """A person's rows are clipped together: 500 rows of one person move the counts by one clip."""
    same = np.zeros(len(VOTES), int)
    plan = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=1)
    search = votes(estimator=DirichletMultinomial(privacy=plan), epsilon=50.0).fit(VOTES, groups=same)
    counts = search.best_estimator_.noisy_totals_.average["counts"]
    assert np.abs(counts).sum() < 20.0


def test_tables_without_rows_are_searched():
    for n in (0, 1, 2):
        search = votes(epsilon=1.0).fit(VOTES[:n])
        assert isinstance(search.best_estimator_, DirichletMultinomial)
    search = votes(held_out=1e-9).fit(VOTES)  # nobody is held out
    assert np.isfinite(search.best_score_)


def broken_csr():
    matrix = sp.csr_array((50, 3), dtype=int)
    matrix.data, matrix.indices, matrix.indptr = (
        np.ones(50, int),
        np.full(50, 10**6, np.int32),
        np.arange(51, dtype=np.int32),
    )
    return matrix


@pytest.mark.parametrize("case", range(5))
def test_hostile_records_raise_and_warn_of_nothing(case):
    mixed = np.array(["yes", 3, None, b"no", 2.5] * 10, object)
    cases = [
        (LOGISTIC, np.full((50, 3), np.nan), np.full(50, np.inf)),
        (LOGISTIC, np.full((50, 3), 1e308), np.full(50, 7.0)),
        (clone(LOGISTIC).set_params(classes=["no", "yes"]), np.zeros((50, 3)), mixed),
        (LatentDirichletAllocation(vocabulary=3), np.full((50, 3), -np.inf), None),
        (LatentDirichletAllocation(vocabulary=3), broken_csr(), None),
    ]
    estimator, table, labels = cases[case]
    candidates = {"random_state": [0, 1]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search = PrivateSearch(estimator, candidates, **BUDGET).fit(table, labels)
        assert search.best_estimator_ is not None
        ids = np.array(["a", None, 3, b"x", np.nan] * 10, object)
        assert PrivateSearch(estimator, candidates, **BUDGET).fit(table, labels, groups=ids).best_estimator_ is not None


def test_an_id_that_python_cannot_read_does_not_stop_a_search():
    ids = np.arange(len(VOTES)).astype(str)
    ids.view(np.uint32)[0] = 0x7FFFFFFF
    assert votes().fit(VOTES, groups=ids).best_estimator_ is not None


class Fails(DirichletMultinomial):
    """Stops at the first record."""

    def expected_statistics(self, records, posterior):
        raise ValueError("quoting a record")


def test_a_search_in_which_all_fits_fail_says_so_without_an_error():
    search = votes(estimator=Fails()).fit(VOTES)
    assert search.best_estimator_ is search.best_params_ is None
    assert search.best_score_ == -np.inf
    assert 1.98 < search.privacy_.epsilon() <= 2.0
    with pytest.raises(NotFittedError, match="Every trial of this search failed"):
        search._best()
    assert "quoting" not in str(search.privacy_)
    assert "Released: that no trial succeeded" in str(search.privacy_)


def test_the_best_can_be_saved(tmp_path):
    search = votes().fit(VOTES)
    search.best_estimator_.save(tmp_path / "best.vips")
    again = load(tmp_path / "best.vips")
    assert np.array_equal(again.last_posterior_.mean, search.best_estimator_.last_posterior_.mean)
    assert "chosen among 3 candidates by vips.PrivateSearch" in again.privacy_.tuning
    assert "how long the search takes" in again.privacy_.not_covered[0]
    for report in (again.privacy_, search.best_estimator_.privacy_):  # the fit has the guarantee of the search only
        assert report == search.privacy_
        for delta in (1e-3, 1e-6, 1e-7):
            assert report.epsilon(delta) == report.releases[0].selection.epsilon(delta)
        assert report.gdp_mu() is None
        assert "whose own plan promises nothing" in str(report)


def test_statements():
    search = votes().fit(VOTES)
    text = str(search.privacy_)
    for part in ("one row of X", "ε = 2 at δ = 1e-06", "secret number of trials (3 on average", "how long"):
        assert part in text
    stated = search.privacy_.to_dict()
    assert stated["epsilon"] == pytest.approx(2.0, rel=1e-3)
    assert stated["tuning"].startswith("chosen among 3 candidates")
    assert "secret number of trials" in search.privacy_._repr_html_()
    # one trial alone has more noise than a fit at the whole budget
    alone = BUDGET["privacy"].plan(n_steps=1)
    assert search.best_estimator_.privacy_.plan.noise_multiplier > alone.noise_multiplier


def test_copies_and_pickles():
    search = votes().fit(VOTES)
    assert not hasattr(clone(search), "privacy_")
    for again in (pickle.loads(pickle.dumps(search)), copy.deepcopy(search)):
        assert again.best_score_ == search.best_score_
        assert again.privacy_.epsilon() == search.privacy_.epsilon()
    with pytest.raises(NotFittedError):
        votes().classes_  # noqa: B018


def test_another_fit_forgets_the_first():
    search = votes().fit(VOTES)
    with pytest.raises(ValueError):
        search.fit(VOTES[0])
    assert not hasattr(search, "best_estimator_")


GENERATOR = np.random.default_rng(0)
PLAN = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=2)


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"privacy": PrivacyBudget(1e6, 1e-6)}, ValueError, "too large for a search"),
        ({"privacy": None}, TypeError, r"must be a PrivacyBudget, got NoneType: write PrivacyBudget\(epsilon, delta\)"),
        ({"privacy": PLAN}, TypeError, "must be a PrivacyBudget, got PrivacyPlan"),
        ({"privacy": REPLACED, "estimator": DirichletMultinomial(privacy=PLAN)}, ValueError, "write one `relation`"),
        ({"estimator": DirichletMultinomial(privacy=PrivacyBudget(1.0, 1e-6))}, TypeError, "what may be spent is written once"),
        ({"held_out": 1.0}, ValueError, "`held_out`"),
        ({"mean_trials": 1.0}, ValueError, "`mean_trials`"),
        ({"shape": -1.0}, ValueError, "`shape`"),
        ({"candidates": []}, TypeError, "list of dicts"),
        ({"candidates": ["prior"]}, TypeError, "list of dicts"),
        ({"candidates": {"priors": [1.0]}}, ValueError, "Invalid parameter"),
        ({"candidates": {"prior": [1.0, -1.0]}}, ValueError, "`prior` must be"),
        ({"candidates": {"privacy": [PLAN, PrivacyPlan.non_private()]}}, ValueError, "no guarantee"),
        ({"candidates": {"privacy": [PLAN, replace(PLAN, relation="replace_one")]}}, ValueError, "write one `relation`"),
        ({"candidates": {"privacy": [3]}}, TypeError, "PrivacyPlan"),
        ({"candidates": {"on_invalid": ["raise"]}}, ValueError, "error depend on a record"),
        ({"candidates": {"random_state": [GENERATOR]}}, ValueError, "`random_state` is a generator"),
        ({"candidates": {"privacy": [replace(PLAN, noise="discrete")]}}, ValueError, "discrete"),
        ({"candidates": {"privacy": [replace(PLAN, reproducible_noise=True)]}}, ValueError, "no guarantee"),
        ({"score": "accuracy"}, ValueError, "has no score 'accuracy': write one of 'log_likelihood'"),
        ({"score": lambda model, X, y: 0.0}, ValueError, "`score_range=\\(low, high\\)`"),
        ({"score_range": (1.0, 0.0)}, ValueError, "score_range"),
        ({"score_range": (0.0, np.inf)}, ValueError, "score_range"),
        ({"estimator": PrivateTopics(**BUDGET), "candidates": {"n_steps": [1]}}, TypeError, "Encode the"),
        ({"estimator": DirichletMultinomial}, TypeError, "must be a vips model"),
    ],
)  # fmt: skip
def test_arguments_that_cannot_work_are_refused_before_the_data_are_read(settings, error, says):
    class Unreadable(np.ndarray):
        def __getitem__(self, key):
            rows = np.asarray(key)
            assert rows.size == 0, "a record was read"
            return super().__getitem__(key)

    with pytest.raises(error, match=says):
        votes(**settings).fit(VOTES.view(Unreadable))


@pytest.mark.parametrize(
    ("table", "keywords", "error", "says"),
    [
        (VOTES[:, :1], {}, ValueError, "minimum of 2"),
        (VOTES.astype(complex), {}, ValueError, "Complex"),
        (VOTES.astype(str), {}, TypeError, "needs numbers"),
        (VOTES.tolist(), {}, TypeError, "as an array"),
        (InMemoryData(VOTES), {}, TypeError, "splits records in memory"),
        (VOTES, {"groups": np.zeros(3, int)}, ValueError, "different numbers of rows"),
        (VOTES, {"groups": "patient"}, TypeError, "one id for each row"),
        (VOTES, {"groups": np.zeros(len(VOTES), np.float32)}, TypeError, "Ids must be"),
        (VOTES, {"y": np.zeros(3)}, ValueError, "different numbers of rows"),
        (VOTES, {"ledger": "letters.ledger"}, TypeError, "must be a PrivacyLedger"),
    ],
)
def test_public_facts_raise_before_any_charge(table, keywords, error, says, ledger):
    with pytest.raises(error, match=says), ledger:
        votes().fit(table, **keywords)
    assert not ledger.runs()


def test_pipelines_are_refused_and_their_encoded_rows_are_searched():
    encoder = TableEncoder([(-0.5, 0.5)] * X.shape[1])
    with pytest.raises(TypeError, match="Encode the records first"):
        PrivateSearch(make_pipeline(encoder, LOGISTIC), {"bayesianlogisticregression__prior": [1.0]}, **BUDGET).fit(
            X, Y
        )
    search = PrivateSearch(LOGISTIC, {"prior": [1.0, 100.0]}, **BUDGET).fit(encoder.fit_transform(X), Y)
    assert search.predict(encoder.transform(X)).shape == Y.shape


def test_a_seed_for_the_search_does_not_exist():
    with pytest.raises(TypeError, match="random_state"):
        votes(random_state=0)


def test_rows_of_a_person_are_bounded_with_ids_only():
    plan = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=1, max_rows_per_group=2)
    search = votes(estimator=DirichletMultinomial(privacy=plan))
    with pytest.raises(ValueError, match="max_rows_per_group"):
        search.fit(VOTES)
    assert search.fit(VOTES, groups=np.arange(len(VOTES)) // 2).best_estimator_.privacy_.plan.max_rows_per_group == 2


def test_replace_one():
    plan = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=1, relation="replace_one")
    for estimator in (DirichletMultinomial(privacy=plan), DirichletMultinomial()):
        search = votes(estimator=estimator, privacy=REPLACED).fit(VOTES)
        assert search.privacy_.releases[0].selection.relation == "replace_one"
    plain = votes(estimator=DirichletMultinomial(privacy=PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=1)))
    ratio = search.best_estimator_.privacy.noise_multiplier / plain.fit(VOTES).best_estimator_.privacy.noise_multiplier
    assert ratio == pytest.approx(2.0, rel=1e-3)


def test_the_certificate_states_the_search(tmp_path):
    search = votes().fit(VOTES)
    for number, report in enumerate((search.privacy_, search.best_estimator_.privacy_)):
        report.to_html(path := tmp_path / f"{number}.html")
        page = path.read_text(encoding="utf-8")
        assert "ε = 2<" in page
        own = search.best_estimator_.privacy_.plan.epsilon(1e-6)
        assert f"ε = {own:.4g}" not in page
