"""What a command reads: damaged files, pipes and files without a line of names are errors that quote no cell."""

from __future__ import annotations

import gzip
import os
import re
import shlex
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vips.__main__ import main
from vips.tools.commands.files import read_table, read_texts
from vips.tools.commands.reading import Reading

pd = pytest.importorskip("pandas")
FIT = shlex.split("--model logistic --target again --classes no,yes --epsilon 1 --delta 1e-6")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame({"name": ["Amalie Kjær"] * 40, "age": range(40), "again": ["no", "yes"] * 20})
    table.to_csv("t.csv", index=False)
    table.to_csv("t.csv.gz", index=False)
    table.to_parquet("t.parquet")
    table.to_csv("headless.csv", index=False, header=False)
    return tmp_path


@pytest.mark.parametrize(
    "options",
    [
        FIT,
        [*FIT, "--unit", "patient"],
        [*FIT[:2], "--target", "no", *FIT[4:], "--column", "age=0:110"],
        shlex.split("--model topics --text letter --epsilon 1 --delta 1e-6"),
        shlex.split("--model pathways --unit who --event what --order day --catalogue a,b --epsilon 1 --delta 1e-6"),
    ],
)
def test_a_file_without_a_line_of_names_shows_no_cell(folder, capsys, options):
    assert main(["fit", "headless.csv", *options]) == 2
    error = capsys.readouterr().err
    assert "first line" in error
    assert "Amalie" not in error


@pytest.mark.parametrize("name", ["t.csv.gz", "t.parquet"])
def test_damaged_tables_are_errors_of_one_kind_that_quote_nothing(folder, name, capsys):
    whole = (folder / name).read_bytes()
    rng, refused = np.random.default_rng(0), []
    for case in range(200):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), 1 + case % 4):
            damaged[place] ^= 1 << rng.integers(8)
        if case % 3 == 0:
            damaged = damaged[: rng.integers(len(whole))]
        (folder / name).write_bytes(damaged)
        try:
            read_table(name, Reading())
        except ValueError as error:
            refused.append(error)
    assert len(refused) > 20
    known = re.compile("cannot be read as a table|^The (first line|line of names)")  # which is read before the rest
    assert all(known.search(str(error)) for error in refused)
    assert not any("Amalie" in str(error) for error in refused)
    assert {error.__context__ for error in refused} == {None}
    # half a file
    (folder / "t.csv.gz").write_bytes(gzip.compress(b"age,again\n" + b"1,no\n" * 100_000)[:-20])
    assert main(["fit", "t.csv.gz", *FIT, "--column", "age=0:110"]) == 2
    assert "cannot be read as a table" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="pipes")
def test_a_pipe_is_refused_and_not_waited_for(folder, capsys):
    names = ["p.csv", "p.parquet", "p.csv.gz"]
    for name in names:
        os.mkfifo(name)
    ends = []
    reader = threading.Thread(target=lambda: ends.extend(main(["fit", name, *FIT]) for name in names), daemon=True)
    reader.start()
    reader.join(timeout=120)
    assert ends == [2, 2, 2]
    assert capsys.readouterr().err.count("a device or a pipe") == 3
    (folder / "letters").mkdir()
    os.mkfifo("letters/p.txt")
    (folder / "letters" / "a.txt").write_text("harbour")
    assert read_texts("letters", Reading())[0] == ["harbour"]


def test_a_long_catalogue_is_no_file_name(folder, capsys):
    table = pd.DataFrame({"who": np.arange(200) // 2, "day": 1, "what": [f"event {i % 60}" for i in range(200)]})
    table.to_csv("e.csv", index=False)
    command = shlex.split("fit e.csv --model pathways --unit who --event what --order day --epsilon 1 --delta 1e-6")
    command += ["--column", "day=number"]
    assert main([*command, "--catalogue", ",".join(f"event {i}" for i in range(60))]) == 0
    assert "event" in capsys.readouterr().out


@pytest.mark.parametrize("day", ["28.01.2020", "2020-01-28"])
def test_a_fit_of_pathways_needs_to_know_how_texts_of_their_order_are_written_whatever_is_there(folder, capsys, day):
    table = pd.DataFrame({"who": np.arange(40) // 2, "day": day, "what": "a"})
    table.to_csv("e.csv", index=False)
    command = shlex.split("fit e.csv --model pathways --unit who --event what --order day --epsilon 1 --delta 1e-6")
    assert main([*command, "--catalogue", "a,b"]) == 2
    assert "--date-format says" in capsys.readouterr().err
    for stated in (["--date-format", "%d.%m.%Y"], ["--column", "day=number"]):
        assert main([*command, "--catalogue", "a,b", *stated]) == 0
        assert "--date-format says" not in capsys.readouterr().err


def test_inspect_counts_every_line_and_cell(folder, capsys):
    """For the holder's eyes: what a private fit must not say. The numbers are those of a reading by hand."""
    (folder / "t.csv").write_text('age;crp;ward;left\n30;1,5;A;x\n40;<5;b;\n;2,25;A;\n50;"3,0;B;\n60;1\n70;12,0;B;\n')
    options = "--separator ; --decimal , --column age=0:65 --column left=drop --column ward=A,B"
    assert main(["inspect", str(folder / "t.csv"), *shlex.split(options)]) == 0
    page = capsys.readouterr().out.splitlines()
    assert page[0].startswith("2 lines hold no cell")
    assert page[1] == "Not private: for your eyes."
    assert page[2].startswith("age (object), a number from 0 to 65: 3 read; 3 missing; 1 beyond the bounds")
    assert "count as 32.5, the middle" in page[3]
    assert page[4].startswith("crp (object), a number, by its cells: 3 read; 2 missing; 1 not read: '<5' (1)")
    assert "Holds numbers from 1.5 to 12" in page[5]
    assert page[6].startswith("ward (object), one of 2 categories: 3 read; 2 missing; 1 not read: 'b' (1)")
    assert page[7:] == ["What you declare because of this page is not covered by ε."]


def test_inspect_says_of_dates_and_prices_what_to_declare(folder, capsys):
    (folder / "t.csv").write_text("day;price ;left\n01.02.2026;1.200,50;\n 03.04.2026;900,00;\n2026-05-06;<5;\n")
    command = shlex.split("inspect t.csv --separator ;")
    assert main(command) == 0
    page = capsys.readouterr().out
    assert page.count(", or bounds if these are numbers or dates.") == 2
    assert "'price ' (object), a category, by its cells: 3 read" in page
    assert "left (object), no number, date or category: 0 read; 3 missing" in page
    assert "Holds :" not in page
    signs = shlex.split("--decimal , --thousands . --date-format %d.%m.%Y --date-format %Y-%m-%d")
    assert main([*command, *signs]) == 0
    page = capsys.readouterr().out
    assert (
        "day (object), a date, by its cells: 3 read; 0 missing\n    Holds dates from 2026-02-01 to 2026-05-06:" in page
    )
    assert "Holds numbers from 900 to 1200.5:" in page
    assert "1 not read: '<5' (1)" in page


def test_a_text_of_arrow_that_is_no_text_is_an_empty_one(folder):
    """Its bytes are not of UTF-8: one record, which must neither stop a fit nor show in an error."""
    buffers = pa.array([b"red sea", b"\xff", b"blue sky"]).buffers()
    texts = pa.StringArray.from_buffers(3, buffers[1], buffers[2])
    pq.write_table(pa.table({"letter": texts}), folder / "letters.parquet")
    assert read_texts(folder / "letters.parquet", Reading(), "letter")[0] == ["red sea", "", "blue sky"]
