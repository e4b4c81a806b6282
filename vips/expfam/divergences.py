"""Divergences between two posteriors of one family, one for each leading index.

    KL(p ‖ q) = E_p log p/q
    W₂(p, q)² = min E ‖x - y‖² over x ~ p, y ~ q on one probability space
    TV(p, q) = sup |p(A) - q(A)| ≤ min(√(KL/2), √(1 - e^-KL)), KL the smaller of both directions

============================  ==========  ==========================================================
family                        KL          2-Wasserstein
============================  ==========  ==========================================================
Gaussian, DiagonalGaussian    closed      closed (Bures)
Gamma                         closed      closed for equal shapes, else an integral over quantiles
Dirichlet, two categories     closed      of the first category's Beta, an integral over quantiles
Dirichlet, more categories    closed      None: no closed form
GeneralizedInverseGaussian    closed      None
Draws, ScaledDirichlet        as members of the other's family, with their means and variances
============================  ==========  ==========================================================
"""

from __future__ import annotations

import numpy as np
from scipy.special import betainccinv, betaincinv, gammainccinv, gammaincinv, ndtr

from vips.expfam import DiagonalGaussian, Dirichlet, Draws, Gamma, Gaussian, GeneralizedInverseGaussian, ScaledDirichlet

__all__ = [
    "BY_MOMENTS",
    "FAMILIES",
    "alike",
    "bound_from_kl",
    "family_of",
    "kl",
    "marginals",
    "total_variation_bound",
    "wasserstein",
]

Family = Gaussian | DiagonalGaussian | Dirichlet | Gamma | GeneralizedInverseGaussian

# Parameters of each family, and how many trailing axes of each belong to one distribution.
FAMILIES = {
    Gaussian: (("mean", 1), ("precision", 2)),
    DiagonalGaussian: (("mean", 1), ("precision", 1)),
    Dirichlet: (("concentration", 1),),
    Gamma: (("shape", 0), ("rate", 0)),
    GeneralizedInverseGaussian: (("rate", 0), ("inverse_rate", 0)),
}
# Distributions that are compared by their means and variances.
BY_MOMENTS = (Draws, ScaledDirichlet)
_LEAST_VARIANCE, _LEAST_MEAN = 1e-200, 1e-12
# ∫ f(u) du over (0, 1) is ∫ f(Φ(z)) φ(z) dz: quantiles are smooth functions of z, and their singular ends are far away.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(100)
_NEAR = np.abs(_NODES) < 8.0  # other nodes have 6e-16 of the weight, and SciPy has no quantiles of betas at 1e-70
_NODES, _WEIGHTS = _NODES[_NEAR], _WEIGHTS[_NEAR] / _WEIGHTS.sum()


def kl(p: Family, q: Family) -> np.ndarray:
    """KL(p ‖ q), exactly 0 where the parameters are equal.

    Parameters
    ----------
    p, q : Gaussian, DiagonalGaussian, Dirichlet, Gamma or GeneralizedInverseGaussian
        Of the same family and shape; a Gaussian can be compared with a DiagonalGaussian.

    Returns
    -------
    ndarray
        One for each leading index.

    Raises
    ------
    TypeError, ValueError
        For different families; for different shapes.
    """
    p, q = alike(p, q)
    # rounding can make it slightly negative
    return np.where(_equal(p, q), 0.0, np.maximum(np.asarray(p.kl(q), dtype=np.float64), 0.0))


def wasserstein(p: Family, q: Family) -> np.ndarray | None:
    """W₂(p, q), or None where the family has no closed form and no quantiles: see the table above.

    Parameters and errors as for :func:`kl`. For Gaussians ``W₂² = ‖μ - μ'‖² + tr(Σ + Σ' - 2 (Σ^½ Σ' Σ^½)^½)``.
    """
    p, q = alike(p, q)
    if isinstance(p, Gaussian):
        distance = np.hypot(np.linalg.norm(p.mean - q.mean, axis=-1), _bures(p, q))
    elif isinstance(p, DiagonalGaussian):
        distance = np.sqrt(np.sum((p.mean - q.mean) ** 2 + (p.std - q.std) ** 2, axis=-1))
    elif isinstance(p, Gamma):
        distance = _of_gammas(p, q)
    elif isinstance(p, Dirichlet) and p.concentration.shape[-1] == 2:
        distance = _of_betas(p, q)
    else:
        return None
    return np.where(_equal(p, q), 0.0, distance)


def total_variation_bound(p: Family, q: Family) -> np.ndarray:
    """An upper bound on the total variation distance, at most 1: Pinsker's or Bretagnolle and Huber's, the smaller.

    Parameters and errors as for :func:`kl`.
    """
    return bound_from_kl(np.minimum(kl(p, q), kl(q, p)))


def bound_from_kl(divergence: np.ndarray | float) -> np.ndarray:
    """min(√(KL/2), √(1 - e^-KL)). Divergences of independent parts add up before this, not after."""
    divergence = np.asarray(divergence, dtype=np.float64)
    # Pinsker; Bretagnolle and Huber (1979)
    return np.minimum(np.sqrt(0.5 * divergence), np.sqrt(-np.expm1(-divergence)))


def marginals(p: Family) -> Family:
    """The marginal of every coordinate: for Gaussians, Gaussians of shape (..., d, 1); for Dirichlets, Betas as (..., V, 2)."""
    if isinstance(p, Gaussian | DiagonalGaussian):
        return DiagonalGaussian(p.mean[..., None], 1.0 / p.var[..., None])
    if isinstance(p, Dirichlet):
        concentration = p.concentration
        # a single category leaves no rest
        remainder = np.maximum(concentration.sum(axis=-1, keepdims=True) - concentration, 1e-300)
        return Dirichlet(np.stack([concentration, remainder], axis=-1))
    family_of(p)  # raises for an unknown family
    return p


def _bures(p: Gaussian, q: Gaussian) -> np.ndarray:
    """min ‖F - F'U‖ over rotations U, where Σ = FFᵀ: equal to the formula with square roots, and without its cancellation."""
    ours, theirs = (np.swapaxes(g.inverse_factor, -2, -1) for g in (p, q))
    left, _, right = np.linalg.svd(np.swapaxes(theirs, -2, -1) @ ours)
    return np.linalg.norm(ours - theirs @ (left @ right), axis=(-2, -1))


def _of_gammas(p: Gamma, q: Gamma) -> np.ndarray:
    # Gammas of equal shape are a scale family: x = g/b with the same g, and E g² = a (a + 1)
    distance = np.abs(1.0 / p.rate - 1.0 / q.rate) * np.sqrt(p.shape * (p.shape + 1.0))
    differ = p.shape != q.shape
    if not differ.any():
        return distance
    a, b, other_a, other_b = p.shape[differ], p.rate[differ], q.shape[differ], q.rate[differ]
    distance = np.array(distance)
    distance[differ] = _over_quantiles(
        lambda u: gammaincinv(a, u) / b - gammaincinv(other_a, u) / other_b,
        lambda u: gammainccinv(a, u) / b - gammainccinv(other_a, u) / other_b,
    )
    return distance


def _of_betas(p: Dirichlet, q: Dirichlet) -> np.ndarray:
    ours, theirs = (np.moveaxis(d.concentration, -1, 0) for d in (p, q))
    return _over_quantiles(
        lambda u: betaincinv(*ours, u) - betaincinv(*theirs, u),
        lambda u: betainccinv(*ours, u) - betainccinv(*theirs, u),
    )


def _over_quantiles(lower, upper) -> np.ndarray:
    """√∫ (F⁻¹ - G⁻¹)² du; ``lower(u)`` is the difference of quantiles at u, ``upper(u)`` that at 1 - u."""
    square = 0.0
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        tail = ndtr(-abs(node))
        square = square + weight * (lower(tail) if node < 0.0 else upper(tail)) ** 2
    return np.sqrt(square)


def alike(p, q) -> tuple[Family, Family]:
    """Both distributions as members of the same family of :data:`FAMILIES`, with the same shape; those of :data:`BY_MOMENTS` by
    means and variances, where no other family is given as Dirichlets or normals.

    Raises
    ------
    TypeError, ValueError
        For different families; for different shapes.
    """
    if isinstance(q, BY_MOMENTS):
        q = _of_moments(q, p)
    if isinstance(p, BY_MOMENTS):
        p = _of_moments(p, q)
    if {family_of(p), family_of(q)} == {Gaussian, DiagonalGaussian}:
        p, q = (_widened(g) if isinstance(g, DiagonalGaussian) else g for g in (p, q))
    if family_of(p) is not family_of(q):
        raise TypeError(
            f"A {type(p).__name__} and a {type(q).__name__} cannot be compared: they are different families."
        )
    shapes = [getattr(g, FAMILIES[family_of(p)][0][0]).shape for g in (p, q)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"The distributions have different shapes, {shapes[0]} and {shapes[1]}.")
    return p, q


def _of_moments(p: Draws | ScaledDirichlet, like) -> Family:
    """The member of the family of ``like`` with the means and variances of ``p``, over a Dirichlet's categories in all."""
    mean, var = p.mean, np.maximum(p.var, _LEAST_VARIANCE)
    if isinstance(like, Dirichlet | ScaledDirichlet):
        mean = np.maximum(mean, _LEAST_MEAN)
        size = (mean * (1.0 - mean)).sum(axis=-1, keepdims=True) / var.sum(axis=-1, keepdims=True) - 1.0
        return Dirichlet(mean * np.maximum(size, _LEAST_MEAN))
    if isinstance(like, Gamma):
        return Gamma(mean**2 / var, mean / var)
    return DiagonalGaussian(mean, 1.0 / var)


def family_of(p: Family) -> type:
    """The class in :data:`FAMILIES` to which ``p`` belongs.

    Raises
    ------
    TypeError
        If there is none.
    """
    for family in FAMILIES:
        if isinstance(p, family):
            return family
    known = ", ".join(family.__name__ for family in FAMILIES)
    raise TypeError(f"Divergences are implemented for {known}; got {type(p).__name__}.")


def _widened(p: DiagonalGaussian) -> Gaussian:
    return Gaussian(p.mean, p.precision[..., None] * np.eye(p.mean.shape[-1]))


def _equal(p: Family, q: Family) -> np.ndarray:
    """Whether all parameters are equal, for each leading index."""
    equal = True
    for name, n_axes in FAMILIES[family_of(p)]:
        same = getattr(p, name) == getattr(q, name)
        equal = equal & same.all(axis=tuple(range(same.ndim - n_axes, same.ndim)))
    return equal
