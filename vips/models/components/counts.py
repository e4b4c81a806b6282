"""Columns of counts: Poisson with a rate for each component, and a Gamma prior of the rates.

    x_j | k ~ Poisson(λ_kj),   λ_kj ~ Gamma(shape, rate)        x_j = c_j + s_j y_j

    T(x) = (m, y)        m_j = 1 and y_j = 0 where x_j is missing, else m_j = 0

A count above ``max_count`` becomes ``max_count``: it still says that the rate is large. (Left out as a missing cell, it would
make the components that have large counts look as if they had none.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Self

import numpy as np
from scipy.special import gammaln, pdtr

from vips.core.exact.rowwise import row_dots
from vips.expfam import Gamma
from vips.models.components.bins import Bins, bins_of_counts, missing_counts, shrunken_means
from vips.models.components.component import SURE, Frame, Kind, Named
from vips.models.components.matching.charts import Rates
from vips.models.components.matching.simulator import counts_at
from vips.parts import Part, indexed

__all__ = ["Counts"]

_BINS = 32  # of a column
_LEAST = 1e-12  # of shape and rate of a posterior, which EM without records would leave at 0
_LARGEST_RATE = 1e15
_LEAST_RATE = 1e-3  # of a private component, as a share of the mean of all


@dataclass(frozen=True)
class Counts(Kind):
    """Columns of counts.

    Parameters
    ----------
    max_count : tuple of int
        Of each column; public.
    shape, rate : float
        Of the Gamma prior; 0 and 0 for EM.
    by_mean : bool
        Whether ``shape`` is in units of the mean of all records, once a frame says it.
    limit : float
        Counts more than so many standard deviations above the mean of all records become that large in T.
    frame : Frame, optional
        c and s: mean and standard deviation of all records. None: 0, and the root of the half of ``max_count``.
    own_bins : Bins, optional
        None: at most 32 of each column.
    """

    max_count: tuple[int, ...]
    shape: float = 1.0
    rate: float | np.ndarray = 1.0
    limit: float = np.inf
    frame: Frame | None = None
    own_bins: Bins | None = None
    by_mean: bool = False

    kind, words, cell = "counts", "counts", "count"

    @classmethod
    def declared(cls, name: object, value: object) -> range | None:
        """The range of the counts."""
        if not isinstance(value, range):
            return None
        if value.start != 0 or value.step != 1 or len(value) < 2:
            raise ValueError(
                f"Column {name!r} is declared as {value!r}: write range(n), n ≥ 2, for counts up to n - 1."
            )
        return value

    def ends(self, declared: Sequence) -> list[tuple[str, float, float, float]]:
        return [("below", declared[-1], 0, 0.01)]

    @classmethod
    def of(cls, declared: Sequence[Sequence], prior: float, limit: float) -> Self:
        return cls(tuple(counts[-1] for counts in declared), prior, prior, limit, by_mean=True)

    @classmethod
    def reads(cls, values: np.ndarray, declared: Sequence) -> np.ndarray:
        return (values >= 0) & (values == np.floor(values)) & (values < np.inf)

    @classmethod
    def typical(
        cls, declared: Sequence, members: np.ndarray, n_components: int, rng: np.random.Generator
    ) -> np.ndarray:
        largest = declared[-1]
        return np.minimum(rng.poisson(rng.uniform(0.1, 0.5, n_components)[members] * largest), largest)

    @property
    def largest_squares(self) -> float:
        return self.n_columns * np.square(self.limit)

    @property
    def usual_squares(self) -> float:
        return float(self.n_columns)

    @property
    def n_columns(self) -> int:
        return len(self.max_count)

    n_free = n_columns

    @property
    def width(self) -> int:
        return 2 * len(self.max_count)

    @cached_property
    def bins(self) -> Bins:
        return self.own_bins or bins_of_counts(self.max_count, _BINS)

    def cells(self, values: np.ndarray) -> np.ndarray:
        cells = np.array(values, np.float64, order="C")
        cells[~self.reads(cells, ())] = np.nan
        return np.minimum(cells, np.array(self.max_count, np.float64))

    def statistics(self, cells: np.ndarray) -> np.ndarray:
        is_missing, frame = np.isnan(cells), self.coordinates
        y = np.minimum((cells - frame.centre) / frame.scale, self.limit)
        return np.hstack([is_missing, np.where(is_missing, 0.0, y)])

    def log_base(self, cells: np.ndarray) -> np.ndarray:
        logs = np.where(np.isnan(cells), 0.0, -gammaln(cells + 1.0))
        return row_dots(logs, np.ones_like(logs))

    def natural(self, posterior: Gamma, plug_in: bool) -> np.ndarray:
        frame = self.coordinates
        logs = np.log(posterior.mean) if plug_in else posterior.expected_log
        of_seen = frame.centre * logs - posterior.mean
        return np.hstack([of_seen.sum(axis=1)[:, None], -of_seen, frame.scale * logs])

    def posterior(self, totals: np.ndarray) -> Gamma:
        size, missing, total = self._split(totals)
        frame, seen = self.coordinates, np.maximum(size - missing, 0.0)
        counts = np.maximum(frame.centre * seen + frame.scale * total, 0.0)
        return Gamma(np.maximum(self._shape + counts, _LEAST), np.maximum(self.rate + seen, _LEAST))

    @classmethod
    def posterior_of(cls, arrays: dict[str, np.ndarray]) -> Gamma:
        rates = Gamma.from_arrays(arrays)
        with np.errstate(over="ignore"):
            is_moderate = max(rates.shape.max(initial=0.0), rates.mean.max(initial=0.0)) < _LARGEST_RATE
        if not is_moderate:
            raise ValueError("the posterior's rates are no moderate numbers")
        return rates

    def denoised(self, totals: np.ndarray, noise_std: np.ndarray) -> np.ndarray:
        (size, missing, total), (_, missing_std, std) = self._split(totals), self._split(noise_std)
        missing = missing_counts(size, missing, missing_std)
        seen = size - missing
        return self._totals(seen, missing, shrunken_means(total, seen, std))

    def begun(self, size: float, marginals: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        return self._totals(np.full((len(offsets), 1), size / len(offsets)), np.zeros_like(offsets), offsets)

    def chances(self, posterior: Gamma) -> np.ndarray:
        return self.in_bins(posterior.mean)

    def divergence(self, posterior: Gamma) -> float:
        return float(np.sum(posterior.kl(Gamma(self._shape, self.rate))))

    # -- in bins ----------------------------------------------------------------------------------------------------

    def in_bins(self, rates: np.ndarray) -> np.ndarray:
        """Under rates; the last bin is open above."""
        return np.hstack([np.diff(self._below(rates, j, 0), axis=1) for j in range(self.n_columns)])

    def values_of_bins(self, counts: np.ndarray, rates: np.ndarray) -> np.ndarray:
        following = np.empty_like(rates)
        for j, (a, b) in enumerate(pairwise(self.bins.starts)):
            # x p(x) = λ p(x - 1): the mean in a bin is λ times its probability one lower, over its probability
            inside = np.maximum(np.diff(self._below(rates, j, 0), axis=1), _LEAST)
            means = rates[:, j, None] * np.diff(self._below(rates, j, 1), axis=1) / inside
            following[:, j] = (counts[:, a:b] * means).sum(axis=1) / np.maximum(counts[:, a:b].sum(axis=1), _LEAST)
        return np.clip(following, _LEAST_RATE, self.max_count)

    def some_values(self, marginals: np.ndarray, n_components: int, rng: np.random.Generator) -> np.ndarray:
        """Rates, each drawn from the marginals."""
        rates = np.empty((n_components, self.n_columns))
        for j, (a, b) in enumerate(pairwise(self.bins.starts)):
            chances = marginals[a:b] + _LEAST
            rates[:, j] = rng.choice(self.bins.middles(j), n_components, p=chances / chances.sum())
        return np.clip(rates + rng.random(rates.shape), _LEAST_RATE, self.max_count)

    def totals_of_values(self, size: np.ndarray, values: np.ndarray) -> np.ndarray:
        frame = self.coordinates
        return np.hstack([size, np.zeros_like(values), size * (values - frame.centre) / frame.scale])

    def _below(self, rates: np.ndarray, j: int, shift: int) -> np.ndarray:
        """P(x + ``shift`` < edge) at each edge of the bins of column j, shape (K, n_edges)."""
        inner = self.bins.edges[j][1:-1] - 1.0 - shift
        below = np.zeros((len(rates), len(inner) + 2))
        below[:, 1:-1] = np.where(inner >= 0.0, pdtr(np.maximum(inner, 0.0), rates[:, j, None]), 0.0)
        below[:, -1] = 1.0
        return below

    # -- for people -------------------------------------------------------------------------------------------------

    def features(self, posterior: Gamma) -> np.ndarray:
        """Roots of rates, on whose scale counts vary alike."""
        return np.sqrt(posterior.mean)

    def parts(self, posterior: Gamma, columns: Sequence[Named], component: str) -> list[Part]:
        return [Part("rates", posterior, partial(indexed, "rate"), [name for name, _ in columns])]

    def shown(self, posterior: Gamma, columns: Sequence[Named]) -> tuple[np.ndarray, list[str]]:
        """Means."""
        return posterior.mean, [name for name, _ in columns]

    def limits(self, posterior: Gamma, level: float) -> tuple[np.ndarray, np.ndarray]:
        return posterior.interval(level)

    # -- to be matched ----------------------------------------------------------------------------------------------

    def charts(self, posterior: Gamma) -> list[Rates]:
        return [Rates(np.maximum(posterior.mean, _LEAST_RATE), self._shape, self.rate)]

    def simulated(self, charts: Sequence[Rates], members: np.ndarray, draws: np.ndarray) -> np.ndarray:
        return counts_at(draws, charts[0].rates, members)

    def scores(self, charts: Sequence[Rates], values: np.ndarray, shares: np.ndarray) -> np.ndarray:
        cells = (np.nan_to_num(values), ~np.isnan(values))
        return charts[0].scores(*(shares[:, :, None] * of_cells[:, None] for of_cells in cells))

    def sure_of(self, charts: Sequence[Rates]) -> Gamma:
        return Gamma(SURE * charts[0].rates, np.full_like(charts[0].rates, SURE))

    def of_draws(self, charts, draws, order: np.ndarray) -> Gamma:
        rates = draws[0].reshape(-1, *charts[0].rates.shape)[:, order]
        rate = rates.mean(axis=0) / rates.var(axis=0)
        return Gamma(rate * rates.mean(axis=0), rate)

    # -- helpers ----------------------------------------------------------------------------------------------------

    @cached_property
    def coordinates(self) -> Frame:
        """``frame``, or public coordinates where there is none."""
        largest = np.array(self.max_count, np.float64)
        return self.frame or Frame(np.zeros_like(largest), np.sqrt(np.maximum(0.5 * largest, 1.0)))

    @cached_property
    def _shape(self) -> float | np.ndarray:
        """Shape of the prior."""
        return self.shape * self.frame.centre if self.by_mean and self.frame is not None else self.shape

    def _split(self, totals: np.ndarray) -> tuple[np.ndarray, ...]:
        """Counts, of missing cells, and of y."""
        return np.split(totals, [1, 1 + self.n_columns], axis=1)

    def _totals(self, seen: np.ndarray, missing: np.ndarray, means: np.ndarray) -> np.ndarray:
        """Totals of components with these means of y, whose rates are as large as rates can be at least and at most."""
        frame = self.coordinates
        least = _LEAST_RATE * np.maximum(frame.centre, _LEAST_RATE)
        rates = np.clip(frame.centre + frame.scale * means, least, self.max_count)
        means = (rates - frame.centre) / frame.scale
        return np.hstack([(seen + missing)[:, :1], missing, seen * means])
