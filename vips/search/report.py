"""What a search did to the data, and what that costs."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from vips._html import html_table
from vips._printable import printable
from vips.privacy import PrivacyReport
from vips.privacy.ledger.ledger import PrivacyLedger
from vips.privacy.selection import Selection

__all__ = ["SearchReport", "within_a_search"]

_NOT_COVERED = (
    "how long the search takes, what memory it uses, and what counters of its process show (of caches, say): all grow with the "
    "number of trials, which is secret",
    "what a score or a model of your own keeps, writes or sends",
    "candidates that were chosen by looking at these records",
)


def within_a_search(
    report: PrivacyReport, unit: str, ledger: dict | None, n_candidates: int, epsilon: float, delta: float
) -> PrivacyReport:
    """The statement of the chosen fit, with the ε of the search: a fit that was chosen has no other guarantee."""
    entry = None if ledger is None else ledger | {"charged_steps": report.plan.n_steps}
    return replace(
        report,
        plan=replace(report.plan, report_delta=delta),
        unit=unit,
        ledger=entry,
        search={"epsilon": float(epsilon), "delta": float(delta)},
        tuning=f"chosen among {n_candidates} candidates by vips.PrivateSearch; ε counts all trials",
        not_covered=(*_NOT_COVERED, *report.not_covered),
    )


@dataclass(frozen=True)
class SearchReport:
    """The privacy statement of a search: of all its trials together. Everything in it is public.

    Attributes
    ----------
    selection : Selection
        The law of the number of trials, and the plans of a trial.
    delta : float
        δ at which ε is quoted.
    unit : str
        What one record is.
    score : str
        Name of the score.
    score_range : (float, float)
        To which each person's score is clipped.
    held_out : float
        Probability that a person is held out.
    n_candidates : int
    ledger : dict or None
        ``dataset`` and ``run`` of the charge.
    fit : PrivacyReport or None
        Of the chosen fit, which is one trial; None if nothing was found.
    """

    selection: Selection
    delta: float
    unit: str
    score: str
    score_range: tuple[float, float]
    held_out: float
    n_candidates: int
    ledger: dict | None = None
    fit: PrivacyReport | None = None

    @property
    def has_guarantee(self) -> bool:
        return self.selection.has_guarantee

    def epsilon(self, delta: float | None = None) -> float:
        """ε of the whole search at ``delta``."""
        return self.selection.epsilon(self.delta if delta is None else delta)

    def to_dict(self) -> dict:
        """The report as plain numbers, strings and lists, ready for JSON."""
        trials = self.selection.trials
        return {
            "guarantee": self.has_guarantee,
            "unit": self.unit,
            "relation": self.selection.relation,
            "epsilon": self.epsilon(),
            "delta": self.delta,
            "mean_trials": trials.mean,
            "shape": trials.shape,
            "n_candidates": self.n_candidates,
            "score": self.score,
            "score_range": list(self.score_range),
            "held_out": self.held_out,
            "ledger": self.ledger,
            "not_covered": list(_NOT_COVERED),
            "fit": None if self.fit is None else self.fit.to_dict(),
        }

    def to_html(self, path: str | os.PathLike, *, ledger: PrivacyLedger | None = None, **declared: str) -> None:
        """Write the certificate of the chosen fit, with the ε of the search; see :meth:`PrivacyReport.to_html`.

        Raises
        ------
        ValueError
            If nothing was found, or an argument is out of range.
        """
        if self.fit is None:
            raise ValueError(
                "Nothing was found, so that there is no fit to certify. The search was charged all the same."
            )
        self.fit.to_html(path, ledger=ledger, **declared)

    def __str__(self) -> str:
        return "\n".join(f"{name}: {text}" for name, text in self.sections())

    def _repr_html_(self) -> str:
        """For notebooks."""
        return html_table("Privacy of this search", (), self.sections(), prose=True)

    def sections(self) -> list[tuple[str, str]]:
        """Headings and texts. Each fits on one line."""
        relation = (
            "add or remove one" if self.selection.relation == "add_or_remove" else "replace one; their number is public"
        )
        trials = self.selection.trials
        sections = [
            ("Unit", f"{self.unit}. Relation: {relation}."),
            (
                "Guarantee",
                f"the search satisfies (ε, δ)-differential privacy with ε = {self.epsilon():.4g} at δ = {self.delta:g}. What "
                "is released is the best trial alone.",
            ),
            (
                "Mechanism",
                f"a secret number of trials ({trials.mean:g} on average, truncated negative binomial of shape "
                f"{trials.shape:g}). Each fits one of {self.n_candidates} candidates, drawn at random, to the records that are "
                f"not held out, and adds noise to the sum of {self.score!r} over those that are (each with probability "
                f"{self.held_out:g}), clipped to {self.score_range[0]:.4g} … {self.score_range[1]:.4g} per person.",
            ),
            ("Released", "the best trial's model, settings and noisy score; or that no trial succeeded."),
        ]
        if self.ledger is not None:
            text = f"charged whole to {self.ledger['dataset']!r} as run {self.ledger['run']}, before the first trial."
            sections.append(("Ledger", text))
        sections.append(("Not covered", f"{'; '.join(_NOT_COVERED)}."))
        return [(heading, printable(text)) for heading, text in sections]
