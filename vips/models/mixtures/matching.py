"""Latent classes as simulated records: what a match moves, and how the steps of a fit see them.

A cell is missing with a probability of its column, whatever the class: the released totals tell these probabilities, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import softmax

from vips._support.alignment import align
from vips.expfam import Draws
from vips.models._mixture import MixtureSimulator
from vips.models.components.columns import Columns
from vips.models.components.matching.charts import Chart, Simplexes
from vips.models.components.matching.match import ChartMatch, check_told
from vips.models.mixtures.posterior import ClassPosterior

__all__ = ["ClassSimulator", "matched_classes"]

_MISSING = 0.05, 1e-3, 0.9  # share of a column's cells at the start: where nothing is known, at least, and at most


@dataclass(frozen=True)
class ClassSimulator(MixtureSimulator):
    """Records of classes. The charts are those of the classes' shares, of missing cells, and of the columns.

    Parameters
    ----------
    columns : Columns
        Without limits.
    class_prior : float
        Concentration of the prior of the shares.
    """

    columns: Columns
    class_prior: float
    first_of_seen: ClassVar[int] = 2

    def charts(self) -> list[Chart]:
        posterior = self.model.last_posterior_
        missing = _missing(posterior, self.columns)
        shares = Simplexes.inside(posterior.weights.mean[None], self.class_prior)
        of_cells = Simplexes(np.column_stack([1.0 - missing, missing]), 1.0)
        return [shares, of_cells, *self.columns.charts(posterior.columns)]

    def simulated(self, charts: Sequence[Chart], n_records: int, rng: np.random.Generator) -> np.ndarray:
        """Rows, NaN where a cell is missing."""
        shares, missing, *of_columns = charts
        classes = self.members(shares, n_records, rng)
        values = self.columns.simulated(of_columns, classes, rng.random((self.columns.n_columns, n_records)).T)
        values[rng.random(values.shape) < missing.p[:, 1]] = np.nan
        return values

    def scores(self, records: np.ndarray, charts: Sequence[Chart]) -> np.ndarray:
        shares, missing, *of_columns = charts
        given, is_missing = self._shares_at(records, charts), np.isnan(records)
        of_missing = missing.scores(np.stack([~is_missing, is_missing], axis=-1).astype(float))
        return np.hstack([shares.scores(given[:, None]), of_missing, self.columns.scores(of_columns, records, given)])

    def _shares_at(self, records: np.ndarray, charts: Sequence[Chart]) -> np.ndarray:
        """Shares of the classes given each record, at the parameters."""
        shares, _, *of_columns = charts
        return softmax(self.columns.logs(of_columns, records) + np.log(shares.p[0]), axis=1)


def matched_classes(
    match: ChartMatch,
    fitted: ClassPosterior,
    columns: Columns,
    components: Callable[[ClassPosterior], tuple[np.ndarray, str]],
) -> ClassPosterior:
    """Draws of shares and answers, and what other columns say, the classes in the order of the fit.

    Raises
    ------
    NotImplementedError
        If the match is refused, or noise hides a class.
    """
    match.check()
    (of_classes, _, *of_columns), (shares, _, *draws) = match.best(), match.draws()
    check_told(shares, "classes")

    def in_order(order: np.ndarray) -> ClassPosterior:
        return replace(
            fitted,
            weights=Draws(shares, of_classes.p[0]).taken(order),
            columns=columns.of_draws(of_columns, draws, order),
        )

    (theirs, distance), (ours, _) = map(components, (fitted, in_order(np.arange(shares.shape[1]))))
    return in_order(align(theirs, ours, distance).order)


def _missing(posterior: ClassPosterior, columns: Columns) -> np.ndarray:
    """About which share of each column's cells is missing, in the order of the table."""
    seen = np.add.reduceat(posterior.marginals, columns.bins.starts[:-1])
    usual, *limits = _MISSING
    if not seen.any():
        return np.full(len(seen), usual)
    n_records, missing = max(seen.max(), float(posterior.weights.concentration.sum())), np.empty(len(seen))
    missing[np.concatenate(columns.columns)] = np.clip(1.0 - seen / n_records, *limits)
    return missing
