"""Which modules may import which, read from the source.

Imports inside functions count; imports for type checkers do not.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import vips

PACKAGE = Path(vips.__file__).parent
# From the lowest to the highest row. A part may import parts of lower rows, but no other part of its own row.
LAYERS = [
    {"exceptions"},
    {"_support"},
    {"core"},
    {"_pages", "data", "datasets", "expfam"},
    {"reference", "report"},
    {"privacy"},
    {"counting", "executors", "parts", "persistence", "settling"},
    {"door"},
    {"streams"},
    {"model"},
    {"models"},
    {"preprocessing"},
    {"classification"},
    {"saving"},
    {"tools"},
    {"__main__"},
]  # fmt: skip


# Rooms of models that all families use.
SHARED = {"components"}


def module_name(path: Path) -> str:
    return ".".join(["vips", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")


@cache
def sources() -> dict[str, ast.Module]:
    return {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def imported(tree: ast.Module, modules) -> set[str]:
    """Modules of vips that a module imports."""
    names, nodes = set(), [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and getattr(node.test, "id", None) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.expr):  # which holds no statements
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                names.add(full if full in modules else node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.split(".")[0] == "vips"}


@cache
def imports_of_all() -> dict[str, set[str]]:
    return {name: imported(tree, sources()) for name, tree in sources().items()}


def part_of(module: str) -> str:
    """The part of the package: the first name after ``vips.``"""
    return module.split(".")[1] if "." in module else ""


def check_cycles(imports) -> None:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        raise AssertionError(f"modules import each other: {' -> '.join(error.args[1])}") from None


def check_layers(imports) -> None:
    level = {part: i for i, layer in enumerate(LAYERS) for part in layer}
    for module, others in imports.items():
        for other in others:
            ours, theirs = part_of(module), part_of(other)
            if ours and ours != theirs:
                assert level[theirs] < level[ours], f"{module} imports upwards: {other}"


def check_families(imports) -> None:
    """A family of models imports no other family; other parts of the package, and what families share, import no family."""
    families = {path.name for path in (PACKAGE / "models").iterdir() if path.is_dir() and not path.name.startswith("_")}
    families -= SHARED
    assert {"topics", "regression", "belief_networks", "proportions"} <= families
    for module, others in imports.items():
        family = module.split(".")[2:3] if part_of(module) == "models" else []
        of_models = [other for other in others if other.split(".")[1:2] == ["models"]]
        concrete = [other for other in of_models if set(other.split(".")[2:3]) - set(family) & families]
        assert not concrete, f"{module} imports a model of another family: {concrete}"


CHECKS = [check_cycles, check_layers, check_families]


@pytest.mark.parametrize("check", CHECKS)
def test_the_house(check):
    assert len(imports_of_all()) > 100
    check(imports_of_all())


def test_every_part_has_a_place():
    assert {part_of(name) for name in sources()} - {""} == set().union(*LAYERS)


@pytest.mark.parametrize(
    ("check", "module", "other", "says"),
    [
        (check_cycles, "vips.core.plan", "vips.report.report", "import each other"),
        (check_layers, "vips.core.plan", "vips.model", "upwards"),
        (check_layers, "vips.core.engine", "vips.models.topics.lda", "upwards"),
        (check_families, "vips.tools.comparison.movement", "vips.models.topics.lda", "another family"),
        (check_families, "vips.models.topics.lda", "vips.models.regression.prior", "another family"),
        (check_families, "vips.models.components.counts", "vips.models.markov.start", "another family"),
    ],
)
def test_imports_that_must_not_be_are_noticed(check, module, other, says):
    with pytest.raises(AssertionError, match=says):
        check(imports_of_all() | {module: imports_of_all()[module] | {other}})


OF_SUMS = {"norms", "lengths", "run_norms", "piece_norm", "weighted_sum", "rounded_sum"}


def check_norms(trees) -> None:
    """How long a record is, and what it adds to a sum, is written in ``vips.core.sums``; audits have canaries of their own."""
    others = {"vips.tools.auditing.canaries", "vips.core.mechanism.lattice"}
    for module, tree in trees.items():
        if module.startswith("vips.core.sums.") or module in others:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names = {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)}
                names |= {getattr(to, "id", "") for inner in node.body for to in getattr(inner, "targets", ())}
                assert not OF_SUMS & names, f"{module}: {node.name} states {OF_SUMS & names}"


def test_norms_are_stated_in_one_room():
    check_norms(sources())
    for name in OF_SUMS:
        for body in (f"def {name}(self, blocks): return 1.0", f"{name} = shorter"):
            broken = ast.parse(f"class Means(DenseStatistics):\n    {body}\n")
            with pytest.raises(AssertionError, match=rf"Means states \{{'{name}'\}}"):
                check_norms(sources() | {"vips.models.proportions.means": broken})


def test_pages_alone_need_the_library_of_templates():
    """Whoever fits a model needs no extra: a page, and what draws for it, is imported where it is written."""
    needs = re.compile(r"^from (vips\._pages\.page|vips[\w.]*\.page|jinja2) import", re.MULTILINE)
    files = {
        path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if needs.search(path.read_text(encoding="utf-8"))
    }
    assert {path for path in files if path.name != "page.py"} == {
        Path("report/certificate/check.py"),
        Path("tools/comparison/charts.py"),
    }
