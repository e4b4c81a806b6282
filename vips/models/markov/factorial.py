"""Factorial hidden Markov model: several chains at once, whose effects on a vector add up."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips._support.arguments import arguments, choice, function_of_step, positive, whole
from vips._support.extras import imported
from vips._support.validation import check_integer, check_max_norm
from vips.core.contract import scheduled
from vips.core.exact.rowwise import scaled_rows
from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.core.phases import FitPhase, plain_average, unchanged
from vips.core.plan import PrivacyPlan
from vips.core.records.ragged import offsets_of
from vips.core.step_size import PolynomialAveraging
from vips.core.sums import Block, RecordStatistics
from vips.data._sequences import Sequences
from vips.data._step_index import step_frame
from vips.expfam import Dirichlet, Draws
from vips.models import _typical as typical
from vips.models._chains import plugs_in
from vips.models._definite import floored
from vips.models._scales import blocks_of_least_cost
from vips.models._sequences import SequenceModel, declared_of_steps, state_names
from vips.models.components.matching.match import Match
from vips.models.components.matching.simulator import levels_at
from vips.models.components.matching.steps import kept_steps
from vips.models.markov import kernels
from vips.models.markov.factorial_inference import Inferred, factorial_statistics, inferred_chains
from vips.models.markov.factorial_matching import MOST_JOINT, FactorialSimulator
from vips.models.markov.factorial_posterior import FactorialPosterior, Prior, long_run, next_emissions, view
from vips.models.markov.matching import drawn_states
from vips.parts import Part, indexed, last_of, warn_of_no_intervals
from vips.report.words import described, whose

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FactorialHMM"]

_LEAST = 1e-300
_AVERAGING = PolynomialAveraging(power=3.0)
_UNEXPLAINED = 0.5  # at first: share of the variance that chains leave
_STAYS = 0.5  # at first: share of the steps in which chains stay, beside those in which they move at random
_NO_PRIOR = 1e-9  # of the number of steps
_VISIBLE = 10.0  # deviations of the noise in the number of steps below which nothing is seen
_ADDED = 1.0  # to the precision of effects, in deviations of the noise in counts
_LEAST_VARIANCE = 0.01  # that private chains leave, in units of the variance of all steps
_RELEASED = (
    "noisy counts of first states, of moves, and of states of two chains at a time, and noisy moments of the steps"
)
_NUMBERS = 2e7  # in the statistics of a chunk of sequences of one step


@arguments
class FactorialHMM(SequenceModel):
    """Factorial hidden Markov model of sequences of vectors, y ~ N(Σ_m W_m[s_m], C), fitted by (private) variational Bayes.

    ``n_chains`` Markov chains move on their own, and their effects on a step add up: appliances on a meter, drugs on a pulse.
    One record is one whole sequence. The fit is structured mean field (Ghahramani and Jordan, 1997): given a sequence, chains
    are independent of each other, and each is exact.

    Parameters
    ----------
    n_chains : int
        M.
    n_components : int
        K, the number of states of each chain.
    startprob_prior, transmat_prior : float or None
        Concentration of the Dirichlet priors; None is 1/K.
    beta_prior : float or None
        How many steps the prior of the effects counts as, which says that there are none. None is 1.
    scale_prior : float or None
        Of C, times ``n_features``, in units of the variance of all steps. None is 0.001.
    inference : {"vb", "em"}
        Variational Bayes, or maximum likelihood by variational EM, which ignores the priors. E-steps of private fits take
        posterior means with either.
    max_iter : int
        Rounds of mean field over the chains of a sequence.
    n_features : int or None
        Columns of every sequence: public. None takes those of X; a private fit to a list of arrays, whose widths may differ,
        needs it.
    max_norm : float or None
        Public; required for privacy. Steps that are longer vectors are scaled down to it.
    max_length : int
        Public. A fit reads the first ``max_length`` steps of a sequence.
    typical_length : int
        Public. Length of a sequence that counts whole; longer ones weigh less.
    privacy : PrivacyBudget, PrivacyPlan or None
        None is a non-private fit, until it has settled.
    schedule : RobbinsMonro, callable or None
        Step sizes of the steps after those, as a function of 2, 3, …. None: see :meth:`step_size`.
    random_state : int, Generator, RandomState or None
        Seeds how states differ at first, and the sampling of non-private fits. Noise is never seeded.

    Attributes
    ----------
    posterior_ : FactorialPosterior
        Of a private fit at the match, if it is accepted: ``draws`` then holds those of "shares" of the states, "start",
        "moves", "means", "offset" and "covariance".
    startprob_, transmat_ : ndarray of shape (M, K), (M, K, K)
        Of the match of a private fit, else posterior means.
    means_ : ndarray of shape (M, K, d)
        Effects of the states of each chain, about their mean over a chain's steps in the long run.
    offset_ : ndarray of shape (d,)
        The mean of all steps in the long run.
    covar_ : ndarray of shape (d, d)
        C.
    privacy_ : PrivacyReport

    Notes
    -----
    *Privacy.*
    Unit: one sequence, of any length; with ``groups``, all sequences of a person. Relation: add or remove one. Released: the
    noisy totals of every step, hence the posterior and the sequences that ``sample`` draws. Public by declaration:
    all constructor arguments. Not covered: choosing any of them by looking at these records; methods that read sequences.

    A step with a missing number, or one that is not finite, is a missing step. A fit finds a local optimum: without privacy
    compare some ``random_state`` by ``score``.

    A private fit is matched to its totals (:meth:`match`), and what is read is the match where it is accepted, for at most 64
    joint states. Simulated sequences are seen by the same mean field as the records. Lengths of sequences, and which steps are
    missing, are taken as independent of the states.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import FactorialHMM
    >>> rng = np.random.default_rng(0)
    >>> on = (rng.random((200, 30, 2)) < 0.1).cumsum(axis=1) % 2                    # two switches
    >>> series = on @ [[1.0, 0.0, 1.0], [0.0, 2.0, 1.0]] + 0.1 * rng.normal(size=(200, 30, 3))
    >>> model = FactorialHMM(2, 2, random_state=1).fit(list(series))
    >>> np.round(np.sort(np.abs(np.diff(model.means_, axis=1)[:, 0]), axis=0), 1)
    array([[0., 0., 1.],
           [1., 2., 1.]])
    """

    n_chains: int = whole(default=2, kw_only=False)
    n_components: int = whole(default=2, kw_only=False)
    startprob_prior: float | None = positive(default=None)
    transmat_prior: float | None = positive(default=None)
    beta_prior: float | None = positive(default=None)
    scale_prior: float | None = positive(default=None)
    inference: str = choice("vb", "em", default="vb")
    max_iter: int = whole(default=5)
    n_features: int | None = None
    max_norm: float | None = None
    max_length: int = whole(default=1000)
    typical_length: int = whole(default=25)
    schedule: Callable[[int], float] | None = function_of_step("PolynomialAveraging()", default=None)

    unit = "one sequence"
    planned_steps = 60
    tolerance = 1e-3
    exact_rows = True
    _unlisted = ("chain_priors",)
    name_of_score = "bound of the log likelihood per step"

    # -- the contract -------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Check all constructor arguments, before the records are read."""
        check_max_norm(self.max_norm, self.is_private, "longer steps are scaled down to it")

    def blocks(self) -> dict[str, Block]:
        """Scales such that a sequence of ``typical_length`` has a norm of about 1, and noise costs little."""
        (M, K), d, T = (self.n_chains, self.n_components), self.n_features_in_, float(self.typical_length)
        kinds = {
            "start": ((M, K), M, 0.1),
            "moves": ((M, K, K), M * T**2 / K, 1.0),
            "both": ((M * K, M * K), M**2 * T**2 / K, 1.0),
            "linear": ((M * K, d), M * T * d, 1.0),
            "second": ((d, d), T * (d**2 + d), 0.5),
        }
        return blocks_of_least_cost(kinds, symmetric=("both", "second"))

    def start(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], FactorialPosterior]:
        """Chains that differ by draws."""
        average = self.initial(rng)
        return average, self._first(rng.standard_normal(average["linear"].shape))

    def phases(self, n_steps: int) -> list[FitPhase]:
        """Steps that find coordinates in which steps of sequences have covariance I: a tenth of a private fit's, and one of
        others. Then come those of the chains."""
        n_first = max(1, n_steps // 10) if self.is_private else 1
        finding = {"update": unchanged, "end": self._whitened, "step_size": plain_average}
        return [
            FitPhase("coordinates", n_first, released=_RELEASED, **finding),
            FitPhase("chains", n_steps - n_first, step_size=self.step_size, released=_RELEASED),
        ]

    def expected_statistics(self, records: Sequences, posterior: FactorialPosterior) -> RecordStatistics:
        return factorial_statistics(self._usable(records.first(self.max_length)), posterior, self.max_iter)

    def to_posterior(self, average, noise_std, previous: FactorialPosterior | None) -> FactorialPosterior:
        """Updates of the chains, from denoised totals; none if noise hides all steps."""
        if previous is None:
            return self._first(average["linear"])
        n_steps = np.trace(average["both"]) / self.n_chains
        if self._is_hidden(n_steps, noise_std):
            return previous
        totals = view(average, noise_std) if self.is_private else average
        added = _ADDED * noise_std["both"] if self.is_private else 0.0
        totals_of_steps = (totals[name] for name in ("both", "linear", "second"))
        emissions = next_emissions(*totals_of_steps, n_steps, self._prior(n_steps), added)
        if self.is_private:
            emissions["scale"] = floored(
                emissions["scale"], max(_LEAST_VARIANCE * n_steps, _noise_in_rest(emissions["mean"], noise_std))
            )
        start, moves = (
            Dirichlet(np.maximum(counts, 0.0) + prior)
            for counts, prior in zip((totals["start"], totals["moves"]), self.chain_priors(), strict=True)
        )
        return replace(previous, start=start, moves=moves, **emissions)

    def step_size(self, t: int) -> float:
        """ρ of the steps t = 1, 2, … of the chains: 1 in the first. Then ``schedule(t)`` if there is one, 4/(t + 3) in a
        private fit, (1 + t)^(-0.6) in a non-private stochastic one, and 1 in a non-private full-batch one, which is textbook
        variational Bayes."""
        return scheduled(self, t, _AVERAGING)

    def default_clip(self) -> float:
        """1: a sequence of ``typical_length`` counts whole."""
        return 1.0

    def max_record_norm(self) -> float:
        """``inf``: whitened steps have no bound."""
        return np.inf

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """Full-batch steps until the chains have settled, at most 300 after the one that finds coordinates."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=301)

    def kept_steps(self, n_steps: int) -> Collection[int]:
        return kept_steps(self, n_steps) if self.n_components**self.n_chains <= MOST_JOINT else []

    def to_match(self) -> Match:
        return self._simulator().match()

    def to_noise_aware_posterior(self) -> FactorialPosterior:
        return self._simulator().matched_states(self.match(), self.last_posterior_)

    def prepare(self, posterior: FactorialPosterior) -> None:
        _ = posterior.chain, posterior.tables

    def default_chunk_size(self) -> int:
        """Steps of a chunk: about 160 MB of statistics of sequences of one step."""
        M, K, d = self.n_chains, self.n_components, self.n_columns
        return int(np.clip(_NUMBERS / (M * K * (M * K + K + d + 2) + d**2), 256, 65_536))

    def chain_priors(self) -> tuple[np.ndarray, np.ndarray]:
        """Concentrations of the priors of first states and moves, shape (M, K) and (M, K, K)."""
        M, K = self.n_chains, self.n_components
        given = (1.0 / K if prior is None else float(prior) for prior in (self.startprob_prior, self.transmat_prior))
        if self.inference == "em":
            given = (1e-12, 1e-12)
        return tuple(np.full(shape, prior) for shape, prior in zip(((M, K), (M, K, K)), given, strict=True))

    def bound(self, records, posterior: FactorialPosterior) -> float:
        """Evidence lower bound of these records and the parameters; bound of the log likelihood with EM."""
        total = float(inferred_chains(self._usable(records), posterior, self.max_iter).bound.sum())
        if self.inference == "em":
            return total
        for part, prior in zip((posterior.start, posterior.moves), self.chain_priors(), strict=True):
            total -= float(np.sum(part.kl(Dirichlet(prior))))
        return total - posterior.divergence_of_emissions(self._prior(0.0))

    def typical_records(self, n_records: int, n_features: int | None, rng: np.random.Generator) -> tuple[Any, Any]:
        (M, K), d = (self.n_chains, self.n_components), typical.n_columns(self, self.n_features or n_features)
        offsets = offsets_of(np.clip(rng.poisson(self.typical_length, n_records), 1, self.max_length))
        values, even = np.zeros((offsets[-1], d)), np.full(K, 1.0 / K)
        for _ in range(M):
            states = drawn_states(even, typical.moves(K), offsets, rng.random(offsets[-1]))
            values += typical.vectors(self._ball() / M, states, K, d, rng)
        return Sequences(values, offsets), None

    # -- users --------------------------------------------------------------------------------------------------

    def predict_proba(self, X, lengths=None) -> np.ndarray | pd.DataFrame:
        """Probabilities of the states of each chain at each step, shape (n_steps, M, K); in a data frame M * K columns."""
        shares = self._inferred(self.sequences_of(X, lengths)).shares
        names = [f"chain {m}, {state}" for m in range(self.n_chains) for state in state_names(self.n_components)]
        return step_frame(X, shares.reshape(len(shares), self.n_chains, self.n_components), names)

    def predict(self, X, lengths=None) -> np.ndarray | pd.DataFrame:
        """The most probable path of each chain (Viterbi) given the others' expected states, shape (n_steps, M)."""
        records, K, posterior = self.sequences_of(X, lengths), self.n_components, self._at_means()
        inference = self._inferred(records)
        logs = [np.log(np.maximum(probabilities, _LEAST)) for probabilities in posterior.chain]
        states = np.empty((len(records.values), self.n_chains), np.int64)
        path, log_probability = np.empty(len(states), np.int64), np.empty(len(records))
        for m in range(self.n_chains):
            log_likely = np.ascontiguousarray(inference.log_likely[:, m * K : (m + 1) * K])
            kernels.best_paths(records.offsets, logs[0][m], logs[1][m], log_likely, path, log_probability)
            states[:, m] = path
        return step_frame(X, states, [f"chain {m}" for m in range(self.n_chains)])

    def sample(
        self, n_samples: int = 1, random_state: RandomStateLike = None, *, lengths: object
    ) -> tuple[Sequences, np.ndarray]:
        """Synthetic sequences of these lengths, and their states, shape (n_steps, M)."""
        check_is_fitted(self, "last_posterior_")
        check_integer("n_samples", n_samples, 0)
        rng, lengths = as_generator(random_state), np.asarray(lengths, np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        states = np.empty((offsets[-1], self.n_chains), np.int64)
        start, moves, chains = self.startprob_, self.transmat_, np.arange(self.n_chains)
        for t in range(int(lengths.max(initial=0))):  # all sequences at once
            here = offsets[:-1][lengths > t] + t
            draws = rng.random((len(here), self.n_chains))
            states[here] = levels_at(draws, start if t == 0 else moves[chains, states[here - 1]])
        noise = rng.standard_normal((len(states), self.n_features_in_))
        effects = self.means_[chains, states].sum(axis=1)
        return Sequences(self.offset_ + effects + noise @ np.linalg.cholesky(self.covar_).T, offsets), states

    @property
    def startprob_(self) -> np.ndarray:
        """Probabilities of the first state of each chain, shape (M, K)."""
        check_is_fitted(self, "last_posterior_")
        return self.posterior_.means_of_chain()[0]

    @property
    def transmat_(self) -> np.ndarray:
        """Probabilities of the next state, a row for each state, shape (M, K, K)."""
        check_is_fitted(self, "last_posterior_")
        return self.posterior_.means_of_chain()[1]

    @property
    def means_(self) -> np.ndarray:
        """Effects of the states, shape (M, K, d); a chain's are 0 on average in the long run."""
        check_is_fitted(self, "last_posterior_")
        effects = self._effects(self.posterior_)
        return effects - self._long_run()[:, None] @ effects

    @property
    def offset_(self) -> np.ndarray:
        """The mean of a step in the long run, shape (d,)."""
        check_is_fitted(self, "last_posterior_")
        effects = self._long_run()[:, None] @ self._effects(self.posterior_)
        return self.posterior_.centre + effects.sum(axis=(0, 1))

    @property
    def covar_(self) -> np.ndarray:
        """Covariance of a step given all states, shape (d, d)."""
        check_is_fitted(self, "last_posterior_")
        back = np.linalg.inv(self.posterior_.whitening)
        return back @ (self.posterior_.scale / self.posterior_.dof) @ back.T

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """The states of all chains, in their order.

        Parameters
        ----------
        level : float
            Of the intervals.

        Returns
        -------
        pandas.DataFrame
            A row for each state of each chain: its share of the steps, and its "lower" and "upper" limit where intervals know
            the noise; how probable it is as the first one, how many steps a stay takes, and its effect on each column, with
            limits.

        Warns
        -----
        PrivacyWarning
            If there are no limits in a private fit: it says why.
        """
        pd = imported("pandas", "summary()")
        check_is_fitted(self, "last_posterior_")
        warn_of_no_intervals(self)
        posterior, effects = self.posterior_, self.means_
        visits = posterior.start.concentration + posterior.moves.concentration.sum(axis=1)
        stays = 1.0 / np.maximum(1.0 - np.diagonal(self.transmat_, axis1=1, axis2=2), 1e-12)
        limits = {name: posterior.draws[name].interval(level) for name in ("shares", "means") if posterior.draws}
        table = {"share": visits / visits.sum(axis=1, keepdims=True)}
        table |= dict(zip(("lower", "upper"), limits.get("shares", ()), strict=False))
        table |= {"first": self.startprob_, "steps of a stay": np.minimum(stays, float(self.max_length))}
        for j, name in enumerate(self.column_names()):
            table[f"effect on {name}"] = effects[:, :, j]
            for side, bounds in zip(("lower", "upper"), limits.get("means", ()), strict=False):
                table[f"{side} effect on {name}"] = bounds[:, :, j]
        chains = [f"chain {m}" for m in range(self.n_chains)]
        index = pd.MultiIndex.from_product([chains, state_names(self.n_components)])
        table = pd.DataFrame({name: values.ravel() for name, values in table.items()}, index)
        return table.rename_axis(columns=whose(getattr(self, "privacy_", None)))

    def describe(self) -> dict:
        return described(
            self,
            "hence the posterior of all of them",
            f"max_norm = {self.max_norm or np.inf:g}: longer steps are scaled down to it",
            f"number of columns: {self.n_features_in_}; {declared_of_steps(self)}",
            "n_chains, n_components, priors and all other constructor arguments",
        )

    # -- comparisons and helpers ----------------------------------------------------------------------------------

    def posterior_parts(self, posterior) -> list[Part]:
        """First states and moves of the chains, whose states ascend in the column that their chain moves most."""
        if not isinstance(posterior, FactorialPosterior):
            return super().posterior_parts(posterior)
        effects, states = self._effects(posterior), state_names(self.n_components)
        order = np.array([effect[:, np.ptp(effect, axis=0).argmax()].argsort() for effect in effects])
        chains = np.arange(len(order))[:, None]
        of_start, of_moves = (chains, order), (chains[:, :, None], order[:, :, None], order[:, None])
        start, moves = (
            Draws(draws.draws[:, *of], draws.mean[of])
            if (draws := posterior.draws.get(name))
            else Dirichlet(getattr(posterior, name).concentration[of])
            for name, of in (("start", of_start), ("moves", of_moves))
        )
        return [
            Part("start", start, partial(last_of, states), states),
            Part("moves", moves, partial(indexed, "moves"), states),
        ]

    def components(self, posterior: FactorialPosterior) -> tuple[np.ndarray, str]:
        """Chains are matched by the covariances of their effects."""
        effects = self._effects(posterior)
        effects = effects - effects.mean(axis=1, keepdims=True)
        return np.einsum("mki,mkj->mij", effects, effects).reshape(self.n_chains, -1), "euclidean"

    def in_order(self, posterior: FactorialPosterior, order: np.ndarray) -> FactorialPosterior:
        return posterior.in_order(order)

    def _effects(self, posterior: FactorialPosterior) -> np.ndarray:
        """Shape (M, K, d)."""
        effects = np.linalg.solve(posterior.whitening, posterior.mean)
        return np.ascontiguousarray(effects.T).reshape(self.n_chains, self.n_components, -1)

    def _long_run(self) -> np.ndarray:
        """Share of the steps that each chain spends in each state, shape (M, K)."""
        return long_run(self.transmat_)

    def _inferred(self, records: Sequences) -> Inferred:
        return inferred_chains(self._usable(records), self._at_means(), self.max_iter)

    def _at_means(self) -> FactorialPosterior:
        check_is_fitted(self, "last_posterior_")
        return replace(self.posterior_, plug_in=True)

    def _log_likelihood(self, records: Sequences) -> np.ndarray:
        return self._inferred(records).bound

    def _first(self, draws: np.ndarray) -> FactorialPosterior:
        """Chains that differ by draws, in coordinates in which the ball of ``max_norm`` has radius 1."""
        (M, K), d = (self.n_chains, self.n_components), self.n_features_in_
        of_start, of_moves = self.chain_priors()
        stays = np.full((M, K, K), (1.0 - _STAYS) / K) + _STAYS * np.eye(K)
        means = draws.reshape(M, K, d)
        means = np.sqrt((1.0 - _UNEXPLAINED) / M) * (means - means.mean(axis=1, keepdims=True))
        dof = float(d + 1)
        return FactorialPosterior(
            start=Dirichlet(of_start + 1.0), moves=Dirichlet(of_moves + K * stays), plug_in=True,
            mean=np.ascontiguousarray(means.reshape(M * K, d).T), spread=np.eye(M * K), dof=dof,
            scale=_UNEXPLAINED * dof * np.eye(d), centre=np.zeros(d), whitening=np.eye(d) / self._ball(),
        )  # fmt: skip

    def _whitened(self, average, noise_std, previous: FactorialPosterior) -> FactorialPosterior:
        """The same in coordinates in which all steps have mean 0 and covariance I; unless noise hides all steps."""
        d, n_steps = self.n_features_in_, np.trace(average["both"]) / self.n_chains
        if self._is_hidden(n_steps, noise_std) or not n_steps > 0.0:
            return previous
        mean = average["linear"].sum(axis=0) / (self.n_chains * n_steps)
        cov = average["second"] / n_steps - np.outer(mean, mean)
        noise = np.sqrt(d) * noise_std["second"] / n_steps if self.is_private else 0.0
        lower = np.linalg.cholesky(floored(cov, max(noise, 1e-300), 1e-12))
        lower = np.linalg.solve(previous.whitening, lower)
        centre = previous.centre + np.linalg.solve(previous.whitening, mean)
        return replace(previous, centre=centre, whitening=np.tril(np.linalg.inv(lower)), plug_in=plugs_in(self))

    def _prior(self, n_steps: float) -> Prior:
        """With EM next to none."""
        if self.inference == "em":
            return Prior(_NO_PRIOR * max(n_steps, 1.0), 0.0, 1e-12)
        beta = 1.0 if self.beta_prior is None else float(self.beta_prior)
        scale = 1e-3 if self.scale_prior is None else float(self.scale_prior)
        return Prior(beta, float(self.n_features_in_), scale)

    def _is_hidden(self, n_steps: float, noise_std) -> bool:
        return self.is_private and n_steps < _VISIBLE * noise_std["both"]

    def _simulator(self) -> FactorialSimulator:
        return FactorialSimulator.of(self, self._prior(0.0))

    def _ball(self) -> float:
        return 1.0 if self.max_norm is None else float(self.max_norm)

    def _usable(self, records: Sequences) -> Sequences:
        """Steps no longer than ``max_norm``."""
        values = np.require(records.values, np.float64, ["C"])
        if self.max_norm is not None:
            values = scaled_rows(values, float(self.max_norm))
        return Sequences(values, records.offsets)


def _noise_in_rest(mean: np.ndarray, noise_std: dict[str, float]) -> float:
    """About the largest eigenvalue of the noise in what effects ``mean`` (d, R) leave unexplained."""
    size = float(np.linalg.norm(mean, 2))
    parts = (noise_std["second"], size * noise_std["linear"], size**2 * noise_std["both"])
    return 2.0 * float(np.sqrt(len(mean)) * np.linalg.norm(parts))
