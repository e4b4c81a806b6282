"""Tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["html_table"]


def html_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], notes: Iterable[str] = ()) -> str:
    """A table whose first column names the rows; everything in it is text. Notes follow as paragraphs."""
    head = "".join(f'<th scope="col">{escape(str(name))}</th>' for name in heads)
    lines = []
    for first, *cells in rows:
        rest = "".join(f"<td>{escape(str(cell))}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row" style="text-align:left">{escape(str(first))}</th>{rest}</tr>')
    thead = f"<thead><tr>{head}</tr></thead>" if heads else ""
    paragraphs = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<div><table><caption>{escape(caption)}</caption>{thead}<tbody>{''.join(lines)}</tbody></table>{paragraphs}</div>"
