"""Ordinary fits go on until they have settled, and say so if they have not; private fits never stop early."""

import warnings
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from vips import (
    BayesianGaussianMixture,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    CategoricalHMM,
    GaussianHMM,
    LatentClassAnalysis,
    LatentDirichletAllocation,
    LinearDynamicalSystem,
    PrivacyPlan,
)
from vips.core.posteriors import posterior_arrays
from vips.settling import Settling, distance
from vips.tools.auditing.replay import watched

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(3000, 3))
RARE = RNG.random(3000) < 1.0 / (1.0 + np.exp(5.0 - ROWS @ [0.6, 0.0, 1.0]))
MEANS = np.exp(ROWS[:, 0] * 0.3 + np.log(292.0))
COUNTS = RNG.negative_binomial(5, 5.0 / (5.0 + MEANS))


class Counted:
    """Counts the posteriors of a fit."""

    def to_posterior(self, average, noise_std, previous):
        self.n_posteriors = 1 if previous is None else self.n_posteriors + 1
        return super().to_posterior(average, noise_std, previous)


class Logistic(Counted, BayesianLogisticRegression):
    pass


class Counts(Counted, BayesianNegativeBinomialRegression):
    pass


def steps_of(model):
    return model.n_posteriors - 1


@pytest.mark.parametrize("rate", [0.1, 0.9, 0.99])
def test_the_distance_of_a_geometric_sequence_is_exact(rate):
    settling, limit = Settling(1e-3), np.array([3.0, 4.0])
    for t in range(2000):
        offset = rate**t
        if settling.has_settled({"mean": limit * (1.0 + offset)}):
            break
    assert offset * rate < 1e-3 / rate**2, "late by two steps at most"
    if rate > 0.5:  # below that, the last move, which is more than what is left
        assert settling.distance == pytest.approx(offset, rel=0.01)


def test_moves_that_grow_or_change_shape_are_far_from_settled():
    settling = Settling(0.5)
    assert not any(settling.has_settled({"mean": np.array([1.0 + 1e-6 * 2.0**t])}) for t in range(15))
    assert not settling.has_settled({"mean": np.ones(2)})


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize(("model", "y"), [(Logistic, RARE), (Counts, COUNTS)])
@pytest.mark.representatives("Logistic-y0-full")
def test_an_ordinary_regression_reaches_its_limit(model, y, covariance):
    settled, n_steps = model(covariance=covariance).fit(ROWS, y), 500 if model is Logistic else 1500
    limit = model(covariance=covariance, privacy=PrivacyPlan.non_private(n_steps=n_steps)).fit(ROWS, y)
    assert steps_of(settled) < steps_of(limit)
    np.testing.assert_allclose(settled.last_posterior_.mean, limit.last_posterior_.mean, rtol=1e-4, atol=1e-4)
    if model is Logistic:  # a maximum of the likelihood predicts the share that was seen
        assert settled.predict_proba(ROWS)[:, 1].mean() == pytest.approx(RARE.mean(), rel=0.02)


def test_easy_tables_need_few_steps():
    easy = Logistic().fit(ROWS, ROWS @ [1.0, 0.0, -1.0] + RNG.logistic(size=3000) > 0.0)
    assert steps_of(easy) < 50


# Two classes of answers, two clouds, two levels in turn, what is seen at them, and words of two kinds.
CLASSES = (RNG.random((2000, 6)) < np.where(RNG.random((2000, 1)) < 0.4, 0.9, 0.3)).astype(int)
CLOUDS = RNG.normal(size=(2000, 2)) + 4.0 * (RNG.random((2000, 1)) < 0.3)
WALKS = (RNG.random((300, 20)) < 0.1).cumsum(axis=1) % 2
LEVELS = list(RNG.normal(size=(300, 20)) + 3.0 * WALKS)
SYMBOLS = list((RNG.random((300, 20)) < 0.1 + 0.7 * WALKS).astype(int))
WORDS = RNG.poisson(np.where(RNG.random((200, 1)) < 0.5, [2.0] * 5 + [0.1] * 5, [0.1] * 5 + [2.0] * 5))


@pytest.mark.representatives("classes", "topics")
@pytest.mark.parametrize(
    ("make", "records"),
    [
        (partial(LatentClassAnalysis, 2), CLASSES),
        (partial(BayesianGaussianMixture, 2), CLOUDS),
        (partial(GaussianHMM, 2), LEVELS),
        (partial(CategoricalHMM, 2, n_symbols=2), SYMBOLS),
        (partial(LinearDynamicalSystem, 1), LEVELS),
        (partial(LatentDirichletAllocation, 2, vocabulary=10), WORDS),
    ],
    ids=["classes", "mixture", "Gaussian chain", "chain", "dynamics", "topics"],
)
def test_an_ordinary_fit_with_hidden_parts_reaches_its_limit(make, records):
    model, steps = make(random_state=0), []
    with warnings.catch_warnings(), watched(model, lambda *state: steps.append(state)):
        warnings.simplefilter("error")
        model.fit(records)
    assert len(steps) - 1 < model.default_plan(len(records)).n_steps
    limit = make(random_state=0, privacy=PrivacyPlan.non_private(n_steps=len(steps) + 500)).fit(records)
    ours, theirs = (posterior_arrays(fitted.last_posterior_) for fitted in (model, limit))
    assert max(distance(ours[name], theirs[name]) for name in ours if ours[name].dtype.kind == "f") < 3e-3


def test_a_start_does_not_settle():
    """Steps that count pairs leave the posterior as it is."""
    model, steps = CategoricalHMM(2, n_symbols=2, random_state=0), []
    phases = model.phases
    of_steps = lambda n: [replace(phase, n_steps=m) for phase, m in zip(phases(n), (9, n - 9), strict=True)]  # noqa: E731
    model.phases = of_steps
    with watched(model, lambda *state: steps.append(state)):
        model.fit(SYMBOLS)
    assert len(steps) > 10


@pytest.mark.slow
def test_a_table_without_a_limit_warns():
    says = r"has not settled in 1,000 steps.*separate the labels.*stronger `prior`"
    with pytest.warns(ConvergenceWarning, match=says):
        Logistic().fit(ROWS[:100], ROWS[:100, 0] > 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Logistic(prior=1.0).fit(ROWS[:100], ROWS[:100, 0] > 0.0)


@pytest.mark.parametrize(
    "plan",
    [
        PrivacyPlan.non_private(n_steps=30),
        PrivacyPlan(noise_multiplier=1e-9, sampling="full", n_steps=30, clip_norm=1e6),
        PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=30),
    ],
    ids=["stated", "hardly any noise", "private"],
)
def test_a_stated_number_of_steps_is_kept(plan):
    """A private fit's number of steps is public: it does not depend on records, however little noise there is."""
    model, steps = BayesianLogisticRegression(privacy=plan, max_norm=5.0), []
    with watched(model, lambda *state: steps.append(state)):
        model.fit(np.zeros((50, 3)), np.arange(50) % 2)
    assert len(steps) == 30 + 1  # and the start


def test_posteriors_of_no_floats_settle_at_once_and_those_of_no_numbers_never():
    settling = Settling(1e-3)
    posterior = SimpleNamespace(to_arrays=lambda: {"step": np.array(3)})
    assert [settling.has_settled(posterior) for _ in range(3)][-1]
    settling = Settling(1e-3)
    assert not any(settling.has_settled({"mean": np.full(3, np.nan)}) for _ in range(5))
