"""Rows of a public greatest length."""

from __future__ import annotations

import numpy as np

from vips._compute.rowwise import row_norms

__all__ = ["scaled_rows"]


def scaled_rows(X: np.ndarray, feature_norm: float) -> np.ndarray:
    """Rows longer than ``feature_norm`` are scaled down to it; each depends on its record alone."""
    norms = row_norms(X)
    long = np.flatnonzero(~(norms <= feature_norm))
    if not len(long):
        return X
    X = X.copy()
    with np.errstate(invalid="ignore"):
        X[long] *= (feature_norm / norms[long])[:, None]
    return X
