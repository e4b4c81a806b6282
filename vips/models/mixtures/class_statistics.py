"""Expected statistics of records of a latent class model, never formed per record.

With responsibilities r and the record's number of answers a:

=========  ==================  ===========================================  ===========
block      shape               statistic                                    norm
=========  ==================  ===========================================  ===========
count      (K,)                r                                            ‖r‖
answers    (K, n_levels)       r eᵀ, e the indicators of its answers        ‖r‖ √a
=========  ==================  ===========================================  ===========
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips._compute.rowwise import row_norms
from vips.models.mixtures import kernels
from vips.privacy import Lattice
from vips.statistics import Block, RecordStatistics

__all__ = ["ClassStatistics"]

_ROUNDING = 1.0 + 1e-9  # exceeds that of the sums of squares


class ClassStatistics(RecordStatistics):
    """Statistics of a chunk of records.

    Parameters
    ----------
    places : ndarray of int32, shape (n_records, n_columns)
        Level of each answer, counted over all columns; -1 if it is missing.
    log_weights, log_answers : ndarray of shape (K,), (n_levels, K)
        Of the classes and of their answers.

    Attributes
    ----------
    shares : ndarray of shape (n_records, K)
        r.
    log_likelihood : ndarray of shape (n_records,)
        Of each record's answers.
    """

    sums_are_new = True

    def __init__(self, places: np.ndarray, log_weights: np.ndarray, log_answers: np.ndarray) -> None:
        self._places, self._n_levels = places, len(log_answers)
        self.shares = np.empty((len(places), len(log_weights)))
        self.log_likelihood = np.empty(len(places))
        kernels.responsibilities(places, log_weights, log_answers, self.shares, self.log_likelihood)

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        n_answers = (self._places >= 0).sum(axis=1)
        squares = 1.0 / blocks["count"].scale ** 2 + n_answers / blocks["answers"].scale ** 2
        return row_norms(self.shares) * np.sqrt(squares) * _ROUNDING

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        present = np.flatnonzero(weights)
        weighted = weights[present, None] * self.shares[present]
        return {"count": weighted.sum(axis=0), "answers": self._by_level(present, weighted)}

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        """A record has the same shares at all its answers: they are rounded once."""
        present = np.flatnonzero(weights)
        weighted = weights[present, None] * self.shares[present]
        answers = lattice.rounded(weighted, blocks["answers"])
        return {
            "count": lattice.rounded(weighted, blocks["count"]).sum(axis=0),
            "answers": self._by_level(present, answers),
        }

    def _by_level(self, present: np.ndarray, shares: np.ndarray) -> np.ndarray:
        total = np.zeros((self._n_levels, shares.shape[1]), shares.dtype)
        kernels.add_shares(self._places[present], shares, total)
        return np.ascontiguousarray(total.T)
