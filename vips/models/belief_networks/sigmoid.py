"""Sigmoid belief networks.

    z_nk ~ Bernoulli(σ(b_k))                    K hidden units
    y_nj ~ Bernoulli(σ(w_j'z_n + c_j))          J visible units
    w_jk ~ N(0, ζ_jk), scales ζ under a shrinkage prior;  b, c ~ N(0, 10²)

===================  ============================================================
symbol               name
===================  ============================================================
W (J, K)             ``posterior_.weights``; ``components_`` is its mean, (K, J)
c, b                 ``posterior_.visible_bias``, ``posterior_.hidden_bias``
ζ                    ``posterior_.shrinkage.variance``
z̄ (n, K)             what ``transform`` returns
===================  ============================================================

Algorithm 6 of Park et al. (arXiv:1611.00340), after Gan et al. (2015).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from vips._support.extras import imported
from vips._support.printable import printable, strings_for_pandas
from vips._support.validation import check_integer
from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.expfam.gaussian import posterior_probabilities
from vips.models.belief_networks.contract import BeliefNetwork
from vips.models.belief_networks.inference import HiddenUnits, dense_rows, infer
from vips.models.belief_networks.posterior import network_parts
from vips.parts import Score, average

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SigmoidBeliefNetwork"]


# Updates of each hidden unit in predictions, which run once, not in every step.
_PREDICTION_SWEEPS = 20


class SigmoidBeliefNetwork(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BeliefNetwork):
    """Sigmoid belief network with one hidden layer over binary data, fitted by (private) variational Bayes.

    Parameters
    ----------
    n_components : int
        K, the number of hidden units.
    privacy : PrivacyBudget, PrivacyPlan or None
        None is 60 steps without noise, on samples of about a tenth of the records, at least 2,000: more from
        ``PrivacyPlan.non_private(n_steps=)``. The first step moves biases only, so a plan needs at least two steps.
    covariance : {"diagonal", "full"}
        Of the posterior of a visible unit's weights. "full", as in the paper, sums J K (K + 1)/2 numbers on top of 2 J K.
    penalty : {"tpbn", "normal"}
        The prior of the weights: three-parameter beta normal shrinkage, as in the paper, or N(0, 1).
    max_iter : int
        Updates of each hidden unit of a record in every step of a fit. Every step starts each record afresh.
    binarize : float or None
        Entries above it are 1, others 0. None: entries must be 0 or 1.
    clip_share : float or None
        Clip norm of a plan without one, as a share of :meth:`max_record_norm`. None: a public constant, see
        :meth:`default_clip`.
    schedule : RobbinsMonro, callable or None
        Step sizes of the averages: ρ_t as a function of t = 1, 2, …. None: see :meth:`step_size`.
    on_invalid : {"drop", "raise"}
        What a private fit does with a row that has an entry other than 0 and 1 (with ``binarize``: a non-finite entry):
        ignore it, or stop. The latter is outside the guarantee.
    dtype : {numpy.float64, numpy.float32}
        Dtype of the E-step; sums are double precision. Single precision is faster. With either, a record's hidden units are a
        function of that record alone, to the last bit.
    random_state : int, Generator, RandomState or None
        Seeds the starting weights, and the sampling of non-private fits. Noise is never seeded.

    Attributes
    ----------
    posterior_ : NetworkPosterior
        ``weights`` (W), ``visible_bias`` (c), ``hidden_bias`` (b): Gaussians with ``mean``, ``var``, ``sample``,
        ``interval``; ``shrinkage``: ``variance`` (ζ), ``local_rate`` (ξ), ``unit_rate`` (φ), ``global_rate`` (ω).
        After a private fit, networks whose records give such noisy totals (docs/intervals.md).
    components_ : ndarray of shape (n_components, n_features)
        Means of the weights.
    intercept_visible_, intercept_hidden_ : ndarray of shape (n_features,), (n_components,)
        Means of the biases.
    privacy_ : PrivacyReport
    n_features_in_ : int

    Notes
    -----
    *Privacy.*
    Unit: one row of X. Relation: add or remove one. Released: the noisy totals of every step, hence the posterior and the
    records that ``sample`` draws. Public by declaration: the number of columns, and all constructor arguments. Not covered:
    choosing any of them by looking at these records; :meth:`transform`, :meth:`reconstruct` and :meth:`score`, which read
    the records that they are given, and add no noise.

    Examples
    --------
    >>> from vips import PrivacyPlan, SigmoidBeliefNetwork
    >>> from vips.datasets import load_digits_binary
    >>> digits = load_digits_binary().data
    >>> plan = PrivacyPlan.from_epsilon(epsilon=4.0, delta=1e-5, sampling_rate=0.5, n_steps=20)
    >>> model = SigmoidBeliefNetwork(n_components=10, privacy=plan, random_state=0).fit(digits)
    >>> model.transform(digits[:5]).shape
    (5, 10)
    >>> model.sample(3, random_state=0)[0].shape
    (3, 64)
    """

    ignores_labels = takes_sparse = True

    # -- methods for users --------------------------------------------------------------------------------------

    def transform(self, X, observed=None) -> np.ndarray:
        """Probabilities z̄ that hidden units are on, given records.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_records, n_features)
            Binary. Unobserved entries may have any value.
        observed : bool array of shape (n_records, n_features), optional
            Entries to infer from; all of them by default.

        Returns
        -------
        ndarray of shape (n_records, n_components)
        """
        return self._over_chunks(X, observed, lambda units: units.mean, (self.n_components,))

    def inverse_transform(self, Z) -> np.ndarray:
        """Probabilities that visible units are on, given those of hidden units, shape (n_records, n_features).

        Parameters
        ----------
        Z : array of shape (n_records, n_components)
            Between 0 and 1.
        """
        posterior = self.posterior_
        Z = check_array(Z, dtype=np.float64)
        if Z.shape[1] != self.n_components:
            raise ValueError(f"Z has {Z.shape[1]} columns, the network has {self.n_components} hidden units.")
        if not ((Z >= 0.0) & (Z <= 1.0)).all():
            raise ValueError("Z must hold probabilities, between 0 and 1.")
        predictor = Z @ posterior.weights.mean.T + posterior.visible_bias.mean
        variance = posterior.spread(np.dtype(np.float64)).of_predictor(Z, np.matmul) + posterior.visible_bias.var
        return posterior_probabilities(predictor, variance)

    def reconstruct(self, X, observed=None) -> np.ndarray:
        """Probabilities that visible units are on, given the observed entries of the same records.

        Parameters
        ----------
        X, observed
            As in :meth:`transform`. With ``observed``, the other entries are predicted, from those alone.

        Returns
        -------
        ndarray of shape (n_records, n_features)
        """
        return self._over_chunks(
            X, observed, lambda units: posterior_probabilities(units.predictor, units.variance), (self.n_features_in_,)
        )

    def sample(self, n_samples: int = 1, random_state: RandomStateLike = None) -> tuple[np.ndarray, np.ndarray]:
        """Synthetic records; from a private fit, as private as the fit.

        Parameters
        ----------
        n_samples : int
        random_state : int, Generator, RandomState or None

        Returns
        -------
        X : bool ndarray of shape (n_samples, n_features)
        hidden : bool ndarray of shape (n_samples, n_components)
            The hidden units.
        """
        posterior = self.posterior_
        check_integer("n_samples", n_samples, 0)
        rng = as_generator(random_state)
        hidden = rng.uniform(size=(n_samples, self.n_components)) < expit(posterior.hidden_bias.mean)
        predictor = hidden @ posterior.weights.mean.T + posterior.visible_bias.mean
        return rng.uniform(size=predictor.shape) < expit(predictor), hidden

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """A table of the parameters.

        Parameters
        ----------
        level : float
            Of the intervals.

        Returns
        -------
        pandas.DataFrame
            A row for each parameter. "mean", and where intervals know the noise the "lower" and "upper" limit; of a private fit
            without, :meth:`why_no_intervals` says why.

        Warns
        -----
        PrivacyWarning
            If there are no limits in a private fit: it says why.
        """
        pd = imported("pandas", "summary()")

        self.warn_of_no_intervals()
        parts = network_parts(self.posterior_, self.column_names())[:3]
        labels = [printable(part.label(index)) for part in parts for index in np.ndindex(part.distribution.mean.shape)]
        means = np.concatenate([np.ravel(part.distribution.mean) for part in parts])
        table = pd.DataFrame({"mean": means}, index=strings_for_pandas(labels))
        if self.is_private and not self.why_no_intervals():
            limits = self.posterior_.interval(level).values()
            table["lower"], table["upper"] = (np.concatenate([np.ravel(of[side]) for of in limits]) for side in (0, 1))
        return table

    def score_samples(self, X) -> np.ndarray:
        """Evidence lower bound of each record given the parameters' posterior, in nats, shape (n_records,)."""
        return self._over_chunks(X, None, lambda units: units.bounds(self.posterior_), ())

    def score(self, X, y=None) -> float:
        """Mean of :meth:`score_samples`."""
        return float(self.score_samples(X).mean())

    @property
    def n_iter_(self) -> int:
        """Updates of each hidden unit of a record in a step: always ``max_iter``."""
        check_is_fitted(self, "last_posterior_")
        return self.max_iter

    @property
    def components_(self) -> np.ndarray:
        """Means of the weights, shape (n_components, n_features)."""
        return self.posterior_.weights.mean.T

    @property
    def intercept_visible_(self) -> np.ndarray:
        """Means of the visible units' biases, shape (n_features,)."""
        return self.posterior_.visible_bias.mean

    @property
    def intercept_hidden_(self) -> np.ndarray:
        """Means of the hidden units' biases, shape (n_components,)."""
        return self.posterior_.hidden_bias.mean

    def held_out_scores(self, X, y=None) -> list[Score]:
        """Evidence lower bound per record."""
        bounds = self.score_samples(X)
        return [Score("evidence lower bound per record (higher is better)", lambda counts: average(counts, bounds))]

    def predictions(self, X) -> np.ndarray:
        """Evidence lower bound of each record."""
        return self.score_samples(X)

    # -- helpers ------------------------------------------------------------------------------------------------

    @property
    def _n_features_out(self) -> int:
        return self.n_components

    def _over_chunks(self, X, observed, function: Callable[[HiddenUnits], np.ndarray], shape) -> np.ndarray:
        """``function`` of the hidden units of all records, chunk by chunk."""
        return np.concatenate([np.empty((0, *shape)), *map(function, self._inferred(X, observed))])

    def _inferred(self, X, observed) -> Iterator[HiddenUnits]:
        posterior = self.posterior_
        X = self.read_rows(X, reset=False, ensure_all_finite=observed is None)
        if observed is not None:
            observed = np.asarray(observed)
            if observed.dtype != bool or observed.shape != X.shape:
                raise ValueError(f"`observed` must be a boolean array of the shape of X, {X.shape}.")
        for start in range(0, X.shape[0], self.chunk_size):
            rows = dense_rows(X[start : start + self.chunk_size], np.dtype(np.float64))
            mask = None if observed is None else observed[start : start + self.chunk_size]
            if mask is not None:
                rows = np.where(mask, rows, 0.0)
            if not np.isfinite(rows).all():
                raise ValueError("X holds NaN or infinity where it is observed.")
            self.check_values(rows, None)
            yield infer(self._binary(rows), posterior, max(self.max_iter, _PREDICTION_SWEEPS), mask)
