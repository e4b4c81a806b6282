"""Steps that nobody has seen, of a linear dynamical system: forecasts and synthetic sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from vips.data._sequences import Sequences
from vips.models.dynamics.posterior import Dynamics
from vips.models.dynamics.smoothing import filtered

__all__ = ["forecasts", "samples"]


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
