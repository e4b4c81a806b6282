"""The law of the lengths of sequences, which are private: only their sum is released.

It is an exponential family around the released mean, which totals determine, because clips weigh sequences by their lengths.
"""

from __future__ import annotations

import numpy as np

from vips.models.components.matching.charts import Tilts

__all__ = ["law_of_lengths", "possible_lengths"]

_LONGEST, _N_LENGTHS = 4.0, 60  # times the mean length; lengths that are simulated, at most
_SHAPE, _STD_OF_TILTS = 3.0, 10.0  # of the first law of lengths, a Gamma; of the prior
_NO_LENGTH, _LEAST_SPREAD = 1e-12, 1e-6


def possible_lengths(mean: float, largest: int) -> np.ndarray:
    """Lengths that are simulated, ascending; the mean is about the released one."""
    longest = int(np.clip(np.ceil(_LONGEST * mean), 1, largest))
    return np.unique(np.round(np.linspace(1, longest, _N_LENGTHS)).astype(np.int64))


def law_of_lengths(lengths: np.ndarray, mean: float, largest: int) -> Tilts:
    """A Gamma, and the features of Gammas, normals and of a last length at which sequences are cut; uncorrelated."""
    relative = lengths / mean
    base = relative ** (_SHAPE - 1.0) * np.exp(-_SHAPE * relative) + _NO_LENGTH
    base /= base.sum()
    features = np.column_stack([np.log(relative), relative, np.square(relative)])
    if lengths[-1] == largest:
        features = np.column_stack([features, lengths == largest])
    features -= base @ features
    sizes, directions = np.linalg.eigh(features.T @ (base[:, None] * features))
    used = sizes > _LEAST_SPREAD * sizes[-1]
    return Tilts(base, features @ (directions / np.sqrt(sizes))[:, used], np.zeros(used.sum()), _STD_OF_TILTS)
