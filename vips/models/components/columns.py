"""Columns of several kinds in one row, independent given the component: a product of components."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from vips.models.components.bins import Bins, joined
from vips.models.components.categories import Categories
from vips.models.components.component import Component, Frame, Kind, Named
from vips.models.components.counts import Counts
from vips.models.components.matching.charts import Chart
from vips.models.components.numbers import Numbers
from vips.parts import Part
from vips.report.unread import Seen

__all__ = ["KINDS", "Columns", "Posteriors"]

# Kinds of columns. The last one takes whatever the others do not: a list of categories, or their number.
KINDS: list[type[Kind]] = [Numbers, Counts, Categories]


class Posteriors(dict):
    """Posteriors of the columns of each kind, by its name: "numbers", "counts", "answers"."""

    def taken(self, order: np.ndarray) -> Posteriors:
        """Those of the same components in another order."""
        return Posteriors({kind: part.taken(order) for kind, part in self.items()})

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        return {f"{kind}_{name}": array for kind, part in self.items() for name, array in part.to_arrays().items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Posteriors:
        """Inverse of ``to_arrays``; other arrays are left out.

        Raises
        ------
        ValueError
            If the arrays do not fit together, or a number is not of a posterior.
        """
        parts = cls()
        for kind in KINDS:
            start = f"{kind.kind}_"
            names = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
            if names:
                parts[kind.kind] = kind.posterior_of(names)
        return parts


def _sum_of(name: str) -> property:
    """A property that adds up over the components."""
    return property(lambda self: sum(getattr(component, name) for component in self.components))


@dataclass(frozen=True)
class Columns(Component):
    """A product of components.

    Parameters
    ----------
    components : tuple of Kind
        One of each kind that there is, in the order of ``KINDS``.
    columns : tuple of tuple of int
        For each component, the columns of the table that it describes.
    """

    components: tuple[Kind, ...]
    columns: tuple[tuple[int, ...], ...]

    width, n_marginals, n_means, n_free, n_values, largest_squares, usual_squares = map(_sum_of, (
        "width", "n_marginals", "n_means", "n_free", "n_values", "largest_squares", "usual_squares",
    ))  # fmt: skip

    @property
    def n_columns(self) -> int:
        return sum(map(len, self.columns))

    @cached_property
    def bins(self) -> Bins:
        return joined([component.bins for component in self.components])

    @property
    def means(self) -> np.ndarray:
        return self._places([component.means for component in self.components])

    @property
    def missing(self) -> np.ndarray:
        return self._places([component.missing for component in self.components])

    @property
    def coordinates(self) -> Frame:
        """Coordinates of all columns that have some."""
        frames = [component.coordinates for component in self.components]
        return Frame(*(np.concatenate([vars(frame)[name] for frame in frames]) for name in ("centre", "scale")))

    def at(self, frame: Frame) -> Self:
        ends = np.cumsum([len(component.coordinates.centre) for component in self.components])[:-1]
        frames = map(Frame, np.split(frame.centre, ends), np.split(frame.scale, ends))
        return replace(self, components=tuple(part.at(of) for part, of in zip(self.components, frames, strict=True)))

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
        """In the order of the components, in which all other methods take them."""
        return _beside([part.cells(_taken(values, at)) for part, at in self._parts()])

    def in_parts(self, values: np.ndarray) -> np.ndarray:
        """Values of the table in the order of the components, as they are."""
        return _beside([_taken(values, at) for at in self.columns])

    def statistics(self, cells: np.ndarray) -> np.ndarray:
        return _beside([part.statistics(cells[:, of]) for part, of in self._of_cells()])

    @property
    def has_base(self) -> bool:
        return any(component.has_base for component in self.components)

    def log_base(self, cells: np.ndarray) -> np.ndarray:
        return sum(part.log_base(np.ascontiguousarray(cells[:, of])) for part, of in self._of_cells())

    def natural(self, posterior: Posteriors, plug_in: bool) -> np.ndarray:
        naturals = [part.natural(posterior[part.kind], plug_in) for part in self.components]
        constant = sum(natural[:, :1] for natural in naturals)
        return np.hstack([constant, *(natural[:, 1:] for natural in naturals)])

    def posterior(self, totals: np.ndarray) -> Posteriors:
        return Posteriors({part.kind: part.posterior(totals[:, of]) for part, of in self._of_totals()})

    def denoised(self, totals: np.ndarray, noise_std: np.ndarray) -> np.ndarray:
        return _together([part.denoised(totals[:, of], noise_std[:, of]) for part, of in self._of_totals()])

    def begun(self, size: float, marginals: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        of_means = np.split(offsets, np.cumsum([len(part.means) for part in self.components])[:-1], axis=1)
        parts = zip(self.components, self._split(marginals), of_means, strict=True)
        return _together([part.begun(size, counts, offset) for part, counts, offset in parts])

    def chances(self, posterior: Posteriors) -> np.ndarray:
        return np.hstack([part.chances(posterior[part.kind]) for part in self.components])

    def divergence(self, posterior: Posteriors) -> float:
        return sum(part.divergence(posterior[part.kind]) for part in self.components)

    def drawn(self, posterior: Posteriors, members: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """In the order of the table."""
        cells = np.empty((len(members), self.n_columns))
        for part, at in self._parts():
            cells[:, list(at)] = part.drawn(posterior[part.kind], members, rng)
        return cells

    def framed(self, marginals: np.ndarray) -> Self:
        parts = zip(self.components, self._split(marginals), strict=True)
        return replace(self, components=tuple(part.framed(counts) for part, counts in parts))

    def framed_by(self, cells: np.ndarray, weights: np.ndarray) -> Self:
        return replace(self, components=tuple(part.framed_by(cells[:, of], weights) for part, of in self._of_cells()))

    def columns_of_means(self) -> np.ndarray:
        """For each of the ``means`` its column, counted in the order of the components."""
        sizes = [part.bins.sizes if isinstance(part, Categories) else [1] * part.n_columns for part in self.components]
        return np.repeat(np.arange(self.n_columns), np.concatenate(sizes))

    # -- in bins ----------------------------------------------------------------------------------------------------

    def binned(self, marginals: np.ndarray, most: int) -> Self:
        parts = zip(self.components, self._split(marginals), strict=True)
        return replace(self, components=tuple(part.binned(counts, most) for part, counts in parts))

    def some_values(self, marginals: np.ndarray, n_components: int, rng: np.random.Generator) -> np.ndarray:
        parts = zip(self.components, self._split(marginals), strict=True)
        return np.hstack([part.some_values(counts, n_components, rng) for part, counts in parts])

    def in_bins(self, values: np.ndarray) -> np.ndarray:
        parts = zip(self.components, self._values(values), strict=True)
        return np.hstack([part.in_bins(of_part) for part, of_part in parts])

    def values_of_bins(self, counts: np.ndarray, values: np.ndarray) -> np.ndarray:
        parts = zip(self.components, self._split(counts), self._values(values), strict=True)
        return np.hstack([part.values_of_bins(of_part, last) for part, of_part, last in parts])

    def totals_of_values(self, size: np.ndarray, values: np.ndarray) -> np.ndarray:
        parts = zip(self.components, self._values(values), strict=True)
        return _together([part.totals_of_values(size, of_part) for part, of_part in parts])

    # -- for people -------------------------------------------------------------------------------------------------

    def features(self, posterior: Posteriors) -> np.ndarray:
        return np.hstack([part.features(posterior[part.kind]) for part in self.components])

    def parts(self, posterior: Posteriors, columns: Sequence[Named], component: str) -> list[Part]:
        named = self._named(columns)
        return [part for of, names in named for part in of.parts(posterior[of.kind], names, component)]

    def seen(
        self, totals: np.ndarray, std: float | np.ndarray, size: float, size_std: float, columns: Sequence[Named]
    ) -> list[Seen]:
        ends = np.cumsum([part.width for part in self.components])[:-1]
        stds = np.split(np.broadcast_to(std, totals.shape), ends)
        parts = zip(self._named(columns), np.split(totals, ends), stds, strict=True)
        return [seen for (part, names), *of in parts for seen in part.seen(*of, size, size_std, names)]

    def summary(self, posterior: Posteriors, columns: Sequence[Named], level: float | None) -> dict[str, np.ndarray]:
        tables = (part.summary(posterior[part.kind], names, level) for part, names in self._named(columns))
        return {name: column for table in tables for name, column in table.items()}

    def shown(self, posterior: Posteriors, columns: Sequence[Named]) -> tuple[np.ndarray, list[str]]:
        shown = [part.shown(posterior[part.kind], names) for part, names in self._named(columns)]
        return np.hstack([values for values, _ in shown]), [title for _, titles in shown for title in titles]

    def _named(self, columns: Sequence[Named]) -> list[tuple[Kind, list[Named]]]:
        """Each component, and what its columns are, from those of the table."""
        return [(part, [columns[j] for j in at]) for part, at in self._parts()]

    # -- to be matched ----------------------------------------------------------------------------------------------

    def charts(self, posterior: Posteriors) -> list[Chart]:
        """Those of each component, one after the other."""
        return [chart for part in self.components for chart in part.charts(posterior[part.kind])]

    def simulated(self, charts: Sequence[Chart], members: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """In the order of the table."""
        values = np.empty((len(members), self.n_columns))
        for part, of_part, at in zip(self.components, self._charts_of_parts(charts), self.columns, strict=True):
            values[:, list(at)] = part.simulated(of_part, members, _taken(draws, at))
        return values

    def scores(self, charts: Sequence[Chart], values: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Scores of values in the order of the table."""
        parts = zip(self.components, self._charts_of_parts(charts), self.columns, strict=True)
        return np.hstack([part.scores(of_part, _taken(values, at), shares) for part, of_part, at in parts])

    def logs(self, charts: Sequence[Chart], values: np.ndarray) -> np.ndarray:
        """Log probability of values in the order of the table in each component, less what all share; shape (n_rows, K)."""
        natural = self.natural(self.sure_of(charts), plug_in=True)
        return self.statistics(self.in_parts(values)) @ natural[:, 1:].T + natural[:, 0]

    def sure_of(self, charts: Sequence[Chart]) -> Posteriors:
        parts = zip(self.components, self._charts_of_parts(charts), strict=True)
        return Posteriors({part.kind: part.sure_of(of_part) for part, of_part in parts})

    def of_draws(self, charts: Sequence[Chart], draws: Sequence[np.ndarray], order: np.ndarray) -> Posteriors:
        parts = zip(self.components, self._charts_of_parts(charts), self._charts_of_parts(draws), strict=True)
        return Posteriors({part.kind: part.of_draws(of_part, of_charts, order) for part, of_part, of_charts in parts})

    # -- helpers ----------------------------------------------------------------------------------------------------

    def _charts_of_parts(self, charts: Sequence) -> list[Sequence]:
        """Charts, or what there is for each of them, by component: one of each column of categories, else one."""
        sizes = [part.n_columns if isinstance(part, Categories) else 1 for part in self.components]
        ends = np.cumsum(sizes)
        return [charts[end - size : end] for end, size in zip(ends, sizes, strict=True)]

    def _parts(self) -> Iterator[tuple[Kind, tuple[int, ...]]]:
        """Each component, and its columns."""
        return zip(self.components, self.columns, strict=True)

    def _of_cells(self) -> Iterator[tuple[Kind, slice]]:
        """Each component, and its cells."""
        start = 0
        for part in self.components:
            yield part, slice(start, start + part.n_columns)
            start += part.n_columns

    def _of_totals(self) -> Iterator[tuple[Kind, np.ndarray]]:
        """Each component, and its totals: the count of records, and its own."""
        start = 1
        for part in self.components:
            yield part, np.append(0, np.arange(start, start + part.width))
            start += part.width

    def _places(self, of_parts: Sequence[np.ndarray]) -> np.ndarray:
        """Places in T(x), from those in T of each component."""
        starts = np.cumsum([0, *(part.width for part in self.components)])[:-1]
        return np.concatenate([start + places for places, start in zip(of_parts, starts, strict=True)])

    def _values(self, values: np.ndarray) -> list[np.ndarray]:
        """Values of each component."""
        return np.split(values, np.cumsum([part.n_values for part in self.components])[:-1], axis=1)

    def _split(self, marginals: np.ndarray) -> list[np.ndarray]:
        """Marginals of each component."""
        return np.split(marginals, np.cumsum([sum(part.bins.sizes) for part in self.components])[:-1], axis=-1)


def _taken(values: np.ndarray, columns: tuple[int, ...]) -> np.ndarray:
    return values if columns == tuple(range(values.shape[1])) else np.take(values, columns, axis=1)


def _beside(arrays: list[np.ndarray]) -> np.ndarray:
    """Their columns; a single array is not copied."""
    return arrays[0] if len(arrays) == 1 else np.hstack(arrays)


def _together(totals: list[np.ndarray]) -> np.ndarray:
    return np.hstack([totals[0][:, :1], *(of_part[:, 1:] for of_part in totals)])
