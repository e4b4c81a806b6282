"""What was released about the records, and what that costs.

The fields are those that NIST SP 800-226 (2025) and Ponomareva et al., *How to DP-fy ML* (2023, arXiv:2303.00654,
section 5.3) ask a claim of differential privacy to state.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from importlib import metadata
from typing import Any

from vips._pages.tables import html_table
from vips._support.extras import imported
from vips._support.files import text_or_file
from vips._support.validation import check_choice, check_delta, check_number
from vips.core.accounting import composed_epsilon
from vips.core.accounting.events import library
from vips.core.ledger.ledger import PrivacyLedger, check_that_it_was_charged
from vips.core.plan import PrivacyPlan
from vips.core.units import is_group
from vips.report import words
from vips.report.registry import entry
from vips.report.report_fields import as_plain, finite, from_plain

__all__ = ["PrivacyReport", "Release", "rows_like_one"]

_NOT_COVERED = (
    "choices made by looking at these records, as vips.inspect shows them, say (declarations, settings, number of components, "
    "which model to keep)",
    "scores computed on private records, private folds of a cross-validation included, and choices made from them",
    "predictions for the same people: they are computed from their records",
    "ordinary fits to the same records, without noise",
    "several releases about the same records together, unless a PrivacyLedger counts them",
)
_OF_ROWS = "records of the same person in several rows"
_OF_IDS = "one person under two ids, who counts as two persons"
_OF_FLOATS = 'attacks on floating-point noise and on the rounding of sums, which noise="discrete" withstands'
_OF_COMPUTERS = "timing and memory use of the computation"
_PACKAGES = ("vips", "numpy", "scipy", "dp-accounting", "randomgen", "numba")


@lru_cache(maxsize=1)
def _installed() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in _PACKAGES}


def today() -> str:
    """The date of reports that are made now."""
    return datetime.now(UTC).date().isoformat()


@dataclass(frozen=True, kw_only=True)
class Release:
    """What was released under one plan. Everything in it is public.

    Attributes
    ----------
    what : str
        What made it, in a word: "fit", "encoder".
    plan : PrivacyPlan
        With the clip norm that was used.
    released : tuple of str
        What each step releases.
    declared : tuple of str
        What the user declared and was therefore not learnt from the records.
    mechanism : str
        How it was made. Empty: by the steps of the plan.
    threshold_delta : float
        Probability, at most, that a category or word which only one record has is released; it adds to δ.
    on_invalid : str
        ``"drop"`` or ``"raise"``; the latter lets an error depend on a record and is outside the guarantee.
    repeated_steps : float
        Steps that were released twice, because the fit was interrupted while it wrote their checkpoint; counted by their
        weights, if the plan has phases.
    sha256 : str
        Fingerprint of what came out, if it can be saved: of the arrays of a fit, or of what an encoder learnt
        (``vips/report/report_fields.py``). Ignored by ``==``.
    ledger : dict or None
        ``dataset``, ``run`` and ``purpose`` of its entry in the ledger that counted it.
    """

    what: str
    plan: PrivacyPlan
    released: tuple[str, ...]
    declared: tuple[str, ...] = ()
    mechanism: str = ""
    threshold_delta: float = 0.0
    on_invalid: str = "drop"
    repeated_steps: float = 0
    ledger: dict[str, str] | None = None
    sha256: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        check_choice("on_invalid", self.on_invalid, ("drop", "raise"))
        check_number("threshold_delta", self.threshold_delta, 0.0, 1.0, "in [0, 1)", open_high=True)
        check_number("repeated_steps", self.repeated_steps, 0.0, 2.0**53, "a number ≥ 0")
        if not (self.plan.phases or float(self.repeated_steps).is_integer()):
            raise ValueError(f"`repeated_steps` must be whole for a plan without phases, got {self.repeated_steps!r}.")
        if self.ledger is not None and set(self.ledger) != {"dataset", "run", "purpose"}:
            raise ValueError("`ledger` must name its `dataset`, the `run` and its `purpose`.")
        if not re.fullmatch("([0-9a-f]{64})?", self.sha256):
            raise ValueError(f"`sha256` must be 64 hexadecimal digits or empty, got {self.sha256!r:.100}.")

    @property
    def has_guarantee(self) -> bool:
        """False without noise, with reproducible noise, for a plan of a subclass, and with ``on_invalid="raise"``."""
        return self.plan.has_guarantee and self.on_invalid == "drop"

    @property
    def charged_plan(self) -> PrivacyPlan:
        """The plan with every step that was released: a resumed fit may have released some twice."""
        return self.plan.with_repeated(self.repeated_steps)

    def __setstate__(self, state: dict) -> None:
        """Raise LedgerError if a ledger's block of this process sent the fit out, and it comes back without a charge."""
        self.__dict__.update(state)
        check_that_it_was_charged(self)


@dataclass(frozen=True)
class PrivacyReport:
    """The privacy statement of a fit, and of everything that was released with it; ``model.privacy_``.

    Everything in it is public: no count of records, nothing measured on them but what noisy totals show. ``str()`` gives prose,
    ``to_dict()`` JSON, a notebook shows a table, :meth:`to_html` writes the certificate.

    Attributes
    ----------
    releases : tuple of Release
        In the order in which they were made: those of an encoder come before that of the fit. ε and δ are those of all.
    unit : str
        What one record is.
    only_noise : bool
        Whether nothing that the fit released can be told from noise alone (``vips/report/only_noise.py``).
    preprocessing, tuning : str
        What was done to the records before the fit, and how settings were chosen. The fit cannot know either: state them with
        ``dataclasses.replace(model.privacy_, tuning="on public Wikipedia articles")``.
    also_not_covered : tuple of str
        What is not covered beyond what no report covers.
    versions : dict
        Of Python and packages.
    date : str
        Of the fit. Ignored by ``==``.
    """

    releases: tuple[Release, ...]
    unit: str
    only_noise: bool = False
    preprocessing: str = (
        "not stated; none by the fit itself, which uses no scale, vocabulary or bound learnt from the records"
    )
    tuning: str = "not stated; the guarantee covers this fit with settings chosen without these records"
    also_not_covered: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=lambda: dict(_installed()))
    date: str = field(default_factory=lambda: today(), compare=False)

    def __post_init__(self) -> None:
        if len({release.plan.relation for release in self.releases}) != 1:
            raise ValueError("The releases of a report must be at least one, and of one relation.")

    @property
    def plan(self) -> PrivacyPlan:
        """The plan of the fit: of the last release."""
        return self.releases[-1].plan

    @property
    def ledger(self) -> dict | None:
        """``dataset``, ``run`` and ``purpose`` of the ledger's entry for the last release."""
        return self.releases[-1].ledger

    @property
    def runs(self) -> tuple[str, ...]:
        """Runs of the ledger that counted the releases."""
        return tuple(dict.fromkeys(release.ledger["run"] for release in self.releases if release.ledger is not None))

    @property
    def has_guarantee(self) -> bool:
        """Whether every release has one."""
        return all(release.has_guarantee for release in self.releases)

    @property
    def delta(self) -> float | None:
        """δ at which ε is quoted: that for which the noise was calibrated, and what thresholds add; None for a plan that was
        calibrated at none."""
        deltas = [release.plan.report_delta for release in self.releases if release.plan.report_delta is not None]
        return float(f"{max(deltas) + self._threshold_delta:.12g}") if deltas else None

    @property
    def _threshold_delta(self) -> float:
        return math.fsum(release.threshold_delta for release in self.releases)

    @property
    def declared_public(self) -> tuple[str, ...]:
        """What was declared, and what is public of the plans."""
        declared = [fact for release in self.releases for fact in release.declared]
        size = ("the number of records",) if self.plan.relation == "replace_one" else ()
        return *declared, *size, "sampling_rate", "n_steps", "clip_norm", "noise_multiplier"

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What the guarantee does not cover."""
        floats = (_OF_FLOATS,) if any(release.plan.noise == "gaussian" for release in self.releases) else ()
        persons = _OF_IDS if is_group(self.unit) else _OF_ROWS
        return *self.also_not_covered, *_NOT_COVERED, persons, *floats, _OF_COMPUTERS

    def epsilon(self, delta: float | None = None) -> float:
        """Joint ε of all releases at ``delta`` (default: :attr:`delta`); ``inf`` without a guarantee, and at a δ that
        thresholds alone exceed.

        Thresholds take their part of δ. Full batches are composed exactly, as one Gaussian mechanism; other plans by their
        joint privacy loss.
        """
        delta = self.delta if delta is None else delta
        if delta is None:
            raise ValueError("Write a δ, e.g. privacy_.epsilon(1e-5): the plan was not calibrated at one.")
        check_delta(delta)
        remaining = delta - self._threshold_delta
        if not self.has_guarantee or not remaining > 0.0:
            return math.inf
        plans = [release.charged_plan for release in self.releases]
        return plans[0].epsilon(remaining) if len(plans) == 1 else composed_epsilon(plans, remaining)

    def gdp_mu(self) -> float | None:
        """μ of Gaussian differential privacy, where it states everything; None elsewhere."""
        if not self.has_guarantee or self._threshold_delta:
            return None
        mus = [release.charged_plan.gdp_mu() for release in self.releases]
        return None if None in mus else math.hypot(*mus)

    def event(self, accountant: str = "pld") -> Any:
        """All releases as a ``dp_accounting.DpEvent``, as :meth:`PrivacyPlan.event`; a ``NonPrivateDpEvent`` where there is no
        guarantee, and for what no event can state: a threshold."""
        if not self.has_guarantee or self._threshold_delta:
            return PrivacyPlan.non_private().event(accountant)
        events = [release.charged_plan.event(accountant) for release in self.releases]
        if len(events) == 1:
            return events[0]
        return library().ComposedDpEvent(events)

    def after(self, other: PrivacyReport, learnt: Sequence[str] = ()) -> PrivacyReport:
        """The report of this fit and of what was released before it, such as an encoder's columns, about the same records.

        ``learnt`` is what was learnt before it, of what this fit calls declared.
        """
        fit = self.releases[-1]
        fit = replace(fit, declared=tuple(fact for fact in fit.declared if fact not in learnt))
        preprocessing = "by what was learnt from the same records, privately; ε counts that release and the fit"
        return replace(self, releases=(*other.releases, fit), preprocessing=preprocessing)

    def behind(self, declared: Sequence[str]) -> PrivacyReport:
        """The report of this fit to records that were encoded by public declarations alone."""
        fit = self.releases[-1]
        fit = replace(fit, declared=(*declared, *fit.declared))
        preprocessing = "by public declarations alone; nothing was learnt from the records"
        return replace(self, releases=(*self.releases[:-1], fit), preprocessing=preprocessing)

    def to_dict(self) -> dict:
        """The report as plain numbers, strings and lists, ready for JSON (no infinities: they become None): all that
        :meth:`to_json` writes, and what follows from it."""
        epsilon = self.epsilon() if self.delta is not None else math.inf
        said = {heading: list(items) for heading, items in words.sections(self)}
        return finite(as_plain(self)) | {
            "guarantee": self.has_guarantee,
            "relation": self.plan.relation,
            "epsilon": finite(epsilon),
            "delta": self.delta,
            "gdp_mu": self.gdp_mu(),
            "declared_public": list(self.declared_public),
            "not_covered": list(self.not_covered),
            "statement": said,
        }

    def to_registry(self) -> dict:
        """What the registry of deployments at registry.opendp.org asks of a release; None where people have to say it.

        Raises
        ------
        ValueError
            Without a guarantee, or without a δ.
        """
        if not self.has_guarantee or self.delta is None:
            raise ValueError("There is nothing to register: the fit has no guarantee, or no δ was chosen.")
        return entry(self)

    def to_html(
        self,
        path: str | os.PathLike,
        *,
        ledger: PrivacyLedger | None = None,
        dataset: str = "",
        purpose: str = "",
        model: object = "",
        responsible: str = "",
        chosen_by: str = "",
        reason: object = "",
        attack: str = "",
    ) -> None:
        """Write the certificate: one page for a data-protection officer, as one HTML file that needs no network.

        What ε and δ mean for an attacker, what all releases about the data set cost together, what is not covered, a place for
        a signature, and the technical statement. A fit without a guarantee gets a page that says so in its first line.
        ``python -m vips certificate check`` checks the page against the saved model and the ledger (docs/ledger.md).

        Parameters
        ----------
        path : str or path
            An existing file is replaced when the new one is complete.
        ledger : PrivacyLedger, optional
            The ledger of the data set: adds its total, and whether it counts this fit.
        dataset : str
            Name of the data set. Empty: as the ledger names it.
        purpose : str
            What the data are processed for.
        model : str or fitted model
            What was fitted, in words; or the model, or its pipeline, whose class and findings are then named: how far the
            released totals are from those of such records, say.
        responsible : str
            Who is responsible for the processing.
        chosen_by : str
            Who chose ε and δ. Whatever is empty becomes a line to be filled in by hand.
        reason : str or Recommendation
            Why these, in words; or the plan by :func:`vips.plan_for`, whose widths are then quoted, with those of a fitted
            ``model`` beside them.
        attack : str
            What an attack reaches on generated records: ``str(vips.rehearse(..., attack=500).attack)``.

        Raises
        ------
        ImportError
            Without Jinja2.
        TypeError
            If ``ledger`` or a text is something else.
        OSError
            If the file cannot be written; an existing file is then unchanged.

        Examples
        --------
        >>> import tempfile, numpy as np
        >>> from vips import DirichletMultinomial, PrivacyPlan
        >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=1)
        >>> fitted = DirichletMultinomial(privacy=plan).fit(np.eye(3))
        >>> fitted.privacy_.to_html(tempfile.mkdtemp() + "/certificate.html", dataset="votes 2024", purpose="turnout")
        """
        imported("jinja2", "to_html()")
        from vips.report.certificate.page import write_certificate

        write_certificate(
            self, path, ledger, dataset=dataset, purpose=purpose, model=words.in_words(model), responsible=responsible,
            chosen_by=chosen_by, reason=words.reasons(reason, model), attack=attack,
        )  # fmt: skip

    def to_json(self, path: str | os.PathLike | None = None) -> str | None:
        """Everything that :meth:`from_json` needs to restore the report, as text, or as a file if ``path`` is given.

        The clip norm of a fit without noise is ``Infinity`` there, which Python reads; :meth:`to_dict` has no such numbers.

        Parameters
        ----------
        path : str or path, optional
            An existing file is replaced when the new one is complete.

        Raises
        ------
        TypeError
            If a plan is of a subclass, which :meth:`from_json` could not restore.
        ValueError
            If a field is not what :meth:`from_json` reads.

        Examples
        --------
        >>> plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.5, n_steps=3, clip_norm=1.0)
        >>> report = PrivacyReport((Release(what="fit", plan=plan, released=("totals",)),), unit="one letter")
        >>> PrivacyReport.from_json(report.to_json()) == report
        True
        """
        return text_or_file(self.to_plain(), path)

    def to_plain(self) -> dict:
        """What :meth:`to_json` writes, as dicts and lists."""
        for release in self.releases:
            if type(release.plan) is not PrivacyPlan:
                kind = type(release.plan).__name__
                raise TypeError(f"A {kind} cannot be saved: only a PrivacyPlan itself can be read back.")
        plain = as_plain(self)
        from_plain(PrivacyReport, plain)
        return plain

    @classmethod
    def from_json(cls, values: str | dict) -> PrivacyReport:
        """Inverse of :meth:`to_json`, for text from anywhere, or for the parsed text.

        Raises
        ------
        ValueError
            If the text is not JSON, or a field is missing, unknown, of the wrong type, too long, or out of range; the message
            names it.
        """
        if isinstance(values, str):
            try:
                values = json.loads(values)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"A privacy report must be JSON: {error}") from error
        return from_plain(cls, values)

    def __str__(self) -> str:
        return words.in_lines(self)

    def _repr_html_(self) -> str | None:
        """For notebooks."""
        if not self.plan.is_private:
            return html_table("", (), (), [self])
        rows = [(heading, words.in_line(items)) for heading, items in words.sections(self)]
        return html_table("Privacy statement", (), rows, prose=True)


def rows_like_one(report: PrivacyReport) -> int:
    """How many rows may tell no more than one: as many as weigh alike of one person, who may say the same in all of them.

    Totals ÷ this number are then taken for those of independent rows. Intervals are too wide where a person's rows differ.
    """
    return (report.plan.max_rows_per_group or 1) if is_group(report.unit) else 1
