"""Curves of one-dimensional marginals, each over the range of its mass and scaled to its own peak.

Positive parameters and probabilities are shown on a logarithmic scale, as densities of t = log x: those have one peak and
vanish on both sides, also where the density of x itself is infinite at 0.
"""

from __future__ import annotations

import numpy as np

from vips.expfam import DiagonalGaussian, Dirichlet
from vips.expfam.divergences import Family

__all__ = ["curve", "is_positive"]

_N_POINTS = 161  # odd: one is at the mean
_FAR = 14.0  # a millionth of the mean: tails of vague Betas extend over a hundred powers of ten


def is_positive(p: Family) -> bool:
    """Whether the curve is drawn on a logarithmic axis."""
    return not isinstance(p, DiagonalGaussian)


def curve(p: Family) -> tuple[np.ndarray, np.ndarray]:
    """x, and density ÷ largest density, of one marginal from ``divergences.marginals``."""
    if isinstance(p, DiagonalGaussian):
        z = np.linspace(-4.0, 4.0, _N_POINTS)
        return p.mean.item() + z * p.std.item(), np.exp(-0.5 * z**2)
    mean, std = (np.ravel(values)[0] for values in (p.mean, np.sqrt(p.var)))
    width = std / mean
    t = np.log(mean) + np.linspace(-min(_FAR, 8.0 * width), np.log1p(8.0 * width), _N_POINTS)
    log_density = _log_density(p, np.minimum(t, -1e-9) if isinstance(p, Dirichlet) else t)
    return np.exp(t), np.exp(log_density - log_density.max())


def _log_density(p: Family, t: np.ndarray) -> np.ndarray:
    """Log density of t = log x, up to a constant."""
    if isinstance(p, Dirichlet):  # two categories: x has a Beta
        ours, other = np.ravel(p.concentration)
        return ours * t + (other - 1.0) * np.log(-np.expm1(t))
    return p.shape.item() * t - p.rate.item() * np.exp(t)  # Gamma
