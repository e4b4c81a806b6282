"""How commands read tables: a line is a record and is parsed alone, a cell means what its column is declared to be."""

from __future__ import annotations

import csv
import io
import re
import shlex
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vips.__main__ import main
from vips.tools.commands.files import as_declared, in_order, places_of, read_table, read_texts
from vips.tools.commands.reading import Reading

pd = pytest.importorskip("pandas")
N = 3_000
SPENDS = ["--epsilon", "5", "--delta", "1e-6"]
FIT = shlex.split("--model logistic --target again --unit patient") + SPENDS
NAMES = ["patient", "age", "ward", "day", "again"]
DECLARED = {"age": "0:110", "ward": "A,B", "day": "date"}
GERMAN = Reading(";", ",", ".", "cp1252", ("%d.%m.%Y",), ("?",))


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Visits, where age has a slope of 0.08 and ward B one of 1.3 against A; all cells are texts."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    age, ward = rng.integers(18, 90, N), rng.choice(["A", "B", "C"], N)
    again = rng.random(N) < 1 / (1 + np.exp(-(0.08 * (age - 55) + 1.3 * (ward == "B") - 0.5)))
    cells = {"patient": [f"{i // 2:07d}" for i in range(N)], "age": age.astype(str), "ward": ward}
    return pd.DataFrame({**cells, "again": np.where(again, "yes", "no")})


def written(table, **settings):
    table.to_csv("t.csv", index=False, **settings)


def fitted(capsys, *arguments, data="t.csv"):
    """The lines of coefficients that a fit prints."""
    assert main(["fit", data, *FIT, *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def check_coefficient(lines, name, truth):
    """Near the truth, with an interval that leaves out 0."""
    line = next(line for line in lines if line.startswith(name))
    mean, _, low, high = map(float, line.removeprefix(name).split()[:4])
    assert abs(mean / truth - 1.0) < 0.4
    assert low > 0.0 or high < 0.0


# -- a line is a record ---------------------------------------------------------------------------------------------


def line_of(i, reading):
    cells = [f"p{i // 2}", str(20 + i), ["A", '"B"'][i % 2], f"{1 + i % 28:02d}.01.2026", "yes"]
    return reading.separator.join(cells).encode()


def whole(reading, file):
    """The table of a file."""
    return pd.concat(reading.tables(io.BytesIO(file)), ignore_index=True)


def read(lines, reading):
    """All that the commands make of these lines."""
    table = whole(reading, b"\n".join([reading.separator.join(NAMES).encode(), *lines]) + b"\n")
    assert list(table.columns) == NAMES
    assert len(table) == len(lines)
    features = as_declared(table, DECLARED, reading)
    rows = in_order(table["age"], reading), in_order(table["day"], reading)
    return table, features, rows, places_of(table["again"], ["no", "yes"], reading, by_number=True)


def check_that_a_line_changes_no_other(hostile, place, reading):
    others = [line_of(i, reading) for i in range(12)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = read(others, reading)
        after = read([*others[:place], hostile, *others[place:]], reading)
    kept = np.delete(np.arange(13), place)
    for one, other in zip(before[:2], after[:2], strict=True):
        pd.testing.assert_frame_equal(one, other.iloc[kept].reset_index(drop=True))
    for one, other in zip(before[2], after[2], strict=True):
        np.testing.assert_array_equal(kept[one], other[other != place])
    np.testing.assert_array_equal(before[3], after[3][kept])


PIECES = [
    b'"', b'""', b",", b";", b"\r", b"\x00", b"\xfc", b"\xff\xfe", b"\xef\xbb\xbf", b"nan", b"inf", b"1e999", b"9" * 400,
    b"1_0", b".", b"e5", b"today", b"2026-01-01", b"2026-01-01T00:00:00.123456789+01:00", b"01.01.0001", b"31.12.9999", b"p1",
    b"yes", b"\xd9\xa1", b"NA", b"?",
]  # fmt: skip
hostile_lines = st.one_of(st.binary(max_size=40), st.lists(st.sampled_from(PIECES), max_size=9).map(b"".join)).map(
    lambda line: line.replace(b"\n", b"")
)


@settings(max_examples=90)
@given(
    hostile_lines,
    st.integers(0, 12),
    st.sampled_from([Reading(), GERMAN, Reading(encoding="utf-7"), Reading(encoding="gbk")]),
)
def test_no_line_changes_another(hostile, place, reading):
    check_that_a_line_changes_no_other(hostile, place, reading)


def _rows_of_one_reader(reading, lines, n_cells):
    texts = (line.decode(reading.encoding, "replace") for line in lines)
    return (cells + [None] * ((n_cells or 0) - len(cells)) for cells in csv.reader(texts, delimiter=reading.separator))


def _rows_without_empty_lines(reading, lines, n_cells, original=Reading._rows):
    return original(reading, filter(None, lines), n_cells)


def _numbers_of_one_type(reading, cells):
    try:
        return np.asarray(list(cells), dtype=np.float64)
    except (TypeError, ValueError):
        return np.full(len(cells), np.nan)


def _dates_read_together(reading, cells):
    return pd.Series(pd.to_datetime(cells, format=reading.date_formats[0]), index=cells.index)


@pytest.mark.parametrize(
    ("method", "mutant", "hostile"),
    [
        ("_rows", _rows_of_one_reader, b'p1,"30,A,01.01.2026,yes'),
        ("_rows", _rows_without_empty_lines, b""),
        ("numbers", _numbers_of_one_type, b"p1,old,A,01.01.2026,yes"),
        ("dates", _dates_read_together, b"p1,30,A,soon,yes"),
    ],
)
def test_the_check_notices_readers_that_see_other_lines(monkeypatch, method, mutant, hostile):
    reading = Reading(date_formats=("%d.%m.%Y",))
    check_that_a_line_changes_no_other(hostile, 3, reading)
    monkeypatch.setattr(Reading, method, mutant)
    with pytest.raises((AssertionError, ValueError)):
        check_that_a_line_changes_no_other(hostile, 3, reading)


@pytest.mark.parametrize("zone", ["%d.%m.%Y", "%Y-%m-%d %z", "%Y-%m-%d %H:%M:%S.%f"])
def test_no_date_changes_another(zone):
    dates = [
        "2026-01-01 +0100", "2026-01-01 +0200", "1500-01-01 00:00:00.1", "2026-01-01 00:00:00.123456789", "today", "", None,
    ]  # fmt: skip
    reading, alone = Reading(date_formats=(zone,)), []
    both = reading.dates(pd.Series(dates, dtype=object))
    assert both.dtype == object
    for date in dates:
        alone += list(reading.dates(pd.Series([date], dtype=object)))
    assert list(both) == alone


@pytest.mark.parametrize(
    "defective",
    [b"7,30,\xfc,yes", b"7,30,A", b"7,30,A,yes,x", b'7,30,"A,yes', b'7,30,"A"B",yes', b"", b"\xff" * 10, b'"' * 7],
)
def test_a_line_that_cannot_be_parsed_is_a_record_without_cells(defective):
    table = whole(Reading(), b"patient,age,ward,again\n1,2,A,no\n" + defective + b"\r\n3,4,B,yes")
    assert table.to_numpy().tolist() == [["1", "2", "A", "no"], [None] * 4, ["3", "4", "B", "yes"]]
    broken = whole(Reading(), b'id,x,y\n7,1,"hello\n8,x,1\nbye"\n')  # a row with line breaks is several records
    assert broken.to_numpy().tolist() == [[None] * 3, ["8", "x", "1"], [None] * 3]


# -- what cells mean ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "plain", "german"),
    [
        ("2", 2.0, 2.0), (" -2 ", -2.0, -2.0), ("2,5", None, 2.5), ("2.5", 2.5, None), ("1.234,5", None, 1234.5),
        ("1.234", 1.234, 1234.0), ("12.34", 12.34, None), ("1.234.567", None, 1234567.0), ("1e3", 1000.0, 1000.0),
        (".5", 0.5, None), (",5", None, 0.5), ("nan", None, None), ("inf", None, None), ("1e999", None, None),
        ("1_0", None, None), ("\u0661", None, None), ("<5", None, None), ("45y", None, None), (".", None, None),
        ("e5", None, None),
    ],
)  # fmt: skip
def test_numbers(text, plain, german):
    for reading, number in ((Reading(), plain), (GERMAN, german)):
        np.testing.assert_array_equal(reading.numbers([text]), [np.nan if number is None else number])


def test_no_word_is_missing_but_the_declared_ones():
    words = ["None", "NA", "nan", "null", "007", " A", "?", ""]
    file = "\n".join(["ward,b", *(f"{word},1" for word in words)]).encode()
    assert whole(Reading(), file)["ward"].tolist() == [*words[:-1], None]
    declared = whole(Reading(missing=("?", "NA")), file)["ward"].tolist()
    assert declared == ["None", None, "nan", "null", "007", " A", None, None]


def test_a_text_is_no_number_unless_it_is_a_label():
    cells, names = pd.Series(["007", "7", "1.0", "1", "x", None], dtype=object), ["7", "007", "1"]
    np.testing.assert_array_equal(places_of(cells, names, Reading()), [1, 0, np.nan, 2, np.nan, np.nan])
    np.testing.assert_array_equal(places_of(cells, names, Reading(), by_number=True), [1, 0, 2, 2, np.nan, np.nan])


@pytest.mark.parametrize("name", ["None", "NA"])
def test_a_ward_or_a_class_of_any_name(table, capsys, name):
    written(table.replace({"ward": {"B": name}}))
    declared = ["--column", "age=0:110", "--column", f"ward=A,{name},C"]
    check_coefficient(fitted(capsys, "--classes", "no,yes", *declared), f"ward: {name} against A", 1.3)
    written(table.replace({"again": {"no": name}}))
    declared = ["--column", "age=0:110", "--column", "ward=A,B,C"]
    check_coefficient(fitted(capsys, "--classes", f"{name},yes", *declared), "ward: B against A", 1.3)


@pytest.mark.parametrize("dates", ["date", "2024-06-01:2027-06-01"])
def test_all_options_are_saved_with_the_model(table, capsys, dates):
    """A table as a German spreadsheet writes it; predictions are those for the same table in plain form."""
    rng = np.random.default_rng(1)
    days, income = rng.integers(0, 700, N), rng.integers(1_000, 9_000, N)
    again = rng.random(N) < 1 / (1 + np.exp(-((days - 350) / 100 + (income - 5_000) / 2_000)))
    table = table.assign(again=np.where(again, "yes", "no"), ward=table["ward"].replace("C", "S\xfcd"))
    day = pd.Timestamp("2025-01-01") + pd.to_timedelta(days, unit="D")
    plain = table.assign(income=income.astype(str), day=day.strftime("%Y-%m-%d"))
    german = table.assign(income=[f"{i // 1000}.{i % 1000:03d},0" for i in income])
    german["day"] = np.where(days % 3 == 0, day.strftime("%Y-%m-%dT00:00"), day.strftime(" %d.%m.%Y"))
    german.loc[german.index % 50 == 0, "income"] = "?"
    plain.loc[plain.index % 50 == 0, "income"] = ""
    german.to_csv("g.csv", index=False, sep=";", encoding="cp1252")
    plain.to_csv("p.csv", index=False, encoding="utf-8-sig")
    dates_and_signs = "--date-format %d.%m.%Y --date-format %Y-%m-%dT%H:%M --missing ?"
    written_so = shlex.split(f"--separator ; --decimal , --thousands . --encoding cp1252 {dates_and_signs}")
    columns = f"--column age=0:110 --column ward=A,B,S\xfcd --column income=0:10000 --column day={dates}"
    declared = shlex.split(f"--classes no,yes {columns}")
    lines = fitted(capsys, *declared, *written_so, "--save", "m.vips", data="g.csv")
    check_coefficient(lines, "day", 1 / 100)
    check_coefficient(lines, "income", 1 / 2_000)
    assert main(["predict", "m.vips", "g.csv", "--out", "g_out.csv"]) == 0
    signs = '--separator , --decimal . --thousands "\'" --encoding utf-8'
    plainly = shlex.split(f"{signs} --date-format %Y-%m-%d --missing ?")
    assert main(["predict", "m.vips", "p.csv", "--out", "p_out.csv", *plainly]) == 0
    one, other = (pd.read_csv(name)["P(yes)"] for name in ("g_out.csv", "p_out.csv"))
    np.testing.assert_array_equal(one, other)
    assert one.std() > 0.2


def test_a_declared_number_has_an_indicator_of_missing_cells(table, capsys):
    """As (0, 110, "(missing)") has in Python. Who has no age comes back three times as often as at an age of 55."""
    rng = np.random.default_rng(1)
    is_missing = rng.random(N) < 0.4
    again = rng.random(N) < np.where(is_missing, 0.75, 1 / (1 + np.exp(-0.08 * (table["age"].astype(int) - 55))))
    table = table.assign(again=np.where(again, "yes", "no"), age=table["age"].where(~is_missing, ""))
    written(table[["patient", "age", "again"]])
    declared = ["--classes", "no,yes", "--column", "age=0:110,(missing)", "--epsilon", "50", "--save", "m.vips"]
    check_coefficient(fitted(capsys, *declared), "age", 0.08)
    assert main(["predict", "m.vips", "t.csv", "--out", "o.csv"]) == 0
    predictions = pd.read_csv("o.csv")
    assert predictions["P(yes)"][is_missing].mean() == pytest.approx(0.75, abs=0.05)
    assert main(["inspect", "t.csv", "--column", "age=0:110,(missing)"]) == 0
    assert "the middle" not in capsys.readouterr().out
    assert main(["inspect", "t.csv", "--column", "age=0:110"]) == 0
    assert 'count as 55, the middle, in regressions; "(missing)" behind the bounds' in capsys.readouterr().out


def test_predictions_keep_the_cells_as_they_are_written(table, capsys):
    written(table)
    fitted(capsys, "--classes", "no,yes", "--column", "age=0:110", "--column", "ward=A,B,C", "--save", "m.vips")
    table = table.drop(columns="again")
    written(table)
    assert main(["predict", "m.vips", "t.csv", "--out", "new.csv"]) == 0
    new = pd.read_csv("new.csv", dtype=str, keep_default_na=False)
    pd.testing.assert_frame_equal(new[table.columns].astype(object), table.astype(object))
    assert new["P(yes)"].astype(float).between(0, 1).all()


@pytest.mark.parametrize(
    ("declared", "dtype"), [("1,2", int), ("1,2", float), ("1,2", "Int64"), ("False,True", bool), (None, bool)]
)
def test_categories_that_parquet_holds_as_numbers(table, capsys, declared, dtype):
    rng = np.random.default_rng(2)
    stage = (table["again"] == "yes") ^ (rng.random(N) < 0.3)  # so log odds differ by 1.7 = 2 log(0.7 / 0.3)
    values = (stage if dtype is bool else stage + 1).astype(dtype)
    table[["patient", "again"]].assign(stage=values).to_parquet("t.parquet")
    stated = [] if declared is None else ["--column", f"stage={declared}"]
    lines = fitted(capsys, "--classes", "no,yes", *stated, data="t.parquet")
    first, second = (declared or "False,True").split(",")
    check_coefficient(lines, f"stage: {second} against {first}", 2 * np.log(0.7 / 0.3))
    assert any("nothing was learnt from the records" in line for line in lines)


@pytest.mark.slow
def test_events_of_any_name_and_a_catalogue_with_a_mark(table, capsys):
    rng = np.random.default_rng(0)
    events = rng.choice(["None", "b", "c"], (200, 5))
    who, day = np.divmod(np.arange(1000), 5)
    written(pd.DataFrame({"who": who, "what": events.ravel(), "day": day}))
    with open("names.txt", "w", encoding="utf-8-sig") as file:
        file.write("None\nb\nc")
    command = "fit t.csv --model pathways --unit who --event what --order day --column day=number --states 2"
    assert main([*shlex.split(command), "--catalogue", "names.txt", *SPENDS]) == 0
    out = capsys.readouterr().out
    assert "\ufeff" not in out
    shares = list(map(int, re.findall(r"None \((\d+) %\)", out)))
    assert max(shares) > 20  # a third of all events


@pytest.mark.parametrize(
    ("written_as", "date_formats"),
    [("%Y-%m-%d", ()), ("%d.%m.%Y", ("%d.%m.%Y",)), ("%m/%d/%y", ("%Y", "%m/%d/%y")), (" %Y-%m-%d ", ("%Y-%m-%d",))],
)
def test_rows_in_the_order_of_dates(written_as, date_formats):
    days = pd.Series(pd.date_range("2025-11-20", periods=90)).sample(frac=1.0, random_state=0)
    cells = days.dt.strftime(written_as).astype(object).tolist()
    rows = in_order(pd.Series(["soon", *cells, None], dtype=object), Reading(date_formats=date_formats))
    assert set(rows[-2:]) == {0, 91}
    assert (np.diff(days.to_numpy()[rows[:-2] - 1]) > np.timedelta64(0)).all()


def test_a_date_is_read_by_the_first_format_that_fits_it():
    """Whatever the other cells are."""
    cells = ["01.02.2026", " 03.04.2026\t", "2026-05-06T12:00:00Z", "2026-05-06", "02.13.2026", "soon", None]
    formats = ("%d.%m.%Y", "%Y-%m-%dT%H:%M:%S%z", "%m.%d.%Y")
    expected = [(2026, 2, 1), (2026, 4, 3), (2026, 5, 6), None, (2026, 2, 13), None, None]
    for order in (slice(None), slice(None, None, -1)):
        dates = Reading(date_formats=formats).dates(pd.Series(cells[order], dtype=object))
        days = [None if date is None else (date.year, date.month, date.day) for date in dates]
        assert days == expected[order]


def test_rows_in_the_order_of_numbers():
    cells = pd.Series(["10", "9", "soon", "2026-01-01", "1.5", "-1", None, "1e2"], dtype=object)
    assert in_order(cells, Reading()).tolist() == [5, 4, 1, 0, 7, 3, 2, 6]
    german = Reading(decimal=",", thousands=".")
    assert in_order(pd.Series(["10", "9,5", "1.000"], dtype=object), german).tolist() == [1, 0, 2]


def test_texts_in_another_encoding(table, tmp_path):
    words = "J\xfcrgen sails home"
    (tmp_path / "letters").mkdir()
    for i, encoding in enumerate(["latin-1", "utf-8", "utf-8-sig", "utf-16"]):
        (tmp_path / "letters" / f"{i}.txt").write_bytes(words.encode(encoding))
    assert read_texts("letters", Reading())[0] == ["sails home", words, words, words]
    assert read_texts("letters", Reading(encoding="latin-1"))[0][0] == words


# -- what is said before anything is read ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "arguments", "message"),
    [
        ("patient;age;again", "", "--separator"),
        ("patient\tage\tagain", "", "--separator"),
        ('patient,age,"again', "", "--encoding and --separator"),
        ("patient,age,age,again", "", "two columns alike"),
        ("patient,age,again\r1,2,yes\r3,4,no", "", "carriage return alone"),
        ("SEP=;", "--separator ;", "Excel"),
        ("patient,age ,again", "--column age=0:110", "There is 'age '."),
        ("patient,age,again,\xfcber", "", "--encoding"),
        ("patient,age,again", "", "--column NAME=WHAT"),
        ("patient,age,again", "--column age=date", "--date-format"),
        ("patient,age,again", "--column age=2019-01-01:2021-12-31", "--date-format"),
        ("patient,age,again", "--column age=2019-01-01:9", "two numbers or two dates"),
        ("patient,age,again", "--decimal ab", "--decimal and --thousands"),
        ("patient,age,again", "--thousands .", "two different signs"),
        ("patient,age,again", "--separator ab", "--separator is one character"),
        ("patient,age,again", "--encoding none", "--encoding: there is no encoding"),
        ("patient,age,again", "--encoding utf-16", "--encoding: lines of UTF-16"),
        ("patient,age,again", "--date-format %d.%m", "--date-format says"),
        ("patient,age,again", "--date-format %Q", "--date-format says"),
    ],
)
def test_errors_name_the_option_that_helps(table, capsys, head, arguments, message):
    with open("t.csv", "wb") as file:
        file.write(f"{head}\n1,2,yes\n".encode("latin-1"))
    assert main(["fit", "t.csv", *FIT, "--classes", "no,yes", *shlex.split(arguments)]) == 2
    assert message in capsys.readouterr().err


def test_the_report_says_that_lines_are_records(table, capsys):
    written(table, encoding="utf-16")
    assert main(["fit", "t.csv", *FIT, "--classes", "no,yes"]) == 2
    assert "Save the table in UTF-8" in capsys.readouterr().err
    written(table)
    arguments = "--classes no,yes --column age=0:110 --column ward=A,B,C --save m.vips --report c.html"
    assert main(["fit", "t.csv", *FIT, *shlex.split(arguments)]) == 0
    assert "with line breaks in a cell" in capsys.readouterr().out
    assert main(["certificate", "check", "c.html", "--model", "m.vips"]) == 0


def test_gzip_and_plain_are_the_same(table):
    written(table)
    table.to_csv("t.csv.gz", index=False)
    pd.testing.assert_frame_equal(read_table("t.csv", Reading()), read_table("t.csv.gz", Reading()))
