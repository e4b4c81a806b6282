"""The publisher's page: what a table promises, what noise hides, shares and cross tables with their limits, as one file."""

from __future__ import annotations

import os
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from vips._pages.page import environment, write_page
from vips.models.tables.pairs import MANY, Pairs
from vips.report import certificate
from vips.report.certificate.page import statements_of

if TYPE_CHECKING:
    from vips.models.tables.table import PrivateTable

__all__ = ["write_table"]

_MOST_CELLS = 400  # of a cross table that is shown


def write_table(
    path: str | os.PathLike, table: PrivateTable, pairs: Pairs, missing: np.ndarray, title: str, level: float
) -> None:
    """Write the page of a fitted table, whole or not at all.

    Parameters
    ----------
    pairs : Pairs
        Of the table.
    missing : ndarray of shape (n_columns,)
        Shares of the records without an answer.
    """
    private, names = table.privacy_.plan.is_private, table.column_names()
    statements = statements_of([table], ["private table" if private else "fit without noise"])
    whole = table.summary(level)
    shares = {name: whole.loc[name] for name in whole.index.unique("column")}
    tables, large = [], []
    for (j, one), (k, other) in combinations(enumerate(shares), 2):
        if len(shares[one]) * len(shares[other]) > _MOST_CELLS:
            large.append(f"{names[j]} and {names[k]}")
            continue
        noise = f"{np.sqrt(pairs.cell_var[j, k]):,.1f}"
        tables.append({"names": (names[j], names[k]), "noise": noise} | _cross(table.pairs(one, other, level)))
    write_page(
        path,
        environment(__package__, certificate.__name__),
        "table.html",
        [(__package__, "page.css")],
        title=title,
        level=f"{100.0 * level:g} %",
        statements=statements,
        is_released=table.privacy_.has_guarantee,
        cover={"together": statements[0]["together"]},
        size=f"{max(pairs.size, 0.0):,.0f}",
        whose=whole.columns.name or "",
        columns=[_column(*named) for named in zip(names, shares.values(), missing, strict=True)],
        means=_rows(table.means(level), "{:,.6g}") if table.has_numbers else [],
        rules=[[f"{name}: {_in_words(answers)}" for name, answers in rule.items()] for rule in table.rules],
        tables=tables,
        large=large,
    )


def _column(name: str, shares: pd.DataFrame, missing: float) -> dict:
    """Shares of a column, answers that noise hides, and the share of the records without one."""
    hidden = shares.index[shares["lower"] <= 0.0].astype(str)
    return {
        "name": name,
        "rows": _rows(100.0 * shares, "{:.2f}"),
        "hidden": list(hidden),
        "missing": f"{missing:.0%}" if missing > MANY else "",
    }


def _rows(frame: pd.DataFrame, form: str) -> list[list[str]]:
    return [
        [str(label), *map(form.format, numbers)] for label, numbers in zip(frame.index, frame.to_numpy(), strict=True)
    ]


def _cross(cells: pd.DataFrame) -> dict:
    """Shares of the cells of two columns, and half the width of their limits, in per cent."""
    cells = 100.0 * cells
    halves = np.maximum(cells["upper"] - cells["share"], cells["share"] - cells["lower"])
    shown = [f"{share:.2f} ± {half:.2f}" for share, half in zip(cells["share"], halves, strict=True)]
    wide = pd.Series(shown, index=cells.index).unstack(sort=False)
    return {
        "heads": [str(label) for label in wide.columns],
        "rows": [[str(label), *row] for label, row in zip(wide.index, wide.to_numpy(), strict=True)],
    }


def _in_words(answers: object) -> str:
    if isinstance(answers, tuple):
        return " to ".join(map(str, answers))
    return answers if isinstance(answers, str) else ", ".join(map(str, answers))
