"""What a plan is, which numbers it refuses, and its bits, clips and noise."""

import copy
import math
import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from scipy.stats import norm

from vips import PrivacyPlan

GOOD = {"noise_multiplier": 1.0, "sampling_rate": 0.5, "n_steps": 3}


def test_a_plan_is_a_value():
    plan = PrivacyPlan(**GOOD)
    assert copy.deepcopy(plan) == pickle.loads(pickle.dumps(plan)) == plan == PrivacyPlan(**GOOD)
    assert set(vars(copy.deepcopy(plan))) == set(vars(plan))
    plain = {"sampling_rate": 0.5, "n_steps": 3}
    assert PrivacyPlan.non_private(**plain) == PrivacyPlan(noise_multiplier=0.0, clip_norm=math.inf, **plain)
    with pytest.raises(FrozenInstanceError):
        plan.noise_multiplier = 0.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *[({"noise_multiplier": value}, "noise_multiplier") for value in (-1.0, math.nan, math.inf, "1", 1e-200, 10**400)],
        *[({"clip_norm": value}, "clip_norm") for value in (0.0, 1e300, 1e-300)],
        *[({"sampling_rate": value}, "sampling_rate") for value in (1e-300, 1.5, True, None)],
        *[({"n_steps": value}, "n_steps") for value in (0, 2.5)],
        ({"sampling_rate": 0.0}, r"sampling_rate` must be in \(0, 1\]"), ({"clip_norm": math.inf}, "no sensitivity"),
        ({"sampling": "shuffle"}, "batches that are shuffled or of a fixed size"),
        ({"sampling": "full"}, "leave `sampling_rate` out"), ({"relation": "replace"}, "relation"),
        ({"reproducible_noise": "no"}, "reproducible_noise"), ({"noise": "laplace"}, "noise"),
        ({"noise": "discrete", "noise_multiplier": 0.0}, "discrete"),
    ],
)  # fmt: skip
def test_bad_numbers_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        PrivacyPlan(**(GOOD | changes))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0.0), ("epsilon", -1.0), ("epsilon", math.inf), ("delta", 0.0), ("delta", 1.0),
        ("accountant", "magic"),
    ],
)  # fmt: skip
def test_bad_targets_are_refused(name, value):
    arguments = {"epsilon": 1.0, "delta": 1e-5, "sampling_rate": 0.5, "n_steps": 3}
    with pytest.raises(ValueError, match=name):
        PrivacyPlan.from_epsilon(**(arguments | {name: value}))


def test_sampling_and_noise_of_a_private_plan_cannot_be_seeded():
    plan = PrivacyPlan(**GOOD)
    first, second = plan.randomness(0), plan.randomness(0)
    assert first.sampling_key != second.sampling_key
    bits = [randomness.noise_bits(step).random_raw() for randomness in (first, second) for step in (1, 1, 2)]
    assert len(set(bits)) == len(bits), "a step that is repeated, another step, another fit: fresh bits each time"
    np.testing.assert_array_equal(first.initial.normal(size=4), second.initial.normal(size=4))


def test_reproducible_noise_comes_from_random_state():
    plan = PrivacyPlan(**GOOD, reproducible_noise=True)
    first, second, other = plan.randomness(0), plan.randomness(0), plan.randomness(1)
    assert first.sampling_key == second.sampling_key != other.sampling_key
    assert first.noise_bits(3).random_raw() == second.noise_bits(3).random_raw()
    assert len({r.noise_bits(step).random_raw() for r in (first, other) for step in (1, 2)}) == 4
    # different streams: the initialisation tells nothing about the noise
    assert first.initial.bit_generator.random_raw() != first.noise_bits(1).random_raw()


@pytest.mark.parametrize("make", [int, np.int64, np.random.default_rng, np.random.RandomState])
def test_every_usual_random_state_repeats_a_fit_without_noise(make):
    plan = PrivacyPlan.non_private()
    one, again, other = (plan.randomness(make(seed)).sampling_key for seed in (3, 3, 4))
    assert one == again != other
    assert plan.randomness(None).sampling_key != plan.randomness(None).sampling_key
    with pytest.raises(ValueError, match="random_state"):
        plan.randomness(-1)


def test_coins_show_no_key_and_full_batches_take_every_row():
    plan = PrivacyPlan(**GOOD)
    randomness = plan.randomness(None)
    full = PrivacyPlan(noise_multiplier=1.0, n_steps=1, sampling="full")
    np.testing.assert_array_equal(full.sampler(randomness, 1)(3).rows(5), np.arange(5))
    assert len(plan.sampler(randomness, 1)(0).rows(0)) == 0
    assert str(randomness.sampling_key) not in repr(plan.sampler(randomness, 1)(0))  # workers log arguments


def test_numbers_of_any_precision_become_plain_ones():
    half = np.float16(0.01)
    plan = PrivacyPlan(noise_multiplier=half, sampling_rate=np.float32(0.5), n_steps=np.int8(3), clip_norm=half)
    numbers = plan.noise_multiplier, plan.sampling_rate, plan.n_steps, plan.clip_norm
    assert [type(number) for number in numbers] == [float, float, int, float]
    assert plan.noise_std() == pytest.approx(1e-4, rel=0.01)


def test_clip_weights():
    plan = PrivacyPlan(**GOOD, clip_norm=2.0)
    norms = np.array([0.0, 1.0, 2.0, 8.0, np.inf, np.nan, -1.0])
    np.testing.assert_array_equal(plan.clip_weights(norms), [1.0, 1.0, 1.0, 0.25, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(PrivacyPlan.non_private().clip_weights(norms), [1, 1, 1, 1, 0, 0, 0])
    # of enormous norms, where C / norm would be subnormal, too coarse for weight × norm ≤ C
    norms = np.concatenate([np.geomspace(1e-3, 1.7e308, 5000), [1.7e308]])
    for clip_norm in (1e-12, 1e-3, 1.0, 1e12):
        plan = PrivacyPlan(**GOOD, clip_norm=clip_norm)
        assert (plan.clip_weights(norms) * norms <= clip_norm * (1.0 + 1e-12)).all(), clip_norm


def test_mu_of_gaussian_differential_privacy_where_it_is_exact():
    full = PrivacyPlan(noise_multiplier=5.0, sampling="full", n_steps=4)
    assert full.gdp_mu() == 0.4
    epsilon = 0.7  # δ(ε) of a μ-GDP mechanism, corollary 1 of Dong, Roth and Su
    delta = norm.cdf(-epsilon / 0.4 + 0.2) - math.exp(epsilon) * norm.cdf(-epsilon / 0.4 - 0.2)
    assert full.delta(epsilon) == pytest.approx(delta, rel=1e-6)
    assert replace(full, relation="replace_one").gdp_mu() == 0.8
    assert PrivacyPlan(**GOOD).gdp_mu() is None
    assert replace(full, noise="discrete").gdp_mu() == pytest.approx(0.4 * 513 / 512, rel=1e-12)
    assert PrivacyPlan.non_private().gdp_mu() is None


def test_noise_or_number_of_steps_from_epsilon():
    noise = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-5, sampling_rate=0.05, n_steps=30)
    given = {"epsilon": 1.0, "delta": 1e-5, "sampling_rate": 0.05}
    steps = PrivacyPlan.from_epsilon(**given, noise_multiplier=noise.noise_multiplier)
    assert steps.n_steps == 30
    assert steps.report_delta == 1e-5
    for arguments in ({}, {"n_steps": 3, "noise_multiplier": 1.0}):
        with pytest.raises(ValueError, match="Give `n_steps`"):
            PrivacyPlan.from_epsilon(**given, **arguments)
    with pytest.raises(TypeError, match="missing 2 required keyword-only arguments: 'epsilon' and 'delta'"):
        PrivacyPlan.from_epsilon(sampling_rate=0.5, n_steps=3)
    with pytest.raises(ValueError, match="step"):
        PrivacyPlan.from_epsilon(epsilon=0.1, delta=1e-5, sampling="full", noise_multiplier=0.5)
    full = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-5)
    assert (full.sampling, full.n_steps) == ("full", 20)
    assert full == PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-5, sampling="full", n_steps=20)
