"""Coordinates in which parameters are matched: scores, moves and priors of each kind of parameter.

==============  ==========================  =============================================  ===========================
chart           parameters                  coordinates δ of a move                        derivative of log p(x, z)
==============  ==========================  =============================================  ===========================
``Simplexes``   rows p of probabilities     p + p (δ - Σ p δ), since totals are linear     counts - (Σ counts) p
                                            in p
``Gaussians``   means m, covariances LL'    m + L a, L exp(B) L'; δ is a, and B up to      y, and (yy' - I)/2 where
                                            the diagonal                                   x = m + Ly
``Rates``       rates λ of counts           λ + λ δ, since totals are linear in λ          x - λ
``Reals``       real numbers m              m + u δ, where u is a unit                     none: see ``own.py``
``Tilts``       probabilities               η + δ                                          f(x) - E f
                p ∝ base exp(f η)
==============  ==========================  =============================================  ===========================

A row of ``Simplexes`` has one coordinate more than it needs: its prior holds the mean of δ at 0. A probability of 0 is a move
that does not exist, and stays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.linalg import block_diag
from scipy.special import softmax

from vips.expfam import Draws

__all__ = ["Chart", "Gaussians", "Rates", "Reals", "Simplexes", "Tilts"]

_LARGE_CHANGE = 0.3  # of a probability in one move
_FLOOR, _LEAST_FLOOR, _MOST_FLOOR = 0.2, 5e-5, 2e-3  # of probabilities: a fifth of a deviation, between these
_LEAST_RATE, _MOST_LEAST_RATE = 1e-6, 1e-2  # the same of rates
_MOST_AT_FLOORS = 0.02  # of a row
_NO_PRIOR = 1e-12
_LEAST_AT_START = 1e-4  # of probabilities
_APART = 0.7  # of logarithms, by which components of another start differ


class Chart(ABC):
    """Parameters of one kind, and the coordinates of moves from them."""

    size: int  # number of coordinates
    is_read = True  # whether anybody reads the parameters; those of other charts need not settle

    @abstractmethod
    def moved(self, step: np.ndarray, cov: np.ndarray | None = None) -> Self:
        """The parameters after a move, shape (size,), no nearer to bounds than totals tell where the covariance of coordinates
        is about ``cov``; without it, hardly off them."""

    def bounds(self, cov: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Slopes of the parameters that have a floor, shape (n, size), and how far they are above it, shape (n,). The floor is
        what totals cannot tell from 0 where the covariance is about ``cov``; without it, 0."""
        return np.zeros((0, self.size)), np.zeros(0)

    @abstractmethod
    def largest(self, step: np.ndarray) -> float:
        """Size of a move, 1 being too large for a linear approximation."""

    @abstractmethod
    def prior(self) -> tuple[np.ndarray, np.ndarray]:
        """Gradient, shape (size,), and precision, shape (size, size), of a normal approximation of the prior."""

    @abstractmethod
    def draws(self, steps: np.ndarray) -> np.ndarray:
        """Parameters after each of these moves, shape (n_draws, size), cut off at bounds."""

    @abstractmethod
    def named(self, name: str, draws: np.ndarray) -> dict[str, Draws]:
        """These draws in the shape of the parameters, by name."""

    @abstractmethod
    def moved_apart(self, shares: np.ndarray, rng: np.random.Generator) -> Self:
        """Another start: components, which have these shares, at random places around what all of them are together."""

    def merged(self, weights: np.ndarray) -> Self:
        """Components that are mixtures of these, with weights of shape (n, K) whose rows sum to 1; here none."""
        return self

    def apart(self) -> np.ndarray:
        """About the squared distance of two components in deviations of a record, shape (K, K)."""
        return np.zeros((1, 1))

    @property
    def n_free(self) -> int:
        """Number of free parameters."""
        return self.size


@dataclass(frozen=True)
class Simplexes(Chart):
    """Rows of probabilities; the ones above 0 have symmetric Dirichlet priors.

    Parameters
    ----------
    p : ndarray of shape (n_rows, n_levels)
    concentration : float
    """

    p: np.ndarray
    concentration: float

    @classmethod
    def inside(cls, p: np.ndarray, concentration: float, allowed: np.ndarray | bool = True) -> Self:
        """Rows near these probabilities, but with no allowed one at 0: no move leads away from 0."""
        p = np.where(allowed, np.maximum(p, _LEAST_AT_START), 0.0)
        return cls(p / p.sum(axis=-1, keepdims=True), concentration)

    @property
    def size(self) -> int:
        return self.p.size

    def scores(self, counts: np.ndarray) -> np.ndarray:
        """Scores of counts of shape (n_records, n_rows, n_levels); shape (n_records, size)."""
        return (counts - counts.sum(axis=-1, keepdims=True) * self.p).reshape(len(counts), -1)

    def moved(self, step: np.ndarray, cov: np.ndarray | None = None) -> Self:
        floors = _LEAST_FLOOR if cov is None else self._floors(cov)
        p = np.where(self._exists, np.maximum(self.p + self._changes(step), floors), 0.0)
        return replace(self, p=p / p.sum(axis=-1, keepdims=True))

    def bounds(self, cov: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        exists = self._exists.ravel()
        floors = 0.0 if cov is None else self._floors(cov)
        return block_diag(*self._slopes())[exists], np.maximum(self.p - floors, 0.0).ravel()[exists]

    def largest(self, step: np.ndarray) -> float:
        return float(np.abs(self._changes(step)).max(initial=0.0)) / _LARGE_CHANGE

    def prior(self) -> tuple[np.ndarray, np.ndarray]:
        exists, n_levels, slopes = self._exists, self._exists.sum(axis=1, keepdims=True), self._slopes()
        per_var = n_levels * (self.concentration * n_levels + 1.0)  # of a move within the simplex, at its centre
        gradient = per_var * np.einsum("rij,rj->ri", slopes, exists / n_levels - self.p)
        precision = per_var[:, None] * slopes @ slopes + 1.0 / n_levels[:, None]
        return gradient.ravel(), block_diag(*precision) + np.diag(np.where(exists, 0.0, 1.0).ravel())

    def draws(self, steps: np.ndarray) -> np.ndarray:
        """Rows whose probabilities would all add up to 1 if none were cut off: scaled to that, large ones would be too small
        wherever many others are 0."""
        return np.clip(self.p + self._changes(steps), 0.0, 1.0).reshape(len(steps), -1)

    def named(self, name: str, draws: np.ndarray) -> dict[str, Draws]:
        return {name: Draws(draws.reshape(-1, *self.p.shape), self.p)}

    def moved_apart(self, shares: np.ndarray, rng: np.random.Generator) -> Self:
        p = shares @ self.p * np.exp(_APART * rng.standard_normal(self.p.shape))
        return replace(self, p=p / p.sum(axis=1, keepdims=True))

    def merged(self, weights: np.ndarray) -> Self:
        return replace(self, p=weights @ self.p)

    def apart(self) -> np.ndarray:
        both = self.p[:, None] + self.p
        return (2.0 * np.square(self.p[:, None] - self.p) / np.maximum(both, 1e-300)).sum(axis=-1)

    @property
    def n_free(self) -> int:
        return int(self._exists.sum()) - len(self.p)

    @property
    def _exists(self) -> np.ndarray:
        return self.p > 0.0

    def _changes(self, steps: np.ndarray) -> np.ndarray:
        """Changes of p, by one move or several."""
        steps = steps.reshape(*steps.shape[:-1], *self.p.shape)
        return self.p * (steps - (self.p * steps).sum(axis=-1, keepdims=True))

    def _slopes(self) -> np.ndarray:
        """∂p/∂δ of each row."""
        return self.p[:, :, None] * (np.eye(self.p.shape[1]) - self.p[:, None, :])

    def _floors(self, cov: np.ndarray) -> np.ndarray:
        """Least probabilities: totals do not tell a smaller one from 0."""
        n_rows, n_levels = self.p.shape
        of_rows = np.moveaxis(np.diagonal(cov.reshape(n_rows, n_levels, n_rows, n_levels), axis1=0, axis2=2), -1, 0)
        slopes = self._slopes()
        std = np.sqrt(np.maximum(np.einsum("rij,rjk,rik->ri", slopes, of_rows, slopes), 0.0))
        return np.clip(_FLOOR * std, _LEAST_FLOOR, min(_MOST_FLOOR, _MOST_AT_FLOORS / n_levels))


@dataclass(frozen=True)
class Gaussians(Chart):
    """Means and covariances of components, with normal-Wishart priors.

    Parameters
    ----------
    mean : ndarray of shape (K, d)
    factor : ndarray of shape (K, d, d)
        L, lower triangular.
    is_diagonal : bool
        Whether L is diagonal, and so is B.
    prior_mean, prior_covariance : ndarray of shape (d,), (d, d)
    prior_sizes : (float, float)
        Of the prior in records: for means, and for covariances.
    """

    mean: np.ndarray
    factor: np.ndarray
    is_diagonal: bool
    prior_mean: np.ndarray
    prior_covariance: np.ndarray
    prior_sizes: tuple[float, float]

    @property
    def size(self) -> int:
        K, d = self.mean.shape
        return K * (d + len(self._entries()[0]))

    @property
    def covariances(self) -> np.ndarray:
        return self.factor @ np.swapaxes(self.factor, 1, 2)

    def images(self, X: np.ndarray) -> np.ndarray:
        """y = L⁻¹(x - m) in each component, shape (n_records, K, d). Where L is diagonal, columns may have missing numbers."""
        if self.is_diagonal:
            return (X[:, None] - self.mean) / np.diagonal(self.factor, axis1=1, axis2=2)
        return np.stack([np.linalg.solve(L, (X - m).T).T for m, L in zip(self.mean, self.factor, strict=True)], axis=1)

    def logs(self, images: np.ndarray) -> np.ndarray:
        """Log densities of records in each component, less what is the same in all, shape (n_records, K)."""
        diagonals = np.diagonal(self.factor, axis1=1, axis2=2)
        return -np.log(diagonals).sum(axis=1) - 0.5 * np.square(images).sum(axis=-1)

    def scores(self, shares: np.ndarray, images: np.ndarray) -> np.ndarray:
        """Scores of records with these shares of the components, shape (n_records, K)."""
        i, j = self._entries()
        second = np.where(i == j, 0.5, 1.0) * (images[..., i] * images[..., j] - (i == j))
        return (shares[:, :, None] * np.concatenate([images, second], axis=-1)).reshape(len(shares), -1)

    def moved(self, step: np.ndarray, cov: np.ndarray | None = None) -> Self:
        mean, covariances = (part[0] for part in self._parameters(step[None]))
        factor = np.linalg.cholesky(0.5 * (covariances + np.swapaxes(covariances, 1, 2)))
        return replace(self, mean=mean, factor=factor)

    def largest(self, step: np.ndarray) -> float:
        return float(np.abs(step).max(initial=0.0))

    def prior(self) -> tuple[np.ndarray, np.ndarray]:
        (K, d), (i, j), (of_mean, of_covariance) = self.mean.shape, self._entries(), self.prior_sizes
        inverses, half = np.linalg.inv(self.factor), np.where(i == j, 0.5, 1.0)
        means = of_mean * np.einsum("kij,kj->ki", inverses, self.prior_mean - self.mean)
        excess = inverses @ self.prior_covariance @ np.swapaxes(inverses, 1, 2) - np.eye(d)
        gradient = np.hstack([means, of_covariance * half * excess[:, i, j]])
        precision = np.append(np.full(d, of_mean), of_covariance * half)
        return gradient.ravel(), np.diag(np.tile(precision, K))

    def draws(self, steps: np.ndarray) -> np.ndarray:
        mean, covariances = self._parameters(steps)
        return np.concatenate([mean.reshape(len(steps), -1), covariances.reshape(len(steps), -1)], axis=1)

    def moved_apart(self, shares: np.ndarray, rng: np.random.Generator) -> Self:
        """Components as wide as those before."""
        mean = shares @ self.mean
        within = np.einsum("k,kij->ij", shares, self.covariances)
        apart = self.mean - mean
        whole = within + np.einsum("k,ki,kj->ij", shares, apart, apart)
        if self.is_diagonal:
            whole, within = np.diag(np.diagonal(whole)), np.diag(np.diagonal(within))
        places = mean + rng.standard_normal(self.mean.shape) @ np.linalg.cholesky(whole).T
        return replace(self, mean=places, factor=np.broadcast_to(np.linalg.cholesky(within), self.factor.shape))

    def merged(self, weights: np.ndarray) -> Self:
        mean = weights @ self.mean
        apart = self.mean - mean[:, None]
        covariances = np.einsum("nk,nkij->nij", weights, self.covariances + apart[..., :, None] * apart[..., None, :])
        if self.is_diagonal:
            covariances = covariances * np.eye(mean.shape[1])
        return replace(self, mean=mean, factor=np.linalg.cholesky(covariances))

    def apart(self) -> np.ndarray:
        """2 KL in both directions, halved."""
        inverses, shift = np.linalg.inv(self.factor), self.mean[:, None] - self.mean
        of_means = np.square(np.einsum("lij,klj->kli", inverses, shift)).sum(axis=-1)
        of_covariances = np.square(inverses[None] @ self.factor[:, None]).sum(axis=(-1, -2)) - self.mean.shape[1]
        distances = of_means + of_covariances
        return 0.5 * (distances + distances.T)

    def named(self, name: str, draws: np.ndarray) -> dict[str, Draws]:
        """ "means", and "covariances" or, where they are diagonal, variances; whatever the name."""
        mean, covariances = self.split(draws)
        if self.is_diagonal:
            covariances = np.diagonal(covariances, axis1=2, axis2=3)
        return {"means": Draws(mean), "covariances": Draws(covariances)}

    def split(self, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means, shape (n_draws, K, d), and covariances, shape (n_draws, K, d, d), of :meth:`draws`."""
        mean, covariances = np.split(draws, [self.mean.size], axis=1)
        return mean.reshape(-1, *self.mean.shape), covariances.reshape(-1, *self.factor.shape)

    def _parameters(self, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        (K, d), (i, j) = self.mean.shape, self._entries()
        a, b = np.split(steps.reshape(len(steps), K, -1), [d], axis=-1)
        B = np.zeros((len(steps), K, d, d))
        B[..., i, j] = B[..., j, i] = np.exp(b) if self.is_diagonal else b
        growth = B if self.is_diagonal else _exponential(B)
        mean = self.mean + np.einsum("kij,nkj->nki", self.factor, a)
        return mean, self.factor @ growth @ np.swapaxes(self.factor, 1, 2)

    def _entries(self) -> tuple[np.ndarray, np.ndarray]:
        d = self.mean.shape[1]
        return (np.arange(d),) * 2 if self.is_diagonal else np.tril_indices(d)


def _exponential(matrices: np.ndarray) -> np.ndarray:
    """The exponential of symmetric matrices. SciPy's squares as often as the largest needs: half a minute for wide draws."""
    values, vectors = np.linalg.eigh(matrices)
    return (vectors * np.exp(values)[..., None, :]) @ np.swapaxes(vectors, -1, -2)


@dataclass(frozen=True)
class Rates(Chart):
    """Rates of counts, with Gamma priors.

    Parameters
    ----------
    rates : ndarray of shape (K, d)
    shape : float
    rate : float or ndarray of shape (d,)
        Of the priors.
    """

    rates: np.ndarray
    shape: float
    rate: float | np.ndarray

    @property
    def size(self) -> int:
        return self.rates.size

    def scores(self, counts: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Scores of sums of counts over so many cells, both of shape (n_records, K, d)."""
        return (counts - cells * self.rates).reshape(len(counts), -1)

    def moved(self, step: np.ndarray, cov: np.ndarray | None = None) -> Self:
        floors = _LEAST_RATE if cov is None else self._floors(cov)
        return replace(self, rates=np.maximum(self.rates + self._changes(step), floors))

    def bounds(self, cov: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        floors = 0.0 if cov is None else self._floors(cov)
        return np.diag(self.rates.ravel()), np.maximum(self.rates - floors, 0.0).ravel()

    def largest(self, step: np.ndarray) -> float:
        """In units of about the deviation of a count."""
        return float((np.abs(self._changes(step)) / np.sqrt(self.rates + 0.25)).max(initial=0.0))

    def prior(self) -> tuple[np.ndarray, np.ndarray]:
        shape, rate = np.maximum(self.shape, _NO_PRIOR), np.maximum(self.rate, _NO_PRIOR)
        per_var = rate**2 / shape
        gradient = self.rates * per_var * (shape / rate - self.rates)
        return gradient.ravel(), np.diag((np.square(self.rates) * per_var).ravel())

    def draws(self, steps: np.ndarray) -> np.ndarray:
        return np.maximum(self.rates + self._changes(steps), 0.0).reshape(len(steps), -1)

    def named(self, name: str, draws: np.ndarray) -> dict[str, Draws]:
        return {name: Draws(draws.reshape(-1, *self.rates.shape), self.rates)}

    def moved_apart(self, shares: np.ndarray, rng: np.random.Generator) -> Self:
        return replace(self, rates=shares @ self.rates * np.exp(_APART * rng.standard_normal(self.rates.shape)))

    def merged(self, weights: np.ndarray) -> Self:
        return replace(self, rates=weights @ self.rates)

    def apart(self) -> np.ndarray:
        both = np.maximum(self.rates[:, None] + self.rates, 1e-300)
        return (2.0 * np.square(self.rates[:, None] - self.rates) / both).sum(axis=-1)

    def _changes(self, steps: np.ndarray) -> np.ndarray:
        return self.rates * steps.reshape(*steps.shape[:-1], *self.rates.shape)

    def _floors(self, cov: np.ndarray) -> np.ndarray:
        std = self.rates * np.sqrt(np.diagonal(cov)).reshape(self.rates.shape)
        return np.clip(_FLOOR * std, _LEAST_RATE, _MOST_LEAST_RATE)


@dataclass(frozen=True)
class Reals(Chart):
    """Real numbers with normal priors.

    Parameters
    ----------
    values, unit, prior_mean, prior_std : ndarray of shape (size,)
    """

    values: np.ndarray
    unit: np.ndarray
    prior_mean: np.ndarray
    prior_std: np.ndarray

    @property
    def size(self) -> int:
        return len(self.values)

    def narrower(self, coordinate: int) -> Self:
        """The same numbers, with half the unit of this one."""
        return replace(self, unit=np.where(np.arange(self.size) == coordinate, 0.5 * self.unit, self.unit))

    def moved(self, step: np.ndarray, cov: np.ndarray | None = None) -> Self:
        return replace(self, values=self.values + self.unit * step)

    def largest(self, step: np.ndarray) -> float:
        return float(np.abs(step).max(initial=0.0))

    def prior(self) -> tuple[np.ndarray, np.ndarray]:
        per_std = self.unit / self.prior_std
        return per_std * (self.prior_mean - self.values) / self.prior_std, np.diag(np.square(per_std))

    def draws(self, steps: np.ndarray) -> np.ndarray:
        return self.values + self.unit * steps

    def named(self, name: str, draws: np.ndarray) -> dict[str, Draws]:
        return {name: Draws(draws, self.values)}

    def moved_apart(self, shares: np.ndarray, rng: np.random.Generator) -> Self:
        return self


@dataclass(frozen=True)
class Tilts(Chart):
    """Smooth probabilities of levels, which only records need: those of ``base``, tilted along features.

    Parameters
    ----------
    base : ndarray of shape (n_levels,)
    features : ndarray of shape (n_levels, size)
    tilts : ndarray of shape (size,)
        η.
    std : float
        Of their normal prior, whose mean is 0.
    """

    base: np.ndarray
    features: np.ndarray
    tilts: np.ndarray
    std: float
    is_read = False

    @property
    def size(self) -> int:
        return len(self.tilts)

    @property
    def p(self) -> np.ndarray:
        return self._tilted(self.tilts)

    def scores(self, levels: np.ndarray) -> np.ndarray:
        """Scores of records at these levels."""
        return self.features[levels] - self.p @ self.features

    def moved(self, step: np.ndarray, cov: np.ndarray | None = None) -> Self:
        return replace(self, tilts=self.tilts + step)

    def largest(self, step: np.ndarray) -> float:
        """Deviation of the change of log p."""
        changes = self.features @ step
        return float(np.sqrt(self.p @ np.square(changes - self.p @ changes)))

    def prior(self) -> tuple[np.ndarray, np.ndarray]:
        return -self.tilts / self.std**2, np.eye(self.size) / self.std**2

    def draws(self, steps: np.ndarray) -> np.ndarray:
        return self._tilted(self.tilts + steps)

    def named(self, name: str, draws: np.ndarray) -> dict[str, Draws]:
        return {name: Draws(draws)}

    def moved_apart(self, shares: np.ndarray, rng: np.random.Generator) -> Self:
        return self

    def _tilted(self, tilts: np.ndarray) -> np.ndarray:
        logs = np.log(self.base) + tilts @ self.features.T
        return softmax(logs, axis=-1)
