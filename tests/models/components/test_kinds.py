"""A kind of columns in a file of its own (``durations.py``) works in mixtures and chains; chains of all kinds."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from tests.models.components.durations import Durations, duration
from tests.models.markov.columns import ColumnHMM
from tests.plans import every
from vips import MixedLatentClassAnalysis, PrivacyPlan
from vips.data import Sequences
from vips.models.components import columns

SHAPE, SCALES = 1.5, np.array([[10.0], [60.0]])  # of Weibulls
COLUMNS = [(-4.0, 4.0), range(16), 3]
MEANS, DEVIATIONS, RATES = np.array([-1.0, 1.0]), np.array([0.5, 0.9]), np.array([1.0, 5.0])
ANSWERS = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
PLAN = PrivacyPlan.from_epsilon(epsilon=2.0, delta=1e-6, sampling_rate=1.0, n_steps=40)


@pytest.fixture
def durations_are_known():
    columns.KINDS.insert(0, Durations)
    yield
    columns.KINDS.remove(Durations)


def chain(n_sequences, n_steps, seed=0):
    """States that stay with probability 0.8."""
    return (np.random.default_rng(seed).random((n_sequences, n_steps)) < 0.2).cumsum(axis=1) % 2


def steps(states, seed=1, missing=0.05):
    """A number, a count and an answer at each step, shape (..., 3)."""
    rng = np.random.default_rng(seed)
    answers = (rng.random((*states.shape, 1)) >= np.cumsum(ANSWERS, axis=1)[states]).sum(axis=-1)
    numbers = MEANS[states] + DEVIATIONS[states] * rng.normal(size=states.shape)
    values = np.stack([numbers, rng.poisson(RATES[states]), np.minimum(answers, 2)], axis=-1)
    return np.where(rng.random(values.shape) < missing, np.nan, values)


def log_densities(model, values):
    """Log density of steps in each state at the posterior's means, by SciPy; a missing cell is left out."""
    (x, visits, answer), posterior = values.T[:, :, None], model.posterior_
    means, deviations = model._columns(posterior.frame).components[0].in_units(posterior.columns["numbers"])
    answers = np.log(posterior.columns["answers"][0].mean)[:, np.nan_to_num(answer[:, 0]).astype(int)].T
    of_kinds = [
        stats.norm.logpdf(x, means[:, 0], deviations[:, 0]),
        stats.poisson.logpmf(visits, posterior.columns["counts"].mean[:, 0]),
        np.where(np.isnan(answer), np.nan, answers),
    ]
    return np.nansum(of_kinds, axis=0)


def test_scores_are_sums_over_all_paths():
    values = steps(chain(40, 5))
    model = ColumnHMM(2, columns=COLUMNS, random_state=0).fit(list(values))
    expected = []
    for sequence in values:
        logs, paths = log_densities(model, sequence), []
        for path in product(range(2), repeat=5):
            moves = sum(np.log(model.transmat_[a, b]) for a, b in pairwise(path))
            paths.append(np.log(model.startprob_[path[0]]) + moves + logs[np.arange(5), path].sum())
        expected.append(logsumexp(paths))
    np.testing.assert_allclose(model.score_samples(list(values)), expected, rtol=1e-9)


def test_em_is_the_weighted_mean_of_each_kind():
    """One more step of EM: means, deviations, rates and shares of answers, weighted by the probabilities of the states."""
    values = list(steps(chain(60, 8)))
    start, end = (
        ColumnHMM(2, columns=COLUMNS, inference="em", random_state=0, privacy=every(n)).fit(values) for n in (4, 5)
    )
    shares, (x, visits, answer) = start.predict_proba(Sequences.from_list(values)), np.concatenate(values).T
    table, posterior = end.summary(), end.posterior_

    def mean(cells):
        seen = ~np.isnan(cells)
        return shares[seen].T @ cells[seen] / shares[seen].sum(axis=0)

    means = mean(x)
    np.testing.assert_allclose(table["mean x0"], means, rtol=1e-9)
    np.testing.assert_allclose(np.square(table["std x0"]), mean(x**2) - means**2, rtol=1e-7)
    np.testing.assert_allclose(table["mean x1"], mean(visits), rtol=1e-9)
    indicators = np.where(np.isnan(answer), np.nan, answer == 2)
    np.testing.assert_allclose(posterior.columns["answers"][0].mean[:, 2], mean(indicators), rtol=1e-9)


@pytest.mark.slow
def test_a_private_chain_of_all_kinds_has_intervals(many_generated_sequences):
    values = steps(chain(6_000, 12, seed=3), seed=4)
    model = ColumnHMM(2, columns=COLUMNS, typical_length=12, privacy=PLAN, random_state=0).fit(list(values))
    assert not model.why_no_intervals()
    posterior = model.posterior_.in_order(np.argsort(model.summary()["mean x1"].to_numpy()))
    frame = posterior.frame
    means = [
        frame.centre[0] + frame.scale[0] * side[:, 0]
        for side in posterior.columns["numbers"].means.interval(1.0 - 1e-6)
    ]
    for (low, high), truth in (
        (means, MEANS),
        ([side[:, 0] for side in posterior.columns["counts"].interval(1.0 - 1e-6)], RATES),
        (posterior.columns["answers"][0].interval(1.0 - 1e-6), ANSWERS),
        (posterior.draws["moves"].interval(1.0 - 1e-6), np.array([[0.8, 0.2], [0.2, 0.8]])),
    ):
        assert ((low <= truth) & (truth <= high)).all(), (low, truth, high)
        assert np.max(high - low) < 0.3


@pytest.mark.slow
def test_durations_are_a_mixture(durations_are_known, many_simulated_records):
    rng = np.random.default_rng(5)
    kind = (rng.random(20_000) < 0.4).astype(int)
    rows = np.column_stack([SCALES[kind, 0] * rng.weibull(SHAPE, len(kind)) for _ in range(3)])
    settings = {"columns": [duration(400.0, SHAPE)] * 3, "random_state": 0}
    plain = MixedLatentClassAnalysis(2, inference="em", **settings).fit(rows[:4_000])
    np.testing.assert_allclose(plain.posterior_.frame.centre, (rows[:4_000] ** SHAPE).mean(axis=0))
    rates = plain.posterior_.columns["durations"].mean[:, None]
    logs = stats.weibull_min.logpdf(rows[:50], SHAPE, scale=rates ** (-1.0 / SHAPE)).sum(axis=-1)
    np.testing.assert_allclose(
        plain.score_samples(rows[:50]), logsumexp(logs + np.log(plain.weights_)[:, None], axis=0)
    )
    check_durations(MixedLatentClassAnalysis(2, privacy=PLAN, **settings).fit(rows), 3)


@pytest.mark.slow
def test_durations_are_a_chain(durations_are_known, many_generated_sequences):
    states = chain(6_000, 12, seed=6)
    values = SCALES[states] * np.random.default_rng(7).weibull(SHAPE, (*states.shape, 1))
    model = ColumnHMM(2, columns=[duration(400.0, SHAPE)], typical_length=12, privacy=PLAN, random_state=0)
    check_durations(model.fit(list(values)), 1)


def check_durations(model, n_columns):
    assert not model.why_no_intervals()
    low, high = (np.sort(side, axis=0) for side in model.posterior_.columns["durations"].interval(1.0 - 1e-6))
    truth = np.repeat(np.sort(SCALES**-SHAPE, axis=0), n_columns, axis=1)
    assert ((low <= truth) & (truth <= high)).all(), (low, truth, high)
    assert np.max(high / low) < 1.3
