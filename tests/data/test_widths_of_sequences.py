"""No private sequence decides a width or a dtype: neither errors nor public attributes depend on one."""

from __future__ import annotations

import numpy as np
import pytest
from dask import delayed

from vips import (
    CategoricalHMM,
    FactorialHMM,
    GaussianHMM,
    LinearDynamicalSystem,
    PrivacyPlan,
    SwitchingLinearDynamicalSystem,
)
from vips.data import Sequences, SequenceSource, regroup, write_sequences

PLAN = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=2, clip_norm=1.0)
ODD = {
    "text": np.array(["a", "b"]), "None": [1.0, None], "ragged": [[1.0], [1.0, 2.0]], "two columns": np.ones((3, 2)),
    "five columns": np.ones((3, 5)), "long double": np.full(3, np.longdouble("1e4000")), "whole numbers": np.array([0, 1]),
    "single precision": np.ones(2, np.float32), "no steps": np.zeros(0),
}  # fmt: skip
OF_VECTORS = [GaussianHMM, FactorialHMM, LinearDynamicalSystem, SwitchingLinearDynamicalSystem]
each_odd = pytest.mark.parametrize("odd", ODD.values(), ids=ODD)


@pytest.mark.parametrize("others", [[], [np.zeros(0)] * 3, [np.array([0, 1, 1])] * 2], ids=["alone", "empty", "whole"])
@pytest.mark.parametrize("make", [*OF_VECTORS, CategoricalHMM], ids=lambda make: make.__name__)
def test_one_sequence_decides_no_width_of_a_private_fit(make, others):
    settings = {"n_symbols": 2} if make is CategoricalHMM else {"n_features": 1, "max_norm": 1.0}
    lists = {"nothing": others} | {name: [*others, odd] for name, odd in ODD.items()}
    for name, sequences in lists.items():
        model = make(n_components=1, privacy=PLAN, **settings).fit(sequences)
        assert model.n_features_in_ == 1, f"{name} decides the width"


@pytest.mark.parametrize("make", OF_VECTORS, ids=lambda make: make.__name__)
def test_a_private_fit_to_a_list_needs_a_declared_width(make):
    model = make(n_components=1, privacy=PLAN, max_norm=1.0)
    for sequences in ([], [np.zeros(0)], [np.ones((3, 2))], [np.ones((3, 2)), np.ones(3)]):
        with pytest.raises(ValueError, match=rf"{make.__name__}\(..., n_features=1\)"):
            model.fit(sequences)
    vectors = [np.random.default_rng(0).normal(size=(30, 2))] * 4
    assert make(n_components=1, privacy=PrivacyPlan.non_private(n_steps=2)).fit(vectors).n_features_in_ == 2
    with pytest.raises(ValueError, match="1 column"):
        model.set_params(n_features=1).fit(Sequences(np.ones((3, 2)), np.array([0, 3])))
    for wrong in (0, 1.5, "2"):
        with pytest.raises(ValueError, match="n_features"):
            model.set_params(n_features=wrong).fit([np.ones(3)])


@each_odd
def test_errors_about_settings_depend_on_no_sequence(odd):
    """A prior of another width is refused, and lags that are too few are, whatever the sequences are."""
    whole = [np.ones((4, 2))] * 2
    for sequences in (whole, [*whole, odd], [odd]):
        with pytest.raises(ValueError, match="means_prior"):
            GaussianHMM(2, n_features=2, means_prior=np.zeros(3), max_norm=1.0, privacy=PLAN).fit(sequences)
        with pytest.raises(ValueError, match="n_lags"):
            LinearDynamicalSystem(4, n_features=2, n_lags=1, max_norm=1.0, privacy=PLAN).fit(sequences)


@each_odd
def test_steps_of_lists_are_float64_whatever_they_hold(odd):
    for others in ([], [np.array([0, 1, 1])]):
        sequences = Sequences.from_list([*others, odd], 1)
        assert (sequences.values.dtype, sequences.shape) == (np.float64, (len(others) + 1, 1))


@each_odd
def test_one_sequence_of_a_later_part_stops_nothing(odd, tmp_path):
    parts = [[np.array([0, 1, 1])] * 3, [np.array([0, 1]), odd], [odd]]
    for name, batches in (("lists", parts), ("sequences", [Sequences.from_list(part, 1) for part in parts])):
        source = SequenceSource.from_dask([delayed(part, pure=False) for part in batches])
        persons = regroup(source, by=np.array([0, 0, 1, 1, 2, 2]), to=tmp_path / name, n_partitions=2)
        assert sum(partition.open().X.values.size for partition in persons.partitions) >= 11
    written = write_sequences(parts, tmp_path / "shards", n_features=1)
    assert (written.n_features, written.n_records) == (1, 6)
    assert CategoricalHMM(1, n_symbols=2, privacy=PLAN).fit(written).n_features_in_ == 1


def test_parts_of_dask_have_one_dtype(tmp_path):
    """Whole numbers, and in a later part a missing one, which makes it floats."""
    codes = [np.array([0, 1]), np.array([0.0, np.nan])]
    source = SequenceSource.from_dask([delayed(Sequences(part, np.array([0, 2]))) for part in codes])
    assert regroup(source, by=np.arange(2), to=tmp_path / "g", n_partitions=1).n_records == 2


def test_lengths_of_a_private_fit_come_with_an_array():
    for steps in ([0, 1, 1], [0, None, 1], [[0], [1], [1, 2]]):
        with pytest.raises(TypeError, match="needs X as an array"):
            CategoricalHMM(1, n_symbols=2, privacy=PLAN).fit(steps, [2, 1])
