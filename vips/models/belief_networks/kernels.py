"""Kernels of sigmoid belief networks: the computations between the matrix products."""

from __future__ import annotations

import numba
import numpy as np

from vips.core.exact.compiled import compiled

__all__ = ["packed_times", "residuals", "sweep"]

_jit = compiled(nogil=True, error_model="numpy")


@numba.njit(inline="always", error_model="numpy")
def _polya_gamma_mean(square):
    """tanh(c/2) / (2c) from c²: without branches or calls, so that the compiler can vectorise it."""
    c = np.sqrt(square)
    # e^-c = (e^-x)^128, x = c/128 < 0.32; truncation is below 1e-16, rounding grows to 1e-14
    x = min(c, 40.0) * 0.0078125
    e = 1.0 / 6227020800.0
    for factorial in (479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0):
        e = 1.0 / factorial - x * e
    e = 1.0 - x * (1.0 - x * e)
    e = e * e
    e = e * e
    e = e * e
    e = e * e
    e = e * e
    e = e * e
    e = e * e
    series = 0.25 - square * (
        1.0 / 48.0 - square * (1.0 / 480.0 - square * (17.0 / 80640.0 - square * (31.0 / 1451520.0)))
    )
    return series if square < 0.01 else (1.0 - e) / ((1.0 + e) * 2.0 * c)


@_jit
def residuals(y, mean, var, predictor, variance, observed, omega, residual):
    """ω and r = y - ½ - ω ψ, both 0 where not observed.

    ``mean`` and ``var`` of the bias, shape (J,), are added to those of wᵀz, which gives those of ψ.
    """
    for n in range(len(y)):
        for j in range(y.shape[1]):
            psi = predictor[n, j] + mean[j]
            predictor[n, j] = psi
            variance[n, j] += var[j]
            weight = _polya_gamma_mean(psi * psi + variance[n, j])
            omega[n, j] = weight
            residual[n, j] = y[n, j] - 0.5 - weight * psi
        if observed is not None:
            for j in range(y.shape[1]):
                omega[n, j] *= observed[n, j]
                residual[n, j] *= observed[n, j]


@_jit
def sweep(field, coupling, share, hidden):
    """Update z̄, one unit after the other, from logits at the old z̄.

    Between the exact logits of two sweeps, a change of a unit moves the logits of later units by the released ``coupling``
    times the row's ``share`` of observed columns. At a fixed point every z̄ is the sigmoid of its exact logit.
    """
    n_hidden = hidden.shape[1]
    for n in range(len(hidden)):
        for k in range(n_hidden):
            old = hidden[n, k]
            hidden[n, k] = 1.0 / (1.0 + np.exp(-field[n, k]))
            moved = share[n] * (hidden[n, k] - old)
            for m in range(k + 1, n_hidden):
                field[n, m] -= moved * coupling[k, m]


@_jit
def packed_times(packed, vectors, images):
    """Symmetric matrices times vectors. Each row holds a matrix, packed as the rows of its upper triangle."""
    n_hidden = vectors.shape[1]
    for n in range(len(vectors)):
        images[n] = 0.0
        i = 0
        for k in range(n_hidden):
            images[n, k] += packed[n, i] * vectors[n, k]
            for m in range(k + 1, n_hidden):
                entry = packed[n, i + m - k]
                images[n, k] += entry * vectors[n, m]
                images[n, m] += entry * vectors[n, k]
            i += n_hidden - k
