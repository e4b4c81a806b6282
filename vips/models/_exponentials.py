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

# numba's cache notices changes of this file only, not of the inlined functions of lanes.py: version 9af7140d
from vips._compute.compiled import compiled
from vips._compute.lanes import WIDTH, if_negative, load, spread, store, times_power_of_two, zeros

__all__ = ["MEANS", "N_LANES", "fill_components", "fill_means", "fitted_shares", "some_cells", "totals_and_noise"]

MEANS = np.array([0.1, 1.0, 10.0])  # of the three exponentials, in units of m
_LEAST = np.float32(1e-6)  # m is at least this many standard deviations of the noise
_LEAST_STD = np.float32(1e-30)  # of the noise: its inverse is a number in single precision
_COMMON_WEIGHT = 10.0  # the common shares count as this many topics when a word's own shares are fitted
_MIDDLE, _DEGREE = 2.5, 10  # of the approximation of Mills' ratio
_REGISTERS = 2
N_LANES = _REGISTERS * WIDTH  # cells at a time
_TERMS = 256  # of a sum in single precision

_jit = compiled(nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})
_jit_lanes = compiled(nogil=True, error_model="numpy")
_inline = compiled(inline="always")  # see models/topics/digamma.py


def _polynomial() -> tuple[np.float32, ...]:
    """1/M(u) - u for u ≥ 0 is 1/(u + 2.5) times a polynomial of (u - 2.5)/(u + 2.5), to 4e-7: highest power first.

    A step needs millions of values: they are in single precision, and so is what follows from them. M(u) is one over u plus it.
    """

    def smooth(t):
        u = _MIDDLE * (1.0 + t) / (1.0 - t)
        return (u + _MIDDLE) * (np.sqrt(2.0 / np.pi) / erfcx(u / np.sqrt(2.0)) - u)

    coefficients = chebyshev.cheb2poly(chebyshev.chebinterpolate(smooth, _DEGREE))
    return tuple(np.float32(coefficient) for coefficient in coefficients[::-1])


_EXCESS, _ROOT, _RATES = _polynomial(), np.float32(np.sqrt(2.0 * np.pi)), tuple(float(1.0 / mean) for mean in MEANS)
_LOG2_E, _LOG_2, _REST_OF_LOG_2 = np.float32(np.log2(np.e)), np.float32(0.693359375), np.float32(-2.12194440e-4)
_OVER_FACTORIALS = tuple(np.float32(1.0 / factorial) for factorial in (720.0, 120.0, 24.0, 6.0, 2.0))
_TO_INTEGER = 1.5 * 2.0**23  # in the last bits of a sum with it stands the other number, rounded
_LOWEST = -60.0  # below it exp stays what it is there: products with subnormal numbers are slow


@_jit
def totals_and_noise(noisy, noise_std):
    """Totals of topics and of words, and the variances of the noise in them."""
    n_topics, n_words = noisy.shape
    (topics, topic_noise), (words, word_noise) = np.empty((2, n_topics)), np.empty((2, n_words))
    for v in range(n_words):
        words[v], word_noise[v] = 0.0, 0.0
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


@_jit_lanes
def fill_components(noisy, noise_std, of_topic, prior_mean, first, last, result, excess, likelihood):
    """Posterior mean under each exponential, over that of a bound, and the likelihood up to a common factor.

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
    result : ndarray of shape (n_topics, n_words)
        For the largest z, or 0 if it is negative, times ``noise_std``; may be ``noisy``.
    excess, likelihood : ndarrays of float32, shape (3, n_topics, last - first or more, a multiple of ``N_LANES``)
        For the posterior means less the largest z or 0, and the likelihoods.
    """
    n_topics, row_of_means, width = len(noisy), len(prior_mean) - 1, excess.shape[2]
    count, inverse = np.empty(width, np.float32), np.empty(width, np.float32)
    for v in range(width):
        count[v], inverse[v] = 0.0, 1.0
    nothing = zeros(count, _REGISTERS)
    one, ones = np.float32(1.0), spread(1.0, nothing)
    for k in range(n_topics):
        row = min(k, row_of_means)
        for v in range(first, last):
            precision = one / max(np.float32(noise_std[k, v]), _LEAST_STD)
            count[v - first] = np.float32(noisy[k, v]) * precision
            inverse[v - first] = one / max(np.float32(of_topic[k] * prior_mean[row, v]) * precision, _LEAST)
        for v in range(0, last - first, N_LANES):
            c, rate = load(count, v, nothing), load(inverse, v, nothing)
            largest = max(c - rate * _RATES[2], 0.0)
            for j in range(3):
                z, share = c - rate * _RATES[j], ones
                less = max(rate * (_RATES[2] - _RATES[j]), 0.0 - largest)
                if j < 2:
                    share = _exp(less * (largest + 0.5 * less))
                positive = max(z, 0.0)
                decay = _exp(-0.5 * positive * positive)
                over = 1.0 / (abs(z) + _MIDDLE)
                t = 1.0 - 2.0 * _MIDDLE * over
                below = spread(_EXCESS[0], nothing)
                for i in range(1, _DEGREE + 1):
                    below = below * t + _EXCESS[i]
                below = below * over
                mills = 1.0 / (abs(z) + below)
                above = _ROOT - decay * mills
                place = (j * n_topics + k) * width + v
                store(excess, place, less + if_negative(z, below, decay / above))
                store(likelihood, place, _RATES[j] * share * if_negative(z, mills, above))
        for v in range(first, last):
            result[k, v] = max(noisy[k, v] - noise_std[k, v] * (inverse[v - first] * _RATES[2]), 0.0)


@_inline
def _exp(x):
    """e^x in single precision, for x ≤ 0; below -60 it is e⁻⁶⁰."""
    x = max(x, _LOWEST)
    last_bits = x * _LOG2_E + _TO_INTEGER
    power = last_bits - _TO_INTEGER
    remainder = (x - power * _LOG_2) - power * _REST_OF_LOG_2
    series = remainder * _OVER_FACTORIALS[0] + _OVER_FACTORIALS[1]
    series = series * remainder + _OVER_FACTORIALS[2]
    series = series * remainder + _OVER_FACTORIALS[3]
    series = series * remainder + _OVER_FACTORIALS[4]
    return times_power_of_two((series * remainder + 1.0) * remainder + 1.0, last_bits)


@_jit
def fitted_shares(likelihood, n_cells, guess, weight, n_steps):
    """Shares of the components of the first cells by EM, from ``guess``, which counts as ``weight`` of the cells."""
    common, totals = np.empty(3), np.empty(3)
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


@_jit_lanes
def fill_means(noise_std, common, n_steps, first, last, excess, likelihood, result):
    """E[μ | c] of the words ``first`` to ``last`` from their components, whose shares ``n_steps`` of EM fit to each word; to
    ``result`` as :func:`fill_components` leaves it."""
    (n_topics, width), nothing = excess.shape[1:], zeros(excess, _REGISTERS)
    size, unit, means = n_topics * width, 1.0 / (n_topics + _COMMON_WEIGHT), np.empty((n_topics, width), np.float32)
    for v in range(0, last - first, N_LANES):
        share0, share1, share2 = spread(common[0], nothing), spread(common[1], nothing), spread(common[2], nothing)
        for _ in range(n_steps):
            ratio0, ratio1, ratio2 = nothing, nothing, nothing
            for place in range(v, v + size, width):
                of0, of1 = load(likelihood, place, nothing), load(likelihood, place + size, nothing)
                of2 = load(likelihood, place + 2 * size, nothing)
                inverse = 1.0 / (share0 * of0 + share1 * of1 + share2 * of2)
                ratio0, ratio1, ratio2 = ratio0 + of0 * inverse, ratio1 + of1 * inverse, ratio2 + of2 * inverse
            share0 = (share0 * ratio0 + _COMMON_WEIGHT * common[0]) * unit
            share1 = (share1 * ratio1 + _COMMON_WEIGHT * common[1]) * unit
            share2 = (share2 * ratio2 + _COMMON_WEIGHT * common[2]) * unit
        for place in range(v, v + size, width):
            of0, of1 = share0 * load(likelihood, place, nothing), share1 * load(likelihood, place + size, nothing)
            of2 = share2 * load(likelihood, place + 2 * size, nothing)
            mean = of0 * load(excess, place, nothing) + of1 * load(excess, place + size, nothing)
            mean = mean + of2 * load(excess, place + 2 * size, nothing)
            store(means, place, mean / (of0 + of1 + of2))
    for k in range(n_topics):
        for v in range(first, last):
            result[k, v] = max(result[k, v] + means[k, v - first] * noise_std[k, v], 0.0)
