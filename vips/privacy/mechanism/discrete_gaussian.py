"""The discrete Gaussian, sampled exactly: no rounding changes a probability.

Noise in floating point is normal only up to rounding, and a guarantee that is proved for real numbers does not carry over
(Mironov 2012, "On significance of the least significant bits for differential privacy"). Noise in whole numbers can be
drawn exactly (Canonne, Kamath and Steinke 2020, "The discrete Gaussian for differential privacy"). The law, on integers z::

    P(z) ∝ exp(-z² / 2σ²)        σ = 2^m

An attempt, after Algorithm D of Karney (2016), "Sampling exactly from the normal distribution", with ``x = j / 2^m``::

    k ≥ 0 with probability ∝ exp(-k²/2)        j uniform on 0 … 2^m - 1        sign uniform
    reject (k, j, sign) = (0, 0, -)            accept with probability p = exp(-γ), γ = x (2k + x) / 2
    z = sign · (k 2^m + j)

===========  ==========================  =============================================================================
symbol       name                        meaning
===========  ==========================  =============================================================================
σ = 2^m      ``noise_steps``             parameter of the law, and its standard deviation to 30 digits
m            ``exponent``                1 … 29
k, j, z      ``k``, ``j``, ``values``    whole and fractional part (2^m times) of abs(z) / σ; the sample
γ            ``gamma``                   j (2k 2^m + j) / 2^(2m+1), a rational number
F(k)         ``_cdf``                    P(at most k) in the first line of an attempt; ⌊2⁶⁴ F(k)⌋ is ``_THRESHOLDS[k]``
U            ``Uniform``                 a uniform real number; one 64-bit word is its first 64 bits
===========  ==========================  =============================================================================

**Exact.** An accepted triple has probability ∝ ``exp(-k²/2) exp(-x(2k + x)/2) = exp(-(k + x)²/2) = exp(-z²/2σ²)``. Every
z ≠ 0 comes from one triple, and so does 0, because (0, 0, -) is rejected. So the law is exact if k and the acceptance are
exact. Both compare a uniform real U with a real number t: t = F(0), F(1), … for k, t = p for the acceptance.

A word w says that ``w ≤ 2⁶⁴ U < w + 1``. The fast path (``_attempts``) decides where that is enough, with a margin for all of
its rounding, and leaves the rest, about one attempt in 10¹², to the slow path (``_reference_attempt``). The slow path
starts from the same words, encloses t between fractions, and draws further bits of U until U is outside. Where both paths
decide, they agree: the fast path changes only the speed.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial

import numba
import numpy as np
from randomgen import AESCounter

__all__ = ["Uniform", "discrete_gaussian"]

SMALLEST_EXPONENT, LARGEST_EXPONENT = 1, 29  # 2σ (k + 1) is exact in float64, and samples are far inside int64
_WORDS = 3  # of an attempt: k; sign and j; acceptance
_CHUNK = 2**16  # coordinates drawn together: words of 1.5 MiB
_ACCEPTED, _REJECTED, _UNDECIDED = 0, 1, 2

# The fast path compares w with 2⁶⁴ p in float64, where k ≤ 9. γ is rounded once (the product; the rest of it is exact), by
# γ 2⁻⁵³ at most, which moves p by less than 2⁻⁵⁴; an exp that is off by 4 units in the last place, as the least exact of the
# vector forms are, moves it by 2⁻⁵¹; w as a float is off by 2⁻⁵⁴, its difference from p by 2⁻⁵³, and U from w by 2⁻⁶⁴.
# Together less than 2⁻⁵⁰ (times 2⁶⁴): a thousandth of the margin.
_MARGIN = 2.0**64 * 2.0**-40


def discrete_gaussian(size: int, noise_steps: int, bits: AESCounter) -> np.ndarray:
    """Independent samples of the discrete Gaussian on the integers, P(z) ∝ exp(-z² / 2 ``noise_steps``²).

    Parameters
    ----------
    size : int
    noise_steps : int
        σ = 2^m with 1 ≤ m ≤ 29.
    bits : AESCounter
        Source of 64-bit words (``random_raw``); advanced by as many as are used.

    Returns
    -------
    ndarray of shape (size,), int64

    Raises
    ------
    ValueError
        If ``noise_steps`` is not such a power of two, or ``size`` is negative.

    Guarantees
    ----------
    - If the words are independent and uniform, the samples are independent and their law is the discrete Gaussian: not
      up to rounding, and with no truncated tail.
    - Samples and the number of words used are a function of ``size``, ``noise_steps`` and the words alone, the same on every
      machine. Running time varies with rejections, hence with the words, never with data. The number of rejections is
      independent of the accepted samples.
    - Memory beyond the result does not grow with ``size``.

    Examples
    --------
    >>> discrete_gaussian(5, 1024, AESCounter(key=1)).tolist()
    [-955, 1392, 560, -1704, 495]
    """
    exponent = _exponent(noise_steps)
    if size < 0:
        raise ValueError(f"`size` must not be negative, got {size!r}.")
    samples = np.empty(size, np.int64)
    for start in range(0, size, _CHUNK):
        chunk = samples[start : start + _CHUNK]
        pending = np.arange(len(chunk))
        while len(pending):
            values, accepted = _one_round(len(pending), exponent, bits)
            chunk[pending[accepted]] = values[accepted]
            pending = pending[~accepted]
    return samples


def _exponent(noise_steps: int) -> int:
    """m of ``noise_steps = 2^m``."""
    if isinstance(noise_steps, int | np.integer):
        exponent = int(noise_steps).bit_length() - 1
        if SMALLEST_EXPONENT <= exponent <= LARGEST_EXPONENT and noise_steps == 2**exponent:
            return exponent
    raise ValueError(
        f"`noise_steps` must be a power of two between 2**{SMALLEST_EXPONENT} and 2**{LARGEST_EXPONENT}, got {noise_steps!r}."
    )


def _one_round(n_attempts: int, exponent: int, bits: AESCounter) -> tuple[np.ndarray, np.ndarray]:
    """``n_attempts`` attempts: their values, and which of them are accepted."""
    words = bits.random_raw(_WORDS * n_attempts).reshape(n_attempts, _WORDS)
    values, states = np.empty(n_attempts, np.int64), np.empty(n_attempts, np.uint8)
    _attempts(words, exponent, _MARGIN, _THRESHOLDS, values, states)
    for i in np.flatnonzero(states == _UNDECIDED):
        value = _reference_attempt(words[i].tolist(), exponent, lambda: int(bits.random_raw()))
        states[i] = _REJECTED if value is None else _ACCEPTED
        values[i] = 0 if value is None else value
    return values, states == _ACCEPTED


# The fast path ---------------------------------------------------------------------------------------------------------


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _attempts(words, exponent, margin, thresholds, values, states):
    """Attempts on the rows of ``words``, shape (n, 3), uint64; fills the last two arguments.

    Words are compared with words only: with a signed integer they would be turned into floats.
    """
    sigma = np.int64(1) << np.int64(exponent)
    below_sigma = (np.uint64(1) << np.uint64(exponent)) - np.uint64(1)
    unit = 0.5 / (np.float64(sigma) * np.float64(sigma))  # 2^-(2m+1), exact
    for i in range(words.shape[0]):
        k, undecided = np.int64(0), False
        for threshold in thresholds:
            k += np.int64(words[i, 0] > threshold)
            undecided |= words[i, 0] == threshold
        j = np.int64(words[i, 1] & below_sigma)
        negative = (words[i, 1] >> np.uint64(63)) != np.uint64(0)
        gamma = np.float64(j) * np.float64(2 * k * sigma + j) * unit
        gap = np.float64(words[i, 2]) - np.exp(-gamma) * 18446744073709551616.0
        magnitude = k * sigma + j
        values[i] = -magnitude if negative else magnitude
        if undecided or abs(gap) <= margin:
            states[i] = _UNDECIDED
        elif gap > 0.0 or (magnitude == 0 and negative):
            states[i] = _REJECTED
        else:
            states[i] = _ACCEPTED


# The slow path ---------------------------------------------------------------------------------------------------------


class Uniform:
    """A uniform real number U in [0, 1). Each comparison draws as many of its bits as it needs."""

    def __init__(self, word: int, more: Callable[[], int]) -> None:
        self.known, self.n_bits, self.more = word, 64, more  # known ≤ 2^n_bits · U < known + 1

    def is_below(self, enclosure: Callable[[int], tuple[Fraction, Fraction]]) -> bool:
        """Whether U < t, where ``enclosure(digits)`` is a pair around t, closer with more digits."""
        while True:
            low, high = enclosure(60 + self.n_bits // 3)  # 2^-n_bits is more than 10^-(n_bits / 3)
            if self.known + 1 <= low * 2**self.n_bits:
                return True
            if self.known >= high * 2**self.n_bits:
                return False
            self.known, self.n_bits = self.known << 64 | self.more(), self.n_bits + 64


def _reference_attempt(words: Sequence[int], exponent: int, more: Callable[[], int]) -> int | None:
    """One attempt from three words: z, or None if it is rejected. ``more()`` is a further word, called only if needed."""
    whole, uniform = Uniform(words[0], more), Uniform(words[2], more)
    k = 0
    while not whole.is_below(partial(_cdf, k)):
        k += 1
    j, negative = words[1] % 2**exponent, words[1] >= 2**63
    gamma = Fraction(j * (2 * k * 2**exponent + j), 2 ** (2 * exponent + 1))
    if not uniform.is_below(partial(exp_minus, gamma)) or (k == j == 0 and negative):
        return None
    magnitude = k * 2**exponent + j
    return -magnitude if negative else magnitude


@lru_cache(maxsize=64)
def exp_minus(gamma: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Fractions around exp(-γ), γ ≥ 0, 2·10^-digits apart."""
    if gamma == 0:
        return Fraction(1), Fraction(1)
    scaled = _scaled_exp(gamma, digits)
    return Fraction(scaled - 1, 10**digits), Fraction(scaled + 1, 10**digits)


@lru_cache(maxsize=1024)
def _cdf(k: int, digits: int) -> tuple[Fraction, Fraction]:
    """Fractions around F(k) = Σ_{i ≤ k} exp(-i²/2) / Σ_i exp(-i²/2), about 10^-digits apart.

    In units of 10^-(digits + 4): each of n terms is off by less than 1, and those from n on, n² > 5 (digits + 5), are
    together less than 1.
    """
    n = math.isqrt(5 * (digits + 5)) + 1
    terms = [_scaled_exp(Fraction(i * i, 2), digits + 4) for i in range(n)]
    part, whole = sum(terms[: k + 1]), sum(terms)
    return Fraction(part - n, whole + n + 1), Fraction(part + n, whole - n)


def _scaled_exp(gamma: Fraction, digits: int) -> int:
    """10^digits exp(-γ) to within 1, γ ≥ 0.

    The ratio and ``Decimal.exp`` are correctly rounded to a relative δ = 10^-(digits + 4); the first moves exp(-γ) by at
    most δ γ exp(-γ) < δ, the second by at most δ, and rounding to a whole number by 1/2.
    """
    with decimal.localcontext(_context(digits + 5)):
        value = (decimal.Decimal(-gamma.numerator) / gamma.denominator).exp()
        return round(value.scaleb(digits))


def _context(digits: int) -> decimal.Context:
    """Decimal arithmetic with ``digits`` digits, whatever context the program has set."""
    return decimal.Context(
        prec=digits, rounding=decimal.ROUND_HALF_EVEN, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX,
        capitals=1, clamp=0, flags=[], traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow],
    )  # fmt: skip


# ⌊2⁶⁴ F(k)⌋ for k = 0 … 9; the next would equal the last, 2⁶⁴ - 1. A word above the first k of them and equal to none is
# decided: it is at least ⌊2⁶⁴ F(k - 1)⌋ + 1, and below ⌊2⁶⁴ F(k)⌋ by at least one.
_THRESHOLDS = np.array([int(_cdf(k, 80)[0] * 2**64) for k in range(10)], dtype=np.uint64)
