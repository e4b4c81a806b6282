"""The contract of linear dynamical systems: what the engine calls.

Fits without privacy begin at a system that lagged moments of the first step give, and go on with EM. A private fit releases
these moments, and everything else is computed from them: noise in steps of EM costs more than it gains (docs/dynamics.md).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np

from vips._support.arguments import arguments, function_of_step, whole
from vips._support.validation import check_max_norm
from vips.core.contract import scheduled
from vips.core.phases import FitPhase, plain_average, unchanged
from vips.core.plan import PrivacyPlan
from vips.core.step_size import PolynomialAveraging
from vips.core.sums import Block, Joint, RecordStatistics
from vips.data._sequences import Sequences
from vips.models._sequences import SequenceModel, declared_of_steps
from vips.models.dynamics import moments
from vips.models.dynamics.posterior import Dynamics, DynamicsPosterior
from vips.models.dynamics.smoothing import usable
from vips.models.dynamics.start import system_of
from vips.models.dynamics.statistics import moment_blocks, moment_statistics, state_blocks, state_statistics
from vips.models.dynamics.update import next_dynamics
from vips.models.dynamics.variational import SystemPrior, divergence, expected_states, next_system, started
from vips.report.words import described

__all__ = ["DynamicsModel"]

# Share of `max_norm` that the constant has in a step.
_CONSTANT_SHARE = 0.25
_TYPICAL = 0.4  # norm of a typical sequence, in units of its length and of `max_norm` squared
_LEAST_LAGS = 5
_NUMBERS = 2e7  # in the statistics of a chunk of sequences of one step
_EXACT = 1e-6  # of a variance, without noise
_STEPS_OF_EM = 500  # at most
_AVERAGING = PolynomialAveraging(power=2.0)


@arguments
class DynamicsModel(SequenceModel):
    """The methods that the engine calls. :class:`~vips.LinearDynamicalSystem` documents the arguments."""

    n_components: int = whole(default=2, kw_only=False)
    n_lags: int | None = whole(default=None)
    n_features: int | None = None
    max_norm: float | None = None
    max_length: int = whole(default=1000)
    typical_length: int = whole(default=25)
    schedule: Callable[[int], float] | None = function_of_step("RobbinsMonro()", default=None)

    unit = "one sequence"
    exact_rows = True
    _unlisted = ("constant",)
    tolerance = 1e-3
    planned_steps = 1  # every step would release the same moments
    inference, transition_prior, loadings_prior = "em", 1.0, 0.01  # of models without these arguments

    def check_parameters(self) -> None:
        """Check all constructor arguments, before the records are read."""
        if self.inference == "vb" and self.is_private:
            raise ValueError(
                "`inference='vb'` reads the records in every step, but a private fit releases moments once and computes the "
                "system from them. Write inference='em', or leave `privacy` out."
            )
        check_max_norm(self.max_norm, self.is_private, "longer steps are scaled down to it")

    def check_features(self) -> None:
        super().check_features()
        least = self._least_lags()
        if self._n_lags() < least:
            raise ValueError(
                f"`n_lags` must be at least {least} to tell {self.n_components} states from {self.n_features_in_} column(s), "
                f"got {self.n_lags}."
            )

    def blocks(self) -> dict[str, Block]:
        blocks = moment_blocks(self.n_features_in_, self._n_lags(), self._ball() ** 2)
        return blocks if self.is_private else blocks | state_blocks(self.n_features_in_, self.n_components)

    def start(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], DynamicsPosterior]:
        """The system of no moments."""
        average = self.initial(rng)
        return average, self._system_of_moments(average, dict.fromkeys(average, 0.0), None)

    def phases(self, n_steps: int) -> list[FitPhase]:
        """Moments, from which the system is computed: in all steps of a private fit, which see the same moments, and in the
        first one of others. Then come steps of EM."""
        n_first = n_steps if self.is_private else 1
        lags = self._n_lags()
        moments = FitPhase(
            "moments",
            n_first,
            blocks=list(moment_blocks(self.n_features_in_, lags, 1.0)),
            statistics="_moment_statistics",
            update=unchanged,
            end=self._system_of_moments,
            step_size=plain_average,  # moments depend on no update
            released=f"noisy moments of the columns, at lags of up to {lags} steps and in the first {lags + 1}, and noisy "
            "numbers of steps and of sequences",
        )
        if self.is_private:
            return [moments]
        states = list(state_blocks(self.n_features_in_, self.n_components))
        released = "totals of states and columns"
        return [moments, FitPhase("states", n_steps - 1, blocks=states, step_size=self.step_size, released=released)]

    def _moment_statistics(self, records: Sequences, posterior) -> Joint:
        """Lagged moments of what is seen."""
        return moment_statistics(self._usable(records.first(self.max_length)), self._n_lags(), self.constant())

    def expected_statistics(self, records: Sequences, posterior: DynamicsPosterior) -> RecordStatistics:
        return state_statistics(self._usable(records.first(self.max_length)), posterior)

    def _system_of_moments(self, average, noise_std, previous: DynamicsPosterior | None) -> DynamicsPosterior:
        """The system that has these moments."""
        posterior = self._of_moments(average, noise_std)
        return started(posterior, self._prior()) if self.inference == "vb" else posterior

    def to_posterior(self, average, noise_std, previous: DynamicsPosterior | None) -> DynamicsPosterior:
        """The M-step, or its Bayesian form."""
        if previous is None:
            return self._system_of_moments(average, noise_std, previous)
        if self.inference == "vb":
            return next_system(average, previous, self._prior())
        n, n_steps = average["counts"]
        return DynamicsPosterior(next_dynamics(average, previous.dynamics), float(n), float(n_steps))

    def step_size(self, t: int) -> float:
        """ρ of the steps t = 1, 2, … of EM: 1 in the first. Then ``schedule(t)`` if there is one, 3/(t + 2) in a private fit of
        regimes, (1 + t)^(-0.6) with sampled records, and 1 with all of them, which is textbook EM."""
        return scheduled(self, t, _AVERAGING)

    def default_clip(self) -> float:
        """0.4 ``typical_length``, the norm of so many steps of about 0.6 ``max_norm``, in units of its square."""
        return _TYPICAL * self.typical_length if self.is_private else np.inf

    def max_record_norm(self) -> float:
        """Norm of ``max_length`` equal steps of norm ``max_norm``; ``inf`` without one."""
        if self.max_norm is None or not self.is_private:
            return np.inf
        w = self._n_lags() + 1
        step, opening = 1.0 + _CONSTANT_SHARE**2, min(w, self.max_length) / self.blocks()["opening"].scale
        return float(step * np.hypot(self.max_length * np.sqrt(w), opening * self._ball() ** 2)) * (1.0 + 1e-8)

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """One step for the moments, and full-batch steps of EM until the system has settled, at most 500."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=1 + _STEPS_OF_EM)

    def default_chunk_size(self) -> int:
        """Steps of a chunk: about 160 MB of statistics of sequences of one step."""
        return int(np.clip(_NUMBERS / self._numbers_of_one(), 256, 65_536))

    def _numbers_of_one(self) -> int:
        """In the statistics of one sequence, and about as many in what they are computed from."""
        p, K, w = self.n_columns, self.n_components, self._n_lags() + 1
        return w * (2 * p) ** 2 + 2 * p * w + p * (K + 1) ** 2

    def describe(self) -> dict:
        return described(
            self,
            "hence the posterior",
            f"max_norm = {self._ball() if self.max_norm else np.inf:g}: longer steps are scaled down to it",
            f"number of columns: {self.n_features_in_}; {declared_of_steps(self)}",
            "n_components and all other constructor arguments",
        )

    def bound(self, records, posterior: DynamicsPosterior) -> float:
        """Log likelihood of these records with EM, evidence lower bound of records and parameters with variational Bayes; for
        non-private fits and tests."""
        total = float(expected_states(self._usable(records), posterior).log_likelihood.sum())
        return total if posterior.uncertainty is None else total - divergence(posterior, self._prior())

    # -- users --------------------------------------------------------------------------------------------------

    @property
    def observation_matrix_(self) -> np.ndarray:
        """C, shape (n_features, K)."""
        return self._system().loadings

    @property
    def observation_offset_(self) -> np.ndarray:
        """d, shape (n_features,)."""
        return self._system().offset

    @property
    def observation_variance_(self) -> np.ndarray:
        """Diagonal of R, shape (n_features,)."""
        return self._system().noise_variance

    # -- helpers ------------------------------------------------------------------------------------------------

    @abstractmethod
    def _system(self) -> Dynamics:
        """The fitted system, or what regimes share of it."""

    def _prior(self) -> SystemPrior:
        return SystemPrior(float(self.transition_prior), float(self.loadings_prior))

    def _of_moments(self, average, noise_std) -> DynamicsPosterior:
        p, K = self.n_features_in_, self.n_components
        lagged_moments = moments.of_totals(average, noise_std, self.constant())
        if lagged_moments is None:
            nothing = Dynamics.idle(K, np.zeros(p), np.full(p, self._ball() ** 2 / p))
            return DynamicsPosterior(nothing, 0.0, 0.0)
        of = system_of(lagged_moments, K) if self.is_private else system_of(lagged_moments, K, _EXACT)
        return DynamicsPosterior(of, lagged_moments.n_sequences, lagged_moments.n_steps)

    def _read(self, X, lengths=None) -> Sequences:
        """Sequences as a user passes them; steps are not scaled down."""
        records = self.sequences_of(X, lengths)
        values = np.array(records.values, dtype=np.float64, order="C")
        values[~np.isfinite(values)] = np.nan
        return Sequences(values, records.offsets)

    def _usable(self, records: Sequences) -> Sequences:
        return usable(records, np.inf if self.max_norm is None else float(self.max_norm))

    def _ball(self) -> float:
        return 1.0 if self.max_norm is None else float(self.max_norm)

    def constant(self) -> float:
        """c, of the steps' vectors z."""
        return _CONSTANT_SHARE * self._ball() / np.sqrt(self.n_features_in_)

    def _n_lags(self) -> int:
        least = max(_LEAST_LAGS, self._least_lags() + 2)
        return least if self.n_lags is None else self.n_lags

    def _least_lags(self) -> int:
        """Lags for a Hankel matrix of rank ``n_components``."""
        return 2 * -(-self.n_components // self.n_columns) - 1
