"""Simulated sequences, and the law of their lengths, which are private: only their sum is released.

It is an exponential family around the released mean, which totals determine, because clips weigh sequences by their lengths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vips.models.components.matching.charts import Tilts
from vips.models.components.matching.simulator import levels_at
from vips.models.components.matching.steps import StepSimulator

__all__ = ["SequenceSimulator", "possible_lengths"]

_LONGEST, _N_LENGTHS = 4.0, 60  # times the mean length; lengths that are simulated, at most
_SHAPE = 3.0  # of the first law of lengths, a Gamma
_STD_OF_TILTS, _STD_OF_BUMPS = 10.0, 1.0  # of the priors
_PLACES, _WIDTH = np.arange(0.25, 2.01, 0.25), 0.25  # of bumps in the law of lengths, over the mean length
_NO_LENGTH, _LEAST_SPREAD = 1e-12, 1e-6
_MOST_STEPS = 10_000  # of a simulated sequence
_STEPS = 200_000  # for which draws are made at once


def possible_lengths(mean: float, largest: int) -> np.ndarray:
    """Lengths that are simulated, ascending; the mean is about the released one.

    Raises
    ------
    NotImplementedError
        If they would take too much memory.
    """
    longest = int(np.clip(np.ceil(_LONGEST * mean), 1, largest))
    if longest > _MOST_STEPS:
        raise NotImplementedError(
            f"Sequences of up to {longest:,} steps are too long to be simulated. So there are no intervals; "
            f"max_length={_MOST_STEPS} has some."
        )
    return np.unique(np.round(np.linspace(1, longest, _N_LENGTHS)).astype(np.int64))


@dataclass(frozen=True)
class SequenceSimulator(StepSimulator):
    """Sequences of a model with a ``max_length``.

    Parameters
    ----------
    lengths : ndarray of int
        That sequences may have, ascending.
    mean_length : float
        About.
    """

    lengths: np.ndarray
    mean_length: float

    @property
    def at_once(self) -> int:
        """Fewer where sequences are long: draws are made for all steps that one may have."""
        return int(np.clip(_STEPS // self.lengths[-1], 200, 4_000))

    def first_law(self) -> Tilts:
        """A Gamma. Features are those of Gammas, of normals and of a last length at which sequences are cut, uncorrelated; and
        bumps, by which log p is as smooth as released totals leave it: clips look at lengths closely."""
        lengths, largest = self.lengths, self.model.max_length
        relative = lengths / self.mean_length
        base = relative ** (_SHAPE - 1.0) * np.exp(-_SHAPE * relative) + _NO_LENGTH
        base /= base.sum()
        features = np.column_stack([np.log(relative), relative, np.square(relative)])
        if lengths[-1] == largest:
            features = np.column_stack([features, lengths == largest])
        features -= base @ features
        sizes, directions = np.linalg.eigh(features.T @ (base[:, None] * features))
        used = sizes > _LEAST_SPREAD * sizes[-1]
        near = np.exp(-0.5 * np.square((relative[:, None] - _PLACES) / _WIDTH))
        near = near[:, np.ptp(near, axis=0) > _LEAST_SPREAD]
        bumps = _STD_OF_BUMPS / _STD_OF_TILTS * (near - base @ near)
        features = np.column_stack([features @ (directions[:, used] / np.sqrt(sizes[used])), bumps])
        return Tilts(base, features, np.zeros(features.shape[1]), _STD_OF_TILTS)

    def drawn_lengths(self, law: Tilts, n_records: int, rng: np.random.Generator) -> np.ndarray:
        """Lengths of simulated sequences, stratified."""
        return self.lengths[levels_at((np.arange(n_records) + rng.random()) / n_records, law.p[None])]
