"""How private topics begin: as more topics than are asked for, of which like ones are then merged.

From random topics a fit often ends with two subjects in one topic, and another topic left to noise. Among many topics each
subject has one of its own. Merging a and b costs log likelihood of the words given their topics,

    cost(a, b) = h(a) + h(b) - h(a + b),   h(x) = Σ_v x_v log(x_v / Σ_v x_v),

of denoised counts: next to nothing if both are parts of one subject, or one is noise. The cheapest pair is merged, again and
again. Totals are sums over topics, so that merging is linear: the average of all steps so far goes on, with its noise.
"""

from __future__ import annotations

import numpy as np
from scipy.special import xlogy

from vips.models.topics.statistics import TopicPosterior

__all__ = ["factor_of_plain_average", "merged_rows", "parents_of", "scale_of_merged", "single_topic"]


def single_topic(concentration: np.ndarray, scale=1.0, average_scale=0.0, step: int = 0, carried: float = 1.0):
    """A posterior whose next E-step uses the first topic only; scales are of shape (1, n_words), or numbers."""
    scales = np.zeros((2, *concentration.shape))
    scales[0, 0], scales[1, 0] = scale, average_scale
    return TopicPosterior(concentration, *scales, step, carried=carried)


def factor_of_plain_average(last: float, following: float) -> float:
    """By which an average of equal weights ``last`` is multiplied, so that they stay equal after a step of this size."""
    return following / ((1.0 - following) * last)


def parents_of(counts: np.ndarray, n_topics: int) -> np.ndarray:
    """Into which of ``n_topics`` topics each row is merged, shape (n_rows,).

    Parameters
    ----------
    counts : ndarray of shape (n_rows, n_words)
        Not negative.
    """
    counts, parents = counts.copy(), np.arange(len(counts))
    entropy = _entropy(counts)
    cost = np.full((len(counts),) * 2, np.inf)
    for a in range(len(counts)):
        cost[a, :a] = entropy[a] + entropy[:a] - _entropy(counts[:a] + counts[a])
    for _ in range(len(counts) - n_topics):
        a, b = sorted(np.unravel_index(np.argmin(cost), cost.shape))
        counts[a] += counts[b]
        entropy[a] = _entropy(counts[a])
        parents[parents == b] = a
        cost[b], cost[:, b] = np.inf, np.inf
        left = np.unique(parents)
        left = left[left != a]
        costs = entropy[a] + entropy[left] - _entropy(counts[left] + counts[a])
        cost[np.maximum(left, a), np.minimum(left, a)] = costs
    return np.unique(parents, return_inverse=True)[1]


def _entropy(counts: np.ndarray) -> np.ndarray:
    """h of each row."""
    totals = counts.sum(axis=-1)
    return xlogy(counts, counts).sum(axis=-1) - xlogy(totals, totals)


def merged_rows(values: np.ndarray, parents: np.ndarray) -> np.ndarray:
    """Sums over the rows of each parent, shape (n_topics, n_words)."""
    merged = np.zeros((parents.max() + 1, values.shape[1]))
    np.add.at(merged, parents, values)
    return merged


def scale_of_merged(average_scale: np.ndarray, parents: np.ndarray) -> np.ndarray:
    """Scales of merged counts, shape (n_topics, n_words): scaled so, they have the noise of the scaled rows."""
    return 1.0 / np.sqrt(merged_rows(1.0 / np.square(average_scale), parents))
