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

import os
from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from vips.data import rows_without
from vips.model import NUMERIC_DTYPES, Block, ConjugateExponentialModel
from vips.models._regression_posterior import posterior_probabilities
from vips.models._sbn_inference import HiddenUnits, dense_rows, infer
from vips.models._sbn_posterior import NetworkPosterior
from vips.models._sbn_prior import PRIORS
from vips.models._sbn_statistics import NetworkStatistics
from vips.models._sbn_update import CENTRE, LARGEST_WEIGHT, first_posterior, first_weights, next_posterior
from vips.privacy import PrivacyPlan
from vips.privacy.ledger import PrivacyLedger

__all__ = ["SigmoidBeliefNetwork"]


# Scales of the blocks, in units of the weights' gradient: totals that are averaged over steps, and hardly differ between
# records, need less of a record's norm.
_SCALES = {
    "count": 8.0, "hidden": 8.0, "visible": 2.0, "visible_precision": 8.0, "weights": 1.0, "precision": 8.0, "outer": 32.0,
}  # fmt: skip
# Clip norm in units of √(J K), which norms of records are about proportional to.
_CLIP_NORM = 0.02
# Updates of each hidden unit where records are looked at once, not in every step.
_PREDICTION_SWEEPS = 20
_LEAST_STEP = 0.2


class SigmoidBeliefNetwork(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ConjugateExponentialModel):
    """Sigmoid belief network with one hidden layer over binary data, fitted by (private) variational Bayes.

    Parameters
    ----------
    n_components : int
        K, the number of hidden units.
    privacy : PrivacyPlan or None
        None is a non-private fit. The first step moves biases only, so that a plan needs two steps at least.
    covariance : {"diagonal", "full"}
        Of the posterior of a visible unit's weights. "full", as in the paper, sums J K (K + 1)/2 numbers on top of 2 J K.
    prior : {"tpbn", "normal"}
        Of the weights: three-parameter beta normal shrinkage, as in the paper, or N(0, 1).
    n_sweeps : int
        Updates of each hidden unit of a record in every step of a fit. Every record starts anew in every step.
    binarize : float or None
        Entries above it are 1, others 0. None: entries must be 0 or 1.
    clip_share : float or None
        Clip norm of a plan without one, as a share of :meth:`max_norm`. None: a public constant, see :meth:`default_clip`.
    schedule : RobbinsMonro, callable or None
        Step sizes of the averages: ρ_t as a function of t = 1, 2, …. None: see :meth:`step_size`.
    on_invalid : {"drop", "raise"}
        What a private fit does with a row that has an entry other than 0 and 1 (with ``binarize``: that is not finite): count
        it for nothing, or stop. The latter is outside the guarantee.
    dtype : {numpy.float64, numpy.float32}
        Of the E-step; sums are double precision. Single precision is faster, but a record's hidden units can then depend on
        where it lies among others: mostly in their fourth digit, more where weights are large. The guarantee is one for exact
        arithmetic and does not cover that.
    random_state : int, Generator, RandomState or None
        Seeds the starting weights, and the sampling of non-private fits. Noise is never seeded.

    Attributes
    ----------
    posterior_ : NetworkPosterior
        ``weights`` (W), ``visible_bias`` (c), ``hidden_bias`` (b): Gaussians with ``mean``, ``var``, ``sample``,
        ``interval``; ``shrinkage``: ``variance`` (ζ), ``local_rate`` (ξ), ``unit_rate`` (φ), ``global_rate`` (ω).
    components_ : ndarray of shape (n_components, n_features)
        Means of the weights.
    intercept_visible_, intercept_hidden_ : ndarray of shape (n_features,), (n_components,)
        Means of the biases.
    privacy_ : PrivacyReport
    n_features_in_ : int

    Privacy
    -------
    Unit: one row of X. Relation: add or remove one. Released: the noisy totals of every step, hence the posterior; what
    ``sample`` makes of it. Public by declaration: the number of columns, and all constructor arguments. Not covered:
    choosing any of them by looking at these records; :meth:`transform`, :meth:`reconstruct` and :meth:`score` look at the
    records that they are given, and add no noise.

    Examples
    --------
    >>> from vips import PrivacyPlan, SigmoidBeliefNetwork
    >>> from vips.datasets import load_digits_binary
    >>> digits = load_digits_binary().data
    >>> plan = PrivacyPlan.from_epsilon(epsilon=4.0, delta=1e-5, sampling_rate=0.5, n_steps=20)
    >>> model = SigmoidBeliefNetwork(n_components=10, privacy=plan, random_state=0).fit(digits)
    >>> model.transform(digits[:5]).shape
    (5, 10)
    >>> model.sample(3, random_state=0).shape
    (3, 64)
    """

    def __init__(
        self,
        n_components: int = 30,
        *,
        privacy: PrivacyPlan | None = None,
        covariance: str = "diagonal",
        prior: str = "tpbn",
        n_sweeps: int = 3,
        binarize: float | None = None,
        clip_share: float | None = None,
        schedule: Callable[[int], float] | None = None,
        on_invalid: str = "drop",
        dtype: type = np.float64,
        random_state: object = None,
    ) -> None:
        self.n_components = n_components
        self.privacy = privacy
        self.covariance = covariance
        self.prior = prior
        self.n_sweeps = n_sweeps
        self.binarize = binarize
        self.clip_share = clip_share
        self.schedule = schedule
        self.on_invalid = on_invalid
        self.dtype = dtype
        self.random_state = random_state

    # -- the contract -------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Everything that can be wrong in the constructor, before the records are touched."""
        for name in ("n_components", "n_sweeps"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
                raise ValueError(f"`{name}` must be an integer ≥ 1, got {value!r}.")
        for name, values in (("covariance", ("diagonal", "full")), ("prior", PRIORS)):
            if getattr(self, name) not in values:
                raise ValueError(f"`{name}` must be one of {values}, got {getattr(self, name)!r}.")
        for name in ("clip_share", "binarize"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int | float | np.number) or isinstance(value, bool)):
                raise ValueError(f"`{name}` must be a number or None, got {value!r}.")
        if self.clip_share is not None and not 0.0 < self.clip_share <= 1.0:
            raise ValueError(f"`clip_share` must be above 0 and at most 1, got {self.clip_share!r}.")
        if self.binarize is not None and not np.isfinite(self.binarize):
            raise ValueError(f"`binarize` must be a finite number or None, got {self.binarize!r}.")
        if np.dtype(self.dtype) not in (np.float32, np.float64):
            raise ValueError(f"`dtype` must be numpy.float32 or numpy.float64, got {self.dtype!r}.")
        if self.schedule is not None and not callable(self.schedule):
            raise ValueError(f"`schedule` must be a function of the step, e.g. RobbinsMonro(), got {self.schedule!r}.")

    def check_features(self) -> None:
        if self.n_features_in_ < 1:
            raise ValueError("X has no columns.")

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

    def initial(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Nothing, but for random starting weights in the place of the weights' totals."""
        initial = {name: np.zeros(block.shape) for name, block in self.blocks().items()}
        return initial | {"weights": first_weights(rng, initial["weights"].shape)}

    def valid_records(self, records) -> np.ndarray:
        """Rows all of whose entries are 0 or 1, or finite if they are to be compared with ``binarize``."""
        if not sp.issparse(records):
            return self._valid_entries(records).all(axis=1)
        columns = records.indices  # a column that does not exist would be written beyond the end of an array
        valid = rows_without((columns < 0) | (columns >= self.n_features_in_), records.indptr)
        valid[valid] = self._valid_entries(dense_rows(records[valid], np.dtype(np.float64))).all(axis=1)
        return valid

    def expected_statistics(self, records, posterior: NetworkPosterior) -> NetworkStatistics:
        # hardened noise needs an E-step that is a function of a record to the last bit, which BLAS does not promise
        alone = self._plan().noise == "discrete"
        units = infer(self._binary(records), posterior, self.n_sweeps, alone=alone)
        return NetworkStatistics(units, posterior.weights.mean, CENTRE, self.covariance == "full", alone)

    def to_posterior(self, average, noise_std, previous: NetworkPosterior | None) -> NetworkPosterior:
        """See ``_sbn_update``."""
        if previous is None:
            return first_posterior(average["weights"], self.prior, self.covariance == "full")
        plan = self._plan()
        exact = not plan.is_private and plan.sampling_rate == 1.0
        return next_posterior(average, noise_std, previous, plan.is_private, exact)

    def step_size(self, t: int) -> float | dict[str, float]:
        """ρ_t: the ``schedule`` if there is one; 1 in a non-private full-batch fit. Otherwise gradients are not averaged, and
        the other totals are with max(2/(t + 1), 1/5)."""
        if self.schedule is not None:
            return self.schedule(t)
        plan = self._plan()
        recent = max(2.0 / (t + 1.0), _LEAST_STEP) if plan.is_private or plan.sampling_rate < 1.0 else 1.0
        return dict.fromkeys(self.blocks(), recent) | {"weights": 1.0, "visible": 1.0}

    def default_clip(self) -> float:
        """0.02 √(J K): far below the norms of most records, so that all count about as much (docs/sbn.md). Or ``clip_share``
        of :meth:`max_norm`."""
        if self.clip_share is not None:
            return self.clip_share * self.max_norm()
        return _CLIP_NORM * float(np.sqrt(self.n_features_in_ * self.n_components))

    def max_norm(self) -> float:
        """No record of a private fit has a larger norm: residuals are at most 1, ω and v at most ¼, weights at most 6."""
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

    def describe(self) -> dict:
        return {
            "unit": "one row of X",
            "released": (
                *(f"noisy total of block {name!r} of every step" for name in self.blocks()),
                "hence the posterior of weights and biases",
            ),
            "declared_public": (
                f"number of columns: {self.n_features_in_}",
                "n_components, prior and all other constructor arguments",
            ),
        }

    def bound(self, records, posterior: NetworkPosterior) -> float:
        """Evidence lower bound of these records and the parameters, for non-private fits and tests: not private."""
        units = infer(self._binary(records), posterior, self.n_sweeps)
        return float(units.bounds(posterior).sum()) - posterior.divergence()

    # -- what users call ----------------------------------------------------------------------------------------

    def fit(
        self, X, y=None, *, ledger: PrivacyLedger | None = None, checkpoint: str | os.PathLike | None = None
    ) -> SigmoidBeliefNetwork:
        """Fit to binary data.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_records, n_features)
            Every entry 0 or 1, unless there is a threshold ``binarize``.
        y : ignored
        ledger, checkpoint : PrivacyLedger, path; optional
            See :meth:`ConjugateExponentialModel.fit`.

        Returns
        -------
        self
        """
        return super().fit(X, ledger=ledger, checkpoint=checkpoint)

    def transform(self, X, observed=None) -> np.ndarray:
        """Probabilities z̄ that hidden units are on, given records.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_records, n_features)
            Binary. Entries that are not observed may be anything.
        observed : bool array of shape (n_records, n_features), optional
            Entries to infer from; all of them by default.

        Returns
        -------
        ndarray of shape (n_records, n_components)
        """
        return self._over_chunks(X, observed, lambda units, mask: units.mean, (self.n_components,))

    def inverse_transform(self, Z) -> np.ndarray:
        """Probabilities that visible units are on, given those of hidden units, shape (n_records, n_features).

        Parameters
        ----------
        Z : array of shape (n_records, n_components)
            Between 0 and 1.
        """
        check_is_fitted(self)
        Z = check_array(Z, dtype=np.float64)
        if Z.shape[1] != self.n_components:
            raise ValueError(f"Z has {Z.shape[1]} columns, the network has {self.n_components} hidden units.")
        if not ((Z >= 0.0) & (Z <= 1.0)).all():
            raise ValueError("Z must hold probabilities, between 0 and 1.")
        posterior = self.posterior_
        predictor = Z @ posterior.weights.mean.T + posterior.visible_bias.mean
        variance = posterior.spread(np.dtype(np.float64)).of_predictor(Z, np.matmul) + posterior.visible_bias.var
        return posterior_probabilities(predictor, variance)

    def reconstruct(self, X, observed=None) -> np.ndarray:
        """Probabilities that visible units are on, given what is observed of the same records.

        Parameters
        ----------
        X, observed
            As in :meth:`transform`. With ``observed``, the other entries are predicted, from those alone.

        Returns
        -------
        ndarray of shape (n_records, n_features)
        """
        return self._over_chunks(
            X, observed, lambda units, mask: posterior_probabilities(units.predictor, units.variance), (self.n_features_in_,)
        )  # fmt: skip

    def sample(self, n: int, random_state: object = None) -> np.ndarray:
        """Synthetic records of the network at the posterior mean; from a private fit, as private as the fit.

        Parameters
        ----------
        n : int
            Number of records.
        random_state : int, RandomState or None

        Returns
        -------
        bool ndarray of shape (n, n_features)
        """
        check_is_fitted(self)
        rng = check_random_state(random_state)
        posterior = self.posterior_
        hidden = rng.uniform(size=(n, self.n_components)) < expit(posterior.hidden_bias.mean)
        predictor = hidden @ posterior.weights.mean.T + posterior.visible_bias.mean
        return rng.uniform(size=predictor.shape) < expit(predictor)

    def score_samples(self, X) -> np.ndarray:
        """Evidence lower bound of each record given the parameters' posterior, in nats, shape (n_records,)."""
        return self._over_chunks(X, None, lambda units, mask: units.bounds(self.posterior_), ())

    def score(self, X, y=None) -> float:
        """Mean of :meth:`score_samples`."""
        return float(self.score_samples(X).mean())

    @property
    def components_(self) -> np.ndarray:
        """Means of the weights, shape (n_components, n_features)."""
        check_is_fitted(self, "posterior_")
        return self.posterior_.weights.mean.T

    @property
    def intercept_visible_(self) -> np.ndarray:
        """Means of the visible units' biases, shape (n_features,)."""
        check_is_fitted(self, "posterior_")
        return self.posterior_.visible_bias.mean

    @property
    def intercept_hidden_(self) -> np.ndarray:
        """Means of the hidden units' biases, shape (n_components,)."""
        check_is_fitted(self, "posterior_")
        return self.posterior_.hidden_bias.mean

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # -- helpers ------------------------------------------------------------------------------------------------

    @property
    def chunk_size(self) -> int:
        """Records per E-step call; with a full covariance so many that their pairs of hidden units take 30 MB."""
        n_pairs = self.n_components * (self.n_components + 1) // 2 if self.covariance == "full" else 1
        return self.__dict__.get("_chunk_size") or min(2048, max(64, 3_750_000 // n_pairs))

    @chunk_size.setter
    def chunk_size(self, value: int) -> None:
        self._chunk_size = value

    @property
    def _n_features_out(self) -> int:
        return self.n_components

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

    def _over_chunks(self, X, observed, function: Callable[[HiddenUnits, object], np.ndarray], shape) -> np.ndarray:
        """``function`` of the hidden units of all records, chunk by chunk."""
        results = [np.empty((0, *shape))]
        results += [function(units, mask) for units, mask in self._inferred(X, observed)]
        return np.concatenate(results)

    def _inferred(self, X, observed) -> Iterator[tuple[HiddenUnits, np.ndarray | None]]:
        check_is_fitted(self)
        X = validate_data(
            self, X, reset=False, accept_sparse="csr", dtype=NUMERIC_DTYPES, ensure_all_finite=observed is None
        )
        if sp.issparse(X):
            X.check_format(full_check=True)  # columns that do not exist
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
            yield infer(self._binary(rows), self.posterior_, max(self.n_sweeps, _PREDICTION_SWEEPS), mask), mask
