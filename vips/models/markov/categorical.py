"""Hidden Markov model of sequences of symbols."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips._random_state import RandomStateLike, as_generator
from vips._validation import check_choice, check_integer, check_number, check_schedule
from vips.data import Sequences
from vips.expfam import Dirichlet
from vips.models.markov import kernels
from vips.models.markov.contexts import classes_of_symbols, first_classes
from vips.models.markov.contract import SequenceModel
from vips.models.markov.posterior import ChainPosterior, Contexts, Tables, private_totals
from vips.models.markov.statistics import SymbolStatistics, first_shares, inferred, of_neighbours
from vips.parts import Part, Score, average, indexed, last_of
from vips.privacy import PrivacyPlan
from vips.statistics import Block
from vips.step_size import PolynomialAveraging, RobbinsMonro

__all__ = ["CategoricalHMM"]

_SPREAD = 0.5  # of the first emissions around the frequencies of the symbols
_CONTEXTS, _LEAST_CONTEXTS = 8, 4  # steps of the start
_MIXED = 0.05  # share of the frequencies of all symbols in the first emissions of a state
_NOTHING, _NO_PRIOR = 1e-12, 1e-12
_LEAST = 1e-300
_AVERAGING = PolynomialAveraging(power=3.0)


class CategoricalHMM(SequenceModel):
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
    inference : {"vb", "em"}
        Variational Bayes, or maximum likelihood by EM, which ignores the priors. E-steps of private fits take posterior means
        with either.
    max_length : int
        Public. A fit reads the first ``max_length`` steps of a sequence.
    typical_length : int
        Public. The clip norm of a plan without one is the root of it: that of so many different symbols.
    privacy : PrivacyPlan or None
        None is a non-private fit: 100 steps with all records. The first steps find symbols with like neighbours, at
        which states begin: write at least 30.
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

    unit = "one sequence"
    exact_rows = True
    planned_steps = 60

    def __init__(
        self,
        n_components: int = 4,
        *,
        n_symbols: int | None = None,
        startprob_prior: float | None = None,
        transmat_prior: float | None = None,
        emissionprob_prior: float | None = None,
        inference: str = "vb",
        max_length: int = 1000,
        typical_length: int = 25,
        privacy: PrivacyPlan | None = None,
        schedule: Callable[[int], float] | None = None,
        random_state: object = None,
    ) -> None:
        self.n_components = n_components
        self.n_symbols = n_symbols
        self.startprob_prior = startprob_prior
        self.transmat_prior = transmat_prior
        self.emissionprob_prior = emissionprob_prior
        self.inference = inference
        self.max_length = max_length
        self.typical_length = typical_length
        self.privacy = privacy
        self.schedule = schedule
        self.random_state = random_state

    # -- the contract -------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Check all constructor arguments, before the records are read."""
        for name in ("n_components", "max_length", "typical_length"):
            check_integer(name, getattr(self, name))
        for name in ("startprob_prior", "transmat_prior", "emissionprob_prior"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 1e-12, 1e12, "a number between 1e-12 and 1e12")
        check_choice("inference", self.inference, ("vb", "em"))
        check_schedule(self.schedule, "PolynomialAveraging()")
        if self.n_symbols is None:
            raise ValueError(
                "`n_symbols` is required: counting the symbols of the records would reveal rare ones. Pass the public number "
                "of codes, e.g. CategoricalHMM(n_symbols=40, ...)."
            )
        check_integer("n_symbols", self.n_symbols)

    def check_features(self) -> None:
        if self.n_features_in_ != 1:
            raise ValueError(f"Sequences of symbols have one column of codes, X has {self.n_features_in_}.")

    def blocks(self) -> dict[str, Block]:
        K = self.n_components
        return {
            "start": Block((K,), scale=2.0),
            "moves": Block((K, K), scale=2.0),
            "emissions": Block((K, self.n_symbols)),
        }

    def initial(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """No records, and in place of emissions public draws: how far those of the states are from the symbols' frequencies."""
        K = self.n_components
        noise = (_SPREAD if K > 1 else 0.0) * rng.standard_normal((K, self.n_symbols))
        return {"start": np.zeros(K), "moves": np.zeros((K, K)), "emissions": noise}

    def prepare(self, posterior: ChainPosterior) -> None:
        posterior.tables()

    def expected_statistics(self, records: Sequences, posterior: ChainPosterior) -> SymbolStatistics:
        records = records.first(self.max_length)
        if posterior.contexts is not None:
            return of_neighbours(records, posterior.contexts.classes, -1 if posterior.step % 2 else 1)
        shares, pairs, _ = self._inferred(records, posterior.tables())
        return SymbolStatistics(records, shares, pairs, first_shares(records, shares), self.n_symbols)

    def to_posterior(self, average, noise_std, previous: ChainPosterior | None) -> ChainPosterior:
        """Concentrations are prior + totals. Noisy totals are denoised first (``posterior.py``).

        Everybody is in the first state in the first step, so that its totals are the symbols' frequencies. The next steps find
        classes of symbols with like neighbours, at which states begin (``contexts.py``).
        """
        start, moves, emissions = average["start"], average["moves"], average["emissions"]
        if previous is None and not start.any():
            return self._everybody_in_one_state(emissions.copy())
        step = 2 + self._n_contexts() if previous is None else previous.step + 1
        noise = np.zeros(emissions.shape) if previous is None else previous.noise
        if step <= self._n_contexts():
            return self._of_contexts(average, noise_std, previous)
        if step == 1 + self._n_contexts():
            start, moves, emissions = self._first_states(average, noise_std, previous)
        elif noise_std["emissions"] > 0.0:
            start, moves, emissions = private_totals(average, noise_std)
        totals = zip(self._priors(), (start, moves, emissions), strict=True)
        parts = (Dirichlet(prior + np.maximum(total, 0.0)) for prior, total in totals)
        return ChainPosterior(*parts, noise, step, self._plugs_in())

    def step_size(self, t: int) -> float:
        """ρ_t: 1 in the steps of the start, and in the first of the states. From there s = 1, 2, … counts steps:
        ``schedule(s)`` if there is one, 4/(s + 3) in a private fit, (1 + s)^(-0.6) in a non-private stochastic one, and 1 in a
        non-private full-batch one, which is textbook variational Bayes."""
        s = t - 1 - self._n_contexts()
        if s <= 1:
            return 1.0
        if self.schedule is not None:
            return self.schedule(s)
        if self.is_private:
            return _AVERAGING(s)
        return 1.0 if self._plan().sampling_rate == 1.0 else RobbinsMonro(offset=1.0, decay=0.6)(s)

    def default_clip(self) -> float:
        """√``typical_length``."""
        return float(np.sqrt(self.typical_length))

    def max_norm(self) -> float:
        """Of ``max_length`` equal symbols in one state."""
        n = float(self.max_length)
        return float(np.sqrt(n**2 + ((n - 1.0) ** 2 + 1.0) / 4.0))

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """100 full-batch steps."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=100)

    def describe(self) -> dict:
        return {
            "unit": self.unit,
            "released": (
                "noisy counts of first states, of moves between states, and of symbols in each state, in every step",
                "hence the posterior of all three",
            ),
            "declared_public": (
                f"{self.n_symbols} symbols, sequences of at most {self.max_length} steps",
                "n_components, priors and all other constructor arguments",
            ),
        }

    def bound(self, records, posterior: ChainPosterior) -> float:
        """Evidence lower bound of these records and the parameters, for non-private fits and tests; log likelihood with EM."""
        total = float(self._inferred(records, posterior.tables())[2].sum())
        return total if self.inference == "em" else total - posterior.divergence(self._priors())

    # -- comparisons --------------------------------------------------------------------------------------------

    def posterior_parts(self, posterior) -> list[Part]:
        """First states, moves and symbols."""
        if not isinstance(posterior, ChainPosterior):
            return super().posterior_parts(posterior)
        states, symbols = (
            [f"{name} {i}" for i in range(n)] for name, n in (("state", self.n_components), ("symbol", self.n_symbols))
        )
        return [
            Part("start", posterior.start, partial(last_of, states), states),
            Part("moves", posterior.moves, partial(indexed, "moves"), states),
            Part("emissions", posterior.emissions, partial(indexed, "emissions"), symbols),
        ]

    def components(self, posterior: ChainPosterior) -> tuple[np.ndarray, str]:
        """States are matched by the probabilities of their symbols."""
        return posterior.emissions.mean, "hellinger"

    def in_order(self, posterior: ChainPosterior, order: np.ndarray) -> ChainPosterior:
        return posterior.in_order(order)

    def held_out_scores(self, X, y=None, noise_aware: bool = False) -> list[Score]:
        """Log likelihood per step."""
        if noise_aware:
            return []
        records = self._sequences(X, None)
        scores, lengths = self._log_likelihood(records), records.lengths
        return [
            Score(
                "log likelihood per step (higher is better)",
                lambda counts: average(counts, scores) / max(average(counts, lengths), _LEAST),
            )
        ]

    def predictions(self, X) -> np.ndarray:
        """Log likelihood of each sequence."""
        return self._log_likelihood(self._sequences(X, None))

    # -- methods for users --------------------------------------------------------------------------------------

    def score(self, X, lengths=None) -> float:
        """Log likelihood of all sequences at the posterior's means, in nats, as in hmmlearn."""
        return float(self._log_likelihood(self._sequences(X, lengths)).sum())

    def score_samples(self, X, lengths=None) -> tuple[float, np.ndarray]:
        """Log likelihood, and probabilities of the states at each step, shape (n_steps, K), as in hmmlearn."""
        shares, _, log_likelihood = self._inferred(self._sequences(X, lengths), self._means())
        return float(log_likelihood.sum()), shares

    def predict_proba(self, X, lengths=None) -> np.ndarray:
        """Probabilities of the states at each step, shape (n_steps, K)."""
        return self.score_samples(X, lengths)[1]

    def predict(self, X, lengths=None) -> np.ndarray:
        """The most probable states of each sequence (Viterbi), shape (n_steps,), as in hmmlearn."""
        return self.decode(X, lengths)[1]

    def decode(self, X, lengths=None) -> tuple[float, np.ndarray]:
        """The most probable states of each sequence.

        Returns
        -------
        log_probability : float
            Of the states and the symbols.
        states : ndarray of int, shape (n_steps,)
        """
        records, tables = self._sequences(X, lengths), self._means()
        likely, log_scale = self._likely(records, tables)
        states, log_probability = np.empty(len(likely), np.int64), np.empty(len(records))
        logs = (np.log(np.maximum(values, _LEAST)) for values in (tables.start, tables.moves, likely))
        kernels.best_paths(records.offsets, *logs, states, log_probability)
        return float(log_probability.sum() + log_scale.sum()), states

    def sample(self, n_samples: int = 1, random_state: RandomStateLike = None) -> tuple[np.ndarray, np.ndarray]:
        """One synthetic sequence of ``n_samples`` symbols; from a private fit, as private as the fit.

        Returns
        -------
        X : ndarray of int, shape (n_samples, 1)
        states : ndarray of int, shape (n_samples,)
        """
        check_is_fitted(self, "posterior_")
        check_integer("n_samples", n_samples, 0)
        drawn = self.sample_sequences(1, random_state, lengths=[n_samples])
        return drawn[0].values, drawn[1]

    def sample_sequences(
        self, n: int = 1, random_state: RandomStateLike = None, *, lengths: object = None
    ) -> tuple[Sequences, np.ndarray]:
        """Synthetic sequences of the model at the means of the posterior; from a private fit, as private as the fit.

        Parameters
        ----------
        n : int
        random_state : int, Generator, RandomState or None
        lengths : sequence of n int, optional
            None draws lengths from a geometric distribution with the released mean, at most ``max_length``.

        Returns
        -------
        sequences : Sequences
        states : ndarray of int, shape (n_steps,)
        """
        check_is_fitted(self, "posterior_")
        check_integer("n", n, 0)
        rng, tables = as_generator(random_state), self._means()
        if lengths is None:
            start, moves = (part.concentration.sum() for part in (self.posterior_.start, self.posterior_.moves))
            lengths = np.minimum(rng.geometric(start / (start + moves), n), self.max_length)
        lengths = np.asarray(lengths, np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        states = np.empty(offsets[-1], np.int64)
        below_start, below_moves = np.cumsum(tables.start), np.cumsum(tables.moves, axis=1)
        longest = int(lengths.max(initial=0))
        for t in range(longest):  # all sequences at once
            alive = np.flatnonzero(lengths > t)
            below = below_start[None] if t == 0 else below_moves[states[offsets[alive] + t - 1]]
            draws = rng.random((len(alive), 1)) * below[:, -1:]
            states[offsets[alive] + t] = np.minimum((draws >= below).sum(axis=1), self.n_components - 1)
        below = np.cumsum(self.emissionprob_, axis=1)
        symbols = np.empty(len(states), np.int64)
        for k in range(self.n_components):
            here = np.flatnonzero(states == k)
            found = np.searchsorted(below[k], rng.random(len(here)) * below[k, -1], side="right")
            symbols[here] = np.minimum(found, self.n_symbols - 1)
        return Sequences(symbols, offsets), states

    @property
    def startprob_(self) -> np.ndarray:
        """Probabilities of the first state, shape (K,)."""
        check_is_fitted(self, "posterior_")
        return self.posterior_.start.mean

    @property
    def transmat_(self) -> np.ndarray:
        """Probabilities of the next state, a row for each state, shape (K, K)."""
        check_is_fitted(self, "posterior_")
        return self.posterior_.moves.mean

    @property
    def emissionprob_(self) -> np.ndarray:
        """Probabilities of the symbols in each state, shape (K, n_symbols)."""
        check_is_fitted(self, "posterior_")
        return self.posterior_.emissions.mean

    # -- helpers ------------------------------------------------------------------------------------------------

    def _priors(self) -> tuple[float, float, float]:
        if self.inference == "em":
            return _NO_PRIOR, _NO_PRIOR, _NO_PRIOR
        K = self.n_components
        given = (self.startprob_prior, self.transmat_prior, self.emissionprob_prior)
        defaults = (1.0 / K, 1.0 / K, 1.0 / self.n_symbols)
        return tuple(default if prior is None else float(prior) for prior, default in zip(given, defaults, strict=True))

    def _plugs_in(self) -> bool:
        return self.is_private or self.inference == "em"

    def _n_contexts(self) -> int:
        """Steps of the start that count neighbours: none in short fits, or with one state."""
        n = min(_CONTEXTS, self._plan().n_steps // 6) if self.n_components > 1 else 0
        return n if n >= _LEAST_CONTEXTS else 0

    def _everybody_in_one_state(self, noise: np.ndarray) -> ChainPosterior:
        """The first totals are then those of the symbols."""
        one = np.full(self.n_components, _NOTHING)
        one[0] = 1.0
        parts = (one, np.tile(one, (self.n_components, 1)), np.ones(noise.shape))
        return ChainPosterior(*map(Dirichlet, parts), noise, 0, self._plugs_in())

    def _of_contexts(self, average, noise_std, previous: ChainPosterior) -> ChainPosterior:
        """The next step of the start: ``contexts.py``."""
        profile, known, step = average["emissions"], previous.contexts, previous.step + 1
        if known is None:
            counts = np.maximum(profile[:1], 0.0)
            if noise_std["emissions"] > 0.0:
                counts = private_totals({**average, "emissions": profile[:1]}, noise_std)[2]
            contexts = Contexts(counts[0], first_classes(counts[0], self.n_components), profile)
        else:
            classes = known.classes
            if step > 2:
                rng = np.random.default_rng(np.abs(previous.noise).view(np.uint64).sum())
                profiles = np.vstack([known.profile, profile])
                classes = classes_of_symbols(profiles, known.counts, noise_std["emissions"], self.n_components, rng)
            contexts = Contexts(known.counts, classes, profile)
        return replace(previous, step=step, contexts=contexts)

    def _first_states(self, average, noise_std, previous: ChainPosterior | None) -> tuple:
        """Totals at which the states begin: their classes of symbols, or all near the frequencies of the symbols."""
        K, known = self.n_components, None if previous is None else previous.contexts
        spread = np.exp(previous.noise)
        if known is None:
            counts = np.maximum(average["emissions"][:1], 0.0)
            if noise_std["emissions"] > 0.0:
                counts = private_totals({**average, "emissions": counts}, noise_std)[2]
            n_sequences, n_moves = (max(float(average[name].sum()), 1.0) for name in ("start", "moves"))
            return np.full(K, n_sequences / K), np.full((K, K), n_moves / K**2), counts * spread / K
        start, moves, _ = private_totals(average, noise_std) if noise_std["start"] > 0.0 else average.values()
        emissions = (1.0 - _MIXED) * known.classes.T + _MIXED * spread / K
        return start, moves, known.counts * emissions

    def _likely(self, records: Sequences, tables: Tables) -> tuple[np.ndarray, np.ndarray]:
        codes = np.ascontiguousarray(records.values[:, 0])
        likely, log_scale = np.empty((len(codes), self.n_components)), np.empty(len(codes))
        kernels.fill_likely(codes, tables.by_symbol, tables.log_largest, 0, len(codes), likely, log_scale)
        return likely, log_scale

    def _inferred(self, records: Sequences, tables: Tables) -> tuple:
        return inferred(records, tables.start, tables.moves, *self._likely(records, tables))

    def _means(self) -> Tables:
        """Tables at the posterior's means."""
        check_is_fitted(self, "posterior_")
        posterior = self.posterior_
        return ChainPosterior(
            posterior.start, posterior.moves, posterior.emissions, posterior.noise, plug_in=True
        ).tables()

    def _log_likelihood(self, records: Sequences) -> np.ndarray:
        return self._inferred(records, self._means())[2]
