"""Audits reject broken copies of the library, with a finding that names the fault."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.laws import test_mutants as mutants
from tests.laws.cases import BY_NAME
from tests.tools.auditing.audits import (
    CONFIDENCE,
    FULL,
    HARDENED,
    SAMPLED,
    audited,
    break_everywhere,
    look_only_for,
)
from vips import PrivacyPlan
from vips.tools.auditing.canaries import canary_bound

pytestmark = pytest.mark.usefixtures("one_thread", "forked")


MUTANTS = [
    (mutants.noise_over_root_two, "lda", SAMPLED, {"noise: size"}),
    (mutants.noise_uniform, "beta-bernoulli", SAMPLED, {"noise: law"}),
    (mutants.noise_truncated, "lda", SAMPLED, {"noise: law"}),
    (mutants.noise_only_on_empty_totals, "beta-bernoulli", SAMPLED, {"noise: size", "noise: fresh"}),
    (mutants.one_draw_for_all_rows_of_a_block, "lda", SAMPLED, {"noise: law"}),
    (mutants.noise_from_the_global_generator, "beta-bernoulli", SAMPLED, {"noise: fresh"}),
    (mutants.symmetric_noise_not_isometric, "second moments", SAMPLED, {"noise: size"}),
    (mutants.block_scale_ignored_by_noise, "second moments", SAMPLED, {"noise: size"}),
    (mutants.discrete_noise_halved, "beta-bernoulli", HARDENED, {"noise: size"}),
    (mutants.discrete_noise_with_one_key, "beta-bernoulli", HARDENED, {"noise: fresh"}),
    (mutants.discrete_noise_not_isometric, "second moments", HARDENED, {"noise: size"}),
    (mutants.sums_rounded_at_the_end, "second moments", HARDENED, {"sums on the lattice"}),
    (mutants.lattice_too_coarse, "second moments", HARDENED, {"sensitivity on the lattice"}),
    (mutants.one_block_unclipped, "second moments", None, {"sensitivity", "norms"}),
    (mutants.clip_per_block, "beta-bernoulli", None, {"sensitivity"}),
    (mutants.clip_forgotten, "lda", None, {"sensitivity"}),
    (mutants.lda_norm_without_the_scales, "lda", None, {"sensitivity", "norms"}),
    (mutants.repeated_words_not_merged, "lda", None, {"sensitivity"}),
    (mutants.divided_by_the_realised_batch, "beta-bernoulli", None, {"additivity"}),
    (mutants.number_of_records_read, "beta-bernoulli", None, {"replay: steps", "replay: fitted object"}),
    (mutants.fixed_size_sampler, "beta-bernoulli", SAMPLED, {"samples"}),
    (mutants.same_sample_every_step, "beta-bernoulli", SAMPLED, {"samples"}),
    (mutants.same_noise_every_step, "beta-bernoulli", SAMPLED, {"noise: fresh"}),
    (mutants.noise_seeded_by_random_state, "beta-bernoulli", SAMPLED, {"noise: fresh", "samples"}),
    (mutants.noise_stored_on_the_model, "beta-bernoulli", SAMPLED, {"noise: fresh", "samples"}),
    (mutants.two_statistics_as_two_sampled_steps, "beta-bernoulli", None, {"event"}),
    (mutants.full_batches_accounted_as_sampled, "beta-bernoulli", None, {"event"}),
    (mutants.stops_on_a_private_quantity, "beta-bernoulli", None, {"replay: steps"}),
    (mutants.bad_row_times_zero, "second moments", None, {"defective records"}),
    (mutants.bad_record_raises, "beta-bernoulli", None, {"defective records", "replay: errors and warnings"}),
    (mutants.bad_record_warns, "beta-bernoulli", None, {"defective records", "replay: errors and warnings"}),
    (mutants.initialised_from_the_data, "beta-bernoulli", None, {"replay: posterior"}),
    (mutants.private_count_on_the_model, "beta-bernoulli", None, {"replay: fitted object"}),
    (mutants.records_share_a_normaliser, "second moments", None, {"independence", "additivity"}),
]

# Another mutant on every change is rejected by the same finding.
BEFORE_A_RELEASE = {
    mutants.noise_truncated, mutants.noise_only_on_empty_totals, mutants.block_scale_ignored_by_noise,
    mutants.clip_forgotten, mutants.repeated_words_not_merged,
    mutants.same_sample_every_step, mutants.noise_seeded_by_random_state, mutants.discrete_noise_halved,
    mutants.bad_record_raises, mutants.stops_on_a_private_quantity, mutants.two_statistics_as_two_sampled_steps,
    mutants.one_draw_for_all_rows_of_a_block, mutants.symmetric_noise_not_isometric, mutants.one_block_unclipped,
    mutants.same_noise_every_step, mutants.private_count_on_the_model, mutants.noise_over_root_two,
}  # fmt: skip


@pytest.mark.parametrize(
    ("mutant", "case", "plan", "findings"),
    [pytest.param(*row, marks=pytest.mark.slow if row[0] in BEFORE_A_RELEASE else ()) for row in MUTANTS],
    ids=[f"{mutant.__name__}-{case}" for mutant, case, _, _ in MUTANTS],
)
def test_mutant_is_rejected(mutant, case, plan, findings, monkeypatch):
    """``plan`` is None if no statistical check is needed."""
    look_only_for(findings, monkeypatch)
    break_everywhere(mutant, monkeypatch)
    report = audited(BY_NAME[case], plan or SAMPLED, 0 if plan is None else 2000)
    assert findings <= {finding.name for finding in report.failed}, str(report)


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(mutants.noise_halved, marks=pytest.mark.slow), mutants.noise_over_root_two],
    ids=lambda flaw: flaw.__name__,
)
@pytest.mark.parametrize("relation", ["add_or_remove", "replace_one"])
@pytest.mark.repeated("replace_one-noise_over_root_two")
def test_too_little_noise_is_noticed_by_every_statistical_check(mutant, relation, monkeypatch):
    expected = {"noise: size", "one step of the model", "canary, one step", "canary, all steps"}
    look_only_for(expected, monkeypatch)
    mutant(monkeypatch)
    plan = replace(FULL, relation=relation, noise_multiplier=1.0 if relation == "add_or_remove" else 2.0)
    case = "beta-bernoulli" if relation == "add_or_remove" else "second moments"  # where opposite records exist
    report = audited(BY_NAME[case], plan, n_runs=60_000)
    assert expected <= {finding.name for finding in report.failed}, str(report)


@pytest.mark.parametrize("mutant", [mutants.noise_halved, mutants.noise_over_root_two], ids=lambda flaw: flaw.__name__)
def test_too_little_noise_on_samples_is_noticed_by_canaries(mutant, monkeypatch):
    mutant(monkeypatch)
    for n_steps, rate in ((1, 0.5), (10, 0.2)):
        plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=rate, n_steps=n_steps, clip_norm=2.0)
        assert canary_bound(plan, 100_000, np.random.default_rng(0), CONFIDENCE).exceeded


def test_every_finding_has_a_mutant_on_every_change():
    rejected = {mutant: findings for mutant, _, _, findings in MUTANTS}
    always = set().union(*(findings for mutant, findings in rejected.items() if mutant not in BEFORE_A_RELEASE))
    assert always == set().union(*rejected.values())
