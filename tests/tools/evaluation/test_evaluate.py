"""Scores on private records: one record, one cell; no row causes an error; everything is charged first."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from vips import (
    BayesianLogisticRegression,
    DirichletMultinomial,
    LedgerError,
    PrivacyBudget,
    PrivacyBudgetError,
    PrivacyLedger,
    PrivacyPlan,
    PrivateClassifier,
    evaluate,
)
from vips.core.ledger.run import LedgerRun
from vips.core.mechanism.lattice import SENSITIVITY_FACTOR
from vips.data import InMemoryData
from vips.preprocessing import TableEncoder, make_private_pipeline
from vips.tools.evaluation.estimates import EDGES
from vips.tools.evaluation.evaluate import BLOCKS, probabilities

BUDGET = PrivacyBudget(1.0, 1e-6)
ALMOST_NONE = PrivacyPlan(noise_multiplier=1e-6, n_steps=1, sampling="full")


class Given:
    """A classifier to which the log odds are given, in the first column; it refuses what is not finite, and 13."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X):
        psi = np.asarray(X, dtype=float)[:, :1]
        if not np.isfinite(psi).all() or (psi == 13.0).any():
            raise ValueError(f"cannot predict for {psi.ravel()}")
        if (psi == 14.0).any():
            warnings.warn("a record of 14", stacklevel=2)
        return np.hstack([expit(-psi), expit(psi)])


def drawn(n, seed=0):
    rng = np.random.default_rng(seed)
    psi = rng.normal(-0.5, 1.5, n)
    return psi[:, None], (rng.random(n) < expit(psi)).astype(int)


def sums_of(*arguments, plan=ALMOST_NONE, **settings):
    """The exact, private histogram that an evaluation would release."""
    seen = []

    def release(self, plan, totals):
        seen.append(totals["histogram"])
        return totals

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LedgerRun, "release_once", release)
        evaluate(*arguments, privacy=plan, **settings)
    return seen[0]


# -- what is released ---------------------------------------------------------------------------------------------------


def test_without_noise_scores_are_those_of_scikit_learn():
    X, y = drawn(100_000)
    scores, p = evaluate(Given(), X, y, privacy=ALMOST_NONE), expit(X[:, 0])
    assert scores.auc.value == pytest.approx(roc_auc_score(y, p), abs=3e-4)
    assert scores.log_loss.value == pytest.approx(log_loss(y, p), abs=5e-4)
    assert scores.brier.value == pytest.approx(brier_score_loss(y, p), abs=3e-4)
    assert scores.error.value == pytest.approx(np.mean((p > 0.5) != y), abs=1e-6)
    for score in (scores.auc, scores.log_loss, scores.brier, scores.error):
        assert score.lower < score.value < score.upper < score.lower + 0.02


def test_the_histogram_counts_risks_by_outcome():
    X, y = drawn(1_000)
    edges = [-np.inf, *EDGES, np.inf]
    expected = [np.histogram(expit(X[y == outcome, 0]), edges)[0] for outcome in (0, 1)]
    assert np.array_equal(sums_of(Given(), X, y), expected)
    assert np.array_equal(sums_of(Given(), X, y, positive=0)[1], expected[0][::-1])


def test_several_classes_are_scored_by_the_prediction_or_one_against_all():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3_000, 2))
    y = np.array(["a", "b", "c"])[np.argmax(np.c_[X, np.zeros(3_000)] + rng.gumbel(size=(3_000, 3)), axis=1)]
    model = LogisticRegression().fit(X, y)
    p = model.predict_proba(X)
    scores = evaluate(model, X, y, privacy=ALMOST_NONE)
    assert scores.error.value == pytest.approx(1.0 - model.score(X, y), abs=1e-6)
    assert "the most probable class is right" in str(scores)
    of_c = evaluate(model, X, y, privacy=ALMOST_NONE, positive="c")
    assert of_c.auc.value == pytest.approx(roc_auc_score(y == "c", p[:, 2]), abs=5e-3)
    assert of_c.summary().loc["outcome", "value"] == pytest.approx(np.mean(y == "c"), abs=1e-6)


@pytest.mark.parametrize("kind", ["array", "frame", "csr", "arrow", "polars"])
def test_every_container(kind):
    X, y = drawn(500)
    X = np.hstack([X, np.ones((500, 1))])
    model = BayesianLogisticRegression().fit(X, y)
    expected = sums_of(model, X, y)
    if kind == "frame":
        X = pd.DataFrame(X)
    elif kind == "csr":
        X = sp.csr_array(X)
        beyond = X.copy()
        beyond.indices[7] = 900  # a row beyond the matrix is left out
        assert sums_of(model, beyond, y).sum() == 499
    elif kind == "arrow":
        X = pytest.importorskip("pyarrow").table({"a": X[:, 0], "b": X[:, 1]})
    elif kind == "polars":
        X, y = pytest.importorskip("polars").DataFrame({"a": X[:, 0], "b": X[:, 1]}), pd.Series(y)
    if kind in ("arrow", "polars"):
        model.feature_names_in_ = np.array(["a", "b"], dtype=object)
    assert np.array_equal(sums_of(model, X, y), expected)


def test_pipelines_and_words_as_classes():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(0, 100, 4_000), "town": rng.choice(["A", "B"], 4_000)})
    table.loc[::7, "age"] = np.nan
    y = np.where((table["age"].fillna(50) > 60) | (table["town"] == "B"), "ill", "well")
    columns, large = {"age": (0, 100), "town": ["A", "B"]}, PrivacyBudget(20.0, 1e-6)
    steps = TableEncoder(columns), BayesianLogisticRegression(classes=["ill", "well"])
    classifier = PrivateClassifier(columns, privacy=large, classes=["ill", "well"])
    for model in (classifier, make_private_pipeline(*steps, privacy=large)):
        scores = evaluate(model.fit(table, y), table, y, privacy=ALMOST_NONE, positive="ill")
        assert scores.auc.value > 0.8
        assert "y is 'ill'" in str(scores)
        assert scores.histogram.sum() == pytest.approx(4_000, abs=1e-3)


# -- one record moves the sum by one ------------------------------------------------------------------------------------


def test_a_record_moves_one_cell():
    X, y = drawn(3_000)
    before = sums_of(Given(), X, y)
    hostile = [(np.nan, 1, 0), (np.inf, 0, 0), (13.0, 1, 0), (1.0, 7, 0), (1e300, 1, 1), (14.0, 0, 1), (0.0, 1, 1)]
    for place in (0, 1_000, 3_000):
        for value, label, counts in hostile:
            after = sums_of(Given(), np.insert(X, place, value, axis=0), np.insert(y, place, label))
            moved = after - before
            assert np.abs(moved).sum() == counts, f"a record of {value} moves the histogram by {np.abs(moved).sum():g}"


@pytest.mark.parametrize("n_rows", [10**4, pytest.param(10**5, marks=pytest.mark.slow)])
def test_a_person_moves_the_sum_by_one(n_rows):
    X, y = drawn(300)
    ids, rng = np.arange(300) // 3, np.random.default_rng(1)
    before = sums_of(Given(), X, y, groups=ids)
    new = rng.normal(0.0, 4.0, (n_rows, 1))
    new[::1000] = np.nan
    labels = rng.integers(0, 3, n_rows)
    for rows in (slice(0, 1), slice(0, 2), slice(None), slice(5, n_rows, 2)):
        arguments = np.vstack([new[rows], X]), np.concatenate([labels[rows], y])
        groups = np.concatenate([np.full(len(labels[rows]), 999), ids])
        moved = sums_of(Given(), *arguments, groups=groups) - before
        counts = 0.0 if rows == slice(0, 1) else 1.0  # its one row has no probability
        assert moved.min() >= -1e-9, "other persons count less"
        assert abs(moved.sum() - counts) < 1e-9, f"a person moves the histogram by {moved.sum():g}"


def test_a_person_moves_the_lattice_by_one():
    plan = PrivacyPlan(noise_multiplier=3.0, noise="discrete", n_steps=1, sampling="full", clip_norm=1.0)
    X, y = drawn(300)
    ids = np.minimum(np.arange(300) // 3, 99)
    for last in (99, 98, 90):
        kept = ids != last
        without = sums_of(Given(), X[kept], y[kept], groups=ids[kept], plan=plan)
        one = sums_of(Given(), X, y, groups=ids, plan=plan) - without
        assert one.dtype == np.int64, "the sum is not of whole numbers"
        length = np.sqrt((one.astype(float) ** 2).sum()) * plan.lattice(BLOCKS).unit
        assert 0.0 < length <= SENSITIVITY_FACTOR, f"a person has length {length}"
    scores = evaluate(Given(), X, y, groups=ids, privacy=replace(plan, noise_multiplier=0.01))
    assert scores.histogram.sum() == pytest.approx(100.0, abs=1.0)


def test_rows_that_raise_change_no_others():
    """Nor their bits, nor how many rows a call has; and nothing is seen of them."""
    seen, X = [], drawn(5_000)[0]

    def predict(rows):
        seen.append(len(rows))
        return Given().predict_proba(rows)

    alone = probabilities(predict, X, 2)
    bad = X.copy()
    bad[[3, 700, 701, 4_999]] = [[np.nan], [13.0], [np.inf], [13.0]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        beside = probabilities(predict, bad, 2)
    assert np.isnan(beside[[3, 700, 701, 4_999]]).all()
    good = np.isfinite(bad[:, 0]) & (bad[:, 0] != 13.0)
    assert np.array_equal(beside[good], alone[good]), "a row that raises changes others"
    assert len(set(seen)) == 1, "calls have different numbers of rows"


# -- charged first, once ------------------------------------------------------------------------------------------------


def test_it_is_charged_before_a_row_is_read(tmp_path):
    ledger, spent = PrivacyLedger(tmp_path / "budget", 2.0, 1e-6, "patients"), []

    class Watching(Given):
        def predict_proba(self, X):
            if np.any(X):
                spent.append(ledger.spent())
                raise KeyboardInterrupt
            return super().predict_proba(X)

    with pytest.raises(KeyboardInterrupt):
        evaluate(Watching(), *drawn(100), privacy=BUDGET, ledger=ledger)
    assert min(spent) > 0.0, "rows are read before the charge"
    assert ledger.spent() == 0.0, "what was not released stays charged"


def test_a_ledger_counts_it_once(tmp_path):
    ledger = PrivacyLedger(tmp_path / "budget", 2.0, 1e-6, "patients", unit="patient")
    X, y = drawn(100)
    with pytest.raises(LedgerError, match="counts by 'patient'"):
        evaluate(Given(), X, y, privacy=BUDGET, ledger=ledger)
    with ledger:
        ids = pd.Series(np.arange(100) // 2, name="patient")
        scores = evaluate(Given(), X, y, privacy=BUDGET, groups=ids)
    assert scores.privacy.unit == "all rows of one patient"
    with pytest.raises(PrivacyBudgetError):
        evaluate(Given(), X, y, privacy=PrivacyBudget(1.9, 1e-6), unit="patient", ledger=ledger)
    (run,) = ledger.runs()
    assert scores.privacy.ledger == ledger.entry(run.run)
    assert "Charged to 'patients'" in str(scores)


def test_it_costs_what_a_fit_with_its_plan_costs(tmp_path):
    ledgers = [PrivacyLedger(tmp_path / name, 1.0, 1e-6, "letters") for name in ("scores", "fit")]
    plan = PrivacyBudget(0.5, 1e-6).plan(n_steps=1)
    scores = evaluate(Given(), *drawn(100), privacy=plan, ledger=ledgers[0])
    DirichletMultinomial(privacy=plan).fit(np.eye(3), ledger=ledgers[1])
    assert ledgers[0].spent() == ledgers[1].spent()
    assert scores.privacy.epsilon(1e-6) <= 0.5
    assert "on which the model was fitted" in str(scores.privacy)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"privacy": 0.1}, r"write PrivacyBudget\(epsilon, delta\)"),
        ({"privacy": replace(ALMOST_NONE, n_steps=2)}, "one release of all records"),
        ({"privacy": replace(ALMOST_NONE, max_rows_per_group=2)}, "A person counts 1"),
        ({"privacy": PrivacyPlan.non_private(n_steps=1)}, "no guarantee"),
        ({"model": LinearRegression().fit(np.eye(2), [0, 1])}, "fitted classifier"),
        ({"model": LogisticRegression()}, "fitted classifier"),
        ({"positive": 2}, "one of the classes"),
        ({"unit": ""}, "`unit` must say"),
        ({"ledger": 3}, "`ledger` must be"),
        ({"X": InMemoryData(np.eye(3))}, "in memory"),
        ({"X": [[0.0]] * 3}, "in memory"),
        ({"y": [0, 1, 1]}, "needs y as an array"),
        ({"y": np.array([0, 1])}, "different numbers of rows"),
        ({"y": None}, "requires y|target y is None"),
        ({"groups": [1, 2]}, "different numbers of rows"),
        ({"model": LogisticRegression().fit(np.eye(3)[:, :2], [0, 1, 1])}, "expecting 2 features"),
    ],
)
def test_errors_come_from_public_facts_and_before_the_charge(change, says, tmp_path):
    ledger = PrivacyLedger(tmp_path / "budget", 2.0, 1e-6, "patients")
    arguments = {"model": Given(), "X": np.zeros((3, 1)), "y": np.array([0, 1, 1]), "privacy": BUDGET, "ledger": ledger}
    with pytest.raises((TypeError, ValueError), match=says):
        evaluate(**(arguments | change))
    assert ledger.spent() == 0.0
    assert not ledger.runs()


def test_an_error_at_the_row_of_zeros_says_so():
    class Refusing(Given):
        def predict_proba(self, X):
            raise ValueError("zeros are not welcome")

    with pytest.raises(ValueError, match="not welcome") as error:
        evaluate(Refusing(), *drawn(10), privacy=BUDGET)
    assert "row of zeros" in error.value.__notes__[0]


# -- what users read ----------------------------------------------------------------------------------------------------


def test_where_noise_hides_everything_it_is_said():
    scores = evaluate(Given(), *drawn(20), privacy=BUDGET)
    nothing = replace(scores, histogram=np.zeros_like(scores.histogram))
    assert str(nothing).startswith("Noise hides AUC, log loss, Brier score, errors: more records")
    assert nothing.auc[1:] == (0.0, 1.0, True)
    assert nothing.summary()["is_hidden"].all()
    nothing.plot()
    assert nothing.calibration().empty
    little = np.where(np.arange(24) == 12, [[20.0], [100.0]], 0.0)
    assert "noise hides AUC:" in str(replace(scores, histogram=little))
    assert scores.auc.lower <= scores.auc.upper or np.isnan(scores.auc.value)


def test_calibration_covers_all_risks_in_rows_that_noise_leaves():
    X, y = drawn(20_000)
    scores = evaluate(Given(), X, y, privacy=BUDGET)
    table = scores.calibration()
    assert len(table) > 6
    assert (table["from"].iloc[1:].to_numpy() == table["to"].iloc[:-1].to_numpy()).all()
    assert table["risk"].is_monotonic_increasing
    assert np.mean(np.abs(table["share"] - table["risk"])) < 0.03
    assert (table["lower"] <= table["share"]).all()
    assert (table["share"] <= table["upper"]).all()
    assert table["n_records"].sum() == pytest.approx(20_000, abs=300)
    narrow = scores.calibration(0.5)
    assert ((narrow["upper"] - narrow["lower"]) < (table["upper"] - table["lower"])).all()


def test_the_picture():
    plt = pytest.importorskip("matplotlib.pyplot")
    figure = evaluate(Given(), *drawn(2_000), privacy=BUDGET).plot()
    left, right = figure.axes
    assert "y is 1" in left.get_ylabel()
    rates = right.lines[1].get_xydata()
    assert (np.diff(rates, axis=0) >= 0.0).all()
    assert rates[-1].tolist() == [1.0, 1.0]
    plt.close(figure)
