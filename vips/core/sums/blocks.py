"""Blocks of the sum that a model declares, and what a fit releases of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Block", "NoisyTotals", "ReleasedStep"]


@dataclass(frozen=True)
class Block:
    """One array in the sum of statistics.

    Parameters
    ----------
    shape : tuple of int
    symmetric : bool
        The last two axes form a symmetric matrix. The sum is symmetrised, and noise is drawn in isometric coordinates
        (off-diagonal entries × √2).
    scale : float
        Divides the block before the joint norm is taken; its noise is multiplied by it. Public.
    """

    shape: tuple[int, ...]
    symmetric: bool = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))
        if self.symmetric and (len(self.shape) < 2 or self.shape[-1] != self.shape[-2]):
            raise ValueError(f"A symmetric block needs two equal last axes, got shape {self.shape}.")
        if not 1e-100 <= self.scale <= 1e100:
            raise ValueError(f"`scale` must be a positive, moderate number, got {self.scale!r}.")

    def noise_var(self, std: float | np.ndarray) -> np.ndarray:
        """Variance of the noise in each entry, of which an ordinary or diagonal one has the deviation ``std``."""
        var = np.full(self.shape, np.square(std))
        return var * np.where(np.eye(self.shape[-1], dtype=bool), 1.0, 0.5) if self.symmetric else var


@dataclass(frozen=True)
class NoisyTotals:
    """The final noisy totals of a fit: released, hence public.

    Parameters
    ----------
    average : dict of str to ndarray
        Running average of noisy full-data totals, by block.
    noise_std : dict of str to float or ndarray
        Standard deviation of the noise in an entry, by block; off the diagonal of a symmetric block, divide it by √2. An array,
        which broadcasts to the block, where entries differ: in models whose averages are carried from step to step
        (:meth:`vips.ConjugateExponentialModel.transport`).
    steps : tuple of ReleasedStep
        The steps that the model asks to keep, in their order (:meth:`vips.core.contract.Contract.kept_steps`).
    """

    average: dict[str, np.ndarray]
    noise_std: dict[str, float | np.ndarray]
    steps: tuple[ReleasedStep, ...] = ()


@dataclass(frozen=True)
class ReleasedStep:
    """What one step released, and where.

    Parameters
    ----------
    number : int
        From 1.
    totals : dict of str to ndarray
        Noisy totals of all records by block, of the blocks of its phase.
    posterior
        At which the step saw the records.
    """

    number: int
    totals: dict[str, np.ndarray]
    posterior: Any
