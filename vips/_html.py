"""Tables for notebooks: the only place outside of the templates that makes HTML.

Elements form a tree; writing the tree escapes every text and attribute.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence

from vips._printable import printable

__all__ = ["html_table"]

_NAME = {"scope": "row", "style": "text-align:left"}
_PROSE = {"style": "text-align:left;vertical-align:top"}


def html_table(
    caption: object,
    heads: Sequence[object],
    rows: Iterable[Sequence[object]],
    notes: Iterable[object] = (),
    *,
    prose: bool = False,
) -> str:
    """A table whose first column names the rows. Every object is shown as its ``str``.

    Parameters
    ----------
    caption : object
    heads : sequence
        Headings of the columns; empty for a table without a head.
    rows : iterable of sequences
        Each as long as ``heads``, if there are heads. Without rows there is no table, only the notes.
    notes : iterable
        Paragraphs below the table.
    prose : bool
        Cells hold sentences, aligned at the left and at the top.

    Returns
    -------
    str
        HTML.
    """
    box = ET.Element("div")
    rows = list(rows)
    if rows:
        table = ET.SubElement(box, "table")
        _add(table, "caption", caption)
        if heads:
            _add_row(ET.SubElement(table, "thead"), [("th", {"scope": "col"}, head) for head in heads])
        body = ET.SubElement(table, "tbody")
        name_style, cell_style = (_NAME | _PROSE, _PROSE) if prose else (_NAME, {})
        for first, *cells in rows:
            _add_row(body, [("th", name_style, first), *(("td", cell_style, cell) for cell in cells)])
    for note in notes:
        _add(box, "p", note)
    return ET.tostring(box, encoding="unicode", method="html")


def _add_row(parent: ET.Element, cells: Iterable[tuple[str, dict[str, str], object]]) -> None:
    row = ET.SubElement(parent, "tr")
    for tag, attributes, text in cells:
        _add(row, tag, text, attributes)


def _add(parent: ET.Element, tag: str, text: object, attributes: dict[str, str] | None = None) -> None:
    ET.SubElement(parent, tag, attributes or {}).text = printable(text)
