"""How private LDA reduces the effect of noise: it denoises the counts, and scales them before the clip.

Both use public numbers only: the noisy average, and the exact standard deviation of the noise in it. docs/lda.md shows how well
they work, and how their constants were chosen.

Denoising is empirical Bayes. A noisy count is ``c = μ + N(0, s²)``. With ``m`` the count under independence of topic and word,
the true count μ is exponential with mean 0.1 m (the topic does not use the word), m, or 10 m (the word is typical of the
topic). The shares of the three are fitted to the noisy counts.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import erfcx

from vips._compute.threads import run_ranges

__all__ = ["LARGEST_SCALE", "denoise_counts", "scale_cells"]

_MEANS = np.array([0.1, 1.0, 10.0])  # of the three exponentials, in units of m
_LEAST = 1e-3  # m is at least this many standard deviations of the noise
_EM_STEPS, _EM_STEPS_PER_WORD = 20, 3
_CELLS = 50_000  # number of cells on which the common shares are fitted
_WORDS_AT_A_TIME = 128
_COMMON_WEIGHT = 10.0  # the common shares count as this many topics when a word's own shares are fitted
LARGEST_SCALE = 5.0  # public bound on c_kv
_POWER = -0.35
_RAREST, _OF_NOISE = (
    0.01,
    0.5,
)  # cells below this share of the average count, or of their noise, are scaled as if they had it

_MIDDLE, _NEAR, _DEGREE = 5.0, 1.25, 22  # of the approximation of Mills' ratio

_jit = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})


def _mills_polynomial() -> np.ndarray:
    """Mills' ratio M(u) = (1 - Φ(u))/φ(u), u ≥ 0, is (1.25 + u)⁻¹ times this polynomial of (u - 5)/(u + 5), to 1e-14.

    Highest power first. A step needs millions of values: this is vectorised, whereas SciPy calls ``erfcx`` for each number.
    """

    def smooth(t):
        u = _MIDDLE * (1.0 + t) / (1.0 - t)
        return (u + _NEAR) * np.sqrt(np.pi / 2.0) * erfcx(u / np.sqrt(2.0))

    return chebyshev.cheb2poly(chebyshev.chebinterpolate(smooth, _DEGREE))[::-1].copy()


_MILLS, _ROOT = _mills_polynomial(), np.sqrt(2.0 * np.pi)


def denoise_counts(noisy: np.ndarray, noise_std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean of topic-word counts given noisy ones.

    Parameters
    ----------
    noisy : ndarray of shape (n_topics, n_words)
    noise_std : ndarray of shape (n_topics, n_words)
        Positive.

    Returns
    -------
    counts : ndarray of shape (n_topics, n_words)
        Not negative; tends to ``noisy`` as the noise vanishes.
    words : ndarray of shape (n_words,)
        Denoised totals of the words.
    """
    noise = noise_std**2
    of_topic, of_word = np.sqrt(noise.sum(axis=1)), np.sqrt(noise.sum(axis=0, keepdims=True))  # noise in totals
    overall = max(noisy.sum(), np.sqrt(noise.sum()))
    words = _posterior_mean(
        noisy.sum(axis=0, keepdims=True), of_word, np.ones(1), np.full(noisy.shape[1], overall / noisy.shape[1])
    )[0]
    topics = np.maximum(noisy.sum(axis=1), of_topic)
    return _posterior_mean(noisy, noise_std, topics / topics.sum(), words, own_shares=True), words


def scale_cells(counts: np.ndarray, noise_std: np.ndarray) -> np.ndarray:
    """Scale c_kv of each cell in the sum, from denoised counts: counts^(-0.35).

    A document's norm is dominated by frequent words of its topics, which noise hardly hurts. Scaled down, they leave more of
    the clip norm to the others. Counts below half of their noise are scaled alike, because noise chose them. The mean of c²,
    weighted by counts, is 1, so that the clip norm keeps its meaning.
    """
    mean = max(counts.mean(), 1e-300)
    counts = np.maximum(np.maximum(counts, _OF_NOISE * noise_std) / mean, _RAREST)
    scale = counts**_POWER
    return np.minimum(scale / np.sqrt(np.average(scale**2, weights=counts)), LARGEST_SCALE)


def _posterior_mean(noisy, noise_std, topics, words, own_shares=False) -> np.ndarray:
    """E[μ | c] for c ~ N(μ, s²) and μ from a mixture of exponentials with means ``_MEANS × topics ⊗ words``.

    The shares of the mixture are fitted by EM, first in common on a subset of the cells, then, with ``own_shares``, for
    each word. Words are handled in blocks, so that memory stays small, and in threads.
    """
    n_words = noisy.shape[1]
    some = np.arange(0, noisy.size, max(1, noisy.size // _CELLS))
    topic, word = np.divmod(some, n_words)
    std = noise_std[topic, word]
    _, likelihood = _components(noisy[topic, word] / std, topics[topic] * words[word] / std)
    common = np.full(len(_MEANS), 1.0 / len(_MEANS))
    for _ in range(_EM_STEPS):
        common = common * (likelihood / (common @ likelihood)).mean(axis=1)
    result, n_steps = np.empty_like(noisy), _EM_STEPS_PER_WORD if own_shares else 0

    def denoise(first: int, last: int) -> None:
        for start in range(first * _WORDS_AT_A_TIME, min(last * _WORDS_AT_A_TIME, n_words), _WORDS_AT_A_TIME):
            block = slice(start, start + _WORDS_AT_A_TIME)
            std = noise_std[:, block]
            components = _components(noisy[:, block] / std, np.outer(topics, words[block]) / std)
            _fill_means(*components, std, common, n_steps, start, result)

    run_ranges(denoise, np.arange(-(-n_words // _WORDS_AT_A_TIME) + 1), parts_per_thread=4)
    return result


def _components(noisy, prior_mean) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean under each exponential, and the likelihood of c under it, up to a factor common to all.

    Everything is in standard deviations of the noise. Given the component of mean m, the posterior is N(z, 1) truncated to
    μ ≥ 0, with z = c - 1/m. Its mean is z + φ(z)/Φ(z), and the likelihood of c is Φ(z)/φ(z)/m up to a factor that does not
    depend on m.
    """
    z, decay, share = np.empty((3, len(_MEANS), noisy.size))
    _fill_exponents(noisy.ravel(), prior_mean.ravel(), z, decay, share)
    np.exp(decay, out=decay)
    np.exp(share, out=share)
    _fill_components(z, decay, share)
    return z.reshape(-1, *noisy.shape), share.reshape(-1, *noisy.shape)


@_jit
def _fill_exponents(noisy, prior_mean, z, decay, share):
    """z, the exponent of √(2π) φ(z) for positive z, and that of its inverse, minus the largest one."""
    for i in range(len(noisy)):
        largest = 0.0
        for j in range(len(_MEANS)):
            z[j, i] = noisy[i] - 1.0 / (_MEANS[j] * max(prior_mean[i], _LEAST))
            largest = max(largest, z[j, i])
        for j in range(len(_MEANS)):
            positive = max(z[j, i], 0.0)
            decay[j, i] = -0.5 * positive * positive
            share[j, i] = 0.5 * (positive - largest) * (positive + largest)


@_jit
def _fill_components(z, decay, share):
    """Means in place of z, likelihoods in place of shares.

    √(2π) Φ(z) is e^{-z²/2} M(-z) below 0, and √(2π) - e^{-z²/2} M(z) above.
    """
    for j in range(len(_MEANS)):
        for i in range(z.shape[1]):
            u = abs(z[j, i])
            t, mills = (u - _MIDDLE) / (u + _MIDDLE), _MILLS[0]
            for power in range(1, _DEGREE + 1):
                mills = mills * t + _MILLS[power]
            mills /= u + _NEAR
            ratio = mills if z[j, i] < 0.0 else _ROOT - decay[j, i] * mills
            z[j, i] += decay[j, i] / ratio
            share[j, i] *= ratio / _MEANS[j]


@_jit
def _fill_means(means, likelihood, noise_std, common, n_steps, start, result):
    """E[μ | c] of a block of words from ``start`` on, with shares that ``n_steps`` of EM fit to each word."""
    n_components, (_, n_topics, n_words) = len(_MEANS), means.shape
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
                mean += weight * max(means[j, k, v], 0.0)
            result[k, start + v] = noise_std[k, v] * mean / total
