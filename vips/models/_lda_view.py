"""What private LDA does about the noise: denoise the counts, and scale words before they are clipped.

Both use public numbers only: the noisy average, and the exact standard deviation of the noise in it. How well they do,
and how their constants were chosen, is in docs/lda.md.

Denoising is empirical Bayes. A noisy count is ``c = μ + N(0, s²)``; the true count μ is exponential around the value
``m`` that independence of topic and word would give, times 0.1 (the word is not the topic's), 1, or 10 (it is typical of
the topic). The shares of the three are fitted to the noisy counts.
"""

from __future__ import annotations

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
    n_topics, n_words = noisy.shape
    some = np.arange(0, noisy.size, max(1, noisy.size // _CELLS))
    topic, word = np.divmod(some, n_words)
    likelihood, _ = _components(noisy[topic, word], noise_std[word], topics[topic] * words[word])
    common = np.full(len(_MEANS), 1.0 / len(_MEANS))
    for _ in range(_EM_STEPS):
        common = common * (likelihood / (common @ likelihood)).mean(axis=1)
    common = common[:, None, None]
    result = np.empty_like(noisy)

    def denoise(first: int, last: int) -> None:
        for start in range(first * _WORDS_AT_A_TIME, min(last * _WORDS_AT_A_TIME, n_words), _WORDS_AT_A_TIME):
            block = slice(start, start + _WORDS_AT_A_TIME)
            likelihood, means = _components(noisy[:, block], noise_std[block], np.outer(topics, words[block]))
            shares = common
            for _ in range(_EM_STEPS_PER_WORD if own_shares else 0):
                responsible = shares * likelihood
                responsible /= responsible.sum(axis=0)
                shares = responsible.sum(axis=1, keepdims=True) + _COMMON_WEIGHT * common
                shares /= n_topics + _COMMON_WEIGHT
            weight = shares * likelihood
            result[:, block] = (weight * means).sum(axis=0) / weight.sum(axis=0)

    run_ranges(denoise, np.arange(-(-n_words // _WORDS_AT_A_TIME) + 1), parts_per_thread=4)
    return result


def _components(noisy, noise_std, prior_mean) -> tuple[np.ndarray, np.ndarray]:
    """Likelihood of c under each exponential, up to a factor common to all, and E[μ | c] under each.

    Given the component of mean m, the posterior is N(c - s²/m, s²) truncated to μ ≥ 0. With z = c/s - s/m and
    R = Φ(z)/φ(z), its mean is s (z + 1/R), and the likelihood of c is R/m up to a factor that does not depend on m.
    """
    prior_mean = np.maximum(prior_mean, 1e-3 * noise_std)
    z = np.stack([noisy / noise_std - noise_std / (mean * prior_mean) for mean in _MEANS])
    near = np.minimum(z, _FAR)
    ratio = np.sqrt(np.pi / 2.0) * erfcx(-near / np.sqrt(2.0))
    # beyond _FAR, Φ = 1 and R = exp(z²/2) √(2π) goes on growing, but no longer fits a float
    log_likelihood = np.log(ratio) + (z - near) * (z + near) / 2.0
    log_likelihood -= np.log(_MEANS).reshape(-1, *(1,) * noisy.ndim)
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=0))
    return likelihood, np.maximum(noise_std * (z + 1.0 / ratio), 0.0)
