"""Sequences that are not read yet, in memory or memory-mapped: which ones, and how many steps of each."""

from __future__ import annotations

import numpy as np

from vips.data._sequences import Sequences, sequences_of

__all__ = ["UnreadSequences"]


class UnreadSequences:
    """Sequences of which some will be read: ``unread[rows]`` reads those rows, as :class:`Sequences` do.

    Parameters
    ----------
    values : ndarray of shape (n_steps, n_features)
    begins, lengths : ndarray of int64, shape (n_sequences,)
        Sequence i has the steps ``begins[i]`` to ``begins[i] + lengths[i]``. Not checked.
    """

    def __init__(self, values: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> None:
        self.values, self.begins, self.lengths = values, begins, lengths

    @classmethod
    def first_steps(cls, sequences: Sequences | UnreadSequences, n_steps: int | None) -> UnreadSequences:
        """The first ``n_steps`` steps of each sequence, or all."""
        lengths = sequences.lengths if n_steps is None else np.minimum(sequences.lengths, n_steps)
        begins = sequences.begins if isinstance(sequences, UnreadSequences) else sequences.offsets[:-1]
        return cls(sequences.values, begins, lengths)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of sequences, and of columns."""
        return len(self.lengths), self.values.shape[1]

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: slice | np.ndarray) -> UnreadSequences:
        """Some of the sequences, still not read."""
        return UnreadSequences(self.values, self.begins[rows], self.lengths[rows])

    def __getitem__(self, rows: slice | np.ndarray) -> Sequences:
        begins, lengths = self.begins[rows], self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        if len(begins) and np.array_equal(begins, begins[0] + offsets[:-1]):  # they stand together: a view
            values = self.values[begins[0] : begins[0] + offsets[-1]]
            # kernels are compiled for arrays in C order that can be written
            return sequences_of(np.require(values, requirements=["C", "W"]), offsets)
        steps = np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], lengths)
        return sequences_of(np.ascontiguousarray(self.values[steps]), offsets)
