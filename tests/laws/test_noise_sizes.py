"""The noise of every release, by phase and by block: σ C times the scale by which records are clipped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.laws import checks
from tests.laws.cases import CASES, ONE_OF_EACH_CLASS, SecondMoments
from tests.laws.checks import _coordinates as coordinates
from tests.mutants import check_notices
from tests.tools.auditing.audits import look_only_for
from vips import FitPhase, PrivacyLedger, PrivacyPlan, StreamPlan, audit
from vips.core import phases
from vips.core.contract import completed_plan
from vips.core.phases import phases_of
from vips.streams import release
from vips.streams.release import CorrelatedNoise

N_STEPS, N_VALUES = 12, 500  # the deviation of 500 normals is within 0.2 of 1 but once in 10⁹ times
BATCHES = 3
STREAMS = [case for case in CASES if case.name in ONE_OF_EACH_CLASS and case.make_model().adds_up]


def check_size(draw, blocks, stated):
    """``draw()`` gives noise, which is ``stated`` times a block's scale in each of its coordinates."""
    least = min(coordinates(np.zeros(block.shape), block).size for block in blocks.values())
    draws = [draw() for _ in range(-(-N_VALUES // least))]
    for name, block in blocks.items():
        values = np.concatenate([coordinates(noise[name] / block.scale, block) for noise in draws])
        ratio = np.sqrt(np.mean(np.square(values))) / stated
        assert abs(ratio - 1.0) < 0.2, f"the noise of {name} is {ratio:.3g} of what is stated"


def zeros(blocks, plan):
    return {name: np.zeros(block.shape, np.int64 if plan.rounds_records else float) for name, block in blocks.items()}


def check_phases(model, n_steps=N_STEPS):
    """Noise as the engine draws it, for all of the model's blocks, against the blocks by which a phase clips."""
    plan = completed_plan(model, model.privacy)
    first = 1
    for phase in phases_of(model, n_steps):
        of_step = plan.of_step(first)
        mechanism = plan.mechanism(model.blocks(), plan.randomness(0), dict.fromkeys(model.blocks(), 0.0))
        total = zeros(phase.blocks, plan)
        check_size(lambda: mechanism.release(total, first), phase.blocks, of_step.noise_std())  # noqa: B023
        first += phase.n_steps


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_phase_has_the_noise_of_its_clip(case):
    check_phases(checks.prepared(case, 2, n_steps=N_STEPS)[0])


@pytest.mark.parametrize("case", [case for case in CASES if case.name in ONE_OF_EACH_CLASS], ids=lambda case: case.name)
def test_every_phase_has_the_discrete_noise_of_its_clip(case):
    check_phases(checks.prepared(case, 2, n_steps=N_STEPS, noise="discrete")[0])


def check_stream(case, noise):
    plan = StreamPlan(epsilon=1.0, delta=1e-6, n_batches=BATCHES, noise=noise, clip_norm=case.clip_norm)
    model = case.make_model(privacy=plan)
    model.n_features_in_ = case.make_records(2, np.random.default_rng(0)).shape[1]
    model.use_plan(plan.of_draws)
    blocks = model.blocks()
    (phase,) = phases_of(model, 1, blocks)
    total = zeros(phase.blocks, plan.of_draws)

    def draw():
        mechanism = CorrelatedNoise(plan, blocks)
        for t in range(1, BATCHES + 1):
            mechanism.release(total, t)
        return mechanism.values()

    check_size(draw, phase.blocks, plan.noise_std(BATCHES) * plan.clip_norm)


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
@pytest.mark.parametrize("case", STREAMS, ids=lambda case: case.name)
def test_every_stream_has_the_noise_of_its_clip(case, noise):
    check_stream(case, noise)


# -- broken copies----------------------------------------------------------------------------------------------


class TwoStatements(SecondMoments):
    """States a block twice, with two scales."""

    def phases(self, n_steps):
        blocks = self.blocks()
        return [FitPhase("steps", n_steps, blocks=blocks | {"first": replace(blocks["first"], scale=20.0)})]


def two_statements(noise="gaussian"):
    return TwoStatements(privacy=PrivacyPlan(noise_multiplier=5.0, sampling="full", n_steps=2, noise=noise))


def what_a_phase_states_is_clipped(patch):
    """And what the model states is noised."""
    patch.setattr(phases, "_named", lambda model, phase, blocks: dict(phase.blocks or blocks))


def streams_ignore_scales(patch):
    original = CorrelatedNoise.__init__

    def mutant(self, plan, blocks, *others):
        original(self, plan, {name: replace(block, scale=1.0) for name, block in blocks.items()}, *others)

    patch.setattr(release.CorrelatedNoise, "__init__", mutant)


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
def test_a_phase_that_states_a_block_is_refused_before_a_charge(noise, tmp_path):
    ledger = PrivacyLedger(tmp_path / "rows.ledger", epsilon=9.0, delta=1e-5, dataset="rows")
    with pytest.raises(ValueError, match=r"a list of names of the model's blocks, \['first', 'second'\]"):
        two_statements(noise).fit(np.zeros((9, 3)), ledger=ledger)
    assert not ledger.runs()


@pytest.mark.parametrize("named", ["first", [], ["third"], {"first": None}])
def test_a_phase_names_blocks_that_there_are(named):
    model = SecondMoments(privacy=two_statements().privacy)
    model.phases = lambda n_steps: [FitPhase("steps", n_steps, blocks=named)]
    with pytest.raises(ValueError, match="a list of names"):
        model.fit(np.zeros((9, 3)))


def test_two_statements_are_noticed(monkeypatch):
    model = two_statements()
    model.n_features_in_ = 3
    check_notices(lambda: check_phases(model, 2), what_a_phase_states_is_clipped, monkeypatch, "noise of first is")


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
def test_the_audit_notices_two_statements(noise, monkeypatch):
    what_a_phase_states_is_clipped(monkeypatch)
    look_only_for({"noise: size", "sensitivity"}, monkeypatch)
    report = audit(two_statements(noise), np.random.default_rng(0).normal(size=(20, 3)), n_runs=1000, random_state=0)
    assert "noise: size" in {finding.name for finding in report.findings if finding.passed is False}


def test_streams_that_ignore_scales_are_noticed(monkeypatch):
    case = next(case for case in STREAMS if case.name == "principal components")
    check_notices(lambda: check_stream(case, "gaussian"), streams_ignore_scales, monkeypatch, "the noise of")
