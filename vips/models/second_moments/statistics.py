"""Rows z of the models of second moments, which sum z zᵀ of each record.

    z = k (x, cF, t F y),   k = min(1, F / ‖x‖)        F: `max_norm`, y in [-1, 1], where there is a target

A row longer than F is multiplied by k as a whole, constant and target included: it then has the weight k² in every moment. A
weight that depends on x alone does not bias a linear regression; x scaled beside the same constant and target would.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from vips._compute.rowwise import row_norms

__all__ = ["design"]


def design(X, max_norm: float, constant: float, target: np.ndarray | None = None) -> np.ndarray:
    """Rows z, shape (n_records, d + 1) or, with a target, (n_records, d + 2). Each depends on its record alone.

    Parameters
    ----------
    X : array or CSR of shape (n_records, d)
    max_norm, constant : float
        F and cF. Public.
    target : ndarray of shape (n_records,), optional
        t F y.

    Returns
    -------
    ndarray
        Rows whose norm overflows are NaN.
    """
    X = sp.csr_array(X).astype(np.float64).toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    columns = [X, np.full((len(X), 1), constant)] + ([] if target is None else [target[:, None]])
    rows, norms = np.concatenate(columns, axis=1), row_norms(X)
    long = np.flatnonzero(~(norms <= max_norm))
    rows[long] *= np.where(np.isfinite(norms[long]), max_norm / norms[long], np.nan)[:, None]
    return rows
