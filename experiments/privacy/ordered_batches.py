"""Batches in a fixed order with noise that is correlated over steps, as a plan that the engine takes; for experiments.

Step t uses batch t mod B, so that a record is in every B-th step. Its batch is a coin of its own, the same in every pass. The
noise of a step is (C⁻¹ z)_t with white z, and what the model sees is a running average: A C⁻¹ z with the step sizes' matrix A.
All releases together are one Gaussian mechanism, whose sensitivity is that of C over the public patterns {j, j + B, …} (Denisov
et al., 2022; Choquette-Choo et al., 2023).

With b bands, C is 0 below b diagonals, and a record's share of one pass is in one column. If every b-th step draws a Poisson
sample from one of b fixed groups, a fit is a sequence of subsampled Gaussian mechanisms ("(Amplified) banded
matrix factorization", Choquette-Choo et al., 2023).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from vips import PrivacyPlan
from vips.core.mechanism.noise import gaussian_noise
from vips.core.mechanism.release import Mechanism
from vips.core.mechanism.secret_bits import secret_bits

__all__ = ["OrderedPlan", "best_strategy", "matrix_of_average", "sensitivity"]


@dataclass(frozen=True)
class OrderedPlan(PrivacyPlan):
    """A plan whose batches come in order and whose noise is correlated.

    ``noise_multiplier`` is that of z; what it costs is computed by the caller. ``sampling_rate`` is 1/B.
    """

    strategy: np.ndarray = field(default=None, repr=False)
    n_groups: int = 1
    rate_in_group: float = 1.0

    def sampler(self, randomness, step):
        return lambda partition: _Rows(self.n_groups, self.rate_in_group, step, partition, randomness.sampling_key)

    def mechanism(self, blocks, randomness, std):
        return MatrixNoise(self, blocks)


@dataclass(frozen=True, repr=False)
class _Rows:
    n_groups: int
    rate: float
    step: int
    partition: int
    key: int

    def rows(self, n_records: int) -> np.ndarray:
        groups = np.random.default_rng((self.key, self.partition)).integers(0, self.n_groups, n_records)
        chosen = np.flatnonzero(groups == self.step % self.n_groups)
        if self.rate == 1.0:
            return chosen
        return chosen[np.random.default_rng((self.key, self.partition, self.step)).random(len(chosen)) < self.rate]


class MatrixNoise(Mechanism):
    """Noise C⁻¹ z. Keeps all z: an experiment's memory."""

    def __init__(self, plan: OrderedPlan, blocks) -> None:
        self._plan, self._blocks, self._rng = plan, blocks, np.random.default_rng(secret_bits(128))
        self._inverse = solve_triangular(plan.strategy, np.eye(len(plan.strategy)), lower=True)
        self._draws = {name: [] for name in blocks}
        self._weights = {name: np.zeros(len(plan.strategy)) for name in blocks}  # of z in the average

    def release(self, total, step):
        noisy = {}
        for name, block in self._blocks.items():
            std = self._plan.noise_std() * block.scale
            self._draws[name].append(gaussian_noise(block.shape, block.symmetric, std, self._rng))
            row = self._inverse[step - 1, :step]
            if name in total:  # a phase may sum other blocks
                noisy[name] = total[name] + sum(weight * z for weight, z in zip(row, self._draws[name], strict=True))
        self._step = step
        return noisy

    def std_of_average(self, step_size):
        stds = {}
        for name, block in self._blocks.items():
            rho, fresh = step_size.get(name, 0.0), self._inverse[self._step - 1] / self._plan.sampling_rate
            self._weights[name] = (1.0 - rho) * self._weights[name] + rho * fresh
            stds[name] = float(np.linalg.norm(self._weights[name])) * self._plan.noise_std() * block.scale
        return stds


def matrix_of_average(step_sizes: list[float]) -> np.ndarray:
    """A: running averages as a linear map of the totals of all steps, shape (T, T)."""
    rows, row = [], np.zeros(len(step_sizes))
    for t, rho in enumerate(step_sizes):
        row = (1.0 - rho) * row
        row[t] += rho
        rows.append(row)
    return np.array(rows)


def sensitivity(C: np.ndarray, period: int) -> float:
    """Sensitivity of C to shares of norm 1, any directions, in the steps j, j + period, … of some j: an upper bound (the
    triangle inequality), exact where columns have no negative products."""
    return float(np.sqrt(max(np.abs(C[:, j::period].T @ C[:, j::period]).sum() for j in range(period))))


def best_strategy(matrices: list[np.ndarray], period: int, bands: int | None = None) -> np.ndarray:
    """A lower triangular C of sensitivity 1 with (nearly) the least Σ ‖A C⁻¹‖² over the given A.

    By L-BFGS on the logarithm of the product of error and squared sensitivity, whose largest pattern is smoothed; from the
    identity.
    """
    T = len(matrices[0])
    M = sum(A.T @ A for A in matrices)
    free = np.tril(np.ones((T, T), bool)) & ~np.tril(np.ones((T, T), bool), -(bands or T))
    sharp = 200.0

    def objective(values):
        C = np.zeros((T, T))
        C[free] = values
        inverse = solve_triangular(C, np.eye(T), lower=True)
        error = np.trace(inverse.T @ M @ inverse)
        of_error = -2.0 * inverse.T @ M @ inverse @ inverse.T
        parts, gradients = [], []
        for j in range(period):
            columns = C[:, j::period]
            products = columns.T @ columns
            parts.append(np.abs(products).sum())
            gradients.append(2.0 * columns @ np.sign(products))
        logs = np.log(parts)
        weights = np.exp(sharp * (logs - logs.max()))
        smooth = logs.max() + np.log(weights.sum()) / sharp
        gradient = of_error / error
        for j, (weight, part) in enumerate(zip(weights / weights.sum(), parts, strict=True)):
            gradient[:, j::period] += weight / part * gradients[j]
        return np.log(error) + smooth, gradient[free]

    best = minimize(objective, np.eye(T)[free], jac=True, method="L-BFGS-B", options={"maxiter": 2000, "maxfun": 4000})
    C = np.zeros((T, T))
    C[free] = best.x
    C *= np.sign(np.diag(C))  # columns with a positive diagonal: the same mechanism
    return C / sensitivity(C, period)
