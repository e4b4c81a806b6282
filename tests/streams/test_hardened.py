"""Streams of whole numbers: exact sums, a lattice that a stream keeps, and plans that have none."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import vips.streams.release as release_module
import vips.streams.stream as stream_module
from tests.streams.test_partial_fit import COUNTS, OF_FIVE, ROWS, TARGETS, plan
from tests.streams.test_strategies import matrices
from vips import BayesianLinearRegression, DirichletMultinomial, StreamPlan
from vips.core import accounting


@pytest.mark.parametrize("decay", [1.0, 0.9])
@pytest.mark.parametrize("mechanism", ["toeplitz", "tree", "independent"])
def test_hardened_streams_are_whole_numbers(mechanism, decay, monkeypatch):
    """All sums are exact: a release is a function of the rounded records and of the draws, recomputed here from a log."""
    draws, sums = [], []

    def logged(function, log):
        def call(*arguments):
            value = function(*arguments)
            log.append(value["counts"] if isinstance(value, dict) else value)
            return value

        return call

    monkeypatch.setattr(release_module, "discrete_noise", logged(release_module.discrete_noise, draws))
    monkeypatch.setattr(stream_module.engine, "clipped_sum", logged(stream_module.engine.clipped_sum, sums))
    stream = plan(decay=decay, mechanism=mechanism, noise="discrete")
    model, released = DirichletMultinomial(privacy=stream), []
    for part in OF_FIVE:
        released.append(model.partial_fit(COUNTS[part]).noisy_totals_.average["counts"].copy())
    completed = stream_module._Stream(model, None, None, None)._completed(stream).of_draws
    unit = completed.lattice(model.blocks()).unit
    A, B = matrices(stream.strategy)
    exact = A @ np.stack(sums) + B @ np.stack(draws)
    assert all(array.dtype == np.int64 for array in (*draws, *sums))
    units = np.stack(released) / unit
    np.testing.assert_allclose(units, np.rint(units), rtol=1e-12)
    assert np.abs(np.rint(units) - exact).max() <= (0.5 if decay == 1.0 and mechanism != "toeplitz" else 2 * 5)
    for part, total in zip(OF_FIVE, sums, strict=True):  # rounded one by one, in any order
        weight = min(1.0, model.default_clip())
        np.testing.assert_array_equal(
            total, sum(np.rint(weight * row / unit) for row in COUNTS[part][::-1].astype(float))
        )


def test_hardened_streams_of_symmetric_blocks_are_symmetric():
    stream = plan(noise="discrete", decay=0.9)
    model = BayesianLinearRegression(privacy=stream, max_norm=1.0, target_range=(-2.0, 2.0))
    for part in OF_FIVE:
        model.partial_fit(ROWS[part], TARGETS[part])
        second = model.noisy_totals_.average["second"]
        np.testing.assert_array_equal(second, second.T)


def test_hardened_streams_of_persons_bound_their_rows(tmp_path):
    ids = pd.Series(np.arange(10) // 4, name="person")
    with pytest.raises(ValueError, match=r"StreamPlan\(max_rows_per_group"):
        DirichletMultinomial(privacy=plan(noise="discrete")).partial_fit(COUNTS[:10], groups=ids)
    stream = plan(2, 1e4, noise="discrete", max_rows_per_group=2)
    model = DirichletMultinomial(privacy=stream)
    model.partial_fit(np.eye(3)[np.zeros(10, int)], groups=ids, checkpoint=tmp_path / "s.vips")
    rows = model.noisy_totals_.average["counts"].sum()
    assert rows <= 6.5
    assert model.privacy_.unit == "all rows of one person"
    again = DirichletMultinomial(privacy=stream).partial_fit(None, checkpoint=tmp_path / "s.vips")
    np.testing.assert_array_equal(again.noisy_totals_.average["counts"], model.noisy_totals_.average["counts"])
    for arguments in ({"noise": "magic"}, {"max_rows_per_group": 0}, {"epsilon": math.inf, "noise": "discrete"}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            plan(**arguments)


def test_a_stream_keeps_its_noise_whatever_another_version_would_find(tmp_path, monkeypatch):
    """With another lattice the same whole numbers would be other totals, and early noise would no longer fit to late noise."""
    path = tmp_path / "s.vips"
    arguments = {"epsilon": 2.3, "delta": 1e-6, "n_batches": 30, "noise": "discrete", "clip_norm": 1.0}
    rows = np.eye(2_965)[np.zeros(100, int)]
    model = DirichletMultinomial(privacy=StreamPlan(**arguments)).partial_fit(rows, checkpoint=path)
    calibrate = accounting.calibrate_noise
    monkeypatch.setattr(accounting, "calibrate_noise", lambda *a: 0.97 * calibrate(*a))  # one digit of the lattice less
    again = DirichletMultinomial(privacy=StreamPlan(**arguments)).partial_fit(None, checkpoint=path)
    np.testing.assert_array_equal(again.noisy_totals_.average["counts"], model.noisy_totals_.average["counts"])
    assert again.noisy_totals_.noise_std == model.noisy_totals_.noise_std
    assert again.privacy_.epsilon() == pytest.approx(2.3, rel=1e-3)
    other = DirichletMultinomial(privacy=StreamPlan(**arguments)).partial_fit(rows)
    assert other.noisy_totals_.noise_std["counts"] < 0.98 * model.noisy_totals_.noise_std["counts"]


def test_plans_that_cannot_be_are_refused_when_they_are_made():
    for epsilon, delta in ((1e7, 1e-6), (1e-9, 1e-12)):
        with pytest.raises(ValueError, match=r"epsilon between 0.01 and 1e4"):
            StreamPlan(epsilon=epsilon, delta=delta, n_batches=5, noise="discrete")
    for epsilon in (0.01, 1e4):
        for noise in ("gaussian", "discrete"):
            assert plan(epsilon=epsilon, noise=noise).noise_std(1) > 0.0
    model = DirichletMultinomial(privacy=plan(365, mechanism="tree", decay=0.97, noise="discrete"))
    with pytest.raises(ValueError, match='mechanism="toeplitz"'):
        model.partial_fit(np.zeros((0, 20_000)))
    model = DirichletMultinomial(privacy=plan(365, decay=0.97, noise="discrete"))
    assert model.partial_fit(np.zeros((0, 20_000))).n_batches_seen_ == 1
