"""Tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vips._support.printable import printable

__all__ = ["html_table"]


def html_table(
    caption: object,
    heads: Sequence[object],
    rows: Iterable[Sequence[object]],
    notes: Iterable[object] = (),
    *,
    prose: bool = False,
) -> str | None:
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
    str or None
        HTML; None without Jinja2, and notebooks then show the object as text.
    """
    try:
        from vips._pages.page import environment
    except ImportError:
        return None
    return (
        environment()
        .get_template("table.html")
        .render(
            caption=printable(caption),
            heads=[printable(head) for head in heads],
            rows=[[printable(cell) for cell in row] for row in rows],
            notes=[printable(note) for note in notes],
            prose=prose,
        )
    )
