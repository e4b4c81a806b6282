"""Columns of categories, as codes from 0 on: a table of probabilities for each component, with a Dirichlet prior.

    x_j | k ~ Categorical(θ_kj),   θ_kj ~ Dirichlet(η, …, η)

T(x) has an indicator for each code, all of them 0 where x_j is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from vips.expfam import Dirichlet, Draws
from vips.models._denoising import denoise_counts
from vips.models.components.bins import Bins, bins_of_levels
from vips.models.components.component import SURE, Component
from vips.models.components.kernels import find_places
from vips.models.components.matching.charts import Simplexes
from vips.models.components.matching.simulator import levels_at

__all__ = ["Categories"]

_LEAST = 1e-300  # of a probability, before its logarithm
_LEAST_PRIOR = 1e-12  # of EM
_LEAST_SHARE = 0.1  # of a marginal, in a component that begins


@dataclass(frozen=True)
class Categories(Component):
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

    @property
    def n_columns(self) -> int:
        return len(self.levels)

    @property
    def width(self) -> int:
        return sum(self.levels)

    @cached_property
    def bins(self) -> Bins:
        return bins_of_levels(self.levels)

    @property
    def means(self) -> np.ndarray:
        return np.arange(self.width)

    @property
    def n_marginals(self) -> int:
        return self.width

    @property
    def n_means(self) -> int:
        return self.width

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

    def natural(self, posterior: tuple[Dirichlet, ...], plug_in: bool) -> np.ndarray:
        logs = [np.log(np.maximum(part.mean, _LEAST)) if plug_in else part.expected_log for part in posterior]
        return np.hstack([np.zeros((len(logs[0]), 1)), *logs])

    def posterior(self, totals: np.ndarray) -> tuple[Dirichlet, ...]:
        """A Dirichlet for each column, ``concentration`` of shape (K, levels of the column)."""
        concentration = max(self.prior, _LEAST_PRIOR) + np.maximum(totals[:, 1:], 0.0)
        return tuple(Dirichlet(concentration[:, a:b]) for a, b in pairwise(self.bins.starts))

    def denoised(self, totals: np.ndarray, noise_std: np.ndarray) -> np.ndarray:
        counts = denoise_counts(np.ascontiguousarray(totals[:, 1:]), np.ascontiguousarray(noise_std[:, 1:]))[0]
        return np.hstack([totals[:, :1], counts])

    def begun(self, size: float, marginals: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        share = np.full((len(offsets), 1), size / len(offsets))
        counts = np.maximum(marginals / len(offsets) + share * offsets, _LEAST_SHARE * marginals / len(offsets))
        return np.hstack([share, counts])

    def chances(self, posterior: tuple[Dirichlet, ...]) -> np.ndarray:
        return np.hstack([part.mean for part in posterior])

    def divergence(self, posterior: tuple[Dirichlet, ...]) -> float:
        priors = (Dirichlet(np.full(part.concentration.shape, self.prior)) for part in posterior)
        return sum(float(np.sum(part.kl(prior))) for part, prior in zip(posterior, priors, strict=True))

    # -- to be matched ------------------------------------------------------------------------------------------

    def charts(self, posterior: tuple[Dirichlet | Draws, ...]) -> list[Simplexes]:
        return [Simplexes.inside(part.mean, self.prior) for part in posterior]

    def simulated(self, charts: Sequence[Simplexes], members: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.column_stack([levels_at(rng.random(len(members)), chart.p[members]) for chart in charts]).astype(
            float
        )

    def scores(self, charts: Sequence[Simplexes], values: np.ndarray, shares: np.ndarray) -> np.ndarray:
        codes = (cells[:, None] == np.arange(chart.p.shape[1]) for cells, chart in zip(values.T, charts, strict=True))
        counts = (shares[:, :, None] * is_code[:, None, :] for is_code in codes)
        return np.hstack([chart.scores(of_chart) for chart, of_chart in zip(charts, counts, strict=True)])

    def at(self, charts: Sequence[Simplexes]) -> tuple[Dirichlet, ...]:
        return tuple(Dirichlet(SURE * chart.p) for chart in charts)

    def of_draws(self, charts, draws, order: np.ndarray) -> tuple[Draws, ...]:
        return tuple(chart.named("", of)[""].taken(order) for chart, of in zip(charts, draws, strict=True))
