"""Posterior of weights and biases given *noisy* totals: post-processing, which costs no budget.

Steps end before they have converged, a clip weighs records, and variances of the mean field ignore both. But a
released total says what records give at a *known* network. So we ask which networks give such totals: records are
simulated from a network, with fixed seeds, and their statistics are computed as in the fit, clip included. The
network moves until simulated totals match released ones.

=========  =====================================================================================================
symbol     meaning
=========  =====================================================================================================
θ_j        (c_j, w_j) of visible unit j
s_j        statistics (r_j, r_j z̃ - ω_j v w̄_j) of a record, times its clip weight, at the average network of the
           last steps (``trail.py``)
t_j        released total of s_j, averaged over the last steps
μ_j, Γ_j   mean and covariance of s_j for records from θ;   n = released count / mean clip weight
u_j        (y_j - p_j) (1, z), the derivative of a simulated record's log-probability by θ_j
D_j        E s_j u_jᵀ, which is ∂μ_j/∂θ_j
V_j        variance of t_j - n μ_j: noise, records (n Γ_j), count, and simulation
=========  =====================================================================================================

Each move is a step of Gauss and Newton for t_j ~ N(n μ_j(θ), V_j), under the prior; the curvature at the end gives
the variances. The same holds for z̃ and b in place of s_j and θ_j. Since E u_j = 0, the part of the simulation's
error that u_j explains is removed.

Where noise is large the posterior is not Gaussian. Totals that are drawn from N(n μ, V) at the network found, with
fixed seeds, and the same iteration show by how much deviations must grow.

Intervals hold if records come from a network, and for fits that found its units. If all rows of a person are one
record, its rows are taken as independent, and the clip as not binding.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from vips._compute.rowwise import PIECE
from vips.exceptions import PrivacyWarning
from vips.expfam import DiagonalGaussian, Gaussian
from vips.models.belief_networks.inference import infer
from vips.models.belief_networks.posterior import NetworkPosterior
from vips.models.belief_networks.prior import BIAS_PRECISION
from vips.models.belief_networks.statistics import NetworkStatistics
from vips.models.belief_networks.trail import KEPT, Trail
from vips.models.belief_networks.update import CENTRE
from vips.statistics import Block

__all__ = ["noise_aware_network"]

_N_RECORDS, _CHUNK = 5_000, 1_000_000  # simulated records; numbers in one array of a chunk of them
_N_SWEEPS, _FULL, _LAST = 8, 3, 5  # iterations, of which some are not damped; iterations of a stand-in
_LARGEST_MOVE = 2.0  # of a parameter in one iteration
_STAND_INS, _LEVEL, _QUANTILE = 2, 0.95, 1.959964
_FEWEST, _LEAST_WEIGHT, _LEAST_VAR = 30.0, 1e-6, 1e-9
_TOLD = 0.5  # of a unit that the fit found, z̄ correlates with z by more than this


@dataclass(frozen=True)
class _Network:
    """Parameters, and inverse curvatures of (c_j, w_j) and b."""

    rows: np.ndarray  # θ, shape (J, K + 1)
    hidden: np.ndarray  # b, shape (K,)
    rows_cov: np.ndarray | None = None
    hidden_cov: np.ndarray | None = None
    weight_var: float = 1.0  # of the weights' prior: at least that of the declared one
    told: np.ndarray | None = None  # correlation of the fit's z̄ with z over simulated records, about


@dataclass(frozen=True)
class _Moments:
    """Of one record, by simulation."""

    count: float
    rows: np.ndarray  # μ
    rows_cov: np.ndarray  # Γ
    rows_slope: np.ndarray  # D
    rows_residual: np.ndarray  # the part of Γ that u does not explain
    hidden: np.ndarray
    hidden_cov: np.ndarray
    hidden_slope: np.ndarray


@dataclass(frozen=True)
class _Totals:
    """Released totals, and the variances of the noise in them."""

    count: float
    rows: np.ndarray
    hidden: np.ndarray
    count_var: float
    rows_var: np.ndarray  # shape (K + 1,)
    hidden_var: float
    sampled: float  # variance that samples of a step add, in units of Σ s sᵀ


def noise_aware_network(model) -> NetworkPosterior:
    """The posterior given the noisy totals; a function of released numbers and fixed seeds.

    Costs 18 passes over 5,000 simulated records.

    Parameters
    ----------
    model : BeliefNetwork
        Fitted with noise.

    Raises
    ------
    NotImplementedError
        If the fit kept no totals of its last steps.

    Warns
    -----
    PrivacyWarning
        If the fit could not tell a hidden unit from noise.
    """
    posterior, plan, blocks = model.posterior_, model.privacy_.plan, model.blocks()
    trail = posterior.trail
    if trail is None or trail.n_steps == 0:
        raise NotImplementedError("This network did not keep the totals of its last steps, which intervals need.")
    records = _Records(trail, posterior, blocks, plan.clip_weights, model.max_iter)
    totals = _released(trail, blocks, plan.noise_std() / plan.sampling_rate, plan.sampling_rate)
    start = _Network(np.column_stack([posterior.visible_bias.mean, posterior.weights.mean]), posterior.hidden_bias.mean)
    network = _solved(records, totals, start, _N_SWEEPS, seed=0)
    if (network.told < _TOLD).any():
        units = np.flatnonzero(network.told < _TOLD).tolist()
        warnings.warn(
            f"Noise hides the hidden units {units} from the fit: intervals of the noise-aware posterior need not hold. "
            "More records, a larger epsilon or fewer hidden units help.",
            PrivacyWarning,
            stacklevel=4,
        )
    factors = _factors(records, totals, network)
    sizes = _deviations(network) * factors
    weight_var = sizes[:, 1:] ** 2
    if isinstance(posterior.weights, Gaussian):
        scale = factors[0, 1:]
        cov = network.rows_cov[:, 1:, 1:] * scale[:, None] * scale
        weights = Gaussian(network.rows[:, 1:], np.linalg.inv(cov))
    else:
        weights = DiagonalGaussian(network.rows[:, 1:], 1.0 / weight_var)
    return replace(
        posterior,
        weights=weights,
        visible_bias=DiagonalGaussian(network.rows[:, 0], 1.0 / sizes[:, 0] ** 2),
        hidden_bias=DiagonalGaussian(network.hidden, 1.0 / (np.diag(network.hidden_cov) * factors[0, 0] ** 2)),
    )


def _released(trail: Trail, blocks: Mapping[str, Block], noise_std: float, rate: float) -> _Totals:
    variances = {name: (noise_std * blocks[name].scale) ** 2 / trail.n_steps for name in KEPT}
    return _Totals(
        float(trail.count),
        np.column_stack([trail.visible, trail.weights]),
        trail.hidden,
        variances["count"],
        np.append(variances["visible"], np.full(len(trail.hidden), variances["weights"])),
        variances["hidden"],
        (1.0 - rate) / rate / trail.n_steps,
    )


class _Records:
    """Simulated records, whose statistics are those at the average network of the last steps."""

    def __init__(self, trail: Trail, posterior: NetworkPosterior, blocks, clip_weights, max_iter: int) -> None:
        self._at = replace(
            posterior,
            weights=DiagonalGaussian(trail.at_weights, np.ones(trail.at_weights.shape)),
            visible_bias=DiagonalGaussian(trail.at_visible, 1.0 / trail.at_visible_var),
            hidden_bias=DiagonalGaussian(trail.at_hidden, np.ones(trail.at_hidden.shape)),
            coupling=trail.at_coupling,
        )
        self._blocks, self._clip_weights, self._max_iter = blocks, clip_weights, max_iter

    def moments(self, network: _Network, seed: int) -> _Moments:
        """By simulation from the network; the same seed gives the same random numbers to every network."""
        rng, (J, width) = np.random.default_rng([seed, 0]), network.rows.shape
        size = PIECE * max(1, _CHUNK // (J * width * PIECE))
        sums: dict[str, np.ndarray] = {}
        for first in range(0, _N_RECORDS, size):
            for name, value in self._sums(network, min(size, _N_RECORDS - first), rng).items():
                sums[name] = sums.get(name, 0.0) + value / _N_RECORDS
        s, u, z = sums["s"], sums["u"], sums["z"]
        explained = sums["su"] @ np.linalg.inv(sums["uu"] + 2.0 / _N_RECORDS * np.eye(width))
        mean = s - np.einsum("jab,jb->ja", explained, u)
        crossed = explained @ np.swapaxes(sums["su"], 1, 2)
        squares = explained @ sums["uu"] @ np.swapaxes(explained, 1, 2)
        residual = sums["ss"] - crossed - np.swapaxes(crossed, 1, 2) + squares
        return _Moments(
            float(sums["count"]),
            mean,
            sums["ss"] - s[:, :, None] * s[:, None, :],
            explained @ sums["fisher"],
            residual - mean[:, :, None] * mean[:, None, :],
            z,
            sums["zz"] - np.outer(z, z),
            sums["zb"],
        )

    def _sums(self, network: _Network, n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        J, width = network.rows.shape
        z = (rng.random((n, width - 1)) < expit(network.hidden)).astype(np.float64)
        design = np.column_stack([np.ones(n), z])
        p = expit(design @ network.rows.T)
        y = (rng.random((n, J)) < p).astype(np.float64)
        units = infer(y, self._at, self._max_iter)
        statistics = NetworkStatistics(units, self._at.weights.mean, CENTRE, "outer" in self._blocks, False)
        weights = self._clip_weights(statistics.norms(self._blocks))
        centred, var = units.mean - CENTRE, units.mean * (1.0 - units.mean)
        s = np.empty((J, width, n))
        s[:, 0] = units.residual.T
        s[:, 1:] = units.residual.T[:, None] * centred.T
        s[:, 1:] -= units.omega.T[:, None] * (self._at.weights.mean[:, :, None] * var.T)
        s *= weights
        u = (y - p).T[:, None] * design.T  # (J, K + 1, n)
        u_t, clipped = np.swapaxes(u, 1, 2), centred * weights[:, None]
        slopes = (p * (1.0 - p)).T[:, None] * design.T
        return {
            "count": weights.sum(),
            "s": s.sum(axis=2),
            "u": u.sum(axis=2),
            "ss": s @ np.swapaxes(s, 1, 2),
            "su": s @ u_t,
            "uu": u @ u_t,
            "fisher": slopes @ design,
            "z": clipped.sum(axis=0),
            "zz": clipped.T @ clipped,
            "zb": clipped.T @ (z - expit(network.hidden)),
        }


def _solved(records: _Records, totals: _Totals, network: _Network, max_iter: int, seed: int) -> _Network:
    """The network whose totals are the released ones, as far as the prior lets it."""
    for sweep in range(max_iter):
        network = _moved(network, totals, records.moments(network, seed), 1.0 if sweep < _FULL else 0.5)
    return network


def _moved(network: _Network, totals: _Totals, of_one: _Moments, length: float) -> _Network:
    """One step of Gauss and Newton."""
    n, rows_var, hidden_var = _expected(totals, of_one)
    width = network.rows.shape[1]
    prior = np.append(BIAS_PRECISION, np.full(width - 1, 1.0 / network.weight_var))
    rows, rows_cov = _step(network.rows, totals.rows - n * of_one.rows, n * of_one.rows_slope, rows_var, prior, length)
    hidden, hidden_cov = _step(
        network.hidden[None],
        (totals.hidden - n * of_one.hidden)[None],
        n * of_one.hidden_slope[None],
        hidden_var[None],
        np.full(width - 1, BIAS_PRECISION),
        length,
    )
    squares = np.square(rows[:, 1:]) + np.diagonal(rows_cov, axis1=1, axis2=2)[:, 1:]
    p = expit(network.hidden)
    spread = np.sqrt(np.maximum(np.diag(of_one.hidden_cov) * p * (1.0 - p), _LEAST_WEIGHT**2))
    told = np.diag(of_one.hidden_slope) / spread
    return _Network(rows, hidden[0], rows_cov, hidden_cov[0], max(1.0, float(squares.mean())), told)


def _expected(totals: _Totals, of_one: _Moments) -> tuple[float, np.ndarray, np.ndarray]:
    """n, and the variances of the totals of the rows and of the hidden units."""
    n = max(totals.count / max(of_one.count, _LEAST_WEIGHT), _FEWEST)
    n_var = totals.count_var / max(of_one.count, _LEAST_WEIGHT) ** 2 + n  # the latter at most, by clip weights

    def variance(mean, cov, residual, noise) -> np.ndarray:
        squares = mean[..., :, None] * mean[..., None, :]
        sampled = totals.sampled * n * (cov + squares)
        return (
            n * cov
            + sampled
            + n_var * squares
            + n**2 / _N_RECORDS * residual
            + (noise + _LEAST_VAR * n) * np.eye(len(mean.T))
        )

    hidden = variance(of_one.hidden, of_one.hidden_cov, of_one.hidden_cov, totals.hidden_var)
    return n, variance(of_one.rows, of_one.rows_cov, of_one.rows_residual, totals.rows_var), hidden


def _step(value, residual, slope, variance, prior, length: float) -> tuple[np.ndarray, np.ndarray]:
    """New values and their covariances, by row."""
    weighted = np.swapaxes(slope, 1, 2) @ np.linalg.inv(variance)
    cov = np.linalg.inv(weighted @ slope + np.diag(prior))
    move = np.einsum("jab,jb->ja", cov, np.einsum("jab,jb->ja", weighted, residual) - prior * value)
    largest = np.abs(move).max(axis=1, keepdims=True)
    return value + length * move / np.maximum(1.0, largest / _LARGEST_MOVE), cov


def _deviations(network: _Network) -> np.ndarray:
    return np.sqrt(np.diagonal(network.rows_cov, axis1=1, axis2=2))


def _factors(records: _Records, totals: _Totals, network: _Network) -> np.ndarray:
    """By which deviations of c and of w must grow, shape (1, K + 1)."""
    ratios = []
    for seed in range(1, 1 + _STAND_INS):
        rng, of_one = np.random.default_rng([seed, 1]), records.moments(network, seed)
        n, rows_var, hidden_var = _expected(totals, of_one)
        noisy = replace(totals, rows=n * of_one.rows + _normal(rows_var, rng))
        noisy = replace(noisy, hidden=n * of_one.hidden + _normal(hidden_var[None], rng)[0])
        again = _solved(records, noisy, network, _LAST, seed)
        ratios.append(np.abs(again.rows - network.rows) / _deviations(again))
    of_bias, of_weights = (np.quantile(part, _LEVEL) / _QUANTILE for part in np.split(np.array(ratios), [1], axis=2))
    return np.maximum(1.0, np.append(of_bias, np.full(network.rows.shape[1] - 1, of_weights)))[None]


def _normal(cov: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    values, vectors = np.linalg.eigh(cov)
    scaled = np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(values.shape)
    return np.einsum("jab,jb->ja", vectors, scaled)
