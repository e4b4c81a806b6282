"""Where an ordinary fit of components or states begins: at records.

A private fit finds its components from released totals alone. An ordinary one reads records. Several starts, most of them at
clusters of a sample of the records, as scikit-learn's k-means finds them (Arthur and Vassilvitskii, 2007), each take a few
steps of variational Bayes on the sample. The fit begins where the bound is best (short runs: Biernacki, Celeux and Govaert,
2003). Models of categories alone do without: from their marginals, or counts of neighbours, they reach the same limits.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from vips._support.validation import levels_to_user
from vips.core.mechanism.random_state import as_generator
from vips.core.records.partition import with_their_weights
from vips.core.records.source import DataSource
from vips.data._sequences import Sequences

__all__ = ["best_start", "clusters", "lost", "warn_of_floor"]

_STEPS = 10
_ALIKE = 1e-3  # difference of features
_TIE = 1e-6  # relative, of bounds that differ by rounding alone
_MOST_ROWS = 20_000  # of the sample; of sequences steps


def best_start(
    model, data: DataSource, starts_at: Callable[[Any, np.ndarray, np.random.Generator], Sequence[Any]]
) -> Any:
    """The posterior at which an ordinary fit begins; None if there are no records.

    Parameters
    ----------
    model : ConjugateExponentialModel
        With ``n_components`` and a ``bound``.
    data : DataSource
    starts_at : callable
        Takes records, their weights and a generator to posteriors, of which one is chosen.
    """
    rng = as_generator(model.random_state)
    records, weights = _sample(model, data, rng)
    if records is None:
        return None
    with np.errstate(all="ignore"):
        starts = starts_at(records, weights, rng)
        if model.n_components == 1:
            return starts[0]
        later = [_after(model, records, weights, posterior) for posterior in starts]
        bounds = np.nan_to_num([model.bound(records, posterior) for posterior in later], nan=-np.inf)
    is_best = bounds >= bounds.max() - _TIE * np.abs(bounds.max())
    return later[int(np.argmax(is_best))]


def clusters(points: np.ndarray, weights: np.ndarray, n_clusters: int, rng: np.random.Generator) -> np.ndarray:
    """Weights of the points in their clusters, shape (n, n_clusters); NaN stands for a mean, 0."""
    if n_clusters == 1 or not len(points):
        return np.repeat(weights[:, None], n_clusters, axis=1)
    means = KMeans(min(n_clusters, len(points)), n_init=1, random_state=int(rng.integers(2**31)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different points than clusters
        members = means.fit_predict(np.nan_to_num(points), sample_weight=weights)
    return weights[:, None] * np.eye(n_clusters)[members]


def lost(model, word: str, counts: np.ndarray, features: np.ndarray, may_be_empty: bool = False) -> np.ndarray:
    """Components of an ordinary fit that hold no record, shape (K,), after a warning of these, and of such as are alike.

    Parameters
    ----------
    model : ConjugateExponentialModel
    word : str
        For a component.
    counts : ndarray of shape (K,)
        Records of each.
    features : ndarray of shape (K, n)
        What it is like, in units in which records differ by about 1.
    may_be_empty : bool
        Whether a prior leaves components empty on purpose.
    """
    if hasattr(model, "noisy_totals_"):
        return np.zeros(len(counts), bool)
    is_empty = counts < 1.0
    near = (np.abs(features[:, None] - features) <= _ALIKE).all(axis=2) & ~is_empty & ~is_empty[:, None]
    are_alike = np.flatnonzero(near.sum(axis=1) > 1)
    end = f"Write a smaller n_components, or try another random_state than {model.random_state!r}."
    for places, what in (
        (np.flatnonzero(is_empty & (not may_be_empty)), "hold no record: their rows have no estimates."),
        (are_alike, "are alike: these records tell no difference."),
    ):
        if len(places):
            names = ", ".join(f"{word} {k}" for k in places)
            warnings.warn(f"{names} {what} {end}", ConvergenceWarning, stacklevel=levels_to_user())
    return is_empty


def warn_of_floor(
    word: str, columns: Sequence[str], variances: np.ndarray, least: np.ndarray, is_empty: np.ndarray, instead: str
) -> None:
    """Warn of components of an ordinary fit with variances, shape (K, n_columns), that are at least half the prior's or a
    floor's, which are ``least``."""
    at_floor = (variances < 2.0 * least) & ~is_empty[:, None]
    for k in np.flatnonzero(at_floor.any(axis=1)):
        names = ", ".join(repr(columns[j]) for j in np.flatnonzero(at_floor[k]))
        warnings.warn(
            f"{word} {k}: its deviation of {names} is mostly what the prior or a floor adds, and may be far less: its records "
            f"are few, or have nearly one value there. {instead}",
            ConvergenceWarning,
            stacklevel=levels_to_user(),
        )


def _after(model, records, weights: np.ndarray, posterior):
    """The posterior after a few steps of variational Bayes."""
    for _ in range(_STEPS):
        totals = model.expected_statistics(records, posterior).weighted_sum(weights)
        posterior = model.to_posterior(totals, dict.fromkeys(totals, 0.0), posterior)
    return posterior


def _sample(model, data: DataSource, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
    """Records and their weights; (None, no weights) if there are none. If they are many, a sample: those whose keys are least,
    so that heavier ones are more often in it, and count once."""
    records, kept, keys, is_whole = None, np.empty(0), np.empty(0), True
    for chunk, weights in with_their_weights(data.chunks(model.chunk_size), model.plan_of_fit().max_weight is not None):
        is_counted, largest = model.valid_records(chunk) & (weights > 0.0), np.inf if is_whole else keys.max()
        drawn = rng.standard_exponential(len(weights)) / np.where(is_counted, weights, 1.0)
        chosen = np.flatnonzero(is_counted & (drawn < largest))
        records = chunk[chosen] if records is None else _joined(records, chunk[chosen])
        kept, keys = np.concatenate([kept, weights[chosen]]), np.concatenate([keys, drawn[chosen]])
        sizes = records.lengths if isinstance(records, Sequences) else np.ones(len(keys))
        if sizes.sum() > _MOST_ROWS:
            order = np.argsort(keys)
            first = np.sort(order[: max(int(np.searchsorted(np.cumsum(sizes[order]), _MOST_ROWS)), 1)])
            records, kept, keys, is_whole = records[first], kept[first], keys[first], False
    return records if len(keys) else None, kept if is_whole else np.ones(len(keys))


def _joined(first, second):
    if isinstance(first, Sequences):
        return Sequences.joined([first, second])
    return sp.vstack([first, second], format="csr") if sp.issparse(first) else np.concatenate([first, second])
