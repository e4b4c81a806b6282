"""Pipelines of a private encoder and a private model: one budget, one unit, and files."""

import json
import math
import pickle
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

import vips
from tests.mutants import check_notices
from vips import (
    BayesianLogisticRegression,
    CheckpointError,
    LedgerError,
    PrivacyBudget,
    PrivacyBudgetError,
    PrivacyLedger,
    PrivacyPlan,
    PrivateClassifier,
    count_records,
)
from vips.core.accounting.gaussian import gaussian_epsilon, gaussian_log_delta
from vips.core.ledger.run import LedgerRun
from vips.persistence import checkpoint
from vips.persistence.archive import read_archive, write_archive
from vips.preprocessing import (
    PrivateCountVectorizer,
    PrivatePipeline,
    TableEncoder,
    _budget,
    _private_pipeline,
    make_private_pipeline,
)
from vips.preprocessing._budget import split_budget
from vips.report.certificate.check import findings


def table(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    age, town, income = rng.integers(18, 90, n), rng.choice(["A", "B"], n), rng.lognormal(8.0, 1.0, n)
    X = pd.DataFrame({"age": age, "town": town, "income": income})
    return X, (X["age"] + 40 * (X["town"] == "A") + rng.normal(0, 20, n) > 70).to_numpy()


def pipeline(*, epsilon=4.0, relation="add_or_remove", n_steps=5, model=None):
    model = BayesianLogisticRegression() if model is None else model
    budget = PrivacyBudget(epsilon, 1e-6, relation=relation)
    return make_private_pipeline(TableEncoder(), model, privacy=budget, n_steps=n_steps)


def test_encoder_and_fit_together_are_within_the_budget():
    """By the exact δ of one Gaussian, of the noise that the two mechanisms really use."""
    X, y = table()
    for relation, sensitivity in (("add_or_remove", 1.0), ("replace_one", 2.0)):
        fitted = pipeline(relation=relation).fit(X, y)
        encoder, fit = fitted[0].privacy_, fitted[-1].privacy_
        of_encoder, of_fit = (plan.clip_norm / plan.noise_std() for plan in (encoder.plan, fit.plan))
        mu = sensitivity * math.sqrt(of_encoder**2 + 5 * of_fit**2)
        total = math.exp(gaussian_log_delta(mu, 4.0)) + encoder.releases[0].threshold_delta
        assert total <= 1e-6, f"δ is {total} at the stated ε"
        assert total == pytest.approx(1e-6, rel=1e-2)
        assert 3.99 < fitted.privacy_.epsilon() <= 4.0
    assert split_budget(PrivacyBudget(4.0, 1e-6), 5, 0.15, False).threshold_delta is None


def the_fit_takes_the_whole_budget(patch):
    original = _budget.split_budget

    def split_budget(whole, n_steps, share, learns):
        both, alone = (original(whole, n_steps, part, learns) for part in (share, 1e-9))
        return _budget.Budget(both.encoder, alone.fit, both.threshold_delta)

    patch.setattr(_private_pipeline, "split_budget", split_budget)


def the_threshold_costs_nothing(patch):
    original = _budget.split_budget

    def split_budget(whole, *others):
        split = original(PrivacyBudget(whole.epsilon, whole.delta / 0.9, relation=whole.relation), *others)
        return _budget.Budget(split.encoder, split.fit, whole.delta_0)

    patch.setattr(_private_pipeline, "split_budget", split_budget)


@pytest.mark.parametrize("mutant", [the_fit_takes_the_whole_budget, the_threshold_costs_nothing])
def test_mutants_are_noticed(mutant, monkeypatch):
    check_notices(test_encoder_and_fit_together_are_within_the_budget, mutant, monkeypatch, "at the stated ε")


def test_a_pipeline_predicts_and_says_what_it_did():
    X, y = table(8000)
    fitted = pipeline().fit(X, y)
    assert fitted.score(X, y) > 0.7
    assert fitted.predict_proba(X[:3]).shape == (3, 2)
    assert fitted[-1].max_norm == fitted[0].max_norm == 1.0
    text = str(fitted.privacy_)
    for words in ("ε = 4 at δ = 1e-06", "bounds of 2 columns", "categories of 1 column", "one row of X with its label"):
        assert words in text
    assert "call .epsilon" not in text
    assert fitted.privacy_.to_dict()["epsilon"] == pytest.approx(4.0, rel=1e-3)
    assert fitted.steps[0][1].privacy is None
    assert clone(fitted).get_params()["privacy"] == PrivacyBudget(4.0, 1e-6)
    explicit = pipeline(model=BayesianLogisticRegression(max_norm=0.9))
    of_persons = explicit.fit(X, y, groups=pd.Series(np.arange(8000) // 3, name="patient"))
    assert of_persons[-1].max_norm == 0.9
    assert of_persons.privacy_.unit == of_persons[0].privacy_.unit == "all rows of one patient"


def test_the_report_of_the_model_counts_the_encoder_too_and_is_json_without_a_guarantee(tmp_path):
    X, y = table(500)
    fitted = pipeline().fit(X, y)
    fitted.save(tmp_path / "both.vips")
    fitted[-1].save(tmp_path / "model.vips")
    loaded = [vips.load(tmp_path / name).privacy_ for name in ("both.vips", "model.vips")]
    for report in (fitted[-1].privacy_, *loaded):
        assert report == fitted.privacy_
        assert report.epsilon() == pytest.approx(4.0, rel=1e-3)
        assert [release.what for release in report.releases] == ["encoder", "fit"]
    report = pipeline(model=BayesianLogisticRegression(on_invalid="raise")).fit(X, y).privacy_
    assert "NO GUARANTEE" in str(report)
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))["epsilon"] is None


def test_a_ledger_is_charged_for_both_or_for_neither(tmp_path):
    X, y = table()
    terms = {"unit": "one row of X with its label"}
    ledger = PrivacyLedger(tmp_path / "budget", 6.0, 1e-5, "letters", **terms)
    with ledger:
        fitted = pipeline(epsilon=2.0).fit(X, y)
    (run,) = ledger.runs()
    assert (run.state, run.steps) == ("complete", 1 + pipeline().n_steps)
    assert fitted[0].privacy_.ledger["run"] == fitted[-1].privacy_.ledger["run"] == run.run
    plans = [release.plan for release in fitted.privacy_.releases]
    mu2 = sum(plan.n_steps / plan.noise_multiplier**2 for plan in plans)
    assert run.cost().mu2 == pytest.approx(mu2, rel=1e-9)
    assert run.cost().mu2 >= mu2
    assert run.cost().delta_0 == fitted.privacy_.releases[0].threshold_delta > 0.0
    left = ledger.remaining()
    with pytest.raises(PrivacyBudgetError, match="Nothing was charged"):
        pipeline(epsilon=6.5).fit(X, y, ledger=ledger)
    for wrong in (y[:-1], y.astype(complex), list(y), None):
        with pytest.raises((TypeError, ValueError)):
            pipeline(epsilon=1.0).fit(X, wrong, ledger=ledger)
    with pytest.raises(LedgerError, match="all rows of one"):
        pipeline(epsilon=1.0).fit(X, y, ledger=ledger, groups=np.zeros(3000, int))
    assert ledger.remaining() == left


def test_an_interrupted_fit_goes_on_with_what_the_encoder_has_learnt(tmp_path, monkeypatch):
    X, y = table()
    ledger = PrivacyLedger(tmp_path / "budget", 9.0, 1e-5, "letters")
    path = tmp_path / "fit.vips"
    with monkeypatch.context() as patch:
        patch.setattr(BayesianLogisticRegression, "fit", lambda *_, **__: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception, match="killed"):
            pipeline().fit(X, y, ledger=ledger, checkpoint=path)
    (first,) = ledger.runs()
    assert first.state == "closed at 1"  # the model's steps are given back
    assert first.cost().delta_0 > 0.0
    expected = pipeline()._budget(True, True).encoder.noise_multiplier ** -2
    assert first.cost().mu2 == pytest.approx(expected, rel=1e-9)
    fitted = pipeline().fit(X, y, ledger=ledger, checkpoint=path)
    (run,) = ledger.runs()
    assert (run.state, run.run) == ("complete", first.run)
    assert fitted[0].privacy_.ledger["run"] == fitted[-1].privacy_.ledger["run"] == run.run
    assert run.cost().mu2 == pytest.approx(run.whole.mu2, rel=1e-9)
    assert run.cost().delta_0 == first.cost().delta_0
    with pytest.raises(CheckpointError, match="other settings"):
        pipeline(epsilon=3.0).fit(X, y, ledger=ledger, checkpoint=path)
    with pytest.raises(CheckpointError, match="another unit"):
        pipeline().fit(X, y, ledger=ledger, checkpoint=path, groups=np.arange(3000))
    with pytest.raises(CheckpointError, match="another ledger"):
        pipeline().fit(X, y, checkpoint=path)


def test_a_fit_that_is_interrupted_between_steps_goes_on_under_its_charge(tmp_path, monkeypatch):
    X, y = table()
    ledger = PrivacyLedger(tmp_path / "budget", 9.0, 1e-5, "letters")
    path, commit = tmp_path / "fit.vips", checkpoint.Journal.commit

    def interrupted(journal, step, *state):
        commit(journal, step, *state)
        if step == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Journal, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pipeline().fit(X, y, ledger=ledger, checkpoint=path)
    (stopped,) = ledger.runs()
    assert stopped.state == "closed at 4"
    fitted = pipeline().fit(X, y, ledger=ledger, checkpoint=path)
    (run,) = ledger.runs()
    assert (run.state, run.released) == ("complete", 6)
    assert run.cost().mu2 == pytest.approx(run.whole.mu2)
    assert fitted.privacy_.releases[-1].repeated_steps == 0
    other = PrivacyLedger(tmp_path / "other", 9.0, 1e-5, "letters")
    pipeline().fit(X, y, ledger=other, checkpoint=tmp_path / "other.vips")
    path.write_bytes((tmp_path / "other.vips").read_bytes())
    with pytest.raises(CheckpointError, match="under another charge"):
        pipeline().fit(X, y, ledger=ledger, checkpoint=path)
    path.unlink()
    with pytest.raises(LedgerError, match="charged for another plan"):
        pipeline(n_steps=6).fit(X, y, ledger=ledger, checkpoint=path)


@pytest.mark.parametrize("share", [0.15, 0.5])
@pytest.mark.parametrize("columns", [None, {"age": "number", "town": ["A", "B"]}])
def test_a_step_that_is_released_twice_is_charged_and_stated(tmp_path, monkeypatch, share, columns):
    """The ledger knows step 2 of the model, the checkpoint does not. A log beside them adds up what was drawn."""
    X, y = table()
    ledger = PrivacyLedger(tmp_path / "budget", 9.0, 1e-5, "letters")
    commit, add_noise, drawn = checkpoint.Journal.commit, PrivacyPlan.add_noise, []

    def interrupted(journal, step, *state):
        if step == 2:
            raise KeyboardInterrupt
        commit(journal, step, *state)

    def logged(plan, total, *arguments):
        if "counts" not in total or not drawn:  # an encoder draws several times for one release
            drawn.append(plan.noise_multiplier)
        return add_noise(plan, total, *arguments)

    def fit():
        steps, settings = (TableEncoder(columns), BayesianLogisticRegression()), {"n_steps": 4, "encoder_share": share}
        both = make_private_pipeline(*steps, privacy=PrivacyBudget(4.0, 1e-6), **settings)
        return both.fit(X, y, ledger=ledger, checkpoint=tmp_path / "fit")

    monkeypatch.setattr(PrivacyPlan, "add_noise", logged)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Journal, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit()
    fitted = fit()
    (run,) = ledger.runs()
    assert (run.state, run.released, len(drawn)) == ("complete", 6, 6)
    spent = sum(sigma**-2 for sigma in drawn)
    assert spent <= run.cost().mu2
    assert run.cost().mu2 == pytest.approx(spent, rel=1e-9)
    assert fitted.privacy_.releases[-1].repeated_steps == 1
    delta = 1e-6 - fitted.privacy_.releases[0].threshold_delta
    assert fitted.privacy_.epsilon() == pytest.approx(gaussian_epsilon(math.sqrt(spent), delta), rel=1e-6)
    assert fitted.privacy_.epsilon() > 4.0
    fitted.privacy_.to_html(tmp_path / "page.html", ledger=ledger)
    seen = list(findings(tmp_path / "page.html", ledger=ledger.path))
    assert all(finding.is_right is not False for finding in seen), seen


def test_a_charge_for_something_else_pays_for_no_encoder(tmp_path):
    X, y = table()
    ledger = PrivacyLedger(tmp_path / "budget", 9.0, 1e-5, "letters")
    run = ledger.charge(PrivacyPlan(noise_multiplier=1e6, sampling="full", n_steps=1))
    budget = PrivacyBudget(2.0, 1e-6)
    for fit in (
        lambda: TableEncoder({"age": "number"}, privacy=budget).fit(X, ledger=run),
        lambda: TableEncoder(privacy=budget).fit(X, ledger=run),
        lambda: PrivateCountVectorizer(privacy=budget).fit(["a letter"], ledger=run),
        lambda: PrivateClassifier({"age": (0, 100)}, privacy=budget).fit(X, y, ledger=run),
        lambda: pipeline().fit(X, y, ledger=run),
        lambda: count_records(X, privacy=budget, ledger=run),
    ):
        with pytest.raises(LedgerError, match="has paid for another release"):
            fit()
    assert ledger.run(run.run).released == 0


class FitsTwice(BayesianLogisticRegression):
    """Passes on, twice, what has paid for its fit."""

    def fit(self, X, y=None, **arguments):
        super().fit(X, y, **arguments)
        return super().fit(X, y, **arguments)


def test_a_pipeline_pays_for_one_fit(tmp_path):
    with pytest.raises(LedgerError, match="has paid for another release"):
        pipeline(model=FitsTwice()).fit(*table(), ledger=PrivacyLedger(tmp_path / "budget", 9.0, 1e-5, "letters"))


def test_a_charge_that_pays_for_every_fit_is_noticed(monkeypatch, tmp_path):
    """Its second fit comes as far as its steps, which the ledger refuses: nothing of them was charged."""

    def pays_for_every_fit(patch):
        patch.setattr(LedgerRun, "pays_for", lambda self, plan: self._pays_for is plan)

    says = "has no charge for step"
    check_notices(lambda: test_a_pipeline_pays_for_one_fit(tmp_path), pays_for_every_fit, monkeypatch, says)


def test_a_model_s_checkpoint_is_not_continued_with_what_another_encoder_learns(tmp_path):
    X, y = table()
    ledger = PrivacyLedger(tmp_path / "budget", 9.0, 1e-5, "letters")
    path, columns = tmp_path / "fit.vips", tmp_path / "fit.vips.encoder"
    pipeline().fit(X, y, ledger=ledger, checkpoint=path)
    columns.unlink()
    runs, file = ledger.runs(), path.read_bytes()
    with pytest.raises(CheckpointError, match="another release of the encoder"):
        pipeline().fit(X, y, ledger=ledger, checkpoint=path)
    assert ledger.runs() == runs
    assert path.read_bytes() == file
    assert not columns.exists()


def test_a_pipeline_that_was_sent_from_a_block_is_charged_there(tmp_path):
    X, y = table(500)
    ledger = PrivacyLedger(tmp_path / "budget", 6.0, 1e-5, "letters")
    with ledger:
        sent = pickle.dumps(pipeline(epsilon=1.0))
    fitted = pickle.loads(sent).fit(X, y)
    assert {fitted[0].privacy_.ledger["run"], fitted[-1].privacy_.ledger["run"]} == {run.run for run in ledger.runs()}
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), fitted.predict(X))


def test_columns_may_have_numbers_for_names(tmp_path):
    X, y = table(500)
    fitted = pipeline().fit(X.set_axis([0, 1, 2], axis=1), y)
    fitted.save(tmp_path / "pipeline.vips")
    assert list(vips.load(tmp_path / "pipeline.vips")[0].columns_) == [0, 1, 2]
    with pytest.raises(TypeError, match="only supported if all input features have string names"):
        pipeline().fit(X.set_axis([0, "a", 2], axis=1), y)


def test_a_saved_pipeline_comes_back_whole(tmp_path):
    X, y = table()
    fitted = pipeline().fit(X.assign(income=X["income"].where(X.index % 2 > 0)), y)
    fitted.save(tmp_path / "pipeline.vips")
    loaded = vips.load(tmp_path / "pipeline.vips")
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert str(loaded.privacy_) == str(fitted.privacy_)
    assert loaded[0].get_feature_names_out().tolist() == fitted[0].get_feature_names_out().tolist()
    assert loaded.get_params()["n_steps"] == 5


@pytest.mark.parametrize("kind", ["int64", "float64", "Int64", "str", object])
def test_declared_columns_cost_nothing_and_come_back(tmp_path, kind):
    """All of the budget is the model's, whatever dtype holds the numbers."""
    X, y = table()
    X = pd.DataFrame({"income": X["income"].round().astype(int), "town": X["town"]})
    X["income"] = X["income"].astype(kind)
    if kind not in ("int64", "str"):
        X.loc[::2, "income"] = None
    encoder = TableEncoder({"income": (0, 10_000, "(missing)"), "town": ["A", "B", "(other)"]})
    fitted = make_private_pipeline(encoder, BayesianLogisticRegression(), privacy=PrivacyBudget(8.0, 1e-4)).fit(X, y)
    (release,) = fitted.privacy_.releases
    assert release.plan.noise_multiplier == pytest.approx(PrivacyBudget(8.0, 1e-4).plan(n_steps=20).noise_multiplier)
    assert "bounds of 1 numeric column (income: 0 to 10000)" in str(fitted.privacy_)
    fitted.save(tmp_path / "pipeline.vips")
    loaded = vips.load(tmp_path / "pipeline.vips")
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert str(loaded.privacy_) == str(fitted.privacy_)


@pytest.mark.parametrize(
    ("place", "value"),
    [("columns", 3), ("kinds", []), ("report", {}), ("parameters", {"steps": 1}), ("n_features_in", "many")],
)
def test_forged_files_raise_value_errors(tmp_path, place, value):
    X, y = table(300)
    path, forged = tmp_path / "pipeline.vips", tmp_path / "forged.vips"
    pipeline().fit(X, y).save(path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(forged, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "header.json":
                header = json.loads(content)
                header["encoder"][place] = value
                content = json.dumps(header)
            new.writestr(name, content)
    with pytest.raises(ValueError, match="not a file of vips that can be read"):
        vips.load(forged)


def forged(values):
    """Files of encoders that no fit writes: a name for what is wrong, and the encoder."""
    (release,), privacy = values["report"]["releases"], values["parameters"]["privacy"]

    def changed(**fields):
        return values | {"report": values["report"] | {"releases": [release | fields]}}

    yield "less δ", changed(threshold_delta=0.0)
    yield "a text for δ", changed(threshold_delta="0.1")
    for name, value in (("noise_multiplier", 100.0), ("noise_multiplier", 0.0), ("n_steps", 10**40)):
        by_report = changed(plan=release["plan"] | {name: value})
        yield name, by_report
        parameters = values["parameters"] | {"privacy": privacy | {"value": privacy["value"] | {name: value}}}
        yield f"{name} in both", by_report | {"parameters": parameters}
    yield "no texts", changed(released=3)
    yield "no ledger", changed(ledger=[])
    yield "two releases", values | {"report": values["report"] | {"releases": [release, release]}}
    yield "no names", values | {"names_in": -1}
    for i, kind in enumerate(["number", "category", "number"]):
        for other in {"number", "category", "declared"} - {kind}:
            kinds = json.loads(json.dumps(values["kinds"]))
            kinds["value"][i] = other
            yield f"{kind} as {other}", values | {"kinds": kinds}


def test_a_forged_encoder_is_refused_and_its_statement_is_that_of_its_settings(tmp_path):
    X, y = table(300)
    path = tmp_path / "fit.vips.encoder"
    pipeline().fit(X, y, checkpoint=tmp_path / "fit.vips")
    header, _ = read_archive(path, "encoder")
    write_archive(path, "encoder", header, {})
    pipeline().fit(X, y, checkpoint=tmp_path / "fit.vips")
    for name, encoder in forged(header["encoder"]):
        write_archive(path, "encoder", header | {"encoder": encoder}, {})
        with pytest.raises(CheckpointError, match=r"not a file of vips|other settings"):
            pytest.fail(f"{name}: {pipeline().fit(X, y, checkpoint=tmp_path / 'fit.vips')[0].__dict__}")


@pytest.mark.parametrize(
    ("steps", "settings", "says"),
    [
        ([TableEncoder(), StandardScaler(), BayesianLogisticRegression()], {}, "could learn from all records"),
        ([StandardScaler(), BayesianLogisticRegression()], {}, r"two steps.*got \[StandardScaler, Bay"),
        ([TableEncoder(), StandardScaler()], {}, "two steps"),
        ([TableEncoder(threshold_delta=1e-8), BayesianLogisticRegression()], {}, "leave `privacy`"),
        ([TableEncoder(), BayesianLogisticRegression(privacy=PrivacyPlan(n_steps=1, sampling="full", noise_multiplier=1.0))],
         {}, "leave `privacy`"),
        ([TableEncoder(), BayesianLogisticRegression()], {"encoder_share": 1.0}, "between 0.001 and 0.999"),
        ([TableEncoder(), BayesianLogisticRegression()], {"privacy": None}, "PrivacyBudget, got NoneType"),
        ([TableEncoder(), BayesianLogisticRegression()], {"privacy": "1"}, r"write PrivacyBudget\(epsilon, delta\)"),
    ],
)  # fmt: skip
def test_errors_come_before_anything_is_read(steps, settings, says):
    X, y = table(5)
    with pytest.raises((TypeError, ValueError), match=says):
        make_private_pipeline(*steps, **({"privacy": PrivacyBudget(1.0, 1e-6)} | settings)).fit(X, y)
    with pytest.raises(TypeError, match=r"pairs of a name and a step.*make_private_pipeline\(encoder, model"):
        PrivatePipeline(steps, privacy=PrivacyBudget(1.0, 1e-6)).fit(X, y)


def test_the_certificate_counts_the_encoder_too(tmp_path):
    frame, y = table()
    for kinds in (None, dict.fromkeys(frame.select_dtypes("number"), "number")):
        steps = TableEncoder(kinds), BayesianLogisticRegression()
        report = make_private_pipeline(*steps, privacy=PrivacyBudget(1.5, 1e-6)).fit(frame, y).privacy_
        report.to_html(tmp_path / "certificate.html", dataset="visits", purpose="care")
        page = (tmp_path / "certificate.html").read_text()
        assert "bounds of 2 columns" in page
        assert 1.48 < report.epsilon() <= 1.5
        assert f"ε = {report.epsilon():.4g}" in page
        # a threshold of categories has a δ of its own: only without one is all of it a single Gaussian mechanism
        assert ("-Gaussian differential privacy" in page) == (kinds is not None)


def test_a_fit_that_goes_on_has_the_declarations_with_which_it_began(tmp_path):
    """Else its first steps would be those of other features, which nobody would know."""
    X, y = table(300)
    X, place = X[["income", "town"]], tmp_path / "fit.vips"

    def fit(high):
        steps = TableEncoder({"income": (0, high), "town": ["A", "B"]}), BayesianLogisticRegression()
        return make_private_pipeline(*steps, privacy=PrivacyBudget(2.0, 1e-4)).fit(X, y, checkpoint=place)

    fit(10_000)
    fit(10_000)
    with pytest.raises(CheckpointError, match="other settings"):
        fit(500)


def test_what_cannot_work_is_refused_before_the_encoder_is_charged(tmp_path):
    X, y = table(300)
    ledger = PrivacyLedger(tmp_path / "ledger", 4.0, 1e-4, "visits")
    for arguments in ({"executor": "bogus"}, {"public_X": X.drop(columns="town"), "public_y": y}):
        with pytest.raises((TypeError, ValueError)):
            pipeline().fit(X, y, ledger=ledger, **arguments)
    assert not ledger.runs()


def test_a_model_that_is_fitted_again_without_its_encoder_forgets_the_names():
    X, y = table(300)
    model = pipeline().fit(X, y)[-1]
    assert model.column_names() != ["x0", "x1"]
    model.set_params(indicators=None).fit(np.random.default_rng(0).normal(size=(300, 2)), y)
    assert model.column_names() == ["x0", "x1"]
