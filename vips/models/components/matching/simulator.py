"""What a model says about itself to be matched, and moments of records that are simulated from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.optimize import lsq_linear
from scipy.special import pdtr, pdtrik

from vips.core.sums import ReleasedStep
from vips.models.components.matching.charts import Chart

__all__ = ["Moments", "SeenInPersons", "Simulator", "counts_at", "levels_at", "moments_of", "portions", "weights_in"]

_LEAST_RATIO = 0.02  # of κ
_LEAST_SPREAD = 1e-6  # of the scores in a direction, over the largest


class SeenInPersons(NamedTuple):
    """What simulated records give where a record may be all rows of a person: see ``persons.py``.

    Parameters
    ----------
    seen : ndarray of shape (n_records, n_totals)
        By the mean weights of all ways.
    of_ways : ndarray of shape (n_ways, n_totals)
        Sums over records by the weights of each way.
    factor : ndarray of shape (n_records,)
        By how much more such records may vary.
    """

    seen: np.ndarray
    of_ways: np.ndarray
    factor: np.ndarray


class Simulator(ABC):
    """Records of a model at given parameters, and how the steps of a fit see them."""

    sizes = (5_000, 20_000, 3_000)  # simulated records of the first moves, of the last ones, and of a trial
    at_once = 4_000  # simulated records
    doubtful = 1.0  # standard deviations of χ² above which other starts are tried

    @abstractmethod
    def simulated(self, charts: Sequence[Chart], n_records: int, rng: np.random.Generator) -> Any:
        """Records. As many draws of ``rng`` whatever the parameters, so that these move records a little."""

    @abstractmethod
    def scores(self, records, charts: Sequence[Chart]) -> np.ndarray:
        """Derivative of each record's log likelihood in the coordinates of the charts, shape (n_records, n_coordinates).

        Exact: the sum over records has mean 0, and covariances with it are derivatives (Fisher's identity).
        """

    @abstractmethod
    def seen(self, records, steps: Sequence[ReleasedStep]) -> np.ndarray:
        """Each record's clipped statistics, averaged over posteriors of these steps of one phase, shape (n_records, n_totals).

        Off the diagonal of a symmetric block, an entry stands once.
        """

    def seen_in_persons(self, records, steps: Sequence[ReleasedStep]) -> SeenInPersons:
        """The same of records that may be all rows of a person; by default they are not."""
        seen = self.seen(records, steps)
        return SeenInPersons(seen, seen.sum(axis=0)[None], np.ones(len(seen)))

    def moments(
        self, charts: Sequence[Chart], groups: Sequence[Sequence[ReleasedStep]], n_records: int, ratios=None
    ) -> Moments:
        """Moments of so many simulated records: :func:`moments_of`, if scores are known."""
        return moments_of(self, charts, groups, n_records, ratios)

    def shares(self, records, step: ReleasedStep) -> np.ndarray:
        """Each record's shares in the components of this step's posterior, shape (n_records, K); only for fits with weights."""
        raise NotImplementedError("This model has no components.")

    def components(self, charts: Sequence[Chart]) -> tuple[np.ndarray, Sequence[Chart]]:
        """Shares of the components, and the charts that say how these differ.

        Raises
        ------
        NotImplementedError
            Where there are none that could be fewer.
        """
        raise NotImplementedError("This model has no components that could be fewer.")

    def merged(self, charts: Sequence[Chart], into: np.ndarray) -> list[Chart]:
        """The charts of fewer components: component k becomes a part of component ``into[k]``."""
        raise NotImplementedError("This model has no components that could be fewer.")


@dataclass(frozen=True)
class Moments:
    """Moments of the statistics of one record.

    Parameters
    ----------
    mean : ndarray of shape (n_totals,)
    slopes : ndarray of shape (n_totals, n_coordinates)
        Of the mean, by the parameters.
    cov, second : ndarray of shape (n_totals, n_totals)
        Covariance, and second moments; each record's by its κ, in a fit with weights.
    unexplained : ndarray of shape (n_totals, n_totals)
        What scores do not explain of the covariance: the error of the simulated mean is from it.
    apart : ndarray of shape (n_totals, n_totals)
        Of the mean, where it is not known how rows of a person are alike: each way is one deviation from it.
    n_records : int
        That were simulated.
    """

    mean: np.ndarray
    slopes: np.ndarray
    cov: np.ndarray
    second: np.ndarray
    unexplained: np.ndarray
    apart: np.ndarray
    n_records: int


def moments_of(
    simulator: Simulator,
    charts: Sequence[Chart],
    groups: Sequence[Sequence[ReleasedStep]],
    n_records: int,
    ratios: np.ndarray | None = None,
) -> Moments:
    """By simulation with fixed seeds. Scores, whose mean is known to be 0, are control variates of the mean."""
    n_scores, shift, sums, products = sum(chart.size for chart in charts), 0.0, 0.0, 0.0
    of_ways, weighed = 0.0, 0.0
    for number, start in enumerate(range(0, n_records, simulator.at_once)):
        n = min(simulator.at_once, n_records - start)
        records = simulator.simulated(charts, n, np.random.default_rng([0, number]))
        seen, ways, factors = zip(*(simulator.seen_in_persons(records, steps) for steps in groups), strict=True)
        both, factor = np.hstack([simulator.scores(records, charts), *seen]), np.max(factors, axis=0)
        of_ways += np.hstack(ways) / n_records
        if number == 0:  # so that products of large numbers do not cancel
            shift = both.mean(axis=0)
        both -= shift
        sums += both.sum(axis=0)
        products += dsyrk(1.0, both.T)  # the upper triangle
        if ratios is not None:
            shares = simulator.shares(records, groups[-1][-1])
            ratios = _unmixed(ratios, shares) if number == 0 else ratios
            factor = shares @ ratios
        if ratios is not None or len(of_ways) > 1:
            rows = np.sqrt(factor)[:, None] * np.hstack([both[:, n_scores:], np.ones((n, 1))])
            weighed += rows.T @ rows / n_records
    mean = sums / n_records
    spread = (np.triu(products) + np.triu(products, 1).T) / n_records - np.outer(mean, mean)
    (of_scores, slopes), (_, cov) = (np.split(rows, [n_scores], axis=1) for rows in np.split(spread, [n_scores]))
    sizes, directions = np.linalg.eigh(of_scores)
    used = sizes > _LEAST_SPREAD * sizes[-1]
    inverse = directions[:, used] / (sizes[used] + 2.0 * sizes[-1] / n_records) @ directions[:, used].T
    slopes = slopes.T
    weights = slopes @ inverse
    explained = weights @ slopes.T
    unexplained = cov - explained - explained.T + weights @ of_scores @ weights.T
    of_scores_mean, of_seen = np.split(mean + shift, [n_scores])
    of_seen = of_seen - weights @ of_scores_mean
    second = cov + np.outer(of_seen, of_seen)
    if ratios is not None or len(of_ways) > 1:
        cov, second = _about(weighed, mean[n_scores:]), _about(weighed, -shift[n_scores:])
    from_mean = of_ways - of_ways.mean(axis=0)
    apart = (1.0 - 1.0 / len(of_ways)) * from_mean.T @ from_mean
    return Moments(of_seen, slopes, cov, second, unexplained, apart, n_records)


def _unmixed(ratios: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """κ of the components. The ratios are averages over records with shares in several: ratio_k E r_k = E r_k Σ_l r_l κ_l."""
    return lsq_linear(shares.T @ shares, shares.sum(axis=0) * ratios, (_LEAST_RATIO, 1.0)).x


def _about(products: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Second moments about this place, from those of values beside a 1, all by the same weights."""
    moved = np.hstack([np.eye(len(place)), -place[:, None]])
    return moved @ products @ moved.T


def portions(n_records: int, n_steps: int, most_seen: int) -> list[tuple[np.ndarray, list[int], float]]:
    """Which records see which of a group's posteriors, and the weight of each: a record sees up to ``most_seen``, or more where
    there are too few records for all posteriors.

    Averages over all records of what they have seen, with these weights, are averages over all posteriors.
    """
    n, turns = min(-(-n_steps // most_seen), n_records), np.arange(n_records) % n_steps
    rows = [np.flatnonzero(turns % n == i) for i in range(n)]
    return [(rows[i], list(range(i, n_steps, n)), n_records / (n_steps * len(rows[i]))) for i in range(n)]


def weights_in(into: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares of merged components, and the weights of the others in each, shape (n, K)."""
    weights = np.where(into == np.arange(into.max() + 1)[:, None], shares, 0.0)
    sums = weights.sum(axis=1)
    return sums, weights / sums[:, None]


def levels_at(draws: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The level of each uniform draw; p of the shape of the draws, or a shape that broadcasts to it, and (n_levels,)."""
    return np.minimum((draws[..., None] >= np.cumsum(p, axis=-1)).sum(axis=-1), p.shape[-1] - 1)


def counts_at(draws: np.ndarray, rates: np.ndarray, members: np.ndarray) -> np.ndarray:
    """The Poisson count of each uniform draw, as floats: the least x with P(count ≤ x) ≥ draw.

    Parameters
    ----------
    draws : ndarray of shape (n, d)
    rates : ndarray of shape (K, d)
    members : ndarray of shape (n,)
        The row of rates of each.
    """
    counts = np.empty_like(draws)
    for k, row in enumerate(rates):
        of_row = np.flatnonzero(members == k)
        for j, rate in enumerate(row if len(of_row) else ()):
            u = draws[of_row, j]
            first, last = np.nan_to_num(pdtrik([u.min(), u.max()], rate))
            possible = np.arange(max(np.floor(first) - 2.0, 0.0), last + 2.0)
            counts[of_row, j] = possible[np.searchsorted(pdtr(possible[:-1], rate), u)]
    return counts
