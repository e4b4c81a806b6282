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
    """A table whose first column names the rows, as HTML; None without Jinja2: notebooks then show the object as text.

    Every object is shown as its ``str``. Empty ``heads`` make a table without a head; without rows there is no table, only the
    notes, which are paragraphs below it. With ``prose`` cells hold sentences, aligned at the left and at the top.
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
