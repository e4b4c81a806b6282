import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import gammaln, psi
from sklearn.base import clone
from sklearn.decomposition import LatentDirichletAllocation as SklearnLDA
from sklearn.pipeline import make_pipeline

from vips import LatentDirichletAllocation, PrivacyPlan, RobbinsMonro
from vips.datasets import make_lda_corpus
from vips.models._likelihood import alternate_words
from vips.models.topics import statistics
from vips.models.topics.statistics import TopicPosterior


@pytest.fixture(scope="module")
def corpus():
    return make_lda_corpus(1500, n_topics=5, n_words=200, document_length=60, random_state=0)


@pytest.fixture(scope="module")
def fitted(corpus):
    return LatentDirichletAllocation(5, random_state=0).fit(corpus.counts[:1200])


def private_plan(**changes):
    return PrivacyPlan(**({"noise_multiplier": 1.0, "sampling_rate": 0.5, "n_steps": 4} | changes))


# -- noise-free equality ------------------------------------------------------------------------------------------


def textbook_batch_vb(counts, topic_word, alpha, eta, n_steps, tol):
    """Blei, Ng and Jordan (2003) with a Dirichlet on the topics, written out document by document."""
    n_topics, n_words = topic_word.shape
    for _ in range(n_steps):
        weights = np.exp(psi(topic_word) - psi(topic_word.sum(axis=1))[:, None])
        total = np.zeros((n_topics, n_words))
        for row in counts:
            gamma = np.full(n_topics, alpha + row.sum() / n_topics)
            while True:
                phi = np.exp(psi(gamma))[:, None] * weights
                phi /= phi.sum(axis=0)
                updated = alpha + phi @ row
                done = np.abs(updated - gamma).mean() < tol
                gamma = updated
                if done:
                    break
            phi = np.exp(psi(gamma))[:, None] * weights
            total += phi / phi.sum(axis=0) * row
        topic_word = eta + total
    return topic_word


def test_no_noise_is_textbook_batch_variational_bayes():
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(0.3, 4.0, (25, 12)))
    counts[3] = 0
    start = rng.gamma(5.0, 1.0, (3, 12))
    model = LatentDirichletAllocation(
        3, doc_topic_prior=0.4, topic_word_prior=0.3, mean_change_tol=1e-10, max_doc_update_iter=5000,
        dtype=np.float64, privacy=PrivacyPlan.non_private(n_steps=4),
    )  # fmt: skip
    model.initial = lambda _: {"topic_word": start - 0.3}
    model.fit(counts)
    expected = textbook_batch_vb(counts, start, 0.4, 0.3, 4, 1e-10)
    np.testing.assert_allclose(model.components_, expected, rtol=1e-6)


@pytest.mark.slow
def test_online_quality_matches_scikit_learn(corpus):
    train, test = corpus.counts[:1200], corpus.counts[1200:]
    ours = LatentDirichletAllocation(
        5, privacy=PrivacyPlan.non_private(sampling_rate=0.1, n_steps=100), schedule=RobbinsMonro(10.0, 0.7),
        random_state=0,
    ).fit(train)  # fmt: skip
    theirs = SklearnLDA(
        5, doc_topic_prior=0.2, topic_word_prior=0.2, learning_method="online", batch_size=120, max_iter=10,
        random_state=0,
    ).fit(train)  # fmt: skip
    reference = clone(ours)
    reference.n_features_in_ = 200
    reference.last_posterior_ = TopicPosterior(theirs.components_)
    for kind in ("completion", "bound"):
        assert ours.perplexity(test, kind=kind) <= 1.01 * reference.perplexity(test, kind=kind)


def test_document_bound_is_below_the_exact_evidence():
    """One word per document: log p(v) = log E[mean topic]; here with point topics, the sum over topics is exact."""
    rng = np.random.default_rng(1)
    topic_word = 1e8 * rng.dirichlet(np.ones(6), 3)  # as good as known topics
    model = LatentDirichletAllocation(3, doc_topic_prior=0.5, mean_change_tol=1e-9, dtype=np.float64)
    posterior = TopicPosterior(topic_word)
    words = sp.csr_array(np.eye(6))
    exact = np.log(posterior.mean.mean(axis=0))
    bounds = model.expected_statistics(words, posterior).bounds()
    assert (bounds <= exact + 1e-9).all()
    assert (bounds > exact - 0.7).all()  # mean field is not tight
    # against the formula written out, for a longer document
    row = np.array([3.0, 0.0, 1.0, 2.0, 0.0, 5.0])
    statistics = model.expected_statistics(sp.csr_array(row[None]), posterior)
    gamma = statistics.doc_topic[0]
    expected_log_theta = psi(gamma) - psi(gamma.sum())
    log_phi = expected_log_theta[:, None] + posterior.expected_log
    top = log_phi.max(axis=0)
    words_part = row @ (top + np.log(np.exp(log_phi - top).sum(axis=0)))
    prior = gammaln(1.5) - 3 * gammaln(0.5) - 0.5 * expected_log_theta.sum()
    entropy = gammaln(gamma.sum()) - gammaln(gamma).sum() + ((gamma - 1) * expected_log_theta).sum()
    assert statistics.bounds()[0] == pytest.approx(words_part + prior - entropy, rel=1e-9)


def test_to_posterior_without_noise_is_the_m_step_and_always_valid():
    model = LatentDirichletAllocation(3, vocabulary=20)
    rng = np.random.default_rng(0)
    average = rng.gamma(0.1, 100.0, (3, 20))
    posterior = model.to_posterior({"topic_word": average}, {"topic_word": 0.0}, None)
    np.testing.assert_allclose(posterior.concentration, average + 1 / 3)
    for noise in (1e-6, 1.0, 1e4, 1e12):
        for noisy in (average + noise * rng.normal(size=average.shape), np.full((3, 20), -noise), np.zeros((3, 20))):
            posterior = model.to_posterior({"topic_word": noisy}, {"topic_word": noise}, posterior)
            assert np.isfinite(posterior.concentration).all()
            assert (posterior.concentration > 0).all()


# -- quality ------------------------------------------------------------------------------------------------------


def test_topics_are_recovered(corpus, fitted):
    from scipy.optimize import linear_sum_assignment

    overlap = np.minimum(corpus.topics[:, None], fitted.last_posterior_.mean[None]).sum(axis=2)
    assert overlap[linear_sum_assignment(-overlap)].min() > 0.85


def test_private_fit_beats_the_unigram_model_and_improves_with_epsilon():
    corpus = make_lda_corpus(20_000, n_topics=5, n_words=200, document_length=60, random_state=1)
    train, test = corpus.counts[:19_000], corpus.counts[19_000:]
    frequencies = np.asarray(train.sum(axis=0)).ravel() + 1.0
    unigram = np.exp(-(test @ np.log(frequencies / frequencies.sum())).sum() / test.sum())
    perplexity = {}
    for epsilon in (0.3, 4.0):
        plan = PrivacyPlan.from_epsilon(
            epsilon=epsilon, delta=1e-6, sampling_rate=0.3, n_steps=20, reproducible_noise=True
        )
        model = LatentDirichletAllocation(5, vocabulary=200, privacy=plan, random_state=0).fit(train)
        perplexity[epsilon] = model.perplexity(test)
    assert perplexity[4.0] < perplexity[0.3] < unigram
    plain = LatentDirichletAllocation(5, random_state=0).fit(train).perplexity(test)
    assert (unigram - perplexity[4.0]) / (unigram - plain) > 0.9


# -- perplexity -----------------------------------------------------------------------------------------------------


def test_perplexity_is_per_word_and_does_not_depend_on_the_number_of_documents(corpus, fitted):
    test = corpus.counts[1200:]
    twice = sp.vstack([test, test], format="csr")
    assert fitted.perplexity(twice, kind="bound") == pytest.approx(fitted.perplexity(test, kind="bound"), rel=1e-6)
    assert fitted.perplexity(twice) == pytest.approx(fitted.perplexity(test), rel=0.02)
    assert fitted.perplexity(test) == fitted.perplexity(test)
    scores = fitted.score_samples(test)
    assert scores.shape == (test.shape[0],)
    assert fitted.score(test) == pytest.approx(scores.mean())
    np.testing.assert_allclose(fitted.score_samples(test[::-1]), scores[::-1], rtol=1e-5)  # each document alone
    halves = np.ceil(test.sum(axis=1) / 2).sum()
    assert np.exp(-scores.sum() / halves) == pytest.approx(fitted.perplexity(test), rel=0.05)


def test_halves_of_a_document_do_not_depend_on_other_documents():
    documents = sp.csr_array(np.array([[3.0, 0, 1, 2], [0, 0, 0, 0], [1, 1, 1, 1], [1e300, 1, 0, 5]]))
    observed, hidden = (half.toarray() for half in alternate_words(documents))
    assert (observed + hidden == documents.toarray()).all()
    assert observed[:3].tolist() == [[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 1]]
    for i in range(4):
        assert (alternate_words(documents[[i]])[0].toarray() == observed[i]).all()


def test_completion_by_brute_force(fitted, corpus):
    from vips.models._likelihood import split_words

    test = corpus.counts[1200:1210]
    observed, hidden = split_words(sp.csr_array(test), np.random.default_rng(0))
    np.testing.assert_array_equal((observed + hidden).toarray(), test.toarray())
    np.testing.assert_array_equal(observed.sum(axis=1), test.sum(axis=1) // 2)
    shares = fitted.transform(observed)
    log_likelihood = sum(
        hidden[[d]].toarray()[0] @ np.log(shares[d] @ fitted.last_posterior_.mean) for d in range(test.shape[0])
    )
    expected = np.exp(-log_likelihood / hidden.sum())
    assert fitted.perplexity(test) == pytest.approx(expected, rel=1e-4)


def test_halves_of_words_are_random_and_fair():
    from vips.models._likelihood import split_words

    document = sp.csr_array(np.array([[8, 2, 0]]))
    rng = np.random.default_rng(0)
    seen = np.array([split_words(document, rng)[0].toarray()[0] for _ in range(3000)])
    assert (seen.sum(axis=1) == 5).all()
    np.testing.assert_allclose(seen.mean(axis=0), [4.0, 1.0, 0.0], atol=0.05)  # hypergeometric
    observed, hidden = split_words(sp.csr_array(np.array([[2.5, 0.5]])), rng)  # 3 and 1 pieces
    np.testing.assert_allclose((observed + hidden).toarray(), [[2.5, 0.5]])
    assert observed.sum() > 0.0
    assert hidden.sum() > 0.0


def test_perplexity_refuses_what_it_cannot_score(fitted):
    with pytest.raises(ValueError, match="kind"):
        fitted.perplexity(np.ones((2, 200)), kind="magic")
    assert np.isfinite(fitted.perplexity(np.full((2, 200), 0.5), kind="bound"))
    assert np.isnan(fitted.perplexity(np.zeros((2, 200))))


# -- the estimator ------------------------------------------------------------------------------------------------


def test_transform_gives_shares(fitted, corpus):
    shares = fitted.transform(corpus.counts[:20])
    assert shares.shape == (20, 5)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(fitted.transform(np.zeros((1, 200))), 0.2, rtol=1e-6)
    dense = fitted.transform(corpus.counts[:20].toarray())
    np.testing.assert_array_equal(shares, dense)


def test_words_and_names(corpus):
    words = [f"w{i}" for i in range(200)]
    model = LatentDirichletAllocation(5, vocabulary=words, random_state=0).fit(corpus.counts)
    top = model.top_words(3)
    assert len(top) == 5
    assert top[0][0] == words[model.components_[0].argmax()]
    np.testing.assert_array_equal(model.get_feature_names_out(), [f"latentdirichletallocation{k}" for k in range(5)])
    assert LatentDirichletAllocation(5, random_state=0).fit(corpus.counts).top_words(1)[0][0].startswith("x")


def test_dataframes_pipelines_and_dtypes(corpus):
    import pandas as pd

    frame = pd.DataFrame(corpus.counts[:100].toarray(), columns=[f"w{i}" for i in range(200)])
    model = LatentDirichletAllocation(3, random_state=0).fit(frame)
    assert model.top_words(1)[0][0].startswith("w")
    plan = private_plan()
    private = LatentDirichletAllocation(3, vocabulary=200, privacy=plan, random_state=0).fit(frame)
    assert private.n_features_in_ == 200
    make_pipeline(LatentDirichletAllocation(3, random_state=0)).fit(corpus.counts[:100])
    for counts in (corpus.counts.astype(np.int16), corpus.counts.astype(bool), corpus.counts[:50].tocsc()):
        LatentDirichletAllocation(3, vocabulary=200, privacy=plan).fit(counts)


def test_memory_mapped_arrays(tmp_path, corpus):
    np.save(tmp_path / "counts.npy", corpus.counts[:300].toarray())
    mapped = np.load(tmp_path / "counts.npy", mmap_mode="r")
    plan = PrivacyPlan.non_private(n_steps=2)
    from_map = LatentDirichletAllocation(3, privacy=plan, random_state=0).fit(mapped)
    from_csr = LatentDirichletAllocation(3, privacy=plan, random_state=0).fit(corpus.counts[:300])
    np.testing.assert_allclose(from_map.components_, from_csr.components_, rtol=1e-6)


def test_seeds(corpus):
    train = corpus.counts[:300]
    first, second = (LatentDirichletAllocation(3, random_state=4).fit(train).components_ for _ in range(2))
    np.testing.assert_array_equal(first, second)
    plan = private_plan()
    a, b = (LatentDirichletAllocation(3, vocabulary=200, privacy=plan, random_state=4).fit(train) for _ in range(2))
    assert not np.array_equal(a.components_, b.components_)
    plan = private_plan(reproducible_noise=True)
    a, b = (LatentDirichletAllocation(3, vocabulary=200, privacy=plan, random_state=4).fit(train) for _ in range(2))
    np.testing.assert_array_equal(a.components_, b.components_)
    assert not a.privacy_.has_guarantee


def test_document_length(corpus):
    plan = PrivacyPlan.non_private(n_steps=2)
    for method in ("resample", "scale"):
        model = LatentDirichletAllocation(3, document_length=500, length_method=method, privacy=plan, random_state=0)
        model.fit(corpus.counts[:100])
        assert model.components_.sum() == pytest.approx(100 * 500 + 200, rel=1e-5)
        assert model.max_record_norm() == 500.0
        documents = model.resized(sp.csr_array(corpus.counts[:4]))
        np.testing.assert_allclose(documents.sum(axis=1), 500)
    assert LatentDirichletAllocation(3).max_record_norm() == np.inf


def test_resampled_documents_follow_their_words():
    model = LatentDirichletAllocation(3, document_length=200_000)
    row = sp.csr_array(np.array([[1.0, 0.0, 3.0, 6.0]]))
    np.testing.assert_allclose(model.resized(row).toarray()[0] / 200_000, [0.1, 0.0, 0.3, 0.6], atol=0.005)
    other = sp.csr_array(np.array([[1.0, 0.0, 3.0, 7.0]]))
    model.document_length = 50
    assert (model.resized(row).toarray() != model.resized(other).toarray()).any()


@pytest.mark.slow
def test_a_tolerance_of_zero_is_as_many_updates_as_allowed(corpus):
    """As in scikit-learn. After all documents have converged, further updates change nothing."""
    settings = {"privacy": PrivacyPlan.non_private(n_steps=2), "dtype": np.float64, "random_state": 0}
    X = corpus.counts[:20]
    fits = [
        LatentDirichletAllocation(5, mean_change_tol=tol, max_doc_update_iter=200, **settings).fit(X)
        for tol in (0, 1e-13)
    ]
    assert np.isfinite(fits[0].components_).all()
    np.testing.assert_allclose(fits[0].components_, fits[1].components_, rtol=1e-6)


# -- bad input: public facts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocabulary": None}, "vocabulary"),
        ({"vocabulary": []}, "vocabulary"),
        ({"vocabulary": 0}, "vocabulary"),
        ({"vocabulary": "words"}, "vocabulary"),
        ({"vocabulary": ["a", "a", *map(str, range(198))]}, "twice"),
        ({"vocabulary": 199}, "200 columns but the vocabulary has 199 words"),
        ({"n_components": 0}, "n_components"),
        ({"n_components": 2.5}, "n_components"),
        ({"doc_topic_prior": 0.0}, "doc_topic_prior"),
        ({"topic_word_prior": -1.0}, "topic_word_prior"),
        ({"mean_change_tol": np.nan}, "mean_change_tol"),
        ({"mean_change_tol": -1e-3}, "mean_change_tol"),
        ({"max_doc_update_iter": 0}, "max_doc_update_iter"),
        ({"document_length": 0}, "document_length"),
        ({"length_method": "cut"}, "length_method"),
        ({"dtype": np.int32}, "dtype"),
        ({"on_invalid": "ignore"}, "on_invalid"),
        ({"schedule": 0.3}, "schedule"),
        ({"random_state": "seed"}, "random_state"),
    ],
)
def test_public_mistakes_stop_a_private_fit_before_values_are_read(arguments, message, corpus, monkeypatch):
    from vips import data

    def read(*_):
        raise AssertionError("values were read")

    monkeypatch.setattr(data.OpenPartition, "_select", read)
    model = LatentDirichletAllocation(**({"n_components": 5, "vocabulary": 200, "privacy": private_plan()} | arguments))
    with pytest.raises(ValueError, match=message):
        model.fit(corpus.counts)
    assert not hasattr(model, "last_posterior_")


def test_wrong_containers_are_refused_without_quoting_values():
    model = LatentDirichletAllocation(3, vocabulary=2, privacy=private_plan())
    for bad in (np.array([["secret", "1"]]), np.array([["secret", 1]], dtype=object), [["secret", 1.0]]):
        with pytest.raises(TypeError, match=r"X has dtype|needs X as an array") as error:
            model.fit(bad)
        assert "secret" not in str(error.value)
    with pytest.raises(ValueError, match="2D"):
        model.fit(np.ones(2))
    with pytest.raises(TypeError, match="PrivacyPlan"):
        LatentDirichletAllocation(3, privacy=1.0).fit(np.ones((2, 2)))


# -- bad input: private facts -----------------------------------------------------------------------------------


def test_defective_rows_count_for_nothing(corpus):
    plan = private_plan(reproducible_noise=True, sampling_rate=1.0)
    clean = corpus.counts[:20].toarray().astype(float)
    defective = np.vstack([clean, np.full((4, 200), 1.0)])
    defective[20, 3], defective[21, 3], defective[22, 3], defective[23, 3] = np.nan, -1.0, np.inf, 2.5
    first, second = (
        LatentDirichletAllocation(3, vocabulary=200, privacy=plan, random_state=0).fit(X).components_
        for X in (clean, defective)
    )
    np.testing.assert_array_equal(first, second)
    with pytest.raises(ValueError, match="outside the privacy guarantee"):
        LatentDirichletAllocation(3, vocabulary=200, privacy=plan, on_invalid="raise").fit(defective)


@pytest.mark.parametrize(
    ("n_topics", "n_words", "used", "count"), [(60, 128, 14, 1e38), (50, 1000, 10, 1e38), (10, 100, 14, 3e37)]
)
def test_counts_at_the_edge_of_single_precision_do_not_raise(n_topics, n_words, used, count):
    """γ overflows, θ̃ becomes inf or 0, and divisions by zero follow; all of this concerns this record alone."""
    rng = np.random.default_rng(0)
    counts = np.vstack([rng.poisson(1.0, (20, n_words)).astype(float), np.zeros((1, n_words))])
    plan = private_plan(sampling_rate=1.0, n_steps=2, noise_multiplier=1e-6)
    for seed in range(8):
        counts[20] = 0.0
        counts[20, rng.choice(n_words, used, replace=False)] = count
        model = LatentDirichletAllocation(n_topics, vocabulary=n_words, privacy=plan, random_state=seed)
        assert np.isfinite(model.fit(counts).components_).all()


def test_non_private_fits_validate_as_scikit_learn_does():
    model = LatentDirichletAllocation(2)
    for bad, message in (
        (np.array([[1.0, np.nan]]), "NaN"),
        (np.array([[1.0, -2.0]]), "Negative"),
        (np.empty((0, 3)), "minimum of 1"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(bad)
    LatentDirichletAllocation(2, random_state=0).fit(np.array([[0.5, 1.5], [1.0, 0.0]]))  # weights are allowed


def test_interrupted_fit_leaves_the_estimator_as_it_was(corpus, monkeypatch):
    model = LatentDirichletAllocation(3, vocabulary=200, privacy=private_plan(), random_state=0).fit(corpus.counts)
    topics = model.components_
    original, calls = LatentDirichletAllocation.expected_statistics, []

    def interrupted(self, records, posterior):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, records, posterior)

    monkeypatch.setattr(LatentDirichletAllocation, "expected_statistics", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(corpus.counts)
    assert model.components_ is topics
    assert model._fitting_plan is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_stored_zero_is_no_word(dtype):
    """Not even in single precision, if the word is in one topic only and the document has no share of that topic left."""
    rng = np.random.default_rng(0)
    concentration = 1e-3 + 1e3 * (rng.random((12, 300)) < 0.05)
    concentration[:, 0] = np.where(np.arange(12) == 5, 1e3, 1e-3)
    concentration[:, 1] = 1e-3
    model = LatentDirichletAllocation(12, vocabulary=300, topic_word_prior=1e-3, dtype=dtype).fit(np.eye(300))
    model.last_posterior_ = TopicPosterior(concentration)
    stored = sp.csr_array((np.array([0.0, 1.0]), np.arange(2), [0, 2]), shape=(1, 300))
    absent = sp.csr_array(stored.toarray())
    assert (stored.nnz, absent.nnz) == (2, 1)
    assert np.isfinite(model.transform(stored)).all()
    np.testing.assert_array_equal(model.transform(stored), model.transform(absent))
    np.testing.assert_array_equal(stored.data, [0.0, 1.0])
    ones = sp.csr_array(rng.random((40, 300)) < 0.02)  # half of the words of each are hidden, and stored as zeros
    assert np.isfinite(model.perplexity(ones.astype(float)))


def test_updates_of_a_document_are_few_while_topics_are_random_and_many_after_the_fit(monkeypatch):
    most = []
    infer = statistics.infer_documents

    def recorded(*arguments):
        most.append(arguments[7])
        infer(*arguments)

    monkeypatch.setattr(statistics, "infer_documents", recorded)
    counts = make_lda_corpus(50, n_topics=3, n_words=20, document_length=10, random_state=0).counts
    plan = PrivacyPlan.non_private(sampling_rate=1.0, n_steps=3)
    model = LatentDirichletAllocation(3, privacy=plan, random_state=0).fit(counts)
    assert list(dict.fromkeys(most)) == [5, 8]
    most.clear()
    model.transform(counts)
    assert set(most) == {100}
