"""Topics given noisy totals."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import linear_sum_assignment

from vips import LatentDirichletAllocation, PrivacyPlan
from vips.datasets import make_lda_corpus
from vips.models.topics.calibration import _Counts
from vips.models.topics.noise_aware import _responses, count_moments, error_factors
from vips.models.topics.statistics import TopicPosterior

pytestmark = pytest.mark.usefixtures("many_generated_documents")


@pytest.mark.parametrize("prior", [0.02, 1.0])
def test_moments_of_counts_against_numerical_integration(prior):
    """Below, within and above the table; density c^(η-1) exp(-(ĉ - c)²/2s²), substituted u = c^η at the pole in 0."""
    noisy, noise_std = np.array([-2000.0, -60.0, 0.0, 3.0, 40.0, 3000.0]), np.full(6, 10.0)
    means, variances = count_moments(noisy, noise_std, prior)
    for z, mean, var in zip(noisy / 10.0, means / 10.0, variances / 100.0, strict=True):
        largest = max(z, 0.0) + min(12.0, 60.0 / max(-z, 1.0))
        top = 0.5 * min(z, 0.0) ** 2  # the exponent at its largest

        def moment(p, z=z, top=top, largest=largest):
            def of(v):
                u = v ** (1.0 / prior)
                return u**p * np.exp(top - 0.5 * (u - z) ** 2)

            points = np.clip([max(z - 8.0, 0.0), max(z, 0.0)], 1e-300, largest) ** prior
            return quad(of, 0.0, largest**prior, points=np.unique(points), limit=500)[0]

        first = moment(1) / moment(0)
        assert mean == pytest.approx(first, rel=2e-3)
        assert var == pytest.approx(moment(2) / moment(0) - first**2, rel=5e-3)


def test_words_of_one_topic_are_not_amplified_and_shared_ones_are():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(3, 0.3), 4000)
    counts = np.zeros((3, 4))
    counts[[0, 1, 2], [0, 1, 2]] = 1e6
    counts[:, 3] = 1e6  # the same word in all topics
    known = counts + 1.0
    arrays = known, known / known.sum(axis=1, keepdims=True), np.where(counts > 0.0, 1.0, 0.02)
    amplified, spread = _responses(*(array.T for array in arrays), shares)
    np.testing.assert_allclose(amplified[[0, 1, 2], [0, 1, 2]], 1.0, atol=0.05)
    np.testing.assert_allclose(spread[[0, 1, 2], [0, 1, 2]], 1.0, atol=0.05)
    assert (amplified[:, 3] > 1.2).all()
    assert (spread[:, 3] > 1.2).all()


def test_words_do_not_depend_on_the_other_words_of_their_piece(monkeypatch):
    rng = np.random.default_rng(0)
    counts = rng.gamma(0.3, 1000.0, (4, 90)) * np.array([[1.0], [1.0], [5.0], [20.0]])
    noisy = counts + 50.0 * rng.normal(size=counts.shape)
    pieces = error_factors(noisy, np.full(90, 50.0), counts, 0.1, 0.1)
    monkeypatch.setattr("vips.models.topics.noise_aware._WORDS_AT_A_TIME", 90)
    whole = error_factors(noisy, np.full(90, 50.0), counts, 0.1, 0.1)
    np.testing.assert_allclose(pieces, whole, rtol=1e-9)


def test_without_noise_and_overlap_it_is_the_posterior():
    counts = np.kron(np.eye(3), np.full(5, 4000.0)) + 1e-9
    fit = SimpleNamespace(
        last_posterior_=TopicPosterior(counts + 0.1),
        noisy_totals_=SimpleNamespace(average={"topic_word": counts}, noise_std={"topic_word": 1e-3}),
        word_concentration=lambda: 0.1,
        topic_concentration=lambda: 0.1,
    )
    found = _Counts.of(fit).posterior(0.0, 1.0, 0.1)
    own = np.kron(np.eye(3), np.ones(5)).astype(bool)
    np.testing.assert_allclose(found.mean[own], 0.2, rtol=1e-3)
    np.testing.assert_allclose(found.var[own], 0.16 / 20_001.0, rtol=0.02)


@pytest.mark.slow
def test_intervals_of_private_topics_hold_the_truth_where_naive_ones_do_not():
    """Those of all topics that resemble true ones, and of those that are no mixtures of two true topics. No simulation from the
    released topics notices such mixtures."""
    held, of_found = [], []
    for seed in range(3):
        corpus = make_lda_corpus(
            5000, n_topics=4, n_words=80, document_length=60, doc_topic_prior=0.2, topic_word_prior=0.2, random_state=seed
        )  # fmt: skip
        plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-5, sampling_rate=0.5, n_steps=40)
        plan = replace(plan, reproducible_noise=True)
        model = LatentDirichletAllocation(
            4, vocabulary=80, privacy=plan, doc_topic_prior=0.2, topic_word_prior=0.2, random_state=seed
        ).fit(corpus.counts)
        distances = ((np.sqrt(corpus.topics)[:, None] - np.sqrt(model.last_posterior_.mean)) ** 2).sum(axis=2)
        _, order = linear_sum_assignment(distances)
        found = distances[np.arange(4), order] < 0.2
        frequent = (corpus.topics > 1e-3) & found[:, None]
        for posterior in (model.last_posterior_, model.posterior_):
            lower, upper = (bound[order] for bound in posterior.interval(0.95))
            held.append(((lower < corpus.topics) & (corpus.topics < upper))[frequent].mean())
        found = distances[np.arange(4), order] < 0.05
        of_found.append(
            ((lower < corpus.topics) & (corpus.topics < upper))[(corpus.topics > 1e-3) & found[:, None]].mean()
        )
    naive, aware = np.reshape(held, (-1, 2)).mean(axis=0)
    assert naive < 0.65
    assert aware > max(0.72, naive + 0.15)
    assert np.mean(of_found) > 0.9
