"""Belief networks as simulated records, matched visible unit by visible unit.

A network has too many totals for one match of all (:mod:`vips.models.components.matching.match`). But given the other units,
what a step releases of visible unit j depends on its own parameters, nearly alone:

=========  ==========================================================================================================
symbol     meaning
=========  ==========================================================================================================
θ_j        (c_j, w_j) of visible unit j
s_j        its statistics (r_j, r_j z̃ - ω_j v w̄_j) of a record, times its clip weight, at the posterior of a step; one
           after the other for each group of steps
y_j        released totals of s_j, averaged over the steps of each group
u_j        (y_j - p_j) (1, z), the derivative of a simulated record's log probability by θ_j
J_j        N Cov(s_j, u_j), which is ∂ E y_j/∂θ_j (Fisher's identity)
V_j        variance of y_j: N Cov(s_j) of the records, N²/M of the simulation, that of the noise, and that of sampled steps
=========  ==========================================================================================================

A sweep simulates M records, with fixed seeds, and moves all units at once by Gauss and Newton, under the prior. The same holds
for z̃ and b in place of s_j and θ_j. Since E u_j = 0, the part of the simulation's error that u_j explains is removed. Groups
of steps contradict each other where the totals are not those of a network, or the fit went astray: there is a χ².
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag
from scipy.special import expit

from vips.core.sums.networks import NetworkStatistics
from vips.expfam import DiagonalGaussian, Gaussian
from vips.models.belief_networks.denoising import Totals
from vips.models.belief_networks.inference import infer
from vips.models.belief_networks.posterior import NetworkPosterior
from vips.models.belief_networks.prior import BIAS_PRECISION
from vips.models.belief_networks.update import CENTRE
from vips.models.components.matching.match import Match
from vips.models.components.matching.simulator import portions
from vips.models.components.matching.steps import StepGroup, groups_of

__all__ = ["NetworkMatch", "check_told", "match_of", "matched_network"]

_FEW, _MANY = 3_000, 8_000  # simulated records of the first sweeps, and of others
_SWEEPS, _FIRST, _LARGEST_MOVE = 25, 6, 0.5
_NEAR, _SMALL_MOVE = 1.0, 0.1  # in standard deviations: to end the first sweeps, and all
_NUMBERS = 5_000_000  # in one array of some visible units
_FEWEST = 30.0  # records
_RIDGE, _LEAST_VAR = 1e-4, 1e-6  # of scores, and of statistics over N times their mean variance
_TOLD, _SEEN = 0.93, 0.5  # correlation: for intervals, and for the match to be read at all


@dataclass(frozen=True, kw_only=True)
class NetworkMatch(Match):
    """Parameters of a network, and normal approximations around them.

    Parameters
    ----------
    rows : ndarray of shape (J, K + 1)
        Bias and weights of each visible unit.
    rows_cov : ndarray of shape (J, K + 1, K + 1)
    hidden : ndarray of shape (K,)
        Biases of the hidden units.
    hidden_cov : ndarray of shape (K, K)
    told : ndarray of shape (K,)
        Correlation of z̄ with z over the simulated records, at the last steps, by hidden unit.
    """

    rows: np.ndarray = field(repr=False)
    rows_cov: np.ndarray = field(repr=False)
    hidden: np.ndarray = field(repr=False)
    hidden_cov: np.ndarray = field(repr=False)
    told: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class _Totals:
    """Released totals by unit, one group after the other.

    Parameters
    ----------
    values, noise_var : ndarray of shape (n_units, n_totals)
    sampled : ndarray of shape (n_totals, n_totals)
        Factor of N E s s' by which Poisson samples of the steps add to the variance.
    """

    values: np.ndarray
    noise_var: np.ndarray
    sampled: np.ndarray

    @classmethod
    def of(cls, groups: Sequence[StepGroup], by_unit: Callable[[Mapping[str, np.ndarray]], np.ndarray]) -> _Totals:
        """``by_unit`` takes a group's blocks to an array with a row for each unit."""
        values, noise_var = ([by_unit(getattr(group, name)) for group in groups] for name in ("totals", "noise_var"))
        sampled = [np.full((of.shape[1],) * 2, group.sampled) for of, group in zip(values, groups, strict=True)]
        return cls(np.hstack(values), np.hstack(noise_var), block_diag(*sampled))

    def part(self, units: slice) -> _Totals:
        return replace(self, values=self.values[units], noise_var=self.noise_var[units])


class _Sight(NamedTuple):
    """What some simulated records give at the posterior of a step: their rows, clip weights and statistics."""

    rows: np.ndarray
    weights: np.ndarray
    statistics: NetworkStatistics


def match_of(model) -> NetworkMatch:
    """The network whose records give the totals of a private fit, from the fit's posterior on.

    Raises
    ------
    NotImplementedError
        If no move can be computed, and as :func:`groups_of` does.
    """
    with np.errstate(all="ignore"):
        try:
            return _matched(model)
        except np.linalg.LinAlgError:
            raise NotImplementedError(
                "The released totals tell nothing of a network: there are no intervals."
            ) from None


def _matched(model) -> NetworkMatch:
    groups, posterior = groups_of(model), model.last_posterior_
    totals = _Totals.of(groups, _of_visible), _Totals.of(groups, lambda blocks: blocks["hidden"][None])
    at = np.append(np.column_stack([posterior.visible_bias.mean, posterior.weights.mean]), posterior.hidden_bias.mean)
    n, before = _FEW, np.zeros_like(at)
    for number in range(_SWEEPS):
        match, move = _sweep(model, groups, totals, at, n)
        if (n == _MANY and match.move < _SMALL_MOVE) or number == _SWEEPS - 1:
            break
        before = np.where(move * before < 0.0, 0.5 * move, move)  # which goes back and forth, otherwise
        at, n = at + before, _MANY if match.move < _NEAR or number >= _FIRST else n
    return match


def check_told(match: NetworkMatch) -> None:
    """Raise NotImplementedError if steps tell too little of a hidden unit."""
    hidden = match.told < _TOLD
    if hidden.any():
        raise NotImplementedError(
            f"Records do not tell {hidden.sum()} of the {len(hidden)} hidden units, or noise hides these: other networks give "
            "such totals, too. So there are no intervals. Fewer hidden units, more columns, or a larger ε, would show more."
        )


def matched_network(match: NetworkMatch, model) -> NetworkPosterior:
    """The fit's posterior with the parameters of the match.

    Raises
    ------
    NotImplementedError
        If the match is refused, or noise hides a hidden unit altogether.
    """
    match.check()
    if (match.told < _SEEN).any():
        check_told(match)
    fitted, variances = model.last_posterior_, np.diagonal(match.rows_cov, axis1=1, axis2=2)
    weights = match.rows[:, 1:]
    if isinstance(fitted.weights, Gaussian):
        of_weights = Gaussian(weights, np.linalg.inv(match.rows_cov[:, 1:, 1:]))
    else:
        of_weights = DiagonalGaussian(weights, 1.0 / variances[:, 1:])
    totals = Totals.view(model.noisy_totals_.average, model.noisy_totals_.noise_std, CENTRE)
    coupling = (weights * (totals.omega / totals.count)[:, None]).T @ weights
    visible = DiagonalGaussian(match.rows[:, 0], 1.0 / variances[:, 0])
    hidden = DiagonalGaussian(match.hidden, 1.0 / np.diag(match.hidden_cov))
    biases = {"visible_bias": visible, "hidden_bias": hidden}
    return replace(fitted, weights=of_weights, **biases, coupling=coupling, plug_in=True)


def _sweep(model, groups, totals, at: np.ndarray, n: int) -> tuple[NetworkMatch, np.ndarray]:
    """What n simulated records say at these parameters, and the move from there."""
    K = model.n_components
    rows, hidden = at[:-K].reshape(-1, K + 1), at[-K:]
    rng, (J, width) = np.random.default_rng(0), rows.shape
    z = (rng.random((n, K)) < expit(hidden)).astype(np.float64)
    design = np.column_stack([np.ones(n), z])
    p = expit(design @ rows.T)
    y = (rng.random((n, J)) < p).astype(np.float64)
    sights = [_sights(model, group, y) for group in groups]
    size = _number_of_records(groups, sights, n)
    prior = np.append(BIAS_PRECISION, np.full(K, 1.0 / max(1.0, float(np.square(rows[:, 1:]).mean()))))
    parts, n_units = [], max(1, _NUMBERS // (n * width * len(groups)))
    for start in range(0, J, n_units):
        units = slice(start, start + n_units)
        scores = (y - p)[:, units].T[:, None] * design.T
        of_units = np.concatenate(
            [_seen(of, n, lambda s, units=units: s.derivatives.of_units(units)) for of in sights], axis=1
        )
        parts.append(_step(of_units, scores, totals[0].part(units), size, rows[units], prior))
    of_rows = _Step(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    statistics = np.concatenate([_seen(of, n, lambda s: s.centred.T) for of in sights])[None]
    scores = (z - expit(hidden)).T[None]
    of_hidden = _step(statistics, scores, totals[1], size, hidden[None], np.full(K, BIAS_PRECISION))
    move = np.append(*(_shortened(of.move) for of in (of_rows, of_hidden)))
    std = np.append(*(np.sqrt(np.diagonal(of.cov, axis1=1, axis2=2)) for of in (of_rows, of_hidden)))
    match = NetworkMatch(
        rows=rows,
        rows_cov=of_rows.cov,
        hidden=hidden,
        hidden_cov=of_hidden.cov[0],
        told=_correlations(sights[-1], z),
        n_records=size[0],
        chi2=float(of_rows.chi2.sum() + of_hidden.chi2.sum()),
        degrees=float((len(groups) - 1) * (J * width + K)),
        move=float((np.abs(move) / std).max()),
    )
    return match, move


def _shortened(moves: np.ndarray) -> np.ndarray:
    largest = np.abs(moves).max(axis=1, keepdims=True)
    return moves * np.minimum(1.0, _LARGEST_MOVE / np.maximum(largest, 1e-300))


def _correlations(sights: Sequence[_Sight], z: np.ndarray) -> np.ndarray:
    """Correlations of z̄ with z, by hidden unit."""
    inferred = np.concatenate([sight.statistics.centred for sight in sights])
    known = np.concatenate([z[sight.rows] for sight in sights])
    return np.nan_to_num([np.corrcoef(*pair)[0, 1] for pair in zip(inferred.T, known.T, strict=True)])


def _of_visible(blocks: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.column_stack([blocks["visible"], blocks["weights"]])


def _sights(model, group: StepGroup, y: np.ndarray) -> list[_Sight]:
    sights = []
    for rows, numbers, weight in portions(len(y), len(group.steps), 1):
        for posterior in (group.steps[number].posterior for number in numbers):
            units = infer(y[rows], posterior, model.max_iter)
            statistics = units.statistics(posterior.weights.mean, CENTRE, model.covariance == "full", False)
            weights = model.privacy_.plan.clip_weights(statistics.norms(model.blocks()))
            sights.append(_Sight(rows, weight * weights, statistics))
    return sights


def _seen(sights: Sequence[_Sight], n: int, of: Callable[[NetworkStatistics], np.ndarray]) -> np.ndarray:
    """Clipped statistics of each record, averaged over the steps that see it; records are the last axis."""
    seen = np.zeros((*of(sights[0].statistics).shape[:-1], n))
    for rows, weights, statistics in sights:
        seen[..., rows] += weights * of(statistics)
    return seen


def _number_of_records(groups: Sequence[StepGroup], sights: Sequence[Sequence[_Sight]], n: int) -> tuple[float, float]:
    """By the counts of all groups, and its variance."""
    means = np.array([sum(sight.weights.sum() for sight in of) / n for of in sights])
    information = means / np.array([float(group.noise_var["count"]) for group in groups])
    var = 1.0 / float(information @ means)
    return max(var * float(information @ [group.totals["count"] for group in groups]), _FEWEST), var


class _Step(NamedTuple):
    """By unit: a move, the covariance at its start, and the distance of the totals there."""

    move: np.ndarray
    cov: np.ndarray
    chi2: np.ndarray


def _step(
    s: np.ndarray, u: np.ndarray, totals: _Totals, size: tuple[float, float], values: np.ndarray, prior: np.ndarray
) -> _Step:
    """A step of Gauss and Newton.

    Parameters
    ----------
    s, u : ndarray of shape (n_units, n_totals or n_parameters, n_records)
        Statistics and scores.
    totals : _Totals
    size : (float, float)
        Number of records, and its variance.
    values : ndarray of shape (n_units, n_parameters)
    prior : ndarray of shape (n_parameters,)
        Precisions.
    """
    (N, N_var), n = size, s.shape[2]
    means, u_means = s.mean(axis=2), u.mean(axis=2)
    s, u = s - means[:, :, None], u - u_means[:, :, None]
    ss, su, uu = (a @ np.swapaxes(b, 1, 2) / n for a, b in ((s, s), (s, u), (u, u)))
    ridge = _RIDGE * np.maximum(np.trace(uu, axis1=1, axis2=2) / len(prior), 1e-6)
    explained = su @ np.linalg.inv(uu + ridge[:, None, None] * np.eye(len(prior)))
    means = means - np.einsum("jab,jb->ja", explained, u_means)
    unexplained = ss - explained @ np.swapaxes(su, 1, 2)
    squares = means[:, :, None] * means[:, None, :]
    V = N * ss + N**2 / n * unexplained + totals.sampled * N * (ss + squares) + N_var * squares
    diagonal = np.arange(V.shape[1])
    V[:, diagonal, diagonal] += totals.noise_var + _LEAST_VAR * N * np.trace(ss, axis1=1, axis2=2).mean()
    residual = totals.values - N * means
    weighed = np.linalg.solve(V, np.concatenate([N * su, residual[:, :, None]], axis=2))
    slopes, weighed_residual = weighed[:, :, :-1], weighed[:, :, -1]
    curvature = N * np.swapaxes(su, 1, 2) @ slopes
    gradient = np.einsum("jab,ja->jb", slopes, residual) - prior * values
    move = np.linalg.solve(curvature + np.diag(prior), gradient[:, :, None])[:, :, 0]
    cov = np.linalg.inv(_of_pairs(curvature, s, u, V, N) + np.diag(prior))
    return _Step(move, cov, np.einsum("ja,ja->j", residual, weighed_residual))


def _of_pairs(curvature: np.ndarray, s: np.ndarray, u: np.ndarray, V: np.ndarray, N: float) -> np.ndarray:
    """The curvature, a sum over pairs of records, without those of a record with itself: they are the simulation's error."""
    with_itself = np.einsum("jdm,jdm->jm", s, np.linalg.solve(V, s))
    curvature = curvature - (N / s.shape[2]) ** 2 * (u * with_itself[:, None]) @ np.swapaxes(u, 1, 2)
    values, vectors = np.linalg.eigh(curvature)
    return (vectors * np.maximum(values, 0.0)[:, None]) @ np.swapaxes(vectors, 1, 2)
