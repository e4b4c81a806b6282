"""Gaussian mixtures as distributions by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from vips.expfam import Dirichlet
from vips.models._gaussians.posterior import MixturePosterior
from vips.parts import Part

__all__ = ["mixture_parts"]

_LEAST = 1e-300


def mixture_parts(posterior: MixturePosterior, names: Sequence[str]) -> list[Part]:
    """Shares and means of the components, given their expected precisions."""
    labels = [f"component {k}" for k in range(len(posterior.mean))]
    if posterior.concentration.ndim == 1:
        shares = Dirichlet(np.maximum(posterior.concentration, _LEAST))
    else:  # the shares of a Dirichlet process, by a Dirichlet of the same means and total
        total = posterior.concentration[0].sum()
        shares = Dirichlet(np.maximum(posterior.weights * total, _LEAST))
    return [
        Part("weights", shares, partial(_weight, labels), labels),
        Part("means", posterior.means, partial(_mean, labels, list(names)), list(names)),
    ]


def _weight(labels: list[str], index: tuple[int, ...]) -> str:
    return labels[index[-1]]


def _mean(labels: list[str], names: list[str], index: tuple[int, ...]) -> str:
    return f"{labels[index[0]]}: {names[index[1]]}"
