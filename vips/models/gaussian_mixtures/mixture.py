"""Gaussian mixtures with scikit-learn's names."""

from __future__ import annotations

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from vips._random_state import RandomStateLike, as_generator
from vips._validation import check_integer
from vips.models._clusters import Clusters
from vips.models._gaussians.evidence import divergence
from vips.models._gaussians.posterior import MixturePosterior
from vips.models.gaussian_mixtures.contract import GaussianMixtureModel
from vips.models.gaussian_mixtures.parts import mixture_parts
from vips.models.gaussian_mixtures.reading import ReadableMixture
from vips.models.gaussian_mixtures.statistics import MixtureStatistics
from vips.parts import Part

__all__ = ["BayesianGaussianMixture"]


class BayesianGaussianMixture(ReadableMixture, Clusters, DensityMixin, GaussianMixtureModel):
    """Mixture of Gaussian or Student-t components, fitted by (private) variational Bayes or EM.

    Parameters
    ----------
    n_components : int
        K; of a Dirichlet process, the largest number.
    covariance_type : {"full", "tied", "diag", "spherical"}
    weight_concentration_prior_type : {"dirichlet_process", "dirichlet_distribution"}
    weight_concentration_prior : float or None
        α; None is 1/K.
    mean_precision_prior : float or None
        β₀; None is 1.
    mean_prior : array of shape (n_features,) or None
        m₀; None is the mean of all records, in a private fit the noisy one that the first step releases.
    degrees_of_freedom_prior : float or None
        ν₀; None is the number of columns.
    covariance_prior : array or None
        W₀, as in scikit-learn: of shape (n_features, n_features), (n_features,) for diagonal covariances, or a float for
        spherical ones. None is the covariance of all records; in a private fit a thousandth of the noisy one that the first
        step releases.
    reg_covar : float or None
        Added to variances. None is 1e-6, and in a private fit the square of 1e-4 ``max_norm``.
    inference : {"vb", "em"}
        Variational Bayes, or maximum likelihood by EM, which ignores all priors, as scikit-learn's ``GaussianMixture`` does.
    dof : float, array of shape (n_components,), "learn" or None
        Degrees of freedom of Student-t components, for heavy tails; ``covariances_`` are then their scale matrices. None:
        Gaussian components.
    max_norm : float or None
        Public bound on the L2 norm of a row; longer rows are scaled down to it. Required by a private fit. The origin should be
        near the middle of the records.
    privacy : PrivacyBudget, PrivacyPlan or None
        None is a non-private fit: 100 + K steps with all records.
    schedule : RobbinsMonro, callable or None
        Step sizes after the components were found; see :meth:`step_size`.
    on_invalid : {"drop", "raise"}
    random_state : int, Generator, RandomState or None
        Seeds directions in which spherical components are split, and the sampling of non-private fits. Noise is never seeded.

    Attributes
    ----------
    posterior_ : MixturePosterior
    weights_, means_, covariances_, precisions_, precisions_cholesky_ : ndarray
        As in scikit-learn.
    weight_concentration_, mean_precision_, degrees_of_freedom_ : ndarray
        Parameters of the posterior, as in scikit-learn.
    dof_ : ndarray of shape (n_components,) or None
        Degrees of freedom of Student-t components.
    n_components_effective_ : int
        Components with records: whose count is at least 1, and in a private fit stands out from its noise.
    privacy_ : PrivacyReport
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Of fits to data frames whose names are strings.

    Privacy
    -------
    Unit: one row of X. Relation: add or remove one. Released: the noisy totals of every step, hence the posterior and the
    records that ``sample`` draws. Public by declaration: ``max_norm``, the number of columns, priors and all other
    constructor arguments. Not covered: choosing any of them by looking at these records; :meth:`predict`, :meth:`predict_proba`
    and :meth:`score_samples`, which read the records that they are given, and add no noise.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import BayesianGaussianMixture, PrivacyPlan
    >>> rng = np.random.default_rng(0)
    >>> X = 0.1 * rng.normal(size=(20_000, 2)) + np.where(rng.random((20_000, 1)) < 0.3, [0.5, 0.2], [-0.3, 0.0])
    >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=20)
    >>> model = BayesianGaussianMixture(2, max_norm=1.0, privacy=plan).fit(X)
    >>> bool(abs(model.weights_.min() - 0.3) < 0.05)
    True
    >>> model.sample(3, random_state=0)[0].shape
    (3, 2)
    """

    name_of_score = "log density"

    # -- methods for users --------------------------------------------------------------------------------------

    def sample(self, n_samples: int = 1, random_state: RandomStateLike = None) -> tuple[np.ndarray, np.ndarray]:
        """Synthetic records of the mixture at the means of the posterior; from a private fit, as private as the fit.

        Parameters
        ----------
        n_samples : int
        random_state : int, Generator, RandomState or None

        Returns
        -------
        X : ndarray of shape (n_samples, n_features_in_)
        component : ndarray of shape (n_samples,)
            Of each record.
        """
        check_is_fitted(self)
        check_integer("n_samples", n_samples, 0)
        rng, posterior = as_generator(random_state), self.posterior_
        component = np.sort(rng.choice(self.n_components, n_samples, p=posterior.weights))
        noise = rng.standard_normal((n_samples, self.n_features_in_))
        if posterior.tail.any():
            tail = posterior.tail[component]
            noise /= np.sqrt(rng.chisquare(tail) / tail)[:, None]
        X = posterior.mean[component]
        for k, factor in enumerate(posterior.factors):
            rows = component == k
            X[rows] += noise[rows] @ factor.T if len(factor) == X.shape[1] else noise[rows] * factor[0]
        return X, component

    @property
    def weights_(self) -> np.ndarray:
        """Shares of the components, shape (n_components,)."""
        return self._fitted().weights

    @property
    def means_(self) -> np.ndarray:
        """Shape (n_components, n_features)."""
        return self._fitted().mean

    @property
    def covariances_(self) -> np.ndarray:
        """Of shape (n_components, n_features, n_features), (n_features, n_features) if tied, (n_components, n_features) if
        diagonal, (n_components,) if spherical."""
        return self._fitted().covariances

    @property
    def precisions_cholesky_(self) -> np.ndarray:
        """Factors P of the precisions P Pᵀ, upper triangular, or square roots; of the shape of ``covariances_``."""
        inverses = self._fitted().inverse_factors
        if self.covariance_type in ("full", "tied"):
            upper = np.swapaxes(inverses, 1, 2)
            return upper if self.covariance_type == "full" else upper[0]
        return inverses[:, 0] if self.covariance_type == "diag" else inverses[:, 0, 0]

    @property
    def precisions_(self) -> np.ndarray:
        """Inverses of ``covariances_``."""
        factor = self.precisions_cholesky_
        return factor @ np.swapaxes(factor, -1, -2) if self.covariance_type in ("full", "tied") else np.square(factor)

    @property
    def weight_concentration_(self) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Concentration of the Dirichlet, shape (n_components,); of a Dirichlet process, the two parameters of its Betas."""
        concentration = self._fitted().concentration
        return concentration if concentration.ndim == 1 else (concentration[0], concentration[1])

    @property
    def mean_precision_(self) -> np.ndarray:
        """β, shape (n_components,)."""
        return self._fitted().mean_precision

    @property
    def degrees_of_freedom_(self) -> np.ndarray | float:
        """ν, shape (n_components,); a float if covariances are tied."""
        degrees = self._fitted().dof
        return float(degrees[0]) if self.covariance_type == "tied" else degrees

    @property
    def dof_(self) -> np.ndarray | None:
        """Degrees of freedom of Student-t components."""
        tail = self._fitted().tail
        return tail if tail.any() else None

    def bound(self, records, posterior: MixturePosterior) -> float:
        """Evidence lower bound of these records and the parameters, for non-private fits and tests; log likelihood with EM."""
        total = float(self._statistics(records, posterior).log_likelihood.sum())
        return total if posterior.plug_in else total - divergence(posterior, self._priors())

    # -- comparisons --------------------------------------------------------------------------------------------

    def describe(self) -> dict:
        return {
            "unit": self.unit,
            "released": self.released("hence the posterior of shares, means and covariances"),
            "declared_public": (
                f"max_norm = {self.max_norm or np.inf:g}: longer rows are scaled down to it",
                f"number of columns: {self.n_features_in_}",
                "n_components, priors and all other constructor arguments",
            ),
        }

    def posterior_parts(self, posterior) -> list[Part]:
        """Shares and means of the components."""
        if not isinstance(posterior, MixturePosterior):
            return super().posterior_parts(posterior)
        return mixture_parts(posterior, self.column_names())

    def components(self, posterior: MixturePosterior) -> tuple[np.ndarray, str]:
        """Components are matched by their means."""
        return posterior.mean, "euclidean"

    def in_order(self, posterior: MixturePosterior, order: np.ndarray) -> MixturePosterior:
        return posterior.in_order(order)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # -- helpers ------------------------------------------------------------------------------------------------

    def _fitted(self) -> MixturePosterior:
        check_is_fitted(self, "posterior_")
        return self.posterior_

    def _inferred(self, X) -> MixtureStatistics:
        check_is_fitted(self)
        return self._statistics(self._validated(X, reset=False), self.posterior_)
