"""What a fit did to the data, in words that a reader can quote.

The fields are those that NIST SP 800-226 (2025) and Ponomareva et al., *How to DP-fy ML* (2023, arXiv:2303.00654,
section 5.3) ask a claim of differential privacy to state.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import metadata
from typing import Any

from vips._files import text_or_file
from vips._html import html_table
from vips._printable import printable
from vips.privacy.certificate.declared import Declared
from vips.privacy.certificate.totals import check_ledger
from vips.privacy.ledger.ledger import PrivacyLedger, check_that_it_was_charged
from vips.privacy.only_noise import NO_SIGNAL
from vips.privacy.plan import PrivacyPlan
from vips.privacy.report_fields import checked_fields, saved_fields
from vips.privacy.units import is_group

__all__ = ["NOT_COVERED_OF_PERSONS", "PrivacyReport"]

_NOT_COVERED = (
    "choices made by looking at these records (settings, number of components, which model to keep)",
    "scores computed on private records, private folds of a cross-validation included, and choices made from them",
    "several fits to the same records together, unless a PrivacyLedger counts them",
    "records of the same person in several rows",
    "timing and memory use of the computation",
)
NOT_COVERED_OF_PERSONS = tuple(sentence for sentence in _NOT_COVERED if "several rows" not in sentence)
_PACKAGES = ("vips", "numpy", "scipy", "dp-accounting", "randomgen", "numba")


@lru_cache(maxsize=1)
def _installed() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in _PACKAGES}


def _versions() -> dict[str, str]:
    return dict(_installed())


@dataclass(frozen=True)
class PrivacyReport:
    """The privacy statement of one fit; ``model.privacy_``.

    Everything in it is public: no count of records, nothing measured on them but what noisy totals show. ``str()`` gives prose,
    ``to_dict()`` JSON, a notebook shows a table.

    Attributes
    ----------
    plan : PrivacyPlan
        With the clip norm that was used.
    unit : str
        What one record is.
    released : tuple of str
        What each step releases.
    declared_public : tuple of str
        What the user declared and the fit therefore did not learn from the records.
    on_invalid : str
        ``"drop"`` or ``"raise"``; the latter lets an error depend on a record and is outside the guarantee.
    ledger : dict or None
        Name of the data set, name of the run and number of steps charged, if a ledger counted the fit.
    repeated_steps : int
        Steps that were released twice, because the fit was interrupted while it wrote their checkpoint. 0 if a ledger counted
        the fit.
    only_noise : bool
        Whether nothing that was released can be told from noise alone (``vips/privacy/only_noise.py``).
    search : dict or None
        ``epsilon`` and ``delta`` of the search that chose this fit (``vips.PrivateSearch``). The fit has its guarantee only.
    preprocessing, tuning : str
        What was done to the records before the fit, and how settings were chosen. The fit cannot know either: state them with
        ``dataclasses.replace(model.privacy_, tuning="on public Wikipedia articles")``.
    """

    plan: PrivacyPlan
    unit: str
    released: tuple[str, ...]
    declared_public: tuple[str, ...] = ()
    on_invalid: str = "drop"
    ledger: dict | None = None
    repeated_steps: int = 0
    only_noise: bool = False
    search: dict | None = None
    preprocessing: str = (
        "not stated; none by the fit itself, which uses no scale, vocabulary or bound learnt from the records"
    )
    tuning: str = "not stated; the guarantee covers this fit with settings chosen without these records"
    not_covered: tuple[str, ...] = field(default=_NOT_COVERED)
    versions: dict[str, str] = field(default_factory=_versions)

    @property
    def has_guarantee(self) -> bool:
        """False without noise, with reproducible noise, for a plan of a subclass, and with ``on_invalid="raise"``."""
        return self.plan.has_guarantee and self.on_invalid == "drop"

    @property
    def charged_plan(self) -> PrivacyPlan:
        """The plan with every step that was released: a resumed fit may have released some twice."""
        if self.ledger is not None:
            return replace(self.plan, n_steps=self.ledger["charged_steps"])
        return replace(self.plan, n_steps=self.plan.n_steps + self.repeated_steps)

    def charges(self) -> tuple[tuple[PrivacyPlan, ...], float]:
        """Every plan that was charged, and the δ that was charged beside them; infinite for a fit that a search chose, whose
        cost has no plans."""
        return ((self.charged_plan,), 0.0) if self.search is None else ((), math.inf)

    def epsilon(
        self, delta: float | None = None, accountant: str = "pld", *, orders: Sequence[float] | str | None = None
    ) -> float:
        """ε of the whole fit at ``delta`` (default: the δ the plan was calibrated at); ``inf`` without a guarantee. For a fit
        that a search chose: ε of the search, and ``inf`` at a smaller δ than its own."""
        delta = self.plan.report_delta if delta is None else delta
        if delta is None:
            raise ValueError("Write a δ, e.g. privacy_.epsilon(1e-5): the plan was not calibrated at one.")
        if self.search is not None:
            return self.search["epsilon"] if self.has_guarantee and delta >= self.search["delta"] else math.inf
        epsilon = self.charged_plan.epsilon(delta, accountant, orders=orders)
        return epsilon if self.has_guarantee else math.inf

    def gdp_mu(self) -> float | None:
        """μ of Gaussian differential privacy, where it states everything; None elsewhere."""
        return self.charged_plan.gdp_mu() if self.has_guarantee and self.search is None else None

    def event(self, accountant: str = "pld") -> Any:
        """The fit as a ``dp_accounting.DpEvent``, as :meth:`PrivacyPlan.event`; a ``NonPrivateDpEvent`` where there is no
        guarantee, and for a fit that a search chose, whose cost no event of one fit can state."""
        plan = self.charged_plan if self.has_guarantee and self.search is None else PrivacyPlan.non_private()
        return plan.event(accountant)

    def to_dict(self) -> dict:
        """The report as plain numbers, strings and lists, ready for JSON (no infinities: they become None)."""
        plan, delta = self.plan, self.plan.report_delta
        return {
            "guarantee": self.has_guarantee,
            "unit": self.unit,
            "relation": plan.relation,
            "epsilon": _finite(self.epsilon(delta)) if delta is not None else None,
            "delta": delta,
            "gdp_mu": self.gdp_mu(),
            "search": self.search,
            "accountant": "pld",
            "assumptions": self._assumptions(),
            "noise": plan.noise,
            "noise_multiplier": plan.noise_multiplier,
            "clip_norm": _finite(plan.clip_norm),
            "sampling": plan.sampling,
            "sampling_rate": plan.sampling_rate,
            "n_steps": plan.n_steps,
            "repeated_steps": self.repeated_steps,
            "reproducible_noise": bool(plan.reproducible_noise),
            "randomness": self._randomness(),
            "arithmetic": self._arithmetic(),
            "released": list(self.released),
            "only_noise": self.only_noise,
            "declared_public": self._public(),
            "preprocessing": self.preprocessing,
            "tuning": self.tuning,
            "on_invalid": self.on_invalid,
            "ledger": self.ledger,
            "not_covered": list(self.not_covered),
            "versions": dict(self.versions),
        }

    def to_html(
        self,
        path: str | os.PathLike,
        *,
        ledger: PrivacyLedger | None = None,
        dataset: str = "",
        purpose: str = "",
        model: str = "",
        responsible: str = "",
        chosen_by: str = "",
        reason: str = "",
    ) -> None:
        """Write the certificate of the fit: one page for a data-protection officer, as one HTML file that needs no network.

        What ε and δ mean for an attacker, what all fits of the data set cost together, what is not covered, a place for a
        signature, and the technical statement. A fit without a guarantee gets a page that says so in its first line.

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
        model : str
            What was fitted.
        responsible : str
            Who is responsible for the processing.
        chosen_by, reason : str
            Who chose ε and δ, and why these. Whatever is empty becomes a line to be filled in by hand.

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
        declared = Declared(
            dataset=dataset, purpose=purpose, model=model, responsible=responsible, chosen_by=chosen_by, reason=reason
        )
        check_ledger(ledger)
        try:
            import jinja2  # noqa: F401
        except ImportError as error:
            raise ImportError("to_html() needs Jinja2: pip install 'vips[plot]'. Nothing was written.") from error
        from vips.privacy.certificate.write import write_certificate

        write_certificate(self, path, declared, ledger)

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
            If the plan is of a subclass, which :meth:`from_json` could not restore.
        ValueError
            If a field is not what :meth:`from_json` reads.

        Examples
        --------
        >>> plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.5, n_steps=3, clip_norm=1.0)
        >>> report = PrivacyReport(plan=plan, unit="one letter", released=("totals",))
        >>> PrivacyReport.from_json(report.to_json()) == report
        True
        """
        return text_or_file(saved_fields(self), path)

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
        return cls(**checked_fields(values))

    def __setstate__(self, state: dict) -> None:
        """Raise LedgerError if a ledger's block of this process sent the fit out, and it comes back without a charge."""
        self.__dict__.update(state)
        check_that_it_was_charged(self)

    def __str__(self) -> str:
        if not self.plan.is_private:
            return "No privacy: no noise was added. The fitted posterior can reveal the records it was fitted on."
        return "\n".join(f"{name}: {text}" if name else text for name, text in self._sections())

    def _repr_html_(self) -> str:
        """For notebooks."""
        if not self.plan.is_private:
            return html_table("", (), (), [self])
        return html_table("Privacy of this fit", (), self._sections(), prose=True)

    def _sections(self) -> list[tuple[str, str]]:
        """Headings and texts. Each fits on one line, whatever the fields hold."""
        return [(heading, printable(text)) for heading, text in self._statements()]

    def _statements(self) -> list[tuple[str, str]]:
        plan = self.plan
        sections = []
        if plan.reproducible_noise:
            sections.append((
                "NO GUARANTEE",
                "sampling and noise were derived from a seed (reproducible_noise=True); whoever knows the seed can subtract "
                "them. Use this for tests and public data only.",
            ))  # fmt: skip
        if type(plan) is not PrivacyPlan:
            sections.append((
                "NO GUARANTEE",
                f"the plan is a {type(plan).__name__}, a subclass of PrivacyPlan, which may do anything with the records.",
            ))  # fmt: skip
        if self.on_invalid == "raise":
            sections.append((
                "NO GUARANTEE",
                'with on_invalid="raise", whether the fit stopped depends on single records. Use "drop".',
            ))  # fmt: skip
        relation = "add or remove one" if plan.relation == "add_or_remove" else "replace one; their number is public"
        sections.append(("Unit", f"{self.unit}. Relation: {relation}."))
        if self.has_guarantee:
            sections.append(("", self._statement()))
        rounded = ", rounded to the lattice" if plan.rounds_records else ""
        is_stated = plan.clip_norm is not None  # by every fit, not by every file
        clip, std = (
            (f"{plan.clip_norm:g}", f"{plan.noise_std():.4g}") if is_stated else ("(not stated)", "(not stated)")
        )
        sections += [
            (
                "Mechanism",
                f"{plan.n_steps} steps, {_sampling(plan)}; statistics clipped to L2 norm {clip} over all blocks "
                f"jointly; Gaussian noise of standard deviation {std} per coordinate of the scaled sum (noise "
                f"multiplier {plan.noise_multiplier:.4g}){rounded}.",
            ),
            ("Assumed", f"{'; '.join(self._assumptions())}."),
            ("Randomness", f"{self._randomness()}."),
            ("Arithmetic", f"{self._arithmetic()}."),
            ("Released", f"{'; '.join(self.released)}; and everything computed from these alone."),
            *([("Signal", f"{NO_SIGNAL}.")] if self.only_noise else []),
            ("Public by declaration", f"{', '.join(self._public())}."),
            ("Preprocessing", f"{self.preprocessing}."),
            ("Tuning", f"{self.tuning}."),
        ]
        if self.ledger is not None:
            sections.append((
                "Ledger",
                f"charged to {self.ledger['dataset']!r} as run {self.ledger['run']}, {self.ledger['charged_steps']} steps. It "
                "counts fits, not scores or choices made from them.",
            ))  # fmt: skip
        if self.repeated_steps:
            sections.append((
                "Interrupted",
                f"{self.repeated_steps} steps were released twice, because the fit ended while their checkpoint was written; ε "
                "counts both.",
            ))  # fmt: skip
        sections.append(("Not covered", f"{'; '.join(self.not_covered)}."))
        sections.append(("Versions", f"{', '.join(f'{name} {version}' for name, version in self.versions.items())}."))
        return sections

    def _statement(self) -> str:
        delta, mu = self.plan.report_delta, self.gdp_mu()
        if self.search is not None:
            stated = "ε = {epsilon:.4g} at δ = {delta:g}".format(**self.search)
            return f"A search chose this fit. All that it released satisfies (ε, δ)-differential privacy with {stated}."
        also = "" if mu is None else f" It is exactly {mu:.4g}-Gaussian differentially private."
        if delta is None:
            return f"(ε, δ): call .epsilon(delta) with a δ of your choice.{also}"
        return (
            f"The fit satisfies (ε, δ)-differential privacy with ε = {self.epsilon(delta):.4g} at δ = {delta:g} "
            f"(privacy loss distributions).{also}"
        )

    def _assumptions(self) -> list[str]:
        plan = self.plan
        assumed = ["every noisy total is known to the adversary, and all records but one"]
        if plan.sampling_rate < 1.0:
            assumed.append("which records a step sampled stays secret")
        of_group = is_group(self.unit)
        what, rows = ("all rows with one id", "these rows") if of_group else ("one row", "that row")
        assumed.append(f"one record is {what}; its statistics depend on {rows} and released values only")
        return assumed

    def _public(self) -> list[str]:
        names = ["sampling_rate", "n_steps", "clip_norm", "noise_multiplier"]
        if self.plan.relation == "replace_one":
            names.insert(0, "the number of records")
        return [*self.declared_public, *names]

    def _randomness(self) -> str:
        source = "a seed" if self.plan.reproducible_noise else "keys from the operating system, never stored"
        return f"samples and noise from AES-128 in counter mode (randomgen), with {source}"

    def _arithmetic(self) -> str:
        if self.plan.noise == "discrete":
            return (
                "every clipped record is rounded to a public lattice, sums are exact integers, and the noise is a Gaussian "
                "rounded to the lattice, sampled exactly; rounding records is part of the accounting"
            )
        return (
            "noise is drawn and added in double precision: not hardened against attacks on floating-point noise or on the "
            'rounding of sums (noise="discrete" is)'
        )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _sampling(plan: PrivacyPlan) -> str:
    if plan.sampling_rate == 1.0:
        return "every record in each"
    return f"each record in each with probability {plan.sampling_rate:g} independently (Poisson sampling)"
