"""Does anything but the noisy totals depend on the records? Replays are fits whose noisy totals were fixed beforehand.

Everything that such a fit shows must be the same for every data set. One process fits the same records over and over, another
one their neighbours; the i-th fits of both are compared. Output, files and modules may differ by chance, as times and names of
temporary files do: then both run again, and lines that differ between the two runs are not compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from vips.tools.auditing.child import Fit, FrozenPlan, Process, Shown, shown_by, two_processes
from vips.tools.auditing.records import Table
from vips.tools.auditing.report import Finding

__all__ = ["ADVICE", "finding", "replay_findings"]

ADVICE = {
    "errors and warnings": "whether a fit raises or warns must not depend on a record: let `valid_records` drop it, and check "
    "public facts only.",
    "output": "what a fit prints or logs must not depend on a record, nor on their number, whatever the stream or level.",
    "files and processes": "what a fit writes to files or sends to other processes must not depend on a record, nor on their "
    "number.",
    "steps": "number, sizes and shapes of the steps must be public: no stopping on a bound, no step size or vocabulary "
    "computed from the records.",
    "posterior": "the posterior must be a function of noisy totals and constructor arguments. A model that needs the number of "
    "records must sum it, as a block `count`.",
    "fitted object": "everything that can be reached from the object is released with it: keep no count, vocabulary or cache "
    "of the records in attributes, posterior, report or parameters.",
    "classes and modules": "what a fit leaves in classes, modules, functions, the environment or global generators outlives "
    "the model: keep nothing of the records there.",
}
# Aspects that may differ by chance between two fits. The constructor and the totals determine the others.
_BY_CHANCE = ("output", "files and processes", "classes and modules")

Run = list[Shown]


def replay_findings(
    processes: Sequence[Process], model: bytes, plan: FrozenPlan, records: Table, neighbours: Mapping[str, Table]
) -> list[Finding]:
    """One finding for every aspect.

    Parameters
    ----------
    processes : sequence of two Process
    model : bytes
        See :func:`~vips.tools.auditing.child.pickled`.
    neighbours : dict of str to Table
        Neighbouring data sets of ``records``, by name.
    """
    tables = [records] * len(neighbours), list(neighbours.values())
    fits = [[Fit(model, plan, table) for table in tables_of_run] for tables_of_run in tables]
    same, others = again = shown_by(processes, fits)
    if any(a[aspect] != b[aspect] for a, b in zip(same, others, strict=True) for aspect in _BY_CHANCE):
        with two_processes() as more:
            again = shown_by(more, fits)
    return [finding(aspect, plan.n_steps, list(neighbours), [same, others, *again]) for aspect in ADVICE]


def finding(aspect: str, n_steps: int, neighbours: list[str], runs: list[Run]) -> Finding:
    """Compare the fits to the same records and to neighbours, both of which were run twice."""
    runs = [[shown[aspect] for shown in run] for run in runs]
    same, others, same_again, others_again = runs
    varying = set()
    if aspect in _BY_CHANCE:
        varying = set().union(*map(_differing, [*same, *others], [*same_again, *others_again]))
    measured, passed = "identical", True
    if varying:
        names = _listed({name for name, _ in varying})
        measured, passed = f"identical, apart from what differs between fits to the same records: {names}", None
    if aspect == "steps" and same[0]["number"] != str(n_steps):
        measured, passed = f"{same[0]['number']} steps instead of the plan's {n_steps}", False
    for neighbour, *shown in reversed(list(zip(neighbours, *runs, strict=True))):
        places = _differing(*shown[:2]) & _differing(*shown[2:]) - varying
        if places:
            measured, passed = f"{neighbour}: {_text(aspect, places, *shown[:2])}", False
    checked = f"{len(neighbours)} fits to neighbours with the noisy totals fixed"
    return Finding(f"replay: {aspect}", checked, measured, "identical", passed, ADVICE[aspect])


def _differing(first: Mapping[str, str], second: Mapping[str, str]) -> set[tuple[str, int]]:
    """Names and line numbers of the lines that differ."""
    texts = [(name, first.get(name), second.get(name)) for name in {**first, **second}]
    lines = {name: zip_longest(*(str(text).split("\n") for text in pair)) for name, *pair in texts}
    return {(name, i) for name, pairs in lines.items() for i, (a, b) in enumerate(pairs) if a != b}


def _text(aspect: str, places: set[tuple[str, int]], expected: Mapping[str, str], shown: Mapping[str, str]) -> str:
    names = {name for name, _ in places}
    if aspect in ("errors and warnings", "steps"):
        name = min(names)
        return f"{name}: {_short(shown.get(name, 'nothing'))} instead of {_short(expected.get(name, 'nothing'))}"
    return _listed(names)  # no values: they may be secrets of this machine


def _listed(names: set[str], most: int = 3) -> str:
    return ", ".join(sorted(names)[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _short(text: str, length: int = 160) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
