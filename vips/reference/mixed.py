"""The posterior of logistic regression with effects of persons, by Gibbs sampling.

    y_ij ~ Bernoulli(σ(x_ijᵀβ + u_ijᵀz_i)),  z_i ~ N(0, Ω),  β ~ N(0, 10² I),  Ω ~ inverse Wishart(q + 1, I)

With ω_ij ~ PG(1, ψ_ij) everything is conjugate; β is drawn with z integrated out, then z given β, then Ω given z.
Polson, Scott and Windle (2013), arXiv:1205.0310v3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import invwishart

from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.expfam.polya_gamma import draw_polya_gamma

__all__ = ["MixedDraws", "gibbs_mixed_logistic"]

_COEF_PRECISION = 0.01


@dataclass(frozen=True, eq=False)
class MixedDraws:
    """Draws from a posterior, in the order of the chain.

    Attributes
    ----------
    coef : ndarray of shape (n_samples, d)
    effects_cov : ndarray of shape (n_samples, q, q)
        Ω.
    """

    coef: np.ndarray
    effects_cov: np.ndarray


def gibbs_mixed_logistic(
    X: np.ndarray,
    y: np.ndarray,
    groups: np.ndarray,
    *,
    effects: np.ndarray | None = None,
    n_samples: int = 2000,
    n_burn_in: int = 500,
    random_state: RandomStateLike = None,
) -> MixedDraws:
    """Draw from the posterior of logistic regression with effects of persons.

    **Not private**: see :func:`gibbs_logistic`.

    Parameters
    ----------
    X : array of shape (n_rows, d)
        With a column of ones for an intercept.
    y : array of shape (n_rows,)
        0 and 1.
    groups : array of shape (n_rows,)
        Ids of the persons.
    effects : array of shape (n_rows, q), optional
        u. None: ones.
    n_samples, n_burn_in : int
        Number of sweeps that are kept, and of sweeps before them that are discarded.
    random_state : int, Generator or None
    """
    X, kappa = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64) - 0.5
    person, rng = np.unique(groups, return_inverse=True)[1], as_generator(random_state)
    order = np.argsort(person, kind="stable")
    X, kappa, person = X[order], kappa[order], person[order]
    U = np.ones((len(X), 1)) if effects is None else np.asarray(effects, dtype=np.float64)[order]
    starts, d, q = np.flatnonzero(np.diff(person, prepend=-1)), X.shape[1], U.shape[1]
    n_persons = len(starts)

    def sums(values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(values, starts, axis=0)

    of_kappa = sums(U * kappa[:, None])
    coef, z, omega_inverse = np.zeros(d), np.zeros((n_persons, q)), np.eye(q)
    draws = MixedDraws(np.empty((n_samples, d)), np.empty((n_samples, q, q)))
    for sweep in range(-n_burn_in, n_samples):
        weights = draw_polya_gamma(np.ones(len(X)), X @ coef + (U * z[person]).sum(axis=1), rng)
        weighted = U * weights[:, None]
        cross = sums(weighted[:, :, None] * X[:, None, :])
        inner = np.linalg.inv(omega_inverse + sums(weighted[:, :, None] * U[:, None, :]))
        gain = inner @ cross
        precision = (X * weights[:, None]).T @ X - np.einsum("nqd,nqe->de", cross, gain) + _COEF_PRECISION * np.eye(d)
        linear = X.T @ kappa - np.einsum("nqd,nq->d", gain, of_kappa)
        coef = np.linalg.solve(precision, linear) + np.linalg.solve(
            np.linalg.cholesky(precision).T, rng.standard_normal(d)
        )
        mean = np.einsum("nqr,nr->nq", inner, of_kappa) - gain @ coef
        z = mean + np.einsum("nqr,nr->nq", np.linalg.cholesky(inner), rng.standard_normal(z.shape))
        effects_cov = np.atleast_2d(invwishart.rvs(q + 1 + n_persons, np.eye(q) + z.T @ z, random_state=rng))
        omega_inverse = np.linalg.inv(effects_cov)
        if sweep >= 0:
            draws.coef[sweep], draws.effects_cov[sweep] = coef, effects_cov
    return draws
