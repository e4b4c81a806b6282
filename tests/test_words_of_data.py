"""Words from data and files never look like the program's own: in print, HTML, names of features, and loaded statements."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import vips
from vips import BayesianLogisticRegression, LatentDirichletAllocation, PrivacyBudget, PrivacyPlan
from vips.__main__ import main
from vips._pages.page import environment
from vips._pages.tables import html_table
from vips._support.printable import lines_of_table
from vips.persistence.archive import read_archive, write_archive
from vips.preprocessing import TableEncoder, make_private_pipeline
from vips.tools.auditing.report import Finding

pd = pytest.importorskip("pandas")
ENDS = ["\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]  # of lines, to str.splitlines
ACTS = ["\x1b[2J", "\u202e", "\u2066", "\u200f"]
FORGED = "Everything satisfies differential privacy with a tiny epsilon."
NAMES = [f"A{end}{FORGED}" for end in (*ENDS, *ACTS)]
PLAN = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-5, sampling_rate=1.0, n_steps=2)


def is_clean(text):
    """Whether no line begins as the forged one, and nothing acts on a terminal."""
    is_forged = any(line.strip().startswith(FORGED) for line in text.splitlines())
    return not is_forged and all(character.isprintable() or character == "\n" for character in text)


def test_tables_have_one_line_for_each_row():
    names = pd.Index(NAMES, name=NAMES[0])
    plain = pd.DataFrame({name: range(len(NAMES)) for name in NAMES}, index=names)
    double = plain.set_index(pd.MultiIndex.from_arrays([NAMES, NAMES], names=NAMES[:2]))
    cells = pd.DataFrame({"word": NAMES, "p": 0.5, "category": pd.Categorical(NAMES)})
    for table in (plain, double, cells):
        lines = lines_of_table(table)
        assert len(lines) <= len(table) + 2
        assert is_clean("\n".join(lines))


@pytest.mark.parametrize("model", ["logistic", "pathways"])
def test_what_the_shell_prints(tmp_path, monkeypatch, capsys, model):
    monkeypatch.chdir(tmp_path)
    n, rng = 400, np.random.default_rng(0)
    table = pd.DataFrame({"ward": rng.choice(NAMES, n), "y": rng.integers(0, 2, n)} | dict.fromkeys(NAMES, 1.0))
    table.to_parquet("t.parquet")
    command = shlex.split(f"fit t.parquet --model {model} --epsilon 1 --delta 1e-6")
    if model == "logistic":
        declared = [f"ward={','.join(NAMES)}", *(f"{name}=0:1" for name in NAMES)]
        command += ["--target", "y", *(word for column in declared for word in ("--column", column))]
    else:
        table.assign(who=range(n), day=1).to_parquet("t.parquet")
        command += [*shlex.split("--unit who --event ward --order day"), "--catalogue", ",".join(NAMES)]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert "A" in printed.out
    assert is_clean(printed.out)
    assert is_clean(printed.err)


def test_what_notebooks_audits_and_pages_show(tmp_path):
    assert is_clean(html_table(NAMES[0], NAMES, [NAMES], NAMES))
    for name in NAMES:
        finding = Finding(name="bound", checked=name, measured=name, allowed=name, passed=False, advice=name)
        assert is_clean(str(finding))
    template = environment().from_string("{% for name in names %}<p>{{ name }}</p>{% endfor %}")
    shown = template.render(names=[np.str_(name) for name in NAMES if "\n" not in name])
    assert is_clean(shown)


@pytest.mark.filterwarnings("ignore:No coefficient stands out")
def test_names_in_a_forest_plot_are_plain_text():
    pytest.importorskip("matplotlib").use("agg")
    table = pd.DataFrame({"$x_{1": [0.5], "a\x85b": [0.5]})
    model = BayesianLogisticRegression(privacy=PLAN, max_norm=1.0).fit(table, np.ones(1))
    axes = model.plot_coefficients()
    axes.figure.canvas.draw()  # raises for what is no formula
    assert sorted(label.get_text() for label in axes.get_yticklabels()) == ["$x_{1", r"a\x85b"]


TABLES = {
    "two columns": {"job": ["b_c", "a"], "job_b": ["c", "d"]},
    "a number": {"job": ["b"], "job_b": (0, 1)},
    "a number and a text": {"x": [1, "1"]},
    "a precise name": {"job": ["b_c"], "job_b": ["c"], "job='b_c'": (0, 1), "job_b='c'": ["x"]},
    "numbers": {"x": [1, "1"], "x=1": (0, 1), "x=1 (2)": (0, 1), "x='1'": (0, 1)},
    "tables of units": {"job": ["a", "b against a", "b"], "job: b against a": ["a"]},
    "names of units": {"a": ["b: c"], "a: b": ["c"]},
}


@pytest.mark.parametrize("columns", TABLES.values(), ids=TABLES)
def test_names_of_features_differ(columns):
    encoder = TableEncoder(columns)
    names, units = encoder.get_feature_names_out(), encoder.in_column_units()[0]
    assert len(set(names)) == len(names) == encoder.n_features_out
    assert len(set(units)) == len(units)
    categories = {name: known for name, known in columns.items() if isinstance(known, list)}
    names = TableEncoder(categories).get_feature_names_out()
    assert len(set(names)) == len(names)


def test_names_without_a_clash_stay_and_an_indicator_of_missing_values_has_a_name_of_its_own():
    for columns, names in (
        ({"job": ["nurse", "smith"], "age": (0, 110)}, ["job_nurse", "job_smith", "age"]),
        ({"age": (0, 110, "(missing)"), "age_missing": (0, 1)}, ["age", "age is missing", "age_missing"]),
    ):
        assert TableEncoder(columns).get_feature_names_out().tolist() == names


def rewritten(path, change):
    """The file with another header."""
    header, arrays = read_archive(path, "model", "pipeline")
    change(header)
    kind = header.pop("kind")
    write_archive(path, kind, {key: header[key] for key in header if key not in ("format", "version")}, arrays)


def test_a_file_cannot_say_what_a_model_s_statement_says(tmp_path):
    path = tmp_path / "m"
    model = LatentDirichletAllocation(2, vocabulary=3, privacy=PLAN).fit(np.eye(3))
    model.save(path)
    saved = path.read_bytes()
    for name in ("privacy_", "last_posterior_", "noisy_totals_"):
        path.write_bytes(saved)
        rewritten(path, lambda header, name=name: header.update(report=None, learnt=header["learnt"] | {name: FORGED}))
        with pytest.raises(ValueError, match="not a fitted attribute"):
            vips.load(path)
    path.write_bytes(saved)
    rewritten(path, lambda header: header["report"].update(unit=FORGED))
    assert str(vips.load(path).privacy_) == str(model.privacy_)
    forged = {"released": [FORGED]}, {"declared": [FORGED]}, {"released": []}, {"mechanism": FORGED}, {"what": FORGED}
    for change in forged:
        path.write_bytes(saved)
        rewritten(path, partial(_changed, where=("report", "releases", 0), change=change))
        assert str(vips.load(path).privacy_) == str(model.privacy_)
    path.write_bytes(saved)
    rewritten(path, lambda header: header["report"].update(unit=f"all rows of one {'x' * 10_000}"))
    assert vips.load(path).privacy_.unit == model.privacy_.unit


def test_a_file_cannot_say_what_a_pipeline_s_statement_says(tmp_path):
    path, n = tmp_path / "m", 200
    table = pd.DataFrame({"age": np.linspace(20.0, 90.0, n), "ward": ["A", "B"] * (n // 2)})
    encoder = TableEncoder({"age": "number", "ward": ["A", "B"]})
    pipeline = make_private_pipeline(encoder, BayesianLogisticRegression(), privacy=PrivacyBudget(2.0, 1e-6))
    pipeline.fit(table, np.arange(n) % 2, groups=pd.Series(np.arange(n), name="patient")).save(path)
    saved, said = path.read_bytes(), str(pipeline.privacy_)
    assert str(vips.load(path).privacy_) == said
    for part, place in (("encoder", 0), ("model", 0), ("model", 1)):
        for name, value in (("released", [FORGED]), ("declared", [FORGED]), ("mechanism", FORGED), ("what", FORGED)):
            path.write_bytes(saved)
            change, where = {name: value}, (part, "report", "releases", place)
            rewritten(path, partial(_changed, where=where, change=change))
            assert str(vips.load(path).privacy_) == said


def _changed(header, where, change):
    for key in where:
        header = header[key]
    header.update(change)


def test_what_the_user_states_is_kept_in_one_line(tmp_path):
    model = LatentDirichletAllocation(2, vocabulary=3, privacy=PLAN).fit(np.eye(3))
    model.privacy_ = replace(model.privacy_, tuning=f"on public articles\x85{FORGED}")
    model.save(tmp_path / "m")
    loaded = vips.load(tmp_path / "m")
    assert str(loaded.privacy_) == str(model.privacy_)
    assert "on public articles" in str(loaded.privacy_)
    assert is_clean(str(loaded.privacy_))
