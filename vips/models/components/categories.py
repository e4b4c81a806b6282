"""Columns of categories, as codes from 0 on: a table of probabilities for each component, with a Dirichlet prior.

    x_j | k ~ Categorical(θ_kj),   θ_kj ~ Dirichlet(η, …, η)

T(x) has an indicator for each code, all of them 0 where x_j is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Self

import numpy as np

from vips._support.printable import printable
from vips.data._cell_values import as_categories
from vips.expfam import Dirichlet
from vips.models._denoising import denoise_counts
from vips.models.components.bins import Bins, bins_of_levels
from vips.models.components.component import SURE, Kind, Named
from vips.models.components.kernels import find_places
from vips.models.components.matching.charts import Simplexes
from vips.models.components.matching.simulator import levels_at
from vips.parts import Part
from vips.report.unread import Seen

__all__ = ["Answers", "Categories", "typical_answers"]

_LEAST_COUNT = 1e-12  # in a bin
_LEAST = 1e-300  # of a probability, before its logarithm
_LEAST_PRIOR = 1e-12  # of EM
_LARGEST = 100_000  # categories of a column
_LEAST_SHARE = 0.1  # of a marginal, in a component that begins


class Answers(tuple):
    """Posteriors of the answers in each column, Dirichlet or Draws of shape (K, L_j)."""

    @property
    def mean(self) -> np.ndarray:
        """Probabilities, column after column, shape (K, n_levels); those of a column sum to 1."""
        return np.hstack([column.mean for column in self])

    @property
    def concentration(self) -> np.ndarray:
        """Concentration of the Dirichlets, column after column, shape (K, n_levels)."""
        return np.hstack([column.concentration for column in self])

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper limits of the probabilities, column after column."""
        return tuple(map(np.hstack, zip(*(column.interval(level) for column in self), strict=True)))

    def taken(self, places: np.ndarray) -> Answers:
        """Those of the components at these places."""
        return Answers(column.taken(places) for column in self)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        return {
            "concentration": self.concentration,
            "levels": np.array([column.mean.shape[1] for column in self], np.int64),
        }


@dataclass(frozen=True)
class Categories(Kind):
    """Columns of categories.

    Parameters
    ----------
    levels : tuple of int
        Number of codes of each column; public.
    prior : float
        η; 0 for EM.
    """

    levels: tuple[int, ...]
    prior: float = 1.0

    kind, words, cell = "answers", "categories", "category"

    @classmethod
    def declared(cls, name: object, value: object) -> Sequence:
        """A list of categories, or the number of codes, of which it gives the range."""
        if isinstance(value, int | np.integer) and not isinstance(value, bool) and 1 <= value <= _LARGEST:
            return range(int(value))
        if not isinstance(value, list | tuple | np.ndarray) or not len(value):  # what a file can hold
            raise ValueError(f"Column {name!r} is declared as {value!r}: write a list of categories, or their number.")
        categories = [category.item() if isinstance(category, np.generic) else category for category in value]
        known = as_categories(categories)
        if any(category is None for category in known):
            raise ValueError(f"Categories of column {name!r} must be strings or finite numbers.")
        if len(set(known)) != len(known):
            raise ValueError(f"Column {name!r} has a category twice.")
        return categories

    @classmethod
    def of(cls, declared: Sequence[Sequence], prior: float, limit: float) -> Self:
        return cls(tuple(map(len, declared)), prior)

    @classmethod
    def reads(cls, values: np.ndarray, declared: Sequence) -> np.ndarray:
        return (values >= 0) & (values < len(declared)) & (values == np.floor(values))

    @classmethod
    def typical(
        cls, declared: Sequence, members: np.ndarray, n_components: int, rng: np.random.Generator
    ) -> np.ndarray:
        levels = np.arange(len(declared)) if isinstance(declared, range) else np.asarray(declared)
        tables = rng.dirichlet(np.ones(len(levels)), n_components)
        return levels[levels_at(rng.random(len(members)), tables[members])]

    @property
    def largest_squares(self) -> float:
        return float(self.n_columns)

    usual_squares = largest_squares

    @property
    def n_columns(self) -> int:
        return len(self.levels)

    @property
    def width(self) -> int:
        return sum(self.levels)

    n_marginals = n_means = n_values = width

    @cached_property
    def bins(self) -> Bins:
        return bins_of_levels(self.levels)

    @property
    def means(self) -> np.ndarray:
        return np.arange(self.width)

    @property
    def missing(self) -> np.ndarray:
        return np.empty(0, np.int64)

    @property
    def n_free(self) -> int:
        return self.width - self.n_columns

    def cells(self, values: np.ndarray) -> np.ndarray:
        cells = np.array(values, np.float64, order="C")
        is_code = (cells >= 0.0) & (cells < self.levels) & (cells == np.floor(cells))  # false for NaN
        cells[~is_code] = np.nan
        return cells

    def places(self, values: np.ndarray) -> np.ndarray:
        """Where each cell's indicator is in T(x), -1 for a missing cell: int32 of shape (n_rows, n_columns)."""
        places, levels = np.empty(values.shape, np.int32), np.array(self.levels)
        find_places(values, levels, np.cumsum(levels) - levels, places)
        return places

    def statistics(self, cells: np.ndarray) -> np.ndarray:
        return self.bins.indicators(cells)

    def natural(self, posterior: Answers, plug_in: bool) -> np.ndarray:
        logs = [np.log(np.maximum(part.mean, _LEAST)) if plug_in else part.expected_log for part in posterior]
        return np.hstack([np.zeros((len(logs[0]), 1)), *logs])

    def posterior(self, totals: np.ndarray) -> Answers:
        """A Dirichlet for each column, ``concentration`` of shape (K, levels of the column)."""
        concentration = max(self.prior, _LEAST_PRIOR) + np.maximum(totals[:, 1:], 0.0)
        return Answers(map(Dirichlet, np.split(concentration, self.bins.starts[1:-1], axis=1)))

    @classmethod
    def posterior_of(cls, arrays: dict[str, np.ndarray]) -> Answers:
        concentration, levels = arrays["concentration"], arrays["levels"]
        if levels.dtype.kind not in "iu" or levels.sum() != concentration.shape[1] or (levels < 1).any():
            raise ValueError("the posterior's numbers of levels do not fit to its answers")
        return Answers(map(Dirichlet, np.split(concentration, np.cumsum(levels)[:-1], axis=1)))

    def denoised(self, totals: np.ndarray, noise_std: np.ndarray) -> np.ndarray:
        counts = denoise_counts(np.ascontiguousarray(totals[:, 1:]), np.ascontiguousarray(noise_std[:, 1:]))[0]
        return np.hstack([totals[:, :1], counts])

    def begun(self, size: float, marginals: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        share = np.full((len(offsets), 1), size / len(offsets))
        counts = np.maximum(marginals / len(offsets) + share * offsets, _LEAST_SHARE * marginals / len(offsets))
        return np.hstack([share, counts])

    def chances(self, posterior: Answers) -> np.ndarray:
        return posterior.mean

    def divergence(self, posterior: Answers) -> float:
        priors = (Dirichlet(np.full(part.concentration.shape, self.prior)) for part in posterior)
        return sum(float(np.sum(part.kl(prior))) for part, prior in zip(posterior, priors, strict=True))

    # -- in bins ----------------------------------------------------------------------------------------------------

    def binned(self, marginals: np.ndarray, most: int) -> Self:
        """Each category stays a bin: neighbours need not be alike."""
        return self

    def some_values(self, marginals: np.ndarray, n_components: int, rng: np.random.Generator) -> np.ndarray:
        """Probabilities of the categories, around the marginals."""
        return self.values_of_bins(marginals * np.exp(rng.standard_normal((n_components, len(marginals)))), marginals)

    def in_bins(self, values: np.ndarray) -> np.ndarray:
        return values

    def values_of_bins(self, counts: np.ndarray, values: np.ndarray) -> np.ndarray:
        columns = np.split(counts + _LEAST_COUNT, self.bins.starts[1:-1], axis=1)
        return np.hstack([column / column.sum(axis=1, keepdims=True) for column in columns])

    def totals_of_values(self, size: np.ndarray, values: np.ndarray) -> np.ndarray:
        return np.hstack([size, size * values])

    # -- for people -------------------------------------------------------------------------------------------------

    def features(self, posterior: Answers) -> np.ndarray:
        """Roots of probabilities."""
        return np.sqrt(posterior.mean)

    def parts(self, posterior: Answers, columns: Sequence[Named], component: str) -> list[Part]:
        parts = []
        for (name, categories), answers in zip(columns, posterior, strict=True):
            words = [str(category) for category in categories]
            parts.append(Part(f"answers: {name}", answers, partial(_answer, component, name, words), words))
        return parts

    def seen(
        self, totals: np.ndarray, std: np.ndarray, size: float, size_std: float, columns: Sequence[Named]
    ) -> list[Seen]:
        return [
            Seen(name, self.cell, totals[a:b], std[a:b], size, size_std, categories)
            for (name, categories), (a, b) in zip(columns, pairwise(self.bins.starts), strict=True)
        ]

    def summary(self, posterior: Answers, columns: Sequence[Named], level: float | None) -> dict[str, np.ndarray]:
        """None: models name the answers that are typical of a component."""
        return {}

    def limits(self, posterior: Answers, level: float) -> tuple[np.ndarray, np.ndarray]:
        return posterior.interval(level)

    def shown(self, posterior: Answers, columns: Sequence[Named]) -> tuple[np.ndarray, list[str]]:
        """Probabilities."""
        return posterior.mean, [f"{name} = {category}" for name, categories in columns for category in categories]

    # -- to be matched ------------------------------------------------------------------------------------------

    def charts(self, posterior: Answers) -> list[Simplexes]:
        return [Simplexes.inside(part.mean, self.prior) for part in posterior]

    def simulated(self, charts: Sequence[Simplexes], members: np.ndarray, draws: np.ndarray) -> np.ndarray:
        levels = [levels_at(of_column, chart.p[members]) for of_column, chart in zip(draws.T, charts, strict=True)]
        return np.column_stack(levels).astype(float)

    def scores(self, charts: Sequence[Simplexes], values: np.ndarray, shares: np.ndarray) -> np.ndarray:
        codes = (cells[:, None] == np.arange(chart.p.shape[1]) for cells, chart in zip(values.T, charts, strict=True))
        counts = (shares[:, :, None] * is_code[:, None, :] for is_code in codes)
        return np.hstack([chart.scores(of_chart) for chart, of_chart in zip(charts, counts, strict=True)])

    def sure_of(self, charts: Sequence[Simplexes]) -> Answers:
        return Answers(Dirichlet(SURE * chart.p) for chart in charts)

    def of_draws(self, charts, draws, order: np.ndarray) -> Answers:
        return Answers(chart.named("", of)[""].taken(order) for chart, of in zip(charts, draws, strict=True))


def typical_answers(answers: Answers, columns: Sequence[Named], shares: np.ndarray, n: int) -> list[str]:
    """The n answers that tell each component from all of them, ranked by p log(p / overall): each with its probability p and,
    in brackets, over all components, which have these shares."""
    pairs = [f"{name} = {category}" for name, categories in columns for category in categories]
    overall = shares @ answers.mean
    gain = answers.mean * np.log(np.maximum(answers.mean, _LEAST) / np.maximum(overall, _LEAST))
    texts = []
    for p, of_component in zip(answers.mean, gain, strict=True):
        best = [v for v in np.argsort(-of_component, kind="stable")[:n] if of_component[v] > 0.0]
        texts.append("; ".join(printable(f"{pairs[v]} {p[v]:.2f} ({overall[v]:.2f})") for v in best))
    return texts


def _answer(component: str, name: str, words: list[str], index: tuple[int, ...]) -> str:
    return f"{component} {index[0]}: {name} = {words[index[1]]}"
