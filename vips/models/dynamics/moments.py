"""What released moments say about the columns: covariances at lags, with the noise in them.

With z_t = (y_t ∘ o_t, c o_t) a total holds, for each pair of columns, the sum of products over the steps in which both are
observed, the sums of either, and the number of these steps. So missing entries bias nothing, if they do not depend on values.
Where noise is larger than the differences between counts, all columns share their average.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vips.models._definite import floored

__all__ = ["LaggedMoments", "Pairs", "of_totals", "shared", "window"]

_LEAST_SHARE = 0.1  # of all steps: pairs of steps at the largest lag that counts
_FEW = 0.02  # of the largest number of pairs: below it there are none
_OUT_OF_NOISE = 4.0  # deviations of a number of steps


@dataclass(frozen=True, repr=False)
class Pairs:
    """Sums over pairs of steps, by columns i of the later and j of the earlier one; each of shape (..., p, p).

    Parameters
    ----------
    products, later, earlier, counts : ndarray
        Σ y_i y_j, Σ y_i, Σ y_j, and the number of pairs, over those in which both are observed.
    noise_std, noise_of_sums : float
        Of the noise in ``products``, and in ``later`` and ``earlier`` before they share an average.
    """

    products: np.ndarray
    later: np.ndarray
    earlier: np.ndarray
    counts: np.ndarray
    noise_std: float
    noise_of_sums: float

    @classmethod
    def of(cls, second: np.ndarray, constant: float, noise_std: float) -> Pairs:
        """From totals of z zᵀ, shape (..., 2p, 2p)."""
        p = second.shape[-1] // 2
        products, later = second[..., :p, :p], second[..., :p, p:] / constant
        earlier, counts = second[..., p:, :p] / constant, second[..., p:, p:] / constant**2
        if noise_std > 0.0:
            counts = shared(counts, noise_std / constant**2, (-2, -1))
            later, earlier = (
                shared(cross, noise_std / constant, (axis,)) for cross, axis in ((later, -1), (earlier, -2))
            )
        return cls(products, later, earlier, counts, noise_std, noise_std / constant)

    def about(self, offset: np.ndarray) -> np.ndarray:
        """Mean products of the columns less ``offset``; 0 where there are next to no pairs."""
        sums = self.products - self.later * offset - offset[:, None] * self.earlier
        sums = sums + offset[:, None] * offset * self.counts
        return np.divide(
            sums, self.counts, out=np.zeros(sums.shape), where=self.counts > max(0.5, _FEW * self.counts.max())
        )


@dataclass(frozen=True, repr=False)
class LaggedMoments:
    """Moments of all pairs of steps at most ``n_lags`` apart, and of the first steps.

    Parameters
    ----------
    lags : Pairs
        Shapes (n_lags + 1, p, p).
    means : ndarray of shape (p,)
        Of the columns, over all steps.
    n_steps, n_sequences : float
    openings : Pairs
        Of the first ``n_lags + 1`` steps: shapes (w, w, p, p).
    """

    lags: Pairs
    means: np.ndarray
    n_steps: float
    n_sequences: float
    openings: Pairs

    @property
    def n_lags(self) -> int:
        return len(self.lags.counts) - 1


def of_totals(
    totals: Mapping[str, np.ndarray], noise_std: Mapping[str, float], constant: float
) -> LaggedMoments | None:
    """Moments from the totals of the start, up to the last lag that enough pairs have; None if noise hides the steps."""
    D = totals["second"].shape[-1]
    noise = noise_std["second"]
    all_lags = np.concatenate([0.5 * (totals["second"] + totals["second"].T)[None], totals["lagged"]])
    lags = Pairs.of(all_lags, constant, noise)
    numbers = lags.counts.mean(axis=(1, 2))
    least = max(_OUT_OF_NOISE * noise / constant**2 / (D / 2), 1.0 - 1e-9)
    if not numbers[0] > least:
        return None
    enough = numbers > max(least, _LEAST_SHARE * numbers[0])
    w = int(np.argmin(np.append(enough, False)))
    lags = Pairs(
        *(part[:w] for part in (lags.products, lags.later, lags.earlier, lags.counts)), noise, noise / constant
    )
    blocks = totals["opening"].reshape(-1, D, totals["opening"].shape[-1] // D, D).swapaxes(1, 2)[:w, :w]
    openings = Pairs.of(blocks, constant, noise_std["opening"] / np.sqrt(2.0))
    means = lags.later[0].sum(axis=1) / np.maximum(lags.counts[0].sum(axis=1), 1.0)
    return LaggedMoments(lags, means, float(numbers[0]), float(max(openings.counts[0, 0].mean(), 1.0)), openings)


def window(products: np.ndarray, noise_std: float, least: np.ndarray) -> np.ndarray:
    """Second moments of w steps below each other, shape (wp, wp), from mean products of shape (w, w, p, p).

    Eigenvalues, in units of ``least``, shape (p,), are at least 1e-6 and, with noise, as large as its deviation.
    """
    w, _, p, _ = products.shape
    unit = np.sqrt(np.tile(least, w))
    matrix = products.swapaxes(1, 2).reshape(w * p, w * p)
    matrix = 0.5 * (matrix + matrix.T) / np.outer(unit, unit)
    lowest = max(noise_std / least.min(), 1e-6)
    if np.linalg.eigvalsh(matrix)[0] < lowest:
        matrix = floored(matrix, lowest)
    return matrix * np.outer(unit, unit)


def shared(values: np.ndarray, noise_std: float, axes: tuple[int, ...]) -> np.ndarray:
    """Posterior means of values with noise that lie around their average along ``axes``."""
    average = values.mean(axis=axes, keepdims=True)
    spread = np.square(values - average).mean(axis=axes, keepdims=True)
    variance = np.maximum(spread - noise_std**2, 0.0)
    return average + variance / (variance + noise_std**2) * (values - average)
