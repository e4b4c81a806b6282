"""The object that releases a run's totals, and the noise that it states for their average."""

from __future__ import annotations

import numpy as np
import pytest

from tests.laws.cases import BetaBernoulli
from vips import Block, PrivacyPlan
from vips.core.mechanism.release import Mechanism
from vips.core.mechanism.secret_bits import secret_bits

BLOCKS = {"heads": Block((3,)), "count": Block((), scale=4.0)}
PLAN = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.5, n_steps=6, clip_norm=1.5)
STEP_SIZES = [1.0, 0.5, 0.7, 0.3, 0.9, 0.2]


def weights(step_sizes):
    """The weight of each step's release in the average after the last step."""
    later = [np.prod([1.0 - rho for rho in step_sizes[t + 1 :]]) for t in range(len(step_sizes))]
    return np.array(step_sizes) * later


def test_the_noise_of_an_average_is_that_of_its_terms():
    mechanism = PLAN.mechanism(BLOCKS, PLAN.randomness(0), dict.fromkeys(BLOCKS, 0.0))
    for rho in STEP_SIZES:
        stds = mechanism.std_of_average({"heads": rho, "count": 1.0})
    one_step = 2.0 * 1.5 / 0.5
    assert stds["heads"] == pytest.approx(one_step * np.linalg.norm(weights(STEP_SIZES)), rel=1e-12)
    assert stds["count"] == pytest.approx(4.0 * one_step, rel=1e-12)


def test_a_resumed_run_states_the_noise_of_an_uninterrupted_one():
    whole = PLAN.mechanism(BLOCKS, PLAN.randomness(0), dict.fromkeys(BLOCKS, 0.0))
    states = [whole.std_of_average(dict.fromkeys(BLOCKS, rho)) for rho in STEP_SIZES]
    resumed = PLAN.mechanism(BLOCKS, PLAN.randomness(0), states[2])
    for rho in STEP_SIZES[3:]:
        stds = resumed.std_of_average(dict.fromkeys(BLOCKS, rho))
    assert stds == states[-1]


class Undoing(Mechanism):
    """Noise z_t - ½ z_{t-1}: correlated over steps."""

    def __init__(self, plan, blocks, randomness):
        self.plan, self.blocks, self.rng = plan, blocks, np.random.default_rng(secret_bits(128))
        self.last = {name: np.zeros(block.shape) for name, block in blocks.items()}
        self.weights = {name: np.zeros(0) for name in blocks}

    def release(self, total, step):
        fresh = {
            name: self.rng.normal(0.0, self.plan.noise_std() * b.scale, b.shape) for name, b in self.blocks.items()
        }
        noisy = {name: total[name] + fresh[name] - 0.5 * self.last[name] for name in fresh}
        self.last = fresh
        return noisy

    def std_of_average(self, step_size):
        stds = {}
        for name, block in self.blocks.items():
            rho, before = step_size[name], self.weights[name]
            self.weights[name] = np.append(before * (1.0 - rho), rho)
            of_z = self.weights[name] - 0.5 * np.append(self.weights[name][1:], 0.0)  # weights of z_t
            stds[name] = float(np.linalg.norm(of_z) * self.plan.noise_std() * block.scale / self.plan.sampling_rate)
        return stds


class Correlated(PrivacyPlan):
    def mechanism(self, blocks, randomness, std):
        return Undoing(self, blocks, randomness)


def test_correlated_noise_needs_no_change_of_engine_or_model():
    plan = Correlated(noise_multiplier=2.0, sampling_rate=0.5, n_steps=6, clip_norm=1.5)
    assert not plan.has_guarantee  # a subclass has none
    averages = []
    for _ in range(400):
        model = BetaBernoulli(plan).fit(np.zeros((0, 40)))
        averages.append(model.noisy_totals_.average["heads"])
    rho = [model.step_size(t) for t in range(1, 7)]
    of_z = weights(rho) - 0.5 * np.append(weights(rho)[1:], 0.0)
    expected = np.linalg.norm(of_z) * 2.0 * 1.5 / 0.5
    assert model.noisy_totals_.noise_std["heads"] == pytest.approx(expected, rel=1e-12)
    assert np.std(averages) == pytest.approx(expected, rel=0.03)  # 16,000 numbers: one standard error is 0.6 %
