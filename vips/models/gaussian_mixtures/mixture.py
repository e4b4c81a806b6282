"""Gaussian mixtures with scikit-learn's names."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips._support.extras import imported
from vips._support.validation import check_integer
from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.core.sums.gaussians import MixtureStatistics
from vips.expfam import Dirichlet
from vips.models._gaussians.posterior import MixturePosterior
from vips.models._gaussians.update import divergence
from vips.models._starts import lost, warn_of_floor
from vips.models.gaussian_mixtures.contract import GaussianMixtureModel
from vips.parts import Part, in_table, last_of, warn_of_no_intervals
from vips.report.words import described, whose

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["BayesianGaussianMixture"]

_LEAST = 1e-300  # of a share
_HIDDEN = 3.0  # counts below this many noise standard deviations are treated as zero


class BayesianGaussianMixture(GaussianMixtureModel):
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
        m₀; None is the mean of the records (of at most 20,000 of them), in a private fit the noisy one that the first step
        releases.
    degrees_of_freedom_prior : float or None
        ν₀; None is the number of columns.
    covariance_prior : array or None
        W₀, as in scikit-learn: of shape (n_features, n_features), (n_features,) for diagonal covariances, or a float for
        spherical ones. None is the covariance of these records; in a private fit a thousandth of the noisy one that the first
        step releases.
    reg_covar : float or None
        Added to variances. None is 1e-6 in units of the columns, ``spreads_`` squared / 16, and in a private fit the square of
        1e-4 ``max_norm``.
    inference : {"vb", "em"}
        Variational Bayes, or maximum likelihood by EM, which ignores all priors, as scikit-learn's ``GaussianMixture`` does.
    dof : float, array of shape (n_components,), "learn" or None
        Degrees of freedom of Student-t components, for heavy tails; ``covariances_`` are then their scale matrices. None:
        Gaussian components.
    max_norm : float or None
        Public bound on the L2 norm of a row; longer rows are scaled down to it. Required by a private fit. The origin should be
        near the middle of the records.
    privacy : PrivacyBudget, PrivacyPlan or None
        None is a non-private fit, until it has settled.
    schedule : RobbinsMonro, callable or None
        Step sizes after the components were found; see :meth:`step_size`.
    on_invalid : {"drop", "raise"}
    random_state : int, Generator, RandomState or None
        Seeds where a non-private fit begins and what it samples, and in a private fit directions in which spherical components
        are split. Noise is never seeded.

    Attributes
    ----------
    posterior_ : MixturePosterior
        Of a private fit at the match, if it is accepted: ``draws`` then holds those of "weights", "means" and "covariances".
    weights_, means_, covariances_, precisions_, precisions_cholesky_ : ndarray
        As in scikit-learn.
    weight_concentration_, mean_precision_, degrees_of_freedom_ : ndarray
        Parameters of the posterior, as in scikit-learn.
    dof_ : ndarray of shape (n_components,) or None
        Degrees of freedom of Student-t components.
    n_components_effective_ : int
        Components with records: whose count is at least 1, and in a private fit stands out from its noise.
    centre_, spreads_ : ndarray of shape (n_features,)
        Of an ordinary fit: means of the columns, and five mean absolute deviations at most (4 standard deviations of normals).
    privacy_ : PrivacyReport
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Of fits to data frames whose names are strings.

    Notes
    -----
    *Privacy.*
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
    def n_components_effective_(self) -> int:
        """Number of components with records: whose count is at least 1, and in a private fit stands out from its noise."""
        return int(self._has_records().sum())

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """The components, the largest first.

        Parameters
        ----------
        level : float
            Of the intervals.

        Returns
        -------
        pandas.DataFrame
            A row for each component: its share, and its "lower" and "upper" limit where intervals know the noise; whether it
            has records, or may be noise; mean and standard deviation of each column, NaN in an ordinary fit without records.

        Warns
        -----
        ConvergenceWarning
            If two components of an ordinary fit are alike, or one holds no record, but of a Dirichlet process; if one has
            nearly one value in a column.
        PrivacyWarning
            If there are no limits in a private fit: it says why.
        """
        pd = imported("pandas", "summary()")

        warn_of_no_intervals(self)
        order = np.argsort(-self.weights_, kind="stable")
        table = {"share": self.weights_[order]}
        if draws := self.posterior_.draws:
            limits = draws["weights"].interval(level)
            table |= {name: limit[order] for name, limit in zip(("lower", "upper"), limits, strict=True)}
        table |= {
            "records": np.where(self._has_records(), "yes", "none, or hidden by noise")[order],
        }
        deviations = np.sqrt(np.diagonal(self._matrices(), axis1=1, axis2=2))
        for j, name in enumerate(self.column_names()):
            table[f"mean {name}"] = self.means_[order, j]
            table[f"std {name}"] = deviations[order, j]
        table = pd.DataFrame(table, index=pd.Index([f"component {k}" for k in order]))
        counts, features = (
            self._has_records().astype(float),
            np.hstack([self.means_, deviations]) / np.tile(self._place[1], 2),
        )
        is_empty = lost(self, "component", counts, features, may_be_empty=self._priors().process)
        table.loc[is_empty[order], [name for name in table if name.startswith(("mean ", "std "))]] = np.nan
        if not hasattr(self, "noisy_totals_"):
            instead = "Write a smaller reg_covar or covariance_prior."
            warn_of_floor("component", self.column_names(), np.square(deviations), self._least(), is_empty, instead)
        return table.rename_axis(columns=whose(getattr(self, "privacy_", None)))

    def plot_components(self, columns: tuple = (0, 1), *, X=None, ax: Axes | None = None) -> Axes:
        """A picture in two columns: ellipses that hold a half and nine tenths of each component, darker for larger ones.

        Parameters
        ----------
        columns : tuple of two names or indices
        X : array of shape (n_records, n_features), optional
            Records to draw beside them. The picture then shows these records, and is not private.
        ax : matplotlib.axes.Axes, optional

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ImportError
            Without matplotlib.
        ValueError
            If a column does not exist.
        """
        from vips.models._pictures import plot_ellipses

        check_is_fitted(self, "last_posterior_")
        names = self.column_names()
        places = [names.index(column) if column in names else column for column in columns]
        if len(places) != 2 or not all(isinstance(j, int | np.integer) and 0 <= j < len(names) for j in places):
            raise ValueError(f"`columns` must be two names or indices of columns, got {columns!r}.")
        square = np.ix_(range(len(self.means_)), places, places)
        records = None if X is None else self.read_rows(X, reset=False)[:, places]
        return plot_ellipses(
            self.means_[:, places], self._matrices()[square], self.weights_, [names[j] for j in places], records, ax
        )

    @property
    def weights_(self) -> np.ndarray:
        """Shares of the components, shape (n_components,)."""
        return self.posterior_.weights

    @property
    def means_(self) -> np.ndarray:
        """Shape (n_components, n_features)."""
        return self.posterior_.mean

    @property
    def covariances_(self) -> np.ndarray:
        """Their shape is (n_components, n_features, n_features), (n_features, n_features) if tied, (n_components, n_features)
        if diagonal, (n_components,) if spherical."""
        return self.posterior_.covariances

    @property
    def precisions_cholesky_(self) -> np.ndarray:
        """Factors P of the precisions P Pᵀ, upper triangular, or square roots; of the shape of ``covariances_``."""
        inverses = self.posterior_.inverse_factors
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
        concentration = self.last_posterior_.concentration
        return concentration if concentration.ndim == 1 else (concentration[0], concentration[1])

    @property
    def mean_precision_(self) -> np.ndarray:
        """β, shape (n_components,)."""
        return self.last_posterior_.mean_precision

    @property
    def degrees_of_freedom_(self) -> np.ndarray | float:
        """ν, shape (n_components,); a float if covariances are tied."""
        degrees = self.last_posterior_.dof
        return float(degrees[0]) if self.covariance_type == "tied" else degrees

    @property
    def dof_(self) -> np.ndarray | None:
        """Degrees of freedom of Student-t components."""
        tail = self.posterior_.tail
        return tail if tail.any() else None

    def bound(self, records, posterior: MixturePosterior) -> float:
        """Evidence lower bound of these records and the parameters, for non-private fits and tests; log likelihood with EM."""
        total = float(self._statistics(records, posterior).log_likelihood.sum())
        return total if posterior.plug_in else total - divergence(posterior, self._priors())

    # -- comparisons --------------------------------------------------------------------------------------------

    def describe(self) -> dict:
        return described(
            self,
            "hence the posterior of shares, means and covariances",
            f"max_norm = {self.max_norm or np.inf:g}: longer rows are scaled down to it",
            f"number of columns: {self.n_features_in_}",
            "n_components, priors and all other constructor arguments",
        )

    def posterior_parts(self, posterior) -> list[Part]:
        """Shares and means of the components, given their expected precisions."""
        if not isinstance(posterior, MixturePosterior):
            return super().posterior_parts(posterior)
        labels, names = [f"component {k}" for k in range(len(posterior.mean))], self.column_names()
        return [
            Part("weights", posterior.draws.get("weights", _shares(posterior)), partial(last_of, labels), labels),
            Part("means", posterior.draws.get("means", posterior.means), partial(in_table, labels, names), names),
        ]

    def components(self, posterior: MixturePosterior) -> tuple[np.ndarray, str]:
        """Components are matched by their means."""
        return posterior.mean, "euclidean"

    def findings(self) -> dict[str, float]:
        """Number of components with records, and how far the released totals are from those of the best components."""
        return {"components with records": float(self.n_components_effective_)} | super().findings()

    # -- helpers ------------------------------------------------------------------------------------------------

    def _inferred(self, X) -> MixtureStatistics:
        posterior = self.posterior_
        return self._statistics(self.read_rows(X, reset=False), posterior)

    def _matrices(self) -> np.ndarray:
        """Covariances of all components, (K, d, d); of Student-t components scale matrices."""
        factors, d = self.posterior_.factors, self.n_features_in_
        if factors.shape[1] == d:
            return factors @ np.swapaxes(factors, 1, 2)
        return np.square(factors[:, 0])[:, :, None] * np.eye(d)

    def _least(self) -> np.ndarray:
        """What floor and prior add to the variances of each component, shape (K, d)."""
        posterior, least = self.posterior_, self._priors().reg_covar * np.ones((len(self.means_), self.n_features_in_))
        if posterior.plug_in:
            return least
        prior = posterior.prior_covariance
        return least + (np.diagonal(prior) if len(prior) > 1 else prior) / posterior.dof[:, None]

    def _has_records(self) -> np.ndarray:
        posterior = self.posterior_
        if hasattr(self, "noisy_totals_"):
            totals = self.noisy_totals_
            return totals.average["count"] >= np.maximum(1.0, _HIDDEN * np.asarray(totals.noise_std["count"]))
        count = posterior.concentration
        if not posterior.plug_in:
            prior = self._priors().concentration
            count = count[0] - 1.0 if count.ndim == 2 else count - prior
        return count >= 1.0


def _shares(posterior: MixturePosterior) -> Dirichlet:
    """Shares of a Dirichlet process by a Dirichlet of the same means and total."""
    concentration = posterior.concentration
    if concentration.ndim == 2:
        concentration = posterior.weights * concentration[0].sum()
    return Dirichlet(np.maximum(concentration, _LEAST))
