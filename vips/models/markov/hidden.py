"""What all hidden Markov models share: first states and moves, decoding, scores, synthetic sequences, tables, pictures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips._support.arguments import arguments, choice, function_of_step, positive, precision, whole
from vips._support.extras import imported
from vips._support.printable import printable
from vips._support.validation import (
    check_integer,
)
from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.core.plan import PrivacyPlan
from vips.core.records.ragged import offsets_of
from vips.core.step_size import PolynomialAveraging
from vips.core.sums import Block
from vips.data._sequences import Sequences
from vips.data._step_index import step_frame
from vips.expfam import Dirichlet
from vips.models import _typical as typical
from vips.models._chains import inferred
from vips.models._mixture import information_criterion
from vips.models._sequences import SequenceModel
from vips.models._starts import clusters, lost
from vips.models.components.matching.match import Match
from vips.models.components.matching.steps import kept_steps
from vips.models.markov import kernels
from vips.models.markov.matching import ChainSimulator, drawn_states
from vips.models.markov.posterior import FORBIDDEN, ChainPosterior, order_of_mask
from vips.models.markov.statistics import first_shares
from vips.parts import Part, indexed, last_of
from vips.report.words import whose

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["HiddenMarkovModel", "names_of"]

_NO_PRIOR = 1e-12
_LEAST = 1e-300
_AVERAGING = PolynomialAveraging(power=5.0)


@arguments
class HiddenMarkovModel(SequenceModel):
    """First states and moves, and what is computed from the probabilities of what is seen in each state."""

    n_components: int = whole(default=1, kw_only=False)
    startprob_prior: float | None = positive(default=None)
    transmat_prior: float | None = positive(default=None)
    startprob_mask: object = None
    transmat_mask: object = None
    inference: str = choice("vb", "em", default="vb")
    max_length: int = whole(default=1000)
    typical_length: int = whole(default=25)
    dtype: type = precision(default=np.float64)
    schedule: Callable[[int], float] | None = function_of_step("PolynomialAveraging()", default=None)

    unit, name_of_components = "one sequence", "states"
    parameters_in_words: ClassVar[str]
    planned_steps = 60
    tolerance = 1e-3
    _unlisted = (
        "at_means", "chain_blocks", "chain_priors", "declared", "divergence_of_emissions", "drawn", "e_step_dtype",
        "inferred", "likely", "n_features", "name_of_components", "parameters_in_words", "plugs_in", "simulator", "steps_seen",
        "typical_steps",
    )  # fmt: skip

    # -- what a subclass says ---------------------------------------------------------------------------------------

    @abstractmethod
    def likely(self, records: Sequences, posterior: ChainPosterior) -> tuple[np.ndarray, np.ndarray]:
        """In proportion to the probability of each step in each state, shape (n_steps, K), and the logarithm of that factor,
        shape (n_steps,)."""

    @abstractmethod
    def at_means(self, posterior: ChainPosterior) -> ChainPosterior:
        """The posterior whose E-steps take the means of all parameters."""

    @abstractmethod
    def divergence_of_emissions(self, posterior: ChainPosterior) -> float:
        """KL of the parameters of what is seen from their prior."""

    @abstractmethod
    def declared(self) -> tuple[str, ...]:
        """What the arguments of what is seen declare as public, in words."""

    @abstractmethod
    def _seen(self, names: Sequence[str] | None, n_typical: int) -> dict[str, object]:
        """Columns of ``summary`` about what is seen in each state."""

    @abstractmethod
    def _n_free_of_seen(self) -> int:
        """Number of free parameters of what is seen in all states."""

    @abstractmethod
    def _part_of_seen(self, posterior: ChainPosterior) -> Part:
        """The part of a posterior that says what is seen in the states."""

    @abstractmethod
    def _emissions(self, names: Sequence[str] | None, n_rows: int) -> tuple[np.ndarray, list[str], str]:
        """A picture of what is seen: values of shape (n_rows, K), names of the rows, and what a value is."""

    @abstractmethod
    def drawn(self, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """What is seen in these states, a row for each."""

    @abstractmethod
    def typical_steps(self, states: np.ndarray, n_features: int | None, rng: np.random.Generator) -> np.ndarray:
        """What may be seen in these states, a row for each: see :meth:`typical_records`."""

    @abstractmethod
    def simulator(self) -> ChainSimulator:
        """Simulator of sequences like those of a private fit."""

    # -- the contract -----------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Check the constructor arguments that all of them share, before the records are read."""
        self._allowed()

    def chain_blocks(self) -> dict[str, Block]:
        """Blocks of first states and moves."""
        K = self.n_components
        return {
            "start": Block((K,), scale=2.0),
            "moves": Block((K, K), scale=2.0),
        }

    def kept_steps(self, n_steps: int) -> Collection[int]:
        return kept_steps(self, n_steps)

    def to_match(self) -> Match:
        return self.simulator().match()

    def to_noise_aware_posterior(self) -> ChainPosterior:
        return self.simulator().matched_states(self.match(), self.last_posterior_)

    def prepare(self, posterior: ChainPosterior) -> None:
        _ = posterior.chain, posterior.tables

    def step_size(self, t: int) -> float:
        """ρ of the steps t = 1, 2, … of the states: 1 in the first. Then ``schedule(t)`` if there is one, 6/(t + 5) in a
        private fit, (1 + t)^(-0.6) in a non-private stochastic one, and 1 in a non-private full-batch one, which is textbook
        variational Bayes."""
        return self.scheduled(t, _AVERAGING)

    def default_clip(self) -> float:
        """√``typical_length``."""
        return float(np.sqrt(self.typical_length))

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """Full-batch steps until the states have settled, at most 500."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=500)

    def describe(self) -> dict:
        return {
            "unit": self.unit,
            "released": self.released(f"hence the posterior of {self.parameters_in_words}"),
            "declared_public": (*self.declared(), "n_components, masks, priors and all other constructor arguments"),
        }

    def bound(self, records: Sequences, posterior: ChainPosterior) -> float:
        """Evidence lower bound of these records and the parameters, for non-private fits and tests; log likelihood with EM."""
        total = float(self.inferred(records, posterior)[2].sum())
        if self.inference == "em":
            return total
        return total - posterior.divergence_of_chain(*self.chain_priors()) - self.divergence_of_emissions(posterior)

    # -- comparisons ------------------------------------------------------------------------------------------------

    def posterior_parts(self, posterior) -> list[Part]:
        """First states, moves, and what is seen in the states."""
        if not isinstance(posterior, ChainPosterior):
            return super().posterior_parts(posterior)
        draws, states = posterior.draws, self.state_names()
        return [
            Part("start", draws.get("start", posterior.start), partial(last_of, states), states),
            Part("moves", draws.get("moves", posterior.moves), partial(indexed, "moves"), states),
            self._part_of_seen(posterior),
        ]

    def in_order(self, posterior: ChainPosterior, order: np.ndarray) -> ChainPosterior:
        """The same states in another order."""
        return posterior.in_order(order)

    def typical_records(self, n_records: int, n_features: int | None, rng: np.random.Generator) -> tuple[Any, Any]:
        K, lengths = self.n_components, rng.poisson(self.typical_length, n_records)
        offsets = offsets_of(np.clip(lengths, 1, self.max_length))
        states = drawn_states(np.full(K, 1.0 / K), typical.moves(K), offsets, rng.random(offsets[-1]))
        return Sequences(self.typical_steps(states, n_features, rng), offsets), None

    def steps_seen(self, block: str) -> tuple[np.ndarray, float, float, float]:
        """Noisy sums over the states of a block, the noise in each, and how many steps there are, with the noise in that."""
        K, totals, noise = self.n_components, self.noisy_totals_.average, self.noisy_totals_.noise_std

        def std_of_sum(name: str, n: int) -> float:  # noise that was carried from state to state may add up
            return float(np.sqrt(n) * noise[name] if np.ndim(noise[name]) == 0 else n * np.max(noise[name]))

        n_steps, std = totals["start"].sum() + totals["moves"].sum(), std_of_sum("start", K) + std_of_sum("moves", K**2)
        return totals[block].sum(axis=0), std_of_sum(block, K), float(n_steps), std

    def predictions(self, X) -> np.ndarray:
        """Log likelihood of each sequence."""
        return self._log_likelihood(self.sequences_of(X, None))

    # -- methods for users --------------------------------------------------------------------------------------

    def score(self, X, lengths=None) -> float:
        """Mean of :meth:`score_samples`."""
        return float(self.score_samples(X, lengths).mean())

    def score_samples(self, X, lengths=None) -> np.ndarray:
        """Log likelihood of each sequence at the posterior's means, in nats, shape (n_sequences,)."""
        return self._log_likelihood(self.sequences_of(X, lengths))

    def bic(self, X, lengths=None) -> float:
        """Bayesian information criterion of an ordinary fit on its sequences, as in hmmlearn: smaller is better."""
        records = self.sequences_of(X, lengths)
        n_free = sum(int(mask.sum()) for mask in self._allowed()) - 1 - self.n_components + self._n_free_of_seen()
        return information_criterion(self, self._log_likelihood(records), n_free, len(records.values))

    def predict_proba(self, X, lengths=None) -> np.ndarray | pd.DataFrame:
        """Probabilities of the states at each step, shape (n_steps, K)."""
        posterior = self.at_means(self.posterior_)
        shares = self.inferred(self.sequences_of(X, lengths), posterior)[0]
        return step_frame(X, shares, self.state_names())

    def predict(self, X, lengths=None) -> np.ndarray | pd.DataFrame:
        """The most probable states of each sequence (Viterbi), shape (n_steps,), as in hmmlearn."""
        return step_frame(X, self.decode(X, lengths)[1], ["state"])

    def decode(self, X, lengths=None) -> tuple[float, np.ndarray]:
        """The most probable states of each sequence.

        Returns
        -------
        log_probability : float
            Of the states and what is seen.
        states : ndarray of int, shape (n_steps,)
        """
        posterior = self.at_means(self.posterior_)
        records = self.sequences_of(X, lengths)
        likely, log_scale = self.likely(records, posterior)
        states, log_probability = np.empty(len(likely), np.int64), np.empty(len(records))
        logs = (np.log(np.maximum(values, _LEAST)) for values in (*posterior.chain, likely))
        kernels.best_paths(records.offsets, *logs, states, log_probability)
        return float(log_probability.sum() + log_scale.sum()), states

    def sample(
        self, n_samples: int = 1, random_state: RandomStateLike = None, *, lengths: object = None
    ) -> tuple[Sequences, np.ndarray]:
        """Synthetic sequences of the model at the means of the posterior; from a private fit, as private as the fit.

        Parameters
        ----------
        n_samples : int
            Number of sequences.
        random_state : int, Generator, RandomState or None
        lengths : sequence of n_samples int, optional
            None draws lengths from the law that was matched; without a match from a geometric distribution with the released
            mean, at most ``max_length``.

        Returns
        -------
        sequences : Sequences
        states : ndarray of int, shape (n_steps,)
        """
        check_integer("n_samples", n_samples, 0)
        check_is_fitted(self, "last_posterior_")
        rng = as_generator(random_state)
        lengths = np.asarray(self._some_lengths(n_samples, rng) if lengths is None else lengths, np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        states = drawn_states(self.startprob_, self.transmat_, offsets, rng.random(offsets[-1]))
        return Sequences(self.drawn(states, rng), offsets), states

    @property
    def startprob_(self) -> np.ndarray:
        """Probabilities of the first state, shape (K,)."""
        return self.posterior_.means_of_chain()[0]

    @property
    def transmat_(self) -> np.ndarray:
        """Probabilities of the next state, a row for each state, shape (K, K)."""
        return self.posterior_.means_of_chain()[1]

    @property
    def shares_(self) -> np.ndarray:
        """Shares of the states among all steps, shape (K,)."""
        posterior = self.posterior_
        visits = posterior.start.concentration + posterior.moves.concentration.sum(axis=0)
        return visits / visits.sum()

    def summary(self, *, names: Sequence[str] | None = None, n_typical: int = 5, level: float = 0.95) -> pd.DataFrame:
        """The states, in their order.

        Parameters
        ----------
        names : sequence of str, optional
            Of the symbols, or of the columns.
        n_typical : int
            Symbols in the row of a state.
        level : float
            Of the intervals.

        Returns
        -------
        pandas.DataFrame
            A row for each state: its share of the steps, and its "lower" and "upper" limit where intervals know the noise; how
            probable it is as the first one, how many steps a stay takes, where it goes most often, and what is seen in it.

        Warns
        -----
        PrivacyWarning
            If there are no limits in a private fit: it says why.
        ConvergenceWarning
            If two states of an ordinary fit are alike, or one holds no step, which has no estimates.
        """
        pd = imported("pandas", "summary()")

        self.warn_of_no_intervals()
        shares, start, moves, K = self.shares_, self.startprob_, self.transmat_, self.n_components
        away = moves * (1.0 - np.eye(K))
        after = [f"state {np.argmax(row)} ({100.0 * row.max():.0f} %)" if row.any() else "" for row in away]
        stays = 1.0 / np.maximum(1.0 - np.diagonal(moves), 1e-12)
        table = {"share": shares}
        if draws := self.posterior_.draws:
            limits = draws["shares"].interval(level)
            table |= dict(zip(("lower", "upper"), limits, strict=True))
        table |= {
            "first": start,
            "steps of a stay": np.minimum(stays, float(self.max_length)),
            "then": after,
        }
        seen, posterior = self._seen(names, n_typical), self.posterior_
        table = pd.DataFrame(table | seen, index=pd.Index(self.state_names()))
        if not hasattr(self, "noisy_totals_"):
            of_start, of_moves = self.chain_priors()
            counts = posterior.start.concentration - of_start + (posterior.moves.concentration - of_moves).sum(axis=0)
            is_empty = lost(self, "state", counts, self._features(posterior))
            for name in seen:
                table.loc[is_empty, name] = "" if name == "typical symbols" else np.nan
        return table.rename_axis(columns=whose(getattr(self, "privacy_", None)))

    def plot_transitions(self, ax: Axes | None = None) -> Axes:
        """A picture of the moves: states as large as their shares of the steps, arrows as wide as moves are probable.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional

        Returns
        -------
        matplotlib.axes.Axes
        """
        from vips.models.markov.plot import plot_transitions

        return plot_transitions(self.transmat_, self.shares_, self.startprob_, self.state_names(), ax)

    def plot_emissions(self, *, names: Sequence[str] | None = None, n_rows: int = 40, ax: Axes | None = None) -> Axes:
        """A picture of what is seen in each state.

        Parameters
        ----------
        names : sequence of str, optional
            Of the symbols, or of the columns.
        n_rows : int
            Symbols that are shown, the most frequent ones.
        ax : matplotlib.axes.Axes, optional

        Returns
        -------
        matplotlib.axes.Axes
        """
        from vips.models.markov.plot import plot_emissions

        values, rows, label = self._emissions(names, n_rows)
        return plot_emissions(values, rows, self.state_names(), label, ax)

    def plot_sequences(self, X, lengths=None, ax: Axes | None = None) -> Axes:
        """A picture of these sequences, coloured by their most probable states. It shows these records, and is not private.

        Returns
        -------
        matplotlib.axes.Axes
        """
        from vips.models._sequence_plot import plot_sequences

        return plot_sequences(self, X, lengths, self.state_names(), ax)

    # -- helpers ----------------------------------------------------------------------------------------------------

    def inferred(self, records: Sequences, posterior: ChainPosterior) -> tuple:
        """γ, Σ ξ and log likelihoods: see :func:`vips.models._chains.inferred`."""
        return inferred(records.offsets, *posterior.chain, *self.likely(records, posterior), dtype=self.e_step_dtype())

    def chain_priors(self) -> tuple[np.ndarray, np.ndarray]:
        """Concentrations of the priors of first states and moves, shape (K,) and (K, K)."""
        K = self.n_components
        given = (1.0 / K if prior is None else float(prior) for prior in (self.startprob_prior, self.transmat_prior))
        if self.inference == "em":
            given = (_NO_PRIOR, _NO_PRIOR)
        return tuple(np.where(allowed, prior, FORBIDDEN) for allowed, prior in zip(self._allowed(), given, strict=True))

    def _chain_of_totals(self, start: np.ndarray, moves: np.ndarray, is_ordered: bool = True) -> dict[str, Any]:
        """Fields of a posterior: prior + totals, but for what a mask forbids. Masks hold once the states have an order."""
        priors, totals = self.chain_priors(), (start, moves)
        if not is_ordered and any((prior <= FORBIDDEN).any() for prior in priors):
            priors = [np.full_like(prior, prior.max()) for prior in priors]
        chain = (
            Dirichlet(np.where(prior > FORBIDDEN, prior + np.maximum(total, 0.0), prior))
            for prior, total in zip(priors, totals, strict=True)
        )
        return dict(zip(("start", "moves"), chain, strict=True)) | {"plug_in": self.plugs_in()}

    def _columns_named(self, names: Sequence[str] | None) -> list[str]:
        """Names of the columns, as they are passed or were fitted."""
        return names_of(self.column_names() if names is None else names, self.n_features_in_, "column")

    def e_step_dtype(self) -> type:
        """Precision of the forward-backward algorithm."""
        return np.dtype(self.dtype).type

    def plugs_in(self) -> bool:
        """Whether E-steps take posterior means."""
        return self.is_private or self.inference == "em"

    def _allowed(self) -> tuple[np.ndarray, np.ndarray]:
        """First states and moves that the masks allow."""
        K, masks = self.n_components, []
        for name, shape in (("startprob_mask", (K,)), ("transmat_mask", (K, K))):
            mask = getattr(self, name)
            if mask is None:
                masks.append(np.broadcast_to(np.True_, shape))
                continue
            mask = np.asarray(mask)
            if mask.shape != shape or mask.dtype.kind not in "biuf" or not np.isin(mask, (0, 1)).all():
                raise ValueError(
                    f"`{name}` must be an array of True and False of shape {shape}, e.g. np.triu(np.ones({shape}, bool))."
                    if name == "transmat_mask"
                    else f"`{name}` must be an array of True and False of shape {shape}, e.g. np.arange({K}) == 0."
                )
            if not mask.any(axis=-1).all():
                raise ValueError(
                    f"`{name}` must allow a state" + (" after each state." if name == "transmat_mask" else ".")
                )
            masks.append(mask.astype(bool))
        return tuple(masks)

    def _some_lengths(self, n: int, rng: np.random.Generator) -> np.ndarray:
        if self.posterior_.draws:
            return self.simulator().some_lengths(self.match(), n, rng)
        start, moves = (part.concentration.sum() for part in (self.last_posterior_.start, self.last_posterior_.moves))
        return np.minimum(rng.geometric(start / (start + moves), n), self.max_length)

    def _features(self, posterior: ChainPosterior) -> np.ndarray:
        """What states of an ordinary fit are like, shape (K, n), in units in which steps differ by about 1."""
        return self.components(posterior)[0]

    def _starts_at(
        self, records: Sequences, points: np.ndarray, posterior_of: Callable, rng: np.random.Generator
    ) -> list[ChainPosterior]:
        """Posteriors of states at clusters of the steps, for :func:`vips.models._starts.best_start`.

        ``posterior_of`` takes indicators of the state at each step, (n_steps, K), and counts of first states and moves.
        Sequences have no weights.
        """
        goes_on, starts = np.ones(len(points), bool), []
        goes_on[records.offsets[1:][records.lengths > 0] - 1] = False
        before = np.flatnonzero(goes_on)
        for _ in range(3):
            shares = clusters(points, np.ones(len(points)), self.n_components, rng)
            start, moves = first_shares(records, shares).sum(axis=0), shares[before].T @ shares[before + 1]
            order = order_of_mask(start, moves, self._allowed())
            starts.append(posterior_of(shares[:, order], start[order], moves[np.ix_(order, order)]))
        return starts

    def _log_likelihood(self, records: Sequences) -> np.ndarray:
        return self.inferred(records, self.at_means(self.posterior_))[2]


def names_of(names: Sequence[str] | None, n: int, kind: str) -> list[str]:
    """As many names, by default numbers.

    Raises
    ------
    ValueError
        If there are more or fewer.
    """
    if names is None:
        return [f"{kind} {i}" for i in range(n)]
    if len(names) != n:
        raise ValueError(f"`names` must have {n} names, one for each {kind}, got {len(names)}.")
    return [printable(str(name)) for name in names]
