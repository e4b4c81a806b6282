"""Priors of the weights of a sigmoid belief network.

    "normal"   w_jk ~ N(0, 1/τ), τ fixed
    "tpbn"     w_jk ~ N(0, ζ_jk),  ζ_jk ~ Gamma(½, ξ_jk),  ξ_jk ~ Gamma(½, φ_k),  φ_k ~ Gamma(½, ω),  ω ~ Gamma(½, 1)

The second is the three-parameter beta normal of Armagan, Clyde and Dunson (2011). Posteriors of its scales:

    q(ζ) = GIG(0, 2 E ξ, E w²)       q(ξ) = Gamma(1, E φ + E ζ)
    q(φ) = Gamma((J + 1)/2, E ω + Σ_j E ξ)       q(ω) = Gamma((K + 1)/2, 1 + Σ_k E φ)

as in Appendix C of Park et al. (arXiv:1611.00340), except that it omits E φ from the rate of q(ξ), where the prior's
ξ^(-½) e^(-φ ξ) requires it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vips.expfam import Gamma, GeneralizedInverseGaussian

__all__ = ["BIAS_PRECISION", "PRIORS", "Shrinkage", "arrays_of"]

PRIORS = ("tpbn", "normal")
# Precision of b and c.
BIAS_PRECISION = 10.0**-2
# Precision of the weights under the "normal" prior.
_NORMAL_PRECISION = 1.0
# Smaller E w² are raised to this: E 1/ζ has a pole at 0.
_LEAST_SQUARE = 1e-8


@dataclass(frozen=True)
class Shrinkage:
    """Posterior of the weights' scales; all Nones with the "normal" prior.

    Parameters
    ----------
    variance : GeneralizedInverseGaussian of shape (J, K), or None
        ζ.
    local_rate : Gamma of shape (J, K), or None
        ξ.
    unit_rate : Gamma of shape (K,), or None
        φ.
    global_rate : Gamma of shape (), or None
        ω.
    """

    shape: tuple[int, int]
    variance: GeneralizedInverseGaussian | None = None
    local_rate: Gamma | None = None
    unit_rate: Gamma | None = None
    global_rate: Gamma | None = None

    @classmethod
    def start(cls, prior: str, n_visible: int, n_hidden: int) -> Shrinkage:
        """Start values, before weights are known: all scales about 1."""
        shape = (n_visible, n_hidden)
        if prior == "normal":
            return cls(shape)
        ones = np.ones(shape)
        units = np.ones(n_hidden)
        scales = GeneralizedInverseGaussian(ones, ones), Gamma(ones, ones), Gamma(units, units), Gamma(1.0, 1.0)
        return cls(shape, *scales)

    @property
    def precision(self) -> np.ndarray:
        """E 1/ζ, shape (J, K)."""
        if self.variance is None:
            return np.full(self.shape, _NORMAL_PRECISION)
        return self.variance.inverse_mean

    def updated(self, mean_squares: np.ndarray) -> Shrinkage:
        """Update every scale once, from ζ up, given E w², shape (J, K)."""
        if self.variance is None:
            return self
        squares = np.maximum(mean_squares, _LEAST_SQUARE)
        zeta = GeneralizedInverseGaussian(2.0 * self.local_rate.mean, squares)
        xi = Gamma(np.ones(self.shape), self.unit_rate.mean + zeta.mean)
        totals = self.global_rate.mean + xi.mean.sum(axis=0)
        phi = Gamma(np.full(totals.shape, 0.5 * (self.shape[0] + 1)), totals)
        omega = Gamma(0.5 * (self.shape[1] + 1), 1.0 + phi.mean.sum())
        return Shrinkage(self.shape, zeta, xi, phi, omega)

    def divergence(self, weights) -> float:
        """KL of the weights' and the scales' posteriors from their prior."""
        squares = weights.mean**2 + weights.var
        of_weights = -weights.entropy.sum() + 0.5 * squares.size * np.log(2.0 * np.pi)
        if self.variance is None:
            log_precision = squares.size * np.log(_NORMAL_PRECISION)
            return float(of_weights + 0.5 * (_NORMAL_PRECISION * squares.sum() - log_precision))
        zeta, xi, phi, omega = self.variance, self.local_rate, self.unit_rate, self.global_rate
        # E log p(w | ζ) and so on down the hierarchy; Γ(½) = √π
        log_prior = -0.5 * (zeta.expected_log + zeta.inverse_mean * squares).sum()
        for upper, lower in ((xi, zeta), (phi, xi), (omega, phi)):
            rate = np.broadcast_to(upper.mean, lower.mean.shape)
            log_rate = np.broadcast_to(upper.expected_log, lower.mean.shape)
            terms = 0.5 * log_rate - 0.5 * np.log(np.pi) - 0.5 * lower.expected_log - rate * lower.mean
            log_prior += terms.sum()
        log_prior += -0.5 * np.log(np.pi) - 0.5 * omega.expected_log - omega.mean
        entropies = sum(float(np.sum(family.entropy)) for family in (zeta, xi, phi, omega))
        return float(of_weights - log_prior - entropies)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        arrays = {"shape": np.array(self.shape)}
        for name in _PARTS:
            part = getattr(self, name)
            if part is not None:
                arrays |= {f"{name}_{key}": value for key, value in part.to_arrays().items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Shrinkage:
        """Inverse of ``to_arrays``."""
        given = {name: arrays_of(name, arrays) for name in _PARTS}
        parts = {name: family.from_arrays(given[name]) if given[name] else None for name, family in _PARTS.items()}
        return cls(tuple(int(n) for n in arrays["shape"]), **parts)


_PARTS = {"variance": GeneralizedInverseGaussian, "local_rate": Gamma, "unit_rate": Gamma, "global_rate": Gamma}


def arrays_of(part: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays whose names begin with that of a part, by the names that they have in it."""
    return {name.removeprefix(f"{part}_"): value for name, value in arrays.items() if name.startswith(f"{part}_")}
