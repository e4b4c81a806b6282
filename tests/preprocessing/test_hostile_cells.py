"""A private fit reveals nothing about a record, whatever one of its cells holds: declared columns × cells × containers.

Errors, warnings and output of a fit are compared with those for a harmless table of the same dtypes, shape and column names.
"""

import datetime
import traceback
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.pipeline import Pipeline

from vips import BayesianLogisticRegression, DirichletMultinomial, PrivacyPlan
from vips.preprocessing import TableEncoder
from vips.report.only_noise import NO_SIGNAL

pytestmark = pytest.mark.usefixtures("few_iterations", "one_thread")

MARKS = ("name@example.org", "31415926")
PLAN = PrivacyPlan(noise_multiplier=2.0, sampling_rate=1.0, n_steps=1)
NAMES = ["a", "b", "c"]


def _raise(*arguments):
    raise ValueError(*MARKS)


def _shout(*arguments):
    warnings.warn(MARKS[0], stacklevel=1)
    return 0


_METHODS = (
    "float int index complex bool eq hash repr str len iter abs mul rmul add sub truediv neg lt gt array array_ufunc"
)
Raising = type("Raising", (), {f"__{name}__": _raise for name in _METHODS.split()})
Shouting = type("Shouting", (), {f"__{name}__": _shout for name in ("hash", "float", "index", "abs", "int")})

CELLS = {
    "string": MARKS[0], "number in words": MARKS[1], "bytes": MARKS[0].encode(), "complex": complex(31415926, 1),
    "huge": int(MARKS[1] * 60), "None": None, "NaN": np.nan, "inf": np.inf, "NA": pd.NA, "NaT": pd.NaT,
    "decimal": Decimal("31415926e999"), "signalling": Decimal("sNaN31415926"), "date": datetime.datetime(3141, 5, 9, 2, 6),
    "timedelta": np.timedelta64(31415926, "s"), "list": [MARKS[0]], "array": np.array([31415926.0, 1.0]),
    "raising": Raising(), "shouting": Shouting(),
}  # fmt: skip


def objects(cell, n=4):
    table = np.ones((n, 3), dtype=object)
    table[0] = 0.5
    table[-1, 1] = cell
    return table


def frame(cell, **dtypes):
    table = pd.DataFrame({name: np.array([0.5, 1.0, 1.0, 1.0]) for name in NAMES})
    table["b"] = pd.Series([1.0, 1.0, 1.0, cell], **dtypes)
    return table


def torn(index, dtype):
    """CSR whose last row has an entry in column ``index``."""
    X = sp.csr_array(np.array([[1, 1, 1], [0, 0, 1], [1, 0, 0], [1, 1, 0]], dtype))
    X.indices[-1] = index
    return X


def text(cell, dtype):
    table = pd.DataFrame({name: pd.Series(["1", "0", "1"], dtype=dtype) for name in NAMES})
    table.loc[2, "b"] = cell
    return table


def nullable(cell, dtype):
    table = pd.DataFrame({name: pd.Series([1, 0, 1], dtype=dtype) for name in NAMES})
    table.loc[2, "b"] = cell
    return table


def filled(cell, value, dtype):
    table = np.full((4, 3), value, dtype)
    table[-1, 1] = cell
    return table


# Container -> function of a cell, a harmless cell, hostile ones.
TABLES = {
    "objects": (objects, 1.0, CELLS),
    "one row of objects": (lambda cell: objects(cell, n=1), 1.0, CELLS),
    "list": (lambda cell: objects(cell).tolist(), 1.0, CELLS),
    "column of objects": (lambda cell: frame(cell, dtype=object), 1.0, CELLS),
    "frame of objects": (lambda cell: frame(cell, dtype=object).astype(object), 1.0, CELLS),
    "category": (
        lambda cell: frame(cell, dtype="category"),
        1.0,
        {name: CELLS[name] for name in ("string", "bytes", "complex", "huge", "None", "NaN", "date", "decimal")},
    ),
    "str": (lambda cell: text(cell, "str"), "1", [MARKS[0], None]),
    "string": (lambda cell: text(cell, "string"), "1", [MARKS[0], None]),
    "Int64": (lambda cell: nullable(cell, "Int64"), 1, [pd.NA]),
    "Float64": (lambda cell: nullable(cell, "Float64"), 1, [pd.NA, np.inf]),
    "boolean": (lambda cell: nullable(cell, "boolean"), True, [pd.NA]),
    "sparse frame": (lambda cell: frame(cell).astype(pd.SparseDtype(float)), 1.0, [np.nan]),
    "array of strings": (lambda cell: filled(cell, "1", "U16"), "1", [MARKS[0]]),
    "array of bytes": (lambda cell: filled(cell, "1", "S16"), "1", [MARKS[0]]),
    "dates": (lambda cell: filled(cell, "2020-01-01", "M8[s]"), "2021-01-01", ["NaT"]),
    "complex": (lambda cell: filled(cell, 1, complex), 1, [31415926j, np.nan]),
    "floats": (lambda cell: frame(cell).to_numpy(), 1.0, [np.nan, np.inf, -np.inf, 1e308, -1.0]),
    "frame of floats": (frame, 1.0, [np.nan, np.inf, -np.inf, 1e308, -1.0]),
    "csr": (lambda cell: sp.csr_array(frame(cell).to_numpy()), 1.0, [np.nan, np.inf, -np.inf, 1e308, -1.0]),
    "torn csr": (lambda column: torn(column, float), 1, [31415926, -31415926]),
    "torn csr of whole numbers": (lambda column: torn(column, np.int32), 1, [31415926, -31415926]),
    "csc": (lambda cell: sp.csc_array(frame(cell).to_numpy()), 1.0, [np.nan]),
}

CATEGORIES = {"b": [0, 1, "x"], "c": [1.0]}
STEPS = {
    "numbers": TableEncoder([(0, 1)] * 3),
    "numbers by name": TableEncoder({"b": (0, 1), "a": (0, 1)}),
    "categories": TableEncoder([[0, 1, "x"], [1, "y"], [0.5]]),
    "categories by name": TableEncoder(CATEGORIES, sparse_output=True),
    "both": TableEncoder({"a": (0, 1), **CATEGORIES}, unit_norm=False),
    "both, sparse": TableEncoder([(0, 1), [1, "y"], (0, 1)], sparse_output=True),
    "none": "passthrough",
}


def outcome(step, X, y=None, model=None):
    """What a fit reveals: class, message and notes of its error, or else the form of the fitted model; and its warnings, but
    that of released totals in which nothing stands out from the noise."""
    model = DirichletMultinomial(privacy=PLAN) if model is None else model
    pipeline = Pipeline([("step", step), ("model", model)])
    error = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            pipeline.fit(X, y)
        except Exception as raised:
            error = raised
    messages = [str(w.message) for w in caught if NO_SIGNAL not in str(w.message)]
    if error is None:
        return "fitted", pipeline[-1].n_features_in_, vars(pipeline[-1]).keys(), messages
    quoted = "".join(traceback.format_exception(error))
    chained = error
    while chained is not None:
        quoted += repr(chained.args)
        chained = chained.__cause__ or chained.__context__
    assert not any(mark in quoted for mark in MARKS), quoted
    return type(error).__name__, str(error), getattr(error, "__notes__", []), messages


@pytest.mark.parametrize("name", STEPS)
def test_no_cell_changes_what_a_private_fit_tells(name, capfd):
    step, wrong, fitted = STEPS[name], [], 0
    for container, (table, harmless, cells) in TABLES.items():
        expected = outcome(step, table(harmless))
        fitted += expected[0] == "fitted"
        if container != "list":
            assert outcome(step, table(harmless)[:0]) == expected, f"{container}, no rows"
        for cell in cells.values() if isinstance(cells, dict) else cells:
            result = outcome(step, table(cell))
            if result != expected:
                wrong.append(f"{container}: {result}\n    instead of {expected}")
    assert not wrong, "\n".join(wrong)
    assert not any(capfd.readouterr())
    assert fitted


@pytest.mark.parametrize("container", ["array", "series", "list", "column vector"])
@pytest.mark.parametrize("step", [TableEncoder([(0, 1)] * 3), "passthrough"], ids=["numbers", "none"])
def test_no_label_changes_what_a_private_fit_tells(step, container):
    model = BayesianLogisticRegression(privacy=PLAN, max_norm=1.0)
    X = frame(1.0).to_numpy()

    def labels(cell):
        y = np.array([0, 1, 0, 1], dtype=object)
        y[-1] = cell
        as_container = {"array": y, "series": pd.Series(y), "list": list(y), "column vector": y.reshape(-1, 1)}
        return as_container[container]

    expected = outcome(step, X, labels(1), model)
    assert expected[0] == "TypeError"
    assert {outcome(step, X, labels(cell), model)[:2] for cell in CELLS.values()} == {expected[:2]}
    for y in (np.array([0, 1, np.nan, np.inf]), np.array([0.0, 1.0, 31415926.0, -1.0])):
        assert outcome(step, X, y, model) == outcome(step, X, np.array([0.0, 1.0, 0.0, 1.0]), model)
