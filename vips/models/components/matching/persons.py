"""In which ways rows of a person may be alike, and how a clip that takes all of them together weighs each.

Rows s_i of a person with norms n_i add Σ_i s_i min(1, C / Σ_i n_i). How many rows persons have, and how these are alike, is
private. But whatever depends on what, each row alone is a row of the model. So on average a person adds E w s, where the weight
w is one of a few below, or between them:

============  ==============================================================================================
way           rows of a person
============  ==============================================================================================
one           a single one
the same      two, ten, or as many as count, all of them the same
neighbours    among simulated records, which are in some order: they are of one class, or as long as each other
independent   any
============  ==============================================================================================

A match takes the mean of all ways, and what they differ by as a further variance, so large that each way is one deviation away.
The mean of dependent vectors varies no more than one of them (Jensen): what persons add to the variance is bounded.
"""

from __future__ import annotations

import numpy as np

from vips.core.units import is_group
from vips.report.report import PrivacyReport

__all__ = ["most_factor", "ways_of"]

_SIZES = 2, 10  # rows of a person, where all together weigh as one


def ways_of(report: PrivacyReport, norms: np.ndarray) -> np.ndarray:
    """Weights of simulated rows in each way; where no record is a person, in the only one.

    Parameters
    ----------
    report : PrivacyReport
    norms : ndarray of shape (n_rows,)

    Returns
    -------
    ndarray of shape (n_ways, n_rows)
        Where a person weighs as one, of all rows of a person together.
    """
    plan = report.plan
    of_one, most = plan.clip_weights(norms), plan.max_rows_per_group
    if not is_group(report.unit):
        return of_one[None]
    ways, orders = [of_one], (np.arange(len(norms)), np.random.default_rng(0).permutation(len(norms)))
    for size in _SIZES if most is None else (most,):
        means = [norms, *(_means_of_runs(norms, order, size) for order in orders)]
        ways += [(size if most is None else 1.0) * plan.clip_weights(size * mean) for mean in means]
    return np.array(ways)


def most_factor(report: PrivacyReport, ways: np.ndarray) -> np.ndarray:
    """Σ of the squares of persons' weights over Σ of the mean weights of their rows, at most; shape (n_rows,)."""
    mean, most = ways.mean(axis=0), report.plan.max_rows_per_group or 1
    return (most if is_group(report.unit) else 1.0) * np.divide(
        ways.max(axis=0), mean, np.ones_like(mean), where=mean > 0.0
    )


def _means_of_runs(norms: np.ndarray, order: np.ndarray, size: int) -> np.ndarray:
    """For each row, the mean norm of those that are in a run of about this size with it, in this order."""
    runs, means = np.arange(len(norms)) * max(len(norms) // size, 1) // len(norms), np.empty(len(norms))
    means[order] = (np.bincount(runs, norms[order]) / np.bincount(runs))[runs]
    return means
