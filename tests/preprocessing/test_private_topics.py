"""Topics of raw texts: one budget, words and topics from released numbers, and clear words where noise wins."""

import re
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pandas as pd
import pytest
import sklearn.feature_extraction.text
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import vips
from vips import PrivacyBudget, PrivacyLedger, PrivacyWarning, PrivateTopics
from vips.preprocessing import PrivateCountVectorizer

BUDGET = {"privacy": PrivacyBudget(2.0, 1e-6)}
SUBJECTS = ["ship sea storm sails harbour", "rye barley field harvest plough", "court judge sentence witness verdict"]


def letters(n=3000, seed=0):
    """Each of two subjects at most, ten words."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(n):
        words = SUBJECTS[rng.integers(3)].split() + SUBJECTS[rng.integers(3)].split()
        texts.append(" ".join(rng.choice(words, 10)))
    return texts


@pytest.fixture(scope="module")
def fitted():
    return PrivateTopics(3, **BUDGET, random_state=0).fit(letters())


def test_topics_are_the_subjects(fitted):
    words = np.array(fitted.vocabulary_)
    assert len(words) == 15
    topics = [set(words[np.argsort(-row)[:5]]) for row in fitted.components_]
    assert sorted(map(sorted, topics)) == sorted(sorted(subject.split()) for subject in SUBJECTS)
    np.testing.assert_allclose(fitted.transform(letters(5, 1)).sum(axis=1), 1.0, rtol=1e-6)
    assert fitted.perplexity(letters(300, 1)) < 12.0  # 15 with words alone; the truth has about 10
    assert np.isfinite(fitted.score(letters(300, 1)))
    assert sorted(map(set, fitted.top_words(5)), key=min) == sorted(topics, key=min)


def test_topics_can_be_looked_at(fitted, tmp_path):
    fitted.to_html(tmp_path / "topics.html")
    assert "ε = 2" in (tmp_path / "topics.html").read_text(encoding="utf-8")
    assert fitted.top_words(2, as_frame=True)["word"].isin(fitted.vocabulary_).all()
    assert len(np.ravel(fitted.plot_topics(3))) >= 3


def test_everything_is_within_the_budget(fitted, tmp_path):
    assert 1.999 < fitted.privacy_.epsilon() <= 2.0
    assert "the number of records" in str(fitted.privacy_)
    ledger = PrivacyLedger(tmp_path / "letters.ledger", 4.0, 1e-5, "letters")
    PrivateTopics(2, **BUDGET, n_steps=2).fit(letters(), ledger=ledger)
    assert len(ledger.runs()) == 1
    assert ledger.remaining().delta_0 == pytest.approx(1e-6 - 1e-7)  # a tenth of it, for the threshold


def test_the_number_of_topics_depends_on_released_numbers_only():
    """The same release of words and counts, of other documents: the same advice."""
    advice = []
    for seed in (0, 1):
        with pytest.MonkeyPatch.context() as patch:
            original = vips.PrivacyPlan.add_noise

            def frozen(self, total, blocks, randomness, t, original=original):
                if "records" not in total:
                    return original(self, total, blocks, randomness, t)
                return {"words": np.linspace(900.0, 100.0, len(total["words"])), "records": np.array([600.0])}

            patch.setattr(vips.PrivacyPlan, "add_noise", frozen)
            advice.append(PrivateTopics(**BUDGET, n_steps=2).fit(letters(1000 * (1 + seed), seed)).advice_)
    assert advice[0] == advice[1]


def test_where_noise_wins_there_is_one_topic_and_it_says_so():
    few = PrivateTopics(privacy=PrivacyBudget(1.0, 1e-6), n_documents=10, document_length=5, n_steps=3)
    with pytest.raises(ValueError, match="are too few for ε = 1"):
        few.fit(letters(10))
    with pytest.warns(PrivacyWarning, match="few words will be"):
        few.set_params(n_documents=400).fit(letters(4000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivateCountVectorizer, "known_words", lambda *_: 1e-3)
        hidden = PrivateTopics(**BUDGET, n_steps=3).fit(letters())
        assert hidden.components_.shape == (1, 15)
        assert "which hides topics" in str(hidden.advice_)


SHORT = {"document_length": 7, "n_steps": 2, **BUDGET}


def test_words_of_another_language_are_told_and_the_list_that_is_suggested_works():
    words = np.random.default_rng(0).choice([f"w{i}" for i in range(40)], (4000, 8))
    texts = [f"und die {' '.join(row)}" if i % 2 else " ".join(row) for i, row in enumerate(words)]
    with pytest.warns(PrivacyWarning, match="'d?.*' are in more than 40% of the documents.*another language") as caught:
        PrivateTopics(2, **SHORT).fit(texts)
    assert "'w" not in str(caught[0].message)
    (suggested,) = re.findall(r"stop_words=(\[.*?\])", str(caught[0].message))
    stop_words = eval(suggested, {"sklearn": sklearn, "words": ["und", "die"]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        without = PrivateTopics(2, **SHORT, stop_words=stop_words).fit(texts)
    assert {*without.vocabulary_} == {*words.ravel()}


def test_short_messages_keep_their_emoji():
    emoji = r"\w\w+|[\u2600-\u27bf\U0001f300-\U0001faff]"
    messages = [f"{text} 🌊⚓" if "ship" in text else text for text in letters()]
    assert {"🌊", "⚓", "ship"} <= {*PrivateTopics(2, **SHORT, token_pattern=emoji).fit(messages).vocabulary_}


def test_it_is_an_estimator(fitted, tmp_path):
    assert clone(fitted).get_params()["privacy"] == BUDGET["privacy"]
    with pytest.raises(NotFittedError):
        clone(fitted).transform(letters(2))
    with pytest.raises(NotFittedError):
        _ = clone(fitted).privacy_
    fitted.save(tmp_path / "topics.vips")
    again = vips.load(tmp_path / "topics.vips")
    assert isinstance(again, PrivateTopics)
    assert again.get_params() == fitted.get_params()
    assert again.advice_ == fitted.advice_
    assert again.vocabulary_ == fitted.vocabulary_
    np.testing.assert_array_equal(again.transform(letters(4)), fitted.transform(letters(4)))


def test_writers_are_protected_and_a_declared_number_of_documents_is_not_bought():
    writers = pd.Series(np.arange(3000) // 3, name="writer")
    fitted = PrivateTopics(2, **BUDGET, n_documents=3000, n_steps=2).fit(letters(), groups=writers)
    assert fitted.privacy_.unit == "all rows of one writer"
    assert fitted[0].n_records_ is None
    assert "the number of records" not in str(fitted.privacy_)


@pytest.mark.parametrize(
    ("settings", "documents", "says"),
    [
        ({"n_components": 0}, None, "n_components"),
        ({"n_documents": 1.5}, None, "n_documents"),
        ({"document_length": 0}, None, "document_length"),
        ({"privacy": None}, None, "must be a PrivacyBudget, got NoneType"),
        ({"privacy": 1.0, "n_documents": 100}, None, r"got float: write PrivacyBudget\(epsilon, delta\)"),
        ({"n_steps": 0}, None, "n_steps"),
        ({"encoder_share": 1.0}, None, "encoder_share"),
        ({"max_features": 0}, None, "max_features"),
        ({"token_pattern": "("}, None, "`token_pattern` '\\(' is no regular expression"),
        ({"token_pattern": "(a)(b)"}, None, "capturing group"),
        ({}, "a letter", r"write \[text\]"),
        ({}, np.eye(3), "2 dimensions"),
    ],
)
def test_errors_come_before_anything_is_charged(settings, documents, says, tmp_path):
    ledger = PrivacyLedger(tmp_path / "letters.ledger", 4.0, 1e-5, "letters")
    with pytest.raises((TypeError, ValueError), match=says):
        PrivateTopics(**(BUDGET | settings)).fit(letters(20) if documents is None else documents, ledger=ledger)
    assert ledger.spent() == 0.0


def fitted_elsewhere(topics, documents):
    return topics.fit(documents)


def test_fits_in_other_processes_are_charged_to_the_block_they_were_sent_from(tmp_path, forkserver):
    topics = PrivateTopics(2, **BUDGET, n_steps=2)
    ledger = PrivacyLedger(tmp_path / "letters.ledger", 9.0, 1e-5, "letters")
    with ledger, ProcessPoolExecutor(1, mp_context=forkserver) as pool:
        fitted = pool.submit(fitted_elsewhere, topics, letters(500)).result()
    assert len(ledger.runs()) == 1
    assert fitted.privacy_.releases[0].ledger["run"] in {run.run for run in ledger.runs()}
