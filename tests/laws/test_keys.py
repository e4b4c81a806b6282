"""Keys of coins and noise have 128 bits of the operating system each. Every bit matters, and no bit is used for two keys.

The tests replace the operating system's bits by a script, and change single bits of it. The keys that change show what the bit
was used for. This notices short keys, long keys stretched from short seeds, and keys that share bits.
"""

from __future__ import annotations

import os
import pickle
import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from randomgen import AESCounter

from tests.laws.cases import BetaBernoulli
from tests.mutants import check_notices
from vips import Block, PrivacyPlan
from vips.core.mechanism import noise, sampling
from vips.core.mechanism.noise import Randomness
from vips.core.mechanism.sampling import PoissonCoins
from vips.core.mechanism.secret_bits import secret_bits

pytestmark = pytest.mark.fresh_bits
KEY_BITS = 128
COINS = np.random.default_rng(0).integers(0, 2, (6, 2)).astype(float)
PLANS = {
    "gaussian": PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=2, clip_norm=1.5),
    "discrete": PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=2, clip_norm=1.5, noise="discrete"),
}


class Script:
    """An operating system with the same random bits every time, except for one flipped bit."""

    def __init__(self, flipped: int | None = None):
        self.flipped, self.asked = flipped, 0

    def secret_bytes(self, n_bytes: int) -> bytes:
        start, self.asked = self.asked, self.asked + 8 * n_bytes
        bits = int.from_bytes(random.Random(start).randbytes(n_bytes), "little")
        if self.flipped is not None and start <= self.flipped < self.asked:
            bits ^= 1 << (self.flipped - start)
        return bits.to_bytes(n_bytes, "little")


def keys_of(run, script: Script) -> dict[str, int]:
    """The key of every stream that a run made, by its purpose."""
    keys = {}

    def stream(purpose):
        def make(key=None, counter=0):
            name = purpose if purpose == "coins" else f"noise {len([other for other in keys if other != 'coins']) + 1}"
            assert purpose != "coins" or keys.get("coins", key) == key, "coins of two keys in one fit"
            keys[name] = key
            return AESCounter(key=key, counter=counter)

        return make

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vips.core.mechanism.secret_bits.secret_bytes", script.secret_bytes)
        patch.setattr(sampling, "AESCounter", stream("coins"))
        patch.setattr(noise, "AESCounter", stream("noise"))
        run()
    return keys


def fit(plan: PrivacyPlan) -> None:
    BetaBernoulli(privacy=plan, random_state=0).fit(COINS)


def draw(plan: PrivacyPlan) -> None:
    """Draw what a fit draws, without the fit."""
    randomness = plan.randomness(0)
    for step in range(1, plan.n_steps + 1):
        plan.sampler(randomness, step)(0).rows(len(COINS))
        plan.add_noise({"count": np.zeros((), np.int64)}, {"count": Block(())}, randomness, step)


def keys_are_of_the_operating_systems_bits(plan: PrivacyPlan) -> None:
    """At least 128 bits change each key, each to a different key; no bit changes two keys."""
    script, in_a_fit = Script(), Script()
    keys = keys_of(partial(draw, plan), script)
    assert list(keys) == ["coins", "noise 1", "noise 2"], "a step's noise has no key of its own"
    assert all(isinstance(key, int) and 0 <= key < 2**KEY_BITS for key in keys.values())
    assert keys_of(partial(fit, plan), in_a_fit) == keys, "a fit has other keys"
    assert in_a_fit.asked == script.asked
    moved = {name: {} for name in keys}
    for bit in range(script.asked):
        changed = [(name, key) for name, key in keys_of(partial(draw, plan), Script(bit)).items() if key != keys[name]]
        assert len(changed) <= 1, f"one bit is in two keys: {[name for name, _ in changed]}"
        for name, key in changed:
            moved[name][bit] = key
    for name, by_bit in moved.items():
        assert len(by_bit) >= KEY_BITS, f"the key of {name} has {len(by_bit)} bits of the operating system"
        assert len({keys[name], *by_bit.values()}) == 1 + len(by_bit), f"different bits give one key of {name}"


def every_bit_of_a_key_changes_the_sample() -> None:
    """Also after the coins were pickled for a worker."""
    key, n = secret_bits(KEY_BITS), 400
    coins = PoissonCoins(0.5, key, 1, 0)
    samples = {coins.rows(n).tobytes()}
    for bit in range(KEY_BITS):
        sent = pickle.loads(pickle.dumps(replace(coins, key=key ^ (1 << bit))))
        samples.add(sent.rows(n).tobytes())
    assert len(samples) == KEY_BITS + 1, "a bit of the key leaves a Poisson sample as it was"


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_keys_are_of_the_operating_systems_bits(plan):
    keys_are_of_the_operating_systems_bits(plan)


def test_every_bit_of_a_key_changes_the_sample():
    every_bit_of_a_key_changes_the_sample()


def test_two_fits_have_nothing_in_common():
    keys = [key for _ in range(20) for key in keys_of(partial(fit, PLANS["gaussian"]), Real()).values()]
    assert len(set(keys)) == len(keys) == 60
    for bit in range(KEY_BITS):
        assert len({key >> bit & 1 for key in keys}) == 2, f"bit {bit} of all keys is the same"


class Real:
    """The operating system's own bits."""

    secret_bytes = staticmethod(os.urandom)


# -- mutants ----------------------------------------------------------------------------------------------------


def keys_of_32_bits(patch):
    patch.setattr(noise, "secret_bits", lambda n: secret_bits(min(n, 32)))


def coins_of_32_bits(patch):
    original = Randomness.for_fit.__func__

    def for_fit(cls, state, reproducible):
        randomness = original(cls, state, reproducible)
        return replace(randomness, sampling_key=randomness.sampling_key & 0xFFFF_FFFF)

    patch.setattr(Randomness, "for_fit", classmethod(for_fit))


def noise_of_32_bits(patch):
    patch.setattr(Randomness, "noise_bits", lambda self, step: noise.AESCounter(key=secret_bits(32)))


def keys_stretched_from_32_bits(patch):
    """Keys that look like 128 bits."""

    def randbits(n):
        return noise._key(np.random.SeedSequence(secret_bits(32))) >> (KEY_BITS - n)

    patch.setattr(noise, "secret_bits", randbits)


def noise_under_the_key_of_the_coins(patch):
    patch.setattr(Randomness, "noise_bits", lambda self, step: noise.AESCounter(key=self.sampling_key ^ step))


def one_noise_key_for_all_steps(patch):
    original = Randomness.for_fit.__func__

    def for_fit(cls, state, reproducible):
        return replace(original(cls, state, reproducible), noise_seed=secret_bits(KEY_BITS))

    patch.setattr(Randomness, "for_fit", classmethod(for_fit))
    patch.setattr(Randomness, "noise_bits", lambda self, step: noise.AESCounter(key=self.noise_seed ^ step))


def keys_from_random_state(patch):
    original = Randomness.for_fit.__func__
    patch.setattr(Randomness, "for_fit", classmethod(lambda cls, state, reproducible: original(cls, state, True)))


def half_of_the_key_forgotten_by_coins(patch):
    original = sampling._coins
    patch.setattr(sampling, "_coins", lambda a, b, key, *arguments: original(a, b, key & (2**64 - 1), *arguments))


def key_cut_on_the_way(patch):
    patch.setattr(
        PoissonCoins, "__reduce__", lambda self: (PoissonCoins, (self.sampling_rate, self.key & 0xFFFF_FFFF, 1, 0))
    )


@pytest.mark.parametrize(
    ("mutant", "says"),
    [
        (keys_of_32_bits, "has 32 bits"),
        (coins_of_32_bits, "key of coins has 32 bits"),
        (noise_of_32_bits, "key of noise 1 has 32 bits"),
        (keys_stretched_from_32_bits, "has 32 bits"),
        (noise_under_the_key_of_the_coins, "one bit is in two keys"),
        (one_noise_key_for_all_steps, "one bit is in two keys"),
        (keys_from_random_state, "has 0 bits"),
        (half_of_the_key_forgotten_by_coins, "key of coins has 64 bits"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_mutant_is_noticed(mutant, says, monkeypatch):
    check_notices(lambda: keys_are_of_the_operating_systems_bits(PLANS["gaussian"]), mutant, monkeypatch, says)


@pytest.mark.parametrize("mutant", [half_of_the_key_forgotten_by_coins, key_cut_on_the_way])
def test_a_key_of_which_less_is_used_is_noticed(mutant, monkeypatch):
    says = "a bit of the key leaves a Poisson sample as it was"
    check_notices(every_bit_of_a_key_changes_the_sample, mutant, monkeypatch, says)
