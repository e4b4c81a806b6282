"""The documents refer to code and tests that exist."""

import ast
import importlib.util
import re
from functools import cache
from types import ModuleType

import pytest

from experiments.__main__ import EXPERIMENTS
from tests import ROOT

REFERENCE = re.compile(r"`((?:vips|tests|experiments)/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("document", sorted(ROOT.glob("docs/*.md")), ids=lambda path: path.name)
def test_references_exist(document):
    for file, name in REFERENCE.findall(document.read_text(encoding="utf-8")):
        source = (ROOT / file).read_text(encoding="utf-8")
        stands = re.search(rf"^((def|class) {name}\b|{name} = )", source, re.M)
        assert not name or stands, f"{document.name} names {file}::{name}"


def words_of(page):
    """A page without its code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@cache
def places(page):
    """Names of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", words_of(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_and_pictures_of_a_checkout_lead_somewhere():
    lost = []
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/results/*.md")]:
        for target in re.findall(r"\]\(([^()\s]+)\)", words_of(page)):
            file, _, place = target.partition("#")
            to = (page.parent / file) if file else page
            size = 0 if ":" in target or not to.exists() else to.stat().st_size
            if ":" not in target and (not size or (place and place not in places(to.resolve()))):
                lost.append((page.name, target))
            if to.suffix == ".svg" and size > 100_000:
                lost.append((page.name, f"{target} is large"))
    assert lost == []


def test_the_guarantee_names_a_test_for_every_assumption():
    page = (ROOT / "docs/guarantee.md").read_text(encoding="utf-8")
    table = page.split("## What each step rests on")[1].split("##")[0]
    rows = re.findall(r"^\| (?!---|assumption).*", table, flags=re.MULTILINE)
    assert len(rows) >= 12
    for row in rows:
        _, _, code, tests, _ = row.split("|")
        assert "`vips/" in code
        assert "`tests/" in tests


def test_the_house_is_drawn_as_it_stands():
    """Every folder and every public file of the package is in the drawing, and nothing else is."""
    drawing = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").split("vips/\n")[1].split("experiments/")[0]
    drawn = re.findall(r"^ {2}(?: {2})?([a-z_]+(?:\.py|/))", drawing, flags=re.MULTILINE)
    rooms = [path for path in (ROOT / "vips").rglob("*") if path.is_dir() and (path / "__init__.py").exists()]
    parts = {f"{path.name}/" for path in rooms if path.parent.name not in ("comparison", "topics")}
    files = {path.name for folder in ("vips", "vips/core") for path in (ROOT / folder).glob("[a-z]*.py")}
    assert sorted(drawn) == sorted(parts | files)


MODEL_METHODS = {"blocks", "initial", "valid_records", "expected_statistics", "to_posterior", "norms", "weighted_sum"}


def lines_of_code(node) -> set[int]:
    """Lines of a definition, without docstrings."""
    placed = [inner for inner in ast.walk(node) if hasattr(inner, "lineno")]
    lines = {number for inner in placed for number in (inner.lineno, inner.end_lineno)}
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(inner):
            lines -= set(range(inner.body[0].lineno, inner.body[0].end_lineno + 1))
    return lines


def test_the_privacy_of_one_model_is_read_in_fewer_than_300_lines():
    """Only some methods of a class count: for the plan those that the guarantee names, for the others the contract's."""
    text = (ROOT / "docs/guarantee.md").read_text(encoding="utf-8")
    section = text.split("## Reading the proof in the code")[1].split("##")[0]
    of_plan = set(re.findall(r"`(\w+)`[,)]", section))
    assert {"add_noise", "sampler"} <= of_plan
    total = 0
    for file, name in dict.fromkeys(REFERENCE.findall(section)):
        if not name:
            continue
        body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
        (node,) = [n for n in body if getattr(n, "name", None) == name]
        methods = {"PrivacyPlan": of_plan, "DirichletMultinomial": MODEL_METHODS, "DenseStatistics": MODEL_METHODS}
        wanted = methods.get(name)
        nodes = [n for n in node.body if getattr(n, "name", None) in wanted] if wanted else [node]
        assert nodes
        total += sum(len(lines_of_code(definition)) for definition in nodes)
    assert 100 < total < 300


# Where public names are documented; those of `vips.models` are names of `vips`.
PUBLIC = "", ".data", ".datasets", ".preprocessing", ".tools.comparison", ".expfam", ".reference", ".exceptions"
PUBLIC += ".privacy", ".core.accounting", ".models"
PUBLIC += (".models.components.matching",)


def test_every_public_name_is_in_the_reference():
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^   (\w[\w.]*)$", text, flags=re.MULTILINE)
    assert len(set(listed)) == len(listed), "a name is listed twice"
    wanted = {}
    for place in PUBLIC:
        module = importlib.import_module(f"vips{place}")
        for name in module.__all__:
            wanted[f"{place[1:]}.{name}".lstrip(".")] = getattr(module, name)
    shown = [wanted[name] for name in listed if name in wanted]
    missing = [
        name
        for name, thing in wanted.items()
        if name not in listed
        and f"`{name}`" not in text
        and not isinstance(thing, ModuleType)
        and not any(thing is other for other in shown)
    ]
    assert missing == []
    assert [name for name in listed if name not in wanted] == []


def test_every_experiment_is_on_the_page_of_results():
    text = (ROOT / "docs/reproduce.md").read_text(encoding="utf-8")
    assert [name for name in EXPERIMENTS if f"`{name}`" not in text] == []
    assert [name for name in re.findall(r"experiments (\w+) ", text) if name not in EXPERIMENTS] == []


def test_every_picture_is_drawn_once():
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs/pictures.py")
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    texts = [path.read_text(encoding="utf-8") for path in ROOT.glob("docs/*.md")]
    drawn = [name for text in texts for _, names in pictures.steps(text) for name in names]
    assert len(drawn) > 10
    assert len(set(drawn)) == len(drawn)
    assert {name for text in texts for _, name in pictures.PICTURE.findall(text)} == set(drawn)
