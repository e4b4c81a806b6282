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

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from vips._support.arguments import arguments, choice, function_of_step, number, precision, whole
from vips._support.extras import imported
from vips._support.printable import printable, strings_for_pandas
from vips._support.validation import check_integer
from vips.core.exact.rowwise import PIECE
from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.core.plan import PrivacyPlan
from vips.core.records.partition import rows_without
from vips.core.sums import Block
from vips.core.sums.networks import NetworkStatistics
from vips.expfam.gaussian import posterior_probabilities
from vips.model import ConjugateExponentialModel
from vips.models.belief_networks.inference import HiddenUnits, dense_rows, infer
from vips.models.belief_networks.matching import NetworkMatch, check_told, match_of, matched_network
from vips.models.belief_networks.posterior import NetworkPosterior, network_parts, reordered
from vips.models.belief_networks.prior import PRIORS
from vips.models.belief_networks.update import CENTRE, LARGEST_WEIGHT, first_posterior, first_weights, next_posterior
from vips.models.components.matching.steps import kept_steps
from vips.parts import Part, Score, average, warn_of_no_intervals

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SigmoidBeliefNetwork"]

# Updates of each hidden unit in predictions, which run once, not in every step.
_PREDICTION_SWEEPS = 20
# Scales of the blocks, in units of the weights' gradient. Totals that are averaged over steps, and hardly differ between
# records, get a smaller part of a record's norm.
_SCALES = {
    "count": 8.0, "hidden": 8.0, "visible": 2.0, "visible_precision": 8.0, "weights": 1.0, "precision": 8.0, "outer": 32.0,
}  # fmt: skip
# Clip norm in units of √(J K): norms of records are about proportional to it.
_CLIP_NORM = 0.02
_LEAST_STEP = 0.2
_MOST_TOTALS = 4_000  # of all groups of kept steps


@arguments
class SigmoidBeliefNetwork(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ConjugateExponentialModel):
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
        After a private fit, networks whose records give such noisy totals (docs/every_fit.md).
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

    n_components: int = whole(default=30, kw_only=False)
    covariance: str = choice("diagonal", "full", default="diagonal")
    penalty: str = choice(*PRIORS, default="tpbn")
    max_iter: int = whole(default=3)
    binarize: float | None = number(
        -np.inf, np.inf, "a finite number or None", default=None, open_low=True, open_high=True
    )
    clip_share: float | None = number(0.0, 1.0, "above 0 and at most 1, or None", default=None, open_low=True)
    schedule: Callable[[int], float] | None = function_of_step("RobbinsMonro()", default=None)
    on_invalid: str = "drop"
    dtype: type = precision(default=np.float64)

    unit = "one row of X"
    exact_rows = True
    ignores_labels = takes_sparse = True

    # -- the contract -------------------------------------------------------------------------------------------

    def least_posterior_size(self) -> int:
        return self.n_components**2  # the coupling

    def check_values(self, X, y) -> None:
        values = X.data if sp.issparse(X) else X
        if self.binarize is None and not ((values == 0) | (values == 1)).all():
            raise ValueError("X must be binary: every entry 0 or 1. Write X > 0.5, say, or binarize=0.5.")

    def blocks(self) -> dict[str, Block]:
        n_visible, n_hidden = self.n_features_in_, self.n_components
        shapes = {
            "count": (),
            "hidden": (n_hidden,),
            "visible": (n_visible,),
            "visible_precision": (n_visible,),
            "weights": (n_visible, n_hidden),
            "precision": (n_visible, n_hidden),
        }
        blocks = {name: Block(shape, scale=_SCALES[name]) for name, shape in shapes.items()}
        if self.covariance == "full":
            blocks["outer"] = Block((n_visible, n_hidden, n_hidden), symmetric=True, scale=_SCALES["outer"])
        return blocks

    def start(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], NetworkPosterior]:
        """Random weights."""
        average = self.initial(rng)
        return average, self._first(first_weights(rng, average["weights"].shape))

    def valid_records(self, records) -> np.ndarray:
        """Rows whose entries are all 0 or 1, or all finite with ``binarize``."""
        if not sp.issparse(records):
            return self._valid_entries(records).all(axis=1)
        columns = records.indices  # a column that does not exist would be written beyond the end of an array
        valid = rows_without((columns < 0) | (columns >= self.n_features_in_), records.indptr)
        valid[valid] = self._valid_entries(dense_rows(records[valid], np.dtype(np.float64))).all(axis=1)
        return valid

    def prepare(self, posterior: NetworkPosterior) -> None:
        posterior.spread(np.dtype(self.dtype))

    def expected_statistics(self, records, posterior: NetworkPosterior) -> NetworkStatistics:
        # hardened noise needs an E-step whose bits depend on the record alone, which BLAS does not promise
        alone = self.plan_of_fit().rounds_records
        units = infer(self._binary(records), posterior, self.max_iter, alone=alone)
        return units.statistics(posterior.weights.mean, CENTRE, self.covariance == "full", alone)

    def to_posterior(self, average, noise_std, previous: NetworkPosterior | None) -> NetworkPosterior:
        """See ``update.py``."""
        plan = self.plan_of_fit()
        if previous is None:
            return self._first(average["weights"])
        exact = not plan.is_private and plan.sampling_rate == 1.0
        return next_posterior(average, noise_std, previous, plan.is_private, exact)

    def _first(self, weights: np.ndarray) -> NetworkPosterior:
        return first_posterior(weights, self.penalty, self.covariance == "full")

    def kept_steps(self, n_steps: int) -> Collection[int]:
        return kept_steps(self, n_steps, _MOST_TOTALS, least_groups=3)

    def to_match(self) -> NetworkMatch:
        return match_of(self)

    def to_noise_aware_posterior(self) -> NetworkPosterior:
        return matched_network(self.match(), self)

    def check_intervals(self) -> None:
        """Steps must tell the hidden units."""
        check_told(self.match())

    def step_size(self, t: int) -> float | dict[str, float]:
        """ρ_t: the ``schedule`` if there is one; 1 in a non-private full-batch fit. Otherwise 1 for gradients, which are not
        averaged, and max(2/(t + 1), 1/5) for the other totals."""
        if self.schedule is not None:
            return self.schedule(t)
        plan = self.plan_of_fit()
        recent = max(2.0 / (t + 1.0), _LEAST_STEP) if plan.is_private or plan.sampling_rate < 1.0 else 1.0
        return dict.fromkeys(self.blocks(), recent) | {"weights": 1.0, "visible": 1.0}

    def default_clip(self) -> float:
        """0.02 √(J K), far below the norms of most records, so that all have about the same weight (docs/sbn.md); or
        ``clip_share`` times :meth:`max_record_norm`."""
        if self.clip_share is not None:
            return self.clip_share * self.max_record_norm()
        return _CLIP_NORM * float(np.sqrt(self.n_features_in_ * self.n_components))

    def max_record_norm(self) -> float:
        """Bound on the norms of a private fit's records: residuals are at most 1, ω and v at most ¼, weights at most 6."""
        n_visible, n_hidden, largest = self.n_features_in_, self.n_components, max(CENTRE, 1.0 - CENTRE)
        J, K = np.sqrt(n_visible), np.sqrt(n_hidden)
        norms = {
            "count": 1.0,
            "hidden": K * largest,
            "visible": J,
            "visible_precision": 0.25 * J,
            "weights": J * K * (largest + LARGEST_WEIGHT / 16.0),
            "precision": 0.25 * J * K,
            "outer": 0.25 * J * n_hidden,
        }
        return float(np.linalg.norm([norms[name] / block.scale for name, block in self.blocks().items()]))

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """60 steps on samples of about a tenth of the records, but not fewer than 2,000."""
        return PrivacyPlan.non_private(sampling_rate=min(1.0, max(0.1, 2000 / max(n_records, 1))), n_steps=60)

    def posterior_parts(self, posterior: NetworkPosterior) -> list[Part]:
        """Weights, biases, and scales of the prior."""
        if not isinstance(posterior, NetworkPosterior):
            return super().posterior_parts(posterior)
        return network_parts(posterior, self.column_names())

    def components(self, posterior: NetworkPosterior) -> tuple[np.ndarray, str]:
        """Hidden units are matched by their weights."""
        return posterior.weights.mean.T, "euclidean"

    def in_order(self, posterior: NetworkPosterior, order: np.ndarray) -> NetworkPosterior:
        return reordered(posterior, order)

    def describe(self) -> dict:
        return {
            "unit": self.unit,
            "released": (
                "noisy number of records, and noisy sums of the columns' and the hidden units' products, in every step",
                "hence the posterior of weights and biases",
            ),
            "declared_public": (
                f"number of columns: {self.n_features_in_}",
                "n_components, penalty and all other constructor arguments",
            ),
        }

    def bound(self, records, posterior: NetworkPosterior) -> float:
        """Evidence lower bound of these records and the parameters, for non-private fits and tests: not private."""
        units = infer(self._binary(records), posterior, self.max_iter)
        return float(units.bounds(posterior).sum()) - posterior.divergence()

    def default_chunk_size(self) -> int:
        """Whole pieces, few enough to stay in the cache; with a full covariance, one piece or about 30 MB of pairs of units."""
        n_pairs = self.n_components * (self.n_components + 1) // 2 if self.covariance == "full" else 1
        return min(2, max(1, 3_750_000 // n_pairs // PIECE)) * PIECE

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

        warn_of_no_intervals(self)
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

    def _valid_entries(self, records: np.ndarray) -> np.ndarray:
        if self.binarize is not None:
            return np.isfinite(records)
        return (records == 0) | (records == 1)

    def _binary(self, records) -> np.ndarray:
        """Records as a dense array of zeros and ones."""
        dtype = np.dtype(self.dtype)
        if self.binarize is None:
            return dense_rows(records, dtype)
        return (dense_rows(records, np.dtype(np.float64)) > self.binarize).astype(dtype)
