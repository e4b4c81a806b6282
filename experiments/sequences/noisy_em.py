"""A private linear dynamical system that goes on with steps of EM on noisy totals: to measure what that costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vips import Block, FitPhase, LinearDynamicalSystem
from vips.models._definite import floored
from vips.models.dynamics.posterior import DynamicsPosterior, stable
from vips.models.dynamics.statistics import state_blocks
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

    def phases(self, n_steps: int) -> list[FitPhase]:
        (moments,) = super().phases(n_steps)
        blocks = [name for name in self.blocks() if name not in moments.blocks]
        em = FitPhase(
            "states",
            n_steps - N_STEPS_OF_EACH,
            blocks=blocks,
            update=self._em_step,
            step_size=lambda s: 2.0 / (s + 1.0),
            released="noisy totals of states and columns",
        )
        return [replace(moments, n_steps=N_STEPS_OF_EACH, end=self._canonical), em]

    def _canonical(self, average, noise_std, previous: DynamicsPosterior) -> DynamicsPosterior:
        posterior = self.to_posterior(average, noise_std, None)
        return replace(posterior, dynamics=posterior.dynamics.canonical())

    def _em_step(self, average, noise_std, previous: DynamicsPosterior) -> DynamicsPosterior:
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
        return DynamicsPosterior(of, *map(float, counts))
