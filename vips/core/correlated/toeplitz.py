"""Toeplitz factorisations of discounted prefix sums: the square root, and buffered ones that need little memory.

The square root has C = B = A^(1/2), with coefficients γ^k binom(2k, k) / 4^k (Fichtenberger, Henzinger and Upadhyay, 2023,
"Constant matters"): next to optimal, but its noise needs all draws so far. Buffered coefficients

    c_0 = 1,   c_k = Σ_i ω_i θ_i^(k-1)

come close to it with a few arrays (Dvijotham et al., 2024, "Efficient and near-optimal noise generation for streaming
differential privacy"; McMahan, Xu and Zhang, 2024, "A hassle-free algorithm for strong differential privacy in federated
learning systems").
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy  # whose `signal` is loaded when it is called
from scipy.optimize import minimize
from scipy.special import expit, softmax

from vips.core.correlated.strategy import Strategy, sensitivity_of_toeplitz
from vips.core.exact.compiled import compiled

__all__ = ["BufferedToeplitz", "SquareRoot", "fitted_toeplitz"]


class SquareRoot(Strategy):
    """C = B = A^(1/2), to compare with: its state holds all draws."""

    @property
    def n_buffers(self) -> int:
        return self.n_batches

    def coefficients(self) -> np.ndarray:
        k = np.arange(1, self.n_batches)
        return np.concatenate([[1.0], np.cumprod((2.0 * k - 1.0) / (2.0 * k))]) * self.decay ** np.arange(
            self.n_batches
        )

    def carried(self, t: int, buffers: np.ndarray) -> np.ndarray | float:
        if t == 1:
            return 0.0
        coefficients = self.coefficients()[:t]
        return np.tensordot((coefficients[1:] - self.decay * coefficients[:-1])[::-1], buffers[: t - 1], axes=1)

    def keep(self, t: int, fresh: np.ndarray, w: np.ndarray, buffers: np.ndarray) -> None:
        buffers[t - 1] = fresh

    def sensitivity(self, participation: int = 1) -> float:
        return sensitivity_of_toeplitz(self.coefficients(), participation)

    def deviations(self) -> np.ndarray:
        return np.sqrt(np.cumsum(np.square(self.coefficients())))


class BufferedToeplitz(Strategy):
    """C with coefficients 1 and Σ_i ω_i θ_i^(k-1).

    Parameters
    ----------
    n_batches : int
    decay : float
    theta, omega : array of shape (n_buffers,)
        θ in (0, 1) and ω > 0, of sum at most 1: coefficients then fall.
    """

    def __init__(self, n_batches: int, decay: float, theta: np.ndarray, omega: np.ndarray) -> None:
        super().__init__(n_batches, decay)
        self.theta, self.omega = (np.array(values, dtype=np.float64) for values in (theta, omega))
        is_valid = self.theta.ndim == 1 and self.theta.shape == self.omega.shape and len(self.theta) > 0
        if not (is_valid and (self.theta > 0.0).all() and (self.theta < 1.0).all() and (self.omega > 0.0).all()):
            raise ValueError("`theta` must be between 0 and 1, and `omega` positive")
        if self.omega.sum() > 1.0:
            raise ValueError("`omega` must not sum to more than 1")

    @property
    def n_buffers(self) -> int:
        return len(self.theta)

    def coefficients(self) -> np.ndarray:
        """c_0, …, c_{T-1}."""
        powers = self.theta ** np.arange(self.n_batches - 1)[:, None]
        return np.concatenate([[1.0], powers @ self.omega])

    def carried(self, t: int, buffers: np.ndarray) -> np.ndarray:
        return -np.tensordot(self.omega, buffers, axes=1)

    def keep(self, t: int, fresh: np.ndarray, w: np.ndarray, buffers: np.ndarray) -> None:
        buffers *= self.theta.reshape(-1, *np.ones(w.ndim, int))
        buffers += w

    def rounding(self) -> float:
        """h_t is a function of w, so that its rounding moves z_t and nothing else."""
        return self._one_rounding() * self.n_batches**0.5

    def sensitivity(self, participation: int = 1) -> float:
        return sensitivity_of_toeplitz(self.coefficients(), participation)

    def deviations(self) -> np.ndarray:
        inverse = scipy.signal.lfilter([1.0], [1.0, -self.decay], _inverse(self.n_batches, self.theta, self.omega))
        return np.sqrt(np.cumsum(np.square(inverse)))


@compiled()
def _inverse(n: int, theta: np.ndarray, omega: np.ndarray) -> np.ndarray:
    """Coefficients of C⁻¹: what the mechanism makes of one unit draw."""
    coefficients, buffers = np.empty(n), np.zeros(len(theta))
    for t in range(n):
        w = 1.0 if t == 0 else 0.0
        for i in range(len(theta)):
            w -= omega[i] * buffers[i]
        for i in range(len(theta)):
            buffers[i] = theta[i] * buffers[i] + w
        coefficients[t] = w
    return coefficients


@lru_cache(maxsize=64)
def fitted_toeplitz(n_batches: int, decay: float = 1.0, participation: int = 1, n_buffers: int = 4) -> BufferedToeplitz:
    """The buffered strategy of least error: root mean square over batches, sensitivity included."""
    if n_batches == 1:
        return BufferedToeplitz(1, decay, np.array([0.5]), np.array([0.5]))

    def strategy(values: np.ndarray) -> BufferedToeplitz:
        theta = np.clip(expit(values[:n_buffers]), 1e-9, 1.0 - 1e-9)
        omega = np.maximum(softmax(np.append(values[n_buffers:], 0.0))[:-1], 1e-12)
        omega /= max(1.0, omega.sum() * (1.0 + 1e-12))  # rounding can bring it above 1
        return BufferedToeplitz(n_batches, decay, theta, omega)

    def log_error(values: np.ndarray) -> float:
        return float(np.log(strategy(values).error(participation)))

    # as if coefficients of the square root were integrals of θ^k: θ spread from short memories to those of all batches
    rates = np.geomspace(0.7, min(0.7, 1.0 / n_batches), n_buffers)
    start = np.concatenate([-np.log(rates), np.log(np.sqrt(rates) / np.sqrt(rates).sum())])
    return strategy(minimize(log_error, start, method="BFGS", options={"maxiter": 400, "gtol": 1e-7}).x)
