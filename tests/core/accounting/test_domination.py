"""The Gaussian that dominates a plan, against dp_accounting's privacy loss distributions and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as losses_of
from scipy.special import log_ndtr

from tests.mutants import check_notices
from vips import PrivacyPlan
from vips.core.accounting import domination
from vips.core.accounting.domination import dominating_mu, gaussian_mu, mu_of_pure, mu_of_zcdp
from vips.core.accounting.events import neighbours
from vips.core.accounting.gaussian import gaussian_epsilon, gaussian_log_delta

PLANS = [
    (4.53, 0.3, 20, "add_or_remove", 1e-6), (1.24, 0.3, 20, "add_or_remove", 1e-7),
    (1.5, 0.05, 200, "add_or_remove", 1e-6), (1.0, 0.01, 1, "add_or_remove", 1e-6),
    (0.5, 0.001, 1, "add_or_remove", 1e-6), (3.0, 0.2, 10, "replace_one", 1e-6),
]  # fmt: skip


def plan_of(noise_multiplier, rate, n_steps, relation):
    return PrivacyPlan(noise_multiplier=noise_multiplier, sampling_rate=rate, n_steps=n_steps, relation=relation)


def profile(noise_multiplier, rate, n_steps, relation, epsilons, is_upper):
    """δ by dp_accounting, the larger of both directions."""
    losses = losses_of.from_gaussian_mechanism(
        noise_multiplier, sampling_prob=rate, pessimistic_estimate=is_upper, value_discretization_interval=5e-4,
        neighboring_relation=neighbours(relation),
    )  # fmt: skip
    return np.array(losses.self_compose(n_steps).get_delta_for_epsilon(epsilons))


def mixture(mu, delta_0, epsilons):
    return delta_0 + (1.0 - delta_0) * np.exp(gaussian_log_delta(mu, epsilons))


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_sampled_plan_is_dominated_and_not_by_much_less(plan):
    """At every ε, beside other points than those of the package's grid."""
    *settings, delta_0 = plan
    mu = dominating_mu(plan_of(*settings), delta_0)
    epsilons = np.concatenate([[0.0], mu * np.geomspace(1e-3, 60.0, 400)])
    assert np.all(profile(*settings, epsilons, False) <= mixture(mu, delta_0, epsilons))
    assert np.any(profile(*settings, epsilons, True) > mixture(mu / 1.01, delta_0, epsilons))


def test_a_cell_is_checked_at_its_unfavourable_ends(monkeypatch):
    """With wide cells the bound is looser, never wrong; a comparison at equal points is wrong."""
    *settings, delta_0 = PLANS[1]

    def check():
        domination._sampled_mu.cache_clear()
        mu = dominating_mu(plan_of(*settings), delta_0)
        epsilons = mu * np.geomspace(1e-3, 60.0, 400)
        assert np.all(profile(*settings, epsilons, False) <= mixture(mu, delta_0, epsilons))

    def points_are_compared(patch):
        smallest = domination._smallest_mu
        patch.setattr(domination, "_smallest_mu", lambda ends, logs: smallest(np.append(0.0, ends[:-1]), logs))

    monkeypatch.setattr(domination, "_CELL", 0.3)
    check()
    check_notices(check, points_are_compared, monkeypatch)
    domination._sampled_mu.cache_clear()


def test_full_batches_are_gaussian_and_need_no_delta():
    plan = PrivacyPlan(noise_multiplier=3.0, sampling="full", n_steps=7)
    assert dominating_mu(plan, 0.0) == pytest.approx(math.sqrt(7.0) / 3.0, rel=1e-11)
    assert gaussian_epsilon(dominating_mu(plan, 0.0), 1e-5) == pytest.approx(plan.epsilon(1e-5), rel=1e-10)
    assert dominating_mu(plan_of(*PLANS[0][:4]), 0.0) == math.inf  # a record that is not sampled is not seen at all
    assert dominating_mu(PrivacyPlan.non_private(), 1e-6) == math.inf


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 8.0])
def test_the_largest_mu_of_an_epsilon(epsilon):
    mu = gaussian_mu(epsilon, 1e-6)
    assert gaussian_epsilon(mu, 1e-6) <= epsilon < gaussian_epsilon(mu * (1.0 + 1e-9), 1e-6)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 5.0, 30.0])
def test_pure_privacy_is_dominated_and_binds_at_zero(epsilon):
    mu, likely = mu_of_pure(epsilon), 1.0 / (1.0 + math.exp(-epsilon))
    levels = np.linspace(0.0, epsilon, 200)
    of_response = likely - np.exp(levels) * (1.0 - likely)
    assert np.all(of_response <= np.exp(gaussian_log_delta(mu, levels)) * (1.0 + 1e-9))
    assert math.exp(gaussian_log_delta(mu, 0.0)) == pytest.approx(math.tanh(epsilon / 2.0), rel=1e-9)
    assert mu_of_pure(1e4) == math.inf


@pytest.mark.parametrize("rho", [1e-4, 0.01, 0.3, 1.0, 3.0])
def test_zcdp_is_dominated(rho):
    """No event (p, q) that its Rényi divergences allow is beyond the Gaussian's, on cells that cover all events.

    Within a cell [p_i, p_{i+1}], the smallest q that is allowed beside p_i is beyond what the Gaussian allows beside p_{i+1}:
    q falls with p. In the tails Mills' ratio bounds Φ⁻¹(p) - Φ⁻¹(q) by 1.5 √ρ.
    """
    mu = mu_of_zcdp(rho)
    assert mu > 1.5 * math.sqrt(rho)
    z = np.arange(-7.5, 7.5, 0.004 * mu)
    left, furthest = z[:-1], z[1:] - mu
    log_p, log_other, log_q, log_rest = log_ndtr(left), log_ndtr(-left), log_ndtr(furthest), log_ndtr(-furthest)
    orders = 1.0 + np.geomspace(1e-3, 1e3, 60)
    is_excluded = np.zeros(len(left), bool)
    for a in orders:
        for p, other, q, other_q in ((log_p, log_other, log_q, log_rest), (log_q, log_rest, log_p, log_other)):
            divergence = np.logaddexp(a * p + (1.0 - a) * q, a * other + (1.0 - a) * other_q) / (a - 1.0)
            is_excluded |= divergence > a * rho
    assert is_excluded.all()
    # and it is not much more than a Gaussian mechanism of this rho needs
    assert mu < 1.5 * math.sqrt(2.0 * rho)


def test_below_the_resolution_of_losses_a_renyi_profile_serves():
    """Rényi bounds: 0.09 and 2.8 (docs/accounting.md)."""
    many = PrivacyPlan(noise_multiplier=5.0, sampling_rate=0.0001, n_steps=10_000)
    assert many.epsilon(1e-11) <= many.epsilon(1e-11, "rdp") < 0.2
    few = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.1, n_steps=20)
    assert few.epsilon(1e-14) <= few.epsilon(1e-14, "rdp") < 5.0
    assert few.delta(6.0) <= few.delta(6.0, "rdp")
    plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-14, sampling_rate=0.01, n_steps=1000)
    assert 0.0 < plan.epsilon(1e-14) <= 1.0
    assert dominating_mu(few, 1e-15) < math.inf
