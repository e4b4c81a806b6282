"""Hidden Markov models: first states and moves, decoding, scores, synthetic sequences, tables, pictures.

What is seen at a step is a row of declared columns, independent given the state (``vips/models/components``). Models of symbols
and of vectors, whose sums are fused, have emissions of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips._support.arguments import arguments, choice, function_of_step, positive, precision, whole
from vips._support.extras import imported
from vips._support.printable import printable, strings_for_pandas
from vips._support.validation import check_integer
from vips.core.contract import scheduled
from vips.core.exact.rowwise import rowwise_product
from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.core.phases import FitPhase, plain_average, steps_of_shares, unchanged
from vips.core.plan import PrivacyPlan
from vips.core.records.ragged import offsets_of
from vips.core.records.source import DataSource
from vips.core.step_size import PolynomialAveraging
from vips.core.sums import Block, Joint
from vips.core.sums.runs import ComponentSums, SumsOfSymbols, SymbolSums
from vips.data._sequences import Sequences
from vips.data._step_index import step_frame
from vips.expfam import Dirichlet
from vips.models import _typical as typical
from vips.models._chains import inferred, plugs_in
from vips.models._mixture import information_criterion
from vips.models._scales import blocks_of_least_cost
from vips.models._sequences import SequenceModel, declared_of_steps, state_names
from vips.models._starts import best_start, clusters, lost
from vips.models.components.categories import Categories, typical_answers
from vips.models.components.columns import Columns
from vips.models.components.component import Component, Frame, Kind, Named
from vips.models.components.declarations import Column, all_columns
from vips.models.components.kernels import fill_likely
from vips.models.components.matching.match import Match
from vips.models.components.matching.steps import kept_steps
from vips.models.markov import kernels
from vips.models.markov.matching import ChainSimulator, ColumnSimulator, drawn_states
from vips.models.markov.posterior import (
    FORBIDDEN,
    ChainPosterior,
    ColumnChainPosterior,
    order_of_mask,
    private_chain,
    private_counts,
)
from vips.models.markov.start import bins_of_pairs, scale_of_counts, states_of_bins
from vips.models.markov.statistics import first_shares, moves_of, of_pairs_of_bins
from vips.parts import Part, indexed, last_of, warn_of_no_intervals
from vips.report.unread import Seen
from vips.report.words import described, whose

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["HiddenMarkovModel", "Words", "names_of", "steps_seen"]

_LIMIT = 6.0  # standard deviations from the mean, of a number or count in a private fit
_NO_PRIOR = 1e-12
_LEAST = 1e-300
_LEAST_LIKELY = 1e-90  # of a probability in an E-step
_SHARES = 0.05, 0.35  # of the budget, of the first two phases: docs/sequences.md
_AVERAGING = PolynomialAveraging(power=5.0)


class Words(NamedTuple):
    """What reports call the parameters, the sums over steps, and what a step has in each column."""

    parameters: str = "first states, moves and columns"
    sums: str = "sums of the columns"
    cells: str = "cells"


@arguments
class HiddenMarkovModel(SequenceModel):
    """First states and moves, and what is computed from the probabilities of what is seen in each state.

    A step is a row of columns, which :meth:`_declared` names; a subclass whose emissions are others overrides the methods about
    what is seen.
    """

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
    _words: ClassVar[Words] = Words()
    exact_rows = True
    planned_steps = 60
    tolerance = 1e-3
    _unlisted = (
        "at_means", "chain_priors", "declared", "divergence_of_emissions", "drawn",
        "inferred", "likely", "n_features", "name_of_components", "simulator", "typical_steps",
    )  # fmt: skip

    # -- what is seen: rows of columns --------------------------------------------------------------------------------

    def _declared(self) -> list[Column]:
        """What each column of a step holds."""
        raise NotImplementedError(f"{type(self).__name__} does not declare columns.")

    def _component(self, limit: float, kind: type[Kind], declared: list[Sequence]) -> Kind:
        """Columns of a kind, with a prior that counts as one step that is like all of them together."""
        return kind.of(declared, 0.0 if self.inference == "em" else 1.0, limit)

    def _columns(self, frame: Frame | None = None, limit: float | None = None) -> Columns:
        """All columns. ``frame`` is that of those that have coordinates."""
        limit = (_LIMIT if self.is_private else np.inf) if limit is None else limit
        return all_columns(self._declared(), partial(self._component, limit), frame)

    def _named(self, names: Sequence[str] | None = None) -> list[Named]:
        """Names of the columns, and what is declared of them."""
        return list(zip(self._columns_named(names), (column.values for column in self._declared()), strict=True))

    def blocks(self) -> dict[str, Block]:
        return self._blocks_of_marginals() | self._blocks_of_pairs() | self._blocks_of_states()

    def _blocks_of_marginals(self) -> dict[str, Block]:
        sizes = self._columns().bins.sizes
        return {"marginals": Block((sum(sizes),), scale=scale_of_counts(self.typical_length, 1, sizes))}

    def _blocks_of_pairs(self) -> dict[str, Block]:
        sizes = self._columns_in_bins().bins.sizes
        return {"pairs": Block((sum(sizes),) * 2, scale=scale_of_counts(self.typical_length, 2, sizes))}

    def _blocks_of_states(self) -> dict[str, Block]:
        """Scales such that a sequence of ``typical_length`` has norm 1, and noise costs least."""
        K, columns, T = self.n_components, self._columns(), float(self.typical_length)
        n_missing, n_others = len(columns.missing), columns.width - len(columns.missing)
        return blocks_of_least_cost({
            "start": ((K,), 1.0, 0.1),
            "moves": ((K, K), T**2 / K, 1.0),
            "count": ((K, 1 + n_missing), T**2 / np.sqrt(K), 1.0),
            "linear": ((K, n_others), T**2 * columns.usual_squares / K, n_others),
        })  # fmt: skip

    def start(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], ChainPosterior]:
        """The prior, and a public seed of the restarts from which the states are computed."""
        average = self.initial(rng)
        posterior = self.to_posterior(average, dict.fromkeys(average, 0.0), None)
        return average, replace(posterior, seed=rng.integers(2**32, size=4, dtype=np.uint32))

    def phases(self, n_steps: int) -> list[FitPhase]:
        """In a private fit counts of each column in bins; then counts of neighbours in fewer bins, which hold about as many
        steps each, from which the states are computed (``start.py``); then the states."""
        states = {
            "blocks": list(self._blocks_of_states()),
            "step_size": self.step_size,
            "released": "noisy counts of first states and of moves between states, and noisy "
            f"{self._words.sums} in each state",
        }
        if not self.is_private:
            return [FitPhase("states", n_steps, **states)]
        steps = steps_of_shares(self.plan_of_fit(), n_steps, *_SHARES)
        marginals = FitPhase(
            "marginals",
            **steps[0],
            blocks=list(self._blocks_of_marginals()),
            statistics="_marginal_statistics",
            update=unchanged,
            end=self._binned,
            step_size=plain_average,
            released=f"noisy counts of the {self._words.cells} in each column",
        )
        pairs = self._phase_of_pairs(steps[1], f"noisy counts of neighbouring {self._words.cells}")
        return [marginals, pairs, FitPhase("states", n_steps - marginals.n_steps - pairs.n_steps, **states)]

    def _phase_of_pairs(self, steps: dict[str, Any], released: str) -> FitPhase:
        """Counts of neighbours, from which the states are computed; ``steps`` are arguments of :class:`FitPhase`."""
        return FitPhase(
            "pairs",
            **steps,
            blocks=["pairs"],
            statistics="_pair_statistics",
            update=unchanged,
            end=self._states_of_pairs,
            step_size=plain_average,
            released=released,
        )

    def begin(self, records: DataSource) -> ChainPosterior | None:
        """Begin at clusters of the steps."""
        return best_start(self, records, self._starts)

    def _starts(self, records: Sequences, weights: np.ndarray, rng: np.random.Generator) -> list[ChainPosterior]:
        records, columns = records.first(self.max_length), self._columns()
        cells = columns.cells(records.values)
        columns = columns.framed_by(cells, np.ones(len(cells)))
        statistics, first = columns.statistics(cells), replace(self.start(rng)[1], frame=columns.coordinates)
        rows = np.hstack([np.ones((len(cells), 1)), statistics])

        def posterior_of(shares, start, moves) -> ChainPosterior:
            return self._posterior(start, moves, shares.T @ rows, first)

        return self._starts_at(records, statistics[:, columns.means], posterior_of, rng)

    def expected_statistics(self, records: Sequences, posterior: ChainPosterior) -> Joint:
        records, columns = records.first(self.max_length), self._columns(posterior.frame)
        rows, scores = self._scores(columns, columns.cells(records.values), posterior)
        shares, pairs, _ = inferred(records.offsets, *posterior.chain, *_likely(scores), dtype=self.dtype)
        end = 1 + len(columns.missing)
        places = {"count": slice(0, end), "linear": slice(end, None)}
        sums = ComponentSums(rows, shares, records.offsets, places)
        return Joint(moves_of(first_shares(records, shares), pairs), sums)

    def _marginal_statistics(self, records: Sequences, posterior: ChainPosterior) -> SymbolSums:
        """Counts of the bins of all columns, whose codes are counted over all of them."""
        records, columns = records.first(self.max_length), self._columns()
        starts, codes = columns.bins.starts, columns.bins.codes(columns.cells(records.values))
        codes = np.where(codes >= 0, codes + starts[:-1], -1).ravel()
        offsets = records.offsets * columns.n_columns
        ones, shape = np.ones((len(codes), 1)), self._blocks_of_marginals()["marginals"].shape
        return SymbolSums("marginals", codes, offsets, ones, int(starts[-1]), shape)

    def _binned(self, average, noise_std, previous: ChainPosterior) -> ChainPosterior:
        """Coordinates of the columns, and their counts, by which bins are merged."""
        columns = self._columns()
        marginals = columns.bins.counts(average["marginals"], noise_std["marginals"])
        return replace(previous, marginals=marginals, frame=columns.framed(marginals).coordinates)

    def _pair_statistics(self, records: Sequences, posterior: ChainPosterior) -> SumsOfSymbols:
        records, columns = records.first(self.max_length), self._columns_in_bins(posterior.marginals)
        return of_pairs_of_bins(columns.cells(records.values), records.offsets, columns.bins)

    def _states_of_pairs(self, average, noise_std, previous: ChainPosterior) -> ChainPosterior:
        """Those of the table of pairs."""
        columns, K = self._columns_in_bins(previous.marginals, previous.frame), self.n_components
        pairs = private_counts(average["pairs"], noise_std["pairs"])
        moves, values = states_of_bins(pairs, self._allowed()[1], columns, np.random.default_rng(previous.seed))
        n_steps = max(float(pairs.sum()) / columns.n_columns**2, 1.0)
        totals = columns.totals_of_values(n_steps * moves.sum(axis=1)[:, None], values)
        return self._posterior(np.full(K, 1.0 / K), n_steps * moves, totals, previous)

    def to_posterior(self, average, noise_std, previous: ChainPosterior | None) -> ChainPosterior:
        """Prior and totals; noisy totals are denoised first."""
        columns = self._columns(None if previous is None else previous.frame)
        start, moves = average["start"], average["moves"]
        totals = self._of_columns(columns, average["count"], average["linear"])
        if noise_std["count"] > 0.0:
            start, moves = private_chain(start, moves, noise_std)
            std = (np.full(average[name].shape, noise_std[name]) for name in ("count", "linear"))
            totals[:, :1] = private_counts(totals[:, :1], noise_std["count"])
            totals = columns.denoised(totals, self._of_columns(columns, *std))
        return self._posterior(start, moves, totals, previous)

    def _posterior(self, start, moves, totals, previous: ChainPosterior | None) -> ColumnChainPosterior:
        columns = self._columns(None if previous is None else previous.frame)
        if previous is None:
            kept = {"marginals": np.zeros(columns.n_marginals), "seed": np.zeros(4, np.uint32)}
        else:
            kept = {"marginals": previous.marginals, "seed": previous.seed}
        chain = self._chain_of_totals(start, moves)
        return ColumnChainPosterior(**chain, columns=columns.posterior(totals), frame=columns.coordinates, **kept)

    def _of_columns(self, columns: Columns, count: np.ndarray, linear: np.ndarray) -> np.ndarray:
        """Totals in the order of the columns, shape (K, 1 + width)."""
        totals = np.empty((len(count), 1 + columns.width))
        totals[:, _order_of_sums(columns)] = np.hstack([count, linear])
        return totals

    def _columns_in_bins(self, marginals: np.ndarray | None = None, frame: Frame | None = None) -> Component:
        """With the bins of the pairs. Without marginals they are as many, at other places."""
        columns = self._columns(frame)
        marginals = np.zeros(columns.n_marginals) if marginals is None else marginals
        return columns.binned(marginals, bins_of_pairs(columns.n_columns))

    def _scores(self, columns: Columns, cells: np.ndarray, posterior: ChainPosterior) -> tuple[np.ndarray, np.ndarray]:
        """1 and T of each step in the order of the sums, and log probabilities of the steps in each state, but for what all
        states share."""
        order, rows = _order_of_sums(columns), np.ones((len(cells), 1 + columns.width))
        of_columns = columns.statistics(cells)
        rows[:, 1:] = of_columns if (order[1:] > order[:-1]).all() else of_columns[:, order[1:] - 1]
        return rows, rowwise_product(rows, columns.natural(posterior.columns, posterior.plug_in)[:, order].T)

    def max_record_norm(self) -> float:
        """Norm of ``max_length`` steps as large as a step may be, in one state."""
        n, columns, blocks = float(self.max_length), self._columns(limit=_LIMIT), self.blocks()
        d, n_missing = columns.n_columns, len(columns.missing)
        of_steps = n * (
            np.sqrt(1.0 + n_missing) / blocks["count"].scale
            + np.sqrt(columns.largest_squares) / blocks["linear"].scale
            + 1.0 / blocks["moves"].scale
        )
        of_states = float(of_steps + 1.0 / blocks["start"].scale)
        return max(of_states, n * np.sqrt(d) / blocks["marginals"].scale, n * d / blocks["pairs"].scale)

    def default_clip(self) -> float:
        """1: a sequence of ``typical_length`` counts whole."""
        return 1.0

    def default_chunk_size(self) -> int:
        """Steps of a chunk: each has the pairs of all columns, and a sequence of one step has K² moves."""
        d = self.n_columns
        return int(np.clip(2**22 // max(self.n_components**2, 32 * d**2), 1_024, 65_536))

    def steps_read(self, values: np.ndarray) -> tuple[np.ndarray, str]:
        columns = self._declared()
        is_read = [kind.reads(of_column, of) for of_column, (kind, of) in zip(values.T, columns, strict=True)]
        return np.column_stack(is_read), "values of the declared columns"

    def counts_read(self) -> list[Seen]:
        """From counts of the answers, and of missing numbers and counts."""
        (count, std), (linear, linear_std) = (steps_seen(self, name)[:2] for name in ("count", "linear"))
        columns = self._columns(self.last_posterior_.frame)
        totals, stds = (
            self._of_columns(columns, count[None], linear[None])[0],
            self._of_columns(columns, np.full((1, len(count)), std), np.full((1, len(linear)), linear_std))[0],
        )
        titles = [repr(name) for name in self.column_names()] if self.n_features_in_ > 1 else ["Steps"]
        named = [(title, column.values) for title, column in zip(titles, self._declared(), strict=True)]
        return columns.seen(totals[1:], stds[1:], totals[0], std, named)

    def declared(self) -> tuple[str, ...]:
        """What the arguments of what is seen declare as public, in words."""
        return (f"columns of a step: {self.n_features_in_}; {declared_of_steps(self)}",)

    def divergence_of_emissions(self, posterior: ChainPosterior) -> float:
        """KL of the parameters of what is seen from their prior."""
        return self._columns(posterior.frame).divergence(posterior.columns)

    def likely(self, records: Sequences, posterior: ChainPosterior) -> tuple[np.ndarray, np.ndarray]:
        """In proportion to the probability of each step in each state, shape (n_steps, K), and the logarithm of that factor,
        shape (n_steps,)."""
        columns = self._columns(posterior.frame, limit=np.inf)
        cells = columns.cells(records.values)
        likely, log_scale = _likely(self._scores(columns, cells, posterior)[1])
        return likely, log_scale + columns.log_base(cells)

    def at_means(self, posterior: ChainPosterior) -> ChainPosterior:
        """The posterior whose E-steps take the means of all parameters."""
        return replace(posterior, plug_in=True)

    def drawn(self, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """What is seen in these states, a row for each."""
        posterior = self.posterior_
        return self._columns(posterior.frame).drawn(posterior.columns, states, rng)

    def typical_steps(self, states: np.ndarray, n_features: int | None, rng: np.random.Generator) -> np.ndarray:
        """What may be seen in these states, a row for each: see :meth:`typical_records`."""
        columns = (kind.typical(of, states, self.n_components, rng) for kind, of in self._declared())
        return np.column_stack(list(columns))

    def simulator(self) -> ChainSimulator:
        """Simulator of sequences like those of a private fit."""
        return ColumnSimulator.of(self, self._columns(self.last_posterior_.frame, limit=np.inf))

    def components(self, posterior: ChainPosterior) -> tuple[np.ndarray, str]:
        """States are matched by what their columns are like, in units in which steps differ by about 1."""
        return self._columns(posterior.frame).features(posterior.columns), "euclidean"

    def _n_free_of_seen(self) -> int:
        """Number of free parameters of what is seen in all states."""
        return self.n_components * self._columns().n_free

    def _parts_of_seen(self, posterior: ChainPosterior) -> list[Part]:
        """The parts of a posterior that say what is seen in the states."""
        return self._columns(posterior.frame).parts(posterior.columns, self._named(), "state")

    def _seen(self, names: Sequence[str] | None, n_typical: int) -> dict[str, object]:
        """Columns of ``summary`` about what is seen in each state."""
        posterior, named = self.posterior_, self._named(names)
        table = self._columns(posterior.frame).summary(posterior.columns, named, None)
        if "answers" in posterior.columns:
            of_answers = [of for of, column in zip(named, self._declared(), strict=True) if column.kind is Categories]
            answers = typical_answers(posterior.columns["answers"], of_answers, self.shares_, n_typical)
            table["typical answers"] = strings_for_pandas(answers).array
        return table

    def _emissions(self, names: Sequence[str] | None, n_rows: int) -> tuple[np.ndarray, list[str], str]:
        """A picture of what is seen: values of shape (n_rows, K), names of the rows, and what a value is."""
        posterior = self.posterior_
        values, titles = self._columns(posterior.frame).shown(posterior.columns, self._named(names))
        return values.T[:n_rows], titles[:n_rows], "mean, or probability"

    # -- the contract -----------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Check the constructor arguments that all of them share, before the records are read."""
        self._allowed()

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
        return scheduled(self, t, _AVERAGING)

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """Full-batch steps until the states have settled, at most 500."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=500)

    def describe(self) -> dict:
        follows, others = (
            f"hence the posterior of {self._words.parameters}",
            "n_components, masks, priors and all other",
        )
        return described(self, follows, *self.declared(), f"{others} constructor arguments")

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
        draws, states = posterior.draws, state_names(self.n_components)
        return [
            Part("start", draws.get("start", posterior.start), partial(last_of, states), states),
            Part("moves", draws.get("moves", posterior.moves), partial(indexed, "moves"), states),
            *self._parts_of_seen(posterior),
        ]

    def in_order(self, posterior: ChainPosterior, order: np.ndarray) -> ChainPosterior:
        """The same states in another order."""
        return posterior.in_order(order)

    def typical_records(self, n_records: int, n_features: int | None, rng: np.random.Generator) -> tuple[Any, Any]:
        K, lengths = self.n_components, rng.poisson(self.typical_length, n_records)
        offsets = offsets_of(np.clip(lengths, 1, self.max_length))
        states = drawn_states(np.full(K, 1.0 / K), typical.moves(K), offsets, rng.random(offsets[-1]))
        return Sequences(self.typical_steps(states, n_features, rng), offsets), None

    def predictions(self, X) -> np.ndarray:
        """Log likelihood of each sequence."""
        return self._log_likelihood(self.sequences_of(X, None))

    # -- methods for users --------------------------------------------------------------------------------------

    def bic(self, X, lengths=None) -> float:
        """Bayesian information criterion of an ordinary fit on its sequences, as in hmmlearn: smaller is better."""
        records = self.sequences_of(X, lengths)
        n_free = sum(int(mask.sum()) for mask in self._allowed()) - 1 - self.n_components + self._n_free_of_seen()
        return information_criterion(self, self._log_likelihood(records), n_free, len(records.values))

    def predict_proba(self, X, lengths=None) -> np.ndarray | pd.DataFrame:
        """Probabilities of the states at each step, shape (n_steps, K)."""
        posterior = self.at_means(self.posterior_)
        shares = self.inferred(self.sequences_of(X, lengths), posterior)[0]
        return step_frame(X, shares, state_names(self.n_components))

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

        warn_of_no_intervals(self)
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
        table = pd.DataFrame(table | seen, index=pd.Index(state_names(self.n_components)))
        if not hasattr(self, "noisy_totals_"):
            of_start, of_moves = self.chain_priors()
            counts = posterior.start.concentration - of_start + (posterior.moves.concentration - of_moves).sum(axis=0)
            is_empty = lost(self, "state", counts, self._features(posterior))
            for name in seen:
                table.loc[is_empty, name] = "" if name.startswith("typical ") else np.nan
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
        from vips.models._pictures import plot_transitions

        return plot_transitions(self.transmat_, self.shares_, self.startprob_, state_names(self.n_components), ax)

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
        from vips.models._pictures import plot_shades

        values, rows, label = self._emissions(names, n_rows)
        return plot_shades(values, rows, state_names(self.n_components), label, ax, of="plot_emissions()")

    def plot_sequences(self, X, lengths=None, ax: Axes | None = None) -> Axes:
        """A picture of these sequences, coloured by their most probable states. It shows these records, and is not private.

        Returns
        -------
        matplotlib.axes.Axes
        """
        from vips.models._pictures import plot_sequences

        return plot_sequences(self, X, lengths, state_names(self.n_components), ax)

    # -- helpers ----------------------------------------------------------------------------------------------------

    def inferred(self, records: Sequences, posterior: ChainPosterior) -> tuple:
        """γ, Σ ξ and log likelihoods: see :func:`vips.models._chains.inferred`."""
        return inferred(records.offsets, *posterior.chain, *self.likely(records, posterior), dtype=self.dtype)

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
        return dict(zip(("start", "moves"), chain, strict=True)) | {"plug_in": plugs_in(self)}

    def _columns_named(self, names: Sequence[str] | None) -> list[str]:
        """Names of the columns, as they are passed or were fitted."""
        return names_of(self.column_names() if names is None else names, self.n_features_in_, "column")

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


def steps_seen(model: HiddenMarkovModel, block: str) -> tuple[np.ndarray, float, float, float]:
    """Noisy sums over the states of a block, the noise in each, and how many steps there are, with the noise in that."""
    K, totals, noise = model.n_components, model.noisy_totals_.average, model.noisy_totals_.noise_std

    def std_of_sum(name: str, n: int) -> float:  # noise that was carried from state to state may add up
        return float(np.sqrt(n) * noise[name] if np.ndim(noise[name]) == 0 else n * np.max(noise[name]))

    n_steps, std = totals["start"].sum() + totals["moves"].sum(), std_of_sum("start", K) + std_of_sum("moves", K**2)
    return totals[block].sum(axis=0), std_of_sum(block, K), float(n_steps), std


def _order_of_sums(columns: Columns) -> np.ndarray:
    """Places of the sums in (1, T): 1 and what says which cells are missing, which are counts, then the others."""
    others = np.setdiff1d(np.arange(columns.width), columns.missing)
    return np.concatenate([[0], 1 + columns.missing, 1 + others])


def _likely(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    likely, log_scale = np.empty_like(scores), np.empty(len(scores))
    fill_likely(scores, _LEAST_LIKELY, likely, log_scale)
    return likely, log_scale


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
