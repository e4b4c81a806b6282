"""Counts that are not negative, given totals that are linear in them: Gibbs sampling, word by word.

    x_v ~ exp(b_v'x - ½ x'Q_v x) Π_j p(x_j),  x_j ≥ 0;  p: a mixture of exponentials of means ``base_j`` × _SCALES

Weights of the mixture are the same for all cells, and drawn, too.
"""

# ruff: noqa: NPY002  (in a kernel, this is a generator of numba, which the kernel seeds)
from __future__ import annotations

import math

import numpy as np

from vips.models.topics.digamma import inline, jit

__all__ = ["draw_counts"]

_SCALES = np.array([1e-5, 0.003, 0.02, 0.1, 0.4, 1.5, 6.0, 20.0])
_LEAST = 1e-9
_ROOT_HALF, _LOG_ROOT_2_PI = math.sqrt(0.5), 0.5 * math.log(2.0 * math.pi)


@inline
def _log_cdf(t):
    """Log Φ(t) of the standard normal."""
    if t > -10.0:
        return math.log(0.5 * math.erfc(-t * _ROOT_HALF))
    i = 1.0 / (t * t)
    return -0.5 * t * t - math.log(-t) - _LOG_ROOT_2_PI + math.log(1.0 - i * (1.0 - 3.0 * i))


@inline
def _tail_normal(least):
    """A standard normal above ``least`` (Robert 1995)."""
    if least < 0.5:
        z = np.random.normal()
        while z <= least:
            z = np.random.normal()
        return z
    rate = 0.5 * (least + math.sqrt(least * least + 4.0))
    z = least - math.log(1.0 - np.random.random()) / rate
    while np.random.random() >= math.exp(-0.5 * (z - rate) ** 2):
        z = least - math.log(1.0 - np.random.random()) / rate
    return z


@jit
def draw_counts(precision, linear, base, x, n_sweeps, n_dropped, seed):
    """Moments of the counts.

    Parameters
    ----------
    precision, linear : ndarray of shape (n_words, n_topics, n_topics), (n_words, n_topics)
        Q and b.
    base : ndarray of shape (n_topics,)
    x : ndarray of shape (n_words, n_topics)
        Where sampling begins; it ends there, too.
    n_sweeps, n_dropped, seed : int

    Returns
    -------
    mean, squares, roots : ndarray of shape (n_words, n_topics)
        Means of x, x² and √x.
    """
    np.random.seed(seed)
    n_words, n_topics = linear.shape
    n_scales = len(_SCALES)
    shares, tally = np.full(n_scales, 1.0 / n_scales), np.empty(n_scales)
    logs, centres = np.empty(n_scales), np.empty(n_scales)
    mean, squares, roots = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    weight = 1.0 / (n_sweeps - n_dropped)
    for sweep in range(n_sweeps):
        tally[:] = 0.5
        log_shares = np.log(np.maximum(shares, 1e-300))
        for v in range(n_words):
            for j in range(n_topics):
                q, left = precision[v, j, j], linear[v, j]
                for k in range(n_topics):
                    if k != j:
                        left -= precision[v, j, k] * x[v, k]
                m, root = left / q, math.sqrt(q)
                largest = -np.inf
                for c in range(n_scales):
                    rate = 1.0 / (base[j] * _SCALES[c])
                    centres[c] = m - rate / q
                    logs[c] = log_shares[c] + math.log(rate) + 0.5 * q * (centres[c] ** 2 - m * m)
                    logs[c] += _log_cdf(centres[c] * root)
                    largest = max(largest, logs[c])
                total = 0.0
                for c in range(n_scales):
                    logs[c] = math.exp(logs[c] - largest)
                    total += logs[c]
                u, c = np.random.random() * total, 0
                while c < n_scales - 1 and u > logs[c]:
                    u -= logs[c]
                    c += 1
                tally[c] += 1.0
                x[v, j] = max(centres[c] + _tail_normal(-centres[c] * root) / root, _LEAST)
        for c in range(n_scales):
            shares[c] = np.random.gamma(tally[c], 1.0)
        shares /= shares.sum()
        if sweep >= n_dropped:
            for v in range(n_words):
                for j in range(n_topics):
                    mean[v, j] += weight * x[v, j]
                    squares[v, j] += weight * x[v, j] ** 2
                    roots[v, j] += weight * math.sqrt(x[v, j])
    return mean, squares, roots
