"""The HTML report in a real browser: no errors, no network, sorting by mouse and keyboard, light, dark and print.

Needs Playwright for Python (the group ``browser``) and a Chromium: the system's, or Playwright's own.
"""

import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.browsing import OUT_OF_SIGHT, Visit, contrast, luminance
from tests.plans import entry_of, with_release
from tests.tools.comparison import report_cases as cases
from vips import BayesianLogisticRegression, LatentDirichletAllocation, PrivacyPlan, compare

pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install --group browser")

COMPARISONS = ["regression", "released", "topics", "network"]
CERTIFICATES = ["certificate", "no guarantee"]


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    paths = {name: folder / f"{name}.html" for name in (*COMPARISONS, *CERTIFICATES)}
    for name in COMPARISONS:
        getattr(cases, name)().to_html(paths[name], curve=cases.PUBLIC_CURVE)
    private, none = cases.regression().privacy
    private.to_html(paths["certificate"], purpose=cases.HOSTILE[0], responsible=cases.HOSTILE[1], reason="x" * 300)
    none.to_html(paths["no guarantee"])
    return paths


@pytest.fixture
def visit(browser, reports):
    """Opens reports, and closes them after the test."""
    opened = []

    def go(name, **more):
        opened.append(Visit(browser, reports.get(name, name), **more))
        return opened[-1]

    yield go
    for window in opened:
        window.page.close()


@pytest.mark.parametrize("name", COMPARISONS)
def test_opens_without_a_complaint_and_without_a_network(visit, name):
    report = visit(name)
    assert report.messages == []
    assert report.asked_for() == []
    assert report.seconds < 2.0
    assert report.page.title().startswith("Privacy report: ")
    assert report.page.evaluate("document.querySelectorAll('main script, main b b, img[src=x]').length") == 0


def test_complaints_are_noticed_where_names_are_not_escaped(visit, reports, tmp_path):
    broken = reports["regression"].read_text(encoding="utf-8").replace("&lt;", "<").replace("&gt;", ">")
    path = tmp_path / "broken.html"
    path.write_text(broken, encoding="utf-8")
    report = visit(path)
    assert report.messages  # the page's policy refuses to run scripts in names
    assert not any(message in ("1", "2") for message in report.messages)


def test_complaints_are_noticed_where_something_is_fetched(visit, reports, tmp_path):
    page = reports["regression"].read_text(encoding="utf-8")
    path = tmp_path / "broken.html"
    path.write_text(page.replace("<main", '<img src="https://example.org/x.png" alt=""><main', 1), encoding="utf-8")
    report = visit(path)
    assert any("Content Security Policy" in message for message in report.messages)


@pytest.fixture
def server():
    """A local server that records requests; its address is ``server.address``."""
    asked = []

    class Noting(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with HTTPServer(("127.0.0.1", 0), Noting) as listening:
        listening.asked = asked
        listening.address = f"http://127.0.0.1:{listening.server_address[1]}"
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield listening
        listening.shutdown()
        thread.join()


def forged(server, path, escaped=True):
    """A report whose texts would send browsers elsewhere and hide the warning, if they were not escaped."""
    attack = (
        f'7<meta http-equiv="refresh" content="0;url={server.address}/moved"><style>.notice {{ display: none }}</style>'
        f'<link rel="prefetch" href="{server.address}/linked"><img src="{server.address}/image" alt="">'
        f'<base href="{server.address}"><script>fetch("{server.address}/script")</script>'
    )
    comparison = cases.regression()
    ours, theirs = comparison.privacy
    seeded = replace(ours.plan, reproducible_noise=True, report_delta=None)
    ours = with_release(ours, plan=seeded, ledger=entry_of(attack), mechanism=attack)
    ours = replace(ours, tuning=attack)
    replace(comparison, privacy=(ours, theirs), model=attack, notes=(attack,)).to_html(path)
    if not escaped:
        page = path.read_text(encoding="utf-8")
        path.write_text(page.replace("&lt;", "<").replace("&gt;", ">").replace("&#34;", '"'), encoding="utf-8")


def test_a_forged_report_contacts_no_server_and_shows_its_warning(visit, server, tmp_path):
    forged(server, tmp_path / "forged.html")
    report = visit(tmp_path / "forged.html")
    report.page.wait_for_timeout(1000)
    assert server.asked == []
    assert report.asked_for() == []
    assert report.messages == []
    assert report.page.url.startswith("file:")
    assert report.page.locator(".notice").is_visible()
    assert report.page.get_by_text("An attacker who sees what this fit released may learn anything").is_visible()
    assert report.page.locator("meta[http-equiv]").count() == 1


def test_the_server_notices_a_report_that_is_not_escaped(visit, server, tmp_path):
    """Shows that the test above can fail. The page's policy still forbids everything that a policy can forbid."""
    forged(server, tmp_path / "broken.html", escaped=False)
    report = visit(tmp_path / "broken.html")
    report.page.wait_for_timeout(1000)
    assert "/moved" in server.asked  # no policy forbids a refresh
    assert not {"/linked", "/image", "/script"} & set(server.asked)


def test_the_policy_refuses_styles_in_names(visit, reports, tmp_path):
    page = reports["regression"].read_text(encoding="utf-8")
    path = tmp_path / "broken.html"
    path.write_text(page.replace("<main", "<style>.notice { display: none }</style><main", 1), encoding="utf-8")
    report = visit(path)
    assert report.page.locator(".notice").is_visible()
    assert any("Content Security Policy" in message for message in report.messages)


def column(report, table, place):
    return report.page.eval_on_selector_all(
        f"table:has(#{table}) tbody tr", f"rows => rows.map(row => row.cells[{place}].dataset.sort)"
    )


def sorts(report, table):
    return report.page.eval_on_selector_all(
        f"table:has(#{table}) thead th", "heads => heads.map(head => head.getAttribute('aria-sort'))"
    )


def test_tables_are_sorted_by_mouse_and_by_keyboard(visit):
    report = visit("regression")
    before = column(report, "movers-table", 1)
    assert sorts(report, "movers-table") == [None] * 8
    heads = report.page.locator("table:has(#movers-table) thead button")
    heads.nth(1).click()
    assert list(map(float, column(report, "movers-table", 1))) == sorted(map(float, before))
    assert sorts(report, "movers-table")[1] == "ascending"
    heads.nth(1).press("Enter")
    assert list(map(float, column(report, "movers-table", 1))) == sorted(map(float, before), reverse=True)
    assert sorts(report, "movers-table")[1] == "descending"
    heads.nth(3).focus()
    report.page.keyboard.press("Space")
    numbers = list(map(float, column(report, "movers-table", 3)))
    assert numbers == sorted(numbers)
    assert sorts(report, "movers-table") == [None, None, None, "ascending", None, None, None, None]
    assert report.messages == []


def test_missing_numbers_come_last_and_names_are_sorted_as_text(visit):
    report = visit("regression")
    heads = report.page.locator("table:has(#summary-table) thead button")
    for _ in range(2):
        heads.nth(1).click()
        numbers = column(report, "summary-table", 1)
        there = [number for number in numbers if number]
        assert numbers == there + [""] * (len(numbers) - len(there))
        assert 0 < len(there) < len(numbers)
    heads.nth(0).click()
    names = report.page.locator("table:has(#summary-table) tbody th").all_inner_texts()
    assert names[0].startswith("2-Wasserstein")
    assert names[-1].startswith("total variation")


def test_topics_are_sorted_by_number(visit):
    report = visit("topics")
    report.page.locator("table:has(#topics-table) thead button").first.click()
    names = report.page.locator("table:has(#topics-table) tbody th").all_inner_texts()
    assert names == ["topic 0", "topic 1", "topic 2"]


def test_tables_can_be_read_without_the_script(visit):
    report = visit("regression", java_script_enabled=False)
    assert report.page.locator("table:has(#movers-table) tbody tr").count() == 6
    assert report.page.locator("button").count() == 0
    assert report.page.get_by_text("The headings sort the table").count() == 0


@pytest.mark.parametrize("name", COMPARISONS)
def test_charts_and_images_have_text_alternatives(visit, name):
    report = visit(name)
    images = report.page.get_by_role("img").all()
    assert len(images) == report.page.locator("svg, img").count() > 0
    for image in images:
        assert len(image.get_attribute("aria-label") or image.get_attribute("alt")) > 20
    for role, least in (("banner", 1), ("navigation", 1), ("main", 1), ("contentinfo", 1), ("complementary", 1)):
        assert report.page.get_by_role(role).count() == least
    assert report.page.get_by_role("region", name="Privacy statement").count() == 1


def test_the_first_stop_of_the_keyboard_skips_to_the_report(visit):
    report = visit("regression", viewport={"width": 800, "height": 600})
    report.page.keyboard.press("Tab")
    assert report.page.evaluate("document.activeElement.className") == "skip"
    box = report.page.locator(".skip").bounding_box()
    assert box["x"] >= 0.0
    assert float(report.style(".skip", "outlineWidth").removesuffix("px")) >= 2.0
    report.page.keyboard.press("Enter")
    assert report.page.evaluate("document.activeElement.id") == "main"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_and_lines_stand_out_in_light_and_dark(visit, scheme):
    report = visit("regression", color_scheme=scheme)
    back, notice = report.style("body", "backgroundColor"), report.style(".notice", "backgroundColor")
    assert (luminance(back) > 0.5) == (scheme == "light")
    for selector in ("body", "caption", "nav a", ".source.released", ".source.unprotected", "small", "td"):
        assert contrast(report.style(selector, "color"), back) >= 4.5, selector
    for selector in (".notice h2", ".notice li", ".notice .source.unprotected"):
        assert contrast(report.style(selector, "color"), notice) >= 4.5, selector
    assert contrast(report.style("svg text", "fill"), back) >= 4.5
    for line in (".line.private", ".line.baseline"):
        assert contrast(report.style(line, "borderTopColor"), back) >= 3.0


def test_prints_light_on_every_screen_and_without_parts_for_the_screen(visit):
    report = visit("regression", color_scheme="dark")
    assert luminance(report.style("body", "backgroundColor")) < 0.1
    report.page.emulate_media(media="print", color_scheme="dark")
    assert luminance(report.style("body", "backgroundColor")) == pytest.approx(1.0)
    assert luminance(report.style("body", "color")) < 0.1
    assert report.style("nav", "display") == report.style(".skip", "display") == "none"
    assert report.style(".scroll", "overflowX") == "visible"
    assert report.page.pdf(format="A4").startswith(b"%PDF")
    bottom = report.page.evaluate("document.querySelector('.signature').getBoundingClientRect().bottom")
    assert bottom < 1122  # one page of A4
    assert report.style("aside.notice", "breakBefore") == "page"


@pytest.mark.parametrize("name", [*COMPARISONS, *CERTIFICATES])
@pytest.mark.parametrize("width", [320, 390, 1200])
def test_the_page_itself_never_scrolls_sideways(visit, name, width):
    report = visit(name, viewport={"width": width, "height": 800})
    assert report.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", [*COMPARISONS, *CERTIFICATES])
def test_every_value_is_in_sight_on_a_phone(visit, name):
    report = visit(name, viewport={"width": 390, "height": 844})
    report.page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert report.page.evaluate(OUT_OF_SIGHT) == []
    heads = report.page.eval_on_selector_all(
        ".sortable td", "cells => cells.map(cell => getComputedStyle(cell, '::before').content)"
    )
    assert not {"none", '""'} & set(heads)  # every cell says of what it is


def test_values_out_of_sight_are_noticed(visit, reports, tmp_path):
    page = reports["regression"].read_text(encoding="utf-8")
    (tmp_path / "broken.html").write_text(page.replace("<td class", "<td width=900 class"), encoding="utf-8")
    report = visit(tmp_path / "broken.html", viewport={"width": 390, "height": 844})
    report.page.evaluate("document.styleSheets[0].disabled = true")
    assert report.page.evaluate(OUT_OF_SIGHT)


# -- certificates --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CERTIFICATES)
def test_certificates_open_without_a_complaint_and_without_a_network(visit, name):
    report = visit(name)
    assert report.messages == []
    assert report.asked_for() == []
    assert report.page.evaluate("document.querySelectorAll('main script, img').length") == 0
    assert report.page.locator("h1").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_certificates_stand_out_in_light_and_dark(visit, scheme):
    for name, selectors in (("certificate", (".headline", ".promise p")), ("no guarantee", (".none",))):
        report = visit(name, color_scheme=scheme)
        for selector in selectors:
            back = report.style(".promise" if name == "certificate" else ".none", "backgroundColor")
            assert contrast(report.style(selector, "color"), back) >= 4.5


def test_the_technical_statement_is_folded_on_screens_and_printed_on_its_own_page(visit):
    report = visit("certificate")
    assert not report.page.get_by_text("Mechanism", exact=True).is_visible()
    report.page.locator("summary").press("Enter")
    assert report.page.get_by_text("Mechanism", exact=True).is_visible()
    report.page.locator("summary").press("Enter")
    report.page.emulate_media(media="print")
    assert report.style(".technical", "breakBefore") == "page"
    report.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert report.page.get_by_text("Mechanism", exact=True).is_visible()
    height = report.page.evaluate("document.querySelector('.technical').getBoundingClientRect().top")
    assert height < 1122  # the page before it, at 96 pixels per inch of A4
    report.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert report.page.pdf(prefer_css_page_size=True).count(b"/Type /Page\n") in (2, 3)
    assert not report.page.evaluate("document.querySelector('details').open")


# -- real data -----------------------------------------------------------------------------------------------------


def _check_size_and_speed(visit, path):
    assert path.stat().st_size < 3e6
    report = visit(path)
    assert report.messages == []
    assert report.asked_for() == []
    assert report.seconds < 2.0
    return report


@pytest.mark.slow
def test_fifty_topics_of_wikipedia_open_at_once(visit, tmp_path):
    from experiments.datasets import load_wikipedia

    try:
        corpus = load_wikipedia(20_000)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    train, test = corpus.counts[:10_000], corpus.counts[10_000:10_300]
    plan = PrivacyPlan.from_epsilon(epsilon=2.0, delta=1e-6, sampling_rate=0.1, n_steps=30)
    plain = PrivacyPlan.non_private(sampling_rate=0.1, n_steps=30)
    models = (
        LatentDirichletAllocation(50, vocabulary=corpus.vocabulary, privacy=privacy, random_state=0).fit(train)
        for privacy in (plan, plain)
    )
    compare(*models, test, n_bootstrap=100).to_html(tmp_path / "topics.html")
    report = _check_size_and_speed(visit, tmp_path / "topics.html")
    assert report.page.locator("table:has(#topics-table) tbody tr").count() == 50


@pytest.mark.slow
def test_a_classifier_of_adult_opens_at_once(visit, tmp_path):
    import pandas as pd

    from experiments.datasets import load_adult
    from vips.preprocessing import TableEncoder

    try:
        adult = load_adult()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    encoder = TableEncoder(adult.columns)
    X = encoder.fit_transform(adult.data)
    X = pd.DataFrame(X, columns=encoder.get_feature_names_out())
    plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-5, sampling_rate=1.0, n_steps=20)
    models = (
        BayesianLogisticRegression(privacy=privacy, max_norm=1.0).fit(X[:40_000], adult.target[:40_000])
        for privacy in (plan, None)
    )
    comparison = compare(*models, X[40_000:], adult.target[40_000:])
    comparison.to_html(tmp_path / "adult.html")
    report = _check_size_and_speed(visit, tmp_path / "adult.html")
    assert report.page.locator("table:has(#movers-table) tbody tr").count() == 50
