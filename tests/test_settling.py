"""Ordinary fits go on until they have settled, and say so if they have not; private fits never stop early."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from vips import BayesianLogisticRegression, BayesianNegativeBinomialRegression, PrivacyPlan
from vips.settling import Settling

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
def test_an_ordinary_regression_reaches_its_limit(model, y, covariance):
    settled = model(covariance=covariance).fit(ROWS, y)
    limit = model(covariance=covariance, privacy=PrivacyPlan.non_private(n_steps=1500)).fit(ROWS, y)
    assert steps_of(settled) < steps_of(limit)
    np.testing.assert_allclose(settled.posterior_.mean, limit.posterior_.mean, rtol=1e-4, atol=1e-4)
    if model is Logistic:  # a maximum of the likelihood predicts the share that was seen
        assert settled.predict_proba(ROWS)[:, 1].mean() == pytest.approx(RARE.mean(), rel=0.02)


def test_easy_tables_need_few_steps():
    easy = Logistic().fit(ROWS, ROWS @ [1.0, 0.0, -1.0] + RNG.logistic(size=3000) > 0.0)
    assert steps_of(easy) < 50


def test_a_table_without_a_limit_warns():
    with pytest.warns(
        ConvergenceWarning, match=r"has not settled in 1,000 steps.*separate the labels.*stronger `prior`"
    ):
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
    zeros = np.zeros((50, 3))
    assert steps_of(Logistic(privacy=plan, max_norm=5.0).fit(zeros, np.arange(50) % 2)) == 30


def test_other_posteriors_of_no_floats_settle_at_once():
    settling = Settling(1e-3)
    posterior = SimpleNamespace(to_arrays=lambda: {"step": np.array(3)})
    assert [settling.has_settled(posterior) for _ in range(3)][-1]


def test_posteriors_of_no_numbers_never_settle():
    settling = Settling(1e-3)
    assert not any(settling.has_settled({"mean": np.full(3, np.nan)}) for _ in range(5))
