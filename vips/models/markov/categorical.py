"""Hidden Markov model of sequences of symbols."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from vips._support.arguments import arguments, positive, whole
from vips._support.validation import check_integer
from vips.core.phases import FitPhase, steps_of_shares
from vips.core.records.source import DataSource
from vips.core.sums import Block, DenseStatistics, Joint
from vips.core.sums.runs import SymbolSums
from vips.data._sequences import Sequences
from vips.expfam import Dirichlet
from vips.models import _typical as typical
from vips.models._sequences import declared_of_steps
from vips.models.components.categories import Categories
from vips.models.markov import kernels
from vips.models.markov.hidden import HiddenMarkovModel, Words, names_of, steps_seen
from vips.models.markov.matching import SymbolSimulator
from vips.models.markov.posterior import Contexts, SymbolPosterior, private_chain, private_counts
from vips.models.markov.start import classes_of_symbols, first_classes, states_of_bins
from vips.models.markov.statistics import first_shares, moves_of, of_neighbours, of_pairs
from vips.parts import Part, indexed
from vips.report.unread import Seen

__all__ = ["CategoricalHMM"]

_SPREAD = 0.5  # of the first emissions around the frequencies of the symbols
_FIRST_STEPS, _LEAST_CONTEXTS = 8, 4  # of the start
_FEW_SYMBOLS, _MATCHED_SYMBOLS = 128, 22  # up to which the start counts pairs of symbols, and a match reads them
_SHARE, _SHARE_IF_MATCHED = 0.15, 0.4  # of the budget, of pairs of symbols: docs/sequences.md
_MIXED = 0.05  # share of the frequencies of all symbols in the first emissions of a state
_NOTHING, _NO_PRIOR = 1e-12, 1e-12
_RARE = 0.005  # times the most probable symbol: the least that is typical


@arguments
class CategoricalHMM(HiddenMarkovModel):
    """Hidden Markov model of sequences of symbols, fitted by (private) variational Bayes. One record is one whole sequence.

    Parameters
    ----------
    n_components : int
        K, the number of states.
    n_symbols : int
        Symbols are the codes 0 to ``n_symbols - 1``. Public. What is no code is a missing step, which the model handles
        exactly.
    startprob_prior, transmat_prior, emissionprob_prior : float or None
        Concentration of the Dirichlet priors; None is 1/K, 1/K and 1/n_symbols, as in hmmlearn.
    startprob_mask, transmat_mask : array of bool of shape (K,), (K, K), or None
        States that may be first, and moves that exist: ``np.triu(np.ones((K, K), bool))`` is a left-right model. Public. None:
        all of them.
    inference : {"vb", "em"}
        Variational Bayes, or maximum likelihood by EM, which ignores the priors. E-steps of private fits take posterior means
        with either.
    max_length : int
        Public. A fit reads the first ``max_length`` steps of a sequence.
    typical_length : int
        Public. The clip norm of a plan without one is the root of it: that of so many different symbols.
    dtype : {np.float64, np.float32}
        Precision of the forward-backward algorithm. Sums are in double precision with either.
    privacy : PrivacyBudget, PrivacyPlan or None
        None is a non-private fit, until it has settled. The first steps count neighbouring symbols, from which
        states begin: write at least 30.
    schedule : RobbinsMonro, callable or None
        Step sizes of the states' steps, as a function of 2, 3, …. None: see :meth:`step_size`.
    random_state : int, Generator, RandomState or None
        Seeds the states' start, and the sampling of non-private fits. Noise is never seeded.

    Attributes
    ----------
    posterior_ : ChainPosterior
        Of a private fit at the match, if it is accepted: ``draws`` then holds those of "shares" of the states, "start",
        "moves" and "emissions".
    startprob_, transmat_, emissionprob_ : ndarray of shape (K,), (K, K), (K, n_symbols)
        Of the match of a private fit, else posterior means.
    privacy_ : PrivacyReport

    Notes
    -----
    *Privacy.*
    Unit: one sequence, of any length; with ``groups``, all sequences of a person. Relation: add or remove one. Released: the
    noisy totals of every step, hence the posterior and the sequences that ``sample`` draws. Public by declaration: all
    constructor arguments. Not covered: choosing any of them by looking at these records; :meth:`predict`, :meth:`decode` and
    :meth:`score`, which read the sequences that they are given, and add no noise.

    A private fit is matched to its totals (:meth:`match`), and what is read is the match where it is accepted. Lengths of
    sequences, which are private, then follow a curve between Gammas and normals, whose parameters are matched, too; lengths,
    and which steps are missing, are taken as independent of the states.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import CategoricalHMM, PrivacyPlan
    >>> rng = np.random.default_rng(0)
    >>> moods = rng.random((4000, 12)).cumsum(axis=1) % 2 < 1
    >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=15)
    >>> model = CategoricalHMM(2, n_symbols=2, privacy=plan, random_state=0).fit(list(moods.astype(int)))
    >>> model.transmat_.shape
    (2, 2)
    """

    n_components: int = whole(default=4, kw_only=False)
    n_symbols: int | None = None
    emissionprob_prior: float | None = positive(default=None)

    _words = Words("first states, moves and symbols")
    exact_rows = True
    n_features = 1

    # -- the contract -----------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Check all constructor arguments, before the records are read."""
        super().check_parameters()
        if self.n_symbols is None:
            raise ValueError(
                "`n_symbols` is required: counting the symbols of the records would reveal rare ones. Pass the public number "
                "of codes, e.g. CategoricalHMM(n_symbols=40, ...)."
            )
        check_integer("n_symbols", self.n_symbols)

    def blocks(self) -> dict[str, Block]:
        blocks = _chain_blocks(self.n_components) | {"emissions": Block((self.n_components, self.n_symbols))}
        if self._counts_pairs():
            return blocks | {"pairs": Block((self.n_symbols, self.n_symbols))}
        if self.n_components == 1:
            return blocks
        return blocks | {"sequences": Block((1,), scale=blocks["start"].scale), "symbols": Block((1, self.n_symbols))}

    def start(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], SymbolPosterior]:
        """The prior, with draws that say how far the states' emissions are from the symbols' frequencies at first."""
        average, spread = self.initial(rng), _SPREAD if self.n_components > 1 else 0.0
        noise = spread * rng.standard_normal((self.n_components, self.n_symbols))
        return average, self._posterior(average["start"], average["moves"], average["emissions"], noise)

    def phases(self, n_steps: int) -> list[FitPhase]:
        """Where symbols are few, the first steps count pairs of them, from which states are computed (``start.py``). Where they
        are many, the first step counts symbols. The next ones find classes of symbols with like neighbours, at which states
        begin (``start.py``); in short fits they begin near the symbols' frequencies."""
        if self.n_components == 1:
            first = []
        elif self._counts_pairs():
            is_matched = self.is_private and self.n_symbols <= _MATCHED_SYMBOLS
            share = _SHARE_IF_MATCHED if is_matched else _SHARE
            (steps,) = steps_of_shares(self.plan_of_fit(), n_steps, share)
            first = [self._phase_of_pairs(steps, "noisy counts of neighbouring symbols")]
        else:
            first = self._phases_of_symbols(n_steps)
        n_left = n_steps - sum(phase.n_steps for phase in first)
        released = "noisy counts of first states, of moves between states, and of symbols in each state"
        blocks = [*_chain_blocks(self.n_components), "emissions"]
        return [*first, FitPhase("states", n_left, blocks=blocks, step_size=self.step_size, released=released)]

    def _phases_of_symbols(self, n_steps: int) -> list[FitPhase]:
        n_contexts = min(_FIRST_STEPS, n_steps // 6)
        has_contexts, newest = n_contexts >= _LEAST_CONTEXTS, {"step_size": lambda s: 1.0}
        symbols = FitPhase(
            "symbols",
            1,
            blocks=["sequences", "symbols"],
            statistics="_symbol_statistics",
            update=self._first_classes if has_contexts else self._states_of_symbols,
            released="noisy counts of symbols and of sequences",
            **newest,
        )
        if not has_contexts:
            return [symbols]
        contexts = FitPhase(
            "neighbours",
            n_contexts - 1,
            blocks=["emissions"],
            statistics="_profile_statistics",
            update=self._classes_of_profiles,
            released="noisy counts of symbols beside each class of symbols",
            **newest,
        )
        moves = FitPhase(
            "classes",
            1,
            blocks=list(_chain_blocks(self.n_components)),
            statistics="_move_statistics",
            update=self._states_of_classes,
            released="noisy counts of moves between classes of symbols, and of first ones",
            **newest,
        )
        return [symbols, contexts, moves]

    def expected_statistics(self, records: Sequences, posterior: SymbolPosterior) -> Joint:
        records = records.first(self.max_length)
        shares, pairs, _ = self.inferred(records, posterior)
        moves = moves_of(first_shares(records, shares), pairs)
        return Joint(moves, self._sums_of_symbols("emissions", records, shares))

    def to_posterior(self, average, noise_std, previous: SymbolPosterior | None) -> SymbolPosterior:
        """Concentrations are prior + totals. Noisy totals are denoised first (``posterior.py``)."""
        start, moves, emissions = average["start"], average["moves"], average["emissions"]
        if noise_std["emissions"] > 0.0:
            start, moves = private_chain(start, moves, noise_std)
            emissions = private_counts(emissions, noise_std["emissions"])
        return self._posterior(
            start, moves, emissions, np.zeros(emissions.shape) if previous is None else previous.noise
        )

    # -- how states begin ---------------------------------------------------------------------------------------------

    def _pair_statistics(self, records: Sequences, posterior: SymbolPosterior) -> SymbolSums:
        """Counts of neighbouring symbols."""
        return of_pairs(records.first(self.max_length), self.n_symbols)

    def _states_of_pairs(self, average, noise_std, previous: SymbolPosterior) -> SymbolPosterior:
        """The most likely states of the table of pairs."""
        K = self.n_components
        pairs = private_counts(average["pairs"], noise_std["pairs"])
        columns = Categories((self.n_symbols,))
        moves, emissions = states_of_bins(pairs, self._allowed()[1], columns, _restarts(previous))
        counts = 0.5 * (pairs.sum(axis=0) + pairs.sum(axis=1))
        start, n_steps = np.full(K, 1.0 / K), max(counts.sum(), 1.0)
        emissions = (1.0 - _MIXED) * emissions + _MIXED * counts / n_steps
        totals = start, n_steps * moves, n_steps * moves.sum(axis=1)[:, None] * emissions
        return self._posterior(*totals, previous.noise)

    def _symbol_statistics(self, records: Sequences, posterior: SymbolPosterior) -> Joint:
        """Counts of symbols, and of sequences with a step."""
        records = records.first(self.max_length)
        ones = np.ones((len(records.values), 1))
        sequences = DenseStatistics({"sequences": first_shares(records, ones)})
        return Joint(sequences, self._sums_of_symbols("symbols", records, ones))

    def _states_of_symbols(self, average, noise_std, previous: SymbolPosterior) -> SymbolPosterior:
        """States near the frequencies of the symbols."""
        K, (counts,) = self.n_components, private_counts(average["symbols"], noise_std["symbols"])
        n_sequences = max(float(average["sequences"][0]), 1.0)
        n_moves = max(float(average["symbols"].sum()) - n_sequences, 1.0)
        emissions = counts * np.exp(previous.noise) / K
        return self._posterior(np.full(K, n_sequences / K), np.full((K, K), n_moves / K**2), emissions, previous.noise)

    def _first_classes(self, average, noise_std, previous: SymbolPosterior) -> SymbolPosterior:
        """The most frequent symbols, and all others."""
        counts = private_counts(average["symbols"], noise_std["symbols"])[0]
        contexts = Contexts(counts, first_classes(counts, self.n_components), np.zeros(previous.noise.shape))
        return replace(previous, contexts=contexts)

    def _profile_statistics(self, records: Sequences, posterior: SymbolPosterior) -> SymbolSums:
        """Counts of symbols beside each class."""
        return self._neighbours(records, posterior)[1]

    def _classes_of_profiles(self, average, noise_std, previous: SymbolPosterior) -> SymbolPosterior:
        """Classes of symbols with like neighbours on both sides, from the second step on."""
        profile, known = average["emissions"], previous.contexts
        classes = known.classes
        if known.profile.any():
            profiles = np.vstack([known.profile, profile])
            classes = classes_of_symbols(
                profiles, known.counts, noise_std["emissions"], self.n_components, _restarts(previous)
            )
        return replace(previous, contexts=Contexts(known.counts, classes, profile.copy(), -known.side))

    def _move_statistics(self, records: Sequences, posterior: SymbolPosterior) -> Joint:
        """First classes, and moves between classes. A person is clipped by the sum of the norms of its sequences."""
        return Joint(self._neighbours(records, posterior)[0])

    def _states_of_classes(self, average, noise_std, previous: SymbolPosterior) -> SymbolPosterior:
        """A state for each class of symbols."""
        start, moves, known = average["start"], average["moves"], previous.contexts
        if noise_std["start"] > 0.0:
            start, moves = private_chain(start, moves, noise_std)
        spread = np.exp(previous.noise) / self.n_components
        emissions = known.counts * ((1.0 - _MIXED) * known.classes.T + _MIXED * spread)
        return self._posterior(start, moves, emissions, previous.noise)

    def max_record_norm(self) -> float:
        """Norm of ``max_length`` equal symbols in one state."""
        n, scale = float(self.max_length), _chain_blocks(self.n_components)["moves"].scale
        return float(np.sqrt(n**2 + ((n - 1.0) / scale) ** 2 + 0.25))

    def begin(self, records: DataSource) -> None:
        """At the pairs or contexts of symbols, or near their frequencies, as private fits do: from there, ordinary ones reach
        the same limits as from clusters."""

    def default_clip(self) -> float:
        """√``typical_length``."""
        return float(np.sqrt(self.typical_length))

    def steps_read(self, values: np.ndarray) -> tuple[np.ndarray, str]:
        is_code = (values >= 0) & (values < self.n_symbols) & (values == np.floor(values))
        return is_code, f"codes from 0 to {self.n_symbols - 1}, by `n_symbols`"

    def counts_read(self) -> list[Seen]:
        return [Seen("Steps", "symbol", *steps_seen(self, "emissions"), values=range(self.n_symbols))]

    def declared(self) -> tuple[str, ...]:
        return (f"{self.n_symbols} symbols, {declared_of_steps(self)}",)

    def divergence_of_emissions(self, posterior: SymbolPosterior) -> float:
        prior = Dirichlet(np.full(posterior.emissions.concentration.shape, self._emission_prior()))
        return float(posterior.emissions.kl(prior).sum())

    # -- what is seen in each state ---------------------------------------------------------------------------------

    def likely(self, records: Sequences, posterior: SymbolPosterior) -> tuple[np.ndarray, np.ndarray]:
        codes, tables = np.ascontiguousarray(records.values[:, 0]), posterior.tables
        likely, log_scale = np.empty((len(codes), self.n_components)), np.empty(len(codes))
        kernels.fill_likely(codes, tables.by_symbol, tables.log_largest, 0, len(codes), likely, log_scale)
        return likely, log_scale

    def at_means(self, posterior: SymbolPosterior) -> SymbolPosterior:
        return replace(posterior, plug_in=True, contexts=None)

    def drawn(self, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        below, symbols = np.cumsum(self.emissionprob_, axis=1), np.empty(len(states), np.int64)
        for k in range(self.n_components):
            here = np.flatnonzero(states == k)
            codes = np.searchsorted(below[k], rng.random(len(here)) * below[k, -1], side="right")
            symbols[here] = np.minimum(codes, self.n_symbols - 1)
        return symbols[:, None]

    @property
    def emissionprob_(self) -> np.ndarray:
        """Probabilities of the symbols in each state, shape (K, n_symbols)."""
        return self.posterior_.emissions.mean

    def typical_steps(self, states: np.ndarray, n_features: int | None, rng: np.random.Generator) -> np.ndarray:
        n_symbols = typical.n_columns(self, self.n_symbols or n_features)
        return typical.within(rng.dirichlet(np.full(n_symbols, 0.5), self.n_components)[states], rng)

    def simulator(self) -> SymbolSimulator:
        return SymbolSimulator.of(self, self._emission_prior())

    # -- comparisons ------------------------------------------------------------------------------------------------

    def _n_free_of_seen(self) -> int:
        return self.n_components * (self.n_symbols - 1)

    def _parts_of_seen(self, posterior: SymbolPosterior) -> list[Part]:
        emissions, symbols = (
            posterior.draws.get("emissions", posterior.emissions),
            names_of(None, self.n_symbols, "symbol"),
        )
        return [Part("emissions", emissions, partial(indexed, "emissions"), symbols)]

    def components(self, posterior: SymbolPosterior) -> tuple[np.ndarray, str]:
        """States are matched by the probabilities of their symbols."""
        return posterior.emissions.mean, "hellinger"

    # -- for people -------------------------------------------------------------------------------------------------

    def _seen(self, names, n_typical: int) -> dict[str, list[str]]:
        """Most typical symbols of each state: probability times its ratio to the average."""
        symbols, emissions = names_of(names, self.n_symbols, "symbol"), self.emissionprob_
        lift = emissions * np.log(np.maximum(emissions, _NOTHING) / np.maximum(self.shares_ @ emissions, _NOTHING))
        lift[emissions < _RARE * emissions.max(axis=1, keepdims=True)] = -np.inf
        typical = [[v for v in np.argsort(-row, kind="stable")[:n_typical] if np.isfinite(row[v])] for row in lift]
        return {
            "typical symbols": [
                ", ".join(f"{symbols[v]} ({100.0 * row[v]:.{'0f' if row[v] >= 0.01 else '1g'}} %)" for v in codes)
                for codes, row in zip(typical, emissions, strict=True)
            ]
        }

    def _emissions(self, names, n_rows: int) -> tuple[np.ndarray, list[str], str]:
        symbols, emissions = names_of(names, self.n_symbols, "symbol"), self.emissionprob_
        shown = np.sort(np.argsort(-(self.shares_ @ emissions), kind="stable")[:n_rows])
        return emissions[:, shown].T, [symbols[v] for v in shown], "probability in the state"

    # -- helpers ----------------------------------------------------------------------------------------------------

    def _sums_of_symbols(self, name: str, records: Sequences, shares: np.ndarray) -> SymbolSums:
        codes = np.ascontiguousarray(records.values[:, 0])
        return SymbolSums(name, codes, records.offsets, shares, self.n_symbols)

    def _neighbours(self, records: Sequences, posterior: SymbolPosterior) -> tuple[DenseStatistics, SymbolSums]:
        contexts = posterior.contexts
        return of_neighbours(records.first(self.max_length), contexts.classes, contexts.side)

    def _posterior(self, start, moves, emissions, noise) -> SymbolPosterior:
        return SymbolPosterior(
            **self._chain_of_totals(start, moves),
            emissions=Dirichlet(self._emission_prior() + np.maximum(emissions, 0.0)),
            noise=noise,
        )

    def _emission_prior(self) -> float:
        if self.inference == "em":
            return _NO_PRIOR
        return 1.0 / self.n_symbols if self.emissionprob_prior is None else float(self.emissionprob_prior)

    def _counts_pairs(self) -> bool:
        return self.n_components > 1 and self.n_symbols <= _FEW_SYMBOLS


def _restarts(posterior: SymbolPosterior) -> np.random.Generator:
    """Generator of computations with released numbers."""
    return np.random.default_rng(np.abs(posterior.noise).view(np.uint64).sum())


def _chain_blocks(n_components: int) -> dict[str, Block]:
    """Blocks of first states and moves."""
    K = n_components
    return {
        "start": Block((K,), scale=2.0),
        "moves": Block((K, K), scale=2.0),
    }
