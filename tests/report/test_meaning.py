"""What ε and δ mean to an attacker, compared with all attacks on a mechanism with few outcomes."""

from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from vips.report.words import belief_after, gaussian_success, hits, success


def attacks(epsilon, delta):
    """Rates of (false alarms, hits) of every deterministic attack on the worst mechanism that is (ε, δ)-private."""
    right = np.exp(epsilon) / (1.0 + np.exp(epsilon))
    given = np.array([delta, (1 - delta) * right, (1 - delta) * (1 - right), 0.0])  # outcomes if "in"
    for says_in in product([0, 1], repeat=4):
        yield float(given[::-1] @ says_in), float(given @ says_in)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.05])
def test_bounds_hold_for_every_attack_and_are_reached(epsilon, delta):
    rates = list(attacks(epsilon, delta))
    best = max(0.5 * (1.0 - alarms + right) for alarms, right in rates)
    assert success(epsilon, delta) == pytest.approx(best, rel=1e-12)
    for alarms, right in rates:
        assert right <= hits(alarms, epsilon, delta) + 1e-12
    corner = delta + (1.0 - delta) * np.exp(epsilon) / (1.0 + np.exp(epsilon))
    assert hits(1.0 - corner, epsilon, delta) == pytest.approx(corner, rel=1e-12)


def test_beliefs_follow_bayes():
    epsilon, belief = 1.3, 0.1
    right = np.exp(epsilon) / (1.0 + np.exp(epsilon))
    assert belief_after(belief, epsilon) == pytest.approx(
        belief * right / (belief * right + (1 - belief) * (1 - right))
    )
    assert belief_after(0.5, 0.0) == 0.5


def test_gaussian_success_is_that_of_the_likelihood_ratio():
    mu = 0.7
    advantage = quad(lambda x: max(norm.pdf(x - mu) - norm.pdf(x), 0.0), -10, 10, points=[mu / 2])[0]
    assert gaussian_success(mu) == pytest.approx(0.5 + 0.5 * advantage, rel=1e-8)


def test_enormous_epsilon_bounds_nothing_and_does_not_overflow():
    assert success(1e4, 0.0) == belief_after(0.01, 1e4) == hits(0.01, 1e4, 0.0) == 1.0
