"""Rényi divergences of events and of pure ε, against closed forms and privacy loss distributions."""

import re

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event, pld

from vips.privacy.accounting.other_events import event_divergence, pure_divergence

GAUSSIAN, LAPLACE = dp_accounting.GaussianDpEvent(2.0), dp_accounting.LaplaceDpEvent(3.0)
ADD_OR_REMOVE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE


def of_randomised_response(epsilon, order):
    """Straight from the definition, with 200 digits."""
    with mpmath.workdps(200):
        order, p = mpmath.mpf(order), 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        total = p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)
        return float(mpmath.log(total) / (order - 1))


@pytest.mark.parametrize("order", [2, 7, 64, 4096])
def test_pure_privacy_costs_what_randomised_response_does(order):
    for epsilon in (1e-9, 1e-4, 0.01, 0.3, 1.0, 4.0, 14.0, 20.0, 90.0):
        assert pure_divergence(epsilon, order) == pytest.approx(of_randomised_response(epsilon, order), rel=1e-13)
    assert pure_divergence(0.0, order) == 0.0
    assert pure_divergence(1e4, order) <= 1e4


def test_no_pure_mechanism_costs_more():
    rng = np.random.default_rng(0)
    for epsilon in (0.1, 1.0, 3.0):
        for order in (2, 9, 40):
            bound = pure_divergence(epsilon, order) * (1.0 + 1e-12)
            assert event_divergence(dp_accounting.LaplaceDpEvent(1.0 / epsilon), "add_or_remove", order) < bound
            for _ in range(50):
                ratio = np.exp(rng.uniform(-epsilon, epsilon, 6))
                ratio[:2] = np.exp(epsilon), np.exp(-epsilon)
                q = rng.dirichlet(np.ones(6))
                up, down = ratio > 1.0, ratio <= 1.0  # masses on either side such that p = ratio q sums to 1
                gain, loss = q[up] @ (ratio[up] - 1.0), q[down] @ (1.0 - ratio[down])
                q = np.where(up, q * loss, q * gain) / (q[up].sum() * loss + q[down].sum() * gain)
                p = ratio * q
                assert p.sum() == pytest.approx(1.0)
                assert np.log(np.sum(p**order * q ** (1.0 - order))) / (order - 1.0) <= bound


@pytest.mark.parametrize(
    "event",
    [
        GAUSSIAN,
        LAPLACE,
        dp_accounting.SelfComposedDpEvent(GAUSSIAN, 7),
        dp_accounting.ComposedDpEvent([GAUSSIAN, LAPLACE]),
        dp_accounting.PoissonSampledDpEvent(0.1, GAUSSIAN),
    ],
    ids=str,
)
def test_divergences_of_events_imply_no_less_than_their_privacy_losses(event):
    """At ε = ρ + log((α - 1)/α) - (log δ + log α)/(α - 1), the exact δ is at most δ."""
    losses = pld.PLDAccountant(ADD_OR_REMOVE).compose(event)
    for order in (2, 5, 20):
        divergence = event_divergence(event, "add_or_remove", order)
        for delta in (1e-3, 1e-6):
            epsilon = divergence + np.log1p(-1.0 / order) - (np.log(delta) + np.log(order)) / (order - 1.0)
            assert losses.get_delta(epsilon) <= delta * (1.0 + 1e-6)


def test_whole_noise_multipliers_are_composed():
    """dp_accounting's Rényi accountant takes the first of whole noise multipliers for the whole composition."""
    of_whole, of_floats, of_one = (
        event_divergence(dp_accounting.PoissonSampledDpEvent(0.1, inner), "add_or_remove", 4)
        for inner in (
            dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(2)] * 50),
            dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(2.0)] * 50),
            dp_accounting.GaussianDpEvent(2.0),
        )
    )
    assert of_whole == of_floats > 10.0 * of_one


def test_the_gaussian_and_zcdp_in_closed_form():
    assert event_divergence(GAUSSIAN, "add_or_remove", 6) == pytest.approx(6 / 8)
    for relation in ("add_or_remove", "replace_one"):
        assert event_divergence(dp_accounting.ZCDpEvent(rho=0.1, xi=0.2), relation, 6) == pytest.approx(0.8)
    response = dp_accounting.RandomizedResponseDpEvent(2.0 / (1.0 + np.e), 2)  # ε = 1
    assert event_divergence(response, "replace_one", 6) == pytest.approx(pure_divergence(1.0, 6))


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
        (dp_accounting.PoissonSampledDpEvent(0.1, LAPLACE), "not known"),
        (dp_accounting.NonPrivateDpEvent(), "not known"),
        (dp_accounting.UnsupportedDpEvent(), "not known"),
        (dp_accounting.RandomizedResponseDpEvent(0.5, 2), "not known under 'add_or_remove'"),
    ],
    ids=str,
)
def test_impossible_and_unknown_events_are_refused(event, message):
    with pytest.raises(ValueError, match=message):
        event_divergence(event, "add_or_remove", 4)


class Cheap(dp_accounting.GaussianDpEvent):
    """A subclass could be anything."""


def test_what_is_no_event_of_dp_accounting_is_refused():
    with pytest.raises(TypeError, match=r"DpEvent of dp_accounting or a PrivacyPlan, got float"):
        event_divergence(1.0, "add_or_remove", 4)
    with pytest.raises(ValueError, match="not known"):
        event_divergence(Cheap(1.0), "add_or_remove", 4)


@pytest.mark.parametrize(
    "event",
    [dp_event.DiscreteLaplaceDpEvent(1.0, 1), dp_accounting.PoissonSampledDpEvent(0.5, LAPLACE)],
    ids=str,
)
def test_the_suggestion_for_unknown_events_works(event):
    with pytest.raises(ValueError, match="not known") as refused:
        event_divergence(event, "add_or_remove", 4)
    code = re.search(r"dp_accounting\.pld\.PLDAccountant.*", str(refused.value)).group()
    epsilon = eval(code, {"dp_accounting": dp_accounting, "event": event, "delta": 1e-6})
    assert 0.0 < epsilon < 3.0


@pytest.mark.parametrize("event", [GAUSSIAN, LAPLACE, dp_accounting.SelfComposedDpEvent(GAUSSIAN, 2)], ids=str)
def test_noise_relative_to_a_norm_is_refused_under_replace_one(event):
    """dp_accounting's Rényi accountant would take half of the sensitivity."""
    with pytest.raises(ValueError, match=r"to which sensitivity.*(rho=|epsilon=)"):
        event_divergence(event, "replace_one", 4)
