"""The contract of factorial hidden Markov models: what the engine calls."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from vips._support.arguments import arguments, choice, function_of_step, positive, whole
from vips._support.validation import check_max_norm
from vips.core.exact.rowwise import scaled_rows
from vips.core.phases import FitPhase, plain_average, unchanged
from vips.core.plan import PrivacyPlan
from vips.core.records.ragged import offsets_of
from vips.core.step_size import PolynomialAveraging
from vips.core.sums import Block, RecordStatistics
from vips.data._sequences import Sequences
from vips.expfam import Dirichlet
from vips.models import _typical as typical
from vips.models._definite import floored
from vips.models._scales import blocks_of_least_cost
from vips.models._sequences import SequenceModel
from vips.models.components.matching.match import Match
from vips.models.components.matching.steps import kept_steps
from vips.models.markov.factorial_inference import factorial_statistics, inferred_chains
from vips.models.markov.factorial_matching import MOST_JOINT, FactorialSimulator
from vips.models.markov.factorial_posterior import FactorialPosterior, Prior, next_emissions, view
from vips.models.markov.matching import drawn_states

__all__ = ["FactorialChainModel"]

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
class FactorialChainModel(SequenceModel):
    """The methods that the engine calls. :class:`~vips.FactorialHMM` documents the arguments."""

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
    _unlisted = ("chain_priors", "plugs_in")
    name_of_score = "bound of the log likelihood per step"

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
        return self.scheduled(t, _AVERAGING)

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

    # -- helpers ----------------------------------------------------------------------------------------------------

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
        return replace(previous, centre=centre, whitening=np.tril(np.linalg.inv(lower)), plug_in=self.plugs_in())

    def _prior(self, n_steps: float) -> Prior:
        """With EM next to none."""
        if self.inference == "em":
            return Prior(_NO_PRIOR * max(n_steps, 1.0), 0.0, 1e-12)
        beta = 1.0 if self.beta_prior is None else float(self.beta_prior)
        scale = 1e-3 if self.scale_prior is None else float(self.scale_prior)
        return Prior(beta, float(self.n_features_in_), scale)

    def plugs_in(self) -> bool:
        """Whether E-steps take posterior means."""
        return self.is_private or self.inference == "em"

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
