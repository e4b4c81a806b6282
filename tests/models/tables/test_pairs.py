"""Cross tables of all pairs: estimates, and the noise that is left in them, against least squares with all constraints."""

import numpy as np
import pytest

from vips.models.tables.pairs import Pairs
from vips.models.tables.regression import linear

SIZES = np.array([2, 3, 4, 2])
COLUMN = np.repeat(np.arange(4), SIZES)
SAME = COLUMN[:, None] == COLUMN
CELLS = [(a, b) for a in range(11) for b in range(a, 11) if a == b or not SAME[a, b]]
rng = np.random.default_rng(0)
WEIGHTS = np.array([1.0, 1.5, 0.7, 2.0])
VAR = 0.5 / np.outer(WEIGHTS, WEIGHTS) * (1.0 + np.eye(4))


def indicators(n):
    rows = np.zeros((n, 11))
    for first, size in zip(np.cumsum(SIZES) - SIZES, SIZES, strict=True):
        rows[np.arange(n), first + rng.integers(0, size, n)] = 1.0
    return rows


def flat(table):
    return np.array([table[cell] for cell in CELLS])


def by_least_squares(noisy):
    """Cells that agree in all margins, with the least squares of what they miss the noisy ones by, and their covariance."""
    variance = np.diag([VAR[COLUMN[a], COLUMN[b]] for a, b in CELLS])
    place = {cell: i for i, cell in enumerate(CELLS)}
    constraints = []
    for a in range(11):
        for k in set(range(4)) - {COLUMN[a]}:
            row = np.zeros(len(CELLS))
            row[place[a, a]] = -1.0
            for b in np.flatnonzero(k == COLUMN):
                row[place[min(a, b), max(a, b)]] = 1.0
            constraints.append(row)
    A = np.array(constraints)
    gain = variance @ A.T @ np.linalg.pinv(A @ variance @ A.T) @ A
    return flat(noisy) - gain @ flat(noisy), variance - gain @ variance


NOISY = indicators(300).T @ indicators(300) + rng.normal(0.0, 5.0, (11, 11))
NOISY = 0.5 * (NOISY + NOISY.T)


def test_tables_are_those_of_least_squares_under_all_constraints():
    pairs = Pairs.of(NOISY, COLUMN, VAR, 9.0)
    cells, covariance = by_least_squares(NOISY)
    np.testing.assert_allclose(flat(pairs.table), cells, atol=1e-9)
    assert (pairs.table[SAME & ~np.eye(11, dtype=bool)] == 0.0).all()
    np.testing.assert_allclose(pairs.table.sum(axis=1), 4 * pairs.margins)
    of_margins = [CELLS.index((a, a)) for a in range(11)]
    np.testing.assert_allclose(pairs.margin_std(), 3.0 * np.sqrt(np.diag(covariance)[of_margins]))


def test_noise_in_sums_of_pairs_is_as_stated():
    pairs, (_, covariance) = Pairs.of(NOISY, COLUMN, VAR, 9.0), by_least_squares(NOISY)
    left, right = rng.normal(size=(2, 5, 11))
    sums = [left[:, a] * right[:, b] + (a != b) * left[:, b] * right[:, a] for a, b in CELLS]
    expected = 9.0 * np.array(sums).T @ covariance @ np.array(sums)
    np.testing.assert_allclose(pairs.covariance(left, right), expected, rtol=1e-9)
    weights = np.zeros((11, 11))
    weights[np.ix_(COLUMN == 1, COLUMN == 2)] = rng.normal(size=(3, 4))
    both = flat(weights + weights.T)
    expected = 9.0 * both @ covariance @ both
    assert pairs.variance_of(1, 2, weights[np.ix_(COLUMN == 1, COLUMN == 2)]) == pytest.approx(expected)
    np.testing.assert_allclose(pairs.variances(left, right), np.diag(pairs.covariance(left, right)))


def test_tables_without_noise_are_counts_and_regressions_least_squares():
    H = indicators(500)
    pairs = Pairs.of(H.T @ H, COLUMN, VAR, 0.0)
    np.testing.assert_allclose(pairs.table, H.T @ H, atol=1e-9)
    rows, target = np.zeros((3, 11)), np.where(COLUMN == 2, rng.normal(size=11), 0.0)
    rows[0, COLUMN == 0], rows[1, COLUMN == 1] = rng.normal(size=2), rng.normal(size=3)
    rows[-1] = 0.25
    rows[:-1] -= (rows[:-1] @ pairs.margins / 500)[:, None] * (np.array([[0], [1]]) == COLUMN)
    X, y = H @ rows.T, H @ target
    beta, _, _, _ = np.linalg.lstsq(X, y, rcond=None)
    effects = linear(pairs, rows, [0, 1], target, 2)
    deviations = np.sqrt(np.diag(np.linalg.inv(X.T @ X)) * np.mean((y - X @ beta) ** 2))
    assert (
        np.abs(effects.estimate - beta) < 0.05 * deviations
    ).all()  # the prior is that of an effect of the target's size
    np.testing.assert_allclose(np.sqrt(np.diag(effects.covariance)), deviations, rtol=0.1)
    assert not effects.is_hidden.any()


def test_limits_know_that_a_rare_category_varies_more():
    """Against the sandwich of the records: with equal variances its deviation would be half as large."""
    rare, n = rng.random(20_000) < 0.05, 20_000
    y = np.where(rng.random(n) < np.where(rare, 0.5, 0.05), 1, 0)
    H = np.zeros((n, 4))
    H[np.arange(n), rare.astype(int)] = H[np.arange(n), 2 + y] = 1.0
    pairs = Pairs.of(H.T @ H, np.array([0, 0, 1, 1]), np.ones((2, 2)), 0.0)
    rows = np.array([[-rare.mean(), 1.0 - rare.mean(), 0.0, 0.0], [0.5] * 4])
    effects = linear(pairs, rows, [0], np.array([0.0, 0.0, 0.0, 1.0]), 1)
    X = np.column_stack([rare - rare.mean(), np.ones(n)])
    left = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    inverse = np.linalg.inv(X.T @ X)
    sandwich = inverse @ (X.T * left**2) @ X @ inverse
    assert effects.covariance[0, 0] == pytest.approx(sandwich[0, 0], rel=0.05)
    assert effects.covariance[0, 0] > 2.0 * inverse[0, 0] * np.mean(left**2)


@pytest.mark.parametrize("n_columns", [1, 2])
def test_few_columns(n_columns):
    column = np.repeat(np.arange(n_columns), 3)
    counts = np.diag([4.0, 2.0, 1.0] * n_columns)
    if n_columns == 2:
        counts[:3, 3:] = counts[3:, :3] = np.diag([4.0, 2.0, 1.0])
    pairs = Pairs.of(counts, column, np.ones((n_columns, n_columns)), 1.0)
    np.testing.assert_allclose(pairs.table, counts, atol=1e-12)
    assert pairs.size == pytest.approx(7.0)
