"""Latent classes as simulated records: what a match moves, and how the steps of a fit see them.

A cell is missing with a probability of its column, whatever the class: the released totals tell these probabilities, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import softmax

from vips._support.alignment import align
from vips.expfam import Draws
from vips.models.components.columns import Columns
from vips.models.components.matching.charts import Chart, Simplexes
from vips.models.components.matching.match import ChartMatch, best_match, check_told
from vips.models.components.matching.simulator import levels_at, weights_in
from vips.models.components.matching.steps import StepSimulator, totals_of
from vips.models.mixtures.posterior import ClassPosterior

__all__ = ["ClassSimulator", "match_of", "matched_classes"]

_MISSING = 0.05, 1e-3, 0.9  # share of a column's cells at the start: where nothing is known, at least, and at most


@dataclass(frozen=True)
class ClassSimulator(StepSimulator):
    """Records of classes. The charts are those of the classes' shares, of missing cells, and of the columns.

    Parameters
    ----------
    columns : Columns
        Without limits.
    """

    columns: Columns

    def simulated(self, charts: Sequence[Chart], n_records: int, rng: np.random.Generator) -> np.ndarray:
        """Rows, NaN where a cell is missing. Classes are stratified."""
        shares, missing, *of_columns = charts
        classes = levels_at((np.arange(n_records) + rng.random()) / n_records, shares.p)
        values = self.columns.simulated(of_columns, classes, rng.random((self.columns.n_columns, n_records)).T)
        values[rng.random(values.shape) < missing.p[:, 1]] = np.nan
        return values

    def scores(self, records: np.ndarray, charts: Sequence[Chart]) -> np.ndarray:
        shares, missing, *of_columns = charts
        given, is_missing = self._shares_at(records, charts), np.isnan(records)
        of_missing = missing.scores(np.stack([~is_missing, is_missing], axis=-1).astype(float))
        return np.hstack([shares.scores(given[:, None]), of_missing, self.columns.scores(of_columns, records, given)])

    def components(self, charts: Sequence[Chart]) -> tuple[np.ndarray, Sequence[Chart]]:
        return charts[0].p[0], charts[2:]

    def merged(self, charts: Sequence[Chart], into: np.ndarray) -> list[Chart]:
        shares, missing, *of_columns = charts
        p, weights = weights_in(into, shares.p[0])
        return [replace(shares, p=p[None]), missing, *(chart.merged(weights) for chart in of_columns)]

    def _shares_at(self, records: np.ndarray, charts: Sequence[Chart]) -> np.ndarray:
        """Shares of the classes given each record, at the parameters."""
        shares, _, *of_columns = charts
        return softmax(self.columns.logs(of_columns, records) + np.log(shares.p[0]), axis=1)


def match_of(simulator: ClassSimulator, class_prior: float) -> ChartMatch:
    """Classes whose records give the totals of a private fit; the first start is the fit's posterior.

    Raises
    ------
    NotImplementedError
        See :func:`totals_of`.
    """
    model, columns = simulator.model, simulator.columns
    posterior, missing = model.last_posterior_, _missing(model.last_posterior_, columns)
    shares = Simplexes.inside(posterior.weights.mean[None], class_prior)
    charts = [shares, Simplexes(np.column_stack([1.0 - missing, missing]), 1.0), *columns.charts(posterior.columns)]

    def moved_apart(rng: np.random.Generator) -> list[Chart]:
        equal = replace(shares, p=np.full_like(shares.p, 1.0 / shares.p.size))
        return [equal, charts[1], *(chart.moved_apart(shares.p[0], rng) for chart in charts[2:])]

    return best_match(simulator, totals_of(model), charts, moved_apart)


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
