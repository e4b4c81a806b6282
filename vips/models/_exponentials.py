"""Numba kernels of ``_denoising.py``: posterior means under a mixture of three exponentials. Arrays for their work are given to
them, and there is no ``min`` or ``max`` of numbers: numba compiles these for longer than what is computed.

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
from vips.core.exact.compiled import compiled
from vips.core.exact.lanes import WIDTH, if_negative, load, spread, store, times_power_of_two, zeros

__all__ = ["MEANS", "N_LANES", "fill_components", "fill_means", "fit_shares", "some_cells", "totals_and_noise"]

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
def totals_and_noise(noisy, noise_std, topics, topic_noise, words, word_noise):
    """Totals of topics and of words, and the variances of the noise in them; those of words are added to zeros."""
    n_topics, n_words = noisy.shape
    for k in range(n_topics):
        row, std, total, total_noise = noisy[k], noise_std[k], 0.0, 0.0
        for v in range(n_words):
            total += row[v]
            words[v] += row[v]
        for v in range(n_words):
            total_noise += std[v] * std[v]
            word_noise[v] += std[v] * std[v]
        topics[k], topic_noise[k] = total, total_noise


@_jit
def some_cells(noisy, noise_std, of_topic, prior_mean, stride, cells):
    """c, s and m of every so many cells, shape (3, n_cells)."""
    n_words, k, v = noisy.shape[1], 0, 0
    for i in range(cells.shape[1]):
        row = k if k < len(prior_mean) else len(prior_mean) - 1
        cells[0, i], cells[1, i], cells[2, i] = noisy[k, v], noise_std[k, v], of_topic[k] * prior_mean[row, v]
        v += stride
        while v >= n_words:  # quicker than a division
            k, v = k + 1, v - n_words


@_jit_lanes
def fill_components(noisy, noise_std, of_topic, prior_mean, first, last, result, work, excess, likelihood):
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
    work : ndarray of float32, shape (2, as many)
    excess, likelihood : ndarrays of float32, shape (3, n_topics, last - first or more, a multiple of ``N_LANES``)
        For the posterior means less the largest z or 0, and the likelihoods.
    """
    n_topics, row_of_means, width = len(noisy), len(prior_mean) - 1, excess.shape[2]
    for v in range(width):
        work[0, v], work[1, v] = 0.0, 1.0
    nothing = zeros(work, _REGISTERS)
    one, ones = np.float32(1.0), spread(1.0, nothing)
    for k in range(n_topics):
        row = k if k < row_of_means else row_of_means
        for v in range(first, last):
            std = np.float32(noise_std[k, v])
            precision = one / (_LEAST_STD if std < _LEAST_STD else std)
            mean = np.float32(of_topic[k] * prior_mean[row, v]) * precision
            work[0, v - first] = np.float32(noisy[k, v]) * precision
            work[1, v - first] = one / (_LEAST if mean < _LEAST else mean)
        for v in range(0, last - first, N_LANES):
            c, rate = load(work, v, nothing), load(work, width + v, nothing)
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
            count = noisy[k, v] - noise_std[k, v] * (work[1, v - first] * _RATES[2])
            result[k, v] = 0.0 if count < 0.0 else count


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
def fit_shares(likelihood, n_cells, guess, weight, n_steps, totals, common):
    """Shares of the components of the first cells by EM, from ``guess``, which counts as ``weight`` of the cells."""
    for j in range(3):
        common[j] = guess[j]
    for _ in range(n_steps):
        for j in range(3):
            totals[j] = 0.0
        share0, share1, share2 = np.float32(common[0]), np.float32(common[1]), np.float32(common[2])
        for start in range(0, n_cells, _TERMS):
            stop = start + _TERMS
            stop = stop if stop < n_cells else n_cells
            cells = slice(start, stop)
            first, second, third = likelihood[0, cells], likelihood[1, cells], likelihood[2, cells]
            of_first, of_second, of_third = np.float32(0.0), np.float32(0.0), np.float32(0.0)
            for i in range(stop - start):
                inverse = np.float32(1.0) / (share0 * first[i] + share1 * second[i] + share2 * third[i])
                of_first += first[i] * inverse
                of_second += second[i] * inverse
                of_third += third[i] * inverse
            totals[0] += of_first
            totals[1] += of_second
            totals[2] += of_third
        for j in range(3):
            common[j] = (common[j] * totals[j] / n_cells + weight * guess[j]) / (1.0 + weight)


@_jit_lanes
def fill_means(noise_std, common, n_steps, first, last, excess, likelihood, means, result):
    """E[μ | c] of the words ``first`` to ``last`` from their components, whose shares ``n_steps`` of EM fit to each word; to
    ``result`` as :func:`fill_components` leaves it."""
    (n_topics, width), nothing = excess.shape[1:], zeros(excess, _REGISTERS)
    size, unit = n_topics * width, 1.0 / (n_topics + _COMMON_WEIGHT)
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
            mean = result[k, v] + means[k, v - first] * noise_std[k, v]
            result[k, v] = 0.0 if mean < 0.0 else mean
