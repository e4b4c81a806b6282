"""The privacy losses of one Gaussian step: dp_accounting's, evaluated at all points of the grid at once.

dp_accounting inverts the privacy loss in Python, one point after the other, which takes most of the time of a calibration. This
module evaluates the same formulas with NumPy. Bounds, discretisation ("connect the dots") and composition are dp_accounting's.
"""

from __future__ import annotations

import math

import numpy as np

from vips.privacy.accounting.events import library

__all__ = ["one_step_losses"]


def one_step_losses(noise_multiplier: float, rate: float, relation: str, interval: float):
    """What ``from_gaussian_mechanism`` of dp_accounting gives, pessimistic, on a grid of spacing ``interval``.

    Returns
    -------
    dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution
    """
    pld = library().pld
    kinds = pld.privacy_loss_mechanism.AdjacencyType

    def losses(kind):
        loss = pld.privacy_loss_mechanism.GaussianPrivacyLoss(noise_multiplier, sampling_prob=rate, adjacency_type=kind)
        bounds = loss.connect_dots_bounds()
        low, high = math.floor(bounds.epsilon_lower / interval), math.ceil(bounds.epsilon_upper / interval)
        deltas = _deltas(loss, kind.name, noise_multiplier**2, rate, np.arange(low, high + 1) * interval)
        return pld.pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, low, high, deltas)

    if relation == "replace_one":
        directions = [losses(kinds.REPLACE)]
    else:
        directions = [losses(kind) for kind in (kinds.REMOVE, kinds.ADD)[: 1 if rate == 1.0 else 2]]
    return pld.privacy_loss_distribution.PrivacyLossDistribution(*directions)


def _deltas(loss, kind: str, variance: float, rate: float, epsilons: np.ndarray) -> np.ndarray:
    """Hockey-stick divergences; ``get_delta_for_epsilon`` of the loss. Sampling bounds the loss on one side."""
    deltas, inside = np.zeros(len(epsilons)), np.ones(len(epsilons), bool)
    if kind == "REMOVE" and rate < 1.0:
        inside = epsilons > math.log1p(-rate) * (1.0 - 1e-9)
        deltas[~inside] = -np.expm1(epsilons[~inside])
    if kind == "ADD" and rate < 1.0:
        inside = epsilons < -math.log1p(-rate) * (1.0 - 1e-9)
    cutoffs = _CUTOFFS[kind](variance, rate, epsilons[inside])
    deltas[inside] = loss.mu_upper_cdf(cutoffs) - np.exp(epsilons[inside] + loss.mu_lower_log_cdf(cutoffs))
    return np.clip(deltas, 0.0, 1.0)


def _remove(variance: float, rate: float, epsilons: np.ndarray) -> np.ndarray:
    """Where the loss is ε, if N(0, σ²) with probability 1 - q, and else N(-1, σ²), stands against N(0, σ²)."""
    return -0.5 - variance * _without_sampling(rate, epsilons)


def _add(variance: float, rate: float, epsilons: np.ndarray) -> np.ndarray:
    return 0.5 + variance * _without_sampling(rate, -epsilons)


def _without_sampling(rate: float, epsilons: np.ndarray) -> np.ndarray:
    """log((e^ε - 1 + q) / q)."""
    large = epsilons > 1.0
    with np.errstate(divide="ignore"):  # at the smallest loss, log(1 - q)
        losses = np.log1p(np.expm1(np.where(large, 0.0, epsilons)) / rate)
    return np.where(large, epsilons - math.log(rate) + np.log1p((rate - 1.0) * np.exp(-np.abs(epsilons))), losses)


def _replace(variance: float, rate: float, epsilons: np.ndarray) -> np.ndarray:
    """N(-1, σ²) against N(1, σ²), each with probability q, else both N(0, σ²)."""
    if rate == 1.0:
        return -0.5 * variance * epsilons
    with np.errstate(divide="ignore"):  # log sinh 0
        half = 0.5 * np.abs(epsilons)
        log_sinh = half + np.log(-np.expm1(-2.0 * half)) - math.log(2.0)
    exponent = 0.5 / variance + math.log1p(-rate) - math.log(rate) + log_sinh
    large = exponent > 0.0
    arcsinh = np.where(
        large,
        exponent + np.log1p(np.sqrt(1.0 + np.exp(-2.0 * np.abs(exponent)))),
        np.arcsinh(np.exp(np.where(large, 0.0, exponent))),
    )
    return variance * (-np.sign(epsilons) * arcsinh - 0.5 * epsilons)


_CUTOFFS = {"REMOVE": _remove, "ADD": _add, "REPLACE": _replace}
