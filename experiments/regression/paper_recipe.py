"""The paper's own private logistic regression. IT CARRIES NO GUARANTEE and is here for comparison only.

What is unsound in it: features are divided by the largest norm in the data set; statistics are means over a number of records
that is private under add-or-remove. What costs accuracy: statistics are uncentred, so that noise in the precision moves the
coefficients; two statistics are noised and accounted for separately; negative eigenvalues are clamped to nearly zero in every
step, where they are inverted into huge variances; only the last noisy precision is used.

Algorithms 4 and 5 of Park et al., arXiv:1611.00340v3, in batch mode (ρ_t = 1); no intercept. Where paper and published code
differ, this takes the more favourable choice: sensitivities 1/N and 1/(2N) as in the code (the bound in equation 50 is 2/N).
Until December 2020 the code drew its noise with standard deviation (σ Δ)² instead of σ Δ; that is not repeated here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.optimize import brentq

from experiments.regression.methods import Method, TunedMethod, linear_scores
from vips import PrivacyPlan
from vips.expfam import polya_gamma_mean

__all__ = ["fit", "methods", "sigma_by_moments", "sigma_by_strong_composition"]

PRIOR = (1.0, 1.0)  # a₀, b₀
CLAMP = 1e-4  # least eigenvalue of the mean of ω x xᵀ, as in the published code
STEP_DELTA = 1e-9  # δ₀ of the strong composition, as in the paper's belief network
STEPS = (5, 10, 20)  # the paper does not state the number


def sigma_by_moments(epsilon: float, delta: float, n_steps: int) -> float:
    """The paper's moments accountant for 2J releases, at all orders: without sampling its own range of orders is empty."""
    plan = PrivacyPlan.from_epsilon(
        epsilon=epsilon, delta=delta, sampling_rate=1.0, n_steps=2 * n_steps, accountant="moments"
    )
    return plan.noise_multiplier


def sigma_by_strong_composition(epsilon: float, delta: float, n_steps: int) -> float:
    """Advanced composition of 2J Gaussian mechanisms, each (ε₀, δ₀) with σ = √(2 log(1.25/δ₀)) / ε₀."""
    slack, releases = delta - 2 * n_steps * STEP_DELTA, 2 * n_steps

    def total(step_epsilon: float) -> float:
        return np.sqrt(2 * releases * np.log(1 / slack)) * step_epsilon + releases * step_epsilon * np.expm1(
            step_epsilon
        )

    step_epsilon = brentq(lambda e: total(e) - epsilon, 1e-9, 50.0)
    return float(np.sqrt(2 * np.log(1.25 / STEP_DELTA)) / step_epsilon)


def fit(X, y, sigma: float, n_steps: int, seed: int) -> np.ndarray:
    """Posterior mean of the coefficients after J = ``n_steps`` iterations, for features as they were given; shape (d,)."""
    rng = np.random.default_rng(seed)
    largest = float(np.sqrt(np.max((X * X).sum(axis=1))))  # largest norm in the data set: not private
    X = X / largest
    n_records, d = X.shape
    # the published start: ⟨m mᵀ⟩ is a matrix of ones, so that c = |Σ_i x_i|
    arguments, alpha, mean = np.abs(np.asarray(X.sum(axis=1)).ravel()), PRIOR[0] / PRIOR[1], np.zeros(d)
    exact_linear = X.T @ (y - 0.5) / n_records
    for _ in range(n_steps):
        linear = exact_linear + rng.normal(0.0, sigma / n_records, d)
        omega = polya_gamma_mean(1.0, arguments)
        noise = np.triu(rng.normal(0.0, sigma / (2 * n_records), (d, d)))
        second = _gram(X, omega) / n_records + noise + np.triu(noise, 1).T
        precision = alpha * np.eye(d) + n_records * _clamped(second)
        factor = cho_factor(precision, lower=True)
        mean = cho_solve(factor, n_records * linear)
        cov = cho_solve(factor, np.eye(d))
        alpha = (PRIOR[0] + 0.5 * d) / (PRIOR[1] + 0.5 * (mean @ mean + np.trace(cov)))
        arguments = _arguments(X, mean, cov)
    return mean / largest


def _gram(X, omega: np.ndarray) -> np.ndarray:
    """Σ_n ω_n x_n x_nᵀ."""
    if not sp.issparse(X):
        return (X * omega[:, None]).T @ X
    return (X.multiply(omega[:, None]).T.tocsr() @ X).toarray()


def _clamped(matrix: np.ndarray) -> np.ndarray:
    values, vectors = eigh(matrix)
    return (vectors * np.where(values < 0.0, CLAMP, values)) @ vectors.T


def _arguments(X, mean: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """c_n = √(x_nᵀ (Σ + μμᵀ) x_n), in chunks."""
    parts = []
    for start in range(0, X.shape[0], 4096):
        rows = X[start : start + 4096]
        image = rows @ cov
        squares = rows.multiply(image).sum(axis=1) if sp.issparse(rows) else np.einsum("ni,ni->n", rows, image)
        parts.append(np.sqrt(np.maximum(np.asarray(squares).ravel() + (rows @ mean) ** 2, 0.0)))
    return np.concatenate(parts)


def methods(X, y, delta: float, steps: Sequence[int] = STEPS, splits: int | None = None) -> list[Method]:
    """The methods of both curves. The number of iterations is chosen among ``steps`` on these training records."""

    def fit_with(calibrate, n_steps, X, y, epsilon, seed):
        return partial(linear_scores, coef=fit(X, y, calibrate(epsilon, delta, n_steps), n_steps, seed))

    curves = {"moments": sigma_by_moments, "strong composition": sigma_by_strong_composition}
    return [
        TunedMethod(
            f"paper's recipe, {name}", partial(fit_with, calibrate), steps, X, y,
            note="no guarantee", settings="J =", splits=splits,
        )
        for name, calibrate in curves.items()
    ]  # fmt: skip
