"""Audits at the level of persons: neighbouring data sets differ by all rows of one id."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.auditing.audits import BY_NAME, SAMPLED, look_only_for
from tests.data import test_groups as mutants
from tests.laws.cases import REPRESENTATIVES, arguments
from vips import audit

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
