"""From noisy tables of classes by values to the features of a regression."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from vips.classification.log_odds import MOST_LOG_ODDS, posterior_log_odds, total_log_odds
from vips.classification.tables import ClassTable
from vips.parts import STANDS_OUT

__all__ = ["log_odds_of_tables", "scale_of_rows"]

# Longest row of features, in units of the root of the log odds' mean square under independent columns.
_ROW_NORM = 1.5 * math.sqrt(2.0)


def log_odds_of_tables(
    tables: Mapping[object, ClassTable], class_counts: np.ndarray, std: float
) -> dict[object, np.ndarray]:
    """For each column, log odds less their average in each cell: of the second class, or of each class of more than two."""
    outputs = [1] if len(class_counts) == 2 else range(len(class_counts))
    noisy = class_counts, std
    return {name: np.array([_centred_log_odds(table, k, *noisy) for k in outputs]) for name, table in tables.items()}


def scale_of_rows(tables: Mapping[object, ClassTable], log_odds: Mapping[object, np.ndarray]) -> float:
    """The factor that bounds most rows of features by norm 1; from noisy numbers."""
    squares = sum(float((_shares(table) * log_odds[name] ** 2).sum()) for name, table in tables.items())
    return 1.0 / (_ROW_NORM * math.sqrt(squares)) if squares > 0.0 else 1.0


def _centred_log_odds(table: ClassTable, k: int, class_counts: np.ndarray, std: float) -> np.ndarray:
    """Log odds of class k in each cell, less their average; shape (n_cells,). ``std`` is that of the noise in a count.

    NaN in the table marks categories below the threshold.
    """
    of_class, of_others = table.counts[k], np.delete(table.counts, k, axis=0).sum(axis=0)
    stds = (std, std * math.sqrt(len(class_counts) - 1))
    total = total_log_odds(class_counts[k], float(np.delete(class_counts, k).sum()), std)
    n_records = max(1.0, float(class_counts.sum()))
    log_odds, share = np.zeros(len(of_class)), _shares(table)
    if table.cells.kind == "category":
        parts = [(np.isfinite(of_class), None)]
    else:  # the last cell is that of missing values
        parts = [(slice(0, -1), table.cells.positions(share[:-1])), (slice(-1, None), None)]
    for part, positions in parts:
        log_odds[part] = posterior_log_odds(of_class[part], of_others[part], stds, total, n_records, positions)
    log_odds[~_says_something(table, std)] = 0.0
    return np.clip(log_odds - (log_odds * share).sum(), -MOST_LOG_ODDS, MOST_LOG_ODDS)


def _says_something(table: ClassTable, std: float) -> np.ndarray:
    """Whether a cell is one of values, or has records that noise does not hide: shape (n_cells + 1,).

    In others the log odds are those of all records.
    """
    is_seen = table.counts.sum(axis=0) > STANDS_OUT * std * math.sqrt(len(table.counts))  # not where these are NaN
    is_seen[: -2 if table.cells.kind == "category" else -1] = True
    return is_seen


def _shares(table: ClassTable) -> np.ndarray:
    """Shares of the records in each cell, from noisy counts."""
    counts = np.maximum(np.nan_to_num(table.counts.sum(axis=0)), 0.0)
    return counts / max(counts.sum(), 1e-300)
