"""A posterior as named distributions, in an order of its latent components."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from vips.comparison.alignment import Alignment, align
from vips.expfam import DiagonalGaussian, Dirichlet, Draws, Gamma, Gaussian, GeneralizedInverseGaussian, ScaledDirichlet
from vips.expfam.divergences import FAMILIES, Family
from vips.models.belief_networks.posterior import NetworkPosterior
from vips.models.topics.lda import LatentDirichletAllocation

__all__ = ["NO_DIVERGENCE", "Part", "column_names", "match", "parts_of"]


# Distributions with means and variances, but no divergence in closed form.
NO_DIVERGENCE = (Draws, ScaledDirichlet)


@dataclass(frozen=True)
class Part:
    """A block of a posterior.

    Attributes
    ----------
    name : str
    distribution : one of ``divergences.FAMILIES`` or ``NO_DIVERGENCE``
    label : callable
        From an index into the array of means to the name of that parameter. A function of this module or a ``partial`` of
        one, not a closure: those cannot be pickled.
    columns : list of str
        Words or names of features.
    are_parameters : bool
        False for scales of the prior, which are compared but do not count as movers.
    """

    name: str
    distribution: Family | Draws | ScaledDirichlet
    label: Callable[[tuple[int, ...]], str]
    columns: list[str]
    are_parameters: bool = True


def match(private, private_posterior, baseline_posterior) -> Alignment | None:
    """Latent components of the second posterior in the order of the first's; None where there are no such components."""
    if isinstance(private_posterior, NetworkPosterior):
        return align(private_posterior.weights.mean.T, baseline_posterior.weights.mean.T, "euclidean")
    if isinstance(private, LatentDirichletAllocation):
        return align(private_posterior.mean, baseline_posterior.mean, "hellinger")
    return None


def parts_of(model, posterior, order: np.ndarray | None = None) -> list[Part]:
    """The distributions of a posterior.

    Parameters
    ----------
    model : ConjugateExponentialModel
        For names and the prior.
    posterior : object
        Its posterior, or its noise-aware one.
    order : ndarray of shape (n_components,), optional
        Of latent components. Labels count in the new order.

    Raises
    ------
    TypeError
        For a posterior whose distributions are not known.
    """
    columns = column_names(model)
    if isinstance(posterior, NetworkPosterior):
        return _network_parts(posterior, columns, order)
    if isinstance(model, LatentDirichletAllocation) and isinstance(posterior, (Dirichlet, *NO_DIVERGENCE)):
        topics = posterior if _is_identity(order) else _topics_in_order(posterior, order)
        return [Part("topics", topics, partial(_word_of_topic, columns), columns)]
    if hasattr(posterior, "alpha_shape") and isinstance(posterior, Gaussian | DiagonalGaussian):
        parts = [Part("coefficients", posterior, _coefficient_label(model, columns), columns)]
        if isinstance(model.prior, tuple):
            alpha = Gamma(posterior.alpha_shape, posterior.alpha_rate)
            parts.append(Part("prior precision", alpha, partial(_indexed, "α"), columns, False))
        return parts
    if isinstance(posterior, (*FAMILIES, *NO_DIVERGENCE)):
        if posterior.mean.shape == (len(columns),):
            return [Part("parameters", posterior, partial(_last_of, columns), columns)]
        return [Part("parameters", posterior, partial(_indexed, "parameters"), columns)]
    raise TypeError(
        f"The posterior of {type(model).__name__} is a {type(posterior).__name__}, whose distributions are not known. Compare "
        "them one by one: from vips.expfam.divergences import kl, wasserstein, total_variation_bound."
    )


def column_names(model) -> list[str]:
    """Words or feature names, or x0, x1, … where there are none."""
    vocabulary = getattr(model, "vocabulary", None)
    if vocabulary is not None and not isinstance(vocabulary, int | np.integer):
        return [str(word) for word in vocabulary]
    names = getattr(model, "feature_names_in_", None)
    return [f"x{i}" for i in range(model.n_features_in_)] if names is None else [str(name) for name in names]


def _coefficient_label(model, columns: list[str]) -> Callable[[tuple[int, ...]], str]:
    names = [*columns, "intercept"] if model.fit_intercept else columns
    classes = getattr(model, "classes_", ())
    if len(classes) > 2:
        return partial(_of_class, list(classes), names)
    return partial(_last_of, names)


def _last_of(names: list[str], index: tuple[int, ...]) -> str:
    return names[index[-1]]


def _of_class(classes: list, names: list[str], index: tuple[int, ...]) -> str:
    return f"class {classes[index[0]]}: {names[index[1]]}"


def _word_of_topic(words: list[str], index: tuple[int, ...]) -> str:
    return f"topic {index[0]}: {words[index[1]]}"


def _indexed(name: str, index: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, index))}]"


def _weight(columns: list[str], index: tuple[int, ...]) -> str:
    return f"hidden {index[1]} → {columns[index[0]]}"


def _bias_of_column(columns: list[str], index: tuple[int, ...]) -> str:
    return f"bias of {columns[index[0]]}"


def _bias_of_hidden(index: tuple[int, ...]) -> str:
    return f"bias of hidden {index[0]}"


def _always(name: str, index: tuple[int, ...]) -> str:
    return name


def _topics_in_order(posterior, order: np.ndarray):
    if isinstance(posterior, Draws):
        return Draws(posterior.draws[:, order])
    if isinstance(posterior, ScaledDirichlet):
        return ScaledDirichlet(posterior.rate_mean[order], posterior.rate_var[order])
    return Dirichlet(posterior.concentration[order])


def _network_parts(posterior: NetworkPosterior, columns: list[str], order: np.ndarray | None) -> list[Part]:
    if not _is_identity(order):
        posterior = _reordered(posterior, order)
    parts = [
        Part("weights", posterior.weights, partial(_weight, columns), columns),
        Part("visible bias", posterior.visible_bias, partial(_bias_of_column, columns), columns),
        Part("hidden bias", posterior.hidden_bias, _bias_of_hidden, columns),
    ]
    scales = ("variance", "local_rate", "unit_rate", "global_rate")
    for name in scales:
        if getattr(posterior.shrinkage, name) is not None:
            label = f"shrinkage {name.replace('_', ' ')}"
            parts.append(Part(label, getattr(posterior.shrinkage, name), partial(_always, label), columns, False))
    return parts


def _reordered(posterior: NetworkPosterior, order: np.ndarray) -> NetworkPosterior:
    """With hidden units in another order; what is not compared stays."""
    weights, scales = posterior.weights, posterior.shrinkage
    precision = weights.precision[:, order]
    if isinstance(weights, Gaussian):
        weights = Gaussian(weights.mean[:, order], precision[:, :, order])
    else:
        weights = DiagonalGaussian(weights.mean[:, order], precision)
    bias = DiagonalGaussian(posterior.hidden_bias.mean[order], posterior.hidden_bias.precision[order])
    if scales.variance is not None:
        zeta, xi, phi = scales.variance, scales.local_rate, scales.unit_rate
        scales = replace(
            scales,
            variance=GeneralizedInverseGaussian(zeta.rate[:, order], zeta.inverse_rate[:, order]),
            local_rate=Gamma(xi.shape[:, order], xi.rate[:, order]),
            unit_rate=Gamma(phi.shape[order], phi.rate[order]),
        )
    return replace(posterior, weights=weights, hidden_bias=bias, shrinkage=scales)


def _is_identity(order: np.ndarray | None) -> bool:
    return order is None or np.array_equal(order, np.arange(len(order)))
