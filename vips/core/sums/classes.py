"""Expected statistics of records of latent classes, never formed per record.

With responsibilities r, the statistics t of a record's numbers and counts, and the indicators e of its answers in a columns:

=========  ==================  =========================  ===========================
block      shape               statistic                  norm
=========  ==================  =========================  ===========================
count      (K,)                r                          ‖r‖
cells      (K, width)          r (t, e)ᵀ                  ‖r‖ √(‖t‖² + a), at most
=========  ==================  =========================  ===========================

Other phases sum the same of a single class, or of means in place of r.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from vips.core.exact.rowwise import row_dots
from vips.core.mechanism.lattice import Lattice
from vips.core.sums import kernels
from vips.core.sums.blocks import Block
from vips.core.sums.forms import Form
from vips.core.sums.runs import ComponentSums

__all__ = ["ClassStatistics"]

_ROUNDING = 1.0 + 1e-9  # exceeds that of the sums of squares


class ClassStatistics(Form):
    """Statistics of a chunk of records.

    Parameters
    ----------
    shares : ndarray of shape (n_records, K)
        r.
    rows : ndarray of shape (n_records, width of t)
        t; finite.
    places : ndarray of int32, shape (n_records, n_columns)
        Level of each answer, counted over all columns of categories; -1 if it is missing.
    n_levels : int
        Of all these columns.
    names : pair of str
        Of the two blocks; None for a block that is not summed.
    log_likelihood : ndarray of shape (n_records,), optional
        Of each record, less what all classes share.
    """

    def __init__(
        self, shares: np.ndarray, rows: np.ndarray, places: np.ndarray, n_levels: int,
        names: tuple[str | None, str] = ("count", "cells"), log_likelihood: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.shares, self.log_likelihood = shares, log_likelihood
        self._rows, self._places, self._n_levels, self._names = rows, places, n_levels, names
        self.names = tuple(name for name in names if name is not None)
        self._sums = ComponentSums(rows, shares, np.arange(len(rows) + 1), {names[1]: slice(None)})

    @property
    def counted(self) -> np.ndarray:
        """What each record adds to the counts of the classes, shape (n_records, K)."""
        return self.shares

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        """In a table of categories alone a missing answer counts as one, so that the clip does not prefer records with few
        answers: where questions are skipped, it would shift the shares of the classes."""
        of_count, of_cell = (0.0 if name is None else blocks[name].scale ** -2.0 for name in self._names)
        of_rest, norms = of_count + of_cell * row_dots(self._rows, self._rows), np.empty(len(self._rows))
        counted = self._places if self._rows.shape[1] else np.zeros_like(self._places)
        kernels.fill_answer_norms(counted, self.shares, of_rest, of_cell, norms)
        return norms * _ROUNDING

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        of_rows = self._sums.weighted_sum(weights) if self._rows.shape[1] else {}
        return self._joined(of_rows, *self._added(np.asarray(weights, np.float64), self.shares))

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        """A record has the same shares at all its answers: they are rounded once."""
        weighted = np.where(weights[:, None] != 0.0, weights[:, None] * self.shares, 0.0)
        once, (of_count, of_cells) = np.ones(len(weighted), np.int64), self._names
        answers = self._added(once, lattice.rounded(weighted, replace(blocks[of_cells], symmetric=False)))[1]
        count = answers[:0] if of_count is None else lattice.rounded_sum(weighted, blocks[of_count])
        of_rows, shape = {}, (self.shares.shape[1], self._rows.shape[1])
        if shape[1]:
            block = replace(blocks[of_cells], shape=shape)
            of_rows = self._sums.rounded_sum(weights, {of_cells: block}, lattice)
        return self._joined(of_rows, count, answers)

    def weighted(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        indicators, (of_count, of_cells) = np.zeros((len(weights), self._n_levels)), self._names
        rows, columns = np.nonzero(self._places >= 0)
        indicators[rows, self._places[rows, columns]] = 1.0
        shares = weights[:, None] * self.shares
        cells = shares[:, :, None] * np.hstack([self._rows, indicators])[:, None, :]
        return ({} if of_count is None else {of_count: shares}) | {of_cells: cells}

    def _added(self, weights: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Counts of the classes, and of their answers."""
        n_classes = shares.shape[1]
        count, total = np.zeros(n_classes, shares.dtype), np.zeros((self._n_levels, n_classes), shares.dtype)
        kernels.add_answers(self._places, weights, shares, count, total)
        return count, np.ascontiguousarray(total.T)

    def _joined(self, of_rows: Mapping, count: np.ndarray, answers: np.ndarray) -> dict[str, np.ndarray]:
        of_count, of_cells = self._names
        cells = np.hstack([*of_rows.values(), answers])
        return ({} if of_count is None else {of_count: count}) | {of_cells: cells}
