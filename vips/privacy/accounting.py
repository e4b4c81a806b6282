"""From a plan to (ε, δ): one class per accountant, one registry. Each refuses what it cannot analyse.

============  ==========================================================================================================
``"pld"``     privacy loss distributions (dp_accounting); without sampling, the exact Gaussian
``"rdp"``     Rényi divergences (dp_accounting); integer orders for discrete noise; fixed-size batches
``"moments"`` the paper's: valid, never the smallest, kept to reproduce its numbers
``"strong"``  exact Gaussian per step, amplified by sampling, then theorem 3.20 of Dwork and Roth (2014)
``"basic"``   the same per step; ε and δ add up
============  ==========================================================================================================
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache

import numpy as np
from scipy.optimize import brentq

from vips._fork import no_fork
from vips.privacy import _moments
from vips.privacy._gaussian import gaussian_epsilon, gaussian_log_delta

__all__ = [
    "ACCOUNTANTS", "Accountant", "calibrate_noise", "composed_epsilon", "event", "get_accountant", "largest_n_steps",
    "renyi_divergence",
]  # fmt: skip

SMALLEST_SAMPLED_NOISE = 0.05  # below, the search for a noise multiplier under sampling stops
MOST_STEPS = 10**7
NEARLY_ALL = 1.0 - 1e-9  # sampling rates above count as 1, which is never less
# Every order > 1 is valid. dp_accounting sums series at orders that are not whole, which need not converge below 2.
WHOLE_ORDERS = tuple(float(n) for n in (*range(2, 65), *np.unique(np.geomspace(65, 1024, 24).astype(int))))
SAMPLED_ORDERS = tuple(sorted({*WHOLE_ORDERS, *np.arange(2.0, 11.0, 0.25).tolist()}))
UNSAMPLED_ORDERS = tuple(1.0 + x for x in np.geomspace(1e-3, 1e7, 400).tolist())
ROUNDING = 1e-13  # of a Rényi divergence, which comes out as small as -1e-15 where it is nearly 0


def event(plan, accountant: str | None = None):
    """The whole fit as a dp_accounting ``DpEvent``, for one of its accountants under ``plan.relation``.

    Under add-or-remove one event of Gaussian noise is right for both. Under replace-one, dp_accounting's privacy loss
    distributions double the sensitivity themselves, its Rényi divergences do not. There the events are written so that the
    accountant for which they would be wrong refuses them:

    ================================  ========================================  =====================================
    noise, sampling, relation         ``"pld"``                                 ``"rdp"``
    ================================  ========================================  =====================================
    gaussian, any, add or remove      Gaussian(σ), sampled at q                 the same
    gaussian, poisson, replace one    Gaussian(σ), sampled at q                 none
    gaussian, full, replace one       Gaussian(σ), sampled at 1, which "rdp"    zCDP(2/σ²), which "pld" refuses
                                      refuses
    gaussian, fixed, replace one      none                                      Gaussian(σ/2), without replacement
    discrete, full, either            none                                      zCDP, which "pld" refuses
    discrete, poisson, add or remove  none                                      sampled zCDP, which both refuse
    ================================  ========================================  =====================================

    Parameters
    ----------
    accountant : {"pld", "rdp"}, optional
        None is the tighter one that can analyse the plan: ``plan.accountant``.

    Raises
    ------
    ValueError
        If the accountant cannot analyse the plan, or dp_accounting has no such accountant.
    """
    events, name = library(), accountant or plan.accountant
    if name not in ("pld", "rdp"):
        raise ValueError(f'dp_accounting has no accountant {name!r}: write "pld" or "rdp".')
    if plan.noise_multiplier == 0.0:
        return events.NonPrivateDpEvent()
    full, replaced = plan.sampling_rate == 1.0, plan.relation == "replace_one"
    if not (name == "rdp" and plan.noise == "gaussian" and plan.sampling != "fixed" and replaced and full):
        ACCOUNTANTS[name].check(plan)
    if name == "rdp" and (plan.noise == "discrete" or (replaced and plan.sampling != "fixed")):
        step = events.ZCDpEvent(rho=0.5 / plan.sensitive_noise_multiplier() ** 2)
    else:
        step = events.GaussianDpEvent(plan.sensitive_noise_multiplier() if name == "rdp" else plan.noise_multiplier)
    if plan.sampling == "fixed":
        step = events.SampledWithoutReplacementDpEvent(plan.n_records, plan.batch_size, step)
    elif not full or (name == "pld" and replaced):
        step = events.PoissonSampledDpEvent(plan.sampling_rate, step)
    return events.SelfComposedDpEvent(step, plan.n_steps)


class Accountant(ABC):
    """Bounds (ε, δ) of a plan. ``orders`` is None for the accountant's own, where orders mean anything."""

    name: str
    uses_orders = False
    smallest_order = 0.0
    allowed = "Gaussian noise, Poisson or full sampling and add-or-remove-one"

    @abstractmethod
    def can_analyse(self, plan) -> bool:
        """Whether sampling, relation and noise of the plan are covered."""

    @abstractmethod
    def epsilon(self, plan, delta: float, orders: object = None) -> float:
        """Smallest ε that the accountant proves at δ."""

    @abstractmethod
    def delta(self, plan, epsilon: float, orders: object = None) -> float:
        """Smallest δ that the accountant proves at ε."""

    def check(self, plan, orders: object = None) -> None:
        """Raise ValueError for a plan, or orders, that the accountant cannot analyse."""
        if not self.can_analyse(plan):
            others = [repr(name) for name, other in ACCOUNTANTS.items() if other.can_analyse(plan)]
            instead = f"use {' or '.join(others)}" if others else 'use relation="add_or_remove", or sampling="full"'
            raise ValueError(
                f"The accountant {self.name!r} covers {self.allowed}, not noise={plan.noise!r} with sampling="
                f"{plan.sampling!r} and relation={plan.relation!r}: {instead}."
            )


def _is_plain(plan) -> bool:
    return plan.noise == "gaussian" and plan.sampling != "fixed" and plan.relation == "add_or_remove"


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
        return min(1.0, float(_composed([plan]).get_delta(epsilon)) + _rounding([plan]))


class RDPAccountant(Accountant):
    """Rényi divergences; ``orders`` are numbers > 1, and whole ones ≥ 2 for discrete noise."""

    name = "rdp"
    uses_orders = True
    smallest_order = 1.0
    allowed = "add-or-remove-one with Poisson or full sampling, Gaussian noise on fixed batches, and discrete noise"

    def can_analyse(self, plan):
        if plan.noise == "discrete":
            return plan.sampling == "full" or (plan.sampling == "poisson" and plan.relation == "add_or_remove")
        return _is_plain(plan) or plan.sampling == "fixed"

    def check(self, plan, orders=None):
        super().check(plan, orders)
        if orders is not None and plan.noise == "discrete" and not all(float(a).is_integer() for a in orders):
            raise ValueError(
                "Rényi divergences of discrete noise are bounded at whole orders only: write whole `orders` ≥ 2."
            )

    def epsilon(self, plan, delta, orders=None):
        orders, divergences = _renyi_curve(plan, orders)
        compute = library().rdp.rdp_privacy_accountant.compute_epsilon
        return max(0.0, float(compute(orders, plan.n_steps * divergences, delta)[0]))

    def delta(self, plan, epsilon, orders=None):
        orders, divergences = _renyi_curve(plan, orders)
        compute = library().rdp.rdp_privacy_accountant.compute_delta
        return float(compute(orders, plan.n_steps * divergences, epsilon)[0])


class MomentsAccountant(Accountant):
    """The paper's moments accountant; ``orders`` are λ > 0, or ``"paper"`` for the paper's restricted integers.

    Where the paper's range is empty, ε is infinite and δ is 1: its theorem then says nothing.
    """

    name = "moments"
    uses_orders = True

    def can_analyse(self, plan):
        return _is_plain(plan)

    def epsilon(self, plan, delta, orders=None):
        orders, moments = _moments_of(plan, orders)
        if not orders:
            return math.inf
        return max(0.0, float(np.min((plan.n_steps * moments - np.log(delta)) / np.array(orders))))

    def delta(self, plan, epsilon, orders=None):
        orders, moments = _moments_of(plan, orders)
        if not orders:
            return 1.0
        return float(np.exp(min(0.0, np.min(plan.n_steps * moments - epsilon * np.array(orders)))))


class _StepwiseAccountant(Accountant):
    """Composes (ε₁, δ₁) of one step: the exact Gaussian, amplified by sampling, ε = log(1 + q (e^ε₀ - 1)), δ = q δ₀."""

    def can_analyse(self, plan):
        return _is_plain(plan)

    def delta(self, plan, epsilon, orders=None):
        def excess(log_delta):
            return self.epsilon(plan, math.exp(log_delta)) - epsilon

        low, high = math.log(1e-300), math.log1p(-1e-12)
        if excess(high) > 0.0:
            return 1.0
        if excess(low) <= 0.0:
            return math.exp(low)
        root = brentq(excess, low, high, xtol=1e-10)
        while excess(root) > 0.0:
            root += 1e-10
        return math.exp(root)

    @staticmethod
    def _step(plan, delta: float) -> float:
        """ε of one step at ``delta``."""
        if delta >= plan.sampling_rate:
            return 0.0  # with probability 1 - q the record is not even looked at
        without_sampling = gaussian_epsilon(1.0 / plan.noise_multiplier, delta / plan.sampling_rate)
        if without_sampling > 700.0:
            return without_sampling + math.log(plan.sampling_rate)
        return math.log1p(plan.sampling_rate * math.expm1(without_sampling))


class StrongAccountant(_StepwiseAccountant):
    """Theorem 3.20 of Dwork and Roth (2014): ε = √(2T log(1/δ″)) ε₁ + T ε₁ (e^ε₁ - 1), δ = T δ₁ + δ″, at the best split."""

    name = "strong"

    def epsilon(self, plan, delta, orders=None):
        steps = plan.n_steps

        def at(share):
            step = self._step(plan, (1.0 - share) * delta / steps)
            slack = math.sqrt(2.0 * steps * -math.log(share * delta)) * step
            return slack + steps * step * math.expm1(min(step, 700.0))

        return min(at(share) for share in 1.0 / (1.0 + np.exp(np.linspace(-12.0, 12.0, 97))))


class BasicAccountant(_StepwiseAccountant):
    """ε = T ε₁, δ = T δ₁."""

    name = "basic"

    def epsilon(self, plan, delta, orders=None):
        return plan.n_steps * self._step(plan, delta / plan.n_steps)


ACCOUNTANTS: dict[str, Accountant] = {
    accountant.name: accountant
    for accountant in (PLDAccountant(), RDPAccountant(), MomentsAccountant(), StrongAccountant(), BasicAccountant())
}


def get_accountant(name: str, orders: object = None) -> Accountant:
    """The accountant of that name, after a check that it can use ``orders``."""
    if name not in ACCOUNTANTS:
        raise ValueError(f"Unknown accountant {name!r}: write one of {', '.join(map(repr, ACCOUNTANTS))}.")
    accountant = ACCOUNTANTS[name]
    if orders is not None:
        if not accountant.uses_orders:
            raise ValueError(f"The accountant {name!r} has no orders: leave `orders` out.")
        if isinstance(orders, str):
            if orders != "paper" or name != "moments":
                raise ValueError(f'`orders` must be numbers, or "paper" for the accountant "moments"; got {orders!r}.')
        elif not len(orders) or not all(accountant.smallest_order < order < np.inf for order in orders):
            raise ValueError(
                f"`orders` of {name!r} must be finite numbers above {accountant.smallest_order:g}, at least one."
            )
    return accountant


def renyi_divergence(plan, order: float) -> float:
    """Rényi divergence of one step at ``order``, the larger of both directions: what a ledger's filter adds up."""
    if plan.sampling != "fixed" and plan.sampling_rate == 1.0:  # of a Gaussian, and never more of a discrete one
        return order / (2.0 * plan.sensitive_noise_multiplier() ** 2)
    if plan.sampling == "poisson" and plan.relation == "replace_one":
        raise ValueError(
            'There is no Rényi bound for Poisson samples under relation="replace_one": use sampling="fixed" or "full".'
        )
    ACCOUNTANTS["rdp"].check(plan, [order])
    return float(_renyi_curve(plan, (order,))[1][0])


def composed_epsilon(plans: Sequence, delta: float) -> float:
    """ε of several plans together that were fixed beforehand, by privacy loss distributions."""
    for plan in plans:
        ACCOUNTANTS["pld"].check(plan)
    if all(plan.sampling_rate > NEARLY_ALL for plan in plans):
        return gaussian_epsilon(math.sqrt(math.fsum(_gaussian_mu(plan) ** 2 for plan in plans)), delta)
    return _epsilon_of(plans, delta)


@lru_cache(maxsize=256)
def calibrate_noise(accountant: Accountant, plan, epsilon: float, delta: float, tol: float = 1e-4) -> float:
    """Noise multiplier at which the accountant proves at most ``epsilon``; within ``tol`` (relative) of the smallest.

    Errs towards more noise: the value returned has itself been evaluated and found to satisfy the target.
    """
    accountant.check(plan)

    def excess(log_sigma: float) -> float:
        # log ε is nearly linear in log σ, so the search needs few evaluations
        found = accountant.epsilon(replace(plan, noise_multiplier=math.exp(log_sigma)), delta)
        return math.log(max(found, 1e-12) / epsilon)

    smallest = 1e-3 if plan.sampling_rate == 1.0 else SMALLEST_SAMPLED_NOISE
    start = min(max(_guess(plan, epsilon, delta), math.log(smallest)), math.log(1e6))
    gap = excess(start)
    upwards = gap > 0.0
    end = start
    while (gap > 0.0) == upwards:
        # ε falls about like a power of σ between 1 and 2: going as far as it is off will do in a step or two
        start, end = end, end + (1.2 if upwards else -1.2) * max(min(abs(gap), 2.0), 0.01)
        if end > math.log(1e6):
            raise ValueError(
                f"No noise multiplier below 1e6 gives ε ≤ {epsilon} at δ = {delta} by {accountant.name!r}."
            )
        if end < math.log(smallest):
            raise ValueError(
                f"ε = {epsilon} at δ = {delta} is met with almost no noise (multiplier below {smallest}); write "
                "PrivacyPlan(noise_multiplier=...) if this is what you mean."
            )
        gap = excess(end)
    root = brentq(excess, min(start, end), max(start, end), xtol=tol / 4.0)
    while excess(root) > 0.0:
        root += tol / 4.0
    return math.exp(root)


def _guess(plan, epsilon: float, delta: float) -> float:
    """log σ at which the plan's central limit, μ = q √(T (e^(1/σ²) - 1)), satisfies (ε, δ); only where the search starts."""
    log_mu = brentq(lambda x: gaussian_epsilon(math.exp(x), delta) - epsilon, -20.0, 20.0, xtol=1e-3)
    ratio = math.exp(log_mu) / (plan.sampling_rate * math.sqrt(plan.n_steps))
    sensitivity = plan.noise_multiplier / plan.sensitive_noise_multiplier()
    return math.log(sensitivity) - 0.5 * math.log(math.log1p(ratio**2))


def largest_n_steps(accountant: Accountant, plan, epsilon: float, delta: float) -> int:
    """The most steps of this plan that the accountant proves to be within (ε, δ)."""
    accountant.check(plan)

    def fits(n_steps: int) -> bool:
        return accountant.epsilon(replace(plan, n_steps=n_steps), delta) <= epsilon

    if not fits(1):
        raise ValueError(
            f"Not even one step with noise_multiplier={plan.noise_multiplier:g} is within ε = {epsilon} at δ = {delta}: use "
            "more noise or a smaller sampling rate."
        )
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
        if high > MOST_STEPS:
            raise ValueError(f"More than {MOST_STEPS} steps are within the target: write `n_steps` yourself.")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


# -- dp_accounting ----------------------------------------------------------------------------------------------


@cache
def library():
    """dp_accounting, whose import takes half a second: when it is first needed."""
    with no_fork():  # a child that is forked meanwhile could never import it
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    return dp_accounting


def _neighbours(relation: str):
    kinds = library().NeighboringRelation
    return kinds.ADD_OR_REMOVE_ONE if relation == "add_or_remove" else kinds.REPLACE_ONE


def _interval(plan) -> float:
    """Spacing of the loss's grid.

    The loss of a step is of the order of 1/σ², and of q/σ where records are sampled thinly; a grid in proportion keeps the
    cost bounded and the error, which is towards larger ε, below about one percent.
    """
    sigma = plan.noise_multiplier
    return max(
        1e-5 / sigma**2, min(1e-4, 0.02 * plan.sampling_rate * math.sqrt(math.expm1(min(1.0 / sigma**2, 50.0)))), 1e-7
    )


@lru_cache(maxsize=8)
def _compose_pld(events: tuple, relation: str, interval: float):
    composer = library().pld.PLDAccountant(_neighbours(relation), interval)
    for each in events:
        composer.compose(each)
    return composer


def _gaussian_mu(plan) -> float:
    """√T · sensitivity ÷ noise: T Gaussians on the same records are one."""
    return math.sqrt(plan.n_steps) / plan.sensitive_noise_multiplier()


def _rounding(plans: Sequence) -> float:
    """What rounding in the Fourier transform that composes steps may take from δ: ten times what was seen, 3 · 10⁻¹⁶ T."""
    return 3e-15 * sum(plan.n_steps for plan in plans)


def _epsilon_of(plans: Sequence, delta: float) -> float:
    """Smallest ε by privacy loss distributions; ∞ where δ is not above their rounding."""
    left = delta - _rounding(plans)
    return max(0.0, float(_composed(plans).get_epsilon(left))) if left > 0.0 else math.inf


def _composed(plans: Sequence):
    interval = min(_interval(plan) for plan in plans)
    return _compose_pld(tuple(event(plan) for plan in plans), plans[0].relation, interval)


def _renyi_curve(plan, orders) -> tuple[tuple[float, ...], np.ndarray]:
    """Orders, and the Rényi divergences of one step at them."""
    if orders is None and plan.noise == "discrete":
        orders = WHOLE_ORDERS
    elif orders is None:
        orders = SAMPLED_ORDERS if plan.sampling_rate < 1.0 else UNSAMPLED_ORDERS
    # At whole orders, discrete noise has the divergences of the Gaussian (docs/guarantee.md). The relation is in the noise.
    step = library().GaussianDpEvent(plan.sensitive_noise_multiplier())
    if plan.sampling == "fixed":
        step = library().SampledWithoutReplacementDpEvent(plan.n_records, plan.batch_size, step)
    elif plan.sampling_rate < 1.0:
        step = library().PoissonSampledDpEvent(plan.sampling_rate, step)
    return tuple(orders), _step_divergences(step, plan.relation, tuple(float(order) for order in orders))


@lru_cache(maxsize=64)
def _step_divergences(step, relation: str, orders: tuple[float, ...]) -> np.ndarray:
    return np.maximum(library().rdp.RdpAccountant(orders, _neighbours(relation)).compose(step)._rdp, 0.0) + ROUNDING


def _moments_of(plan, orders) -> tuple[tuple[float, ...], np.ndarray]:
    q, sigma = plan.sampling_rate, plan.noise_multiplier
    if isinstance(orders, str):
        orders = _moments.paper_orders(q, sigma)
    elif orders is None:
        orders = tuple(_moments.default_orders(sigma))
    else:
        orders = tuple(float(order) for order in orders)
    return orders, _cached_moments(q, sigma, orders)


@lru_cache(maxsize=64)
def _cached_moments(q, sigma, orders):
    return _moments.log_moments(q, sigma, orders)
