"""Statistics of the models of second moments: z zᵀ of each record, never formed per record but where it is rounded.

    z = k (x, cF, t F y),   k = min(1, F / ‖x‖)        F: `max_norm`, y in [-1, 1], where there is a target

A row longer than F is multiplied by k as a whole, constant and target included: it then has the weight k² in every moment. A
weight that depends on x alone does not bias a linear regression; x scaled beside the same constant and target would.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp

from vips._compute.blas import gram
from vips._compute.rowwise import row_norms
from vips.privacy import Lattice
from vips.sums import Block, RecordStatistics

__all__ = ["OuterStatistics", "design"]

# Norms are float64 sums of positive terms.
_ROUNDING = 1.0 + 4e-9


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


class OuterStatistics(RecordStatistics):
    """z zᵀ of each row z, in one block "second"; and times the row's weight, in block "squares".

    Parameters
    ----------
    rows : ndarray of shape (n_records, d)
    sums_squares : bool
    """

    sums_are_new = True

    def __init__(self, rows: np.ndarray, sums_squares: bool = False) -> None:
        self._rows, self._sums_squares = rows, sums_squares

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        """‖z‖², which is ‖z zᵀ‖."""
        norms = np.square(row_norms(self._rows)) / blocks["second"].scale * _ROUNDING
        if self._sums_squares:
            norms = norms * np.hypot(1.0, self._shares * blocks["second"].scale / blocks["squares"].scale) * _ROUNDING
        return norms

    @property
    def _shares(self) -> np.ndarray:
        return np.ones(len(self._rows)) if self.sample_weights is None else self.sample_weights

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        sums = {"second": self._sum(weights)}
        return sums | ({"squares": self._sum(weights * self._shares)} if self._sums_squares else {})

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        sums = {"second": self._rounded(weights, blocks["second"], lattice)}
        if self._sums_squares:
            sums["squares"] = self._rounded(weights * self._shares, blocks["squares"], lattice)
        return sums

    def _sum(self, weights: np.ndarray) -> np.ndarray:
        present = np.flatnonzero(weights)
        return gram(self._rows[present] * np.sqrt(weights[present])[:, None])

    def _rounded(self, weights: np.ndarray, block: Block, lattice: Lattice) -> np.ndarray:
        present = np.flatnonzero(weights)
        rows = self._rows[present, None]
        return lattice.rounded_outer_sum(weights[present, None, None] * rows, rows, block)
