"""The contract between a model and the engine: what a fit asks of a model.

A model answers two questions: what are these records' expected statistics, given the current posterior; and what valid
posterior does a (noisy) average of totals give. The engine does sampling, clipping, noise and accounting. What comparisons and
reports ask is in ``parts.py``; what a user calls, in ``model.py``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from vips._support.arguments import check_arguments
from vips.core.budget import PrivacyBudget, check_privacy
from vips.core.phases import FitPhase, phases_of, released_in, weights_of
from vips.core.plan import PrivacyPlan
from vips.core.records.partition import Records, rows_without
from vips.core.records.source import DataSource
from vips.core.step_size import RobbinsMonro
from vips.core.stream_plan import StreamPlan
from vips.core.sums import Block, RecordStatistics

__all__ = [
    "Contract", "completed_plan", "moves_averages", "plan_of_release", "released", "scheduled", "stated_plan",
    "weighs_records",
]  # fmt: skip

# Steps that are kept to tell whether a fit has settled, and the most numbers of one.
_MOST_KEPT, _MOST_NUMBERS = 24, 2_000


class Contract(ABC):
    """What the engine asks of a model. ``blocks``, ``expected_statistics`` and ``to_posterior`` have no default.

    During a fit, the number of columns is ``self.n_features_in_``.

    Privacy
    -------
    See :class:`~vips.PrivacyPlan`. The guarantee rests on three promises of a subclass, which ``tests/laws`` checks for
    the models of this package: a record's statistics depend on that record and the posterior only; ``norms`` never
    under-reports; ``blocks``, ``start`` and ``phases`` do not depend on the data.
    """

    n_features_in_: int
    random_state: Any
    chunk_size: int
    privacy_: Any  # the report
    privacy: PrivacyBudget | PrivacyPlan | StreamPlan | None
    schedule: Callable[[int], float] | None = None  # of models that have one
    on_invalid = "drop"  # of models that have it
    max_length: int | None = None  # steps of a sequence that are read
    unit: str  # see `vips.parts.SelfDescription`, as the next one
    needs_labels: bool
    _fitting_plan: PrivacyPlan | None = None  # see `use_plan`
    # Whether the model ignores labels, both those passed to `fit` and those in a data source.
    ignores_labels = False
    # Whether the model needs one label per record. A partition with another shape of y is refused, whatever the sample.
    takes_one_label = False
    # Whether it reads a table of declared columns itself, so that an encoder before it has nothing to learn.
    reads_tables = False
    takes_sparse = False  # rows
    declared_columns: object = None  # of a model that reads a table: what its columns hold, by name
    # Whether the model itself keeps a record's statistics independent of the rest of the chunk, to the last bit, and of E-steps
    # in other threads: see `expected_statistics`.
    exact_rows = False
    # Whether `expected_statistics` takes persons, as `vips.data.Runs` where they have several rows: statistics are no sums over
    # these. A private fit reads at most `MOST_ROWS` of a person.
    reads_persons = False
    # Blocks in which the standard deviation of the noise is exact in every entry; None for all. Others do not tell whether a
    # fit released nothing but noise: see `transport`.
    exact_noise: tuple[str, ...] | None = None
    # Whether statistics of different posteriors add up to a total that makes sense, which `partial_fit` may release.
    adds_up = False
    planned_steps = 20  # that `vips.plan_for` gives a private fit of full batches
    small_trials = True  # whether fits to a few thousand records tell `vips.plan_for` the widths of more
    # Relative distance from its limit at which an ordinary fit of full batches stops; None where only the number of steps does.
    tolerance: float | None = None

    @abstractmethod
    def blocks(self) -> dict[str, Block]:
        """The arrays that are summed. They must not depend on the data (the number of columns is public)."""

    def initial(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Starting point of the average of full-data totals, by block; by default, totals of no records.

        Never a function of the data.
        """
        return {name: np.zeros(block.shape) for name, block in self.blocks().items()}

    def start(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], Any]:
        """The average and the posterior with which a fit begins; by default, ``initial`` and the posterior of it.

        Never a function of the data. Draws that tell components apart belong into the posterior.
        """
        average = {name: np.array(value, dtype=np.float64) for name, value in self.initial(rng).items()}
        return average, self.to_posterior(average, dict.fromkeys(average, 0.0), None)

    def shaped_after(self, step: int) -> Any:
        """A posterior of the type and the shapes of that after so many steps of a fit; by default the first one."""
        return self.start(np.random.default_rng(0))[1]

    def prepare(self, posterior: Any) -> None:  # noqa: B027
        """Compute what all E-steps need from the last posterior, and store it there; does nothing by default.

        Called before several threads start: each of them would compute it again.
        """

    def phases(self, n_steps: int) -> Sequence[FitPhase]:
        """The phases of a fit of ``n_steps`` ≥ 1 steps, a function of public settings; by default a single one.

        Phases may sum other blocks, by other statistics, and may have other weights: say, ``FitPhase("first", first,
        weight=3.0), FitPhase("others", n_steps - first)`` with ``first = min(5, n_steps)``, where the first totals matter most.
        ε does not depend on the weights. Fits on samples give all steps one weight.

        Steps of one phase compile the same kernels. Before a record is read in it, a private fit to a model with ``exact_rows``
        calls them on rows of zeros and ones, so that neither files of compiled kernels nor pauses tell anything about records.
        """
        return (FitPhase("steps", n_steps),)

    @abstractmethod
    def expected_statistics(self, records: Any, posterior: Any) -> RecordStatistics:
        """The E-step. ``records`` is the selected rows of X, or ``Records(X, y)`` when y was passed to ``fit``.

        A record's statistics must depend on that record and the posterior only, to the last bit. Matrix products round
        differently for different numbers of records; where an E-step iterates, or decides between near-ties, such a difference
        in the last bit can grow large, for all records at once. Set :attr:`exact_rows` if this method prevents that (with
        ``vips.rowwise_product``, say). Otherwise a private fit passes the same number of records in every call: it fills chunks
        up with copies of a record, which get weight 0, and gives BLAS one thread.

        With ``exact_rows`` threads call it for several chunks at a time: it must not keep arrays in which it works, nor may its
        statistics. Other models are called for one chunk at a time, in the thread of the fit.
        """

    @abstractmethod
    def to_posterior(self, average: Mapping[str, np.ndarray], noise_std: Mapping[str, float], previous: Any) -> Any:
        """A valid posterior from the average of noisy full-data totals.

        ``noise_std[name]`` is the exact standard deviation of the noise in an (ordinary, or diagonal) entry of
        ``average[name]``, a public number. Without noise this is the textbook M-step. ``previous`` is the posterior
        that the last E-step used; None at first, or to read a posterior from totals alone.
        """

    def transport(
        self, average: Mapping[str, np.ndarray], noise_std: Mapping[str, float | np.ndarray], previous: Any,
        posterior: Any,
    ) -> Any:  # fmt: skip
        """The average in the coordinates of ``posterior``, for statistics in coordinates that the posterior defines.

        Totals about a moving centre, or in a moving frame, do not add up. If a record's statistics at one posterior are a
        public linear map of those at another, this method applies that map to the average of all steps so far, and to the
        noise in it. By default coordinates do not move.

        Parameters
        ----------
        average : dict of str to ndarray
            In the coordinates of ``previous``.
        noise_std : dict of str to float or ndarray
            Of the noise in it.
        previous, posterior
            The posterior of the last E-step, and that of the next one.

        Returns
        -------
        average : dict of str to ndarray
            A linear function of ``average``, which depends on the two posteriors only.
        noise_std : dict of str to float or ndarray
            Of the noise in it: an array that broadcasts to the block where entries differ. Noise that the map makes dependent
            is stated entry by entry. List the blocks for which it is exact in :attr:`exact_noise`.
        """
        return average, noise_std

    def kept_steps(self, n_steps: int) -> Collection[int]:
        """Numbers of the steps, from 1, whose totals and posteriors a fit keeps in ``noisy_totals_``.

        A function of public settings. Bound their number: checkpoint and saved file hold them. By default some of the later
        half of the last phase, of a private fit whose posterior does not know the noise: they tell whether it has settled.
        """
        knows_noise = type(self).to_noise_aware_posterior is not Contract.to_noise_aware_posterior
        privacy = getattr(self, "privacy", None)
        if knows_noise or privacy is None or isinstance(privacy, StreamPlan) or not self.is_private:
            return ()
        last = phases_of(self, n_steps)[-1]
        n_kept = min(last.n_steps // 2, _MOST_KEPT)
        small = sum(math.prod(block.shape) for block in last.blocks.values()) <= _MOST_NUMBERS
        first = n_steps - last.n_steps // 2 + 1
        return np.linspace(first, n_steps, n_kept).round().astype(int).tolist() if small else ()

    def to_match(self) -> Any:
        """How records are matched to the released totals, for models that can be simulated: see ``match`` of the model."""
        raise NotImplementedError(f"{type(self).__name__} is not matched to its totals.")

    def to_noise_aware_posterior(self) -> Any:
        """The posterior of the parameters given *noisy* totals, which is then ``posterior_``.

        Raises
        ------
        NotImplementedError
            If there is none, or it is refused; with the reason, in words for the user.
        """
        raise NotImplementedError(f"A {type(self).__name__} takes noisy totals at face value: there are no intervals.")

    def check_intervals(self) -> None:  # noqa: B027
        """Raise NotImplementedError, with the reason, if intervals of the noise-aware posterior may not hold."""

    def check_restored(self) -> None:  # noqa: B027
        """Compute what users read, after the model was read from a file, so that numbers of which nothing follows are refused
        there and not later. By default nothing is computed."""

    def step_size(self, t: int) -> float | dict[str, float]:
        """ρ_t: 1 in a non-private full-batch fit (textbook variational Bayes) and in the first step of a private one, whose
        totals are of all records, else (1 + t)^(-0.7)."""
        plan = self.plan_of_fit()
        return 1.0 if plan.sampling_rate == 1.0 and (t == 1 or not plan.is_private) else RobbinsMonro()(t)

    def default_clip(self) -> float:
        """Clip norm when the plan has none: a public function of constructor arguments and the number of columns."""
        largest = self.max_record_norm()
        if np.isinf(largest):
            raise ValueError(
                f"{type(self).__name__} has no default clip norm: write PrivacyPlan(..., clip_norm=...), or "
                "privacy=budget.plan(clip_norm=...)."
            )
        return largest

    def clip_for(self, max_rows: int | None) -> float:
        """Clip norm when the plan has none: :meth:`default_clip`, with which all rows of a person together weigh about as much
        as one; so many times that where a person has up to ``max_rows`` rows, which then weigh alike."""
        return float(self.default_clip()) * (max_rows or 1)

    def max_record_norm(self) -> float:
        """Largest norm that a valid record can have; ``inf`` if there is no bound."""
        return np.inf

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """Plan of a non-private fit (``privacy=None``), which may look at the data."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=20)

    def default_chunk_size(self) -> int:
        """Value of :attr:`chunk_size` unless it is set."""
        return 1024

    def valid_records(self, records: Any) -> np.ndarray:
        """Which records can be used, one boolean each. By default, those whose numbers are all finite, in existing columns."""
        if isinstance(records, Records):
            return _usable_rows(records.X) & _usable_rows(records.y)
        return _usable_rows(records)

    def check_arguments(self) -> None:
        """Raise TypeError or ValueError for constructor arguments that cannot work."""
        check_privacy(self.privacy, PrivacyBudget, PrivacyPlan, StreamPlan, None)
        check_arguments(self)
        if self.on_invalid not in ("drop", "raise"):
            raise ValueError(f'`on_invalid` must be "drop" or "raise", got {self.on_invalid!r}.')
        self.check_parameters()

    def check_parameters(self) -> None:  # noqa: B027
        """Raise ValueError for this model's own arguments that cannot work. Runs before the data are touched."""

    def check_features(self) -> None:  # noqa: B027
        """Raise ValueError if ``n_features_in_`` columns (a public number) cannot work. Runs before values are used."""

    def least_posterior_size(self) -> int:
        """Smallest size of a posterior (count of numbers), given the settings; :func:`vips.load` refuses a smaller one.

        Override it for posteriors that grow faster than the blocks.
        """
        return 0

    def describe(self) -> dict:
        """``unit``, ``released`` and ``declared_public`` of the privacy report."""
        return {"unit": self.unit, "released": released(self), "declared_public": ("all constructor arguments",)}

    def check_values(self, X: Any, y: Any) -> None:  # noqa: B027
        """Further checks of the values in a non-private fit; may raise, and name values."""

    def check_table(self, X: Any) -> None:  # noqa: B027
        """Further checks of container and dtype of the table of a private fit, never of values."""

    def check_source(self, source: DataSource) -> None:  # noqa: B027
        """Further checks of the public facts of a source."""

    def labels_of(self, y: Any) -> Any:
        """The labels of a private fit as an array of numbers, from a series or array of one dimension, of any dtype."""
        return y

    def begin(self, records: DataSource) -> Any:
        """Look at the records of a fit without privacy, before its first step; where it has weights, these stand beside the
        labels. Returns the posterior at which the fit begins, or None for that of :meth:`start`."""
        return None

    def in_units(self, posterior: Any) -> Any:
        """The posterior whose moves tell whether an ordinary fit has settled: one that does not depend on columns' units."""
        return posterior

    def finish(self, records: DataSource) -> None:  # noqa: B027
        """Set further attributes of a fit without privacy, after its last step; where it has weights, these stand beside the
        labels of ``records``."""

    @property
    def n_columns(self) -> int:
        """``n_features_in_``, and 1 before it is known."""
        return getattr(self, "n_features_in_", 1)

    @property
    def is_private(self) -> bool:
        """Whether a fit adds noise."""
        plan = self._fitting_plan or stated_plan(self)  # which plans a budget anew
        return isinstance(plan, PrivacyPlan | StreamPlan) and plan.is_private

    def plan_of_fit(self) -> PrivacyPlan:
        """The plan of the fit that is running, or of the one that ``fit`` would begin."""
        plan = self._fitting_plan or stated_plan(self)
        return plan.of_draws if isinstance(plan, StreamPlan) else plan or self.default_plan(0)

    def use_plan(self, plan: PrivacyPlan | None) -> None:
        """The whole plan of the fit that begins: ``privacy``, or its default, with a clip norm and the weights of phases. None
        when the fit is over."""
        self._fitting_plan = plan


def moves_averages(model: Contract) -> bool:
    """Whether the class has a ``transport`` of its own, so that deviations of noise may differ within a block."""
    return type(model).transport is not Contract.transport


def scheduled(model: Contract, t: int, averaging: Callable[[int], float]) -> float:
    """ρ of the steps t = 1, 2, … of a phase that forgets what came before it: 1 in the first.

    Then the model's ``schedule(t)`` if there is one, ``averaging(t)`` in a private fit, (1 + t)^(-0.6) in a non-private
    stochastic one, and 1 in a non-private full-batch one, which is textbook variational Bayes.
    """
    if t == 1:
        return 1.0
    if model.schedule is not None:
        return model.schedule(t)
    if model.is_private:
        return averaging(t)
    return 1.0 if model.plan_of_fit().sampling_rate == 1.0 else RobbinsMonro(offset=1.0, decay=0.6)(t)


def released(model: Contract, *others: str) -> tuple[str, ...]:
    """What each phase of a fit releases, and what else does, in words."""
    return released_in(phases_of(model, model.plan_of_fit().n_steps)) + others


def weighs_records(model: Contract) -> bool:
    """Whether a private fit has weights of records, so that sums of their squares differ from those of the weights."""
    plan = model.plan_of_fit()
    return plan.is_private and plan.max_weight is not None


def stated_plan(model: Contract) -> PrivacyPlan | StreamPlan | None:
    """``privacy``; of a budget, the plan that spends it in steps of full batches, which cost no more than one."""
    privacy = model.privacy
    return privacy.plan(n_steps=model.planned_steps) if isinstance(privacy, PrivacyBudget) else privacy


def plan_of_release(model: Contract) -> PrivacyPlan:
    """The plan of the fit that is running, or of the one that is over."""
    return model._fitting_plan or model.privacy_.plan


def completed_plan(model: Contract, plan: PrivacyPlan) -> PrivacyPlan:
    """The plan with the weights of the phases, and with a clip norm."""
    plan = plan.with_phases(weights_of(phases_of(model, plan.n_steps, model.blocks())))
    return plan if plan.clip_norm is not None else replace(plan, clip_norm=model.clip_for(plan.max_rows_per_group))


def _usable_rows(X: Any) -> np.ndarray:
    """Which rows have only finite numbers and, in CSR, only existing columns; shape (n_records,).

    SciPy's ``toarray`` and products would write an entry of another column into another record's row, or beyond the array.
    """
    if sp.issparse(X):
        bad = (X.indices < 0) | (X.indices >= X.shape[1])
        return rows_without(bad | ~np.isfinite(X.data), X.indptr)
    if X.dtype.kind not in "fc":
        return np.ones(X.shape[0], dtype=bool)
    with np.errstate(over="ignore", invalid="ignore"):
        total = X.sum()  # costs a third of the rest
    if np.isfinite(total):
        return np.ones(X.shape[0], dtype=bool)
    return np.isfinite(X).reshape(X.shape[0], int(np.prod(X.shape[1:]))).all(axis=1)
