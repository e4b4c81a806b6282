"""The three sums of a ledger: what stays admitted whatever was charged, and sequences composed by another library."""

import json
import math
import os
import signal
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as losses_of

from tests.core.ledger.forgery import append, rewrite
from tests.mutants import noticed
from vips import PrivacyBudgetError, PrivacyLedger, PrivacyPlan
from vips.core.accounting.gaussian import gaussian_epsilon
from vips.core.ledger import LedgerError, pricing
from vips.core.ledger.book import Book, Run
from vips.core.ledger.pricing import of_plan
from vips.core.ledger.run import LedgerRun
from vips.core.plan_phases import Phase

EPSILON, DELTA, GRID = 4.0, 1e-4, 1e-3
STATED = {"unit": "one letter", "relation": "add_or_remove"}
FULL = PrivacyPlan(noise_multiplier=12.0, sampling="full", n_steps=10)
SAMPLED = PrivacyPlan(noise_multiplier=12.0, sampling_rate=0.1, n_steps=10)


@pytest.fixture
def ledger(path):
    return make(path)


def make(path, pure=0.5):
    return PrivacyLedger(path, EPSILON, DELTA, "letters", pure=pure)


def identity():
    """The loss of releasing nothing."""
    return losses_of.from_privacy_parameters(
        common.DifferentialPrivacyParameters(0.0), value_discretization_interval=GRID
    )


def one_of_many(ledger, rng):
    """Charge something at random; returns its privacy loss by dp_accounting, or None if it was refused."""
    interval = {"value_discretization_interval": GRID}
    kind = rng.integers(6)
    try:
        if kind == 0:
            plan = replace(FULL, noise_multiplier=float(rng.uniform(10.0, 60.0)), n_steps=int(rng.integers(1, 20)))
            run = ledger.charge(plan)
            losses = losses_of.from_gaussian_mechanism(plan.noise_multiplier, **interval).self_compose(plan.n_steps)
            if rng.random() < 0.5:  # a fit that is stopped
                released = int(rng.integers(0, plan.n_steps + 1))
                for step in range(1, released + 1):
                    run.record(step)
                run.close()
                noise = plan.noise_multiplier / math.sqrt(max(released, 1e-9))
                losses = losses_of.from_gaussian_mechanism(noise, **interval) if released else identity()
            return losses
        if kind == 1:
            plan = PrivacyPlan(noise_multiplier=float(rng.uniform(2.0, 6.0)), sampling_rate=0.1, n_steps=20)
            ledger.charge(plan)
            one = losses_of.from_gaussian_mechanism(plan.noise_multiplier, sampling_prob=0.1, **interval)
            return one.self_compose(plan.n_steps)
        if kind == 2:
            epsilon = float(rng.uniform(0.01, 0.3))
            ledger.charge_event("a query", epsilon=epsilon, **STATED)
            return losses_of.from_privacy_parameters(common.DifferentialPrivacyParameters(epsilon), **interval)
        if kind == 3:
            epsilon, delta = float(rng.uniform(0.01, 0.2)), float(10.0 ** rng.uniform(-9.0, -5.5))
            ledger.charge_event("a query", epsilon=epsilon, delta=delta, **STATED)
            return losses_of.from_privacy_parameters(common.DifferentialPrivacyParameters(epsilon, delta), **interval)
        if kind == 4:
            scale = float(rng.uniform(4.0, 30.0))
            ledger.charge_event("a query", event=dp_accounting.LaplaceDpEvent(scale), **STATED)
            return losses_of.from_laplace_mechanism(scale, **interval)
        ledger.charge(ledger.remaining().split(3)[0].plan(n_steps=1))
        return losses_of.from_gaussian_mechanism(float(ledger.runs()[-1].plan["noise_multiplier"]), **interval)
    except PrivacyBudgetError:
        return None


@pytest.mark.parametrize("seed", range(6))
def test_any_sequence_stays_within_the_budget_by_another_library(path, seed):
    """And what is left is admitted, to the last hundredth."""
    ledger, rng, total = make(path), np.random.default_rng(seed), identity()
    for _ in range(9):
        losses = one_of_many(ledger, rng)
        total = total if losses is None else total.compose(losses)
    rounding = 9 * GRID  # of pure losses, upward
    assert total.get_delta_for_epsilon(EPSILON + rounding) <= DELTA
    assert total.get_delta_for_epsilon(ledger.spent() + rounding) <= DELTA
    left = ledger.remaining()
    if left.epsilon > 1e-3:
        with pytest.raises(PrivacyBudgetError):
            ledger.charge(replace(left.plan(), noise_multiplier=left.plan().noise_multiplier / 1.01))
        ledger.charge(left.plan())
        assert EPSILON - 0.5 - 1e-6 <= ledger.spent() <= EPSILON


def test_the_limits_are_fixed_when_the_ledger_is_made(ledger):
    limits = ledger.history()[0]["limits"]
    assert gaussian_epsilon(math.sqrt(limits[0]), 0.9 * DELTA) == pytest.approx(EPSILON - 0.5, rel=1e-9)
    assert limits[1:] == pytest.approx([0.1 * DELTA, 0.5])
    ledger.charge_event("a query", epsilon=0.2, delta=2e-6, **STATED)
    assert ledger.remaining().mu2 == limits[0]  # a δ that is not spent is never lent to the Gaussian side
    ledger.begin_event("an event", **STATED, rho=0.01, delta=1e-6).close()
    assert ledger.remaining().mu2 == limits[0]
    assert ledger.remaining().delta_0 == pytest.approx(limits[1] - 2e-6)


def test_the_deltas_add_up_to_at_most_a_tenth(path, ledger):
    for _ in range(5):
        ledger.charge_event("a query", epsilon=0.0, delta=2e-6 * (1.0 - 1e-9), **STATED)
    before = path.read_bytes()
    with pytest.raises(PrivacyBudgetError, match=r"no room for 'a query'.*1e-07.*smaller δ"):
        ledger.charge_event("a query", epsilon=0.0, delta=1e-7, **STATED)
    assert path.read_bytes() == before
    assert ledger.spent() == 0.0
    ledger.charge(FULL)  # the Gaussian side still has room


def test_sampled_fits_take_a_twentieth_of_what_is_left_so_that_any_number_fits(ledger):
    plan = PrivacyPlan(noise_multiplier=20.0, sampling_rate=0.1, n_steps=5)
    for _ in range(6):
        ledger.charge(plan)
    deltas = [run.cost().delta_0 for run in ledger.runs()]
    np.testing.assert_allclose(deltas, 0.05 * 0.1 * DELTA * 0.95 ** np.arange(6), rtol=1e-9)


def check_forged_numbers_are_refused(path, numbers, forged):
    """``forged`` are texts that take the place of the numbers in the file."""
    old, new = (f"[{','.join(map(str, values))}]" for values in (numbers, forged))
    edited = []

    def edit(number, body):
        edited.append(old in body)
        return body.replace(old, new)

    rewrite(path, edit)
    assert sum(edited) == 1
    with pytest.raises(LedgerError, match="forged"):
        PrivacyLedger.open(path)


@pytest.mark.parametrize("field", range(3))
@pytest.mark.parametrize("value", ["-1.0", "NaN", "-Infinity", '"none"', "null", "false", "1e300"])
def test_a_forged_charge_is_refused(path, ledger, field, value):
    ledger.charge_event("a query", **STATED, rho=0.01, delta=1.0e-6)
    cost = ledger.history()[1]["cost"]
    check_forged_numbers_are_refused(path, cost, [*cost[:field], value, *cost[field + 1 :]])


@pytest.mark.parametrize("factor", [[1.1, 1.0, 1.0], [1.0, 1.1, 1.0], [1.0, 1.0, 2.0]])
def test_forged_limits_are_refused(path, ledger, factor):
    limits = ledger.history()[0]["limits"]
    check_forged_numbers_are_refused(path, limits, np.multiply(limits, factor).tolist())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and kill -9")
def test_a_kill_after_the_charge_leaves_it_charged(path, ledger):
    child = os.fork()
    if child == 0:
        PrivacyLedger.open(path).begin_event("an event", **STATED, rho=0.01, delta=1e-6)
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    (run,) = ledger.runs()
    assert (run.state, run.charged) == ("open at 0", 1)
    assert ledger.remaining().delta_0 == pytest.approx(9e-6)
    assert ledger.close(run.run) == 1  # somebody knows that nothing was released
    assert ledger.remaining().delta_0 == pytest.approx(1e-5)
    assert ledger.spent() == 0.0


@pytest.mark.parametrize("kind", ["open", "charge", "release", "resume", "of samples"])
def test_entries_that_undo_a_charge_are_forged(path, ledger, kind):
    run = ledger.charge(
        PrivacyPlan(noise_multiplier=8.0, sampling_rate=0.5, n_steps=3) if kind == "of samples" else FULL
    )
    run.record(1)
    first, charge = ledger.history()[:2]
    of_run = {"run": run.run, "attempt": 1, "time": ""}
    body = {
        "open": first | {"epsilon": 100.0},
        "charge": charge | {"cost": [0.0, 0.0, 0.0]},
        "release": {"kind": "release", **of_run, "step": 5},
        "resume": {"kind": "resume", **of_run, "step": 2, "further": 0, "cost": [0.0, 0.0, 0.0]},
        "of samples": {"kind": "resume", **of_run, "step": 0, "further": 1, "cost": [0.0, 0.0, 0.0]},
    }[kind]
    append(path, json.dumps(body))
    with pytest.raises(LedgerError, match="forged"):
        PrivacyLedger.open(path)


@pytest.mark.parametrize(
    "change",
    [
        {"delta": 10**400}, {"delta": "0"}, {"epsilon": "1"}, {"mechanism": [1]}, {"plan": {}},
        {"plan": {"n_steps": 4}}, {"plan": {"phases": [[1, 2.0], [2, 1.0]]}}, {"plan": {"phases": 7}}, {"plan": {"more": 1}},
    ],
    ids=str,
)  # fmt: skip
def test_statements_that_vips_does_not_make_are_forged(path, ledger, change):
    ledger.charge(FULL)
    charge = ledger.history()[1]
    statement = charge["statement"] | change
    if change.get("plan"):
        statement["plan"] = charge["statement"]["plan"] | change["plan"]
    if "mechanism" in change:
        del statement["plan"]
    append(path, json.dumps(charge | {"run": "another", "statement": statement}))
    with pytest.raises(LedgerError, match="forged"):
        PrivacyLedger.open(path)


def test_a_batch_hides_no_release(ledger):
    plan = replace(FULL, n_steps=1)
    run = ledger.charge(plan)
    run.record(1)
    resumed = ledger.resume(run.run, 0, plan)
    resumed.record(1)
    spent = ledger.spent()
    ledger.release_batch(run.run, 1, "a hash")
    assert ledger.close(run.run) == 0
    assert ledger.spent() == spent


def test_extreme_terms_leave_no_file_and_plans_of_hardly_any_noise_are_refused_in_words(path):
    for terms in ({"epsilon": 1.0, "delta": 1e-320}, {"epsilon": 1.0, "delta": 1e-300, "pure": 1.0}):
        with pytest.raises(ValueError, match="no budget that a ledger can keep"):
            PrivacyLedger(path, dataset="letters", **terms)
        assert not path.exists()
    ledger, plan = make(path), PrivacyPlan(noise_multiplier=0.5, sampling_rate=0.5, n_steps=400)
    assert ledger.affordable(plan) < 20
    with pytest.raises(PrivacyBudgetError, match="has no room for 400 steps"):
        ledger.charge(plan)


def test_a_threshold_in_a_first_step_is_charged_with_it(tmp_path):
    """δ₀ is spent while the first step can be released, and for ever once it is; only an unreleased one is given back."""
    ledger = PrivacyLedger(tmp_path / "budget", 4.0, 1e-5, "letters")
    plan, delta = PrivacyPlan(noise_multiplier=20.0, sampling="full", n_steps=4, phases=(Phase(1, 2.0), Phase(3))), 6e-7
    statement = of_plan(plan, ledger.relation, delta)

    def run_of(steps):
        run = LedgerRun(ledger)
        run.charge(statement, "a pipeline", "any")
        for step in range(1, 1 + steps):
            run.record(step)
        run.close()
        return run.run

    unreleased = run_of(0)
    assert ledger.remaining().delta_0 == pytest.approx(1e-6), "δ₀ of an unreleased step is kept"
    begun = run_of(1)
    assert ledger.run(begun).cost().delta_0 == delta, "δ₀ of a released step is given back"
    assert ledger.run(begun).cost().mu2 == pytest.approx(plan.phases[0].weight / 400.0)
    with pytest.raises(LedgerError, match="is released once"):
        ledger.resume(begun, 0, plan)
    with suppress(PrivacyBudgetError):  # 4e-7 is left
        ledger.resume(unreleased, 0, plan)
    assert ledger.run(unreleased).closed, "δ₀ that was given back is not charged again"
    ledger.resume(begun, 1, plan).record(2)
    assert ledger.run(begun).cost().delta_0 == delta
    assert ledger.run(begun).cost().mu2 == pytest.approx(4.0 / 400.0)
    assert PrivacyLedger.open(ledger.path).remaining() == ledger.remaining()


def test_a_stated_delta_is_added_to_that_of_samples(tmp_path):
    """A sampled mechanism that fails with probability δ costs its own δ₀ and δ, and no less than their exact sum."""
    ledger = PrivacyLedger(tmp_path / "budget", 4.0, 1e-5, "letters")
    for delta in (1e-8, 3e-7):  # below and above that of the samples
        of_samples = ledger.remaining().delta_0 / 20.0
        ledger.charge_event("a tool's release", event=SAMPLED, delta=delta, **STATED)
        charged = Fraction(ledger.runs()[-1].cost().delta_0)
        assert charged >= (Fraction(of_samples) + Fraction(delta)) * (1 - Fraction(1, 10**12)), "a δ is left out"


def the_larger_of_two_deltas(patch):
    patch.setattr(pricing, "_beside", lambda cost, delta: replace(cost, delta_0=max(cost.delta_0, delta)))


def the_delta_of_samples_alone(patch):
    patch.setattr(pricing, "_beside", lambda cost, delta: cost)


def the_threshold_is_free(patch):
    patch.setattr(Run, "spent", lambda self, spent=Run.spent: (spent(self)[0], Fraction(0), Fraction(0)))


def the_threshold_is_given_back(patch):
    def spent(self, original=Run.spent):
        mu2, delta_0, pure = original(self)
        return mu2, Fraction(0) if self.closed else delta_0, pure

    patch.setattr(Run, "spent", spent)


def the_threshold_of_a_reopened_run_is_free(patch):
    original = Book._cost_of_repeated
    patch.setattr(Book, "_cost_of_repeated", lambda *arguments: replace(original(*arguments), delta_0=0.0))


test_a_threshold_that_costs_nothing_is_noticed = noticed(
    (the_larger_of_two_deltas, test_a_stated_delta_is_added_to_that_of_samples, "a δ is left out"),
    (the_delta_of_samples_alone, test_a_stated_delta_is_added_to_that_of_samples, "a δ is left out"),
    (the_threshold_is_free, test_a_threshold_in_a_first_step_is_charged_with_it, "given back"),
    (the_threshold_is_given_back, test_a_threshold_in_a_first_step_is_charged_with_it, "given back"),
    (the_threshold_of_a_reopened_run_is_free, test_a_threshold_in_a_first_step_is_charged_with_it, "charged again"),
)
