"""Nothing on a page keeps somebody from reading it: axe finds nothing serious on the site, nor on what vips writes.

Needs Playwright for Python and axe (both in the group ``browser``), and a Chromium: the system's, or Playwright's own.
"""

import ast

import pytest

from tests import ROOT
from tests.browsing import Visit, axe, chromium, findings
from tests.models.tables.test_page import COLUMNS, RULES, people
from tests.models.topics.topic_pages import fitted as topics
from tests.preprocessing import test_private_pipeline as pipelines
from tests.preprocessing.test_private_topics import BUDGET, letters
from tests.report.test_report import KINDS
from tests.tools.comparison import report_cases as cases
from vips import LatentDirichletAllocation, PrivateTable, PrivateTopics
from vips.preprocessing import PrivateCountVectorizer, make_private_pipeline

pytestmark = pytest.mark.slow

SCREENS = {
    f"{scheme}, {width}": {"color_scheme": scheme, "viewport": {"width": width, "height": 900}}
    for scheme in ("light", "dark")
    for width in (1280, 390)
}
OF_THE_SITE = [
    "index",  # a table of links
    "start",  # code, tables and a picture
    "guarantee",  # formulas
    "results/topics",  # tables of numbers, and names that break
    "sequences",  # pictures
    "what_epsilon_bounds",  # drawings
    "shell",  # commands
    "architecture",  # drawn with letters
    "api",  # lists of names
    "generated/vips.LatentDirichletAllocation",
    "generated/vips.compare",
    "genindex",
    "search",
]
# Frames of pandas and models themselves are shown by pandas and scikit-learn.
TABLE = "<!DOCTYPE html><html lang=en><meta name=color-scheme content='light dark'><title>notebook</title><main><h1>A cell</h1>"


@pytest.fixture(scope="module")
def find():
    """Findings on a file, on one of ``SCREENS``."""
    script = axe()
    with chromium() as browser:

        def on(path, screen, **more):
            visit = Visit(browser, path, **SCREENS[screen], **more)
            violations = findings(visit.page, script)
            visit.page.close()
            return violations

        yield on


def writers():
    """What writes HTML in vips, as "Class.method"."""
    methods = set()
    for path in (ROOT / "vips").rglob("*.py"):
        for kind in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            members = kind.body if isinstance(kind, ast.ClassDef) else ()
            names = {member.name for member in members if isinstance(member, ast.FunctionDef)}
            methods |= {f"{kind.name}.{name}" for name in names & {"to_html", "_repr_html_"}}
    return methods


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Paths of all that vips writes, each under its class, the method, and what is special."""
    folder = tmp_path_factory.mktemp("written")
    table = pipelines.pipeline().fit(*pipelines.table())
    texts = PrivateTopics(3, **BUDGET, random_state=0).fit(letters())
    words = make_private_pipeline(PrivateCountVectorizer(), LatentDirichletAllocation(3), **BUDGET).fit(letters())
    private, plain = topics(), topics(private=False)
    stated = {"dataset": "letters", "purpose": "topics", "responsible": "a name", "reason": "a reason"}
    pages = {
        "PrivacyReport.to_html": lambda path: KINDS["calibrated"].to_html(path),
        "PrivacyReport.to_html, stated": lambda path: KINDS["full"].to_html(path, **stated),
        "PrivacyReport.to_html, no δ": lambda path: KINDS["open delta"].to_html(path),
        "PrivacyReport.to_html, no guarantee": lambda path: KINDS["non-private"].to_html(path),
        "PrivacyReport.to_html, pipeline": table.privacy_.to_html,
        "Comparison.to_html": lambda path: cases.regression().to_html(path, curve=cases.PUBLIC_CURVE),
        "Comparison.to_html, released": lambda path: cases.released().to_html(path, curve=cases.PRIVATE_CURVE),
        "Comparison.to_html, topics": cases.topics().to_html,
        "Comparison.to_html, network": cases.network().to_html,
        "ReadableTopics.to_html": private.to_html,
        "ReadableTopics.to_html, two": lambda path: private.to_html(path, baseline=plain),
        "ReadableTopics.to_html, texts": texts.to_html,
        "ReadableTopics.to_html, pipeline": words.to_html,
        "PrivateTable.to_html": PrivateTable(columns=COLUMNS, rules=RULES, **BUDGET).fit(people(4_000)).to_html,
    }
    shown = {
        "PrivacyReport": KINDS["calibrated"],
        "PrivacyReport, no guarantee": KINDS["non-private"], "PrivacyReport, encoder": table[0].privacy_,
        "PrivacyReport, pipeline": table.privacy_, "Comparison": cases.regression(), "UtilityCurve": cases.PRIVATE_CURVE,
    }  # fmt: skip
    paths = {name: folder / f"{number}.html" for number, name in enumerate(pages)}
    for name, write in pages.items():
        write(paths[name])
    for name, what in shown.items():
        kind, *details = name.split(", ")
        name = ", ".join([f"{kind}._repr_html_", *details])
        paths[name] = folder / f"{len(paths)}.html"
        paths[name].write_text(TABLE + what._repr_html_(), encoding="utf-8")
    return paths


@pytest.mark.parametrize("screen", SCREENS)
def test_the_site(site, find, screen):
    examples = [f"examples/{path.stem}" for path in (site / "examples").glob("*.html")]
    assert examples
    violations = {name: find(site / f"{name}.html", screen) for name in [*OF_THE_SITE, *examples]}
    assert {name: listed for name, listed in violations.items() if listed} == {}


@pytest.mark.parametrize("screen", SCREENS)
def test_what_vips_writes(written, find, screen):
    assert {name.partition(",")[0] for name in written} == writers()
    violations = {name: find(path, screen) for name, path in written.items()}
    assert {name: listed for name, listed in violations.items() if listed} == {}


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        ("--muted: #545d68", "--muted: #b4bdc8", "color-contrast"),
        (' lang="en"', "", "html-has-lang"),
        ("<title>Topics</title>", "", "document-title"),
    ],
)
def test_faults_are_noticed(written, find, tmp_path, right, wrong, rule):
    page = written["ReadableTopics.to_html"].read_text(encoding="utf-8")
    assert right in page
    (tmp_path / "broken.html").write_text(page.replace(right, wrong), encoding="utf-8")
    faults = find(tmp_path / "broken.html", "light, 1280", bypass_csp=True)  # the page's policy refuses another style
    assert {fault.partition(":")[0] for fault in faults} == {rule}
