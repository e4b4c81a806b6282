"""Scores from a noisy histogram of risk and outcome, with intervals of noise and sampling.

    z = N + noise        N_yk   number of records with outcome y and a risk in bin k, Poisson(n π_yk);  noise of variance s²
    linear scores        t = Σ c_yk π_yk / Σ π_yk                          log loss, Brier score, share of errors
    AUC                  t = Σ π_1j K_jk π_0k / (Σ π_1j Σ π_0k)            K_jk ≈ P(a record of bin j is ranked above one of k)

T(t) = Σ (c - t) z, or Σ z_1j (K_jk - t) z_0k, has mean 0 at the true score, whatever the bins hold, and its variance has an
unbiased estimate that is quadratic in t. The interval is {t : T(t)² ≤ q² Var T(t)} (Fieller 1954): it holds for any model and
any outcome, and is everything there is where noise hides the score.

Bins lose nothing to second order: c_k less 1/24 of its second difference is the best weight of a bin of equal records, and with
K = 1 + 7/60 and 1 - 1/60 one and two bins apart, the first and third moment of K less a step vanish.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtri

__all__ = [
    "EDGES", "N_BINS", "WIDTH", "Estimate", "area_under_curve", "bins_in_use", "centres", "linear_score", "weights",
]  # fmt: skip

N_BINS, WIDTH = 24, 0.5  # of log odds, around 0
EDGES = expit(WIDTH * np.arange(1 - N_BINS // 2, N_BINS // 2))  # between bins, as probabilities
_BEYOND = (7.0 / 60.0, -1.0 / 60.0)  # of K, one and two bins apart
_PIECE = 3  # bins are left out by so many at a time
_LEAST_SIGNAL = 10.0  # number of records in units of its noise, from which on bins are left out


class Estimate(NamedTuple):
    """A score with its interval, which is the whole range of the score where noise hides it."""

    value: float
    lower: float
    upper: float
    is_hidden: bool = False


def centres() -> np.ndarray:
    """Log odds in the middle of each bin; the outermost bins hold everything beyond."""
    return WIDTH * (np.arange(N_BINS) - 0.5 * (N_BINS - 1))


def weights(name: str) -> np.ndarray:
    """c of a linear score: "log_loss", "brier", "outcome" (its share); shape (2, N_BINS), outcome 0 first."""
    x = WIDTH * (np.arange(-1, N_BINS + 1) - 0.5 * (N_BINS - 1))
    if name == "outcome":
        return np.repeat([[0.0], [1.0]], N_BINS, axis=1)
    score = {"log_loss": lambda x: np.logaddexp(0.0, x), "brier": lambda x: expit(x) ** 2}[name]
    c = np.stack([score(x), score(-x)])
    return c[:, 1:-1] - (c[:, 2:] - 2.0 * c[:, 1:-1] + c[:, :-2]) / 24.0


def linear_score(z: np.ndarray, variance: float, c: np.ndarray, highest: float, level: float) -> Estimate:
    """Σ c z / Σ z of the cells given, whose noise has this variance, with its interval in [0, highest]."""
    q, n, total = ndtri(0.5 + 0.5 * level) ** 2, z.sum(), (c * z).sum()
    # Var T = Σ (c - t)² (N + s²), by powers of t
    square = max((c * c * z).sum(), 0.0) + variance * (c * c).sum()
    cross = total + variance * c.sum()
    constant = max(n, 0.0) + variance * c.size
    return _estimate(total, n, (n * n - q * constant, n * total - q * cross, total**2 - q * square), highest)


def area_under_curve(z: np.ndarray, variance: float, level: float) -> Estimate:
    """AUC of neighbouring bins, shape (2, n_bins): the probability that a record with the outcome has the higher risk."""
    n_bins, q = z.shape[1], ndtri(0.5 + 0.5 * level) ** 2
    without, with_ = z
    if any(n <= 0.0 or n * n <= q * (n + variance * n_bins) for n in (without.sum(), with_.sum())):
        return Estimate(math.nan, 0.0, 1.0, True)  # there may be none of these
    kernel = np.tril(np.ones((n_bins, n_bins)), -1) + 0.5 * np.eye(n_bins)
    for lag, beyond in enumerate(_BEYOND, 1):
        kernel += beyond * (np.eye(n_bins, k=-lag) - np.eye(n_bins, k=lag))
    spread_without, spread_with = without + variance, with_ + variance

    def variance_at(t: float) -> float:
        difference = kernel - t
        by_rows, by_columns = (difference @ without) ** 2 @ spread_with, (with_ @ difference) ** 2 @ spread_without
        return by_rows + by_columns - spread_with @ difference**2 @ spread_without

    at = [variance_at(t) for t in (0.0, 0.5, 1.0)]
    square = 2.0 * (at[0] + at[2]) - 4.0 * at[1]
    slope = at[2] - at[0] - square
    n_pairs, won = with_.sum() * without.sum(), with_ @ kernel @ without
    quadratic = n_pairs**2 - q * square, n_pairs * won + 0.5 * q * slope, won**2 - q * at[0]
    return _estimate(won, n_pairs, quadratic, 1.0)


def _estimate(numerator: float, denominator: float, quadratic: tuple[float, float, float], highest: float) -> Estimate:
    """The ratio, and {t : a t² - 2 b t + c ≤ 0}, in [0, highest]."""
    a, b, c = map(float, quadratic)
    numerator, denominator = float(numerator), float(denominator)
    value = min(max(numerator / denominator, 0.0), highest) if denominator > 0.0 else math.nan
    if not (a > 0.0 and denominator > 0.0 and b * b >= a * c):
        return Estimate(value, 0.0, highest, True)
    half = math.sqrt(b * b - a * c)
    ends = [min(max(end, 0.0), highest) for end in ((b - half) / a, (b + half) / a)]
    return Estimate(value, *ends, ends == [0.0, highest])


def bins_in_use(z: np.ndarray, std: float) -> slice:
    """Bins at both ends whose numbers noise explains are left out: they hold next to nothing, and much of the noise.

    Only where the number of records is large beside its noise, and in pieces: a choice among many by noisy numbers would show
    in the scores.
    """
    by_bin = z.sum(axis=0)
    if by_bin.sum() < _LEAST_SIGNAL * std * math.sqrt(z.size):
        return slice(0, N_BINS)
    first, last = _n_empty(by_bin, std), N_BINS - _n_empty(by_bin[::-1], std)
    return slice(first, last) if last - first >= _PIECE else slice(0, N_BINS)


def _n_empty(by_bin: np.ndarray, std: float) -> int:
    """The number of first bins, a multiple of _PIECE, that together hold no more than the noise's standard deviation."""
    n_empty = 0
    for n in range(_PIECE, N_BINS, _PIECE):
        if by_bin[:n].sum() > std * math.sqrt(2 * n):
            break
        n_empty = n
    return n_empty
