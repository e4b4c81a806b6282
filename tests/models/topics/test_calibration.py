"""Intervals of topics that are calibrated by stand-ins."""

import numpy as np
import pytest

import vips
from vips import LatentDirichletAllocation, PrivacyPlan
from vips.datasets import make_lda_corpus
from vips.models.topics import calibration
from vips.models.topics.stand_ins import stand_in, start_of

pytestmark = pytest.mark.usefixtures("many_generated_documents")

N_TOPICS, N_WORDS = 3, 60


@pytest.fixture(scope="module")
def fitted():
    """True topics, and a fit under little noise: most of its errors are those of variational Bayes."""
    corpus = make_lda_corpus(
        4000, n_topics=N_TOPICS, n_words=N_WORDS, document_length=60, doc_topic_prior=0.3, topic_word_prior=0.2, random_state=1
    )  # fmt: skip
    plan = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=15, reproducible_noise=True)
    settings = {"doc_topic_prior": 0.3, "topic_word_prior": 0.2, "vocabulary": N_WORDS, "random_state": 1}
    return corpus.topics, LatentDirichletAllocation(N_TOPICS, privacy=plan, **settings).fit(corpus.counts)


def share_held(posterior, topics):
    order, found = calibration._matched(posterior.mean, topics)
    assert found.all()
    lower, upper = (bound[order] for bound in posterior.interval(0.95))
    return ((lower < topics) & (topics < upper))[topics > 1e-3].mean()


def test_calibrated_intervals_hold_the_truth_where_those_of_the_noise_do_not(fitted):
    topics, model = fitted
    calibrated = model.posterior_
    of_noise = calibration._Counts.of(model).posterior(0.0, 1.0, 0.2)
    assert share_held(calibrated, topics) > 0.88
    assert share_held(of_noise, topics) < 0.8
    assert calibrated.std.mean() < 4.0 * of_noise.std.mean()  # not bought with width


def check_groups_find_the_part_in_common_and_the_rest():
    rng = np.random.default_rng(0)
    common = 4.0 * rng.normal(size=6000)
    size = rng.uniform(0.0, 3.0, 6000)
    error, stand = common + 2.0 * rng.normal(size=6000), rng.integers(3, size=6000)
    error[stand == 2] += 100.0  # one stand-in went astray
    slope, factor = calibration._by_group(size, error, common, stand)
    at = np.array([0.5, 1.5, 2.5])
    assert (slope(at) > 0.7).all()
    assert (factor(at) > 1.8).all()
    assert (factor(at) < 3.0).all()


def test_groups_find_the_part_in_common_and_the_rest():
    check_groups_find_the_part_in_common_and_the_rest()


def test_one_stand_in_alone_decides_nothing():
    check_one_stand_in_alone_decides_nothing()


def check_one_stand_in_alone_decides_nothing():
    agreed = calibration._agreed
    np.testing.assert_array_equal(agreed(np.array([[1.0, -2.0, -3.0], [2.0, 1.0, -1.0]])), [1.0, 0.0, -1.0])
    three = np.array([[1.0, -2.0, np.nan, np.nan], [2.0, 1.0, 4.0, np.nan], [90.0, 5.0, 3.0, 7.0]])
    np.testing.assert_array_equal(agreed(three), [2.0, 1.0, 3.0, 7.0])


def test_stand_ins_have_the_signal_and_the_noise_of_the_fit(fitted):
    """Also if fewer documents are simulated: then both shrink alike."""
    _, model = fitted
    ratio = model.noisy_totals_.average["topic_word"].sum() / model.noisy_totals_.noise_std["topic_word"]
    start = start_of(model)
    for most in (20_000, 500):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("vips.models.topics.stand_ins._MOST_DOCUMENTS", most)
            found = stand_in(model, model.last_posterior_.mean, 0, start).noisy_totals_
        assert found.average["topic_word"].sum() / found.noise_std["topic_word"] == pytest.approx(ratio, rel=0.15)


def test_stand_ins_start_where_the_fit_did(fitted):
    _, model = fitted
    again = LatentDirichletAllocation(N_TOPICS, vocabulary=N_WORDS, random_state=1)
    again.n_features_in_ = N_WORDS
    start = again.initial(PrivacyPlan.non_private(n_steps=1).randomness(1).initial)["topic_word"]
    np.testing.assert_array_equal(start_of(model), start)
    model_without = LatentDirichletAllocation(N_TOPICS, vocabulary=N_WORDS)
    assert start_of(model_without) is None


def test_a_fit_to_nothing_stays_wide():
    plan = PrivacyPlan(noise_multiplier=5.0, sampling="full", n_steps=5, reproducible_noise=True)
    model = LatentDirichletAllocation(3, vocabulary=40, privacy=plan, random_state=0).fit(np.zeros((20, 40), int))
    lower, upper = model.posterior_.interval(0.95)
    assert np.median(upper) > 0.05
    assert np.median(lower) < 1e-3


def test_a_file_of_the_fit_gives_the_same_intervals(tmp_path):
    """A file holds released values only, and no record."""
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=5)
    corpus = make_lda_corpus(300, n_topics=2, n_words=30, document_length=20, random_state=0)
    model = LatentDirichletAllocation(2, vocabulary=30, privacy=plan).fit(corpus.counts)
    model.save(tmp_path / "model.npz")
    again = vips.load(tmp_path / "model.npz").posterior_
    np.testing.assert_array_equal(again.rate_mean, model.posterior_.rate_mean)
    np.testing.assert_array_equal(again.rate_var, model.posterior_.rate_var)
