"""What users write passes their type checkers: mypy and pyright, both strict, read the examples of every page.

Needs both (the group ``types``), and node for pyright. Nothing of vips itself is checked but what pages use of it.
"""

import doctest
import importlib.util
import json
import re
import shutil
import subprocess
import sys

import pytest

from tests import ROOT

pytestmark = pytest.mark.slow

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]

# What a page shows but no user writes so, or others declare wrongly: a part of the message, by page.
ALLOWED = {
    # Functions of a page have no annotations, to be short. mypy does not exclude those that are called by `super()`, and
    # pyright takes the type that a method happens to return for what its subclasses have to return.
    "own_model": ['"expected_statistics"', '"to_posterior"'],
    # None is what Dask documents for no dashboard; its annotation says `str`.
    "scale": ['"dashboard_address"'],
    # OpenDP documents `dp.atom_domain` and declares that its prelude exports nothing.
    "accounting": ['from module "opendp.prelude"'],
}
OF_MYPY = [
    "--strict",
    "--ignore-missing-imports",  # pandas, scikit-learn and dp_accounting have no types of their own
    "--allow-untyped-defs",  # functions of a page have no annotations, to be short
    "--allow-incomplete-defs",
    "--untyped-calls-exclude=distributed",
    "--untyped-calls-exclude=opendp",
]
OF_PYRIGHT = {
    "typeCheckingMode": "strict",
    # Types that pyright guesses from the source of pandas and scikit-learn are often wrong, e.g. that error_score is a float.
    "useLibraryCodeForTypes": False,
    "reportMissingTypeStubs": False,
    # So results of theirs are unknown; and so are X and y in vips: whatever scikit-learn takes.
    **dict.fromkeys((f"reportUnknown{what}Type" for what in ("Argument", "Lambda", "Member", "Parameter", "Variable")), False),
    "reportMissingParameterType": False,  # as for mypy
    # No matter of types: examples show values, name matrices X, and import what only a comment or an error names.
    "reportUnusedExpression": False,
    "reportConstantRedefinition": False,
    "reportUnusedImport": False,
}  # fmt: skip


def code_of(page):
    """The examples of a page, without the ``_ =`` that keeps doctest from asking for a result."""
    examples = doctest.DocTestParser().get_examples(page.read_text(encoding="utf-8"))
    return re.sub(r"^( *)_ = ", r"\1", "".join(example.source for example in examples), flags=re.MULTILINE)


def write_pages(folder, codes):
    """One module a page, and the settings of pyright."""
    for name, code in codes.items():
        (folder / f"{name}_page.py").write_text(code, encoding="utf-8")
    settings = OF_PYRIGHT | {"include": ["."], "pythonVersion": "{}.{}".format(*sys.version_info)}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")


def without_allowed(messages):
    """Messages, each with its page, but for those of ``ALLOWED``."""
    return [
        f"{page}: {message}"
        for page, message in messages
        if not any(part in message for part in ALLOWED.get(page.removesuffix("_page"), ()))
    ]


def errors_of_mypy(folder):
    """Messages, each with its page."""
    exclusions = [f"--untyped-calls-exclude={path.stem}" for path in folder.glob("*_page.py")]
    command = [sys.executable, "-m", "mypy", *OF_MYPY, *exclusions, "--no-error-summary", "--hide-error-context", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = re.findall(r"^(\w+)\.py:(\d+: error: .*)$", done.stdout, flags=re.MULTILINE)
    assert bool(lines) == bool(done.returncode), done.stdout
    return without_allowed(lines)


def errors_of_pyright(folder):
    """Messages, each with its page."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(list(folder.glob("*_page.py")))
    return without_allowed(
        (re.split(r"[/\\]", flaw["file"])[-1].removesuffix(".py"), f"{flaw['range']['start']['line'] + 1}: {flaw['message']}")
        for flaw in report["generalDiagnostics"]
        if flaw["severity"] == "error"
    )  # fmt: skip


CHECKERS = {"mypy": errors_of_mypy, "pyright": errors_of_pyright}


@pytest.fixture(params=CHECKERS)
def errors(request):
    """One of ``CHECKERS``, if it is here."""
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"needs {request.param}: pip install --group types")
    if request.param == "pyright" and shutil.which("node") is None:
        pytest.skip("pyright needs node")
    return CHECKERS[request.param]


def test_examples_of_all_pages(errors, tmp_path):
    codes = {page.stem.lower(): code for page in PAGES if (code := code_of(page))}
    assert len(codes) > 25
    write_pages(tmp_path, codes)
    assert errors(tmp_path) == []


WRONG = {
    "misspelt": "from vips import PrivacyPlan\nPrivacyPlan.from_epsilon(epsilom=1.0, delta=1e-6, n_steps=1)\n",
    "text": "from vips import DirichletMultinomial\nDirichletMultinomial().fit([[1.0]]).privacy_.epsilon('small')\n",
    "missing": "from vips import LatentDirichletAllocation\nLatentDirichletAllocation(3).evidence().labels\n",
}


def test_faults_are_noticed(errors, tmp_path):
    write_pages(tmp_path, WRONG)
    assert {message.split("_page")[0] for message in errors(tmp_path)} == set(WRONG)
