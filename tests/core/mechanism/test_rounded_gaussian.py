"""The sampler of rounded Gaussian noise: its distribution, and that it is exact."""

from __future__ import annotations

import decimal
import inspect
import itertools
import math
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache, partial

import numba
import numpy as np
import pytest
import scipy.stats
from randomgen import AESCounter
from scipy.special import ndtr

from tests.memory import peak_of
from tests.mutants import check_notices
from vips.core.mechanism import rounded_gaussian as module
from vips.core.mechanism.rounded_gaussian import Uniform, rounded_gaussian

LARGEST_WORD = 2**64 - 1
EXPONENTS = (1, 3, 20, 29)
N_BITS = 400  # precision of the oracle


# What a sample should look like ------------------------------------------------------------------------------------------


def pmf(sigma: float, largest: int) -> np.ndarray:
    """Φ((z + ½)/σ) - Φ((z - ½)/σ) for z from -``largest`` to ``largest``, from the tails of the negative side."""
    negative = np.diff(ndtr((np.arange(-largest, 2) - 0.5) / sigma))  # up to z = 0
    return np.concatenate([negative, negative[-2::-1]])


def misfit(chunks: Iterable[np.ndarray], n: int, sigma: float) -> float:
    """Smallest p-value of: chi-square of every single integer, variance, mean; of ``n`` samples in all."""
    largest = next(z for z in range(100 * math.ceil(sigma)) if n * pmf(sigma, z)[0] < 50.0) - 1
    expected = n * pmf(sigma, largest)
    tail = n * ndtr(-(largest + 0.5) / sigma)
    expected = np.concatenate([[tail], expected, [tail]])
    observed, total, squares = np.zeros(len(expected), np.int64), 0, 0.0
    for samples in chunks:
        clipped = np.clip(samples, -largest - 1, largest + 1)
        observed += np.bincount(clipped + largest + 1, minlength=len(expected))
        total, squares = total + int(samples.sum()), squares + float(np.square(samples / sigma).sum())
    assert observed.sum() == n
    chi_square = np.sum((observed - expected) ** 2 / expected)
    variance = (squares / n - 1.0 - 1.0 / (12.0 * sigma**2)) * math.sqrt(n / 2.0)
    mean = total / sigma / math.sqrt(n)
    return min(
        scipy.stats.chi2.sf(chi_square, len(expected) - 1),
        2.0 * scipy.stats.norm.sf(abs(variance)),
        2.0 * scipy.stats.norm.sf(abs(mean)),
    )


def misfit_of_the_sampler(exponent: int, n: int = 2_000_000, n_chunks: int = 1, key: int = 5) -> float:
    bits = AESCounter(key=key)
    chunks = (rounded_gaussian(n // n_chunks, 2**exponent, bits) for _ in range(n_chunks))
    return misfit(chunks, n, 2.0**exponent)


@pytest.mark.parametrize(
    ("exponent", "n_chunks"),
    [(1, 1), (2, 1), (3, 1), *(pytest.param(e, 50, marks=pytest.mark.slow) for e in (1, 4, 10))],
)
def test_law_of_every_integer(exponent, n_chunks):
    assert misfit_of_the_sampler(exponent, 2_000_000 * n_chunks, n_chunks, exponent) > 1e-3
    samples = rounded_gaussian(7, 2**exponent, AESCounter(key=exponent))
    assert (samples.shape, samples.dtype) == ((7,), np.int64)


@pytest.mark.parametrize("exponent", [20, 29])
def test_fine_lattice_looks_normal(exponent):
    n = 1_000_000
    samples = rounded_gaussian(n, 2**exponent, AESCounter(key=exponent))
    scaled = samples / 2.0**exponent
    for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0), (6, 15.0)):
        spread = math.sqrt(scipy.stats.norm.moment(2 * power) - moment**2)
        assert abs(np.mean(scaled**power) - moment) < 4.0 * spread / math.sqrt(n)
    assert scipy.stats.kstest(scaled, "norm").pvalue > 1e-3
    for shift in (0, exponent - 12):  # bits far below σ are jointly fair coins
        low = np.bincount((samples >> shift) & 255, minlength=256)
        assert scipy.stats.chisquare(low).pvalue > 1e-3
    for feature in (scaled, np.abs(scaled)):
        assert abs(np.corrcoef(feature[1:], feature[:-1])[0, 1]) < 4.0 / math.sqrt(n)


def mutated(function, old: str, new: str):
    """The function with one piece of its source replaced."""
    source = inspect.getsource(function)
    assert source.count(old) == 1
    namespace = dict(vars(module))
    exec(source[source.index("def ") :].replace(old, new), namespace)
    return namespace[function.__name__]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ 1) >> 1)", ") >> 1)"),  # truncation in place of rounding
        ("+ 1) >> 1)", "+ 2) >> 1)"),  # rounding up
        ("np.float64(fraction)", "np.float64(fraction >> beyond << beyond)"),  # further bits are ignored
        ("elif gap > 0.0", "elif gap > 0.0 or (magnitude == 0 and negative)"),  # 0 from one sign only
        ("2.0 * k + x", "k + x"),  # γ = x (k + x) / 2
        ("gap > 0.0", "gap < 0.0"),
        ("k = first", "k = 1 + first"),
        ("words[i, 1] > low_63", "fraction >> np.uint64(62) > np.uint64(0)"),  # the sign is a bit of x
    ],
)
def test_law_notices_a_broken_attempt(old, new, monkeypatch):
    monkeypatch.setattr(module, "_attempts", numba.njit(mutated(module._attempts.py_func, old, new)))
    assert misfit_of_the_sampler(1, 500_000) < 1e-9


@pytest.mark.parametrize("exponent", [1, 3])
def test_law_notices_a_cut_tail(exponent, monkeypatch):
    thresholds = module._THRESHOLDS.copy()
    thresholds[2:] = LARGEST_WORD
    monkeypatch.setattr(module, "_THRESHOLDS", thresholds)
    assert misfit_of_the_sampler(exponent) < 1e-9


@pytest.mark.parametrize("factor", [0.995, 1.005])
@pytest.mark.parametrize("sigma", [2.0, 8.0])
def test_law_notices_half_a_percent_of_sigma(sigma, factor):
    samples = np.rint(np.random.default_rng(0).normal(0.0, sigma * factor, 2_000_000)).astype(int)
    assert misfit([samples], 2_000_000, sigma * factor) > 1e-3
    assert misfit([samples], 2_000_000, sigma) < 1e-9


def test_law_notices_a_rounded_gaussian():
    """P(z) ∝ exp(-z²/2σ²): nearest to the rounded Gaussian in the middle, and 1/12 less in variance."""
    weights = np.exp(-0.125 * np.arange(-60, 61) ** 2)
    samples = np.random.default_rng(0).choice(np.arange(-60, 61), 2_000_000, p=weights / weights.sum())
    assert misfit([samples], 2_000_000, 2.0) < 1e-9


# Exactness: an oracle in whole numbers -----------------------------------------------------------------------------------


def exp_minus_between(gamma: Fraction) -> tuple[int, int]:
    """Whole numbers around 2^N_BITS exp(-γ): the alternating series at γ / 2^s ≤ 1, squared s times.

    Each of 110 terms is off by less than 3 units of 2^-(N_BITS + 64), and the next one is below a unit.
    """
    halvings, unit = math.ceil(gamma).bit_length(), N_BITS + 64
    x = (gamma.numerator << unit) // (gamma.denominator << halvings)
    term = total = 1 << unit
    for i in range(1, 110):
        term = term * x // (i << unit)
        total += -term if i % 2 else term
    low, high = (total - 1000) >> 64, ((total + 1000) >> 64) + 1
    for _ in range(halvings):
        low, high = low * low >> N_BITS, -(-high * high >> N_BITS)
    return low, high


@lru_cache
def cdf_between(k: int) -> tuple[Fraction, Fraction]:
    """Fractions around F(k); terms from i = 24 on are together below 2^-N_BITS."""
    terms = [exp_minus_between(Fraction(i * i, 2)) for i in range(24)]
    part = [sum(term[side] for term in terms[: k + 1]) for side in (0, 1)]
    whole = sum(term[0] for term in terms), sum(term[1] for term in terms) + 1
    return Fraction(part[0], whole[1]), Fraction(part[1], whole[0])


def gamma_of(k: int, bits: int, n_bits: int = 63) -> Fraction:
    x = Fraction(bits, 2**n_bits)
    return x * (2 * k + x) / 2


def boundary_of(k: int, fraction: int) -> int:
    """⌊2⁶⁴ p⌋ at the first 63 bits of x."""
    return exp_minus_between(gamma_of(k, fraction))[0] >> N_BITS - 64


def cases(n: int, seed: int = 0):
    """(exponent, k, bits of x), the ends of every range included."""
    rng = np.random.default_rng(seed)
    for exponent in EXPONENTS:
        half = 2 ** (62 - exponent)  # of a unit of the lattice
        for k in (0, 1, 9):
            for fraction in (0, 1, half - 1, half, 2**62, 2**63 - half - 1, 2**63 - half, 2**63 - 1):
                yield exponent, k, fraction
        for _ in range(n):
            yield exponent, int(rng.integers(10)), int(rng.integers(2**63))


def rounded(k: int, fraction: int, exponent: int) -> int:
    """Halves away from zero: x is above its first 63 bits, but for probability 0."""
    return k * 2**exponent + math.floor(Fraction(fraction, 2 ** (63 - exponent)) + Fraction(1, 2))


def word_of(k: int) -> int:
    """A first word that decides on k without further words."""
    below = [0, *(int(threshold) + 1 for threshold in module._THRESHOLDS)]
    return below[k]


def next_of(words: list[int]) -> int:
    assert words, "no further word is needed"
    return words.pop(0)


no_more = partial(next_of, [])


def test_thresholds_are_the_floors_of_the_exact_numbers():
    for k, threshold in enumerate(module._THRESHOLDS.tolist()):
        low, high = cdf_between(k)
        assert threshold < low * 2**64 <= high * 2**64 < threshold + 1
    assert cdf_between(10)[0] * 2**64 > LARGEST_WORD == module._THRESHOLDS[-1]
    assert module._THRESHOLDS.dtype == np.uint64


@pytest.mark.parametrize("digits", [1, 20, 81, 110])
def test_enclosures_enclose_and_narrow(digits):
    slack = Fraction(1, 10 ** (digits - 1))
    for k in range(16):
        low, high = module._cdf(k, digits)
        assert low <= cdf_between(k)[0] <= cdf_between(k)[1] <= high < low + slack
    gammas = [gamma_of(k, fraction) for _, k, fraction in cases(10)]
    for gamma in [*gammas, Fraction(1, 2**70), Fraction(123456789, 1000), Fraction(1, 3)]:
        low, high = module._exp_minus(gamma, digits)
        exact = [Fraction(end, 2**N_BITS) for end in exp_minus_between(gamma)]
        assert low <= exact[0] <= exact[1] <= high < low + slack


@pytest.mark.parametrize("digits", [81, 102, 123])
def test_the_acceptance_is_enclosed_for_every_x_with_the_known_bits(digits):
    for _, k, fraction in cases(10):
        x = Uniform(fraction, 63, lambda: LARGEST_WORD // 3)
        low, high = module._acceptance(k, x, digits)
        assert x.n_bits == 63 + 64 * ((digits - 81) // 21)
        assert low <= Fraction(exp_minus_between(gamma_of(k, x.bits + 1, x.n_bits))[1], 2**N_BITS)
        assert high >= Fraction(exp_minus_between(gamma_of(k, x.bits, x.n_bits))[0], 2**N_BITS)
        assert high - low < Fraction(12, 2**x.n_bits)


def test_enclosures_do_not_depend_on_the_programs_decimal_context():
    expected = module._scaled_exp(Fraction(1, 3), 81)
    with decimal.localcontext(prec=3, rounding=decimal.ROUND_UP, Emax=9, Emin=-9) as context:
        context.traps[decimal.Inexact] = True
        assert module._scaled_exp(Fraction(1, 3), 81) == expected


def test_words_are_read_until_the_acceptance_is_decided():
    """All bits of x are given, and those of U agree with p(x) up to one word: that word decides, and U and x take turns."""
    rng = np.random.default_rng(3)
    for exponent, k, fraction in cases(5):
        further = [int(rng.integers(2**64, dtype=np.uint64)) for _ in range(3)]
        x = sum(word << 64 * (2 - i) for i, word in enumerate(further)) | fraction << 192
        low, high = exp_minus_between(gamma_of(k, x, 255))
        assert low >> N_BITS - 256 == high >> N_BITS - 256
        words = [low >> N_BITS - 64 * i & LARGEST_WORD for i in (1, 2, 3, 4)]  # p in binary
        for place, change in itertools.product(range(4), (-1000, 1000)):
            if not 0 <= words[place] + change <= LARGEST_WORD:
                continue
            first, *others = [*words[:place], words[place] + change]
            stream = [word for pair in zip(others, further, strict=False) for word in pair]
            value = module._reference_attempt([word_of(k), fraction, first], exponent, partial(next_of, stream))
            assert value == (rounded(k, fraction, exponent) if change < 0 else None)
            assert stream == []


@pytest.mark.parametrize("t", [Fraction(3, 8), Fraction(5, 8)])
def test_uniform_never_decides_inside_an_enclosure(t):
    uniform = Uniform(2**63, 64, lambda: 0)  # U = 1/2

    def enclosure(digits: int) -> tuple[Fraction, Fraction]:
        return (Fraction(1, 4), Fraction(3, 4)) if uniform.n_bits < 192 else (t, t)

    assert uniform.is_below(enclosure) == (t > Fraction(1, 2))
    assert uniform.n_bits == 192


def test_reference_agrees_with_the_oracle_beside_every_boundary():
    for exponent, k, fraction in cases(40):
        boundary = boundary_of(k, fraction)
        for gap in (-1000, -40, 40, 1000):  # the bits of x that are not known move p by less than 24 units of U
            if 0 <= boundary + gap <= LARGEST_WORD:
                value = module._reference_attempt([word_of(k), fraction, boundary + gap], exponent, no_more)
                assert value == (rounded(k, fraction, exponent) if gap < 0 else None)


def test_first_word_on_a_threshold_takes_further_words():
    for k, threshold in enumerate(module._THRESHOLDS.tolist()):
        assert module._reference_attempt([threshold, 0, 0], 1, lambda: 0) == 2 * k
        if k < 9:
            assert module._reference_attempt([threshold, 0, 0], 1, lambda: LARGEST_WORD) == 2 * (k + 1)
    stream = iter([LARGEST_WORD, 0])  # U = 1 - 2⁻¹²⁸: no largest k
    assert module._reference_attempt([LARGEST_WORD, 2**63, 0], 29, partial(next, stream)) == -13 * 2**29
    assert cdf_between(12)[1] < 1 - Fraction(1, 2**128) < cdf_between(13)[0]


def test_words_of_zeros_and_of_ones_are_decided():
    assert module._reference_attempt([0, 0, 0], 4, no_more) == 0
    stream = [LARGEST_WORD, 0, LARGEST_WORD - 1, 0]  # U < 1 - 2⁻¹⁹² < p, since x < 2⁻¹⁹¹
    assert module._reference_attempt([0, 0, LARGEST_WORD], 4, partial(next_of, stream)) == 0
    assert stream == []
    stream = [LARGEST_WORD, 2**63, LARGEST_WORD, 0]  # p < 1 - 2⁻¹³⁰ < U, since x ≥ 2⁻⁶⁴
    assert module._reference_attempt([0, 0, LARGEST_WORD], 4, partial(next_of, stream)) is None
    assert stream == []
    assert module._reference_attempt([0, LARGEST_WORD, 0], 4, no_more) == -16
    assert module._reference_attempt([0, LARGEST_WORD, LARGEST_WORD], 4, no_more) is None


def slow_path_truncates(patch):
    patch.setattr(module, "_reference_attempt", mutated(module._reference_attempt, "+ 1) >> 1", ") >> 1"))


def x_ends_with_its_first_bits(patch):
    patch.setattr(module, "_acceptance", lambda k, x, digits: module._exp_minus(gamma_of(k, x.bits, x.n_bits), digits))


def x_is_drawn_anew_for_the_acceptance(patch):
    original = module._acceptance
    patch.setattr(module, "_acceptance", lambda k, x, digits: original(k, Uniform(x.more() >> 1, 63, x.more), digits))


def undecided_is_rejected(patch):
    patch.setattr(Uniform, "is_below", lambda self, enclosure: self.ends()[1] <= enclosure(self.digits)[0])


@pytest.mark.parametrize(
    "mutant",
    [slow_path_truncates, x_ends_with_its_first_bits, x_is_drawn_anew_for_the_acceptance, undecided_is_rejected],
)
def test_a_broken_slow_path_is_noticed(mutant, monkeypatch):
    check_notices(test_words_are_read_until_the_acceptance_is_decided, mutant, monkeypatch)


# The fast path -----------------------------------------------------------------------------------------------------------


def fast(words, exponent: int, margin: float = module._MARGIN) -> tuple[np.ndarray, np.ndarray]:
    words = np.array(words, dtype=np.uint64).reshape(-1, 3)
    values, states = np.full(len(words), 12345), np.full(len(words), 99, np.uint8)
    module._attempts(words, exponent, margin, module._THRESHOLDS, module._FIRST, values, states)
    return values, states


def assert_same_as_reference(words, exponent: int, margin: float = module._MARGIN) -> np.ndarray:
    """Every decided attempt equals the reference's, which needs no further word; returns the states."""
    values, states = fast(words, exponent, margin)
    for attempt, value, state in zip(words, values.tolist(), states.tolist(), strict=True):
        if state != module._UNDECIDED:
            expected = module._reference_attempt([int(word) for word in attempt], exponent, no_more)
            assert (value if state == module._ACCEPTED else None) == expected
    return states


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_fast_path_is_the_reference_on_random_words(exponent):
    words = AESCounter(key=exponent).random_raw(6000).reshape(-1, 3)
    shifts = np.arange(len(words[::3]), dtype=np.uint64) % np.uint64(60)
    words[::3, 0] = np.uint64(LARGEST_WORD) - (words[::3, 0] >> shifts)  # k up to 9
    states = assert_same_as_reference(words, exponent)
    np.testing.assert_array_equal(states == module._UNDECIDED, np.isin(words[:, 0], module._THRESHOLDS))
    assert 300 < np.sum(states == module._ACCEPTED) < 1900


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_the_sign_decides_nothing_else(exponent):
    words = AESCounter(key=exponent).random_raw(6000).reshape(-1, 3)
    words[:3, 1] = 0, 2**63 - 1, 2 ** (62 - exponent)
    (values, states), (others, other_states) = fast(words, exponent), fast(words ^ np.uint64([0, 2**63, 0]), exponent)
    np.testing.assert_array_equal(states, other_states)
    np.testing.assert_array_equal(values, -others)
    assert np.sum(states == module._ACCEPTED) > 1000


def test_fast_path_leaves_thresholds_to_the_reference():
    for k, threshold in enumerate(module._THRESHOLDS.tolist()):
        beside = [(word, 7 * 2**60, 0) for word in (threshold - 1, threshold + 1) if word <= LARGEST_WORD]
        beside = [attempt for attempt in beside if attempt[0] not in module._THRESHOLDS.tolist()]
        states = assert_same_as_reference(beside, 3)
        assert np.all(states == module._ACCEPTED)
        values, _ = fast(beside, 3)
        assert set((values // 8).tolist()) <= {k, k + 1}
        assert fast([(threshold, 7, 0), (threshold, 7, LARGEST_WORD)], 3)[1].tolist() == [module._UNDECIDED] * 2


def test_fast_path_leaves_what_is_within_the_margin():
    margin, rounding = 2**24, 2**14
    assert margin == module._MARGIN
    for exponent, k, fraction in cases(60, seed=1):
        boundary = boundary_of(k, fraction)
        for sign in (0, 2**63):
            outside = [boundary + side * gap for side in (-1, 1) for gap in (margin + rounding, 2**30, 2**50)]
            inside = [boundary + side * gap for side in (-1, 1) for gap in (0, 1, 1000, margin - rounding)]
            outside = [(word_of(k), sign + fraction, word) for word in outside if 0 <= word <= LARGEST_WORD]
            inside = [(word_of(k), sign + fraction, word) for word in inside if 0 <= word <= LARGEST_WORD]
            assert np.all(assert_same_as_reference(outside, exponent) != module._UNDECIDED)
            assert np.all(fast(inside, exponent)[1] == module._UNDECIDED)


def test_margin_covers_the_rounding_a_thousandfold():
    for exponent, k, fraction in cases(150, seed=2):
        words = [boundary_of(k, fraction) + gap for gap in (-(2**14), 2**14)]
        words = [(word_of(k), fraction, word) for word in words if 0 <= word <= LARGEST_WORD]
        assert_same_as_reference(words, exponent, margin=0.0)


# The stream --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_slow_path_alone_gives_the_same_samples_from_the_same_words(exponent, monkeypatch):
    fast_bits, slow_bits = AESCounter(key=9), AESCounter(key=9)
    expected = rounded_gaussian(1000, 2**exponent, fast_bits)
    monkeypatch.setattr(module, "_MARGIN", math.inf)
    np.testing.assert_array_equal(rounded_gaussian(1000, 2**exponent, slow_bits), expected)
    assert slow_bits.random_raw() == fast_bits.random_raw()


class Script:
    """A generator that returns the given words."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def random_raw(self, size: int | None = None):
        if size is None:
            return self.words.pop(0)
        taken, self.words = self.words[:size], self.words[size:]
        return np.array(taken, dtype=np.uint64)


def test_words_are_used_in_order():
    on_threshold = int(module._THRESHOLDS[1])
    bits = Script(
        0, 0, LARGEST_WORD,  # within the margin of p = 1
        on_threshold, 3 * 2**61, 0,
        0, 2**63, 0,  # minus zero
        on_threshold, 2**63, 1,
        LARGEST_WORD - 2**62, 0,  # for the first attempt: U and x
        0, LARGEST_WORD,  # for the second and the fourth: k
    )  # fmt: skip
    assert rounded_gaussian(4, 4, bits).tolist() == [0, 7, 0, -8]
    assert bits.words == []
    bits = Script(
        0, 2**62, LARGEST_WORD, 0, 2**62, 0, word_of(9), 2**63 + 2**60, 0
    )  # rejected attempts are repeated in order
    assert rounded_gaussian(2, 8, bits).tolist() == [-73, 4]
    assert bits.words == []


def test_equal_keys_equal_samples_and_successive_calls_differ():
    bits = AESCounter(key=3)
    first, second = rounded_gaussian(100, 2**10, bits), rounded_gaussian(100, 2**10, bits)
    np.testing.assert_array_equal(first, rounded_gaussian(100, np.int64(2**10), AESCounter(key=3)))
    assert np.mean(first == second) < 0.1
    assert np.mean(first == rounded_gaussian(100, 2**10, AESCounter(key=4))) < 0.1


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 35])
def test_sizes_and_chunks(size, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 10)
    samples = rounded_gaussian(size, 2**29, AESCounter(key=6))
    assert samples.shape == (size,)
    assert len(np.unique(samples)) == size
    assert np.all(np.abs(samples) < 2**34)
    monkeypatch.setattr(module, "_CHUNK", 100)
    assert size > 0 or misfit_of_the_sampler(1, 100_000) > 1e-3  # chunks follow the law


def test_memory_does_not_grow_with_size():
    peak = peak_of(lambda: rounded_gaussian(1_500_000, 8, AESCounter(key=1)))
    assert peak < 1_500_000 * 8 + 6 * 2**20


@pytest.mark.parametrize("steps", [0, 1, True, -2, 3, 1000, 2**30, 2**64, 2.0, math.nan, "8", None])
def test_other_steps_are_refused(steps):
    with pytest.raises(ValueError, match="power of two between"):
        rounded_gaussian(3, steps, AESCounter(key=1))
    with pytest.raises(ValueError, match="size"):
        rounded_gaussian(-1, 4, AESCounter(key=1))
