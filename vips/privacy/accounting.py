"""From a plan to (ε, δ): one function per accountant, one registry.

An accountant takes a plan's event as four public numbers and answers ``epsilon(delta)`` and ``delta(epsilon)``. It
refuses what it cannot analyse. ``"pld"`` and ``"rdp"`` are dp_accounting's; ``"moments"`` is the paper's, kept to
reproduce its numbers: valid, but never the smallest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq

from vips.privacy import _moments

__all__ = ["ACCOUNTANTS", "Accountant", "calibrate_noise", "get_accountant", "subsampled_gaussian_event"]


def subsampled_gaussian_event(sampling_rate: float, noise_multiplier: float, n_steps: int):
    """``n_steps`` Gaussian mechanisms on independent Poisson samples, as a dp_accounting ``DpEvent``."""
    import dp_accounting

    if noise_multiplier == 0.0:
        return dp_accounting.NonPrivateDpEvent()
    step = dp_accounting.GaussianDpEvent(noise_multiplier)
    if sampling_rate < 1.0:
        step = dp_accounting.PoissonSampledDpEvent(sampling_rate, step)
    return dp_accounting.SelfComposedDpEvent(step, n_steps)


SMALLEST_CALIBRATED = 0.05


class Accountant(ABC):
    """Bounds (ε, δ) of ``n_steps`` Poisson-subsampled Gaussian mechanisms under add-or-remove-one.

    Every method takes ``(sampling_rate, noise_multiplier, n_steps)`` as first arguments and ``orders`` as the last:
    None for the accountant's own, where orders mean anything.
    """

    name: str
    uses_orders = True
    smallest_order = 0.0

    @abstractmethod
    def epsilon(self, q: float, sigma: float, steps: int, delta: float, orders: object = None) -> float:
        """Smallest ε that the accountant proves at δ."""

    @abstractmethod
    def delta(self, q: float, sigma: float, steps: int, epsilon: float, orders: object = None) -> float:
        """Smallest δ that the accountant proves at ε."""


class PLDAccountant(Accountant):
    """Privacy loss distributions (dp_accounting): tight up to discretisation, which errs towards larger ε."""

    name = "pld"
    uses_orders = False

    def epsilon(self, q, sigma, steps, delta, orders=None):
        return float(_compose_pld(q, sigma, steps).get_epsilon(delta))

    def delta(self, q, sigma, steps, epsilon, orders=None):
        return float(_compose_pld(q, sigma, steps).get_delta(epsilon))


class RDPAccountant(Accountant):
    """Rényi differential privacy (dp_accounting); ``orders`` are Rényi orders > 1."""

    name = "rdp"
    smallest_order = 1.0

    def epsilon(self, q, sigma, steps, delta, orders=None):
        return float(_compose_rdp(q, sigma, steps, orders).get_epsilon(delta))

    def delta(self, q, sigma, steps, epsilon, orders=None):
        return float(_compose_rdp(q, sigma, steps, orders).get_delta(epsilon))


class MomentsAccountant(Accountant):
    """The paper's moments accountant; ``orders`` are λ > 0, or ``"paper"`` for the paper's restricted integers.

    Where the paper's range is empty, ε is infinite and δ is 1: its theorem then says nothing.
    """

    name = "moments"

    def epsilon(self, q, sigma, steps, delta, orders=None):
        orders, moments = _moments_of(q, sigma, orders)
        if not orders:
            return float("inf")
        return float(np.min((steps * moments - np.log(delta)) / np.array(orders)))

    def delta(self, q, sigma, steps, epsilon, orders=None):
        orders, moments = _moments_of(q, sigma, orders)
        if not orders:
            return 1.0
        return float(np.exp(min(0.0, np.min(steps * moments - epsilon * np.array(orders)))))


ACCOUNTANTS: dict[str, Accountant] = {
    accountant.name: accountant for accountant in (PLDAccountant(), RDPAccountant(), MomentsAccountant())
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


@lru_cache(maxsize=8)
def _compose_pld(q, sigma, steps):
    from dp_accounting.pld import PLDAccountant as Composer

    # The loss of a step is of the order of 1/σ². A grid in proportion keeps the cost bounded; it errs towards larger ε.
    interval = max(1e-4, 1e-5 / sigma**2)
    return Composer(value_discretization_interval=interval).compose(subsampled_gaussian_event(q, sigma, steps))


def _compose_rdp(q, sigma, steps, orders):
    from dp_accounting.rdp import RdpAccountant as Composer

    return Composer(orders).compose(subsampled_gaussian_event(q, sigma, steps))


def _moments_of(q: float, sigma: float, orders: Sequence[float] | str | None) -> tuple[tuple[float, ...], np.ndarray]:
    if isinstance(orders, str):
        orders = _moments.paper_orders(q, sigma)
    elif orders is None:
        orders = _moments.DEFAULT_ORDERS
    else:
        orders = tuple(float(order) for order in orders)
    return orders, _cached_moments(q, sigma, orders)


@lru_cache(maxsize=64)
def _cached_moments(q, sigma, orders):
    return _moments.log_moments(q, sigma, orders)


@lru_cache(maxsize=256)
def calibrate_noise(name: str, q: float, steps: int, epsilon: float, delta: float, tol: float = 1e-4) -> float:
    """Noise multiplier at which the accountant proves at most ``epsilon``; within ``tol`` (relative) of the smallest.

    Errs towards more noise: the value returned has itself been evaluated and found to satisfy the target.
    """
    accountant = get_accountant(name)

    def excess(log_sigma: float) -> float:
        # log ε is nearly linear in log σ, so the search needs few evaluations
        return np.log(max(accountant.epsilon(q, float(np.exp(log_sigma)), steps, delta), 1e-12) / epsilon)

    low = high = 0.0
    while excess(high) > 0.0:
        low, high = high, high + np.log(2.0)
        if high > np.log(1e8):
            raise ValueError(f"No noise multiplier below 1e8 gives ε ≤ {epsilon} at δ = {delta} by {name!r}.")
    while low == high or excess(low) <= 0.0:
        low -= np.log(2.0)
        if low < np.log(SMALLEST_CALIBRATED):
            raise ValueError(
                f"ε = {epsilon} at δ = {delta} is met with almost no noise (multiplier below {SMALLEST_CALIBRATED}); write "
                "PrivacyPlan(noise_multiplier=...) if this is what you mean."
            )
    root = brentq(excess, low, high, xtol=tol / 4.0)
    while excess(root) > 0.0:
        root += tol / 4.0
    return float(np.exp(root))
