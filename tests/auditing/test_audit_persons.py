"""Audits at the level of persons: neighbouring data sets differ by all rows of one id."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.auditing.audits import BY_NAME, CONFIDENCE, SAMPLED, look_only_for
from tests.data import test_groups as mutants
from tests.laws.cases import REPRESENTATIVES, arguments
from vips import PrivacyPlan, audit
from vips.auditing.canaries import canary_bound
from vips.auditing.records import ROWS_OF_PERSON

pytestmark = pytest.mark.usefixtures("one_thread", "forked")


def audited(case, plan=SAMPLED, n_runs=2000):
    """The audit of a case of the laws, with 40 rows of about 12 persons."""
    rng = np.random.default_rng(0)
    model = case.make_model(privacy=replace(plan, clip_norm=case.clip_norm, max_rows_per_group=7))
    records = arguments(case.make_records(40, rng))
    return audit(model, *records, groups=rng.integers(0, 12, 40), n_runs=n_runs, random_state=0)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
@pytest.mark.parametrize("name", sorted(REPRESENTATIVES))
def test_the_models_of_the_laws_pass(name, noise):
    report = audited(BY_NAME[name], replace(SAMPLED, noise=noise))
    assert report.passed, str(report)
    lattice = " on the lattice" if noise == "discrete" else ""
    assert report[f"sensitivity{lattice}"].values["tightness"] > 0.99


@pytest.mark.parametrize(
    ("mutant", "noise", "finding"),
    [
        (mutants.rows_are_clipped_in_place_of_persons, "gaussian", "sensitivity"),
        (mutants.norms_of_the_longest_row, "gaussian", "sensitivity"),
        (mutants.last_row_of_a_person_belongs_to_the_next, "gaussian", "additivity"),
        (mutants.lattice_as_coarse_as_for_rows, "discrete", "sensitivity on the lattice"),
    ],
)
def test_mutant_is_rejected(mutant, noise, finding, monkeypatch):
    look_only_for({finding}, monkeypatch)
    mutant(monkeypatch)
    report = audited(BY_NAME["beta-bernoulli"], replace(SAMPLED, noise=noise), n_runs=0)
    assert finding in {failure.name for failure in report.failed}, str(report)


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
def test_a_crafted_person_of_thirty_rows_reaches_most_of_the_claim_and_never_exceeds_it(noise):
    plan = PrivacyPlan(
        noise_multiplier=1.0, sampling="full", n_steps=1, clip_norm=2.0, noise=noise, max_rows_per_group=30
    )
    assert ROWS_OF_PERSON == 30
    bound = canary_bound(plan, 100_000, np.random.default_rng(0), CONFIDENCE, n_rows=30)
    assert not bound.exceeded
    assert bound.ratio >= 0.7, f"{bound.bound:.3f} of {bound.claim:.3f}"
