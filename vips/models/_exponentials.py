"""Numba kernels of ``_denoising.py``: posterior means under a mixture of three exponentials.

========  =======================  ========================================================
symbol    name                     meaning
========  =======================  ========================================================
c, s      ``noisy, noise_std``     noisy count, and the standard deviation of its noise
m         ``prior_mean``           mean of the second exponential; all means are ``MEANS × m``
z         ``z``                    see ``fill_components``
M(u)      ``mills``                Mills' ratio (1 - Φ(u))/φ(u)
========  =======================  ========================================================
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import erfcx

from vips._compute.compiled import compiled

__all__ = ["MEANS", "fill_components", "fill_means", "fitted_shares", "some_cells", "totals_and_noise"]

MEANS = np.array([0.1, 1.0, 10.0])  # of the three exponentials, in units of m
_LEAST = 1e-6  # m is at least this many standard deviations of the noise
_COMMON_WEIGHT = 10.0  # the common shares count as this many topics when a word's own shares are fitted
_MIDDLE, _NEAR, _DEGREE = 5.0, 1.25, 14  # of the approximation of Mills' ratio
_TERMS = 256  # of a sum in single precision

_SETTINGS = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc"}}
_jit = compiled(**_SETTINGS)
_inline = compiled(**_SETTINGS, inline="always")  # see models/topics/digamma.py


def _polynomials() -> tuple[np.ndarray, np.ndarray]:
    """Mills' ratio M(u) = (1 - Φ(u))/φ(u), u ≥ 0, and 1/M(u) - u are 1/(1.25 + u) times polynomials of (u - 5)/(u + 5).

    To 1e-8, highest power first. A step needs millions of values: all but z and the result is in single precision.
    """

    def mills(t):
        u = _MIDDLE * (1.0 + t) / (1.0 - t)
        return u, np.sqrt(np.pi / 2.0) * erfcx(u / np.sqrt(2.0))

    def smooth_mills(t):
        u, ratio = mills(t)
        return (u + _NEAR) * ratio

    def smooth_excess(t):
        u, ratio = mills(t)
        return (u + _NEAR) * (1.0 / ratio - u)

    of_mills, of_excess = (
        chebyshev.cheb2poly(chebyshev.chebinterpolate(function, _DEGREE))[::-1].astype(np.float32)
        for function in (smooth_mills, smooth_excess)
    )
    return of_mills, of_excess


(_MILLS, _EXCESS), _ROOT = _polynomials(), np.float32(np.sqrt(2.0 * np.pi))
_RATES = 1.0 / MEANS
_LOG2_E, _LOG_2, _REST_OF_LOG_2 = np.float32(np.log2(np.e)), np.float32(0.693359375), np.float32(-2.12194440e-4)
_OVER_FACTORIALS = tuple(np.float32(1.0 / factorial) for factorial in (720.0, 120.0, 24.0, 6.0, 2.0))
_LOWEST = np.float32(-87.0)  # below it exp is 0: the result would be subnormal


@_jit
def totals_and_noise(noisy, noise_std):
    """Totals of topics and of words, and the variances of the noise in them."""
    n_topics, n_words = noisy.shape
    (topics, topic_noise), (words, word_noise) = np.empty((2, n_topics)), np.zeros((2, n_words))
    for k in range(n_topics):
        row, std, total, total_noise = noisy[k], noise_std[k], 0.0, 0.0
        for v in range(n_words):
            total += row[v]
            words[v] += row[v]
        for v in range(n_words):
            total_noise += std[v] * std[v]
            word_noise[v] += std[v] * std[v]
        topics[k], topic_noise[k] = total, total_noise
    return topics, words, topic_noise, word_noise


@_jit
def some_cells(noisy, noise_std, of_topic, prior_mean, stride):
    """c, s and m of every so many cells."""
    n_words = noisy.shape[1]
    n_cells = (noisy.size + stride - 1) // stride
    counts, stds, means = np.empty(n_cells), np.empty(n_cells), np.empty(n_cells)
    for i in range(n_cells):
        k, v = i * stride // n_words, i * stride % n_words
        counts[i], stds[i] = noisy[k, v], noise_std[k, v]
        means[i] = of_topic[k] * prior_mean[min(k, len(prior_mean) - 1), v]
    return counts, stds, means


@_jit
def fill_components(noisy, noise_std, of_topic, prior_mean, first, last, z, excess, likelihood):
    """z and the excess over max(0, z) of the posterior mean under each exponential, and the likelihood up to a common factor.

    Everything is in standard deviations of the noise. Given the component of mean m, the posterior is N(z, 1) truncated to
    μ ≥ 0, with z = c - 1/m. Its mean is z + φ(z)/Φ(z), and the likelihood of c is Φ(z)/φ(z)/m up to a factor that does not
    depend on m. √(2π) Φ(z) is e^{-z²/2} M(-z) below 0, and √(2π) - e^{-z²/2} M(z) above. The likelihoods are divided by
    e^{z²/2} of the last component, if its z is positive, which is the largest.

    Parameters
    ----------
    noisy, noise_std : ndarray of shape (n_topics, n_words)
    of_topic : ndarray of shape (n_topics,)
    prior_mean : ndarray of shape (n_topics or 1, n_words)
        m is ``of_topic[k] × prior_mean[k, v]``.
    first, last : int
        Words.
    z, excess, likelihood : ndarrays of shape (3, n_topics, last - first or more)
        For the results, the last two in single precision.
    """
    n_words, row_of_means = last - first, len(prior_mean) - 1
    near, middle, half, one = np.float32(_NEAR), np.float32(_MIDDLE), np.float32(0.5), np.float32(1.0)
    nothing = np.float32(0.0)
    # few arrays in a loop, made here: else the compiler does not vectorise it
    count, inverse, largest = np.empty(n_words), np.empty(n_words), np.empty(n_words)
    value, decay, share = np.empty(n_words, np.float32), np.empty(n_words, np.float32), np.empty(n_words, np.float32)
    for k in range(len(noisy)):
        row, std, mean = noisy[k, first:last], noise_std[k, first:last], prior_mean[min(k, row_of_means), first:last]
        for v in range(n_words):
            precision = 1.0 / std[v]
            count[v], inverse[v] = row[v] * precision, 1.0 / max(of_topic[k] * mean[v] * precision, _LEAST)
        for v in range(n_words):
            largest[v] = max(count[v] - inverse[v] * _RATES[2], 0.0)
        for j in range(3):
            of_z, of_excess, of_likelihood, rate = z[j, k], excess[j, k], likelihood[j, k], np.float32(_RATES[j])
            for v in range(n_words):
                of_z[v] = count[v] - inverse[v] * _RATES[j]
            for v in range(n_words):
                positive = max(of_z[v], 0.0)
                share[v] = 0.5 * (positive - largest[v]) * (positive + largest[v])
            for v in range(n_words):
                value[v] = of_z[v]
            for v in range(n_words):
                positive = max(value[v], nothing)
                decay[v] = _exp(-half * positive * positive)
            for v in range(n_words):
                share[v] = rate * _exp(share[v])
            for v in range(n_words):
                u = abs(value[v])
                t, over = (u - middle) / (u + middle), one / (u + near)
                mills, below = _MILLS[0], _EXCESS[0]
                for power in range(1, _DEGREE + 1):
                    mills, below = mills * t + _MILLS[power], below * t + _EXCESS[power]
                mills, below = mills * over, below * over
                above = _ROOT - decay[v] * mills
                is_below = value[v] < nothing
                value[v] = below if is_below else decay[v] / above
                share[v] *= mills if is_below else above
            for v in range(n_words):
                of_excess[v] = value[v]
            for v in range(n_words):
                of_likelihood[v] = share[v]


@_inline
def _exp(x):
    """e^x for x ≤ 0 in single precision. A call of the library's function would keep a loop from being vectorised."""
    power = np.rint(x * _LOG2_E)
    remainder = (x - power * _LOG_2) - power * _REST_OF_LOG_2
    series = _OVER_FACTORIALS[0]
    for i in range(1, 5):
        series = series * remainder + _OVER_FACTORIALS[i]
    series = series * remainder * remainder + remainder + np.float32(1.0)
    of_two = np.int32((np.int32(power) + np.int32(127)) << np.int32(23)).view(np.float32)  # its bits: 2^power
    return series * of_two if x > _LOWEST else np.float32(0.0)


@_jit
def fitted_shares(likelihood, guess, weight, n_steps):
    """Shares of the components by EM, from ``guess``, which counts as ``weight`` of the cells."""
    n_cells, common, totals = likelihood.shape[1], np.empty(3), np.empty(3)
    for j in range(3):
        common[j] = guess[j]
    for _ in range(n_steps):
        for j in range(3):
            totals[j] = 0.0
        share0, share1, share2 = np.float32(common[0]), np.float32(common[1]), np.float32(common[2])
        for start in range(0, n_cells, _TERMS):
            cells = slice(start, min(start + _TERMS, n_cells))
            first, second, third = likelihood[0, cells], likelihood[1, cells], likelihood[2, cells]
            of_first, of_second, of_third = np.float32(0.0), np.float32(0.0), np.float32(0.0)
            for i in range(len(first)):
                inverse = np.float32(1.0) / (share0 * first[i] + share1 * second[i] + share2 * third[i])
                of_first += first[i] * inverse
                of_second += second[i] * inverse
                of_third += third[i] * inverse
            totals[0] += of_first
            totals[1] += of_second
            totals[2] += of_third
        for j in range(3):
            common[j] = (common[j] * totals[j] / n_cells + weight * guess[j]) / (1.0 + weight)
    return common


@_jit
def fill_means(noise_std, common, n_steps, first, last, z, excess, likelihood, result):
    """E[μ | c] of the words ``first`` to ``last`` from their components, whose shares ``n_steps`` of EM fit to each word."""
    n_topics, n_words, prior = len(noise_std), last - first, _COMMON_WEIGHT * common
    shares, ratios = np.empty((2, 3, n_words), np.float32)
    inverse, weights = np.empty((2, n_words), np.float32)
    for j in range(3):
        for v in range(n_words):
            shares[j, v] = common[j]
    for _ in range(n_steps):
        for j in range(3):
            for v in range(n_words):
                ratios[j, v] = 0.0
        for k in range(n_topics):
            _fill_inverse(likelihood[0, k], likelihood[1, k], likelihood[2, k], shares, n_words, inverse)
            for j in range(3):
                of_component, added = likelihood[j, k], ratios[j]
                for v in range(n_words):
                    added[v] += of_component[v] * inverse[v]
        for j in range(3):
            for v in range(n_words):
                shares[j, v] = (prior[j] + shares[j, v] * ratios[j, v]) / (n_topics + _COMMON_WEIGHT)
    for k in range(n_topics):
        _fill_inverse(likelihood[0, k], likelihood[1, k], likelihood[2, k], shares, n_words, inverse)
        row, std = result[k, first:last], noise_std[k, first:last]
        for v in range(n_words):
            row[v] = 0.0
        for j in range(3):
            of_z, of_excess, of_component, share = z[j, k], excess[j, k], likelihood[j, k], shares[j]
            for v in range(n_words):
                weights[v] = share[v] * of_component[v] * inverse[v]
            for v in range(n_words):
                row[v] += weights[v] * (max(of_z[v], 0.0) + of_excess[v])
        for v in range(n_words):
            row[v] *= std[v]


@_inline
def _fill_inverse(first, second, third, shares, n_words, inverse):
    """1 ÷ the likelihood of the mixture."""
    of_first, of_second, of_third = shares
    for v in range(n_words):
        inverse[v] = np.float32(1.0) / (of_first[v] * first[v] + of_second[v] * second[v] + of_third[v] * third[v])
