"""What mixtures have in common: which component a record is from, how probable it is, and how records are simulated."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from sklearn.base import DensityMixin

from vips.core.contract import weighs_records
from vips.core.plan import PrivacyPlan
from vips.core.sums import Block, RecordStatistics
from vips.model import ConjugateExponentialModel
from vips.models._variance_ratios import SQUARES, SQUARES_SCALE, CountedSquares
from vips.models.components.matching.charts import Chart, Simplexes
from vips.models.components.matching.match import ChartMatch, Match, best_match
from vips.models.components.matching.simulator import levels_at, weights_in
from vips.models.components.matching.steps import StepSimulator, kept_steps, totals_of
from vips.parts import Score, average

__all__ = ["Mixture", "MixtureSimulator", "block_of_squares", "information_criterion", "with_squares"]


class Mixture(DensityMixin, ConjugateExponentialModel):
    """Base of models whose statistics hold ``shares`` and ``log_likelihood``, and whose posteriors can be put ``in_order``."""

    unit = "one row of X"
    name_of_score: str  # of a record, for comparisons
    name_of_components = "components"
    ignores_labels = True
    planned_steps = 60
    tolerance = 1e-3
    _unlisted = ("name_of_components", "simulator")

    @abstractmethod
    def _inferred(self, X):
        """Statistics of new records at the posterior, with ``shares`` and ``log_likelihood``."""

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """Full-batch steps until the components have settled, at most 500."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=500)

    def kept_steps(self, n_steps: int) -> Collection[int]:
        return kept_steps(self, n_steps)

    @abstractmethod
    def simulator(self) -> MixtureSimulator:
        """Simulator of records like those of a private fit."""

    def to_match(self) -> Match:
        return self.simulator().match()

    def predict(self, X) -> np.ndarray:
        """The most probable component of each record, shape (n_records,)."""
        return self.predict_proba(X).argmax(axis=1)

    def predict_proba(self, X) -> np.ndarray:
        """Probabilities of the components given each record, shape (n_records, n_components)."""
        return self._inferred(X).shares

    def score_samples(self, X) -> np.ndarray:
        """Log probability (or density) of each record, in nats, shape (n_records,)."""
        return self._inferred(X).log_likelihood

    def score(self, X, y=None) -> float:
        """Mean of :meth:`score_samples`."""
        return float(self.score_samples(X).mean())

    def bic(self, X) -> float:
        """Bayesian information criterion of an ordinary fit on its records, as in scikit-learn: smaller is better."""
        scores = self.score_samples(X)
        return information_criterion(self, scores, self._n_free(), len(scores))

    @abstractmethod
    def _n_free(self) -> int:
        """Number of free parameters."""

    def predictions(self, X) -> np.ndarray:
        """Log probability of each record, for comparisons."""
        return self.score_samples(X)

    def held_out_scores(self, X, y=None) -> list[Score]:
        """Log probability per record."""
        scores = self.score_samples(X)
        return [Score(f"{self.name_of_score} per record (higher is better)", lambda counts: average(counts, scores))]

    def in_order(self, posterior, order: np.ndarray):
        """The same components in another order; a dict holds draws."""
        if isinstance(posterior, Mapping):
            return {name: part.taken(order) for name, part in posterior.items()}
        return posterior.in_order(order)


def block_of_squares(model: Mixture) -> dict[str, Block]:
    """A block of a private fit with weights: counts of the components by squared weights."""
    return {SQUARES: Block((model.n_components,), scale=SQUARES_SCALE)} if weighs_records(model) else {}


def with_squares(model: Mixture, statistics: RecordStatistics) -> RecordStatistics:
    """Statistics with that block, if there is one."""
    return CountedSquares(statistics) if weighs_records(model) else statistics


@dataclass(frozen=True)
class MixtureSimulator(StepSimulator):
    """Records of a mixture. The first chart is that of the components' shares, the last ones are of what is seen in each."""

    first_of_seen: ClassVar[int] = 1

    @abstractmethod
    def charts(self) -> list[Chart]:
        """Those of the fit's posterior."""

    def match(self) -> ChartMatch:
        """Components whose records give the totals of a private fit; the first start is the fit's posterior.

        Raises
        ------
        NotImplementedError
            See :func:`totals_of`.
        """
        charts = self.charts()
        return best_match(self, totals_of(self.model), charts, partial(self._moved_apart, charts))

    def members(self, shares: Simplexes, n_records: int, rng: np.random.Generator) -> np.ndarray:
        """The component of each record. They are stratified."""
        return levels_at((np.arange(n_records) + rng.random()) / n_records, shares.p)

    def components(self, charts: Sequence[Chart]) -> tuple[np.ndarray, Sequence[Chart]]:
        return charts[0].p[0], charts[self.first_of_seen :]

    def merged(self, charts: Sequence[Chart], into: np.ndarray) -> list[Chart]:
        p, weights = weights_in(into, charts[0].p[0])
        seen = [chart.merged(weights) for chart in charts[self.first_of_seen :]]
        return [replace(charts[0], p=p[None]), *charts[1 : self.first_of_seen], *seen]

    def _moved_apart(self, charts: Sequence[Chart], rng: np.random.Generator) -> list[Chart]:
        """Another start: components of equal size at random places among all records."""
        p = charts[0].p
        seen = [chart.moved_apart(p[0], rng) for chart in charts[self.first_of_seen :]]
        return [replace(charts[0], p=np.full_like(p, 1.0 / p.size)), *charts[1 : self.first_of_seen], *seen]


def information_criterion(model, log_likelihoods: np.ndarray, n_free: int, n: int) -> float:
    """-2 log likelihood + log n · free parameters, of an ordinary fit.

    Raises
    ------
    NotImplementedError
        For a private fit, whose likelihood is not the largest.
    """
    if hasattr(model, "noisy_totals_"):
        raise NotImplementedError(
            "A private fit does not maximise its likelihood: vips.how_many(model) counts components."
        )
    return float(np.log(n) * n_free - 2.0 * log_likelihoods.sum())
