"""Whether noisy totals can be told from noise alone: from released numbers, so that it costs nothing.

The noise in a total has a known law. Totals of many records stand out from it; those of records that are all defective, or of
none, do not. Two tests share a level of 0.001: one of the sum of squares, which many small totals raise, and one of the largest
total.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import chdtrc, ndtr

__all__ = ["LEVEL", "NO_SIGNAL", "blocks_of_noise", "entries_of_noise", "is_only_noise"]

NO_SIGNAL = (
    "no signal: nothing but noise was released; usual causes: too few records for this ε; labels that are no declared class or "
    "number; cells in another form than is declared, or a missing one in every row; texts that are lists of words; no ids"
)
LEVEL = 1e-3


def entries_of_noise(value: np.ndarray, std: float | np.ndarray, symmetric: bool) -> tuple[np.ndarray, np.ndarray]:
    """The independent entries of a block, and the standard deviation of the noise in each; both of shape (n_entries,).

    Off the diagonal of a symmetric block, of which one half is taken, that is std/√2.
    """
    value = np.asarray(value, dtype=np.float64)
    stds = np.broadcast_to(std, value.shape)
    if not symmetric:
        return value.ravel(), stds.ravel()
    rows, columns = np.triu_indices(value.shape[-1])
    stds = stds[..., rows, columns] * np.where(rows == columns, 1.0, np.sqrt(0.5))
    return value[..., rows, columns].ravel(), stds.ravel()


def blocks_of_noise(
    blocks: Mapping[str, object], average: Mapping[str, np.ndarray], noise_std: Mapping[str, float]
) -> tuple[str, ...]:
    """Names of the blocks that cannot be told from noise; arguments as in :class:`vips.core.sums.NoisyTotals`.

    A block of noise alone is not named with probability 0.001. Where deviations differ from entry to entry, an average was
    carried from step to step, and its entries may depend on each other: then the largest one decides, of which that stays true
    (Šidák, 1967).
    """
    return tuple(
        name
        for name, block in blocks.items()
        if np.all(np.greater(noise_std[name], 0.0))
        and _is_noise(*entries_of_noise(average[name], noise_std[name], block.symmetric), np.ndim(noise_std[name]) == 0)
    )


def is_only_noise(
    blocks: Mapping[str, object], average: Mapping[str, np.ndarray], noise_std: Mapping[str, float]
) -> bool:
    """Whether no block can be told from noise.

    A single one may be noise in a good fit, too: residuals at the fitted parameters, say.
    """
    return len(blocks_of_noise(blocks, average, noise_std)) == len(blocks)


def _is_noise(values: np.ndarray, stds: np.ndarray, are_independent: bool = True) -> bool:
    if not values.size:
        return True
    with np.errstate(all="ignore"):
        sizes = np.abs(values / stds)
        of_squares = chdtrc(values.size, float(np.sum(np.square(sizes))))
        of_largest = -np.expm1(values.size * np.log1p(-2.0 * ndtr(-float(sizes.max()))))
    if not are_independent:
        return bool(of_largest > LEVEL)
    return bool(min(of_squares, of_largest) > LEVEL / 2.0)  # NaN is not noise
