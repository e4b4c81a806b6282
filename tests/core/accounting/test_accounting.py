import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from scipy.integrate import quad
from scipy.stats import norm

from vips import PrivacyPlan
from vips.core import accounting
from vips.core.accounting import moments

REFERENCE = json.loads(Path(__file__).with_name("reference_epsilon.json").read_text())
ACCOUNTANTS = sorted(accounting.ACCOUNTANTS)


@pytest.mark.parametrize("row", REFERENCE, ids=lambda row: row["name"])
@pytest.mark.representatives(
    "sbn_mnist S=400",
    "sbn_mnist S=3200",
    "lda_wikipedia S=5000 sigma=2",
    "lda_wikipedia S=10000 sigma=1",
    "lda_wikipedia S=20000 sigma=1.24",
)
def test_epsilon_of_the_papers_runs(row):
    plan = PrivacyPlan(**{name: row[name] for name in ("noise_multiplier", "sampling_rate", "n_steps")})
    delta = row["delta"]
    assert plan.epsilon(delta, "moments", orders="paper") == pytest.approx(row["moments"], rel=1e-4)
    assert plan.epsilon(delta, "moments") <= row["moments_orders_to_64"] * (1.0 + 1e-6)
    to_64 = plan.epsilon(delta, "moments", orders=range(1, 65))
    assert to_64 == pytest.approx(row["moments_orders_to_64"], rel=1e-4)
    assert plan.epsilon(delta, "rdp") == pytest.approx(row["rdp"], rel=0.01)
    assert plan.epsilon(delta, "pld") == pytest.approx(row["pld"], rel=0.01)
    if row["paper"] is not None:
        assert plan.epsilon(delta, "moments", orders="paper") == pytest.approx(row["paper"], abs=0.005)


def test_paper_orders_are_empty_under_large_noise():
    plan = PrivacyPlan(noise_multiplier=20.0, sampling_rate=0.5, n_steps=10)
    assert moments.paper_orders(0.5, 20.0) == ()
    assert plan.epsilon(1e-5, "moments", orders="paper") == math.inf
    assert plan.delta(1.0, "moments", orders="paper") == 1.0
    assert plan.epsilon(1e-5, "moments") < math.inf


@pytest.mark.parametrize("order", [0.5, 1.0, 4.0, 12.0])
@pytest.mark.parametrize(("q", "sigma"), [(0.01, 1.0), (0.3, 2.2), (0.9, 0.6)])
def test_log_moments_against_adaptive_quadrature(q, sigma, order):
    def ratio(z):
        return np.logaddexp(np.log1p(-q), np.log(q) + (2 * z - 1) / (2 * sigma**2))

    def expectation(sign, power):
        def integrand(z):
            return np.exp(norm.logpdf(z, scale=sigma) + sign * power * ratio(z))

        points = np.linspace(-order - 12 * sigma, order + 1 + 12 * sigma, 60)
        return sum(quad(integrand, a, b, epsrel=1e-11)[0] for a, b in itertools.pairwise(points))

    expected = np.log(max(expectation(-1, order), expectation(1, order + 1)))
    assert moments.log_moments(q, sigma, (order,))[0] == pytest.approx(expected, rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_full_sampling_is_near_and_never_below_the_exact_gaussian(name):
    for sigma, steps in ((1.0, 1), (5.0, 20), (30.0, 4)):
        plan = PrivacyPlan(noise_multiplier=sigma, sampling_rate=1.0, n_steps=steps, sampling="full")
        exact = get_epsilon_gaussian(sigma / math.sqrt(steps), 1e-5)
        most = {"pld": 1.0 + 1e-9, "rdp": 1.25, "moments": 1.6, "strong": 1e3, "basic": 1e2}[name]
        assert exact * (1.0 - 1e-6) <= plan.epsilon(1e-5, name) <= exact * most


def test_refusals_say_what_to_write():
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.1, n_steps=2)
    with pytest.raises(ValueError, match="write one of 'pld', 'rdp', 'moments'"):
        plan.epsilon(1e-5, "magic")
    with pytest.raises(ValueError, match="has no orders"):
        plan.epsilon(1e-5, "pld", orders=[2.0])
    with pytest.raises(ValueError, match='"paper" for the accountant "moments"'):
        plan.epsilon(1e-5, "rdp", orders="paper")
    for name, all_orders in (("moments", ([0.0], [], [np.inf])), ("rdp", ([2.0, np.inf], [1.0]))):
        for orders in all_orders:
            with pytest.raises(ValueError, match="finite numbers above"):
                plan.epsilon(1e-5, name, orders=orders)
    with pytest.raises(ValueError, match="almost no noise"):
        PrivacyPlan.from_epsilon(epsilon=1e-3, delta=1e-2, sampling_rate=1e-6, n_steps=1)


def test_a_delta_below_what_losses_resolve_is_said_to_be_that():
    """Rényi divergences serve there, which samples under replace-one do not have."""
    tiny = {"epsilon": 1.0, "delta": 1e-14, "n_steps": 20}
    assert PrivacyPlan.from_epsilon(**tiny, sampling_rate=0.5).noise_multiplier < 100.0
    assert PrivacyPlan.from_epsilon(**tiny, sampling="full", relation="replace_one").noise_multiplier < 100.0
    with pytest.raises(ValueError, match=r"samples under .replace_one. cannot be computed .* sampling=.full."):
        PrivacyPlan.from_epsilon(**tiny, sampling_rate=0.5, relation="replace_one")


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_extreme_noise_is_answered_quickly_and_soundly(name):
    little = PrivacyPlan(noise_multiplier=0.02, sampling_rate=0.01, n_steps=3).epsilon(1e-5, name)
    assert little > 500.0
    much = PrivacyPlan(noise_multiplier=1e4, sampling_rate=0.01, n_steps=3).epsilon(1e-5, name)
    assert 0.0 <= much < 0.2


def test_without_noise_epsilon_is_infinite():
    plan = PrivacyPlan.non_private(sampling_rate=0.1, n_steps=3)
    assert plan.epsilon(1e-5) == math.inf
    assert plan.delta(3.0) == 1.0
    assert type(plan.event()).__name__ == "NonPrivateDpEvent"
