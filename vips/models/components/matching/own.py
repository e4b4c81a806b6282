"""A model of one's own that is matched: two methods more than those of a private fit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vips.core.units import is_group
from vips.expfam import Draws
from vips.model import ConjugateExponentialModel
from vips.models.components.matching.charts import Chart
from vips.models.components.matching.match import ChartMatch, best_match
from vips.models.components.matching.steps import StepSimulator, kept_steps, totals_of

__all__ = ["MatchedModel"]


class MatchedModel(ConjugateExponentialModel):
    """A model whose ``posterior_`` after a private fit is given that totals are noisy: draws of the parameters whose simulated
    records, clipped and seen as the steps of the fit saw the real ones, give the released totals.

    A subclass writes :meth:`charts` and :meth:`simulated` beside the methods of a
    :class:`~vips.ConjugateExponentialModel`; its records are rows.
    """

    @abstractmethod
    def charts(self, posterior) -> dict[str, Chart]:
        """The parameters at the mean of a posterior, by name, each as the chart in which it moves."""

    @abstractmethod
    def simulated(
        self, charts: Mapping[str, Chart], n_records: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Records of the model, and how their probability depends on the parameters.

        Parameters
        ----------
        charts : dict of str to Chart
            Parameters; as many numbers are drawn from ``rng`` whatever they are.
        n_records : int
        rng : Generator

        Returns
        -------
        records : ndarray of shape (n_records, n_features)
        scores : ndarray of shape (n_records, n_coordinates)
            What ``scores`` of the charts give, side by side: of the records, or of what was drawn with them.
        """

    def kept_steps(self, n_steps: int) -> Collection[int]:
        return kept_steps(self, n_steps)

    def to_match(self) -> ChartMatch:
        if is_group(self.privacy_.unit):
            raise NotImplementedError(
                "A record was all rows of a person, and such models clip them by the norm of their sum, which depends on how "
                "these are alike: there are no intervals."
            )
        charts = self.charts(self.last_posterior_)
        return best_match(_Simulator(self, tuple(charts)), totals_of(self), list(charts.values()))

    def to_noise_aware_posterior(self) -> dict[str, Draws]:
        """Draws of the parameters, by the names of their charts, in the shapes that they have in the last step's posterior."""
        match, last = self.match(), self.last_posterior_
        match.check()
        of_charts = zip(self.charts(last), match.best(), match.draws(), strict=True)
        draws = {key: draws for name, chart, of in of_charts for key, draws in chart.named(name, of).items()}
        means = {name: part.mean for name, part in last.items() if name in draws} if isinstance(last, Mapping) else {}
        return {
            name: Draws(of.draws.reshape(-1, *means[name].shape)) if name in means else of for name, of in draws.items()
        }


@dataclass(frozen=True)
class _Scored:
    """Simulated records with their scores: those given what was drawn with them, states say, have the same covariances with
    what is seen."""

    records: Any
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, places) -> Any:
        return self.records[places]


@dataclass(frozen=True)
class _Simulator(StepSimulator):
    """Records of a :class:`MatchedModel`."""

    names: Sequence[str]

    def simulated(self, charts: Sequence[Chart], n_records: int, rng: np.random.Generator) -> Any:
        return _Scored(*self.model.simulated(dict(zip(self.names, charts, strict=True)), n_records, rng))

    def scores(self, records: _Scored, charts: Sequence[Chart]) -> np.ndarray:
        return records.scores
