"""Latent classes as simulated records: what a match moves, and how the steps of a fit see them.

A cell is missing with a probability of its column, whatever the class: the released totals tell these probabilities, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.optimize import linear_sum_assignment

from vips.expfam import Dirichlet, Draws
from vips.models.components.columns import Columns
from vips.models.components.matching.charts import Simplexes
from vips.models.components.matching.match import Match, Totals, best_match, check_told
from vips.models.components.matching.simulator import levels_at
from vips.models.components.matching.steps import StepSimulator, totals_of
from vips.models.mixtures.posterior import ClassPosterior
from vips.models.mixtures.statistics import inferred

__all__ = ["ClassSimulator", "match_of", "matched_classes"]

_SURE = 1e6  # concentration of a posterior that stands for parameters


@dataclass(frozen=True)
class ClassSimulator(StepSimulator):
    """Records of classes, whose columns are categories.

    The charts are those of the classes' shares, then for each column whether a cell is missing and the answers.

    Parameters
    ----------
    columns : Columns
    levels : list of int
        Of each column.
    """

    columns: Columns
    levels: Sequence[int]

    def simulated(self, charts: Sequence[Simplexes], n_records: int, rng: np.random.Generator) -> np.ndarray:
        """Codes, NaN where they are missing. Classes are stratified."""
        shares, of_columns = charts[0].p[0], charts[1:]
        classes = levels_at((np.arange(n_records) + rng.random()) / n_records, shares[None])
        cells = np.empty((n_records, len(self.levels)))
        for j, (missing, answers) in enumerate(zip(of_columns[::2], of_columns[1::2], strict=True)):
            cells[:, j] = levels_at(rng.random(n_records), answers.p[classes])
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

    def _shares_at(self, records: np.ndarray, charts: Sequence[Simplexes]) -> np.ndarray:
        """Of the classes given each record, at the parameters."""
        shares, K = charts[0].p[0], charts[0].p.shape[1]
        answers = tuple(Dirichlet(_SURE * chart.p) for chart in charts[2::2])
        none = np.zeros((K, self.columns.n_means)), np.zeros(self.columns.n_marginals)
        posterior = ClassPosterior(Dirichlet(_SURE * shares), None, None, answers, self.columns.frame, *none, True)
        return inferred(self.columns.rows(records), self.columns.places(records), posterior.tables(self.columns)).shares


def match_of(model, simulator: ClassSimulator, class_prior: float, answer_prior: float) -> Match:
    """Classes whose records give the totals of a private fit; the first start is the fit's posterior.

    Raises
    ------
    NotImplementedError
        See :func:`totals_of`.
    """
    totals, posterior = totals_of(model), model.posterior_
    charts = [Simplexes.inside(posterior.weights.mean[None], class_prior)]
    for missing, answers in zip(_missing(totals, simulator.levels), posterior.answers, strict=True):
        charts += [Simplexes(np.array([[1.0 - missing, missing]]), 1.0), Simplexes.inside(answers.mean, answer_prior)]
    return best_match(simulator, totals, charts, partial(_moved_apart, charts))


def matched_classes(match: Match, fitted: ClassPosterior) -> ClassPosterior:
    """Draws of shares and answers, the classes in the order of the fit.

    Raises
    ------
    NotImplementedError
        If the match is refused, or noise hides a class.
    """
    match.check()
    shares, *of_columns = match.draws()
    check_told(shares, "classes")
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


def _moved_apart(charts: Sequence[Simplexes], rng: np.random.Generator) -> list[Simplexes]:
    """Another start: classes of equal size around the tables of all."""
    shares = charts[0].p[0]
    apart = [replace(charts[0], p=np.full_like(charts[0].p, 1.0 / len(shares)))]
    for missing, answers in zip(charts[1::2], charts[2::2], strict=True):
        apart += [missing, answers.moved_apart(shares, rng)]
    return apart
