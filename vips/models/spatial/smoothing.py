"""Log rates of areas from noisy totals: a Gaussian field, and how smooth and how large it is, learnt from the totals.

    Y_a ~ (E_a λ_a, k E_a λ_a (g + κ h λ_a))      counts of an area: mean, and variance of a sum of negative binomial counts
    log λ = c + f,    f ~ N(0, s² C(ρ)),    c ~ N(c₀, 3²),    s and ρ on a grid, of which ρ = 0 has half the weight
    released: Mᵀ Y and E with noise of deviations n₁ and n₂, and two or three sums of squares

=====================  ================================================================================
symbol                 meaning
=====================  ================================================================================
E_a                    exposures, Gamma over areas; Ê_a and v_a are mean and variance given the noisy one
κ, h, g                1 ÷ dispersion; Σ w²e² ÷ Σ we; Σ w²e ÷ Σ we, 1 without weights; k: rows that tell no more than one
m, u                   means and variances of log λ in the last round, with which λ has the mean λ̄ = e^(m + u/2)
H, V                   diagonal of λ̄ Ê; variance of Y about its line, with the noise n₁² (M Mᵀ)⁻¹ + E[λ²] v
=====================  ================================================================================

Statistical linearisation: about (m, u), λ is closest to the line λ̄ (1 + log λ - m), and misses it by a variance of
λ̄² (e^u - 1 - u), which joins V. So residuals y = Y - λ̄ Ê + H (m - c₀) ~ N(H (c - c₀ + f), V), of which posterior and
evidence have closed forms for each (s, ρ); the next m and u are moments of these, weighted by evidence. A line through e^m
alone would take areas of which little is known for average ones, whose rate is higher by e^(u/2). The released posterior is
the Gaussian with the moments of the mixture.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.stats import norm

from vips.core.exact.blas import cholesky, inverse_from_factor
from vips.expfam import Gaussian
from vips.models._definite import positive_definite
from vips.models.spatial.fields import SMOOTHNESS, STDS, Fields

__all__ = ["FieldPosterior", "smoothed"]

# Most rounds of scoring under one ρ, whose place this is, and as many under all; and where they end before.
_FIRST, _ROUNDS, _TOLERANCE = 3, 15, 1e-3
_PRIOR = np.array([5.0, 1.0, 1.0, 1.0, 1.0, 1.0])  # of ρ: half of its weight for areas that do not know of each other
_LEAST_WEIGHT = 1e-18  # of a cell of the grid that is looked at again in the next round
_FARTHEST, _MOST_SPREAD = 5.0, 2.0  # of log rates from the common one, and of their variances, during the rounds
_MOST_KAPPA, _MOST_DISPERSION = 100.0, 1e6
_LEAST_VARIANCE = 1e-9  # of a count
_LARGEST, _LARGEST_LOG = 1e6, 300.0  # of files
# Nodes of exposures, over so many deviations of noise; and their least variance over areas, relative to the squared mean.
_NODES, _REACH, _LEAST_SPREAD = (np.arange(400) + 0.5) / 400.0, 6.0, 0.05


class FieldPosterior(Gaussian):
    """Gaussian of the areas' log rates.

    Parameters
    ----------
    mean, precision : ndarray of shape (n_areas,), (n_areas, n_areas)
    grid : ndarray of shape (n_smoothness, n_stds)
        Probabilities of ρ and s.
    open_share : ndarray of shape (n_areas,)
        Posterior over prior variance of each area's distance from the average log rate.
    noise_share : ndarray of shape (n_areas,)
        Of noise in the variance of each area's count.
    dispersion : float
    """

    def __init__(self, mean, precision, grid, open_share, noise_share, dispersion) -> None:
        super().__init__(mean, precision)
        self.grid, self.dispersion = np.asarray(grid), np.asarray(dispersion)
        self.open_share, self.noise_share = np.asarray(open_share), np.asarray(noise_share)

    @classmethod
    def of_nothing(cls, n_areas: int) -> FieldPosterior:
        """Where a fit begins."""
        grid = np.full((len(SMOOTHNESS), len(STDS)), 1.0 / (len(SMOOTHNESS) * len(STDS)))
        return cls(np.zeros(n_areas), np.eye(n_areas), grid, np.ones(n_areas), np.zeros(n_areas), 1.0)

    def to_arrays(self) -> dict[str, np.ndarray]:
        names = ("grid", "open_share", "noise_share", "dispersion")
        return super().to_arrays() | {name: getattr(self, name) for name in names}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> FieldPosterior:
        bounds = {"grid": 1.0, "open_share": _LARGEST, "noise_share": 1.0, "dispersion": _LARGEST}
        if not all(((arrays[name] >= 0.0) & (arrays[name] <= most + 1e-9)).all() for name, most in bounds.items()):
            raise ValueError("shares, probabilities or dispersion of areas are none that a fit makes")
        if not (np.abs(arrays["mean"]) <= _LARGEST_LOG).all() or abs(arrays["grid"].sum() - 1.0) > 1e-6:
            raise ValueError("rates of areas, or probabilities, are none that a fit makes")
        return cls(**arrays)


def smoothed(
    counts, exposures, squares, noise, fields: Fields, bounds, dispersion: float | None, rows: float
) -> FieldPosterior:
    """The posterior of the areas' log rates, from what a fit has released, in units of counts and exposures.

    Parameters
    ----------
    counts, exposures : ndarray of shape (n_areas,)
        Y and E, and noise in them.
    squares : ndarray of shape (2,) or (3,)
        Σ w²y², Σ w²e², and Σ w²e with weights.
    noise : (float, float, ndarray)
        n₁, n₂, and of squares.
    fields : Fields
    bounds : (float, float)
        Between which exposures of records lie.
    dispersion : float or None
        None learns it.
    rows : float
        k; of samples, how many times their variance is that of all records, too.
    """
    noise, of_exposures, of_squares = noise
    exposures, unsure = _denoised(exposures, of_exposures)
    whole = max(exposures.sum(), 1e-300)
    weighs = len(squares) > 2
    h, g = squares[1] / whole, squares[2] / whole if weighs else 1.0
    if noise > 0.0:  # without it weights may have any unit
        h = np.clip(h, 1e-3 * bounds[0] if weighs else bounds[0], bounds[1])
        g = np.clip(g, 1e-3, 1.0)
    common = np.log(max(counts.sum(), noise * np.sqrt(fields.noise_of_sum), 0.5) / whole)
    log_rates, spread = np.full(len(counts), common), np.zeros(len(counts))
    everywhere = np.argwhere(np.ones((len(SMOOTHNESS), len(STDS)), bool))
    cells, is_last = everywhere[everywhere[:, 0] == _FIRST], False
    for t in range(2 * _ROUNDS):
        rates = np.exp(log_rates + 0.5 * spread)
        slope, squared_rates = rates * exposures, rates**2 * np.exp(spread)
        if dispersion is None:
            unit = max(h * float(exposures @ squared_rates), 1e-300)
            kappa = _kappa((squares[0] - g * float(exposures @ rates)) / unit - 1.0, of_squares[0] / unit)
        else:
            kappa = 1.0 / dispersion
        of_noise = noise**2 * fields.noise + squared_rates * unsure
        sampling = rows * exposures * (g * rates + kappa * h * squared_rates) + _LEAST_VARIANCE
        varies = sampling + squared_rates * unsure + slope**2 * (np.expm1(spread) - spread)
        seen = slope, varies, noise
        fits = fields.fits(cells, *seen, counts - slope * (1.0 + common - log_rates))
        weights = _PRIOR[cells[:, 0]] * np.exp(fits.evidence - fits.evidence.max())
        weights /= weights.sum()
        mean = weights @ fits.means
        of_means = fits.level**2 / fits.precision[:, None] + (fits.means - mean) ** 2
        spread = 0.5 * (spread + np.clip(weights @ (fits.variances + of_means), 0.0, _MOST_SPREAD))
        last, log_rates = log_rates, common + np.clip(mean, -_FARTHEST, _FARTHEST)
        if np.abs(log_rates - last).max() < _TOLERANCE or t == _ROUNDS - 1:
            if is_last:
                break
            cells, is_last = everywhere, True
        else:
            cells = cells[weights > _LEAST_WEIGHT]
    covs = fields.covariances(fits, *seen)
    cov = sum(weight * cov for weight, cov in zip(weights, covs, strict=True))
    cov += ((fits.means - mean).T * weights) @ (fits.means - mean)
    prior = (weights * STDS[fits.cells[:, 1]] ** 2) @ fields.centred_variances[fits.cells[:, 0]]
    grid = np.zeros((len(SMOOTHNESS), len(STDS)))
    grid[tuple(fits.cells.T)] = weights
    centred = cov - cov.mean(axis=0)  # distances from the average
    centred -= centred.mean(axis=1, keepdims=True)
    precision = inverse_from_factor(cholesky(positive_definite(cov)))
    open_share, noise_share = np.clip(np.diagonal(centred) / prior, 0.0, 1.0), of_noise / (of_noise + sampling)
    dispersion = 1.0 / max(kappa, 1.0 / _MOST_DISPERSION)
    return FieldPosterior(common + mean, precision, grid, open_share, noise_share, dispersion)


def _kappa(kappa: float, std: float) -> float:
    """κ from Σ w²y² = Σ_a E_a (g λ_a + (1 + κ) h λ_a²) with noise of this deviation, given that κ > 0."""
    std = max(std, 1e-9)
    z = max(kappa / std, -30.0)  # beyond, the result is 0
    return float(np.clip(kappa + std * np.exp(norm.logpdf(z) - norm.logcdf(z)), 0.0, _MOST_KAPPA))


def _denoised(noisy: np.ndarray, std: float) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of exposures ≥ 0, which follow a Gamma law over areas whose moments are those of the noisy ones."""
    if std == 0.0:
        return np.maximum(noisy, 0.0), np.zeros(len(noisy))
    mean = max(noisy.mean(), std / np.sqrt(len(noisy)))
    shape = mean**2 / max(noisy.var() - std**2, _LEAST_SPREAD * mean**2)
    low = np.maximum(noisy - _REACH * std, 0.0)
    width = np.maximum(noisy, 0.0) + _REACH * std - low
    nodes = low[:, None] + width[:, None] * _NODES
    density = (shape - 1.0) * np.log(nodes) - shape / mean * nodes - 0.5 * ((noisy[:, None] - nodes) / std) ** 2
    density = np.exp(density - density.max(axis=1, keepdims=True))
    density /= density.sum(axis=1, keepdims=True)
    means = (density * nodes).sum(axis=1)
    return means, (density * (nodes - means[:, None]) ** 2).sum(axis=1)
