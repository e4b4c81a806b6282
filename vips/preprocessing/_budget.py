"""One budget for an encoder and a fit: a public rule that is fixed before the first release.

Full-batch Gaussian steps with noise multipliers σ_i are together one Gaussian mechanism with 1/σ² = Σ 1/σ_i². The encoder gets
the share s of 1/σ², the T steps of the fit get the rest in equal parts:

    σ_encoder = σ / √s,    σ_step = σ √(T / (1 - s)),    σ: one release within (ε, δ - δ_threshold)

Nothing is lost to composition, although the fit's features depend on what the encoder released: the noise multipliers do
not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vips.privacy import PrivacyPlan

__all__ = ["Budget", "split_budget"]

_THRESHOLD_SHARE = 0.1  # of δ, for the threshold of categories
_ROUNDED_UP = 1.0 + 1e-12


@dataclass(frozen=True)
class Budget:
    """Plans of the encoder and of the fit."""

    encoder: PrivacyPlan
    fit: PrivacyPlan
    threshold_delta: float | None


def split_budget(
    epsilon: float, delta: float, n_steps: int, share: float, relation: str, learns_categories: bool
) -> Budget:
    """Split (ε, δ).

    Parameters
    ----------
    share : float
        s, between 0 and 1.
    learns_categories : bool
        A public fact. Without categories there is no threshold.
    """
    threshold_delta = _THRESHOLD_SHARE * delta if learns_categories else None
    plan_delta = delta - (threshold_delta or 0.0)
    one = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=plan_delta, sampling="full", n_steps=1, relation=relation)
    sigma = one.noise_multiplier * _ROUNDED_UP

    def plan(n: int, part: float) -> PrivacyPlan:
        return PrivacyPlan(noise_multiplier=sigma * math.sqrt(n / part), sampling="full", n_steps=n, relation=relation,
                           report_delta=plan_delta)  # fmt: skip

    return Budget(plan(1, share), plan(n_steps, 1.0 - share), threshold_delta)
