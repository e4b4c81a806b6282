"""The best of a secret number of private trials, and what that costs.

=======  ===============  ====================================================================
symbol   name             meaning
=======  ===============  ====================================================================
Q                         one trial: a private fit of a candidate drawn at random, and its noisy score
K        ``trials``       number of trials, truncated negative binomial; never released
A                         the selection: the best of K trials
δ_Q(ε)   ``parts``        privacy profile of one trial, the larger of both directions
a        ``tail``         smallest a ≥ 0 with (1 - γ) δ_Q(a) ≤ γ (e^a - 1)
=======  ===============  ====================================================================

    δ_A(ε) ≤ E[K] δ_Q(ε - (η + 1) a)

Proof in docs/guarantee.md. It is at most the bound of Koskela, Redberg and Wang (2024), arXiv:2402.06701.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from scipy.optimize import brentq

from vips._secret_bits import secret_bits
from vips._validation import check_number
from vips.privacy.accounting.gaussian import gaussian_epsilon, gaussian_log_delta
from vips.privacy.plan import PrivacyPlan

__all__ = ["Selection", "TrialCount", "plans_of_trial"]

_UNIFORM_BITS = 64
_KEPT_BACK = 1e-5  # of ε, for the tolerance of calibrations


@dataclass(frozen=True)
class TrialCount:
    """The law of the number of trials: truncated negative binomial. The number itself is secret.

    P(K = k) ∝ (1 - γ)^k Γ(k + η) / k!,  k ≥ 1

    Parameters
    ----------
    mean : float
        E[K] > 1.
    shape : float
        η ≥ 0. 1 is the geometric law, 0 the logarithmic one. The smaller, the more often a single trial is all.
    """

    mean: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        check_number("mean_trials", self.mean, 1.0, 1e6, "above 1, and at most a million", open_low=True)
        check_number("shape", self.shape, 0.0, 10.0, "between 0 and 10")

    @property
    def gamma(self) -> float:
        """γ in (0, 1)."""
        return _gamma(float(self.mean), float(self.shape))

    def draw(self) -> int:
        """A number of trials, from 64 random bits of the operating system: within 1e-15 of its law."""
        left = (secret_bits(_UNIFORM_BITS) + 0.5) / 2.0**_UNIFORM_BITS
        gamma, k = self.gamma, 1
        probability = self.probability_of_one()
        while left > probability and probability > 0.0:
            left -= probability
            probability *= (1.0 - gamma) * (k + self.shape) / (k + 1)
            k += 1
        return k

    def probability_of_one(self) -> float:
        """P(K = 1)."""
        gamma, eta = self.gamma, float(self.shape)
        if eta == 0.0:
            return (1.0 - gamma) / -math.log(gamma)
        return eta * (1.0 - gamma) / math.expm1(-eta * math.log(gamma))


@dataclass(frozen=True)
class Selection:
    """The best of a secret number of trials.

    Parameters
    ----------
    trials : TrialCount
    parts : tuple of PrivacyPlan
        The fits of all candidates, and the noisy score. A record takes part in either the fit or the score of a trial.

    Guarantees
    ----------
    What a trial releases, if it is the best one, is (``epsilon(delta)``, ``delta``)-differentially private, for every δ.
    Nothing is promised if the number of trials, or what another trial released, becomes known.
    """

    trials: TrialCount
    parts: tuple[PrivacyPlan, ...]

    def __post_init__(self) -> None:
        if not self.parts or len({part.relation for part in self.parts}) != 1:
            raise ValueError("`parts` must be plans of one neighbouring relation, at least one.")

    @property
    def relation(self) -> str:
        """Neighbouring relation of all parts."""
        return self.parts[0].relation

    @property
    def has_guarantee(self) -> bool:
        """Whether every part is private."""
        return all(part.has_guarantee for part in self.parts)

    @property
    def tail(self) -> float:
        """a, rounded up."""
        return _tail(self.trials, self.parts)

    def epsilon(self, delta: float) -> float:
        """ε at ``delta``; ``inf`` without a guarantee."""
        if not self.has_guarantee:
            return math.inf
        share = delta / self.trials.mean
        return (self.trials.shape + 1.0) * self.tail + max(part.epsilon(share) for part in self.parts)

    def delta(self, epsilon: float) -> float:
        """δ at ``epsilon``; 1 without a guarantee."""
        if not self.has_guarantee:
            return 1.0
        return _delta_of_best(self.trials, self.tail, lambda remaining: _delta_of_trial(self.parts, remaining), epsilon)


def plans_of_trial(trials: TrialCount, epsilon: float, delta: float, fits: tuple[PrivacyPlan, ...]):
    """The parts of a trial with as little noise as (ε, δ) allows the selection.

    Parameters
    ----------
    fits : tuple of PrivacyPlan
        Rates and steps of the candidates; their noise multipliers are ignored.

    Returns
    -------
    fits : tuple of PrivacyPlan
    score : PrivacyPlan
        One release of all held-out records.

    Notes
    -----
    The selection is within (ε, δ) if a trial is both (a, γ (e^a - 1)/(1 - γ))- and (ε - (η + 1) a, δ/E[K])-private, for any a.
    The a that is taken is the best one for a single Gaussian release.
    """
    targets = _targets(trials, float(epsilon), float(delta))

    def calibrated(plan: PrivacyPlan) -> PrivacyPlan:
        noise = 0.0
        for eps, share in targets:
            if noise == 0.0 or not replace(plan, noise_multiplier=noise, clip_norm=None).delta(eps) <= share:
                noise = max(noise, replace(plan, clip_norm=None).with_epsilon(eps, share).noise_multiplier)
        return replace(plan, noise_multiplier=noise, report_delta=float(delta))

    score = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=1, relation=fits[0].relation)
    return tuple(map(calibrated, fits)), calibrated(score)


@lru_cache(maxsize=64)
def _targets(trials: TrialCount, epsilon: float, delta: float) -> list[tuple[float, float]]:
    """The two statements (ε, δ) that make the selection (ε, δ)-private."""
    gamma, power, share = trials.gamma, trials.shape + 1.0, delta / trials.mean

    def of_gaussian(log_mu: float) -> float:
        mu = math.exp(log_mu)
        a = _smallest_tail(gamma, lambda eps: math.exp(float(gaussian_log_delta(mu, eps))))
        return power * a + gaussian_epsilon(mu, share) - epsilon * (1.0 - _KEPT_BACK)

    lowest, highest = math.log(1e-8), math.log(100.0)
    if of_gaussian(lowest) > 0.0 or of_gaussian(highest) < 0.0:
        raise ValueError(f"ε = {epsilon:g} at δ = {delta:g} is too small or too large for a search: take another ε.")
    mu = math.exp(brentq(of_gaussian, lowest, highest, xtol=1e-10))
    a = _smallest_tail(gamma, lambda eps: math.exp(float(gaussian_log_delta(mu, eps))))
    both = [(epsilon * (1.0 - _KEPT_BACK) - power * a, share), (a, gamma * math.expm1(a) / (1.0 - gamma))]
    return [(eps, share) for eps, share in both if share < 1.0]


@lru_cache(maxsize=64)
def _tail(trials: TrialCount, parts: tuple[PrivacyPlan, ...]) -> float:
    return _smallest_tail(trials.gamma, lambda epsilon: _delta_of_trial(parts, epsilon))


def _delta_of_trial(parts: tuple[PrivacyPlan, ...], epsilon: float) -> float:
    """δ_Q: a record is in the fit or in the score, and the candidate is drawn without looking at the records."""
    return max(part.delta(epsilon) for part in parts)


def _delta_of_best(trials: TrialCount, tail: float, profile: Callable[[float], float], epsilon: float) -> float:
    """E[K] δ_Q(ε - (η + 1) a)."""
    remaining = epsilon - (trials.shape + 1.0) * tail
    return min(1.0, trials.mean * profile(remaining)) if remaining >= 0.0 else 1.0


def _smallest_tail(gamma: float, profile: Callable[[float], float]) -> float:
    """Smallest a ≥ 0 with (1 - γ) δ_Q(a) ≤ γ (e^a - 1), rounded up: the left side falls, the right one rises."""

    def holds(a: float) -> bool:
        return (1.0 - gamma) * profile(a) <= gamma * math.expm1(a)

    low, high = 0.0, -math.log(gamma)  # where γ (e^a - 1) = 1 - γ
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
        if high - low <= 1e-10 * high:
            break
    return high


@lru_cache(maxsize=64)
def _gamma(mean: float, shape: float) -> float:
    """γ with E[K] = η (1 - γ) / (γ (1 - γ^η))."""

    def excess(log_gamma: float) -> float:
        gamma = math.exp(log_gamma)
        below = -math.expm1(log_gamma)
        expected = (
            below / (gamma * -log_gamma) if shape == 0.0 else shape * below / (gamma * -math.expm1(shape * log_gamma))
        )
        return math.log(expected / mean)

    if shape == 1.0:
        return 1.0 / mean
    return math.exp(brentq(excess, -700.0 / max(1.0, abs(shape)), -1e-12, xtol=1e-14, rtol=1e-14))
