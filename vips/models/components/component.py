"""What a kind of columns says about itself: the contract of components.

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
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from vips.expfam import Gamma
from vips.models.components.bins import Bins
from vips.models.components.matching.charts import Chart

__all__ = ["SURE", "Component", "Frame", "check_rates"]

_LARGEST_RATE = 1e15
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


def check_rates(rates: Gamma) -> None:
    """Raise ValueError for rates of a file that no counts have."""
    with np.errstate(over="ignore"):
        is_moderate = max(rates.shape.max(initial=0.0), rates.mean.max(initial=0.0)) < _LARGEST_RATE
    if not is_moderate:
        raise ValueError("the posterior's rates are no moderate numbers")


class Component(ABC):
    """Columns of one kind. A subclass is a frozen dataclass of public facts.

    Attributes
    ----------
    n_columns : int
    width : int
        Of T(x).
    bins : Bins
        Public bins of each column, in which marginals are counted.
    means : ndarray of int
        Which numbers of T(x) say where a row is: means of them tell components apart.
    n_free : int
        Free parameters of a component.
    """

    n_columns: int
    width: int
    bins: Bins
    means: np.ndarray
    n_free: int

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

    @abstractmethod
    def divergence(self, posterior: Any) -> float:
        """KL from the prior, of all components."""

    def drawn(self, posterior: Any, members: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Cells of rows of these components at the posterior's means, shape (len(members), n_columns)."""
        return self.cells(self.simulated(self.charts(posterior), members, rng))

    def framed(self, marginals: np.ndarray) -> Self:
        """The same columns in coordinates in which these marginals have mean 0 and variance 1, where there are any."""
        return self

    # -- to be matched: see vips/models/components/matching ---------------------------------------------------------

    @abstractmethod
    def charts(self, posterior: Any) -> list[Chart]:
        """The posterior's means, as coordinates from which a match moves."""

    @abstractmethod
    def simulated(self, charts: Sequence[Chart], members: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Values of rows of these components, beyond public bounds too, shape (len(members), n_columns). As many draws
        whatever the parameters."""

    @abstractmethod
    def scores(self, charts: Sequence[Chart], values: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Derivatives of log p in the coordinates of the charts, for rows with these shares of the components, shape
        (n_rows, n_coordinates); 0 for what is missing."""

    @abstractmethod
    def at(self, charts: Sequence[Chart]) -> Any:
        """A posterior that is sure of these parameters."""

    @abstractmethod
    def of_draws(self, charts: Sequence[Chart], draws: Sequence[np.ndarray], order: np.ndarray) -> Any:
        """A posterior of the components in this order, from draws of each chart's parameters."""
