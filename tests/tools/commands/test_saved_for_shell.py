"""What ``fit --save`` writes is one file, which ``predict`` and ``vips.load`` read; a forged one is an error in words."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
from dataclasses import asdict

import numpy as np
import pytest

import vips
from vips import CategoricalHMM, PrivacyPlan
from vips.__main__ import main
from vips.persistence.archive import read_archive, write_archive
from vips.tools.commands.reading import Reading

pytestmark = pytest.mark.usefixtures("few_iterations", "one_thread")

pd = pytest.importorskip("pandas")
FIT = shlex.split(
    "fit visits.csv --model logistic --target again --column age=0:110 --epsilon 8 --delta 1e-6 --classes"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table and a model that is fitted to it."""
    folder, rng = tmp_path_factory.mktemp("made"), np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(18, 90, 600)})
    table["again"] = np.where(rng.random(600) < 1 / (1 + np.exp(-0.1 * (table["age"] - 58))), "yes", "no")
    with contextlib.chdir(folder):
        table.to_csv("visits.csv", index=False)
        assert main([*FIT, "no,yes", "--save", "m.vips"]) == 0
        assert sorted(os.listdir()) == ["m.vips", "visits.csv"], "one file holds everything"
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """Both, in the working folder."""
    monkeypatch.chdir(tmp_path)
    for path in made.iterdir():
        shutil.copy(path, tmp_path)
    return tmp_path


def predictions(path):
    assert main(["predict", path, "visits.csv", "--out", "new.csv"]) == 0
    return pd.read_csv("new.csv")


def test_one_file_holds_everything(folder):
    """So a process that is killed in a second fit leaves one model or the other, whichever is yes."""
    predicted = predictions("m.vips")
    os.rename("m.vips", "moved.vips")
    pd.testing.assert_frame_equal(predictions("moved.vips"), predicted)
    table = pd.read_csv("visits.csv")[["age"]]
    np.testing.assert_array_equal(vips.load("moved.vips").predict_proba(table)[:, 1], predicted["P(yes)"])


def test_a_second_fit_that_is_killed_flips_no_prediction(folder, monkeypatch, capsys):
    before, replace = predictions("m.vips"), os.replace
    kept = []

    def killed(source, target):
        kept.append(replace(source, target))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    assert main([*FIT, "yes,no", "--save", "m.vips"]) == 130
    assert capsys.readouterr().err.startswith("Interrupted. ")
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert kept  # the new file is in its place
    after = predictions("m.vips")
    assert list(after.columns[-1:]) == ["P(no)"]
    old = after["age"] > 80
    assert before["P(yes)"][old].min() > 0.5 > after["P(no)"][old].max()


def test_a_model_that_python_saved_is_refused_in_words(folder, capsys):
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=1)
    CategoricalHMM(2, n_symbols=2, privacy=plan).fit([np.array([0, 1])]).save("h.vips")
    assert main(["predict", "h.vips", "visits.csv", "--out", "new.csv"]) == 2
    assert "was saved from Python" in capsys.readouterr().err


READING = asdict(Reading())
WRONG = [
    {"model": "pathways"}, {"model": "topics"}, {"model": ["logistic"]}, {"model": None}, {"columns": None}, {"columns": "age"},
    {"columns": [1]}, {"columns": ["nobody"]}, {"classes": ["yes"]}, {"classes": [0, 1]}, {"declared": {}},
    {"declared": [None]}, {"declared": ["a:b"]}, {"declared": []}, {"more": 1}, {"reading": None}, {"reading": {}},
    {"reading": READING | {"separator": 7}}, {"reading": READING | {"missing": [7]}},
    {"reading": READING | {"date_formats": "%Y"}}, {"reading": READING | {"date_formats": ["%d"]}},
    {"reading": READING | {"encoding": "none"}}, {"reading": READING | {"decimal": "ab"}}, {"reading": READING | {"more": "a"}},
]  # fmt: skip


@pytest.mark.parametrize("change", [*WRONG, [], 7, "logistic"], ids=json.dumps)
def test_forged_settings_are_an_error_in_words(folder, capsys, change):
    header, arrays = read_archive("m.vips", "pipeline", "model")
    shell = header["shell"] | change if isinstance(change, dict) else change
    kind = header.pop("kind")
    write_archive("m.vips", kind, {**header, "shell": shell}, arrays)
    capsys.readouterr()
    assert main(["predict", "m.vips", "visits.csv", "--out", "new.csv"]) == 2
    assert capsys.readouterr().err.startswith("ValueError: ")
