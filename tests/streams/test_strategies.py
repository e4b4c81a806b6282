"""Factorisations of prefix sums, against matrices that are written out, brute force over patterns, and published values."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.special import gammaln

from vips.core.correlated import (
    BinaryTree,
    BufferedToeplitz,
    Independent,
    Strategy,
    fitted_toeplitz,
    sensitivity_of_toeplitz,
)

SIZES = [1, 2, 5, 8, 11]


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


def largest_error(strategy):
    """Largest deviation of an R_t, for a mechanism of noise multiplier 1."""
    return float(strategy.sensitivity() * strategy.deviations().max())


def strategies(T, decay=1.0):
    return [Independent(T, decay), BinaryTree(T, decay), SquareRoot(T, decay), fitted_toeplitz(T, decay)]


def matrices(strategy):
    """A, and the matrix B that the mechanism applies to draws z: column s is what a unit draw in batch s does."""
    T, steps = strategy.n_batches, np.arange(strategy.n_batches)
    A = np.tril(strategy.decay ** np.maximum(steps[:, None] - steps, 0).astype(float))
    buffers, y, B = np.zeros((strategy.n_buffers, T)), np.zeros(T), np.empty((T, T))
    for t in range(1, T + 1):
        y = strategy.decay * y + strategy.step(t, np.eye(T)[t - 1], buffers)
        B[t - 1] = y
    return A, B


@pytest.mark.parametrize("decay", [1.0, 0.9])
@pytest.mark.parametrize("T", SIZES)
def test_the_noise_is_that_of_a_factorisation(T, decay):
    """C = B⁻¹ A, of which the sensitivity is no less than that of any pattern of participation."""
    for strategy in strategies(T, decay):
        A, B = matrices(strategy)
        np.testing.assert_allclose(strategy.deviations(), np.linalg.norm(B, axis=1), rtol=1e-9)
        C = np.linalg.solve(B, A)
        np.testing.assert_allclose(np.triu(C, 1), 0.0, atol=1e-10)  # batches may depend on earlier releases
        for k in (1, 2, 3):
            patterns = combinations(range(T), min(k, T))
            largest = max(np.linalg.norm(C[:, list(chosen)].sum(axis=1)) for chosen in patterns)
            assert strategy.sensitivity(k) >= largest * (1.0 - 1e-9)
            if not isinstance(strategy, BinaryTree):
                np.testing.assert_allclose(strategy.sensitivity(k), largest, rtol=1e-9)


@pytest.mark.parametrize("k", [2, 3])
def test_no_directions_of_shares_give_more(k):
    """Shares are vectors of norm 1, one for each batch, of any directions."""
    rng, strategy = np.random.default_rng(0), fitted_toeplitz(6, 1.0, k)
    C = np.linalg.solve(*matrices(strategy)[::-1])
    for chosen in combinations(range(6), k):
        shares = rng.standard_normal((500, k, 3))
        shares /= np.linalg.norm(shares, axis=2, keepdims=True)
        moved = np.einsum("tk,nkd->ntd", C[:, list(chosen)], shares)
        assert np.linalg.norm(moved.reshape(500, -1), axis=1).max() <= strategy.sensitivity(k) * (1.0 + 1e-12)


def draws_of(strategy, w):
    """z of the steps w, all whole, by undoing the mechanism batch by batch."""
    buffers, z = np.zeros((strategy.n_buffers, w.shape[1])), np.empty_like(w)
    for t in range(1, strategy.n_batches + 1):
        z[t - 1] = w[t - 1] - np.rint(strategy.carried(t, buffers))
        strategy.keep(t, z[t - 1], w[t - 1], buffers)
    return z


@pytest.mark.parametrize("decay", [1.0, 0.9])
@pytest.mark.parametrize("name", ["independent", "tree", "toeplitz"])
def test_rounding_moves_draws_by_no_more_than_is_stated(name, decay):
    """Neighbours who release the same whole numbers have draws that differ by C Δ, and by what rounding adds."""
    rng, T, d = np.random.default_rng(0), 100, 50
    strategy = {"independent": Independent, "tree": BinaryTree, "toeplitz": fitted_toeplitz}[name](T, decay)
    A, B = matrices(strategy)
    C, buffers = np.linalg.solve(B, A), np.zeros((strategy.n_buffers, d))
    z = np.rint(rng.normal(0.0, 2.0**28, (T, d)))
    w = np.stack([strategy.step(t, z[t - 1], buffers, whole=True) for t in range(1, T + 1)])
    np.testing.assert_array_equal(w, np.rint(w))
    np.testing.assert_array_equal(draws_of(strategy, w), z)  # a release and the data give the draws back
    for scale in (1.0, 10.0, 1e5):  # of a share, in units
        delta = np.zeros((T, d))
        delta[[0, 60]] = np.rint(scale * rng.normal(size=(2, d)))
        moved = z - draws_of(strategy, w - delta) - C @ delta
        assert np.linalg.norm(moved) <= strategy.rounding() * np.sqrt(d) * strategy.sensitivity() + 1e-9 * scale
        if name == "toeplitz":  # which rounds whatever the decay
            assert np.linalg.norm(moved) > 0.1 * strategy.rounding() * np.sqrt(d)


def test_the_tree_of_a_power_of_two_is_the_textbooks():
    """Every batch is in log2 T + 1 nodes, and a total is a sum of as many nodes as t has binary digits 1."""
    tree = BinaryTree(1024)
    assert tree.sensitivity() ** 2 == pytest.approx(11.0)
    np.testing.assert_allclose(np.square(tree.deviations()), [bin(t).count("1") for t in range(1, 1025)])


def test_the_square_root_is_the_published_one():
    """Coefficients binom(2k, k) / 4^k; its largest error Σ c² is Landau's constant (log T + γ + log 16) / π + O(1 / T)
    (Henzinger, Upadhyay and Upadhyay, 2023)."""
    k = np.arange(10_000)
    expected = np.exp(gammaln(2 * k + 1) - 2 * gammaln(k + 1) - k * np.log(4.0))
    np.testing.assert_allclose(SquareRoot(10_000).coefficients(), expected, rtol=1e-9)
    landau = (np.log(10_000) + np.euler_gamma + np.log(16.0)) / np.pi
    assert largest_error(SquareRoot(10_000)) == pytest.approx(landau, rel=1e-3)


@pytest.mark.parametrize("T", [100, 1_000, 10_000])
@pytest.mark.repeated("10000")
def test_buffers_lose_next_to_nothing(T):
    """Against the square root, and against the bound below which no factorisation's largest error comes (Li and Miklau, 2013):
    the sum of the singular values of A over T. They are 1 / 2 sin((2j - 1) π / (4T + 2))."""
    buffered, root = fitted_toeplitz(T), SquareRoot(T)
    assert buffered.error() < 1.01 * root.error()
    assert largest_error(buffered) < 1.05 * largest_error(root)
    assert buffered.n_buffers == 4
    j = np.arange(1, T + 1)
    bound = 0.5 / T * np.abs(1.0 / np.sin((2 * j - 1) * np.pi / (4 * T + 2))).sum()
    assert bound < largest_error(root) < 1.25 * bound


def test_four_buffers_are_as_good_as_the_best_of_another_library():
    """The best Toeplitz matrix, with all T coefficients free, is ``sqrt(toeplitz.loss(strategy_coef=
    toeplitz.optimize_banded_toeplitz(T, T), n=T))`` of jax_privacy 2.0. The best buffers there, which take minutes, are
    ``sqrt(toeplitz.loss(strategy_coef=b.toeplitz_coefs(T), n=T))`` for ``b = buffered_toeplitz.optimize(n=T, min_sep=T,
    max_participations=1, error="mean")``."""
    for T, of_best_matrix in ((30, 1.9429782), (365, 2.7289272), (1_000, 3.0490486)):
        assert fitted_toeplitz(T).error() == pytest.approx(of_best_matrix, rel=1e-3), T
    for T, of_best_buffers in ((365, 2.7379077), (10_000, 3.7998722)):
        assert fitted_toeplitz(T).error() < of_best_buffers, T


def test_coefficients_that_rise_are_refused():
    with pytest.raises(ValueError, match="fall"):
        sensitivity_of_toeplitz(np.array([1.0, 0.5, 0.6]), 1)
    with pytest.raises(ValueError, match="omega"):
        BufferedToeplitz(5, 1.0, [0.5, 0.9], [0.8, 0.3])
    with pytest.raises(ValueError, match="theta"):
        BufferedToeplitz(5, 1.0, [1.0], [0.3])
