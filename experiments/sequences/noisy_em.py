"""A private linear dynamical system that goes on with steps of EM on noisy totals: to measure what that costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vips import Block, LinearDynamicalSystem
from vips.models._definite import floored
from vips.models.dynamics.posterior import DynamicsPosterior, stable
from vips.models.dynamics.statistics import WithZeros, state_blocks, state_statistics
from vips.models.dynamics.update import next_dynamics

__all__ = ["N_STEPS_OF_EACH", "EMAfterHalf"]

N_STEPS_OF_EACH = 10
_LEAST = 0.02  # of variances, in units of states of variance 1


class EMAfterHalf(LinearDynamicalSystem):
    """Half of the steps release moments, half are steps of EM in coordinates in which the states have variance 1.

    Averages of the steps of EM have the weights 2/(s + 1). Covariances and the moves are repaired.
    """

    exact_rows = True

    def blocks(self) -> dict[str, Block]:
        # a typical sequence then has the same norm in both kinds of steps
        scale = 0.9 * self.typical_length
        others = state_blocks(self.n_features_in_, self.n_components)
        return super().blocks() | {name: replace(block, scale=scale) for name, block in others.items()}

    def expected_statistics(self, records, posterior: DynamicsPosterior):
        if posterior.step < N_STEPS_OF_EACH:
            return WithZeros(super().expected_statistics(records, posterior), super().blocks(), self.blocks())
        records = self._usable(records.first(self.max_length))
        names = state_blocks(self.n_features_in_, self.n_components)
        return WithZeros(state_statistics(records, posterior), names, self.blocks())

    def to_posterior(self, average, noise_std, previous: DynamicsPosterior | None) -> DynamicsPosterior:
        step = 0 if previous is None else previous.step + 1
        if 0 < step < N_STEPS_OF_EACH:
            return replace(previous, step=step)
        if step <= N_STEPS_OF_EACH:
            found = super().to_posterior(average, noise_std, previous)
            return replace(found, dynamics=found.dynamics.canonical()) if step == N_STEPS_OF_EACH else found
        counts = np.maximum(average["counts"], 1.0)
        totals = {
            **average,
            "counts": counts,
            "seen": average["seen"].mean(axis=0)[None].repeat(self.n_features_in_, 0),
        }
        of = next_dynamics(totals, previous.dynamics)
        of = replace(
            of, moves=stable(of.moves, 0.999), moves_cov=floored(of.moves_cov, _LEAST),
            start_cov=floored(of.start_cov, _LEAST), noise_variance=np.maximum(of.noise_variance, _LEAST),
        )  # fmt: skip
        return DynamicsPosterior(of, *map(float, counts), step)

    def step_size(self, t: int) -> float:
        return 1.0 / t if t <= N_STEPS_OF_EACH else 2.0 / (t - N_STEPS_OF_EACH + 1.0)
