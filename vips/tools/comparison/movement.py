"""How far the mean of each parameter moved, and the divergence of each marginal, after latent components are matched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vips._support.alignment import Alignment, align
from vips._support.printable import printable
from vips._support.validation import check_integer
from vips.expfam import Dirichlet
from vips.expfam.divergences import FAMILIES, Family, alike, family_of, kl, marginals, wasserstein
from vips.parts import Part

__all__ = ["Movement", "Mover", "largest", "match", "parts_of"]


@dataclass(frozen=True)
class Mover:
    """One parameter.

    Attributes
    ----------
    name : str
        A feature, a word of a topic, a hidden and a visible unit.
    private, baseline : float
        Posterior means.
    private_std, baseline_std : float
        Posterior standard deviations.
    difference : float
        Private minus baseline.
    standardized : float
        The difference ÷ pooled posterior standard deviation, √((σ² + σ'²)/2).
    kl_private_baseline, kl_baseline_private : float
        KL divergences of the marginals.
    wasserstein : float
        2-Wasserstein distance of the marginals.
    source : str
    """

    name: str
    private: float
    baseline: float
    private_std: float
    baseline_std: float
    difference: float
    standardized: float
    kl_private_baseline: float
    kl_baseline_private: float
    wasserstein: float
    source: str

    def __str__(self) -> str:
        moved = f"{self.baseline:.4g} → {self.private:.4g} ({self.standardized:+.2g} standard deviations)"
        return f"{printable(self.name)}: {moved}"


@dataclass(frozen=True)
class Movement:
    """Means and standard deviations of one part in both posteriors, flattened in C order."""

    private: Part
    baseline: Part

    @cached_property
    def means(self) -> tuple[np.ndarray, np.ndarray]:
        """Means in the private and the baseline posterior, shape (n_parameters,) each."""
        return np.ravel(self.private.distribution.mean), np.ravel(self.baseline.distribution.mean)

    @cached_property
    def stds(self) -> tuple[np.ndarray, np.ndarray]:
        """Standard deviations in both posteriors, shape (n_parameters,) each."""
        return tuple(np.sqrt(np.ravel(part.distribution.var)) for part in (self.private, self.baseline))

    @cached_property
    def difference(self) -> np.ndarray:
        """Private minus baseline means."""
        return self.means[0] - self.means[1]

    @cached_property
    def standardized(self) -> np.ndarray:
        """``difference`` ÷ √((σ² + σ'²)/2); 0 where nothing moved."""
        pooled = np.sqrt(0.5 * (self.stds[0] ** 2 + self.stds[1] ** 2))
        return np.divide(self.difference, pooled, out=np.zeros(len(pooled)), where=self.difference != 0.0)

    def name(self, index: int) -> str:
        """Name of the parameter at an index of the flattened arrays."""
        return self.private.label(np.unravel_index(index, self._shape))

    @cached_property
    def _alike(self) -> tuple[Family, Family]:
        return alike(self.private.distribution, self.baseline.distribution)

    @cached_property
    def _shape(self) -> tuple[int, ...]:
        return np.shape(self.private.distribution.mean)

    def marginals(self, index: int) -> tuple[Family, Family]:
        """Marginals of the parameter at an index, in the private and the baseline posterior; arrays of length 1."""
        return tuple(_taken(marginals(distribution), [index]) for distribution in self._alike)

    def mover(self, index: int, source: str) -> Mover:
        """The parameter at an index of the flattened arrays."""
        ours, theirs = self.marginals(index)
        means_and_stds = [values[index] for values in (*self.means, *self.stds, self.difference, self.standardized)]
        divergences = [values.item() for values in (kl(ours, theirs), kl(theirs, ours), wasserstein(ours, theirs))]
        return Mover(self.name(index), *map(float, means_and_stds), *divergences, source)

    def columns(self) -> dict[str, list | np.ndarray]:
        """All parameters as columns of a table, without the Wasserstein distances of Betas, which take milliseconds each."""
        ours, theirs = map(marginals, self._alike)
        distance = None if isinstance(ours, Dirichlet) else wasserstein(ours, theirs)
        return {
            "name": [self.private.label(index) for index in np.ndindex(self._shape)],
            "private": self.means[0],
            "baseline": self.means[1],
            "private_std": self.stds[0],
            "baseline_std": self.stds[1],
            "difference": self.difference,
            "standardized": self.standardized,
            "kl_private_baseline": np.ravel(kl(ours, theirs)),
            "kl_baseline_private": np.ravel(kl(theirs, ours)),
            "wasserstein": np.full(len(self.difference), np.nan) if distance is None else np.ravel(distance),
        }


def largest(movements: Sequence[Movement], n: int, by: str = "standardized") -> list[tuple[Movement, int]]:
    """The ``n`` parameters whose means moved most: for each, its part of the posterior and its index there."""
    if by not in ("standardized", "absolute"):
        raise ValueError(f'`by` must be "standardized" or "absolute", got {by!r}.')
    check_integer("n", n)
    sizes = [np.abs(m.standardized if by == "standardized" else m.difference) for m in movements]
    starts = np.cumsum([0, *map(len, sizes)])
    together = np.concatenate(sizes)
    first = np.argpartition(-together, min(n, len(together)) - 1)[:n]
    first = first[np.lexsort((first, -together[first]))]
    parts = np.searchsorted(starts, first, side="right") - 1
    return [(movements[part], int(place - starts[part])) for part, place in zip(parts, first, strict=True)]


def _taken(distribution: Family, chosen: Sequence[int]) -> Family:
    """The marginals at the indices ``chosen``."""
    parameters = []
    for name, n_axes in FAMILIES[family_of(distribution)]:
        array = getattr(distribution, name)
        parameters.append(array.reshape(-1, *array.shape[array.ndim - n_axes :])[chosen])
    return family_of(distribution)(*parameters)


def match(model, posterior, other) -> Alignment | None:
    """Match the latent components of ``other`` to those of ``posterior``; None if the model has no such components."""
    ours, theirs = model.components(posterior), model.components(other)
    return None if ours is None or theirs is None else align(ours[0], theirs[0], ours[1])


def parts_of(model, posterior, order: np.ndarray | None = None) -> list[Part]:
    """The distributions of a posterior, with latent components in the given order, which labels follow; TypeError if they are
    unknown."""
    is_as_given = order is None or np.array_equal(order, np.arange(len(order)))
    return model.posterior_parts(posterior if is_as_given else model.in_order(posterior, order))
