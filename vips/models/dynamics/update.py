"""The M-step of EM for linear dynamical systems: from expected statistics to parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from vips.models._definite import floored
from vips.models.dynamics.posterior import Dynamics

__all__ = ["divided_by", "next_dynamics", "raised"]

_LEAST = 1e-9  # of a variance, in units of the former one's scale


def next_dynamics(totals: Mapping[str, np.ndarray], previous: Dynamics) -> Dynamics:
    """The parameters that maximise the expected log density; those of ``previous`` where the totals say nothing.

    Parameters
    ----------
    totals : dict of str to ndarray
        The blocks of EM (``statistics.py``).
    previous : Dynamics
    """
    n, n_steps = np.maximum(totals["counts"], 0.0)
    dynamics = previous
    if n > 0.0:
        start = totals["start"] / n
        start_cov = raised(totals["begin"] / n - np.outer(start, start), _lowest(previous.start_cov))
        dynamics = replace(dynamics, start=start, start_cov=start_cov)
    if n_steps > n:
        cross = totals["cross"]
        before, after = totals["states"] - totals["end"], totals["states"] - totals["begin"]
        moves = divided_by(before, cross)
        residual = after - moves @ cross.T - cross @ moves.T + moves @ before @ moves.T
        moves_cov = raised(residual / (n_steps - n), _lowest(previous.moves_cov))
        dynamics = replace(dynamics, moves=moves, moves_cov=moves_cov)
    return replace(dynamics, **_columns(totals, previous))


def _columns(totals: Mapping[str, np.ndarray], previous: Dynamics) -> dict[str, np.ndarray]:
    """Regressions of the columns on the state, each on the steps in which the column is observed."""
    names = ("loadings", "offset", "noise_variance")
    loadings, offset, variance = (np.array(getattr(previous, name)) for name in names)
    for i, (second, cross, square) in enumerate(
        zip(totals["seen"], totals["loadings"], totals["squares"], strict=True)
    ):
        count = second[-1, -1]
        if not count > 0.0:
            continue
        row = divided_by(second, cross[None])[0]
        residual = (square - 2.0 * row @ cross + row @ second @ row) / count
        loadings[i], offset[i] = row[:-1], row[-1]
        variance[i] = max(residual, _LEAST * max(variance[i], square / count - (cross[-1] / count) ** 2, 1e-290))
    return dict(zip(names, (loadings, offset, variance), strict=True))


def divided_by(second: np.ndarray, cross: np.ndarray) -> np.ndarray:
    """Coefficients of regressions, cross second⁻¹, shape (m, K); the smallest ones where ``second`` is singular."""
    scale = np.sqrt(np.maximum(np.diag(second), 1e-290))
    coefficients = np.linalg.lstsq(second / np.outer(scale, scale), (cross / scale).T, rcond=1e-13)[0]
    return coefficients.T / scale


def raised(cov: np.ndarray, least: float) -> np.ndarray:
    """A covariance, made symmetric, without eigenvalues below ``least``: rounding and noise may make it indefinite."""
    cov = 0.5 * (cov + cov.T)
    return cov if np.linalg.eigvalsh(cov)[0] >= least else floored(cov, least)


def _lowest(previous: np.ndarray) -> float:
    return _LEAST * np.trace(previous) / len(previous)
