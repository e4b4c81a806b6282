import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from vips.datasets import load_digits_binary, make_lda_corpus, make_sparse_binary


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


def test_digits():
    digits = load_digits_binary()
    assert digits.data.shape == (1797, 64)
    assert digits.data.dtype == bool
    assert set(digits.target) == set(range(10))
    assert 0.3 < digits.data.mean() < 0.4


@pytest.mark.slow
def test_sparse_binary_data_have_the_stated_shape_and_rate():
    made = make_sparse_binary(random_state=0)
    X, y = made.data, made.target
    assert X.shape == (12586, 4146)
    assert set(np.unique(X.data)) == {1}
    assert 36 < X.sum(axis=1).mean() < 44
    frequency = X.mean(axis=0)
    assert (frequency > 0.1).sum() < 100
    assert np.median(frequency) < 0.005
    assert abs(y.mean() - 0.14) < 4 * np.sqrt(0.14 * 0.86 / len(y))
    together = (X[:, np.argsort(-frequency)[:1000]].astype(float)).toarray()
    correlation = np.corrcoef(together.T)[np.triu_indices(1000, 1)]
    assert np.quantile(correlation, 0.999) > 0.1  # independent features: 3.1 / sqrt(12586) = 0.03

    train, test = slice(0, 9000), slice(9000, None)
    auc = [
        roc_auc_score(
            y[test],
            LogisticRegression(C=0.03, solver="liblinear")
            .fit(X[train].astype(float), labels)
            .decision_function(X[test].astype(float)),
        )
        for labels in (y[train], np.random.default_rng(0).permutation(y[train]))
    ]
    assert 0.8 < auc[0] < 0.85
    assert auc[1] < 0.6


def test_sparse_binary_labels_follow_the_known_coefficients():
    made = make_sparse_binary(20_000, 50, 0.3, n_active=5.0, random_state=1)
    chance = 1.0 / (1.0 + np.exp(-(made.data @ made.coef + made.intercept)))
    assert chance.mean() == pytest.approx(0.3, abs=1e-9)
    z = (made.target - chance) / np.sqrt(chance * (1.0 - chance))
    weighted = made.data.T @ z / np.sqrt(made.data.sum(axis=0))
    assert np.abs(weighted).max() < 4.5  # calibrated for every feature
    again = make_sparse_binary(20_000, 50, 0.3, n_active=5.0, random_state=1)
    assert (again.data != made.data).nnz == 0
    np.testing.assert_array_equal(again.target, made.target)
    assert make_sparse_binary(0, 30, n_active=3.0).data.shape == (0, 30)
    with pytest.raises(ValueError, match="positive_rate"):
        make_sparse_binary(positive_rate=1.0)
    with pytest.raises(ValueError, match="n_active"):
        make_sparse_binary(n_features=10)
