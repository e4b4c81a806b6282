"""Factorial hidden Markov models as simulated sequences: M chains are one chain of joint states, at which scores are exact.

Steps of a fit see simulated sequences by their mean field, as they saw the records: that it is not exact is no error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, Self

import numpy as np
from scipy.linalg import block_diag

from vips.data._sequences import Sequences
from vips.expfam import Draws
from vips.models.components.matching.charts import Chart, Gaussians, Simplexes
from vips.models.components.matching.match import Match
from vips.models.markov.factorial_posterior import FactorialPosterior, Prior, long_run
from vips.models.markov.matching import VectorSimulator

__all__ = ["MOST_JOINT", "Effects", "FactorialSimulator"]

MOST_JOINT = 64  # joint states


@dataclass(frozen=True)
class Effects(Chart):
    """Effects of the states of all chains, and what is seen where all are in state 0: N(offset, C) with C = LL'.

    Coordinates are those of ``base``, and effects in units of L.

    Parameters
    ----------
    base : Gaussians
        One component.
    effects : ndarray of shape (M, K - 1, d)
        Of the states 1, 2, …; that of state 0 is 0.
    precision : float
        Of the prior of effects, in units of C.
    """

    base: Gaussians
    effects: np.ndarray
    precision: float

    @property
    def size(self) -> int:
        return self.base.size + self.effects.size

    @cached_property
    def states(self) -> np.ndarray:
        """Indicators of the states of each chain in each joint state, shape (J, M, K); those of the last chain turn first."""
        M, K = len(self.effects), self.effects.shape[1] + 1
        return np.eye(K)[np.stack(np.unravel_index(np.arange(K**M), (K,) * M), axis=1)]

    @property
    def relative(self) -> np.ndarray:
        """Means of the joint states less the offset, shape (J, d)."""
        return np.einsum("jmk,mkd->jd", self.states[:, :, 1:], self.effects)

    @property
    def mean(self) -> np.ndarray:
        """Means of the joint states, shape (J, d)."""
        return self.base.mean + self.relative

    def logs(self, X: np.ndarray) -> np.ndarray:
        """Log densities of steps in each joint state, less what is the same in all, shape (n_steps, J)."""
        images, means = self._images(X), self._whitened(self.relative)
        return images @ means.T - 0.5 * np.square(means).sum(axis=1)

    def scores(self, shares: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Scores of steps with these shares of the joint states, shape (n_steps, J); 0 where a step is missing."""
        images, means, seen = self._images(X), self._whitened(self.relative), shares.sum(axis=1, keepdims=True)
        (i, j), states = np.tril_indices(images.shape[1]), self.states[:, :, 1:].reshape(len(means), -1)
        expected = shares @ means
        second = seen * images[:, i] * images[:, j] - images[:, i] * expected[:, j] - expected[:, i] * images[:, j]
        second += shares @ (means[:, i] * means[:, j]) - seen * (i == j)
        of_effects = (shares @ states)[:, :, None] * images[:, None]
        of_effects -= np.einsum("nj,jrd->nrd", shares, states[:, :, None] * means[:, None], optimize=True)
        first = seen * images - expected
        return np.hstack([first, np.where(i == j, 0.5, 1.0) * second, of_effects.reshape(len(images), -1)])

    def moved(self, step: np.ndarray, cov: np.ndarray | None = None) -> Self:
        of_base, of_effects = np.split(step, [self.base.size])
        effects = self.effects + of_effects.reshape(self.effects.shape) @ self.base.factor[0].T
        return replace(self, base=self.base.moved(of_base), effects=effects)

    def largest(self, step: np.ndarray) -> float:
        return float(np.abs(step).max(initial=0.0))

    def prior(self) -> tuple[np.ndarray, np.ndarray]:
        gradient, precision = self.base.prior()
        gradient = np.append(gradient, -self.precision * self._whitened(self.effects))
        return gradient, block_diag(precision, self.precision * np.eye(self.effects.size))

    def draws(self, steps: np.ndarray) -> np.ndarray:
        of_base, of_effects = np.split(steps, [self.base.size], axis=1)
        effects = self.effects + of_effects.reshape(-1, *self.effects.shape) @ self.base.factor[0].T
        return np.hstack([self.base.draws(of_base), effects.reshape(len(steps), -1)])

    def named(self, name: str, draws: np.ndarray) -> dict[str, Draws]:
        """ "offset", "covariance" and, of all states, "means", whatever the name."""
        of_base, effects = np.split(draws, [draws.shape[1] - self.effects.size], axis=1)
        offset, covariance = self.base.split(of_base)
        effects = effects.reshape(-1, *self.effects.shape)
        means = np.concatenate([np.zeros_like(effects[:, :, :1]), effects], axis=2)
        return {"means": Draws(means), "offset": Draws(offset[:, 0]), "covariance": Draws(covariance[:, 0])}

    def moved_apart(self, shares: np.ndarray, rng: np.random.Generator) -> Self:
        """Effects at random that are as large together as those before; ``shares`` of shape (M, K)."""
        M, states = len(self.effects), shares[:, 1:]
        mean = np.einsum("mk,mkd->md", states, self.effects)
        apart = np.einsum("mk,mki,mkj->ij", states, self.effects, self.effects) - mean.T @ mean
        factor = np.linalg.cholesky((self.base.covariances[0] + apart) / M)
        effects = rng.standard_normal(self.effects.shape) @ factor.T
        offset = self.base.mean + mean.sum(axis=0) - np.einsum("mk,mkd->d", states, effects)
        return replace(self, base=replace(self.base, mean=offset), effects=effects)

    def _images(self, X: np.ndarray) -> np.ndarray:
        return self.base.images(X)[:, 0]

    def _whitened(self, effects: np.ndarray) -> np.ndarray:
        """L⁻¹ e of each effect in the last axis."""
        return effects @ np.linalg.inv(self.base.factor[0]).T


class FactorialSimulator(VectorSimulator):
    """Sequences of several chains whose effects add up; ``prior`` is that of what is seen."""

    prior: Prior
    doubtful, least_share = 1.0, 5.0

    @classmethod
    def of(cls, model, prior: Prior) -> Self:
        n_joint = model.n_components**model.n_chains
        if n_joint > MOST_JOINT:
            raise NotImplementedError(
                f"{model.n_chains} chains of {model.n_components} states have {n_joint:,} joint states, and more than "
                f"{MOST_JOINT} are too many to be matched. So there are no intervals."
            )
        return super().of(model, prior)

    def chains(self, start: Simplexes, moves: Simplexes) -> tuple[np.ndarray, np.ndarray]:
        return start.p, moves.p.reshape(*start.p.shape, -1)

    def joint(self, start: Simplexes, moves: Simplexes) -> tuple[np.ndarray, np.ndarray]:
        return tuple(reduce(np.kron, of_chains) for of_chains in self.chains(start, moves))

    def apart(self, firsts: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        M, K = self.model.n_chains, self.model.n_components
        states = np.eye(K)[np.stack(np.unravel_index(np.arange(K**M), (K,) * M))]
        of_chains = [of_chain.T @ pairs @ of_chain for of_chain in states]
        return np.stack([firsts @ of_chain for of_chain in states], axis=1), np.concatenate(of_chains, axis=1)

    def components(self, charts: Sequence[Chart]) -> tuple[np.ndarray, Sequence[Chart]]:
        raise NotImplementedError("Chains have no states that could be fewer.")

    def first(self, posterior: FactorialPosterior) -> list[Effects]:
        back, (M, K) = np.linalg.inv(posterior.whitening), posterior.start.concentration.shape
        effects = (back @ posterior.mean).T.reshape(M, K, -1)
        offset = posterior.centre + effects[:, 0].sum(axis=0)
        covariance = back @ (posterior.scale / posterior.dof) @ back.T
        sizes = self.prior.precision, self.prior.dof
        base = Gaussians(
            offset[None], np.linalg.cholesky(covariance)[None], False, posterior.centre,
            self.prior.scale / max(self.prior.dof, 1.0) * back @ back.T, sizes,
        )  # fmt: skip
        return [Effects(base, effects[:, 1:] - effects[:, :1], self.prior.precision)]

    def values(self, charts: Sequence[Effects], states: np.ndarray, noise: np.ndarray) -> np.ndarray:
        (chart,) = charts
        return chart.mean[states] + noise @ chart.base.factor[0].T

    def images(self, charts: Sequence[Effects], values: np.ndarray) -> np.ndarray:
        return np.nan_to_num(values)

    def scores_of_seen(
        self, charts: Sequence[Effects], records: Sequences, images: np.ndarray, shares: np.ndarray
    ) -> np.ndarray:
        shares = np.where(np.isnan(records.values[:, :1]), 0.0, shares)
        return np.add.reduceat(charts[0].scores(shares, images), records.offsets[:-1])

    def posterior(self, match: Match, fitted: FactorialPosterior, steps: np.ndarray) -> dict[str, Any]:
        chart, d, (M, K) = match.best()[-1], len(fitted.mean), steps.shape
        effects = np.concatenate([np.zeros((M, 1, d)), chart.effects], axis=1)
        effects += (chart.base.mean[0] - fitted.centre) / M
        dof = float(steps[0].sum() + d)
        covariance = fitted.whitening @ chart.base.covariances[0] @ fitted.whitening.T
        return {
            "mean": fitted.whitening @ effects.reshape(M * K, d).T,
            "spread": np.diag(1.0 / steps.ravel()),
            "scale": dof * 0.5 * (covariance + covariance.T),
            "dof": dof,
        }

    def matched_states(self, match: Match, fitted: FactorialPosterior) -> FactorialPosterior:
        """The same; "means" are about those of the long run, and "offset" is the mean of it."""
        matched = super().matched_states(match, fitted)
        draws, shares = matched.draws, long_run(matched.draws["moves"].draws)[..., None, :]
        centres = shares @ draws["means"].draws
        means, offset = draws["means"].draws - centres, draws["offset"].draws + centres.sum(axis=(1, 2))
        return replace(matched, draws=draws | {"means": Draws(means), "offset": Draws(offset)})
