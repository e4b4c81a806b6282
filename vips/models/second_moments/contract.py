"""The contract of models that need one release: the sum of z zᵀ, from which everything else is computed.

    z = k (x, cF, t F y),   k = min(1, F / ‖x‖)        F: `max_norm`, y in [-1, 1], where there is a target

A row longer than F is multiplied by k as a whole, constant and target included: it then has the weight k² in every moment. A
weight that depends on x alone does not bias a regression whose expected targets are linear in x; x scaled alone would.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from vips._support.arguments import arguments
from vips._support.validation import check_max_norm
from vips.core.contract import weighs_records
from vips.core.exact.rowwise import row_norms
from vips.core.phases import FitPhase
from vips.core.plan import PrivacyPlan
from vips.core.records.partition import Records
from vips.core.records.source import DataSource
from vips.core.sums import Block, BySquaredWeights, Joint, Quadratic
from vips.model import ConjugateExponentialModel
from vips.models._centred import means_and_spreads, seen
from vips.models._variance_ratios import SQUARES_SCALE, WITH_SQUARES
from vips.models.second_moments.moments import SecondMoments
from vips.report.report import rows_like_one
from vips.report.words import described

__all__ = ["SecondMomentModel"]

# Share of `max_norm` that the constant has in a record's vector: the count's noise grows as 1/c², that of all others as c².
_CONSTANT_SHARE = 0.5


@arguments
class SecondMomentModel(ConjugateExponentialModel):
    """A model with the block "second". The columns of z are those of X, a constant, and the target if there is one."""

    max_norm: float | None = None
    on_invalid: str = "drop"

    planned_steps = 1  # every step would release the same moments
    exact_rows = True
    adds_up = takes_sparse = True
    settings_of_meaning = ()
    fit_intercept = True

    def check_parameters(self) -> None:
        """Check all constructor arguments, before the records are read."""
        check_max_norm(self.max_norm, self.is_private, "longer rows weigh less")

    def begin(self, records: DataSource) -> None:
        """Look for the centre of the columns, around which products are summed: those of far columns have no digits left for
        what varies."""
        means = means_and_spreads(self, records, self._columns)[0] if self.fit_intercept else None
        if means is not None:
            self.centre_ = means

    def blocks(self) -> dict[str, Block]:
        d = self.n_features_in_ + 1 + self.needs_labels
        second = Block((d, d), symmetric=True, scale=self._ball() ** 2)
        if not self._sums_squares:
            return {"second": second}
        return {"second": second, "squares": replace(second, scale=SQUARES_SCALE * second.scale)}

    def phases(self, n_steps: int) -> list[FitPhase]:
        released = "noisy second moments of the columns, and the noisy number of records"
        squares = ", and both by squared weights" if self._sums_squares else ""
        return [FitPhase("steps", n_steps, released=released + squares)]

    def expected_statistics(self, records, posterior) -> Joint:
        rows = self._rows(records, posterior)
        largest = self._largest_norms(rows)
        squares = [BySquaredWeights(Quadratic("squares", rows, largest))] if self._sums_squares else []
        return Joint(Quadratic("second", rows, largest), *squares)

    def _rows(self, records, posterior) -> np.ndarray:
        """z of each record, which depends on it alone; shape (n_records, number of columns of z)."""
        rows = design(records, np.inf if self.max_norm is None else float(self.max_norm), self._constant())
        rows[:, :-1] -= np.outer(rows[:, -1] / self._constant(), self._centre)
        return rows

    def _largest_norms(self, rows: np.ndarray) -> np.ndarray | None:
        """The largest norms of z whatever the targets; None where there are none."""
        return None

    def to_posterior(self, average, noise_std, previous) -> Any:
        return self._posterior_of(SecondMoments.of(average["second"], noise_std["second"]))

    @abstractmethod
    def _posterior_of(self, moments: SecondMoments):
        """The posterior that takes noisy moments at face value."""

    @abstractmethod
    def _noise_aware_posterior_of(self, moments: SecondMoments):
        """The posterior given noisy moments."""

    def step_size(self, t: int) -> float:
        """1/t: every step sees the same moments."""
        return 1.0 / t

    def max_record_norm(self) -> float:
        """‖z‖² of a row of norm ``max_norm``, in units of its square; ``inf`` without a ``max_norm``."""
        if self.max_norm is None:
            return np.inf
        longer = WITH_SQUARES if self._sums_squares else 1.0
        return longer * (1.0 + _CONSTANT_SHARE**2 + self._target_share() ** 2)

    @property
    def _sums_squares(self) -> bool:
        """Whether moments by squared weights are released, from which the variance of weighted ones follows."""
        return self.needs_labels and weighs_records(self)

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """One full-batch step."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=1)

    def default_chunk_size(self) -> int:
        """About 30 MB of rows."""
        return max(64, 4_000_000 // max(self.n_columns, 1))

    def describe(self) -> dict:
        return described(
            self,
            "hence the posterior",
            f"max_norm = {self.max_norm or np.inf:g}: longer rows weigh less",
            f"number of columns: {self.n_features_in_}",
            *self._declared(),
            "all other constructor arguments",
        )

    def _declared(self) -> tuple[str, ...]:
        return ()

    @property
    def _centre(self) -> np.ndarray:
        """What is taken off columns and target of an ordinary fit; 0 in a private one, whatever was fitted before."""
        return seen(self, "centre_", np.zeros(self.n_features_in_ + self.needs_labels))

    def _columns(self, records):
        """Columns and target, of rows that are not sparse."""
        X = records.X if isinstance(records, Records) else records
        return np.column_stack([X, records.y]) if self.needs_labels and not sp.issparse(X) else X

    def _target_share(self) -> float:
        """Largest entry of that column, in units of ``max_norm``."""
        return 0.0

    def _ball(self) -> float:
        return 1.0 if self.max_norm is None else float(self.max_norm)

    def _constant(self) -> float:
        return 1.0 if self.max_norm is None else _CONSTANT_SHARE * float(self.max_norm)

    def to_noise_aware_posterior(self) -> Any:
        return self._noise_aware_posterior_of(self._released("second"))

    def _rows_like_one(self) -> float:
        return rows_like_one(self.privacy_)

    def _released(self, block: str) -> SecondMoments | None:
        """A sum of the fit, as if of independent rows; None for one that it has not released."""
        totals, rows = self.noisy_totals_, self._rows_like_one()
        if block not in totals.average:
            return None
        return SecondMoments.of(totals.average[block] / rows, totals.noise_std[block] / rows)


def design(X, max_norm: float, constant: float, target: np.ndarray | None = None) -> np.ndarray:
    """Rows z, shape (n_records, d + 1) or, with a target, (n_records, d + 2). Each depends on its record alone.

    Parameters
    ----------
    X : array or CSR of shape (n_records, d)
    max_norm, constant : float
        F and cF. Public.
    target : ndarray of shape (n_records,), optional
        t F y.

    Returns
    -------
    ndarray
        Rows whose norm overflows are NaN.
    """
    X = sp.csr_array(X).astype(np.float64).toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    columns = [X, np.full((len(X), 1), constant)] + ([] if target is None else [target[:, None]])
    rows, norms = np.concatenate(columns, axis=1), row_norms(X)
    long = np.flatnonzero(~(norms <= max_norm))
    rows[long] *= np.where(np.isfinite(norms[long]), max_norm / norms[long], np.nan)[:, None]
    return rows
