"""Steps share the noise by weights: ε stays, each step has the noise that its weight says, and stops give back by weight."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import vips
from tests.own_model import GaussianMean
from vips import PrivacyLedger, PrivacyPlan
from vips.core.ledger.book import Run
from vips.core.plan_phases import Phase
from vips.report import words

PLAN = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling="full", n_steps=6)
PHASES = (Phase(2, weight=3.0), Phase(4))
WEIGHTS = (1.8, 1.8, 0.6, 0.6, 0.6, 0.6)  # of the sum 6, in these proportions
ROWS = np.full((4, 500), 0.01)


class Weighted(GaussianMean):
    """Its first two steps matter three times as much."""

    def phases(self, n_steps):
        return (vips.FitPhase("first", 2, weight=3.0), vips.FitPhase("others", n_steps - 2))


class Late(GaussianMean):
    """Its sixth step and those after it matter five times as much."""

    def phases(self, n_steps):
        return (vips.FitPhase("first", 5), vips.FitPhase("others", n_steps - 5, weight=5.0))


class Stops(Weighted):
    """The fit stops when its third total was released."""

    def to_posterior(self, average, noise_std, previous):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 4:
            raise ZeroDivisionError
        return super().to_posterior(average, noise_std, previous)


@pytest.fixture
def ledger(tmp_path):
    return PrivacyLedger(tmp_path / "rows.ledger", epsilon=4.0, delta=1e-5, dataset="rows")


def mu2_of(weights, plan=PLAN):
    """μ² of steps with these weights: that of a Gaussian mechanism each, whose noise is σ / √w."""
    return math.fsum(weight / plan.noise_multiplier**2 for weight in weights)


@pytest.mark.parametrize(
    "phases", [PHASES, (Phase(1, 0.1), Phase(1, 1 / 3), Phase(4, 7.7)), (Phase(1, 1e-6), Phase(5))]
)
def test_weights_change_no_epsilon(phases):
    plan = PLAN.with_phases(phases)
    noises = [Fraction(plan.noise_multiplier / plan.of_step(step).noise_multiplier) ** 2 for step in range(1, 7)]
    assert float(sum(noises)) == pytest.approx(6.0, rel=1e-14)
    assert sum(phase.n_steps * Fraction(phase.weight) for phase in plan.phases) <= 6
    assert plan.epsilon(1e-6) == PLAN.epsilon(1e-6)
    assert replace(plan) == plan == plan.with_phases(phases), "scaling again changes nothing"


def test_a_step_has_the_noise_of_its_weight():
    plan = replace(PLAN.with_phases(PHASES), clip_norm=2.0, reproducible_noise=True)
    flat, randomness = replace(plan, phases=()), plan.randomness(0)
    blocks, zeros = {"total": vips.Block((7,))}, {"total": np.zeros(7)}
    for step, weight in enumerate(WEIGHTS, 1):
        noise, equal = (one.add_noise(zeros, blocks, randomness, step)["total"] for one in (plan, flat))
        np.testing.assert_allclose(noise, equal / math.sqrt(weight), rtol=1e-12)


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
def test_a_fit_releases_its_steps_with_the_noise_of_their_phases(noise, tmp_path):
    """The stated deviation of the average is that of the formula, and of the noise; sums are in the lattice of the step."""
    plan = replace(PLAN, noise=noise)
    model = Weighted(radius=1.0, privacy=plan, random_state=0)
    model.step_size = lambda t: 1.0 / t
    model.fit(ROWS)
    fitted, totals = model.privacy_.plan, model.noisy_totals_
    of_total, stated = totals.average["total"], totals.noise_std["total"]
    assert fitted.phases == PLAN.with_phases(PHASES).phases
    clip, sigma = fitted.clip_norm, fitted.noise_multiplier
    assert stated == pytest.approx(clip * sigma * math.sqrt(sum(1.0 / weight for weight in WEIGHTS)) / 6, rel=1e-12)
    measured = np.std(of_total - ROWS.sum(axis=0))
    assert abs(measured / stated - 1.0) < 6.0 / math.sqrt(2 * of_total.size)
    many = np.repeat(ROWS, 50, axis=0)  # their sums show a lattice of another step
    for late_or_early, n_steps in ((Weighted, 4), (Late, 8)):
        quiet = replace(plan, noise_multiplier=2e-3, n_steps=n_steps)
        model = late_or_early(radius=1.0, privacy=quiet, random_state=0)
        model.step_size = lambda t: 1.0
        model.fit(many)
        np.testing.assert_allclose(model.noisy_totals_.average["total"], many.sum(axis=0), atol=0.05)


def test_a_stop_gives_back_the_weights_of_unreleased_steps(ledger):
    with pytest.raises(ZeroDivisionError):
        Stops(radius=1.0, privacy=PLAN).fit(ROWS, ledger=ledger)
    run = ledger.runs()[0]
    assert (run.released, float(run.returned)) == (3, pytest.approx(1.8))
    assert float(run.spent()[0]) == pytest.approx(mu2_of(WEIGHTS[:3]), rel=1e-9)
    assert run.spent()[0] >= Fraction(mu2_of(WEIGHTS[:3])) * (1 - Fraction(1, 10**14))


def test_a_resumed_fit_pays_for_what_it_repeats(tmp_path):
    """Steps 1 to 3 are released; the checkpoint of step 1 survives, so that steps 2 and 3 are released again."""
    ledger = PrivacyLedger(tmp_path / "rows.ledger", epsilon=4.0, delta=1e-5, dataset="rows")
    plan = PLAN.with_phases(PHASES)
    first = ledger.charge(plan)
    for step in (1, 2, 3):
        first.record(step)
    resumed = ledger.resume(first.run, 1, plan)
    for step in range(2, 7):
        resumed.record(step)
    spent = float(ledger.runs()[0].spent()[0])
    released = WEIGHTS[:3] + WEIGHTS[1:]
    assert spent >= mu2_of(released) * (1 - 1e-12)
    assert spent == pytest.approx(mu2_of(released), rel=1e-9)
    assert ledger.close(first.run) == 0


@pytest.mark.parametrize(
    ("name", "mutant"),
    [("weight_of", lambda run, step: Fraction(1)), ("weight_after", lambda run, step: Fraction(run.steps - step))],
)
def test_a_ledger_that_ignores_weights_is_noticed(tmp_path, monkeypatch, name, mutant):
    monkeypatch.setattr(Run, name, mutant)
    with pytest.raises((AssertionError, vips.exceptions.LedgerError)):
        test_a_resumed_fit_pays_for_what_it_repeats(tmp_path)


def test_an_interrupted_step_counts_by_its_weight(tmp_path):
    """Without a ledger, the report counts a step whose checkpoint was being written."""
    path = tmp_path / "fit.checkpoint"
    with pytest.raises(ZeroDivisionError):
        Stops(radius=1.0, privacy=PLAN).fit(ROWS, checkpoint=path)
    path.with_name(f".{path.name}.partial").touch()  # of step 3, which is repeated
    release = Stops(radius=1.0, privacy=PLAN)
    release.calls = 9
    report = release.fit(ROWS, checkpoint=path).privacy_
    assert report.releases[0].repeated_steps == pytest.approx(0.6)
    repeated = PrivacyPlan(noise_multiplier=mu2_of((*WEIGHTS, 0.6)) ** -0.5, sampling="full", n_steps=1)
    assert report.epsilon(1e-6) == pytest.approx(repeated.epsilon(1e-6), rel=1e-9)


def test_phases_stay_with_the_report_and_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(vips.DirichletMultinomial, "phases", Weighted.phases)
    model = vips.DirichletMultinomial(privacy=PLAN)
    model.fit(np.ones((5, 3), int))
    plan = model.privacy_.plan
    assert "2 steps with 0.7454 times this noise, then 4 steps with 1.291 times" in str(model.privacy_)
    model.save(tmp_path / "shares.vips")
    assert vips.load(tmp_path / "shares.vips").privacy_.plan == plan
    assert vips.load(tmp_path / "shares.vips").privacy_.to_dict() == model.privacy_.to_dict()


@pytest.mark.parametrize(
    ("phases", "error", "message"),
    [
        ((Phase(2), Phase(5)), ValueError, "have 7 steps"), ((Phase(7),), ValueError, "have 7 steps"),
        ((2, 4), TypeError, "must be phases"), ([Phase(1, 1e-6), Phase(5, 1e6)], ValueError, "factor of 1e6"),
    ],
)  # fmt: skip
def test_phases_of_another_plan_are_refused(phases, error, message):
    with pytest.raises(error, match=message):
        replace(PLAN, phases=phases)


def test_samples_have_one_weight():
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.1, n_steps=6)
    assert plan.with_phases(PHASES) == plan == plan.with_phases(Phase(6))
    repeated = replace(plan, n_steps=9)
    assert plan.with_phases(PHASES).with_repeated(3).epsilon(1e-5) == repeated.epsilon(1e-5) > plan.epsilon(1e-5)
    with pytest.raises(ValueError, match="equal weights"):
        replace(plan, phases=PHASES)


@pytest.mark.parametrize("n_steps", [1, 5, 6])
def test_phases_may_be_empty_or_one(n_steps):
    plan, first = PLAN.with_n_steps(n_steps), min(5, n_steps)
    phases = plan.with_phases((Phase(first, 3.0), Phase(n_steps - first))).phases
    assert [phase.n_steps for phase in phases] == ([] if n_steps < 6 else [5, 1])
    assert plan.with_phases(Phase(n_steps)).phases == ()
    # also with hardly any noise, as comparisons have it, which look at the clip alone
    assert replace(PLAN, noise_multiplier=1e-12).with_phases(PHASES).of_step(1).noise_multiplier == 1e-12


def test_neighbours_of_one_weight_are_one_phase_and_there_are_at_most_a_thousand():
    plan = PLAN.with_n_steps(2_000)
    many = [Phase(1, 2.0)] * 1000 + [Phase(1)] * 1000
    assert plan.with_phases(many) == plan.with_phases((Phase(1000, 2.0), Phase(1000)))
    with pytest.raises(ValueError, match="may be 1,000 phases"):
        plan.with_phases([Phase(1, 1.0 + i % 2) for i in range(2000)])
    assert len(words.steps(plan.with_phases([Phase(2, 1.0 + i % 2) for i in range(1000)]))) < 1000


def test_the_model_states_the_phases():
    plan = PLAN.with_phases((Phase(1, 2.0), Phase(5)))
    with pytest.raises(ValueError, match="Leave them to the model"):
        Weighted(radius=1.0, privacy=plan).fit(ROWS)
    assert Weighted(radius=1.0, privacy=plan.with_n_steps(6)).fit(ROWS).privacy_.plan.phases[0].n_steps == 2
    for accountant in ("strong", "basic"):
        with pytest.raises(ValueError, match="equal steps"):
            PLAN.with_phases(PHASES).epsilon(1e-6, accountant)
