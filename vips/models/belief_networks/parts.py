"""Weights, biases and scales by name; hidden units in another order."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from vips.expfam import DiagonalGaussian, Gamma, Gaussian, GeneralizedInverseGaussian
from vips.models.belief_networks.posterior import NetworkPosterior
from vips.parts import Part

__all__ = ["network_parts", "reordered"]


def _weight(columns: list[str], index: tuple[int, ...]) -> str:
    return f"hidden {index[1]} → {columns[index[0]]}"


def _bias_of_column(columns: list[str], index: tuple[int, ...]) -> str:
    return f"bias of {columns[index[0]]}"


def _bias_of_hidden(index: tuple[int, ...]) -> str:
    return f"bias of hidden {index[0]}"


def _always(name: str, index: tuple[int, ...]) -> str:
    return name


def network_parts(posterior: NetworkPosterior, columns: list[str]) -> list[Part]:
    """Weights and biases, and the scales of the weights' prior."""
    parts = [
        Part("weights", posterior.weights, partial(_weight, columns), columns),
        Part("visible bias", posterior.visible_bias, partial(_bias_of_column, columns), columns),
        Part("hidden bias", posterior.hidden_bias, _bias_of_hidden, columns),
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
