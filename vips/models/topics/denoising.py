"""How private LDA reduces the effect of noise: it denoises the counts, and scales them before the clip.

Both use public numbers only: the noisy average, and the exact standard deviation of the noise in it. docs/lda.md shows how well
they work, and how their constants were chosen.

Denoising is empirical Bayes. A noisy count is ``c = μ + N(0, s²)``. With ``m`` the count under independence of topic and word,
the true count μ is exponential with mean 0.1 m (the topic does not use the word), m, or 10 m (the word is typical of the
topic). The shares of the three are fitted to the noisy counts.
"""

from __future__ import annotations

import numpy as np

from vips._compute.threads import run_ranges
from vips.models.topics.mixture import (
    MEANS,
    WORDS_AT_A_TIME,
    components,
    fill_means,
    fitted_shares,
    some_cells,
    totals_and_noise,
)

__all__ = ["LARGEST_SCALE", "MEANS", "denoise_counts", "posterior_mean", "scale_cells"]

_EM_STEPS, _EM_STEPS_PER_WORD = 20, 3
_CELLS = 50_000  # number of cells on which the common shares are fitted
_GUESS_WEIGHT = 0.02  # of a guess of the common shares, for each cell
LARGEST_SCALE = 5.0  # public bound on c_kv
_POWER = -0.45
_RAREST, _OF_NOISE = (
    0.01,
    0.5,
)  # cells below this share of the average count, or of their noise, are scaled as if they had it


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
    topics, words, topic_noise, word_noise = totals_and_noise(noisy, noise_std)
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
    cells = some_cells(noisy, noise_std, of_topic, prior_mean, max(1, noisy.size // _CELLS))
    guess, weight = (np.full(3, 1.0 / 3.0), 0.0) if shares is None else (shares, _GUESS_WEIGHT)
    common = fitted_shares(components(*cells)[2], guess, weight, _EM_STEPS)
    result, n_steps = np.empty_like(noisy) if out is None else out, _EM_STEPS_PER_WORD if own_shares else 0

    def denoise(first: int, last: int) -> None:
        start, stop = first * WORDS_AT_A_TIME, min(last * WORDS_AT_A_TIME, n_words)
        fill_means(noisy, noise_std, of_topic, prior_mean, common, n_steps, start, stop, result)

    run_ranges(denoise, np.arange(-(-n_words // WORDS_AT_A_TIME) + 1), parts_per_thread=4)
    return result
