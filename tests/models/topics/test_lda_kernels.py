import hashlib
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import psi

import vips
from vips.core.sums.kernels import CACHED, add_rounded_words, sum_words
from vips.datasets import make_lda_corpus
from vips.models.topics.digamma import exp_digamma
from vips.models.topics.documents import find_canonical
from vips.models.topics.statistics import DocumentStatistics, TopicPosterior, valid_documents


def test_exp_digamma():
    x = np.concatenate([np.geomspace(0.015, 1.0, 200), np.geomspace(1.0, 1e7, 200)])
    values = np.array([exp_digamma(v) for v in x])
    np.testing.assert_allclose(values, np.exp(psi(x)), rtol=1e-9)


def infer(counts, topic_word, prior=0.1, tol=1e-9, max_iter=5000, dtype=np.float64):
    return DocumentStatistics(sp.csr_array(counts), TopicPosterior(topic_word), prior, tol, max_iter, dtype)


def plain_gamma(row, topic_word, prior, tol=1e-9):
    weights = np.exp(psi(topic_word) - psi(topic_word.sum(axis=1))[:, None])
    gamma = np.full(len(topic_word), prior + row.sum() / len(topic_word))
    for _ in range(100_000):
        share = np.exp(psi(gamma))
        updated = prior + share * (weights @ (row / (share @ weights)))
        if np.abs(updated - gamma).mean() < tol:
            return updated
        gamma = updated
    raise AssertionError("no convergence")


@pytest.mark.parametrize("n_words", [3, 8, 63, 64, 65, 72, 128, 400])
def test_fixed_points_are_those_of_the_plain_iteration(n_words):
    rng = np.random.default_rng(n_words)
    topic_word = 0.5 + rng.gamma(0.2, 50.0, (7, n_words))
    counts = rng.poisson(rng.gamma(0.5, 2.0, (6, n_words)))
    gamma = infer(counts, topic_word).doc_topic
    for row, concentration in zip(counts, gamma, strict=True):
        np.testing.assert_allclose(concentration, plain_gamma(row, topic_word, 0.1), rtol=1e-4, atol=1e-5)


def test_converged_means_converged_over_all_topics():
    """One plain update from the result moves γ by less than the tolerance, although idle topics were skipped."""
    corpus = make_lda_corpus(60, n_topics=20, n_words=500, document_length=120, random_state=0)
    topic_word = 0.05 + 1000.0 * corpus.topics
    weights = np.exp(psi(topic_word) - psi(topic_word.sum(axis=1))[:, None])
    gamma = infer(corpus.counts, topic_word, prior=0.05, tol=1e-3).doc_topic
    for row, concentration in zip(corpus.counts.toarray(), gamma, strict=True):
        share = np.exp(psi(concentration))
        updated = 0.05 + share * (weights @ (row / (share @ weights)))
        assert np.abs(updated - concentration).mean() < 1e-3
        assert concentration.sum() == pytest.approx(20 * 0.05 + row.sum(), rel=1e-9)


def test_norms_and_sums_by_brute_force():
    rng = np.random.default_rng(0)
    topic_word = rng.gamma(0.5, 20.0, (4, 30)) + 0.01
    counts = rng.poisson(1.0, (9, 30))
    statistics = infer(counts, topic_word)
    weights = np.exp(psi(topic_word) - psi(topic_word.sum(axis=1))[:, None])
    arrays = []
    for row, gamma in zip(counts, statistics.doc_topic, strict=True):
        phi = np.exp(psi(gamma))[:, None] * weights
        arrays.append(phi / phi.sum(axis=0) * row)
    from vips import Block

    norms = [np.linalg.norm(array) for array in arrays]
    np.testing.assert_allclose(statistics.norms({"topic_word": Block((4, 30))}), norms, rtol=1e-6)
    np.testing.assert_allclose(
        statistics.norms({"topic_word": Block((4, 30), scale=4.0)}), np.array(norms) / 4, rtol=1e-6
    )
    factors = rng.uniform(size=9)
    expected = sum(f * a for f, a in zip(factors, arrays, strict=True))
    np.testing.assert_allclose(statistics.weighted_sum(factors)["topic_word"], expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("rounded", [False, True])
def test_sums_by_brute_force_however_words_are_divided(rounded):
    """More words than are summed at a time; documents without words, without weight, and with a count of 0."""
    n_topics, n_words = 64, 3 * CACHED // 64 + 5
    rng = np.random.default_rng(0)
    dense = rng.poisson(0.05, (30, n_words)).astype(float)
    dense[3] = 0.0
    counts = sp.csr_array(dense)
    counts.data[7] = 0.0
    ratios, topic_weights = rng.random(counts.nnz), rng.random((30, n_topics))
    scaled_weights = rng.random((n_words, n_topics))
    weights = rng.random(30)
    weights[5] = 0.0
    topic_weights[5] = np.nan  # skipped, not multiplied
    parts = counts.indptr, counts.indices, ratios, topic_weights, weights

    def summed(cuts):
        total = np.zeros((n_words, n_topics)) if rounded else np.full((n_topics, n_words), np.nan)
        for first, last in itertools.pairwise(cuts):
            if rounded:
                add_rounded_words(*parts, scaled_weights, 1e-3, first, last, total)
            else:
                sum_words(*parts, scaled_weights, first, last, total)
        return total.T if rounded else total

    expected = np.zeros((n_topics, n_words))
    for d in np.flatnonzero(weights):
        row = slice(counts.indptr[d], counts.indptr[d + 1])
        words = counts.indices[row]
        share = (weights[d] * ratios[row])[:, None] * scaled_weights[words] * topic_weights[d]
        expected[:, words] += (np.rint(share / 1e-3) if rounded else share).T
    totals = summed([0, n_words])
    np.testing.assert_allclose(
        totals, expected, rtol=1e-12, atol=1.0 if rounded else 0.0
    )  # a tie may be rounded either way
    np.testing.assert_array_equal(summed([0, 1, 500, 512, 513, 1400, n_words]), totals)


@pytest.mark.parametrize("n_words", [1, 2, 3, 17, 64, 1000])
def test_repeated_or_unsorted_words_are_found(n_words):
    """They are found at any place of a document, although the kernel reads several words at a time."""
    sorted_words = np.arange(n_words)
    for place in range(1, n_words):
        for wrong in (place - 1, place - 2):
            words = sorted_words.copy()
            words[place] = wrong  # as large as the one before, or smaller
            words = np.concatenate([sorted_words, words, sorted_words[:1]]).astype(np.int32)
            indptr = np.array([0, 0, n_words, 2 * n_words, 2 * n_words + 1], np.int32)
            is_canonical = np.empty(4, dtype=bool)
            find_canonical(indptr, words, is_canonical)
            assert is_canonical.tolist() == [True, True, False, True]


@pytest.mark.parametrize("integers", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.int32])
def test_validity_is_that_of_a_documents_own_entries(dtype, integers):
    """Entries after the last row, which SciPy allows, do not count."""
    counts = np.array([1, 2, -3], dtype)
    if np.dtype(dtype).kind == "f":
        counts[2] = np.nan
    documents = sp.csr_array((counts, np.array([0, 1, 9]), np.array([0, 1, 1, 2])), shape=(3, 2))
    assert valid_documents(documents, 2, integers).all()
    for count, word in [(np.nan, 1), (np.inf, 1), (-np.inf, 1), (-1, 1), (0.5, 1), (1, -1), (1, 2), (0, 1)]:
        if counts.dtype.kind == "i" and count not in (-1, 0, 1):
            continue
        documents.data[1], documents.indices[1] = count, word
        is_valid = 0 <= count < np.inf and 0 <= word < 2 and not (integers and count != np.floor(count))
        assert valid_documents(documents, 2, integers).tolist() == [True, True, is_valid]
    assert valid_documents(documents[:0], 2, integers).tolist() == []


def test_float32_is_close_to_float64():
    corpus = make_lda_corpus(50, n_topics=8, n_words=300, document_length=150, random_state=0)
    topic_word = 0.125 + 500.0 * corpus.topics
    single = infer(corpus.counts, topic_word, 0.125, 1e-4, 500, np.float32).weighted_sum(np.ones(50))["topic_word"]
    double = infer(corpus.counts, topic_word, 0.125, 1e-4, 500, np.float64).weighted_sum(np.ones(50))["topic_word"]
    assert np.abs(single - double).sum() < 1e-3 * double.sum()


def test_tiny_priors_do_not_underflow():
    topic_word = 1e-3 + np.eye(3, 5) * 100.0
    counts = np.array([[5, 0, 0, 0, 3], [0, 0, 0, 7, 0], [1, 1, 1, 1, 1]])
    for dtype in (np.float32, np.float64):
        statistics = infer(counts, topic_word, prior=1e-3, tol=1e-3, max_iter=100, dtype=dtype)
        total = statistics.weighted_sum(np.ones(3))["topic_word"]
        np.testing.assert_allclose(total.sum(axis=0), counts.sum(axis=0), rtol=1e-5)


def test_memory_does_not_hold_statistics_per_record():
    """Arrays of the E-step are of the size of the counts and of γ, never (documents, topics, words)."""
    corpus = make_lda_corpus(500, n_topics=10, n_words=2000, document_length=50, random_state=0)
    statistics = infer(corpus.counts, 0.1 + 100.0 * corpus.topics, tol=1e-2, max_iter=5)
    held = sum(value.nbytes for value in vars(statistics).values() if isinstance(value, np.ndarray))
    assert held < 10 * (corpus.counts.nnz * 8 + 500 * 10 * 8 + 2000 * 10 * 8)


E_STEP = """
import hashlib
import numpy as np
from vips.datasets import make_lda_corpus
from vips.models.topics.statistics import DocumentStatistics, TopicPosterior
counts = make_lda_corpus(300, n_topics=12, n_words=300, document_length=400, topic_word_prior=0.02, random_state=0).counts
topics = TopicPosterior(np.random.default_rng(0).gamma(1.0, 1.0, (12, 300)))
statistics = DocumentStatistics(counts, topics, 0.1, 1e-3, 20, np.float32)
print(hashlib.sha256(statistics.doc_topic.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_code_from_the_cache_computes_what_fresh_code_does(tmp_path):
    """Workers load code that another process compiled, and must compute the same numbers, to the last bit."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    fresh, cached = (
        subprocess.run(
            [sys.executable, "-c", E_STEP], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    )
    assert len(fresh) > 60
    assert fresh == cached


def test_kernels_change_with_what_is_inlined_into_them():
    """Otherwise numba would load code that it compiled before the change."""
    package = Path(vips.__file__).parent
    lanes, digamma = "core/exact/lanes.py", "models/topics/digamma.py"
    for name, inlined in (
        ("models/topics/kernels.py", (lanes, digamma)),
        ("core/sums/kernels.py", (lanes,)),
        ("models/_chains.py", (lanes,)),
        ("models/_exponentials.py", (lanes,)),
        ("core/sums/gaussian_kernels.py", (lanes,)),
        ("core/exact/rowwise_kernels.py", (lanes,)),
    ):
        sources = b"".join((package / source).read_bytes() for source in inlined)
        version = hashlib.sha256(sources.replace(b"\r\n", b"\n")).hexdigest()[:8]
        assert f"version {version}\n" in (package / name).read_text(encoding="utf-8"), f"write {version} in {name}"


def test_norms_are_those_of_the_sum_where_ratios_are_tiny():
    """Squares of ratios may underflow although their products with topic weights do not."""
    from vips import Block

    n_topics = 2000
    topics = TopicPosterior(np.ones((n_topics, 1)), np.full((n_topics, 1), 1e-3))
    for prior in np.geomspace(5e155, 1e156, 20):
        statistics = DocumentStatistics(sp.csr_array([[1.0]]), topics, prior, 0.0, 3, np.float64, mean=True)
        (norm,) = statistics.norms({"topic_word": Block((n_topics, 1))})
        assert norm >= np.linalg.norm(statistics.weighted_sum(np.ones(1))["topic_word"])


@pytest.mark.parametrize("other", [1e-300, 1e-10])
def test_words_without_probability_leave_other_words_alone(other):
    """Where E β underflows in all topics, a document without the word is summed as ever."""
    topics = TopicPosterior(np.array([[1e-300, 1e300, 1e300], [other * 1e-10, 1e300, 2e300]]))
    statistics = DocumentStatistics(sp.csr_array([[0.0, 2.0, 1.0]]), topics, 0.1, 1e-3, 8, np.float32, mean=True)
    total = statistics.weighted_sum(np.ones(1))["topic_word"]
    np.testing.assert_allclose(total.sum(axis=0), [0.0, 2.0, 1.0], rtol=1e-6)
