"""What is released: versions agree, builds are the same bytes everywhere, and the wheel needs no more than it declares."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile

import pytest

from tests import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_changelog_and_citation_have_the_same_version_and_date():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", changelog, flags=re.MULTILINE)
    assert headings[0] == "Unreleased"
    version, date = re.fullmatch(r"(\d+\.\d+\.\d+) \((\d{4}-\d\d-\d\d)\)", headings[1]).groups()
    assert f"\nversion: {version}\n" in citation
    assert f'\ndate-released: "{date}"\n' in citation
    assert PROJECT["tool"]["hatch"]["version"]["fallback-version"] == version


def test_every_extra_is_explained():
    text = (ROOT / "docs/start.md").read_text(encoding="utf-8")
    table = text.partition("| extra |")[2].partition("\n\n")[0]
    explained = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert explained == set(PROJECT["project"]["optional-dependencies"])


def test_groups_bring_what_extras_do_and_every_version_is_locked():
    extras, groups = PROJECT["project"]["optional-dependencies"], PROJECT["dependency-groups"]
    for name in ("plot", "tables"):
        assert groups[name] == extras[name]
    locked = set(
        re.findall(r"^([\w.-]+)==[\d.]+", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    )
    listed = [
        *PROJECT["project"]["dependencies"],
        *(text for name in groups.keys() - {"torch"} for text in groups[name]),
    ]
    wanted = {re.match(r"[\w.-]+", text).group().lower() for text in listed if isinstance(text, str)}
    assert wanted <= {name.lower().replace("_", "-") for name in locked}, wanted - locked


def built(folder, out):
    """The wheel and the archive of the source that a copy of the project gives."""
    pytest.importorskip("hatch_vcs", reason="needs hatch-vcs: pip install --group test")
    environment = {**os.environ, "SETUPTOOLS_SCM_PRETEND_VERSION": "9.8.7"}
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return {path.suffix: path for path in out.iterdir()}


def copied(folder, clock):
    """What belongs into a release, in another folder and of another time."""
    texts = ("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "pyproject.toml", ".gitignore")
    for name in ("vips", *texts):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            folder.mkdir(exist_ok=True)
            shutil.copy(source, folder / name)
    for path in folder.rglob("*"):
        os.utime(path, (clock, clock))
    return folder


@pytest.mark.slow
@pytest.mark.thorough
def test_builds_are_the_same_bytes_everywhere(tmp_path):
    one = built(copied(tmp_path / "one", 1e9), tmp_path / "out_one")
    other = built(copied(tmp_path / "other", 1.7e9), tmp_path / "out_other")
    assert set(one) == {".whl", ".gz"}
    for kind, path in one.items():
        assert path.name.startswith("vips-9.8.7")
        assert path.read_bytes() == other[kind].read_bytes()
    with tarfile.open(one[".gz"]) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    of_archive = built(tmp_path / "unpacked" / "vips-9.8.7", tmp_path / "out_of_archive")
    assert of_archive[".whl"].read_bytes() == one[".whl"].read_bytes()


USED = """
import importlib, pkgutil
import vips
assert vips.__version__ == "9.8.7"
assert "site-packages" in vips.__file__
places = ["", ".data", ".datasets", ".expfam", ".models", ".preprocessing", ".privacy", ".core.ledger", ".reference"]
for place in places:
    module = importlib.import_module("vips" + place)
    for name in module.__all__:
        getattr(module, name)
names = [module.name for module in pkgutil.walk_packages(vips.__path__, "vips.") if not module.name.endswith("__main__")]
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:  # of an extra, which only modules that are not public need
        assert error.name in ("jinja2", "matplotlib", "pandas", "pyarrow", "dask", "distributed"), (name, error)
        print("needs an extra:", name)
import numpy as np
plan = vips.PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=0.5, n_steps=3)
X = np.random.default_rng(0).random((500, 3)) / 3
model = vips.BayesianLogisticRegression(privacy=plan, max_norm=1.0).fit(X, X[:, 0] > 0.15)
model.save("m.vips")
assert np.array_equal(vips.load("m.vips").predict_proba(X), model.predict_proba(X))
open("p.parquet", "wb").write(b"PAR1")
for wanted, extra in (
    (lambda: model.privacy_.to_html("c.html"), "plot"), (lambda: model.summary(), "tables"),
    (lambda: vips.data.ParquetTable("p.parquet", ["a"]), "parquet"),
):
    try:
        wanted()
    except ImportError as error:
        assert "vips[" in str(error), error
    else:
        print("works without an extra:", extra)
print("all is there")
"""


@pytest.mark.slow
def test_the_wheel_works_with_its_declared_dependencies_alone(tmp_path):
    wheel = built(copied(tmp_path / "one", 1e9), tmp_path / "out")[".whl"]
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    if not python.exists():
        python = tmp_path / "empty" / "Scripts" / "python.exe"
    done = subprocess.run([python, "-m", "pip", "install", "-q", str(wheel)], capture_output=True, text=True)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip("no package index")
    assert done.returncode == 0, done.stderr
    used = subprocess.run([python, "-c", USED], cwd=tmp_path, capture_output=True, text=True)
    assert used.returncode == 0, used.stderr
    assert "all is there" in used.stdout
    assert "works without an extra" not in used.stdout
    shown = subprocess.run([python, "-m", "vips", "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert shown.returncode == 0
    assert "fit" in shown.stdout
    with zipfile.ZipFile(wheel) as archive:
        assert "vips/py.typed" in archive.namelist()
