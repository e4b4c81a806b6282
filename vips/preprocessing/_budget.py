"""One budget for an encoder and a fit: a public rule that is fixed before the first release.

μ² adds up: the encoder gets a share of the budget's μ², the T steps of the fit get the rest in equal parts. Nothing is lost to
composition, although the fit's features depend on what the encoder released: the noise multipliers do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from vips.core.budget import GAUSSIAN_SHARE, PrivacyBudget
from vips.core.plan import PrivacyPlan
from vips.core.plan_phases import Phase
from vips.report.report import Release

__all__ = ["Budget", "split_budget"]


@dataclass(frozen=True)
class Budget:
    """Plans of the encoder, None if it learns nothing, and of the fit."""

    encoder: PrivacyPlan | None
    fit: PrivacyPlan
    threshold_delta: float | None

    def whole(self, fit: PrivacyPlan) -> PrivacyPlan:
        """Encoder and fit as one plan, whose first step is the encoder's; ``fit`` has the weights of the model's phases."""
        inverse = 1.0 / self.encoder.noise_multiplier**2 + fit.n_steps / fit.noise_multiplier**2
        noise = math.sqrt((1 + fit.n_steps) / inverse)
        weights = (noise / self.encoder.noise_multiplier) ** 2, (noise / fit.noise_multiplier) ** 2
        phases = [Phase(p.n_steps, p.weight * weights[1]) for p in fit.phases or (Phase(fit.n_steps),)]
        phases = Phase(1, weights[0]), *phases
        return replace(fit, noise_multiplier=noise, n_steps=1 + fit.n_steps, phases=phases, clip_norm=None)

    def check_spent(self, encoder: Release | None, fit: Release) -> None:
        """Raise ValueError unless these releases spent it: a file may be forged. A ledger may have had less for a threshold."""
        is_same = all(
            (ours.relation, ours.n_steps) == (theirs.relation, theirs.n_steps)
            and math.isclose(ours.noise_multiplier, theirs.noise_multiplier, rel_tol=1e-4)
            for ours, theirs in ((self.encoder, encoder and encoder.plan), (self.fit, fit.plan))
            if theirs is not None
        )
        threshold_delta = 0.0 if encoder is None else encoder.threshold_delta
        if not is_same or threshold_delta > (self.threshold_delta or 0.0) * (1.0 + 1e-9):
            raise ValueError("its settings are not those of its plans")


def split_budget(whole: PrivacyBudget, n_steps: int, share: float, learns_categories: bool) -> Budget:
    """Split a budget: the encoder gets this share of μ², below 1; 0 if it learns nothing.

    Whether it learns categories is a public fact. Their threshold takes δ₀; without categories there is none.
    """
    if not share:
        return Budget(None, whole.plan(n_steps=n_steps), None)
    encoder, fit = whole.split(float(share), 1.0 - float(share))
    quoted = {"report_delta": GAUSSIAN_SHARE * whole.delta if learns_categories else whole.delta}
    threshold_delta = whole.delta_0 if learns_categories else None
    return Budget(encoder.plan(n_steps=1, **quoted), fit.plan(n_steps=n_steps, **quoted), threshold_delta)
