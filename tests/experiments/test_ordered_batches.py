"""Fits with correlated noise: what they cost and what noise they state, by brute force."""

from itertools import product

import numpy as np
import pytest

from experiments.privacy.ordered_batches import OrderedPlan, best_strategy, matrix_of_average, sensitivity
from vips import BayesianLogisticRegression, DirichletMultinomial

A = matrix_of_average([3.0 / (t + 2.0) for t in range(1, 9)])


@pytest.mark.parametrize(("period", "bands"), [(1, None), (2, None), (4, None), (8, 3)])
@pytest.mark.representatives("4-None")
def test_the_best_strategy_has_sensitivity_one_and_less_error(period, bands):
    C = best_strategy([A], period, bands)
    largest = max(
        np.linalg.norm(C[:, j::period] @ signs)
        for j in range(period)
        for signs in product([-1.0, 1.0], repeat=len(range(j, 8, period)))
    )
    assert largest <= 1.0 + 1e-9
    independent = np.eye(8) / np.sqrt(8 // period)
    assert np.linalg.norm(A @ np.linalg.inv(C)) < 0.999 * np.linalg.norm(A @ np.linalg.inv(independent))
    assert bands is None or not np.tril(C, -bands).any()


def test_columns_that_point_apart_cost_as_much_as_columns_that_agree():
    C = np.array([[1.0, 0.0], [-0.6, 0.8]])
    assert sensitivity(C, 1) == pytest.approx(max(np.linalg.norm(C @ s) for s in ([1, 1], [1, -1])))


def test_batches_and_stated_noise():
    """Each record is in every third batch; the noise in the average is what it is said to be."""
    counts, C = np.eye(2000)[np.arange(2000)], best_strategy([A], 4)
    plan = OrderedPlan(noise_multiplier=3.0, sampling_rate=0.25, n_steps=8, strategy=C, n_groups=4, clip_norm=1.0)
    totals = DirichletMultinomial(privacy=plan).fit(counts[:0].reshape(0, 2000)).noisy_totals_
    assert totals.average["counts"].std() == pytest.approx(totals.noise_std["counts"], rel=0.1)
    rows = [set(plan.sampler(_Key, t)(0).rows(2000)) for t in range(1, 9)]
    assert set.union(*rows[:4]) == set(range(2000))
    assert sum(map(len, rows[:4])) == 2000
    assert rows[:4] == rows[4:]


def test_phases_that_sum_other_blocks_state_their_noise():
    """Without records a fit that searches has released nothing but noise: in its last step that of C⁻¹ z."""
    C = best_strategy([A], 4)
    plan = OrderedPlan(noise_multiplier=3.0, sampling_rate=0.25, n_steps=8, strategy=C, n_groups=4)
    totals = BayesianLogisticRegression(privacy=plan, max_norm=1.0).fit(np.zeros((0, 60)), np.zeros(0)).noisy_totals_
    last = 3.0 / 0.25 * np.linalg.norm(np.linalg.inv(C)[-1])
    assert totals.noise_std["linear"] == pytest.approx(last, rel=1e-9)
    assert np.diagonal(totals.average["precision"]).std() == pytest.approx(totals.noise_std["precision"], rel=0.35)


class _Key:
    sampling_key = 7
