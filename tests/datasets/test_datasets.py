import numpy as np
import pytest

from vips.datasets import corpus_from_texts, load_docstrings, load_wikipedia, make_lda_corpus
from vips.datasets._home import data_home


def test_generated_corpus_follows_its_model():
    corpus = make_lda_corpus(3000, n_topics=4, n_words=50, document_length=80, random_state=0)
    assert corpus.counts.shape == (3000, 50)
    np.testing.assert_array_equal(corpus.counts.sum(axis=1), 80)
    expected = (corpus.doc_topic @ corpus.topics).sum(axis=0) * 80
    np.testing.assert_allclose(corpus.counts.sum(axis=0), expected, atol=6 * np.sqrt(expected.max()))
    again = make_lda_corpus(3000, n_topics=4, n_words=50, document_length=80, random_state=0)
    assert (again.counts != corpus.counts).nnz == 0
    given = make_lda_corpus(10, topics=np.eye(3, 7), random_state=0)
    assert given.counts.shape == (10, 7)
    assert given.counts[:, [3, 4, 5, 6]].sum() == 0
    assert make_lda_corpus(0, n_words=5).counts.shape == (0, 5)


def test_corpus_from_texts():
    corpus = corpus_from_texts(["The cat saw THE dog's cat.", "", "naïve 3 cat2cat"], ["cat", "dog", "naïve"])
    np.testing.assert_array_equal(corpus.counts.toarray(), [[2, 1, 0], [0, 0, 0], [2, 0, 1]])
    with pytest.raises(ValueError, match="twice"):
        corpus_from_texts(["a"], ["a", "a"])
    with pytest.raises(TypeError, match="one text"):
        corpus_from_texts("a text", ["a"])


@pytest.mark.slow
def test_docstrings_are_a_real_corpus_with_a_foreign_vocabulary():
    corpus = load_docstrings(packages=("sklearn",))
    assert corpus.counts.shape == (len(corpus.names), len(corpus.vocabulary))
    assert len(corpus.names) > 300
    assert len(corpus.vocabulary) > 1000
    assert (corpus.counts.sum(axis=1) >= 10).all()
    assert "regression" in corpus.vocabulary
    assert "hyperparameter" not in corpus.vocabulary  # the library's own words are not learnt
    fitted = next(i for i, name in enumerate(corpus.names) if name.endswith("LatentDirichletAllocation"))
    assert corpus.counts[[fitted]][:, [corpus.vocabulary.index("topic")]].sum() > 5
    with pytest.raises(ValueError, match="not installed"):
        load_docstrings(packages=("no_such_package",))


def test_missing_data_say_where_they_were_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("VIPS_DATA_HOME", str(tmp_path))
    assert data_home() == tmp_path
    with pytest.raises(FileNotFoundError, match=r"wiki_counts_00.npz[\s\S]*VIPS_DATA_HOME") as error:
        load_wikipedia(100)
    assert str(tmp_path) in str(error.value)


def test_wikipedia():
    try:
        corpus = load_wikipedia(100)
    except FileNotFoundError as missing:
        pytest.skip(str(missing).splitlines()[0])
    assert corpus.counts.shape == (100, 7702)
    assert len(corpus.vocabulary) == 7702
    assert corpus.counts.sum(axis=1).min() >= 50
    with pytest.raises(ValueError, match="n_documents"):
        load_wikipedia(0)
