"""Regressions that know something before the fit: a given posterior, or public records."""

from __future__ import annotations

from types import SimpleNamespace

import joblib
import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips.expfam import DiagonalGaussian, Gamma, Gaussian
from vips.model import ConjugateExponentialModel
from vips.models._apart import fit_to_public
from vips.models.regression.known_steps import Denoised, Known, Released, best_weight, known_step
from vips.models.regression.prior import CoefficientPrior, KnownCoefficients

__all__ = ["InformedRegression"]

# Below this weight a step is that of a fit without public records, but for the prior; smaller weights are all alike.
_LEAST_WEIGHT = 0.05
# A weight of public records that changes by more than this factor moves the fit to its prior's mean.
_MOST_CHANGE = 5.0


class InformedRegression(ConjugateExponentialModel):
    """What regressions do with a Gaussian as ``prior``, and with public records.

    Attributes
    ----------
    public_posterior_ : Gaussian
        Posterior of the public records alone; absent without them, like the next ones.
    public_alpha_ : ndarray of shape (n_outputs,)
        E[α] of that fit.
    public_records_ : (int, str)
        Number of public records, and a hash that tells them from others.
    """

    @property
    def public_weight_(self) -> np.ndarray:
        """Weight of the public records in the prior, from 0 to 1, shape (n_outputs,): learnt from released totals."""
        check_is_fitted(self, "public_posterior_")
        return self.posterior_.public[0]

    def findings(self) -> dict[str, float]:
        """The weight of public records."""
        if not hasattr(self, "public_posterior_"):
            return super().findings()
        return super().findings() | {"weight of public records": float(self.public_weight_.mean())}

    # -- the prior ----------------------------------------------------------------------------------------------

    @property
    def _is_given(self) -> bool:
        """Whether the prior is a Gaussian."""
        return isinstance(self.prior, Gaussian | DiagonalGaussian)

    def _given_prior(self) -> float | Gamma | Gaussian | DiagonalGaussian:
        """``prior``, or its default."""
        return Gamma(1.0, 1.0) if self.prior is None else self.prior

    def _coefficient_prior(self) -> CoefficientPrior:
        settings, diagonal = (self.n_features_in_, bool(self.fit_intercept)), self.covariance == "diagonal"
        if self._is_given:
            return CoefficientPrior(None, *settings, KnownCoefficients.of(self.prior, diagonal=diagonal))
        prior = CoefficientPrior(self._given_prior(), *settings)
        if not hasattr(self, "public_posterior_"):
            return prior
        known = KnownCoefficients.of(self.public_posterior_, diagonal=False)
        base = np.stack([np.diag(prior.precision(alpha)) for alpha in self.public_alpha_])
        return CoefficientPrior(self._given_prior(), *settings, KnownCoefficients(known.linear, known.precision - base))

    def _start(self) -> SimpleNamespace:
        """Where a fit starts: the ``mean`` of what is known, or 0, and E[α]."""
        if hasattr(self, "public_posterior_"):
            return SimpleNamespace(mean=np.atleast_2d(self.public_posterior_.mean), alpha=self.public_alpha_)
        mean = self.prior.mean if self._is_given else np.zeros((self._n_outputs, self._n_coefficients()))
        return SimpleNamespace(mean=np.atleast_2d(mean), alpha=self._coefficient_prior().initial_alpha(self._n_outputs))

    def _check_given_prior(self) -> None:
        """Raise ValueError if a given prior has another form than the coefficients; public facts only."""
        if not self._is_given:
            return
        if self.covariance == "diagonal" and not isinstance(self.prior, DiagonalGaussian):
            raise ValueError(
                'covariance="diagonal" needs a prior of independent coefficients: prior=vips.expfam.DiagonalGaussian(p.mean, '
                "1 / p.var) for a posterior p."
            )
        shape = (self._n_outputs, self._n_coefficients())
        if np.atleast_2d(self.prior.mean).shape != shape:
            raise ValueError(
                f"`prior` is of coefficients of shape {self.prior.mean.shape}, the model's have {shape}: one for each of "
                f"{self.n_features_in_} columns{', and the intercept last' if self.fit_intercept else ''}."
            )

    # -- public records -----------------------------------------------------------------------------------------

    def _checked_public(self, X, y) -> tuple | None:
        """The public records of a fit; raises if they cannot be used."""
        if (X is None) != (y is None):
            raise ValueError("`public_X` and `public_y` go together: public records with their labels.")
        if X is None:
            return None
        if not self.is_private:
            raise ValueError("`public_X` is for private fits: without noise, append the public records to X and y.")
        if self._is_given:
            raise ValueError(
                "`public_X` makes a prior of its own: leave `prior` at its default, or leave `public_X` out."
            )
        if self.statistics == "paper" or self.covariance == "diagonal":
            raise ValueError('`public_X` needs statistics="centred" and covariance="full".')
        return X, y

    def _learn_from_public(self) -> None:
        """Fit the public records without noise, if there are any: charges no ledger, reads no private record."""
        records = self.__dict__.pop("_public", None)
        if records is None:
            return
        posterior, (X, y) = fit_to_public(self, *records, **self._settings_of_public())
        self.public_alpha_ = posterior.alpha_shape / posterior.alpha_rate
        self.public_posterior_ = Gaussian(posterior.mean, posterior.precision)
        self.public_records_ = (len(y), joblib.hash((X, y)))

    def _settings_of_public(self) -> dict:
        """Settings of the fit to public records that differ from the model's own."""
        return {}

    def _declared_known(self) -> tuple[str, ...]:
        """What the report says about prior and public records."""
        if self._is_given:
            return ("prior of the coefficients: a given Gaussian",)
        if not hasattr(self, "public_records_"):
            return ()
        return (
            f"{self.public_records_[0]:,} public records, start and prior of the coefficients: nothing protects them",
        )

    # -- a noisy step -------------------------------------------------------------------------------------------

    def _known_step(self, averages, noise, prior: CoefficientPrior, alpha: np.ndarray, old, previous, public, j: int):
        """Mean and precision of output ``j`` after a noisy step, or None if public records got hardly any weight: then the
        ordinary step follows.

        All in units in which rows have norm 1. Where the weight changes much, the fit goes to the prior's mean, α starts anew,
        and residuals that were summed before are carried there. Changed in place are then ``old``, ``averages["linear"]``,
        ``alpha`` and ``public``: weights, and the steps at which they last changed much.
        """
        ball, scale, is_public = self._ball(), self._units() * self._ball(), hasattr(self, "public_posterior_")
        known = Known(
            prior.known.linear[j] / scale,
            prior.known.precision[j] / np.outer(scale, scale),
            prior.precision(alpha[j]) / scale**2,
            prior.precision(prior.initial_alpha(1)[0]) / scale**2,
            self._start().mean[j] * scale,
        )
        released = Released(averages["linear"], averages["precision"], noise["linear"], noise["precision"])
        denoised = Denoised(released, known)
        t = previous.step + 1
        points = np.array([np.atleast_2d(previous.mean)[j] * self._units(), *previous.path[j][::-1]])[:t] * ball
        shares = self._shares_of_steps(t, len(points))
        if is_public:
            last = max(public[0, j], _LEAST_WEIGHT)
            public[0, j] = best_weight(known, denoised, released.residual, shares @ (points - known.start))
            if not last / _MOST_CHANGE <= max(public[0, j], _LEAST_WEIGHT) <= last * _MOST_CHANGE:
                public[1, j], old[:] = t, known.mean(public[0, j])
                alpha[j] = prior.initial_alpha(1)[0]
        weight, moved_at = public[0, j], int(public[1, j])
        if 0 < moved_at <= t:
            there, before = old if moved_at == t else points[t - moved_at - 1], slice(t - moved_at, None)
            carried = shares[before] @ (points[before] - there)
            averages["linear"] = released.residual + denoised.times(denoised.values, carried)
        if weight < _LEAST_WEIGHT:
            return None
        floor = 0.0 if self._is_given else alpha[j] / ball**2
        step, precision = known_step(known, weight, released, denoised, averages["linear"], old, floor)
        return old + step * self._length_of_step(t), precision

    def _shares_of_steps(self, t: int, n: int) -> np.ndarray:
        """Shares of the residuals of steps t, t - 1, … in their average after step t, shape (n,)."""
        shares, left = np.zeros(n), 1.0
        for i in range(n):
            rho = self.step_size(t - i)
            rho = rho["linear"] if isinstance(rho, dict) else rho
            shares[i], left = left * rho, left * (1.0 - rho)
        return shares
