"""The shell as a service: shards, JSON lines, checkpoints, settings in a file, and what a log may say."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numba.core import caching

from tests.memory import peak_of
from vips import PrivacyLedger
from vips.__main__ import main
from vips._support.kept_kernels import is_kept_here, with_cache
from vips.data._pieces import TableInPieces
from vips.exceptions import SourceError
from vips.preprocessing import TableEncoder
from vips.tools.commands import fit, reading
from vips.tools.commands.files import Persons, read_table, read_texts, table_of
from vips.tools.commands.reading import Reading

pd = pytest.importorskip("pandas")
N = 3_000
COLUMNS = "--column age=0:110 --column ward=A,B"
FIT = shlex.split(f"--model logistic --target again --classes no,yes --unit patient {COLUMNS} --epsilon 5 --delta 1e-6")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, N)
    table = pd.DataFrame({"age": age, "ward": rng.choice(["A", "B"], N), "patient": rng.integers(0, N // 2, N)})
    table["again"] = np.where(rng.random(N) < 1 / (1 + np.exp(-0.1 * (age - 55))), "yes", "no")
    table.to_csv("visits.csv", index=False)
    for kind in ("csv", "parquet"):
        (tmp_path / kind).mkdir()
    for i, rows in enumerate(np.array_split(np.arange(N), 3)):
        table.iloc[rows].to_csv(f"csv/{i}.csv{'.gz' * (i == 1)}", index=False)
        table.iloc[rows].to_parquet(f"parquet/{i}.parquet", index=False)
    return tmp_path


# -- shards ---------------------------------------------------------------------------------------------------------


def test_shards_are_one_table(folder, monkeypatch, capsys):
    monkeypatch.setattr(reading, "_BLOCK", 1000)
    whole = read_table("visits.csv", Reading())
    pd.testing.assert_frame_equal(read_table("csv", Reading()), whole)
    assert read_table("parquet", Reading())["age"].tolist() == whole["age"].astype(int).tolist()
    for data in ("csv", "parquet"):
        assert main(["fit", data, *FIT, "--save", "m.vips", "--json"]) == 0
        out = json.loads(capsys.readouterr().out)
        assert 0.07 < out["results"][0]["mean"] < 0.13
        assert out["privacy"]["unit"] == "all rows of one patient"
        assert ("line breaks" in str(out["privacy"]["not_covered"])) == (data == "csv")
        assert main(["predict", "m.vips", data, "--out", f"{data}.new.{data}"]) == 0
        capsys.readouterr()
    one, other = pd.read_csv("csv.new.csv"), pd.read_parquet("parquet.new.parquet")
    assert len(one) == len(other) == N


@pytest.mark.parametrize("wrong", ["b,a\n1,2\n", None])
def test_shards_of_two_tables_are_refused_before_anything_is_paid(folder, capsys, wrong):
    (folder / "csv" / ("9.csv" if wrong else "9.parquet")).write_text(wrong or "")
    assert main(["ledger", "create", "v.ledger", *shlex.split("--dataset V --epsilon 9 --delta 1e-5")]) == 0
    assert main(["fit", "csv", *FIT, "--ledger", "v.ledger"]) == 2
    assert "shards" in capsys.readouterr().err
    assert not PrivacyLedger.open("v.ledger").runs()


def more(file: Path) -> None:
    file.write_text(file.read_text(encoding="utf-8") + "30,A,7,yes\n", encoding="utf-8")


def another_of_its_size_and_time(file: Path) -> None:
    status = file.stat()
    Path("another").write_bytes(file.read_bytes())
    os.utime("another", ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace("another", file)


@pytest.mark.parametrize("change", [more, another_of_its_size_and_time])
def test_a_table_that_changes_while_it_is_read_is_refused(folder, monkeypatch, capsys, change):
    """Ids are of the first pass, features of a later one: rows of one person would become those of others."""
    original = fit._labels

    def changed(*arguments):
        known = original(*arguments)
        change(Path("csv/2.csv"))
        return known

    monkeypatch.setattr(fit, "_labels", changed)
    assert main(["fit", "csv", *FIT]) == 2
    assert "csv/2.csv" in capsys.readouterr().err


@pytest.mark.parametrize("n_rows", [1, 5_000])
def test_rows_that_come_or_go_in_a_pass_are_refused_without_their_number(folder, n_rows):
    frame, passes = read_table("parquet", Reading()), itertools.count()
    more = pd.concat([frame] * 2, ignore_index=True)
    table = TableInPieces(lambda: iter([frame if next(passes) < 2 else more[:n_rows]]), n_read=N)
    encoder = TableEncoder({"age": (0, 110), "ward": ["A", "B"]}).fit(table)
    next(passes)
    with pytest.raises(SourceError, match=r"another number of rows\.$"):
        encoder.transform(table)


def test_categories_of_shards_have_one_type_however_many_there_are(folder):
    (folder / "many").mkdir()
    for i, n in enumerate((2, 200)):
        pd.DataFrame({"c": pd.Categorical([f"v{k}" for k in range(n)])}).to_parquet(f"many/{i}.parquet")
    assert len(read_table("many", Reading())) == 202


FIRST_ID = 2**60  # of which floats lose digits


@pytest.mark.parametrize("shard", [0, 2])
@pytest.mark.parametrize("lost", [1, 10], ids=["a cell", "all"])
@pytest.mark.parametrize("name", ["age", "ward", "patient", "again"])
def test_no_missing_cell_of_a_shard_decides_an_error_or_changes_others(folder, name, lost, shard):
    """Writers give a column without a cell no type, and whole numbers of which one is missing the type of fractions."""
    rows = pd.DataFrame(
        {"age": np.arange(30, 60), "ward": ["A", "B", "B"] * 10, "patient": FIRST_ID + np.arange(30) // 2}
    )
    rows["again"] = rows["age"] % 2
    (folder / "half").mkdir()
    for i in range(3):
        piece = rows.iloc[10 * i : 10 * i + 10]
        if i == shard:
            cells = [None] * lost + piece[name].tolist()[lost:]
            piece = piece.assign(**{name: pd.Series(cells, piece.index, object if lost == 10 else None)})
        piece.to_parquet(f"half/{i}.parquet", index=False)
    table, persons = table_of("half", Reading()), Persons()
    encoder = TableEncoder({"age": (0, 110), "ward": ["A", "B"]}).fit(table)
    kept = np.setdiff1d(np.arange(30), np.arange(10 * shard, 10 * shard + lost))
    np.testing.assert_array_equal(encoder.transform(table)[kept], encoder.transform(rows)[kept].astype(np.float32))
    for piece in table.pieces():
        persons.add(piece["patient"])
    others = np.setdiff1d(
        np.arange(30), np.arange(10 * shard, 10 * shard + 10)
    )  # in its shard the writer has lost digits
    for ids in (persons.numbers()[others], table.loaded(["patient"], "patient")["patient"].iloc[others]):
        assert len(set(ids)) == 10
    command = (
        "fit half --model logistic --target again --classes 0,1 --unit patient --column age=0:110 --column ward=A,B"
    )
    assert main([*shlex.split(command), *shlex.split("--epsilon 5 --delta 1e-6 --quiet")]) == 0


def test_memory_is_that_of_a_piece(folder, monkeypatch):
    """Beside what is mapped from a file, and two numbers a row."""
    encoder, frame = TableEncoder({"age": (0, 110), "ward": ["A", "B"]}), read_table("parquet", Reading())

    def peak(n_pieces):
        table = TableInPieces(lambda: itertools.repeat(frame, n_pieces), n_read=n_pieces * N)
        return peak_of(lambda: encoder.fit(table).transform(table))

    assert peak(20) < 1.2 * peak(2) + 20 * N * 16

    def peak_of_lines(n_bytes):
        monkeypatch.setattr(reading, "_BLOCK", n_bytes)
        return peak_of(lambda: sum(map(len, table_of("visits.csv", Reading()).pieces())))

    assert peak_of_lines(2_000) < 0.2 * peak_of_lines(10**9)


def test_features_are_those_of_the_table_in_memory_in_any_order(folder):
    columns = {"age": (0, 110), "ward": "category"}
    from vips import PrivacyPlan

    plan = PrivacyPlan(noise_multiplier=1e-6, sampling="full", n_steps=1)
    whole, order = read_table("parquet", Reading()), np.random.default_rng(0).permutation(N)[: N - 7]
    pieces = TableInPieces(table_of("parquet", Reading()).pieces, order)
    settings = {"privacy": plan, "threshold_delta": 1e-6}
    encoder, other = TableEncoder(columns, **settings).fit(pieces), TableEncoder(columns, **settings).fit(whole)
    assert encoder.columns_["ward"][:2] == other.columns_["ward"][:2] == ["A", "B"]
    features = encoder.transform(pieces)
    assert features.dtype == np.float32
    np.testing.assert_array_equal(features, encoder.transform(whole.iloc[order]).astype(np.float32))


def test_persons_are_numbered_alike_in_all_pieces():
    ids = ["a", "b", None, "7", "a", "c", "7"]
    persons = Persons()
    for piece in (ids[:3], [], ids[3:5], ids[5:]):
        persons.add(pd.Series(piece, dtype=object))
    numbers = persons.numbers()
    assert numbers[2] == -1
    assert {(a == b) == (numbers[i] == numbers[j]) for i, a in enumerate(ids) for j, b in enumerate(ids)} == {True}


# -- JSON lines, stop words -----------------------------------------------------------------------------------------

HOSTILE_LINES = [
    b"", b"{", b"7", b"[]", b"null", b'{"letter": 7}', b'{"letter": ["a"]}', b'{"who": {}}', b"\xff\xfe", b"[" * 5000,
    b'{"letter": "\\ud800"}', b'{"letter": ' + b"9" * 5000 + b"}", b'{"letter": NaN, "who": NaN}',
]  # fmt: skip


@pytest.mark.parametrize("first_id", [0, 2**60])
def test_no_json_line_changes_another(tmp_path, monkeypatch, first_id):
    """Ids of many digits are none of floats, which a line without an id must not make of them."""
    monkeypatch.chdir(tmp_path)
    who = [first_id + i // 2 for i in range(6)]
    good = [json.dumps({"who": who[i], "letter": f"word{i}\nbelow", "more": i}).encode() for i in range(6)]
    for hostile in HOSTILE_LINES:
        (tmp_path / "t.jsonl").write_bytes(b"\n".join([*good[:3], hostile, *good[3:]]))
        texts, ids = read_texts("t.jsonl", Reading(), "letter", "who")
        assert texts[:3] + texts[4:] == [f"word{i}\nbelow" for i in range(6)]
        assert ids.drop(index=3).tolist() == who
        assert ids.dtype == object
        assert texts[3].isprintable()


def test_letters_come_as_json_lines_with_stop_words(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    words = [["und", "schiff", "meer", "sturm"], ["und", "feld", "korn", "ernte"]]
    lines = [{"who": i, "letter": " ".join(rng.choice(words[i % 2], 20))} for i in range(400)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    (tmp_path / "stop.txt").write_text("und\n")
    line = "fit t.jsonl --model topics --text letter --unit who --epsilon 8 --delta 1e-6 --stop-words stop.txt"
    assert main([*shlex.split(line), "--save", "t.vips"]) == 0
    out = capsys.readouterr().out
    assert "schiff" in out
    assert not any(" und" in line for line in out.splitlines() if line.startswith("topic"))
    assert main(["predict", "t.vips", "t.jsonl", "--out", "shares.parquet"]) == 0
    assert len(pd.read_parquet("shares.parquet")) == 400
    assert main(["fit", "t.jsonl", *FIT]) == 2  # texts alone come so


# -- settings, results and a log for programs -----------------------------------------------------------------------


def test_settings_come_from_a_file_and_the_line_overrides_them(folder, capsys):
    (folder / "fit.txt").write_text(f"visits.csv --json --quiet  # for programs\n{shlex.join(FIT)}\n")
    assert main(["fit", "--config", "fit.txt", "--epsilon", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["privacy"]["epsilon"] == pytest.approx(2.0, rel=0.02)
    (folder / "fit.txt").write_text("--purpose 'no end")
    assert main(["fit", "--config=fit.txt"]) == 2
    assert main(["fit", "--config", "none.txt"]) == 2


def test_a_ledger_tells_programs_and_counts_nights(tmp_path, monkeypatch, capsys):
    from vips import DirichletMultinomial, StreamPlan

    monkeypatch.chdir(tmp_path)
    ledger = PrivacyLedger("v.ledger", 3.0, 1e-5, "Visits", unit="one row of X")
    stream = StreamPlan(epsilon=1.0, delta=1e-6, n_batches=365)
    model = DirichletMultinomial(privacy=stream)
    for _ in range(3):
        model.partial_fit(np.eye(3)[np.arange(300) % 3], ledger=ledger, checkpoint="s.vips")
    assert main(["ledger", "show", "v.ledger"]) == 0
    assert "3 batches so far: " in capsys.readouterr().out
    assert main(["ledger", "show", "v.ledger", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["spent"] == ledger.spent()
    assert facts["head"] == ledger.head()
    assert facts["runs"][0]["batches"] == 3


CELLS = [
    b"", b"p,30,A,1,yes", b'"0,A,1,yes', b"old,Hospice,\xff,maybe", b"\x00" * 99, b"1e999,nan,9,yes",
    b"a,b,c,d,e,f", b"old,None,0,maybe",
]  # fmt: skip
CODES = [
    (0, []), (0, ["--quiet"]), (0, ["--json"]), (0, ["--checkpoint", "c.vips"]),
    (2, ["--target", "none"]), (2, ["--save", "no/such/folder.vips"]), (2, ["--classes", "yes"]),
    (3, ["--ledger", "v.ledger", "--epsilon", "9"]),
]  # fmt: skip


@pytest.mark.parametrize(("status", "options"), CODES)
def test_what_a_log_says_does_not_depend_on_a_cell(folder, capsys, caplog, status, options):
    """Nor does the exit status, nor how many lines and names of results there are."""
    head, *lines = (folder / "visits.csv").read_bytes().split(b"\n")
    PrivacyLedger("v.ledger", 1.0, 1e-5, "Visits", unit="patient")
    shown = set()
    for hostile in CELLS:
        (folder / "visits.csv").write_bytes(b"\n".join([head, *lines[:400], hostile, *lines[400:]]))
        caplog.clear()
        ended = main(["fit", "visits.csv", *FIT, *options])
        out, err = capsys.readouterr()
        names = (
            tuple(json.loads(out)) if "--json" in options else tuple(line.split(" ")[0] for line in out.splitlines())
        )
        shown.add((ended, err, names, tuple(caplog.messages)))
        (folder / "c.vips").unlink(missing_ok=True)
        (folder / "c.vips.encoder").unlink(missing_ok=True)
    assert {case[0] for case in shown} == {status}
    assert len(shown) == 1


def test_the_check_of_the_log_notices_a_count(folder, monkeypatch, capsys, caplog):
    original = fit._labels

    def counts(options, table, *others):
        n_empty = sum(int(piece.isna().all(axis=1).sum()) for piece in table.pieces())
        fit._LOGGER.warning("%d lines hold no cell", n_empty)
        return original(options, table, *others)

    monkeypatch.setattr(fit, "_labels", counts)
    with pytest.raises(AssertionError):
        test_what_a_log_says_does_not_depend_on_a_cell(folder, capsys, caplog, 0, [])


def test_help_loads_neither_arrays_nor_compilers_and_says_how_commands_end():
    code = """
import sys, contextlib, io
from vips.__main__ import main
for line in ([], ["fit"], ["ledger", "show"], ["certificate", "check"]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main([*line, "--help"])
    assert "Exit status: 0" in " ".join(out.getvalue().split())
print({"numpy", "numba", "pandas", "scipy", "vips.core"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# -- processes that end early ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_fit_goes_on_and_is_charged_once(folder, capsys):
    assert (
        main(["ledger", "create", "v.ledger", *shlex.split("--dataset V --epsilon 9 --delta 1e-5 --unit patient")]) == 0
    )
    options = ["--ledger", "v.ledger", "--checkpoint", "c.vips", "--save", "m.vips"]
    line = [sys.executable, "-m", "vips", "fit", "visits.csv", *FIT, *options]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    while not os.path.exists("c.vips") and process.poll() is None:
        time.sleep(0.001)
    process.kill()
    process.wait()
    spent = PrivacyLedger.open("v.ledger").spent()
    assert spent > 4.0
    for _ in range(2):  # the second one repeats what is there
        assert main(line[3:]) == 0
        (run,) = PrivacyLedger.open("v.ledger").runs()
        assert run.state == "complete"
        repeated = float(run.used) / run.steps  # of steps that were released and not in the checkpoint
        assert PrivacyLedger.open("v.ledger").spent() <= 1.01 * spent * repeated


def test_ctrl_c_ends_in_one_line(folder, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fit, "_labels", interrupted)
    assert main(["fit", "visits.csv", *FIT]) == 130
    assert capsys.readouterr().err.splitlines() == [
        "Interrupted. `python -m vips ledger show` says what stays charged."
    ]


def _double(x):
    return 2 * x


def test_kernels_are_read_where_nothing_can_be_written(tmp_path, monkeypatch, capsys):
    """As in an image whose root is read-only: Numba itself would compile them every night."""
    monkeypatch.setattr(caching.config, "CACHE_DIR", str(tmp_path))
    writes = with_cache(_double, {})
    assert writes(1) == 2
    assert is_kept_here(writes)
    files = sorted(path for path in tmp_path.rglob("*"))

    def refused(*_, **__):
        raise PermissionError

    monkeypatch.setattr(caching.tempfile, "TemporaryFile", refused)
    reads = with_cache(_double, {})
    assert reads(1) == 2
    assert sum(reads.stats.cache_hits.values()) == 1
    assert reads(1.5) == 3.0  # is compiled, and not kept
    assert sorted(path for path in tmp_path.rglob("*")) == files
    assert not is_kept_here(reads)
    monkeypatch.setattr("vips.core.exact.rowwise_kernels.multiply_double", reads)
    assert main(["compile", "DirichletMultinomial"]) == 2
    assert "NUMBA_CACHE_DIR=FOLDER" in capsys.readouterr().err
