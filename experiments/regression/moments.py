"""Slopes of logistic and log-linear regression from one noisy release of moments.

Rows z of norm at most √2, a constant in them, and labels y in [0, 1]: Σ z zᵀ and Σ z y are released at once, by the Gaussian
mechanism. Least squares b of them become log odds as b over the variance of the residuals, which is exact where the rows of
each class are Gaussian with a common covariance, and log rates as b over the mean count, which is exact where rows are
Gaussian (Stein's lemma).
"""

from __future__ import annotations

import numpy as np

from experiments.regression.methods import plan_for

__all__ = ["slopes_of_moments"]


def slopes_of_moments(table, epsilon: float, delta: float, rng: np.random.Generator) -> np.ndarray:
    """Slopes in the units of the columns of a :class:`~experiments.regression.anybody.Table`, shape (d,)."""
    X = np.column_stack(list(table.design().values()))
    limits = [known if isinstance(known, tuple) else (0, 1) for known in table.columns.values()]
    repeats = [1 if isinstance(known, tuple) else len(known) - 1 for known in table.columns.values()]
    centre, half = (
        np.repeat(values, repeats)
        for values in zip(*((sum(of) / 2, (of[1] - of[0]) / 2) for of in limits), strict=True)
    )
    half = half * np.sqrt(len(half))
    z = np.column_stack([(X - centre) / half, np.ones(len(X))])
    largest = table.max_count or 1
    y = np.minimum(table.y, largest) / largest
    std = plan_for(epsilon, delta, 1.0, 1).noise_multiplier * np.sqrt(2.0**2 + 2.0)  # ‖z‖⁴ + ‖z‖² y²
    noise = np.triu(rng.normal(0.0, std, (len(half) + 1,) * 2))
    products = z.T @ z + noise + np.triu(noise, 1).T
    values, vectors = np.linalg.eigh(products)
    cross = z.T @ y + rng.normal(0.0, std, len(half) + 1)
    b = vectors @ (vectors.T @ cross / np.maximum(values, std))
    mean = np.clip(cross[-1] / max(products[-1, -1], std), 1.0 / len(y), 1.0)
    if table.dispersion is not None:
        return b[:-1] / mean / half
    return b[:-1] / max(mean - b @ cross / max(products[-1, -1], std), 0.01) / half
