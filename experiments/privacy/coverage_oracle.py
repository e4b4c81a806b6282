"""Widths of intervals of an oracle, which knows everything about the noise but its draw.

Logistic regression: it knows the likelihood's curvature at the true coefficients, which a fit has to learn from noisy totals.
Proportions: it knows the number of records. Networks: it knows the hidden units of every record, too.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, gammaln

from experiments.regression.oracle import precision_of_oracle
from vips.models.belief_networks.prior import BIAS_PRECISION
from vips.models.belief_networks.update import CENTRE

__all__ = ["N_MOVES", "logistic_width", "network_width", "proportions_width"]

_LEVEL, _QUANTILE = 0.95, 1.959964
_N_CHAINS, N_MOVES = 400, 4000
WEIGHT_PRECISION = 0.25  # of the weights of networks, N(0, 2²)


def logistic_width(model, X: np.ndarray, coefficients: np.ndarray) -> float:
    """Mean width at 95 % of the features' coefficients."""
    deviations = np.sqrt(np.diag(np.linalg.inv(precision_of_oracle(model, X, coefficients))))
    return float(2.0 * _QUANTILE * deviations[: X.shape[1]].mean())


def network_width(model, weights: np.ndarray, c: np.ndarray, b: np.ndarray, z: np.ndarray) -> float:
    """Mean width at 95 % of the biases.

    With z known, a visible unit is a regression of y on (1, z). Totals of its residuals and of their products with z - ¼ are
    released in T steps, times the weight that the clip leaves a record on average.
    """
    plan, blocks, n_hidden = model.privacy_.plan, model.blocks(), len(b)
    noise = {name: (plan.noise_std() * block.scale) ** 2 / plan.n_steps for name, block in blocks.items()}
    share = float(np.mean([step.totals["count"] for step in model.noisy_totals_.steps])) / len(z)
    design = np.column_stack([np.ones(len(z)), z])
    centre = np.eye(n_hidden + 1)
    centre[1:, 0] = -CENTRE
    noise_cov = np.diag(np.append(noise["visible"], np.full(n_hidden, noise["weights"])))
    prior = np.diag(np.append(BIAS_PRECISION, np.full(n_hidden, WEIGHT_PRECISION)))
    predicted = expit(design @ np.column_stack([c, weights]).T)
    deviations = []
    for p in predicted.T:
        information = (design * (p * (1.0 - p))[:, None]).T @ design
        slope = share * centre @ information
        cov = share**2 * centre @ information @ centre.T + noise_cov
        deviations.append(np.sqrt(np.linalg.inv(slope.T @ np.linalg.solve(cov, slope) + prior)[0, 0]))
    p = expit(b)
    variance = share**2 * len(z) * p * (1.0 - p) + noise["hidden"] + (p - CENTRE) ** 2 * noise["count"]
    deviations.extend(np.sqrt(variance) / (share * len(z) * p * (1.0 - p)))
    return float(2.0 * _QUANTILE * np.mean(deviations))


def proportions_width(model, n_records: int, rng: np.random.Generator, n_moves: int = N_MOVES) -> float:
    """Mean width at 95 % of the proportions, by Metropolis' algorithm over counts of sum N."""
    noisy, noise_std = model.noisy_totals_.average["counts"], model.noisy_totals_.noise_std["counts"]
    prior, n = float(model.prior), len(noisy)
    start = np.maximum(noisy, 0.5)  # near the posterior mode, because moves are as small as the noise
    counts = np.tile(start * n_records / start.sum(), (_N_CHAINS, 1))
    chains = np.arange(_N_CHAINS)

    def log_density(values: np.ndarray, of: np.ndarray) -> np.ndarray:
        inside = np.maximum(values, 0.0)
        density = gammaln(inside + prior) - gammaln(inside + 1.0) - 0.5 * np.square((values - noisy[of]) / noise_std)
        return np.where(values >= 0.0, density, -np.inf)

    for _ in range(n_moves):  # from one category to another
        giver = rng.integers(n, size=_N_CHAINS)
        taker = (giver + rng.integers(1, n, size=_N_CHAINS)) % n
        moved = np.exp(rng.uniform(np.log(0.01), np.log(10.0), _N_CHAINS)) * noise_std * rng.standard_normal(_N_CHAINS)
        old = counts[chains, giver], counts[chains, taker]
        new = old[0] - moved, old[1] + moved
        gain = log_density(new[0], giver) + log_density(new[1], taker)
        gain -= log_density(old[0], giver) + log_density(old[1], taker)
        accepted = np.log(rng.random(_N_CHAINS)) < gain
        counts[chains, giver] = np.where(accepted, new[0], old[0])
        counts[chains, taker] = np.where(accepted, new[1], old[1])
    rates = rng.standard_gamma(prior + np.repeat(counts, 20, axis=0))
    shares = rates / rates.sum(axis=1, keepdims=True)
    lower, upper = np.quantile(shares, [0.5 - 0.5 * _LEVEL, 0.5 + 0.5 * _LEVEL], axis=0)
    return float((upper - lower).mean())
