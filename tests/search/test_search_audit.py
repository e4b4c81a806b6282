"""An attack on searches: a lower bound on ε from samples, beside the claim.

The record adds 1 to a count. The score, a function of the released count, prefers large counts to small ones, and both to those
between: what is released when no count was large, and one was small, is much rarer with the record. Of Gaussian trials this
attack reaches more than 0.8 of the claim exactly (tests/privacy/test_selection.py).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta

from tests.mutants import check_notices
from vips import DirichletMultinomial, PrivacyBudget, PrivacyPlan, PrivateSearch
from vips._secret_bits import secret_bits
from vips.privacy.selection import Selection, TrialCount, plans_of_trial
from vips.search import private_search, trials
from vips.search.candidates import as_candidates
from vips.search.one_trial import OneTrial
from vips.search.split import split_rows

EPSILON, DELTA, MEAN = 4.0, 0.1, 2.0
BELOW, ABOVE = -0.8, 1.6  # of counts ÷ standard deviation of their noise


def level(count: float) -> float:
    """The score: 1, ½ or 0."""
    return 1.0 if count > ABOVE else 0.5 if count < BELOW else 0.0


def bounds_of_share(hits: int, n: int, level: float) -> tuple[float, float]:
    """Clopper and Pearson's, one-sided each."""
    low = beta.ppf(level, hits, n - hits + 1) if hits else 0.0
    return low, beta.ppf(1.0 - level, hits + 1, n - hits) if hits < n else 1.0


def lower_bound(hits_without: int, hits_with: int, n: int, error: float) -> float:
    """ε that the event shows at δ, unless something of probability ``2 error`` has happened."""
    low, high = bounds_of_share(hits_without, n, error)[0], bounds_of_share(hits_with, n, error)[1]
    return math.log((low - DELTA) / high) if low > DELTA else 0.0


def check_the_loop_reaches_most_of_the_claim_and_never_exceeds_it():
    n, count = 20_000, TrialCount(MEAN)
    _, plan = plans_of_trial(
        count, EPSILON, DELTA, (as_candidates(DirichletMultinomial(), [{}], "add_or_remove")[0].plan,)
    )
    claim = Selection(count, (plan,)).epsilon(DELTA)
    rng, shift = np.random.default_rng(secret_bits(128)), 1.0 / plan.noise_multiplier

    def hits(mean: float) -> int:
        def run():
            drawn = rng.normal(mean)
            return level(drawn), drawn

        return sum(trials._best(count, run)[1] < BELOW for _ in range(n))

    without, with_record = hits(0.0), hits(shift)
    assert lower_bound(without, with_record, n, 1e-8) <= claim, "the claim is exceeded"
    assert lower_bound(without, with_record, n, 0.05) > 0.6 * claim, "the attack shows too little"


def test_the_loop_reaches_most_of_the_claim_and_never_exceeds_it():
    check_the_loop_reaches_most_of_the_claim_and_never_exceeds_it()


def trials_have_far_too_little_noise(patch):
    original = PrivacyPlan.with_epsilon
    patch.setattr(PrivacyPlan, "with_epsilon", lambda plan, epsilon, delta: original(plan, 6.0 * epsilon, 0.1))
    patch.setattr(PrivacyPlan, "delta", lambda self, epsilon: 0.0)
    patch.setattr(Selection, "epsilon", lambda self, delta: EPSILON)


def test_too_little_noise_exceeds_the_claim(monkeypatch):
    check = check_the_loop_reaches_most_of_the_claim_and_never_exceeds_it
    check_notices(check, trials_have_far_too_little_noise, monkeypatch, "claim is exceeded")


@pytest.mark.slow
def test_whole_searches_reach_most_of_the_claim_and_never_exceed_it():
    n, rows = 12_000, np.tile([1.0, 0.0, 0.0], (4000, 1))
    search = PrivateSearch(
        DirichletMultinomial(), [{}], score=lambda model, X, y: 0.0, score_range=(0.0, 1.0),
        privacy=PrivacyBudget(EPSILON, DELTA), mean_trials=MEAN, held_out=0.005,
    )  # fmt: skip
    count, candidates, score_plan = search._planned(search._candidates(), None)
    plan = replace(score_plan, clip_norm=0.5)
    noise = candidates[0].plan.noise_multiplier
    claim = Selection(count, (candidates[0].plan, score_plan)).epsilon(DELTA)

    def score(model, X, y):
        return level(model.noisy_totals_.average["counts"][2] / noise)

    def hits(X) -> int:
        total = 0
        for _ in range(n):
            _, (best, _) = private_search._search(
                count, lambda: OneTrial(candidates, X, None, split_rows(len(X), None, 0.005), score, (0.0, 1.0), plan)
            )
            total += best.noisy_totals_.average["counts"][2] / noise < BELOW
        return total

    without, with_record = hits(rows), hits(np.vstack([rows, [[0.0, 0.0, 1.0]]]))
    shown = lower_bound(without, with_record, n, 0.05)
    print(f"claim {claim:.3f}, shown {shown:.3f}")
    assert lower_bound(without, with_record, n, 1e-8) <= claim
    assert shown > 0.6 * claim
