"""Columns of durations, as a newcomer would add them: a kind in a file of its own.

x_j | k ~ Weibull with the public shape s and E[x_j^s] = m_kj,   1/m_kj ~ Gamma(κ₀, κ₀ m̄_j)       z = x^s is exponential

T(x) = (missing, y)      z = c + t y: mean and deviation of all records, m̄ = c
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy.special import gammaln

from vips.expfam import Gamma
from vips.models.components.bins import Bins, bins_of_numbers, missing_counts, shrunken_means
from vips.models.components.component import SURE, Frame, Kind
from vips.models.components.matching.charts import Rates
from vips.parts import Part, indexed

__all__ = ["Durations", "duration"]

LEAST = 1e-9


@dataclass(frozen=True)
class duration:
    """A duration of at most ``largest``, whose Weibull has this shape."""

    largest: float
    shape: float = 1.0


@dataclass(frozen=True)
class Durations(Kind):
    """Durations up to public bounds; longer ones count as the bound."""

    largest: tuple[float, ...]
    shape: tuple[float, ...]
    prior: float = 1.0
    limit: float = np.inf
    frame: Frame | None = None
    own_bins: Bins | None = None

    kind, words, cell = "durations", "durations", "duration"

    @classmethod
    def declared(cls, name, value):
        return (value.largest, value.shape) if isinstance(value, duration) else None

    @classmethod
    def of(cls, declared, prior, limit):
        return cls(*zip(*declared, strict=True), prior, limit)

    @classmethod
    def reads(cls, values, declared):
        return (values >= 0.0) & (values < np.inf)

    @classmethod
    def typical(cls, declared, members, n_components, rng):
        largest, shape = declared
        return np.minimum(
            largest * rng.uniform(0.1, 0.5, n_components)[members] * rng.weibull(shape, len(members)), largest
        )

    @property
    def n_columns(self):
        return len(self.largest)

    @property
    def width(self):
        return 2 * self.n_columns

    @property
    def n_free(self):
        return self.n_columns

    @property
    def n_values(self):
        return self.n_columns

    @property
    def largest_squares(self):
        return self.n_columns * self.limit**2

    @property
    def usual_squares(self):
        return float(self.n_columns)

    @cached_property
    def bins(self):
        return self.own_bins or bins_of_numbers(np.zeros(self.n_columns), self.largest, 32)

    @cached_property
    def coordinates(self):
        half = np.power(self.largest, self.shape) / 4.0
        return self.frame or Frame(half, half)

    def framed(self, marginals):
        edges = tuple(edges**shape for edges, shape in zip(self.bins.edges, self.shape, strict=True))
        centre, variance = Bins(edges, self.bins.step).moments(marginals)
        return self.at(Frame(centre, np.sqrt(variance)))

    def framed_by(self, cells, weights):
        return self.at(Frame.of(cells**self.shape, weights, self.coordinates))

    def cells(self, values):
        cells = np.array(values, np.float64, order="C")
        cells[~self.reads(cells, ())] = np.nan
        return np.minimum(cells, self.largest)

    def statistics(self, cells):
        y = np.minimum((cells**self.shape - self.coordinates.centre) / self.coordinates.scale, self.limit)
        return np.hstack([np.isnan(cells), np.nan_to_num(y)])

    def log_base(self, cells):
        x = np.maximum(cells, 1e-300)
        return np.nansum(np.log(self.shape) + (np.array(self.shape) - 1.0) * np.log(x), axis=1)

    def natural(self, posterior, plug_in):
        rate, frame = posterior.mean, self.coordinates
        logs = np.log(rate) if plug_in else posterior.expected_log
        of_seen = logs - rate * frame.centre
        return np.hstack([of_seen.sum(axis=1)[:, None], -of_seen, -rate * frame.scale])

    def posterior(self, totals):
        size, missing, y = np.split(totals, [1, 1 + self.n_columns], axis=1)
        seen, frame = np.maximum(size - missing, 0.0), self.coordinates
        total = np.maximum(frame.centre * seen + frame.scale * y, LEAST * seen * frame.centre)
        return Gamma(np.maximum(self.prior + seen, LEAST), np.maximum(self.prior * frame.centre + total, LEAST))

    @classmethod
    def posterior_of(cls, arrays):
        return Gamma.from_arrays(arrays)

    def divergence(self, posterior):
        return float(np.sum(posterior.kl(Gamma(self.prior, self.prior * self.coordinates.centre))))

    def denoised(self, totals, noise_std):
        (size, missing, y), (_, missing_std, std) = (
            np.split(of, [1, 1 + self.n_columns], axis=1) for of in (totals, noise_std)
        )
        missing = missing_counts(size, missing, missing_std)
        return self._totals(size, missing, shrunken_means(y, size - missing, std))

    def begun(self, size, marginals, offsets):
        return self._totals(np.full((len(offsets), 1), size / len(offsets)), np.zeros_like(offsets), offsets)

    def _totals(self, size, missing, means):
        frame = self.coordinates
        means = np.maximum(means, (0.02 - 1.0) * frame.centre / frame.scale)
        return np.hstack([size, missing, (size - missing) * means])

    # in bins: what a component is like are its means of z

    def _edges(self, j):
        return self.bins.edges[j] ** self.shape[j]

    def in_bins(self, values):
        below = [1.0 - np.exp(-self._edges(j)[1:-1] / values[:, [j]]) for j in range(self.n_columns)]
        return np.hstack([np.diff(of, axis=1, prepend=0.0, append=1.0) for of in below])

    def values_of_bins(self, counts, values):
        following, start = np.empty_like(values), 0
        for j, size in enumerate(self.bins.sizes):
            edges, m, of_column = self._edges(j), values[:, [j]], counts[:, start : start + size] + 1e-12
            ratio = np.minimum(np.diff(edges)[:-1] / m, 700.0)
            means = edges[:-1] + m * np.ones(size)
            means[:, :-1] -= m * ratio / np.expm1(ratio)
            following[:, j] = (of_column * means).sum(axis=1) / of_column.sum(axis=1)
            start += size
        return np.maximum(following, 0.02 * self.coordinates.centre)

    def some_values(self, marginals, n_components, rng):
        return self.coordinates.centre * rng.uniform(0.2, 3.0, (n_components, self.n_columns))

    def totals_of_values(self, size, values):
        return self._totals(size, np.zeros_like(values), (values - self.coordinates.centre) / self.coordinates.scale)

    def chances(self, posterior):
        return self.in_bins(1.0 / posterior.mean)

    # for people

    def features(self, posterior):
        return -np.log(posterior.mean)

    def parts(self, posterior, columns, component):
        return [Part("rates of durations", posterior, partial(indexed, "rate"), [name for name, _ in columns])]

    def means_in_units(self, rates):
        return np.exp(gammaln(1.0 + 1.0 / np.array(self.shape))) * rates ** (-1.0 / np.array(self.shape))

    def shown(self, posterior, columns):
        return self.means_in_units(posterior.mean), [name for name, _ in columns]

    def limits(self, posterior, level):
        low, high = posterior.interval(level)
        return self.means_in_units(high), self.means_in_units(low)

    # to be matched: by means of z, in which totals are linear

    def charts(self, posterior):
        return [Rates(1.0 / posterior.mean, self.prior, self.prior / self.coordinates.centre)]

    def simulated(self, charts, members, draws):
        return (-np.log1p(-draws) * charts[0].rates[members]) ** (1.0 / np.array(self.shape))

    def scores(self, charts, values, shares):
        z = values**self.shape
        of_cells = shares[:, :, None] / charts[0].rates * ~np.isnan(z)[:, None]
        return charts[0].scores(of_cells * np.nan_to_num(z)[:, None], of_cells)

    def sure_of(self, charts):
        return Gamma(np.full_like(charts[0].rates, SURE), SURE * charts[0].rates)

    def of_draws(self, charts, draws, order):
        rates = 1.0 / draws[0].reshape(-1, *charts[0].rates.shape)[:, order]
        rate = rates.mean(axis=0) / rates.var(axis=0)
        return Gamma(rate * rates.mean(axis=0), rate)
