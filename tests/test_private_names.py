"""A name with one leading underscore stays in its file, read from the source.

A module names such an attribute, function or class, be it in an import or as a string, only if its own file defines the name,
or the file of a class in the same folder from which one of its classes inherits.
"""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.test_layers import sources

# Names of other libraries.
FOREIGN = {"_abc_impl", "_at_fork_reinit", "_cache", "_getframe", "_lru_cache_wrapper", "_rdp", "_validate_steps"}


def is_private(name: str) -> bool:
    return name.isidentifier() and name.startswith("_") and name.strip("_") != "" and not name.startswith("__")


@cache
def names_defined(tree: ast.Module) -> set[str]:
    """Functions, classes, variables, and attributes of ``self`` and ``cls``."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                names.add(name)
    return names


@cache
def names_used(tree: ast.Module) -> set[str]:
    """Attributes, names that are imported and are no modules, and strings that are such names."""
    names, in_texts = set(), set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name):
                names.add(name)
            case ast.ImportFrom(module=module, names=aliases):
                names |= {alias.name for alias in aliases if f"{module}.{alias.name}" not in sources()}
            case ast.JoinedStr(values=values):
                in_texts |= {id(value) for value in values}
            case ast.Constant(value=str(name)) if id(node) not in in_texts:
                names.add(name)
    return {name for name in names if is_private(name)}


def files_of_bases(module: str, tree: ast.Module) -> set[str]:
    """Modules of the same folder with a class from which one of this module inherits."""
    nodes = list(ast.walk(tree))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    origins = {alias.asname or alias.name: node.module for node in imports for alias in node.names}
    stated = [base for node in nodes if isinstance(node, ast.ClassDef) for base in node.bases]
    bases = {name.id for base in stated for name in ast.walk(base) if isinstance(name, ast.Name)}
    modules = {origins[base] for base in bases & origins.keys()} & sources().keys()
    return {base for base in modules if base.rpartition(".")[0] == module.rpartition(".")[0]}


@cache
def names_of_file(module: str) -> frozenset[str]:
    """What a file defines or inherits within its folder."""
    of_bases = map(names_of_file, files_of_bases(module, sources()[module]))
    return frozenset(names_defined(sources()[module])).union(*of_bases)


def strangers(module: str, tree: ast.Module) -> set[str]:
    """Private names that a module uses and that are those of other files."""
    inherited = set().union(*map(names_of_file, files_of_bases(module, tree)))
    return names_used(tree) - names_defined(tree) - inherited - FOREIGN


def test_private_names_stay_in_their_files():
    assert len(sources()) > 100
    strange = {module: strangers(module, tree) for module, tree in sources().items()}
    assert not {module: names for module, names in strange.items() if names}


def test_exceptions_are_names_of_other_libraries():
    defined, used = (set().union(*map(names, sources().values())) for names in (names_defined, names_used))
    assert defined.isdisjoint(FOREIGN)
    assert used >= FOREIGN


@pytest.mark.parametrize(
    ("module", "line", "name"),
    [
        ("vips.report.certificate.page", "ledger._entries()", "_entries"),
        ("vips.report.certificate.page", "ledger._keys = []", "_keys"),
        ("vips.core.ledger.run", "self.ledger._entries()", "_entries"),  # the same folder, and no base
        ("vips.classification.tables", "getattr(model, '_word_weights')", "_word_weights"),
        ("vips.classification.tables", "'_evidence' in vars(model)", "_evidence"),
        ("vips.classification.tables", "from vips.classification.encoder import _Closed", "_Closed"),
        ("vips.classification.classifier", "self._copied({})", "_copied"),  # of a base in another folder
        ("vips.core.ledger.ledger", "self._entries()", None),  # of a base in the same folder
        ("vips.classification.tables", "from vips.data import _parquet", None),
        ("vips.classification.tables", "f'{name}_missing'", None),
        ("vips.classification.tables", "model.__dict__", None),
    ],
)
def test_a_line_that_names_what_is_private_elsewhere_is_noticed(module, line, name):
    longer = ast.parse(f"{ast.unparse(sources()[module])}\n{line}")
    assert strangers(module, longer) == ({name} if name else set())
