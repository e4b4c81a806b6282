"""Numbers at the ends of what floats hold: an answer, or a ValueError in words, and no warning from inside."""

from contextlib import suppress

import pytest

from vips import PrivacyBudget, PrivacyPlan
from vips.core.accounting.gaussian import gaussian_epsilon


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("accountant", ["pld", "rdp", "moments"])
@pytest.mark.parametrize("delta", [5e-324, 1e-300, 1e-200, 0.5, 1.0 - 2.0**-53])
def test_extreme_deltas_and_epsilons(accountant, delta):
    for sigma in (1e-3, 1.0, 1e6):
        for rate in (0.1, 1.0):
            plan = PrivacyPlan(noise_multiplier=sigma, n_steps=3, sampling_rate=rate)
            with suppress(ValueError):
                assert plan.epsilon(delta, accountant) >= 0.0
            for epsilon in (1e-300, 1e300):
                with suppress(ValueError):
                    assert 0.0 <= plan.delta(epsilon, accountant) <= 1.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("epsilon", [1e-300, 1e-12, 700.0, 1e300])
@pytest.mark.parametrize("delta", [5e-324, 1e-289, 1.0 - 2.0**-53])
def test_extreme_budgets(epsilon, delta):
    with suppress(ValueError):
        assert PrivacyBudget(epsilon, delta).plan().epsilon(delta) <= epsilon


def test_the_smallest_delta_has_an_epsilon():
    assert gaussian_epsilon(1.0, 5e-324) > gaussian_epsilon(1.0, 1e-300) > 30.0
