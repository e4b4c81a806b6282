"""What the report of a fit says, and what it never says."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from tests.laws.cases import BetaBernoulli
from tests.plans import REPLACED
from vips import PrivacyPlan, PrivacyReport
from vips.privacy.only_noise import is_only_noise

GOOD = {"noise_multiplier": 1.0, "sampling_rate": 0.5, "n_steps": 3, "clip_norm": 1.0}


def report(plan, **arguments):
    return PrivacyReport(plan=plan, unit="one letter", released=("totals",), **arguments)


CALIBRATED = report(PrivacyPlan(**GOOD | {"noise_multiplier": 3.6887}, report_delta=1e-5))  # ε = 1
KINDS = {
    "calibrated": CALIBRATED,
    "open delta": report(PrivacyPlan(**GOOD)),
    "full": report(PrivacyPlan(**GOOD | {"sampling_rate": None}, sampling="full", report_delta=1e-5)),
    "discrete": report(PrivacyPlan(**GOOD, noise="discrete", report_delta=1e-5)),
    "seeded": report(PrivacyPlan(**GOOD, reproducible_noise=True, report_delta=1e-5)),
    "raising": replace(CALIBRATED, on_invalid="raise"),
    "replaced": report(replace(REPLACED, report_delta=1e-5)),
    "non-private": report(PrivacyPlan.non_private()),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_report_is_json_prose_and_a_table(name):
    each = KINDS[name]
    values = each.to_dict()
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert "secure" not in str(each).lower() + each._repr_html_().lower() + json.dumps(values).lower()
    assert each._repr_html_().count("<t") == each._repr_html_().count("</t")
    assert PrivacyReport.from_json(each.to_json()) == each
    guaranteed = name not in ("seeded", "raising", "non-private")
    assert each.has_guarantee is values["guarantee"] is guaranteed
    assert ("satisfies" in str(each)) is (guaranteed and name != "open delta")
    if not guaranteed:
        assert values["epsilon"] is None
        assert each.epsilon(1e-5) == math.inf
        assert type(each.event()).__name__ == "NonPrivateDpEvent"


def test_statements():
    assert "ε = 1 at δ = 1e-05 (privacy loss distributions)" in str(CALIBRATED)
    assert "Unit: one letter. Relation: add or remove one." in str(CALIBRATED)
    assert CALIBRATED.to_dict()["epsilon"] == pytest.approx(1.0, rel=2e-3)
    assert "call .epsilon(delta)" in str(KINDS["open delta"])
    with pytest.raises(ValueError, match="Write a δ"):
        KINDS["open delta"].epsilon()
    assert str(KINDS["seeded"]).startswith("NO GUARANTEE")
    assert str(KINDS["raising"]).startswith("NO GUARANTEE")
    assert str(KINDS["non-private"]).startswith("No privacy")
    assert "1.732-Gaussian differentially private" in str(KINDS["full"])
    assert "not hardened against attacks on floating-point noise" in str(CALIBRATED)
    assert "sampled exactly" in str(KINDS["discrete"])
    assert "rounded to the lattice" in str(KINDS["discrete"])
    assert "rounded to the lattice" not in str(CALIBRATED)
    assert "the number of records" in KINDS["replaced"].to_dict()["declared_public"]


def test_users_say_how_records_were_prepared_and_settings_chosen():
    stated = replace(CALIBRATED, tuning="on public articles", preprocessing="letters of one writer merged")
    assert "Tuning: on public articles." in str(stated)
    assert stated.to_dict()["preprocessing"] == "letters of one writer merged"
    assert "not stated" in CALIBRATED.to_dict()["tuning"]


def test_the_report_of_a_fit_holds_nothing_private():
    plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-5, sampling_rate=0.5, n_steps=3, clip_norm=1.5)
    few, many = (
        BetaBernoulli(privacy=plan).fit(np.random.default_rng(0).integers(0, 2, (n, 3)).astype(float))
        for n in (7, 1913)
    )
    for fit in (few, many):
        totals = fit.noisy_totals_
        assert fit.privacy_.only_noise == is_only_noise(fit.blocks(), totals.average, totals.noise_std)
    few, many = (replace(fit.privacy_, only_noise=False) for fit in (few, many))
    assert few == many
    assert str(few) == str(many)
    assert "1913" not in str(many)
