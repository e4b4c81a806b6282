"""Posterior means of tables of noisy counts, by empirical Bayes: of topics by words, of classes by answers.

They use public numbers only: the noisy counts, and the exact standard deviation of the noise in them.

A noisy count is ``c = μ + N(0, s²)``. With ``m`` the count under independence of row and column, the true count μ is
exponential with mean 0.1 m (the topic does not use the word), m, or 10 m (the word is typical of the topic). The shares of the
three are fitted to the noisy counts. docs/lda.md shows how well this works, and how its constants were chosen.
"""

from __future__ import annotations

import numpy as np

from vips.core.exact.threads import run_ranges
from vips.models._exponentials import (
    MEANS,
    N_LANES,
    fill_components,
    fill_means,
    fit_shares,
    some_cells,
    totals_and_noise,
)

__all__ = ["MEANS", "denoise_counts", "posterior_mean"]

_EM_STEPS, _EM_STEPS_PER_WORD = 20, 3
_CELLS = 50_000  # number of cells on which the common shares are fitted
_WORDS_AT_A_TIME = 128  # whose components stay in the cache
_GUESS_WEIGHT = 0.02  # of a guess of the common shares, for each cell


def denoise_counts(
    noisy: np.ndarray, noise_std: np.ndarray, out: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean of topic-word counts given noisy ones.

    Parameters
    ----------
    noisy : ndarray of shape (n_topics, n_words)
    noise_std : ndarray of shape (n_topics, n_words)
        Positive.
    out : ndarray of shape (n_topics, n_words), optional
        For the result; may be ``noisy``.

    Returns
    -------
    counts : ndarray of shape (n_topics, n_words)
        Not negative; tends to ``noisy`` as the noise vanishes.
    words : ndarray of shape (n_words,)
        Denoised totals of the words.
    """
    (topics, topic_noise), (words, word_noise) = (np.zeros((2, n)) for n in noisy.shape)
    totals_and_noise(noisy, noise_std, topics, topic_noise, words, word_noise)
    topic_std, word_std = np.sqrt(topic_noise), np.sqrt(word_noise)
    overall = max(topics.sum(), np.sqrt(topic_noise.sum()))
    uniform = np.full((1, len(words)), overall / len(words))
    words = posterior_mean(words[None], word_std[None], uniform)[0]
    topics = np.maximum(topics, topic_std)
    shares = topics / topics.sum()
    return posterior_mean(noisy, noise_std, words[None], own_shares=True, of_topic=shares, out=out), words


def posterior_mean(noisy, noise_std, prior_mean, own_shares=False, shares=None, of_topic=None, out=None) -> np.ndarray:
    """E[μ | c] for c ~ N(μ, s²) and μ from a mixture of exponentials with means ``MEANS × m``.

    m is ``prior_mean``; with ``of_topic``, of shape (n_topics,), it is ``of_topic[k] × prior_mean[0, v]``. The shares of
    the mixture are fitted by EM, first in common on a subset of the cells, then, with ``own_shares``, for each word. Words are
    handled in blocks, so that memory stays small, and in threads. ``out`` may be ``noisy``.
    """
    n_topics, n_words = noisy.shape
    of_topic = np.ones(n_topics) if of_topic is None else of_topic
    stride = max(1, noisy.size // _CELLS)
    cells, common = np.empty((3, -(-noisy.size // stride))), np.empty(3)
    some_cells(noisy, noise_std, of_topic, prior_mean, stride, cells)
    guess, weight = (np.full(3, 1.0 / 3.0), 0.0) if shares is None else (shares, _GUESS_WEIGHT)
    fit_shares(components(*cells)[2], cells.shape[1], guess, weight, _EM_STEPS, np.empty(3), common)
    result, n_steps = np.empty_like(noisy) if out is None else out, _EM_STEPS_PER_WORD if own_shares else 0

    def denoise(begin: int, end: int) -> None:
        excess, likelihood = _empty_components(n_topics, _WORDS_AT_A_TIME)
        work, means = np.empty((2, _WORDS_AT_A_TIME), np.float32), np.empty(excess.shape[1:], np.float32)
        for first in range(begin * _WORDS_AT_A_TIME, min(end * _WORDS_AT_A_TIME, n_words), _WORDS_AT_A_TIME):
            last = min(first + _WORDS_AT_A_TIME, n_words)
            fill_components(noisy, noise_std, of_topic, prior_mean, first, last, result, work, excess, likelihood)
            fill_means(noise_std, common, n_steps, first, last, excess, likelihood, means, result)

    run_ranges(denoise, np.arange(-(-n_words // _WORDS_AT_A_TIME) + 1), parts_per_thread=4)
    return result


def components(noisy, noise_std, prior_mean) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Components of cells, of shape (n_cells,): see ``fill_components``, shapes (n_cells,), (3, n_cells or more) twice."""
    bound, (excess, likelihood) = np.empty((1, len(noisy))), _empty_components(1, len(noisy))
    cells = noisy[None], noise_std[None], np.ones(1), prior_mean[None]
    fill_components(*cells, 0, len(noisy), bound, np.empty((2, excess.shape[2]), np.float32), excess, likelihood)
    return bound[0], excess[:, 0], likelihood[:, 0]


def _empty_components(n_topics: int, n_words: int) -> np.ndarray:
    return np.empty((2, 3, n_topics, -(-n_words // N_LANES) * N_LANES), np.float32)
