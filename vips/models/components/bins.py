"""Public bins of columns, and what counts in them say: means, variances, and draws without noise.

Noisy totals of components say which cells are missing, and means and variances, shrunk towards those of all records. They use
public numbers only: the totals, and the standard deviation of the noise in each. Means and variances are in
coordinates in which all records have mean 0 and variance 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from vips.models._denoising import posterior_mean

__all__ = [
    "Bins",
    "bins_of_counts",
    "bins_of_levels",
    "bins_of_numbers",
    "joined",
    "missing_counts",
    "shrunken_means",
    "shrunken_variances",
]

_LEAST = 1e-9  # of what is divided by, in records
_COMMON, _OWN = (1e-3, 1.0), (1e-4, 16.0)  # least and largest variance within components, and within one


@dataclass(frozen=True)
class Bins:
    """Bins of some columns.

    Parameters
    ----------
    edges : tuple of ndarray
        For each column, ascending: bin b holds ``edges[b] <= x < edges[b + 1]``, and the last bin its upper edge.
    step : tuple of float
        From a value to the next in each column; 0 for real numbers.
    """

    edges: tuple[np.ndarray, ...]
    step: tuple[float, ...]

    @property
    def sizes(self) -> list[int]:
        """Number of bins of each column."""
        return [len(edges) - 1 for edges in self.edges]

    @property
    def starts(self) -> np.ndarray:
        """Where each column's bins begin, and where the last one's end."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    def codes(self, cells: np.ndarray) -> np.ndarray:
        """Bin of each cell in its column, -1 for a missing one; shape (n_rows, n_columns)."""
        codes = np.empty(cells.shape, np.int64)
        for j, edges in enumerate(self.edges):
            codes[:, j] = np.searchsorted(edges[1:-1], cells[:, j], side="right")
        codes[np.isnan(cells)] = -1
        return codes

    def indicators(self, cells: np.ndarray) -> np.ndarray:
        """1 at the bin of each cell, column after column; shape (n_rows, sum of sizes)."""
        codes, starts = self.codes(cells), self.starts
        indicators = np.zeros((len(codes), starts[-1]))
        rows, columns = np.nonzero(codes >= 0)
        indicators[rows, starts[columns] + codes[rows, columns]] = 1.0
        return indicators

    def counts(self, noisy: np.ndarray, noise_std: float) -> np.ndarray:
        """Posterior means of noisy counts, ≥ 0, column by column; without noise the counts themselves."""
        if noise_std == 0.0:
            return np.maximum(noisy, 0.0)
        means = np.empty_like(noisy)
        for a, b in pairwise(self.starts):
            uniform = max(noisy[a:b].sum(), noise_std * np.sqrt(b - a)) / (b - a)
            std, prior = np.full((1, b - a), noise_std), np.full((1, b - a), uniform)
            means[a:b] = posterior_mean(noisy[None, a:b], std, prior)[0]
        return means

    def moments(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of each column, whose values are spread evenly over their bins. Without counts, over all bins."""
        means, variances = np.empty(len(self.edges)), np.empty(len(self.edges))
        for j, (a, b) in enumerate(pairwise(self.starts)):
            shares = counts[a:b] + 1e-9 * max(counts[a:b].sum(), 1e-9) / (b - a)
            shares = shares / shares.sum()
            middles, spreads = self.middles(j), np.diff(self.edges[j])
            means[j] = shares @ middles
            within = (np.square(spreads) - self.step[j] ** 2) / 12.0
            variances[j] = shares @ (np.square(middles - means[j]) + within)
        return means, variances

    def merged(self, counts: np.ndarray, most: int) -> Bins:
        """Neighbours merged into ``most`` bins of each column, or as many as there are, which hold about as much of these
        counts, ≥ 0, each."""
        edges = []
        for of_column, (a, b) in zip(self.edges, pairwise(self.starts), strict=True):
            n = min(most, b - a)
            below, order = np.cumsum(counts[a:b] + 1e-9), np.arange(1, n)
            inner = 1 + np.abs(below[:, None] - below[-1] * order / n).argmin(axis=0)
            inner = np.minimum(np.maximum.accumulate(inner - order) + order, b - a - n + order)  # at least one bin each
            edges.append(of_column[np.concatenate([[0], inner, [b - a]])])
        return Bins(tuple(edges), self.step)

    def middles(self, j: int) -> np.ndarray:
        """Middles of the bins of column j."""
        return 0.5 * (self.edges[j][:-1] + self.edges[j][1:] - self.step[j])


def bins_of_numbers(low: np.ndarray, high: np.ndarray, n_bins: int) -> Bins:
    """Bins of about equal width between the bounds of each column.

    Bounds that are whole numbers may hold whole numbers, such as ages: their bins end half-way between these. Else bins of one
    width would hold three of them here and four there, which no law of real numbers explains.
    """
    edges = tuple(np.linspace(a, b, n_bins + 1) for a, b in zip(low, high, strict=True))
    for inner, a, b in zip((of_column[1:-1] for of_column in edges), low, high, strict=True):
        if a % 1 == b % 1 == 0 and b - a >= n_bins:
            inner[:] = np.floor(inner) + 0.5
    return Bins(edges, (0.0,) * len(edges))


def bins_of_counts(max_count: Sequence[int], n_bins: int) -> Bins:
    """At most so many bins of the counts 0 to ``max_count[j]``, of equal width on the scale of √x, or one for each count."""
    return Bins(tuple(_edges_of_counts(int(largest), n_bins) for largest in max_count), (1.0,) * len(max_count))


def bins_of_levels(levels: Sequence[int]) -> Bins:
    """One for each code."""
    return Bins(tuple(np.arange(n + 1.0) for n in levels), (1.0,) * len(levels))


def joined(parts: Sequence[Bins]) -> Bins:
    """Bins of the columns of all parts."""
    return Bins(sum((part.edges for part in parts), ()), sum((part.step for part in parts), ()))


def _edges_of_counts(largest: int, n_bins: int) -> np.ndarray:
    if largest < n_bins:
        return np.arange(largest + 2.0)
    edges = np.ceil(np.square(np.linspace(0.0, np.sqrt(largest + 1.0), n_bins + 1)))
    return np.unique(np.append(edges[edges < largest + 1.0], largest + 1.0))


def missing_counts(size: np.ndarray, missing: np.ndarray, noise_std: np.ndarray) -> np.ndarray:
    """Posterior means of noisy counts of missing cells, shape (K, n_columns), at most ``size``, of shape (K, 1).

    Their prior is a mixture of exponentials around the share of missing cells in all records. A share that is less than two
    standard deviations of the noise is taken for 0.
    """
    missing, noise_std = _arrays(missing, noise_std)
    total, variance = missing.sum(axis=0), np.square(noise_std).sum(axis=0)
    share = np.where(total > 2.0 * np.sqrt(variance), total / np.maximum(size.sum(), _LEAST), 0.0)
    return np.clip(posterior_mean(missing, noise_std, np.minimum(share, 1.0) * size), 0.0, size)


def shrunken_means(totals: np.ndarray, seen: np.ndarray, noise_std: np.ndarray) -> np.ndarray:
    """Posterior means of the means of components, whose prior is N(0, 1).

    Parameters
    ----------
    totals, noise_std : ndarray of shape (K, n_columns)
        Σ γ y, and the standard deviation of the noise in it.
    seen : ndarray of shape (K, n_columns)
        ≥ 0.
    """
    return totals * seen / (np.square(seen) + np.square(noise_std) + _LEAST)


def shrunken_variances(squares: np.ndarray, seen: np.ndarray, noise_std: np.ndarray) -> np.ndarray:
    """Posterior means of the variances of components, positive, whose prior is a mixture of exponentials around the common one.

    Parameters
    ----------
    squares, noise_std : ndarray of shape (K, n_columns)
        Σ γ (y - mean)², and the standard deviation of the noise in it.
    seen : ndarray of shape (K, n_columns)
        ≥ 0.
    """
    seen = np.maximum(seen, _LEAST)
    common = np.clip(squares.sum(axis=0) / seen.sum(axis=0), *_COMMON)
    squares, noise_std = _arrays(squares, noise_std)
    return np.clip(posterior_mean(squares, noise_std, common * seen) / seen, *_OWN)


def _arrays(totals: np.ndarray, noise_std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As the kernels take them."""
    return np.ascontiguousarray(totals), np.ascontiguousarray(np.maximum(noise_std, _LEAST))
