"""Posterior of topics given *noisy* topic-word totals: post-processing, which costs no budget.

=========  ==================================================================================================
symbol     meaning
=========  ==================================================================================================
ĉ          averaged noisy totals of expected counts, noise of known deviation s_kv
c          the totals without noise
φ_dvk      share of topic k in word v of document d, ∝ θ_dk β_kv
I_v        Σ_d n_dv φ_dv φ_dvᵀ, K × K: information of the documents about log β_v when the topics of words are unknown
=========  ==================================================================================================

Totals are computed from noisy topics: if topics share a word, an error in its probability changes how the next step assigns the
word to topics, and so feeds back. At the fixed point noise ε_v has moved the totals by C_v I_v⁻¹ ε_v with C_v = diag(c_v): for
a word of one topic I_v = C_v and nothing is amplified. The same matrix gives the uncertainty that remains because the topics of
words are unknown: Cov c_v = C_v I_v⁻¹ C_v in place of C_v (Louis 1982). Shares θ of documents are drawn from their prior.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gamma, pbdv

__all__ = ["count_moments", "error_factors"]

_N_DOCUMENTS = 128
_WORDS_AT_A_TIME = 64
# Pseudo-counts that are added for each word, so that I_v can be inverted.
_LEAST_COUNT = 1.0
# Moments are tabulated up to this many standard deviations of the noise.
_FAR = 25.0


def error_factors(
    noisy: np.ndarray, noise_std: np.ndarray, counts: np.ndarray, topic_word_prior: float, doc_topic_prior: float
) -> tuple[np.ndarray, np.ndarray]:
    """By how much words that topics share amplify the noise's deviation, and the variance of counts.

    Parameters
    ----------
    noisy : ndarray of shape (n_topics, n_words)
        ĉ.
    noise_std : ndarray of shape (n_topics, n_words)
        s.
    counts : ndarray of shape (n_topics, n_words)
        Denoised ĉ, where C and φ are taken.
    """
    shares = np.random.default_rng(0).dirichlet(np.full(len(noisy), max(doc_topic_prior, 1e-3)), _N_DOCUMENTS)
    # share of the noise variance that remains in a count that cannot be below 0
    believed = np.minimum(count_moments(noisy, noise_std, topic_word_prior)[1] / noise_std**2, 1.0)
    known = counts + _LEAST_COUNT
    probabilities = known / known.sum(axis=1, keepdims=True)
    amplified, spread = np.empty_like(noisy), np.empty_like(noisy)
    for start in range(0, noisy.shape[1], _WORDS_AT_A_TIME):
        words = slice(start, start + _WORDS_AT_A_TIME)
        of_words = (array[:, words].T for array in (known, probabilities, believed))
        amplified[:, words], spread[:, words] = _responses(*of_words, shares)
    return amplified, spread


def count_moments(noisy: np.ndarray, noise_std: np.ndarray, prior: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of c with density ∝ c^(η-1) exp(-(ĉ - c)² / 2s²) on c > 0, interpolated in z = ĉ/s."""
    z = noisy / noise_std
    grid = np.linspace(-_FAR, _FAR, 2001)
    mean, var = (np.interp(z, grid, values) for values in _standard_moments(grid, prior))
    # outside the table, to leading order in 1/z: Gamma(η, |z|) on the left, N(z - (1 - η)/z, 1) on the right
    near, left = np.abs(z) <= _FAR, z < 0.0
    off = np.where(near, np.inf, np.abs(z))
    mean = np.where(near, mean, np.where(left, prior / off, z - (1.0 - prior) / off))
    var = np.where(near, var, np.where(left, prior / off**2, 1.0))
    return mean * noise_std, var * noise_std**2


def _standard_moments(z: np.ndarray, prior: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of u with density ∝ u^(η-1) exp(-(u - z)²/2) on u > 0, by parabolic cylinder functions."""
    evidence, first, second = (gamma(prior + p) * pbdv(-prior - p, -z)[0] for p in range(3))
    mean = first / evidence
    return mean, second / evidence - mean**2


def _responses(
    known: np.ndarray, probabilities: np.ndarray, believed: np.ndarray, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of some words, whose arrays have shape (n_words, n_topics): √ of the diagonal of C I⁻¹ F I⁻¹ C, where F says how much of
    the noise in other counts is believed, and the diagonal of C I⁻¹ C over that of C; shape (n_topics, n_words) each."""
    joint = shares[:, None, :] * probabilities  # (documents, words, topics)
    of_word = joint.sum(axis=2, keepdims=True)
    scaled = np.swapaxes(joint / np.sqrt(np.maximum(of_word, 1e-300)), 0, 1)  # √n φ
    information = np.swapaxes(scaled, 1, 2) @ scaled
    balance = np.sqrt(known / np.maximum(information.sum(axis=2), 1e-300))
    information = information * balance[:, :, None] * balance[:, None, :]
    diagonal = np.arange(known.shape[1])
    information[:, diagonal, diagonal] += _LEAST_COUNT
    inverse = np.linalg.inv(information)
    squares = np.square(known[:, :, None] * inverse) * believed[:, None, :]
    squares[:, diagonal, diagonal] = np.square(known * inverse[:, diagonal, diagonal])
    amplified = np.sqrt(squares.sum(axis=2))
    spread = known * inverse[:, diagonal, diagonal]
    return np.maximum(amplified, 1.0).T, np.maximum(spread, 1.0).T
