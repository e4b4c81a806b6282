"""Private fits from the shell: what a person who does not program types."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import warnings

import numpy as np
import pytest

import vips
from tests.mutants import add
from vips import ConjugateExponentialModel
from vips.__main__ import main
from vips.core.ledger.ledger import PrivacyLedger
from vips.datasets import make_pathways
from vips.tools.commands import fit
from vips.tools.commands.compile import models_compiled
from vips.tools.commands.files import as_declared, declarations_of, read_table, sequences_of
from vips.tools.commands.reading import Reading

pd = pytest.importorskip("pandas")
SPENDS = ["--epsilon", "1", "--delta", "1e-6"]


@pytest.fixture
def visits(folder):
    rng = np.random.default_rng(0)
    n = 3_000
    age = rng.normal(58, 17, n).clip(18, 100).round()
    table = pd.DataFrame({"patient": rng.integers(0, 1_500, n), "age": age, "ward": rng.choice(["A", "B"], n)})
    table["again"] = np.where(rng.random(n) < 1 / (1 + np.exp(-0.1 * (age - 58))), "yes", "no")
    table.to_csv("visits.csv", index=False)
    line = "fit visits.csv --model logistic --target again --classes no,yes --unit patient"
    return [*shlex.split(line), "--column", "age=number", "--column", "ward=A,B", *SPENDS]


def test_a_table_from_budget_to_predictions(visits, folder, capsys):
    line = "ledger create v.ledger --dataset Visits --epsilon 10 --delta 1e-6 --unit patient"
    assert main(shlex.split(line)) == 0
    declared = ["--column", "age=0:110", "--column", "ward=A,B", "--epsilon", "8"]
    outputs = ["--save", "m.vips", "--report", "page.html", "--chosen-by", "the board", "--responsible", "a clinic"]
    assert main([*visits, *declared, "--ledger", "v.ledger", *outputs]) == 0
    out = capsys.readouterr().out
    assert main(shlex.split("certificate check page.html --model m.vips --ledger v.ledger")) == 0
    checked = capsys.readouterr().out
    assert "data set of entry" in checked
    assert "note    chosen by, stated by people: the board: nothing vouches for it" in checked
    assert "note    responsible, stated by people: a clinic" in checked
    age = next(line.split() for line in out.splitlines() if line.startswith("age"))
    assert 0.07 < float(age[1]) < 0.14  # 0.1, with noise of 0.004
    assert "Unit: all rows of one patient." in out
    spent = PrivacyLedger.open("v.ledger").spent()
    assert 7.0 < spent < 10.0
    assert main(["predict", "m.vips", "visits.csv", "--out", "new.csv"]) == 0
    predictions = pd.read_csv("new.csv")
    assert len(predictions) == 3_000
    old, young = predictions["age"] > 80, predictions["age"] < 35
    assert predictions.loc[old, "P(yes)"].mean() > predictions.loc[young, "P(yes)"].mean() + 0.2
    assert main([*visits, *declared, "--ledger", "v.ledger"]) == 3  # a second fit of this size is beyond the budget
    assert "PrivacyBudgetError" in capsys.readouterr().err
    assert PrivacyLedger.open("v.ledger").spent() == spent


@pytest.mark.parametrize("classes", ["no,yes", "yes,no"])
def test_the_second_class_is_yes(visits, folder, capsys, classes):
    second = classes.split(",")[1]
    assert main([*visits, "--classes", classes, "--column", "age=0:110", "--epsilon", "8", "--save", "m.vips"]) == 0
    out = capsys.readouterr().out
    age = next(line.split() for line in out.splitlines() if line.startswith("age"))
    assert float(age[1]) * (1 if second == "yes" else -1) > 0.07
    assert f"log odds of again = '{second}' " in out
    assert main(["predict", "m.vips", "visits.csv", "--out", "new.csv"]) == 0
    predictions = pd.read_csv("new.csv")
    mean = predictions.groupby("again")[f"P({second})"].mean()
    assert mean[second] > mean.drop(second).item() + 0.1


@pytest.mark.parametrize(
    ("dtype", "ending"), [(float, "parquet"), ("Int8", "parquet"), (bool, "parquet"), (float, "csv")]
)
def test_a_target_of_numbers_needs_no_names(visits, folder, capsys, dtype, ending):
    table = pd.read_csv("visits.csv")
    table["again"] = (table["again"] == "yes").astype(dtype)
    table.to_parquet("t.parquet") if ending == "parquet" else table.to_csv("t.csv", index=False)
    command = shlex.split(
        f"fit t.{ending} --model logistic --target again --unit patient --column age=0:110 --delta 1e-6 --epsilon 8"
    )
    classes = ["--classes", "0,1"] if ending == "csv" else []
    assert main([*command, "--column", "ward=drop", "--save", "m.vips", *classes]) == 0
    age = next(line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("age"))
    assert float(age[1]) > 0.07
    assert main(["predict", "m.vips", f"t.{ending}", "--out", "new.csv"]) == 0
    assert pd.read_csv("new.csv")["P(1)"].between(0, 1).all()


def test_a_target_of_texts_needs_names(visits, folder, capsys):
    pd.read_csv("visits.csv").to_parquet("visits.parquet")
    for path in ("visits.csv", "visits.parquet"):
        command = shlex.split(f"fit {path} --model logistic --target again --unit patient")
        assert main([*command, *SPENDS]) == 2
        assert "as in --classes no,yes" in capsys.readouterr().err


def test_a_model_is_saved_before_anything_is_printed(visits, folder, monkeypatch):
    def gone(*_, **__):
        raise BrokenPipeError

    add(monkeypatch, fit, "print", gone)
    assert main([*visits, "--save", "m.vips", "--report", "page.html"]) == 141  # as if SIGPIPE had ended it
    assert all((folder / name).stat().st_size for name in ("m.vips", "page.html"))


@pytest.mark.slow
def test_pathways(folder, capsys):
    made = make_pathways(1_000, random_state=0)
    pd.DataFrame({"who": made.patient, "day": made.day, "what": made.event}).to_csv("events.csv", index=False)
    (folder / "catalogue.txt").write_text("\n".join(made.event_names))
    command = ["fit", "events.csv", "--model", "pathways", "--unit", "who", "--event", "what", "--order", "day"]
    command += ["--column", "day=number"]
    assert main([*command, "--catalogue", "catalogue.txt", *SPENDS, "--epsilon", "4", "--save", "h.vips"]) == 0
    out = capsys.readouterr().out
    assert "physiotherapy (" in out
    assert "line breaks in a cell" in out  # a CSV file
    assert main(["predict", "h.vips", "events.csv", "--out", "states.csv"]) == 0
    states = pd.read_csv("states.csv")
    assert len(states) == len(made.day)
    assert (states.groupby("who")["day"].diff().dropna() >= 0).all()
    stage = pd.DataFrame({"who": made.patient, "day": made.day, "stage": made.stage})
    stage, both = (table.sort_values(["who", "day"], kind="stable") for table in (stage, states))
    table = pd.crosstab(both["state"].to_numpy(), stage["stage"].to_numpy())
    assert table.max(axis=1).sum() / len(states) > 0.8


WORDS = [["ship", "sea", "storm", "sails", "harbour"], ["rye", "barley", "field", "harvest", "plough"]]
TEXTS = [" ".join(np.random.default_rng(i).choice(WORDS[i % 2], 20)) for i in range(300)]


def test_texts(folder, capsys):
    (folder / "letters").mkdir()
    for i, text in enumerate(TEXTS):
        (folder / "letters" / f"{i:04d}.txt").write_text(text)
    outputs = ["--epsilon", "8", "--save", "t.vips", "--report", "page.html"]
    assert main(["fit", "letters/", "--model", "topics", *SPENDS, *outputs]) == 0
    assert "<dt>Data set</dt><dd><bdi>letters</bdi></dd>" in (folder / "page.html").read_text(encoding="utf-8")
    out = capsys.readouterr().out
    assert re.search(r"^topic 0 \((real|doubtful|noise)\):", out, re.MULTILINE)
    assert "harbour" in out
    assert main(["predict", "t.vips", "letters", "--out", "shares.csv"]) == 0
    shares = pd.read_csv("shares.csv")
    assert len(shares) == 300
    np.testing.assert_allclose(shares.drop(columns="text").sum(axis=1), 1.0, atol=1e-5)
    new = pd.DataFrame({"letter": ["ship sea"]})
    new.to_parquet("new.parquet")
    assert main(["predict", "t.vips", "new.parquet", "--out", "new.csv"]) == 2
    error = capsys.readouterr().err
    assert "write each text into a .txt file, and name their folder" in error
    assert not set(re.findall(r"--[a-z]+", error))  # `predict` has no option that would help
    (folder / "new" / "of" / "ann").mkdir(parents=True)
    (folder / "new" / "of" / "ann" / "0.TXT").write_text(new["letter"][0])
    assert main(["predict", "t.vips", "new", "--out", "new.csv"]) == 0
    assert pd.read_csv("new.csv")["text"].tolist() == ["of/ann/0.TXT"]
    assert main(["predict", "t.vips", "new", "--out", "new/1.TXT"]) == 2  # the next one would read it as a letter


@pytest.mark.slow
def test_texts_of_persons(folder, capsys):
    """In folders, and in a table: the same persons, who are protected with all their texts."""
    writers = [f"w{i // 2:04d}" for i in range(300)]
    for i, (writer, text) in enumerate(zip(writers, TEXTS, strict=True)):
        (folder / "letters" / writer / str(i % 2)).mkdir(parents=True)
        (folder / "letters" / writer / str(i % 2) / "a.txt").write_text(text)
    table = pd.DataFrame({"writer": writers, "letter": TEXTS})
    table.loc[0, "letter"] = None
    table.to_parquet("letters.parquet")
    for data, options, unit in (
        ("letters", ["--unit", "folder"], "folder"),
        ("letters.parquet", ["--text", "letter", "--unit", "writer"], "writer"),
    ):
        assert main(["fit", data, "--model", "topics", *options, *SPENDS, "--epsilon", "16", "--save", "t.vips"]) == 0
        out = capsys.readouterr().out
        assert f"Unit: all rows of one {unit}." in out
        assert "harbour" in out
        assert "line breaks in a cell" not in out
        assert main(["predict", "t.vips", data, "--out", "shares.csv"]) == 0
        shares = pd.read_csv("shares.csv")
        assert len(shares) == 300
        np.testing.assert_allclose(shares.filter(like="topic").sum(axis=1), 1.0, atol=1e-5)
    assert shares.columns[0] == "writer"
    capsys.readouterr()
    for wrong, message in (
        (["letters"], "write --unit folder"),
        (["letters", "--unit", "writer"], "A folder has no columns"),
        (["letters.parquet"], "--text names the column"),
        (["letters.parquet", "--text", "writer", "--unit", "who"], "--unit: the table has no column 'who'"),
    ):
        assert main(["fit", *wrong, "--model", "topics", *SPENDS]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--target", "none"], "--target: the table has no column 'none'"),
        (["--unit", "nobody"], "--unit: the table has no column 'nobody'"),
        (["--classes", "yes"], "--classes names the two values"),
        (["--column", "age=old:young"], "must be two numbers or two dates"),
        (["--column", "colour=number"], "with a column of the table, which the first line of a CSV file names.\n"),
        (["--column", "Age =number"], "There is 'age'."),
        (["--unit", "patient "], "There is 'patient'."),
        (["--column", "age=0:110,missing"], "',(missing)'"),
        (["--save", "no/such/folder.vips"], "There is no folder"),
        (["--epsilon", "-1"], "epsilon"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence_before_anything_is_paid(visits, change, message, capsys):
    PrivacyLedger("v.ledger", 2.0, 1e-6, "Visits", unit="patient")
    capsys.readouterr()
    assert main([*visits, *change, "--ledger", "v.ledger"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert PrivacyLedger.open("v.ledger").spent() == 0.0


def test_files_that_are_no_data(visits, folder, capsys):
    for name in ("none.csv", "none.parquet"):
        assert main(["fit", name, *visits[2:]]) == 2
        assert f"There is no file '{name}'." in capsys.readouterr().err
    assert main(["fit", "visits.xlsx", *visits[2:]]) == 2
    assert ".parquet, .csv" in capsys.readouterr().err
    assert main(["fit", "visits.csv", "--model", "topics", *SPENDS]) == 2
    assert "is not a folder" in capsys.readouterr().err


def _pathways_of(path, *names):
    needs = dict(zip(("unit", "event", "order"), names, strict=True), catalogue=["0", "1"])
    return sequences_of(read_table(path, Reading()), needs, Reading())[0]


@pytest.mark.parametrize("name", ["code", "row", "unit"])
def test_pathways_are_of_persons_whatever_their_column_is_called(folder, name):
    table = pd.DataFrame({name: np.repeat(np.arange(5), 4), "day": np.tile(np.arange(4), 5), "event": [0, 1] * 10})
    table.to_csv("e.csv", index=False)
    assert list(_pathways_of("e.csv", name, "event", "day").lengths) == [4] * 5
    table = table.rename(columns={"day": name, name: "who"}).sample(frac=1.0, random_state=0)
    table.to_csv("e.csv", index=False)
    assert list(_pathways_of("e.csv", "who", "event", name).values.ravel()) == [0, 1] * 10


def test_one_column_is_not_two(folder, capsys):
    pd.DataFrame({"a": [1, 2], "b": [1, 2]}).to_csv("e.csv", index=False)
    command = "fit e.csv --model pathways --unit a --event b --order a --catalogue 1,2"
    assert main([*shlex.split(command), *SPENDS]) == 2
    assert "three different columns" in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("column", "odd"), [("who", "X9"), ("who", None), ("day", "soon"), ("day", None), ("event", None)]
)
def test_an_odd_value_changes_no_other_pathway(folder, ending, column, odd):
    if ending == "parquet" and odd is not None:
        pytest.skip("columns of Parquet have types of their own")
    n = 40_000 if odd == "X9" else 1_000
    table = pd.DataFrame({"who": np.arange(n) % (n // 20), "day": np.arange(n) // 3, "event": np.arange(n) % 2})
    table["who"] += 2**60
    types = table.convert_dtypes()
    changed = types if odd is None else table.astype({column: object})
    changed.loc[n - 1, column] = pd.NA if odd is None else odd
    pathways = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for events in (types, changed):
            events.to_csv("e.csv", index=False) if ending == "csv" else events.to_parquet("e.parquet")
            pathways.append(_pathways_of(f"e.{ending}", "who", "event", "day"))
    before, after = ([steps.tobytes() for steps in sequences] for sequences in pathways)
    assert before[: n // 20 - 1] == after[: n // 20 - 1]


@pytest.mark.parametrize(
    ("column", "odd"),
    [("y", ""), ("y", "maybe"), ("age", "abc"), ("age", ""), ("ward", "Z"), ("ward", ""), ("id", "X9")],
)
def test_an_odd_value_changes_no_other_row_of_a_declared_column(folder, column, odd):
    tables, declared = [], ["age=0:110", "ward=1,2,3"]
    table = pd.DataFrame({"id": np.arange(50) // 2, "age": np.arange(50), "ward": np.arange(50) % 3 + 1, "y": 1})
    for value in (None, odd):
        table = table.astype({column: object})
        if value is not None:
            table.loc[49, column] = value
        table.to_csv("t.csv", index=False)
        table = read_table("t.csv", Reading())
        kinds = declarations_of(table, ["id=category", *declared, "y=category"], Reading())
        tables.append(as_declared(table, kinds, Reading()))
    assert (tables[0].dtypes == tables[1].dtypes).all()
    assert tables[0][:49].equals(tables[1][:49])


def test_a_missing_number_changes_no_dtype_of_parquet(folder):
    types = pd.DataFrame({"id": [2**60, 2**60 + 1], "y": [1, 1]}).convert_dtypes()
    types.loc[1] = [pd.NA, pd.NA]
    types.to_parquet("t.parquet")
    table = read_table("t.parquet", Reading())
    assert table["id"][0] == 2**60
    assert table["y"].astype(str)[0] == "1"


PLAN = "plan --model logistic --records 3000 --delta 1e-6 --column age=18:100"


def test_a_plan_says_widths_and_reads_nothing(folder, capsys):
    columns = "--column ward=A,B --column seen=2019-01-01:2021-12-31"
    assert main(shlex.split(f"{PLAN} {columns} --epsilon 1")) == 0
    widths = {row.split()[0]: float(row.split()[-2]) for row in capsys.readouterr().out.splitlines()[3:]}
    assert 0.007 < widths["age"] < 0.02
    assert set(widths) == {"age", "ward:", "seen", "intercept"}
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_a_plan_says_the_epsilon_and_reads_nothing(folder, capsys):
    assert main(shlex.split(f"{PLAN} --width age=0.02")) == 0
    assert float(re.search(r"ε = ([\d.]+)", capsys.readouterr().out)[1]) < 0.3
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--model logistic --epsilon 1 --column age=0:9", "needs --records"),
        ("--model logistic --records 900 --epsilon 1", "each column of the table"),
        ("--model logistic --records 900 --column age=0:9", "Give --epsilon"),
        ("--model logistic --records 900 --column age=0:9 --width age", "NAME=NUMBER"),
        ("--model logistic --records 900 --column age=0:9 --width old=1", "names old; there are: age, intercept"),
        ("--model pathways --records 900 --epsilon 1", "--events"),
        ("--epsilon 1", "exactly two"),
    ],
)
def test_plans_name_the_option_that_helps(folder, capsys, line, says):
    assert main(["plan", "--delta", "1e-6", *shlex.split(line)]) == 2
    assert says in capsys.readouterr().err


def test_weights_of_a_survey_count_and_what_is_no_weight_counts_for_nothing(folder, capsys):
    rng, n = np.random.default_rng(0), 6_000
    old = rng.random(n) < 0.5
    ill = rng.random(n) < np.where(old, 0.9, 0.1)
    weights = np.where(old, "0,1", np.where(rng.random(n) < 0.1, "n/a", "2,0"))
    table = pd.DataFrame({"age": rng.integers(20, 80, n), "ill": ill.astype(int), "w": weights})
    table.to_csv("s.csv", sep=";", index=False)
    line = shlex.split(
        "fit s.csv --model logistic --target ill --classes 0,1 --column age=20:80 --epsilon 8 --delta 1e-6 --separator ;"
    )
    means = {}
    for name, options in (("weighted", "--weight w --max-weight 2 --decimal ,"), ("plain", "--column w=drop")):
        assert main([*line, *shlex.split(options), "--save", f"{name}.vips"]) == 0
        assert main(["predict", f"{name}.vips", "s.csv", "--out", f"{name}.csv", "--separator", ";"]) == 0
        means[name] = pd.read_csv(f"{name}.csv").iloc[:, -1].mean()
    assert means["weighted"] < 0.3 < means["plain"]
    assert "max_weight = 2" in capsys.readouterr().out
    assert main([*line, "--weight", "w"]) == 2
    assert "give both" in capsys.readouterr().err


FITS = {
    "DirichletMultinomial": "DirichletMultinomial(privacy=PrivacyBudget(1.0, 1e-6)).fit(np.eye(4)).posterior_.mean",
    "BayesianLogisticRegression": "model = BayesianLogisticRegression(max_norm=3.0, privacy=PrivacyBudget(1.0, 1e-6));"
    "X = np.random.default_rng(0).normal(size=(500, 3)); model.fit(X, (X[:, 0] > 0).astype(int));"
    "model.summary(), model.predict_proba(X)",
}


@pytest.mark.slow
@pytest.mark.repeated("BayesianLogisticRegression")
@pytest.mark.parametrize("name", FITS)
def test_compiled_kernels_are_all_that_a_fit_needs(tmp_path, name):
    code = f"""
import os, pathlib, numpy as np
from vips import *
from vips.__main__ import main
def kernels():
    return sorted(path.name for path in pathlib.Path(os.environ["NUMBA_CACHE_DIR"]).rglob("*.nbc"))
assert main(["compile", "{name}"]) == 0
compiled = kernels()
{FITS[name]}
assert compiled and kernels() == compiled, set(kernels()) - set(compiled)
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)})


def test_every_model_is_compiled(capsys):
    models = {name for name in vips.__all__ if isinstance(getattr(vips, name), type(ConjugateExponentialModel))}
    models = {name for name in models if issubclass(getattr(vips, name), ConjugateExponentialModel)}
    assert {name for name, _ in models_compiled()} == models - {"ConjugateExponentialModel"}
    assert main(["compile", "Nothing"]) == 2
    assert "No model is called Nothing" in capsys.readouterr().err
