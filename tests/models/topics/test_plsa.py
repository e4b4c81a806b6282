"""Latent Dirichlet allocation with point estimates: against probabilistic latent semantic analysis, written down anew."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from vips import LatentDirichletAllocation, PrivacyPlan, RobbinsMonro, compare
from vips.datasets import make_lda_corpus

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(RNG.gamma(0.3, 4.0, (25, 12)))
COUNTS[3] = 0  # a document without words
START = RNG.gamma(5.0, 1.0, (3, 12))


def likelihood(shares, topics):
    probabilities = np.where(COUNTS > 0, shares @ topics, 1.0)
    return float((COUNTS * np.log(probabilities)).sum())


def hofmann(shares, topics, n_updates):
    """EM of Hofmann (1999), dense: ``n_updates`` of the shares given the topics, then one of the topics.

    Arrays have shapes (n_documents, n_topics) and (n_topics, n_words). Returns new ones.
    """

    def assigned():
        joint = shares[:, :, None] * topics
        return COUNTS[:, None, :] * joint / joint.sum(axis=1, keepdims=True)

    for _ in range(n_updates):
        words = assigned().sum(axis=2)
        shares = np.where(words.sum(axis=1, keepdims=True) > 0, words, 1.0)
        shares /= shares.sum(axis=1, keepdims=True)
    counts = assigned().sum(axis=0)
    return shares, counts / counts.sum(axis=1, keepdims=True)


def fitted(n_steps, **settings):
    settings = {"mean_change_tol": 1e-11, "max_doc_update_iter": 20_000} | settings
    model = LatentDirichletAllocation(
        3, inference="em", dtype=np.float64, privacy=PrivacyPlan.non_private(n_steps=n_steps), **settings
    )
    model.initial = lambda _: {"topic_word": START}
    return model.fit(COUNTS)


@pytest.mark.parametrize("n_updates", [2, 2000])
def test_without_noise_it_is_hofmanns_em(n_updates):
    """With two updates of a document's shares in each step, and with shares that have converged."""
    model = fitted(5, **({"max_doc_update_iter": 2, "mean_change_tol": 0.0} if n_updates == 2 else {}))
    topics = START / START.sum(axis=1, keepdims=True)
    for _ in range(5):
        shares, topics = hofmann(np.full((len(COUNTS), 3), 1.0 / 3.0), topics, n_updates)
    np.testing.assert_allclose(model.last_posterior_.mean, topics, atol=1e-6)
    if n_updates > 2:
        shares, _ = hofmann(shares, topics, n_updates)
        np.testing.assert_allclose(model.transform(COUNTS), shares, atol=1e-6)
        assert model.bound(COUNTS, model.last_posterior_) == pytest.approx(likelihood(shares, topics), rel=1e-9)


def test_the_likelihood_does_not_fall_and_ends_at_a_fixed_point_of_the_joint_iteration():
    models = [fitted(n) for n in (1, 2, 3, 5, 8, 400)]
    scores = [model.bound(COUNTS, model.last_posterior_) for model in models]
    assert np.diff(scores).min() > -1e-7
    assert scores[-1] > scores[0] + 10.0
    shares, topics = models[-1].transform(COUNTS), models[-1].last_posterior_.mean
    for _ in range(3):
        shares, topics = hofmann(shares, topics, 1)  # one update of each, as Hofmann alternates them
    np.testing.assert_allclose(topics, models[-1].last_posterior_.mean, atol=1e-4)
    assert likelihood(shares, topics) == pytest.approx(scores[-1], abs=1e-4)


def test_priors_are_ignored_and_documents_without_words_have_equal_shares():
    one, other = fitted(3), fitted(3, doc_topic_prior=7.0, topic_word_prior=3.0)
    np.testing.assert_array_equal(one.components_, other.components_)
    np.testing.assert_allclose(one.transform(COUNTS)[3], 1.0 / 3.0)


CORPUS = make_lda_corpus(3000, n_topics=3, n_words=60, document_length=40, random_state=0).counts
PLAN = PrivacyPlan(noise_multiplier=2.0, sampling="full", n_steps=12, reproducible_noise=True)


def private(inference="em", **settings):
    settings = {"privacy": PLAN, "vocabulary": 60, "random_state": 0} | settings
    return LatentDirichletAllocation(3, inference=inference, **settings).fit(CORPUS[:2500])


def test_a_private_fit_predicts_about_as_well_as_that_of_variational_bayes():
    test = CORPUS[2500:]
    model, other = private(), private("vb")
    assert model.perplexity(test) < 1.05 * other.perplexity(test)
    assert model.evidence().labels == ["real"] * 3
    assert model.score(test) == pytest.approx(model.score_samples(test).mean())
    np.testing.assert_allclose(model.transform(test).sum(axis=1), 1.0, rtol=1e-6)
    assert np.isfinite(compare(model, private(privacy=None), test, n_bootstrap=5).to_frame()["value"]).all()


def test_what_point_estimates_cannot_do_says_so():
    model = private(privacy=PrivacyPlan(noise_multiplier=2.0, sampling="full", n_steps=1, reproducible_noise=True))
    assert 'inference="em" are not matched' in model.why_no_intervals()
    with pytest.raises(ValueError, match="have no bound"):
        model.perplexity(CORPUS[2500:], kind="bound")
    with pytest.raises(ValueError, match="`inference`"):
        LatentDirichletAllocation(2, inference="map").fit(COUNTS)


def test_norms_and_sums_are_those_of_documents_formed_one_by_one():
    rng = np.random.default_rng(1)
    model = LatentDirichletAllocation(4, vocabulary=30, inference="em", privacy=PLAN)
    model.n_features_in_ = 30
    average, noise = {"topic_word": rng.gamma(0.5, 20.0, (4, 30))}, {"topic_word": 1.0}
    posterior = model.to_posterior(average, noise, model.to_posterior(average, noise, None))  # scales other than 1
    counts = rng.poisson(1.0, (9, 30))
    statistics = model.expected_statistics(sp.csr_array(counts), posterior)
    formed = statistics.doc_topic[:, :, None] * posterior.mean
    formed *= counts[:, None, :] / formed.sum(axis=1, keepdims=True) * posterior.scale
    expected = np.sqrt((formed**2).sum(axis=(1, 2)))
    np.testing.assert_allclose(statistics.norms(model.blocks()), expected, rtol=1e-5)
    weights = rng.random(9)
    total = np.tensordot(weights, formed, 1)
    np.testing.assert_allclose(statistics.weighted_sum(weights)["topic_word"], total, rtol=1e-5)


def test_stochastic_fits_and_resized_documents_work():
    plan = PrivacyPlan.non_private(sampling_rate=0.3, n_steps=30)
    model = private(privacy=plan, schedule=RobbinsMonro(1.0, 0.6), document_length=30)
    assert model.perplexity(CORPUS[2500:]) < 0.9 * 60
