"""The posterior of Bayesian logistic regression, by Gibbs sampling.

    y_n | w ~ Binomial(b, 1 / (1 + exp(-x_nᵀw))),     w | α ~ N(0, I/α),     α ~ Gamma(a₀, b₀)

With ω_n ~ PG(b, x_nᵀw) the conditional of w is Gaussian, and the chain has the exact posterior of (w, α) as its limit.

==========================  ======================  ==================================================
symbol                      name                    meaning
==========================  ======================  ==================================================
w                           ``coef``                coefficients; the intercept, if any, is the last
α                           ``alpha``               their prior precision
Gamma(a₀, b₀) or α          ``prior``               of α, or its fixed value
b                           ``n_trials``            largest possible count
==========================  ======================  ==================================================

With effects of persons it is

    y_ij ~ Bernoulli(σ(x_ijᵀβ + u_ijᵀz_i)),  z_i ~ N(0, Ω),  β ~ N(0, 10² I),  Ω ~ inverse Wishart(q + 1, I)

With ω_ij ~ PG(1, ψ_ij) everything is conjugate; β is drawn with z integrated out, then z given β, then Ω given z.

Polson, Scott and Windle (2013), arXiv:1205.0310v3.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.stats import invwishart

from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.expfam import Gamma
from vips.expfam.polya_gamma import draw_polya_gamma

__all__ = ["LogisticDraws", "MixedDraws", "effective_sample_size", "gibbs_logistic", "gibbs_mixed_logistic"]

_COEF_PRECISION = 0.01  # of coefficients beside effects of persons


@dataclass(frozen=True, eq=False)
class LogisticDraws:
    """Draws from a posterior, in the order of the chain.

    Attributes
    ----------
    coef : ndarray of shape (n_samples, n_features) or (n_samples, n_features + 1)
        The intercept, if there is one, is the last column.
    alpha : ndarray of shape (n_samples,)
    """

    coef: np.ndarray
    alpha: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """Posterior mean of the coefficients."""
        return self.coef.mean(axis=0)

    @property
    def cov(self) -> np.ndarray:
        """Posterior covariance of the coefficients, always a matrix."""
        return np.atleast_2d(np.cov(self.coef, rowvar=False))

    @property
    def std(self) -> np.ndarray:
        """Posterior standard deviations of the coefficients."""
        return self.coef.std(axis=0, ddof=1)

    def effective_sample_size(self) -> np.ndarray:
        """Number of independent draws whose mean would be as exact, for each coefficient."""
        return effective_sample_size(self.coef)


def effective_sample_size(chain: np.ndarray) -> np.ndarray:
    """Length of a chain divided by its autocorrelation time, by Geyer's initial positive sequence.

    Parameters
    ----------
    chain : array of shape (n_samples, ...)
        Stationary and reversible, or nearly so.
    """
    n_samples = len(chain)
    centred = chain - np.mean(chain, axis=0)
    spectrum = np.fft.rfft(centred, 2 * n_samples, axis=0)
    correlation = np.fft.irfft(np.abs(spectrum) ** 2, axis=0)[:n_samples]
    correlation = correlation / correlation[0]
    # § 3.3 of Geyer (1992), Statistical Science 7(4): sums of neighbouring pairs are positive; stop at the first that is not
    pairs = correlation[: n_samples // 2 * 2].reshape(n_samples // 2, 2, *correlation.shape[1:]).sum(axis=1)
    before_noise = np.logical_and.accumulate(pairs > 0.0, axis=0)
    return n_samples / (2.0 * (pairs * before_noise).sum(axis=0) - 1.0)


def gibbs_logistic(
    X: np.ndarray,
    y: np.ndarray,
    *,
    n_trials: int = 1,
    prior: Gamma | float | None = None,
    fit_intercept: bool = False,
    intercept_std: float = 10.0,
    n_samples: int = 2000,
    n_burn_in: int = 500,
    random_state: RandomStateLike = None,
) -> LogisticDraws:
    """Draw from the posterior of Bayesian logistic regression.

    **Not private.** The draws depend on every record without clipping or noise. Use it to check approximations on public or
    synthetic data, never to release a result.

    Parameters
    ----------
    X : array of shape (n_records, n_features)
    y : array of shape (n_records,)
        Whole numbers between 0 and ``n_trials``.
    n_trials : int
        b; 1 for labels in {0, 1}. The draws of ω are exact up to 30, and nearly so above.
    prior : Gamma, float or None
        Of α, or α itself. None is Gamma(1, 1).
    fit_intercept : bool
        Adds a coefficient whose prior has mean 0 and standard deviation ``intercept_std``, for every α.
    intercept_std : float
    n_samples, n_burn_in : int
        Number of sweeps that are kept, and of sweeps before them that are discarded.
    random_state : int, Generator or None

    Returns
    -------
    LogisticDraws

    Raises
    ------
    ValueError
        If the data are not finite, their shapes do not fit, a count is impossible, or the prior is not positive.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 2))
    >>> y = rng.random(200) < 1.0 / (1.0 + np.exp(-X @ [2.0, -1.0]))
    >>> draws = gibbs_logistic(X, y, prior=1.0, n_samples=500, random_state=1)
    >>> bool((np.abs(draws.mean - [2.0, -1.0]) < 3.0 * draws.std).all())
    True
    """
    X, y = _checked_data(X, y, n_trials)
    n_features = X.shape[1]
    prior = Gamma(1.0, 1.0) if prior is None else prior
    is_learnt = isinstance(prior, Gamma) and prior.shape.ndim == 0
    if not is_learnt and not (isinstance(prior, Real) and np.isfinite(prior) and prior > 0.0):
        raise ValueError(f"`prior` must be a positive number or a Gamma distribution of one, got {prior!r}.")
    if not (np.isfinite(intercept_std) and intercept_std > 0.0):
        raise ValueError(f"`intercept_std` must be positive and finite, got {intercept_std!r}.")
    if fit_intercept:
        X = np.column_stack([X, np.ones(len(X))])
    rng = as_generator(random_state)

    trials = np.full(len(X), float(n_trials))
    linear = X.T @ (y - 0.5 * n_trials)  # Σ_n κ_n x_n
    prior_precision = np.full(X.shape[1], intercept_std**-2.0)  # the diagonal of Λ₀; the first d entries become α
    coef, alpha = np.zeros(X.shape[1]), float(prior.shape / prior.rate if is_learnt else prior)
    draws = LogisticDraws(np.empty((n_samples, len(coef))), np.empty(n_samples))
    for sweep in range(-n_burn_in, n_samples):
        omega = draw_polya_gamma(trials, X @ coef, rng)
        prior_precision[:n_features] = alpha
        coef = _draw_coef(X, omega, linear, prior_precision, rng)
        if is_learnt:  # α ~ Gamma(a₀ + d/2, b₀ + |w|²/2)
            squares = coef[:n_features] @ coef[:n_features]
            alpha = rng.standard_gamma(prior.shape + 0.5 * n_features) / (prior.rate + 0.5 * squares)
        if sweep >= 0:
            draws.coef[sweep], draws.alpha[sweep] = coef, alpha
    return draws


def _draw_coef(X, omega, linear, prior_precision, rng) -> np.ndarray:
    """One draw of N(V Σ κ_n x_n, V), V⁻¹ = XᵀΩX + Λ₀."""
    scaled = np.sqrt(omega)[:, None] * X
    precision = scaled.T @ scaled  # BLAS computes one triangle only
    precision.flat[:: len(linear) + 1] += prior_precision
    factor = cho_factor(precision, lower=True, check_finite=False)
    noise = solve_triangular(factor[0], rng.standard_normal(len(linear)), lower=True, trans="T", check_finite=False)
    return cho_solve(factor, linear, check_finite=False) + noise


def _checked_data(X, y, n_trials) -> tuple[np.ndarray, np.ndarray]:
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise ValueError(f"`X` must have shape (n, d) and `y` shape (n,), got {X.shape} and {y.shape}.")
    if not np.isfinite(X).all():
        raise ValueError("`X` must be finite.")
    if n_trials < 1 or n_trials != int(n_trials):
        raise ValueError(f"`n_trials` must be a positive integer, got {n_trials!r}.")
    if not ((y >= 0.0) & (y <= n_trials) & (y == np.floor(y))).all():
        raise ValueError(f"`y` must hold whole numbers between 0 and `n_trials` = {n_trials}.")
    return X, y


# -- effects of persons --------------------------------------------------------------------------------------------


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
        root = np.linalg.cholesky(precision)
        coef = np.linalg.solve(precision, linear) + np.linalg.solve(root.T, rng.standard_normal(d))
        mean = np.einsum("nqr,nr->nq", inner, of_kappa) - gain @ coef
        z = mean + np.einsum("nqr,nr->nq", np.linalg.cholesky(inner), rng.standard_normal(z.shape))
        effects_cov = np.atleast_2d(invwishart.rvs(q + 1 + n_persons, np.eye(q) + z.T @ z, random_state=rng))
        omega_inverse = np.linalg.inv(effects_cov)
        if sweep >= 0:
            draws.coef[sweep], draws.effects_cov[sweep] = coef, effects_cov
    return draws
