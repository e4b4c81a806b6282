"""Posterior of latent classes, and these as simulated records: what a match moves, and how the steps of a fit see them.

=================  =========================================================================
symbol             name
=================  =========================================================================
w (K,)             ``weights``: shares of the classes
μ_kj, τ_kj         ``columns["numbers"]``: means and precisions of the columns of numbers
λ_kj               ``columns["counts"]``: rates of the columns of counts
θ_kj               ``columns["answers"][j]``: probabilities of the answers in column j, (K, L_j)
=================  =========================================================================

A cell is missing with a probability of its column, whatever the class: the released totals tell these probabilities, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import softmax

from vips._support.alignment import align
from vips.core.exact.rowwise import rowwise_product
from vips.core.sums.classes import ClassStatistics
from vips.expfam import Dirichlet, Draws
from vips.models._mixture import MixtureSimulator
from vips.models.components import kernels
from vips.models.components.columns import Columns, Posteriors
from vips.models.components.component import Frame
from vips.models.components.matching.charts import Chart, Simplexes
from vips.models.components.matching.match import ChartMatch, check_told

__all__ = ["ClassPosterior", "ClassSimulator", "Tables", "inferred", "matched_classes"]

_LEAST = 1e-300  # of a probability, before its logarithm
_FARTHEST = 100.0  # of a draw, whose exponential is taken
_MISSING = 0.05, 1e-3, 0.9  # share of a column's cells at the start: where nothing is known, at least, and at most


class Tables(NamedTuple):
    """Logarithms for the E-step, of shape (K,), (width of t, K) and (n_levels, K)."""

    constants: np.ndarray
    of_rows: np.ndarray
    of_answers: np.ndarray


@dataclass(frozen=True, repr=False)
class ClassPosterior:
    """Posterior of the shares of the classes, and of what each class says about the columns of each kind.

    Parameters
    ----------
    weights : Dirichlet or Draws
        Of shape (K,). Draws, as in ``columns["answers"]``, at an accepted match.
    columns : Posteriors
        Of the columns of each kind; numbers are in the coordinates of ``frame``.
    frame : Frame
        Public coordinates of the columns that have some, kind by kind.
    draws : ndarray of shape (K, n_means)
        Public, from which classes begin.
    marginals : ndarray of shape (n_bins,)
        Denoised counts in the bins of all columns, around which classes begin; 0 before that.
    plug_in : bool
        Whether E-steps take the means, as EM and private fits do, instead of expected logarithms.
    """

    weights: Dirichlet | Draws
    columns: Posteriors
    frame: Frame
    draws: np.ndarray
    marginals: np.ndarray
    plug_in: bool
    _tables: list = field(default_factory=list, init=False, compare=False)

    def __repr__(self) -> str:
        return f"<ClassPosterior of {len(self.draws)} classes, columns of {', '.join(self.columns)}>"

    @property
    def profiles(self) -> np.ndarray:
        """Mean probabilities of the answers, shape (K, n_levels); those of a column sum to 1."""
        return self.columns["answers"].mean if "answers" in self.columns else np.empty((len(self.draws), 0))

    def tables(self, columns: Columns) -> Tables:
        """Logarithms for the E-step, which are computed once."""
        if not self._tables:
            self._tables.append(self._logarithms(columns))
        return self._tables[0]

    def in_order(self, order: np.ndarray) -> ClassPosterior:
        """The same classes in another order."""
        taken = {"weights": self.weights.taken(order), "columns": self.columns.taken(order)}
        return replace(self, **taken, draws=self.draws[order])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        arrays = {"weights": self.weights.concentration, "draws": self.draws, "marginals": self.marginals}
        return arrays | self.columns.to_arrays() | {"plug_in": np.array(self.plug_in)} | vars(self.frame)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> ClassPosterior:
        """Inverse of ``to_arrays``.

        Raises
        ------
        ValueError
            If the arrays do not fit together, or a number is not of a posterior.
        """
        frame = Frame(arrays["centre"], arrays["scale"])
        frame.check()
        is_start = (np.abs(arrays["draws"]) < _FARTHEST).all() and np.isfinite(arrays["marginals"]).all()
        if not is_start or arrays["plug_in"].dtype.kind != "b":
            raise ValueError("the posterior's start is none")
        weights, columns = Dirichlet(arrays["weights"]), Posteriors.from_arrays(arrays)
        return cls(weights, columns, frame, arrays["draws"], arrays["marginals"], bool(arrays["plug_in"]))

    def check_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Whether arrays of a file are those of a posterior like this one.

        Raises
        ------
        ValueError
            If the columns have other numbers of levels, which may have the same sum.
        """
        levels = self.columns.to_arrays().get("answers_levels")
        if levels is not None and not np.array_equal(arrays.get("answers_levels", levels), levels):
            raise ValueError("the posterior's 'levels' are not the model's")

    def _logarithms(self, columns: Columns) -> Tables:
        weights, n_levels = self.weights, self.profiles.shape[1]
        logs = np.log(np.maximum(weights.mean, _LEAST)) if self.plug_in else weights.expected_log
        natural = columns.natural(self.columns, self.plug_in)
        of_rows, of_answers = np.split(natural[:, 1:].T, [natural.shape[1] - 1 - n_levels])
        return Tables(natural[:, 0] + logs, of_rows, np.ascontiguousarray(of_answers))


def inferred(rows: np.ndarray, places: np.ndarray, tables: Tables) -> ClassStatistics:
    """Statistics of records at the posterior that these tables are of."""
    shares, log_likelihood = np.repeat(tables.constants[None], len(rows), axis=0), np.empty(len(rows))
    if rows.shape[1]:
        shares += rowwise_product(rows, tables.of_rows)
    kernels.responsibilities(places, tables.of_answers, shares, log_likelihood)
    return ClassStatistics(shares, rows, places, len(tables.of_answers), log_likelihood=log_likelihood)


@dataclass(frozen=True)
class ClassSimulator(MixtureSimulator):
    """Records of classes. The charts are those of the classes' shares, of missing cells, and of the columns.

    Parameters
    ----------
    columns : Columns
        Without limits.
    class_prior : float
        Concentration of the prior of the shares.
    """

    columns: Columns
    class_prior: float
    first_of_seen: ClassVar[int] = 2

    def charts(self) -> list[Chart]:
        posterior = self.model.last_posterior_
        missing = _missing(posterior, self.columns)
        shares = Simplexes.inside(posterior.weights.mean[None], self.class_prior)
        of_cells = Simplexes(np.column_stack([1.0 - missing, missing]), 1.0)
        return [shares, of_cells, *self.columns.charts(posterior.columns)]

    def simulated(self, charts: Sequence[Chart], n_records: int, rng: np.random.Generator) -> np.ndarray:
        """Rows, NaN where a cell is missing."""
        shares, missing, *of_columns = charts
        classes = self.members(shares, n_records, rng)
        values = self.columns.simulated(of_columns, classes, rng.random((self.columns.n_columns, n_records)).T)
        values[rng.random(values.shape) < missing.p[:, 1]] = np.nan
        return values

    def scores(self, records: np.ndarray, charts: Sequence[Chart]) -> np.ndarray:
        shares, missing, *of_columns = charts
        given, is_missing = self._shares_at(records, charts), np.isnan(records)
        of_missing = missing.scores(np.stack([~is_missing, is_missing], axis=-1).astype(float))
        return np.hstack([shares.scores(given[:, None]), of_missing, self.columns.scores(of_columns, records, given)])

    def _shares_at(self, records: np.ndarray, charts: Sequence[Chart]) -> np.ndarray:
        """Shares of the classes given each record, at the parameters."""
        shares, _, *of_columns = charts
        return softmax(self.columns.logs(of_columns, records) + np.log(shares.p[0]), axis=1)


def matched_classes(
    match: ChartMatch,
    fitted: ClassPosterior,
    columns: Columns,
    components: Callable[[ClassPosterior], tuple[np.ndarray, str]],
) -> ClassPosterior:
    """Draws of shares and answers, and what other columns say, the classes in the order of the fit.

    Raises
    ------
    NotImplementedError
        If the match is refused, or noise hides a class.
    """
    match.check()
    (of_classes, _, *of_columns), (shares, _, *draws) = match.best(), match.draws()
    check_told(shares, "classes")

    def in_order(order: np.ndarray) -> ClassPosterior:
        return replace(
            fitted,
            weights=Draws(shares, of_classes.p[0]).taken(order),
            columns=columns.of_draws(of_columns, draws, order),
        )

    (theirs, distance), (ours, _) = map(components, (fitted, in_order(np.arange(shares.shape[1]))))
    return in_order(align(theirs, ours, distance).order)


def _missing(posterior: ClassPosterior, columns: Columns) -> np.ndarray:
    """About which share of each column's cells is missing, in the order of the table."""
    seen = np.add.reduceat(posterior.marginals, columns.bins.starts[:-1])
    usual, *limits = _MISSING
    if not seen.any():
        return np.full(len(seen), usual)
    n_records, missing = max(seen.max(), float(posterior.weights.concentration.sum())), np.empty(len(seen))
    missing[np.concatenate(columns.columns)] = np.clip(1.0 - seen / n_records, *limits)
    return missing
