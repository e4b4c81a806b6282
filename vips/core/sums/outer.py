"""Outer products of two rows, never formed per record: factors × rows, rows × rows, topics × words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from vips.core.exact.blas import gram, mirrored, product
from vips.core.exact.rowwise import row_norms
from vips.core.exact.threads import run_ranges
from vips.core.mechanism.lattice import Lattice
from vips.core.sums import kernels
from vips.core.sums.blocks import Block
from vips.core.sums.forms import Form

__all__ = ["Outer", "Quadratic", "RowSum", "Rows", "WordShares", "outer_sums", "present", "times"]

_ROUNDING = 1.0 + 4e-9  # exceeds that of float64 sums of positive terms, and of a square of them
_ROUNDING_OF_WORDS = 1.0 + 1e-7  # exceeds, many times over, that of the sums over a few million words of a document
_LEAST_WORK = 200_000  # stored entries for which a second thread saves time


class Rows:
    """A row of numbers of each record, and those that other labels would give it.

    Parameters
    ----------
    values : array or CSR of shape (n_records, ...)
    *of_labels : array of the same shape
        If one of them has the largest norm of all labels for every record, clips do not look at labels.

    Guarantees
    ----------
    Norms are over the record's own row, too: no declaration of labels makes a record shorter than what it adds. They are of the
    numbers that are summed, whatever dtype and repeated columns a CSR matrix has.
    """

    def __init__(self, values: Any, *of_labels: Any) -> None:
        self.values, self.of_labels = _canonical(values), tuple(map(_canonical, of_labels))

    @classmethod
    def of(cls, rows: Any) -> Rows:
        """The rows, or those of an array."""
        return rows if isinstance(rows, cls) else cls(rows)

    @cached_property
    def norms(self) -> np.ndarray:
        """For the record's own label and the others, shape (1 + n_labels, n_records)."""
        return np.stack([_lengths(rows) for rows in (self.values, *self.of_labels)])

    def mapped(self, function: Callable[..., Any], *others: Rows) -> Rows:
        """A function of these rows and others, label by label."""
        of_labels = zip(*((rows.values, *rows.of_labels) for rows in (self, *others)), strict=True)
        return Rows(*(function(*of_label) for of_label in of_labels))


class RowSum(Form):
    """The rows themselves."""

    def __init__(self, name: str, rows: Any) -> None:
        self.names, self._left = (name,), Rows.of(rows)

    def lengths(self, blocks: Mapping[str, Block]) -> np.ndarray:
        return self._left.norms * (_ROUNDING / blocks[self.names[0]].scale)

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        weights, rows = present(weights, self._left.values)
        return {self.names[0]: (weights @ rows.reshape(len(rows), math.prod(rows.shape[1:]))).reshape(rows.shape[1:])}

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        name, (weights, rows) = self.names[0], present(weights, self._left.values)
        return {name: lattice.rounded_sum((weights * rows.T).T, blocks[name])}


class Outer(RowSum):
    """f xᵀ of two rows f and x. Its norm is ‖f‖ ‖x‖.

    Parameters
    ----------
    name : str
        Of the block, of shape (n_factors, d), or (d,).
    left, right : Rows or ndarray of shape (n_records, n_factors), or (n_records,); Rows, array or CSR of shape (n_records, d)
        f and x.
    """

    def __init__(self, name: str, left: Any, right: Any) -> None:
        super().__init__(name, left)
        self._right = Rows.of(right)

    def lengths(self, blocks: Mapping[str, Block]) -> np.ndarray:
        if (block := blocks[self.names[0]]).symmetric:
            raise ValueError(
                f"Block {self.names[0]!r} sums f xᵀ, which is not symmetric: declare Block({block.shape})."
            )
        return super().lengths(blocks) * self._right.norms

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        rows, shares = self.shares(weights)
        return self.shaped(times(rows.T, shares).T)

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        rows, shares = self.shares(weights)
        unit, total = lattice.unit * blocks[self.names[0]].scale, np.zeros((shares.shape[1], rows.shape[1]))
        if sp.issparse(rows):
            of_entries = np.repeat(np.arange(len(shares)), np.diff(rows.indptr))
            for share, of_factor in zip(shares.T, total, strict=True):
                of_factor += np.bincount(rows.indices, np.rint(rows.data * share[of_entries] / unit), rows.shape[1])
        else:
            kernels.add_rounded_outer(shares, np.ascontiguousarray(rows), None, np.ones(len(shares)), unit, total)
        return self.shaped(total.astype(np.int64))

    def shares(self, weights: np.ndarray) -> tuple[Any, np.ndarray]:
        """Rows whose weight is not 0, and their factors times the weight, shape (n_rows, n_factors)."""
        weights, rows, factors = present(weights, self._right.values, self._left.values)
        return rows, weights[:, None] * (factors if factors.ndim > 1 else factors[:, None])

    def shaped(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """Sums by factor, the first axis, as the block has them."""
        return {self.names[0]: sums[0] if self._left.values.ndim == 1 else sums}


class Quadratic(Outer):
    """f x xᵀ of each row x with factors f, in symmetric blocks, one for each factor. Its norm is ‖f‖ ‖x‖².

    Parameters
    ----------
    name : str
    rows : Rows, array or CSR of shape (n_records, d)
        x.
    largest : ndarray of shape (n_records,), optional
        The largest ‖x‖ of a row whatever its label: a clip that looks at labels biases effects.
    factors : Rows or ndarray of shape (n_records, n_factors), or (n_records,), optional
        f; 1 by default.

    Guarantees
    ----------
    The block is symmetric, or its sum is refused: rounded shares are in isometric coordinates, which are longer elsewhere.
    """

    def __init__(self, name: str, rows: Any, largest: np.ndarray | None = None, factors: Any = None) -> None:
        rows = Rows.of(rows)
        super().__init__(name, np.ones(rows.values.shape[0]) if factors is None else factors, rows)
        self._largest = 0.0 if largest is None else largest

    def lengths(self, blocks: Mapping[str, Block]) -> np.ndarray:
        name, block = self.names[0], blocks[self.names[0]]
        if not block.symmetric:
            raise ValueError(f"Block {name!r} sums x xᵀ of each row: declare Block({block.shape}, symmetric=True).")
        return RowSum.lengths(self, blocks) * np.square(np.maximum(self._right.norms, self._largest))

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        return self.shaped(outer_sums(*self.shares(weights)))

    def weighted(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        shares, rows = weights * self._left.values, self._right.values
        return {self.names[0]: shares[:, None, None] * rows[:, :, None] * rows[:, None]}

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        (rows, shares), (name,) = self.shares(weights), self.names
        if sp.issparse(rows):
            unit = lattice.unit * blocks[name].scale
            return self.shaped(np.stack([_outer_sum(rows, share, unit) for share in shares.T]).astype(np.int64))
        right = np.repeat(rows[:, None], shares.shape[1], axis=1)
        return {name: lattice.rounded_outer_sum(shares[:, :, None] * right, right, blocks[name])}


def present(weights: np.ndarray, *arrays: Any) -> tuple:
    """Weights that are not 0, and the rows of arrays of these records."""
    places = np.flatnonzero(weights)
    return (weights, *arrays) if len(places) == len(weights) else tuple(a[places] for a in (weights, *arrays))


def _lengths(rows: Any) -> np.ndarray:
    """Norms of the rows of an array or CSR matrix, shape (n_records,), each a function of its row alone."""
    if not sp.issparse(rows):
        return row_norms(rows)
    sums = np.empty(rows.shape[0])
    with np.errstate(over="ignore"):
        kernels.row_sums(rows.indptr, np.square(rows.data), sums)
    norms = np.sqrt(sums)
    for i in np.flatnonzero(~((sums > 1e-200) & (sums < 1e200)) & (np.diff(rows.indptr) > 0)):
        norms[i] = row_norms(rows.data[None, rows.indptr[i] : rows.indptr[i + 1]])[0]
    return norms


def _canonical(rows: Any) -> Any:
    """CSR in double precision, without repeated columns: squares of integers would wrap, and entries of one column add up."""
    if sp.issparse(rows) and not (rows := sp.csr_array(rows, dtype=np.float64)).has_canonical_format:
        (rows := rows.copy()).sum_duplicates()
    return rows


def outer_sums(rows: Any, weights: np.ndarray) -> np.ndarray:
    """Σ_n w_nj x_n x_nᵀ, shape (n_outputs, d, d), for weights of shape (n_records, n_outputs)."""
    if sp.issparse(rows):
        return np.stack([_outer_sum(rows, column) for column in weights.T])
    columns = (column[:, None] for column in weights.T)
    return np.stack([gram(rows * np.sqrt(w)) if (w >= 0.0).all() else product(rows.T, rows * w) for w in columns])


def _outer_sum(rows: sp.csr_array, weights: np.ndarray, unit: float | None = None) -> np.ndarray:
    """Σ_n w_n x_n x_nᵀ; with a ``unit``, each record's share in whole units: sums far below 2⁵³ are exact."""
    d = rows.shape[1]
    total = np.zeros((d, d))
    arguments = (rows.indptr, rows.indices, rows.data, np.ascontiguousarray(weights))

    def add(first: int, last: int) -> None:
        kernels.add_outer(*arguments, unit, first, last, total)

    work = np.bincount(rows.indices, minlength=d)
    run_ranges(add, np.concatenate([[0], np.cumsum(work)]), parts_per_thread=2, least_work=_LEAST_WORK)
    return mirrored(total)


def times(matrix: Any, other: np.ndarray) -> np.ndarray:
    """A product, the matrix an array or a sparse one."""
    return matrix @ other if sp.issparse(matrix) else product(matrix, other)


class WordShares(Form):
    """θ̃_dk r_dv c_kv B_kv of each document d, word v and topic k; never formed per document.

    Parameters
    ----------
    name : str
        Of the block, of shape (n_topics, n_words).
    indptr, indices : ndarray of int64, of int32
        Words of each document, ascending.
    ratios : ndarray of shape (n_stored,)
        r.
    topic_weights : ndarray of shape (n_documents, width)
        θ̃, and zeros behind the topics.
    scaled_weights : ndarray of shape (n_words, width)
        c B. Public.
    """

    def __init__(
        self, name: str, indptr: np.ndarray, indices: np.ndarray, ratios: np.ndarray, topic_weights: np.ndarray,
        scaled_weights: np.ndarray, n_topics: int,
    ) -> None:  # fmt: skip
        self.names, self._n_topics = (name,), n_topics
        self.indptr, self.indices, self.ratios = indptr, indices, ratios
        self.topic_weights, self._scaled_weights = topic_weights, scaled_weights

    def factors(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What multiplies c_kv B_kv, with weights: one for each stored word, and (n_documents, n_topics)."""
        return self.ratios * np.repeat(weights, np.diff(self.indptr)), self.topic_weights[:, : self._n_topics]

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        norms = np.empty(len(self.topic_weights))

        def fill(start: int, stop: int) -> None:
            kernels.fill_word_norms(
                self.indptr, self.indices, self.ratios, self.topic_weights, self._scaled_weights, start, stop, norms
            )

        run_ranges(fill, self.indptr)
        return norms * (_ROUNDING_OF_WORDS / blocks[self.names[0]].scale)

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        total = np.empty((self._n_topics, len(self._scaled_weights)))

        def add(first_word: int, last_word: int) -> None:
            kernels.sum_words(
                self.indptr, self.indices, self.ratios, self.topic_weights, weights, self._scaled_weights,
                first_word, last_word, total,
            )  # fmt: skip

        run_ranges(add, self._work_by_word(), parts_per_thread=4)
        return {self.names[0]: total}

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        total = np.zeros(self._scaled_weights.shape)  # whole numbers: a record's are below 2³¹, a chunk's far below 2⁵³
        unit = lattice.unit * blocks[self.names[0]].scale

        def add(first_word: int, last_word: int) -> None:
            kernels.add_rounded_words(
                self.indptr, self.indices, self.ratios, self.topic_weights, weights, self._scaled_weights,
                unit, first_word, last_word, total,
            )  # fmt: skip

        run_ranges(add, self._work_by_word(), parts_per_thread=4)
        return {self.names[0]: total[:, : self._n_topics].T.astype(np.int64)}

    def _work_by_word(self) -> np.ndarray:
        """Cumulative work by word, estimated from a sample of the words: enough to divide the work among threads."""
        work = np.bincount(self.indices[::256], minlength=len(self._scaled_weights))
        return np.concatenate([[0], np.cumsum(work)])
