"""From counts to the statistics of documents: reading CSR rows, and the E-step in threads."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.special import psi

from vips.core.exact.lanes import WIDTH
from vips.core.exact.threads import run_ranges
from vips.core.sums.outer import WordShares
from vips.expfam import Dirichlet
from vips.models.topics.documents import find_canonical, find_valid
from vips.models.topics.kernels import fill_word_weights, infer_documents


class TopicPosterior(Dirichlet):
    """Posterior of the topics, and the scales of the next E-step's statistics. All of it is public.

    Parameters
    ----------
    concentration : array of shape (n_topics, n_words)
        λ.
    scale : array of shape (n_topics, n_words), optional
        c: the next E-step sums ``c_kv s_kv`` instead of ``s_kv``. Default 1. Topics of scale 0 are not used in it.
    average_scale : array of shape (n_topics, n_words), optional
        The running average of the scales that were used so far. The running average of totals is divided by it.
    step : int
        Steps that this posterior has seen.
    parents : array of shape (n_rows,), optional
        Into which topic each row of the last step was merged, if they were; not saved.
    carried : float
        Factor of the average of all steps so far, which ``average_scale`` holds already; not saved.
    """

    _parameters = "concentration", "scale", "average_scale", "step"

    def __init__(
        self, concentration, scale=None, average_scale=None, step: int = 0, parents=None, carried: float = 1.0
    ) -> None:
        super().__init__(concentration)
        self.scale, self.average_scale = (
            np.ones_like(self.concentration) if given is None else np.asarray(given, dtype=np.float64)
            for given in (scale, average_scale)
        )
        self.step, self.parents, self.carried = int(step), parents, carried

    @cached_property
    def _word_weights(self) -> dict:  # what `word_weights` has computed
        return {}

    def first(self, n_topics: int) -> TopicPosterior:
        """The first topics alone."""
        rows = (array[:n_topics] for array in (self.concentration, self.scale, self.average_scale))
        return TopicPosterior(*rows, self.step, carried=self.carried)

    @property
    def is_single(self) -> bool:
        """Whether the next E-step uses the first topic only."""
        return len(self.scale) > 1 and not self.scale[1:].any()

    def word_weights(self, dtype: np.dtype, mean: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """exp E log β, or E β, each word divided by its largest entry.

        Returns
        -------
        weights : ndarray of shape (n_words, width)
            After the topics, columns of zeros up to a multiple of eight.
        log_scale : ndarray of shape (n_words,)
            Logs of the entries by which words were divided.
        scaled : ndarray of shape (n_words, width)
            ``weights`` times the scales of the released statistic.
        """
        if (dtype, mean) not in self._word_weights:
            n_topics, n_words = self.concentration.shape
            weights, log_scale = np.zeros((n_words, _padded(n_topics)), dtype), np.empty(n_words)
            scaled = np.zeros_like(weights)
            totals = self.concentration.sum(axis=1)
            totals = totals if mean else psi(totals)

            def fill(start: int, stop: int) -> None:
                fill_word_weights(self.concentration, totals, mean, start, stop, weights, log_scale)
                scaled[start:stop, :n_topics] = weights[start:stop, :n_topics] * self.scale[:, start:stop].T

            run_ranges(fill, np.arange(n_words + 1))
            weights[:, np.flatnonzero(~self.scale.any(axis=1))] = 0.0
            self._word_weights[dtype, mean] = weights, log_scale, scaled
        return self._word_weights[dtype, mean]


def _padded(n_topics: int) -> int:
    return -(-n_topics // WIDTH) * WIDTH


def undo_scales(
    average: np.ndarray, previous: TopicPosterior | None, step_size: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """The running average of totals over that of their scales, and the latter, as new arrays.

    Parameters
    ----------
    average : ndarray of shape (n_topics, n_words)
    previous : TopicPosterior or None
        Under which the last step's totals were computed; None before the first step.
    step_size : float or None
        ρ of the last step.
    """
    if previous is None:
        return average.copy(), np.ones_like(average)
    counts, average_scale = np.empty_like(average), np.empty_like(average)

    def fill(first: int, last: int) -> None:
        for k in range(first, last):  # rows stay in the cache
            average_scale[k] = (1.0 - step_size) * previous.average_scale[k] + step_size * previous.scale[k]
            counts[k] = average[k] / average_scale[k]

    run_ranges(fill, np.arange(len(average) + 1))
    return counts, average_scale


def canonical(documents) -> sp.csr_array:
    """CSR with sorted, unrepeated columns. A word stored twice would make the norm come out too small."""
    documents = sp.csr_array(documents)
    is_canonical = np.empty(documents.shape[0], dtype=bool)
    find_canonical(documents.indptr, documents.indices, is_canonical)
    if not is_canonical.all():
        documents = documents.copy()
        documents.sum_duplicates()
    return documents


def without_zeros(indptr, words, counts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row pointers, words and counts of the words that occur.

    Stored zeros are removed: their ratio r_v could be 0/0, if the document does not use the word's only topic.
    """
    if counts.all():
        return indptr, words, counts
    occurs = counts != 0
    ends = np.concatenate([[0], np.cumsum(occurs)])
    return ends[indptr].astype(indptr.dtype), words[occurs], counts[occurs]


def valid_documents(documents, n_words: int, integers: bool) -> np.ndarray:
    """Documents whose counts are finite, not negative (and whole, if ``integers``), of words that exist."""
    documents = canonical(documents)
    stored = slice(documents.indptr[-1])
    counts, words = documents.data[stored], documents.indices[stored]
    is_valid = np.empty(documents.shape[0], dtype=bool)
    find_valid(documents.indptr, words, counts.astype(np.float64, copy=False), n_words, integers, is_valid)
    return is_valid


class DocumentStatistics(WordShares):
    """E-step of a chunk of documents; statistics ``c_kv s_d[k, v]``, ``s_d[k, v] = θ̃_dk r_dv B_kv``, never formed per document.

    Parameters
    ----------
    documents : CSR of shape (n_documents, n_words), in canonical format
    posterior : TopicPosterior
    prior, tol, max_iter : float, float, int
        Doc-topic concentration α; mean change of γ at which a document has converged; maximum number of updates of a document.
    dtype : float32 or float64
        Dtype of the iteration. Norms and sums are float64.
    mean : bool
        Whether B is E β, as in private fits, in place of exp E log β.
    point : bool
        Whether topic shares are point estimates, as in EM.
    block : str
        Name of the block of the sums.

    Attributes
    ----------
    doc_topic : ndarray of shape (n_documents, n_topics)
        γ.
    """

    def __init__(
        self,
        documents,
        posterior: TopicPosterior,
        prior: float,
        tol: float,
        max_iter: int,
        dtype,
        mean=False,
        point=False,
        block="topic_word",
    ) -> None:
        n_documents, n_topics = documents.shape[0], posterior.concentration.shape[0]
        self._posterior, self._prior, self._point = posterior, prior, point
        indptr, indices = documents.indptr.astype(np.int64), documents.indices.astype(np.int32, copy=False)
        indptr, indices, self._counts = without_zeros(indptr, indices, documents.data.astype(dtype))
        self._word_weights, self._log_scale, scaled_weights = posterior.word_weights(np.dtype(dtype), mean)
        self.doc_topic = np.empty((n_documents, n_topics), dtype)
        topic_weights, ratios = np.empty((n_documents, _padded(n_topics)), dtype), np.empty(len(self._counts), dtype)

        def infer(start: int, stop: int) -> None:
            infer_documents(
                indptr, indices, self._counts, self._word_weights, prior, point, float(tol), max_iter, start, stop,
                self.doc_topic, topic_weights, ratios,
            )  # fmt: skip

        run_ranges(infer, indptr)
        super().__init__(block, indptr, indices, ratios, topic_weights, scaled_weights, n_topics)

    def bounds(self) -> np.ndarray:
        """Evidence lower bound of each document given q(topics), shape (n_documents,); Blei et al. (2003), eq. 15.

        Σ_v n_v log Σ_k exp(E log θ_k + E log β_kv) + E log p(θ) - E log q(θ); a word's mixture is n_v / r_v. With point
        estimates of θ its log likelihood, Σ_v n_v log Σ_k θ_k β_kv.
        """
        gamma = self.doc_topic.astype(np.float64)
        counts, ratios = self._counts.astype(np.float64), self.ratios.astype(np.float64)
        present = counts > 0.0
        log_mixture = np.zeros(len(counts))
        log_mixture[present] = np.log(counts[present] / ratios[present])
        words = counts * (log_mixture + self._log_scale[self.indices])
        documents = sp.csr_array((words, self.indices, self.indptr), shape=(len(gamma), len(self._word_weights)))
        from_words = np.asarray(documents.sum(axis=1)).ravel()
        n_words = np.add.reduceat(np.append(counts, 0.0), self.indptr[:-1]) * (np.diff(self.indptr) > 0)
        if self._point:
            return from_words - n_words * np.log(self.topic_weights.sum(axis=1, dtype=np.float64))
        theta = Dirichlet(gamma)
        # the mixture was built from exp ψ(γ): the constant -ψ(Σγ) of E log θ must be added, once per word
        constant = -psi(gamma.sum(axis=1))
        prior = Dirichlet(np.full(gamma.shape, self._prior))
        return from_words + n_words * constant - theta.kl(prior)
