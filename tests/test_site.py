"""The documentation builds without a warning, and every page can be read on a narrow screen."""

from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

from tests.browsing import chromium

pytestmark = pytest.mark.slow

# Parts of a page beyond its edges which no box around them scrolls into sight.
CUT_OFF = """() => [...document.querySelectorAll("article *")].filter(element => {
  const box = element.getBoundingClientRect();
  if (!box.width || (box.right <= innerWidth + 1 && box.left >= -1)) return false;
  for (let around = element.parentElement; around; around = around.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(around).overflowX)) return false;
  return true;
}).map(element => element.outerHTML.slice(0, 200))"""


def test_no_page_scrolls_sideways(site):
    pages = [path for path in sorted(site.rglob("*.html")) if not {"_static", "examples"} & set(path.parts)]
    assert len(pages) > 100
    with chromium() as browser:
        for width in (390, 1280, 1330):  # a telephone, a laptop, and a little more than three columns need
            page = browser.new_page(viewport={"width": width, "height": 800})
            for path in pages:
                page.goto(path.as_uri())
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (path.name, width)
                assert page.evaluate(CUT_OFF) == [], (path.name, width)
            page.close()


def test_lines_of_code_are_seen_whole_on_a_laptop(site):
    with chromium() as browser:
        page, cut = browser.new_page(viewport={"width": 1280, "height": 800}), {}
        for path in sorted(site.glob("*.html")):
            page.goto(path.as_uri())
            cut[path.name] = page.locator("article pre").evaluate_all(
                "every => every.filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.textContent)"
            )
        assert {name: listed for name, listed in cut.items() if listed} == {}


def test_the_reference_shows_names_and_words_as_they_are_written(site):
    page = (site / "generated/vips.LatentDirichletAllocation.html").read_text(encoding="utf-8")
    assert "<strong>components_</strong>" in page  # not a link to "components"
    assert "Records per E-step call. A speed and memory knob: it changes" in page  # not a type with a description
    assert "&lt;class" not in page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_one_picture_of_two_is_shown(site, scheme):
    with chromium() as browser:
        page = browser.new_page(color_scheme=scheme)
        for path in (site / "index.html", site / "sequences.html"):
            page.goto(path.as_uri())
            images = page.locator("img[class*=only-]")
            shown = [images.nth(k).get_attribute("src") for k in range(images.count()) if images.nth(k).is_visible()]
            assert len(shown) == images.count() / 2
            assert all(f"-{scheme}" in source for source in shown)


def test_pages_ask_nothing_of_other_hosts(site):
    with chromium() as browser:
        page, asked = browser.new_page(), []
        page.on("request", lambda request: asked.append(request.url))
        for name in ("index", "sequences", "api"):
            page.goto((site / f"{name}.html").as_uri(), wait_until="load")
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


class Links(HTMLParser):
    """Where a page leads to, and the places in it."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.places = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.places |= {attrs[name] for name in ("id", "name") if attrs.get(name)}
        self.targets += [attrs[name] for name in ("href", "src") if attrs.get(name)]


def test_every_link_within_the_site_leads_somewhere(site):
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    lost = []
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            if not file.exists() or (place and file in pages and place not in pages[file].places):
                lost.append((path.name, target))
    assert lost == []
