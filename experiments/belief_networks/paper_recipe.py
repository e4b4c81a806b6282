"""The paper's own private sigmoid belief network. IT CARRIES NO GUARANTEE and is here for comparison only.

What is unsound in it: batches have a fixed size, while the accounting assumes Poisson samples; statistics are means over a
number of records; the strong-composition curve uses a Gaussian formula outside its range (ε₀ > 1). What costs accuracy: all
J K² second moments are noised, with a bound √J K/4 that is far above the norms of images; means and eigenvalues that noise
makes impossible are clamped in every step, which turns zero-mean noise into bias.

Algorithm 6 and Appendices B and C of Park et al., arXiv:1611.00340. Where paper and published code differ, or the paper leaves
something open, this implementation takes the more favourable choice:

- the code keeps hidden units from one batch to the next, so that statistics depend on other records; here each record starts
  afresh, and is updated three times, as in our model, instead of once;
- the paper's noise in E[ξ⁽¹⁾] (its sensitivity is not ÷ S) would destroy b. That statistic depends on released numbers
  alone and gets no noise here; the noise of the others is scaled as if it did (√7);
- equation 77 has a factor ½ before ω z̄ᵀ W̄ᵀ that neither the derivation nor the code has;
- the code has τ₀ = 1024, κ = 0.7 after a first step of size 1, so that it hardly moves after the first batch. Here step
  sizes are t^-0.7: all steps count;
- eigenvalues are floored at twice the noise in a coordinate. The code floors them at 1e-3, with which weights grow beyond 1e4
at
  σ = 1; of 0.001, 0.1, 1 and 10 the third, about this rule, did best on training images (σ = 1, S = 3,200);
- E-steps use variances of the weights, not covariances, as the code does.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import brentq

from vips import PrivacyPlan, SigmoidBeliefNetwork
from vips.core.exact.blas import product
from vips.core.sums.networks import packed_pairs, unpacked
from vips.expfam import DiagonalGaussian, polya_gamma_mean
from vips.models.belief_networks.inference import infer
from vips.models.belief_networks.posterior import NetworkPosterior
from vips.models.belief_networks.prior import BIAS_PRECISION
from vips.models.belief_networks.update import first_posterior

__all__ = ["claimed_epsilon", "fit", "sensitivities", "sigma_by_strong_composition"]

N_CLAIMED = 50_000  # in the authors' sampling rates, although they have 60,000 images
STEP_DELTA = 1e-9  # δ₀ of the strong composition
DECAY, N_SWEEPS, CHUNK = 0.7, 3, 512
# Least eigenvalue of the mean of ω z zᵀ: as in the published code, and in units of the noise.
LEAST_EIGENVALUE, LEAST_TO_NOISE = 1e-3, 2.0
LEAST_OMEGA = 1e-3


def claimed_epsilon(batch_size: int, n_steps: int, delta: float) -> float:
    """The paper's ε for σ = 1: by its moments accountant and orders, for Poisson samples, which it does not draw."""
    # below σ = 1 + 1e-6 the range of orders in its theorem is smaller; the authors used this range
    plan = PrivacyPlan(noise_multiplier=1.0 + 1e-6, sampling_rate=batch_size / N_CLAIMED, n_steps=n_steps)
    return plan.epsilon(delta, "moments", orders="paper")


def sigma_by_strong_composition(epsilon: float, delta: float, sampling_rate: float, n_steps: int) -> float:
    """σ of the paper's strong-composition baseline; its last formula needs ε₀ ≤ 1 and is used beyond that range."""
    slack = delta - n_steps * sampling_rate * STEP_DELTA

    def total(step_epsilon: float) -> float:
        amplified = np.log1p(sampling_rate * np.expm1(step_epsilon))
        return np.sqrt(2 * n_steps * np.log(1 / slack)) * amplified + n_steps * amplified * np.expm1(amplified)

    step_epsilon = brentq(lambda e: total(e) - epsilon, 1e-9, 50.0)
    return float(np.sqrt(2 * np.log(1.25 / STEP_DELTA)) / step_epsilon)


def fit(images: np.ndarray, n_hidden: int, batch_size: int, sigma: float, seed: int) -> SigmoidBeliefNetwork:
    """One pass over the images. Returns a model that can be scored; it has no privacy report."""
    rng = np.random.default_rng(seed)
    n_records, n_visible = images.shape
    order = rng.permutation(n_records)
    posterior = _first(rng, n_visible, n_hidden)
    least = max(LEAST_EIGENVALUE, LEAST_TO_NOISE * sigma * sensitivities(n_visible, n_hidden)["omega_zz"] / batch_size)
    precision = linear = 0.0
    for t in range(1, n_records // batch_size + 1):
        batch = images[order[(t - 1) * batch_size : t * batch_size]]
        noisy = _noisy(_means(batch, posterior), batch_size, sigma, rng)
        noisy["omega_zz"] = _clamped(unpacked(noisy["omega_zz"], n_hidden), least)
        posterior, precision, linear = _m_step(noisy, n_records, t**-DECAY, posterior, precision, linear)
    model = SigmoidBeliefNetwork(n_hidden)
    model.n_features_in_, model.last_posterior_ = n_visible, posterior
    return model


def _first(rng: np.random.Generator, n_visible: int, n_hidden: int) -> NetworkPosterior:
    """The start values of the published code."""
    weights, c, b = (0.1 * rng.standard_normal(shape) for shape in ((n_visible, n_hidden), n_visible, n_hidden))
    biases = DiagonalGaussian(c, np.ones(n_visible)), DiagonalGaussian(b, np.ones(n_hidden))
    start = first_posterior(weights, "tpbn", full=False)
    return replace(start, visible_bias=biases[0], hidden_bias=biases[1])


def _means(batch: np.ndarray, posterior: NetworkPosterior) -> dict[str, np.ndarray]:
    """The paper's statistics: means over the batch of z̄, y, ω, ω z̄ᵀ, y z̄ᵀ, and ω E z zᵀ as packed triangles."""
    totals: dict[str, np.ndarray] = {}
    n_hidden = posterior.weights.mean.shape[1]
    diagonal = np.flatnonzero(np.equal(*np.triu_indices(n_hidden)))
    for start in range(0, len(batch), CHUNK):
        y = batch[start : start + CHUNK].astype(np.float64)
        units = infer(y, posterior, N_SWEEPS)
        pairs = packed_pairs(units.mean)
        pairs[:, diagonal] = units.mean  # E z² = E z
        sums = {
            "z": units.mean.sum(axis=0),
            "y": y.sum(axis=0),
            "omega": units.omega.sum(axis=0),
            "omega_z": product(units.omega.T, units.mean),
            "y_z": product(y.T, units.mean),
            "omega_zz": product(units.omega.T, pairs),
        }
        totals = {name: totals.get(name, 0.0) + value for name, value in sums.items()}
    return {name: total / len(batch) for name, total in totals.items()}


def sensitivities(J: int, K: int) -> dict[str, float]:
    """Sensitivities of sums, √7 times those of A, C, D, E, F and G of Appendix B: seven statistics share one σ."""
    return {
        "z": np.sqrt(7 * K),
        "y": np.sqrt(7 * J),
        "omega": np.sqrt(7 * J) / 4,
        "omega_z": np.sqrt(7 * J * K) / 4,
        "y_z": np.sqrt(7 * J * K),
        "omega_zz": np.sqrt(7 * J) * K / 4,
    }


def _noisy(means: dict[str, np.ndarray], batch_size: int, sigma: float, rng) -> dict[str, np.ndarray]:
    """Means with noise of σ times their sensitivities; all but matrices are then clamped to possible values."""
    sensitivity = sensitivities(*means["omega_z"].shape)
    largest = {"z": 1.0, "y": 1.0, "omega": 0.25, "omega_z": 0.25, "y_z": 1.0, "omega_zz": np.inf}
    noisy = {}
    for name, mean in means.items():
        # the upper triangle alone is noised, and copied to the lower
        value = mean + sigma * sensitivity[name] / batch_size * rng.standard_normal(mean.shape)
        least = -np.inf if name == "omega_zz" else 0.0
        noisy[name] = np.clip(value, least, largest[name])
    return noisy | {"omega": np.maximum(noisy["omega"], LEAST_OMEGA)}


def _m_step(noisy, n_records: int, rho: float, previous: NetworkPosterior, precision, linear):
    """Appendix C, with natural parameters of W averaged. Returns the posterior and these parameters."""
    c, b, shrinkage = previous.visible_bias.mean, previous.hidden_bias, previous.shrinkage
    n_hidden = len(b.mean)
    second = n_records * noisy["omega_zz"]
    second[:, np.arange(n_hidden), np.arange(n_hidden)] += shrinkage.precision
    precision = (1.0 - rho) * precision + rho * second
    first = n_records * (noisy["y_z"] - 0.5 * noisy["z"] - c[:, None] * noisy["omega_z"])
    linear = (1.0 - rho) * linear + rho * first
    weights = np.linalg.solve(precision, linear[:, :, None])[:, :, 0]

    c_precision = BIAS_PRECISION + n_records * noisy["omega"]
    c_linear = n_records * (noisy["y"] - 0.5 - np.einsum("jk,jk->j", noisy["omega_z"], weights))
    b_precision = BIAS_PRECISION + n_records * polya_gamma_mean(np.sqrt(b.mean**2 + b.var))
    b_linear = n_records * (noisy["z"] - 0.5)
    c_precision, c_linear = _mixed(previous.visible_bias, c_precision, c_linear, rho)
    b_precision, b_linear = _mixed(b, b_precision, b_linear, rho)
    law = DiagonalGaussian(weights, precision[:, np.arange(n_hidden), np.arange(n_hidden)])
    posterior = replace(
        previous,
        weights=law,
        visible_bias=DiagonalGaussian(c_linear / c_precision, c_precision),
        hidden_bias=DiagonalGaussian(b_linear / b_precision, b_precision),
        shrinkage=shrinkage.updated(weights**2 + law.var),  # TPBN
        coupling=(noisy["omega"][:, None] * weights).T @ weights,
    )
    return posterior, precision, linear


def _mixed(previous: DiagonalGaussian, precision, linear, rho: float):
    old = 1.0 / previous.var
    return (1.0 - rho) * old + rho * precision, (1.0 - rho) * old * previous.mean + rho * linear


def _clamped(matrices: np.ndarray, least: float) -> np.ndarray:
    """Symmetric matrices (J, K, K) with eigenvalues of at least ``least``."""
    values, vectors = np.linalg.eigh(matrices)
    return (vectors * np.maximum(values, least)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
