"""Posterior of a factorial hidden Markov model, and its update.

The indicators of M chains with K states each form one vector s of R = M K numbers. With z = T (y - m), steps in coordinates in
which all of them have mean 0 and covariance I,

    z_t ~ N(W s_t, Σ),   W | Σ ~ matrix normal with mean B and column covariance V,   Σ ~ inverse Wishart(Ψ, ν).

The view of noisy totals is valid: some sequences could have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from scipy.special import digamma, multigammaln

from vips.expfam import Dirichlet
from vips.models._definite import positive_definite
from vips.models.markov.posterior import ChainPosterior, private_chain

__all__ = ["FactorialPosterior", "Prior", "Tables", "long_run", "next_emissions", "view"]

_LOG_TWO_PI = float(np.log(2.0 * np.pi))
_OF_ALL = "offset", "covariance"  # draws that are those of all chains
_LEAST = 1e-3  # of the steps: those of a state
_ROUNDS = 20


@dataclass(frozen=True)
class Prior:
    """Prior of the emissions.

    Parameters
    ----------
    precision : float
        Of an entry of W, in units of Σ.
    dof : float
    scale : float
        Ψ is ``scale`` times the identity.
    """

    precision: float
    dof: float
    scale: float


@dataclass(frozen=True, repr=False)
class Tables:
    """What E-steps need: E[Λ W], E[Λ], E[Wᵀ Λ W] with Λ = Σ⁻¹, and E log N(0 | 0, Σ)."""

    gains: np.ndarray
    precision: np.ndarray
    overlap: np.ndarray
    constant: float


@dataclass(frozen=True, repr=False)
class FactorialPosterior(ChainPosterior):
    """Posterior of all chains, and of the emissions.

    Parameters
    ----------
    start, moves : Dirichlet
        ``concentration`` of shape (M, K) and (M, K, K).
    mean : ndarray of shape (d, R)
        B.
    spread : ndarray of shape (R, R)
        V.
    scale : ndarray of shape (d, d)
        Ψ.
    dof : float
        ν.
    centre : ndarray of shape (d,)
        m.
    whitening : ndarray of shape (d, d)
        T, lower triangular.
    """

    mean: np.ndarray
    spread: np.ndarray
    scale: np.ndarray
    dof: float
    centre: np.ndarray
    whitening: np.ndarray

    def __repr__(self) -> str:
        n_chains, n_states = self.start.concentration.shape
        return f"<FactorialPosterior of {n_chains} chains of {n_states} states, {len(self.mean)} columns>"

    @cached_property
    def tables(self) -> Tables:
        """For the E-step; at the means with ``plug_in``."""
        d, inverse = len(self.mean), np.linalg.inv(self.scale)
        precision = self.dof * 0.5 * (inverse + inverse.T)
        gains = precision @ self.mean
        overlap, log_det = self.mean.T @ gains, np.linalg.slogdet(self.scale)[1]
        if self.plug_in:
            expected = d * np.log(self.dof) - log_det
        else:
            overlap = overlap + d * self.spread
            expected = digamma(0.5 * (self.dof - np.arange(d))).sum() + d * np.log(2.0) - log_det
        constant = 0.5 * (float(expected) - d * _LOG_TWO_PI)
        return Tables(*map(np.ascontiguousarray, (gains, precision, 0.5 * (overlap + overlap.T))), constant)

    def divergence_of_emissions(self, prior: Prior) -> float:
        """KL from the prior of W and Σ."""
        d, R = self.mean.shape
        inverse, log_det = np.linalg.inv(self.scale), np.linalg.slogdet(self.scale)[1]
        spread = np.linalg.slogdet(self.spread)[1]
        squares = self.dof * np.sum((inverse @ self.mean) * self.mean)
        of_means = d * prior.precision * np.trace(self.spread) + prior.precision * squares - d * R
        of_means -= d * (R * np.log(prior.precision) + spread)
        digammas = digamma(0.5 * (self.dof - np.arange(d))).sum()
        of_scale = prior.dof * (log_det - d * np.log(prior.scale)) + (self.dof - prior.dof) * digammas
        of_scale += self.dof * (prior.scale * np.trace(inverse) - d)
        of_scale += 2.0 * (multigammaln(0.5 * prior.dof, d) - multigammaln(0.5 * self.dof, d))
        return float(0.5 * (of_means + of_scale))

    def in_order(self, order: np.ndarray) -> FactorialPosterior:
        """The same chains in another order."""
        d, (M, K) = len(self.mean), self.start.concentration.shape
        mean, spread = self.mean.reshape(d, M, K)[:, order], self.spread.reshape(M, K, M, K)[order][:, :, order]
        return replace(
            self, start=Dirichlet(self.start.concentration[order]), moves=Dirichlet(self.moves.concentration[order]),
            mean=mean.reshape(d, M * K), spread=spread.reshape(M * K, M * K),
            draws={name: of if name in _OF_ALL else of.taken(order) for name, of in self.draws.items()},
        )  # fmt: skip

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        names = [field.name for field in fields(self) if field.name not in ("start", "moves", "draws")]
        return self._arrays_of_chain() | {name: np.asarray(getattr(self, name)) for name in names}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> FactorialPosterior:
        """Inverse of ``to_arrays``.

        Raises
        ------
        ValueError
            If the arrays do not fit together, or are not valid.
        """
        start, moves = (Dirichlet(arrays[name]) for name in ("start", "moves"))
        names = ("mean", "spread", "scale", "centre", "whitening")
        emissions = {name: np.asarray(arrays[name], np.float64) for name in names}
        if arrays["start"].ndim != 2 or emissions["mean"].ndim != 2:
            raise ValueError("the posterior's chains do not fit together")
        (M, K), d = arrays["start"].shape, len(emissions["mean"])
        expected = [(d, M * K), (M * K, M * K), (d, d), (d,), (d, d)]
        if arrays["moves"].shape != (M, K, K) or [part.shape for part in emissions.values()] != expected:
            raise ValueError("the posterior's chains do not fit together")
        if not all(np.isfinite(part).all() for part in emissions.values()) or not d - 1 < float(arrays["dof"]) < np.inf:
            raise ValueError("the posterior's emissions are not valid")
        for name in ("spread", "scale"):
            if np.linalg.eigvalsh(emissions[name])[0] <= 0.0:
                raise ValueError(f"the posterior's {name} is not positive definite")
        if np.triu(emissions["whitening"], 1).any() or (np.diag(emissions["whitening"]) <= 0.0).any():
            raise ValueError("the posterior's whitening is not lower triangular")
        return cls(
            start=start, moves=moves, plug_in=bool(arrays["plug_in"]), dof=float(arrays["dof"]),
            **emissions,
        )  # fmt: skip


def next_emissions(
    both: np.ndarray, linear: np.ndarray, second: np.ndarray, n_steps: float, prior: Prior, added: float = 0.0
) -> dict:
    """B, V, Ψ and ν from totals of s sᵀ, of s zᵀ and of z zᵀ, over ``n_steps`` steps.

    Parameters
    ----------
    both, linear, second : ndarray of shape (R, R), (R, d), (d, d)
    n_steps : float
    prior : Prior
    added : float
        To the prior's precision, against noise in ``both``. It shrinks effects, and is no part of what they leave unexplained.
    """
    R, d = linear.shape
    ridge = prior.precision + added
    scale = np.sqrt(np.maximum(np.diag(both), 0.0) + ridge)
    inverse = np.linalg.inv(positive_definite((both + ridge * np.eye(R)) / np.outer(scale, scale)))
    spread = positive_definite(inverse / np.outer(scale, scale))
    mean = (spread @ linear).T
    residual = second - mean @ linear - added * mean @ mean.T
    return {
        "mean": mean,
        "spread": spread,
        "scale": positive_definite(prior.scale * np.eye(d) + 0.5 * (residual + residual.T)),
        "dof": prior.dof + n_steps,
    }


def long_run(moves: np.ndarray) -> np.ndarray:
    """Shares of the steps that chains spend in each state, shape (..., K); moves of shape (..., K, K)."""
    K = moves.shape[-1]
    of_moves = np.swapaxes(moves / moves.sum(axis=-1, keepdims=True), -1, -2) - np.eye(K)
    rows = np.concatenate([of_moves, np.ones((*moves.shape[:-2], 1, K))], axis=-2)
    shares = np.linalg.pinv(rows)[..., -1]
    return shares / shares.sum(axis=-1, keepdims=True)


def view(totals: Mapping[str, np.ndarray], noise_std: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Totals that some sequences could have.

    No count is negative, two states of one chain exclude each other, and the states of each chain add up to 1 in every step:
    tables of two chains get the margins of both, by iterative proportional fitting, and all chains have the same sum of steps.
    """
    M, K = totals["start"].shape
    chains = [private_chain(*chain, noise_std) for chain in zip(totals["start"], totals["moves"], strict=True)]
    start, moves = (np.array(parts) for parts in zip(*chains, strict=True))
    both, every = totals["both"].reshape(M, K, M, K), np.arange(M)
    # K entries off the diagonal add up to a count, too, each with half of its variance
    counts = np.diag(totals["both"]).reshape(M, K)
    others = both.sum(axis=3)
    others[every, :, every] = 0.0
    counts = (counts + others.sum(axis=2) * 2.0 / K) / (1.0 + (M - 1) * 2.0 / K)
    n_steps = max(counts.sum() / M, 1.0)
    counts = np.maximum(counts, _LEAST * n_steps)
    counts = n_steps * counts / counts.sum(axis=1, keepdims=True)
    both = np.maximum(both, _LEAST * n_steps / K**2)
    for m in range(M):
        both[m, :, m] = np.diag(counts[m])
        for other in range(m):
            table = both[m, :, other]
            for _ in range(_ROUNDS):
                table = table * (counts[m] / table.sum(axis=1))[:, None]
                table = table * (counts[other] / table.sum(axis=0))
            both[m, :, other], both[other, :, m] = table, table.T
    linear = totals["linear"].reshape(M, K, -1)
    sums = linear.sum(axis=1)
    linear = linear + (counts / n_steps)[:, :, None] * (sums.mean(axis=0) - sums)[:, None]
    return dict(totals) | {
        "start": start, "moves": moves, "both": both.reshape(M * K, M * K), "linear": linear.reshape(M * K, -1),
    }  # fmt: skip
