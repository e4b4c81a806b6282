"""Divergence of a mixture's posterior from its prior: Dirichlet or Betas, and normal-Wishart (Bishop, 2006, B.79).

Exact for full covariances. For the others it takes the Wishart's expectations, as their updates do.
"""

from __future__ import annotations

import numpy as np
from scipy.special import betaln, digamma, multigammaln

from vips.expfam import Dirichlet
from vips.models._gaussians.posterior import MixturePosterior, applied
from vips.models._gaussians.update import Priors

__all__ = ["divergence", "divergence_of_components"]


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
