"""What people read of a linear dynamical system: its columns, its modes, and steps that nobody has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from vips._extras import imported
from vips.data import Sequences
from vips.models.dynamics.posterior import Dynamics
from vips.models.dynamics.smoothing import filtered

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["SystemReading", "forecasts", "samples"]


class SystemReading:
    """Tables and pictures of a fitted system."""

    def summary(self) -> pd.DataFrame:
        """A row for each column: what the state explains of it. Needs pandas.

        Returns
        -------
        DataFrame
            ``mean``; ``noise``, the standard deviation of what the state does not explain; ``explained``, the share of the
            variance that it does; ``next``, the correlation of the explained part with itself one step later. All in the long
            run of the system.
        """
        pd, of = imported("pandas", "summary()"), self._system()
        cov = of.stationary()
        signal = np.einsum("pi,ij,pj->p", of.loadings, cov, of.loadings)
        later = np.einsum("pi,ij,pj->p", of.loadings, of.moves @ cov, of.loadings)
        with np.errstate(invalid="ignore", divide="ignore"):
            table = {
                "mean": of.offset, "noise": np.sqrt(of.noise_variance), "explained": signal / (signal + of.noise_variance),
                "next": later / signal,
            }  # fmt: skip
        return pd.DataFrame(table, index=pd.Index(self.column_names()))

    def modes(self) -> pd.DataFrame:
        """A row for each mode of the moves, the slowest first: how fast it fades, and how it swings. Needs pandas.

        Returns
        -------
        DataFrame
            ``half-life`` in steps; ``period`` in steps, infinite for a mode that does not swing. Two rows for each swing.
        """
        pd = imported("pandas", "modes()")
        values = np.linalg.eigvals(self._system().moves)
        values = values[np.argsort(-np.abs(values), kind="stable")]
        with np.errstate(divide="ignore"):
            halves = np.abs(np.log(0.5) / np.log(np.minimum(np.abs(values), 1.0)))
            return pd.DataFrame({"half-life": halves, "period": 2.0 * np.pi / np.abs(np.angle(values))})

    def plot_forecast(
        self, X, *, n_steps: int = 10, level: float = 0.95, columns: object = None, ax: Axes | None = None
    ) -> Axes:
        """A picture of one sequence and of the steps after it. It shows this record, and is not private.

        Parameters
        ----------
        X : array of shape (n_steps, n_features)
            One sequence; NaN is a gap.
        n_steps : int
        level : float
            Of the intervals, as in :meth:`forecast`.
        columns : list of int, optional
            Those that are drawn; the first four by default.
        ax : matplotlib.axes.Axes, optional

        Returns
        -------
        matplotlib.axes.Axes
        """
        from vips.models.dynamics.plot import plot_forecast

        series = Sequences.from_list([np.asarray(X, float)], self.n_features_in_)
        means, lower, upper = (values[0] for values in self.forecast(series, n_steps=n_steps, level=level))
        shown = list(range(min(4, self.n_features_in_)) if columns is None else columns)
        names = [self.column_names()[j] for j in shown]
        return plot_forecast(series.values[:, shown], means[:, shown], lower[:, shown], upper[:, shown], names, ax)


def forecasts(
    records: Sequences, of: Dynamics, n_steps: int, level: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means of the steps after each sequence, and ends of their intervals; each of shape (n_sequences, n_steps, p).

    Parameters
    ----------
    records : Sequences
        What is NaN is missing. After an empty sequence follow first steps.
    of : Dynamics
    n_steps : int
    level : float
        Of the intervals, for known parameters.
    """
    states, filled = filtered(records, of), records.lengths > 0
    mean, cov = np.tile(of.start, (len(records), 1)), np.tile(of.start_cov, (len(records), 1, 1))
    ends = records.offsets[1:][filled] - 1
    mean[filled] = states.mean[ends] @ of.moves.T
    cov[filled] = of.moves @ states.cov[ends] @ of.moves.T + of.moves_cov
    means, deviations = (np.empty((len(records), n_steps, len(of.offset))) for _ in range(2))
    for t in range(n_steps):
        means[:, t] = mean @ of.loadings.T + of.offset
        deviations[:, t] = np.sqrt(np.einsum("pi,nij,pj->np", of.loadings, cov, of.loadings) + of.noise_variance)
        mean, cov = mean @ of.moves.T, of.moves @ cov @ of.moves.T + of.moves_cov
    half = ndtri(0.5 + 0.5 * level) * deviations
    return means, means - half, means + half


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
