"""One suite for all accountants: every pair of accountant and plan that the registry allows, against exact results."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from tests.mutants import noticed
from vips import PrivacyPlan
from vips.core import accounting
from vips.core.accounting import ACCOUNTANTS, events, gaussian, pld, stepwise
from vips.core.accounting import losses as step_losses
from vips.core.accounting.events import library, neighbours
from vips.core.accounting.losses import one_step_losses

POISSON = PrivacyPlan(noise_multiplier=1.5, sampling_rate=0.1, n_steps=12)
FULL = PrivacyPlan(noise_multiplier=6.0, sampling="full", n_steps=12)
PLANS = {
    "poisson": POISSON,
    "full": FULL,
    "poisson, replace one": replace(POISSON, relation="replace_one"),
    "full, replace one": replace(FULL, relation="replace_one"),
}
PLANS |= {f"discrete, {name}": replace(plan, noise="discrete") for name, plan in PLANS.items()}
ALLOWED = {name: {"pld"} if "replace one" in name else set(ACCOUNTANTS) for name in PLANS}
PAIRS = [(plan, name) for plan, names in ALLOWED.items() for name in sorted(names)]


def quick_pairs(*also_slow):
    """Every pair, for searches, which are the same code for every plan: the slowest pairs before a release."""
    slow = {pair for pair in PAIRS if "discrete" in pair[0] or pair[0] == "poisson, replace one"} | set(also_slow)
    rows = [pytest.param(*pair, marks=pytest.mark.slow if pair in slow else ()) for pair in PAIRS]
    return pytest.mark.parametrize(("plan", "name"), rows, ids=[f"{name}-{plan}" for plan, name in PAIRS])


DELTA = 1e-5


# -- which plans each analyses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("plan", "name"), [*itertools.product(PLANS, ACCOUNTANTS)])
def test_every_other_pair_is_refused(plan, name):
    if name in ALLOWED[plan]:
        assert 0.0 < PLANS[plan].epsilon(DELTA, name) < math.inf
        return
    for call in (
        lambda: PLANS[plan].epsilon(DELTA, name),
        lambda: PLANS[plan].delta(1.0, name),
        lambda: accounting.calibrate_noise(ACCOUNTANTS[name], PLANS[plan], 1.0, DELTA),
        lambda: accounting.largest_n_steps(ACCOUNTANTS[name], PLANS[plan], 1.0, DELTA),
    ):
        with pytest.raises(ValueError, match=f"{name!r} covers .*: use 'pld'"):
            call()


# -- order ------------------------------------------------------------------------------------------------------


@quick_pairs()
def test_monotone_in_noise_steps_rate_and_delta(plan, name):
    plan = PLANS[plan]

    def epsilon(delta=DELTA, **changes):
        return replace(plan, **changes).epsilon(delta, name)

    base, sigma = epsilon(), plan.noise_multiplier
    assert epsilon(noise_multiplier=sigma * 1.5) < base < epsilon(noise_multiplier=sigma / 1.5)
    assert epsilon(n_steps=6) < base < epsilon(n_steps=24)
    assert epsilon(1e-3) < base < epsilon(1e-8)
    if plan.sampling == "poisson":
        assert epsilon(sampling_rate=0.05) < base < epsilon(sampling_rate=0.2)


@pytest.mark.parametrize("plan", ["poisson", "full", "discrete, full"])
def test_the_tight_bound_is_smallest_and_none_exceeds_the_loosest(plan):
    for delta, steps in itertools.product((1e-3, 1e-8), (1, 12, 200)):
        bounds = {name: replace(PLANS[plan], n_steps=steps).epsilon(delta, name) for name in ALLOWED[plan]}
        assert all(bounds["pld"] <= value * (1.0 + 1e-3) for value in bounds.values()), bounds
        assert all(value <= max(bounds["strong"], bounds["basic"]) * (1.0 + 1e-3) for value in bounds.values()), bounds


@quick_pairs()
def test_delta_inverts_epsilon(plan, name):
    plan = PLANS[plan]
    for delta in (1e-2, 1e-7):
        assert plan.delta(plan.epsilon(delta, name), name) == pytest.approx(delta, rel=0.02)


@quick_pairs()
@pytest.mark.parametrize("epsilon", [4.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_calibration_is_never_under_and_close(plan, name, epsilon):
    sigma = accounting.calibrate_noise(ACCOUNTANTS[name], PLANS[plan], epsilon, DELTA)
    reached = replace(PLANS[plan], noise_multiplier=sigma).epsilon(DELTA, name)
    assert 0.998 * epsilon <= reached <= epsilon


@pytest.mark.parametrize("slope", [0.02, 0.2, 1.5, 50.0])
@pytest.mark.parametrize("root", [-1.0, 2.0, 8.0])
def test_calibration_finds_the_noise_on_flat_and_on_steep_curves(slope, root):
    class Curve:
        name = "curve"
        check = staticmethod(lambda plan: None)

        def epsilon(self, plan, delta):
            return math.exp(-slope * (math.log(plan.noise_multiplier) - root))

    log_sigma = math.log(accounting.calibrate_noise(Curve(), POISSON, 1.0, DELTA))
    assert 0.0 <= log_sigma - root <= max(1e-4, 0.4e-4 / slope) * (1.0 + 1e-6)


@quick_pairs(("poisson", "pld"))  # `test_noise_or_number_of_steps_from_epsilon` searches these steps
def test_number_of_steps_is_the_largest(plan, name):
    plan = replace(PLANS[plan], noise_multiplier=8.0)
    steps = accounting.largest_n_steps(ACCOUNTANTS[name], plan, 8.0, DELTA)
    epsilon, next_epsilon = (replace(plan, n_steps=n).epsilon(DELTA, name) for n in (steps, steps + 1))
    assert epsilon <= 8.0 < next_epsilon


# -- closed forms -----------------------------------------------------------------------------------------------


def log_density(z, shift, sigma):
    """Log density of N(shift, σ²); SciPy's takes a hundred times as long for one number."""
    return -0.5 * ((z - shift) / sigma) ** 2 - math.log(sigma * math.sqrt(2.0 * math.pi))


def density(z, shift, sigma):
    return math.exp(log_density(z, shift, sigma))


def hockey_stick(level, p, q, points):
    """∫ (p - e^level q)₊, piecewise between points."""
    pieces = itertools.pairwise(points)
    return sum(quad(lambda z: max(p(z) - math.exp(level) * q(z), 0.0), a, b, epsabs=1e-13)[0] for a, b in pieces)


def one_step_delta(plan, level):
    """δ of one (sampled) Gaussian step by integration of its worst pair; the larger of both directions."""
    q, sigma = plan.sampling_rate, plan.noise_multiplier

    def mixture(shift):
        return lambda z: (1.0 - q) * density(z, 0.0, sigma) + q * density(z, shift, sigma)

    with_it = mixture(1.0)
    without = mixture(-1.0) if plan.relation == "replace_one" else mixture(0.0)
    points = np.linspace(-12.0 * sigma - 1.0, 12.0 * sigma + 1.0, 200)
    return max(hockey_stick(level, with_it, without, points), hockey_stick(level, without, with_it, points))


@pytest.mark.parametrize("plan", ["poisson", "full", "poisson, replace one", "full, replace one"])
@pytest.mark.parametrize("level", [0.4, *(pytest.param(level, marks=pytest.mark.slow) for level in (0.05, 1.2))])
def test_one_step_against_integration(plan, level):
    plan = replace(PLANS[plan], n_steps=1, noise_multiplier=1.5)
    exact = one_step_delta(plan, level)
    for name in ACCOUNTANTS:
        if ACCOUNTANTS[name].can_analyse(plan):
            delta = plan.delta(level, name)
            assert delta >= exact * (1.0 - 1e-6)
            if name == "pld":
                assert delta == pytest.approx(exact, rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("relation", ["add_or_remove", "replace_one"])
@pytest.mark.parametrize("steps", [1, 25])
def test_without_sampling_the_gaussian_is_exact(relation, steps):
    """Theorem 8 of Balle and Wang (2018), for one Gaussian of σ / √T and sensitivity 1 or 2."""
    plan = PrivacyPlan(noise_multiplier=7.0, sampling="full", n_steps=steps, relation=relation)
    mu = (1.0 if relation == "add_or_remove" else 2.0) * math.sqrt(steps) / 7.0
    for epsilon in (0.01, 0.3, 2.0):
        exact = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        if exact > 1e-14:
            assert plan.delta(epsilon) == pytest.approx(exact, rel=1e-9)
            assert plan.epsilon(plan.delta(epsilon)) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("relation", ["add_or_remove", "replace_one"])
@pytest.mark.parametrize("rate", [1e-6, 0.01, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("sigma", [0.05, 0.3, 1.0, 5.0, 300.0])
def test_losses_of_a_step_are_exact_on_the_grid_and_never_too_small_beside_it(sigma, rate, relation):
    """Against the exact δ(ε) of every pair of neighbours, which dp_accounting has in closed form.

    Sampling bounds the loss of one record in a sample on one side, where δ between two points may be much too large.
    """
    mechanism = library().pld.privacy_loss_mechanism
    kinds_of = mechanism.AdjacencyType
    kinds = [kinds_of.REPLACE] if relation == "replace_one" else [kinds_of.REMOVE, kinds_of.ADD][: 1 + (rate < 1.0)]
    spacing = pld._spacing(((sigma, rate, 1),), relation)
    for kind, losses in zip(kinds, pld._one_step(sigma, rate, relation, spacing), strict=True):
        exact = mechanism.GaussianPrivacyLoss(sigma, sampling_prob=rate, adjacency_type=kind).get_delta_for_epsilon
        assert losses.probabilities.sum() + losses.at_infinity == pytest.approx(1.0, abs=1e-11)
        values = losses.places * spacing
        for i in np.linspace(0, len(values) - 2, 40).astype(int):
            for share, allowed in ((0.0, 1e-6), (0.4, 0.03)):
                epsilon = values[i] + share * (values[i + 1] - values[i])
                terms = -np.expm1(epsilon - values[i + 1 :]) * losses.probabilities[i + 1 :]
                delta, truth = losses.at_infinity + math.fsum(terms), exact(epsilon)
                slack = 1e-6 * truth + 1e-15  # dp_accounting's own rounding
                assert delta >= truth - slack
                if share == 0.0 or (epsilon > 0.0 and kind != kinds_of.ADD):
                    assert delta <= truth * (1.0 + allowed) + slack


def check_epsilon_is_that_of_dp_accounting(plan, sensitivity, spacing, rel):
    """Against its loss distribution of a Gaussian of this sensitivity, which it doubles for a replacement."""
    losses = library().pld.privacy_loss_distribution.from_gaussian_mechanism(
        plan.noise_multiplier, sensitivity, value_discretization_interval=spacing, sampling_prob=plan.sampling_rate,
        neighboring_relation=neighbours(plan.relation),
    )  # fmt: skip
    theirs = losses.self_compose(plan.n_steps)
    for delta in (1e-2, 1e-5, 1e-9):
        assert plan.epsilon(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=rel)


COMPOSED = [(0.5, 0.01, 50), (1.0, 0.3, 20), (2.0, 1e-3, 2_000), (20.0, 0.05, 500)]


@pytest.mark.parametrize("relation", ["add_or_remove", "replace_one"])
@pytest.mark.parametrize("row", COMPOSED)
def test_composition_against_dp_accounting(row, relation):
    """Neither accountant is below the truth, and on a fine grid both are near it."""
    sigma, rate, steps = row
    plan = PrivacyPlan(noise_multiplier=sigma, sampling_rate=rate, n_steps=steps, relation=relation)
    spacing = 0.02 * rate * math.sqrt(math.expm1(1.0 / sigma**2))
    check_epsilon_is_that_of_dp_accounting(plan, 1.0, spacing, 1e-3)


@pytest.mark.parametrize("outside", [1e-15, 1e-3])
def test_the_total_loss_is_never_below_a_direct_sum(outside):
    """Also if much of the sum is outside of the window, which then counts as infinite, or wraps around."""
    spacing = 0.05
    for losses in one_step_losses(1.2, 0.4, "add_or_remove", spacing):
        dense = np.zeros(np.ptp(losses.places) + 1)
        dense[losses.places - losses.places[0]] = losses.probabilities
        direct = dense
        for _ in range(4):
            direct = np.convolve(direct, dense)
        values, steps = (np.arange(len(direct)) + 5 * losses.places[0]) * spacing, [(losses, 2), (losses, 3)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(step_losses, "_OUTSIDE", outside)
            total = step_losses.TotalLoss(steps, spacing, *step_losses.window(steps))
        for epsilon in np.linspace(0.0, 15.0, 61):
            exact = np.maximum(-np.expm1(epsilon - values), 0.0) @ direct
            assert exact - 1e-15 <= total.delta(epsilon) <= exact + 2.0 * outside + 1e-15
            within = exact + 2.0 * outside + 1e-12
            assert total.delta(total.epsilon(within)) <= within * (1.0 + 1e-9)


def test_exact_gaussian_against_dp_accounting():
    for mu, delta in itertools.product((1e-4, 0.03, 1.0, 20.0), (1e-12, 1e-5, 0.2)):
        assert gaussian.gaussian_epsilon(mu, delta) == pytest.approx(
            dp_accounting.get_epsilon_gaussian(1.0 / mu, delta), rel=1e-4, abs=1e-9
        )


def test_rounding_of_the_transform_is_on_the_safe_side():
    """At tiny δ and many steps, dp_accounting's sums of losses are off by more than δ (by simulation: 3 · 10⁻¹⁶ T)."""
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1e-3, n_steps=100_000)
    assert pld._rounding([plan]) >= 3e-10
    assert plan.epsilon(1e-10, "pld") == pytest.approx(plan.epsilon(1e-10, "rdp"), rel=1e-2)  # the only bound there
    assert plan.epsilon(1e-10, "rdp") < 10.0
    short = replace(plan, n_steps=20)
    assert short.epsilon(1e-12, "pld") < short.epsilon(1e-12, "rdp")


@pytest.mark.parametrize(("plan", "name"), [pair for pair in PAIRS if "discrete" in pair[0]])
def test_discrete_noise_is_a_gaussian_with_room_for_rounding_records(plan, name):
    """A record's rounded share has norm (1 + 2⁻⁹) C; whichever accountant, whatever relation and sampling."""
    rounded, plain = PLANS[plan], replace(PLANS[plan], noise="gaussian")
    longer = replace(plain, noise_multiplier=plain.noise_multiplier * 512.0 / 513.0)
    assert rounded.epsilon(DELTA, name) == pytest.approx(longer.epsilon(DELTA, name), rel=1e-9)
    assert rounded.delta(1.0, name) == pytest.approx(longer.delta(1.0, name), rel=1e-9)
    assert rounded.epsilon(DELTA, name) > plain.epsilon(DELTA, name)
    assert rounded.gdp_mu() == (None if "poisson" in plan else longer.gdp_mu())


def test_plans_of_both_kinds_of_noise_compose():
    """Full batches: the squares of μ add up; samples: dp_accounting's composition."""
    full = [PLANS["full"], PLANS["discrete, full"]]
    assert accounting.composed_epsilon(full, DELTA) == pytest.approx(
        gaussian.gaussian_epsilon(math.hypot(*(plan.gdp_mu() for plan in full)), DELTA), rel=1e-9
    )
    sampled = [POISSON, PLANS["discrete, poisson"], POISSON, replace(POISSON, noise_multiplier=3.0, sampling_rate=0.2)]
    theirs = PLDAccountant(value_discretization_interval=1e-4)
    for plan in sampled:
        theirs.compose(plan.event())
    assert accounting.composed_epsilon(sampled, DELTA) == pytest.approx(theirs.get_epsilon(DELTA), rel=1e-3)
    assert accounting.composed_epsilon([*sampled, PrivacyPlan.non_private()], DELTA) == math.inf
    with pytest.raises(ValueError, match="different relations"):
        accounting.composed_epsilon([FULL, PLANS["full, replace one"]], DELTA)


def test_renyi_divergence_of_a_step_is_that_of_both_directions():
    """Against integration, for sampled Gaussians; the larger of D(P‖Q) and D(Q‖P)."""
    q, sigma = 0.1, 1.5
    for order in (2, 7, 19):

        def log_ratio(z):
            return np.logaddexp(math.log1p(-q), math.log(q) + log_density(z, 1.0, sigma) - log_density(z, 0.0, sigma))

        points = np.linspace(-14.0 * sigma, order + 14.0 * sigma, 100)
        moments = [
            sum(
                quad(lambda z, p=p: math.exp(log_density(z, 0.0, sigma) + p * log_ratio(z)), a, b)[0]
                for a, b in itertools.pairwise(points)
            )
            for p in (order, 1 - order)
        ]
        exact = max(math.log(moment) / (order - 1) for moment in moments)
        ours, of_rounded = (
            events._renyi_curve(PLANS[name], (order,))[1][0] for name in ("poisson", "discrete, poisson")
        )
        assert ours == pytest.approx(exact, rel=1e-6)
        assert exact < of_rounded < exact * 1.01


def accountants_of(plan):
    """dp_accounting's accountants under the plan's relation, by the names of ours."""
    kinds = dp_accounting.NeighboringRelation
    relation = kinds.REPLACE_ONE if plan.relation == "replace_one" else kinds.ADD_OR_REMOVE_ONE
    return {"pld": PLDAccountant(relation), "rdp": RdpAccountant(None, relation)}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.repeated("poisson, replace one")
def test_accountants_of_dp_accounting_agree_and_none_is_below_the_truth_for_any_event(plan):
    """An accountant refuses an event that it would misread, whichever of the two accountants the event was made for.

    The truth is ε of Gaussian noise on Poisson samples at the plan's rate: exact at rate 1, and tight otherwise.
    """
    allowed, plan = ALLOWED[plan], PLANS[plan]
    truth, answers = replace(plan, sampling="poisson").epsilon(DELTA), 0
    for name, rel in (("pld", 2e-3), ("rdp", 0.02)):
        try:
            event = plan.event(name)
        except ValueError as error:
            assert "covers" in str(error)  # noqa: PT017
            continue
        for theirs, composer in accountants_of(plan).items():
            if composer.supports(event):
                answers += 1
                epsilon = composer.compose(event).get_epsilon(DELTA)
                assert epsilon >= truth * (1.0 - 1e-3), (name, theirs)
                if theirs == name and name in allowed:
                    assert plan.epsilon(DELTA, name) == pytest.approx(epsilon, rel=rel)
    assert answers >= len(allowed & {"pld", "rdp"})
    with pytest.raises(ValueError, match="no accountant 'moments'"):
        plan.event("moments")


def test_a_gaussian_under_replacement_has_an_event_for_each_accountant():
    """At σ = 2, sensitivity 2C gives μ = 1 and ε in closed form. For an event with σ = 2, "rdp" would give about half."""
    plan = PrivacyPlan(noise_multiplier=2.0, sampling="full", relation="replace_one", n_steps=1)
    exact = brentq(lambda e: norm.sf(e - 0.5) - math.exp(e) * norm.sf(e + 0.5) - DELTA, 0.0, 20.0)
    theirs = accountants_of(plan)
    assert not theirs["rdp"].supports(plan.event())
    assert not theirs["pld"].supports(plan.event("rdp"))
    assert theirs["pld"].compose(plan.event("pld")).get_epsilon(DELTA) == pytest.approx(exact, rel=1e-3)
    assert exact < theirs["rdp"].compose(plan.event("rdp")).get_epsilon(DELTA) < 1.2 * exact


# -- edges ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pld", "rdp", "moments", "strong", "basic"])
@pytest.mark.parametrize(("q", "steps"), [(1e-6, 1), (1e-6, 100_000), (1.0, 1), (1.0, 100_000)])
@pytest.mark.parametrize("epsilon", [pytest.param(0.01, marks=pytest.mark.slow), 100.0])
@pytest.mark.repeated(
    "100.0-1e-06-1-rdp", "100.0-1e-06-1-moments", "100.0-1e-06-100000-moments", "100.0-1e-06-100000-rdp"
)
def test_edges_are_answered_soundly_or_refused_clearly(name, q, steps, epsilon):
    slow = name == "pld" and q < 1.0
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=q, n_steps=steps)
    values = [replace(plan, noise_multiplier=s).epsilon(1e-8, name) for s in ((0.5, 4.0) if slow else (0.2, 1.0, 50.0))]
    assert all(0.0 <= value < math.inf for value in values)
    assert values == sorted(values, reverse=True)
    if not slow:
        try:
            sigma = accounting.calibrate_noise(ACCOUNTANTS[name], plan, epsilon, 1e-8)
        except ValueError as error:
            assert "noise" in str(error)  # noqa: PT017
            return
        assert replace(plan, noise_multiplier=sigma).epsilon(1e-8, name) <= epsilon


# -- the suite can fail -----------------------------------------------------------------------------------------


def replacement_analysed_with_sensitivity_one(patch):
    patch.setattr(PrivacyPlan, "sensitive_noise_multiplier", lambda self: self.noise_multiplier)


def rounding_of_records_forgotten(patch):
    patch.setattr(PrivacyPlan, "noise_per_share", lambda self: self.noise_multiplier)


def strong_composition_without_its_slack(patch):
    patch.setattr(
        stepwise.StrongAccountant,
        "epsilon",
        lambda self, plan, delta, orders=None: (
            plan.n_steps * (e := self._step(plan, delta / plan.n_steps)) * math.expm1(e)
        ),
    )


def noise_doubled_in_the_losses(patch):
    original = pld._one_step
    patch.setattr(pld, "_one_step", lambda noise_multiplier, *more: original(2.0 * noise_multiplier, *more))


def one_order_of_the_neighbours_only(patch):
    original = pld._one_step
    patch.setattr(pld, "_one_step", lambda *arguments: original(*arguments)[-1:])


def losses_rounded_down(patch):
    original = pld._one_step
    patch.setattr(
        pld,
        "_one_step",
        lambda *arguments: tuple(loss._replace(places=loss.places - 1) for loss in original(*arguments)),
    )


def what_is_outside_is_forgotten(patch):
    original = step_losses.TotalLoss.__init__

    def mutant(self, *arguments):
        original(self, *arguments)
        self._at_infinity = 0.0

    patch.setattr(step_losses.TotalLoss, "__init__", mutant)


def rate_squared_in_the_step(patch):
    original = stepwise.StepwiseAccountant._step
    patch.setattr(
        stepwise.StepwiseAccountant,
        "_step",
        staticmethod(lambda plan, delta: original(replace(plan, sampling_rate=plan.sampling_rate**2), delta)),
    )


def check_losses():
    test_losses_of_a_step_are_exact_on_the_grid_and_never_too_small_beside_it(1.0, 0.5, "add_or_remove")


ONE_STEP = test_one_step_against_integration
LATTICE = test_discrete_noise_is_a_gaussian_with_room_for_rounding_records


test_mutants_are_noticed = noticed(
    (replacement_analysed_with_sensitivity_one, lambda: test_without_sampling_the_gaussian_is_exact("replace_one", 25)),
    (rounding_of_records_forgotten, lambda: LATTICE("discrete, poisson, replace one", "pld")),
    (rounding_of_records_forgotten, lambda: LATTICE("discrete, full", "pld")),
    (strong_composition_without_its_slack, lambda: ONE_STEP("poisson", 0.4)),
    (noise_doubled_in_the_losses, lambda: ONE_STEP("poisson", 0.4)),
    (noise_doubled_in_the_losses, lambda: ONE_STEP("poisson, replace one", 0.4)),
    (one_order_of_the_neighbours_only, lambda: ONE_STEP("poisson", 0.4)),
    (losses_rounded_down, check_losses),
    (losses_rounded_down, lambda: test_composition_against_dp_accounting(COMPOSED[1], "replace_one")),
    (what_is_outside_is_forgotten, lambda: test_the_total_loss_is_never_below_a_direct_sum(1e-3)),
    (rate_squared_in_the_step, lambda: ONE_STEP("poisson", 0.05)),
)  # fmt: skip
