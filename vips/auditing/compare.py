"""Compares replays of neighbouring data sets.

Two fits to the same records may differ, too: in times, names of temporary files, addresses. Such texts are compared without
their numbers, or not at all. A difference in them counts only if it recurs in every repetition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from vips.auditing.replay import Replay
from vips.auditing.report import Finding

__all__ = ["SAME", "replay_findings"]

SAME = "the same records"
REPEATS = 8
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_ADVICE = {
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
    "of the records in attributes, posterior, report or parameters, and no view of a larger array.",
    "classes and modules": "what a fit leaves in classes, modules, functions, the environment or global generators outlives "
    "the model: keep nothing of the records there.",
}
# Aspects that may differ by chance between two fits. The constructor and the totals determine the others.
_BY_CHANCE = ("output", "files and processes", "classes and modules")


def replay_findings(
    reference: Replay, n_steps: int, others: Mapping[str, Replay], again: Callable[[str, int], Replay]
) -> list[Finding]:
    """One finding for every aspect.

    Parameters
    ----------
    reference : Replay
        The replay to compare with, of a fit of ``n_steps``.
    others : dict of str to Replay
        Fits to neighbours by name; one of them, ``"the same records"``, is a repetition of the reference.
    again : function of (name, i)
        Repeats one of these fits, for the i-th time.
    """
    checked = f"{len(others)} fits to neighbours with the noisy totals fixed"
    unseen = sorted({event for each in (reference, *others.values()) for event in each.unseen})
    findings = []
    for aspect, advice in _ADVICE.items():
        varying = _Varying(aspect)
        if aspect in _BY_CHANCE:
            varying.add(reference, others[SAME])
        measured = _first_difference(aspect, reference, others, varying, again)
        if aspect == "steps" and reference.shown[aspect]["number"] != str(n_steps):
            measured = f"{reference.shown[aspect]['number']} steps instead of the plan's {n_steps}"
        passed: bool | None = measured is None
        if passed and varying:
            measured, passed = f"identical, apart from what differs between fits to the same records: {varying}", None
        elif passed and unseen and aspect == "files and processes":
            measured, passed = f"identical, as far as it was seen; not seen: {_short(unseen)}", None
        findings.append(Finding(f"replay: {aspect}", checked, measured or "identical", "identical", passed, advice))
    return findings


def _first_difference(aspect, reference, others, varying, again) -> str | None:
    for name, other in others.items():
        names = varying.differences(reference, other)
        if names and aspect in _BY_CHANCE:
            reference_again, other_again = again(SAME, 0), again(name, 0)
            for i in range(1, REPEATS):
                varying.add(reference_again, again(SAME, i))
                varying.add(other_again, again(name, i))
                names = varying.differences(reference_again, other_again)
                if not names:
                    varying.add(other, other_again)  # something that only a first fit does, such as making a file
                    break
        if names:
            return f"{name}: {_text(aspect, names, reference, other)}"
    return None


def _text(aspect: str, names: list[str], reference: Replay, other: Replay, most: int = 3) -> str:
    if aspect in ("errors and warnings", "steps"):
        expected, shown = (each.shown[aspect].get(names[0], "nothing") for each in (reference, other))
        return f"{names[0]}: {_short(shown)} instead of {_short(expected)}"
    # no values: they may be secrets of this machine
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


class _Varying:
    """What differs between fits to the same records, in one aspect.

    Where the lines of two texts are equal apart from numbers, the lines that differ are compared without numbers from then on.
    Any other text that differs is no longer compared, nor are texts whose names are equal apart from numbers.
    """

    def __init__(self, aspect: str) -> None:
        self.aspect = aspect
        self._lines: set[tuple[str, str]] = set()  # of a name and a line, without numbers
        self._names: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._lines or self._names)

    def __str__(self) -> str:
        return _short(sorted(self._names | {name for name, _ in self._lines}))

    def add(self, first: Replay, second: Replay) -> None:
        """Note the differences of two fits to the same records."""
        for name in self.differences(first, second):
            texts = [each.shown[self.aspect].get(name) for each in (first, second)]
            if None in texts or _without_numbers(texts[0]) != _without_numbers(texts[1]):
                self._names.add(_without_numbers(name))
                continue
            lines = zip(*(text.splitlines() for text in texts), strict=True)
            self._lines |= {(_without_numbers(name), _without_numbers(a)) for a, b in lines if a != b}

    def differences(self, first: Replay, second: Replay) -> list[str]:
        """Names of the texts that differ between two fits, apart from what is known to vary."""
        a, b = first.shown[self.aspect], second.shown[self.aspect]
        return [
            name
            for name in {**a, **b}
            if a.get(name) != b.get(name)
            and _without_numbers(name) not in self._names
            and (name not in a or name not in b or self._compared(name, a[name]) != self._compared(name, b[name]))
        ]

    def _compared(self, name: str, text: str) -> list[str]:
        name = _without_numbers(name)
        lines = [(line, _without_numbers(line)) for line in text.splitlines()]
        return [shape if (name, shape) in self._lines else line for line, shape in lines]


def _without_numbers(text: str) -> str:
    return _NUMBER.sub("#", text)


def _short(value: object, length: int = 160) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= length else text[: length - 1] + "…"
