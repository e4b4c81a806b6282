"""Lower bounds on ε from canaries are valid, and near the claim."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tests.tools.auditing.audits import CANARIES, CONFIDENCE, of_canaries
from vips import PrivacyPlan
from vips.tools.auditing.canaries import canary_bound, canary_totals, log_likelihood_ratio, lower_bound
from vips.tools.auditing.records import ROWS_OF_PERSON

pytestmark = pytest.mark.usefixtures("one_thread")


OF_PERSONS = [of_canaries(1.0, 1, noise=noise, max_rows_per_group=30) for noise in ("gaussian", "discrete")]
OF_WEIGHTS = of_canaries(1.0, 1, max_weight=4.0)
DISCRETE = [
    of_canaries(1.0, 1, noise="discrete"), of_canaries(3.0, 8, noise="discrete"), of_canaries(1.0, 1, 0.8, noise="discrete"),
    of_canaries(2.0, 10, 0.5, noise="discrete"), of_canaries(2.0, 10, 0.5, noise="discrete", relation="replace_one"),
]  # fmt: skip


def name_of(plan):
    name = f"{plan.noise}, {plan.relation}, q = {plan.sampling_rate:g}, T = {plan.n_steps}"
    return name + ", persons" * bool(plan.max_rows_per_group) + ", weights" * bool(plan.max_weight)


@pytest.mark.parametrize(
    ("plan", "n_canaries", "least"),
    [(plan, 100_000, 0.7) for plan in (*CANARIES, *OF_PERSONS, OF_WEIGHTS)]
    + [pytest.param(plan, 1_000_000, 0.85, marks=pytest.mark.slow) for plan in CANARIES + DISCRETE],
    ids=lambda value: name_of(value) if isinstance(value, PrivacyPlan) else str(value),
)
def test_canaries_reach_most_of_the_claim_and_never_exceed_it(plan, n_canaries, least):
    """Those of persons have as many rows as a plan's persons may have, and those of weights weigh more than is declared."""
    n_rows = {"n_rows": ROWS_OF_PERSON} if plan.max_rows_per_group else {}
    assert plan.max_rows_per_group in (None, ROWS_OF_PERSON)
    bound = canary_bound(plan, n_canaries, np.random.default_rng(0), CONFIDENCE, **n_rows)
    assert not bound.exceeded
    assert bound.ratio >= least, f"{bound.bound:.3f} of {bound.claim:.3f}"


def test_canaries_exceed_the_claim_where_the_largest_weight_is_no_bound(monkeypatch):
    monkeypatch.setattr(PrivacyPlan, "shares_of", lambda plan, weights: weights / plan.max_weight)
    assert canary_bound(OF_WEIGHTS, 100_000, np.random.default_rng(0), CONFIDENCE).exceeded


@pytest.mark.slow
def test_one_canary_in_a_run_gives_the_same_bound_as_many():
    """Many in a run: the bound on μ of 2,000 trials has mean 0.57 and deviation 0.05 (3,000 audits; least: 0.39)."""
    plan = CANARIES[0]
    bound = canary_bound(plan, 2000, np.random.default_rng(0), CONFIDENCE, canaries_per_run=1)
    assert not bound.exceeded
    assert 0.3 < bound.mu_bound <= bound.mu_claim == 1.0


def test_scores_are_likelihood_ratios():
    """Scores are the log ratio of the densities of an outcome in the two worlds."""
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
