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
_WORDS_AT_A_TIME = 128
_GUESS_WEIGHT = 0.02  # of a guess of the common shares, for each cell
_COMMON_WEIGHT = 10.0  # the common shares count as this many topics when a word's own shares are fitted
LARGEST_SCALE = 5.0  # public bound on c_kv
_POWER = -0.45
_RAREST, _OF_NOISE = (
    0.01,
    0.5,
)  # cells below this share of the average count, or of their noise, are scaled as if they had it

_MIDDLE, _NEAR, _DEGREE = 5.0, 1.25, 14  # of the approximation of Mills' ratio

_jit = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "reassoc"})


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
    uniform = np.full((1, noisy.shape[1]), overall / noisy.shape[1])
    words = posterior_mean(noisy.sum(axis=0, keepdims=True), of_word, uniform)[0]
    topics = np.maximum(noisy.sum(axis=1), of_topic)
    return posterior_mean(noisy, noise_std, np.outer(topics / topics.sum(), words), own_shares=True), words


def scale_cells(counts: np.ndarray, noise_std: np.ndarray) -> np.ndarray:
    """Scale c_kv of each cell in the sum, from denoised counts: counts^(-0.45).

    A document's norm is dominated by frequent words of its topics, which noise hardly hurts. Scaled down, they leave more of
    the clip norm to the others. Counts below half of their noise are scaled alike, because noise chose them. The mean of c²,
    weighted by counts, is 1, so that the clip norm keeps its meaning.
    """
    mean = max(counts.mean(), 1e-300)
    counts = np.maximum(counts, _OF_NOISE * noise_std)
    counts *= 1.0 / mean
    np.maximum(counts, _RAREST, out=counts)
    scale = counts**_POWER
    of_mean = np.sqrt(np.vdot(counts, np.square(scale)) / counts.sum())
    scale *= 1.0 / of_mean
    return np.minimum(scale, LARGEST_SCALE, out=scale)


def posterior_mean(noisy, noise_std, prior_mean, own_shares=False, shares=None) -> np.ndarray:
    """E[μ | c] for c ~ N(μ, s²) and μ from a mixture of exponentials with means ``MEANS × m``; m is ``prior_mean``.

    The shares of the mixture are fitted by EM, first in common on a subset of the cells, then, with ``own_shares``, for
    each word. Words are handled in blocks, so that memory stays small, and in threads.
    """
    n_topics, n_words = noisy.shape
    some = np.arange(0, noisy.size, max(1, noisy.size // _CELLS))
    cells = (each.take(some)[None] for each in (noisy, noise_std, prior_mean))
    _, _, likelihood = _components(*cells, np.empty(8 * len(some)))
    guess, weight = (np.full(3, 1.0 / 3.0), 0.0) if shares is None else (shares, _GUESS_WEIGHT)
    common = guess
    for _ in range(_EM_STEPS):
        common = (common * _mean_ratios(common, likelihood[:, 0]) + weight * guess) / (1.0 + weight)
    result, n_steps = np.empty_like(noisy), _EM_STEPS_PER_WORD if own_shares else 0

    def denoise(first: int, last: int) -> None:
        work = np.empty(8 * n_topics * _WORDS_AT_A_TIME)
        for start in range(first * _WORDS_AT_A_TIME, min(last * _WORDS_AT_A_TIME, n_words), _WORDS_AT_A_TIME):
            block = slice(start, start + _WORDS_AT_A_TIME)
            components = _components(noisy[:, block], noise_std[:, block], prior_mean[:, block], work)
            _fill_means(*components, noise_std[:, block], common, n_steps, start, result)

    run_ranges(denoise, np.arange(-(-n_words // _WORDS_AT_A_TIME) + 1), parts_per_thread=4)
    return result


def _components(noisy, noise_std, prior_mean, work) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """z and the excess over max(0, z) of the posterior mean under each exponential, and the likelihood up to a common factor.

    Everything is in standard deviations of the noise. Given the component of mean m, the posterior is N(z, 1) truncated to
    μ ≥ 0, with z = c - 1/m. Its mean is z + φ(z)/Φ(z), and the likelihood of c is Φ(z)/φ(z)/m up to a factor that does not
    depend on m. Results are in ``work``, which has room for eight numbers of each cell.
    """
    size, shape = 3 * noisy.size, (3, *noisy.shape)
    z, single = work[:size].reshape(3, -1), work[size:].view(np.float32)[: 3 * size].reshape(3, 3, -1)
    excess, decay, share = single
    _fill_exponents(noisy, noise_std, prior_mean, z, excess, decay, share)
    np.exp(decay, out=decay)
    np.exp(share[:-1], out=share[:-1])
    _fill_components(excess, decay, share)
    return z.reshape(shape), excess.reshape(shape), share.reshape(shape)


@_jit
def _fill_exponents(noisy, noise_std, prior_mean, z, rounded, decay, share):
    """z, also rounded, the exponent of √(2π) φ(z) for positive z, and that of its inverse, minus the largest one.

    That is the last one's, whose share is e⁰ itself.
    """
    last, n_words = 2, noisy.shape[1]
    count, inverse, largest = np.empty((3, n_words))
    for k in range(noisy.shape[0]):
        row, std, mean = noisy[k], noise_std[k], prior_mean[k]
        for v in range(n_words):
            precision = 1.0 / std[v]
            count[v], inverse[v] = row[v] * precision, 1.0 / max(mean[v] * precision, _LEAST)
            largest[v] = max(count[v] - inverse[v] * _RATES[last], 0.0)
        for j in range(3):  # few arrays in a loop: else the compiler does not vectorise it
            cells = slice(k * n_words, (k + 1) * n_words)
            of_z, of_decay, of_share = z[j, cells], decay[j, cells], share[j, cells]
            for v in range(n_words):
                of_z[v] = count[v] - inverse[v] * _RATES[j]
                positive = max(of_z[v], 0.0)
                of_decay[v] = -0.5 * positive * positive
                of_share[v] = 0.5 * (positive - largest[v]) * (positive + largest[v])
    share[last] = 1.0
    rounded[:] = z


@_jit
def _fill_components(z, decay, share):
    """Excesses in place of z, likelihoods in place of shares.

    √(2π) Φ(z) is e^{-z²/2} M(-z) below 0, and √(2π) - e^{-z²/2} M(z) above.
    """
    near, middle, one = np.float32(_NEAR), np.float32(_MIDDLE), np.float32(1.0)
    for j in range(3):
        rate, of_z, of_decay, of_share = np.float32(_RATES[j]), z[j], decay[j], share[j]
        for i in range(len(of_z)):
            u = abs(of_z[i])
            t, inverse = (u - middle) / (u + middle), one / (u + near)
            mills, excess = _MILLS[0], _EXCESS[0]
            for power in range(1, _DEGREE + 1):
                mills, excess = mills * t + _MILLS[power], excess * t + _EXCESS[power]
            mills, excess = mills * inverse, excess * inverse
            above = _ROOT - of_decay[i] * mills
            is_below = of_z[i] < np.float32(0.0)
            of_z[i] = excess if is_below else of_decay[i] / above
            of_share[i] *= (mills if is_below else above) * rate


@_jit
def _mean_ratios(shares, likelihood):
    """Mean over the cells of each component's likelihood ÷ that of the mixture."""
    first, second, third = likelihood
    of_first, of_second, of_third = 0.0, 0.0, 0.0
    for i in range(len(first)):
        inverse = 1.0 / (shares[0] * first[i] + shares[1] * second[i] + shares[2] * third[i])
        of_first += first[i] * inverse
        of_second += second[i] * inverse
        of_third += third[i] * inverse
    return np.array([of_first, of_second, of_third]) / len(first)


@_jit
def _fill_means(z, excess, likelihood, noise_std, common, n_steps, start, result):
    """E[μ | c] of a block of words from ``start`` on, with shares that ``n_steps`` of EM fit to each word."""
    (_, n_topics, n_words), prior = z.shape, _COMMON_WEIGHT * common
    shares, ratios = np.empty((2, 3, n_words), np.float32)
    inverse, weights = np.empty((2, n_words), np.float32)
    for j in range(3):
        shares[j] = common[j]
    for _ in range(n_steps):
        ratios[:] = 0.0
        for k in range(n_topics):
            _fill_inverse(likelihood[0, k], likelihood[1, k], likelihood[2, k], shares, inverse)
            for j in range(3):
                of_component, added = likelihood[j, k], ratios[j]
                for v in range(n_words):
                    added[v] += of_component[v] * inverse[v]
        for j in range(3):
            shares[j] = (prior[j] + shares[j] * ratios[j]) / (n_topics + _COMMON_WEIGHT)
    for k in range(n_topics):
        _fill_inverse(likelihood[0, k], likelihood[1, k], likelihood[2, k], shares, inverse)
        row, std = result[k, start : start + n_words], noise_std[k]
        row[:] = 0.0
        for j in range(3):
            of_z, of_excess, of_component, share = z[j, k], excess[j, k], likelihood[j, k], shares[j]
            for v in range(n_words):
                weights[v] = share[v] * of_component[v] * inverse[v]
            for v in range(n_words):
                row[v] += weights[v] * (max(of_z[v], 0.0) + of_excess[v])
        for v in range(n_words):
            row[v] *= std[v]


@_jit
def _fill_inverse(first, second, third, shares, inverse):
    """1 ÷ the likelihood of the mixture."""
    for v in range(len(inverse)):
        inverse[v] = np.float32(1.0) / (shares[0, v] * first[v] + shares[1, v] * second[v] + shares[2, v] * third[v])
