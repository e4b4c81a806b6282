"""Hidden Markov model of sequences of vectors, whose states are Gaussian."""

from __future__ import annotations

from functools import partial

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips.models._gaussians.evidence import divergence_of_components
from vips.models.markov.gaussian_contract import GaussianChainModel
from vips.models.markov.gaussian_posterior import GaussianChainPosterior
from vips.models.markov.reading import names_of
from vips.parts import Part, indexed, last_of

__all__ = ["GaussianHMM"]


class GaussianHMM(GaussianChainModel):
    """Hidden Markov model of sequences of vectors, fitted by (private) variational Bayes. One record is one whole sequence.

    Parameters
    ----------
    n_components : int
        K, the number of states.
    covariance_type : {"full", "diag"}
    startprob_prior, transmat_prior : float or None
        Concentration of the Dirichlet priors; None is 1/K, as in hmmlearn.
    means_prior : array of shape (d,) or None
        None: the mean of all steps, which a private fit releases in its first step.
    beta_prior, dof_prior : float or None
        How many steps the priors of means and covariances count as; None is 1 and d, as in hmmlearn.
    scale_prior : array of shape (d, d) or (d,), or None
        Of covariances, times ``dof_prior``. None: 0.001 times the identity, as in hmmlearn.
    startprob_mask, transmat_mask : array of bool of shape (K,), (K, K), or None
        States that may be first, and moves that exist: ``np.triu(np.ones((K, K), bool))`` is a left-right model. Public. None:
        all of them.
    inference : {"vb", "em"}
        Variational Bayes, or maximum likelihood by EM, which ignores the priors. E-steps of private fits take posterior means
        with either.
    min_covar : float or None
        Added to variances. None: (10⁻⁴ ``max_norm``)² in a private fit, else 0.
    n_features : int or None
        Columns of every sequence: public. None takes those of X; a private fit to a list of arrays, whose widths may differ,
        needs it.
    max_norm : float or None
        Public; required for privacy. Steps that are longer vectors are scaled down to it.
    max_length : int
        Public. A fit reads the first ``max_length`` steps of a sequence.
    typical_length : int
        Public. Length of a sequence that counts whole; longer ones weigh less.
    dtype : {np.float64, np.float32}
        Precision of the forward-backward algorithm. Sums are in double precision with either.
    privacy : PrivacyBudget, PrivacyPlan or None
        None is a non-private fit, until it has settled.
    schedule : RobbinsMonro, callable or None
        Step sizes of the steps after the start, as a function of 1, 2, …. None: see :meth:`step_size`.
    random_state : int, Generator, RandomState or None
        Seeds the sampling of non-private fits. Noise is never seeded.

    Attributes
    ----------
    posterior_ : GaussianChainPosterior
    startprob_, transmat_ : ndarray of shape (K,), (K, K)
        Posterior means.
    means_ : ndarray of shape (K, d)
    covars_ : ndarray of shape (K, d, d)
        As in hmmlearn, also if they are diagonal.
    privacy_ : PrivacyReport

    Privacy
    -------
    Unit: one sequence, of any length; with ``groups``, all sequences of a person. Relation: add or remove one. Released: the
    noisy totals of every step, hence the posterior and the sequences that ``sample`` draws. Public by declaration: all
    constructor arguments. Not covered: choosing any of them by looking at these records; :meth:`predict`, :meth:`decode` and
    :meth:`score`, which read the sequences that they are given, and add no noise.

    Notes
    -----
    A step with a missing number, or one that is not finite, is a missing step, which the model handles exactly.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import GaussianHMM, PrivacyPlan
    >>> rng = np.random.default_rng(0)
    >>> asleep = (rng.random((5000, 30)) < 0.1).cumsum(axis=1) % 2
    >>> pulse = 0.7 - 0.3 * asleep + 0.05 * rng.normal(size=asleep.shape)
    >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=40)
    >>> model = GaussianHMM(2, n_features=1, max_norm=1.0, privacy=plan).fit(list(pulse))
    >>> bool(abs(np.sort(model.means_.ravel()) - [0.4, 0.7]).max() < 0.02)
    True
    """

    # -- what is seen in each state ---------------------------------------------------------------------------------

    def drawn(self, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        noise = rng.standard_normal((len(states), self.n_features_in_))
        X = self.means_[states]
        for k, covariance in enumerate(self.covars_):
            here = states == k
            X[here] += noise[here] @ np.linalg.cholesky(covariance).T
        return X

    @property
    def means_(self) -> np.ndarray:
        """Shape (K, d)."""
        check_is_fitted(self, "posterior_")
        return self.posterior_.gaussians.mean

    @property
    def covars_(self) -> np.ndarray:
        """Shape (K, d, d)."""
        check_is_fitted(self, "posterior_")
        covariances = self.posterior_.gaussians.covariances
        return covariances if self._is_full() else covariances[:, :, None] * np.eye(covariances.shape[1])

    def describe(self) -> dict:
        return {
            "unit": self.unit,
            "released": self.released("hence the posterior of first states, moves, means and covariances"),
            "declared_public": (
                f"max_norm = {self.max_norm or np.inf:g}: longer steps are scaled down to it",
                f"number of columns: {self.n_features_in_}; sequences of at most {self.max_length} steps",
                "n_components, masks, priors and all other constructor arguments",
            ),
        }

    def bound(self, records, posterior: GaussianChainPosterior) -> float:
        """Evidence lower bound of these records and the parameters, for non-private fits and tests; log likelihood with EM."""
        total = float(self.inferred(records, posterior)[2].sum())
        if self.inference == "em":
            return total
        return (
            total
            - posterior.divergence_of_chain(*self.chain_priors())
            - divergence_of_components(posterior.gaussians, self._priors())
        )

    # -- comparisons ------------------------------------------------------------------------------------------------

    def posterior_parts(self, posterior) -> list[Part]:
        """First states, moves and means."""
        if not isinstance(posterior, GaussianChainPosterior):
            return super().posterior_parts(posterior)
        states = [f"state {k}" for k in range(self.n_components)]
        return [
            Part("start", posterior.start, partial(last_of, states), states),
            Part("moves", posterior.moves, partial(indexed, "moves"), states),
            Part("means", posterior.gaussians.means, partial(indexed, "mean"), self.column_names()),
        ]

    def components(self, posterior: GaussianChainPosterior) -> tuple[np.ndarray, str]:
        """States are matched by their means."""
        return posterior.gaussians.mean, "euclidean"

    # -- for people -------------------------------------------------------------------------------------------------

    def _seen(self, names, n_typical: int) -> dict[str, np.ndarray]:
        """Mean and standard deviation of each column."""
        columns, deviations = self._columns(names), np.sqrt(np.diagonal(self.covars_, axis1=1, axis2=2))
        seen = {}
        for j, name in enumerate(columns):
            seen |= {f"mean {name}": self.means_[:, j], f"std {name}": deviations[:, j]}
        return seen

    def _emissions(self, names, n_rows: int) -> tuple[np.ndarray, list[str], str]:
        """Means, as deviations from that of all steps in standard deviations of all steps."""
        mean = self.shares_ @ self.means_
        apart = self.means_ - mean
        variances = self.shares_ @ (np.diagonal(self.covars_, axis1=1, axis2=2) + np.square(apart))
        values = (apart / np.sqrt(np.maximum(variances, 1e-300))).T
        return values[:n_rows], self._columns(names)[:n_rows], "mean, in standard deviations of all steps"

    def _columns(self, names) -> list[str]:
        return names_of(self.column_names() if names is None else names, self.n_features_in_, "column")
