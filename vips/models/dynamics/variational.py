"""Variational Bayes for linear dynamical systems: posterior of the parameters, its update, and its E-step.

In coordinates of the state in which Q = I,

    rows of A ~ N(0, I / α),   (c_i, d_i) | R_i ~ N(0, R_i B⁻¹),   1 / R_i ~ Gamma(a, b),
    m0 | P0 ~ N(0, P0 / κ),   P0 ~ inverse Wishart(Ψ, ν).

Expected log densities of a sequence are those of a system at the expected parameters, less quadratic forms in the state that
come from the parameters' spread. Further columns with the value 0 would add such forms (Barber and Chiappa, 2007, "Unified
inference for variational Bayesian linear Gaussian state-space models"), so the smoother needs no version of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import digamma, multigammaln

from vips.core.exact.blas import cholesky
from vips.data._sequences import Sequences
from vips.expfam import Gamma
from vips.models._definite import positive_definite
from vips.models.dynamics.posterior import Dynamics, DynamicsPosterior, Uncertainty
from vips.models.dynamics.smoothing import Smoothed, smoothed

__all__ = ["SystemPrior", "augmented", "divergence", "expected_states", "next_system", "spread_of", "started"]

_LOG_TWO_PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True, repr=False)
class SystemPrior:
    """Prior of a linear dynamical system.

    Parameters
    ----------
    moves : float
        α.
    loadings, offset : float
        Entries of the diagonal B.
    shape, rate : float
        a and b.
    start_count, start_dof, start_scale : float
        κ, ν, and Ψ = ``start_scale`` I.
    """

    moves: float = 1.0
    loadings: float = 0.01
    offset: float = 1e-6
    shape: float = 1e-3
    rate: float = 1e-6
    start_count: float = 1.0
    start_dof: float = 1.0
    start_scale: float = 1.0

    def of_columns(self, K: int) -> np.ndarray:
        """B."""
        return np.diag(np.append(np.full(K, self.loadings), self.offset))


def started(posterior: DynamicsPosterior, prior: SystemPrior) -> DynamicsPosterior:
    """A posterior around the system of the first step, in coordinates in which Q = I."""
    of, (p, K) = posterior.dynamics, posterior.dynamics.loadings.shape
    lower = cholesky(positive_definite(of.moves_cov))
    dynamics = replace(of.in_coordinates(np.linalg.inv(lower), lower), moves_cov=np.eye(K))
    n, n_steps = max(posterior.n_sequences, 1.0), max(posterior.n_steps, 1.0)
    spread = Uncertainty(
        np.eye(K) / n_steps, np.tile(np.eye(K + 1) / n_steps, (p, 1, 1)), np.full(p, prior.shape + 0.5 * n_steps),
        prior.start_count + n, K - 1.0 + prior.start_dof + n,
    )  # fmt: skip
    return replace(posterior, dynamics=dynamics, uncertainty=spread)


def augmented(records: Sequences, posterior: DynamicsPosterior) -> tuple[Sequences, Dynamics]:
    """Sequences with further columns of value 0, and the system of all columns: what a smoother needs for an E-step.

    Three sets of columns stand for the spread of A, in all steps but the last; of all (c_i, d_i), in steps without gaps; and of
    each (c_i, d_i) by itself, in the other steps.
    """
    of, spread, values = posterior.dynamics, posterior.uncertainty, records.values
    p, K = of.loadings.shape
    is_seen = np.isfinite(values)
    is_whole, is_last = is_seen.all(axis=1), np.zeros(len(values), bool)
    is_last[records.offsets[1:][records.lengths > 0] - 1] = True
    of_moves = np.vstack([cholesky(K * spread.moves), np.zeros((1, K))])
    roots, absent = [of_moves, cholesky(spread.columns.sum(axis=0))], [np.tile(is_last[:, None], (1, K))]
    absent.append(np.tile(~is_whole[:, None], (1, K + 1)))
    if (is_seen.any(axis=1) & ~is_whole).any():
        roots += [cholesky(covariance) for covariance in spread.columns]
        absent += [np.tile((is_whole | ~is_seen[:, i])[:, None], (1, K + 1)) for i in range(p)]
    rows = np.hstack(roots).T
    zeros = np.where(np.hstack(absent), np.nan, 0.0)
    system = replace(
        of, loadings=np.vstack([of.loadings, rows[:, :K]]), offset=np.append(of.offset, rows[:, K]),
        noise_variance=np.append(of.noise_variance, np.ones(len(rows))),
    )  # fmt: skip
    return Sequences(np.hstack([values, zeros]), records.offsets), system


def expected_states(records: Sequences, posterior: DynamicsPosterior) -> Smoothed:
    """States given whole sequences: at the parameters, or under their posterior if there is one.

    With a posterior, ``log_likelihood`` is the log of ∫ exp E[log p(sequence, states | parameters)] over the states.
    """
    if posterior.uncertainty is None:
        return smoothed(records, posterior)
    more, system = augmented(records, posterior)
    states = smoothed(more, DynamicsPosterior(system))
    spread, (p, K) = posterior.uncertainty, posterior.dynamics.loadings.shape
    of_step = 0.5 * _LOG_TWO_PI * np.isfinite(more.values[:, p:]).sum(axis=1)
    of_step += 0.5 * np.isfinite(records.values) @ (digamma(spread.shapes) - np.log(spread.shapes))
    expected = digamma(0.5 * (spread.start_dof - np.arange(K))).sum() + K * np.log(2.0 / spread.start_dof)
    of_start = 0.5 * (expected - K / spread.start_count)
    added = np.diff(np.concatenate([[0.0], np.cumsum(of_step)])[records.offsets]) + of_start * (records.lengths > 0)
    return replace(states, log_likelihood=states.log_likelihood + added)


def next_system(
    totals: Mapping[str, np.ndarray], posterior: DynamicsPosterior, prior: SystemPrior
) -> DynamicsPosterior:
    """The posterior of the parameters that expected totals give."""
    of, (p, K) = posterior.dynamics, posterior.dynamics.loadings.shape
    n, n_steps = np.maximum(totals["counts"], 0.0)
    of_moves = np.linalg.inv(positive_definite(totals["states"] - totals["end"] + prior.moves * np.eye(K)))
    columns, shapes = np.empty((p, K + 1, K + 1)), prior.shape + 0.5 * totals["seen"][:, -1, -1]
    loadings, offset, variance = (np.empty_like(parameter) for parameter in (of.loadings, of.offset, of.noise_variance))
    for i, (second, cross) in enumerate(zip(totals["seen"], totals["loadings"], strict=True)):
        precision = second + prior.of_columns(K)
        columns[i] = positive_definite(np.linalg.inv(precision))
        row = columns[i] @ cross
        loadings[i], offset[i] = row[:-1], row[-1]
        variance[i] = (prior.rate + 0.5 * max(totals["squares"][i] - row @ precision @ row, 0.0)) / shapes[i]
    count, dof = prior.start_count + n, K - 1.0 + prior.start_dof + n
    start = totals["start"] / count
    scale = prior.start_scale * np.eye(K) + totals["begin"] - count * np.outer(start, start)
    dynamics = Dynamics(
        totals["cross"] @ of_moves, np.eye(K), loadings, offset, variance, start, positive_definite(scale) / dof
    )
    spread = Uncertainty(positive_definite(of_moves), columns, shapes, float(count), float(dof))
    return DynamicsPosterior(dynamics, float(n), float(n_steps), spread)


def divergence(posterior: DynamicsPosterior, prior: SystemPrior) -> float:
    """KL of the parameters from their prior."""
    of, spread, (p, K) = posterior.dynamics, posterior.uncertainty, posterior.dynamics.loadings.shape
    total = prior.moves * (K * np.trace(spread.moves) + np.sum(of.moves**2)) - K * K
    total -= K * (K * np.log(prior.moves) + np.linalg.slogdet(spread.moves)[1])
    B = prior.of_columns(K)
    for row, cov, variance in zip(np.c_[of.loadings, of.offset], spread.columns, of.noise_variance, strict=True):
        total += np.trace(B @ cov) + row @ B @ row / variance - (K + 1)
        total -= np.log(np.diag(B)).sum() + np.linalg.slogdet(cov)[1]
    rates = spread.shapes * of.noise_variance
    total += 2.0 * float(np.sum(Gamma(spread.shapes, rates).kl(Gamma(np.full(p, prior.shape), np.full(p, prior.rate)))))
    return float(0.5 * (total + 2.0 * _of_start(of, spread, prior)))


def _of_start(of: Dynamics, spread: Uncertainty, prior: SystemPrior) -> float:
    """KL of m0 and P0: normal inverse Wishart."""
    K, dof, old = len(of.start), spread.start_dof, len(of.start) - 1.0 + prior.start_dof
    scale, ratio = dof * of.start_cov, prior.start_count / spread.start_count
    inverse, log_det = np.linalg.inv(of.start_cov), np.linalg.slogdet(scale)[1]  # E[P0⁻¹] = ν Ψ⁻¹
    total = prior.start_count * (of.start @ inverse @ of.start) + K * (ratio - 1.0 - np.log(ratio))
    digammas = digamma(0.5 * (dof - np.arange(K))).sum()
    total += old * (log_det - K * np.log(prior.start_scale)) + (dof - old) * digammas
    total += prior.start_scale * np.trace(inverse) - dof * K
    return float(0.5 * total + multigammaln(0.5 * old, K) - multigammaln(0.5 * dof, K))


def spread_of(posterior: DynamicsPosterior) -> tuple[np.ndarray, np.ndarray]:
    """Variances of the entries of A, shape (K, K), and of (C, d), shape (p, K + 1), in canonical coordinates."""
    of, spread = posterior.dynamics, posterior.uncertainty
    forth, back = of.canonical_coordinates()
    of_moves = np.outer(np.diag(forth @ forth.T), np.diag(back.T @ spread.moves @ back))
    wide = np.pad(back, (0, 1))
    wide[-1, -1] = 1.0
    of_columns = np.einsum("ij,nik,kj->nj", wide, spread.columns, wide) * of.noise_variance[:, None]
    return of_moves, of_columns
