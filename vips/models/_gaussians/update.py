"""M-step of Gaussian mixtures: from totals in the coordinates of the last posterior to the next one; and its divergence.

With counts n_k, weights w_k = Σ_n r_nk u_nk, means x̄_k and covariances S_k of the records of each component:

    β_k = β₀ + w_k     m_k = (β₀ m₀ + w_k x̄_k) / β_k     ν_k = ν₀ + n_k
    ν_k Cov_k = W₀ + n_k S_k + β₀ w_k / β_k (x̄_k - m₀)(x̄_k - m₀)ᵀ

These are the updates of scikit-learn's ``BayesianGaussianMixture``, for every type of covariance; with EM, those of its
``GaussianMixture``. Student-t components: Peel and McLachlan (2000).

The divergence of a posterior from its prior, Dirichlet or Betas, and normal-Wishart (Bishop, 2006, B.79), is exact for full
covariances. For the others it takes the Wishart's expectations, as their updates do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaln, digamma, multigammaln

from vips.core.exact.blas import cholesky
from vips.expfam import Dirichlet
from vips.models._definite import positive_definite
from vips.models._gaussians.posterior import MixturePosterior, applied

__all__ = ["Moments", "Priors", "divergence", "divergence_of_components", "next_posterior"]

_NOTHING = 10.0 * np.finfo(np.float64).eps  # count of an empty component, as in scikit-learn
_LEAST_STD = 1e-4  # of a private component, in units of `max_norm`
_TAILS = (1.0, 1e3)  # least and largest degrees of freedom that are learnt


@dataclass(frozen=True)
class Priors:
    """Public settings; ``mean`` and ``covariance`` may be None: of all records, which are the totals of one component.

    ``units`` of the columns are 1 but in ordinary fits, which do not depend on the columns' units.
    """

    process: bool
    concentration: float
    mean_precision: float
    dof: float
    mean: np.ndarray | None
    covariance: np.ndarray | None
    reg_covar: float | np.ndarray
    units: np.ndarray

    @classmethod
    def stated(
        cls, model, names: tuple[str, str, str, str, str], units: np.ndarray, covariance: object, reg_covar: float | np.ndarray,
        *, process: bool = False, concentration: float = 1.0,
    ) -> Priors:  # fmt: skip
        """Those of a model, in whose arguments, which are named, stand the mean, its precision, degrees of freedom, the
        covariance, and what is added to variances.

        ``covariance`` and ``reg_covar`` are for where none is given; the latter is (10⁻⁴ ``max_norm``)² in a private fit.

        Raises
        ------
        ValueError
            For what is no mean, no covariance of the columns, or too few degrees of freedom.
        """
        d, (mean, precision, dof, given, added) = len(units), (getattr(model, name) for name in names)
        mean = None if mean is None else np.asarray(mean, dtype=np.float64)
        if mean is not None and not (mean.shape == (d,) and np.isfinite(mean).all()):
            raise ValueError(f"`{names[0]}` must be {d} finite numbers, got shape {mean.shape}.")
        dof = float(d) if dof is None else float(dof)
        if dof <= d - 1.0:
            raise ValueError(f"`{names[2]}` must be greater than {d - 1}, got {dof:g}.")
        if given is not None:
            covariance = np.asarray(given, dtype=np.float64)
            shape = {"full": (d, d), "tied": (d, d), "diag": (d,), "spherical": ()}[model.covariance_type]
            if covariance.shape != shape or not np.isfinite(covariance).all() or not _is_positive(covariance):
                raise ValueError(
                    f"`{names[3]}` must be positive definite and of shape {shape}, got {covariance.shape}."
                )
            covariance = covariance if len(shape) == 2 else np.broadcast_to(covariance, (1, d)).copy()
        if added is None:
            added = (_LEAST_STD * float(model.max_norm)) ** 2 if model.is_private else reg_covar
        precision = 1.0 if precision is None else float(precision)
        return cls(process, concentration, precision, dof, mean, covariance, added, units)


def _is_positive(covariance: np.ndarray) -> bool:
    if covariance.ndim < 2:
        return bool((covariance > 0.0).all())
    return np.allclose(covariance, covariance.T) and np.linalg.eigvalsh(covariance).min() > 0.0


@dataclass(frozen=True)
class Moments:
    """Counts, means and covariances of the records of each component.

    Parameters
    ----------
    count, weight : ndarray of shape (K,)
    mean : ndarray of shape (K, d)
    covariance : ndarray of shape (K, d, d), (1, d, d) if tied, (K, 1, d) if diagonal or spherical
    tail : ndarray of shape (K,) or None
        Σ E[log u - u].
    """

    count: np.ndarray
    weight: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    tail: np.ndarray | None

    @classmethod
    def of(cls, totals: Mapping[str, np.ndarray], frame: MixturePosterior) -> Moments:
        """From totals in the coordinates of a posterior."""
        count = totals["count"] + _NOTHING
        weight = totals["weight"] + _NOTHING if "weight" in totals else count
        linear, second, factors = totals["linear"], totals["second"], frame.factors
        image, kind = linear / weight[:, None], frame.covariance_type
        mean = frame.mean + applied(factors, image)
        if kind in ("full", "tied"):
            explained = linear[:, :, None] * image[:, None, :]
            inner = (second - explained) / count[:, None, None]
            if kind == "tied":
                inner = (second - explained.sum(axis=0))[None] / count.sum()
            covariance = frame.factor @ inner @ np.swapaxes(frame.factor, 1, 2)
            return cls(count, weight, mean, 0.5 * (covariance + np.swapaxes(covariance, 1, 2)), totals.get("tail"))
        explained = linear * image
        if kind == "spherical":
            d = linear.shape[1]
            inner = np.repeat((second - explained.sum(axis=1))[:, None] / d, d, axis=1)
        else:
            inner = second - explained
        covariance = np.square(factors[:, 0]) * inner / count[:, None]
        return cls(count, weight, mean, covariance[:, None], totals.get("tail"))

    @classmethod
    def of_rows(cls, X: np.ndarray, shares: np.ndarray, kind: str) -> Moments:
        """Moments of the rows of an ordinary fit, with the weight of each row in each component, shape (n, K)."""
        count = shares.sum(axis=0) + _NOTHING
        mean, d = shares.T @ X / count[:, None], X.shape[1]
        if kind in ("full", "tied"):
            scatter = np.stack([share * (X - at).T @ (X - at) for share, at in zip(shares.T, mean, strict=True)])
            covariance = scatter.sum(axis=0)[None] / count.sum() if kind == "tied" else scatter / count[:, None, None]
        else:
            squares = np.stack([share @ np.square(X - at) for share, at in zip(shares.T, mean, strict=True)])
            squares = np.repeat(squares.mean(axis=1)[:, None], d, axis=1) if kind == "spherical" else squares
            covariance = (squares / count[:, None])[:, None]
        return cls(count, count, mean, covariance, None)

    def first(self, n: int) -> Moments:
        """Totals of the first n components; the others get no records, and the place of the first."""
        is_empty = np.arange(len(self.count)) >= n
        covariance = self.covariance
        if len(covariance) > 1:
            covariance = np.where(is_empty[:, None, None], covariance[0], covariance)
        zeros = {name: np.where(is_empty, 0.0, getattr(self, name)) for name in ("count", "weight")}
        return replace(self, mean=np.where(is_empty[:, None], self.mean[0], self.mean), covariance=covariance, **zeros)


def next_posterior(moments: Moments, previous: MixturePosterior, priors: Priors, n_active: int) -> MixturePosterior:
    """The posterior given these moments, whose first ``n_active`` components are in use."""
    count, weight, n = moments.count, moments.weight, len(moments.count)
    d = moments.mean.shape[1]
    covariance = moments.covariance.copy()
    diagonal = np.arange(d) if covariance.shape[1] == d else 0
    covariance[:, diagonal, np.arange(d)] += priors.reg_covar
    common = {"mean": moments.mean, "dof": count, "mean_precision": weight, "concentration": count}
    if not previous.plug_in:
        common, covariance = _with_priors(moments, covariance, previous, priors, n_active)
    return replace(
        previous,
        **common,
        factor=_factors(covariance, priors.units),
        tail=previous.tail if moments.tail is None else _tails(moments.tail, count, previous.tail),
        n_active=n_active,
        parent=np.arange(n),
        portion=np.ones(n),
    )


def _with_priors(moments, covariance, previous, priors, n_active):
    count, weight = moments.count, moments.weight
    precision = priors.mean_precision + weight
    mean0, covariance0 = previous.prior_mean, previous.prior_covariance
    mean = (priors.mean_precision * mean0 + weight[:, None] * moments.mean) / precision[:, None]
    difference, pull = moments.mean - mean0, priors.mean_precision * weight / precision
    if previous.covariance_type in ("full", "tied"):
        pulled = pull[:, None, None] * difference[:, :, None] * difference[:, None, :]
    else:
        pulled = (pull[:, None] * np.square(difference))[:, None]
        if previous.covariance_type == "spherical":
            pulled = np.broadcast_to(pulled.mean(axis=2, keepdims=True), pulled.shape)
    if previous.covariance_type == "tied":
        share = count.sum() / n_active
        dof = np.full(len(count), priors.dof + share)
        scatter = covariance0 + covariance * share + pulled.sum(axis=0) / n_active
        covariance = scatter / dof[0]
    else:
        dof = priors.dof + count
        covariance = (covariance0 + covariance * count[:, None, None] + pulled) / dof[:, None, None]
    concentration = priors.concentration + count
    if priors.process:
        later = np.concatenate([np.cumsum(count[::-1])[-2::-1], [0.0]])
        concentration = np.stack([1.0 + count, priors.concentration + later])
    return {"mean": mean, "dof": dof, "mean_precision": precision, "concentration": concentration}, covariance


def _factors(covariance: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Cholesky factors; in these units of the columns, a covariance that rounding made indefinite gets eigenvalues of at least
    10⁻¹² of the largest."""
    if covariance.shape[1] == 1:
        covariance = covariance / np.square(units)
        least = np.maximum(1e-12 * covariance.max(axis=2, keepdims=True), 1e-200)
        return units * np.sqrt(np.maximum(covariance, least))
    covariance = covariance / np.outer(units, units)
    return units[:, None] * np.stack([cholesky(positive_definite(matrix)) for matrix in covariance])


def _tails(sums: np.ndarray, count: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Degrees of freedom ν of each component, with log ν/2 - ψ(ν/2) + 1 + (mean of E[log u - u]) = 0."""

    def slope(log_tail: float, mean: float) -> float:
        half = 0.5 * np.exp(log_tail)
        return np.log(half) - digamma(half) + 1.0 + mean

    low, high = np.log(_TAILS)
    tails = old.copy()
    for k in np.flatnonzero(count > 1.0):
        mean = sums[k] / count[k]
        if slope(high, mean) >= 0.0:
            tails[k] = _TAILS[1]
        elif slope(low, mean) <= 0.0:
            tails[k] = _TAILS[0]
        else:
            tails[k] = np.exp(brentq(slope, low, high, args=(mean,), xtol=1e-10))
    return tails


def divergence(posterior: MixturePosterior, priors: Priors) -> float:
    """KL(posterior ‖ prior)."""
    return _of_weights(posterior, priors) + divergence_of_components(posterior, priors)


def _of_weights(posterior: MixturePosterior, priors: Priors) -> float:
    a = posterior.concentration
    if a.ndim == 1:
        return float(np.sum(Dirichlet(a).kl(Dirichlet(np.full(len(a), priors.concentration)))))
    logs = digamma(a) - digamma(a.sum(axis=0))
    first, second = a[0] - 1.0, a[1] - priors.concentration
    return float(np.sum(betaln(1.0, priors.concentration) - betaln(*a) + first * logs[0] + second * logs[1]))


def divergence_of_components(posterior: MixturePosterior, priors: Priors) -> float:
    """KL of the normal-Wisharts alone."""
    d, total = posterior.mean.shape[1], 0.0
    inverses, log_determinants = posterior.inverse_factors, posterior.log_determinants
    prior_covariance = posterior.prior_covariance
    is_full = inverses.shape[1] == d
    prior_log_det = np.linalg.slogdet(prior_covariance)[1] if is_full else float(np.log(prior_covariance).sum())
    beta0, nu0 = priors.mean_precision, priors.dof
    n_wisharts = 1 if posterior.covariance_type == "tied" else len(posterior.mean)
    for k in range(len(posterior.mean)):
        inverse, nu, beta = inverses[k], posterior.dof[k], posterior.mean_precision[k]
        difference = posterior.mean[k] - posterior.prior_mean
        image = applied(inverse, difference)
        total += 0.5 * (d * (np.log(beta / beta0) - 1.0 + beta0 / beta) + beta0 * image @ image)
        if k >= n_wisharts:
            continue
        # tr W₀ E Λ
        trace = np.sum((inverse @ prior_covariance if is_full else inverse * prior_covariance) * inverse)
        of_inverse = 2.0 * np.log(np.diagonal(inverse) if is_full else inverse[0]).sum()
        # log|W⁻¹| of prior and posterior scale matrices, of which ν W is the expected precision
        log_scale = of_inverse - d * np.log(nu)
        total += 0.5 * nu0 * (-prior_log_det - log_scale) + multigammaln(0.5 * nu0, d) - multigammaln(0.5 * nu, d)
        total += 0.5 * (nu - nu0) * (log_determinants[k] - log_scale - d * np.log(2.0)) + 0.5 * (trace - nu * d)
    return float(total)
