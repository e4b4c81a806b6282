"""The findings of an audit."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass, field

from vips._support.printable import printable
from vips.core.plan import PrivacyPlan
from vips.report.report_fields import as_plain, finite

__all__ = ["AuditReport", "Finding"]

_WIDTH = 118


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Attributes
    ----------
    name : str
        Short and stable.
    checked, measured, allowed : str
        What was checked, what was measured, and what would have passed.
    passed : bool or None
        None: the check does not apply to this model and plan, or the plan uses nothing that depends on it.
    advice : str
        What to do if the check failed.
    values : dict of str to float
        The numbers behind ``measured``.
    """

    name: str
    checked: str
    measured: str
    allowed: str
    passed: bool | None
    advice: str = ""
    values: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "passed", None if self.passed is None else bool(self.passed))
        object.__setattr__(self, "values", {name: float(value) for name, value in self.values.items()})

    def to_dict(self) -> dict:
        """Plain numbers and strings."""
        return finite(asdict(self))

    def __str__(self) -> str:
        verdict = {True: "passed", False: "FAILED", None: "noted"}[self.passed]
        text = f"{self.checked}: {self.measured} (allowed: {self.allowed})"
        lines = [f"{verdict}  {self.name}", *textwrap.wrap(printable(text), _WIDTH - 8)]
        if self.passed is False and self.advice:
            lines += textwrap.wrap(printable(f"→ {self.advice}"), _WIDTH - 8)
        return "\n        ".join(lines)


@dataclass(frozen=True)
class AuditReport:
    """The outcome of :func:`vips.audit`. It is not private: it is computed from records without protection.

    ``str()`` lists every finding, ``to_dict()`` gives plain numbers and strings.

    Attributes
    ----------
    model : str
        Name of its class.
    plan : PrivacyPlan
        With the clip norm that was used.
    findings : tuple of Finding
    """

    model: str
    plan: PrivacyPlan
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed. This is no proof of privacy."""
        return not self.failed

    @property
    def failed(self) -> tuple[Finding, ...]:
        """Findings that a private model cannot have."""
        return tuple(finding for finding in self.findings if finding.passed is False)

    def __getitem__(self, name: str) -> Finding:
        """The finding of that name."""
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(f"{name!r} was not checked; there are {', '.join(finding.name for finding in self.findings)}.")

    def to_dict(self) -> dict:
        """Plain numbers, strings and lists, ready for JSON: numbers that are not finite become None."""
        return {
            "model": self.model,
            "plan": as_plain(self.plan),
            "passed": self.passed,
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def __str__(self) -> str:
        failed = [finding.name for finding in self.failed]
        verdict = f"failed: {'; '.join(failed)}" if failed else "nothing wrong was found, which is no proof"
        heading = f"Audit of {self.model}: {verdict}. Computed without protection; not for publication if records are private."
        return "\n".join([*textwrap.wrap(printable(heading), _WIDTH), *(str(finding) for finding in self.findings)])
