"""Columns of several kinds in one row, independent given the component: a product of components."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from vips.models.components.bins import Bins, joined
from vips.models.components.categories import Categories
from vips.models.components.component import Component, Frame
from vips.models.components.matching.charts import Chart

__all__ = ["Columns"]


@dataclass(frozen=True)
class Columns(Component):
    """A product of components.

    Parameters
    ----------
    parts : tuple of Component
        At most one of categories.
    columns : tuple of tuple of int
        For each part, the columns of the table that it describes.
    """

    parts: tuple[Component, ...]
    columns: tuple[tuple[int, ...], ...]

    @property
    def n_columns(self) -> int:
        return sum(map(len, self.columns))

    @property
    def width(self) -> int:
        return sum(part.width for part in self.parts)

    @cached_property
    def bins(self) -> Bins:
        return joined([part.bins for part in self.parts])

    @property
    def means(self) -> np.ndarray:
        starts = np.cumsum([0, *(part.width for part in self.parts)])[:-1]
        return np.concatenate([start + part.means for part, start in zip(self.parts, starts, strict=True)])

    @property
    def n_marginals(self) -> int:
        return sum(part.n_marginals for part in self.parts)

    @property
    def n_means(self) -> int:
        return sum(part.n_means for part in self.parts)

    @property
    def n_free(self) -> int:
        return sum(part.n_free for part in self.parts)

    @property
    def frame(self) -> Frame:
        """Coordinates of all columns that have some."""
        frames = [part.coordinates for part in self.parts if not isinstance(part, Categories)]
        centres, scales = [frame.centre for frame in frames], [frame.scale for frame in frames]
        return Frame(np.concatenate([np.empty(0), *centres]), np.concatenate([np.empty(0), *scales]))

    def rows(self, values: np.ndarray) -> np.ndarray:
        """T(x) of the columns that are no categories."""
        parts = [(part, at) for part, at in self._parts() if not isinstance(part, Categories)]
        return np.hstack(
            [np.empty((len(values), 0)), *(part.statistics(part.cells(_taken(values, at))) for part, at in parts)]
        )

    def places(self, values: np.ndarray) -> np.ndarray:
        """Levels of the columns of categories, counted over all of them, -1 for a missing cell: int32."""
        places = [part.places(_taken(values, at)) for part, at in self._parts() if isinstance(part, Categories)]
        return places[0] if places else np.empty((len(values), 0), np.int32)

    def cells(self, values: np.ndarray) -> np.ndarray:
        """In the order of the parts, in which all other methods take them."""
        return np.hstack([part.cells(_taken(values, at)) for part, at in self._parts()])

    def in_parts(self, values: np.ndarray) -> np.ndarray:
        """Values of the table in the order of the parts, as they are."""
        return np.hstack([_taken(values, at) for at in self.columns])

    def statistics(self, cells: np.ndarray) -> np.ndarray:
        return np.hstack([part.statistics(cells[:, of]) for part, of in self._of_cells()])

    def log_base(self, cells: np.ndarray) -> np.ndarray:
        return sum(part.log_base(np.ascontiguousarray(cells[:, of])) for part, of in self._of_cells())

    def natural(self, posterior: tuple, plug_in: bool) -> np.ndarray:
        naturals = [part.natural(of_part, plug_in) for part, of_part in zip(self.parts, posterior, strict=True)]
        constant = sum(natural[:, :1] for natural in naturals)
        return np.hstack([constant, *(natural[:, 1:] for natural in naturals)])

    def posterior(self, totals: np.ndarray) -> tuple:
        """One for each part."""
        return tuple(part.posterior(totals[:, of]) for part, of in self._of_totals())

    def denoised(self, totals: np.ndarray, noise_std: np.ndarray) -> np.ndarray:
        return _together([part.denoised(totals[:, of], noise_std[:, of]) for part, of in self._of_totals()])

    def begun(self, size: float, marginals: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        of_bins = np.split(marginals, self._ends_of_bins())
        of_means = np.split(offsets, np.cumsum([len(part.means) for part in self.parts])[:-1], axis=1)
        parts = zip(self.parts, of_bins, of_means, strict=True)
        return _together([part.begun(size, counts, offset) for part, counts, offset in parts])

    def chances(self, posterior: tuple) -> np.ndarray:
        return np.hstack([part.chances(of_part) for part, of_part in zip(self.parts, posterior, strict=True)])

    def divergence(self, posterior: tuple) -> float:
        return sum(part.divergence(of_part) for part, of_part in zip(self.parts, posterior, strict=True))

    def drawn(self, posterior: tuple, members: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """In the order of the table."""
        cells = np.empty((len(members), self.n_columns))
        for part, of_part, at in zip(self.parts, posterior, self.columns, strict=True):
            cells[:, list(at)] = part.drawn(of_part, members, rng)
        return cells

    def framed(self, marginals: np.ndarray) -> Self:
        of_bins = np.split(marginals, self._ends_of_bins())
        parts = tuple(part.framed(counts) for part, counts in zip(self.parts, of_bins, strict=True))
        return replace(self, parts=parts)

    def columns_of_means(self) -> np.ndarray:
        """For each of the ``means`` its column, counted in the order of the parts."""
        sizes = [part.bins.sizes if isinstance(part, Categories) else [1] * part.n_columns for part in self.parts]
        return np.repeat(np.arange(self.n_columns), np.concatenate(sizes))

    # -- to be matched ------------------------------------------------------------------------------------------

    def charts(self, posterior: tuple) -> list[Chart]:
        """Those of each part, one after the other."""
        parts = zip(self.parts, posterior, strict=True)
        return [chart for part, of_part in parts for chart in part.charts(of_part)]

    def simulated(self, charts: Sequence[Chart], members: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """In the order of the table."""
        values = np.empty((len(members), self.n_columns))
        for part, of_part, at in zip(self.parts, self._charts_of_parts(charts), self.columns, strict=True):
            values[:, list(at)] = part.simulated(of_part, members, rng)
        return values

    def scores(self, charts: Sequence[Chart], values: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Scores of values in the order of the table."""
        parts = zip(self.parts, self._charts_of_parts(charts), self.columns, strict=True)
        return np.hstack([part.scores(of_part, _taken(values, at), shares) for part, of_part, at in parts])

    def at(self, charts: Sequence[Chart]) -> tuple:
        return tuple(part.at(of_part) for part, of_part in zip(self.parts, self._charts_of_parts(charts), strict=True))

    def of_draws(self, charts: Sequence[Chart], draws: Sequence[np.ndarray], order: np.ndarray) -> tuple:
        parts = zip(self.parts, self._charts_of_parts(charts), self._charts_of_parts(draws), strict=True)
        return tuple(part.of_draws(of_part, of_charts, order) for part, of_part, of_charts in parts)

    def _charts_of_parts(self, charts: Sequence) -> list[Sequence]:
        """Charts, or what there is for each of them, by part: one of each column of categories, else one of a part."""
        sizes = [part.n_columns if isinstance(part, Categories) else 1 for part in self.parts]
        ends = np.cumsum(sizes)
        return [charts[end - size : end] for end, size in zip(ends, sizes, strict=True)]

    def _parts(self) -> Iterator[tuple[Component, tuple[int, ...]]]:
        """Each part, and its columns."""
        return zip(self.parts, self.columns, strict=True)

    def _of_cells(self) -> Iterator[tuple[Component, slice]]:
        """Each part, and its cells."""
        start = 0
        for part in self.parts:
            yield part, slice(start, start + part.n_columns)
            start += part.n_columns

    def _of_totals(self) -> Iterator[tuple[Component, np.ndarray]]:
        """Each part, and its totals: the count of records, and its own."""
        start = 1
        for part in self.parts:
            yield part, np.append(0, np.arange(start, start + part.width))
            start += part.width

    def _ends_of_bins(self) -> np.ndarray:
        """Where the bins of each part end, but the last."""
        return np.cumsum([sum(part.bins.sizes) for part in self.parts])[:-1]


def _taken(values: np.ndarray, columns: tuple[int, ...]) -> np.ndarray:
    return values if columns == tuple(range(values.shape[1])) else np.take(values, columns, axis=1)


def _together(totals: list[np.ndarray]) -> np.ndarray:
    return np.hstack([totals[0][:, :1], *(of_part[:, 1:] for of_part in totals)])
