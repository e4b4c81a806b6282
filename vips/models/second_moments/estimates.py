"""Probabilistic principal components and factor analysis, from a covariance that may be noisy.

    x = μ + zW + e,   z ~ N(0, I),   e ~ N(0, diag ψ);   ψ the same for all columns: probabilistic principal components

===========  =====================================================================================
symbol       meaning
===========  =====================================================================================
W (q, d)     loadings
C (d, d)     covariance, with noise  G^½ E G^½: E as in ``moments.py`` with deviation s/N
ℓ̂            eigenvalue of a noisy matrix above the level of the others
===========  =====================================================================================

Noise lengthens large eigenvalues: for a direction v the noise has t² = Σ_j Var(vᵀE e_j) besides it, and ℓ̂ = ℓ + t²/ℓ (a spike
in a Wigner matrix, Benaych-Georges and Nadakuditi, 2011). So ℓ = (ℓ̂ + √(ℓ̂² - 4t²)) / 2 above the edge 2t of the noise's own
eigenvalues, else 0.

**Draws given one noisy release: a parametric bootstrap.** Records from the estimated model are simulated by their moments (a
Wishart matrix and a Gaussian mean), noise is added as the release had it, and the model is estimated again. The estimate's
errors there stand for its errors here. For principal components a draw is the estimate minus the error, and for noise variances
the estimate over the ratio. For factor analysis, whose noise variances are bounded from below, it is the other estimate itself,
with what its loadings leave of the variances for the noise variances (percentiles; intervals of the first kind held too few of
the truths). Nothing is read but released numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from vips.core.exact.blas import eigh
from vips.expfam import Draws
from vips.models.second_moments.moments import SecondMoments, positive_mean

__all__ = [
    "Estimate",
    "NoisyCovariance",
    "aligned",
    "bootstrapped",
    "factor_analysis",
    "noisy_factor_analysis",
    "principal_components",
    "rotated",
    "stacked",
]

_SMALL = 1e-12
_ROUNDS = 20
_STILL = 1e-4  # relative change of a noise variance


@dataclass(frozen=True)
class NoisyCovariance:
    """Count, mean and scatter matrix, and the noise in the latter.

    Parameters
    ----------
    count : float
        N.
    mean : ndarray of shape (d,)
    scatter : ndarray of shape (d, d)
        Σ (x - x̄)(x - x̄)ᵀ.
    noise_std : float
        s.
    gram : ndarray of shape (d, d)
        G = I + x̄x̄ᵀ/(cF)²: the noise of the mean adds to that of the moments.
    """

    count: float
    mean: np.ndarray
    scatter: np.ndarray
    noise_std: float
    gram: np.ndarray

    @classmethod
    def of(cls, moments: SecondMoments, constant: float) -> NoisyCovariance:
        """From moments of (x, constant)."""
        matrix, d = moments.matrix, len(moments.matrix) - 1
        count = matrix[d, d] / constant**2
        if moments.noise_std > 0.0:
            count = max(positive_mean(count, moments.noise_std / constant**2), 2.0)
        mean = matrix[:d, d] / (constant * max(count, _SMALL))
        scatter = matrix[:d, :d] - count * np.outer(mean, mean)
        return cls(count, mean, scatter, moments.noise_std, np.eye(d) + np.outer(mean, mean) / constant**2)


@dataclass(frozen=True)
class Estimate:
    """Loadings W, shape (q, d), noise variances ψ, shape (d,), and the log likelihood after each iteration.

    ``strength`` is the smallest ℓ/t: noise turns that component by an angle of sine t/ℓ, and hides it below 1.
    ``unbounded_variance`` is what loadings leave of the noisy variances of the columns, shape (d,): ψ before its lower bound.
    """

    loadings: np.ndarray
    noise_variance: np.ndarray
    log_likelihoods: tuple[float, ...] = ()
    strength: float = np.inf
    unbounded_variance: np.ndarray | None = None


def principal_components(data: NoisyCovariance, n_components: int) -> Estimate:
    """The maximum of the likelihood (Tipping and Bishop, 1999), with N - 1 for N as scikit-learn has it."""
    d, degrees = len(data.mean), max(data.count - 1.0, 1.0)
    values, vectors = eigh(data.scatter / degrees)
    values, vectors = values[::-1], vectors[:, ::-1].T
    top, directions, trace = values[:n_components], _signed(vectors[:n_components]), values.sum()
    gram, noise = data.gram, data.noise_std / degrees
    edges = noise * np.sqrt(0.5 * np.trace(gram) * np.einsum("ki,ij,kj->k", directions, gram, directions))  # t
    least = noise * np.sqrt(np.trace(gram)) / d  # deviation of the average eigenvalue
    level = values[n_components:].mean() if n_components < d else 0.0
    if noise > 0.0:
        for _ in range(_ROUNDS if n_components < d else 0):  # the trace is the sum of spikes and d levels
            level = max((trace - _without_noise(top - level, edges).sum()) / d, least)
        excess = _without_noise(top - level, edges)
        level = max(level, least)
    else:
        excess, level = np.maximum(top - level, 0.0), max(level, 0.0)
    strength = float(np.min(excess / np.maximum(edges, 1e-300))) if noise > 0.0 else np.inf
    return Estimate(np.sqrt(excess)[:, None] * directions, np.full(d, level), (), strength)


def factor_analysis(
    data: NoisyCovariance, n_components: int, start: np.ndarray | None, tol: float, max_iter: int
) -> Estimate:
    """The iteration of scikit-learn's ``FactorAnalysis`` (Barber, algorithm 21.1), on the correlations without noise."""
    if data.noise_std > 0.0:
        return noisy_factor_analysis([data], n_components, start, max_iter)[0]
    d, count = len(data.mean), max(data.count, _SMALL)
    variances = np.diagonal(data.scatter) / count
    is_constant = variances <= _SMALL * (variances + np.square(data.mean))  # but for rounding
    units = np.sqrt(np.where(is_constant, 1.0, variances))
    covariance = data.scatter / count / units / units[:, None]
    variances = np.maximum(np.diagonal(covariance), _SMALL)
    psi = np.ones(d) if start is None else np.asarray(start, dtype=np.float64) / units**2
    constant, last, log_likelihoods = d * np.log(2.0 * np.pi) + n_components, -np.inf, []
    for _ in range(max_iter):
        roots = np.sqrt(psi) + _SMALL
        values, vectors = eigh(covariance / np.outer(roots, roots))
        values, directions = values[::-1], _signed(vectors[:, ::-1].T[:n_components])
        top = np.maximum(values[:n_components], 1e-300)
        loadings = np.sqrt(np.maximum(top - 1.0, 0.0))[:, None] * directions * roots
        total = constant + np.log(top).sum() + values[n_components:].sum() + np.log(psi).sum()
        log_likelihoods.append(-0.5 * count * (total + 2.0 * np.log(units).sum()))
        if log_likelihoods[-1] - last < tol:
            break
        last, psi = log_likelihoods[-1], np.maximum(variances - np.square(loadings).sum(axis=0), _SMALL)
    return Estimate(loadings * units, psi * units**2, tuple(log_likelihoods))


def noisy_factor_analysis(
    data: Sequence[NoisyCovariance], n_components: int, start: np.ndarray | None, max_iter: int
) -> list[Estimate]:
    """The same for covariances with noise, all at once: ℓ for ℓ̂ in every step, until no ψ changes by more than 1e-4 of it.

    The likelihood of noisy moments does not tell when to stop, because the iteration does not lead to its maximum.
    """
    counts = np.array([max(covariance.count, _SMALL) for covariance in data])
    covariances = np.stack([covariance.scatter for covariance in data]) / counts[:, None, None]
    grams = np.stack([covariance.gram for covariance in data])
    noise = np.array([covariance.noise_std for covariance in data]) / counts
    n, d = len(data), covariances.shape[1]
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    least = np.maximum(noise[:, None] * np.diagonal(grams, axis1=1, axis2=2), _SMALL)
    psi = np.ones((n, d)) if start is None else np.tile(np.asarray(start, dtype=np.float64), (n, 1))
    loadings, strength = np.zeros((n, n_components, d)), np.full(n, np.inf)
    curves: list[list[float]] = [[] for _ in data]
    moving = np.arange(n)
    for _ in range(max_iter):
        roots = np.sqrt(psi[moving])
        scales = roots[:, :, None] * roots[:, None, :]
        values, vectors = eigh(covariances[moving] / scales)
        values, directions = values[:, ::-1], np.swapaxes(vectors, 1, 2)[:, ::-1][:, :n_components]
        scaled = grams[moving] / scales
        inner = np.einsum("nki,nij,nkj->nk", directions, scaled, directions)
        edges = noise[moving, None] * np.sqrt(0.5 * np.trace(scaled, axis1=1, axis2=2)[:, None] * inner)
        top = np.maximum(values[:, :n_components], 1e-300)
        excess = np.maximum(_without_noise(top - 1.0, edges), 0.0)
        loadings[moving] = np.sqrt(excess)[:, :, None] * directions * roots[:, None, :]
        strength[moving] = (excess / np.maximum(edges, 1e-300)).min(axis=1)
        total = np.log(top).sum(axis=1) + values[:, n_components:].sum(axis=1) + np.log(psi[moving]).sum(axis=1)
        total += d * np.log(2.0 * np.pi) + n_components
        for place, value in zip(moving, -0.5 * counts[moving] * total, strict=True):
            curves[place].append(float(value))
        last = psi[moving]
        psi[moving] = np.maximum(variances[moving] - np.square(loadings[moving]).sum(axis=1), least[moving])
        moving = moving[np.abs(psi[moving] / last - 1.0).max(axis=1) > _STILL]
        if not len(moving):
            break
    residual = variances - np.square(loadings).sum(axis=1)
    return [Estimate(_signed(loadings[i]), psi[i], tuple(curves[i]), float(strength[i]), residual[i]) for i in range(n)]


def rotated(loadings: np.ndarray, method: str, tol: float = 1e-6, max_iter: int = 100) -> np.ndarray:
    """Loadings in the rotation "varimax" or "quartimax", as scikit-learn computes it (Kaiser, 1958)."""
    columns, rotation, last = loadings.T, np.eye(len(loadings)), 0.0
    for _ in range(max_iter):
        turned = columns @ rotation
        target = turned * np.square(turned).mean(axis=0) if method == "varimax" else 0.0
        u, s, v = np.linalg.svd(columns.T @ (turned**3 - target))
        rotation = u @ v
        if last != 0.0 and s.sum() < last * (1.0 + tol):
            break
        last = s.sum()
    return (columns @ rotation).T


def _without_noise(excess: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """ℓ from ℓ̂."""
    seen = excess > 2.0 * edges
    return np.where(seen, 0.5 * (excess + np.sqrt(np.maximum(excess**2 - 4.0 * edges**2, 0.0))), 0.0)


def _signed(directions: np.ndarray) -> np.ndarray:
    """Rows with the sign that makes their largest entry positive."""
    largest = directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)]
    return directions * np.where(largest < 0.0, -1.0, 1.0)[:, None]


def bootstrapped(
    data: NoisyCovariance,
    estimate: Estimate,
    again: Callable[[Sequence[NoisyCovariance]], Sequence[Estimate]],
    constant: float,
    n_draws: int,
) -> Draws:
    """Draws of :func:`stacked` parameters, shape (n_draws, q + 2, d).

    Parameters
    ----------
    data, estimate
        What was released, and the model estimated from it.
    again : callable
        Estimates the models of several releases.
    constant : float
        cF.
    n_draws : int
    """
    rng, q, parameters = np.random.default_rng(0), len(estimate.loadings), stacked(estimate, data.mean)
    factor = np.linalg.cholesky(
        estimate.loadings.T @ estimate.loadings + np.diag(np.maximum(estimate.noise_variance, 1e-12))
    )
    simulated = [NoisyCovariance.of(_simulated(data, factor, constant, rng), constant) for _ in range(n_draws)]
    draws = np.empty((n_draws, *parameters.shape))
    for draw, sample, refit in zip(draws, simulated, again(simulated), strict=True):
        loadings = aligned(refit.loadings, estimate.loadings)
        if refit.unbounded_variance is None:
            draw[:] = 2.0 * parameters - stacked(Estimate(loadings, refit.noise_variance), sample.mean)
            draw[q] = parameters[q] ** 2 / np.maximum(refit.noise_variance, 1e-300)
        else:
            draw[:] = stacked(Estimate(loadings, np.maximum(refit.unbounded_variance, 0.0)), sample.mean)
    return Draws(np.clip(draws, -1e100, 1e100))


def stacked(estimate: Estimate, mean: np.ndarray) -> np.ndarray:
    """Loadings, noise variances, means, one row each; shape (q + 2, d)."""
    return np.vstack([estimate.loadings, estimate.noise_variance, mean])


def aligned(loadings: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Loadings in the order and with the signs that are nearest to others."""
    products = like @ loadings.T
    _, order = linear_sum_assignment(-np.abs(products))
    signs = np.where(products[np.arange(len(like)), order] < 0.0, -1.0, 1.0)
    return loadings[order] * signs[:, None]


def _simulated(data: NoisyCovariance, factor: np.ndarray, constant: float, rng: np.random.Generator) -> SecondMoments:
    d, count = len(factor), max(data.count, 2.0)
    mean = data.mean + factor @ rng.standard_normal(d) / np.sqrt(count)
    root = np.tril(rng.standard_normal((d, d)), -1)  # Bartlett's factor of a Wishart matrix
    root[np.diag_indices(d)] = np.sqrt(rng.chisquare(np.maximum(count - 1.0 - np.arange(d), 1.0)))
    root = factor @ root
    rows = np.append(mean, constant)
    matrix = count * np.outer(rows, rows)
    matrix[:d, :d] += root @ root.T
    noise = rng.standard_normal((d + 1, d + 1)) * data.noise_std
    return SecondMoments.of(matrix + 0.5 * (noise + noise.T), data.noise_std)
