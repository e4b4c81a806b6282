"""Audits of fits with weights: hostile records weigh more than is declared, and some nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.auditing.audits import BY_NAME, SAMPLED, look_only_for
from tests.laws.cases import arguments
from tests.models.test_sample_weights import weights_as_they_are
from vips import PrivacyPlan, audit
from vips.core.execution import partitions

pytestmark = pytest.mark.usefixtures("one_thread", "forked")

LARGEST = 4.0
NAMES = ["proportions", "latent classes", "mixture", "linear", "logistic"]


def audited(name, noise="gaussian", n_runs=2000, persons=False):
    """The audit of a case of the laws, with 40 rows."""
    case, rng = BY_NAME[name], np.random.default_rng(0)
    plan = replace(SAMPLED, clip_norm=case.clip_norm, noise=noise, max_weight=LARGEST)
    groups = {"groups": rng.integers(0, 12, 40)} if persons else {}
    model = case.make_model(privacy=replace(plan, max_rows_per_group=7 if persons else None))
    weights = rng.uniform(0.0, 1.5 * LARGEST, 40)
    records = arguments(case.make_records(40, rng))
    return audit(model, *records, **groups, sample_weight=weights, n_runs=n_runs, random_state=0)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_models_of_the_laws_pass(name, persons, noise):
    report = audited(name, noise, persons=persons)
    assert report.passed, str(report)


def test_weights_are_needed_where_a_largest_one_is_declared():
    case = BY_NAME["proportions"]
    model = case.make_model(privacy=replace(SAMPLED, max_weight=LARGEST))
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
    ("mutant", "finding"),
    [
        (weights_as_they_are, "defective records"),
        (bad_weights_are_no_reason_to_leave_a_record_out, "sensitivity"),
        (weights_are_relative_to_those_of_the_chunk, "additivity"),
    ],
)
def test_mutant_is_rejected(mutant, finding, monkeypatch):
    look_only_for({finding}, monkeypatch)
    mutant(monkeypatch)
    report = audited("proportions", n_runs=0)
    assert finding in {failure.name for failure in report.failed}, str(report)
