"""Linear regression from exact moments: w, α and λ by the maximum of the evidence (MacKay, 1992).

    y = x'w + intercept + e,   e ~ N(0, 1/α),   w_j ~ N(0, 1/λ_j),   α, λ ~ Gamma

===========  ===========================================================================
symbol       meaning
===========  ===========================================================================
A, b         Σ x xᵀ and Σ x y, both around their means if there is an intercept
Σ            (αA + diag λ)⁻¹, so that w = αΣb
γ_j          1 - λ_j Σ_jj, how well determined a coefficient is
===========  ===========================================================================

The iterations and starts are those of scikit-learn's ``BayesianRidge`` (one λ) and ``ARDRegression`` (a λ for each coefficient,
none of which is removed here). Where units of columns differ much, λ = 1 is far off, and its iteration may end where no column
counts: without noise a second one starts at the λ of least squares, and is taken if the evidence is clearly larger there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve

from vips.core.exact.blas import cholesky, inverse_from_factor
from vips.models._definite import positive_definite

__all__ = ["Evidence", "maximise_evidence"]

_MOST_PRECISION = 1e12  # in a private fit; without noise units of columns may be any
_ANY_PRECISION = 1e100
_CLEARLY = 1.0  # by which a logarithm of evidence is larger


@dataclass(frozen=True)
class Evidence:
    """The maximum: α, λ of shape (d,), the number of iterations, and the logarithm of the evidence but for a constant."""

    alpha: float
    lam: np.ndarray
    n_iter: int
    log_evidence: float


def maximise_evidence(
    squares: np.ndarray, products: np.ndarray, of_target: float, count: float, variance: float, settings,
    units: np.ndarray | None = None,
) -> Evidence:  # fmt: skip
    """α and λ.

    Parameters
    ----------
    squares, products, of_target : ndarray of shape (d, d), ndarray of shape (d,), float
        A, b and Σ y².
    count, variance : float
        Number of records, and the variance of y, at which 1/α starts.
    settings : BayesianLinearRegression
        Of which ``penalty``, ``max_iter``, ``tol`` and the priors of α and λ are read.
    units : ndarray of shape (d,), optional
        Roots of A's diagonal, ∞ of constant columns, where moments have no noise: a second iteration starts at least squares.
    """
    moments = squares, products, of_target, count, variance
    most = _MOST_PRECISION if units is None else _ANY_PRECISION
    first = _iterated(*moments, settings, np.ones(len(products)), most)
    if units is None:
        return first
    w = np.linalg.lstsq(squares / np.outer(units, units), products / units, rcond=None)[0] / units
    lam = (
        np.full(len(w), len(w) / max(w @ w, 1e-300)) if settings.penalty == "ridge" else 1.0 / np.maximum(w**2, 1e-300)
    )
    second = _iterated(*moments, settings, np.clip(lam, 1.0 / most, most), most)
    return second if second.log_evidence > first.log_evidence + _CLEARLY else first


def _iterated(squares, products, of_target, count, variance, settings, lam: np.ndarray, most: float) -> Evidence:
    """From this λ, which is at most ``most``, and at least 1 / ``most``."""
    d, alpha, old = len(products), 1.0 / (variance + np.finfo(float).eps), None
    for n_iter in range(1, settings.max_iter + 1):  # noqa: B007
        factor = cholesky(positive_definite(alpha * squares + np.diag(lam)))
        w = alpha * cho_solve((factor, True), products)
        gamma = 1.0 - lam * np.diagonal(inverse_from_factor(factor))
        error = max(of_target - 2.0 * products @ w + w @ squares @ w, 0.0)
        if settings.penalty == "ridge":
            lam = np.full(d, (gamma.sum() + 2.0 * settings.lambda_1) / (w @ w + 2.0 * settings.lambda_2))
        else:
            lam = (gamma + 2.0 * settings.lambda_1) / (w**2 + 2.0 * settings.lambda_2)
        lam = np.clip(lam, 1.0 / most, most)
        alpha = (max(count - gamma.sum(), 0.0) + 2.0 * settings.alpha_1) / (error + 2.0 * settings.alpha_2)
        if old is not None and np.abs(old - w).sum() < settings.tol:
            break
        old = w
    quadratic = 0.5 * (alpha * error + lam @ w**2)
    log_det = np.log(np.diagonal(cholesky(positive_definite(alpha * squares + np.diag(lam))))).sum()
    return Evidence(alpha, lam, n_iter, 0.5 * (np.log(lam).sum() + count * np.log(alpha)) - quadratic - log_det)
