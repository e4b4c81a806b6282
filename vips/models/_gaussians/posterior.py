"""Posterior of a Gaussian mixture, what an E-step needs of it, and its components as a chart that a match moves.

===========  ====================  ==========================================================================
symbol       name                  meaning
===========  ====================  ==========================================================================
a            ``concentration``     Dirichlet: (K,); Dirichlet process: (2, K), the Betas of the stick's breaks
m_k          ``mean``              location of component k, (K, d)
β_k          ``mean_precision``    μ_k given Λ_k is normal with precision β_k Λ_k
ν_k          ``dof``               Λ_k is Wishart with ν_k degrees of freedom
L_k          ``factor``            L_k L_kᵀ is the inverse of E Λ_k: full (K, d, d), tied (1, d, d), else (K, 1, d)
===========  ====================  ==========================================================================

As in scikit-learn, diagonal and spherical covariances take the Wishart's expectations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np
from scipy.special import digamma

from vips.core.exact.blas import lower_inverse
from vips.core.sums.gaussians import Tables
from vips.expfam import DiagonalGaussian, Draws, Gaussian
from vips.models.components.matching.charts import Gaussians

__all__ = ["KINDS", "MixturePosterior", "applied", "at_chart", "chart_of"]

KINDS = ("full", "tied", "diag", "spherical")
_TOO_LARGE, _SMALL = 1e100, 1e-101  # of files
_NUMBERS = (
    "concentration", "mean", "mean_precision", "dof", "factor", "tail", "portion", "prior_mean", "prior_covariance",
    "directions",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class MixturePosterior:
    """Parameters of the posterior; see the table above.

    Parameters
    ----------
    covariance_type : one of ``KINDS``
    concentration, mean, mean_precision, dof, factor : ndarray
    tail : ndarray of shape (K,)
        Degrees of freedom of Student-t components; 0 for Gaussian ones.
    plug_in : bool
        Whether E-steps take the parameters as known, as EM does.
    n_active : int
        Number of components so far; the others wait for a split.
    parent, portion : ndarray of shape (K,)
        Component of the posterior before from which each one comes, and its portion of that one's records.
    prior_mean, prior_covariance : ndarray of shape (d,), (d or 1, d)
        Of the components.
    directions : ndarray of shape (K, d)
        Public draws: along them spherical components are split.
    draws : dict of str to Draws
        Of "weights", "means" and "covariances", given that totals are noisy: what intervals are read from; empty where there
        are none. Not saved.
    """

    covariance_type: str
    concentration: np.ndarray
    mean: np.ndarray
    mean_precision: np.ndarray
    dof: np.ndarray
    factor: np.ndarray
    tail: np.ndarray
    plug_in: bool
    n_active: int
    parent: np.ndarray
    portion: np.ndarray
    prior_mean: np.ndarray
    prior_covariance: np.ndarray
    directions: np.ndarray
    draws: Mapping[str, Draws] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<MixturePosterior of {len(self.mean)} components with {self.mean.shape[1]} columns>"

    @property
    def weights(self) -> np.ndarray:
        """Expected shares of the components, shape (K,)."""
        if self.concentration.ndim == 1:
            return self.concentration / self.concentration.sum()
        total = self.concentration.sum(axis=0)
        left = np.concatenate([[1.0], np.cumprod(self.concentration[1] / total)[:-1]])
        weights = self.concentration[0] / total * left
        return weights / weights.sum()

    @property
    def covariances(self) -> np.ndarray:
        """Inverses of the expected precisions, (K, d, d), (d, d), (K, d) or (K,), as scikit-learn has them."""
        if self.covariance_type in ("full", "tied"):
            covariances = self.factor @ np.swapaxes(self.factor, 1, 2)
            return covariances if self.covariance_type == "full" else covariances[0]
        variances = np.square(self.factor[:, 0])
        return variances if self.covariance_type == "diag" else variances[:, 0]

    @property
    def factors(self) -> np.ndarray:
        """L of every component: (K, d, d) or (K, 1, d)."""
        return np.broadcast_to(self.factor, (len(self.mean), *self.factor.shape[1:]))

    @cached_property
    def inverse_factors(self) -> np.ndarray:
        """L⁻¹ of every component: (K, d, d) or (K, 1, d)."""
        if self.covariance_type in ("diag", "spherical"):
            return 1.0 / self.factor
        inverses = np.stack([lower_inverse(factor) for factor in self.factor])
        return np.repeat(inverses, len(self.mean), axis=0) if self.covariance_type == "tied" else inverses

    @property
    def means(self) -> Gaussian | DiagonalGaussian:
        """Posterior of the means, given the expected precisions."""
        inverses, certainty = self.inverse_factors, np.maximum(self.mean_precision, 1e-300)
        if inverses.shape[1] == self.mean.shape[1]:
            precision = np.swapaxes(inverses, 1, 2) @ inverses * certainty[:, None, None]
            return Gaussian(self.mean, 0.5 * (precision + np.swapaxes(precision, 1, 2)))
        squares = np.square(np.broadcast_to(inverses[:, 0], self.mean.shape))
        return DiagonalGaussian(self.mean, squares * certainty[:, None])

    @property
    def log_weights(self) -> np.ndarray:
        """E log w, or log w; shape (K,)."""
        a = self.concentration
        with np.errstate(divide="ignore"):
            if self.plug_in:
                return np.log(self.weights)
        if a.ndim == 1:
            return digamma(a) - digamma(a.sum())
        of_break, of_rest = digamma(a) - digamma(a.sum(axis=0))
        return of_break + np.concatenate([[0.0], np.cumsum(of_rest)[:-1]])

    @property
    def log_determinants(self) -> np.ndarray:
        """E log |Λ_k|, or log |Λ_k|; shape (K,)."""
        d = self.mean.shape[1]
        diagonals = np.diagonal(self.factors, axis1=1, axis2=2) if self.factor.shape[1] == d else self.factors[:, 0]
        known = -2.0 * np.log(diagonals).sum(axis=1)
        if self.plug_in:
            return known
        wishart = digamma(0.5 * (self.dof[:, None] - np.arange(d))).sum(axis=1)
        return known - d * np.log(self.dof) + d * np.log(2.0) + wishart

    @cached_property
    def tables(self) -> Tables:
        """For E-steps."""
        d, inverses = self.mean.shape[1], self.inverse_factors
        shifts = applied(inverses, self.mean)
        is_active = np.arange(len(self.mean)) < self.n_active
        constants = np.where(is_active, self.log_weights + 0.5 * self.log_determinants, -np.inf)
        excess = np.zeros(len(self.mean)) if self.plug_in else d / self.mean_precision
        return Tables(self.covariance_type, inverses, shifts, constants, excess, self.tail)

    def in_units(self, centre: np.ndarray, units: np.ndarray) -> MixturePosterior:
        """Locations and factors of columns in these units; locations about a point a unit from the centre: the moves of such as
        are at it are rounding alone, and large beside them."""
        is_matrix = self.covariance_type in ("full", "tied")
        factor = self.factor / (units[:, None] if is_matrix else units)
        return replace(self, mean=(self.mean - centre) / units + 1.0, factor=factor)

    def in_order(self, order: np.ndarray) -> MixturePosterior:
        """The same components in another order."""
        order = np.asarray(order)
        reordered = {name: getattr(self, name)[order] for name in ("mean", "mean_precision", "dof", "tail", "portion")}
        reordered["parent"] = np.arange(len(order))
        reordered["concentration"] = self.concentration[..., order]
        if len(self.factor) > 1 or len(order) == 1:
            reordered["factor"] = self.factor[order]
        reordered["draws"] = {name: of.taken(order) for name, of in self.draws.items()}
        return replace(self, **reordered)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        arrays = {field.name: np.asarray(getattr(self, field.name)) for field in fields(self) if field.name != "draws"}
        return arrays | {"covariance_type": np.array(KINDS.index(self.covariance_type))}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> MixturePosterior:
        """Inverse of ``to_arrays``.

        Raises
        ------
        ValueError
            If a number is not of a posterior.
        """
        values = dict(arrays)
        for name in _NUMBERS:
            if values[name].dtype.kind != "f" or not (np.abs(values[name]) < _TOO_LARGE).all():
                raise ValueError(f"the posterior's {name!r} are no moderate numbers")
        for name in ("plug_in", "n_active", "parent", "covariance_type"):
            if values[name].dtype.kind not in ("b" if name == "plug_in" else "iu"):
                raise ValueError(f"the posterior's {name!r} has another type")
        n_components, d = values["mean"].shape
        kind, n_active, parent = int(values["covariance_type"]), int(values["n_active"]), values["parent"]
        if not (
            0 <= kind < len(KINDS) and 1 <= n_active <= n_components
            and ((parent >= 0) & (parent < n_components)).all()
        ):  # fmt: skip
            raise ValueError("the posterior's components do not fit together")
        plug_in, concentration = bool(values["plug_in"]), values["concentration"]
        least = (0.0, 0.0) if plug_in else (_SMALL, d - 1.0 + 1e-9)
        if not (
            (concentration >= least[0]).all() and concentration.sum(axis=-1).min() > 0.0
            and (values["mean_precision"] >= least[0]).all() and (values["dof"] >= least[1]).all()
        ):  # fmt: skip
            raise ValueError("the posterior's counts must not be negative")
        factor, portion, tail = values["factor"], values["portion"], values["tail"]
        is_matrix = KINDS[kind] in ("full", "tied")
        diagonal = np.diagonal(factor, axis1=1, axis2=2) if is_matrix else factor
        prior = values["prior_covariance"]
        rounding = 1e-9 * max(1.0, np.abs(prior).max(), np.square(values["prior_mean"]).max())  # of constant columns
        if (np.diagonal(prior) if is_matrix else prior).min() < -rounding:
            raise ValueError("the posterior's prior covariance has negative variances")
        if not ((diagonal >= _SMALL).all() and not (is_matrix and np.triu(factor, 1).any())):
            raise ValueError("the posterior's covariances are not positive definite")
        if not (((portion > 0.0) & (portion <= 1.0)).all() and ((tail >= 1.0 - 1e-9).all() or not tail.any())):
            raise ValueError("the posterior's portions or degrees of freedom are none")
        values |= {"covariance_type": KINDS[kind], "plug_in": plug_in}
        return cls(**values | {"n_active": n_active, "parent": parent.astype(np.int64)})

    def check_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Whether arrays of a file are those of a posterior like this one: those of another kind have the same shapes.

        Raises
        ------
        ValueError
            If covariances are of another type, or a posterior of variational Bayes is one of EM.
        """
        model_arrays = self.to_arrays()
        for name in ("covariance_type", "plug_in"):
            if name in arrays and not np.array_equal(arrays[name], model_arrays[name]):
                raise ValueError(f"the posterior's {name!r} is not the model's")
        if "tail" in arrays and arrays["tail"].dtype.kind == "f" and arrays["tail"].any() != self.tail.any():
            raise ValueError("the posterior's components are not those of the model: Gaussian, or Student-t")


def applied(factors: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Products of matrices, of shape (..., d, d), or of diagonal ones, (..., 1, d), with vectors of shape (..., d)."""
    if factors.shape[-2] == vectors.shape[-1]:
        return (factors @ vectors[..., None])[..., 0]
    return factors[..., 0, :] * vectors


def chart_of(posterior: MixturePosterior, prior_sizes: tuple[float, float]) -> Gaussians:
    """Means and covariances of the components, full or diagonal; priors count as so many records."""
    factor, prior, d = posterior.factors, posterior.prior_covariance, posterior.mean.shape[1]
    is_diagonal = posterior.covariance_type == "diag"
    if is_diagonal:
        factor, prior = factor[:, 0, :, None] * np.eye(d), np.diag(prior[0])
    return Gaussians(posterior.mean, factor, is_diagonal, posterior.prior_mean, prior, prior_sizes)


def at_chart(posterior: MixturePosterior, chart: Gaussians, sizes: np.ndarray) -> MixturePosterior:
    """A posterior of the same kind at these parameters, which E-steps take as known; components have so many records."""
    factor = chart.factor
    if chart.is_diagonal:
        factor = np.diagonal(factor, axis1=1, axis2=2)[:, None]
    return replace(
        posterior,
        concentration=sizes,
        mean=chart.mean,
        mean_precision=sizes,
        dof=sizes + chart.mean.shape[1],
        factor=factor,
        plug_in=True,
        n_active=len(sizes),
    )
