"""Posterior of the parameters of a sigmoid belief network, its parts by name, and hidden units in another order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from vips.core.sums.networks import packed_pairs
from vips.expfam import DiagonalGaussian, Gamma, Gaussian, GeneralizedInverseGaussian
from vips.expfam._headline import extent
from vips.models.belief_networks import kernels
from vips.models.belief_networks.prior import BIAS_PRECISION, Shrinkage, arrays_of
from vips.parts import Part, last_of

__all__ = ["NetworkPosterior", "network_parts", "reordered"]


@dataclass(frozen=True, repr=False)
class NetworkPosterior:
    """Independent posteriors of weights, biases and shrinkage scales.

    Parameters
    ----------
    weights : DiagonalGaussian or Gaussian
        w_j, one for each of J visible units: ``mean`` of shape (J, K).
    visible_bias, hidden_bias : DiagonalGaussian
        c of shape (J,) and b of shape (K,).
    shrinkage : Shrinkage
        Scales of the weights under their prior.
    coupling : ndarray of shape (K, K)
        Σ_j ω̄_j w̄_j w̄_jᵀ with average precisions ω̄: how much hidden units of a record compete.
    running, noise_var : ndarray of shape (J, K)
        Running average of the unshrunk weights after each step, and the variance of the noise in it, for linear steps. The
        weights' means are its shrunken view: the same without noise.
    step : int
        Steps that this posterior has seen.
    plug_in : bool
        Whether E-steps take the weights at their means, as private fits do: clipped totals look like those of fewer records, of
        unknown number, and variances computed from them are far too large.
    """

    weights: DiagonalGaussian | Gaussian
    visible_bias: DiagonalGaussian
    hidden_bias: DiagonalGaussian
    shrinkage: Shrinkage
    coupling: np.ndarray
    running: np.ndarray
    noise_var: np.ndarray
    step: int = 0
    plug_in: bool = False
    _spreads: dict = field(default_factory=dict, init=False, compare=False, repr=False)

    def __repr__(self) -> str:
        n_visible, n_hidden = np.shape(self.weights.mean)
        size = f"{n_visible} visible and {n_hidden} hidden units after {self.step} steps"
        return f"<NetworkPosterior of {size}: mean weights {extent(self.weights.mean)}>"

    def arrays(self, dtype: np.dtype) -> tuple[np.ndarray, ...]:
        """Means of w, c and b, variances of c, and the coupling, in the given dtype."""
        means = self.weights.mean, self.visible_bias.mean, self.hidden_bias.mean
        arrays = *means, self.visible_bias.var, self.coupling
        return tuple(np.ascontiguousarray(array, dtype=dtype) for array in arrays)

    def spread(self, dtype: np.dtype) -> _NoSpread | _DiagonalSpread | _FullSpread:
        """Contribution of the weights' second moments to the E-step."""
        dtype = np.dtype(dtype)
        if dtype not in self._spreads:
            kind = _FullSpread if isinstance(self.weights, Gaussian) else _DiagonalSpread
            self._spreads[dtype] = (_NoSpread if self.plug_in else kind)(self, dtype)
        return self._spreads[dtype]

    @property
    def weight_variances(self) -> np.ndarray:
        """Variance of each weight, shape (J, K): from the covariance, which the E-step needs anyway."""
        if isinstance(self.weights, Gaussian):
            return np.diagonal(self.weights.cov, axis1=-2, axis2=-1)
        return self.weights.var

    def interval(self, level: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Central credible intervals, (lower, upper), of ``weights``, ``visible_bias`` and ``hidden_bias``."""
        parts = {"weights": self.weights, "visible_bias": self.visible_bias, "hidden_bias": self.hidden_bias}
        return {name: part.interval(level) for name, part in parts.items()}

    def forget(self) -> None:
        """Free the arrays that were computed for the E-step: with a full covariance they are as large as the posterior."""
        self._spreads.clear()
        self.weights.__dict__.pop("cov", None)

    def divergence(self) -> float:
        """KL of this posterior from the prior of weights, scales and biases."""
        biases = 0.0
        for bias in (self.visible_bias, self.hidden_bias):
            prior = DiagonalGaussian(np.zeros(bias.mean.shape), np.full(bias.mean.shape, BIAS_PRECISION))
            biases += float(bias.kl(prior))
        return biases + self.shrinkage.divergence(self.weights)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        parts = {"weights": self.weights, "visible": self.visible_bias, "hidden": self.hidden_bias}
        parts |= {"shrinkage": self.shrinkage}
        arrays = {f"{name}_{key}": value for name, part in parts.items() for key, value in part.to_arrays().items()}
        arrays |= {"coupling": self.coupling, "running": self.running, "noise_var": self.noise_var}
        return arrays | {"step": np.array(self.step), "plug_in": np.array(self.plug_in)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> NetworkPosterior:
        """Inverse of ``to_arrays``."""
        of_weights = Gaussian if arrays["weights_precision"].ndim == 3 else DiagonalGaussian
        kinds = {"weights": of_weights, "visible": DiagonalGaussian, "hidden": DiagonalGaussian, "shrinkage": Shrinkage}
        parts = [kind.from_arrays(arrays_of(name, arrays)) for name, kind in kinds.items()]
        parts += [arrays[name] for name in ("coupling", "running", "noise_var")]
        return cls(*parts, int(arrays["step"]), bool(arrays["plug_in"]))


class _NoSpread:
    """Weights at their means."""

    def __init__(self, posterior: NetworkPosterior, dtype: np.dtype) -> None:
        self._squares = np.square(posterior.weights.mean).astype(dtype)

    def of_predictor(self, z: np.ndarray, times) -> np.ndarray:
        """Variance of w_jᵀz over z, shape (n_records, J): Σ_k v_k w̄_jk²."""
        return times(z * (1.0 - z), self._squares.T)

    def of_field(self, omega: np.ndarray, z: np.ndarray, times) -> np.ndarray:
        """Σ_j (z̄_k - ½) ω_j w̄_jk², shape (n_records, K)."""
        return (z - 0.5) * times(omega, self._squares)


class _DiagonalSpread:
    def __init__(self, posterior: NetworkPosterior, dtype: np.dtype) -> None:
        # W² and V, side by side
        both = np.hstack([np.square(posterior.weights.mean), posterior.weight_variances])
        self._both = np.ascontiguousarray(both, dtype=dtype)

    def of_predictor(self, z: np.ndarray, times) -> np.ndarray:
        """Variance of w_jᵀz over z and w, shape (n_records, J): Σ_k v_k w̄_jk² + E zᵀ Σ_j z, the latter Σ_k z̄_k V_jk."""
        return times(np.hstack([z * (1.0 - z), z]), self._both.T)

    def of_field(self, omega: np.ndarray, z: np.ndarray, times) -> np.ndarray:
        """Σ_j (z̄_k - ½) ω_j E w_jk² - ω_j (Σ_j z̄)_k, shape (n_records, K), where (Σ_j z̄)_k is V_jk z̄_k."""
        of_squares, of_variances = np.hsplit(times(omega, self._both), 2)
        return (z - 0.5) * of_squares - 0.5 * of_variances


class _FullSpread:
    def __init__(self, posterior: NetworkPosterior, dtype: np.dtype) -> None:
        self._squares = (np.square(posterior.weights.mean) + posterior.weight_variances).astype(dtype)  # E w²
        first, second = np.triu_indices(posterior.weights.mean.shape[1])
        self._packed = posterior.weights.cov[:, first, second].astype(dtype)  # (J, K (K + 1) / 2)
        self._doubled = self._packed * np.where(first == second, 1.0, 2.0).astype(dtype)

    def of_predictor(self, z: np.ndarray, times) -> np.ndarray:
        variance = times(z * (1.0 - z), self._squares.T)
        variance += times(packed_pairs(z), self._doubled.T)
        return variance

    def of_field(self, omega: np.ndarray, z: np.ndarray, times) -> np.ndarray:
        images = np.empty_like(z)
        kernels.packed_times(times(omega, self._packed), z, images)
        return (z - 0.5) * times(omega, self._squares) - images


def _weight(columns: list[str], index: tuple[int, ...]) -> str:
    return f"hidden {index[1]} → {columns[index[0]]}"


def _always(name: str, index: tuple[int, ...]) -> str:
    return name


def network_parts(posterior: NetworkPosterior, columns: list[str]) -> list[Part]:
    """Weights and biases, and the scales of the weights' prior."""
    biases = [f"bias of {name}" for name in columns]
    of_hidden = [f"bias of hidden {k}" for k in range(len(posterior.hidden_bias.mean))]
    parts = [
        Part("weights", posterior.weights, partial(_weight, columns), columns),
        Part("visible bias", posterior.visible_bias, partial(last_of, biases), columns),
        Part("hidden bias", posterior.hidden_bias, partial(last_of, of_hidden), columns),
    ]
    for name in ("variance", "local_rate", "unit_rate", "global_rate"):
        if getattr(posterior.shrinkage, name) is not None:
            label = f"shrinkage {name.replace('_', ' ')}"
            parts.append(Part(label, getattr(posterior.shrinkage, name), partial(_always, label), columns, False))
    return parts


def reordered(posterior: NetworkPosterior, order: np.ndarray) -> NetworkPosterior:
    """The posterior with hidden units in another order; fields that are not compared stay as they are."""
    weights, scales = posterior.weights, posterior.shrinkage
    precision = weights.precision[:, order]
    if isinstance(weights, Gaussian):
        weights = Gaussian(weights.mean[:, order], precision[:, :, order])
    else:
        weights = DiagonalGaussian(weights.mean[:, order], precision)
    bias = DiagonalGaussian(posterior.hidden_bias.mean[order], posterior.hidden_bias.precision[order])
    if scales.variance is not None:
        zeta, xi, phi = scales.variance, scales.local_rate, scales.unit_rate
        variance = GeneralizedInverseGaussian(zeta.rate[:, order], zeta.inverse_rate[:, order])
        local, unit = Gamma(xi.shape[:, order], xi.rate[:, order]), Gamma(phi.shape[order], phi.rate[order])
        scales = replace(scales, variance=variance, local_rate=local, unit_rate=unit)
    return replace(posterior, weights=weights, hidden_bias=bias, shrinkage=scales)
