"""What a private encoder did to the data, in words that a reader can quote."""

from __future__ import annotations

from dataclasses import dataclass

from vips._html import html_table
from vips._printable import printable
from vips.persistence.settings import decode, encode
from vips.privacy import PrivacyPlan
from vips.privacy.ledger.ledger import check_that_it_was_charged

__all__ = ["EncoderReport", "report_from_json", "report_to_json"]

_LONGEST = 10_000  # characters of a text that is read
_SAVED = ("plan", "threshold_delta", "unit", "released", "declared_public")


@dataclass(frozen=True)
class EncoderReport:
    """The privacy statement of one fit of a private encoder. Everything in it is public.

    Attributes
    ----------
    plan : PrivacyPlan
        One step, of all records, with the clip norm that was used.
    threshold_delta : float
        Probability, at most, that a category which only one record has is released; it adds to δ.
    unit : str
        What one record is.
    released : tuple of str
    declared_public : tuple of str
        What was declared and not learnt.
    ledger : dict or None
        Name of the data set and of the run, if a ledger counted the fit.
    """

    plan: PrivacyPlan
    threshold_delta: float
    unit: str
    released: tuple[str, ...]
    declared_public: tuple[str, ...] = ()
    ledger: dict | None = None

    def epsilon(self, delta: float | None = None) -> float:
        """ε at ``delta``, of which the threshold takes its part; by default at the plan's δ plus that part."""
        if delta is None and self.plan.report_delta is None:
            raise ValueError("Write a δ, e.g. privacy_.epsilon(1e-5): the plan was not calibrated at one.")
        plan_delta = self.plan.report_delta if delta is None else delta - self.threshold_delta
        if not plan_delta > 0.0:
            raise ValueError(f"δ must be above that of the threshold of categories, {self.threshold_delta:g}.")
        return self.plan.epsilon(plan_delta)

    def to_dict(self) -> dict:
        """The report as plain numbers, strings and lists, ready for JSON."""
        delta = self.plan.report_delta
        return {
            "unit": self.unit,
            "relation": self.plan.relation,
            "epsilon": None if delta is None else self.epsilon(),
            "delta": None if delta is None else delta + self.threshold_delta,
            "threshold_delta": self.threshold_delta,
            "noise_multiplier": self.plan.noise_multiplier,
            "clip_norm": self.plan.clip_norm,
            "released": list(self.released),
            "declared_public": list(self.declared_public),
            "ledger": self.ledger,
        }

    def __setstate__(self, state: dict) -> None:
        """Raise LedgerError if a ledger's block of this process sent the fit out, and it comes back without a charge."""
        self.__dict__.update(state)
        check_that_it_was_charged(self)

    def __str__(self) -> str:
        return "\n".join(f"{name}: {text}" for name, text in self.sections())

    def _repr_html_(self) -> str:
        """For notebooks."""
        return html_table("Privacy of this encoder", (), self.sections(), prose=True)

    def sections(self) -> list[tuple[str, str]]:
        """Headings and texts. Each fits on one line."""
        return [(heading, printable(text)) for heading, text in self._statements()]

    def _statements(self) -> list[tuple[str, str]]:
        plan = self.plan
        relation = "add or remove one" if plan.relation == "add_or_remove" else "replace one; their number is public"
        sections = [("Unit", f"{self.unit}. Relation: {relation}.")]
        if plan.report_delta is not None:
            total = plan.report_delta + self.threshold_delta
            sections.append(
                ("Guarantee", f"(ε, δ)-differential privacy with ε = {self.epsilon():.4g} at δ = {total:g}.")
            )
        sections.append(("Encoder", self.mechanism()))
        sections.append(("Learnt", f"{'; '.join(self.released)}."))
        if self.declared_public:
            sections.append(("Public by declaration", f"{', '.join(self.declared_public)}."))
        if self.ledger is not None:
            sections.append(("Ledger", f"charged to {self.ledger['dataset']!r} as run {self.ledger['run']}."))
        return sections

    def mechanism(self) -> str:
        """The mechanism in one sentence."""
        plan = self.plan
        rare = f"; a category of one record alone is released with probability at most {self.threshold_delta:g}"
        return (
            f"noisy counts of the cells of all columns that are learnt, together of L2 norm {plan.clip_norm:.4g} for a record; "
            f"Gaussian noise of standard deviation {plan.noise_std():.4g} on each (noise multiplier "
            f"{plan.noise_multiplier:.4g}){rare if self.threshold_delta else ''}."
        )


def report_to_json(report: EncoderReport) -> dict:
    """A statement."""
    return {name: encode(getattr(report, name)) for name in _SAVED} | {"ledger": report.ledger}


def report_from_json(values: dict, plan, delta: float) -> dict:
    """Its arguments; ValueError unless it states ``plan`` and ``delta``, which follow from the settings."""
    ledger, report = values["ledger"], {name: decode(values[name]) for name in _SAVED}
    entry = None if ledger is None else {name: ledger[name] for name in ("dataset", "run")}
    texts = (report["unit"], *report["released"], *report["declared_public"], *(entry or {}).values())
    is_stated = isinstance(report["threshold_delta"], float) and all(
        isinstance(text, str) and len(text) <= _LONGEST for text in texts
    )
    if not is_stated or report["plan"] != plan or report["threshold_delta"] != delta:
        raise ValueError("its statement is not that of its settings")
    return report | {"ledger": entry}
