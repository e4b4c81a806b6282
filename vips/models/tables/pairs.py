"""Cross tables of all pairs of columns, brought into agreement, with the noise that is left in them.

Each record has one level in each of J columns. M_jk, of shape (m_j, m_k), counts the records at two levels; released are all
M_jk and the counts m_j of single columns, each cell with independent noise. Every row of M_jk sums to a cell of the margin of
column j, and every margin to the number of records, so that

    M_jk = I_jk + r_j 1ᵀ / m_k + 1 r_kᵀ / m_j + N 11ᵀ / (m_j m_k),     I_jk 1 = 0,  1ᵀ I_jk = 0,  1ᵀ r_j = 0

These parts are orthogonal, and the noise within a table is the same in all its cells: the best linear unbiased estimates are
averages, one by one. N is that of the sums of all tables, r_j that of the centred sums of the tables of column j, each by the
inverse of its variance; I_jk is in one table only. The noise in I, r and N stays independent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np

__all__ = ["MANY", "Pairs"]

MANY = 0.05  # share of the records without an answer in a column, above which it is said

_LEAST_ANSWERED = 0.01  # share of the records, that a table is raised from


@dataclass(frozen=True)
class Pairs:
    """Consistent cross tables of all pairs of columns.

    Parameters
    ----------
    table : ndarray of shape (d, d)
        M of all levels by all levels; within a column its margin on the diagonal, and zeros.
    column : ndarray of int, shape (d,)
        Column of each level, in order.
    cell_var : ndarray of shape (n_columns, n_columns)
        Variance of the noise in a cell of M_jk before it is centred to that of I_jk; 0 on the diagonal.
    margin_var : ndarray of shape (n_columns,)
        Variance of the noise in an entry of r_j before it is centred.
    size, size_var : float
        N, and the variance of the noise in it.
    raised : ndarray of shape (n_columns,)
        How many records stand for one with an answer: see :meth:`among`.
    """

    table: np.ndarray
    column: np.ndarray
    cell_var: np.ndarray
    margin_var: np.ndarray
    size: float
    size_var: float
    raised: np.ndarray

    @classmethod
    def of(cls, noisy: np.ndarray, column: np.ndarray, var: np.ndarray, noise_var: float) -> Pairs:
        """From released counts.

        Parameters
        ----------
        noisy : ndarray of shape (d, d)
            Symmetric; what stands between two levels of one column is not read.
        var : ndarray of shape (n_columns, n_columns)
            Variance of the noise in a cell of M_jk and, on the diagonal, of a margin, both over ``noise_var``.
        noise_var : float
            ≥ 0.
        """
        by_column = np.eye(len(var))[column]
        widths = by_column.sum(axis=0)
        n_columns = len(widths)
        same = column[:, None] == column
        tables = np.where(same, 0.0, noisy)
        rows = tables @ by_column  # (d, n_columns): sums of the rows of M_jk
        margin = np.diag(noisy)
        np.put_along_axis(rows, column[:, None], margin[:, None], axis=1)
        of_sums = var * np.where(np.eye(n_columns, dtype=bool), 1.0, widths)  # variance of such a sum, over the noise
        sums = by_column.T @ rows
        of_size = 1.0 / (widths[:, None] * of_sums)
        of_size[np.tril_indices(n_columns, -1)] = 0.0  # each pair once
        size, size_var = float((of_size * sums).sum() / of_size.sum()), 1.0 / of_size.sum()
        centred = rows - (sums / widths[:, None])[column]
        precision = 1.0 / of_sums
        margin_var = 1.0 / precision.sum(axis=1)
        margins = (precision[column] * centred).sum(axis=1) * margin_var[column]
        # I_jk: the cells less what their own sums say, and what all sums say in its place
        other = widths[column]
        means = (sums / np.outer(widths, widths))[np.ix_(column, column)]
        per_row = rows[:, column] / other - means
        table = tables - per_row - per_row.T - means
        table += margins[:, None] / other + margins / other[:, None] + size / np.outer(other, other)
        table[same] = 0.0
        np.fill_diagonal(table, margins + size / other)
        cell_var = np.where(np.eye(n_columns, dtype=bool), 0.0, var)
        return cls(
            table, column, noise_var * cell_var, noise_var * margin_var, size, noise_var * size_var, np.ones(n_columns)
        )

    def among(self, is_answer: np.ndarray) -> Pairs:
        """Tables of records with an answer in both columns, each raised to the number of all records.

        That is what tables of all records would be, if cells were missing at random.

        Parameters
        ----------
        is_answer : ndarray of bool, shape (d,)
        """
        by_column = self._by_column * is_answer[:, None]
        answered = by_column.T @ self.table @ by_column
        np.fill_diagonal(answered, by_column.T @ self.margins)
        raised = self.size / np.maximum(answered, _LEAST_ANSWERED * max(self.size, 1.0))
        table = self.table * raised[np.ix_(self.column, self.column)] * np.outer(is_answer, is_answer)
        margin_var = self.margin_var * np.square(np.diag(raised))
        cell_var = self.cell_var * np.square(raised)
        return replace(self, table=table, cell_var=cell_var, margin_var=margin_var, raised=np.diag(raised))

    @property
    def margins(self) -> np.ndarray:
        """Counts of the levels, shape (d,)."""
        return np.diag(self.table)

    def margin_std(self) -> np.ndarray:
        """Deviation of the noise in each of the ``margins``."""
        widths = np.bincount(self.column)[self.column]
        return np.sqrt(self.margin_var[self.column] * (1.0 - 1.0 / widths) + self.size_var / widths**2)

    def of_columns(self, row: int, column: int) -> np.ndarray:
        """The table of two columns, shape (m_row, m_column)."""
        return self.table[np.ix_(self.column == row, self.column == column)]

    def noise(self, tables: Iterable[tuple[int, int, np.ndarray]], margins: np.ndarray) -> np.ndarray:
        """Covariance of the noise in sums over cells of tables and of margins, shape (q, q).

        Parameters
        ----------
        tables : iterable of (row, column, weights)
            Two columns, and what the cells of their table count in each sum, shape (q, m_row, m_column).
        margins : ndarray of shape (q, d)
            What the counts of single levels count.
        """
        averages = self._by_column / self._by_column.sum(axis=0)
        of_levels, of_size = margins.copy(), (margins @ averages).sum(axis=1)
        covariance = np.zeros((len(margins), len(margins)))
        for row, column, weights in tables:
            of_rows, of_columns, mean = weights.mean(axis=2), weights.mean(axis=1), weights.mean(axis=(1, 2))
            inner = weights - of_rows[:, :, None] - of_columns[:, None, :] + mean[:, None, None]
            inner = inner.reshape(len(inner), -1)
            covariance += self.cell_var[row, column] * (inner @ inner.T)
            of_levels[:, self.column == row] += of_rows
            of_levels[:, self.column == column] += of_columns
            of_size += mean
        of_levels -= (of_levels @ averages)[:, self.column]
        covariance += (of_levels * self.margin_var[self.column]) @ of_levels.T
        return covariance + self.size_var * np.outer(of_size, of_size)

    def variance_of(self, row: int, column: int, weights: np.ndarray) -> float:
        """Variance of the noise in the sum of the cells of a table times ``weights``, of its shape."""
        return float(self.noise([(row, column, weights[None])], np.zeros((1, len(self.column))))[0, 0])

    def covariance(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Covariance of the noise in ``leftᵢᵀ M rightᵢ``, shape (q, q).

        Parameters
        ----------
        left, right : ndarray of shape (q, d)
            Numbers of the levels, of which a record has the sum over its levels.
        """
        at = [self.column == column for column in range(len(self.margin_var))]
        tables = (
            (j, k, left[:, at[j], None] * right[:, None, at[k]] + right[:, at[j], None] * left[:, None, at[k]])
            for j, k in combinations(range(len(at)), 2)
        )
        return self.noise(tables, left * right)

    def variances(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The diagonal of the :meth:`covariance`, shape (q,), in closed form."""
        widths = self._by_column.sum(axis=0)
        means = [values @ self._by_column / widths for values in (left, right)]
        a, b = (values - mean[:, self.column] for values, mean in zip((left, right), means, strict=True))
        # all columns but the own one
        others = [(mean.sum(axis=1, keepdims=True) - mean)[:, self.column] for mean in means]
        products = left * right
        product_means = products @ self._by_column / widths
        of_margins = a * others[1] + b * others[0] + products - product_means[:, self.column]
        of_size = means[0].sum(axis=1) * means[1].sum(axis=1) - (means[0] * means[1]).sum(axis=1)
        of_size += product_means.sum(axis=1)
        aa, bb, ab = ((one * other) @ self._by_column for one, other in ((a, a), (b, b), (a, b)))
        variances = np.square(of_margins) @ self.margin_var[self.column] + self.size_var * np.square(of_size)
        return variances + ((aa @ self.cell_var) * bb + (ab @ self.cell_var) * ab).sum(axis=1)

    @cached_property
    def _by_column(self) -> np.ndarray:
        """Indicators of the column of each level, shape (d, n_columns)."""
        return np.eye(len(self.margin_var))[self.column]
