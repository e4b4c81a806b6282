"""All doors of a table read a cell alike: generated cells × containers × declarations, and a plain reading beside them."""

from __future__ import annotations

import csv
import datetime
import io
import math
import re
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vips
from tests.classification.test_private_classifier import few_settings
from vips import BayesianLogisticRegression, MixedLatentClassAnalysis, PrivacyBudget, PrivateClassifier
from vips.classification.tables import as_frame, columns_stated
from vips.data import Sequences
from vips.data._columns import as_table
from vips.models.components.declarations import codes_of, column_of_any_kind
from vips.preprocessing import TableEncoder, make_private_pipeline
from vips.report.unread import TELLS_OF_NOISE
from vips.tools.commands.files import as_declared, read_table
from vips.tools.commands.reading import Reading

pytestmark = pytest.mark.usefixtures("few_iterations", "one_thread")

LOW, HIGH = -50.0, 150.0
CATEGORIES = ["A", "b", "1", 2, 2.5, True, "NA", "", "(x)"]

NUMBERS = [0, 7, -3, 12.5, 150, 1e300, -0.0, True, False, np.int8(5), np.float32(0.5), Decimal("2.25"), Decimal(100)]
TEXTS = [
    "12.5", " 7 ", "-3e1", "+4.", ".5", "<5", "", "nan", "inf", "1,5", "1_000", "0x10", "٣", "A", "b", "1", "NA", "(x)",
]  # fmt: skip
NOTHING = [None, math.nan, pd.NA, pd.NaT, float("inf"), np.float64("nan")]
OBJECTS = [b"12", 1 + 2j, ("A",), ["A"], {"A": 1}, object(), np.array([1.0]), 10**400, Decimal("NaN")]

PLAIN_NUMBER = re.compile(r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*")


def plain_number(cell) -> float | None:
    """What the pages say of a number between bounds: read alone, by its type."""
    if isinstance(cell, str):
        if not PLAIN_NUMBER.fullmatch(cell) or not cell.isascii():
            return None
        value = float(cell)
    elif isinstance(cell, bool | int | float | np.bool_ | np.integer | np.floating | Decimal):
        try:
            value = float(cell)
        except (OverflowError, ValueError):
            return None
    else:
        return None
    return min(max(value, LOW), HIGH) if math.isfinite(value) else None


def plain_category(cell) -> int | None:
    """The place of the category that is equal in Python, among strings and numbers."""
    if not isinstance(cell, str | bool | int | float | np.bool_ | np.integer | np.floating | Decimal):
        return None
    for place, category in enumerate(CATEGORIES):
        if isinstance(cell, str) == isinstance(category, str) and cell == category:
            return place
    return None


# -- containers: each holds the cells that its dtype can, and gives the cells that it holds ----------------------------


def of_objects(cells):
    return pd.DataFrame({"x": pd.Series(cells, dtype=object)}), cells


def of_array(cells):
    table = np.empty((len(cells), 1), dtype=object)
    table[:, 0] = pd.Series(cells, dtype=object).to_numpy()
    return table, cells


def of_texts(name, make):
    """A container of the cells that are texts; others are missing."""

    def of_text(cells):
        cells = [cell if isinstance(cell, str) else None for cell in cells]
        return make(cells), cells

    of_text.__name__ = name
    return of_text


of_text = of_texts("of_text", lambda cells: pd.DataFrame({"x": pd.Series(cells, dtype="str")}))
of_strings = of_texts("of_strings", lambda cells: pd.DataFrame({"x": pd.Series(cells, dtype="string")}))
of_arrow = of_texts("of_arrow", lambda cells: pa.table({"x": pa.array(cells, pa.string())}))
of_dictionary = of_texts(
    "of_dictionary", lambda cells: pa.table({"x": pa.array(cells, pa.string()).dictionary_encode()})
)
of_views = of_texts("of_views", lambda cells: pa.table({"x": pa.array(cells, pa.string_view())}))
of_polars = of_texts("of_polars", lambda cells: polars.DataFrame({"x": polars.Series(cells, dtype=polars.String)}))
of_polars_categories = of_texts(
    "of_polars_categories", lambda cells: polars.DataFrame({"x": polars.Series(cells, dtype=polars.Categorical)})
)


def _floats(cells):
    numbers = [math.nan if isinstance(cell, str) or plain_number(cell) is None else float(cell) for cell in cells]
    return numbers, [None if math.isnan(number) else number for number in numbers]


def of_floats(cells):
    numbers, cells = _floats(cells)
    return pd.DataFrame({"x": numbers}, dtype=float), cells


def of_nullable(cells):
    _, cells = _floats(cells)
    return pd.DataFrame({"x": pd.array(cells, dtype="Float64")}), cells


def of_mask(cells):
    numbers, cells = _floats(cells)
    filled = np.where(np.isnan(numbers), 3.0, numbers)  # which the mask hides
    return np.ma.masked_array(np.array([filled]).T, [[cell is None] for cell in cells]), cells


def of_polars_floats(cells):
    _, cells = _floats(cells)
    return polars.DataFrame({"x": polars.Series(cells, dtype=polars.Float64)}), cells


def of_decimals(cells):
    is_small = (isinstance(cell, int | float) and abs(cell) < 1e6 for cell in cells)
    cells = [Decimal(str(round(cell, 3))) if small else None for cell, small in zip(cells, is_small, strict=True)]
    return pa.table({"x": pa.array(cells, pa.decimal128(20, 3))}), cells


OF_TEXT = [of_text, of_strings, of_arrow, of_dictionary, of_views, of_polars, of_polars_categories]
TEXT = [of_objects, of_array, *OF_TEXT]
NUMERIC = [of_objects, of_array, of_floats, of_nullable, of_mask, of_polars_floats, of_decimals]
CELLS = st.lists(st.sampled_from(NUMBERS + TEXTS + NOTHING + OBJECTS), min_size=1, max_size=12)
NAMES = st.sampled_from


def name_of(table):
    return 0 if isinstance(table, np.ndarray) else "x"


def declared_for(table, declaration):
    return [declaration] if isinstance(table, np.ndarray) else {"x": declaration}


# -- doors ------------------------------------------------------------------------------------------------------------


def numbers_by_encoder(table):
    encoder = TableEncoder(declared_for(table, (LOW, HIGH, "(missing)")), unit_norm=False)
    features = encoder.fit(table).transform(table)
    return [None if missing else (1 + x) / 2 * (HIGH - LOW) + LOW for x, missing in features]


def numbers_by_classes(table):
    frame = as_table(table)
    declared = [column_of_any_kind("x", (LOW, HIGH))]
    values = declared[0].read(frame[name_of(table)] if hasattr(frame, "columns") else frame[:, 0])
    return [None if np.isnan(x) else min(max(float(x), LOW), HIGH) for x in values]


def numbers_by_inspection(table, plain):
    (reading,) = vips.inspect(table, declared_for(table, (LOW, HIGH))).columns
    assert reading.n_read == sum(number is not None for number in plain)
    assert reading.n_read + reading.n_missing + sum(reading.unread.values()) == len(plain)


def codes_by_classifier(table, declaration, plain):
    frame = as_frame(table)
    (cells,) = columns_stated([declaration], frame).values()
    expected = pd.Series([math.nan if cell is None else cell for cell in plain], dtype=float)
    return cells.codes(frame[name_of(table)]).tolist(), cells.codes(expected).tolist()


@settings(max_examples=90, deadline=None)
@given(cells=CELLS, container=st.sampled_from([*TEXT, *NUMERIC[2:]]))
def test_doors_read_numbers_alike(cells, container):
    table, held = container(cells)
    plain = [plain_number(cell) for cell in held]
    approx = [None if number is None else pytest.approx(number, rel=1e-12, abs=1e-9) for number in plain]
    assert numbers_by_encoder(table) == approx
    assert numbers_by_classes(table) == approx
    numbers_by_inspection(table, plain)
    seen, expected = codes_by_classifier(table, (LOW, HIGH), plain)
    assert seen == expected


@settings(max_examples=90, deadline=None)
@given(cells=CELLS, container=st.sampled_from(TEXT))
def test_doors_read_categories_alike(cells, container):
    table, held = container(cells)
    plain = [plain_category(cell) for cell in held]
    features = TableEncoder(declared_for(table, CATEGORIES), unit_norm=False).fit(table).transform(table)
    assert [int(row.argmax()) if row.any() else None for row in features] == plain
    column = as_table(table)[name_of(table)] if hasattr(table, "columns") else as_table(table)[:, 0]
    codes = codes_of(column, CATEGORIES)
    assert [None if code < 0 else int(code) for code in codes] == plain
    (reading,) = vips.inspect(table, declared_for(table, CATEGORIES)).columns
    assert reading.n_read == sum(place is not None for place in plain)
    frame = as_frame(table)
    (cells_of_column,) = columns_stated([CATEGORIES], frame).values()
    seen = cells_of_column.codes(frame[name_of(table)])
    assert [int(code) if code < len(CATEGORIES) else None for code in seen] == plain


def plain_day(cell) -> float | None:
    """Days since 1970 of a date, or of a text in ISO 8601."""
    if isinstance(cell, str):
        try:
            cell = datetime.datetime.fromisoformat(cell.strip())
        except ValueError:
            return None
    if isinstance(cell, datetime.datetime) and cell is not pd.NaT:
        zoned = cell if cell.tzinfo else cell.replace(tzinfo=datetime.UTC)
        return (zoned - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) / datetime.timedelta(days=1)
    return float((cell - datetime.date(1970, 1, 1)).days) if type(cell) is datetime.date else None


DATES = [
    datetime.date(2020, 2, 29), datetime.datetime(2020, 1, 1, 12), pd.Timestamp("2020-03-01", tz="Europe/Berlin"), "2020-12-01",
    " 2020-02-03T06:00 ", "2020-02-03T06:00:00+02:00", "03.02.2020", "soon", 18_300, None, pd.NaT,
]  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(cells=st.lists(st.sampled_from(DATES), min_size=1, max_size=8), container=st.sampled_from(TEXT))
def test_doors_read_dates_alike(cells, container):
    table, held = container(cells)
    plain = [None if (day := plain_day(cell)) is None else pytest.approx(day, abs=1e-6) for cell in held]
    low, high = datetime.date(2020, 1, 1), datetime.date(2020, 12, 31)
    encoder = TableEncoder(declared_for(table, (low, high, "(missing)")), unit_norm=False).fit(table)
    first, width = plain_day(low), plain_day(high) - plain_day(low)
    features = encoder.transform(table)
    assert [None if missing else (1 + x) / 2 * width + first for x, missing in features] == plain
    (reading,) = vips.inspect(table, declared_for(table, (low, high))).columns
    assert reading.n_read == sum(day is not None for day in plain)


PERSONS = {
    "who": ["007", "7", None, "7", "007", "b"],
    "when": ["02.01.2020", "03.01.2020", "01.01.2020", "01.02.2019", "01.01.2020", None],
    "y": ["yes", "no", "no", "yes", "no", "yes"],
}


@pytest.mark.parametrize("container", [of_objects, *OF_TEXT])
def test_ids_order_and_labels_are_read_alike(container):
    columns = {name: container(cells)[0]["x"] for name, cells in PERSONS.items()}
    code = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    module = type(columns["who"]).__module__.partition(".")[0]
    frame = {"pandas": pd.DataFrame, "polars": polars.DataFrame, "pyarrow": pa.table}[module](columns | {"code": code})
    fitted = pipeline_of({"code": (0, 5)}, classes=["no", "yes"]).fit(frame, frame["y"], groups=frame["who"])
    assert fitted.score(frame, frame["y"]) == np.mean(fitted.predict(frame) == PERSONS["y"])
    persons = Sequences.from_frame(frame, by="who", columns="code")
    steps = {name: steps.ravel().tolist() for name, steps in zip(persons.ids, persons, strict=True)}
    assert steps == {"007": [0, 4], "7": [1, 3], "b": [5]}
    if container not in (of_dictionary, of_polars_categories):  # whose order would be that of their dictionary
        times = Sequences.from_frame(frame, by="who", order="when", date_format="%d.%m.%Y", columns="code")
        assert [steps.ravel().tolist() for steps in times[np.argsort(times.ids)]] == [[4, 0], [3, 1], [5]]


@settings(max_examples=40, deadline=None)
@given(cells=st.lists(st.sampled_from([text for text in TEXTS if text.isprintable()]), min_size=1, max_size=8))
def test_the_shell_reads_the_cells_of_a_file_as_texts(cells, tmp_path_factory):
    path = tmp_path_factory.mktemp("doors") / "table.csv"
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([["x", "y"], *([cell, "0"] for cell in cells)])
    path.write_text(text.getvalue(), encoding="utf-8")
    reading = Reading()
    table = as_declared(read_table(path, reading), {"x": f"{LOW:g}:{HIGH:g}"}, reading)
    approx = [None if (number := plain_number(cell)) is None else pytest.approx(number, abs=1e-9) for cell in cells]
    assert numbers_by_encoder(table[["x"]]) == approx


# -- one defective record ---------------------------------------------------------------------------------------------

BUDGET = PrivacyBudget(1.0, 1e-6)
DEFECTS = [*TEXTS, *NOTHING, *OBJECTS]


def harmless(n=60):
    return pd.DataFrame({"x": [*range(n - 1), 3], "w": ["A", "b"] * (n // 2)}, dtype=object)


def pipeline_of(columns, classes=None):
    model = BayesianLogisticRegression(classes=classes)
    return make_private_pipeline(TableEncoder(columns), model, privacy=BUDGET, n_steps=2)


DECLARED, LEARNT = {"x": (LOW, HIGH), "w": CATEGORIES}, {"x": "number", "w": ["A", "b"]}
FITS = {
    "declared": lambda table, y: pipeline_of(DECLARED).fit(table, y),
    "learnt": lambda table, y: pipeline_of(LEARNT).fit(table, y),
    "classifier": lambda table, y: PrivateClassifier(LEARNT, privacy=BUDGET, n_steps=2).fit(table, y),
    "classes": lambda table, y: MixedLatentClassAnalysis(1, columns=DECLARED, privacy=BUDGET.plan(n_steps=3)).fit(
        table
    ),
}


def outcome(fit, table, y):
    """What a fit shows besides its released numbers, and what these say of noise: error, warnings, shapes and dtypes."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", f"{TELLS_OF_NOISE}|Noise hides how much")
        try:
            fitted = fit(table, y)
            probabilities = fitted.predict_proba(harmless())
        except Exception as error:
            return type(error), str(error), [str(w.message) for w in seen]
    return probabilities.shape, probabilities.dtype, sorted(vars(fitted)), [str(w.message) for w in seen]


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("column", ["x", "w"])
def test_one_defective_record_decides_nothing_that_a_private_fit_shows(fit, column, monkeypatch):
    few_settings(monkeypatch)
    y = np.arange(60) % 2
    expected = outcome(FITS[fit], harmless(), y)
    assert expected[-1] == []
    assert isinstance(expected[0], tuple), expected
    for defects in (DEFECTS, *([defect] for defect in DEFECTS[:: len(DEFECTS) // 6])):
        table = harmless()
        table[column] = pd.Series([*table[column][: -len(defects)], *defects], dtype=object)
        assert outcome(FITS[fit], table, y) == expected, defects
