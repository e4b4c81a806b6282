"""Whether a certificate, the fitted model and the ledger agree.

The page repeats, for programs, the facts of which all of it is made. So it is written once more from these: whoever alters what
people read, or one of the facts, leaves a difference. The facts are compared with the report that comes with the model's file,
whose fingerprint is taken from the file's numbers, and with the ledger as it was when the page was written.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from html.parser import HTMLParser
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from vips._support.files import refuse_endless
from vips.core.budget import Cost
from vips.core.ledger.book import Run
from vips.core.ledger.ledger import PrivacyLedger
from vips.core.ledger.pricing import cost_of_plan, sum_of
from vips.core.ledger.reader import book_before
from vips.core.plan import PrivacyPlan
from vips.exceptions import LedgerError
from vips.report import words
from vips.report.certificate.page import certificate, ledger_view
from vips.report.report import PrivacyReport, Release
from vips.report.report_fields import as_plain

__all__ = ["Finding", "findings"]

_LARGEST = 2**26  # bytes of a page
_STATED = ("preprocessing", "tuning", "also_not_covered")  # what people can add to a report after the fit
_COMPARED = ("date", "unit", "releases")  # with a line of their own


@dataclass(frozen=True)
class Finding:
    """The result of one comparison."""

    is_right: bool | None  # None where nothing could be compared
    what: str
    said: str  # the number or text, and where page and file differ both of them

    def __str__(self) -> str:
        mark = {True: "ok", False: "differs", None: "note"}[self.is_right]
        return f"{mark:8s}{self.what}: {self.said}"


class _Page(NamedTuple):
    text: bytes
    again: bytes  # the page that vips writes from the facts
    version: str
    stated: dict[str, str]
    report: PrivacyReport
    ledger: dict


def findings(
    path: str | os.PathLike, report: PrivacyReport | None = None, ledger: str | os.PathLike | None = None
) -> list[Finding]:
    """Compare the certificate at ``path`` with the report of a model that was read from its file, and with a ledger.

    ValueError if the page is no certificate with a guarantee, OSError if page or ledger cannot be read.

    Guarantees
    ----------
    - Without a difference, each character of the page but the kind of its line ends is what vips writes about this model's
      report and about this ledger, as far as they are given. What people stated can be any text, but for data set and purpose
      where a ledger is given.
    - With a ledger and no difference, its hashes fit, it holds every entry that it had when the page was written, and an entry
      of the price of these releases for every run that the page names.
    """
    page = _read(path)
    results = [_text(page), *_of_people(page, ledger is not None)]
    if report is None:
        results.append(Finding(None, "model", "not read: name its file by --model"))
    else:
        results += _of_model(page.report, report)
    if ledger is None:
        return [*results, Finding(None, "ledger", "not read: name its file by --ledger")]
    if not os.path.isfile(ledger):
        raise FileNotFoundError(f"There is no file {os.fspath(ledger)!r}.")
    try:
        return [*results, *_of_ledger(page, PrivacyLedger.open(ledger))]
    except LedgerError as error:
        return [*results, Finding(False, "ledger", str(error))]


# -- the page --------------------------------------------------------------------------------------------------------


class _Body(HTMLParser):
    record: str | None = None

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "body" and self.record is None:
            self.record = dict(attributes).get("data-record")


def _read(path: str | os.PathLike) -> _Page:
    refuse_endless(path)
    if os.path.getsize(path) > _LARGEST:
        raise ValueError(f"{path} is too large for a certificate.")
    text, body = _with_plain_ends(Path(path).read_bytes()), _Body()
    body.feed(text.decode("utf-8", errors="replace"))
    if body.record is None:
        raise ValueError(f"{path} is no certificate of a fit with a guarantee: it holds nothing that could be checked.")
    try:
        return _page(text, **json.loads(body.record))
    except Exception as error:  # whatever a forged record makes of it
        raise ValueError(
            f"{path} is not a certificate that vips writes ({type(error).__name__}: {error!s:.300})."
        ) from error


def _with_plain_ends(text: bytes) -> bytes:
    """Without what mail and editors do to a text: line ends of Windows, a byte-order mark."""
    return text.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")


def _page(text: bytes, *, vips: str, date: str, stated: dict, report: dict, ledger: dict) -> _Page:
    if not all(isinstance(value, str) for value in (vips, date, *stated, *stated.values())):
        raise TypeError("its texts are none")
    read = PrivacyReport.from_json(report)
    return _Page(text, _with_plain_ends(certificate(read, ledger, stated, date)), vips, stated, read, ledger)


def _text(page: _Page) -> Finding:
    """Whether people read what the facts say."""
    if page.text == page.again:
        return Finding(True, "text", "all of it follows from the facts that the page keeps for this check")
    read, written = (text.decode("utf-8", errors="surrogateescape") for text in (page.text, page.again))
    pairs = enumerate(zip(read, written, strict=False))
    place = next((i for i, (ours, theirs) in pairs if ours != theirs), min(len(read), len(written)))
    start = max(place - 30, read.rfind("\n", 0, place) + 1)
    ours, theirs = (repr(text[start : start + 90].partition("\n")[0].strip()) for text in (read, written))
    installed = metadata.version("vips")
    other = f"; it was written by vips {page.version}, and this is {installed}" if page.version != installed else ""
    return Finding(False, "text", f"the page says {ours}, its facts say {theirs}{other}")


def _of_people(page: _Page, has_ledger: bool) -> Iterator[Finding]:
    """What people stated on the page, of which a ledger knows data set and purpose alone."""
    for name, text in page.stated.items():
        if text.strip() and not (has_ledger and name in ("dataset", "purpose")):
            yield Finding(
                None, f"{name.replace('_', ' ')}, stated by people", f"{text.strip()}: nothing vouches for it"
            )


# -- the model -------------------------------------------------------------------------------------------------------


def _of_model(page: PrivacyReport, model: PrivacyReport) -> Iterator[Finding]:
    yield _compared("guarantee", _loss(page), _loss(model))
    yield _compared("unit", page.unit, model.unit)
    yield _compared("runs", ", ".join(page.runs) or "none", ", ".join(model.runs) or "none")
    yield _compared("date of the fit", page.date, model.date)
    for place, release in enumerate(page.releases):
        same = model.releases[place] if place < len(model.releases) else None
        yield _fingerprint(release, "" if same is None else same.sha256)
    differing = [*_differing(page, model)]
    says = "the same" if not differing else f"page and model differ in {', '.join(differing)}"
    yield Finding(not differing, "rest of the statement", says)
    missing = [item for item in model.also_not_covered if item not in page.also_not_covered]
    if missing:
        yield Finding(False, "not covered", f"the page lacks {'; '.join(missing)}")
    for name in _STATED:
        ours, theirs = getattr(page, name), getattr(model, name)
        if ours != theirs:
            yield Finding(
                None, f"{name.replace('_', ' ')}, stated by people", f"the page says {ours}, the model says {theirs}"
            )


def _compared(what: str, page: str, other: str, who: str = "the model") -> Finding:
    if page == other:
        return Finding(True, what, page)
    return Finding(False, what, f"the page says {page}, {who} says {other}")


def _loss(report: PrivacyReport) -> str:
    if not report.has_guarantee:
        return "none"
    return "at a δ of one's choice" if report.delta is None else words.loss(report.epsilon(), report.delta)


def _fingerprint(release: Release, of_model: str) -> Finding:
    what = f"fingerprint of the {release.what}"
    if not release.sha256 and not of_model:
        return Finding(None, what, "neither the page nor the file has one")
    if not of_model:
        return Finding(
            False, what, f"the page says {release.sha256}, and the file holds no {release.what}: save the whole"
        )
    return _compared(what, release.sha256 or "none", of_model)


def _differing(page: PrivacyReport, model: PrivacyReport) -> Iterator[str]:
    """Fields, without those that have a line of their own."""
    ours, theirs = as_plain(page), as_plain(model)
    yield from (name for name in ours if name not in (*_STATED, *_COMPARED) and ours[name] != theirs[name])
    if len(page.releases) != len(model.releases):
        yield "number of releases"
    for ours, theirs in zip(page.releases, model.releases, strict=False):
        ours, theirs = as_plain(ours), as_plain(theirs)
        yield from (f"{name} of the {ours['what']}" for name in ours if name != "sha256" and ours[name] != theirs[name])


# -- the ledger ------------------------------------------------------------------------------------------------------


def _of_ledger(page: _Page, ledger: PrivacyLedger) -> Iterator[Finding]:
    yield Finding(True, "ledger", f"every hash of its {len(ledger.history())} lines fits")
    yield _total(page, ledger)
    if not page.report.runs:
        yield Finding(False, "entry", "the page names none: no ledger counts this")
    for name in page.report.runs:
        releases = [release for release in page.report.releases if release.ledger and release.ledger["run"] == name]
        try:
            yield from _of_entry(page.report.unit, releases, ledger.run(name), ledger, page.stated)
        except (ArithmeticError, LedgerError) as error:
            yield Finding(False, f"entry {name}", str(error))


def _total(page: _Page, ledger: PrivacyLedger) -> Finding:
    if page.ledger["total"] is None:
        return Finding(None, "total", "the page states none")
    try:
        counted = ledger_view(ledger, [page.report], page.ledger["head"])
    except LedgerError as error:
        return Finding(False, "total", str(error))
    differing = [name for name in counted if counted[name] != page.ledger.get(name)]
    if differing:
        pairs = (f"{name}: the page says {page.ledger.get(name)}, the ledger {counted[name]}" for name in differing)
        return Finding(False, "total", "; ".join(pairs))
    said = f"ε = {counted['total']:.4g} by {counted['n_runs']} releases when the page was written"
    n_later = len(ledger.runs()) - counted["n_runs"]
    return Finding(
        True, "total", f"{said}; {n_later} more since then, ε = {ledger.spent():.4g} in all" if n_later else said
    )


def _of_entry(
    unit: str, releases: list[Release], run: Run, ledger: PrivacyLedger, stated: dict[str, str]
) -> Iterator[Finding]:
    entry = releases[0].ledger
    facts = {
        "data set": (entry["dataset"], ledger.dataset),
        "unit": (unit, run.unit or unit),
        "purpose": (entry["purpose"], run.purpose),
    }
    for what, (ours, theirs) in facts.items():
        yield _compared(f"{what} of entry {run.run}", ours or "none", theirs or "none", "the ledger")
    for what, theirs in (("dataset", ledger.dataset), ("purpose", run.purpose)):
        ours = stated.get(what, "").strip()
        if ours and theirs and ours != theirs:
            yield _compared(f"{what} in the title", ours, theirs, "the ledger")
    left = book_before(ledger, run.run).left()
    thresholds = Cost(0.0, math.fsum(release.threshold_delta for release in releases))
    priced = sum_of([thresholds, *(cost_of_plan(release.plan, left) for release in releases)])
    repeated, charged = releases[-1].repeated_steps, _beyond(run, releases[-1].plan)
    is_repeated = math.isclose(charged, repeated, rel_tol=1e-6, abs_tol=1e-6)
    is_same = all(map(_is_close, astuple(priced), astuple(run.whole))) and is_repeated
    costs = [_shown(cost, ledger.delta) for cost in (priced, run.whole)]
    said = costs[1] if is_same else f"what the page states costs {costs[0]}, the ledger charged {costs[1]}"
    if not is_repeated:
        said += f"; steps beyond the plan: {repeated:g} on the page, {charged:g} in the ledger"
    yield Finding(is_same, f"cost of entry {run.run}", said)


def _beyond(run: Run, plan: PrivacyPlan) -> float:
    """Steps of a fit with this plan, by their weights, that were charged beyond the plans of all releases of the entry."""
    whole = run.weight_after(0)
    beyond = float(run.charged - whole)
    return beyond * run.whole.mu2 / float(whole) * plan.n_steps / plan.gdp_mu() ** 2 if run.is_gaussian else beyond


def _is_close(ours: float, theirs: float) -> bool:
    return math.isclose(ours, theirs, rel_tol=1e-6)


def _shown(cost: Cost, delta: float) -> str:
    """A cost with digits enough to see what differs."""
    return f"ε = {cost.epsilon(delta):.6g}{f', δ = {cost.delta_0:.6g}' if cost.delta_0 else ''}"
