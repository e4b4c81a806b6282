"""Ranking of words, the map, the table, the figure, and what is handed to pyLDAvis."""

import warnings

import matplotlib
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from tests.models.topics.topic_pages import WORDS, fitted
from vips import LatentDirichletAllocation
from vips.models.topics.words import TopicWords

# Counts above a prior of 1: 6, 2, 0 and 0, 2, 2.
SMALL = TopicWords.of(np.array([[7.0, 3.0, 1.0], [1.0, 3.0, 3.0]]), 1.0, ["a", "b", "c"])


def test_shares_and_frequencies_by_hand():
    np.testing.assert_allclose(SMALL.shares, [8 / 12, 4 / 12])
    assert SMALL.total == 12.0
    np.testing.assert_allclose(SMALL.probabilities[1], [1 / 7, 3 / 7, 3 / 7])
    np.testing.assert_allclose(SMALL.overall, 2 / 3 * np.array([7, 3, 1]) / 11 + 1 / 3 * np.array([1, 3, 3]) / 7)
    np.testing.assert_allclose(SMALL.of_word.sum(axis=0), 1.0)
    assert SMALL.of_word[0, 0] == pytest.approx((2 / 3 * 7 / 11) / (2 / 3 * 7 / 11 + 1 / 3 / 7))


def test_topics_without_a_count_above_the_prior_have_shares():
    np.testing.assert_allclose(TopicWords.of(np.full((2, 3), 0.5), 0.5, list("abc")).shares, 0.5)


def test_relevance_by_hand():
    p = 2 / 3 * 3 / 11 + 1 / 3 * 3 / 7  # of the word b
    for weight in (0.0, 0.3, 1.0):
        expected = weight * np.log(3 / 7) + (1.0 - weight) * np.log(3 / 7 / p)
        assert SMALL.relevance(weight)[1, 1] == pytest.approx(expected)
    assert SMALL.top(3, 1.0)[1].tolist() == [1, 2, 0]
    assert SMALL.top(3, 0.0)[1].tolist() == [2, 1, 0]


def test_the_table_and_the_lists_agree():
    model = fitted()
    table = model.top_words(7, relevance=0.4, as_frame=True)
    assert isinstance(table, pd.DataFrame)
    assert table.groupby("topic")["word"].agg(list).tolist() == model.top_words(7, relevance=0.4)
    mean = model.last_posterior_.mean
    for row in table.itertuples():
        assert row.probability == pytest.approx(mean[row.topic, WORDS.index(row.word)])
    assert (table.probability > table.overall).mean() > 0.8
    assert table.share.between(0.0, 1.0).all()
    assert model.top_words(3) == [[WORDS[v] for v in row] for row in np.argsort(-model.components_, axis=1)[:, :3]]


def test_words_without_names_are_columns():
    assert {word for top in fitted(words=False).top_words(3) for word in top} <= {f"x{v}" for v in range(len(WORDS))}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"n": 0}, "`n` must be"),
        ({"n": 2.5}, "`n` must be"),
        ({"relevance": 1.1}, "lift"),
        ({"relevance": "a"}, "lift"),
    ],
)
def test_bad_rankings_are_refused(settings, says):
    with pytest.raises(ValueError, match=says):
        fitted().top_words(**settings)


@pytest.mark.parametrize("method", ["top_words", "plot_topics", "to_pyldavis"])
def test_a_model_must_be_fitted(method):
    with pytest.raises(NotFittedError):
        getattr(LatentDirichletAllocation(2), method)()


@pytest.fixture
def pyplot():
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def test_bars_for_notebooks(pyplot):
    model = fitted()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        axes = model.plot_topics(5, topics=[2, 0], relevance=0.5)
        axes[0].figure.canvas.draw()  # a word with dollar signs would fail here as a formula
    table = model.top_words(5, relevance=0.5, as_frame=True)
    for ax, topic in zip(axes, (2, 0), strict=True):
        of_topic = table[table.topic == topic]
        in_topic, over_all = (bars.datavalues for bars in ax.containers)
        np.testing.assert_allclose(in_topic, of_topic.probability)
        np.testing.assert_allclose(over_all, of_topic.overall)
        heights = [bar.get_y() for bar in ax.containers[0]]
        assert heights == sorted(heights, reverse=True)  # the first word is at the top
        assert ax.get_title().startswith(f"topic {topic}: ")
    assert len(model.plot_topics(1)) == 4


def test_bars_on_axes_of_the_caller(pyplot):
    _, grid = pyplot.subplots(2, 2)
    axes = fitted().plot_topics(3, axes=grid)
    assert [ax is panel for ax, panel in zip(axes, grid.ravel(), strict=True)] == [True] * 4
    with pytest.raises(ValueError, match="4 topics and only 3 axes"):
        fitted().plot_topics(3, axes=grid.ravel()[:3])


@pytest.mark.parametrize("topics", [[], [4], [-1], [1.0]])
def test_bars_of_topics_that_do_not_exist(topics):
    with pytest.raises(ValueError, match="`topics` must"):
        fitted().plot_topics(topics=topics)


def test_arguments_of_pyldavis():
    """What pyLDAvis checks, and what it computes from documents: the share of each topic."""
    model = fitted()
    given = model.to_pyldavis()
    n_topics, n_words = given["topic_term_dists"].shape
    assert given["doc_topic_dists"].shape == (1, n_topics)
    assert len(given["vocab"]) == len(given["term_frequency"]) == n_words
    np.testing.assert_allclose(given["topic_term_dists"].sum(axis=1), 1.0)
    np.testing.assert_allclose(given["doc_topic_dists"].sum(axis=1), 1.0)
    counts = np.maximum(model.components_ - 0.25, 0.0).sum(axis=1)
    np.testing.assert_allclose(given["doc_topic_dists"][0] * given["doc_lengths"][0], counts)
    assert given["term_frequency"].sum() == pytest.approx(given["doc_lengths"][0])
