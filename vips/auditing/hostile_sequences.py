"""Sequences for attacks on a clipped sum: of any length, and with entries that hurt."""

from __future__ import annotations

import numpy as np

from vips.data._sequences import Sequences

__all__ = ["hostile_sequences", "mixed_sequences"]

LENGTHS = (1, 2, 30, 20_000)
CONSTANTS = (0.0, 1.0, -1.0, 0.5, 1e9, 2.0**63, 5e-324, 1e160, 1e300, np.nan, np.inf, -np.inf)
SCALES = (1e3, 1e9, 1e160, 1e-3, 1e-160)


def hostile_sequences(records: list[np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Steps of one sequence each, shape (length, n_features), by name: those of ``own``, changed, repeated, and extreme ones.

    Parameters
    ----------
    records : list of ndarray of shape (length, n_features)
        At least one.
    """
    width, longest = records[0].shape[1], max(records, key=len)
    hostile = {f"record {i}": steps for i, steps in enumerate(records)} | {"no step": np.zeros((0, width))}
    hostile["record 0 × -1"] = -records[0]
    hostile["a long record"] = np.tile(longest, (1 + 5_000 // max(len(longest), 1), 1))
    with np.errstate(over="ignore"):
        hostile |= {f"record 0 × {scale:g}": records[0] * scale for scale in SCALES}
    steps = np.concatenate(records)
    for length in LENGTHS:
        hostile |= {f"{length} × {value:g}": np.full((length, width), value) for value in CONSTANTS[:2]}
        if len(steps):
            hostile[f"{length} × one step"] = np.repeat(steps[[rng.integers(len(steps))]], length, axis=0)
            hostile[f"two steps in turn, {length}"] = np.resize(
                steps[rng.integers(len(steps), size=2)], (length, width)
            )
            hostile[f"{length} steps at random"] = steps[rng.integers(len(steps), size=length)]
    hostile |= {f"9 × {value:g}": np.full((9, width), value) for value in CONSTANTS}
    for value in (np.nan, np.inf, -1.0, 1e160):
        hostile[f"a record with {value:g} in the middle"] = longest.copy()
        hostile[f"a record with {value:g} in the middle"][len(longest) // 2 : len(longest) // 2 + 1] = value
    return hostile


def mixed_sequences(sequences: Sequences, rng: np.random.Generator) -> Sequences:
    """The sequences, in two thirds of which half of the steps come from others."""
    changed = np.repeat(np.arange(len(sequences)) % 3 > 0, sequences.lengths)
    changed &= rng.random(len(changed)) < 0.5
    others = rng.permutation(len(changed))
    return Sequences(np.where(changed[:, None], sequences.values[others], sequences.values), sequences.offsets)
