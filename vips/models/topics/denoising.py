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

__all__ = ["LARGEST_SCALE", "MEANS", "denoise_counts", "posterior_mean", "scale_cells"]

MEANS = np.array([0.1, 1.0, 10.0])  # of the three exponentials, in units of m
_LEAST = 1e-6  # m is at least this many standard deviations of the noise
_EM_STEPS, _EM_STEPS_PER_WORD = 20, 3
_CELLS = 50_000  # number of cells on which the common shares are fitted
_WORDS_AT_A_TIME = 64  # whose components stay in the cache
_GUESS_WEIGHT = 0.02  # of a guess of the common shares, for each cell
_COMMON_WEIGHT = 10.0  # the common shares count as this many topics when a word's own shares are fitted
LARGEST_SCALE = 5.0  # public bound on c_kv
_POWER = -0.45
_RAREST, _OF_NOISE = (
    0.01,
    0.5,
)  # cells below this share of the average count, or of their noise, are scaled as if they had it

_MIDDLE, _NEAR, _DEGREE = 5.0, 1.25, 14  # of the approximation of Mills' ratio
_TERMS = 256  # of a sum in single precision

_SETTINGS = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": {"contract", "reassoc"}}
_jit = numba.njit(**_SETTINGS)
_inline = numba.njit(**_SETTINGS, inline="always")  # see models/topics/digamma.py


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
        chebyshev.cheb2poly(chebyshev.chebinterpolate(each, _DEGREE))[::-1].astype(np.float32)
        for each in (smooth_mills, smooth_excess)
    )
    return of_mills, of_excess


(_MILLS, _EXCESS), _ROOT = _polynomials(), np.float32(np.sqrt(2.0 * np.pi))
_RATES = 1.0 / MEANS
_LOG2_E, _LOG_2, _REST_OF_LOG_2 = np.float32(np.log2(np.e)), np.float32(0.693359375), np.float32(-2.12194440e-4)
_OVER_FACTORIALS = tuple(np.float32(1.0 / factorial) for factorial in (720.0, 120.0, 24.0, 6.0, 2.0))
_LOWEST = np.float32(-87.0)  # below it exp is 0: the result would be subnormal


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
    topics, words, topic_noise, word_noise = _totals(noisy, noise_std)
    topic_std, word_std = np.sqrt(topic_noise), np.sqrt(word_noise)
    overall = max(topics.sum(), np.sqrt(topic_noise.sum()))
    uniform = np.full((1, len(words)), overall / len(words))
    words = posterior_mean(words[None], word_std[None], uniform)[0]
    topics = np.maximum(topics, topic_std)
    shares = topics / topics.sum()
    return posterior_mean(noisy, noise_std, words[None], own_shares=True, of_topic=shares, out=out), words


def scale_cells(counts: np.ndarray, noise_std: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Scale c_kv of each cell in the sum, from denoised counts: counts^(-0.45). ``out`` may be ``noise_std``.

    A document's norm is dominated by frequent words of its topics, which noise hardly hurts. Scaled down, they leave more of
    the clip norm to the others. Counts below half of their noise are scaled alike, because noise chose them. The mean of c²,
    weighted by counts, is 1, so that the clip norm keeps its meaning.
    """
    mean = max(counts.mean(), 1e-300)
    scale = np.empty_like(counts) if out is None else out
    masses, squares = np.empty((2, len(counts)))

    def fill(first: int, last: int) -> None:
        for k in range(first, last):  # rows stay in the cache
            row = np.maximum(counts[k], _OF_NOISE * noise_std[k])
            row *= 1.0 / mean
            np.maximum(row, _RAREST, out=row)
            np.power(row, _POWER, out=scale[k])
            masses[k], squares[k] = row.sum(), np.vdot(row, np.square(scale[k]))

    run_ranges(fill, np.arange(len(counts) + 1))
    scale *= 1.0 / np.sqrt(squares.sum() / masses.sum())
    return np.minimum(scale, LARGEST_SCALE, out=scale)


def posterior_mean(noisy, noise_std, prior_mean, own_shares=False, shares=None, of_topic=None, out=None) -> np.ndarray:
    """E[μ | c] for c ~ N(μ, s²) and μ from a mixture of exponentials with means ``MEANS × m``.

    m is ``prior_mean``; with ``of_topic``, of shape (n_topics,), it is ``of_topic[k] × prior_mean[0, v]``. The shares of
    the mixture are fitted by EM, first in common on a subset of the cells, then, with ``own_shares``, for each word. Words are
    handled in blocks, so that memory stays small, and in threads. ``out`` may be ``noisy``.
    """
    n_topics, n_words = noisy.shape
    of_topic = np.ones(n_topics) if of_topic is None else of_topic
    cells = _some_cells(noisy, noise_std, of_topic, prior_mean, max(1, noisy.size // _CELLS))
    guess, weight = (np.full(3, 1.0 / 3.0), 0.0) if shares is None else (shares, _GUESS_WEIGHT)
    common = _fitted_shares(_components(*cells)[2], guess, weight, _EM_STEPS)
    result, n_steps = np.empty_like(noisy) if out is None else out, _EM_STEPS_PER_WORD if own_shares else 0

    def denoise(first: int, last: int) -> None:
        start, stop = first * _WORDS_AT_A_TIME, min(last * _WORDS_AT_A_TIME, n_words)
        _fill_means(noisy, noise_std, of_topic, prior_mean, common, n_steps, start, stop, result)

    run_ranges(denoise, np.arange(-(-n_words // _WORDS_AT_A_TIME) + 1), parts_per_thread=4)
    return result


@_jit
def _totals(noisy, noise_std):
    """Totals of topics and of words, and the variances of the noise in them."""
    n_topics, n_words = noisy.shape
    topics, topic_noise, words, word_noise = (
        np.empty(n_topics),
        np.empty(n_topics),
        np.zeros(n_words),
        np.zeros(n_words),
    )
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
def _some_cells(noisy, noise_std, of_topic, prior_mean, stride):
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
def _components(noisy, noise_std, prior_mean):
    """z and the excess over max(0, z) of the posterior mean under each exponential, and the likelihood up to a common factor.

    Everything is in standard deviations of the noise. Given the component of mean m, the posterior is N(z, 1) truncated to
    μ ≥ 0, with z = c - 1/m. Its mean is z + φ(z)/Φ(z), and the likelihood of c is Φ(z)/φ(z)/m up to a factor that does not
    depend on m. Arguments have shape (n_cells,), results (3, n_cells).
    """
    n_cells = len(noisy)
    z, (excess, likelihood) = np.empty((3, n_cells)), np.empty((2, 3, n_cells), np.float32)
    double, single = np.empty((3, n_cells)), np.empty((2, n_cells), np.float32)
    _fill_components(noisy, noise_std, 1.0, prior_mean, z, excess, likelihood, double, single)
    return z, excess, likelihood


@_inline
def _fill_components(noisy, noise_std, factor, prior_mean, z, excess, likelihood, double, single):
    """The components of a row of cells; m is ``factor × prior_mean``.

    √(2π) Φ(z) is e^{-z²/2} M(-z) below 0, and √(2π) - e^{-z²/2} M(z) above. The likelihoods are divided by e^{z²/2} of the last
    component, if its z is positive, which is the largest. Few arrays in a loop: else the compiler does not vectorise it.
    """
    count, inverse, largest = double
    decay, share = single
    near, middle, half, one = np.float32(_NEAR), np.float32(_MIDDLE), np.float32(0.5), np.float32(1.0)
    nothing, n_cells = np.float32(0.0), len(noisy)
    for v in range(n_cells):
        precision = 1.0 / noise_std[v]
        count[v], inverse[v] = noisy[v] * precision, 1.0 / max(factor * prior_mean[v] * precision, _LEAST)
    for v in range(n_cells):
        largest[v] = max(count[v] - inverse[v] * _RATES[2], 0.0)
    for j in range(3):
        of_z, of_excess, of_likelihood, rate = z[j], excess[j], likelihood[j], np.float32(_RATES[j])
        for v in range(n_cells):
            of_z[v] = count[v] - inverse[v] * _RATES[j]
        for v in range(n_cells):
            positive = max(of_z[v], 0.0)
            share[v] = 0.5 * (positive - largest[v]) * (positive + largest[v])
        for v in range(n_cells):
            of_excess[v] = of_z[v]
        for v in range(n_cells):
            positive = max(of_excess[v], nothing)
            decay[v] = _exp(-half * positive * positive)
        for v in range(n_cells):
            share[v] = rate * _exp(share[v])
        for v in range(n_cells):
            u = abs(of_excess[v])
            t, over = (u - middle) / (u + middle), one / (u + near)
            mills, below = _MILLS[0], _EXCESS[0]
            for power in range(1, _DEGREE + 1):
                mills, below = mills * t + _MILLS[power], below * t + _EXCESS[power]
            mills, below = mills * over, below * over
            above = _ROOT - decay[v] * mills
            is_below = of_excess[v] < nothing
            of_excess[v] = below if is_below else decay[v] / above
            of_likelihood[v] = share[v] * (mills if is_below else above)


@_inline
def _exp(x):
    """e^x for x ≤ 0 in single precision. A call of the library's function would keep a loop from being vectorised."""
    power = np.rint(x * _LOG2_E)
    rest = (x - power * _LOG_2) - power * _REST_OF_LOG_2
    series = _OVER_FACTORIALS[0]
    for i in range(1, 5):
        series = series * rest + _OVER_FACTORIALS[i]
    series = series * rest * rest + rest + np.float32(1.0)
    of_two = np.int32((np.int32(power) + np.int32(127)) << np.int32(23)).view(np.float32)  # its bits: 2^power
    return series * of_two if x > _LOWEST else np.float32(0.0)


@_jit
def _fitted_shares(likelihood, guess, weight, n_steps):
    """Shares of the components by EM, from ``guess``, which counts as ``weight`` of the cells."""
    n_cells = likelihood.shape[1]
    common = guess.copy()
    for _ in range(n_steps):
        totals = np.zeros(3)
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
        common = (common * totals / n_cells + weight * guess) / (1.0 + weight)
    return common


@_jit
def _fill_means(noisy, noise_std, of_topic, prior_mean, common, n_steps, first, last, result):
    """E[μ | c] of the words ``first`` to ``last``, with shares that ``n_steps`` of EM fit to each word."""
    n_topics, prior = len(noisy), _COMMON_WEIGHT * common
    z, (excess, likelihood) = (
        np.empty((3, n_topics, _WORDS_AT_A_TIME)),
        np.empty((2, 3, n_topics, _WORDS_AT_A_TIME), np.float32),
    )
    double, single = np.empty((3, _WORDS_AT_A_TIME)), np.empty((2, _WORDS_AT_A_TIME), np.float32)
    shares, ratios = np.empty((2, 3, _WORDS_AT_A_TIME), np.float32)
    inverse, weights = np.empty((2, _WORDS_AT_A_TIME), np.float32)
    for start in range(first, last, _WORDS_AT_A_TIME):
        words = slice(start, min(start + _WORDS_AT_A_TIME, last))
        n_words = words.stop - start
        for k in range(n_topics):
            mean = prior_mean[min(k, len(prior_mean) - 1), words]
            _fill_components(
                noisy[k, words], noise_std[k, words], of_topic[k], mean, z[:, k], excess[:, k], likelihood[:, k], double, single
            )  # fmt: skip
        for j in range(3):
            shares[j] = common[j]
        for _ in range(n_steps):
            ratios[:] = 0.0
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
            row, std = result[k, words], noise_std[k, words]
            row[:] = 0.0
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
