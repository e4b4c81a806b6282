"""What a fit did to the data, in words that a reader can quote."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from vips.privacy.plan import PrivacyPlan

__all__ = ["PrivacyReport"]

_NOT_COVERED = (
    "choices made by looking at these records (settings, number of components, which model to keep)",
    "timing and memory use of the computation",
    "scores computed on private records",
)


@dataclass(frozen=True)
class PrivacyReport:
    """The privacy statement of one fit; ``model.privacy_``.

    Everything in it is public: no count of records, nothing measured on them.

    Attributes
    ----------
    plan : PrivacyPlan
        With the clip norm that was used.
    unit : str
        What one record is.
    released : tuple of str
        What each step releases.
    declared_public : tuple of str
        What the user declared instead of learning it from the records.
    on_invalid : str
        ``"drop"`` or ``"raise"``; the latter lets an error depend on a record and is outside the guarantee.
    """

    plan: PrivacyPlan
    unit: str
    released: tuple[str, ...]
    declared_public: tuple[str, ...] = ()
    on_invalid: str = "drop"
    not_covered: tuple[str, ...] = field(default=_NOT_COVERED)

    @property
    def has_guarantee(self) -> bool:
        """False without noise, where noise or sampling can be reproduced from a seed, and where errors depend on records."""
        return self.plan.is_private and not self.plan.reproducible_noise and self.on_invalid == "drop"

    def epsilon(
        self, delta: float | None = None, accountant: str = "pld", *, orders: Sequence[float] | str | None = None
    ) -> float:
        """ε of the whole fit at ``delta`` (default: the δ the plan was calibrated at); ``inf`` without a guarantee."""
        delta = self.plan.report_delta if delta is None else delta
        if delta is None:
            raise ValueError("Write a δ, e.g. privacy_.epsilon(1e-5): the plan was not calibrated at one.")
        epsilon = self.plan.epsilon(delta, accountant, orders=orders)
        return epsilon if self.has_guarantee else math.inf

    def event(self):
        """The fit as a ``dp_accounting.DpEvent``; a ``NonPrivateDpEvent`` where there is no guarantee."""
        return self.plan.event() if self.has_guarantee else replace(self.plan, noise_multiplier=0.0).event()

    def to_dict(self) -> dict:
        """The report as plain numbers, strings and lists, ready for JSON (no infinities: they become None)."""
        plan = self.plan
        delta = plan.report_delta
        return {
            "guarantee": self.has_guarantee,
            "unit": self.unit,
            "relation": plan.relation,
            "epsilon": _finite(self.epsilon(delta)) if delta is not None else None,
            "delta": delta,
            "accountant": "pld",
            "noise_multiplier": plan.noise_multiplier,
            "clip_norm": _finite(plan.clip_norm),
            "sampling": plan.sampling,
            "sampling_rate": plan.sampling_rate,
            "n_steps": plan.n_steps,
            "reproducible_noise": plan.reproducible_noise,
            "released": list(self.released),
            "declared_public": list(self.declared_public),
            "on_invalid": self.on_invalid,
            "not_covered": list(self.not_covered),
        }

    def __str__(self) -> str:
        plan = self.plan
        if not plan.is_private:
            return "No privacy: no noise was added. The fitted posterior can reveal the records it was fitted on."
        lines = []
        if plan.reproducible_noise:
            lines.append(
                "NO GUARANTEE: sampling and noise were derived from a seed (reproducible_noise=True); whoever knows the "
                "seed can subtract them. Use this for tests and public data only."
            )
        if self.on_invalid == "raise":
            lines.append(
                'NO GUARANTEE: with on_invalid="raise", whether the fit stopped depends on single records. Use "drop".'
            )
        lines.append(f"Unit: {self.unit}. Relation: add or remove one.")
        if self.has_guarantee:
            lines.append(self._statement())
        lines.append(
            f"Mechanism: {plan.n_steps} steps, {_sampling(plan)}; statistics clipped to L2 norm {plan.clip_norm:g} over "
            f"all blocks jointly; Gaussian noise of standard deviation {plan.noise_std():.4g} per coordinate of the "
            f"scaled sum (noise multiplier {plan.noise_multiplier:.4g}). Noise and samples come from NumPy's PCG64, seeded "
            "by the operating system, in double precision: not hardened against floating-point attacks, nor against an "
            "adversary who can recover the state of a statistical generator from noise he knows."
        )
        lines.append(f"Released: {'; '.join(self.released)}; and everything computed from these alone.")
        public = (*self.declared_public, "sampling_rate", "n_steps", "clip_norm", "noise_multiplier")
        lines.append(f"Public by declaration: {', '.join(public)}.")
        lines.append(f"Not covered: {'; '.join(self.not_covered)}.")
        return "\n".join(lines)

    def _statement(self) -> str:
        delta = self.plan.report_delta
        if delta is None:
            return "(ε, δ): call .epsilon(delta) with a δ of your choice."
        return (
            f"The fit satisfies (ε, δ)-differential privacy with ε = {self.epsilon(delta):.4g} at δ = {delta:g} "
            "(privacy loss distributions, dp_accounting)."
        )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _sampling(plan: PrivacyPlan) -> str:
    if plan.sampling_rate == 1.0:
        return "every record in each"
    return f"each record in each with probability {plan.sampling_rate:g} independently (Poisson sampling)"
