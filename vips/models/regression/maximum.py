"""Most probable coefficients of a negative binomial regression, by Fisher's scoring: where an ordinary fit starts.

Steps of variational Bayes are short where counts are large: they see the curvature (y + r) tanh(ψ/2) / 2ψ in place of
r m / (r + m), which is 10,000 times as small for a mean of 300,000. From here on they have next to nothing to do.
"""

from __future__ import annotations

import numpy as np

from vips.models._definite import positive_definite
from vips.models.regression.posterior import CoefficientPosterior
from vips.models.regression.prior import CoefficientPrior
from vips.sums.regressions import outer_sums

__all__ = ["most_probable"]

_MOST_ROUNDS, _HALVINGS, _TOLERANCE = 100, 30, 1e-9


def most_probable(
    rows,
    units: np.ndarray,
    counts: np.ndarray,
    offset: np.ndarray,
    dispersion: float,
    prior: CoefficientPrior,
    intercept: bool,
) -> CoefficientPosterior:
    """The Gaussian at the mode, whose precision is the expected curvature there, and α given it.

    Parameters
    ----------
    rows : array or CSR of shape (n_records, d)
        Of the design.
    units : ndarray of shape (d,)
        Coefficients of the design per natural one.
    counts, offset : ndarray of shape (n_records,)
        y, and the logarithm of the exposure.
    """
    d, r = len(units), dispersion
    mean, (alpha,) = np.zeros(d), prior.initial_alpha(1)
    if intercept:
        mean[-1] = np.log(max(counts.sum(), 0.5)) - np.log(np.exp(offset).sum())

    def predicted(w: np.ndarray) -> np.ndarray:
        return rows @ (units * w) + offset

    def loss(w: np.ndarray) -> float:
        """Negative log density, up to a constant."""
        eta = predicted(w)
        return float(
            ((counts + r) * np.logaddexp(eta, np.log(r)) - counts * eta).sum() + 0.5 * w @ law @ w - linear @ w
        )

    for _ in range(_MOST_ROUNDS):
        linear, law = prior.natural(0, alpha)
        law = np.diag(law) if law.ndim == 1 else law
        m = np.exp(np.minimum(predicted(mean), 700.0))
        gradient = units * (rows.T @ ((counts - m) * (r / (r + m)))) + linear - law @ mean
        precision = np.outer(units, units) * outer_sums(rows, (m * (r / (r + m)))[:, None])[0] + law
        step, now = np.linalg.solve(positive_definite(precision), gradient), loss(mean)
        for _ in range(_HALVINGS):
            if loss(mean + step) <= now + 1e-12 * abs(now):
                break
            step *= 0.5
        mean = mean + step
        posterior = CoefficientPosterior(mean, positive_definite(precision))
        posterior.alpha_shape, posterior.alpha_rate = prior.alpha_posterior(mean[None], posterior.var[None])
        alpha = posterior.alpha_shape[0] / posterior.alpha_rate[0]
        if np.abs(step).max() <= _TOLERANCE * (1.0 + np.abs(mean).max()):
            break
    return posterior
