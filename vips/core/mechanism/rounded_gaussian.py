"""A Gaussian rounded to whole numbers, sampled exactly: no rounding of the computer changes a probability.

Noise in floating point is normal only up to rounding, and a guarantee that is proved for real numbers does not carry over
(Mironov 2012, "On significance of the least significant bits for differential privacy"). The rounded Gaussian has whole values,
which can be drawn exactly::

    z = rint(g),  g ~ N(0, σ²)        P(z) = Φ((z + ½)/σ) - Φ((z - ½)/σ)        σ = 2^m

An attempt is Algorithm N of Karney (2016), "Sampling exactly from the normal distribution"::

    k ≥ 0 with probability ∝ exp(-k²/2)        x uniform on [0, 1)        sign uniform
    accept with probability p = exp(-γ), γ = x (2k + x) / 2
    g = sign · 2^m (k + x)        z = sign · (k 2^m + rint(2^m x))

===========  ==========================  =============================================================================
symbol       name                        meaning
===========  ==========================  =============================================================================
σ = 2^m      ``noise_steps``             deviation of g; that of z is √(σ² + 1/12) to 30 digits
m            ``exponent``                1 … 29
k, x         ``k``, ``fraction``         whole and fractional part of abs(g) / σ; of x, the first 63 bits
z            ``values``                  the sample
F(k)         ``_cdf``                    P(at most k) in the first line of an attempt; ⌊2⁶⁴ F(k)⌋ is ``_THRESHOLDS[k]``
U            ``Uniform``                 a uniform real number, like x; a word is its first bits
===========  ==========================  =============================================================================

**Exact.** An accepted triple has density ∝ ``exp(-k²/2) exp(-x(2k + x)/2) = exp(-(k + x)²/2)``: k + x is half-normal, and g is
normal. The first m + 1 bits of x decide its rounding, because a tie has probability 0; so z is exact if k and the acceptance
are. Zero comes with either sign, from all abs(g) < ½. Both decisions compare a uniform real U with a real number t: t = F(0),
F(1), … for k, t = p for the acceptance.

A word w says that ``w ≤ 2⁶⁴ U < w + 1``, and the bits X of x that ``X ≤ 2⁶³ x < X + 1``. The fast path (``_attempts``) decides
where that is enough, with a margin for all of its rounding, and leaves the rest, about one attempt in 10¹², to the slow path
(``_reference_attempt``). The slow path starts from the same words, encloses t between fractions, and draws further bits of U
and x until U is outside. Where both paths decide, they agree: the fast path changes only the speed.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from randomgen import AESCounter

from vips.core.exact.compiled import compiled

__all__ = ["Uniform", "rounded_gaussian"]

SMALLEST_EXPONENT, LARGEST_EXPONENT = 1, 29  # samples are far inside int64
_WORDS = 3  # of an attempt: k; sign and x; acceptance
_CHUNK = 2**16  # coordinates drawn together: words of 1.5 MiB
_ACCEPTED, _REJECTED, _UNDECIDED = 0, 1, 2

# The fast path compares w with 2⁶⁴ p in float64, where k ≤ 9. Bits of x beyond 63 move γ by less than (k + x) 2⁻⁶³ < 2⁻⁵⁹.
# x, the sum and the product are each rounded by a relative 2⁻⁵³ at most, which moves γ by 4γ 2⁻⁵³, and p by less than 2⁻⁵²;
# an exp that is off by 4 units in the last place, as the least exact of the vector forms are, moves it by 2⁻⁵¹; w as a float
# is off by 2⁻⁵⁴, its difference from p by 2⁻⁵³, and U from w by 2⁻⁶⁴. Together less than 2⁻⁵⁰ (times 2⁶⁴): a thousandth of
# the margin.
_MARGIN = 2.0**64 * 2.0**-40


def rounded_gaussian(size: int, noise_steps: int, bits: AESCounter) -> np.ndarray:
    """Independent samples of rint(g), g normal with mean 0 and standard deviation ``noise_steps``.

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
    - If the words are independent and uniform, the samples are independent and P(z) = Φ((z + ½)/σ) - Φ((z - ½)/σ): not up to
      rounding, and with no truncated tail.
    - Samples and the number of words used are a function of ``size``, ``noise_steps`` and the words alone, the same on every
      machine. Running time varies with rejections, hence with the words, never with data. The number of rejections is
      independent of the accepted samples.
    - Memory beyond the result does not grow with ``size``.

    Examples
    --------
    >>> rounded_gaussian(5, 1024, AESCounter(key=1)).tolist()
    [-51, 1632, 630, 55, 490]
    """
    exponent = _exponent(noise_steps)
    if size < 0:
        raise ValueError(f"`size` must not be negative, got {size!r}.")
    samples = np.empty(size, np.int64)
    for start in range(0, size, _CHUNK):
        chunk = samples[start : start + _CHUNK]
        chunk[:], rejected = _one_round(len(chunk), exponent, bits)
        while len(rejected):
            chunk[rejected], again = _one_round(len(rejected), exponent, bits)
            rejected = rejected[again]
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
    """Values of ``n_attempts`` attempts, and the places of those that are rejected."""
    words = bits.random_raw(_WORDS * n_attempts).reshape(n_attempts, _WORDS)
    values, states = np.empty(n_attempts, np.int64), np.empty(n_attempts, np.uint8)
    _attempts(words, exponent, _MARGIN, _THRESHOLDS, _FIRST, values, states)
    for i in np.flatnonzero(states == _UNDECIDED):
        value = _reference_attempt(words[i].tolist(), exponent, lambda: int(bits.random_raw()))
        states[i] = _REJECTED if value is None else _ACCEPTED
        values[i] = 0 if value is None else value
    return values, np.flatnonzero(states == _REJECTED)


# The fast path ---------------------------------------------------------------------------------------------------------


@compiled(nogil=True, error_model="numpy")
def _attempts(words, exponent, margin, thresholds, first, values, states):
    """Attempts on the rows of ``words``, shape (n, 3), uint64; fills the last two arguments.

    Words are compared with words only: with a signed integer they would be turned into floats.
    """
    sigma = np.int64(1) << np.int64(exponent)
    low_63, beyond = (np.uint64(1) << np.uint64(63)) - np.uint64(1), np.uint64(62 - exponent)
    for i in range(words.shape[0]):
        k = first[words[i, 0] >> np.uint64(56)]
        while words[i, 0] > thresholds[k]:
            k += 1
        fraction = words[i, 1] & low_63
        negative = words[i, 1] > low_63
        x = np.float64(fraction) * 2.0**-63
        gap = np.float64(words[i, 2]) - np.exp(-0.5 * (x * (2.0 * k + x))) * 18446744073709551616.0
        magnitude = k * sigma + ((np.int64(fraction >> beyond) + 1) >> 1)
        values[i] = -magnitude if negative else magnitude
        if words[i, 0] == thresholds[k] or abs(gap) <= margin:
            states[i] = _UNDECIDED
        elif gap > 0.0:
            states[i] = _REJECTED
        else:
            states[i] = _ACCEPTED


# The slow path ---------------------------------------------------------------------------------------------------------


class Uniform:
    """A uniform real number U in [0, 1). Comparisons draw as many of its bits as they need."""

    def __init__(self, bits: int, n_bits: int, more: Callable[[], int]) -> None:
        self.bits, self.n_bits, self.more = bits, n_bits, more  # bits ≤ 2^n_bits · U < bits + 1

    @property
    def digits(self) -> int:
        """Decimals with which it is compared: 10^-digits is less than 10^-60 of the last bit."""
        return 60 + 21 * math.ceil(self.n_bits / 64)

    def extend(self) -> None:
        """Draw another 64 bits."""
        self.bits, self.n_bits = self.bits << 64 | self.more(), self.n_bits + 64

    def ends(self) -> tuple[Fraction, Fraction]:
        """Fractions around U."""
        return Fraction(self.bits, 2**self.n_bits), Fraction(self.bits + 1, 2**self.n_bits)

    def is_below(self, enclosure: Callable[[int], tuple[Fraction, Fraction]]) -> bool:
        """Whether U < t, where ``enclosure(digits)`` is a pair around t, closer with more digits."""
        while True:
            low, high = enclosure(self.digits)
            least, most = self.ends()
            if most <= low:
                return True
            if least >= high:
                return False
            self.extend()


def _reference_attempt(words: Sequence[int], exponent: int, more: Callable[[], int]) -> int | None:
    """One attempt from three words: z, or None if it is rejected. ``more()`` is a further word, called only if needed."""
    whole, x, uniform = Uniform(words[0], 64, more), Uniform(words[1] % 2**63, 63, more), Uniform(words[2], 64, more)
    k = 0
    while not whole.is_below(partial(_cdf, k)):
        k += 1
    rounded = ((x.bits >> (62 - exponent)) + 1) >> 1
    if not uniform.is_below(partial(_acceptance, k, x)):
        return None
    magnitude = k * 2**exponent + rounded
    return -magnitude if words[1] >= 2**63 else magnitude


def _acceptance(k: int, x: Uniform, digits: int) -> tuple[Fraction, Fraction]:
    """Fractions around exp(-x (2k + x) / 2): closer with more digits, for which further bits of x are drawn."""
    while x.digits < digits:
        x.extend()
    least, most = (end * (2 * k + end) / 2 for end in x.ends())
    return _exp_minus(most, digits)[0], _exp_minus(least, digits)[1]


def _exp_minus(gamma: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Fractions around exp(-γ), γ ≥ 0, 2·10^-digits apart."""
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
# decided: it is at least ⌊2⁶⁴ F(k - 1)⌋ + 1, and below ⌊2⁶⁴ F(k)⌋ by at least one. The search for
# k begins at the least one of all words with the same first byte.
_THRESHOLDS = np.array([int(_cdf(k, 80)[0] * 2**64) for k in range(10)], dtype=np.uint64)
_FIRST = np.searchsorted(_THRESHOLDS, np.arange(256, dtype=np.uint64) << np.uint64(56))
