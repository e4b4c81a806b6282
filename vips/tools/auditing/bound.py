"""A lower bound on ε from trials with and without a canary, against the claim of a plan.

===========  ====================================================================================================
symbol       meaning
===========  ====================================================================================================
A, B         worlds with the canary, and without (under replace-one: with its opposite)
z_t          noisy total of step t along the canary's direction, in units of C
L            log-likelihood ratio of A to B given z_1 … z_T: the most powerful test
TPR, FPR     share of trials of A, of B, with L above a threshold
===========  ====================================================================================================

A mechanism that is (ε, δ)-differentially private has TPR ≤ e^ε FPR + δ, and the same with the worlds exchanged, at every
threshold and for every δ. One Clopper-Pearson bound per rate and threshold, all valid together with probability
``confidence``, gives a lower bound on ε for every δ. Thresholds are fixed beforehand, at quantiles of L under the claim. Where
the claim is a Gaussian mechanism (no sampling), the same rates bound μ = Φ⁻¹(TPR) - Φ⁻¹(FPR) (Dong, Roth and Su,
2022), which is stronger: it uses the whole trade-off curve, not one point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import stats
from scipy.special import expit

from vips.core.accounting.gaussian import gaussian_epsilon
from vips.core.plan import PrivacyPlan
from vips.tools.auditing.report import Finding

__all__ = ["CanaryBound", "canary_finding", "log_likelihood_ratio", "lower_bound"]

DELTAS = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1)
N_THRESHOLDS = 16
SMALLEST_CLAIM = 0.05  # an ε below this cannot be distinguished from 0


@dataclass(frozen=True)
class CanaryBound:
    """A lower bound on ε beside the claim, at the δ where it comes closest (or is furthest above).

    Attributes
    ----------
    delta, claim, bound : float
        The claim is ``plan.epsilon(delta)``.
    by_delta : dict of float to (claim, bound)
    n_trials : int
        In both worlds together.
    confidence : float
        Probability that all bounds hold together.
    mu_claim, mu_bound : float or None
        The same in terms of Gaussian differential privacy, where the claim is a Gaussian mechanism.
    """

    delta: float
    claim: float
    bound: float
    by_delta: dict[float, tuple[float, float]]
    n_trials: int
    confidence: float
    mu_claim: float | None = None
    mu_bound: float | None = None

    @property
    def ratio(self) -> float:
        return self.bound / self.claim

    @property
    def exceeded(self) -> bool:
        """Whether the claim is refuted, at any δ."""
        # an accountant's discretisation error is far below this tolerance
        above = any(bound > claim * (1.0 + 1e-6) for claim, bound in self.by_delta.values())
        return above or (self.mu_bound is not None and self.mu_bound > self.mu_claim)


def log_likelihood_ratio(totals: np.ndarray, plan: PrivacyPlan) -> np.ndarray:
    """L of trials under the claim; ``totals`` of shape (n_trials, n_steps), in units of C.

    Add or remove one: (1-q) N(0, σ²) + q N(1, σ²) against N(0, σ²). Replace one: against (1-q) N(0, σ²) + q N(-1, σ²).
    """

    def against_nothing(z):
        shifted = (2.0 * z - 1.0) / (2.0 * plan.noise_multiplier**2)
        if plan.sampling_rate == 1.0:
            return shifted
        return np.logaddexp(math.log1p(-plan.sampling_rate), math.log(plan.sampling_rate) + shifted)

    ratio = against_nothing(totals)
    if plan.relation == "replace_one":
        ratio = ratio - against_nothing(-totals)
    return ratio.sum(axis=1)


def lower_bound(ratios: np.ndarray, in_world_a: np.ndarray, plan: PrivacyPlan, confidence: float) -> CanaryBound:
    """What the trials prove about ε.

    Parameters
    ----------
    ratios : ndarray of shape (n_trials,)
        L, or any other score.
    in_world_a : ndarray of bool
    plan : PrivacyPlan
        Its ε is the claim.
    confidence : float
        Probability that no bound is above the truth.
    """
    claims = _claims(replace(plan, clip_norm=None))
    in_a, in_b = np.sort(ratios[in_world_a]), np.sort(ratios[~in_world_a])
    thresholds = _thresholds(plan)
    level = (1.0 - confidence) / (2.0 * len(thresholds))
    best: dict[float, float] = dict.fromkeys(claims, 0.0)
    mu = 0.0
    for threshold in thresholds:
        a_low = _lowest(len(in_a) - np.searchsorted(in_a, threshold, "right"), len(in_a), level)
        b_high = 1.0 - _lowest(np.searchsorted(in_b, threshold, "right"), len(in_b), level)
        for delta in best:
            best[delta] = max(best[delta], _log_ratio(a_low - delta, b_high), _log_ratio(1 - b_high - delta, 1 - a_low))
        mu = max(mu, float(stats.norm.ppf(a_low) - stats.norm.ppf(b_high)))
    mu_claim = plan.gdp_mu()
    if mu_claim is not None:  # the claim is one Gaussian mechanism: its whole trade-off curve is known
        best = {delta: max(bound, gaussian_epsilon(mu, delta) if mu > 0.0 else 0.0) for delta, bound in best.items()}
    by_delta = {delta: (float(claims[delta]), best[delta]) for delta in best}
    comparable = [delta for delta in by_delta if claims[delta] > SMALLEST_CLAIM] or [min(by_delta)]
    closest = max(comparable, key=lambda delta: best[delta] / max(claims[delta], 1e-12))
    return CanaryBound(
        closest, float(claims[closest]), best[closest], by_delta, len(ratios), confidence, mu_claim,
        None if mu_claim is None else mu,
    )  # fmt: skip


def canary_finding(name: str, checked: str, bound: CanaryBound, advice: str) -> Finding:
    """The bound in words."""
    measured = f"ε ≥ {bound.bound:.3f} at δ = {bound.delta:g} ({bound.n_trials} trials), {bound.ratio:.0%} of the claim"
    if bound.mu_bound is not None:
        measured += f"; μ ≥ {bound.mu_bound:.3f} of {bound.mu_claim:.3f}"
    values = {
        "bound": bound.bound,
        "claim": bound.claim,
        "ratio": bound.ratio,
        "delta": bound.delta,
        "trials": bound.n_trials,
    }
    return Finding(name, checked, measured, f"ε = {bound.claim:.3f}, the claim", not bound.exceeded, advice, values)


@lru_cache(maxsize=16)
def _claims(plan: PrivacyPlan) -> dict[float, float]:
    """ε by δ; slow for some plans, and the same at every clip norm."""
    return {delta: plan.epsilon(delta) for delta in DELTAS}


@lru_cache(maxsize=16)
def _thresholds(plan: PrivacyPlan) -> np.ndarray:
    """Quantiles of L under the claim, over both worlds. The claim is simulated; no run is used."""
    rng = np.random.default_rng(0)
    shape = (min(20_000, max(2_000, 2_000_000 // plan.n_steps)), plan.n_steps)
    ratios = []
    for sign in (1.0, -1.0 if plan.relation == "replace_one" else 0.0):
        z = rng.normal(0.0, plan.noise_multiplier, shape) + sign * (rng.random(shape) < plan.sampling_rate)
        ratios.append(log_likelihood_ratio(z, plan))
    return np.quantile(np.concatenate(ratios), expit(np.linspace(-6.0, 6.0, N_THRESHOLDS)))


def _lowest(successes: int, n: int, level: float) -> float:
    """Lower bound on a probability, too high with probability at most ``level``; Clopper and Pearson (1934)."""
    return float(stats.beta.ppf(level, successes, n - successes + 1)) if successes > 0 else 0.0


def _log_ratio(above: float, below: float) -> float:
    return math.log(above / below) if above > below > 0.0 else 0.0
