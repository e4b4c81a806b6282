"""Switching linear dynamical system: regimes, each with moves of its own."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from vips._support.arguments import arguments, whole
from vips._support.validation import check_integer
from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.core.phases import FitPhase
from vips.core.plan import PrivacyPlan
from vips.core.sums import Block, RecordStatistics
from vips.data._sequences import Sequences
from vips.data._step_index import step_frame
from vips.expfam import DiagonalGaussian
from vips.models._sequences import state_names
from vips.models.components.matching.simulator import levels_at
from vips.models.dynamics.contract import DynamicsModel
from vips.models.dynamics.posterior import Dynamics, DynamicsPosterior
from vips.models.dynamics.statistics import moment_blocks
from vips.models.dynamics.switching_posterior import (
    Inferred,
    SwitchingPosterior,
    inferred,
    next_switching,
    repaired,
    switching_blocks,
    switching_statistics,
    view,
)
from vips.parts import Part, in_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["SwitchingLinearDynamicalSystem"]

_TINY = 1e-300
_SCALE = 0.9  # norm of the statistics of the states in a step of a sequence, in units of that of its moments


@arguments
class SwitchingLinearDynamicalSystem(DynamicsModel):
    """Series that a hidden state drives, whose moves change with a hidden regime: x' ~ N(A_s x, Q_s), y ~ N(C x + d, diag R).

    One record is one whole sequence. The fit is variational EM: structured mean field between the states and the chain of the
    regimes. The first steps release moments of pairs of steps, as those of :class:`LinearDynamicalSystem`, and regimes begin
    near the system that these give. A private fit needs tens of thousands of sequences: see docs/dynamics.md.

    Parameters
    ----------
    n_components : int
        Entries of the state.
    n_regimes : int
    max_iter : int
        Rounds of mean field for a sequence.
    n_lags, n_features, max_norm, max_length, typical_length
        See :class:`LinearDynamicalSystem`.
    privacy : PrivacyBudget, PrivacyPlan or None
        None is 100 steps of EM with all records. The first sixth of a private plan's steps releases moments: write about 30.
    schedule : RobbinsMonro, callable or None
        Step sizes of EM, as a function of 2, 3, …. None: see :meth:`step_size`.
    random_state : int, Generator, RandomState or None
        Seeds how regimes differ at first, and the sampling of records.

    Attributes
    ----------
    transition_matrices_, transition_covariances_ : ndarray of shape (n_regimes, K, K)
        A and Q of each regime.
    startprob_, transmat_ : ndarray of shape (n_regimes,), (n_regimes, n_regimes)
        Of the first regime, and of the next one.
    observation_matrix_, observation_offset_, observation_variance_ : ndarray
        As of :class:`LinearDynamicalSystem`.
    posterior_ : SwitchingPosterior
    privacy_ : PrivacyReport

    Notes
    -----
    *Privacy.*
    Unit: one sequence, of any length; with ``groups``, all sequences of a person. Relation: add or remove one. Released: the
    noisy totals of every step, hence the system and the sequences that ``sample`` draws. Public by declaration: all
    constructor arguments. Not covered: choosing any of them by looking at these records; methods that read sequences.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import SwitchingLinearDynamicalSystem
    >>> series = list(np.random.default_rng(0).normal(size=(12, 20, 3)).cumsum(axis=1))
    >>> model = SwitchingLinearDynamicalSystem(1, n_regimes=2, random_state=0).fit(series)
    >>> model.predict(series[:1]).shape
    (20,)
    """

    n_regimes: int = whole(default=2, kw_only=False)
    max_iter: int = whole(default=10)

    settings_of_meaning = ("n_components", "n_regimes")
    planned_steps = 30
    tolerance = None  # coordinates of states drift, where nothing else moves
    exact_rows = True
    _unlisted = ("inference", "loadings_prior", "transition_prior")
    name_of_score = "bound of the log likelihood per step"

    # -- the contract -------------------------------------------------------------------------------------------

    def blocks(self) -> dict[str, Block]:
        # a typical sequence then has about the same norm in both kinds of steps
        scale = _SCALE * self.typical_length if self.is_private else 1.0
        regime_blocks = switching_blocks(self.n_features_in_, self.n_components, self.n_regimes, scale)
        return moment_blocks(self.n_features_in_, self._n_lags(), self._ball() ** 2) | regime_blocks

    def start(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], SwitchingPosterior]:
        """An idle system, with draws that separate the regimes."""
        average, p = self.initial(rng), self.n_features_in_
        idle = DynamicsPosterior(Dynamics.idle(self.n_components, np.zeros(p), np.ones(p)))
        return average, SwitchingPosterior.of_system(idle, rng.standard_normal(average["cross"].shape))

    def phases(self, n_steps: int) -> list[FitPhase]:
        """Moments, in a sixth of the steps of a private fit and in one of others: regimes begin around their system. Then come
        steps of EM."""
        (moments, *_), n_first = super().phases(n_steps), max(1, n_steps // 6) if self.is_private else 1
        moments = replace(moments, n_steps=n_first, end=self._regimes_of_moments)
        blocks = [name for name in self.blocks() if name not in moments.blocks]
        released = "noisy totals of states, regimes and columns"
        states = FitPhase("states", n_steps - n_first, blocks=blocks, step_size=self.step_size, released=released)
        return [moments, states]

    def _regimes_of_moments(self, average, noise_std, previous: SwitchingPosterior) -> SwitchingPosterior:
        """Regimes around the system of the moments."""
        return SwitchingPosterior.of_system(self._of_moments(average, noise_std), previous.draws)

    def expected_statistics(self, records: Sequences, posterior: SwitchingPosterior) -> RecordStatistics:
        return switching_statistics(self._usable(records.first(self.max_length)), posterior, self.max_iter)

    def to_posterior(self, average, noise_std, previous: SwitchingPosterior | None) -> SwitchingPosterior:
        """The M-step, after which noisy parameters are repaired."""
        if previous is None:
            previous = self.start(np.random.default_rng(0))[1]
        if not self.is_private:
            return next_switching(average, previous)
        return repaired(next_switching(view(average, noise_std), previous))

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """One step for the moments, and 100 full-batch steps of EM."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=101)

    def max_record_norm(self) -> float:
        """``inf``: states have no bound."""
        return np.inf

    def bound(self, records, posterior: SwitchingPosterior) -> float:
        """Evidence lower bound of these records."""
        return float(inferred(self._usable(records), posterior, self.max_iter).bound.sum())

    # -- users --------------------------------------------------------------------------------------------------

    def predict_proba(self, X, lengths=None) -> np.ndarray | pd.DataFrame:
        """Probabilities of the regimes at each step, shape (n_steps, n_regimes)."""
        return step_frame(X, self._inferred(X, lengths).shares, self._regime_names())

    def predict(self, X, lengths=None) -> np.ndarray | pd.DataFrame:
        """The most probable regime of each step, shape (n_steps,)."""
        return step_frame(X, self._inferred(X, lengths).shares.argmax(axis=1), ["regime"])

    def plot_sequences(self, X, lengths=None, ax: Axes | None = None) -> Axes:
        """A picture of these sequences, coloured by their most probable regimes. It shows these records, and is not private.

        Returns
        -------
        matplotlib.axes.Axes
        """
        from vips.models._pictures import plot_sequences

        return plot_sequences(self, X, lengths, self._regime_names(), ax)

    def smooth(self, X, lengths=None) -> tuple[np.ndarray | pd.DataFrame, np.ndarray]:
        """States given whole sequences: means, shape (n_steps, K), and covariances, shape (n_steps, K, K), an array."""
        states = self._inferred(X, lengths)
        return step_frame(X, states.mean, state_names(self.n_components)), states.cov

    def transform(self, X, lengths=None) -> np.ndarray | pd.DataFrame:
        """Means of the states given whole sequences, shape (n_steps, K)."""
        return self.smooth(X, lengths)[0]

    def sample(
        self, n_samples: int = 1, random_state: RandomStateLike = None, *, lengths: object
    ) -> tuple[Sequences, np.ndarray, np.ndarray]:
        """Synthetic sequences of these lengths, their states (n_steps, K), and their regimes (n_steps,)."""
        of, shared = self.posterior_, self._system()
        check_integer("n_samples", n_samples, 0)
        rng = as_generator(random_state)
        lengths = np.asarray(lengths, np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        states, regimes = np.empty((offsets[-1], self.n_components)), np.empty(offsets[-1], np.int64)
        roots, first = np.linalg.cholesky(of.moves_cov), np.linalg.cholesky(shared.start_cov)
        for t in range(int(lengths.max(initial=0))):  # all sequences at once
            here = offsets[:-1][lengths > t] + t
            p = of.regime_start if t == 0 else of.regime_moves[regimes[here - 1]]
            regimes[here] = levels_at(rng.random(len(here)), p)
            draws, now = rng.standard_normal((len(here), self.n_components)), regimes[here]
            if t == 0:
                states[here] = shared.start + draws @ first.T
            else:
                moved = np.einsum("nij,nj->ni", of.moves[now], states[here - 1])
                states[here] = moved + np.einsum("nij,nj->ni", roots[now], draws)
        noise = rng.standard_normal((len(states), len(shared.offset))) * np.sqrt(shared.noise_variance)
        return Sequences(states @ shared.loadings.T + shared.offset + noise, offsets), states, regimes

    def _regime_names(self) -> list[str]:
        return [f"regime {k}" for k in range(self.n_regimes)]

    @property
    def transition_matrices_(self) -> np.ndarray:
        """A of each regime, shape (n_regimes, K, K)."""
        return self.posterior_.moves

    @property
    def transition_covariances_(self) -> np.ndarray:
        """Q of each regime, shape (n_regimes, K, K)."""
        return self.posterior_.moves_cov

    @property
    def startprob_(self) -> np.ndarray:
        """Probabilities of the first regime, shape (n_regimes,)."""
        return self.posterior_.regime_start

    @property
    def transmat_(self) -> np.ndarray:
        """Probabilities of the next regime, shape (n_regimes, n_regimes)."""
        return self.posterior_.regime_moves

    # -- comparisons and helpers ----------------------------------------------------------------------------------

    def posterior_parts(self, posterior) -> list[Part]:
        """d and log R: Gaussian, with the variances that they have for known states. They do not depend on the coordinates of
        states, nor on the order of regimes."""
        if not isinstance(posterior, SwitchingPosterior):
            return super().posterior_parts(posterior)
        of, n, columns = posterior.dynamics, max(posterior.n_steps, 1.0), self.column_names()
        seen = np.vstack([of.offset, np.log(of.noise_variance)])
        variances = np.vstack([of.noise_variance, np.full(len(columns), 2.0)]) / n
        label = partial(in_table, ["offset", "log noise variance"], columns)
        return [Part("emissions", DiagonalGaussian(seen, 1.0 / variances), label, columns)]

    def _system(self) -> Dynamics:
        return self.posterior_.dynamics

    def _numbers_of_one(self) -> int:
        p = self.n_columns
        regime_blocks = switching_blocks(p, self.n_components, self.n_regimes, 1.0)
        return super()._numbers_of_one() + sum(math.prod(block.shape) for block in regime_blocks.values())

    def _inferred(self, X, lengths=None) -> Inferred:
        return inferred(self._read(X, lengths), self.posterior_, self.max_iter)

    def _log_likelihood(self, records: Sequences) -> np.ndarray:
        return self._inferred(records).bound
