"""Times of steps: gaps in time become missing steps, and no person decides what becomes of others."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.known_bits import cached
from vips import CategoricalHMM, GaussianHMM, PrivacyPlan
from vips.data import Sequences

NAMES = {"by": "who", "order": "when"}
CELLS = st.one_of(st.none(), st.integers(0, 9))


def spaced(frame, **arguments):
    return Sequences.from_frame(frame, **NAMES, columns=["x", "y"], **arguments)


def by_hand(rows, every, max_length):
    """Slots of each person: what the docstring of ``from_frame`` says, written as a loop."""
    slots = {}
    for who, when, *cells in sorted(rows, key=lambda row: row[1]):
        steps = slots.setdefault(who, {"first": when})
        k = math.floor((when - steps["first"]) / every + 0.5)
        if k < max_length:
            before = steps.get(k, (None, [math.nan, math.nan]))[1]
            steps[k] = when, [old if cell is None else float(cell) for old, cell in zip(before, cells, strict=True)]
    result = {}
    for who, steps in slots.items():
        first = steps.pop("first")
        for k in range(max(steps) + 1):
            when, cells = steps.get(k, (first + k * every, [math.nan, math.nan]))
            result[who, when] = cells
    return result


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(-40, 40), CELLS, CELLS), unique_by=lambda row: row[:2], min_size=1
    ),
    every=st.sampled_from([1, 3, 7, 0.5]),
    max_length=st.sampled_from([1, 5, 1000]),
    shuffled=st.randoms(use_true_random=False),
)
def test_slots_are_those_of_a_loop_whatever_the_order_of_rows(rows, every, max_length, shuffled):
    expected = by_hand(rows, every, max_length)
    shuffled.shuffle(rows)
    sequences = spaced(pd.DataFrame(rows, columns=["who", "when", "x", "y"]), every=every, max_length=max_length)
    steps = pd.DataFrame(sequences.values, sequences.index_of_steps.of_steps())
    assert set(steps.index) == set(expected)
    np.testing.assert_array_equal(steps.to_numpy(), [expected[step] for step in steps.index])
    assert steps.index.is_unique
    assert sequences.lengths.max() <= max_length


DAYS = ["2020-01-28", "2020-02-05", "2020-02-18"]  # 8 and 21 days after the first
DATES = {
    "dates": pd.Series(pd.to_datetime(DAYS)),
    "dates in seconds": pd.Series(np.array(DAYS, "M8[s]")),
    "dates of Arrow": pd.Series(pa.array(pd.to_datetime(DAYS).date), dtype=pd.ArrowDtype(pa.date32())),
    "dates with a time zone": pd.Series(pd.to_datetime(DAYS).tz_localize("Europe/Berlin")),
    "dates of text": pd.Series(["28.01.2020", "05.02.2020", "18.02.2020"]),
}


@pytest.mark.parametrize("every", ["7D", pd.Timedelta(days=7), np.timedelta64(1, "W"), "168h"])
@pytest.mark.parametrize("kind", DATES)
def test_dates_have_slots(kind, every):
    frame = pd.DataFrame({"who": 5, "when": DATES[kind], "x": [1, 2, 3], "y": [4, 5, 6]})
    date_format = "%d.%m.%Y" if kind == "dates of text" else None
    sequences = spaced(frame.iloc[[2, 0, 1]], every=every, date_format=date_format)
    np.testing.assert_array_equal(sequences.values, [[1, 4], [2, 5], [np.nan, np.nan], [3, 6]])
    times = sequences.index_of_steps.of_steps().get_level_values("when")
    zone = "Europe/Berlin" if kind == "dates with a time zone" else None
    expected = pd.to_datetime(["2020-01-28", "2020-02-05", "2020-02-11", "2020-02-18"]).tz_localize(zone)
    assert times.tolist() == expected.tolist()  # where a row is, its own time
    ahead = sequences.index_of_steps.of_forecasts(2).get_level_values("when")
    assert ahead.tolist() == pd.to_datetime(["2020-02-25", "2020-03-03"]).tz_localize(zone).tolist()


@pytest.mark.parametrize("order", ["when", "number"])
@pytest.mark.parametrize("every", [0, -1, math.nan, math.inf, True, "1 month", "1ME", "NaT", "x", None])
def test_a_distance_is_positive_and_of_the_kind_of_times(every, order):
    frame = pd.DataFrame({"who": [1], "when": [pd.Timestamp(2020, 1, 1)], "number": [1.0], "x": [1]})
    arguments = {"by": "who", "columns": "x"}
    if every is None:
        every = "1D" if order == "number" else 1
        with pytest.raises(ValueError, match="pass the column of times"):
            Sequences.from_frame(frame, every=1, **arguments)
    with pytest.raises(ValueError, match="`every` must be a positive distance"):
        Sequences.from_frame(frame, order=order, every=every, **arguments)
    with pytest.raises(ValueError, match="max_length"):
        Sequences.from_frame(frame, order=order, max_length=0, **arguments)


ODD_ROWS = {
    "missing time": {"when": None}, "unreadable time": {"when": "yesterday"}, "last day": {"when": "31.12.9999"},
    "first day": {"when": "01.01.0001"}, "missing number": {"number": np.nan}, "infinite": {"number": np.inf},
    "minus infinity": {"number": -np.inf}, "huge": {"number": 1e308}, "minus huge": {"number": -1e308},
    "missing id": {"who": None}, "id of another kind": {"who": 7.5}, "id that cannot be hashed": {"who": [1, 2]},
    "missing cells": {"x": None, "y": None}, "cell of another kind": {"x": "<5"},
}  # fmt: skip


FRAME = pd.DataFrame({
    "who": pd.Series(["a", "a", "a", "a", "b", "b"], dtype=object),
    "when": ["28.01.2020", "30.01.2020", "05.02.2020", "07.02.2020", "01.01.2020", "05.01.2020"],
    "number": [1.0, 3.0, 9.0, 11.0, 1.0, 5.0],
    "x": pd.Series([0, 1, 1, 0, 1, 0], dtype=object),
    "y": pd.Series([1, 0, 1, 0, 1, 0], dtype=object),
})  # fmt: skip
OF_TIME = {"number": {"every": 0.5}, "when": {"every": "2D", "date_format": "%d.%m.%Y"}}


def spaced_and_fitted(frame, order):
    """The sequences and a private fit to them, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        named = {"by": "who", "order": order, "columns": ["x", "y"], "max_length": 9} | OF_TIME[order]
        sequences = Sequences.from_frame(frame, **named)
        warnings.filterwarnings("ignore", "There is no signal")  # of released totals
        plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=2)
        return sequences, GaussianHMM(1, max_norm=3.0, privacy=plan).fit(sequences)


@cached
def unchanged(order):
    return spaced_and_fitted(FRAME, order)


@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("odd", ODD_ROWS.values(), ids=ODD_ROWS)
def test_one_cell_changes_nothing_for_others(odd, row):
    """Neither errors, warnings, shapes and dtypes, nor the sequences of other persons."""
    changed = FRAME.astype({"when": object})
    for name, cell in odd.items():
        changed.at[row, name] = cell
    for order in OF_TIME:
        both, fits = zip(unchanged(order), spaced_and_fitted(changed, order), strict=True)
        others = [sequences[sequences.ids == "b"] for sequences in both]
        np.testing.assert_array_equal(others[0].values, others[1].values)
        assert others[0].index_of_steps.of_steps().equals(others[1].index_of_steps.of_steps())
        assert both[0].values.dtype == both[1].values.dtype
        assert both[1].lengths.max() <= 9
        assert fits[0].means_.shape == fits[1].means_.shape
        assert fits[0].privacy_.declared_public == fits[1].privacy_.declared_public


def test_gaps_in_time_are_missing_steps_of_a_fit():
    """Two states that stay with 0.8. A quarter of the months has no row: side by side, states seem to stay less."""
    rng = np.random.default_rng(1)
    states = (rng.random((1500, 20)) < 0.2).cumsum(axis=1) % 2
    who, when = np.divmod(np.arange(states.size), 20)
    frame = pd.DataFrame({"who": who, "when": when, "x": (2 * states + rng.integers(0, 2, states.shape)).ravel()})
    frame = frame[rng.random(len(frame)) > 0.25]
    arguments = NAMES | {"columns": "x"}
    in_time = CategoricalHMM(2, n_symbols=4, random_state=0).fit(Sequences.from_frame(frame, every=1, **arguments))
    side_by_side = CategoricalHMM(2, n_symbols=4, random_state=0).fit(Sequences.from_frame(frame, **arguments))
    assert np.abs(np.diag(in_time.transmat_) - 0.8).max() < 0.012
    assert (np.diag(side_by_side.transmat_) < 0.788).all()


@pytest.mark.parametrize("name", ["who", "when", "x"])
def test_columns_with_one_name_are_named(name):
    frame = pd.DataFrame([[1, 0, 2, 3]], columns=["who", "when", "x", name])
    with pytest.raises(ValueError, match=f"several columns '{name}'"):
        Sequences.from_frame(frame, **NAMES, columns="x")


@pytest.mark.parametrize("odd", [-np.inf, np.inf, np.nan])
def test_rows_without_a_time_have_no_slot(odd):
    frame = pd.DataFrame({"who": 1, "when": [3.0, odd, 1.0], "x": [1, 2, 3], "y": [4, 5, 6]})
    np.testing.assert_array_equal(spaced(frame, every=1).values, [[3, 6], [np.nan, np.nan], [1, 4]])
