"""The sum in floating point is as near to the exact one as docs/guarantee.md says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.laws import checks
from tests.laws.cases import CASES

N = 60


def rounding_of_the_sum(case, precision=np.float64):
    """The distance of the engine's sum from the exact sum of the records' shares, in units of C, and its bound."""
    model, plan, records, posterior = checks.prepared(case, N)
    phase = checks.last_phase(model)
    blocks = phase.blocks
    alone = []
    for i in range(N):
        statistics = phase.statistics_of(model, records[[i]], posterior)
        shares = statistics.weighted_sum(plan.clip_weights(statistics.norms(blocks)))
        symmetric = {
            name: (shares[name] + np.swapaxes(shares[name], -1, -2)) / 2.0 for name in blocks if blocks[name].symmetric
        }
        shares = shares | symmetric
        alone.append(np.concatenate([np.ravel(shares[name]) / block.scale for name, block in blocks.items()]))
    exact = np.array([math.fsum(entries) for entries in np.transpose(alone)])
    total = checks.clipped_sum(case, model, plan, records, posterior).astype(precision)
    return np.linalg.norm(total - exact) / plan.clip_norm, N * (N + 4) * 2.0**-53


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_sum_is_rounded_by_no_more_than_stated(case):
    error, bound = rounding_of_the_sum(case)
    assert error <= bound


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_sum_in_single_precision_is_noticed(case):
    error, bound = rounding_of_the_sum(case, np.float32)
    assert error > bound
