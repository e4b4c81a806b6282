"""States of sequences given what is seen: the Kalman filter and smoother of many sequences; and steps that nobody has seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from vips.core.exact.rowwise import row_norms
from vips.core.exact.threads import run_ranges
from vips.data._sequences import Sequences
from vips.models.dynamics import kernels
from vips.models.dynamics.posterior import Dynamics, DynamicsPosterior

__all__ = [
    "LEAST_STEPS",
    "Smoothed",
    "cumulative_work",
    "filtered",
    "forecasts",
    "samples",
    "smoothed",
    "smoothed_whole",
    "usable",
]

LEAST_STEPS = 500  # below it, one thread


def usable(records: Sequences, max_norm: float) -> Sequences:
    """Steps in float64; what is not finite is missing, and becomes NaN.

    A step longer than ``max_norm`` is scaled down to it; one whose norm overflows is missing."""
    values = np.array(records.values, dtype=np.float64, order="C")
    is_seen = np.isfinite(values)
    values[~is_seen] = np.nan
    if np.isfinite(max_norm):
        norms = row_norms(np.where(is_seen, values, 0.0))
        long = np.flatnonzero(~(norms <= max_norm))
        values[long] *= np.where(np.isfinite(norms[long]), max_norm / norms[long], np.nan)[:, None]
    return Sequences(values, records.offsets)


@dataclass(frozen=True, repr=False)
class Filtered:
    """States given the steps before, and given the steps up to now.

    Parameters
    ----------
    ahead, mean : ndarray of shape (n_steps, K)
    ahead_cov, cov : ndarray of shape (n_steps, K, K)
    log_likelihood : ndarray of shape (n_sequences,)
    """

    ahead: np.ndarray
    ahead_cov: np.ndarray
    mean: np.ndarray
    cov: np.ndarray
    log_likelihood: np.ndarray


@dataclass(frozen=True, repr=False)
class Smoothed:
    """States given whole sequences.

    Parameters
    ----------
    mean : ndarray of shape (n_steps, K)
    cov, lagged : ndarray of shape (n_steps, K, K)
        Cov(x_t), and Cov(x_t, x_{t-1}), 0 at a first step. In steps of sequences without gaps they are not filled in.
    log_likelihood : ndarray of shape (n_sequences,)
    whole, gappy : ndarray of int
        Sequences without gaps, and the others.
    """

    mean: np.ndarray
    cov: np.ndarray
    lagged: np.ndarray
    log_likelihood: np.ndarray
    whole: np.ndarray
    gappy: np.ndarray


def cumulative_work(records: Sequences, chosen: np.ndarray) -> np.ndarray:
    """Steps of some sequences, added up, for ``run_ranges``."""
    return np.concatenate([[0], np.cumsum(records.lengths[chosen])])


def filtered(records: Sequences, of: Dynamics, chosen: np.ndarray | None = None) -> Filtered:
    """The Kalman filter, by scalar updates: any entries may be missing.

    Parameters
    ----------
    records : Sequences
        As from :func:`usable`.
    of : Dynamics
    chosen : ndarray of int, optional
        Sequences to filter; arrays are not filled in elsewhere. None: all.
    """
    chosen = np.arange(len(records)) if chosen is None else chosen
    n_steps, K = (len(records.values) if len(chosen) else 0), len(of.start)
    states = Filtered(
        np.empty((n_steps, K)), np.empty((n_steps, K, K)), np.empty((n_steps, K)), np.empty((n_steps, K, K)),
        np.zeros(len(records)),
    )  # fmt: skip
    args = (of.moves, of.moves_cov, of.loadings, of.offset, of.noise_variance, of.start, of.start_cov)
    out = (states.ahead, states.ahead_cov, states.mean, states.cov, states.log_likelihood)

    def run(first: int, last: int) -> None:
        kernels.filter_forward(records.values, records.offsets, chosen, first, last, *args, *out)

    run_ranges(run, cumulative_work(records, chosen), least_work=LEAST_STEPS)
    return states


def smoothed_whole(records: Sequences, of: Dynamics, chosen: np.ndarray | None = None) -> tuple[Filtered, np.ndarray]:
    """As :func:`filtered`, with means and covariances given whole sequences, and Cov(x_t, x_{t-1})."""
    chosen = np.arange(len(records)) if chosen is None else chosen
    states = filtered(records, of, chosen)
    lagged = np.empty(states.cov.shape)

    def run(first: int, last: int) -> None:
        moments = states.ahead, states.ahead_cov, states.mean, states.cov
        kernels.smooth_backward(records.offsets, chosen, first, last, of.moves, *moments, lagged)

    run_ranges(run, cumulative_work(records, chosen), least_work=LEAST_STEPS)
    return states, lagged


def smoothed(records: Sequences, posterior: DynamicsPosterior) -> Smoothed:
    """States given whole sequences. Gains and covariances of sequences without gaps are computed once for all."""
    of, offsets = posterior.dynamics, records.offsets
    gaps = np.concatenate([[0], np.cumsum(~np.isfinite(records.values).all(axis=1))])
    has_gaps = gaps[offsets[1:]] > gaps[offsets[:-1]]
    whole, gappy = np.flatnonzero(~has_gaps), np.flatnonzero(has_gaps)
    slow, lagged = smoothed_whole(records, of, gappy)
    if len(gappy):
        mean, log_likelihood = slow.mean, slow.log_likelihood
    else:
        mean, log_likelihood = np.empty((len(records.values), len(of.start))), np.zeros(len(records))
    ahead = np.empty(mean.shape)
    longest = int(records.lengths[whole].max(initial=0))
    steps = posterior.known(longest)

    def run(first: int, last: int) -> None:
        kernels.means_known(
            records.values, offsets, whole, first, last, of.moves, of.loadings, of.offset, of.start, steps.gains,
            steps.variances, steps.backs, ahead, mean, log_likelihood,
        )  # fmt: skip

    if longest:
        run_ranges(run, cumulative_work(records, whole), least_work=LEAST_STEPS)
    return Smoothed(mean, slow.cov, lagged, log_likelihood, whole, gappy)


def forecasts(
    records: Sequences, systems: Sequence[Dynamics], n_steps: int, level: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means of the steps after each sequence, and ends of their intervals; each of shape (n_sequences, n_steps, p).

    Parameters
    ----------
    records : Sequences
        What is NaN is missing. After an empty sequence follow first steps.
    systems : list of Dynamics
        Draws of the parameters, or one system: intervals are then for known parameters.
    n_steps : int
    level : float
        Of the intervals.
    """
    means, variances = (
        np.array(of_systems) for of_systems in zip(*(_ahead(records, of, n_steps) for of in systems), strict=True)
    )
    mean, half = means.mean(axis=0), ndtri(0.5 + 0.5 * level) * np.sqrt(variances.mean(axis=0) + means.var(axis=0))
    return mean, mean - half, mean + half


def _ahead(records: Sequences, of: Dynamics, n_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances."""
    states, filled = filtered(records, of), records.lengths > 0
    mean, cov = np.tile(of.start, (len(records), 1)), np.tile(of.start_cov, (len(records), 1, 1))
    ends = records.offsets[1:][filled] - 1
    mean[filled] = states.mean[ends] @ of.moves.T
    cov[filled] = of.moves @ states.cov[ends] @ of.moves.T + of.moves_cov
    means, variances = (np.empty((len(records), n_steps, len(of.offset))) for _ in range(2))
    for t in range(n_steps):
        means[:, t] = mean @ of.loadings.T + of.offset
        variances[:, t] = np.einsum("pi,nij,pj->np", of.loadings, cov, of.loadings) + of.noise_variance
        mean, cov = mean @ of.moves.T, of.moves @ cov @ of.moves.T + of.moves_cov
    return means, variances


def samples(of: Dynamics, lengths: np.ndarray, rng: np.random.Generator) -> tuple[Sequences, np.ndarray]:
    """Synthetic sequences of these lengths, and their states, shape (n_steps, K)."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    states = np.empty((offsets[-1], len(of.start)))
    first, later = _root(of.start_cov), _root(of.moves_cov)
    for t in range(int(lengths.max(initial=0))):  # all sequences at once
        alive = np.flatnonzero(lengths > t)
        draws = rng.standard_normal((len(alive), len(of.start)))
        before = offsets[alive] + t - 1
        states[before + 1] = of.start + draws @ first.T if t == 0 else states[before] @ of.moves.T + draws @ later.T
    noise = rng.standard_normal((len(states), len(of.offset))) * np.sqrt(of.noise_variance)
    return Sequences(states @ of.loadings.T + of.offset + noise, offsets), states


def _root(cov: np.ndarray) -> np.ndarray:
    """B with B Bᵀ = cov, which may be singular."""
    values, vectors = np.linalg.eigh(cov)
    return vectors * np.sqrt(np.maximum(values, 0.0))
