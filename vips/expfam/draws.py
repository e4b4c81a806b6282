"""A distribution given by draws from it, such as a mixture over unknown totals."""

from __future__ import annotations

import numpy as np

from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.expfam._headline import Headline

__all__ = ["Draws"]


class Draws(Headline):
    """Distribution of an array, given by independent draws of it.

    Parameters
    ----------
    draws : array of shape (n_draws, ...)
    mean : array of shape (...), optional
        Where it is not the average of the draws: probabilities that may be 0 have draws that are cut off there.

    Raises
    ------
    ValueError
        If there are fewer than two draws, or a number is not finite.

    Attributes
    ----------
    mean, var, std : ndarray of shape (...)
    """

    _parameters = "draws", "mean"

    def __init__(self, draws: np.ndarray, mean: np.ndarray | None = None) -> None:
        draws = np.array(draws, dtype=np.float64)
        if draws.ndim < 1 or len(draws) < 2:
            raise ValueError("`draws` must hold at least two draws, along its first axis.")
        if not np.isfinite(draws).all():
            raise ValueError("`draws` must be finite.")
        draws.flags.writeable = False
        self.draws, self.mean = draws, draws.mean(axis=0) if mean is None else np.array(mean, dtype=np.float64)

    @property
    def var(self) -> np.ndarray:
        """Variance of the draws."""
        return self.draws.var(axis=0, ddof=1)

    def taken(self, places: np.ndarray, axis: int = 0) -> Draws:
        """The entries at these places of an axis."""
        return Draws(np.take(self.draws, places, axis + 1), np.take(self.mean, places, axis))

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Central credible interval of every entry, by quantiles: (lower, upper) arrays."""
        self.check_level(level)
        lower, upper = np.quantile(self.draws, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
        return lower, upper

    def sample(self, size: int, rng: RandomStateLike = None) -> np.ndarray:
        """Some of the draws, with replacement, shape (size, ...)."""
        return self.draws[as_generator(rng).integers(0, len(self.draws), size)]
