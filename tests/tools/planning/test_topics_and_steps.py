"""Plans from public numbers."""

import re

import numpy as np
import pytest

from vips import (
    BayesianLogisticRegression,
    DirichletMultinomial,
    LatentDirichletAllocation,
    PrivacyBudget,
    PrivacyPlan,
    PrivateTopics,
    StreamPlan,
    plan_for,
)
from vips.datasets import make_lda_corpus
from vips.models.topics.planning import std_of_average

BUDGET = {"privacy": PrivacyBudget(1.0, 1e-6)}


def topics(n_records, epsilon=1.0, n_words=5000, **more):
    model, budget = LatentDirichletAllocation(vocabulary=n_words), PrivacyBudget(epsilon, 1e-6)
    return plan_for(model, n_records=n_records, privacy=budget, **more)


def test_more_topics_for_more_documents_and_a_larger_epsilon():
    cases = (1_000, 0.5), (30_000, 1.0), (30_000, 2.0), (60_000, 2.0)
    sizes = [topics(n, epsilon).settings["n_components"] for n, epsilon in cases]
    assert sizes[0] == 1
    assert sizes == sorted(sizes)
    assert sizes[-1] > sizes[1] > 1
    assert topics(30_000, n_words=50).settings["n_components"] <= 10  # at least five words for each topic


def test_the_signal_to_noise_ratio_is_that_of_its_formula():
    advice = topics(20_000, document_length=400)
    plan, clip = advice.plan, 5.0
    by_step = np.array([1.0])
    for t in range(2, 21):
        rho = 3.0 / (t + 2.0)
        by_step = np.append((1.0 - rho) * by_step, rho)
    std = plan.noise_multiplier * clip * np.sqrt(np.sum(by_step**2))
    assert advice.signal_to_noise == pytest.approx(20_000 * clip * 20.0 / (5000 * std))
    one_step = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.5, n_steps=1, clip_norm=3.0)
    assert std_of_average(one_step, lambda t: 1.0) == 12.0


def test_it_says_beforehand_that_topics_are_hopeless():
    assert "which hides topics" in str(topics(1_000, 0.5))
    assert "enough for about" in str(topics(100_000))


def test_words_that_a_budget_brings_are_said_beforehand():
    rng = np.random.default_rng(0)
    texts = [
        " ".join(f"w{i}" for i in np.flatnonzero(row)) for row in rng.random((5000, 2000)) < 8.0 / np.arange(8, 2008)
    ]
    said = []
    for epsilon in (0.05, 1.0, 4.0):
        advice = plan_for(PrivateTopics(), n_records=5000, privacy=PrivacyBudget(epsilon, 1e-6), document_length=45)
        said += [int(number.replace(",", "")) for number in re.findall("about ([0-9,]+) words", str(advice))]
        assert advice.apply(PrivateTopics()).privacy == PrivacyBudget(epsilon, 1e-6)
    assert len(said) == 2  # "few words, if any" for the smallest budget
    fitted = advice.apply(PrivateTopics(n_steps=2, n_components=2)).fit(texts)
    assert said[0] < said[1] / 2
    assert 0.5 < len(fitted.vocabulary_) / said[1] < 2.0
    with pytest.raises(ValueError, match="give a budget"):
        plan_for(PrivateTopics(), n_records=5000, width={"w1": 0.1})


def test_a_plan_keeps_the_budget_and_samples_only_to_save_time():
    for n_records, sampling in ((10_000, "full"), (3_000_000, "poisson")):
        advice = plan_for(BayesianLogisticRegression(max_norm=1.0), n_records=n_records, **BUDGET)
        assert advice.plan.sampling == sampling
        assert advice.plan.epsilon(1e-6) <= 1.0 + 1e-9
        assert advice.settings == {}
        assert advice.apply(BayesianLogisticRegression(max_norm=2.0)).privacy == advice.plan
    assert plan_for(DirichletMultinomial(), n_records=1000, **BUDGET).plan.n_steps == 1


def test_one_topic_has_the_noise_of_a_single_release():
    counts = make_lda_corpus(300, n_topics=2, n_words=30, document_length=20, random_state=0).counts
    plans = BUDGET["privacy"].plan(n_steps=1), BUDGET["privacy"].plan()
    fits = [LatentDirichletAllocation(1, vocabulary=30, privacy=plan).fit(counts) for plan in plans]
    once, several = (fit.noisy_totals_.noise_std["topic_word"] for fit in fits)
    assert several == pytest.approx(once, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "settings", "says"),
    [
        (LatentDirichletAllocation(), {}, "vocabulary"),
        (LatentDirichletAllocation(vocabulary=10), {"n_records": 0}, "n_records"),
        (LatentDirichletAllocation(vocabulary=10), {"n_records": 2.5}, "n_records"),
        (LatentDirichletAllocation(vocabulary=10), {"document_length": -1}, "document_length"),
        (LatentDirichletAllocation(vocabulary=10), {"privacy": 1.0}, "must be a PrivacyBudget"),
        ("lda", {}, "model of vips"),
    ],
)
def test_bad_arguments_are_named(model, settings, says):
    with pytest.raises((TypeError, ValueError), match=says):
        plan_for(model, **({"n_records": 100} | BUDGET | settings))


def test_topics_of_a_stream_are_planned_from_its_noise():
    model = LatentDirichletAllocation(vocabulary=2000)
    stream = StreamPlan(epsilon=4.0, delta=1e-6, n_batches=12)
    advice = plan_for(model, n_records=20_000, privacy=stream)
    of_fit = plan_for(model, n_records=20_000, privacy=PrivacyBudget(4.0, 1e-6))
    assert advice.plan is stream
    assert advice.apply(model).privacy == stream
    assert 1 < advice.settings["n_components"] < of_fit.settings["n_components"]
    assert "12 batches" in str(advice)
    counts = 20_000 * min(5.0 * 10.0, 100.0)  # of documents of 100 different words, at clip norm 5
    assert advice.signal_to_noise == pytest.approx(counts / (2000 * 5.0 * stream.noise_std(12)))
    fading = StreamPlan(epsilon=4.0, delta=1e-6, n_batches=12, decay=0.8)
    assert plan_for(model, n_records=20_000, privacy=fading).signal_to_noise < advice.signal_to_noise
    assert plan_for(model, n_records=200, privacy=stream).settings == {"n_components": 1}
    with pytest.raises(TypeError, match="Streams are planned for topics"):
        plan_for(DirichletMultinomial(), n_records=1000, privacy=stream)
