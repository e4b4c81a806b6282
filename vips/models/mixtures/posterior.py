"""Posterior of latent classes.

===================  ====================================================================
symbol               name
===================  ====================================================================
w (K,)               ``weights``: shares of the classes
μ_kj, τ_kj           ``numbers``: means and precisions of the columns of numbers
λ_kj                 ``counts``: rates of the columns of counts
θ_kj                 ``answers[j]``: probabilities of the answers in column j, (K, L_j)
===================  ====================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from vips.core.exact.rowwise import rowwise_product
from vips.core.sums.classes import ClassStatistics
from vips.expfam import Dirichlet, Draws, Gamma
from vips.models.components.columns import Columns
from vips.models.components.component import Frame, check_rates
from vips.models.components.numbers import NormalGamma
from vips.models.mixtures import kernels

__all__ = ["ClassPosterior", "Tables", "inferred", "of_kinds"]

_LEAST = 1e-300  # of a probability, before its logarithm
_FARTHEST = 100.0  # of a draw, whose exponential is taken
_OF_COLUMNS = ("levels", "centre", "scale", "marginals", "plug_in")  # all other arrays have a row for each class


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
        Of shape (K,). Draws, as in ``answers``, at an accepted match.
    numbers : NormalGamma or None
        Of the columns of numbers, in the coordinates of ``frame``.
    counts : Gamma or None
        Rates of the columns of counts.
    answers : tuple of Dirichlet or Draws
        For each column of categories, of shape (K, L_j).
    frame : Frame
        Public coordinates of the columns of numbers, and of those of counts after them.
    draws : ndarray of shape (K, n_means)
        Public, from which classes begin.
    marginals : ndarray of shape (n_bins,)
        Denoised counts in the bins of all columns, around which classes begin; 0 before that.
    plug_in : bool
        Whether E-steps take the means, as EM and private fits do, instead of expected logarithms.
    """

    weights: Dirichlet | Draws
    numbers: NormalGamma | None
    counts: Gamma | None
    answers: tuple[Dirichlet | Draws, ...]
    frame: Frame
    draws: np.ndarray
    marginals: np.ndarray
    plug_in: bool
    _tables: list = field(default_factory=list, init=False, compare=False)

    def __repr__(self) -> str:
        n_numbers = 0 if self.numbers is None else self.numbers.mean.shape[1]
        n_counts = 0 if self.counts is None else self.counts.shape.shape[1]
        return (
            f"<ClassPosterior of {len(self.draws)} classes, {n_numbers} columns of numbers, {n_counts} of counts, "
            f"{len(self.answers)} of categories>"
        )

    @property
    def concentration(self) -> np.ndarray:
        """Concentration of the answers, column after column, shape (K, n_levels)."""
        return self._side_by_side([column.concentration for column in self.answers])

    @property
    def profiles(self) -> np.ndarray:
        """Mean probabilities of the answers, shape (K, n_levels); those of a column sum to 1."""
        return self._side_by_side([column.mean for column in self.answers])

    def parts(self) -> tuple:
        """Posteriors of the kinds of columns that there are."""
        kinds = (self.numbers, self.counts, self.answers or None)
        return tuple(posterior for posterior in kinds if posterior is not None)

    def tables(self, columns: Columns) -> Tables:
        """Logarithms for the E-step, which are computed once."""
        if not self._tables:
            self._tables.append(self._logarithms(columns))
        return self._tables[0]

    def in_order(self, order: np.ndarray) -> ClassPosterior:
        """The same classes in another order."""
        numbers, counts = (None if part is None else _ordered(part, order) for part in (self.numbers, self.counts))
        weights, *answers = (_ordered(part, order) for part in (self.weights, *self.answers))
        draws = self.draws[order]
        return replace(self, weights=weights, numbers=numbers, counts=counts, answers=tuple(answers), draws=draws)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        numbers = {} if self.numbers is None else self.numbers.to_arrays()
        counts = {} if self.counts is None else self.counts.to_arrays()
        arrays = {"weights": self.weights.concentration, "draws": self.draws, "marginals": self.marginals}
        arrays |= {f"numbers_{name}": value for name, value in numbers.items()}
        arrays |= {f"counts_{name}": value for name, value in counts.items()}
        arrays |= {"answers": self.concentration, "levels": self._levels(), "plug_in": np.array(self.plug_in)}
        return arrays | vars(self.frame)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> ClassPosterior:
        """Inverse of ``to_arrays``.

        Raises
        ------
        ValueError
            If the arrays do not fit together, or a number is not of a posterior.
        """
        numbers, counts = (
            {name.removeprefix(kind): value for name, value in arrays.items() if name.startswith(kind)}
            for kind in ("numbers_", "counts_")
        )
        levels, frame = arrays["levels"], Frame(arrays["centre"], arrays["scale"])
        if levels.dtype.kind not in "iu" or levels.sum() != arrays["answers"].shape[1] or (levels < 1).any():
            raise ValueError("the posterior's numbers of levels do not fit to its answers")
        frame.check()
        rates = Gamma.from_arrays(counts) if counts else None
        if rates is not None:
            check_rates(rates)
        is_start = (np.abs(arrays["draws"]) < _FARTHEST).all() and np.isfinite(arrays["marginals"]).all()
        if not is_start or arrays["plug_in"].dtype.kind != "b":
            raise ValueError("the posterior's start is none")
        return cls(
            Dirichlet(arrays["weights"]),
            NormalGamma.from_arrays(numbers) if numbers else None,
            rates,
            tuple(map(Dirichlet, np.split(arrays["answers"], np.cumsum(levels)[:-1], axis=1))) if len(levels) else (),
            frame,
            arrays["draws"],
            arrays["marginals"],
            bool(arrays["plug_in"]),
        )

    def check_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Whether arrays of a file are those of a posterior like this one.

        Raises
        ------
        ValueError
            If the columns have other numbers of levels, which may have the same sum.
        """
        if not np.array_equal(arrays.get("levels", self._levels()), self._levels()):
            raise ValueError("the posterior's 'levels' are not the model's")

    def _logarithms(self, columns: Columns) -> Tables:
        weights, n_levels = self.weights, sum(self._levels())
        logs = np.log(np.maximum(weights.mean, _LEAST)) if self.plug_in else weights.expected_log
        natural = columns.natural(self.parts(), self.plug_in)
        of_rows, of_answers = np.split(natural[:, 1:].T, [natural.shape[1] - 1 - n_levels])
        return Tables(natural[:, 0] + logs, of_rows, np.ascontiguousarray(of_answers))

    def _levels(self) -> np.ndarray:
        return np.array([part.mean.shape[1] for part in self.answers], np.int64)

    def _side_by_side(self, tables: list[np.ndarray]) -> np.ndarray:
        return np.hstack([np.empty((len(self.draws), 0)), *tables])


def of_kinds(parts: tuple) -> dict[str, Any]:
    """The posteriors of kinds of columns, by the names that :class:`ClassPosterior` has for them."""
    numbers = [part for part in parts if isinstance(part, NormalGamma)]
    counts = [part for part in parts if isinstance(part, Gamma)]
    answers = [part for part in parts if isinstance(part, tuple)]
    return {"numbers": (*numbers, None)[0], "counts": (*counts, None)[0], "answers": (*answers, ())[0]}


def _ordered(part: Dirichlet | Draws | Gamma | NormalGamma, order: np.ndarray):
    if isinstance(part, NormalGamma):
        return NormalGamma(part.mean[order], part.mean_precision[order], _ordered(part.precision, order))
    if isinstance(part, Gamma):
        return Gamma(part.shape[order], part.rate[order])
    return part.taken(order) if isinstance(part, Draws) else Dirichlet(part.concentration[order])


def inferred(rows: np.ndarray, places: np.ndarray, tables: Tables) -> ClassStatistics:
    """Statistics of records at the posterior that these tables are of."""
    shares, log_likelihood = np.repeat(tables.constants[None], len(rows), axis=0), np.empty(len(rows))
    if rows.shape[1]:
        shares += rowwise_product(rows, tables.of_rows)
    kernels.responsibilities(places, tables.of_answers, shares, log_likelihood)
    return ClassStatistics(shares, rows, places, len(tables.of_answers), log_likelihood=log_likelihood)
