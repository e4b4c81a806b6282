"""The sum in floating point is as near to the exact one as docs/guarantee.md says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.laws import checks
from tests.laws.cases import CASES

N = 60


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_sum_is_rounded_by_no_more_than_stated_and_one_in_single_precision_is_noticed(case):
    """The distance of the engine's sum from the exact sum of the records' shares, in units of C."""
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
    total, bound = checks.clipped_sum(case, model, plan, records, posterior), N * (N + 4) * 2.0**-53
    error, in_single = (np.linalg.norm(sums - exact) / plan.clip_norm for sums in (total, total.astype(np.float32)))
    assert error <= bound < in_single
