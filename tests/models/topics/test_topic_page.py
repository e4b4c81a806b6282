"""The topics' page: values of the model, words that are only text, statements, sizes, errors."""

import re
from copy import copy
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from tests.models.topics.topic_pages import WORDS, fitted
from tests.plans import with_release
from vips import LatentDirichletAllocation, PrivacyBudget
from vips._support.alignment import align
from vips._support.printable import printable
from vips.preprocessing import PrivateCountVectorizer, make_private_pipeline


class Page(HTMLParser):
    """Elements with their attributes, and texts of rows and blocks with an id."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._id = [], {}, None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, tuple(attributes)))
        self._id = dict(attributes).get("id", self._id)

    def handle_endtag(self, tag):
        if tag in ("div", "tr"):
            self._id = None

    def handle_data(self, data):
        self.texts[self._id] = self.texts.get(self._id, "") + data


def page_of(model, folder, **settings):
    model.to_html(folder / "topics.html", **settings)
    return (folder / "topics.html").read_text(encoding="utf-8")


def test_rows_are_those_of_the_models(tmp_path):
    model, other = fitted(), fitted(private=False)
    order = align(model.last_posterior_.mean, other.last_posterior_.mean).order
    assert order.tolist() != [0, 1, 2, 3]
    page = Page(page_of(model, tmp_path, baseline=other, n_words=5))
    for k, theirs in enumerate(order):
        for fit, number in ((model, k), (other, theirs)):
            assert ", ".join(map(printable, fit.top_words(5)[number])) in page.texts[f"topic-{k}"]
            share = fit.summary().loc[number, "share"]
            assert f"{100.0 * share:.3g} %" in page.texts[f"topic-{k}"]
        assert f"its topic {theirs}" in page.texts[f"topic-{k}"]


def test_words_are_only_text(tmp_path):
    """The same elements and attributes as with harmless words; every word is readable."""
    model, pages = fitted(), []
    for words in (WORDS, [f"w{v}" for v in range(len(WORDS))]):
        renamed = LatentDirichletAllocation(4, vocabulary=words)
        renamed.__dict__.update({**model.__dict__, "vocabulary": words})
        pages.append(Page(page_of(renamed, tmp_path, n_words=len(WORDS))))
    skipped = {"content"}  # of the policy, the same for both, but for nothing else
    hostile, harmless = (
        [(tag, [pair for pair in attributes if pair[0] not in skipped]) for tag, attributes in page.elements]
        for page in pages
    )
    assert hostile == harmless
    top = fitted().top_words(len(WORDS))[0]
    assert ", ".join(printable(word) for word in top) in pages[0].texts["topic-0"]


def test_the_file_needs_nothing_else(tmp_path):
    text = page_of(fitted(words=False), tmp_path, baseline=fitted(private=False, words=False))
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<link|<base|<iframe", text)
    assert not [value for _, attributes in Page(text).elements for key, value in attributes if key == "src"]
    (policy,) = re.findall('Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src &#39;none&#39;; script-src &#39;sha256-")
    assert len(re.findall("<script", text)) == len(re.findall("<style", text)) == 1


def test_a_table_of_all_topics_needs_no_script(tmp_path):
    model = fitted(words=False)
    page = Page(page_of(model, tmp_path))
    for k, words in enumerate(model.top_words(10)):
        assert ", ".join(words) in page.texts[f"topic-{k}"]


def test_guarantees_come_first(tmp_path):
    private, plain = fitted(), fitted(private=False)
    both = page_of(private, tmp_path)
    assert "All numbers on this page were computed from released values." in both
    assert '<strong class="whole">ε = 2</strong> at δ = 1e-05 (1 in 100,000 chances to learn more)' in both
    assert "each document" in both
    assert "This page holds private data" not in both
    for page in (page_of(plain, tmp_path), page_of(private, tmp_path, baseline=plain)):
        assert "This page holds private data. Protect the file as you protect the records." in page
        assert "has no privacy guarantee</strong>: no noise was added" in page
        assert "computed from released values" not in page
    assert "ε = 2<" in page


def test_two_private_fits_are_added_up(tmp_path):
    page = page_of(fitted(), tmp_path, baseline=fitted(words=True))
    assert "2 fits with a guarantee are shown here" in page
    joint = float(re.search(r"together\s+<strong class=\"whole\">ε = ([\d.]+)", page)[1])
    assert 2.0 < joint < 4.0


def test_a_statement_of_ones_own(tmp_path):
    seeded = copy(fitted())
    seeded.privacy_ = with_release(seeded.privacy_, plan=replace(seeded.privacy_.plan, reproducible_noise=True))
    assert "sampling and noise come from a seed" in page_of(seeded, tmp_path)


def test_a_private_pipeline_states_what_its_words_cost(tmp_path):
    letters = ["the ship sails home", "a storm at sea", "the ship was lost at sea"] * 100
    model = LatentDirichletAllocation(2, random_state=0)
    pipeline = make_private_pipeline(PrivateCountVectorizer(), model, privacy=PrivacyBudget(2.0, 1e-6), n_steps=5).fit(
        letters
    )
    page = page_of(pipeline, tmp_path, baseline=pipeline)
    assert len(re.findall('<strong class="whole">ε = 2</strong> at δ = 1e-06', page)) == 2
    assert pipeline.top_words(2) == pipeline[-1].top_words(2)


def test_a_baseline_may_end_a_pipeline(tmp_path):
    plain = fitted(private=False)
    pipeline = make_pipeline("passthrough", plain)
    assert (
        Page(page_of(fitted(), tmp_path, baseline=pipeline)).texts
        == Page(page_of(fitted(), tmp_path, baseline=plain)).texts
    )


@pytest.mark.parametrize("n_topics", [1, 2])
def test_few_topics_and_few_words(n_topics, tmp_path):
    model = LatentDirichletAllocation(n_topics, random_state=0).fit(np.eye(2))
    page = Page(page_of(model, tmp_path))
    assert sorted(page.texts["topic-0"].split(": ")[1].strip().split(", ")) == ["x0", "x1"]
    assert len([name for name in page.texts if name and name.startswith("topic-")]) == n_topics


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"n_words": 0}, ValueError, "`n_words` must be"),
        ({"baseline": "topics"}, TypeError, "`baseline` must be a LatentDirichletAllocation, got str"),
        ({"baseline": LatentDirichletAllocation(4)}, NotFittedError, "not fitted"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(settings, error, says, tmp_path):
    with pytest.raises(error, match=says):
        fitted().to_html(tmp_path / "topics.html", **settings)
    assert not list(tmp_path.iterdir())


def test_fits_that_cannot_be_matched_are_refused(tmp_path):
    with pytest.raises(ValueError, match="other words"):
        fitted().to_html(tmp_path / "topics.html", baseline=fitted(words=False))
    other = LatentDirichletAllocation(2, random_state=0).fit(np.eye(2))
    with pytest.raises(ValueError, match="4 topics over 60 words and `baseline` 2 over 2"):
        fitted().to_html(tmp_path / "topics.html", baseline=other)
    assert not list(tmp_path.iterdir())
