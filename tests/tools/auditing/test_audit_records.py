"""Audits at the level of persons, where neighbouring data sets differ by all rows of one id, and of fits with weights, where
hostile records weigh more than is declared, and some nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.data import test_groups as mutants
from tests.laws.cases import BY_NAME, REPRESENTATIVES, arguments
from tests.models.test_sample_weights import weights_as_they_are
from tests.tools.auditing.audits import SAMPLED, audited, look_only_for
from vips import PrivacyPlan, audit
from vips.core.execution import partitions

pytestmark = pytest.mark.usefixtures("one_thread", "forked")

PERSONS, WEIGHTS = {"persons": True}, {"max_weight": 4.0}
WEIGHED = ["proportions", "latent classes", "mixture", "linear", "logistic"]


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
@pytest.mark.parametrize(
    ("name", "records"),
    [(name, PERSONS) for name in sorted(REPRESENTATIVES)]
    + [(name, records) for name in WEIGHED for records in (WEIGHTS, PERSONS | WEIGHTS)],
    ids=str,
)
def test_the_models_of_the_laws_pass(name, records, noise):
    report = audited(BY_NAME[name], replace(SAMPLED, noise=noise), **records)
    assert report.passed, str(report)
    if "max_weight" not in records:
        lattice = " on the lattice" if noise == "discrete" else ""
        assert report[f"sensitivity{lattice}"].values["tightness"] > 0.99


def test_weights_are_needed_where_a_largest_one_is_declared():
    case = BY_NAME["proportions"]
    model = case.make_model(privacy=replace(SAMPLED, max_weight=4.0))
    with pytest.raises(ValueError, match="sample_weight"):
        audit(model, *arguments(case.make_records(40, np.random.default_rng(0))), n_runs=0)


def bad_weights_are_no_reason_to_leave_a_record_out(patch):
    """NaN and negative weights are taken for the largest."""

    def shares_of(plan, weights):
        return np.where(weights >= 0.0, np.minimum(weights / plan.max_weight, 1.0), -1.5)

    patch.setattr(PrivacyPlan, "shares_of", shares_of)
    patch.setattr(partitions, "usable", lambda task, chunk: (chunk, None))


def weights_are_relative_to_those_of_the_chunk(patch):
    patch.setattr(
        PrivacyPlan, "shares_of", lambda plan, weights: weights / max(np.nanmax(weights, initial=0.0), 1e-300)
    )


@pytest.mark.parametrize(
    ("mutant", "case", "records", "noise", "finding"),
    [
        (mutants.rows_are_clipped_in_place_of_persons, "beta-bernoulli", PERSONS, "gaussian", "sensitivity"),
        (mutants.norms_of_the_longest_row, "beta-bernoulli", PERSONS, "gaussian", "sensitivity"),
        (mutants.last_row_of_a_person_belongs_to_the_next, "beta-bernoulli", PERSONS, "gaussian", "additivity"),
        (mutants.lattice_as_coarse_as_for_rows, "beta-bernoulli", PERSONS, "discrete", "sensitivity on the lattice"),
        (weights_as_they_are, "proportions", WEIGHTS, "gaussian", "defective records"),
        (bad_weights_are_no_reason_to_leave_a_record_out, "proportions", WEIGHTS, "gaussian", "sensitivity"),
        (weights_are_relative_to_those_of_the_chunk, "proportions", WEIGHTS, "gaussian", "additivity"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.representatives(
    "rows_are_clipped_in_place_of_persons----",
    "weights_as_they_are----",
    "bad_weights_are_no_reason_to_leave_a_record_out----",
)
def test_mutant_is_rejected(mutant, case, records, noise, finding, monkeypatch):
    look_only_for({finding}, monkeypatch)
    mutant(monkeypatch)
    report = audited(BY_NAME[case], replace(SAMPLED, noise=noise), n_runs=0, **records)
    assert finding in {failure.name for failure in report.failed}, str(report)
