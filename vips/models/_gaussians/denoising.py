"""A valid view of noisy totals, in the coordinates of the last posterior: what stands out from the noise.

===========  =====================================================================================================
symbol       meaning
===========  =====================================================================================================
n            count of a component
δ            linear / n: how far the mean is from the last one, with noise of standard deviation s₁/n in each entry
R            second / n - I: how far the covariance is from the last one, a symmetric matrix with noise whose
             eigenvalues reach up to e = s₂ √(2d) / n (a Gaussian orthogonal ensemble)
===========  =====================================================================================================

What is hidden by noise stays as it was. δ is shrunk as James and Stein (1961) do. Eigenvalues of R within ``_EDGE`` e become 0,
others lose what noise adds to them. In one step a variance changes by a factor of at least e/2 and at most 2/e: else noise
alone would make components thinner and thinner.

Records of more than the norm at their component weigh less (``statistics.py``), so that second / n is too small: the view
multiplies it by what records of a Gaussian (or Student-t) component of that size would lose. Covariances of Student-t
components are second / weight, which has the same fixed points as second / count, and comes to them faster (Kent, Tyler and
Vardi, 1994).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import digamma
from scipy.stats import chi2, f

from vips.core.exact.blas import eigh
from vips.core.sums import Block
from vips.models._gaussians.posterior import MixturePosterior, applied

__all__ = ["Influence", "view"]

_EDGE, _EDGE_OF_TAIL = 0.3, 1.0
_LEAST = 0.05  # factor by which a variance changes in a step
_GRID = np.geomspace(1e-4, 1e4, 161)  # variances of records in the coordinates of their component
_POINTS = 400  # of the quadrature


@dataclass(frozen=True)
class Influence:
    """What records weigh whose norm is above that at their component, on average over a component of variance g.

    Attributes
    ----------
    weight : ndarray
        E[h], by g in ``_GRID``, with h = min(1, largest / norm).
    variance : ndarray
        E[h u ‖y‖²] / (d E[h u]), which increases with g.
    tail : ndarray or float
        E[v] - E[h v] / E[h], with v = E[log u - u]; 0 unless degrees of freedom are learnt.
    """

    weight: np.ndarray
    variance: np.ndarray
    tail: np.ndarray | float = 0.0

    @property
    def of_unit_variance(self) -> float:
        """What the mean square in a direction seems to be in a component whose variance is 1."""
        return float(np.interp(1.0, _GRID, self.variance))

    @classmethod
    def of(cls, blocks: Mapping[str, Block], kind: str, d: int, largest: float, tail: float) -> Influence:
        """For these scales of blocks. ``tail`` are the degrees of freedom of Student-t components, or 0."""
        scales = tuple(sorted((name, block.scale) for name, block in blocks.items()))
        return _influence(scales, kind, d, float(largest), round(float(tail), 3))

    def corrected(self, variance: float) -> tuple[float, float, float]:
        """For a component whose records have this mean square in each direction: true over seen variance, E[h], and what
        is missing in the mean of v."""
        seen, grid = float(np.clip(variance, self.variance[0], self.variance[-1])), np.arange(len(_GRID))
        place = np.interp(np.log(seen), np.log(self.variance), grid)
        true = np.exp(np.interp(place, grid, np.log(_GRID)))
        missing = float(np.interp(place, grid, np.broadcast_to(self.tail, len(_GRID))))
        return float(true / seen), float(np.interp(place, grid, self.weight)), missing


@lru_cache(maxsize=256)
def _influence(scales: tuple, kind: str, d: int, largest: float, tail: float) -> Influence:
    scale, at = dict(scales), (np.arange(_POINTS) + 0.5) / _POINTS
    lengths = chi2.ppf(at, d) if tail == 0.0 else d * f.ppf(at, d, tail)
    squares = _GRID[:, None] * lengths
    factor = np.ones_like(squares) if tail == 0.0 else (tail + d) / (tail + squares)
    fourth = 3.0 / (d + 2.0) if kind == "diag" else 1.0  # Σ y⁴ / ‖y‖⁴, on average over directions
    norms = 1.0 / scale["count"] ** 2 + factor**2 * squares / scale["linear"] ** 2
    norms += fourth * (factor * squares / scale["second"]) ** 2
    if "weight" in scale:
        norms += (factor / scale["weight"]) ** 2
    half = 0.5 * (tail + d)
    tails = digamma(half) - np.log(half) + np.log(factor) - factor if "tail" in scale else np.zeros_like(factor)
    norms += np.square(tails) / scale.get("tail", 1.0) ** 2
    weights = np.minimum(1.0, largest / np.sqrt(norms))
    weight = weights.mean(axis=1)
    variance = (weights * factor * squares).mean(axis=1) / (d * (weights * factor).mean(axis=1))
    return Influence(weight, variance, tails.mean(axis=1) - (weights * tails).mean(axis=1) / weight)


def view(
    average: Mapping[str, np.ndarray],
    noise_std: Mapping[str, float | np.ndarray],
    frame: MixturePosterior,
    influences: list[Influence],
    radius: float = np.inf,
) -> dict[str, np.ndarray]:
    """Totals of the same kind, without noise and without the loss of influence.

    Parameters
    ----------
    average, noise_std : dict
        In the coordinates of ``frame``.
    frame : MixturePosterior
    influences : list of Influence
        One for each component in use.
    radius : float
        Length that no record exceeds, hence no mean.
    """
    kind, d = frame.covariance_type, frame.mean.shape[1]
    std = {name: np.broadcast_to(np.reshape(noise_std[name], -1), len(frame.mean)) for name in noise_std}
    totals = {name: np.array(value, dtype=np.float64) for name, value in average.items()}
    for name in ("count", "weight"):
        if name in totals:
            totals[name] = np.maximum(totals[name], np.maximum(std[name], 1.0))
    if "weight" in totals:  # no precision factor is larger
        totals["weight"] = np.minimum(totals["weight"], totals["count"] * (frame.tail + d) / frame.tail)
    count, weight = totals["count"], totals.get("weight", totals["count"])
    linear, second = totals["linear"], totals["second"]
    active = range(frame.n_active)
    means = np.zeros_like(linear)
    for k in active:
        shrunken = _shrunken_mean(linear[k] / weight[k], std["linear"][k] / weight[k])
        means[k] = _within(radius, shrunken, frame.mean[k], frame.factors[k], frame.inverse_factors[k])
    explained = means[:, :, None] * means[:, None, :] if kind in ("full", "tied") else np.square(means)
    explained = explained.sum(axis=1) if kind == "spherical" else explained
    if kind == "tied":
        total = weight[: frame.n_active].sum()
        ratio, loss, _ = influences[0].corrected(np.trace(second) / (d * total))
        pulled = np.tensordot(weight[: frame.n_active] / total, explained[: frame.n_active], axes=1)
        inner = _shrunken(ratio * second / total - pulled, ratio * std["second"][0] / total)
        totals["second"] = (count[: frame.n_active].sum() * inner + total * pulled) / loss
        losses = np.full(len(count), loss)
        missing = np.array([influence.corrected(np.trace(second) / (d * total))[2] for influence in influences])
    else:
        losses, unit, missing = np.ones(len(count)), d if kind == "spherical" else 1.0, np.zeros(len(count))
        for k in active:
            size = np.trace(second[k]) if kind == "full" else np.sum(second[k])
            ratio, losses[k], missing[k] = influences[k].corrected(size / (d * weight[k]))
            seen = ratio * second[k] / (weight[k] * unit) - explained[k] / unit
            inner = _shrunken(seen, ratio * std["second"][k] / (weight[k] * unit))
            second[k] = (count[k] * unit * inner + weight[k] * explained[k]) / losses[k]
    totals["linear"] = means * (weight / losses)[:, None]
    if "tail" in totals:
        half = 0.5 * np.where(frame.tail > 0.0, frame.tail, 1.0)
        known = digamma(half) - np.log(half) - 1.0  # mean of v that leaves the degrees of freedom as they are
        change = _garrote(totals["tail"] / count + missing - known, _EDGE_OF_TAIL * std["tail"] / count)
        totals["tail"] = (known + change) * count / losses
    for name in ("count", "weight"):
        if name in totals:
            totals[name] = totals[name] / losses
    return totals


def _shrunken_mean(mean: np.ndarray, noise: float) -> np.ndarray:
    size = float(mean @ mean)
    return mean * max(0.0, 1.0 - len(mean) * noise**2 / size) if size > 0.0 else mean


def _within(
    radius: float, image: np.ndarray, centre: np.ndarray, factor: np.ndarray, inverse: np.ndarray
) -> np.ndarray:
    """The image of a mean that is scaled into the ball of this radius."""
    mean = centre + applied(factor, image)
    length = float(np.linalg.norm(mean))
    if length <= radius:
        return image
    return applied(inverse, mean * (radius / length) - centre)


def _shrunken(seen: np.ndarray, noise: float) -> np.ndarray:
    """A covariance in the coordinates of the last one: a matrix, its diagonal, or one variance for all directions."""
    if seen.ndim < 2:
        return np.clip(1.0 + _garrote(seen - 1.0, _EDGE * noise), *_bounds(2.0 * noise))
    d = len(seen)
    edge = noise * np.sqrt(2.0 * d)
    values, vectors = eigh(0.5 * (seen + seen.T) - np.eye(d))
    values = np.clip(1.0 + _garrote(values, _EDGE * edge), *_bounds(edge))
    return (vectors * values) @ vectors.T


def _bounds(edge: float) -> tuple[float, float]:
    """Least and largest factor of a variance in a step."""
    least = float(np.clip(0.5 * edge, _LEAST, 1.0))
    return least, 1.0 / least


def _garrote(values: np.ndarray, level: float) -> np.ndarray:
    """λ (1 + √(1 - level²/λ²)) / 2 beyond the level, 0 within: what a signal was before noise with this edge was added."""
    sizes = np.abs(values)
    hidden = np.minimum(level, sizes) / np.maximum(sizes, 1e-300)
    return np.where(sizes > level, 0.5 * values * (1.0 + np.sqrt(1.0 - np.square(hidden))), 0.0)
