"""The topics' page in a real browser: choosing topics and words, the slider, phones, keyboards, no script.

Needs Playwright for Python (the extra ``browser``) and a Chromium: the system's, or Playwright's own.
"""

import numpy as np
import pytest

from tests.browsing import OUT_OF_SIGHT, Visit, contrast
from tests.models.topics.topic_pages import WORDS, fitted
from vips._support.alignment import align
from vips._support.printable import printable

pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'vips[browser]'")

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
N_WORDS = 12


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("topics")
    fitted().to_html(folder / "one.html", n_words=N_WORDS)
    fitted().to_html(folder / "two.html", baseline=fitted(private=False), n_words=N_WORDS)
    return folder


@pytest.fixture
def visit(browser, pages):
    """Opens pages, and closes them after the test."""
    opened = []

    def go(name, size=DESK, **more):
        opened.append(Visit(browser, pages / f"{name}.html", viewport=size, **more))
        return opened[-1]

    yield go
    for window in opened:
        window.page.close()


def words(page):
    return page.locator("#words tbody th").all_inner_texts()


def expected(topic, relevance=1.0, model=None):
    return [printable(word) for word in (model or fitted()).top_words(N_WORDS, relevance=relevance)[topic]]


def set_slider(page, value):
    page.locator("#relevance").fill(str(value))


@pytest.mark.parametrize("name", ["one", "two"])
def test_opens_and_works_without_a_complaint_and_without_a_network(visit, name):
    topics = visit(name)
    for topic in range(4):
        topics.page.select_option("#topic", str(topic))
        topics.page.locator("#words button").nth(topic).click()
        set_slider(topics.page, 0)
    assert topics.messages == []
    assert topics.asked_for() == []
    assert topics.page.evaluate("document.querySelectorAll('main script, main img, bdi > *').length") == 0


@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_choosing_a_topic_changes_the_bars(visit, size):
    page = visit("one", size).page
    assert words(page) == expected(0)
    page.locator("#map .topic[data-topic='2'] circle").click(force=True)
    assert words(page) == expected(2)
    assert page.locator("#topic").input_value() == "2"
    page.locator("#map .topic[data-topic='2']").press("ArrowRight")
    assert words(page) == expected(3)
    assert page.evaluate("document.activeElement.dataset.topic") == "3"
    page.locator("#after").click()
    assert words(page) == expected(0)
    page.select_option("#topic", "1")
    assert words(page) == expected(1)
    assert page.locator("#words-heading").inner_text().startswith("Topic 1: ")
    assert page.locator("#map .chosen").get_attribute("data-topic") == "1"


@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_the_slider_ranks_as_top_words_does(visit, size):
    page = visit("one", size).page
    orders = []
    for value in (1.0, 0.6, 0.2, 0.0):
        set_slider(page, value)
        assert page.locator("#lambda").inner_text() == f"{value:g}"
        assert words(page) == expected(0, value)
        orders.append(tuple(words(page)))
    assert len(set(orders)) > 2


def test_bars_have_the_lengths_of_probabilities(visit):
    page = visit("one").page
    table = fitted().top_words(N_WORDS, as_frame=True).query("topic == 0")
    largest = max(table.probability.max(), table.overall.max())
    for kind, share in (("of-0", table.probability), ("overall", table.overall)):
        drawn = page.locator(f"#words .bar.{kind}").evaluate_all("bars => bars.map(bar => parseFloat(bar.style.width))")
        np.testing.assert_allclose(drawn, 100.0 * share / largest, rtol=1e-3)
    shown = [float(text) for text in page.locator("#words td:nth-child(3)").all_inner_texts()]
    np.testing.assert_allclose(shown, 100.0 * table.probability, atol=0.051)


def radii(page, fit=0):
    circles = page.locator(f"#map .of-{fit}").evaluate_all(
        "links => links.map(link => [link.dataset.topic, link.querySelector('circle').getAttribute('r')])"
    )
    return np.array([float(radius) for _, radius in sorted(circles)])


def test_a_word_shows_the_topics_that_use_it(visit):
    page = visit("one").page
    unit = float(page.locator("#map").get_attribute("data-unit"))
    usual = radii(page)
    row = fitted().top_words(N_WORDS, as_frame=True).query("topic == 0").iloc[3]
    mean = fitted().last_posterior_.mean[:, WORDS.index(row.word)]
    shares = (usual / unit) ** 2 * mean
    page.locator("#words tbody tr").nth(3).hover()
    np.testing.assert_allclose(radii(page), unit * np.sqrt(shares / shares.sum()), atol=0.6 * unit / 63)
    assert printable(row.word) in page.locator("#areas").inner_text()
    page.locator("h1").hover()
    np.testing.assert_array_equal(radii(page), usual)
    button = page.locator("#words button").nth(3)
    button.press("Enter")  # it stays, also where another topic is chosen
    page.locator("#after").click()
    assert not np.allclose(radii(page), usual)
    assert "is used most in topic" in page.locator("#said").inner_text()


def test_both_fits_are_shown_and_either_ranks(visit):
    page = visit("two").page
    assert page.locator("#map .of-0").count() == page.locator("#map .of-1").count() == 4
    assert page.locator("#map line").count() == 4
    assert page.locator("#words .bar").count() == 3 * N_WORDS
    assert words(page) == expected(0)
    page.get_by_label("baseline", exact=True).check()
    plain = fitted(private=False)
    matched = align(fitted().posterior_.mean, plain.posterior_.mean).order[0]
    assert words(page) == expected(matched, model=plain)
    set_slider(page, 0.3)
    assert words(page) == expected(matched, 0.3, plain)


@pytest.mark.parametrize("name", ["one", "two"])
def test_everything_is_in_sight_on_a_phone(visit, name):
    page = visit(name, PHONE).page
    for topic in range(4):
        page.select_option("#topic", str(topic))
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        hidden = [box for box in page.evaluate(OUT_OF_SIGHT) if 'id="said"' not in box]  # is for screen readers
        assert hidden == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_stand_out_in_light_and_dark(visit, scheme):
    topics = visit("two", color_scheme=scheme)
    back = topics.style("body", "backgroundColor")
    for selector in ("body", "#words td", "#words td.from-all", ".fine-print", ".all small"):
        assert contrast(topics.style(selector, "color"), back) >= 4.5, selector
    for bar in (".bar.of-0", ".bar.of-1"):
        assert contrast(topics.style(bar, "backgroundColor"), back) >= 3.0
    assert contrast(topics.style(".map text", "fill"), back) >= 4.5


def test_without_the_script_the_map_and_the_table_can_be_read(visit):
    page = visit("one", java_script_enabled=False).page
    assert page.locator(".controls:visible, #words:visible").count() == 0
    assert page.locator("#map circle:visible").count() == 4
    assert page.locator("table.all tbody tr:visible").count() == 4
    page.locator("#map .topic[data-topic='3']").press("Enter")
    assert page.url.endswith("#topic-3")
