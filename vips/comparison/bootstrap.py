"""Scores of two models on records that were not fitted, with intervals from a bootstrap over these records.

Resample the records with replacement, score both models on the same resamples, take quantiles.
"""

from __future__ import annotations

import numpy as np

from vips.parts import Score

__all__ = ["Interval", "bootstrap"]

_BLOCK = 4_000_000  # resampled records at a time

Interval = tuple[float, float]


def bootstrap(
    scores: list[Score], n_records: int, n_resamples: int, level: float, rng: np.random.Generator
) -> list[tuple[float, Interval]]:
    """Values and intervals of scores, and of the difference of the first two, all on the same resamples.

    Parameters
    ----------
    scores : list of two scores
    n_records, n_resamples : int
    level : float
        Level of the intervals.
    rng : Generator

    Returns
    -------
    list of (value, (lower, upper))
        For the first score, the second, and first minus second.
    """
    everyone = np.ones((1, n_records))
    values = [score.of_counts(everyone)[0] for score in scores]
    blocks, per_block = [], max(1, _BLOCK // n_records)
    for start in range(0, n_resamples, per_block):
        size = min(per_block, n_resamples - start)
        taken = [np.bincount(rng.integers(0, n_records, n_records), minlength=n_records) for _ in range(size)]
        counts = np.array(taken, dtype=np.float64)
        blocks.append(np.stack([score.of_counts(counts) for score in scores]))
    draws = np.concatenate(blocks, axis=1)
    tails = 0.5 - 0.5 * level, 0.5 + 0.5 * level
    columns = [*zip(values, draws, strict=True), (values[0] - values[1], draws[0] - draws[1])]
    return [(float(value), _quantiles(draw, tails)) for value, draw in columns]


def _quantiles(draws: np.ndarray, tails: tuple[float, float]) -> Interval:
    draws = draws[np.isfinite(draws)]  # a resample may hold one class only, which has no AUC
    if not len(draws):
        return float("nan"), float("nan")
    lower, upper = np.quantile(draws, tails)
    return float(lower), float(upper)
