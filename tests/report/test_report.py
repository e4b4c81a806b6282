"""What the report of a fit says, and what it never says."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from tests.laws.cases import BetaBernoulli
from tests.mutants import check_notices
from tests.plans import REPLACED, with_release
from vips import DirichletMultinomial, PrivacyBudget, PrivacyPlan, PrivacyReport
from vips.core.accounting import composed_epsilon
from vips.core.accounting.gaussian import gaussian_epsilon
from vips.privacy import Release
from vips.report import report as report_module
from vips.report.only_noise import is_only_noise

GOOD = {"noise_multiplier": 1.0, "sampling_rate": 0.5, "n_steps": 3, "clip_norm": 1.0}


def report(plan, **of_release):
    return PrivacyReport((Release(what="fit", plan=plan, released=("totals",), **of_release),), unit="one letter")


CALIBRATED = report(PrivacyPlan(**GOOD | {"noise_multiplier": 3.6887}, report_delta=1e-5))  # ε = 1
KINDS = {
    "calibrated": CALIBRATED,
    "open delta": report(PrivacyPlan(**GOOD)),
    "full": report(PrivacyPlan(**GOOD | {"sampling_rate": None}, sampling="full", report_delta=1e-5)),
    "discrete": report(PrivacyPlan(**GOOD, noise="discrete", report_delta=1e-5)),
    "seeded": report(PrivacyPlan(**GOOD, reproducible_noise=True, report_delta=1e-5)),
    "raising": with_release(CALIBRATED, on_invalid="raise"),
    "replaced": report(replace(REPLACED, report_delta=1e-5)),
    "non-private": report(PrivacyPlan.non_private()),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_report_is_json_prose_and_a_table(name):
    privacy = KINDS[name]
    values = privacy.to_dict()
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert "secure" not in str(privacy).lower() + privacy._repr_html_().lower() + json.dumps(values).lower()
    assert privacy._repr_html_().count("<t") == privacy._repr_html_().count("</t")
    assert PrivacyReport.from_json(privacy.to_json()) == privacy
    guaranteed = name not in ("seeded", "raising", "non-private")
    assert privacy.has_guarantee is values["guarantee"] is guaranteed
    assert ("satisfies" in str(privacy)) is (guaranteed and name != "open delta")
    if not guaranteed:
        assert values["epsilon"] is None
        assert privacy.epsilon(1e-5) == math.inf
        assert type(privacy.event()).__name__ == "NonPrivateDpEvent"


def test_statements():
    assert "ε = 1 at δ = 1e-05 (privacy loss distributions)" in str(CALIBRATED)
    assert "Unit: one letter. Relation: add or remove one: a data set with the letter" in str(CALIBRATED)
    assert CALIBRATED.to_dict()["epsilon"] == pytest.approx(1.0, rel=2e-3)
    assert "call .epsilon(delta)" in str(KINDS["open delta"])
    with pytest.raises(ValueError, match="Write a δ"):
        KINDS["open delta"].epsilon()
    assert str(KINDS["seeded"]).startswith("NO GUARANTEE")
    assert str(KINDS["raising"]).startswith("NO GUARANTEE")
    assert str(KINDS["non-private"]).startswith("No privacy")
    assert "1.732-Gaussian differential privacy" in str(KINDS["full"])
    assert "not hardened against attacks on floating-point noise" in str(CALIBRATED)
    assert "sampled exactly" in str(KINDS["discrete"])
    assert "rounded to the lattice" in str(KINDS["discrete"])
    assert "rounded to the lattice" not in str(CALIBRATED)
    assert "the number of records" in KINDS["replaced"].to_dict()["declared_public"]
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
    few, many = (with_release(report, sha256="") for report in (few, many))
    assert str(few) == str(many)
    assert "1913" not in str(many)


# -- several releases ------------------------------------------------------------------------------------------------

FULL = PrivacyPlan(noise_multiplier=6.0, sampling="full", n_steps=4, clip_norm=1.0, report_delta=9e-6)
SAMPLED = replace(CALIBRATED.plan, report_delta=9e-6)


def of_plans(*plans, **of_first):
    releases = [Release(what=f"part {number}", plan=plan, released=("totals",)) for number, plan in enumerate(plans)]
    return PrivacyReport((replace(releases[0], **of_first), *releases[1:]), unit="one letter")


def test_joint_epsilon_is_that_of_all_releases():
    """By outside compositions: a single Gaussian for full batches, dp_accounting's loss distributions for samples."""
    from dp_accounting.pld import PLDAccountant

    both = of_plans(FULL, replace(FULL, noise_multiplier=3.0, n_steps=1), threshold_delta=1e-6)
    mu = math.sqrt(4 / 6.0**2 + 1 / 3.0**2)
    assert both.delta == pytest.approx(1e-5)
    assert both.epsilon() == pytest.approx(gaussian_epsilon(mu, 9e-6)), "ε is not that of all releases"
    assert of_plans(FULL, FULL).gdp_mu() == pytest.approx(2.0 * math.sqrt(2.0) / 6.0), "μ is not that of all releases"
    assert both.gdp_mu() is None  # the threshold is no Gaussian mechanism
    assert both.epsilon(1e-6) == math.inf, "a threshold costs no δ"
    repeated = of_plans(FULL, FULL, repeated_steps=4).epsilon()
    assert repeated == pytest.approx(of_plans(FULL, FULL, FULL).epsilon()), "repeated steps are free"
    mixed = of_plans(FULL, SAMPLED)
    theirs = PLDAccountant()
    for plan in (FULL, SAMPLED):
        theirs.compose(plan.event())
    assert mixed.epsilon() == pytest.approx(theirs.get_epsilon(9e-6), rel=0.01), "ε is not that of all releases"
    assert type(both.event()).__name__ == "NonPrivateDpEvent"
    theirs = PLDAccountant()
    theirs.compose(mixed.event())
    assert mixed.epsilon() == pytest.approx(theirs.get_epsilon(9e-6), rel=0.01), "the event is not that of all releases"
    assert of_plans(FULL, replace(SAMPLED, reproducible_noise=True)).epsilon() == math.inf


def thresholds_are_free(patch):
    patch.setattr(PrivacyReport, "_threshold_delta", 0.0)


def repeated_steps_are_free(patch):
    patch.setattr(Release, "charged_plan", property(lambda self: self.plan))


def the_first_release_is_free(patch):
    patch.setattr(report_module, "composed_epsilon", lambda plans, delta: composed_epsilon(plans[-1:], delta))


@pytest.mark.parametrize("mutant", [thresholds_are_free, repeated_steps_are_free, the_first_release_is_free])
def test_mutants_are_noticed(mutant, monkeypatch):
    check_notices(test_joint_epsilon_is_that_of_all_releases, mutant, monkeypatch)


@pytest.mark.parametrize(
    "wrong", [{"on_invalid": "stop"}, {"threshold_delta": 1.0}, {"repeated_steps": -1}, {"ledger": {"run": "2f"}}]
)
def test_a_release_is_checked(wrong):
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}` must"):
        report(FULL, **wrong)
    with pytest.raises(ValueError, match="of one relation"):
        of_plans(FULL, replace(FULL, relation="replace_one"))


def test_a_registry_gets_what_the_report_says_and_people_the_rest():
    model = DirichletMultinomial(privacy=PrivacyBudget(1.0, 1e-6)).fit(np.eye(3), groups=[1, 1, 2])
    deployment = json.loads(json.dumps(model.privacy_.to_registry()))["deployment"]
    assert set(deployment["basic"].values()) == {None}
    loss = deployment["privacy_loss"]
    assert loss["privacy_unit"] == "User-level"
    assert loss["privacy_parameters"] == {"epsilon": model.privacy_.epsilon(), "delta": 1e-6}
    assert all(item in loss["privacy_parameters_details"] for item in model.privacy_.not_covered)
    assert "no ledger counts this" in deployment["implementation"]["composition"]
    plan = PrivacyPlan.non_private(sampling_rate=1.0, n_steps=1)
    with pytest.raises(ValueError, match="nothing to register"):
        DirichletMultinomial(privacy=plan).fit(np.eye(3)).privacy_.to_registry()
