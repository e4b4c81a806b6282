"""Forms of a record's statistics: how long a record is, and what it adds to the sum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from vips.core.exact.rowwise import PIECE, row_norms
from vips.core.mechanism.lattice import Lattice
from vips.core.sums.blocks import Block

__all__ = ["BySquaredWeights", "DenseStatistics", "Form", "Joint", "RecordStatistics"]

_NUMBERS = 2**20  # of rows, in double precision, that are added at a time
_LEAST_OF_BOUND = 1.0 / 16.0  # of a run's norm, over the sum of its rows' norms; √240 < 16


class RecordStatistics(ABC):
    """Expected sufficient statistics of a chunk of records, in whatever form makes norms and sums cheap.

    Attributes
    ----------
    sums_are_new : bool
        Whether the two methods for sums return new arrays in every call, to which nothing else refers: the caller adds to them
        in place. False by default.
    sample_weights : ndarray of shape (n_records,), or None
        In a fit with weights, that of each record over the largest: at most 1 in a private fit. The engine multiplies shares by
        them, so that statistics need them only for squares.
    """

    sums_are_new = False
    sample_weights: np.ndarray | None = None

    def weigh(self, sample_weights: np.ndarray) -> None:
        """The engine tells the weights, before it asks for norms or sums."""
        self.sample_weights = sample_weights

    @abstractmethod
    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        """Joint L2 norm of each record over all blocks, each divided by its scale; shape (n_records,).

        Never less than the true norm; not finite for a record that cannot be used.
        """

    def run_norms(self, norms: np.ndarray, blocks: Mapping[str, Block], starts: np.ndarray) -> np.ndarray:
        """Joint L2 norm of the sum of each run of rows ``starts[i]`` to ``starts[i + 1]``; shape (n_runs,).

        Never less than the true norm. ``norms`` has one for each row, 0 for a row that is left out. By default the norms of a
        run's rows are added; in a fit with weights, the result is never less than this sum.
        """
        return sums_of_runs(norms, starts)

    def piece_norm(self, norms: np.ndarray, blocks: Mapping[str, Block]) -> float:
        """What a piece adds to the norm of a record that has more rows than a chunk: by default the sum of its rows' norms.

        ``norms`` are as for :meth:`run_norms`. The norm of a record is never more than the sum over its pieces.
        """
        return float(norms.sum())

    def carry(self, carried: object, weights: np.ndarray, is_last: bool) -> object:
        """What the next piece needs, if a record has more rows than a chunk. By default nothing.

        Called once for each piece, in order, before its sum. Only statistics that are not sums over rows need it.

        Parameters
        ----------
        carried : object
            What this method returned for the piece before; None for the first.
        weights : ndarray of shape (n_rows,)
            Weights in this piece's sum.
        is_last : bool
        """
        return None

    @abstractmethod
    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Σ_n w_n s_n by block. A record of weight 0 is absent, not multiplied by 0 (0 · inf is NaN)."""

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        """Σ_n of each record's ``w_n s_n`` rounded to the lattice, in whole units (int64): exact in any order.

        Used with ``noise="discrete"``. This implementation is correct but slow, one record at a time; override it. A
        record's rounded share must be a function of that record, its weight and the posterior alone, to the last bit.
        """
        total = {name: np.zeros(block.shape, np.int64) for name, block in blocks.items()}
        for i in np.flatnonzero(weights):
            alone = np.zeros(len(weights))
            alone[i] = weights[i]
            for name, value in self.weighted_sum(alone).items():
                total[name] += lattice.rounded(value, blocks[name])
        return total


class Form(RecordStatistics):
    """Statistics of some blocks, with what each record adds.

    Attributes
    ----------
    names : tuple of str
        Of its blocks.
    """

    sums_are_new = True
    names: tuple[str, ...]

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        return self.lengths(blocks).max(axis=0)

    def lengths(self, blocks: Mapping[str, Block]) -> np.ndarray:
        """Norms for each label that a record could have, shape (n_labels, n_records), by a form that does not define norms."""
        return self.norms(blocks)[None]

    def weighted(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """w_n s_n of each record, by block; only of forms whose records are few numbers."""
        raise NotImplementedError(f"{type(self).__name__} forms no statistic of a single record.")


class DenseStatistics(Form):
    """Statistics held as one array per block.

    Parameters
    ----------
    arrays : dict of str to ndarray
        One per block, of shape ``(n_records,) + block.shape``.
    """

    sums_are_new = False  # a subclass may keep its sums

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays = {name: np.asarray(array) for name, array in arrays.items()}
        for name, array in self.arrays.items():
            if array.dtype.kind not in "biuf":
                raise TypeError(f"Statistics must be real numbers, block {name!r} has dtype {array.dtype}.")

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(self.arrays)

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        if set(blocks) != set(self.arrays):
            raise ValueError(f"Statistics have blocks {sorted(self.arrays)}, the model declares {sorted(blocks)}.")
        norms: Any = 0.0
        for name, block in blocks.items():
            array = self.arrays[name]
            if array.shape[1:] != block.shape:
                raise ValueError(f"Block {name!r} is declared {block.shape}, its statistics are {array.shape[1:]}.")
            norms = np.hypot(norms, row_norms(array) / block.scale)
        # 1e-9 exceeds the rounding in the sums of squares, so that no norm is under-reported
        return norms * (1.0 + 1e-9)

    def run_norms(self, norms: np.ndarray, blocks: Mapping[str, Block], starts: np.ndarray) -> np.ndarray:
        """Exact for runs of at most 240 rows, which no chunk divides, but at least a sixteenth of the rows' norms: the sum over
        records adds rows one by one, and its rounding grows with their norms."""
        bound, lengths = super().run_norms(norms, blocks, starts), np.diff(starts)
        filled = np.flatnonzero(lengths)  # `reduceat` gives an empty run the entry behind it
        if not len(filled):
            return bound
        used = norms[: starts[-1]] > 0.0
        exact: Any = 0.0
        for name, block in blocks.items():
            rows = self.arrays[name][: starts[-1]].reshape(len(used), -1)
            sums, width = np.empty((len(filled), rows.shape[1])), max(1, _NUMBERS // len(used))
            for first in range(0, rows.shape[1], width):
                columns = slice(first, first + width)
                piece = np.where(used[:, None], rows[:, columns].astype(np.float64), 0.0)
                sums[:, columns] = np.add.reduceat(piece, starts[:-1][filled], axis=0)
            exact = np.hypot(exact, row_norms(sums) / block.scale)
        exact = np.maximum(exact * (1.0 + 1e-9), _LEAST_OF_BOUND * bound[filled])
        is_short = lengths[filled] <= PIECE
        bound[filled] = np.where(is_short & (exact < bound[filled]), exact, bound[filled])
        return bound

    def weighted(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        return {name: weights.reshape(-1, *[1] * (array.ndim - 1)) * array for name, array in self.arrays.items()}

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        present = np.flatnonzero(weights)
        all_present = len(present) == len(weights)
        weights = weights[present]
        return {
            name: np.tensordot(weights, array if all_present else array[present], axes=1)
            for name, array in self.arrays.items()
        }

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        present = np.flatnonzero(weights)
        total = {}
        for name, array in self.arrays.items():
            shares = weights[present].reshape(-1, *[1] * (array.ndim - 1)) * array[present]
            # not `rounded_sum`: a model without kernels would compile that one only if there are records
            total[name] = lattice.rounded(shares, blocks[name]).sum(axis=0)
        return total


class Joint(Form):
    """Forms side by side, each with blocks of its own. A record's norm is joint over the blocks of all.

    Raises
    ------
    ValueError
        If two forms have a block of one name: one sum would take the place of the other.
    """

    def __init__(self, *forms: Form) -> None:
        self.forms, self.names = forms, tuple(name for form in forms for name in form.names)
        self.sums_are_new = all(form.sums_are_new for form in forms)
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"Two forms have a block of one name: {sorted(self.names)}.")

    def weigh(self, sample_weights: np.ndarray) -> None:
        super().weigh(sample_weights)
        for form in self.forms:
            form.weigh(sample_weights)

    def lengths(self, blocks: Mapping[str, Block]) -> np.ndarray:
        if set(blocks) != set(self.names):
            raise ValueError(f"Statistics have blocks {sorted(self.names)}, the model declares {sorted(blocks)}.")
        return reduce(np.hypot, (form.lengths(_of(form, blocks)) for form in self.forms))

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        return _union(form.weighted_sum(weights) for form in self.forms)

    def weighted(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        return _union(form.weighted(weights) for form in self.forms)

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        return _union(form.rounded_sum(weights, _of(form, blocks), lattice) for form in self.forms)


class BySquaredWeights(Form):
    """A form whose share of a record is multiplied by the record's weight once more: the sum of w² s.

    The norm is that of a weight of 1, the largest in a private fit: the clip does not depend on the weight, and a match that
    simulates records need not know it.
    """

    def __init__(self, form: Form) -> None:
        self.form, self.names, self.sums_are_new = form, form.names, form.sums_are_new

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        norms = self.form.norms(blocks)
        return norms if self.sample_weights is None else norms * np.maximum(self.sample_weights, 1.0)

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        return self.form.weighted_sum(self._squared(weights))

    def weighted(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        return self.form.weighted(self._squared(weights))

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        return self.form.rounded_sum(self._squared(weights), blocks, lattice)

    def _squared(self, values: np.ndarray) -> np.ndarray:
        return values if self.sample_weights is None else values * self.sample_weights


def sums_of_runs(norms: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums of the norms of each run of rows, and a little more."""
    sums = np.zeros(len(starts) - 1)
    filled = starts[1:] > starts[:-1]  # `reduceat` gives an empty run the entry behind it
    if filled.any():
        sums[filled] = np.add.reduceat(norms[: starts[-1]], starts[:-1][filled])
    return sums * (1.0 + 1e-9)  # which exceeds the rounding in the sum


def _of(form: Form, blocks: Mapping[str, Block]) -> dict[str, Block]:
    return {name: blocks[name] for name in form.names}


def _union(sums: Iterable[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: value for total in sums for name, value in total.items()}
