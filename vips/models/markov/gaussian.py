"""Hidden Markov model of sequences of vectors, whose states are Gaussian."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import numpy as np

from vips._support.arguments import arguments, choice, number, positive
from vips._support.validation import check_max_norm
from vips.core.exact.rowwise import scaled_rows
from vips.core.phases import FitPhase, plain_average, steps_of_shares
from vips.core.records.source import DataSource
from vips.core.sums import Block, Joint
from vips.core.sums.gaussian_kernels import NOTHING
from vips.core.sums.gaussian_runs import GaussianSums
from vips.core.sums.runs import SumsOfSymbols
from vips.data._sequences import Sequences
from vips.models import _typical as typical
from vips.models._centred import look_at_columns, place
from vips.models._chains import inferred, plugs_in
from vips.models._gaussians.denoising import Influence, view
from vips.models._gaussians.posterior import MixturePosterior
from vips.models._gaussians.splitting import (
    GROWING,
    first_posterior,
    growing_phases,
    lengths_of_growth,
    n_splits_in_step,
    next_components,
    step_size_of_all,
)
from vips.models._gaussians.transport import carried
from vips.models._gaussians.update import Moments, Priors, divergence_of_components, next_posterior
from vips.models._scales import blocks_of_least_cost
from vips.models._sequences import declared_of_steps
from vips.models._starts import best_start
from vips.models.components.component import Frame
from vips.models.components.numbers import Numbers, standard_numbers
from vips.models.markov.gaussian_posterior import GaussianChainPosterior, densities
from vips.models.markov.hidden import HiddenMarkovModel, Words, steps_seen
from vips.models.markov.matching import VectorSimulator
from vips.models.markov.posterior import order_of_mask, private_chain, private_counts
from vips.models.markov.start import bins_of_pairs, states_of_bins
from vips.models.markov.statistics import first_shares, moves_of, of_pairs_of_bins
from vips.parts import Part, indexed
from vips.report.unread import Seen

__all__ = ["GaussianHMM"]

_SETTLES = 5  # steps from one split to the next
_SHARES = 0.05, 0.35  # of the budget, of moments and of pairs
_MOST_COLUMNS = 12  # of which pairs are counted
_CHUNK = 2**22  # numbers in the work arrays of a chunk
_RELEASED = "noisy counts of first states and of moves, and noisy moments of the steps in each state"


@arguments
class GaussianHMM(HiddenMarkovModel):
    """Hidden Markov model of sequences of vectors, fitted by (private) variational Bayes. One record is one whole sequence.

    Parameters
    ----------
    n_components : int
        K, the number of states.
    covariance_type : {"full", "diag"}
    means_prior : array of shape (d,) or None
        None: the mean of the steps (of at most 20,000 of them), which a private fit releases in its first step.
    beta_prior, dof_prior : float or None
        How many steps the priors of means and covariances count as; None is 1 and d, as in hmmlearn.
    scale_prior : array of shape (d, d) or (d,), or None
        Of covariances, times ``dof_prior``. None: 0.001 times the identity, as in hmmlearn; in an ordinary fit in units of the
        columns, ``spreads_`` / 4.
    min_covar : float or None
        Added to variances. None: (10⁻⁴ ``max_norm``)² in a private fit, else 0.
    n_features : int or None
        Columns of every sequence: public. None takes those of X; a private fit to a list of arrays, whose widths may differ,
        needs it.
    max_norm : float or None
        Public; required for privacy. Steps that are longer vectors are scaled down to it.
    typical_length : int
        Public. Length of a sequence that counts whole; longer ones weigh less.
    startprob_prior, transmat_prior, startprob_mask, transmat_mask, inference, max_length, dtype
        See :class:`CategoricalHMM`.
    privacy : PrivacyBudget, PrivacyPlan or None
        None is a non-private fit, until it has settled.
    schedule : RobbinsMonro, callable or None
        Step sizes of the steps after the start, as a function of 1, 2, …. None: see :meth:`step_size`.
    random_state : int, Generator, RandomState or None
        Seeds where a non-private fit begins, and what it samples. Noise is never seeded.

    Attributes
    ----------
    posterior_ : GaussianChainPosterior
        Of a private fit at the match, if it is accepted: ``draws`` then holds those of "shares" of the states, "start",
        "moves", "means" and "covariances".
    startprob_, transmat_ : ndarray of shape (K,), (K, K)
        Of the match of a private fit, else posterior means.
    means_ : ndarray of shape (K, d)
    covars_ : ndarray of shape (K, d, d)
        As in hmmlearn, also if they are diagonal.
    centre_, spreads_ : ndarray of shape (d,)
        Of an ordinary fit: means of the columns, and five mean absolute deviations at most (4 standard deviations of normals).
    privacy_ : PrivacyReport

    Notes
    -----
    *Privacy.* As :class:`CategoricalHMM`.

    A step with a missing number, or one that is not finite, is a missing step, which the model handles exactly.

    A private fit is matched to its totals, as :class:`CategoricalHMM` is; missing steps are taken as independent of the states.

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

    covariance_type: str = choice("full", "diag", default="full")
    means_prior: object = None
    beta_prior: float | None = positive(default=None)
    dof_prior: float | None = positive(default=None)
    scale_prior: object = None
    min_covar: float | None = number(0.0, 1e12, "a number between 0 and 1e12", default=None)
    n_features: int | None = None
    max_norm: float | None = None

    _words = Words("first states, moves, means and covariances")
    exact_rows = True
    exact_noise = ("count", "start", "moves")

    # -- the contract -----------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Check all constructor arguments, before the records are read."""
        super().check_parameters()
        check_max_norm(self.max_norm, self.is_private, "longer steps are scaled down to it")

    def check_features(self) -> None:
        super().check_features()
        self._priors()

    def blocks(self) -> dict[str, Block]:
        return self._blocks_of_states() | (self._blocks_of_pairs() if self._counts_pairs() else {})

    def _blocks_of_states(self) -> dict[str, Block]:
        return dict(
            _blocks_of_states(self.n_components, self.n_features_in_, float(self.typical_length), self._is_full())
        )

    def begin(self, records: DataSource) -> GaussianChainPosterior | None:
        """Look where the columns lie, and begin at clusters of the steps."""
        look_at_columns(self, records, self._vectors)
        return best_start(self, records, self._starts)

    def _starts(
        self, records: Sequences, weights: np.ndarray, rng: np.random.Generator
    ) -> list[GaussianChainPosterior]:
        records, priors, first = records.first(self.max_length), self._priors(), self._first().gaussians
        X, (centre, units) = self._vectors(records), self._place
        is_seen = np.isfinite(X).all(axis=1)
        if priors.mean is None and is_seen.any():
            first = replace(first, prior_mean=X[is_seen].mean(axis=0))

        def posterior_of(shares, start, moves) -> GaussianChainPosterior:
            moments = Moments.of_rows(X[is_seen], shares[is_seen], self.covariance_type)
            return self._chain(start, moves, next_posterior(moments, first, priors, self.n_components))

        return self._starts_at(records, (X - centre) / units, posterior_of, rng)

    def in_units(self, posterior):
        return posterior.in_units(*self._place)

    def start(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], GaussianChainPosterior]:
        """One state over the ball of ``max_norm``."""
        return self.initial(rng), self._first()

    def phases(self, n_steps: int) -> list[FitPhase]:
        """In a private fit moments of all steps, then counts of neighbouring steps in bins, from which the states are computed
        (``start.py``), then the states. Where columns are many, one state is split instead."""
        if not self.is_private:
            return [FitPhase("states", n_steps, step_size=self.step_size, **self._moments())]
        if self._counts_pairs():
            return self._phases_of_pairs(n_steps)
        return self._phases_of_growth(n_steps)

    def _phases_of_pairs(self, n_steps: int) -> list[FitPhase]:
        steps, moments = steps_of_shares(self.plan_of_fit(), n_steps, *_SHARES), self._moments()
        pairs = self._phase_of_pairs(steps[1], "noisy counts of neighbouring steps, in bins of the columns")
        n_left = n_steps - sum(of["n_steps"] for of in steps)
        states = FitPhase("states", n_left, step_size=partial(step_size_of_all, self, False, n_left), **moments)
        return [FitPhase("moments", **steps[0], step_size=plain_average, **moments), pairs, states]

    def _phases_of_growth(self, n_steps: int) -> list[FitPhase]:
        """One state, which is split until there are ``n_components``; with masks, some steps until the states get their order;
        then the steps of all states. From one split to the next, states settle: in a third of all steps, and at most 5 steps.
        """
        K = self.n_components
        interval = int(np.clip(n_steps // 3 // max(K - 1, 1), 1, _SETTLES))
        lengths = lengths_of_growth(K, n_steps, interval)
        splits = {"update": self._unordered_states, "end": self._split_states} if lengths else {}
        moments = self._moments()
        first = growing_phases(lengths or [1], n_steps, **moments, **splits)
        n_left = n_steps - sum(phase.n_steps for phase in first)
        if K > 1 and not all(mask.all() for mask in self._allowed()):
            n_ordering = min(interval, n_left)
            ordering = FitPhase(
                "growing",
                n_ordering,
                update=self._unordered_states,
                end=self._order_states if n_ordering == interval else None,
                step_size=lambda s: GROWING,
                **moments,
            )
            first, n_left = [*first, ordering], n_left - n_ordering
        sizes = partial(step_size_of_all, self, True, n_left)
        return [*first, FitPhase("states", n_left, step_size=sizes, **moments)]

    def _moments(self) -> dict:
        return {"blocks": list(self._blocks_of_states()), "released": _RELEASED}

    def _pair_statistics(self, records: Sequences, posterior: GaussianChainPosterior) -> SumsOfSymbols:
        """Counts of neighbours, in bins that hold about as many steps each if these are normal."""
        records, (mean, deviation) = records.first(self.max_length), _of_all_steps(posterior.gaussians)
        X = self._vectors(records)
        cells = np.where(np.isfinite(X).all(axis=1, keepdims=True), (X - mean) / deviation, np.nan)
        return of_pairs_of_bins(cells, records.offsets, self._columns_in_bins().bins)

    def _states_of_pairs(self, average, noise_std, previous: GaussianChainPosterior) -> GaussianChainPosterior:
        """Those of the table of pairs."""
        K, (mean, deviation) = self.n_components, _of_all_steps(previous.gaussians)
        pairs = private_counts(average["pairs"], noise_std["pairs"])
        moves, normals = states_of_bins(pairs, self._allowed()[1], self._columns_in_bins(), np.random.default_rng(0))
        means, deviations = np.moveaxis(normals.reshape(K, -1, 2), 2, 0)
        shares = moves.sum(axis=1)
        count = shares * max(float(average["count"][0]), 1.0)
        variances = np.square(deviation * deviations)
        covariances = variances[:, :, None] * np.eye(len(mean)) if self._is_full() else variances[:, None]
        moments = Moments(count, count, mean + deviation * means, covariances, None)
        gaussians = next_posterior(moments, previous.gaussians, self._priors(), K)
        gaussians = replace(gaussians, parent=np.zeros(K, int), portion=np.minimum(shares, 0.999))
        start, n_moves = (max(float(average[name].sum()), 1.0) for name in ("start", "moves"))
        return self._chain(start * shares, n_moves * moves, gaussians)

    def expected_statistics(self, records: Sequences, posterior: GaussianChainPosterior) -> Joint:
        records, blocks = records.first(self.max_length), self._blocks_of_states()
        X, is_missing, *likely = self._densities(records, posterior)
        shares, pairs, _ = inferred(records.offsets, *posterior.chain, *likely, NOTHING, self.dtype)
        moves = moves_of(first_shares(records, shares), pairs)
        shares[is_missing] = 0.0
        largest = self._largest_step() if self.is_private else np.inf
        sums = GaussianSums(X, records.offsets, shares, posterior.tables, blocks, self._centre(), largest)
        return Joint(moves, sums)

    def to_posterior(self, average, noise_std, previous: GaussianChainPosterior | None) -> GaussianChainPosterior:
        """The update of all states; noisy totals are denoised first."""
        return self._chain(*self._updated(average, noise_std, previous, 0))

    def _unordered_states(self, average, noise_std, previous: GaussianChainPosterior) -> GaussianChainPosterior:
        """The same before masks hold."""
        return self._chain(*self._updated(average, noise_std, previous, 0), is_ordered=False)

    def _split_states(self, average, noise_std, previous: GaussianChainPosterior) -> GaussianChainPosterior:
        """The same, and a split of the largest states."""
        n_splits = n_splits_in_step(self.n_components, self.plan_of_fit().n_steps)
        return self._chain(*self._updated(average, noise_std, previous, n_splits), is_ordered=False)

    def _order_states(self, average, noise_std, previous: GaussianChainPosterior) -> GaussianChainPosterior:
        """The same, in the order in which the masks allow most of the moves."""
        start, moves, gaussians = self._updated(average, noise_std, previous, 0)
        order = order_of_mask(start, moves, self._allowed())
        parent, portion = gaussians.parent[order], gaussians.portion[order]
        gaussians = replace(gaussians.in_order(order), parent=parent, portion=portion)
        return self._chain(start[order], moves[np.ix_(order, order)], gaussians)

    def _updated(self, average, noise_std, previous: GaussianChainPosterior | None, n_splits: int) -> tuple:
        """Counts of first states and moves, ≥ 0, and Gaussians."""
        if previous is None:
            first = self._first()
            totals = self._uncentred(average | {"count": np.maximum(average["count"], 0.0)})
            gaussians = next_posterior(
                Moments.of(totals, first.gaussians), first.gaussians, self._priors(), self.n_components
            )
            return average["start"], average["moves"], gaussians
        frame, priors, totals = previous.gaussians, self._priors(), self._uncentred(average)
        start, moves = average["start"], average["moves"]
        if self.is_private:
            influence = Influence.of(
                self.blocks(), self.covariance_type, self.n_features_in_, self._largest_step(), 0.0
            )
            influences = [influence] * self.n_components
            noise = {name: noise_std[name] for name in ("count", "linear", "second")}
            totals = view(totals, noise, frame, influences, float(self.max_norm))
            start, moves = private_chain(start, moves, noise_std)
        gaussians = next_components(self, totals, frame, priors, n_splits)
        parent, portion = gaussians.parent, gaussians.portion
        start, moves = _carried_chain(np.maximum(start, 0.0), np.maximum(moves, 0.0), parent, portion)
        return start, moves, gaussians

    def steps_read(self, values: np.ndarray) -> tuple[np.ndarray, str]:
        return np.isfinite(values), "finite numbers"

    def counts_read(self) -> list[Seen]:
        """From the number of steps that are not missing."""
        return [Seen("Steps", "number", *steps_seen(self, "count"))]

    def transport(self, average, noise_std, previous: GaussianChainPosterior, posterior: GaussianChainPosterior):
        """Totals in the coordinates of the states, which have moved or were split (``vips/models/_gaussians/transport.py``)."""
        parent, portion = posterior.gaussians.parent, posterior.gaussians.portion
        names = ("count", "linear", "second")
        totals, noise = carried(
            {name: average[name] for name in names},
            {name: noise_std[name] for name in names},
            previous.gaussians,
            posterior.gaussians,
            self._centre(),
        )
        start, moves = _carried_chain(average["start"], average["moves"], parent, portion)
        totals = dict(average) | totals | {"start": start, "moves": moves}
        K = self.n_components
        std = (np.broadcast_to(noise_std[name], shape) for name, shape in (("start", (K,)), ("moves", (K, K))))
        start, moves = _carried_chain(*std, parent, portion)
        return totals, dict(noise_std) | noise | {"start": start, "moves": moves}

    def max_record_norm(self) -> float:
        """Norm of ``max_length`` steps that are all as long as a step may be, in one direction."""
        blocks, n = self.blocks(), float(self.max_length)
        centre = np.sqrt(self.n_features_in_) / blocks["second"].scale
        of_states = n * (self._largest_step() + centre + 1.0 / blocks["moves"].scale) + 1.0 / blocks["start"].scale
        return max(of_states, n * self.n_features_in_ / blocks["pairs"].scale if "pairs" in blocks else 0.0)

    def default_chunk_size(self) -> int:
        d = self.n_columns
        return int(np.clip(_CHUNK // (d + 6 * self.n_components), 1024, 65_536))

    def declared(self) -> tuple[str, ...]:
        return (
            f"max_norm = {self.max_norm or np.inf:g}: longer steps are scaled down to it",
            f"number of columns: {self.n_features_in_}; {declared_of_steps(self)}",
        )

    def divergence_of_emissions(self, posterior: GaussianChainPosterior) -> float:
        return divergence_of_components(posterior.gaussians, self._priors())

    # -- what is seen in each state ---------------------------------------------------------------------------------

    def likely(self, records: Sequences, posterior: GaussianChainPosterior) -> tuple[np.ndarray, np.ndarray]:
        return self._densities(records, posterior)[2:]

    def at_means(self, posterior: GaussianChainPosterior) -> GaussianChainPosterior:
        return replace(posterior, plug_in=True, gaussians=replace(posterior.gaussians, plug_in=True))

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
        return self.posterior_.gaussians.mean

    @property
    def covars_(self) -> np.ndarray:
        """Shape (K, d, d)."""
        covariances = self.posterior_.gaussians.covariances
        return covariances if self._is_full() else covariances[:, :, None] * np.eye(covariances.shape[1])

    def typical_steps(self, states: np.ndarray, n_features: int | None, rng: np.random.Generator) -> np.ndarray:
        d = typical.n_columns(self, self.n_features or n_features)
        return typical.vectors(self.max_norm, states, self.n_components, d, rng)

    def simulator(self) -> VectorSimulator:
        priors = self._priors()
        return VectorSimulator.of(self, (priors.mean_precision, priors.dof))

    # -- comparisons ------------------------------------------------------------------------------------------------

    def _n_free_of_seen(self) -> int:
        d = self.n_features_in_
        return self.n_components * (d + d * (d + 1) // 2 if self._is_full() else 2 * d)

    def _parts_of_seen(self, posterior: GaussianChainPosterior) -> list[Part]:
        means = posterior.draws.get("means", posterior.gaussians.means)
        return [Part("means", means, partial(indexed, "mean"), self.column_names())]

    def components(self, posterior: GaussianChainPosterior) -> tuple[np.ndarray, str]:
        """States are matched by their means."""
        return posterior.gaussians.mean, "euclidean"

    def _features(self, posterior: GaussianChainPosterior) -> np.ndarray:
        deviations = np.sqrt(np.diagonal(self.covars_, axis1=1, axis2=2))
        return np.hstack([self.means_, deviations]) / np.tile(self._place[1], 2)

    # -- for people -------------------------------------------------------------------------------------------------

    def _seen(self, names, n_typical: int) -> dict[str, np.ndarray]:
        """Mean and standard deviation of each column."""
        columns, deviations = self._columns_named(names), np.sqrt(np.diagonal(self.covars_, axis1=1, axis2=2))
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
        return values[:n_rows], self._columns_named(names)[:n_rows], "mean, in standard deviations of all steps"

    # -- helpers ----------------------------------------------------------------------------------------------------

    def _densities(self, records: Sequences, posterior: GaussianChainPosterior) -> tuple:
        """Steps; which are missing; densities, and the logarithms of their factors."""
        X = self._vectors(records)
        likely, log_scale, is_missing = densities(X, posterior.tables)
        return X, is_missing, likely, log_scale

    def _vectors(self, records: Sequences) -> np.ndarray:
        """All steps, at most as long as ``max_norm``; a missing one has a number that is not finite."""
        X = np.require(records.values, np.float64, ["C", "W"])
        return X if self.max_norm is None else scaled_rows(X, float(self.max_norm))

    def _counts_pairs(self) -> bool:
        return self.is_private and self.n_components > 1 and self.n_features_in_ <= _MOST_COLUMNS

    def _columns_in_bins(self, marginals: np.ndarray | None = None, frame: Frame | None = None) -> Numbers:
        return standard_numbers(self.n_features_in_, bins_of_pairs(self.n_features_in_))

    def _is_full(self) -> bool:
        return self.covariance_type == "full"

    def _centre(self) -> float:
        if not self.is_private:
            return 0.0
        return Influence.of(
            self.blocks(), self.covariance_type, self.n_features_in_, self._largest_step(), 0.0
        ).of_unit_variance

    def _largest_step(self) -> float:
        """Norm of the statistics of one step at its state, without the centre."""
        d, scale = float(self.n_features_in_), {name: block.scale for name, block in self._blocks_of_states().items()}
        fourth = d**2 if self._is_full() else 3.0 * d
        return float(np.sqrt(1.0 / scale["count"] ** 2 + d / scale["linear"] ** 2 + fourth / scale["second"] ** 2))

    def _uncentred(self, totals) -> dict:
        """Totals whose second moments are Σ h γ y yᵀ."""
        count = self._centre() * totals["count"]
        added = count[:, None, None] * np.eye(self.n_features_in_) if self._is_full() else count[:, None]
        return dict(totals) | {"second": totals["second"] + added}

    def _chain(self, start, moves, gaussians: MixturePosterior, is_ordered: bool = True) -> GaussianChainPosterior:
        """Masks hold once the states have an order."""
        return GaussianChainPosterior(**self._chain_of_totals(start, moves, is_ordered), gaussians=gaussians)

    def _first(self) -> GaussianChainPosterior:
        """One state over the ball of ``max_norm``, or where the columns lie; the others wait at the same place."""
        K, gaussians = self.n_components, first_posterior(self, self._priors(), self._place, plug_in=plugs_in(self))
        return self._chain(np.zeros(K), np.zeros((K, K)), gaussians, is_ordered=False)

    def _priors(self) -> Priors:
        units = self._place[1]
        scale = 1e-3 * (np.diag(np.square(units)) if self._is_full() else np.square(units)[None])
        names = ("means_prior", "beta_prior", "dof_prior", "scale_prior", "min_covar")
        return Priors.stated(self, names, units, scale, 0.0)

    _place = property(place)


def _of_all_steps(gaussians: MixturePosterior) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column, over all states in use."""
    used = slice(gaussians.n_active)
    shares = gaussians.concentration[used] / gaussians.concentration[used].sum()
    mean = shares @ gaussians.mean[used]
    covariances = gaussians.covariances
    within = np.diagonal(covariances, axis1=1, axis2=2) if gaussians.covariance_type == "full" else covariances
    return mean, np.sqrt(shares @ (within[used] + np.square(gaussians.mean[used] - mean)))


def _carried_chain(start: np.ndarray, moves: np.ndarray, parent: np.ndarray, portion: np.ndarray) -> tuple:
    """Counts of first states and moves of the states that come from these."""
    return portion * start[parent], portion[:, None] * portion * moves[np.ix_(parent, parent)]


@cache
def _blocks_of_states(K: int, d: int, T: float, is_full: bool) -> dict[str, Block]:
    """Scales such that a sequence of ``typical_length`` T has norm 1, and noise costs least: docs/sequences.md."""
    kinds = {
        "start": ((K,), 1.0, 0.1),
        "moves": ((K, K), T**2 / K, 1.0),
        "count": ((K,), T**2 / np.sqrt(K), 1.0),
        "linear": ((K, d), T * d, d),
        "second": ((K, d, d), T * (d**2 + d), 0.5 * d**2) if is_full else ((K, d), 2.0 * T * d, d),
    }
    return blocks_of_least_cost(kinds, ["second"] if is_full else [])
