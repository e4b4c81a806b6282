"""The sampler of discrete Gaussian noise: its distribution, and that it is exact."""

from __future__ import annotations

import decimal
import inspect
import math
from fractions import Fraction
from functools import lru_cache, partial

import numba
import numpy as np
import pytest
import scipy.stats
from randomgen import AESCounter

from tests.memory import peak_of
from vips.privacy.mechanism import discrete_gaussian as module
from vips.privacy.mechanism.discrete_gaussian import Uniform, discrete_gaussian

LARGEST_WORD = 2**64 - 1
EXPONENTS = (1, 3, 20, 29)
N_BITS = 400  # precision of the oracle


# What a sample should look like ------------------------------------------------------------------------------------------


def pmf(sigma: float, largest: int) -> np.ndarray:
    """P(z) for z from -``largest`` to ``largest``."""
    weights = np.exp(-0.5 * (np.arange(-60 * math.ceil(sigma), 60 * math.ceil(sigma) + 1) / sigma) ** 2)
    middle = len(weights) // 2
    return weights[middle - largest : middle + largest + 1] / weights.sum()


def misfit(samples: np.ndarray, sigma: float) -> float:
    """Smallest p-value of: chi-square of every single integer, variance, mean."""
    n = len(samples)
    largest = next(z for z in range(100 * math.ceil(sigma)) if n * pmf(sigma, z)[0] < 50.0) - 1
    expected = n * pmf(sigma, largest)
    inside = samples[np.abs(samples) <= largest]
    observed = np.bincount(inside + largest, minlength=2 * largest + 1)
    tails = np.array([np.sum(samples < -largest), np.sum(samples > largest)])
    tail = 0.5 * (n - expected.sum())
    chi_square = np.sum((observed - expected) ** 2 / expected) + np.sum((tails - tail) ** 2 / tail)
    variance = (np.mean(samples.astype(float) ** 2) / sigma**2 - 1.0) / math.sqrt(2.0 / n)
    mean = np.mean(samples) / sigma * math.sqrt(n)
    return min(
        scipy.stats.chi2.sf(chi_square, len(expected) + 1),
        2.0 * scipy.stats.norm.sf(abs(variance)),
        2.0 * scipy.stats.norm.sf(abs(mean)),
    )


@pytest.mark.parametrize("exponent", [1, 2, 3])
def test_law_of_every_integer(exponent):
    samples = discrete_gaussian(2_500_000, 2**exponent, AESCounter(key=exponent))
    assert samples.shape == (2_500_000,)
    assert samples.dtype == np.int64
    assert misfit(samples, 2.0**exponent) > 1e-3


@pytest.mark.parametrize("exponent", [20, 29])
def test_fine_lattice_looks_normal(exponent):
    n = 1_000_000
    samples = discrete_gaussian(n, 2**exponent, AESCounter(key=exponent))
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


def mutated(old: str, new: str):
    """The fast path with one piece of its source replaced."""
    source = inspect.getsource(module._attempts.py_func)
    assert source.count(old) == 1
    namespace = dict(vars(module))
    exec(source[source.index("def ") :].replace(old, new), namespace)
    return numba.njit(namespace["_attempts"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(magnitude == 0 and negative)", "False"),  # 0 from two triples
        ("2 * k * sigma + j", "k * sigma + j"),  # γ = x (k + x) / 2
        ("gap > 0.0", "gap < 0.0"),
        (">> np.uint64(63)", ">> np.uint64(0)"),  # the sign is a bit of j
    ],
)
def test_law_notices_a_broken_attempt(old, new, monkeypatch):
    monkeypatch.setattr(module, "_attempts", mutated(old, new))
    assert misfit(discrete_gaussian(2_000_000, 2, AESCounter(key=5)), 2.0) < 1e-9


@pytest.mark.parametrize("exponent", [1, 3])
def test_law_notices_a_cut_tail(exponent, monkeypatch):
    thresholds = module._THRESHOLDS.copy()
    thresholds[2:] = LARGEST_WORD
    monkeypatch.setattr(module, "_THRESHOLDS", thresholds)
    assert misfit(discrete_gaussian(2_000_000, 2**exponent, AESCounter(key=5)), 2.0**exponent) < 1e-9


@pytest.mark.parametrize("factor", [0.995, 1.005])
@pytest.mark.parametrize("sigma", [2.0, 8.0])
def test_law_notices_half_a_percent_of_sigma(sigma, factor):
    p = pmf(sigma * factor, 100)
    samples = np.random.default_rng(0).choice(np.arange(-100, 101), 2_000_000, p=p / p.sum())
    assert misfit(samples, sigma * factor) > 1e-3
    assert misfit(samples, sigma) < 1e-9


# Exactness: an oracle in whole numbers -----------------------------------------------------------------------------------


def exp_minus_between(gamma: Fraction) -> tuple[int, int]:
    """Whole numbers around 2^N_BITS exp(-γ): partial sums of the alternating series at γ / 2^s ≤ 1, squared s times."""
    halvings = math.ceil(gamma).bit_length()
    x, term, partial_sums = gamma / 2**halvings, Fraction(1), [Fraction(1)]
    for i in range(1, 90):
        term *= -x / i
        partial_sums.append(partial_sums[-1] + term)
    low, high = sorted(partial_sums[-2:])
    low, high = math.floor(low * 2**N_BITS), math.ceil(high * 2**N_BITS)
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


def gamma_of(k: int, j: int, exponent: int) -> Fraction:
    x = Fraction(j, 2**exponent)
    return x * (2 * k + x) / 2


def cases(n: int, seed: int = 0):
    """(exponent, k, j), the ends of every range included."""
    rng = np.random.default_rng(seed)
    for exponent in EXPONENTS:
        for k in (0, 1, 9):
            for j in {0, 1, 2**exponent // 2, 2**exponent - 1}:
                yield exponent, k, j
        for _ in range(n):
            yield exponent, int(rng.integers(10)), int(rng.integers(2**exponent))


def word_of(k: int) -> int:
    """A first word that decides on k without further words."""
    below = [0, *(int(threshold) + 1 for threshold in module._THRESHOLDS)]
    return below[k]


def no_more() -> int:
    raise AssertionError("no further word is needed")


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
    gammas = [gamma_of(k, j, exponent) for exponent, k, j in cases(10)]
    for gamma in [*gammas, Fraction(1, 2**70), Fraction(123456789, 1000), Fraction(1, 3)]:
        low, high = module.exp_minus(gamma, digits)
        exact = [Fraction(end, 2**N_BITS) for end in exp_minus_between(gamma)]
        assert low <= exact[0] <= exact[1] <= high < low + slack or (gamma == 0 and low == high == 1)


def test_enclosures_do_not_depend_on_the_programs_decimal_context():
    expected = module._scaled_exp(Fraction(1, 3), 81)
    with decimal.localcontext(prec=3, rounding=decimal.ROUND_UP, Emax=9, Emin=-9) as context:
        context.traps[decimal.Inexact] = True
        assert module._scaled_exp(Fraction(1, 3), 81) == expected


def test_uniform_reads_words_until_it_is_decided():
    for exponent, k, j in cases(5):
        low, high = exp_minus_between(gamma_of(k, j, exponent))
        if j == 0:
            assert Uniform(LARGEST_WORD, no_more).is_below(partial(module.exp_minus, Fraction(0)))
            continue
        assert low >> N_BITS - 256 == high >> N_BITS - 256
        words = [low >> N_BITS - 64 * i & LARGEST_WORD for i in (1, 2, 3, 4)]  # p in binary
        for place in range(4):
            for change in (-1, 1):
                if not 0 <= words[place] + change <= LARGEST_WORD:
                    continue
                first, *others = [*words[:place], words[place] + change]
                rest = iter(others)
                uniform = Uniform(first, partial(next, rest))
                assert uniform.is_below(partial(module.exp_minus, gamma_of(k, j, exponent))) == (change < 0)
                assert next(rest, None) is None
                assert uniform.n_bits == 64 * (place + 1)


@pytest.mark.parametrize("t", [Fraction(3, 8), Fraction(5, 8)])
def test_uniform_never_decides_inside_an_enclosure(t):
    uniform = Uniform(2**63, lambda: 0)  # U = 1/2

    def enclosure(digits: int) -> tuple[Fraction, Fraction]:
        return (Fraction(1, 4), Fraction(3, 4)) if uniform.n_bits < 192 else (t, t)

    assert uniform.is_below(enclosure) == (t > Fraction(1, 2))
    assert uniform.n_bits == 192


def test_reference_agrees_with_the_oracle_beside_every_boundary():
    for exponent, k, j in cases(40):
        low, high = exp_minus_between(gamma_of(k, j, exponent))
        boundary = low >> N_BITS - 64
        for word in (boundary - 2, boundary - 1, boundary + 1, boundary + 2):
            if not 0 <= word <= LARGEST_WORD:
                continue
            accepted = (word + 1) << N_BITS - 64 <= low
            assert accepted or word << N_BITS - 64 >= high
            value = module._reference_attempt([word_of(k), j, word], exponent, no_more)
            assert value == (k * 2**exponent + j if accepted else None)


def test_first_word_on_a_threshold_takes_further_words():
    for k, threshold in enumerate(module._THRESHOLDS.tolist()):
        assert module._reference_attempt([threshold, 0, 0], 1, lambda: 0) == 2 * k
        if k < 9:
            assert module._reference_attempt([threshold, 0, 0], 1, lambda: LARGEST_WORD) == 2 * (k + 1)
    rest = iter([LARGEST_WORD, 0])  # U = 1 - 2⁻¹²⁸: no largest k
    assert module._reference_attempt([LARGEST_WORD, 2**63, 0], 29, partial(next, rest)) == -13 * 2**29
    assert cdf_between(12)[1] < 1 - Fraction(1, 2**128) < cdf_between(13)[0]


def test_zero_comes_once():
    assert module._reference_attempt([0, 0, LARGEST_WORD], 4, no_more) == 0
    assert module._reference_attempt([0, 2**63, 0], 4, no_more) is None
    assert module._reference_attempt([word_of(3), 2**63, 0], 4, no_more) == -48
    assert module._reference_attempt([0, 2**63 + 5, 0], 4, no_more) == -5
    assert module._reference_attempt([0, 2**63 - 16 + 5, 0], 4, no_more) == 5  # bits between the sign and j are unused


# The fast path -----------------------------------------------------------------------------------------------------------


def fast(words, exponent: int, margin: float = module._MARGIN) -> tuple[np.ndarray, np.ndarray]:
    words = np.array(words, dtype=np.uint64).reshape(-1, 3)
    values, states = np.full(len(words), 12345), np.full(len(words), 99, np.uint8)
    module._attempts(words, exponent, margin, module._THRESHOLDS, values, states)
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


def test_fast_path_leaves_thresholds_to_the_reference():
    for k, threshold in enumerate(module._THRESHOLDS.tolist()):
        beside = [(word, 7, 0) for word in (threshold - 1, threshold + 1) if word <= LARGEST_WORD]
        beside = [attempt for attempt in beside if attempt[0] not in module._THRESHOLDS.tolist()]
        states = assert_same_as_reference(beside, 3)
        assert np.all(states == module._ACCEPTED)
        values, _ = fast(beside, 3)
        assert set((values // 8).tolist()) <= {k, k + 1}
        assert fast([(threshold, 7, 0), (threshold, 7, LARGEST_WORD)], 3)[1].tolist() == [module._UNDECIDED] * 2


def test_fast_path_leaves_what_is_within_the_margin():
    margin, rounding = 2**24, 2**14
    assert margin == module._MARGIN
    for exponent, k, j in cases(60, seed=1):
        boundary = exp_minus_between(gamma_of(k, j, exponent))[0] >> N_BITS - 64
        for sign in (0, 2**63):
            outside = [boundary + side * gap for side in (-1, 1) for gap in (margin + rounding, 2**30, 2**50)]
            inside = [boundary + side * gap for side in (-1, 1) for gap in (0, 1, 1000, margin - rounding)]
            outside = [(word_of(k), sign + j, word) for word in outside if 0 <= word <= LARGEST_WORD]
            inside = [(word_of(k), sign + j, word) for word in inside if 0 <= word <= LARGEST_WORD]
            assert np.all(assert_same_as_reference(outside, exponent) != module._UNDECIDED)
            assert np.all(fast(inside, exponent)[1] == module._UNDECIDED)


def test_margin_covers_the_rounding_a_thousandfold():
    for exponent, k, j in cases(150, seed=2):
        boundary = exp_minus_between(gamma_of(k, j, exponent))[0] >> N_BITS - 64
        words = [boundary - 2**14, boundary + 2**14]
        words = [(word_of(k), j, word) for word in words if 0 <= word <= LARGEST_WORD]
        assert_same_as_reference(words, exponent, margin=0.0)


def test_fast_path_rejects_minus_zero():
    words = [(0, 0, 0), (0, 2**63, 0), (word_of(2), 0, 0), (word_of(2), 2**63, 0), (0, 2**63 + 1, 0)]
    values, states = fast(words, 5)
    assert states.tolist() == [0, 1, 0, 0, 0]
    assert values[states == 0].tolist() == [0, 64, -64, -1]


# The stream --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_slow_path_alone_gives_the_same_samples_from_the_same_words(exponent, monkeypatch):
    fast_bits, slow_bits = AESCounter(key=9), AESCounter(key=9)
    expected = discrete_gaussian(1000, 2**exponent, fast_bits)
    monkeypatch.setattr(module, "_MARGIN", math.inf)
    np.testing.assert_array_equal(discrete_gaussian(1000, 2**exponent, slow_bits), expected)
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
        0, 0, LARGEST_WORD,  # within the margin of p = 1: zero
        on_threshold, 3, 0,
        0, 2**63, 0,  # minus zero
        on_threshold, 2**63, 1,
        0, LARGEST_WORD,  # further words for the second and the fourth attempt
        word_of(9), 2**63 + 1, 0,
    )  # fmt: skip
    assert discrete_gaussian(4, 4, bits).tolist() == [0, 7, -37, -8]
    assert bits.words == []


def test_equal_keys_equal_samples_and_successive_calls_differ():
    bits = AESCounter(key=3)
    first, second = discrete_gaussian(100, 2**10, bits), discrete_gaussian(100, 2**10, bits)
    np.testing.assert_array_equal(first, discrete_gaussian(100, 2**10, AESCounter(key=3)))
    assert np.mean(first == second) < 0.1
    assert np.mean(first == discrete_gaussian(100, 2**10, AESCounter(key=4))) < 0.1


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 35])
def test_sizes_and_chunks(size, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 10)
    samples = discrete_gaussian(size, 2**29, AESCounter(key=6))
    assert samples.shape == (size,)
    assert len(np.unique(samples)) == size
    assert np.all(np.abs(samples) < 2**34)


def test_chunks_follow_the_law(monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 100)
    assert misfit(discrete_gaussian(100_000, 2, AESCounter(key=7)), 2.0) > 1e-3


def test_memory_does_not_grow_with_size():
    peak = peak_of(lambda: discrete_gaussian(1_500_000, 8, AESCounter(key=1)))
    assert peak < 1_500_000 * 8 + 6 * 2**20


@pytest.mark.parametrize("steps", [0, 1, True, -2, 3, 1000, 2**30, 2**64, 2.0, math.nan, "8", None])
def test_other_steps_are_refused(steps):
    with pytest.raises(ValueError, match="power of two between"):
        discrete_gaussian(3, steps, AESCounter(key=1))


def test_numpy_integers_are_integers():
    np.testing.assert_array_equal(
        discrete_gaussian(5, np.int64(1024), AESCounter(key=1)), discrete_gaussian(5, 1024, AESCounter(key=1))
    )
    with pytest.raises(ValueError, match="size"):
        discrete_gaussian(-1, 4, AESCounter(key=1))
