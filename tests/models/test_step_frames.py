"""States and forecasts of sequences of a data frame come back as data frames, with id and time; those of others as arrays."""

from __future__ import annotations

import pickle
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from dask import delayed

from tests.known_bits import cached
from vips import (
    CategoricalHMM,
    FactorialHMM,
    GaussianHMM,
    LinearDynamicalSystem,
    PoissonHMM,
    PrivacyPlan,
    SwitchingLinearDynamicalSystem,
)
from vips.data import InMemoryData, Sequences, SequenceSource

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({
    "patient": RNG.choice(["007", "7", "x"], 40),
    "day": RNG.permutation(40),
    "pulse": RNG.integers(0, 3, 40),
    "calls": RNG.integers(0, 3, 40),
})  # fmt: skip
SHORT = PrivacyPlan.non_private(sampling_rate=1.0, n_steps=2)
VECTORS = ["pulse", "calls"]


MODELS = {
    "categorical": (CategoricalHMM, "pulse", {"n_symbols": 3}, "predict predict_proba"),
    "gaussian": (GaussianHMM, VECTORS, {}, "predict predict_proba"),
    "poisson": (PoissonHMM, VECTORS, {"max_count": 3}, "predict predict_proba"),
    "factorial": (FactorialHMM, VECTORS, {"n_chains": 3}, "predict predict_proba"),
    "linear": (LinearDynamicalSystem, VECTORS, {}, "predict transform smooth filter"),
    "switching": (SwitchingLinearDynamicalSystem, VECTORS, {"n_regimes": 3}, "predict predict_proba transform smooth"),
}


@cached
def fitted(name):
    """A model, and the sequences to which it was fitted."""
    make, columns, settings, _ = MODELS[name]
    sequences = Sequences.from_frame(FRAME, by="patient", order="day", columns=columns)
    return make(n_components=2, privacy=SHORT, random_state=0, **settings).fit(sequences), sequences


@pytest.mark.parametrize("name", MODELS)
def test_states_have_id_and_time(name):
    (model, sequences), methods = fitted(name), MODELS[name][-1]
    expected = FRAME.sort_values("day", kind="stable")
    for method in methods.split():
        frame, array = (getattr(model, method)(X) for X in (sequences, list(sequences)))
        if method in ("smooth", "filter"):
            np.testing.assert_array_equal(frame[1], array[1])
            frame, array = frame[0], array[0]
        assert type(array) is np.ndarray
        np.testing.assert_array_equal(frame.to_numpy(), array.reshape(40, -1))
        assert frame.index.names == ["patient", "day"]
        assert set(frame.index) == set(zip(FRAME["patient"], FRAME["day"], strict=True))
        for who in sequences.ids:
            assert frame.loc[who].index.tolist() == expected.loc[expected["patient"] == who, "day"].tolist()
        assert frame.columns.is_unique
        pd.testing.assert_frame_equal(getattr_first(model, method, sequences[[2, 0]]), frame.loc[sequences.ids[[2, 0]]])


def getattr_first(model, method, X):
    states = getattr(model, method)(X)
    return states[0] if isinstance(states, tuple) else states


def test_columns_say_what_they_hold():
    columns = {name: list(model.predict(sequences)) for name in MODELS for model, sequences in [fitted(name)]}
    assert columns["categorical"] == columns["gaussian"] == columns["poisson"] == ["state"]
    assert columns["factorial"] == ["chain 0", "chain 1", "chain 2"]
    assert columns["linear"] == VECTORS
    assert columns["switching"] == ["regime"]
    model, sequences = fitted("factorial")
    shares = model.predict_proba(sequences)
    np.testing.assert_array_equal(shares["chain 1, state 0"], model.predict_proba(list(sequences))[:, 1, 0])


@pytest.mark.parametrize("every", [None, 2])
def test_forecasts_go_on_in_time(every):
    model, _ = fitted("linear")
    sequences = Sequences.from_frame(FRAME, by="patient", order="day", columns=VECTORS, every=every)
    frames, arrays = (model.forecast(X, n_steps=3) for X in (sequences, list(sequences)))
    for frame, array in zip(frames, arrays, strict=True):
        np.testing.assert_array_equal(frame.to_numpy(), array.reshape(-1, 2))
        assert list(frame) == VECTORS
        assert frame.index.names == ["patient", "steps ahead" if every is None else "day"]
        for who in sequences.ids:
            last = FRAME.loc[FRAME["patient"] == who, "day"].max()
            expected = [1, 2, 3] if every is None else [last + 2, last + 4, last + 6]
            assert frame.loc[who].index.tolist() == expected


def test_forecasts_after_no_steps_have_an_id():
    frame = pd.DataFrame({"patient": [1, 2], "day": [0.5, np.nan], "pulse": 1.0, "calls": 2.0})
    sequences = Sequences.from_frame(frame, by="patient", order="day", columns=VECTORS, every=1)
    mean, _, _ = fitted("linear")[0].forecast(sequences)
    assert mean.index.get_level_values("patient").tolist() == [1, 2]
    np.testing.assert_array_equal(mean.index.get_level_values("day"), [1.5, np.nan])


@pytest.mark.parametrize(
    "ids", [[UUID(int=7), UUID(int=1), UUID(int=7)], [(1, "a"), (2, "b"), (1, "a")], [b"x", b"y", b"x"], [1, 2, 1]]
)
def test_ids_of_any_kind_come_back(ids):
    model, _ = fitted("categorical")
    frame = pd.DataFrame({"patient": pd.Series(ids, dtype=object), "pulse": [0, 1, 2]})
    states = model.predict(Sequences.from_frame(frame, by="patient", columns="pulse"))
    assert states.index.tolist() == [(ids[0], 0), (ids[0], 1), (ids[1], 0)]
    assert states.index.names == ["patient", "step"]


def test_shuffled_rows_have_the_same_states():
    model, sequences = fitted("gaussian")
    shuffled = Sequences.from_frame(FRAME.sample(frac=1.0, random_state=1), by="patient", order="day", columns=VECTORS)
    both = [model.predict_proba(X).sort_index() for X in (sequences, shuffled)]
    pd.testing.assert_frame_equal(*both, check_exact=True)


def test_ids_stay_with_their_sequences():
    _, sequences = fitted("gaussian")
    kept = sequences[sequences.ids != "7"]
    assert "7" not in kept.ids
    held = pickle.dumps(kept)
    assert pickle.loads(held).index_of_steps.of_steps().equals(kept.index_of_steps.of_steps())
    assert len(held) < len(pickle.dumps(sequences))
    short = kept.first(2).copy().astype(np.float32)
    assert short.index_of_steps.of_steps().get_level_values(0).tolist() == list(kept.ids.repeat(2))
    assert Sequences.from_list([[1.0]]).ids is None


def test_a_fit_reads_no_ids():
    """Nor does it send any to workers."""
    model, sequences = fitted("gaussian")
    assert InMemoryData(sequences).arrays[0].ids is None
    assert model.records_of(sequences, None).arrays[0].ids is None
    part = SequenceSource.from_dask([delayed(sequences)], n_features=2).partitions[0]
    assert part.open().X.ids is None


@pytest.mark.parametrize("name", MODELS)
def test_reports_say_that_steps_are_equally_spaced(name):
    model, _ = fitted(name)
    assert any("equally spaced in time" in fact for fact in model.privacy_.declared_public)
