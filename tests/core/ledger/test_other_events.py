"""Events of dp_accounting in the numbers of a ledger, against closed forms and dp_accounting's privacy loss distributions."""

import math
import re
from itertools import product

import dp_accounting
import pytest
from dp_accounting import dp_event, pld

from vips import PrivacyBudgetError
from vips.core.accounting.domination import mu_of_zcdp
from vips.core.budget import PrivacyBudget
from vips.core.ledger.pricing import parts_of_event, stated

GAUSSIAN, LAPLACE = dp_accounting.GaussianDpEvent(2.0), dp_accounting.LaplaceDpEvent(3.0)
ADD_OR_REMOVE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
SAMPLED = dp_accounting.PoissonSampledDpEvent(0.1, GAUSSIAN)


class Ledger:
    relation, dataset = "add_or_remove", "letters"


def cost_of(event, pure=1.0):
    left = PrivacyBudget.of_parts(10.0, 1e-6, pure, 1e-5, "add_or_remove")
    return stated(Ledger, event, None, None, 0.0, "add_or_remove").price(left)


WITHOUT_EPSILON = [
    GAUSSIAN, dp_accounting.SelfComposedDpEvent(GAUSSIAN, 7), dp_accounting.SelfComposedDpEvent(SAMPLED, 40),
    dp_accounting.ComposedDpEvent([GAUSSIAN, dp_accounting.SelfComposedDpEvent(SAMPLED, 5), SAMPLED]),
]  # fmt: skip
WITH_EPSILON = [LAPLACE, dp_accounting.ComposedDpEvent([GAUSSIAN, LAPLACE, LAPLACE])]


@pytest.mark.parametrize(
    ("event", "pure"), [(event, 1.0) for event in WITHOUT_EPSILON] + [*product(WITH_EPSILON, (0.0, 1.0))], ids=str
)
def test_what_is_charged_is_no_less_than_the_privacy_losses(event, pure):
    """δ(ε) ≤ δ₀ + δ_μ(ε - ε₀) at every ε ≥ ε₀."""
    cost, losses = cost_of(event, pure), pld.PLDAccountant(ADD_OR_REMOVE).compose(event)
    for delta in (1e-2, 1e-4, 1e-5):
        rounding = 2e-4  # of losses, upward, by dp_accounting
        assert losses.get_delta(cost.epsilon(delta) + rounding) <= (0.9 * delta + cost.delta_0) * (1.0 + 1e-6)
    if "Laplace" not in str(event):
        assert losses.get_epsilon(1e-5) > 0.6 * cost.epsilon(1e-5)


def test_parts_in_closed_form():
    assert parts_of_event(GAUSSIAN, "add_or_remove") == (0.25, 0.0, [])
    composed = dp_accounting.ComposedDpEvent([GAUSSIAN, dp_accounting.SelfComposedDpEvent(LAPLACE, 3)])
    twice = dp_accounting.SelfComposedDpEvent(composed, 2)
    assert parts_of_event(twice, "add_or_remove")[:2] == pytest.approx((0.5, 2.0))
    for relation in ("add_or_remove", "replace_one"):
        event = dp_accounting.SelfComposedDpEvent(dp_accounting.ZCDpEvent(rho=0.1), 2)
        assert parts_of_event(event, relation)[0] == pytest.approx(mu_of_zcdp(0.2) ** 2)
    response = dp_accounting.RandomizedResponseDpEvent(2.0 / (1.0 + math.e), 2)  # ε = 1
    assert parts_of_event(response, "replace_one")[1] == pytest.approx(1.0)
    (plan,) = parts_of_event(dp_accounting.SelfComposedDpEvent(SAMPLED, 9), "add_or_remove")[2]
    assert (plan.noise_multiplier, plan.sampling_rate, plan.n_steps) == (2.0, 0.1, 9)
    assert parts_of_event(dp_accounting.PoissonSampledDpEvent(0.0, GAUSSIAN), "add_or_remove") == (0.0, 0.0, [])
    assert parts_of_event(dp_accounting.PoissonSampledDpEvent(1.0, GAUSSIAN), "add_or_remove")[0] == 0.25


def test_whole_noise_multipliers_are_composed():
    """dp_accounting's own accountant takes the first of whole noise multipliers for the whole composition."""
    of_whole = dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(2)] * 50)
    assert cost_of(of_whole).mu2 == pytest.approx(50 / 4)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (dp_accounting.GaussianDpEvent(0.0), "noise_multiplier"),
        (dp_accounting.GaussianDpEvent(-1.0), "noise_multiplier"),
        (dp_accounting.GaussianDpEvent(float("nan")), "noise_multiplier"),
        (dp_accounting.GaussianDpEvent(1e-200), "noise_multiplier"),
        (dp_accounting.LaplaceDpEvent("1"), "noise_multiplier"),
        (dp_accounting.SelfComposedDpEvent(GAUSSIAN, -3), "count"),
        (dp_accounting.SelfComposedDpEvent(GAUSSIAN, 0.5), "count"),
        (dp_accounting.ComposedDpEvent([LAPLACE, dp_accounting.SelfComposedDpEvent(GAUSSIAN, 0)]), "count"),
        (dp_accounting.PoissonSampledDpEvent(1.5, GAUSSIAN), "sampling_probability"),
        (dp_accounting.ZCDpEvent(rho=-1.0), "rho"),
        (dp_accounting.ZCDpEvent(rho=1.0, xi=float("inf")), "xi"),
        (dp_accounting.PoissonSampledDpEvent(0.1, LAPLACE), "cannot add up"),
        (dp_accounting.NonPrivateDpEvent(), "cannot add up"),
        (dp_accounting.UnsupportedDpEvent(), "cannot add up"),
        (dp_accounting.RandomizedResponseDpEvent(0.5, 2), "cannot add up"),
    ],
    ids=str,
)
def test_impossible_and_unknown_events_are_refused(event, message):
    with pytest.raises(ValueError, match=message):
        parts_of_event(event, "add_or_remove")


class Cheap(dp_accounting.GaussianDpEvent):
    """A subclass could be anything."""


def test_what_is_no_event_of_dp_accounting_is_refused():
    with pytest.raises(TypeError, match=r"DpEvent of dp_accounting or a PrivacyPlan, got float"):
        parts_of_event(1.0, "add_or_remove")
    with pytest.raises(ValueError, match="cannot add up"):
        parts_of_event(Cheap(1.0), "add_or_remove")


@pytest.mark.parametrize(
    "event", [dp_event.DiscreteLaplaceDpEvent(1.0, 1), dp_accounting.PoissonSampledDpEvent(0.5, LAPLACE)], ids=str
)
def test_the_suggestion_for_unknown_events_works(event):
    with pytest.raises(ValueError, match="cannot add up") as refused:
        parts_of_event(event, "add_or_remove")
    code = re.search(r"dp_accounting\.pld\.PLDAccountant.*", str(refused.value)).group()
    epsilon = eval(code, {"dp_accounting": dp_accounting, "event": event, "delta": 1e-6})
    assert 0.0 < epsilon < 3.0


@pytest.mark.parametrize("event", [GAUSSIAN, LAPLACE, dp_accounting.SelfComposedDpEvent(GAUSSIAN, 2)], ids=str)
def test_noise_relative_to_a_norm_is_refused_under_replace_one(event):
    """Accountants of dp_accounting do not agree on the sensitivity there."""
    with pytest.raises(ValueError, match=r"to which sensitivity.*(rho=|epsilon=)"):
        parts_of_event(event, "replace_one")


@pytest.mark.parametrize("count", [2**53 + 1, 10**400, 10**5000], ids=["2^53 + 1", "10^400", "10^5000"])
@pytest.mark.parametrize("event", [GAUSSIAN, LAPLACE, SAMPLED, dp_accounting.ZCDpEvent(1e-30)], ids=str)
def test_counts_that_no_sum_can_hold_are_refused_in_words(event, count):
    with pytest.raises(ValueError, match=r"repeated more than 2\^53 times"):
        cost_of(dp_accounting.SelfComposedDpEvent(event, count))
    with pytest.raises(ValueError, match=r"repeated more than 2\^53 times"):
        cost_of(dp_accounting.SelfComposedDpEvent(dp_accounting.SelfComposedDpEvent(event, 2**30), 2**30))


def test_more_sampled_parts_than_there_is_room_for_are_charged_otherwise():
    few, many = (dp_accounting.ComposedDpEvent([SAMPLED] * n) for n in (19, 20))
    assert cost_of(few).delta_0 == pytest.approx(0.95e-6)
    with pytest.raises(PrivacyBudgetError, match=r"20 sampled parts.* one after the other.*SelfComposedDpEvent"):
        cost_of(many)
    assert cost_of(dp_accounting.SelfComposedDpEvent(SAMPLED, 200)).delta_0 == pytest.approx(0.05e-6)
