"""Privacy loss distributions: the tightest accountant, of every plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from vips.core.accounting.base import NEARLY_ALL, Accountant, is_plain
from vips.core.accounting.events import renyi_epsilon, renyi_log_deltas
from vips.core.accounting.gaussian import gaussian_epsilon, gaussian_log_delta
from vips.core.accounting.losses import TotalLoss, one_step_losses, window

if TYPE_CHECKING:
    from vips.core.plan import PrivacyPlan

__all__ = ["PLDAccountant", "composed_epsilon", "log_profile"]

_OF_LOSS = 0.02
_MOST_PLACES = 2**19  # of a sum of losses
_LEAST_NOISE = 0.01  # of samples; below it, the loss of a step is thousands
_RESOLUTION = 1e6  # δ below so many times the rounding of a transform: a Rényi bound may be less


class PLDAccountant(Accountant):
    """Privacy loss distributions: tight up to discretisation, which errs towards larger ε. Exact without sampling."""

    name = "pld"

    def can_analyse(self, plan: PrivacyPlan) -> bool:
        return True

    def epsilon(self, plan: PrivacyPlan, delta: float, orders: Sequence[float] | str | None = None) -> float:
        if _is_gaussian(plan):
            return gaussian_epsilon(_gaussian_mu(plan), delta)
        return _epsilon_of([plan], delta)

    def delta(self, plan: PrivacyPlan, epsilon: float, orders: Sequence[float] | str | None = None) -> float:
        if _is_gaussian(plan):
            return float(np.exp(gaussian_log_delta(_gaussian_mu(plan), epsilon)))
        return float(np.exp(log_profile(plan, np.array([epsilon]))[0]))


def log_profile(plan: PrivacyPlan, epsilons: np.ndarray) -> np.ndarray:
    """log δ at each ε ≥ 0 for a plan, rounded up: the larger one of both orders of the neighbours.

    Below the resolution of a loss distribution, a Rényi bound takes over where there is one.
    """
    if _is_gaussian(plan):
        return np.log(np.maximum(np.exp(gaussian_log_delta(_gaussian_mu(plan), epsilons)), 1e-300))
    rounding, totals = _rounding([plan]), _compose(*_loss_parameters([plan]))
    deltas = np.max([total.deltas(epsilons) for total in totals], axis=0) + rounding
    logs = np.log(np.clip(deltas, 1e-300, 1.0))
    if not is_plain(plan):
        return logs
    small = deltas < _RESOLUTION * rounding
    logs[small] = np.minimum(logs[small], renyi_log_deltas(plan, epsilons[small]))
    return logs


def composed_epsilon(plans: Sequence, delta: float) -> float:
    """Joint ε of one or more plans that were fixed beforehand; ∞ if one has no noise. ValueError if they have different
    relations."""
    if len({plan.relation for plan in plans}) != 1:
        raise ValueError("Plans of different relations have no joint ε.")
    if not all(plan.is_private for plan in plans):
        return math.inf
    if all(map(_is_gaussian, plans)):
        return gaussian_epsilon(math.sqrt(math.fsum(_gaussian_mu(plan) ** 2 for plan in plans)), delta)
    return _epsilon_of(plans, delta)


_one_step = lru_cache(maxsize=8)(one_step_losses)
Fits = tuple[tuple[float, float, int], ...]  # noise multiplier, rate and number of steps of each


def _spacing(fits: Fits, relation: str) -> float:
    """Spacing of the losses' grid: a fiftieth of the size of a step's loss.

    With spacing h, chords add about h²/12 to the mean loss of a step. The loss's size is here √(2 mean): rare large losses may
    dominate its variance.
    """
    largest = min(min(1.0 / sigma, rate * math.sqrt(math.expm1(min(1.0 / sigma**2, 50.0)))) for sigma, rate, _ in fits)
    spacing, mean = _OF_LOSS * largest, 0.0
    for sigma, rate, n_steps in fits:
        losses = _one_step(sigma, rate, relation, spacing)
        mean += n_steps * min(float(loss.places @ loss.probabilities) for loss in losses) * spacing
    return min(spacing, _OF_LOSS * math.sqrt(2.0 * mean / sum(n_steps for *_, n_steps in fits)))


@lru_cache(maxsize=8)
def _compose(fits: Fits, relation: str) -> tuple[TotalLoss, ...]:
    """The total loss for every order of the two neighbours."""
    # T Gaussians on the same records equal a single one
    fits = tuple((sigma / math.sqrt(n), rate, 1) if rate == 1.0 else (sigma, rate, n) for sigma, rate, n in fits)
    spacing = _spacing(fits, relation)
    while True:
        steps = [(_one_step(sigma, rate, relation, spacing), n) for sigma, rate, n in fits]
        n_orders = max(len(losses) for losses, _ in steps)
        by_order = [[(losses[i % len(losses)], n) for losses, n in steps] for i in range(n_orders)]
        windows = [window(parts) for parts in by_order]
        n_places = max(high - low for low, high in windows)
        if n_places <= _MOST_PLACES:
            return tuple(TotalLoss(parts, spacing, *ends) for parts, ends in zip(by_order, windows, strict=True))
        spacing *= 1.05 * n_places / _MOST_PLACES


def _is_gaussian(plan: PrivacyPlan) -> bool:
    """Whether a plan counts as one of full batches: it is, or has so little noise that sampling hides hardly anything. Every
    sampled step is dominated by the one of all records, because δ(ε) is jointly convex in both laws."""
    return plan.sampling_rate > NEARLY_ALL or plan.noise_per_share() < _LEAST_NOISE


def _gaussian_mu(plan: PrivacyPlan) -> float:
    """√T · sensitivity ÷ noise: T Gaussians on the same records equal a single one."""
    return math.sqrt(plan.n_steps) / plan.sensitive_noise_multiplier()


def _rounding(plans: Sequence) -> float:
    """Bound on the error of δ by rounding in the Fourier transform: ten times the largest seen, 3 · 10⁻¹⁶ T."""
    return 3e-15 * sum(plan.n_steps for plan in plans)


def _epsilon_of(plans: Sequence, delta: float) -> float:
    """Smallest ε by privacy loss distributions, or by Rényi divergences where δ is below their resolution; ∞ if by neither."""
    remaining = delta - _rounding(plans)
    epsilon = _smallest_epsilon(*_loss_parameters(plans), remaining) if remaining > 0.0 else math.inf
    if delta < _RESOLUTION * _rounding(plans) and all(map(is_plain, plans)):
        return min(epsilon, renyi_epsilon(plans, delta))
    return epsilon


@lru_cache(maxsize=256)
def _smallest_epsilon(fits: Fits, relation: str, delta: float) -> float:
    """Cached, because a report computes the same ε many times."""
    return max(total.epsilon(delta) for total in _compose(fits, relation))


def _loss_parameters(plans: Sequence) -> tuple[Fits, str]:
    """What the losses depend on: the number of steps of each kind, and the common relation, of which the losses take care."""
    n_steps: dict[tuple[float, float], int] = {}
    for plan in plans:
        kind = plan.noise_per_share(), 1.0 if _is_gaussian(plan) else plan.sampling_rate
        n_steps[kind] = n_steps.get(kind, 0) + plan.n_steps
    return tuple((*kind, n) for kind, n in n_steps.items()), plans[0].relation
