"""Result files of experiments, which are written whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["ENDINGS", "as_table", "read_json", "results_folder", "spread", "write_json", "write_table", "write_text"]

ENDINGS = {"markdown": "md", "csv": "csv", "latex": "tex"}  # forms of tables, and the ends of their files' names
_LATEX = {"ε": r"$\varepsilon$", "σ": r"$\sigma$", "δ": r"$\delta$", "±": r"$\pm$", "×": r"$\times$", "÷": r"$\div$"}
_LATEX |= {character: rf"\{character}" for character in "&%#_$"}


def results_folder(name: str) -> Path:
    """``experiments/results/<name>``, created if necessary."""
    folder = Path(__file__).parent / "results" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_text(path: Path, text: str) -> None:
    """Write a temporary file and rename it, so that a reader never sees half a file."""
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def as_table(heads: Sequence[str], rows: Iterable[Sequence[object]], form: str = "markdown", note: str = "") -> str:
    """A table with ``note`` above it: as a comment in LaTeX, and left out of a CSV file, which holds the table alone."""
    lines = [list(map(str, row)) for row in (heads, *rows)]
    if form == "csv":
        csv.writer(text := io.StringIO(), lineterminator="\n").writerows(lines)
        return text.getvalue()
    if form == "latex":
        head, *body = (" & ".join(cell.translate(str.maketrans(_LATEX)) for cell in row) + r" \\" for row in lines)
        opened = rf"\begin{{tabular}}{{{'l' * len(heads)}}}"
        above = [f"% {note}"] if note else []
        return "\n".join([*above, opened, r"\hline", head, r"\hline", *body, r"\hline", r"\end{tabular}"]) + "\n"
    head, *body = ("| " + " | ".join(row) + " |" for row in lines)
    return "\n".join([*([note, ""] if note else []), head, "| --- " * len(heads) + "|", *body]) + "\n"


def write_table(folder: Path, name: str, text: str, form: str) -> None:
    """Write a table of :func:`as_table`; the form decides how the file's name ends."""
    write_text(folder / f"{name}.{ENDINGS[form]}", text)


def spread(values: Sequence[float], digits: int) -> str:
    """The mean, with the range if there are several values."""
    mean, low, high = (f"{value:.{digits}f}" for value in (sum(values) / len(values), min(values), max(values)))
    return mean if len(values) == 1 else f"{mean} ({low} to {high})"


def write_json(path: Path, value: object) -> None:
    """Write results that may hold infinities and NaN, which JSON does not have.

    These become null. The results are then under ``"results"``, and ``"not_finite"`` lists the place and the value of each:
    ``{"at": ["ε", 0], "value": "inf"}``. :func:`read_json` restores them.

    Parameters
    ----------
    path : Path
    value : object
        Dicts, lists, tuples, strings, numbers, booleans and None. Keys become strings, as in all JSON.

    Raises
    ------
    TypeError
        If ``value`` holds anything else. An existing file is then unchanged.
    """
    places: list[dict] = []
    finite = _finite(value, [], places)
    if places or _is_noted(finite):
        finite = {"not_finite": places, "results": finite}
    write_text(path, json.dumps(finite, indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> object:
    """The value that was passed to :func:`write_json`, with lists in place of tuples and strings as keys."""
    value = json.loads(path.read_text(encoding="utf-8"))
    if not _is_noted(value):
        return value
    for place in value["not_finite"]:
        *steps, last = "results", *place["at"]
        inner = value
        for step in steps:
            inner = inner[step]
        inner[last] = float(place["value"])
    return value["results"]


def _is_noted(value: object) -> bool:
    """Whether ``value`` has the form of results with a note."""
    return isinstance(value, dict) and value.keys() == {"not_finite", "results"}


def _finite(value: object, at: list, places: list[dict]) -> object:
    """``value`` with None for every non-finite number; each is appended to ``places``."""
    if isinstance(value, dict):
        named = {key if isinstance(key, str) else json.dumps(key): item for key, item in value.items()}
        return {name: _finite(item, [*at, name], places) for name, item in named.items()}
    if isinstance(value, list | tuple):
        return [_finite(item, [*at, place], places) for place, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        places.append({"at": at, "value": str(float(value))})
        return None
    return value
