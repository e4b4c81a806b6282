"""A real corpus that every installation has: the public docstrings of numpy, scipy and scikit-learn.

Source files are parsed, not imported. The vocabulary of a private fit must not come from the documents: it is taken from the
docstrings of the Python standard library, which are public.
"""

from __future__ import annotations

import ast
import sysconfig
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer
from sklearn.utils import Bunch
from tqdm.auto import tqdm

__all__ = ["load_docstrings"]

_WORD = r"[^\W\d_]+"
_PACKAGES = ("numpy", "scipy", "sklearn")
_SKIPPED_FOLDERS = {"tests", "test", "idlelib", "lib2to3", "site-packages", "dist-packages", "externals", "_examples"}
_SHORTEST_WORD = 3
# Words of the docstring format, not of the subjects.
_DOCSTRING_WORDS = frozenset(
    """
    argument arguments array arrays attribute attributes auto bool callable class classes default doc docs
    docstring dtype example examples false float func function functions given https import instance int
    integer lib like list method methods module none note notes numpy object objects optional param
    parameter parameters return returned returns see self shape str string true tuple type types use used
    using value values version
    """.split()  # noqa: SIM905
)


def load_docstrings(
    *, packages: tuple[str, ...] = _PACKAGES, min_words: int = 10, min_vocabulary_count: int = 5
) -> Bunch:
    """One document per public docstring of the installed ``packages``.

    Parameters
    ----------
    packages : tuple of str
        Installed packages, by import name.
    min_words : int
        Documents with fewer words of the vocabulary are left out.
    min_vocabulary_count : int
        The vocabulary is the words that the standard library's docstrings use at least this often; stop words and
        words of the docstring format (such as "parameters") are left out.

    Returns
    -------
    Bunch
        ``counts``: CSR of shape (n_documents, n_words), int32; ``vocabulary``: list of str; ``names``: list of str,
        the qualified name of each documented object; ``texts``: list of str, the raw documents. The corpus depends on the
        installed versions.
    """
    standard_library = Path(sysconfig.get_path("stdlib"))
    words, tokens = Counter(), CountVectorizer(token_pattern=_WORD).build_analyzer()
    for _, text in _docstrings(standard_library, "", include_private=True):
        words.update(tokens(text))
    vocabulary = sorted(
        word
        for word, count in words.items()
        if count >= min_vocabulary_count
        and len(word) >= _SHORTEST_WORD
        and word.isascii()
        and word not in ENGLISH_STOP_WORDS
        and word not in _DOCSTRING_WORDS
    )
    texts: dict[str, str] = {}  # text -> name: a repeated docstring is one document
    for package in packages:
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise ValueError(f"Package {package!r} is not installed.")
        for name, text in _docstrings(Path(spec.submodule_search_locations[0]), package, include_private=False):
            texts.setdefault(text, name)
    counter = CountVectorizer(token_pattern=_WORD, vocabulary=vocabulary, dtype=np.int32)
    counts = sp.csr_array(counter.transform(texts))
    kept = counts.sum(axis=1) >= min_words
    documents = [(text, name) for (text, name), keep in zip(texts.items(), kept, strict=True) if keep]
    raw, names = ([document[i] for document in documents] for i in (0, 1))
    return Bunch(counts=counts[kept], vocabulary=vocabulary, names=names, texts=raw)


def _docstrings(folder: Path, package: str, include_private: bool) -> Iterator[tuple[str, str]]:
    """(qualified name, docstring) of the objects in the source files below ``folder``, in a fixed order."""
    files = sorted(path for path in folder.rglob("*.py") if not _SKIPPED_FOLDERS & set(path.relative_to(folder).parts))
    for path in tqdm(files, desc=f"reading {package or 'standard library'}", delay=3.0, disable=None, leave=False):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        module = ".".join((package, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
        yield from _documented(tree, module.strip("."), include_private)


def _documented(node: ast.AST, name: str, include_private: bool) -> Iterator[tuple[str, str]]:
    text = ast.get_docstring(node)
    if text:
        yield name, text
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if include_private or not child.name.startswith("_"):
                yield from _documented(child, f"{name}.{child.name}", include_private)
        elif isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
            yield from _added_documentation(child.value)  # numpy documents compiled functions this way


def _added_documentation(call: ast.Call) -> Iterator[tuple[str, str]]:
    if getattr(call.func, "id", "") not in ("add_newdoc", "add_newdoc_for_scalar_type"):
        return
    strings = [leaf.value for leaf in ast.walk(call) if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)]
    if len(strings) >= 3:
        yield ".".join(strings[:2]), max(strings, key=len)
