"""Private fits begin with twice as many topics: do they find what fits from random topics miss?"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from vips import LatentDirichletAllocation, PrivacyPlan
from vips.core.phases import phases_of, step_weight
from vips.datasets import make_lda_corpus
from vips.models.topics.merging import merged_rows, parents_of, scale_of_merged

N_TOPICS = 8
PLAN = replace(
    PrivacyPlan.from_epsilon(epsilon=4.0, delta=1e-5, sampling_rate=1.0, n_steps=20), reproducible_noise=True
)


@pytest.fixture(scope="module")
def documents():
    return make_lda_corpus(
        8000, n_topics=N_TOPICS, n_words=600, document_length=60, topic_word_prior=0.1, random_state=5
    )


def n_found(model, topics):
    distances = 2.0 - 2.0 * np.sqrt(topics) @ np.sqrt(model.last_posterior_.mean).T
    return int((distances[linear_sum_assignment(distances)] < 0.15).sum())


def fits(documents, n_fits, **methods):
    for seed in range(n_fits):
        model = LatentDirichletAllocation(N_TOPICS, vocabulary=600, privacy=PLAN, random_state=seed)
        for name, method in methods.items():
            setattr(model, name, method)
        yield model.fit(documents.counts)


@pytest.mark.parametrize("n_fits", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_all_topics_are_found(documents, n_fits):
    assert {n_found(model, documents.topics) for model in fits(documents, n_fits)} == {N_TOPICS}
    without = [n_found(model, documents.topics) for model in fits(documents, n_fits, _n_first=lambda n_steps: 0)]
    assert min(without) < N_TOPICS  # so the documents are a test


def test_parts_of_one_topic_are_merged_and_noise_goes_anywhere():
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(200, 0.1), 4)
    parts = rng.poisson(np.vstack([3000.0 * topics, 2000.0 * topics, 20.0 * topics.mean(axis=0, keepdims=True)]))
    parents = parents_of(parts.astype(float), 4)
    assert sorted(parents[:4]) == [0, 1, 2, 3]
    np.testing.assert_array_equal(parents[:4], parents[4:8])
    assert (parents_of(parts.astype(float), len(parts)) == np.arange(len(parts))).all()


def test_parents_are_those_of_a_search_over_all_pairs():
    counts = np.random.default_rng(1).gamma(0.3, 10.0, (9, 30))

    def loss(x):
        return (x * np.log(x / x.sum())).sum()

    rows = [{i} for i in range(9)]
    while len(rows) > 4:
        total = [counts[list(row)].sum(axis=0) for row in rows]
        pairs = [(i, j) for i in range(len(rows)) for j in range(i)]
        i, j = min(pairs, key=lambda ij: loss(total[ij[0]]) + loss(total[ij[1]]) - loss(total[ij[0]] + total[ij[1]]))
        rows[j] |= rows.pop(i)
    parents = parents_of(counts, 4)
    assert {frozenset(np.flatnonzero(parents == k)) for k in range(4)} == set(map(frozenset, rows))


def test_scaled_sums_have_the_noise_of_scaled_rows():
    rng = np.random.default_rng(2)
    scale, parents = rng.uniform(0.5, 2.0, (5, 4)), np.array([0, 1, 0, 2, 0])
    noise = rng.normal(size=(20_000, 5, 4))
    sums = np.array([merged_rows(draw / scale, parents) for draw in noise]) * scale_of_merged(scale, parents)
    np.testing.assert_allclose(sums.std(axis=0), 1.0, rtol=0.03)


def test_the_average_goes_on_after_the_merge(documents):
    """Counts of merged topics are sums of those of their parts, under the noise of all steps so far."""
    model = LatentDirichletAllocation(3, vocabulary=600, privacy=replace(PLAN, clip_norm=5.0), random_state=0)
    carried, original = [], model.transport

    def recording(average, noise_std, previous, posterior):
        moved, std = original(average, noise_std, previous, posterior)
        if posterior.parents is not None:
            scale = 1.0 - step_weight(model, 8) + step_weight(model, 8) * previous.scale / previous.average_scale
            counts = average["many_topics"] / (previous.average_scale * scale)
            np.testing.assert_allclose(
                (moved["topic_word"] / posterior.average_scale).sum(axis=0), counts.sum(axis=0), rtol=1e-9
            )
            assert std["topic_word"] == noise_std["many_topics"]
            carried.append(posterior.step)
        return moved, std

    model.transport = recording
    model.fit(documents.counts[:500])
    assert carried == [8]
    assert [step.number for step in model.noisy_totals_.steps] == list(range(9, 21))


@pytest.mark.parametrize(("n_steps", "expected"), [(1, [1]), (2, [2]), (20, [8, 12])])
def test_few_steps_have_no_start(n_steps, expected):
    model = LatentDirichletAllocation(3, vocabulary=30, privacy=PLAN.with_n_steps(n_steps))
    assert [phase.n_steps for phase in phases_of(model, n_steps)] == expected


def test_one_topic_and_ordinary_fits_begin_with_what_they_are():
    for settings in ({"n_components": 1, "privacy": PLAN}, {"n_components": 4}):
        model = LatentDirichletAllocation(vocabulary=30, **settings)
        assert list(model.blocks()) == ["topic_word"]


HIDING = replace(PLAN, noise_multiplier=400.0)


def test_where_noise_hides_topics_they_are_the_frequencies_of_words(documents):
    """Whose noise is that of a fit of one topic, on all steps alike."""
    many, one = (
        LatentDirichletAllocation(k, vocabulary=600, privacy=HIDING, random_state=0).fit(documents.counts)
        for k in (N_TOPICS, 1)
    )
    np.testing.assert_allclose(many.last_posterior_.mean, np.tile(many.last_posterior_.mean[0], (N_TOPICS, 1)))
    ours, alone = (
        (m.noisy_totals_.noise_std["topic_word"] / m.last_posterior_.average_scale[0]).mean() for m in (many, one)
    )
    assert ours == pytest.approx(alone, rel=0.03)
    assert many.perplexity(documents.counts[:500]) < 1.02 * one.perplexity(documents.counts[:500])
    assert set(many.evidence().labels) == {"noise"}


def test_without_that_step_topics_of_noise_predict_worse(documents, monkeypatch):
    """So the test above can fail."""
    monkeypatch.setattr("vips.models.topics.lda.shows_topics", lambda *_: True)
    many, one = (
        LatentDirichletAllocation(k, vocabulary=600, privacy=HIDING, random_state=0).fit(documents.counts)
        for k in (N_TOPICS, 1)
    )
    assert many.perplexity(documents.counts[:500]) > 1.04 * one.perplexity(documents.counts[:500])


def test_noise_is_carried_through_the_steps_of_a_single_topic(documents):
    model = LatentDirichletAllocation(3, vocabulary=600, privacy=HIDING, random_state=0)
    pairs, original, rng = [], model.transport, np.random.default_rng(0)

    def recording(average, noise_std, previous, posterior):
        pairs.append((previous, posterior))
        return original(average, noise_std, previous, posterior)

    model.transport = recording
    model.fit(documents.counts[:500])
    blocks = model.blocks()
    for pair in pairs:
        noise = {name: rng.normal(0.0, 2.0, block.shape) for name, block in blocks.items()}
        moved, std = original(noise, dict.fromkeys(blocks, 2.0), *pair)
        for name in blocks:
            assert moved[name].std() == pytest.approx(std[name], rel=0.1)
