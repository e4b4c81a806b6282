"""Hidden Markov model of sequences of symbols."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips._validation import check_integer, check_number
from vips.data import Sequences
from vips.expfam import Dirichlet
from vips.models.markov import kernels
from vips.models.markov.contexts import classes_of_symbols, first_classes
from vips.models.markov.hidden import HiddenMarkovModel
from vips.models.markov.pairs import states_of_pairs
from vips.models.markov.posterior import FORBIDDEN, Contexts, SymbolPosterior, private_chain, private_counts
from vips.models.markov.reading import names_of
from vips.models.markov.statistics import (
    Moves,
    SequenceStatistics,
    SymbolSums,
    first_shares,
    of_neighbours,
    of_pairs,
)
from vips.parts import Part, indexed, last_of
from vips.privacy import PrivacyBudget, PrivacyPlan
from vips.statistics import Block

__all__ = ["CategoricalHMM"]

_SPREAD = 0.5  # of the first emissions around the frequencies of the symbols
_FIRST_STEPS, _LEAST_CONTEXTS = 8, 4  # of the start
_FEW_SYMBOLS = 128  # up to it, the start counts pairs of symbols
_MIXED = 0.05  # share of the frequencies of all symbols in the first emissions of a state
_NOTHING, _NO_PRIOR = 1e-12, 1e-12


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
        None is a non-private fit: 100 steps with all records. The first steps count neighbouring symbols, from which
        states begin: write at least 30.
    schedule : RobbinsMonro, callable or None
        Step sizes of the steps after the start, as a function of 2, 3, …. None: see :meth:`step_size`.
    random_state : int, Generator, RandomState or None
        Seeds the states' start, and the sampling of non-private fits. Noise is never seeded.

    Attributes
    ----------
    posterior_ : ChainPosterior
    startprob_, transmat_, emissionprob_ : ndarray of shape (K,), (K, K), (K, n_symbols)
        Posterior means.
    privacy_ : PrivacyReport

    Privacy
    -------
    Unit: one sequence, of any length; with ``groups``, all sequences of a person. Relation: add or remove one. Released: the
    noisy totals of every step, hence the posterior and the sequences that ``sample`` draws. Public by declaration: all
    constructor arguments. Not covered: choosing any of them by looking at these records; :meth:`predict`, :meth:`decode` and
    :meth:`score`, which read the sequences that they are given, and add no noise.

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

    exact_rows = True
    n_features = 1

    def __init__(
        self,
        n_components: int = 4,
        *,
        n_symbols: int | None = None,
        startprob_prior: float | None = None,
        transmat_prior: float | None = None,
        emissionprob_prior: float | None = None,
        startprob_mask: object = None,
        transmat_mask: object = None,
        inference: str = "vb",
        max_length: int = 1000,
        typical_length: int = 25,
        dtype: type = np.float64,
        privacy: PrivacyBudget | PrivacyPlan | None = None,
        schedule: Callable[[int], float] | None = None,
        random_state: object = None,
    ) -> None:
        self.n_components = n_components
        self.n_symbols = n_symbols
        self.startprob_prior = startprob_prior
        self.transmat_prior = transmat_prior
        self.emissionprob_prior = emissionprob_prior
        self.startprob_mask = startprob_mask
        self.transmat_mask = transmat_mask
        self.inference = inference
        self.max_length = max_length
        self.typical_length = typical_length
        self.dtype = dtype
        self.privacy = privacy
        self.schedule = schedule
        self.random_state = random_state

    # -- the contract -----------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Check all constructor arguments, before the records are read."""
        super().check_parameters()
        if self.emissionprob_prior is not None:
            prior = self.emissionprob_prior
            check_number("emissionprob_prior", prior, 1e-12, 1e12, "a number between 1e-12 and 1e12")
        if self.n_symbols is None:
            raise ValueError(
                "`n_symbols` is required: counting the symbols of the records would reveal rare ones. Pass the public number "
                "of codes, e.g. CategoricalHMM(n_symbols=40, ...)."
            )
        check_integer("n_symbols", self.n_symbols)

    def blocks(self) -> dict[str, Block]:
        blocks = self.chain_blocks() | {"emissions": Block((self.n_components, self.n_symbols))}
        if self._counts_pairs():
            blocks["pairs"] = Block((self.n_symbols, self.n_symbols))
        return blocks

    def initial(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """No records, and in place of emissions public draws: how far those of the states are from the symbols' frequencies."""
        initial = {name: np.zeros(block.shape) for name, block in self.blocks().items()}
        spread = _SPREAD if self.n_components > 1 else 0.0
        return initial | {"emissions": spread * rng.standard_normal((self.n_components, self.n_symbols))}

    def phase(self, posterior: SymbolPosterior) -> str:
        if posterior.contexts is not None:
            return "neighbours"
        return "pairs" if self._counts_pairs() and posterior.step < self.n_first_steps() else "states"

    def expected_statistics(self, records: Sequences, posterior: SymbolPosterior) -> SequenceStatistics:
        records, blocks, phase = records.first(self.max_length), self.blocks(), self.phase(posterior)
        if phase == "neighbours":
            return of_neighbours(records, posterior.contexts.classes, -1 if posterior.step % 2 else 1, blocks)
        if phase == "pairs":
            return of_pairs(records, self.n_symbols, blocks)
        shares, pairs, _ = self.inferred(records, posterior)
        codes = np.ascontiguousarray(records.values[:, 0])
        emissions = SymbolSums("emissions", codes, records.offsets, shares, self.n_symbols)
        return SequenceStatistics([Moves(first_shares(records, shares), pairs), emissions], blocks)

    def to_posterior(self, average, noise_std, previous: SymbolPosterior | None) -> SymbolPosterior:
        """Concentrations are prior + totals. Noisy totals are denoised first (``posterior.py``).

        Where symbols are few, the first steps count pairs of them, from which states are computed (``pairs.py``). Where they
        are many, the first step counts symbols: everybody is in the first state. The next ones find classes of symbols
        with like neighbours, at which states begin (``contexts.py``).
        """
        start, moves, emissions = average["start"], average["moves"], average["emissions"]
        if previous is None and not any(average[name].any() for name in average if name != "emissions"):
            return self._everybody_in_one_state(emissions.copy())
        step = self.n_first_steps() + 1 if previous is None else previous.step + 1
        noise = np.zeros(emissions.shape) if previous is None else previous.noise
        if previous is not None and step < self.n_first_steps():
            if self._counts_pairs():
                return replace(previous, step=step)
            return self._of_contexts(average, noise_std, previous)
        if previous is not None and step == self.n_first_steps():
            start, moves, emissions = self._first_states(average, noise_std, previous)
        elif noise_std["emissions"] > 0.0:
            start, moves = private_chain(start, moves, noise_std)
            emissions = private_counts(emissions, noise_std["emissions"])
        return self._posterior(start, moves, emissions, noise, step)

    def n_first_steps(self) -> int:
        """One in short fits, with one state, and where the first counts pairs without noise."""
        n_steps = self._plan().n_steps
        n = min(_FIRST_STEPS, n_steps // 6)
        if self._counts_pairs():
            is_exact = not self.is_private and self._plan().sampling_rate == 1.0
            return 1 if is_exact else max(n, 1)
        return n + 1 if n >= _LEAST_CONTEXTS and self.n_components > 1 else 1

    def first_step_size(self, t: int) -> float:
        return 1.0 / t if self._counts_pairs() else 1.0

    def max_record_norm(self) -> float:
        """Of ``max_length`` equal symbols in one state."""
        n, scale = float(self.max_length), self.chain_blocks()["moves"].scale
        return float(np.sqrt(n**2 + ((n - 1.0) / scale) ** 2 + 0.25))

    def describe(self) -> dict:
        return {
            "unit": self.unit,
            "released": (
                "noisy counts of neighbouring symbols in the first steps",
                "noisy counts of first states, of moves between states, and of symbols in each state, in every other step",
                "hence the posterior of all three",
            ),
            "declared_public": (
                f"{self.n_symbols} symbols, sequences of at most {self.max_length} steps",
                "n_components, masks, priors and all other constructor arguments",
            ),
        }

    def bound(self, records, posterior: SymbolPosterior) -> float:
        """Evidence lower bound of these records and the parameters, for non-private fits and tests; log likelihood with EM."""
        total = float(self.inferred(records, posterior)[2].sum())
        if self.inference == "em":
            return total
        prior = Dirichlet(np.full(posterior.emissions.concentration.shape, self._emission_prior()))
        return total - posterior.divergence_of_chain(*self.chain_priors()) - float(posterior.emissions.kl(prior).sum())

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
        check_is_fitted(self, "posterior_")
        return self.posterior_.emissions.mean

    # -- comparisons ------------------------------------------------------------------------------------------------

    def posterior_parts(self, posterior) -> list[Part]:
        """First states, moves and symbols."""
        if not isinstance(posterior, SymbolPosterior):
            return super().posterior_parts(posterior)
        states, symbols = (
            [f"{name} {i}" for i in range(n)] for name, n in (("state", self.n_components), ("symbol", self.n_symbols))
        )
        return [
            Part("start", posterior.start, partial(last_of, states), states),
            Part("moves", posterior.moves, partial(indexed, "moves"), states),
            Part("emissions", posterior.emissions, partial(indexed, "emissions"), symbols),
        ]

    def components(self, posterior: SymbolPosterior) -> tuple[np.ndarray, str]:
        """States are matched by the probabilities of their symbols."""
        return posterior.emissions.mean, "hellinger"

    def score_ranges(self) -> dict[str, tuple[float, float]]:
        """Per step: from that of symbols drawn uniformly to 0."""
        return {"log_likelihood": (-float(np.log(max(self.n_symbols, 2))), 0.0)}

    # -- for people -------------------------------------------------------------------------------------------------

    def _seen(self, names, n_typical: int) -> dict[str, list[str]]:
        """Symbols that are most typical of each state: probability times how much more probable than on average."""
        symbols, emissions = names_of(names, self.n_symbols, "symbol"), self.emissionprob_
        lift = emissions * np.log(np.maximum(emissions, _NOTHING) / np.maximum(self.shares_ @ emissions, _NOTHING))
        typical = [np.argsort(-row, kind="stable")[:n_typical] for row in lift]
        return {
            "typical symbols": [
                ", ".join(f"{symbols[v]} ({100.0 * row[v]:.0f} %)" for v in codes)
                for codes, row in zip(typical, emissions, strict=True)
            ]
        }

    def _emissions(self, names, n_rows: int) -> tuple[np.ndarray, list[str], str]:
        symbols, emissions = names_of(names, self.n_symbols, "symbol"), self.emissionprob_
        shown = np.sort(np.argsort(-(self.shares_ @ emissions), kind="stable")[:n_rows])
        return emissions[:, shown].T, [symbols[v] for v in shown], "probability in the state"

    # -- helpers ----------------------------------------------------------------------------------------------------

    def _posterior(self, start, moves, emissions, noise, step: int) -> SymbolPosterior:
        of_start, of_moves = self.chain_priors()
        return SymbolPosterior(
            start=Dirichlet(_added(of_start, start)),
            moves=Dirichlet(_added(of_moves, moves)),
            step=step,
            plug_in=self.plugs_in(),
            emissions=Dirichlet(self._emission_prior() + np.maximum(emissions, 0.0)),
            noise=noise,
        )

    def _emission_prior(self) -> float:
        if self.inference == "em":
            return _NO_PRIOR
        return 1.0 / self.n_symbols if self.emissionprob_prior is None else float(self.emissionprob_prior)

    def _counts_pairs(self) -> bool:
        return self.n_components > 1 and self.n_symbols <= _FEW_SYMBOLS

    def _everybody_in_one_state(self, noise: np.ndarray) -> SymbolPosterior:
        """The first totals are then those of the symbols."""
        one = np.full(self.n_components, _NOTHING)
        one[0] = 1.0
        moves = np.tile(one, (self.n_components, 1))
        return SymbolPosterior(
            Dirichlet(one), Dirichlet(moves), 0, self.plugs_in(), Dirichlet(np.ones(noise.shape)), noise
        )

    def _of_contexts(self, average, noise_std, previous: SymbolPosterior) -> SymbolPosterior:
        """The next step of the start: ``contexts.py``."""
        profile, known, step = average["emissions"], previous.contexts, previous.step + 1
        if known is None:
            counts = private_counts(profile[:1], noise_std["emissions"])
            contexts = Contexts(counts[0], first_classes(counts[0], self.n_components), profile)
        else:
            classes = known.classes
            if step > 2:
                profiles = np.vstack([known.profile, profile])
                classes = classes_of_symbols(
                    profiles, known.counts, noise_std["emissions"], self.n_components, _restarts(previous)
                )
            contexts = Contexts(known.counts, classes, profile)
        return replace(previous, step=step, contexts=contexts)

    def _first_states(self, average, noise_std, previous: SymbolPosterior) -> tuple:
        """Totals at which the states begin: those of pairs, their classes of symbols, or all near the symbols' frequencies."""
        K, known, spread = self.n_components, previous.contexts, np.exp(previous.noise)
        if self._counts_pairs():
            pairs = private_counts(average["pairs"], noise_std["pairs"])
            moves, emissions = states_of_pairs(pairs, self._allowed()[1], _restarts(previous))
            counts = 0.5 * (pairs.sum(axis=0) + pairs.sum(axis=1))
            start, n_steps = np.full(K, 1.0 / K), max(counts.sum(), 1.0)
            emissions = (1.0 - _MIXED) * emissions + _MIXED * counts / n_steps
            return start, n_steps * moves, n_steps * moves.sum(axis=1)[:, None] * emissions
        start, moves = average["start"], average["moves"]
        if known is None:
            counts = private_counts(average["emissions"][:1], noise_std["emissions"])
            n_sequences, n_moves = (max(float(totals.sum()), 1.0) for totals in (start, moves))
            return np.full(K, n_sequences / K), np.full((K, K), n_moves / K**2), counts * spread / K
        if noise_std["start"] > 0.0:
            start, moves = private_chain(start, moves, noise_std)
        return start, moves, known.counts * ((1.0 - _MIXED) * known.classes.T + _MIXED * spread / K)


def _added(prior: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Concentrations, with nothing for what a mask forbids."""
    return np.where(prior > FORBIDDEN, prior + np.maximum(totals, 0.0), prior)


def _restarts(posterior: SymbolPosterior) -> np.random.Generator:
    """Of computations with released numbers."""
    return np.random.default_rng(np.abs(posterior.noise).view(np.uint64).sum())
