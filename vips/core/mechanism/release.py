"""The release of totals: every draw of private noise begins here, or in the mechanism of a stream.

A :class:`Mechanism` lives as long as a run, so that it can keep state between steps. What is released once has no state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from vips.core.sums.blocks import Block

if TYPE_CHECKING:
    from vips.core.mechanism.noise import Randomness
    from vips.core.plan import PrivacyPlan

__all__ = ["IndependentNoise", "Mechanism", "with_fresh_noise"]


def with_fresh_noise(plan: PrivacyPlan, totals: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """``totals`` plus one fresh draw of noise over all of them, from the operating system."""
    blocks = {name: Block(np.shape(total)) for name, total in totals.items()}
    return plan.add_noise(totals, blocks, plan.randomness(None), 1)


class Mechanism(ABC):
    """The release of one run's totals, step by step."""

    @abstractmethod
    def release(self, total: Mapping[str, np.ndarray], step: int) -> dict[str, np.ndarray]:
        """The total of a step plus its noise: released, hence public."""

    @abstractmethod
    def std_of_average(self, step_size: Mapping[str, float]) -> dict[str, float | np.ndarray]:
        """Standard deviation of the noise in an entry of (1 - ρ) average + (ρ / q) release, by block; exact.

        Call it once after each release, with the step sizes ρ of that step. In a symmetric block, it is that of the diagonal.
        """

    def carry(self, noise_std: Mapping[str, float | np.ndarray]) -> None:
        """A public linear map was applied to the average, which now holds this noise (``ConjugateExponentialModel.transport``).

        Raises
        ------
        NotImplementedError
            By default: noise that depends on earlier steps would have to be mapped, too.
        """
        raise NotImplementedError(f"{type(self).__name__} does not carry an average to other coordinates.")


class IndependentNoise(Mechanism):
    """Fresh noise in every step, as ``plan.add_noise`` draws it.

    Parameters
    ----------
    std : dict of str to float or ndarray
        Standard deviation of the noise in the average with which the run starts; 0 unless it resumes another.
    """

    def __init__(
        self, plan: PrivacyPlan, blocks: Mapping[str, Block], randomness: Randomness,
        std: Mapping[str, float | np.ndarray],
    ) -> None:  # fmt: skip
        self._plan, self._blocks, self._randomness = plan, blocks, randomness
        self._std: dict[str, float | np.ndarray] = dict(std)
        self._step = 0

    def release(self, total: Mapping[str, np.ndarray], step: int) -> dict[str, np.ndarray]:
        self._step = step
        return self._plan.add_noise(total, {name: self._blocks[name] for name in total}, self._randomness, step)

    def std_of_average(self, step_size: Mapping[str, float]) -> dict[str, float | np.ndarray]:
        plan = self._plan.of_step(self._step)
        for name, rho in step_size.items():
            fresh = plan.noise_std() * self._blocks[name].scale / plan.sampling_rate
            std = np.hypot((1.0 - rho) * np.asarray(self._std[name]), rho * fresh)
            self._std[name] = std if std.ndim else float(std)
        return dict(self._std)

    def carry(self, noise_std: Mapping[str, float | np.ndarray]) -> None:
        self._std = dict(noise_std)
