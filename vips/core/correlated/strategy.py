"""What a linear mechanism on discounted prefix sums is.

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
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

__all__ = ["Independent", "Strategy", "sensitivity_of_toeplitz"]


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

    def largest_error(self, participation: int = 1) -> float:
        """Largest deviation of an R_t, for a mechanism of noise multiplier 1."""
        return float(self.sensitivity(participation) * self.deviations().max())


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


def sensitivity_of_toeplitz(coefficients: np.ndarray, participation: int) -> float:
    """Sensitivity of a lower triangular Toeplitz matrix with coefficients c_0 ≥ c_1 ≥ … ≥ 0.

    Columns i < j have the product Σ_m c_m c_{m+j-i} over m < T - j, which falls with j, and with j - i. So of all sets of k
    batches
    the first k have the largest sum of products; and no signs or directions of shares give more, since all products are ≥ 0.

    Raises
    ------
    ValueError
        If coefficients rise, or are negative.
    """
    if (np.diff(coefficients) > 0.0).any() or coefficients[-1] < 0.0:
        raise ValueError("coefficients must fall and not be negative")
    k, ahead = min(int(participation), len(coefficients)), np.cumsum(coefficients)
    sums = ahead.copy()
    sums[k:] -= ahead[:-k]
    return float(np.linalg.norm(sums))
