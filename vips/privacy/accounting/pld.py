"""Privacy loss distributions, by dp_accounting: the tightest accountant of Gaussian noise on Poisson samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, reduce

import numpy as np

from vips.privacy.accounting.base import NEARLY_ALL, Accountant
from vips.privacy.accounting.gaussian import gaussian_epsilon, gaussian_log_delta
from vips.privacy.accounting.losses import one_step_losses

__all__ = ["PLDAccountant", "composed_epsilon"]


class PLDAccountant(Accountant):
    """Privacy loss distributions: tight up to discretisation, which errs towards larger ε. Exact without sampling."""

    name = "pld"
    allowed = "Gaussian noise with Poisson or full sampling"

    def can_analyse(self, plan):
        return plan.noise == "gaussian" and plan.sampling != "fixed"

    def epsilon(self, plan, delta, orders=None):
        if plan.sampling_rate > NEARLY_ALL:
            return gaussian_epsilon(_gaussian_mu(plan), delta)
        return _epsilon_of([plan], delta)

    def delta(self, plan, epsilon, orders=None):
        if plan.sampling_rate > NEARLY_ALL:
            return float(np.exp(gaussian_log_delta(_gaussian_mu(plan), epsilon)))
        return min(1.0, float(_compose(*_loss_parameters([plan])).get_delta_for_epsilon(epsilon)) + _rounding([plan]))


def composed_epsilon(plans: Sequence, delta: float) -> float:
    """Joint ε of several plans that were fixed beforehand, by privacy loss distributions."""
    for plan in plans:
        PLDAccountant().check(plan)
    if all(plan.sampling_rate > NEARLY_ALL for plan in plans):
        return gaussian_epsilon(math.sqrt(math.fsum(_gaussian_mu(plan) ** 2 for plan in plans)), delta)
    return _epsilon_of(plans, delta)


def _interval(plan) -> float:
    """Spacing of the loss's grid.

    The loss of a step is of the order of 1/σ², and of q/σ where the sampling rate is small. A grid in proportion keeps the
    cost bounded, and the error, which is towards larger ε, below about one percent.
    """
    sigma = plan.noise_multiplier
    return max(
        1e-5 / sigma**2, min(1e-4, 0.02 * plan.sampling_rate * math.sqrt(math.expm1(min(1.0 / sigma**2, 50.0)))), 1e-7
    )


_one_step = lru_cache(maxsize=8)(one_step_losses)


@lru_cache(maxsize=8)
def _compose(fits: tuple[tuple[float, float, int], ...], relation: str, interval: float):
    """The losses of several fits: noise multiplier, rate and number of steps of each."""
    losses = []
    for noise_multiplier, rate, n_steps in fits:
        if rate == 1.0:  # T Gaussians on the same records equal a single one
            losses.append(_one_step(noise_multiplier / math.sqrt(n_steps), 1.0, relation, interval))
        else:
            losses.append(_one_step(noise_multiplier, rate, relation, interval).self_compose(n_steps))
    return reduce(lambda one, other: one.compose(other), losses)


def _gaussian_mu(plan) -> float:
    """√T · sensitivity ÷ noise: T Gaussians on the same records equal a single one."""
    return math.sqrt(plan.n_steps) / plan.sensitive_noise_multiplier()


def _rounding(plans: Sequence) -> float:
    """Bound on the error of δ by rounding in the Fourier transform: ten times the largest seen, 3 · 10⁻¹⁶ T."""
    return 3e-15 * sum(plan.n_steps for plan in plans)


def _epsilon_of(plans: Sequence, delta: float) -> float:
    """Smallest ε by privacy loss distributions; ∞ where δ is not above their rounding."""
    remaining = delta - _rounding(plans)
    return max(0.0, _smallest_epsilon(*_loss_parameters(plans), remaining)) if remaining > 0.0 else math.inf


@lru_cache(maxsize=256)
def _smallest_epsilon(fits: tuple, relation: str, interval: float, delta: float) -> float:
    """Cached, because a report computes the same ε many times."""
    return float(_compose(fits, relation, interval).get_epsilon_for_delta(delta))


def _loss_parameters(plans: Sequence) -> tuple:
    """What the losses depend on: each plan's numbers, their common relation, and the spacing of the grid."""
    fits = tuple((plan.noise_multiplier, plan.sampling_rate, plan.n_steps) for plan in plans)
    return fits, plans[0].relation, min(_interval(plan) for plan in plans)
