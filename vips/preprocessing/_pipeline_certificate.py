"""Encoder and fit of a private pipeline as one statement, for its certificate."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

from vips.privacy import PrivacyReport

if TYPE_CHECKING:
    from vips.preprocessing._pipeline_report import PipelineReport

__all__ = ["as_one_fit"]


@dataclass(frozen=True)
class _Together(PrivacyReport):
    """A fit's statement with the ε of encoder and fit together."""

    whole: PipelineReport | None = None

    def charges(self):
        return (self.whole.encoder.plan, self.whole.fit.charged_plan), self.whole.encoder.threshold_delta

    @property
    def charged_plan(self):
        """Both as one plan; with a threshold of categories, which has a δ of its own, nothing that states a μ."""
        noise, _ = self.charges()
        if self.whole.encoder.threshold_delta:
            return SimpleNamespace(gdp_mu=lambda: None)
        per_step = sum(plan.n_steps / plan.noise_multiplier**2 for plan in noise)
        return replace(noise[1], n_steps=1, noise_multiplier=1.0 / math.sqrt(per_step))

    def epsilon(self, delta: float | None = None, accountant: str = "pld", *, orders=None) -> float:
        """Joint ε; infinite at a δ that the threshold of categories alone exceeds."""
        delta = self.whole.delta if delta is None else delta
        return self.whole.epsilon(delta) if delta > self.whole.encoder.threshold_delta else math.inf


def as_one_fit(report: PipelineReport, fit: PrivacyReport) -> PrivacyReport:
    """The statement of ``fit`` with what the encoder released, and with the joint ε."""
    encoder = report.encoder
    learnt = "; ".join(encoder.released)
    values = {field.name: getattr(fit, field.name) for field in fields(PrivacyReport)} | {
        "plan": replace(fit.plan, report_delta=report.delta),
        "released": (*(f"{what}, learnt privately" for what in encoder.released), *fit.released),
        "declared_public": (*encoder.declared_public, *fit.declared_public),
        "preprocessing": f"learnt {learnt}, from {encoder.mechanism().rstrip('.')}; ε counts this release and the fit",
    }
    return _Together(**values, whole=report)
