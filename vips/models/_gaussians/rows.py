"""Rows of a public greatest length."""

from __future__ import annotations

import numpy as np

from vips._compute.rowwise import row_norms

__all__ = ["scaled_rows"]


def scaled_rows(X: np.ndarray, max_norm: float) -> np.ndarray:
    """Rows longer than ``max_norm`` are scaled down to it; each depends on its record alone."""
    norms = row_norms(X)
    long = np.flatnonzero(~(norms <= max_norm))
    if not len(long):
        return X
    X = X.copy()
    with np.errstate(invalid="ignore"):
        X[long] *= (max_norm / norms[long])[:, None]
    return X
