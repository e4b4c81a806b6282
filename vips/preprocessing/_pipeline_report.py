"""What a private encoder and the fit after it did to the data, together."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from vips._html import html_table
from vips._printable import printable
from vips.preprocessing._encoder_report import EncoderReport
from vips.preprocessing._pipeline_certificate import as_one_fit
from vips.privacy import PrivacyReport, accounting
from vips.privacy.ledger.ledger import PrivacyLedger

__all__ = ["PipelineReport", "beside_an_encoder"]

_OF_PARTS = ("Unit", "Public by declaration", "Preprocessing")  # said once, for both
_ENCODER = "what the pipeline's encoder released about the same records: the statement of the pipeline counts both"


def beside_an_encoder(report: PrivacyReport, learnt: tuple[str, ...]) -> PrivacyReport:
    """The statement of a pipeline's fit, read by itself: it says that its ε leaves the encoder out, and does not call public
    what the encoder has learnt."""
    preprocessing = (
        "the pipeline's encoder has learnt from the same records, privately; ε here is that of the fit alone, and the "
        "statement of the pipeline counts both"
    )
    declared = tuple(fact for fact in report.declared_public if fact not in learnt)
    not_covered = (_ENCODER, *_of_both(report).not_covered)
    return replace(report, preprocessing=preprocessing, not_covered=not_covered, declared_public=declared)


def _of_both(report: PrivacyReport) -> PrivacyReport:
    """Inverse of :func:`beside_an_encoder`, for a statement that counts the encoder, too."""
    return replace(report, not_covered=tuple(sentence for sentence in report.not_covered if sentence != _ENCODER))


@dataclass(frozen=True)
class PipelineReport:
    """The privacy statement of a private pipeline: of its encoder and its fit together. Everything in it is public.

    Attributes
    ----------
    encoder : EncoderReport
    fit : PrivacyReport
    delta : float
        δ at which ε is quoted.
    """

    encoder: EncoderReport
    fit: PrivacyReport
    delta: float

    @property
    def unit(self) -> str:
        """What one record is."""
        return self.fit.unit

    @property
    def has_guarantee(self) -> bool:
        return self.fit.has_guarantee

    def epsilon(self, delta: float | None = None) -> float:
        """Joint ε of encoder and fit at ``delta``; of that, the threshold of categories takes its part."""
        delta = self.delta if delta is None else delta
        remaining_delta = delta - self.encoder.threshold_delta
        if not remaining_delta > 0.0:
            raise ValueError(f"δ must be above that of the threshold of categories, {self.encoder.threshold_delta:g}.")
        if not self.has_guarantee:
            return float("inf")
        return accounting.composed_epsilon([self.encoder.plan, self.fit.charged_plan], remaining_delta)

    def to_dict(self) -> dict:
        """The report as plain numbers, strings and lists, ready for JSON (no infinities: they become None)."""
        epsilon = self.epsilon() if self.has_guarantee else None
        total = {"unit": self.unit, "relation": self.fit.plan.relation, "epsilon": epsilon, "delta": self.delta}
        return {
            "guarantee": self.has_guarantee,
            **total,
            "encoder": self.encoder.to_dict(),
            "fit": _of_both(self.fit).to_dict(),
        }

    def to_html(self, path: str | os.PathLike, *, ledger: PrivacyLedger | None = None, **declared: str) -> None:
        """Write the certificate of encoder and fit together; see :meth:`PrivacyReport.to_html`, also for ``declared``."""
        self.as_one_fit().to_html(path, ledger=ledger, **declared)

    def as_one_fit(self) -> PrivacyReport:
        """The same statement in the form of a single fit's."""
        return as_one_fit(self, _of_both(self.fit))

    def __str__(self) -> str:
        return "\n".join(f"{name}: {text}" for name, text in self.sections())

    def _repr_html_(self) -> str:
        """For notebooks."""
        return html_table("Privacy of this pipeline", (), self.sections(), prose=True)

    def sections(self) -> list[tuple[str, str]]:
        """Headings and texts. Each fits on one line."""
        relation = (
            "add or remove one" if self.fit.plan.relation == "add_or_remove" else "replace one; their number is public"
        )
        sections = [("Unit", f"{self.unit}. Relation: {relation}.")]
        if self.has_guarantee:
            sections.append((
                "Guarantee",
                f"encoder and fit together satisfy (ε, δ)-differential privacy with ε = {self.epsilon():.4g} at "
                f"δ = {self.delta:g}: their noise was fixed before the first release, so that they are one Gaussian mechanism.",
            ))  # fmt: skip
        learnt = (
            f"learnt {'; '.join(self.encoder.released)}, from {self.encoder.mechanism()}"
            if self.encoder.released
            else ""
        )
        sections.append(("Encoder", learnt or "learnt nothing."))
        if self.encoder.ledger is not None:
            sections.append(("Ledger", f"the encoder was charged as run {self.encoder.ledger['run']}."))
        declared = [*self.encoder.declared_public, *self.fit.declared_public]
        if declared:
            sections.append(("Public by declaration", f"{', '.join(declared)}."))
        sections = [(heading, printable(text)) for heading, text in sections]
        of_fit = _of_both(self.fit)._sections()
        return sections + [section for section in of_fit if section[0] and section[0] not in _OF_PARTS]
