"""The cost of a selection, against exact laws: of a discrete trial the law of the best one is known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from tests.mutants import check_notices
from vips import PrivacyPlan
from vips.privacy import selection
from vips.privacy.selection import Selection, TrialCount, plans_of_trial

COUNTS = [TrialCount(2.0), TrialCount(8.0), TrialCount(8.0, 0.0), TrialCount(20.0, 0.5), TrialCount(50.0, 2.0)]
ONE_RELEASE = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=1)


def generating_function(trials: TrialCount, x):
    """E[x^K], from the definition of the law (Papernot and Steinke, 2022, definition 1)."""
    gamma, eta = trials.gamma, trials.shape
    if eta == 0.0:
        return np.log1p(-(1.0 - gamma) * x) / math.log(gamma)
    return ((1.0 - (1.0 - gamma) * x) ** -eta - 1.0) / (gamma**-eta - 1.0)


def law_of_best(trials: TrialCount, law: np.ndarray) -> np.ndarray:
    """Exact law of the best of K draws from ``law``, whose outcomes are in the order of their scores."""
    ends = np.concatenate([[0.0], np.cumsum(law)])
    return np.diff(generating_function(trials, np.minimum(ends, 1.0)))


def exact_delta(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    """The hockey-stick divergence, the larger of both directions."""
    return max(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() for p, q in ((one, other), (other, one)))


def pairs_of_laws():
    """Random laws, and pairs that are made to cost much: randomised response in the order that the selection amplifies."""
    rng = np.random.default_rng(0)
    for size in (2, 3, 5, 20):
        for concentration in (0.1, 1.0, 10.0):
            one = rng.dirichlet(np.full(size, concentration))
            yield one, 0.7 * one + 0.3 * rng.dirichlet(np.full(size, concentration))
            yield one, rng.dirichlet(np.full(size, concentration))
    for epsilon in (0.1, 1.0, 3.0):
        for top in (1e-4, 1e-2, 0.1):
            middle = top * math.exp(epsilon)
            one, other = np.array([0.0, middle, top]), np.array([0.0, top, middle])
            one[0], other[0] = 1.0 - one.sum(), 1.0 - other.sum()
            if one[0] > 0.0:
                yield one, other


def check_no_pair_exceeds_the_bound():
    attained = []
    for trials in COUNTS:
        for one, other in pairs_of_laws():

            def profile(epsilon, one=one, other=other):
                return exact_delta(one, other, epsilon)

            tail = selection._smallest_tail(trials.gamma, profile)
            best, other_best = law_of_best(trials, one), law_of_best(trials, other)
            for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0):
                exact = exact_delta(best, other_best, epsilon)
                bound = selection._delta_of_best(trials, tail, profile, epsilon)
                assert exact <= bound + 1e-12, f"{trials}: δ({epsilon}) is {exact:.3g}, above the bound {bound:.3g}"
                attained.append(exact / bound if 0.0 < bound < 1.0 else 0.0)
    assert max(attained) > 0.6, "the bound is far above every exact value"


def test_no_pair_exceeds_the_bound():
    check_no_pair_exceeds_the_bound()


def test_the_density_ratio_is_at_most_that_of_a_trial_and_the_tail():
    """dA/dA' ≤ e^((η + 1) a) dQ/dQ', from which both bounds follow."""
    for trials in COUNTS:
        for one, other in pairs_of_laws():
            tail = selection._smallest_tail(trials.gamma, lambda epsilon, p=one, q=other: exact_delta(p, q, epsilon))
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                # between the ends of an outcome's interval, so that ties at one outcome do not matter
                ends = np.minimum(np.cumsum(one), 1.0), np.minimum(np.cumsum(other), 1.0)
                tops = [(1.0 - (1.0 - trials.gamma) * end) ** -(trials.shape + 1.0) for end in ends]
            assert (tops[0] <= math.exp((trials.shape + 1.0) * tail) * tops[1] * (1.0 + 1e-9)).all()


def _gaussian_attack(trials: TrialCount, mu: float, delta: float) -> float:
    """ε that the best event shows at δ, for the Gaussian trial whose score prefers values above t1, then those below t0."""
    t0, t1 = np.meshgrid(np.linspace(-4.0, 4.0, 161), np.linspace(-4.0, 4.0, 161))

    def law(mean):
        top, middle = norm.sf(t1 - mean), norm.cdf(t0 - mean)
        bottom = np.clip(1.0 - top - middle, 0.0, 1.0)
        return generating_function(trials, bottom + middle) - generating_function(trials, bottom)

    here, there = law(0.0), law(mu)
    usable = (t0 < t1) & (here > delta) & (there > 1e-12)
    return float(np.log((here[usable] - delta) / there[usable]).max())


@pytest.mark.parametrize(("epsilon", "delta", "mean"), [(4.0, 0.01, 20.0), (4.0, 0.05, 8.0), (2.0, 0.01, 8.0)])
def test_an_exact_attack_on_a_gaussian_trial_reaches_most_of_the_claim(epsilon, delta, mean):
    trials = TrialCount(mean)
    _, score = plans_of_trial(trials, epsilon, delta, (ONE_RELEASE,))
    claim = Selection(trials, (score,)).epsilon(delta)
    shown = _gaussian_attack(trials, 1.0 / score.noise_multiplier, delta)
    assert 0.8 * claim < shown <= claim


@pytest.mark.parametrize("relation", ["add_or_remove", "replace_one"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_calibrated_plans_use_the_budget_and_never_exceed_it(epsilon, relation):
    fits = (
        PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=20, relation=relation),
        PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.1, n_steps=30, relation=relation),
    )
    for trials in (TrialCount(2.0), TrialCount(12.0)):
        plans, score = plans_of_trial(trials, epsilon, 1e-6, fits)
        whole = Selection(trials, (*plans, score))
        assert 0.99 * epsilon < whole.epsilon(1e-6) <= epsilon
        assert whole.delta(epsilon) <= 1e-6
        assert [plan.n_steps for plan in plans] == [20, 30]
        alone = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=1e-6, sampling="full", n_steps=1, relation=relation)
        assert score.noise_multiplier > alone.noise_multiplier


@pytest.mark.parametrize("trials", COUNTS, ids=str)
def test_the_law_of_the_number_of_trials(trials):
    probability, total, mean, k = trials.probability_of_one(), 0.0, 0.0, 1
    while probability > 1e-18:
        total, mean = total + probability, mean + k * probability
        probability *= (1.0 - trials.gamma) * (k + trials.shape) / (k + 1)
        k += 1
    assert total == pytest.approx(1.0, abs=1e-9)
    assert mean == pytest.approx(trials.mean, rel=1e-9)


def check_numbers_of_trials_have_their_law():
    for trials in COUNTS:
        drawn = np.array([trials.draw() for _ in range(3000)])
        assert drawn.min() >= 1
        for k in (1, 2, math.ceil(trials.mean)):
            x = np.exp(2j * np.pi * np.arange(4096) / 4096)  # P(K ≤ k), from the generating function
            coefficients = np.fft.fft(generating_function(trials, 0.99 * x)).real / 4096 / 0.99 ** np.arange(4096)
            expected = coefficients[: k + 1].sum()
            seen = int((drawn <= k).sum())
            pvalue = binomtest(seen, len(drawn), expected).pvalue
            assert pvalue > 1e-10, f"K ≤ {k} is {seen / len(drawn):.3f}, not {expected:.3f}"


def test_numbers_of_trials_have_their_law():
    check_numbers_of_trials_have_their_law()


def the_number_of_trials_is_fixed(patch):
    patch.setattr(TrialCount, "draw", lambda self: round(self.mean))


def trials_are_always_more_than_one(patch):
    original = TrialCount.draw
    patch.setattr(TrialCount, "draw", lambda self: 1 + original(self))


def the_tail_is_forgotten(patch):
    patch.setattr(selection, "_smallest_tail", lambda gamma, profile: 0.0)


def the_number_of_trials_costs_nothing(patch):
    patch.setattr(
        selection, "_delta_of_best",
        lambda trials, tail, profile, epsilon: profile(max(0.0, epsilon - (trials.shape + 1.0) * tail)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("mutant", "check", "says"),
    [
        (the_number_of_trials_is_fixed, check_numbers_of_trials_have_their_law, "K ≤ "),
        (trials_are_always_more_than_one, check_numbers_of_trials_have_their_law, "assert|K ≤ "),
        (the_tail_is_forgotten, check_no_pair_exceeds_the_bound, "above the bound"),
        (the_number_of_trials_costs_nothing, check_no_pair_exceeds_the_bound, "above the bound"),
    ],
)
def test_mutants_are_noticed(mutant, check, says, monkeypatch):
    check_notices(check, mutant, monkeypatch, says)


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"mean": 1.0}, "mean_trials"), ({"mean": 8.0, "shape": -0.5}, "shape"), ({"mean": math.inf}, "mean")],
)
def test_impossible_laws_are_refused(settings, says):
    with pytest.raises(ValueError, match=says):
        TrialCount(**settings)


def test_a_selection_of_plans_without_a_guarantee_has_none():
    plan = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=1, reproducible_noise=True)
    whole = Selection(TrialCount(2.0), (plan,))
    assert whole.epsilon(1e-6) == math.inf
    assert whole.delta(1.0) == 1.0
