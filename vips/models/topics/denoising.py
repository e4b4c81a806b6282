"""How private LDA reduces the effect of noise: it denoises counts (``models/_denoising.py``), and scales them before the clip.

Both use public numbers only: the noisy average, and the exact standard deviation of the noise in it. docs/lda.md shows how well
they work, and how their constants were chosen.
"""

from __future__ import annotations

import numpy as np

from vips.core.exact.threads import run_ranges
from vips.models._denoising import denoise_counts

__all__ = ["LARGEST_SCALE", "denoise_counts", "scale_cells"]

LARGEST_SCALE = 5.0  # public bound on c_kv
_POWER = -0.45
# Cells below this share of the average count, or of their noise, are scaled as if they had it.
_RAREST, _OF_NOISE = 0.01, 0.5


def scale_cells(counts: np.ndarray, noise_std: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Scale c_kv of each cell in the sum, from denoised counts: counts^(-0.45). ``out`` may be ``noise_std``.

    A document's norm is dominated by frequent words of its topics, which noise hardly hurts. Scaled down, they leave more of
    the clip norm to the others. Counts below half of their noise are scaled alike, because noise chose them. The mean of c²,
    weighted by counts, is 1, so that the clip norm keeps its meaning.
    """
    rarest = _RAREST * max(counts.mean(), 1e-300)
    scale = np.empty_like(counts) if out is None else out
    masses, squares = np.empty((2, len(counts)))

    def fill(first: int, last: int) -> None:
        for k in range(first, last):  # rows stay in the cache
            row = np.maximum(counts[k], _OF_NOISE * noise_std[k])
            np.maximum(row, rarest, out=row)
            np.power(row, _POWER, out=scale[k])
            masses[k], squares[k] = row.sum(), np.vdot(row, np.square(scale[k]))

    run_ranges(fill, np.arange(len(counts) + 1))
    factor = 1.0 / np.sqrt(squares.sum() / masses.sum())
    for row in scale:
        row *= factor
        np.minimum(row, LARGEST_SCALE, out=row)
    return scale
