"""Expected statistics of records of a latent class model, never formed per record.

With responsibilities r and the record's number of answers a:

=========  ==================  ===========================================  ===========
block      shape               statistic                                    norm
=========  ==================  ===========================================  ===========
count      (K,)                r                                            ‖r‖
answers    (K, n_levels)       r eᵀ, e the indicators of its answers        ‖r‖ √a
=========  ==================  ===========================================  ===========

The phase of the marginals sums the same of a single class, in blocks ``records`` and ``marginals``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

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
    names : pair of str
        Of the two blocks.

    Attributes
    ----------
    shares : ndarray of shape (n_records, K)
        r.
    log_likelihood : ndarray of shape (n_records,)
        Of each record's answers.
    """

    sums_are_new = True

    def __init__(
        self,
        places: np.ndarray,
        log_weights: np.ndarray,
        log_answers: np.ndarray,
        names: tuple[str, str] = ("count", "answers"),
    ) -> None:
        self._places, self._n_levels, self._names = places, len(log_answers), names
        self.shares = np.empty((len(places), len(log_weights)))
        self.log_likelihood = np.empty(len(places))
        kernels.responsibilities(places, log_weights, log_answers, self.shares, self.log_likelihood)

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        norms, scales = np.empty(len(self._places)), [blocks[name].scale for name in self._names]
        kernels.fill_norms(self._places, self.shares, scales[0] ** -2.0, scales[1] ** -2.0, norms)
        return norms * _ROUNDING

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        return self._summed(np.asarray(weights, np.float64), self.shares)

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        """A record has the same shares at all its answers: they are rounded once."""
        weighted = np.where(weights[:, None] != 0.0, weights[:, None] * self.shares, 0.0)
        of_count, of_answers = self._names
        count, answers = (lattice.rounded(weighted, blocks[name]) for name in self._names)
        once = np.ones(len(weighted), np.int64)
        return {of_count: count.sum(axis=0), of_answers: self._summed(once, answers)[of_answers]}

    def _summed(self, weights: np.ndarray, shares: np.ndarray) -> dict[str, np.ndarray]:
        n_classes = shares.shape[1]
        count, total = np.zeros(n_classes, shares.dtype), np.zeros((self._n_levels, n_classes), shares.dtype)
        kernels.add_shares(self._places, weights, shares, count, total)
        return dict(zip(self._names, (count, np.ascontiguousarray(total.T)), strict=True))
