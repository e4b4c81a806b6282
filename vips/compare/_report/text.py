"""Names and numbers as HTML, each number with what it was computed from, and tables that a script may sort."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from vips.compare._sources import RELEASED
from vips.compare.curve import PUBLIC

__all__ = ["Cell", "at_most", "definitions", "legend", "name", "number", "sortable_table", "source_tag"]


def name(text: object) -> str:
    """A name from outside (a feature, a word, a data set), which may hold anything, right-to-left letters included."""
    return f"<bdi>{escape(str(text))}</bdi>"


def number(value: float) -> str:
    """Four digits; a dash where there is no number."""
    return "–" if math.isnan(value) else f"{value:.4g}"


def at_most(probability: float) -> str:
    """A bound in per cent, rounded upwards."""
    return f"{math.ceil(1e3 * probability - 1e-9) / 10:g} %"


def source_tag(source: str) -> str:
    """The label of a number; empty where there is none."""
    if not source:
        return ""
    kind = "released" if source in (RELEASED, PUBLIC) else "unprotected"
    return f'<span class="source {kind}">{escape(source)}</span>'


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes
    ----------
    html : str
        Escaped.
    key : float, optional
        What the cell is sorted by; NaN comes last. Without it, its text.
    """

    html: str
    key: float | None = None

    @classmethod
    def of(cls, value: float, source: str = "", interval: tuple[float, float] = (math.nan, math.nan)) -> Cell:
        """A number, its interval and its label."""
        spread = "" if math.isnan(interval[0]) else f"<small>{number(interval[0])} to {number(interval[1])}</small>"
        return cls(f"{number(value)}{spread}{'' if math.isnan(value) else source_tag(source)}", value)

    def to_html(self) -> str:
        if self.key is None:
            return f"<td>{self.html}</td>"
        key = "" if math.isnan(self.key) else repr(float(self.key))
        return f'<td class="number" data-sort="{key}">{self.html}</td>'


def sortable_table(
    identity: str, caption: str, heads: Sequence[str], rows: Iterable[tuple[str, Sequence[Cell]]]
) -> str:
    """A table in a region that scrolls by itself where the page is narrow; caption, heads and names of rows are HTML."""
    head = "".join(f'<th scope="col">{text}</th>' for text in heads)
    body = "\n".join(
        f'<tr><th scope="row">{first}</th>{"".join(cell.to_html() for cell in cells)}</tr>' for first, cells in rows
    )
    return (
        f'<div class="scroll" role="region" aria-labelledby="{identity}" tabindex="0">\n<table class="sortable">\n'
        f'<caption><span id="{identity}">{caption}</span></caption>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table>\n</div>"
    )


def definitions(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and what is said of each; the latter is HTML."""
    rows = "\n".join(f"<div><dt>{escape(first)}</dt><dd>{second}</dd></div>" for first, second in pairs)
    return f'<dl class="definitions">\n{rows}\n</dl>'


def legend(private: str, baseline: str, aware: bool = False) -> str:
    """Which line is whose, with what each was computed from."""
    entries = [("private", "private fit", private), ("baseline", "baseline", baseline)]
    if aware:
        entries.insert(1, ("aware", "private fit, noise-aware", private))
    return '<p class="legend">{}</p>'.format(
        " ".join(
            f'<span class="line {kind}" aria-hidden="true"></span> {text} {source_tag(s)}' for kind, text, s in entries
        )
    )
