"""The private classifier: one record moves the tables by one clip, everything else is a function of what has noise."""

import math
import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score

import vips
from tests.preprocessing.test_private_table import distance, hostile
from tests.releases import releases
from vips import (
    BayesianLogisticRegression,
    LedgerError,
    PrivacyBudget,
    PrivacyBudgetError,
    PrivacyLedger,
    PrivacyPlan,
    PrivateClassifier,
)
from vips.classification import encoder as module
from vips.classification import log_odds
from vips.core.accounting.gaussian import gaussian_log_delta
from vips.persistence.archive import read_archive, write_archive
from vips.persistence.settings import encode
from vips.preprocessing._learnt_columns import MOST_CATEGORIES
from vips.tools.auditing.canaries import lower_bound

COLUMNS = {"age": (0, 100), "income": "number", "town": ["A", "B"], "word": "category"}
HELD = {"class_counts_", "feature_names_in_", "log_odds_", "n_features_in_", "privacy_", "tables_"}


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    numbers = {"age": rng.uniform(0, 100, n), "income": rng.lognormal(8.0, 1.0, n)}
    X = pd.DataFrame(numbers | {"town": rng.choice(["A", "B"], n), "word": rng.choice(list("abc"), n)})
    return X, (np.abs(X["age"] - 50) + 40 * (X["town"] == "A") + rng.normal(0, 10, n) > 45).to_numpy().astype(int)


def model(columns=COLUMNS, n_steps=3, epsilon=4.0, delta=1e-6, relation="add_or_remove", **settings):
    budget = PrivacyBudget(epsilon, delta, relation=relation)
    return PrivateClassifier(columns, **({"privacy": budget, "n_steps": n_steps} | settings))


def without_log_odds(patch):
    """For tests that look at tables only."""
    patch.setattr("vips.classification.log_odds.posterior_log_odds", lambda of_class, *_: np.zeros(len(of_class)))


@pytest.fixture
def few_log_odds(monkeypatch):
    """Averaged over fewer settings of a column: what is asked does not depend on which."""
    few_settings(monkeypatch)


def few_settings(patch):
    chains = log_odds._chains
    patch.setattr(log_odds, "_chains", lambda is_ordered: [of_all[-2:] for of_all in chains(is_ordered)])
    for name, kept in (("_SLOPES", (0.6,)), ("_SIZES", 4), ("_FINE", log_odds._FINE[::4])):
        patch.setattr(log_odds, name, kept)


@pytest.fixture
def only_tables(monkeypatch):
    without_log_odds(monkeypatch)


def exact_tables(X, y, groups=None, **settings):
    """What the noise is added to: class counts, then the table of each column; new categories come last."""
    with releases(dict) as seen, pytest.MonkeyPatch.context() as patch:
        without_log_odds(patch)
        model(**({"n_steps": 1} | settings)).fit(X, y, groups=groups)
    totals = [release.exact["counts"] for release in seen if "counts" in release.exact]
    return [row for counts in totals for row in counts]  # by class, so that they can be padded


def with_rows(X, y, rows, labels):
    return pd.concat([X, rows], ignore_index=True), np.r_[y, labels]


def persons():
    one = table(1, seed=5)[0]
    return {
        "one row": (one, [1]),
        "the same row many times": (pd.concat([one] * 300), [1] * 300),
        "both labels": (pd.concat([one] * 300), [0, 1, 1] * 100),
        "unknown labels": (pd.concat([one] * 30), [0, 7, 1] * 10),
        "all rows": table(300, seed=6),
        "new categories in every row": (table(200, 7)[0].assign(word=[f"w{i}" for i in range(200)]), [0, 1] * 100),
        "nothing but missing values": (table(9)[0].assign(age=np.nan, income=np.nan, town=None, word=None), [1] * 9),
    }  # fmt: skip


def test_a_record_moves_the_tables_by_at_most_one_clip():
    X, y = table()
    alone, most = exact_tables(X, y), math.sqrt(5.0)
    rows = X.iloc[:1]
    for row in (rows, rows.assign(word="new", town="C", age=np.inf), rows.assign(age=np.nan, income=-1e300)):
        for label in (0, 1):
            moved = distance(alone, exact_tables(*with_rows(X, y, row, [label])))
            assert moved == pytest.approx(most), f"a row moves the tables by {moved}"
    moved = distance(alone, exact_tables(*with_rows(X, y, rows, [5])))
    assert moved == 0.0, f"a row of no class moves the tables by {moved}"
    ids = np.repeat(np.arange(80), 5)
    together = exact_tables(X, y, ids)
    for name, (rows, labels) in persons().items():
        enlarged = exact_tables(*with_rows(X, y, rows, labels), np.r_[ids, np.full(len(rows), 99)])
        moved = distance(together, enlarged)
        assert moved <= most * (1.0 + 1e-12), f"{name}: a person moves the tables by {moved}"


def test_tables_are_what_counting_one_by_one_gives(monkeypatch):
    X, y = table(120, seed=3)
    X.loc[::7, ["age", "town"]] = np.nan, None
    monkeypatch.setattr(PrivacyPlan, "add_noise", lambda self, total, *_: dict(total))
    fitted = model({"age": (0, 100), "town": ["A"]}).fit(X, y)
    np.testing.assert_array_equal(fitted.class_counts_, np.bincount(y))
    for name, column in fitted.tables_.items():
        counts = np.zeros_like(column.counts)
        for value, label in zip(X[name], y, strict=True):
            if name == "town":
                cell = 2 if value is None or value != value else ["A", "B"].index(value)
            else:
                inside = [a <= value < b for a, b in zip(column.cells.edges, column.cells.edges[1:], strict=False)]
                cell = inside.index(True) if value == value else len(inside)
            counts[label, cell] += 1
        np.testing.assert_array_equal(column.counts, counts)


def test_tables_and_fit_together_are_within_the_budget():
    """By the exact δ of one Gaussian, of the noise that was really drawn and the norm that was really seen."""
    X, y = table(60)
    for relation, sensitivity in (("add_or_remove", 1.0), ("replace_one", 2.0)):
        with pytest.MonkeyPatch.context() as patch:
            without_log_odds(patch)
            fitted = model(relation=relation).fit(X, y)
            declared = model({"age": (0, 1), "town": ["A"]}).fit(X, y)
        assert declared.privacy_.releases[0].threshold_delta == 0.0
        report = fitted.privacy_
        norm = math.sqrt(1 + len(fitted.tables_))  # checked above
        of_fit = report.plan.clip_norm / report.plan.noise_std()
        mu = sensitivity * math.sqrt((norm / fitted.table_std_) ** 2 + 3 * of_fit**2)
        total = math.exp(gaussian_log_delta(mu, 4.0)) + report.releases[0].threshold_delta
        assert total <= 1e-6, f"δ is {total} at the stated ε"
        assert total == pytest.approx(1e-6, rel=1e-2)
        assert 3.99 < report.epsilon() <= 4.0


def test_noise_is_fresh_of_the_stated_size_and_on_every_count():
    X, y = table(30)
    columns = {"age": (0, 100), "income": (0, 1e5), "town": ["A", "B", "C", "D"]}
    classifier, drawn = model(columns, n_steps=1), []
    with releases(dict), pytest.MonkeyPatch.context() as patch:
        without_log_odds(patch)
        exact = clone(classifier).fit(X, y)
    for _ in range(20):
        with pytest.MonkeyPatch.context() as patch:
            without_log_odds(patch)
            noisy = classifier.fit(X, y)
        tables = [noisy.tables_[name].counts - exact.tables_[name].counts for name in columns]
        drawn.append(np.concatenate([noisy.class_counts_ - exact.class_counts_, *(part.ravel() for part in tables)]))
    drawn = np.array(drawn)
    assert len(np.unique(drawn)) == drawn.size, "a count has no noise of its own"
    assert np.std(drawn) == pytest.approx(noisy.table_std_, rel=0.07), "noise has another size than stated"


def test_all_else_is_a_function_of_noisy_numbers():
    """Frozen noisy counts and totals, on other data: the same classifier."""
    rng = np.random.default_rng(3)
    frozen = 40.0 + rng.normal(0.0, 20.0, 10_000)

    def noisy(total):
        return {name: np.resize(frozen, np.shape(value)) for name, value in total.items()}

    columns, fits = {"age": (0, 100), "income": "number", "town": ["A", "B"]}, []
    X_new = table(50, seed=9)[0]
    with releases(noisy), pytest.MonkeyPatch.context() as patch:
        few_settings(patch)
        for n, seed in ((300, 0), (40, 1)):
            X, y = table(n, seed)
            fits.append(model(columns).fit(X, 1 - y if seed else y))
    one, other = fits
    for name in columns:
        log_odds = one.log_odds_[name], other.log_odds_[name]
        np.testing.assert_array_equal(*log_odds, "log odds look at more than noisy counts")
        assert one.tables_[name].cells == other.tables_[name].cells, "cells look at more than noisy counts"
    features = [fitted[:-1].transform(X_new) for fitted in (one, other)]
    np.testing.assert_array_equal(*features, "features look at more than noisy counts")
    np.testing.assert_array_equal(one.predict_proba(X_new), other.predict_proba(X_new))
    assert joblib.hash(one) == joblib.hash(other), "an attribute looks at more than noisy counts"
    others = {"unit", "beside", "_sklearn_output_config", *one[0].get_params()}
    held = set(vars(one[0])) - others
    assert held == HELD, f"tables hold {held ^ HELD}"


def test_rare_categories_are_released_as_seldom_as_stated():
    """A single row has a category of its own, and a person has all that one may have."""
    n_fits = 20
    released = {"row": 0, "person": 0}
    for name, X, y, groups in (
        ("row", pd.DataFrame({"word": ["rare"]}), [1], None),
        ("person", pd.DataFrame({"word": [f"w{i}" for i in range(40)]}), [0, 1] * 20, np.zeros(40, int)),
    ):
        classifier = model({"word": "category"}, delta=0.5, n_steps=1)
        for _ in range(n_fits):
            with pytest.MonkeyPatch.context() as patch:
                without_log_odds(patch)
                fitted = classifier.fit(X, np.array(y), groups=groups)
            released[name] += bool(fitted.tables_["word"].cells.categories)
    share = 0.1 * 0.5
    most = n_fits * share + 6.0 * math.sqrt(n_fits * share)
    for name, number in released.items():
        assert number <= most, f"a {name}'s categories are released in {number} of {n_fits} fits"


def test_the_threshold_is_for_all_categories_of_a_record():
    """Each of the M categories that one record may have of its own stays hidden: Φ((τ - 1)/s)^M = 1 - δ°."""
    for groups, most in ((None, 1), (np.zeros(40, int), MOST_CATEGORIES)):
        cuts = []
        X = pd.DataFrame({"word": [f"w{i}" for i in range(40)], "other": "a"})
        with pytest.MonkeyPatch.context() as patch:
            without_log_odds(patch)
            release = module.release_table
            patch.setattr(module, "release_table", lambda *a: cuts.append(a[-1]) or release(*a))  # noqa: B023
            fitted = model({"word": "category", "other": "category"}, delta=1e-4, n_steps=1)
            fitted.fit(X, np.array([0, 1] * 20), groups=groups)
        for counting in cuts:
            released = -np.expm1(2 * most * norm.logcdf((counting.cut - 1.0) / counting.std))
            assert released == pytest.approx(1e-5, rel=1e-3), f"with {most} categories, δ° is {released}"


@pytest.mark.thorough
def test_an_attack_reaches_most_of_the_claim_and_never_exceeds_it():
    """Each of many words is in three rows and, with a fair coin, in one row more, in each of eight columns."""
    n_runs, n_words = 8, 1500
    rng, ratios, worlds = np.random.default_rng(0), [], []
    words = [f"w{i}" for i in range(n_words)]
    columns = {f"c{j}": words for j in range(8)}
    for _ in range(n_runs):
        coins = rng.random(n_words) < 0.5
        rows = np.array(words * 3 + [word for word, coin in zip(words, coins, strict=True) if coin])
        X = pd.DataFrame(dict.fromkeys(columns, rows))
        with pytest.MonkeyPatch.context() as patch:
            without_log_odds(patch)
            fitted = model(columns, n_steps=1, epsilon=6.0).fit(X, np.ones(len(rows)))
        seen = sum(column.counts[1, :n_words] - 3.0 - 0.5 for column in fitted.tables_.values())
        plan = fitted.privacy_.releases[0].plan
        ratios.append(seen / (plan.noise_multiplier * 3.0) ** 2)
        worlds.append(coins)
    bound = lower_bound(np.concatenate(ratios), np.concatenate(worlds), plan, 1.0 - 1e-6)
    assert not bound.exceeded, f"the claim is exceeded: {bound.bound} > {bound.claim}"
    assert bound.ratio > 0.6


def check_a_fit_is_charged_once_before_a_value_is_read(folder):
    X, y = table()
    ledger = PrivacyLedger(folder / "budget", 9.0, 1e-5, "letters")
    left, read = ledger.remaining(), []

    def watched(*arguments):
        read.append(ledger.spent())
        raise RuntimeError("stop")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "class_counts", watched)
        with pytest.raises(RuntimeError, match="stop"):
            model().fit(X, y, ledger=ledger)
    assert read[0] > 0.0, "a value is read before the charge"
    # what is given back is rounded down
    assert ledger.remaining().mu2 == pytest.approx(left.mu2, rel=1e-12), "a fit that released nothing stays charged"
    assert ledger.remaining().delta_0 == left.delta_0
    fitted = model().fit(X, y, ledger=ledger)
    assert len(ledger.runs()) == 2, "a fit is charged more than once"
    run = ledger.runs()[-1]
    assert run.state == "complete"
    assert fitted.privacy_.runs == (run.run,)
    spent = ledger.spent()
    alone = PrivacyLedger(folder / "alone", 9.0, 1e-5, "letters")
    for part in fitted.privacy_.releases:
        terms = {"unit": fitted.unit, "relation": "add_or_remove"}
        alone.charge_event("part", event=part.plan, delta=part.threshold_delta, **terms)
    assert spent == pytest.approx(alone.spent(), rel=1e-6), "the charge is not that of both parts"
    with ledger:
        model().fit(X, y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "class_counts", lambda *_: pytest.fail("a value was read"))
        with pytest.raises(PrivacyBudgetError):
            model(epsilon=9.0).fit(X, y, ledger=ledger)


@pytest.mark.usefixtures("only_tables")
def test_a_fit_is_charged_once_before_a_value_is_read(tmp_path):
    check_a_fit_is_charged_once_before_a_value_is_read(tmp_path)
    ledger = PrivacyLedger(tmp_path / "persons", 9.0, 1e-5, "letters", unit="patient")
    X, y = table()
    with pytest.raises(LedgerError, match="protects"):
        model().fit(X, y, ledger=ledger)
    fitted = model().fit(X, y, ledger=ledger, groups=pd.Series(np.arange(400) % 90, name="patient"))
    assert fitted.privacy_.unit == "all rows of one patient"
    with pytest.raises(LedgerError, match="no budget could pay"):
        PrivateClassifier().fit(X, y, ledger=ledger)
    ledger = PrivacyLedger(tmp_path / "sent", 9.0, 1e-5, "letters")
    with ledger:
        sent = pickle.dumps(model())
        pickle.loads(sent).fit(X, y)  # it is charged in the block from which it was sent
    assert len(ledger.runs()) == 1


@pytest.mark.usefixtures("few_log_odds")
def test_no_value_raises_or_warns_and_every_row_is_predicted_alone():
    X = hostile()
    kinds = {
        "number": "number", "date": "date", "category": "category", "integer": (0, 3), "zoned": "date", "word": ["u"],
    }  # fmt: skip
    y = np.arange(len(X)) % 3 - 1.0  # one label is none
    y[::5] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # of names, and of released totals
        warnings.filterwarnings("ignore", "X has columns|.*vips.inspect shows|Noise hides how much")
        fitted = model(kinds | {"flag": None}).fit(X, y)
        probabilities = fitted.predict_proba(X)
        declared = model({"number": (0, 1), "date": (0, 20_000), "category": ["a", 1]}).fit(X, y, groups=X["category"])
    assert np.isfinite(probabilities).all()
    assert np.isfinite(declared.predict_proba(X)).all()
    for i in (0, 5, 15):
        np.testing.assert_array_equal(fitted.predict_proba(X.iloc[[i]])[0], probabilities[i])
    empty = model(kinds).fit(X[:0], y[:0])
    assert np.isfinite(empty.predict_proba(X)).all()


@pytest.mark.usefixtures("few_log_odds")
def test_it_is_a_classifier_of_scikit_learn():
    X, y = table(300)
    words = np.where(y == 1, "yes", "no")
    classifier = model(epsilon=20.0, classes=["no", "yes"])
    assert cross_val_score(classifier, X, words, cv=2).mean() > 0.7
    fitted = clone(classifier).fit(X, words)
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert fitted.feature_names_in_.tolist() == list(COLUMNS)
    probabilities = fitted.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_array_equal(fitted.predict(X), fitted.classes_[(fitted.decision_function(X) > 0).astype(int)])
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(X)), probabilities)
    assert roc_auc_score(y, fitted.decision_function(X)) > 0.8
    arrays = model([(0, 100), "number"], epsilon=20.0).fit(X[["age", "income"]].to_numpy(), y)
    assert arrays.n_features_in_ == 2
    assert roc_auc_score(y, arrays.decision_function(X[["age", "income"]].to_numpy())) > 0.55
    with pytest.raises(ValueError, match="'income' is declared, but X has 0"):
        fitted.predict(X[["age", "town"]])
    for labels in (words, words.astype(object), 3 + 4 * y):  # an ordinary fit finds the classes
        assert PrivateClassifier().fit(X[["age"]], labels).class_counts_.tolist() == np.bincount(y).tolist()


@pytest.mark.usefixtures("few_log_odds")
def test_more_than_two_classes_have_log_odds_each():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 6000)
    X = pd.DataFrame({"a": rng.normal(np.array([-2.0, 0.0, 2.0])[y]), "b": np.where(rng.random(6000) < 0.7, y, 0)})
    fitted = model({"a": (-6, 6), "b": [0, 1, 2]}, classes=[0, 1, 2]).fit(X, y)
    assert fitted.log_odds_["b"].shape == (3, 5)
    assert (fitted.log_odds_["b"][:, :3].argmax(axis=0) == [0, 1, 2]).all()
    assert fitted.score(X, y) > 0.8
    with pytest.raises(ValueError, match="none of the classes of this fit"):
        fitted.score(X, y + 1)
    assert fitted.predict_proba(X[:4]).shape == (4, 3)
    assert 3.97 < fitted.privacy_.epsilon() <= 4.0  # without a threshold, a tenth of δ is left


@pytest.mark.filterwarnings("ignore:Noise hides how large:vips.PrivacyWarning")
@pytest.mark.usefixtures("few_log_odds")
def test_a_saved_classifier_comes_back_whole(tmp_path):
    X, y = table(100)
    for columns in (COLUMNS, None):
        fitted = model(columns).fit(X, y)
        fitted.save(tmp_path / "c.vips")
        loaded = vips.load(tmp_path / "c.vips")
        np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
        assert str(loaded.privacy_) == str(fitted.privacy_)
        assert loaded.get_params() == fitted.get_params()
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), fitted.predict_proba(X))
    plain = PrivateClassifier({"age": (0, 100)}).fit(X, y)
    plain.save(tmp_path / "plain.vips")
    assert not vips.load(tmp_path / "plain.vips").privacy_.has_guarantee
    loaded.privacy_.to_html(tmp_path / "certificate.html")
    assert "numbers of each class by cells" in (tmp_path / "certificate.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "c.vips"
    with pytest.MonkeyPatch.context() as patch:
        without_log_odds(patch)
        model().fit(*table(100)).save(path)
    return path


@pytest.mark.parametrize(
    "forge",
    [
        lambda header, arrays: header["parameters"].update(privacy=encode(PrivacyBudget(0.1, 1e-6))),
        lambda header, arrays: header["parameters"].update(n_steps=7),
        lambda header, arrays: header["parameters"].update(privacy=None),
        lambda header, arrays: header["encoder"]["counts"].__setitem__(0, encode(np.zeros((2, 3)))),
        lambda header, arrays: header["encoder"].update(class_counts=encode(np.zeros(3))),
        lambda header, arrays: header["encoder"].update(class_counts=encode(np.array(["a", "b"]))),
        lambda header, arrays: header["encoder"]["tables"].pop(),
        lambda header, arrays: header["encoder"].pop("report"),
    ],
)
def test_forged_files_raise_value_errors(saved, tmp_path, forge):
    header, arrays = read_archive(saved, "pipeline")
    forge(header, arrays)
    write_archive(tmp_path / "c.vips", "pipeline", {k: v for k, v in header.items() if k not in ("arrays",)}, arrays)
    with pytest.raises(ValueError, match="not a file of vips"):
        vips.load(tmp_path / "c.vips")


@pytest.mark.parametrize(
    ("settings", "X", "y", "says"),
    [
        ({"privacy": 1.0}, None, None, r"a PrivacyBudget or None, got float: write PrivacyBudget\(epsilon, delta\)"),
        ({"privacy": PrivacyPlan(noise_multiplier=1.0, n_steps=1, sampling="full")}, None, None, "got PrivacyPlan"),
        ({"encoder_share": 1.0}, None, None, "between 0.001 and 0.999"),
        ({"columns": {"nowhere": (0, 1)}}, None, None, "0 columns of that name"),
        ({"columns": {"age": "integer"}}, None, None, "write \\(low, high\\)"),
        ({"columns": {"age": (1, 0)}}, None, None, "low < high"),
        ({"columns": [(0, 1)]}, None, None, "one entry for each of the 4"),
        ({"classes": [1]}, None, None, "at least two labels"),
        ({}, [[1.0]], None, "data frame or a NumPy array, got list"),
        ({}, np.zeros(3), None, "Expected 2D array"),
        ({"columns": None}, pd.DataFrame({"a": [1j] * 400}), None, "convert it to numbers"),
        ({"columns": {"a": "number"}}, pd.DataFrame({"a": [pd.Timestamp(0)] * 400}), None, 'write "date"'),
        ({}, None, np.zeros((400, 2)), "y"),
        ({}, None, np.zeros(3), "inconsistent|different"),
    ],
)
def test_errors_come_from_public_facts_before_any_charge(tmp_path, settings, X, y, says):
    usual = table()
    ledger = PrivacyLedger(tmp_path / "budget", 9.0, 1e-5, "letters")
    with pytest.raises((TypeError, ValueError), match=says):
        model(**settings).fit(usual[0] if X is None else X, usual[1] if y is None else y, ledger=ledger)
    assert ledger.spent() == 0.0
    with pytest.raises(ValueError, match="requires y"):
        model().fit(usual[0], None)


@pytest.mark.parametrize("container", [pd.DataFrame, pa.Table.from_pandas], ids=["pandas", "Arrow"])
def test_a_frame_is_read_by_the_declared_names_alone(container):
    """Whatever other columns the fitted table had, or new ones have."""
    X, y = table()
    declared = {"town": ["A", "B"], "age": (0, 100)}
    extended = X.assign(id=range(len(X)))
    for fitted in (X[["age", "town"]], extended):
        classifier = model(declared).fit(container(fitted), y)
        expected = classifier.predict_proba(container(fitted))
        for new in (extended, X[["town", "age"]]):
            np.testing.assert_array_equal(classifier.predict_proba(container(new)), expected)
        with pytest.raises(ValueError, match="'town' is declared, but X has 0"):
            classifier.predict(container(X[["age"]]))


@pytest.mark.usefixtures("only_tables")
def test_a_fit_that_raises_leaves_the_one_before():
    X, y = table(100)
    fitted = model().fit(X, y)
    before = dict(vars(fitted))
    with pytest.raises(TypeError):
        fitted.fit([[1.0]], y)
    assert vars(fitted) == before
    assert isinstance(model().fit(X, y)[-1], BayesianLogisticRegression)
