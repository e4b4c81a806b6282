"""Pipelines from raw text to topics, within one budget."""

import numpy as np
import pandas as pd
import pytest

import vips
from tests.preprocessing.test_private_words import COMMON
from vips import (
    BayesianLogisticRegression,
    LatentDirichletAllocation,
    PrivacyBudget,
    PrivacyLedger,
    PrivacyPlan,
    compare,
)
from vips.persistence.archive import read_archive, write_archive
from vips.persistence.settings import encode
from vips.preprocessing import PrivateCountVectorizer, make_private_pipeline

LETTERS = COMMON * 10


def pipeline(words=None, model=None, **settings):
    words = PrivateCountVectorizer(stop_words=["the", "at"]) if words is None else words
    model = LatentDirichletAllocation(2, random_state=0) if model is None else model
    return make_private_pipeline(words, model, **({"privacy": PrivacyBudget(2.0, 1e-6), "n_steps": 5} | settings))


@pytest.fixture(scope="module")
def fitted():
    return pipeline().fit(LETTERS)


def written(folder, fitted, **changed):
    """The path of a file of the fit, of which parts are others."""
    fitted.save(folder / "topics.vips")
    header, arrays = read_archive(folder / "topics.vips", "pipeline")
    names = ("class", "names", "parameters", "encoder", "model")
    parts = {name: header[name] for name in names}
    write_archive(
        folder / "forged.vips", "pipeline", parts | {key: make(parts[key]) for key, make in changed.items()}, arrays
    )
    return folder / "forged.vips"


def test_topics_have_the_words_that_were_learnt(fitted):
    assert set(fitted[-1].vocabulary) == {"ship", "sails", "home", "storm", "sea", "was", "lost"}
    assert fitted.transform(LETTERS[:4]).shape == (4, 2)
    assert fitted[-1].perplexity(fitted[:-1].transform(LETTERS)) < 7.0
    assert pipeline().steps[-1][1].vocabulary is None


def test_the_statement_counts_the_vocabulary_and_does_not_call_it_public(fitted):
    report = fitted.privacy_
    assert report.epsilon() == pytest.approx(2.0, abs=1e-3)
    assert 0.0 < fitted[0].privacy_.epsilon(1e-6) < 2.0
    assert fitted[-1].privacy_ is report
    assert "the vocabulary" in fitted[-1].describe()["declared_public"]
    assert "the vocabulary" not in report.declared_public
    assert "what a word is (stop_words)" in str(report)
    assert "2 rounds" in str(report)


def test_a_ledger_is_charged_once_and_a_checkpoint_keeps_the_words(tmp_path, monkeypatch):
    ledger = PrivacyLedger(tmp_path / "letters.ledger", 5.0, 1e-5, "letters")
    fit = LatentDirichletAllocation.fit
    monkeypatch.setattr(LatentDirichletAllocation, "fit", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pipeline().fit(LETTERS, ledger=ledger, checkpoint=tmp_path / "fit")
    spent = ledger.spent()
    monkeypatch.setattr(LatentDirichletAllocation, "fit", fit)
    resumed = pipeline().fit(LETTERS, ledger=ledger, checkpoint=tmp_path / "fit")
    assert [run.state for run in ledger.runs()] == ["complete"]
    assert ledger.spent() > spent
    assert resumed[-1].vocabulary == resumed[0].vocabulary
    other = PrivateCountVectorizer(stop_words=["the"])
    with pytest.raises(vips.CheckpointError, match="other settings"):
        pipeline(other).fit(LETTERS, ledger=ledger, checkpoint=tmp_path / "fit")


def test_a_function_cannot_be_kept_and_is_refused_before_the_charge(tmp_path):
    words = PrivateCountVectorizer(tokenizer=str.split, token_pattern=None)
    ledger = PrivacyLedger(tmp_path / "letters.ledger", 5.0, 1e-5, "letters")
    with pytest.raises(TypeError, match="cannot be saved"):
        pipeline(words).fit(LETTERS, ledger=ledger, checkpoint=tmp_path / "fit")
    assert ledger.spent() == 0.0
    assert pipeline(words).fit(LETTERS).transform(LETTERS[:2]).shape == (2, 2)


def test_it_is_saved_without_pickle(fitted, tmp_path):
    fitted.save(tmp_path / "topics.vips")
    loaded = vips.load(tmp_path / "topics.vips")
    np.testing.assert_array_equal(loaded.transform(LETTERS[:9]), fitted.transform(LETTERS[:9]))
    assert str(loaded.privacy_) == str(fitted.privacy_)


def test_writers_are_records_and_a_model_with_words_of_its_own_keeps_them():
    writers = pd.Series(np.arange(len(LETTERS)) // 2, name="writer")
    assert pipeline().fit(pd.Series(LETTERS, name="text"), groups=writers).privacy_.unit == "all rows of one writer"
    declared = LatentDirichletAllocation(2, vocabulary=5, random_state=0)
    with pytest.raises(ValueError, match="columns but the vocabulary has 5 words"):
        pipeline(model=declared).fit(LETTERS)


def test_letters_can_be_classified_and_compared():
    rng = np.random.default_rng(0)
    y = np.array(["storm" in letter for letter in LETTERS]) ^ (rng.random(len(LETTERS)) < 0.1)
    model = BayesianLogisticRegression(max_norm=2.0)
    private = pipeline(model=model).fit(LETTERS, y)
    assert private.score(LETTERS, y) > 0.8
    baseline = BayesianLogisticRegression(max_norm=2.0).fit(private[:-1].transform(LETTERS), y)
    assert "storm" in {mover.name for mover in compare(private, baseline, LETTERS, y).movers(20)}


def test_without_a_word_the_fit_stops_and_says_what_to_do(tmp_path):
    ledger = PrivacyLedger(tmp_path / "letters.ledger", 5.0, 1e-5, "letters")
    with pytest.raises(ValueError, match="no word stood out"):
        pipeline().fit(["a rare word"], ledger=ledger)
    assert ledger.runs()[-1].state == "closed at 1"


@pytest.mark.parametrize(
    ("words", "documents", "says"),
    [
        (PrivateCountVectorizer(threshold_delta=1e-7), LETTERS, "leave `privacy`"),
        (PrivateCountVectorizer(max_words=0), LETTERS, "max_words"),
        (PrivateCountVectorizer(), "a letter", r"write \[text\]"),
        (PrivateCountVectorizer(), np.eye(3), "2 dimensions"),
    ],
)
def test_errors_come_before_anything_is_charged(words, documents, says, tmp_path):
    ledger = PrivacyLedger(tmp_path / "letters.ledger", 5.0, 1e-5, "letters")
    with pytest.raises((TypeError, ValueError), match=says):
        pipeline(words).fit(documents, ledger=ledger)
    assert ledger.spent() == 0.0


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("words",), ["sea", "sea"]), (("words",), [1]), (("words",), "sea"), (("n_records",), 3.0),
        (("class",), "Other"), (("report", "plan"), None),
        (("report", "threshold_delta"), 0.0), (("parameters", "max_words"), -1), (("report", "ledger"), "x"),
    ],
)  # fmt: skip
def test_forged_files_raise_value_errors(fitted, place, value, tmp_path):
    def forged(encoder):
        *names, last = place
        inner = encoder
        for name in names:
            inner = inner[name]
        inner[last] = value
        return encoder

    with pytest.raises(ValueError, match=r"forged\.vips"):
        vips.load(written(tmp_path, fitted, encoder=forged))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("privacy", encode(PrivacyBudget(0.01, 1e-6))),
        ("privacy", encode(PrivacyBudget(2.0, 1e-9))),
        ("privacy", encode(PrivacyBudget(2.0, 1e-6, relation="replace_one"))),
        ("privacy", encode(PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=5))),
        ("privacy", None), ("n_steps", 7), ("n_components", 3), ("stop_words", encode(["ship"])),
        ("ngram_range", encode((1, 2))), ("max_features", 2), ("n_documents", 8000),
    ],
)  # fmt: skip
def test_forged_settings_that_the_plans_did_not_spend_are_refused(fitted, name, value, tmp_path):
    forged = written(tmp_path, fitted, parameters=lambda parameters: parameters | {name: value})
    with pytest.raises(ValueError, match=r"forged\.vips"):
        vips.load(forged)


def test_a_file_is_of_the_class_whose_steps_it_holds(fitted, tmp_path):
    for name in ("PrivateTopics", "Pipeline", 3):
        forged = written(tmp_path, fitted, **{"class": lambda _: name})  # noqa: B023
        with pytest.raises(ValueError, match=r"forged\.vips"):
            pytest.fail(f"{name}: {vips.load(forged)}")
