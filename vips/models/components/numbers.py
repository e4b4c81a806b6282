"""Columns of numbers: normal with a mean and a precision for each component, under a normal-gamma prior.

    x_j = c_j + s_j y_j,   y_j | k ~ N(μ_kj, 1/τ_kj),   μ_kj | τ_kj ~ N(0, 1/(κ₀ τ_kj)),   τ_kj ~ Gamma(κ₀/2, κ₀/2)

    T(x) = (m, y, (y² - 1)/√2)        m_j = 1 and the others 0 where x_j is missing, else m_j = 0

c and s are mean and standard deviation of all records, so that the prior counts as κ₀ of them, and the numbers of T are of
about the same size: noise costs least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Real
from typing import Self

import numpy as np
from scipy.special import ndtr, ndtri

from vips.expfam import DiagonalGaussian, Gamma
from vips.models.components.bins import Bins, bins_of_numbers, missing_counts, shrunken_means, shrunken_variances
from vips.models.components.component import SURE, Frame, Kind, Named
from vips.models.components.matching.charts import Gaussians
from vips.parts import Part, indexed

__all__ = ["LEAST_VARIANCE", "NormalGamma", "Numbers", "standard_numbers"]

_BINS = 32  # of a column
_LEAST = 1e-12  # of a count that EM without records would leave at 0
LEAST_VARIANCE = 1e-6  # of a component, as a share of that of all records
_LEAST_DRAW = 1e-17  # a uniform draw may be 0
_LEAST_WITHIN = 0.1  # variance of a component that begins
_ROOT = np.sqrt(2.0)
_LOG_2_PI = np.log(2.0 * np.pi)
_NARROWEST, _WIDEST = 0.05, 10.0  # deviation of a state, in those of all steps; also the most distant mean


@dataclass(frozen=True, repr=False)
class NormalGamma:
    """Posterior of means and precisions, one for each component and column.

    Parameters
    ----------
    mean : ndarray of shape (K, n_columns)
        Of μ.
    mean_precision : ndarray of shape (K, n_columns)
        κ: μ has precision κ τ.
    precision : Gamma
        Of τ.
    """

    mean: np.ndarray
    mean_precision: np.ndarray
    precision: Gamma

    @property
    def means(self) -> DiagonalGaussian:
        """Posterior of μ at the mean of τ."""
        return DiagonalGaussian(self.mean, self.mean_precision * self.precision.mean)

    @property
    def variance(self) -> np.ndarray:
        """1/τ at the mean of τ."""
        return 1.0 / self.precision.mean

    def taken(self, places: np.ndarray) -> NormalGamma:
        """Those of the components at these places."""
        return NormalGamma(self.mean[places], self.mean_precision[places], self.precision.taken(places))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        return {"mean": self.mean, "mean_precision": self.mean_precision} | self.precision.to_arrays()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> NormalGamma:
        """Inverse of ``to_arrays``.

        Raises
        ------
        ValueError
            If the arrays do not fit together, or a number is not of a posterior.
        """
        law = cls(arrays["mean"], arrays["mean_precision"], Gamma.from_arrays(arrays))
        if not law.mean.shape == law.mean_precision.shape == law.precision.shape.shape:
            raise ValueError("the posterior's means and precisions do not fit together")
        if not (np.abs(law.mean) < 1e50).all():
            raise ValueError("the posterior's means are no moderate numbers")
        _ = law.means  # checks its numbers
        return law


@dataclass(frozen=True)
class Numbers(Kind):
    """Columns of numbers.

    Parameters
    ----------
    low, high : tuple of float
        Public bounds of each column; numbers beyond them become the bound.
    prior : float
        κ₀; 0 for EM.
    limit : float
        Numbers further than so many standard deviations from the mean of all records become that far from it.
    frame : Frame, optional
        c and s. None: the middle between the bounds, and a half of what lies between them.
    own_bins : Bins, optional
        As many of each column. None: 32 of equal width.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    prior: float = 1.0
    limit: float = np.inf
    frame: Frame | None = None
    own_bins: Bins | None = None

    kind, words, cell = "numbers", "numbers within public bounds", "number"

    @classmethod
    def declared(cls, name: object, value: object) -> tuple[float, float] | None:
        """Public bounds (low, high)."""
        if not isinstance(value, tuple):
            return None
        ends = [float(end) for end in value if isinstance(end, Real)]
        if not (len(value) == len(ends) == 2 and ends[0] > -1e100 and ends[0] + 1e-30 < ends[1] < 1e100):
            raise ValueError(f"Column {name!r} is declared as {value!r}: bounds of a number are a pair (low, high).")
        return tuple(ends)

    def ends(self, declared: Sequence) -> list[tuple[str, float, float, float]]:
        return [
            ("above", *declared, 0.001),
            ("below", *reversed(declared), 0.001),
        ]  # 1 % are there, but cut at the limit

    @classmethod
    def of(cls, declared: Sequence[Sequence], prior: float, limit: float) -> Self:
        return cls(*zip(*declared, strict=True), prior, limit)

    @classmethod
    def typical(
        cls, declared: Sequence, members: np.ndarray, n_components: int, rng: np.random.Generator
    ) -> np.ndarray:
        low, high = declared
        means = 0.25 * (low + high) + 0.5 * rng.uniform(low, high, n_components)
        return np.clip(means[members] + 0.1 * (high - low) * rng.standard_normal(len(members)), low, high)

    @property
    def largest_squares(self) -> float:
        return self.n_columns * (np.square(self.limit) + 0.5 * np.square(np.square(self.limit) - 1.0))

    @property
    def usual_squares(self) -> float:
        return 2.0 * self.n_columns

    @property
    def n_columns(self) -> int:
        return len(self.low)

    @property
    def width(self) -> int:
        return 3 * len(self.low)

    @cached_property
    def bins(self) -> Bins:
        return self.own_bins or bins_of_numbers(self.low, self.high, _BINS)

    @property
    def n_free(self) -> int:
        return 2 * self.n_columns

    n_values = n_free

    def cells(self, values: np.ndarray) -> np.ndarray:
        cells = np.array(values, np.float64, order="C")
        cells[~np.isfinite(cells)] = np.nan
        return np.clip(cells, self.low, self.high)

    def statistics(self, cells: np.ndarray) -> np.ndarray:
        is_missing, frame = np.isnan(cells), self.coordinates
        y = np.where(is_missing, 0.0, np.clip((cells - frame.centre) / frame.scale, -self.limit, self.limit))
        return np.hstack([is_missing, y, np.where(is_missing, 0.0, (np.square(y) - 1.0) / _ROOT)])

    def natural(self, posterior: NormalGamma, plug_in: bool) -> np.ndarray:
        tau, mean = posterior.precision.mean, posterior.mean
        logs = np.log(tau) if plug_in else posterior.precision.expected_log
        spread = 0.0 if plug_in else 1.0 / posterior.mean_precision
        of_seen = 0.5 * (logs - _LOG_2_PI - spread - tau * (1.0 + np.square(mean)))
        of_seen = of_seen - np.log(self.coordinates.scale)
        return np.hstack([of_seen.sum(axis=1)[:, None], -of_seen, tau * mean, -tau / _ROOT])

    def posterior(self, totals: np.ndarray) -> NormalGamma:
        size, missing, total, second = self._split(totals)
        seen = np.maximum(size - missing, 0.0)
        mean_precision = np.maximum(self.prior + seen, _LEAST)
        mean = total / mean_precision
        squares = np.maximum(seen + _ROOT * second - mean_precision * np.square(mean), 0.0)
        shape = np.maximum(0.5 * (self.prior + seen), _LEAST)
        rate = np.maximum(0.5 * (self.prior + squares), LEAST_VARIANCE * shape)
        return NormalGamma(mean, mean_precision, Gamma(shape, rate))

    @classmethod
    def posterior_of(cls, arrays: dict[str, np.ndarray]) -> NormalGamma:
        return NormalGamma.from_arrays(arrays)

    def denoised(self, totals: np.ndarray, noise_std: np.ndarray) -> np.ndarray:
        size, missing, total, second = self._split(totals)
        _, missing_std, std, second_std = self._split(noise_std)
        missing = missing_counts(size, missing, missing_std)
        seen = size - missing
        ends = ((np.array(ends) - self.coordinates.centre) / self.coordinates.scale for ends in (self.low, self.high))
        mean = np.clip(shrunken_means(total, seen, std), *ends)
        about = seen + _ROOT * second - 2.0 * mean * total + seen * np.square(mean)
        about_std = np.sqrt(2.0 * np.square(second_std) + 4.0 * np.square(mean * std))
        variance = shrunken_variances(about, seen, about_std)
        return np.hstack([size, missing, seen * mean, seen * (variance + np.square(mean) - 1.0) / _ROOT])

    def begun(self, size: float, marginals: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        share, squares = np.full((len(offsets), 1), size / len(offsets)), np.square(offsets)
        within = np.maximum(1.0 - squares.mean(axis=0), _LEAST_WITHIN)
        second = (within + squares - 1.0) / _ROOT
        return np.hstack([share, np.zeros_like(offsets), share * offsets, share * second])

    def chances(self, posterior: NormalGamma) -> np.ndarray:
        means, deviations = self.in_units(posterior)
        return np.hstack([
            np.diff(ndtr((edges - means[:, [j]]) / deviations[:, [j]])[:, 1:-1], axis=1, prepend=0.0, append=1.0)
            for j, edges in enumerate(self.bins.edges)
        ])  # fmt: skip

    def divergence(self, posterior: NormalGamma) -> float:
        ratio = self.prior / posterior.mean_precision
        of_means = 0.5 * (ratio - 1.0 - np.log(ratio))
        of_means = of_means + 0.5 * self.prior * posterior.precision.mean * np.square(posterior.mean)
        return float(np.sum(of_means + posterior.precision.kl(Gamma(0.5 * self.prior, 0.5 * self.prior))))

    def in_units(self, posterior: NormalGamma) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of the components in the columns' own units, shape (K, n_columns) each."""
        frame = self.coordinates
        return frame.centre + frame.scale * posterior.mean, frame.scale * np.sqrt(posterior.variance)

    @cached_property
    def coordinates(self) -> Frame:
        """``frame``, or public coordinates where there is none."""
        low, high = np.array(self.low), np.array(self.high)
        return self.frame or Frame(0.5 * (low + high), 0.5 * (high - low))

    def _split(self, totals: np.ndarray) -> tuple[np.ndarray, ...]:
        """Counts, of missing cells, of y and of (y² - 1)/√2."""
        return np.split(totals, [1, 1 + self.n_columns, 1 + 2 * self.n_columns], axis=1)

    # -- in bins ----------------------------------------------------------------------------------------------------

    def some_values(self, marginals: np.ndarray, n_components: int, rng: np.random.Generator) -> np.ndarray:
        """Means, each drawn from the marginals, and deviations, in those of all records."""
        means = np.empty((n_components, self.n_columns))
        middles = ndtri(0.5 * (ndtr(self._edges[:, 1:]) + ndtr(self._edges[:, :-1])))
        for j, chances in enumerate(marginals.reshape(self.n_columns, -1) + _LEAST):
            means[:, j] = rng.choice(middles[j], n_components, p=chances / chances.sum())
        means += 0.2 * rng.standard_normal(means.shape)
        return np.stack([means, np.full_like(means, 0.5)], axis=2).reshape(n_components, -1)

    def in_bins(self, values: np.ndarray) -> np.ndarray:
        """Under means and deviations; the first and the last bin are open."""
        return _inside(ndtr(self._standardised(values))).reshape(len(values), -1)

    def values_of_bins(self, counts: np.ndarray, values: np.ndarray) -> np.ndarray:
        places, counts = self._standardised(values), counts.reshape(len(counts), self.n_columns, -1) + _LEAST
        density, finite = np.exp(-0.5 * np.square(places)) / np.sqrt(2.0 * np.pi), np.clip(places, -40.0, 40.0)
        inside = np.maximum(_inside(ndtr(places)), _LEAST)
        first = -_inside(density) / inside  # mean of the bin's part of a standard normal, and of its square
        second = np.maximum(1.0 - _inside(finite * density) / inside, np.square(first))
        shares = counts / counts.sum(axis=2, keepdims=True)
        shift = (shares * first).sum(axis=2)
        spread = np.sqrt(np.maximum((shares * second).sum(axis=2) - np.square(shift), 0.0))
        means, deviations = np.moveaxis(values.reshape(len(values), -1, 2), 2, 0)
        following = np.stack([means + deviations * shift, deviations * spread], axis=2)
        return np.minimum(np.maximum(following, (-_WIDEST, _NARROWEST)), _WIDEST).reshape(len(values), -1)

    def totals_of_values(self, size: np.ndarray, values: np.ndarray) -> np.ndarray:
        mean, deviation = np.moveaxis(values.reshape(len(values), -1, 2), 2, 0)
        second = (np.square(mean) + np.square(deviation) - 1.0) / _ROOT
        return np.hstack([size, np.zeros_like(mean), size * mean, size * second])

    @cached_property
    def _edges(self) -> np.ndarray:
        """Edges of the bins in the columns' coordinates, shape (n_columns, n_bins + 1)."""
        edges = (np.stack(self.bins.edges) - self.coordinates.centre[:, None]) / self.coordinates.scale[:, None]
        edges[:, [0, -1]] = -np.inf, np.inf
        return edges

    def _standardised(self, values: np.ndarray) -> np.ndarray:
        """Places of the edges, in deviations of each component; shape (K, n_columns, n_bins + 1)."""
        means, deviations = np.moveaxis(values.reshape(len(values), -1, 2), 2, 0)
        return (self._edges - means[:, :, None]) / deviations[:, :, None]

    # -- for people -------------------------------------------------------------------------------------------------

    def features(self, posterior: NormalGamma) -> np.ndarray:
        """Means and standard deviations in those of all records."""
        return np.hstack([posterior.mean, np.sqrt(posterior.variance)])

    def parts(self, posterior: NormalGamma, columns: Sequence[Named], component: str) -> list[Part]:
        names = [name for name, _ in columns]
        return [
            Part("means", posterior.means, partial(indexed, "mean"), names),
            Part("precisions", posterior.precision, partial(indexed, "precision"), names),
        ]

    def deviations(self, posterior: NormalGamma) -> np.ndarray:
        return self.in_units(posterior)[1]

    def shown(self, posterior: NormalGamma, columns: Sequence[Named]) -> tuple[np.ndarray, list[str]]:
        """Means."""
        return self.in_units(posterior)[0], [name for name, _ in columns]

    def limits(self, posterior: NormalGamma, level: float) -> tuple[np.ndarray, np.ndarray]:
        frame = self.coordinates
        return tuple(frame.centre + frame.scale * side for side in posterior.means.interval(level))

    # -- to be matched ------------------------------------------------------------------------------------------

    def charts(self, posterior: NormalGamma) -> list[Gaussians]:
        eye, sizes = np.eye(self.n_columns), (self.prior, self.prior)
        factor = np.sqrt(posterior.variance)[:, None] * eye
        return [Gaussians(posterior.mean, factor, True, np.zeros(self.n_columns), eye, sizes)]

    def simulated(self, charts: Sequence[Gaussians], members: np.ndarray, draws: np.ndarray) -> np.ndarray:
        (chart,), normal = charts, ndtri(np.maximum(draws, _LEAST_DRAW))
        y = chart.mean[members] + np.diagonal(chart.factor, axis1=1, axis2=2)[members] * normal
        return self.coordinates.centre + self.coordinates.scale * y

    def scores(self, charts: Sequence[Gaussians], values: np.ndarray, shares: np.ndarray) -> np.ndarray:
        images = charts[0].images((values - self.coordinates.centre) / self.coordinates.scale)
        return np.nan_to_num(charts[0].scores(shares, images), copy=False)

    def sure_of(self, charts: Sequence[Gaussians]) -> NormalGamma:
        variances = np.diagonal(charts[0].covariances, axis1=1, axis2=2)
        return NormalGamma(
            charts[0].mean, np.full(variances.shape, SURE), Gamma(np.full(variances.shape, SURE), SURE * variances)
        )

    def of_draws(self, charts, draws, order: np.ndarray) -> NormalGamma:
        means, covariances = charts[0].split(draws[0])
        logs = np.log(np.diagonal(covariances, axis1=2, axis2=3))[:, order]
        shape, means = 1.0 / logs.var(axis=0), means[:, order]
        precision = Gamma(shape, shape * np.exp(logs.mean(axis=0)))
        return NormalGamma(means.mean(axis=0), 1.0 / (means.var(axis=0) * precision.mean), precision)


def _inside(below: np.ndarray) -> np.ndarray:
    """Share of each bin, from what is below its edges."""
    return below[:, :, 1:] - below[:, :, :-1]


def standard_numbers(n_columns: int, n_bins: int) -> Numbers:
    """Columns of mean 0 and variance 1, in bins that hold as much each of a standard normal column."""
    edges, nowhere = ndtri(np.linspace(0.0, 1.0, n_bins + 1)), (np.inf,) * n_columns
    frame, bins = Frame(np.zeros(n_columns), np.ones(n_columns)), Bins((edges,) * n_columns, (0.0,) * n_columns)
    return Numbers(tuple(-bound for bound in nowhere), nowhere, frame=frame, own_bins=bins)
