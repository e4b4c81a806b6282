"""Pipelines whose first step counts declared words, or hashes them: nothing is learnt, and no document raises."""

import warnings

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.pipeline import FeatureUnion
from sklearn.preprocessing import FunctionTransformer

from tests.preprocessing.test_private_words import HOSTILE, raises_for_some
from vips import BayesianLogisticRegression, LatentDirichletAllocation, PrivacyPlan
from vips.preprocessing import make_public_pipeline

PLAN = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.5, n_steps=2)
WORDS = ["sea", "ship", "storm"]
LETTERS = ["the ship at sea", "a storm"] * 20


def topics(first, n_words=3):
    return make_public_pipeline(first, LatentDirichletAllocation(2, vocabulary=n_words, privacy=PLAN, random_state=0))


def watched_counts(pipeline, documents):
    """The counts that the model is fitted to."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LatentDirichletAllocation, "fit", lambda self, X, *_, **__: found.append(X) or self)
        pipeline.fit(documents)
    return found[0]


def test_declared_words_are_counted_and_what_is_no_text_has_none():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        counts = watched_counts(topics(CountVectorizer(vocabulary=WORDS)), LETTERS + HOSTILE)
        topics(CountVectorizer(vocabulary=WORDS)).fit(LETTERS + HOSTILE)
    assert counts.shape == (40 + len(HOSTILE), 3)
    expected = CountVectorizer(vocabulary=WORDS).fit_transform(LETTERS)
    np.testing.assert_array_equal(counts[:40].toarray(), expected.toarray())
    assert counts[40 + HOSTILE.index(b"the \xff sea")].toarray().tolist() == [[1, 0, 0]]
    assert counts[40 + HOSTILE.index(3)].sum() == 0


@pytest.mark.parametrize("documents", [[], ["sea"], LETTERS], ids=len)
def test_hashes_need_no_words_and_no_documents(documents):
    first = HashingVectorizer(n_features=64, alternate_sign=False, norm=None, dtype=np.int64)
    assert topics(first, 64).fit(documents).transform(["sea"]).shape == (1, 2)
    model = BayesianLogisticRegression(feature_norm=1.0, privacy=PLAN)
    make_public_pipeline(HashingVectorizer(n_features=64), model).fit(documents, np.zeros(len(documents)))


def test_the_statement_names_what_was_declared():
    report = topics(CountVectorizer(vocabulary=WORDS)).fit(LETTERS).privacy_
    assert "what a word is in step 'countvectorizer'" in report.declared_public
    assert "CountVectorizer" in report.preprocessing


def test_an_error_of_a_function_quotes_no_document():
    first = CountVectorizer(vocabulary=WORDS, tokenizer=raises_for_some, token_pattern=None)
    with pytest.raises(RuntimeError, match="Step 'countvectorizer' raised RuntimeError") as caught:
        topics(first).fit([*LETTERS, "lost at sea, says Amalie"])
    assert "Amalie" not in str(caught.value)


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([CountVectorizer()], "rare ones too"),
        ([CountVectorizer(vocabulary=WORDS, input="filename")], 'input="content"'),
        ([HashingVectorizer(input="file")], 'input="content"'),
        ([FunctionTransformer(), CountVectorizer(vocabulary=WORDS)], "must be the first step"),
        ([FeatureUnion([("words", CountVectorizer(vocabulary=WORDS))])], "must be the first step"),
    ],
)
def test_steps_that_learn_or_read_files_are_refused(steps, says):
    with pytest.raises(ValueError, match=says):
        make_public_pipeline(*steps, LatentDirichletAllocation(2, vocabulary=3, privacy=PLAN)).fit(LETTERS)
    with pytest.raises((TypeError, ValueError), match=r"write \[text\]"):
        topics(CountVectorizer(vocabulary=WORDS)).fit("a letter")


def test_half_a_character_stops_no_fit():
    letter = b"S\xf8rensen owes".decode("utf-8", "surrogateescape")
    first = HashingVectorizer(n_features=64, tokenizer=str.split, token_pattern=None)
    model = BayesianLogisticRegression(feature_norm=1.0, privacy=PLAN)
    make_public_pipeline(first, model).fit([*LETTERS, letter], np.zeros(len(LETTERS) + 1))


def test_words_must_be_counted_in_the_order_of_their_names():
    model = LatentDirichletAllocation(2, vocabulary=["ship", "sea", "storm"], privacy=PLAN)
    with pytest.raises(ValueError, match="Give both the same list"):
        make_public_pipeline(CountVectorizer(vocabulary=["sea", "ship", "storm"]), model).fit(LETTERS)
    make_public_pipeline(CountVectorizer(vocabulary=["ship", "sea", "storm"]), model).fit(LETTERS)
