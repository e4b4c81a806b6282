"""A model of one's own that is matched: one method more than those of a private fit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vips.core.units import is_group
from vips.expfam import DiagonalGaussian, Dirichlet, Draws, Gamma, Gaussian
from vips.model import ConjugateExponentialModel
from vips.models.components.matching.charts import Chart, Rates, Reals, Simplexes
from vips.models.components.matching.coupled import CoupledGenerator
from vips.models.components.matching.match import ChartMatch, best_match
from vips.models.components.matching.simulator import Moments, moments_of
from vips.models.components.matching.steps import StepSimulator, kept_steps, totals_of

__all__ = ["MatchedModel"]

_MOST = 100  # coordinates: each is a simulation
_MOVE = 0.1  # by which a coordinate moves to see how totals change
_PER_MEAN = 8  # simulated records of the mean, for each of a change: no scores make the mean more exact
_N_PILOT = 4_000  # simulated records that tell a scale
_LEAST_LEFT = 0.02  # of the variance of a simulated mean
_CHANGE, _MOST_HALVINGS = 0.3, 60  # deviations of a total between both sides of a coordinate, at most


class MatchedModel(ConjugateExponentialModel):
    """A model whose ``posterior_`` after a private fit is given that totals are noisy: draws of the parameters whose simulated
    records, clipped and seen as the steps of the fit saw the real ones, give the released totals.

    A subclass writes :meth:`simulated` beside the methods of a :class:`~vips.ConjugateExponentialModel`. Its records are rows,
    and its posterior is a ``Dirichlet``, ``Gamma`` or ``Gaussian`` of ``vips.expfam``, or a dict of these. The prior of a match
    is what ``to_posterior`` makes of totals that are all 0.
    """

    @abstractmethod
    def simulated(self, parameters, n_records: int, rng: np.random.Generator) -> np.ndarray:
        """Records at given parameters, as ``fit`` takes them.

        Parameters
        ----------
        parameters : ndarray or dict of str to ndarray
            In the shapes of the posterior's means.
        n_records : int
        rng : Generator
            All that is random comes from it, best in as many draws whatever the parameters: then few records tell how totals
            change with them. Draws of one call are stratified.

        Returns
        -------
        ndarray of shape (n_records, n_features), or (n_records,) of a single feature
        """

    def kept_steps(self, n_steps: int) -> Collection[int]:
        return kept_steps(self, n_steps)

    def to_match(self) -> ChartMatch:
        if is_group(self.privacy_.unit):
            raise NotImplementedError(
                "A record was all rows of a person, and such models clip them by the norm of their sum, which depends on how "
                "these are alike: there are no intervals."
            )
        charts = self._charts()
        n_coordinates = sum(chart.size for chart in charts)
        if n_coordinates > _MOST:
            raise NotImplementedError(
                f"The posterior has {n_coordinates} parameters, and each takes a simulation: there are intervals of at most "
                f"{_MOST}."
            )
        simulator, totals = _Simulator(self), totals_of(self)
        return best_match(simulator, totals, simulator.in_scale(charts, totals.groups))

    def to_noise_aware_posterior(self) -> Draws | dict[str, Draws]:
        """Draws of the parameters, in the shapes and under the names of the last step's posterior."""
        match, last = self.match(), self.last_posterior_
        match.check()
        of_charts = (best.named("", of)[""] for best, of in zip(match.best(), match.draws(), strict=True))
        shapes = (part.mean.shape for part in _parts(last).values())
        draws = (
            Draws(of.draws.reshape(-1, *shape), of.mean.reshape(shape))
            for of, shape in zip(of_charts, shapes, strict=True)
        )
        return _as_posterior(last, draws)

    def _charts(self) -> list[Chart]:
        last = self.last_posterior_
        nothing = {name: np.zeros(block.shape) for name, block in self.blocks().items()}
        try:
            with np.errstate(all="ignore"):
                prior = self.to_posterior(nothing, dict.fromkeys(nothing, 0.0), last)
        except (ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
            raise NotImplementedError(
                f"`to_posterior` makes no prior of totals that are 0, which a match needs: {error}"
            ) from error
        priors = _parts(prior)
        return [_chart_of(part, priors[name], name or "posterior") for name, part in _parts(last).items()]


def _parts(posterior) -> dict[str, Any]:
    """Distributions of a posterior by name; a single one has no name."""
    return dict(posterior) if isinstance(posterior, Mapping) else {"": posterior}


def _as_posterior(posterior, values: Iterable[Any]) -> Any:
    """One of these values for each part of a posterior: a dict, or a single one, as the posterior is."""
    named = dict(zip(_parts(posterior), values, strict=True))
    return named if isinstance(posterior, Mapping) else named[""]


def _chart_of(part, prior, name: str) -> Chart:
    if isinstance(part, Dirichlet):
        n_levels = part.mean.shape[-1]
        return Simplexes.inside(part.mean.reshape(-1, n_levels), float(prior.concentration.mean()))
    if isinstance(part, Gamma):
        shape, rate = (np.broadcast_to(of, part.mean.shape).reshape(1, -1) for of in (prior.shape, prior.rate))
        return Rates(part.mean.reshape(1, -1), shape, rate)
    if isinstance(part, Gaussian | DiagonalGaussian):
        std = np.sqrt(prior.var).ravel()
        return Reals(part.mean.ravel(), std, prior.mean.ravel(), std)
    raise NotImplementedError(
        f"The posterior's part {name!r} is a {type(part).__name__}: there are intervals where each part is a Dirichlet, a "
        "Gamma or a Gaussian of vips.expfam."
    )


@dataclass(frozen=True)
class _Simulator(StepSimulator):
    """Records of a :class:`MatchedModel`: what changes their totals is found by moving each coordinate, with the same draws."""

    sizes = 4_000, 12_000, 4_000
    at_once = 2_000

    def simulated(self, charts: Sequence[Chart], n_records: int, rng: np.random.Generator) -> np.ndarray:
        last = self.model.last_posterior_
        values = (chart.draws(np.zeros((1, chart.size)))[0] for chart in charts)  # after no move
        parts = zip(values, _parts(last).values(), strict=True)
        parameters = _as_posterior(last, (value.reshape(part.mean.shape) for value, part in parts))
        records = self.model.simulated(parameters, n_records, CoupledGenerator(rng.integers(2**63)))
        records = np.asarray(records, dtype=np.float64)
        if records.shape not in ((n_records,), (n_records, self.model.n_features_in_)):
            raise ValueError(
                f"`simulated` must return {n_records:,} records of {self.model.n_features_in_} numbers, not the shape "
                f"{records.shape}."
            )
        return records.reshape(n_records, -1)

    def scores(self, records: np.ndarray, charts: Sequence[Chart]) -> np.ndarray:
        return np.zeros((len(records), sum(chart.size for chart in charts)))  # not known

    def moments(self, charts: Sequence[Chart], groups, n_records: int, ratios=None) -> Moments:
        at = moments_of(self, charts, groups, _PER_MEAN * n_records, ratios)
        slopes = [self._change(charts, place, groups, n_records) / (2.0 * _MOVE) for place in self._coordinates(charts)]
        spread = self._means(charts, groups, n_records).var(axis=0, ddof=1) * self.at_once
        left = np.clip((spread / (np.diagonal(at.cov) + 1e-300)).max(), _LEAST_LEFT, 1.0)  # by stratified draws
        return replace(at, slopes=np.stack(slopes, axis=1), unexplained=left * at.unexplained)

    def in_scale(self, charts: Sequence[Chart], groups) -> list[Chart]:
        """Charts of real numbers in whose unit totals change by about their deviation: that of a prior may be far wider."""
        charts = list(charts)
        places = [place for place in self._coordinates(charts) if isinstance(charts[place[0]], Reals)]
        std = np.sqrt(np.diagonal(moments_of(self, charts, groups, _N_PILOT).cov)) + 1e-300 if places else 1.0
        for number, coordinate in places:
            for _ in range(_MOST_HALVINGS):
                if (np.abs(self._change(charts, (number, coordinate), groups, _N_PILOT)) / std).max() < _CHANGE:
                    break
                charts[number] = charts[number].narrower(coordinate)
        return charts

    def _coordinates(self, charts: Sequence[Chart]) -> list[tuple[int, int]]:
        return [(number, coordinate) for number, chart in enumerate(charts) for coordinate in range(chart.size)]

    def _change(self, charts: Sequence[Chart], place: tuple[int, int], groups, n_records: int) -> np.ndarray:
        """By how much the mean of what is seen changes from one side of a coordinate to the other."""
        number, coordinate = place
        step = _MOVE * np.eye(charts[number].size)[coordinate]
        below, above = (
            [*charts[:number], charts[number].moved(side * step), *charts[number + 1 :]] for side in (-1.0, 1.0)
        )
        return np.subtract(*(self._means(of, groups, n_records).mean(axis=0) for of in (above, below)))

    def _means(self, charts: Sequence[Chart], groups, n_records: int) -> np.ndarray:
        """Means of what is seen in portions of simulated records, at least two, shape (n_portions, n_totals)."""
        means = []
        for number in range(max(round(n_records / self.at_once), 2)):
            records = self.simulated(charts, self.at_once, np.random.default_rng([1, number]))
            means.append(np.hstack([self.seen(records, steps).mean(axis=0) for steps in groups]))
        return np.stack(means)
