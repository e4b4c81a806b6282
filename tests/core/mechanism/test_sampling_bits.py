"""Random words, the coins made of them, and the lattice of discrete noise."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from randomgen import AESCounter

from tests.laws.totals import coin
from vips.core.mechanism import sampling
from vips.core.mechanism.lattice import SENSITIVITY_FACTOR, Lattice
from vips.core.mechanism.sampling import poisson_sample
from vips.core.sums import Block

KEY = 0x0123456789ABCDEF_FEDCBA9876543210
KNOWN_ANSWERS = [
    # FIPS 197 (2001), appendix C.1
    ("000102030405060708090a0b0c0d0e0f", "00112233445566778899aabbccddeeff", "69c4e0d86a7b0430d8cdb78070b4c55a"),
    # NIST SP 800-38A (2001), F.1.1
    ("2b7e151628aed2a6abf7158809cf4f3c", "6bc1bee22e409f96e93d7e117393172a", "3ad77bb40d7a3660a89ecaf32466ef97"),
    ("2b7e151628aed2a6abf7158809cf4f3c", "ae2d8a571e03ac9c9eb76fac45af8e51", "f5d3d58503b9699de785895a96fdbaaf"),
]


def little(text: str) -> int:
    return int.from_bytes(bytes.fromhex(text), "little")


# Words -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hardware", [True, False])
@pytest.mark.parametrize(("key", "plain", "cipher"), KNOWN_ANSWERS)
def test_words_are_aes_128_of_the_counter(key, plain, cipher, hardware):
    bits = AESCounter(key=little(key), counter=little(plain))
    if hardware and not bits.use_aesni:
        pytest.skip("no AES instructions here")
    bits.use_aesni = hardware
    assert bits.random_raw(2).astype("<u8").tobytes().hex() == cipher


def test_the_counter_counts_to_128_bits_however_words_are_asked_for():
    for counter in (0, 7, 2**64 - 2, 2**64 - 1, 5 << 64, 2**127 - 3):
        words = AESCounter(key=KEY, counter=counter).random_raw(8)
        single = [AESCounter(key=KEY, counter=counter + i).random_raw(2) for i in range(4)]
        np.testing.assert_array_equal(words, np.concatenate(single))
    parts = AESCounter(key=KEY)
    pieces = [np.array(parts.random_raw(size), np.uint64) for size in (3, None, 0, 60, None)]
    np.testing.assert_array_equal(AESCounter(key=KEY).random_raw(65), np.hstack(pieces))


# Poisson samples ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 1, 2, 7, 1001, 2**33 - 10, 2**33 - 9])
@pytest.mark.parametrize("partition", [0, 1, 2**32 - 1])
@pytest.mark.parametrize("step", [1, 2, 1000, 2**64 - 1])
def test_coin_is_a_function_of_key_step_partition_and_row(start, partition, step):
    rows = range(start, start + 9)
    words = [coin(KEY, step, partition, row) for row in rows]
    expected = [row for row, word in zip(rows, words, strict=True) if word < 2**62]
    assert poisson_sample(start, start + 9, 0.25, KEY, step, partition).tolist() == expected
    assert words == sampling._coins(start, start + 9, KEY, step, partition).tolist()


def counters(monkeypatch, start, stop, step, partition):
    """The counters from which the coins of these rows are made."""
    asked = []

    class Counting:
        def __init__(self, key, counter):
            self.counter = counter

        def random_raw(self, n):
            asked.extend(range(self.counter, self.counter + -(-n // 2)))
            return np.zeros(n, np.uint64)

    with monkeypatch.context() as patch:
        patch.setattr(sampling, "AESCounter", Counting)
        sampling._coins(start, stop, KEY, step, partition)
    return asked


def test_no_counter_is_used_twice(monkeypatch):
    """At the edges of every field: first and last rows, partitions and steps."""
    seen = set()
    for step in (0, 1, 2**64 - 1):
        for partition in (0, 1, 2**32 - 1):
            for start, stop in ((0, 5), (2**33 - 4, 2**33)):
                used = counters(monkeypatch, start, stop, step, partition)
                assert seen.isdisjoint(used)
                assert 0 <= min(used) <= max(used) < 2**128
                seen.update(used)


@pytest.mark.parametrize(("row", "partition", "step"), [(2**33, 0, 1), (0, 2**32, 1), (0, 0, 2**64)])
def test_what_does_not_fit_its_field_is_refused(row, partition, step):
    with pytest.raises(ValueError, match="Sampling covers at most"):
        poisson_sample(row, row + 1, 0.5, KEY, step, partition)


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_ranges_agree_with_the_whole(rate):
    whole = poisson_sample(0, 1000, rate, KEY, 3, 0)
    assert np.all(np.diff(whole) > 0)
    for cuts in ((0, 1000), (0, 1, 2, 3, 1000), (0, 333, 334, 777, 1000), (0, 500, 500, 1000)):
        parts = [poisson_sample(*ends, rate, KEY, 3, 0) for ends in itertools.pairwise(cuts)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert poisson_sample(5, 5, rate, KEY, 3, 0).tolist() == []
    np.testing.assert_array_equal(poisson_sample(401, 402, rate, KEY, 3, 0), whole[whole == 401])


@pytest.mark.parametrize(
    ("rate", "first_out"),
    [(0.5, 2**63), (2.0**-30, 2**34), (1.0 - 2.0**-53, 2**64 - 2**11), (0.1, int(0.1 * 2.0**64)), (1e-12, 18446744)],
)
def test_rate_is_never_rounded_up(rate, first_out, monkeypatch):
    coins = np.array([0, first_out - 1, first_out, 2**64 - 1], dtype=np.uint64)
    monkeypatch.setattr(sampling, "_coins", lambda start, stop, key, step, partition: coins)
    assert poisson_sample(0, 4, rate, KEY, 1, 0).tolist() == [0, 1]


# The lattice -------------------------------------------------------------------------------------------------------------

SIZES, SIGMAS = (1, 10, 100_000), (1e-3, 0.3, 5.0, 100.0)


def norm(lattice: Lattice, units: np.ndarray) -> float:
    """L2 norm of isometric coordinates."""
    return lattice.unit * float(np.linalg.norm(units.astype(np.float64)))


@pytest.mark.parametrize("clip_norm", [1.0, 3.7e-3, 1e6])
@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("size", SIZES)
def test_noise_has_the_declared_size_in_a_power_of_two_of_steps(size, sigma, clip_norm):
    lattice = Lattice.for_blocks({"a": Block((size,))}, sigma, clip_norm)
    assert lattice.unit * lattice.noise_steps == pytest.approx(sigma * clip_norm, rel=1e-15)
    assert math.log2(lattice.noise_steps) in range(10, 30)
    if lattice.noise_steps > 1024:  # no finer than needed
        assert lattice.noise_steps / 2 < 2**9 * sigma * math.sqrt(size)
    assert 0.5 * math.sqrt(size) * lattice.unit <= clip_norm / 2**10 * (1.0 + 1e-12)


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("size", SIZES)
def test_rounding_is_to_the_nearest_unit(size, sigma):
    block = Block((size,), scale=2.5)
    lattice = Lattice.for_blocks({"a": block}, sigma, 3.0)
    record = np.random.default_rng(size).normal(size=size)
    record *= 2.5 * 3.0 / np.linalg.norm(record)
    units = lattice.rounded(record, block)
    assert units.dtype == np.int64
    assert np.max(np.abs(record / 2.5 - units * lattice.unit)) <= 0.5 * lattice.unit * (1.0 + 1e-9)
    assert np.linalg.norm(record / 2.5 - units * lattice.unit) <= 0.5 * math.sqrt(size) * lattice.unit * (1.0 + 1e-9)
    np.testing.assert_allclose(lattice.values(units, block), record, rtol=0.0, atol=0.51 * lattice.unit * 2.5)
    np.testing.assert_array_equal(lattice.rounded(lattice.values(units, block), block), units)


@pytest.mark.parametrize("shape", [(), (5,), (3, 2), (7, 7), (4, 3, 3)])
@pytest.mark.parametrize("n_records", [0, 1, 40])
def test_sums_are_those_of_records_rounded_one_by_one(n_records, shape):
    block = Block(shape, symmetric=shape[-2:] in ((7, 7), (3, 3)), scale=2.5)
    lattice = Lattice.for_blocks({"a": block}, 0.3, 3.0)
    records = np.random.default_rng(0).standard_t(1.0, (*shape, n_records))
    for array in (np.moveaxis(records, -1, 0), np.moveaxis(records, -1, 0).astype(np.float32).copy()):
        array.flags.writeable = False
        one_by_one = np.zeros(shape, np.int64)
        for record in array:
            one_by_one += lattice.rounded(record, block)
        np.testing.assert_array_equal(lattice.rounded_sum(array, block), one_by_one)


@pytest.mark.parametrize("size", [1, 2, 9])
def test_sums_of_outer_products_are_those_of_matrices_rounded_one_by_one(size):
    left, right = np.random.default_rng(size).standard_t(1.0, (2, 30, 4, size))
    block = Block((4, size, size), symmetric=True, scale=0.7)
    lattice = Lattice.for_blocks({"a": block}, 5.0, 3.0)
    matrices = lattice.rounded(left[..., None] * right[..., None, :], block)
    np.testing.assert_array_equal(lattice.rounded_outer_sum(left, right, block), matrices.sum(axis=0))
    alone, block = left[:, :1], Block((size, size), symmetric=True, scale=0.7)
    matrices = lattice.rounded((alone[..., None] * alone[..., None, :])[:, 0], block)
    np.testing.assert_array_equal(lattice.rounded_outer_sum(alone, alone, block), matrices.sum(axis=0))


def test_rounding_can_move_a_record_by_all_that_is_allowed():
    # σ √d = 2^15: the lattice is exactly as coarse as it may be
    size, sigma, block = 2**16, 2.0**7, Block((2**16,))
    lattice = Lattice.for_blocks({"a": block}, sigma, 1.0)
    assert lattice.noise_steps == 2**24
    for entry in (0.5, 1.5, -1.5, 511.5):  # in units; halves go to the even neighbour
        record = np.full(size, entry * lattice.unit)
        units = lattice.rounded(record, block)
        assert np.linalg.norm(record - units * lattice.unit) == pytest.approx(2.0**-10, rel=1e-12)
    grown = norm(lattice, units)  # the record has norm 1023/1024
    assert np.linalg.norm(record) == pytest.approx(1.0 - 2.0**-10, rel=1e-12)
    assert grown == pytest.approx(1.0, rel=1e-12)
    worst = np.full(size, np.nextafter(512.5, 513.0) * lattice.unit)
    assert norm(lattice, lattice.rounded(worst, block)) / np.linalg.norm(worst) <= 1.0 + 2.0**-10 < SENSITIVITY_FACTOR
    assert not np.any(lattice.rounded(np.full(size, 0.5 * lattice.unit), block))


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("size", SIZES)
def test_rounded_records_and_halves_everywhere_stay_within_the_sensitivity(size, sigma):
    clip_norm, block = 3.0, Block((size,))
    lattice = Lattice.for_blocks({"a": block}, sigma, clip_norm)
    rng = np.random.default_rng(0)
    records = [np.ones(size), np.eye(1, size)[0], *rng.normal(size=(3, size)), *rng.standard_t(1.0, size=(3, size))]
    records = [record * (clip_norm / np.linalg.norm(record)) for record in records]
    entry = math.floor(clip_norm / math.sqrt(size) / lattice.unit - 0.5) + 0.5
    assert entry > 500.0
    records.append(np.full(size, np.nextafter(entry, np.inf) * lattice.unit * (1.0 + 1e-12)))
    assert np.linalg.norm(records[-1]) <= clip_norm * (1.0 + 1e-9)
    for record in records:
        assert norm(lattice, lattice.rounded(record, block)) <= SENSITIVITY_FACTOR * clip_norm


def test_blocks_share_one_lattice():
    blocks = {"a": Block((3, 4)), "b": Block((5, 6, 6), symmetric=True, scale=10.0), "c": Block(())}
    n_coordinates = 12 + 5 * 21 + 1
    assert Lattice.for_blocks(blocks, 4.0, 2.0) == Lattice.for_blocks({"all": Block((n_coordinates,))}, 4.0, 2.0)
    # what the sampler cannot hold is refused
    assert Lattice.for_blocks({"a": Block((2**20,))}, 2.0**10, 1.0).noise_steps == 2**29
    with pytest.raises(ValueError, match="steps per standard deviation"):
        Lattice.for_blocks({"a": Block((2**20 + 1,))}, 2.0**10, 1.0)


@pytest.mark.parametrize("scale", [1.0, 7.0])
def test_symmetric_blocks_are_rounded_in_isometric_coordinates(scale):
    block = Block((2, 6, 6), symmetric=True, scale=scale)
    lattice = Lattice.for_blocks({"a": block}, 2.0, 1.0)
    rng = np.random.default_rng(0)
    square = rng.normal(size=(50, 2, 6, 6))
    square *= scale / np.sqrt(np.sum(square**2, axis=(1, 2, 3), keepdims=True))
    symmetric = 0.5 * (square + np.swapaxes(square, -1, -2))
    units = lattice.rounded(square, block)
    np.testing.assert_array_equal(units, lattice.rounded(symmetric, block))
    np.testing.assert_array_equal(units, np.swapaxes(units, -1, -2))
    np.testing.assert_allclose(lattice.values(units, block), symmetric, rtol=0.0, atol=0.51 * lattice.unit * scale)
    upper = np.triu_indices(6)
    for i in range(50):
        rounded = norm(lattice, units[i][:, *upper])
        assert abs(rounded - np.linalg.norm(symmetric[i]) / scale) <= 0.5 * math.sqrt(42) * lattice.unit * (1.0 + 1e-9)
        assert rounded <= SENSITIVITY_FACTOR  # symmetrising makes no norm larger
