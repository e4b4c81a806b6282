"""What private LDA does about the noise: denoise the counts, and scale words before they are clipped.

Both use public numbers only: the noisy average, and the exact standard deviation of the noise in it. How well they do,
and how their constants were chosen, is in docs/lda.md.

Denoising is empirical Bayes. A noisy count is ``c = μ + N(0, s²)``; the true count μ is exponential around the value
``m`` that independence of topic and word would give, times 0.1 (the word is not the topic's), 1, or 10 (it is typical of
the topic). The shares of the three are fitted to the noisy counts.
"""

from __future__ import annotations

import numba
import numpy as np
from scipy.special import erfcx

from vips._threads import run_ranges

__all__ = ["LARGEST_SCALE", "denoise_counts", "scale_words"]

_MEANS = np.array([0.1, 1.0, 10.0])  # of the three exponentials, in units of m
_FAR = 25.0  # standard deviations at which Φ is 1 to double precision
_EM_STEPS, _EM_STEPS_PER_WORD = 20, 3
_CELLS = 50_000  # as many cells as the common shares are fitted on
_WORDS_AT_A_TIME = 512
_COMMON_WEIGHT = 10.0  # the common shares count as this many topics when a word's own shares are fitted
LARGEST_SCALE = 3.0  # public bound on c_v; words reach it only in vocabularies that are nearly all rare
_RAREST = 0.1  # words below this share of the average frequency are scaled as if they had it

_jit = numba.njit(nogil=True, cache=True, error_model="numpy")


def denoise_counts(noisy: np.ndarray, noise_std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean of topic-word counts given noisy ones.

    Parameters
    ----------
    noisy : ndarray of shape (n_topics, n_words)
    noise_std : ndarray of shape (n_words,)
        Positive.

    Returns
    -------
    counts : ndarray of shape (n_topics, n_words)
        Not negative; tends to ``noisy`` as the noise vanishes.
    words : ndarray of shape (n_words,)
        Denoised totals of the words.
    """
    n_topics, n_words = noisy.shape
    of_topic = np.sqrt(np.sum(noise_std**2))  # noise in the total of a topic
    overall = max(noisy.sum(), of_topic * np.sqrt(n_topics))
    words = _posterior_mean(
        noisy.sum(axis=0, keepdims=True), noise_std * np.sqrt(n_topics), np.ones(1), np.full(n_words, overall / n_words)
    )[0]
    topics = np.maximum(noisy.sum(axis=1), of_topic)
    return _posterior_mean(noisy, noise_std, topics / topics.sum(), words, own_shares=True), words


def scale_words(words: np.ndarray) -> np.ndarray:
    """Scale c_v of each word's column in the sum, from denoised totals: frequency^(-¼).

    A document's norm is dominated by its frequent words, which noise hardly hurts. Scaled down, they leave more of the
    clip norm to the others. The mean of c² over words as they occur is 1, so that the clip norm keeps its meaning.
    """
    frequency = np.maximum(words / words.mean(), _RAREST)
    scale = frequency**-0.25
    return np.minimum(scale / np.sqrt(np.average(scale**2, weights=frequency)), LARGEST_SCALE)


def _posterior_mean(noisy, noise_std, topics, words, own_shares=False) -> np.ndarray:
    """E[μ | c] for c ~ N(μ, s²) and μ from a mixture of exponentials with means ``_MEANS × topics ⊗ words``.

    The shares of the mixture are fitted by EM, first in common on a subset of the cells, then, with ``own_shares``, for
    each word. Words are handled in blocks, so that memory stays small, and in threads.
    """
    n_words = noisy.shape[1]
    some = np.arange(0, noisy.size, max(1, noisy.size // _CELLS))
    topic, word = np.divmod(some, n_words)
    _, _, likelihood = _components(noisy[topic, word], noise_std[word], topics[topic] * words[word])
    common = np.full(len(_MEANS), 1.0 / len(_MEANS))
    for _ in range(_EM_STEPS):
        common = common * (likelihood / (common @ likelihood)).mean(axis=1)
    result, n_steps = np.empty_like(noisy), _EM_STEPS_PER_WORD if own_shares else 0

    def denoise(first: int, last: int) -> None:
        for start in range(first * _WORDS_AT_A_TIME, min(last * _WORDS_AT_A_TIME, n_words), _WORDS_AT_A_TIME):
            block = slice(start, start + _WORDS_AT_A_TIME)
            components = _components(noisy[:, block], noise_std[block], np.outer(topics, words[block]))
            _fill_means(*components, noise_std[block], common, n_steps, start, result)

    run_ranges(denoise, np.arange(-(-n_words // _WORDS_AT_A_TIME) + 1), parts_per_thread=4)
    return result


def _components(noisy, noise_std, prior_mean) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """z and R of each exponential, and the likelihood of c under it, up to a factor common to all.

    Given the component of mean m, the posterior is N(c - s²/m, s²) truncated to μ ≥ 0. With z = c/s - s/m and
    R = Φ(z)/φ(z), its mean is s (z + 1/R), and the likelihood of c is R/m up to a factor that does not depend on m.
    """
    prior_mean = np.maximum(prior_mean, 1e-3 * noise_std)
    z = np.stack([noisy / noise_std - noise_std / (mean * prior_mean) for mean in _MEANS])
    ratio = np.sqrt(np.pi / 2.0) * erfcx(np.minimum(z, _FAR) / -np.sqrt(2.0))
    likelihood = np.empty_like(z)
    flat = (len(_MEANS), -1)
    _fill_likelihood(z.reshape(flat), ratio.reshape(flat), likelihood.reshape(flat))
    return z, ratio, likelihood


@_jit
def _fill_likelihood(z, ratio, likelihood):
    """R/m; beyond ``_FAR``, Φ = 1 and R = exp(z²/2) √(2π) goes on growing, but no longer fits a float."""
    for i in range(z.shape[1]):
        largest = 0.0
        for j in range(len(_MEANS)):
            largest = max(largest, z[j, i])
        for j in range(len(_MEANS)):
            value = ratio[j, i] / _MEANS[j]
            if largest > _FAR:
                far = max(z[j, i], _FAR)
                value *= np.exp((far - largest) * (far + largest) / 2.0)
            likelihood[j, i] = value


@_jit
def _fill_means(z, ratio, likelihood, noise_std, common, n_steps, start, result):
    """E[μ | c] of a block of words from ``start`` on, with shares that ``n_steps`` of EM fit to each word."""
    n_components, (_, n_topics, n_words) = len(_MEANS), z.shape
    shares, counts = np.empty((n_components, n_words)), np.empty((n_components, n_words))
    for j in range(n_components):
        shares[j] = common[j]
    for _ in range(n_steps):
        for j in range(n_components):
            counts[j] = _COMMON_WEIGHT * common[j]
        for k in range(n_topics):
            for v in range(n_words):
                total = 0.0
                for j in range(n_components):
                    total += shares[j, v] * likelihood[j, k, v]
                for j in range(n_components):
                    counts[j, v] += shares[j, v] * likelihood[j, k, v] / total
        shares[:] = counts / (n_topics + _COMMON_WEIGHT)
    for k in range(n_topics):
        for v in range(n_words):
            total, mean = 0.0, 0.0
            for j in range(n_components):
                weight = shares[j, v] * likelihood[j, k, v]
                total += weight
                mean += weight * max(noise_std[v] * (z[j, k, v] + 1.0 / ratio[j, k, v]), 0.0)
            result[k, start + v] = mean / total
