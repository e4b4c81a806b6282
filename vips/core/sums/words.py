"""Sums over the words of documents: a share of each topic at each word."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips.core.exact.threads import run_ranges
from vips.core.mechanism.lattice import Lattice
from vips.core.sums import kernels
from vips.core.sums.blocks import Block
from vips.core.sums.forms import Form

__all__ = ["WordShares"]

# The norms are float64 sums over at most a few million positive terms; this covers their rounding many times over.
_ROUNDING = 1.0 + 1e-7


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
        return norms * (_ROUNDING / blocks[self.names[0]].scale)

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
