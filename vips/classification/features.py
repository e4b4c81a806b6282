"""From noisy tables of classes by values to the features of a regression."""

from __future__ import annotations

import math

import numpy as np

from vips.classification.log_odds import MOST_LOG_ODDS, posterior_log_odds, total_log_odds
from vips.classification.tables import ClassTable

__all__ = ["centred_log_odds", "shares"]


def centred_log_odds(table: ClassTable, k: int, class_counts: np.ndarray, std: float) -> np.ndarray:
    """Log odds of class k in each cell, less their average; shape (n_cells,).

    Parameters
    ----------
    table : ClassTable
        Noisy counts of classes by values. NaN marks categories below the threshold.
    k : int
        Place of the class.
    class_counts : ndarray of shape (n_classes,)
        Noisy.
    std : float
        Standard deviation of the noise in a count.
    """
    of_class, of_others = table.counts[k], np.delete(table.counts, k, axis=0).sum(axis=0)
    stds = (std, std * math.sqrt(len(class_counts) - 1))
    total = total_log_odds(class_counts[k], float(np.delete(class_counts, k).sum()), std)
    n_records = max(1.0, float(class_counts.sum()))
    log_odds, share = np.zeros(len(of_class)), shares(table)
    if table.cells.kind == "category":
        parts = [(np.isfinite(of_class), None)]
    else:  # the last cell is that of missing values
        parts = [(slice(0, -1), table.cells.positions(share[:-1])), (slice(-1, None), None)]
    for part, positions in parts:
        log_odds[part] = posterior_log_odds(of_class[part], of_others[part], stds, total, n_records, positions)
    centred = np.clip(log_odds - (log_odds * share).sum(), -MOST_LOG_ODDS, MOST_LOG_ODDS)
    return np.where(np.isfinite(of_class), centred, 0.0)


def shares(table: ClassTable) -> np.ndarray:
    """Shares of the records in each cell, from noisy counts."""
    counts = np.maximum(np.nan_to_num(table.counts.sum(axis=0)), 0.0)
    return counts / max(counts.sum(), 1e-300)
