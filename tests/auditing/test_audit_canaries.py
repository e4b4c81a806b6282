"""Lower bounds on ε from canaries are valid, and near the claim."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.auditing.audits import CANARIES, CONFIDENCE
from vips import PrivacyPlan
from vips.auditing.bound import log_likelihood_ratio, lower_bound
from vips.auditing.canaries import canary_bound, canary_totals

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    "plan", CANARIES, ids=lambda plan: f"{plan.relation}, q = {plan.sampling_rate:g}, T = {plan.n_steps}"
)
def test_canaries_reach_most_of_the_claim_and_never_exceed_it(plan):
    bound = canary_bound(plan, 100_000, np.random.default_rng(0), CONFIDENCE)
    assert not bound.exceeded
    assert bound.ratio >= 0.7, f"{bound.bound:.3f} of {bound.claim:.3f}"


DISCRETE = [
    PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=1, clip_norm=2.0, noise="discrete"),
    PrivacyPlan(noise_multiplier=3.0, sampling="full", n_steps=8, clip_norm=2.0, noise="discrete"),
    PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.8, n_steps=1, clip_norm=2.0, noise="discrete"),
    PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.5, n_steps=10, clip_norm=2.0, noise="discrete"),
    PrivacyPlan(
        noise_multiplier=2.0, sampling_rate=0.5, n_steps=10, clip_norm=2.0, noise="discrete", relation="replace_one"
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan",
    CANARIES + DISCRETE,
    ids=lambda plan: f"{plan.noise}, {plan.relation}, q = {plan.sampling_rate:g}, T = {plan.n_steps}",
)
def test_a_million_canaries_come_near_the_claim(plan):
    bound = canary_bound(plan, 1_000_000, np.random.default_rng(0), CONFIDENCE)
    assert not bound.exceeded
    assert bound.ratio >= 0.85, f"{bound.bound:.3f} of {bound.claim:.3f}"


@pytest.mark.slow
def test_one_canary_in_a_run_gives_the_same_bound_as_many():
    """Many in a run: the bound on μ of 2,000 trials has mean 0.57 and deviation 0.05 (3,000 audits; least: 0.39)."""
    plan = CANARIES[0]
    bound = canary_bound(plan, 2000, np.random.default_rng(0), CONFIDENCE, canaries_per_run=1)
    assert not bound.exceeded
    assert 0.3 < bound.mu_bound <= bound.mu_claim == 1.0


def test_scores_are_likelihood_ratios():
    """Scores are the log ratio of the densities of an outcome in the two worlds."""
    from scipy import stats

    plan = PrivacyPlan(noise_multiplier=1.3, sampling_rate=0.3, n_steps=1, clip_norm=1.0)
    z = np.linspace(-6, 7, 11)[:, None]
    with_record = 0.7 * stats.norm.pdf(z, 0.0, 1.3) + 0.3 * stats.norm.pdf(z, 1.0, 1.3)
    without = stats.norm.pdf(z, 0.0, 1.3)
    np.testing.assert_allclose(log_likelihood_ratio(z, plan), np.log(with_record / without)[:, 0], atol=1e-12)
    replaced = replace(plan, relation="replace_one")
    opposite = 0.7 * without + 0.3 * stats.norm.pdf(z, -1.0, 1.3)
    np.testing.assert_allclose(log_likelihood_ratio(z, replaced), np.log(with_record / opposite)[:, 0], atol=1e-12)


def test_canaries_move_the_sum_by_the_clip_norm():
    for noise in ("gaussian", "discrete"):
        plan = PrivacyPlan(noise_multiplier=0.01, sampling="full", n_steps=2, clip_norm=3.0, noise=noise)
        totals, in_world_a = canary_totals(plan, 500, np.random.default_rng(0))
        np.testing.assert_allclose(totals[in_world_a], 1.0, atol=0.08)
        np.testing.assert_allclose(totals[~in_world_a], 0.0, atol=0.08)


@pytest.mark.slow
def test_a_valid_bound_is_rarely_exceeded_at_low_confidence():
    """At 80 % confidence, over many small audits of the exact mechanism: the bound is too high in at most 20 %."""
    plan = CANARIES[0]
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(200):
        world = rng.integers(0, 2, 1000).astype(bool)
        z = world + rng.normal(size=1000)
        wrong += lower_bound(log_likelihood_ratio(z[:, None], plan), world, plan, 0.8).exceeded
    assert wrong <= 40
