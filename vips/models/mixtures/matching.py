"""Latent classes as simulated records: what a match moves, and how the steps of a fit see them.

A cell is missing with a probability of its column, whatever the class: the released totals tell these probabilities, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from vips.expfam import Dirichlet, Draws
from vips.models.components.columns import Columns
from vips.models.components.matching.charts import Simplexes
from vips.models.components.matching.match import ChartMatch, Totals, best_match, check_told
from vips.models.components.matching.simulator import Simulator, portions
from vips.models.components.matching.steps import totals_of
from vips.models.mixtures.posterior import ClassPosterior
from vips.models.mixtures.statistics import ClassStatistics, inferred
from vips.phases import FitPhase, step_of
from vips.privacy import PrivacyPlan
from vips.statistics import ReleasedStep

__all__ = ["ClassSimulator", "match_of", "matched_classes"]

_SURE = 1e6  # concentration of a posterior that stands for parameters
_LEAST_SHARE = 1e-4  # at the start
_N_STARTS = 8  # other than the fit
_APART = 0.7  # of logarithms, by which classes of another start differ


@dataclass(frozen=True)
class ClassSimulator(Simulator):
    """Records of classes, whose columns are categories.

    The charts are those of the classes' shares, then for each column whether a cell is missing and the answers.

    Parameters
    ----------
    columns : Columns
    levels : list of int
        Of each column.
    plan : PrivacyPlan
    phases : sequence of FitPhase
    statistics : callable
        Of a phase, records and a posterior, which are passed by name.
    """

    columns: Columns
    levels: Sequence[int]
    plan: PrivacyPlan
    phases: Sequence[FitPhase]
    statistics: Callable[..., ClassStatistics]

    def simulated(self, charts: Sequence[Simplexes], n_records: int, rng: np.random.Generator) -> np.ndarray:
        """Codes, NaN where they are missing. Classes are stratified."""
        shares, of_columns = charts[0].p[0], charts[1:]
        classes = _levels_at((np.arange(n_records) + rng.random()) / n_records, shares[None])
        cells = np.empty((n_records, len(self.levels)))
        for j, (missing, answers) in enumerate(zip(of_columns[::2], of_columns[1::2], strict=True)):
            cells[:, j] = _levels_at(rng.random(n_records), answers.p[classes])
            cells[rng.random(n_records) < missing.p[0, 1], j] = np.nan
        return cells

    def scores(self, records: np.ndarray, charts: Sequence[Simplexes]) -> np.ndarray:
        shares = self._shares_at(records, charts)
        scores = [charts[0].scores(shares[:, None, :])]
        for cells, missing, answers in zip(records.T, charts[1::2], charts[2::2], strict=True):
            is_missing = np.isnan(cells)
            scores.append(missing.scores(np.stack([~is_missing, is_missing], axis=-1)[:, None, :].astype(float)))
            is_level = cells[:, None] == np.arange(answers.p.shape[1])
            scores.append(answers.scores(shares[:, :, None] * is_level[:, None, :]))
        return np.hstack(scores)

    def seen(self, records: np.ndarray, steps: Sequence[ReleasedStep]) -> np.ndarray:
        phase = step_of(self.phases, steps[0].number)[0]
        shares = None
        for rows, numbers, weight in portions(len(records), len(steps)):
            for number in numbers:
                statistics = self.statistics(phase, records=records[rows], posterior=steps[number].posterior)
                weights = self.plan.clip_weights(statistics.norms(phase.blocks))
                if shares is None:
                    shares = np.zeros((len(records), statistics.shares.shape[1]))
                shares[rows] += weight * weights[:, None] * statistics.shares
        indicators = _indicators(self.columns.places(records), self.columns.width)
        cells = (shares[:, :, None] * indicators[:, None, :]).reshape(len(records), -1)
        return np.hstack([shares, cells])

    def _shares_at(self, records: np.ndarray, charts: Sequence[Simplexes]) -> np.ndarray:
        """Of the classes given each record, at the parameters."""
        shares, K = charts[0].p[0], charts[0].p.shape[1]
        answers = tuple(Dirichlet(_SURE * chart.p) for chart in charts[2::2])
        none = np.zeros((K, self.columns.n_means)), np.zeros(self.columns.n_marginals)
        posterior = ClassPosterior(Dirichlet(_SURE * shares), None, None, answers, self.columns.frame, *none, True)
        return inferred(self.columns.rows(records), self.columns.places(records), posterior.tables(self.columns)).shares


def match_of(model, simulator: ClassSimulator, class_prior: float, answer_prior: float) -> ChartMatch:
    """Classes whose records give the totals of a private fit; the first start is the fit's posterior.

    Raises
    ------
    NotImplementedError
        See :func:`totals_of`.
    """
    totals, posterior = totals_of(model), model.posterior_
    charts, rng = [Simplexes(_inside(posterior.weights.mean[None]), class_prior)], np.random.default_rng(0)
    for missing, answers in zip(_missing(totals, simulator.levels), posterior.answers, strict=True):
        charts += [Simplexes(np.array([[1.0 - missing, missing]]), 1.0), Simplexes(_inside(answers.mean), answer_prior)]
    return best_match(simulator, totals, charts, lambda: [_moved_apart(charts, rng) for _ in range(_N_STARTS)])


def matched_classes(match: ChartMatch, fitted: ClassPosterior) -> ClassPosterior:
    """Draws of shares and answers, the classes in the order of the fit.

    Raises
    ------
    NotImplementedError
        If the match is refused, or noise hides a class.
    """
    match.check()
    check_told(match, "classes")
    shares, *of_columns = match.draws()
    tables = [
        draws.reshape(len(draws), *chart.p.shape)
        for draws, chart in zip(of_columns[1::2], match.charts[2::2], strict=True)
    ]
    profiles = np.hstack([table.mean(axis=0) for table in tables])
    distances = np.sqrt(((np.sqrt(fitted.profiles)[:, None] - np.sqrt(profiles)) ** 2).sum(axis=-1))
    order = linear_sum_assignment(distances)[1]
    return replace(fitted, weights=Draws(shares[:, order]), answers=tuple(Draws(table[:, order]) for table in tables))


def _missing(totals: Totals, levels: Sequence[int]) -> np.ndarray:
    """About which share of each column's cells is missing, from the totals of the first step."""
    count, cells = (np.atleast_2d(total).sum(axis=0) for total in totals.groups[0][0].totals.values())
    answered = np.add.reduceat(cells, np.cumsum([0, *levels])[:-1])
    return np.clip(1.0 - answered / max(count.sum(), 1.0), 1e-3, 0.9)


def _inside(p: np.ndarray) -> np.ndarray:
    """Rows of probabilities none of which is 0: from there no move leads away."""
    p = np.maximum(p, _LEAST_SHARE)
    return p / p.sum(axis=-1, keepdims=True)


def _moved_apart(charts: Sequence[Simplexes], rng: np.random.Generator) -> list[Simplexes]:
    """Another start: classes of equal size around the tables of all."""
    shares = charts[0].p[0]
    apart = [Simplexes(np.full_like(charts[0].p, 1.0 / len(shares)), charts[0].concentration)]
    for missing, answers in zip(charts[1::2], charts[2::2], strict=True):
        p = shares @ answers.p * np.exp(_APART * rng.standard_normal(answers.p.shape))
        apart += [missing, Simplexes(p / p.sum(axis=1, keepdims=True), answers.concentration)]
    return apart


def _levels_at(draws: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The level of each uniform draw; p of shape (1 or n_draws, n_levels)."""
    return np.minimum((draws[:, None] >= np.cumsum(p, axis=1)).sum(axis=1), p.shape[1] - 1)


def _indicators(places: np.ndarray, width: int) -> np.ndarray:
    indicators = np.zeros((len(places), width))
    rows, columns = np.nonzero(places >= 0)
    indicators[rows, places[rows, columns]] = 1.0
    return indicators
