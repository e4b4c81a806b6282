import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from vips import PrivacyPlan

GOOD = {"noise_multiplier": 1.0, "sampling_rate": 0.5, "n_steps": 3}


def test_plan_is_frozen_and_comparable():
    plan = PrivacyPlan(**GOOD)
    assert plan == PrivacyPlan(**GOOD)
    with pytest.raises(FrozenInstanceError):
        plan.noise_multiplier = 0.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
        ({"noise_multiplier": math.nan}, "noise_multiplier"),
        ({"noise_multiplier": math.inf}, "noise_multiplier"),
        ({"noise_multiplier": "1"}, "noise_multiplier"),
        ({"noise_multiplier": 1e-200}, "noise_multiplier"),
        ({"noise_multiplier": 10**400}, "noise_multiplier"),
        ({"clip_norm": 1e300}, "clip_norm"),
        ({"clip_norm": 1e-300}, "clip_norm"),
        ({"sampling_rate": 1e-300}, "sampling_rate"),
        ({"reproducible_noise": "no"}, "reproducible_noise"),
        ({"sampling_rate": 0.0}, r"sampling_rate` must be in \(0, 1\]"),
        ({"sampling_rate": 1.5}, "sampling_rate"),
        ({"sampling_rate": True}, "sampling_rate"),
        ({"n_steps": 0}, "n_steps"),
        ({"n_steps": 2.5}, "n_steps"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"clip_norm": math.inf}, "no sensitivity"),
        ({"sampling": "shuffle"}, "shuffled or fixed-size"),
        ({"sampling": "full"}, "sampling_rate=1.0"),
        ({"relation": "replace_one"}, "relation"),
    ],
)
def test_bad_numbers_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        PrivacyPlan(**(GOOD | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"accountant": "magic"}, "accountant"),
    ],
)
def test_bad_targets_are_refused(changes, message):
    arguments = {"epsilon": 1.0, "delta": 1e-5, "sampling_rate": 0.5, "n_steps": 3}
    with pytest.raises(ValueError, match=message):
        PrivacyPlan.from_epsilon(**(arguments | changes))


def test_epsilon_and_delta_have_no_defaults():
    with pytest.raises(TypeError):
        PrivacyPlan.from_epsilon(sampling_rate=0.5, n_steps=3)


def test_sampling_and_noise_of_a_private_plan_cannot_be_seeded():
    plan = PrivacyPlan(**GOOD)
    first, second = plan.randomness(0), plan.randomness(0)
    assert first.sampling_key != second.sampling_key
    assert not np.array_equal(first.noise.normal(size=4), second.noise.normal(size=4))
    np.testing.assert_array_equal(first.initial.normal(size=4), second.initial.normal(size=4))


def test_reproducible_noise_comes_from_random_state():
    plan = PrivacyPlan(**GOOD, reproducible_noise=True)
    first, second, other = plan.randomness(0), plan.randomness(0), plan.randomness(1)
    assert first.sampling_key == second.sampling_key != other.sampling_key
    np.testing.assert_array_equal(first.noise.normal(size=4), second.noise.normal(size=4))
    # three different streams: knowing the initialisation says nothing of the noise
    a, b = plan.randomness(0), plan.randomness(0)
    assert not np.array_equal(a.initial.normal(size=4), b.noise.normal(size=4))


@pytest.mark.parametrize("state", [3, np.int64(3), np.random.default_rng(3), np.random.RandomState(3), None])
def test_every_usual_random_state_works(state):
    assert PrivacyPlan.non_private().randomness(state).sampling_key >= 0


def test_bad_random_state():
    with pytest.raises(ValueError, match="random_state"):
        PrivacyPlan.non_private().randomness(-1)


def test_samples_depend_on_key_step_and_partition_only():
    plan = PrivacyPlan(**GOOD)
    randomness = plan.randomness(None)
    first = plan.sample(1000, randomness, 1, 0)
    np.testing.assert_array_equal(first, plan.sample(1000, randomness, 1, 0))
    longer = plan.sample(1500, randomness, 1, 0)
    np.testing.assert_array_equal(first, longer[longer < 1000])  # a record's coin does not depend on later records
    for step, partition in ((2, 0), (1, 1)):
        assert not np.array_equal(first, plan.sample(1000, randomness, step, partition))
    full = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=1, sampling="full")
    np.testing.assert_array_equal(full.sample(5, randomness, 1, 0), np.arange(5))
    assert len(plan.sample(0, randomness, 1, 0)) == 0


def test_numbers_of_any_precision_become_plain_ones():
    half = np.float16(0.01)
    plan = PrivacyPlan(noise_multiplier=half, sampling_rate=np.float32(0.5), n_steps=np.int8(3), clip_norm=half)
    assert [type(v) for v in (plan.noise_multiplier, plan.sampling_rate, plan.n_steps, plan.clip_norm)] == [
        float, float, int, float
    ]  # fmt: skip
    assert plan.noise_std() == pytest.approx(1e-4, rel=0.01)


def test_weights_of_enormous_norms_do_not_exceed_the_clip():
    """C / norm would be subnormal there, too coarse for weight × norm ≤ C."""
    norms = np.concatenate([np.geomspace(1e-3, 1.7e308, 5000), [1.7e308]])
    for clip_norm in (1e-12, 1e-3, 1.0, 1e12):
        plan = PrivacyPlan(**GOOD, clip_norm=clip_norm)
        assert (plan.clip_weights(norms) * norms <= clip_norm * (1.0 + 1e-12)).all()


def test_clip_weights():
    plan = PrivacyPlan(**GOOD, clip_norm=2.0)
    norms = np.array([0.0, 1.0, 2.0, 8.0, np.inf, np.nan])
    np.testing.assert_array_equal(plan.clip_weights(norms), [1.0, 1.0, 1.0, 0.25, 0.0, 0.0])
    np.testing.assert_array_equal(PrivacyPlan.non_private().clip_weights(norms), [1, 1, 1, 1, 0, 0])


def test_report_of_each_kind_of_plan():
    from vips import PrivacyReport

    def report(plan):
        return PrivacyReport(plan=plan, unit="one letter", released=("totals",))

    private = report(PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-5, sampling_rate=0.5, n_steps=3, clip_norm=1.0))
    assert "ε = 1 at δ = 1e-05" in str(private)
    assert "one letter" in str(private)
    assert private.to_dict()["epsilon"] == pytest.approx(1.0, rel=2e-3)
    assert private.has_guarantee
    seeded = report(PrivacyPlan(**GOOD, clip_norm=1.0, reproducible_noise=True, report_delta=1e-5))
    assert str(seeded).startswith("NO GUARANTEE")
    assert seeded.epsilon() == math.inf
    assert seeded.to_dict()["epsilon"] is None
    assert type(seeded.event()).__name__ == "NonPrivateDpEvent"
    raising = PrivacyReport(plan=private.plan, unit="one letter", released=("totals",), on_invalid="raise")
    assert not raising.has_guarantee
    assert raising.epsilon() == math.inf
    assert "satisfies" not in str(raising)
    open_delta = report(PrivacyPlan(**GOOD, clip_norm=1.0))
    assert "call .epsilon(delta)" in str(open_delta)
    with pytest.raises(ValueError, match="Write a δ"):
        open_delta.epsilon()
    assert str(report(PrivacyPlan.non_private())).startswith("No privacy")
    for each in (private, seeded, open_delta):
        assert "secure" not in str(each).lower()
        import json

        json.dumps(each.to_dict(), allow_nan=False)
