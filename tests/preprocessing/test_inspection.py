"""What the holder of a table sees: counts of cells, compared with a plain reading."""

import datetime
import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import vips
from vips.data import Sequences
from vips.preprocessing import TableEncoder

CRP = ["3.5", "<5", " 12 ", None, "1,000", "nan", "7e2", "-1"]


def test_every_cell_is_counted_once():
    table = pd.DataFrame({"crp": CRP, "ward": ["A", "B", "b", "A", None, "", "C", "C"]})
    crp, ward = vips.inspect(table, {"crp": (0, 500), "ward": ["A", "B"]}).columns
    assert (crp.n_read, crp.n_missing, crp.n_beyond) == (4, 1, 2)  # 700 and -1 are beyond
    assert crp.unread == {"<5": 1, "1,000": 1, "nan": 1}
    assert (ward.n_read, ward.n_missing, ward.unread) == (3, 1, {"b": 1, "": 1, "C": 2})
    (other,) = vips.inspect(table, {"ward": ["A", "B", "(other)"]}).columns
    assert (other.n_read, other.unread) == (7, {})
    assert "4 count as (other): 'C' (2)" in other.says


@pytest.mark.parametrize("container", [
    lambda cells: pd.DataFrame({"x": pd.Series(cells, dtype=object)}),
    lambda cells: pd.DataFrame({"x": pd.Series([cell and str(cell) for cell in cells], dtype="str")}),
    lambda cells: pd.DataFrame({"x": pd.Series([np.nan if cell is None else float(cell) for cell in cells])}),
    lambda cells: pd.DataFrame({"x": pd.Series([None if cell is None else float(cell) for cell in cells], dtype="Float64")}),
    lambda cells: pd.DataFrame({"x": pd.Categorical(cells)}),
    lambda cells: pa.table({"x": pa.array([cell and Decimal(str(cell)) for cell in cells], pa.decimal128(10, 2))}),
    lambda cells: np.array([cells], dtype=object).T,
    lambda cells: np.ma.masked_array([[0.0 if cell is None else float(cell)] for cell in cells], [[c is None] for c in cells]),
])  # fmt: skip
def test_containers_agree_with_a_plain_reading(container):
    """The same cells, in all dtypes that hold them: what is read, and the features that an encoder makes."""
    cells = [1.5, None, 2, Decimal("0.25"), 8]
    table = container(cells)
    declared = [(0, 4, "(missing)")] if isinstance(table, np.ndarray) else {"x": (0, 4, "(missing)")}
    (reading,) = vips.inspect(table, declared).columns
    assert (reading.n_read, reading.n_missing, reading.unread, reading.n_beyond) == (4, 1, {}, 1)
    plain = [0.0 if cell is None else min(float(cell), 4.0) / 2.0 - 1.0 for cell in cells]
    expected = np.column_stack([plain, [cell is None for cell in cells]])
    np.testing.assert_array_equal(TableEncoder(declared, unit_norm=False).fit_transform(table), expected)


@pytest.mark.parametrize("days", [
    pd.to_datetime(pd.Series(["2020-01-01", None, "2020-12-31"])),
    pd.Series(["2020-01-01", "31.12.2020", "2020-12-31"], dtype="str"),
    pd.Series([datetime.date(2020, 1, 1), None, datetime.datetime(2020, 12, 31)], dtype=object),
    pd.Series(pd.arrays.ArrowExtensionArray(pa.array([datetime.date(2020, 1, 1), None, datetime.date(2020, 12, 31)]))),
], ids=["dates", "text", "objects", "arrow"])  # fmt: skip
def test_dates_have_bounds_of_dates(days):
    bounds = {"day": (datetime.date(2020, 1, 1), datetime.date(2020, 12, 31))}
    encoder = TableEncoder(bounds, unit_norm=False)
    np.testing.assert_array_equal(encoder.fit_transform(pd.DataFrame({"day": days}))[:, 0], [-1.0, 0.0, 1.0])
    assert "2020-01-01 to 2020-12-31" in encoder.declared_public[0]
    assert "a date from 2020-01-01 to 2020-12-31: 2 read" in str(vips.inspect(pd.DataFrame({"day": days}), bounds))


def test_without_declarations_it_says_what_to_declare():
    table = pd.DataFrame({"crp": CRP, "age": range(20, 28), "ward": list("ABABABAB"), "old": [True, False] * 4})
    page = str(vips.inspect(table))
    assert page.startswith("Not private: for your eyes.")
    assert page.endswith("What you declare because of this page is not covered by ε.")
    for words in ("crp (str), a number", "from 20 to 27: declare (low, high)", "Holds 'A', 'B': declare the list"):
        assert words in page
    assert page == str(vips.inspect(pa.Table.from_pandas(table))).replace("int64[pyarrow]", "int64").replace(
        "bool[pyarrow]", "bool"
    ).replace("large_string[pyarrow]", "str").replace("string[pyarrow]", "str")


@pytest.mark.parametrize(
    "times",
    [
        pd.to_datetime(pd.Series(["2022-01-01T10:00+01:00", None, "2023-05-05T23:30+01:00"])),
        pd.Series(pd.to_datetime(["2022-01-01 10:30:00", None, "2023-05-05 00:00:01"])),
        pd.Series(["2022-01-01T10:00", " 2023-05-05T09:00 ", "soon"], dtype="str"),
        pd.Series([datetime.date(2022, 1, 1), None, datetime.datetime(2023, 5, 5, 12)], dtype=object),
    ],
    ids=["zoned", "times", "text", "objects"],
)
def test_the_range_of_dates_can_be_declared_as_it_is_shown(times):
    """As ISO dates, between which all cells are."""
    table = pd.DataFrame({"x": times})
    (reading,) = vips.inspect(table).columns
    low, high = re.search(r"Holds dates from (\S+) to (\S+): declare", reading.says).groups()
    bounds = tuple(map(datetime.date.fromisoformat, (low, high)))
    assert bounds == (datetime.date(2022, 1, 1), datetime.date(2023, 5, 6))
    (reading,) = vips.inspect(table, {"x": bounds}).columns
    assert (reading.n_read, reading.n_beyond) == (2, 0)
    assert f"count as {bounds[0] + (bounds[1] - bounds[0]) / 2}, the middle" in reading.says
    one_day = (datetime.date(2022, 1, 1), datetime.date(2022, 1, 2))
    assert "count as 2022-01-01T12:00:00, the middle" in vips.inspect(table, {"x": one_day}).columns[0].says


@pytest.mark.parametrize(
    "cells",
    [
        pd.Series([None, None], dtype=object),
        pd.Series([datetime.time(10), None], dtype=object),
        pd.Series(pd.arrays.ArrowExtensionArray(pa.array([datetime.time(10), None]))),
    ],
    ids=["empty", "objects", "times of day"],
)
def test_what_no_kind_reads_is_said_to_be_none(cells):
    (reading,) = vips.inspect(pd.DataFrame({"x": cells})).columns
    assert reading.declared == "no number, date or category"
    assert reading.says == "No cell is read: convert the column to numbers, texts or dates, or leave it out."


def test_a_declaration_that_an_encoder_refuses_is_refused():
    table = pd.DataFrame({"day": pd.to_datetime(["2020-01-01"])})
    for declared, error, says in (
        ({"day": (0, 1)}, TypeError, "write two dates"),
        ({"days": (0, 1)}, ValueError, r"0 columns of that name\.$"),
        ({"Day ": (0, 1)}, ValueError, r"There is 'day'\.$"),
        ({"day": "daet"}, TypeError, "'daet'"),
    ):
        with pytest.raises(error, match=says):
            vips.inspect(table, declared)


@pytest.mark.parametrize(
    "cell",
    [np.array([1, 2]), pd.Series([1, 2]), 10**5000, object(), [None]],
    ids=["array", "series", "whole", "object", "list"],
)
def test_any_cell_can_be_shown(cell):
    cells = np.empty(2, dtype=object)
    cells[:] = [1.5, cell]
    (reading,) = vips.inspect(pd.DataFrame({"x": cells}), {"x": (0, 4)}).columns
    assert (reading.n_read, sum(reading.unread.values())) == (1, 1)
    assert len(str(reading).splitlines()[0]) < 200


def test_rows_whose_date_is_not_read_are_counted():
    frame = pd.DataFrame({"who": [1, 1, 2, 2], "day": ["01.02.2020", "2020-02-01", None, "32.01.2020"], "code": 0})
    X = Sequences.from_frame(frame, by="who", order="day", columns="code", date_format="%d.%m.%Y")
    *_, days = vips.inspect(X).columns
    assert (days.name, days.n_read, days.n_missing, sum(days.unread.values())) == ("day", 1, 1, 2)
    assert len(vips.inspect(X[:1]).columns) == 3
    frame["day"] = None
    X = Sequences.from_frame(frame, by="who", order="day", columns="code", date_format="%d.%m.%Y")
    assert len(vips.inspect(X).columns) == 2


def test_sequences_that_a_model_takes_for_missing_ones_are_counted():
    lists = [
        [1, 2, None], [1, "x"], None, {"a": 1}, {"a": 2}, "text", [[1, 2]], [], np.ma.masked_array([1.0, 2.0], [0, 1]),
    ]  # fmt: skip
    sequences, steps = vips.inspect(lists).columns
    assert (sequences.n_read, sequences.n_missing) == (4, 1)
    assert sequences.unread == {"a dict": 2, "a str": 1, "2 columns": 1}
    assert (steps.n_read, steps.n_missing, steps.unread) == (4, 2, {"x": 1})
    read = Sequences.from_list(lists, n_features=1)
    assert np.isfinite(read.values).sum() == steps.n_read
    with pytest.raises(TypeError, match="got list"):
        vips.inspect(lists, ["A"])


def test_bounds_far_wider_than_the_values_are_said():
    table = pd.DataFrame({"age": [18, 30, 89], "empty": [np.nan] * 3})
    age, empty = vips.inspect(table, {"age": (0, 1000), "empty": (0, 1)}).columns
    assert age.says.startswith("Holds numbers from 18 to 89, a small part of the declared range")
    assert "Holds" not in empty.says
    assert vips.inspect(table, {"age": (0, 120)}).columns[0].says == ""
    day = pd.DataFrame({"day": pd.to_datetime(["2024-01-01", "2024-02-01"])})
    bounds = (np.datetime64("2000-01-01"), np.datetime64("2030-01-01"))
    assert "dates from 2024-01-01 to 2024-02-01" in vips.inspect(day, {"day": bounds}).columns[0].says


@pytest.mark.parametrize("texts", [
    ["harbour", b"ship", None, "", ["harbour", "ship"], 3.5],
    pd.Series(["harbour", b"ship", None, "", ["harbour", "ship"], 3.5], dtype=object),
], ids=["list", "series"])  # fmt: skip
def test_what_is_no_text_is_counted(texts):
    (reading,) = vips.inspect(texts).columns
    assert (reading.n_read, reading.n_missing) == (3, 1)  # the empty text is one without words
    assert reading.unread == {"['harbour', 'ship']": 1, "3.5": 1}
    assert '" ".join(words)' in reading.says


def test_steps_are_read_as_codes_or_counts():
    lists = [np.array([0, 1, 5]), [2, None, "A"], [0.5, -1.0]]
    for declared, n_read, unread, n_beyond in (
        (None, 6, {"A"}, 0),
        (4, 3, {"A", "5", "0.5", "-1"}, 0),
        (range(4), 4, {"A", "0.5", "-1.0"}, 1),
    ):
        _, steps = vips.inspect(lists, declared).columns
        assert (steps.n_read, steps.n_missing, steps.n_beyond) == (n_read, 1, n_beyond)
        assert steps.unread.keys() == unread
    _, steps = vips.inspect(Sequences.from_list([np.array([0, 5])]), 4).columns
    assert (steps.n_read, steps.unread) == (1, {"5": 1})


def test_columns_of_codes_and_counts_are_read_as_models_of_classes_read_them():
    table = pd.DataFrame({"n": [1.0, 2.5, -1.0, 7.0, None], "c": [0, 1, 2, 3, -1]})
    n, c = vips.inspect(table, {"n": range(5), "c": 3}).columns
    assert (n.n_read, n.n_missing, n.n_beyond, n.unread) == (2, 1, 1, {"2.5": 1, "-1.0": 1})
    assert (c.n_read, c.unread) == (3, {"3": 1, "-1": 1})
