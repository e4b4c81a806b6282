"""Noise that is correlated over batches: linear mechanisms on discounted prefix sums.

After each of T batches a total of all batches so far is released,

    R_t = P_t + y_t,   P_t = γ P_{t-1} + s_t,   y = B z,   z_t ~ N(0, σ² I),

with A = B C, where A has the entries γ^{t-s} for s ≤ t: the release is a function of C s + z, one Gaussian mechanism whose
sensitivity is that of C s (Li et al., 2015, "The matrix mechanism"). It holds for batches and statistics that are chosen after
seeing earlier releases, since C is lower triangular (Denisov et al., 2022, "Improved differential privacy for SGD via optimal
private linear operators on adaptive streams"). In place of y only the steps w_t = y_t - γ y_{t-1} are drawn: R_t = γ R_{t-1}
+ s_t + w_t needs no total without noise. A step is w_t = z_t + h_t, where h_t is carried over from earlier draws.

**Whole numbers.** With discrete noise, shares, z and R are whole units of a lattice, z_t is a rounded Gaussian, and h_t and
γ R_{t-1} are rounded to whole units. Let neighbours, whose sums differ by Δ, release the same R. Then w' = w - Δ, since γ R is
a function of what was released, and z' = z - C Δ + e. Here e comes from rounding h_t, before and after, by half a unit each in
every coordinate. So a release, given those before it, is the rounding of a Gaussian; and its centre moves, in all of them
together, by a vector of norm at most ‖C Δ‖ + ‖e‖, whatever was released: post-processing of one Gaussian mechanism
(docs/guarantee.md). :meth:`Strategy.rounding` bounds ‖e‖, and the lattice is so fine that the bound is within the sensitivity
that is charged. (h_t is computed in double precision, with an error below 2.5·10⁻⁶ T while draws are below 64 deviations:
except with probability 10⁻⁸⁰⁰.)

**Toeplitz factorisations.** The square root C = B = A^(1/2), with coefficients γ^k binom(2k, k) / 4^k (Fichtenberger, Henzinger
and Upadhyay, 2023, "Constant matters"), is next to optimal, but its noise needs all draws so far. Buffered coefficients

    c_0 = 1,   c_k = Σ_i ω_i θ_i^(k-1)

come close to it with a few arrays (Dvijotham et al., 2024, "Efficient and near-optimal noise generation for streaming
differential privacy"; McMahan, Xu and Zhang, 2024, "A hassle-free algorithm for strong differential privacy in federated
learning systems").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache

import numpy as np
import scipy  # whose `signal` is loaded when it is called
from scipy.optimize import minimize
from scipy.special import expit, softmax

from vips.core.exact.compiled import compiled

__all__ = ["BinaryTree", "BufferedToeplitz", "Independent", "Strategy", "fitted_toeplitz", "sensitivity_of_toeplitz"]


class Strategy(ABC):
    """A factorisation A = B C for at most ``n_batches`` batches.

    Parameters
    ----------
    n_batches : int
        T.
    decay : float
        γ in (0, 1].
    """

    def __init__(self, n_batches: int, decay: float = 1.0) -> None:
        self.n_batches, self.decay = int(n_batches), float(decay)

    @property
    @abstractmethod
    def n_buffers(self) -> int:
        """Arrays of the size of a total that the noise's state holds."""

    def step(self, t: int, fresh: np.ndarray, buffers: np.ndarray, whole: bool = False) -> np.ndarray:
        """w_t from z_t, whole if z_t is and ``whole`` says so. Changes ``buffers``, shape (n_buffers, ...), which are 0 before
        batch 1."""
        carried = self.carried(t, buffers)
        w = fresh + (np.rint(carried) if whole else carried)
        self.keep(t, fresh, w, buffers)
        return w

    @abstractmethod
    def carried(self, t: int, buffers: np.ndarray) -> np.ndarray | float:
        """h_t = w_t - z_t."""

    @abstractmethod
    def keep(self, t: int, fresh: np.ndarray, w: np.ndarray, buffers: np.ndarray) -> None:
        """Change ``buffers`` to those after batch t."""

    def rounding(self) -> float:
        """r such that rounding h_t to whole numbers, in every batch, moves C s + z by at most r √d times the sensitivity of one
        batch, in L2 norm over d coordinates."""
        return self._one_rounding() * self.n_batches  # C e, where each e_t has norm √d at most

    def _one_rounding(self) -> float:
        """Largest entry of e: half a unit before and after, and errors of double precision."""
        return 1.0 + 5e-6 * self.n_batches

    @abstractmethod
    def sensitivity(self, participation: int = 1) -> float:
        """L2 sensitivity of C s to one person who adds unit vectors to at most ``participation`` arbitrary batches."""

    def deviations(self) -> np.ndarray:
        """Standard deviations of y_1, …, y_T for σ = 1: norms of the rows of B, by running the mechanism on unit vectors."""
        buffers = np.zeros((self.n_buffers, self.n_batches))
        y, variances, eye = np.zeros(self.n_batches), np.empty(self.n_batches), np.zeros(self.n_batches)
        for t in range(1, self.n_batches + 1):
            eye[t - 2 : t] = 0.0, 1.0
            if t == 1:
                eye[-1], eye[0] = 0.0, 1.0
            y = self.decay * y + self.step(t, eye, buffers)
            variances[t - 1] = np.square(y).sum()
        return np.sqrt(variances)

    def error(self, participation: int = 1) -> float:
        """Root mean square of the deviations of R_t over batches, for a mechanism of noise multiplier 1."""
        return float(self.sensitivity(participation) * np.sqrt(np.mean(np.square(self.deviations()))))


class Independent(Strategy):
    """C = I: fresh noise for each batch, and no state."""

    n_buffers = 0

    def carried(self, t: int, buffers: np.ndarray) -> float:
        return 0.0

    def keep(self, t: int, fresh: np.ndarray, w: np.ndarray, buffers: np.ndarray) -> None:
        pass

    def rounding(self) -> float:
        return 0.0

    def sensitivity(self, participation: int = 1) -> float:
        return float(np.sqrt(min(participation, self.n_batches)))

    def deviations(self) -> np.ndarray:
        return np.sqrt(np.cumsum(self.decay ** (2.0 * np.arange(self.n_batches))))


class BinaryTree(Strategy):
    """The binary tree: each total is a sum of at most log2 T + 1 noisy nodes (Dwork et al., 2010; Chan, Shi and Song, 2011).

    Node (h, b) holds batches b 2^h + 1 to (b + 1) 2^h, discounted to the last of them; C has a row for each node.

    A total is the sum of the nodes of the binary digits of t, discounted to t. Buffers hold the noise in these nodes, by level.
    """

    @property
    def n_buffers(self) -> int:
        return self.n_batches.bit_length()  # levels with a whole node

    def carried(self, t: int, buffers: np.ndarray) -> np.ndarray:
        return -self.decay * buffers[: _level(t) + 1].sum(axis=0)  # of the nodes that the new one replaces

    def keep(self, t: int, fresh: np.ndarray, w: np.ndarray, buffers: np.ndarray) -> None:
        buffers *= self.decay
        buffers[: _level(t)] = 0.0
        buffers[_level(t)] = fresh

    def rounding(self) -> float:
        return 0.0 if self.decay == 1.0 else super().rounding()  # sums of whole numbers are whole

    def sensitivity(self, participation: int = 1) -> float:
        """Sensitivity of an undiscounted tree, which discounts only make smaller: √ of the largest Σ n² over nodes with n of
        k batches each."""
        k = min(int(participation), self.n_batches)
        return float(np.sqrt(_squares(self.n_buffers, k) - k * k))  # there is no node above the levels

    def deviations(self) -> np.ndarray:
        t, total, end = np.arange(1, self.n_batches + 1), np.zeros(self.n_batches), np.zeros(self.n_batches, np.int64)
        for level in reversed(range(self.n_buffers)):
            is_set = (t >> level) & 1 == 1
            end[is_set] += 2**level
            total += is_set * self.decay ** (2.0 * (t - end))
        return np.sqrt(total)


def _level(t: int) -> int:
    """Level of the node that ends at t."""
    return (t & -t).bit_length() - 1


@lru_cache(maxsize=65_536)
def _squares(height: int, k: int) -> int:
    """Largest Σ n² over the nodes of a whole tree of 2^height leaves, k of which are marked: those of one subtree after the
    other."""
    if k == 0 or height == 0:
        return k * k
    left = min(k, 2 ** (height - 1))
    return k * k + _squares(height - 1, left) + _squares(height - 1, k - left)


def sensitivity_of_toeplitz(coefficients: np.ndarray, participation: int) -> float:
    """Sensitivity of a lower triangular Toeplitz matrix with coefficients c_0 ≥ c_1 ≥ … ≥ 0.

    Columns i < j have the product Σ_m c_m c_{m+j-i} over m < T - j, which falls with j, and with j - i. So of all sets of k
    batches the first k have the largest sum of products; and no signs or directions of shares give more, since all products are
    ≥ 0. ValueError if coefficients rise, or are negative.
    """
    if (np.diff(coefficients) > 0.0).any() or coefficients[-1] < 0.0:
        raise ValueError("coefficients must fall and not be negative")
    k, ahead = min(int(participation), len(coefficients)), np.cumsum(coefficients)
    sums = ahead.copy()
    sums[k:] -= ahead[:-k]
    return float(np.linalg.norm(sums))


class BufferedToeplitz(Strategy):
    """C with coefficients 1 and Σ_i ω_i θ_i^(k-1).

    Parameters
    ----------
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
