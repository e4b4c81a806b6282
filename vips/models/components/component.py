"""What a kind of columns says about itself: the contract of components.

A new kind is a subclass in a file of its own, and a line in ``KINDS`` (``columns.py``). It then works in every model of
declared columns: mixtures, whose rows are independent (``vips/models/mixtures``), and chains, whose rows are the steps of
sequences (``vips/models/markov``).

    log p(x | k) = η_k · (1, T(x)) + log h(x)        columns are independent given component k, T is bounded

Columns are those of one table of numbers, in which a cell that is not finite is missing. A missing cell drops only its own
column: T says which cells are missing, or is 0 there, so that the likelihood of the others is what remains.

==============  =====================  ==========================================================
symbol          name                   meaning
==============  =====================  ==========================================================
(1, T(x))       ``statistics``         numbers of a row that its likelihood depends on
η_k             ``natural``            expected under the posterior, or at its mean
log h(x)        ``log_base``           what does not depend on the component
Σ γ ⊗ (1, T)    ``totals``             of all records, shape (K, 1 + width), with noise or without
==============  =====================  ==========================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from vips.models.components.bins import Bins
from vips.models.components.matching.charts import Chart
from vips.parts import Part
from vips.report.unread import Seen, off_bound

__all__ = ["SURE", "Component", "Frame", "Kind", "Named"]

_LEAST_SCALE = 1e-12  # of a column that varies, in public units
SURE = 1e6  # records, of a posterior that stands for parameters


@dataclass(frozen=True, eq=False)
class Frame:
    """Public coordinates (x - ``centre``) / ``scale`` of the columns, shape (n_columns,) each."""

    centre: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, cells: np.ndarray, weights: np.ndarray, otherwise: Frame) -> Frame:
        """In which the records of an ordinary fit have mean 0 and variance 1; NaN is a missing cell."""
        is_seen = ~np.isnan(cells)
        n = np.maximum(weights @ is_seen, np.finfo(np.float64).tiny)
        centre = np.where(is_seen.any(axis=0), weights @ np.where(is_seen, cells, 0.0) / n, otherwise.centre)
        scale = np.sqrt(weights @ np.where(is_seen, np.square(cells - centre), 0.0) / n)
        return cls(centre, np.where(scale > _LEAST_SCALE * otherwise.scale, scale, otherwise.scale))

    def check(self) -> None:
        """Raise ValueError for coordinates of a file that no fit has."""
        is_moderate = (np.abs(self.centre) <= 1e100).all() and ((self.scale >= 1e-50) & (self.scale <= 1e100)).all()
        if self.centre.shape != self.scale.shape or not is_moderate:
            raise ValueError("the posterior's coordinates are none")


Named = tuple[str, Sequence]  # name of a column, and what is declared of it


class Component(ABC):
    """Columns of a row. A subclass is a frozen dataclass of public facts.

    A posterior, which ``posterior`` makes, has ``to_arrays()`` for saving, and ``taken(order)``: the same components in another
    order.

    Attributes
    ----------
    n_columns : int
    width : int
        Of T(x).
    bins : Bins
        Public bins of each column, in which marginals are counted.
    means : ndarray of int
        Which numbers of T(x) say where a row is: means of them tell components apart.
    missing : ndarray of int
        Which numbers of T(x) say that a cell is missing.
    n_free : int
        Free parameters of a component.
    n_values : int
        How many numbers say what a component is like, in ``in_bins``.
    coordinates : Frame
        Public coordinates of the columns; without columns where T(x) needs none.
    """

    n_columns: int
    width: int
    bins: Bins
    means: np.ndarray
    missing: np.ndarray
    n_free: int
    n_values: int
    coordinates: Frame = Frame(np.empty(0), np.empty(0))

    @property
    @abstractmethod
    def largest_squares(self) -> float:
        """Square of the norm of the largest T(x), without missing cells."""

    @property
    @abstractmethod
    def usual_squares(self) -> float:
        """About the mean of the square of the norm of T(x)."""

    # -- likelihood and posterior -----------------------------------------------------------------------------------

    @property
    def n_marginals(self) -> int:
        """Number of the bins of all columns."""
        return sum(self.bins.sizes)

    @property
    def n_means(self) -> int:
        """Number of the ``means``."""
        return len(self.means)

    @abstractmethod
    def cells(self, values: np.ndarray) -> np.ndarray:
        """A copy in double precision, in which what is no value of its column is NaN; each from its value alone."""

    @abstractmethod
    def statistics(self, cells: np.ndarray) -> np.ndarray:
        """T(x) of each row, shape (n_rows, width); finite."""

    def log_base(self, cells: np.ndarray) -> np.ndarray:
        """log h(x) of each row, shape (n_rows,)."""
        return np.zeros(len(cells))

    @property
    def has_base(self) -> bool:
        """Whether log h(x) may differ from 0."""
        return type(self).log_base is not Component.log_base

    @abstractmethod
    def natural(self, posterior: Any, plug_in: bool) -> np.ndarray:
        """η, shape (K, 1 + width): expected, or at the posterior's means."""

    @abstractmethod
    def posterior(self, totals: np.ndarray) -> Any:
        """Posterior of the parameters: prior and totals, shape (K, 1 + width), without noise or ``denoised``."""

    @abstractmethod
    def denoised(self, totals: np.ndarray, noise_std: np.ndarray) -> np.ndarray:
        """Totals that ``posterior`` takes, whatever the noise, of which an entry has the standard deviation ``noise_std``.

        The first column is denoised already, and has no noise.
        """

    @abstractmethod
    def divergence(self, posterior: Any) -> float:
        """KL from the prior, of all components."""

    def drawn(self, posterior: Any, members: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Cells of rows of these components at the posterior's means, shape (len(members), n_columns)."""
        return self.cells(self.simulated(self.charts(posterior), members, rng.random((len(members), self.n_columns))))

    def at(self, frame: Frame) -> Self:
        """The same columns in these coordinates."""
        return replace(self, frame=frame) if len(self.coordinates.centre) else self

    def framed(self, marginals: np.ndarray) -> Self:
        """The same columns in coordinates in which these marginals have mean 0 and variance 1, where there are any."""
        centre, variance = self.bins.moments(marginals)
        return self.at(Frame(centre, np.sqrt(variance)))

    def framed_by(self, cells: np.ndarray, weights: np.ndarray) -> Self:
        """The same columns in coordinates in which these cells of an ordinary fit have mean 0 and variance 1."""
        return self.at(Frame.of(cells, weights, self.coordinates)) if len(self.coordinates.centre) else self

    # -- where components begin -------------------------------------------------------------------------------------

    @abstractmethod
    def begun(self, size: float, marginals: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Totals of components around the marginals, shape (K, 1 + width), each with a K-th of ``size`` records.

        Parameters
        ----------
        size : float
        marginals : ndarray of shape (sum of bins.sizes,)
            Counts, ≥ 0.
        offsets : ndarray of shape (K, len(means))
            How far the ``means`` of each component are from those of all records.
        """

    @abstractmethod
    def chances(self, posterior: Any) -> np.ndarray:
        """Probabilities of the bins at the posterior's means, column after column, shape (K, sum of bins.sizes)."""

    # -- where states of a chain begin: from neighbouring bins (``vips/models/markov/start.py``) ------------------------

    def binned(self, marginals: np.ndarray, most: int) -> Self:
        """The same columns in at most so many bins each, which hold about as much of these marginals."""
        return replace(self, own_bins=self.bins.merged(marginals, most))

    @abstractmethod
    def some_values(self, marginals: np.ndarray, n_components: int, rng: np.random.Generator) -> np.ndarray:
        """What components may be like, drawn around marginals in the bins: numbers of shape (n_components, n)."""

    @abstractmethod
    def in_bins(self, values: np.ndarray) -> np.ndarray:
        """Probabilities of the bins, column after column, in components that are like this, shape (K, sum of bins.sizes)."""

    @abstractmethod
    def values_of_bins(self, counts: np.ndarray, values: np.ndarray) -> np.ndarray:
        """What components are like next, by EM, given counts in the bins of each, shape (K, sum of bins.sizes)."""

    @abstractmethod
    def totals_of_values(self, size: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Totals of components that are like this, shape (K, 1 + width), with so many rows, (K, 1), and no missing cells."""

    # -- for people -------------------------------------------------------------------------------------------------

    @abstractmethod
    def features(self, posterior: Any) -> np.ndarray:
        """What tells components apart, shape (K, n), in units in which records differ by about 1."""

    @abstractmethod
    def parts(self, posterior: Any, columns: Sequence[Named], component: str) -> list[Part]:
        """The posterior's parts, for comparisons; ``component`` is the word for one."""

    @abstractmethod
    def seen(
        self, totals: np.ndarray, std: np.ndarray, size: float, size_std: float, columns: Sequence[Named]
    ) -> list[Seen]:
        """What noisy totals of T(x), over all components, say of the cells that were read of each column.

        Parameters
        ----------
        totals, std : ndarray of shape (width,)
            And the standard deviation of the noise in them.
        size, size_std : float
            Noisy count of the rows, and the standard deviation of its noise.
        """

    @abstractmethod
    def summary(self, posterior: Any, columns: Sequence[Named], level: float | None) -> dict[str, np.ndarray]:
        """Columns of a summary, in the columns' units, with limits of this level where it is not None."""

    @abstractmethod
    def shown(self, posterior: Any, columns: Sequence[Named]) -> tuple[np.ndarray, list[str]]:
        """What a picture shows of each component, shape (K, n), and n titles."""

    # -- to be matched: see vips/models/components/matching ---------------------------------------------------------

    @abstractmethod
    def charts(self, posterior: Any) -> list[Chart]:
        """The posterior's means, as coordinates from which a match moves."""

    @abstractmethod
    def simulated(self, charts: Sequence[Chart], members: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Values of rows of these components, beyond public bounds too, each from its uniform draw; shape
        (len(members), n_columns)."""

    @abstractmethod
    def scores(self, charts: Sequence[Chart], values: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Derivatives of log p in the coordinates of the charts, for rows with these shares of the components, shape
        (n_rows, n_coordinates); 0 for what is missing."""

    @abstractmethod
    def sure_of(self, charts: Sequence[Chart]) -> Any:
        """A posterior that is sure of these parameters."""

    @abstractmethod
    def of_draws(self, charts: Sequence[Chart], draws: Sequence[np.ndarray], order: np.ndarray) -> Any:
        """A posterior of the components in this order, from draws of each chart's parameters."""


class Kind(Component):
    """Columns of one kind.

    By default T(x) = (m, y, …), where m says which cells are missing, and y where a cell is in the columns' coordinates.

    Attributes
    ----------
    kind : str
        Names posteriors of these columns beside those of others, and in files.
    words, cell : str
        What the columns hold, in a report, and what a cell is.
    """

    kind: ClassVar[str]
    words: ClassVar[str]
    cell: ClassVar[str]

    @property
    def means(self) -> np.ndarray:
        return np.arange(self.n_columns, 2 * self.n_columns)

    @property
    def missing(self) -> np.ndarray:
        return np.arange(self.n_columns)

    @property
    def n_values(self) -> int:
        return self.n_columns

    def seen(
        self, totals: np.ndarray, std: np.ndarray, size: float, size_std: float, columns: Sequence[Named]
    ) -> list[Seen]:
        frame, seen = self.coordinates, []
        for j, (name, declared) in enumerate(columns):
            (missing, total), (of_missing, of_total) = (
                (of[self.missing][j], of[self.means][j]) for of in (totals, std)
            )
            read = Seen(name, self.cell, size - missing, of_missing + size_std, size, size_std)
            seen.append(read)
            for side, bound, other, least in self.ends(declared):  # how far values are from it, in units of the width
                apart, unit = (frame.centre[j] - bound) / (other - bound), frame.scale[j] / (other - bound)
                above, noise = apart * read.counts + unit * total, abs(apart) * read.std + abs(unit) * of_total
                seen.append(off_bound(read, f"{side} {bound:g}", above, noise, least))
        return seen

    def ends(self, declared: Sequence) -> list[tuple[str, float, float, float]]:
        """Bounds that values beyond them become: whether others are "above" or "below", the bound, the opposite one, and the
        least distance from it, on average, in units of the width."""
        return []

    def summary(self, posterior: Any, columns: Sequence[Named], level: float | None) -> dict[str, np.ndarray]:
        (means, titles), deviations, table = self.shown(posterior, columns), self.deviations(posterior), {}
        sides = () if level is None else self.limits(posterior, level)
        for j, title in enumerate(titles):
            names = (f"mean {title}", f"mean {title}, lower", f"mean {title}, upper")
            table |= dict(zip(names, (of[:, j] for of in (means, *sides)), strict=False))
            table |= {} if deviations is None else {f"std {title}": deviations[:, j]}
        return table

    def deviations(self, posterior: Any) -> np.ndarray | None:
        """Standard deviations of the columns in each component, if they tell more than the means."""
        return None

    @abstractmethod
    def limits(self, posterior: Any, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper limits of what is ``shown``."""

    @classmethod
    @abstractmethod
    def declared(cls, name: object, value: object) -> Sequence | None:
        """What this argument declares of a column; None if it is no declaration of this kind.

        Raises
        ------
        ValueError
            If it is one, but wrong.
        """

    @classmethod
    @abstractmethod
    def of(cls, declared: Sequence[Sequence], prior: float, limit: float) -> Self:
        """Columns that are declared so, with a prior that counts as so many records like all records together (0 for EM).
        Values further than ``limit`` standard deviations from the mean of all records become that far from it."""

    @classmethod
    def reads(cls, values: np.ndarray, declared: Sequence) -> np.ndarray:
        """Which of these numbers (NaN: neither missing nor a number) are values of a column that is declared so."""
        return np.isfinite(values)

    @classmethod
    @abstractmethod
    def typical(
        cls, declared: Sequence, members: np.ndarray, n_components: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Values of a column of rows of these components: a plain guess, for plans without records."""

    @classmethod
    @abstractmethod
    def posterior_of(cls, arrays: dict[str, np.ndarray]) -> Any:
        """Inverse of ``to_arrays()`` of a posterior.

        Raises
        ------
        ValueError
            If the arrays do not fit together, or a number is not of a posterior.
        """
