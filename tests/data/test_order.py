"""What rows are ordered by, against Python's exact numbers and dates."""

import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vips.data import NpySource, ParquetTable, Sequences, regroup
from vips.data._order import sortable, values_of

HUGE = [
    2**53 + 2, 2**53 + 1, 2**53, 2**53 - 1, 2**63 - 1, -(2**63), -(2**53) - 1, -1, 0, 1, -(2**32), 2**32, -(2**32) - 1,
]  # fmt: skip
FLOATS = [np.inf, -np.inf, 1e308, -5e-324, 0.25, -0.25, -1e-20, 2.0**53, 2.0**32 + 0.5, -(2.0**32) - 0.5]


def order_of(*columns) -> list[int]:
    """Rows of columns below each other, each read as if it were another file."""
    keys = np.concatenate([sortable(column, len(column))[0] for column in columns])
    return np.lexsort(keys.T[::-1]).tolist()


def test_whole_numbers_and_floats_have_one_exact_order():
    exact = [Fraction(number) if np.isfinite(number) else number for number in [*HUGE, *FLOATS]]
    assert order_of(np.array(HUGE), np.array(FLOATS)) == sorted(range(len(exact)), key=exact.__getitem__)
    top = [2**64 - 1, 2**63, 5, 2**64 - 2]
    assert order_of(np.array(top, np.uint64), np.array(HUGE)) == sorted(range(17), key=[*top, *HUGE].__getitem__)


@pytest.mark.parametrize(
    "values",
    [
        pd.array([*HUGE, None], dtype="Int64"), pd.Series([*HUGE, None], dtype="int64[pyarrow]"), pa.array([*HUGE, None]),
        pa.chunked_array([pa.array(HUGE), pa.nulls(1, pa.int64())]), pa.array([*HUGE, None]).dictionary_encode(),
        pd.Series(pd.Categorical([*HUGE, None])), pd.CategoricalIndex([*HUGE, None]),
        np.ma.masked_array([*HUGE, -5], [False] * len(HUGE) + [True]), np.array([*HUGE, 2**63 - 1], ">i8"),
    ],
    ids=lambda values: f"{type(values).__name__}-{getattr(values, 'dtype', '')}",
)  # fmt: skip
def test_whole_numbers_stay_exact_beside_a_missing_one(values):
    expected = sorted(range(len(HUGE)), key=HUGE.__getitem__)
    order = order_of(values)
    order.remove(len(HUGE))
    assert order == expected
    assert sortable(values, len(values))[1] == "numbers"


DATES = [
    datetime(2024, 3, 1), datetime(1677, 9, 22), None, datetime(2024, 2, 29, 23, 59, 59, 999_999), datetime(1969, 12, 31),
]  # fmt: skip
EXPECTED = [1, 4, 3, 0, 2]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_dates_of_all_units_have_one_order(unit):
    dates = np.array(DATES, f"M8[{unit}]")
    columns = [
        dates, pd.Series(dates), pa.array(dates), pd.Series(pd.Categorical(pd.Series(dates))), pd.DatetimeIndex(dates),
    ]  # fmt: skip
    for column in columns:
        assert order_of(column) == EXPECTED
        assert sortable(column, 5)[1] == "dates"
    days = np.array([None if moment is None else moment.date() for moment in DATES], "M8[D]")
    # beside whole days in another file, which tie only where the times are midnight
    assert order_of(dates, days)[:2] == [1, 6]
    assert order_of(pa.array(days)) == order_of(pa.array(days).cast(pa.date64())) == EXPECTED
    months = np.array(["2024-02", "NaT", "1969-12"], "M8[M]")
    assert order_of(months, days) == [4, 2, 7, 0, 6, 3, 1, 5]


def test_dates_with_a_time_zone_are_ordered_by_the_instant():
    instants = pd.Series([None if moment is None else moment.replace(tzinfo=UTC) for moment in DATES[:1] + DATES[2:]])
    for zone in ("UTC", "Europe/Berlin"):
        local = instants.dt.tz_convert(zone)
        assert sortable(local, 4)[1] == "dates with a time zone" == sortable(pa.array(local), 4)[1]
        assert order_of(local) == order_of(pa.array(local)) == [3, 2, 0, 1]


def test_times_of_day_and_durations():
    times = pa.array([time(23), None, time(0, 0, 1)])
    assert order_of(times) == order_of(times.cast(pa.time32("s"))) == [2, 0, 1]
    assert order_of(np.array([timedelta(2), None, timedelta(-1)], "m8[s]")) == [2, 0, 1]


@pytest.mark.parametrize(
    "values",
    [["a"], np.array(["a"]), np.array([1], object), pd.Series(["a"]), pd.Series(pd.Categorical(["a"])), pa.array(["a"]),
     pa.array(["a"]).dictionary_encode(), np.array([1j]), np.array([1], "m8[M]"), pd.Series([pd.Period("2024")])],
)  # fmt: skip
def test_types_without_an_order_are_refused(values):
    with pytest.raises(TypeError, match="`order` must"):
        sortable(values, 1)


def test_a_missing_value_refuses_nobody(tmp_path):
    """Whether a type is refused must not depend on a record: files of pandas where one number is missing, or all are."""
    rows, whole = {"x": np.arange(4.0), "id": [1, 1, 2, 2]}, [2**53 + 1, 2**53, 4, 3]
    for name, when in {
        "a": pa.array(whole), "b": pa.array([3.0, None, 1.0, 2.0]), "c": pa.nulls(4), "d": pa.nulls(4, pa.float64())
    }.items():  # fmt: skip
        pq.write_table(pa.table(rows | {"when": when}), tmp_path / f"{name}.parquet")
    source = regroup(ParquetTable(tmp_path, ["x"]), by="id", order="when", to=tmp_path / "by", n_partitions=1)
    opened = next(iter(source.partitions)).open()
    persons = {tuple(steps[:, 0]) for steps in np.split(opened.X, opened.starts[1:-1])}
    # of both persons the rows of four files: numbers in order, then what is missing as it came
    assert persons == {(0, 1, 0, 1, 0, 1, 0, 1), (2, 3, 3, 2, 2, 3, 2, 3)}


def test_other_kinds_and_lengths_are_refused(tmp_path):
    for name, when in {"a": pa.array([1, 2]), "b": pa.array([date(2024, 1, 1), None])}.items():
        pq.write_table(pa.table({"x": [1.0, 2.0], "id": [1, 2], "when": when}), tmp_path / f"{name}.parquet")
    with pytest.raises(ValueError, match=r"`order` has values of another kind .*: dates and numbers"):
        regroup(ParquetTable(tmp_path, ["x"]), by="id", order="when", to=tmp_path / "by")
    np.save(tmp_path / "x.npy", np.arange(4.0)[:, None])
    with pytest.raises(ValueError, match="X and `by` have different numbers of rows"):
        regroup(NpySource(tmp_path / "x.npy"), by=np.arange(3), to=tmp_path / "to")


def test_frames_have_categories_in_their_order():
    frame = pd.DataFrame({"who": 1, "when": pd.Categorical([10, 9, None, 8]), "code": [1, 2, 3, 4]})
    sequences = Sequences.from_frame(frame, by="who", order="when", columns="code")
    assert sequences.values[:, 0].tolist() == [4, 2, 1, 3]


@pytest.mark.parametrize("dtype", ["str", object])
@pytest.mark.parametrize("cells", [["28.01.2020", "05.02.2020"], ["d10", "d9"], [None, None], [2, 1]])
def test_text_has_no_order_without_a_format(dtype, cells):
    """Sorted as text, 28.01. comes after 05.02., and d10 before d9. The dtype decides, no cell does."""
    frame = pd.DataFrame({"who": 1, "when": pd.Series(cells, dtype=dtype), "code": [0, 1]})
    with pytest.raises(TypeError, match="date_format"):
        Sequences.from_frame(frame, by="who", order="when", columns="code")


def test_dates_that_are_objects_are_read_one_by_one_as_they_are():
    """What the refusal suggests for them works, too; and what it suggests for numbers, it says to be for these alone."""
    berlin = timezone(timedelta(hours=1))
    when = [
        pd.Timestamp("2020-03-01"), date(2020, 2, 1), datetime(2020, 1, 1, 12), "31.01.2020", None, pd.NaT, 7,
        np.datetime64("2020-01-15T00:00:00.000000001"), datetime(2020, 1, 1, 12, 30, tzinfo=berlin),
    ]  # fmt: skip
    frame = pd.DataFrame({"who": 1, "when": pd.Series(when, dtype=object), "code": range(len(when))})
    columns = {"by": "who", "order": "when", "columns": "code"}
    read = Sequences.from_frame(frame, **columns, date_format="%d.%m.%Y")
    assert read.values[:, 0].tolist() == [8, 2, 7, 3, 1, 0, 4, 5]  # and not 7, which is no date
    with pytest.raises(TypeError, match="Dates that are objects") as refused:
        Sequences.from_frame(frame, **columns)
    dates = frame[:3]
    (suggestion,) = re.findall(r"pandas\.to_datetime\(.*?'coerce'\)", str(refused.value))
    converted = dates.assign(when=eval(suggestion, {"frame": dates, "pandas": pd}))
    assert Sequences.from_frame(converted, **columns).values[:, 0].tolist() == [2, 1, 0]
    with pytest.raises(TypeError, match=r"Numbers, and no dates, which would be lost: pandas\.to_numeric") as refused:
        Sequences.from_frame(frame.astype({"when": "str"}), **columns)
    assert "to_datetime" not in str(refused.value)  # which guesses the day and the month of a text


@pytest.mark.parametrize(
    "odd", ["2020-01-01 +0500", "1066-10-14 00:00:00.000000001 +0000", "today +0000", "x", None, "9999-12-31 +0000"]
)
def test_one_date_does_not_change_the_order_of_others(odd):
    when = ["1500-01-02 +0000", "1500-01-01 +0000", "2020-06-01 +0200", "2020-05-31 +0000"]
    frame = pd.DataFrame({"who": [1, 1, 2, 2, 3], "when": pd.Series([*when, odd], dtype=object), "code": range(5)})
    sequences = Sequences.from_frame(frame, by="who", order="when", columns="code", date_format="%Y-%m-%d %z")
    assert sorted(steps.tolist() for steps in sequences if len(steps))[:2] == [[[1.0], [0.0]], [[3.0], [2.0]]]


@pytest.mark.parametrize("dtype", ["str", object])
def test_text_of_dates_is_read_by_a_format(dtype):
    when = pd.Series(["28.01.2020", "05.02.2020", "2020-01-01", None, "01.01.2020", "31.02.2020"], dtype=dtype)
    frame = pd.DataFrame({"who": 1, "when": when, "code": range(6)})
    sequences = Sequences.from_frame(frame, by="who", order="when", columns="code", date_format="%d.%m.%Y")
    assert sequences.values[:, 0].tolist() == [4, 0, 1, 3], "what is not written so has no place"
    with pytest.raises(TypeError, match="leave it out"):
        Sequences.from_frame(frame.assign(when=1.0), by="who", order="when", columns="code", date_format="%d.%m.%Y")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([1, 2**62, -(2**63), 2**63 - 1]), np.array([1, 2**62, -(2**63), 2**63 - 1])),
        (np.array([2**64 - 1, 3], np.uint64), np.array([2.0**64, 3.0])),
        (np.array([1.5, np.nan, 1e30]), np.array([1.5, np.nan, 1e30])),
        (np.array(["3000000-01-01", "2020-01-01", "NaT"], "M8[s]"), np.array(["NaT", "2020-01-01", "NaT"], "M8[us]")),
    ],
)
def test_times_come_back_as_they_are_or_are_no_times(values, expected):
    keys, kind = sortable(values, len(values))
    np.testing.assert_array_equal(values_of(keys, kind, values.dtype.kind in "iu"), expected)
