"""Hidden Markov model of sequences of counts, whose states are Poisson."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from vips._support.arguments import arguments, positive
from vips._support.validation import check_integer
from vips.core.exact.rowwise import rowwise_product
from vips.core.phases import FitPhase, plain_average, steps_of_shares, unchanged
from vips.core.records.source import DataSource
from vips.core.sums import Block, Joint
from vips.core.sums.runs import ComponentSums, SumsOfSymbols, SymbolSums
from vips.data._sequences import Sequences
from vips.expfam import Gamma
from vips.models import _typical as typical
from vips.models._chains import inferred
from vips.models._scales import blocks_of_least_cost
from vips.models._starts import best_start
from vips.models.components.component import Frame, check_rates
from vips.models.components.counts import Counts
from vips.models.components.kernels import fill_likely
from vips.models.markov.hidden import HiddenMarkovModel
from vips.models.markov.matching import CountSimulator
from vips.models.markov.pairs import bins_of_pairs, scale_of_counts, states_of_bins
from vips.models.markov.posterior import ChainPosterior, chain_of, private_chain, private_counts
from vips.models.markov.statistics import first_shares, moves_of, of_pairs_of_bins
from vips.parts import Part, indexed
from vips.report.unread import Seen

__all__ = ["PoissonHMM", "PoissonPosterior"]

_SHARES = 0.05, 0.35  # of the budget, of the first two phases: docs/sequences.md
_MOST_COLUMNS = 48
_LIMIT = 6.0  # standard deviations above the mean, of a count in a private fit
_LEAST = 1e-90  # of a probability in an E-step


@dataclass(frozen=True, repr=False)
class PoissonPosterior(ChainPosterior):
    """Posterior of first states, moves, and rates.

    Parameters
    ----------
    rates : Gamma
        Of shape (K, d).
    frame : Frame
        Public coordinates of the columns.
    marginals : ndarray of shape (n_bins,)
        Denoised counts in the bins of all columns; 0 before they are released.
    seed : ndarray of uint32
        Public, of the restarts in the computation of the first states.
    """

    rates: Gamma
    frame: Frame
    marginals: np.ndarray
    seed: np.ndarray

    def __repr__(self) -> str:
        return "<PoissonPosterior of {} states with {} columns>".format(*self.rates.shape.shape)

    def in_order(self, order: np.ndarray) -> PoissonPosterior:
        """The same states in another order."""
        rates = Gamma(self.rates.shape[order], self.rates.rate[order])
        return replace(self, **self._chain_in_order(order), rates=rates)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        of_rates = {"rates_shape": self.rates.shape, "rates_rate": self.rates.rate}
        others = {"marginals": self.marginals, "seed": self.seed} | vars(self.frame)
        return self._arrays_of_chain() | of_rates | others

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> PoissonPosterior:
        """Inverse of ``to_arrays``.

        Raises
        ------
        ValueError
            If the arrays do not fit together, or a number is not of a posterior.
        """
        rates, frame = Gamma(arrays["rates_shape"], arrays["rates_rate"]), Frame(arrays["centre"], arrays["scale"])
        frame.check()
        check_rates(rates)
        if rates.shape.shape != (len(arrays["start"]), *frame.centre.shape):
            raise ValueError("the posterior's rates do not fit to its states and columns")
        marginals = np.asarray(arrays["marginals"], np.float64)
        if not (marginals.ndim == 1 and np.isfinite(marginals).all() and (marginals >= 0.0).all()):
            raise ValueError("the posterior's marginals are no counts")
        if arrays["seed"].dtype != np.uint32:
            raise ValueError("the posterior's seed is none")
        return cls(**chain_of(arrays), rates=rates, frame=frame, marginals=marginals, seed=arrays["seed"])


@arguments
class PoissonHMM(HiddenMarkovModel):
    """Hidden Markov model of sequences of counts, fitted by (private) variational Bayes. One record is one whole sequence.

    Parameters
    ----------
    n_components : int
        K, the number of states.
    max_count : int or sequence of int
        Largest count, of all columns or of each. Public. A larger one counts as ``max_count``, because it still says that the
        rate is large.
    lambdas_prior, lambdas_weight : float or None
        Shape and rate of the Gamma prior of the rates, with the names of hmmlearn. None: 1 and 1/``max_count``.
    n_features : int or None
        Columns of every sequence: public. None takes those of X; a private fit to a list of arrays, whose widths may differ,
        needs it.
    typical_length : int
        Public. Length of a sequence that counts whole; longer ones weigh less.
    startprob_prior, transmat_prior, startprob_mask, transmat_mask, inference, max_length, dtype
        See :class:`CategoricalHMM`.
    privacy : PrivacyBudget, PrivacyPlan or None
        None is a non-private fit, until it has settled. The first steps count neighbouring counts, from which states begin:
        write at least 30.
    schedule : RobbinsMonro, callable or None
        Step sizes of the states' steps, as a function of 2, 3, …. None: see :meth:`step_size`.
    random_state : int, Generator, RandomState or None
        Seeds restarts in the computation of the first states, and where a non-private fit begins and what it samples. Noise is
        never seeded.

    Attributes
    ----------
    posterior_ : PoissonPosterior
        Of a private fit at the match, if it is accepted: ``draws`` then holds those of "shares" of the states, "start",
        "moves" and "rates".
    startprob_, transmat_, lambdas_ : ndarray of shape (K,), (K, K), (K, d)
        Of the match of a private fit, else posterior means.
    privacy_ : PrivacyReport

    Notes
    -----
    *Privacy.* As :class:`CategoricalHMM`.

    What is no count (NaN, negative or not whole) is a missing cell, which the model handles exactly: it drops only its own
    column.

    A private fit is matched to its totals, as :class:`CategoricalHMM` is; missing cells are taken as independent of the states.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import PoissonHMM, PrivacyPlan
    >>> rng = np.random.default_rng(0)
    >>> ill = (rng.random((5000, 24)) < 0.15).cumsum(axis=1) % 2
    >>> visits = rng.poisson(np.where(ill, 6.0, 0.5))
    >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=40)
    >>> model = PoissonHMM(2, max_count=20, n_features=1, privacy=plan, random_state=0).fit(list(visits))
    >>> bool(abs(np.sort(model.lambdas_.ravel()) - [0.5, 6.0]).max() < 0.3)
    True
    """

    max_count: int | Sequence[int] | None = None
    lambdas_prior: float | None = positive(default=None)
    lambdas_weight: float | None = positive(default=None)
    n_features: int | None = None

    parameters_in_words = "first states, moves and rates"
    exact_rows = True

    # -- the contract -----------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Check all constructor arguments, before the records are read."""
        super().check_parameters()
        if self.max_count is None:
            raise ValueError(
                "`max_count` is required: bins of counts end there, and the largest count of private records would "
                "reveal one. Pass a public number, or one for each column, e.g. PoissonHMM(max_count=50, ...)."
            )
        largest = list(self.max_count) if isinstance(self.max_count, Sequence | np.ndarray) else [self.max_count]
        for of_column in largest:
            check_integer("max_count", of_column, 1, 10**9)

    def check_features(self) -> None:
        """Raise ValueError if there are no columns, more than pairs of counts can be counted of, or others than declared."""
        d = self.n_features_in_
        if not 1 <= d <= _MOST_COLUMNS:
            raise ValueError(f"PoissonHMM takes 1 to {_MOST_COLUMNS} columns, X has {d}.")
        if np.ndim(self.max_count) and len(self.max_count) != d:
            raise ValueError(f"`max_count` has {len(self.max_count)} numbers, and X has {d} columns.")

    def blocks(self) -> dict[str, Block]:
        return self._blocks_of_marginals() | self._blocks_of_pairs() | self._blocks_of_states()

    def start(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], PoissonPosterior]:
        """The prior, and a public seed of the restarts from which the states are computed."""
        average = self.initial(rng)
        posterior = self.to_posterior(average, dict.fromkeys(average, 0.0), None)
        return average, replace(posterior, seed=rng.integers(2**32, size=4, dtype=np.uint32))

    def phases(self, n_steps: int) -> list[FitPhase]:
        """In a private fit counts of each column in bins; then counts of neighbours in fewer bins, which hold about as many
        steps each, from which the states are computed (``pairs.py``); then the states."""
        states = {
            "blocks": list(self._blocks_of_states()),
            "step_size": self.step_size,
            "released": "noisy counts of first states and of moves between states, and noisy sums of the counts in each state",
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
            released="noisy counts of the counts in each column",
        )
        pairs = FitPhase(
            "pairs",
            **steps[1],
            blocks=list(self._blocks_of_pairs()),
            statistics="_pair_statistics",
            update=unchanged,
            end=self._states_of_pairs,
            step_size=plain_average,
            released="noisy counts of neighbouring counts",
        )
        return [marginals, pairs, FitPhase("states", n_steps - marginals.n_steps - pairs.n_steps, **states)]

    def begin(self, records: DataSource) -> PoissonPosterior | None:
        """Begin at clusters of the steps."""
        return best_start(self, records, self._starts)

    def _starts(self, records: Sequences, weights: np.ndarray, rng: np.random.Generator) -> list[PoissonPosterior]:
        records, columns = records.first(self.max_length), self._columns()
        cells = columns.cells(records.values)
        columns = self._columns(Frame.of(cells, np.ones(len(cells)), columns.coordinates))
        statistics, first = columns.statistics(cells), replace(self.start(rng)[1], frame=columns.coordinates)
        rows = np.hstack([np.ones((len(cells), 1)), statistics])

        def posterior_of(shares, start, moves) -> PoissonPosterior:
            return self._posterior(start, moves, shares.T @ rows, first)

        return self._starts_at(records, statistics[:, columns.means], posterior_of, rng)

    def expected_statistics(self, records: Sequences, posterior: PoissonPosterior) -> Joint:
        records, columns = records.first(self.max_length), self._columns(posterior.frame)
        rows, scores = self._scores(columns, columns.cells(records.values), posterior)
        shares, pairs, _ = self._inferred(records, posterior, scores)
        places = {"count": slice(0, 1 + columns.n_columns), "linear": slice(1 + columns.n_columns, None)}
        sums = ComponentSums(rows, shares, records.offsets, places)
        return Joint(moves_of(first_shares(records, shares), pairs), sums)

    def _marginal_statistics(self, records: Sequences, posterior: PoissonPosterior) -> SymbolSums:
        """Counts of the bins of all columns, whose codes are counted over all of them."""
        records, columns = records.first(self.max_length), self._columns()
        starts, codes = columns.bins.starts, columns.bins.codes(columns.cells(records.values))
        codes = np.where(codes >= 0, codes + starts[:-1], -1).ravel()
        offsets = records.offsets * columns.n_columns
        ones, shape = np.ones((len(codes), 1)), self._blocks_of_marginals()["marginals"].shape
        return SymbolSums("marginals", codes, offsets, ones, int(starts[-1]), shape)

    def _binned(self, average, noise_std, previous: PoissonPosterior) -> PoissonPosterior:
        """Coordinates of the columns, and their counts, by which bins are merged."""
        columns = self._columns()
        marginals = columns.bins.counts(average["marginals"], noise_std["marginals"])
        return replace(previous, marginals=marginals, frame=columns.framed(marginals).frame)

    def _pair_statistics(self, records: Sequences, posterior: PoissonPosterior) -> SumsOfSymbols:
        records, columns = records.first(self.max_length), self._columns(marginals=posterior.marginals)
        cells = columns.cells(records.values)
        return of_pairs_of_bins(cells, records.offsets, columns.bins)

    def _states_of_pairs(self, average, noise_std, previous: PoissonPosterior) -> PoissonPosterior:
        """Those of the table of pairs."""
        columns, K = self._columns(previous.frame, marginals=previous.marginals), self.n_components
        pairs, d = private_counts(average["pairs"], noise_std["pairs"]), columns.n_columns
        moves, rates = states_of_bins(pairs, self._allowed()[1], columns, np.random.default_rng(previous.seed))
        n_steps, frame = max(float(pairs.sum()) / d**2, 1.0), columns.frame
        seen = n_steps * moves.sum(axis=1)[:, None]
        totals = np.hstack([seen, np.zeros((K, d)), seen * (rates - frame.centre) / frame.scale])
        return self._posterior(np.full(K, 1.0 / K), n_steps * moves, totals, previous)

    def to_posterior(self, average, noise_std, previous: PoissonPosterior | None) -> PoissonPosterior:
        """Concentrations, shapes and rates are prior + totals. Noisy totals are denoised first."""
        columns = self._columns(None if previous is None else previous.frame)
        start, moves = average["start"], average["moves"]
        totals = np.hstack([average["count"], average["linear"]])
        if noise_std["count"] > 0.0:
            start, moves = private_chain(start, moves, noise_std)
            std = np.hstack([np.full(average[name].shape, noise_std[name]) for name in ("count", "linear")])
            totals[:, :1] = private_counts(totals[:, :1], noise_std["count"])
            totals = columns.denoised(totals, std)
        return self._posterior(start, moves, totals, previous)

    def prepare(self, posterior: PoissonPosterior) -> None:
        _ = posterior.chain

    def default_clip(self) -> float:
        """1: a sequence of ``typical_length`` counts whole."""
        return 1.0

    def default_chunk_size(self) -> int:
        """Steps of a chunk: each has the pairs of all columns, and a sequence of one step has K² moves."""
        d = self.n_columns
        return int(np.clip(2**22 // max(self.n_components**2, 32 * d**2), 1_024, 65_536))

    def max_record_norm(self) -> float:
        """Norm of ``max_length`` steps as large as a step may be, in one state."""
        n, d, blocks = float(self.max_length), self.n_features_in_, self.blocks()
        of_steps = n * (
            np.sqrt(1.0 + d) / blocks["count"].scale
            + np.sqrt(d) * max(_LIMIT, 1.0) / blocks["linear"].scale
            + 1.0 / blocks["moves"].scale
        )
        of_states = float(of_steps + 1.0 / blocks["start"].scale)
        return max(of_states, n * np.sqrt(d) / blocks["marginals"].scale, n * d / blocks["pairs"].scale)

    def steps_read(self, values: np.ndarray) -> tuple[np.ndarray, str]:
        return (values >= 0) & (values < np.inf) & (values == np.floor(values)), "counts, whole numbers from 0 on"

    def counts_read(self) -> list[Seen]:
        """From counts of missing cells."""
        (size, *missing), std, n_steps, steps_std = self.steps_seen("count")
        titles = [repr(name) for name in self.column_names()] if self.n_features_in_ > 1 else ["Steps"]
        return [
            Seen(title, "count", size - of_column, 2.0 * std, n_steps, steps_std)
            for title, of_column in zip(titles, missing, strict=True)
        ]

    def declared(self) -> tuple[str, ...]:
        return (
            f"max_count = {self.max_count}: larger counts are cut to it",
            f"number of columns: {self.n_features_in_}; {self.declared_of_steps()}",
        )

    def divergence_of_emissions(self, posterior: PoissonPosterior) -> float:
        return self._columns(posterior.frame).divergence(posterior.rates)

    # -- what is seen in each state ---------------------------------------------------------------------------------

    def likely(self, records: Sequences, posterior: PoissonPosterior) -> tuple[np.ndarray, np.ndarray]:
        columns = self._columns(posterior.frame, limit=np.inf)
        cells = columns.cells(records.values)
        likely, log_scale = _likely(self._scores(columns, cells, posterior)[1])
        return likely, log_scale + columns.log_base(cells)

    def at_means(self, posterior: PoissonPosterior) -> PoissonPosterior:
        return replace(posterior, plug_in=True)

    def drawn(self, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        posterior = self.posterior_
        return self._columns(posterior.frame).drawn(posterior.rates, states, rng)

    @property
    def lambdas_(self) -> np.ndarray:
        """Rates of the counts in each state, shape (K, d)."""
        return self.posterior_.rates.mean

    def typical_steps(self, states: np.ndarray, n_features: int | None, rng: np.random.Generator) -> np.ndarray:
        d = typical.n_columns(self, self.n_features or n_features)
        largest = np.broadcast_to(10 if self.max_count is None else self.max_count, d)
        rates = typical.apart(0.05, 0.5, self.n_components, d, rng) * largest
        return np.minimum(rng.poisson(rates[states]), largest)

    def simulator(self) -> CountSimulator:
        return CountSimulator.of(self, self._columns())

    # -- comparisons ------------------------------------------------------------------------------------------------

    def _n_free_of_seen(self) -> int:
        return self.n_components * self.n_features_in_

    def _part_of_seen(self, posterior: PoissonPosterior) -> Part:
        rates = posterior.draws.get("rates", posterior.rates)
        return Part("rates", rates, partial(indexed, "rate"), self.column_names())

    def components(self, posterior: PoissonPosterior) -> tuple[np.ndarray, str]:
        """States are matched by the roots of their rates, on whose scale counts vary alike."""
        return np.sqrt(posterior.rates.mean), "euclidean"

    # -- for people -------------------------------------------------------------------------------------------------

    def _seen(self, names, n_typical: int) -> dict[str, np.ndarray]:
        """Mean count of each column."""
        return {f"mean {name}": self.lambdas_[:, j] for j, name in enumerate(self._columns_named(names))}

    def _emissions(self, names, n_rows: int) -> tuple[np.ndarray, list[str], str]:
        return self.lambdas_.T[:n_rows], self._columns_named(names)[:n_rows], "mean count"

    # -- helpers ----------------------------------------------------------------------------------------------------

    def _columns(
        self, frame: Frame | None = None, limit: float | None = None, marginals: np.ndarray | None = None
    ) -> Counts:
        """With the bins of the pairs if there are ``marginals``."""
        self.check_features()
        largest = np.broadcast_to(self.max_count, self.n_features_in_)
        is_em = self.inference == "em"
        shape = 0.0 if is_em else 1.0 if self.lambdas_prior is None else float(self.lambdas_prior)
        rate = 0.0 if is_em else 1.0 / largest if self.lambdas_weight is None else float(self.lambdas_weight)
        limit = (_LIMIT if self.is_private else np.inf) if limit is None else limit
        columns = Counts(tuple(map(int, largest)), shape, rate, limit, frame)
        if marginals is None:
            return columns
        return replace(columns, own_bins=columns.bins.merged(marginals, bins_of_pairs(self.n_features_in_)))

    def _blocks_of_marginals(self) -> dict[str, Block]:
        sizes = self._columns().bins.sizes
        return {"marginals": Block((sum(sizes),), scale=scale_of_counts(self.typical_length, 1, sizes))}

    def _blocks_of_pairs(self) -> dict[str, Block]:
        most = bins_of_pairs(self.n_features_in_)
        sizes = [min(size, most) for size in self._columns().bins.sizes]
        return {"pairs": Block((sum(sizes),) * 2, scale=scale_of_counts(self.typical_length, 2, sizes))}

    def _blocks_of_states(self) -> dict[str, Block]:
        """Scales such that a sequence of ``typical_length`` has norm 1, and noise costs least."""
        K, d, T = self.n_components, self.n_features_in_, float(self.typical_length)
        return blocks_of_least_cost({
            "start": ((K,), 1.0, 0.1),
            "moves": ((K, K), T**2 / K, 1.0),
            "count": ((K, 1 + d), T**2 / np.sqrt(K), 1.0),
            "linear": ((K, d), T**2 * d / K, d),
        })  # fmt: skip

    def _posterior(self, start, moves, totals, previous: PoissonPosterior | None) -> PoissonPosterior:
        columns = self._columns(None if previous is None else previous.frame)
        if previous is None:
            marginals, seed = np.zeros(columns.bins.starts[-1]), np.zeros(4, np.uint32)
            kept = {"frame": columns.coordinates, "marginals": marginals, "seed": seed}
        else:
            kept = {name: getattr(previous, name) for name in ("frame", "marginals", "seed")}
        return PoissonPosterior(**self._chain_of_totals(start, moves), rates=columns.posterior(totals), **kept)

    def _scores(self, columns: Counts, cells: np.ndarray, posterior: PoissonPosterior) -> tuple[np.ndarray, np.ndarray]:
        """1 and T of each step, and log probabilities of the steps in each state, but for what all states share."""
        rows = np.hstack([np.ones((len(cells), 1)), columns.statistics(cells)])
        return rows, rowwise_product(rows, columns.natural(posterior.rates, posterior.plug_in).T)

    def _inferred(self, records: Sequences, posterior: PoissonPosterior, scores: np.ndarray) -> tuple:
        return inferred(records.offsets, *posterior.chain, *_likely(scores), dtype=self.e_step_dtype())


def _likely(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    likely, log_scale = np.empty_like(scores), np.empty(len(scores))
    fill_likely(scores, _LEAST, likely, log_scale)
    return likely, log_scale
