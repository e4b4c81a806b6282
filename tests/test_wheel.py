"""The wheel holds every file that the package reads when it runs."""

import zipfile

import pytest

from tests import ROOT


def test_the_wheel_ships_templates_script_and_style(tmp_path):
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="needs hatchling: pip install --group test")
    (path,) = wheel.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(path) as archive:
        shipped = {name for name in archive.namelist() if name.startswith("vips/")}
    files = {
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "vips").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert shipped == files
    assert {"vips/tools/comparison/templates/report.html", "vips/_pages/templates/shell.html"} <= shipped
    assert {f"vips/tools/comparison/report.{kind}" for kind in ("css", "js")} <= shipped
    assert {f"vips/report/certificate/certificate.{kind}" for kind in ("css", "js")} <= shipped
