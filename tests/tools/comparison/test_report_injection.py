"""Every field of a comparison is text in the report: whatever it holds, no element, no attribute and no other text changes.

An HTML parser reads the pages. A walk over the dataclasses finds the fields, so that new ones are tried, too.
"""

import ast
import json
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markupsafe import Markup

import vips
from tests.plans import with_release
from tests.tools.comparison import report_cases as cases
from tests.tools.comparison.leaves import leaves, with_leaf
from vips import Comparison, Part, PrivacyPlan, PrivacyReport
from vips._pages.page import own_markup
from vips.core.plan_phases import Phase
from vips.privacy import Release
from vips.tools.comparison import Row, charts
from vips.tools.comparison.curve import UtilityCurve
from vips.tools.comparison.movement import Movement
from vips.tools.comparison.page import templates

PACKAGE = Path(vips.__file__).parent
HARMLESS = "=harmless="
HOSTILE = (
    '7</dd><meta http-equiv="refresh" content="0;url=http://localhost:9/"><style>.notice{display:none}</style>',
    "'\"--></title></style></script></svg></table><script>alert(1)</script>",
    '" onload="alert(1)" x=\'<base href="http://localhost:9/"><form action="http://localhost:9/"><input name="a">',
    "{{ 7 * 7 }}{% raw %}&lt;b&gt;&#60;i&#62;<!--<![CDATA[<?x ",
)


class Skeleton(HTMLParser):
    """Elements with their attributes, comments and texts of a page, with § in place of each inserted string."""

    def __init__(self, page, *put_in):
        super().__init__()
        self.parts, self.put_in, self.found, self.records = [], put_in, 0, []
        self.feed(page)
        self.close()

    def signed(self, text):
        for string in self.put_in:
            self.found += text.count(string)
            text = text.replace(string, "§")
        return text

    def handle_starttag(self, tag, attributes):
        values = [(name, value or "") for name, value in attributes if name != "data-record"]
        self.parts.append((tag, [(name, self.signed(value)) for name, value in values]))
        self.records += [json.loads(value) for name, value in attributes if name == "data-record"]

    def handle_endtag(self, tag):
        self.parts.append(f"/{tag}")

    def handle_data(self, data):
        self.parts.append(self.signed(data))

    def handle_comment(self, data):
        self.parts.append(("comment", data))

    def unknown_decl(self, data):
        self.parts.append(("declaration", data))

    def handle_pi(self, data):
        self.parts.append(("instruction", data))


def page_of(comparison, curve, folder):
    path = folder / "report.html"
    comparison.to_html(path, curve=curve)
    return path.read_text(encoding="utf-8")


def charged():
    """A comparison with every optional part of a report."""
    comparison = cases.regression()
    ours, theirs = comparison.privacy
    entry = {"dataset": "salaries", "run": "2f", "purpose": "pay"}
    ours = with_release(ours, ledger=entry, declared=("bounds of 2 columns",))
    ours = with_release(ours, plan=replace(ours.plan, phases=(Phase(ours.plan.n_steps),)))
    ours = replace(ours, also_not_covered=("candidates that were chosen",))
    return replace(comparison, privacy=(ours, theirs), notes=("something to note",))


def without_guarantee():
    """The same without a guarantee and without a δ."""
    comparison = charged()
    ours, theirs = comparison.privacy
    seeded = with_release(ours, plan=replace(ours.plan, reproducible_noise=True, report_delta=None))
    return replace(comparison, privacy=(seeded, theirs))


def general(path, value):
    """A path with one name for all places of a list, and whether its value is empty or NaN."""
    steps = (path[0], *((kind, "any") if kind == "place" else (kind, key) for kind, key in path[1:]))
    return steps, value == "" or value != value


def subjects():
    """(what is shown, path): a leaf of each kind of the comparison with its curve, and the words of topics and images."""
    everything = (charged(), cases.PRIVATE_CURVE)
    seen = {}
    for path, value in leaves(everything):
        seen.setdefault(general(path, value), (everything, path))
    for name, comparison, part in (
        ("no guarantee", without_guarantee(), "privacy"),
        ("topics", cases.topics(), "movements"),
        ("network", cases.network(), "movements"),
    ):
        whole = (comparison, None)
        for path, value in leaves(whole):
            if ("field", part) in path and isinstance(value, str | int):
                seen.setdefault((name, general(path, value)), (whole, path))
    return list(seen.values())


@pytest.fixture
def _without_figures(monkeypatch):
    """Leaves out figures, which hold only numbers and take most of the time."""
    monkeypatch.setattr(charts, "_svg", lambda *arguments: Markup("<svg></svg>"))


def test_all_fields_are_found():
    """The walk finds the fields of every class in a comparison."""
    fields_on_paths = {key for _, path in subjects() for kind, key in path if kind == "field"}
    for cls in (Comparison, Row, Movement, Part, PrivacyReport, Release, PrivacyPlan, UtilityCurve):
        hold_numbers = cls in (Part, UtilityCurve, PrivacyPlan)
        numbers = {"distribution", "scores", "baseline", "phases"} if hold_numbers else set()
        assert {f.name for f in fields(cls)} - numbers <= fields_on_paths, cls


def test_control_characters_are_shown_as_escapes():
    template = templates().from_string("{{ text }}|{{ own }}")
    shown = template.render(text="a\x1b[2J\x00\u202e<b>\nend", own=own_markup("<i>"))
    assert shown == "a\\x1b[2J\\x00\\u202e&lt;b&gt;\nend|<i>"


@pytest.mark.slow
@pytest.mark.usefixtures("_without_figures")
def test_every_field_by_itself_is_text(tmp_path):
    shown, refused = [], []
    for (comparison, curve), path in subjects():
        skeletons = []
        for string in (HARMLESS, HOSTILE[0] + HOSTILE[1]):
            try:
                page = page_of(*with_leaf((comparison, curve), path, string), tmp_path)
            except Exception as error:  # it is refused: nothing is written
                skeletons.append(type(error))
            else:
                skeletons.append(Skeleton(page, string))
        harmless, hostile = skeletons
        if isinstance(harmless, type):
            assert hostile is harmless, path
            refused.append(path)
            continue
        assert hostile.parts == harmless.parts, path
        assert hostile.found == harmless.found, path
        shown += [path] if harmless.found else []
    names = {path[-1][1] for path in shown}
    assert {"dataset", "run", "unit", "preprocessing", "tuning", "quantity", "mechanism", "date"} <= names
    assert {"model", "summary", "private", "baseline", "source", "private_source", "baseline_source"} <= names
    assert "on_invalid" in {path[-1][1] for path in refused}  # one of two words
    assert len(shown) > len(refused)


@pytest.mark.usefixtures("empty_figures")
@pytest.mark.parametrize("case", ["regression", "topics", "network"])
def test_all_texts_together_are_text(case, tmp_path):
    comparison = charged() if case == "regression" else getattr(cases, case)()
    pages = []
    for put_in in (HARMLESS, "".join(HOSTILE)):
        changed = comparison
        for path, value in leaves(comparison):
            if isinstance(value, str) and _is_shown(path):
                changed = with_leaf(changed, path, put_in)
        pages.append(Skeleton(page_of(changed, replace(cases.PRIVATE_CURVE, source=put_in), tmp_path), put_in))
    harmless, hostile = pages
    assert hostile.parts == harmless.parts
    assert hostile.found == harmless.found > 20


def _is_shown(path):
    """Whether a text is shown, and does not decide what is shown or which numbers are computed."""
    names = [key for kind, key in path if kind == "field"]
    is_name_in_ledger = path[-1][0] == "key" and names[-1] == "ledger"
    return not {"plan", "on_invalid", "divergences", "name"} & set(names) and not is_name_in_ledger


@pytest.mark.usefixtures("empty_figures")
def test_a_forged_mechanism_neither_fetches_nor_hides_the_warning(tmp_path):
    """With the checks of ``from_json`` left out."""
    comparison = without_guarantee()
    skeletons = []
    for steps in (HARMLESS, HOSTILE[0]):
        report = with_release(comparison.privacy[0], mechanism=steps)
        page = page_of(replace(comparison, privacy=(report, comparison.privacy[1])), None, tmp_path)
        skeletons.append(Skeleton(page, steps))
        assert page.count("<meta") == 4
        assert page.count("<style") == 1
        assert "This fit has no privacy guarantee" in page
    assert skeletons[0].parts == skeletons[1].parts
    assert skeletons[1].found == 1


@pytest.mark.usefixtures("empty_figures")
@pytest.mark.parametrize("case", ["regression", "released", "topics", "network"])
def test_the_policy_is_the_only_instruction_to_browsers_and_comes_first(case, tmp_path):
    skeleton = Skeleton(page_of(getattr(cases, case)(), cases.PRIVATE_CURVE, tmp_path))
    elements = [part for part in skeleton.parts if isinstance(part, tuple)]
    assert [tag for tag, _ in elements[:5]] == ["html", "head", "meta", "meta", "meta"]
    assert elements[2][1] == [("charset", "utf-8")]
    name, policy = elements[3][1]
    assert name == ("http-equiv", "Content-Security-Policy")
    instructions = [value for _, attributes in elements for key, value in attributes if key == "http-equiv"]
    assert instructions == ["Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policy[1].split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["script-src"].startswith("'sha256-")
    assert rules["style-src-elem"].startswith("'sha256-")
    assert "http" not in policy[1]


def test_markup_is_made_in_one_place():
    """No string of the package looks like an element, and nothing but ``own_markup`` calls a text markup."""
    callers = set()
    for path in PACKAGE.rglob("*.py"):
        source, name = path.read_text(encoding="utf-8"), path.relative_to(PACKAGE).as_posix()
        if not any(word in source for word in ("</", "<!", "\\", "Markup", "own_markup")):
            continue
        tree = ast.parse(source)
        constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        assert not [text for text in constants if isinstance(text, str) and ("</" in text or "<!" in text)], name
        functions = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
        called = {function.id for function in functions if isinstance(function, ast.Name)}
        if "Markup" in called:
            assert name == "_pages/page.py"
        if "own_markup" in called:
            callers.add(name)
    assert callers == {"tools/comparison/charts.py", "_pages/page.py"}
    for path in PACKAGE.rglob("templates/*.html"):
        text = path.read_text(encoding="utf-8")
        assert "autoescape" not in text
        assert "safe" not in text
