"""The contract between a model and the engine.

A model answers two questions: what are these records' expected statistics, given the current posterior; and what valid
posterior does a (noisy) average of totals give. The engine does sampling, clipping, noise and accounting.
"""

from __future__ import annotations

import copy
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from vips import engine
from vips.data import (
    DataSource,
    InMemoryData,
    Records,
    SequenceSource,
    as_source,
    check_data,
    rows_without,
    whole_csr,
)
from vips.data._checks import refuse_dates
from vips.data._groups import check_groups_of_source, group_numbers, name_of
from vips.data._tables import from_arrow
from vips.data._texts import TextSource
from vips.exceptions import LedgerError
from vips.execution import resolve as executors
from vips.parts import SelfDescription
from vips.persistence.checkpoint import Journal
from vips.persistence.fitted import released_arrays, save_model
from vips.phases import FitPhase, phases_of, released_in, weights_of
from vips.privacy import PrivacyBudget, PrivacyPlan, PrivacyReport, Release, StreamPlan
from vips.privacy.budget import check_privacy
from vips.privacy.fingerprint import fingerprint_of
from vips.privacy.ledger import open_ledger
from vips.privacy.ledger.charge import ledger_to_charge
from vips.privacy.ledger.ledger import PrivacyLedger
from vips.privacy.ledger.origin import RemembersItsLedger
from vips.privacy.only_noise import is_only_noise
from vips.privacy.units import unit_of_group
from vips.settling import Settling
from vips.statistics import Block, RecordStatistics
from vips.step_size import RobbinsMonro

__all__ = ["ConjugateExponentialModel", "Records"]


# Dtypes that a non-private fit keeps; others are converted to the first.
NUMERIC_DTYPES = (np.float64, np.float32, np.int64, np.int32, np.int16, np.int8, np.uint8, np.uint16, np.uint32, bool)


def _has_stream(model: ConjugateExponentialModel) -> bool:
    """Whether there is a ``partial_fit``."""
    if not isinstance(model.privacy, StreamPlan):
        raise AttributeError(
            "partial_fit needs a StreamPlan: privacy=StreamPlan(epsilon=1.0, delta=1e-6, n_batches=365), say."
        )
    return True


class ConjugateExponentialModel(SelfDescription, RemembersItsLedger, ABC):
    """Base class of models in the conjugate-exponential family.

    A subclass writes four methods, and a constructor that stores ``privacy`` (a :class:`~vips.PrivacyPlan`, or None for
    a non-private fit) and ``random_state``; ``on_invalid`` ("drop" or "raise") is an optional third argument. ``fit`` is
    inherited. During a fit the number of columns is ``self.n_features_in_``.

    Attributes
    ----------
    posterior_ : object
        The last posterior.
    privacy_ : PrivacyReport
        What the fit did to the data and what that costs.
    noisy_totals_ : NoisyTotals
        Private fits only: the average of noisy totals from which the posterior was computed, and the noise in it.

    Privacy
    -------
    See :class:`~vips.PrivacyPlan`. The guarantee rests on three promises of a subclass, which ``tests/laws`` checks for
    the models of this package: a record's statistics depend on that record and the posterior only; ``norms`` never
    under-reports; ``blocks`` and ``initial`` do not depend on the data.
    """

    posterior_: Any  # each family has its own
    # Whether the model ignores labels, both those passed to `fit` and those in a data source.
    ignores_labels = False
    # Whether the model needs one label per record. A partition with another shape of y is refused, whatever the sample.
    takes_one_label = False
    # Whether the model itself keeps a record's statistics independent of the rest of the chunk, to the last bit: see
    # `expected_statistics`.
    exact_rows = False
    # Blocks in which the standard deviation of the noise is exact in every entry; None for all. Others do not tell whether a
    # fit released nothing but noise: see `transport`.
    exact_noise: tuple[str, ...] | None = None
    # Whether statistics of different posteriors add up to a total that makes sense, so that `partial_fit` may release their
    # sum.
    adds_up = False
    # Steps that `vips.plan_for` gives a private fit of full batches.
    planned_steps = 20
    # Relative distance from its limit at which an ordinary fit of full batches stops; None where only the number of steps does.
    tolerance: float | None = None
    _kept_by_clone = ("_chunk_size", "_sent_from")

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

    def prepare(self, posterior) -> None:
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
        return (FitPhase("steps", n_steps, released="noisy totals"),)

    @abstractmethod
    def expected_statistics(self, records, posterior) -> RecordStatistics:
        """The E-step. ``records`` is the selected rows of X, or ``Records(X, y)`` when y was passed to ``fit``.

        A record's statistics must depend on that record and the posterior only, to the last bit. Matrix products round
        differently for different numbers of records; where an E-step iterates, or decides between near-ties, such a difference
        in the last bit can grow large, for all records at once. Set :attr:`exact_rows` if this method prevents that (with
        ``vips.rowwise_product``, say). Otherwise a private fit passes the same number of records in every call: it fills chunks
        up with copies of a record, which get weight 0, and gives BLAS one thread.
        """

    @abstractmethod
    def to_posterior(self, average: Mapping[str, np.ndarray], noise_std: Mapping[str, float], previous) -> Any:
        """A valid posterior from the average of noisy full-data totals.

        ``noise_std[name]`` is the exact standard deviation of the noise in an (ordinary, or diagonal) entry of
        ``average[name]``, a public number. Without noise this is the textbook M-step. ``previous`` is the posterior
        that the last E-step used; None at first, or to read a posterior from totals alone.
        """

    def transport(self, average: Mapping[str, np.ndarray], noise_std: Mapping[str, object], previous, posterior) -> Any:
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

    @property
    def moves_averages(self) -> bool:
        """Whether the class has a :meth:`transport` of its own, so that deviations of noise may differ within a block."""
        return type(self).transport is not ConjugateExponentialModel.transport

    def to_noise_aware_posterior(self) -> Any:
        """Posterior of the parameters given the *noisy* totals, for models that have one: see ``noise_aware_posterior_``."""
        raise NotImplementedError(f"{type(self).__name__} has no noise-aware posterior.")

    @property
    def noise_aware_posterior_(self) -> Any:
        """Posterior of the parameters that accounts for the noise of a private fit; ``posterior_`` takes noisy totals at face
        value. It is computed from released values only, so it costs no budget.

        Raises
        ------
        AttributeError
            For a model without one, and for a fit that was not private.
        """
        check_is_fitted(self, "posterior_")
        if not self.privacy_.plan.is_private:
            raise AttributeError("The fit added no noise: its posterior is `posterior_`.")
        if "_noise_aware" not in self.__dict__:
            try:
                self._noise_aware = self.to_noise_aware_posterior()
            except NotImplementedError as missing:
                raise AttributeError(str(missing)) from None
        return self._noise_aware

    def step_size(self, t: int) -> float | dict[str, float]:
        """ρ_t: 1 in a non-private full-batch fit (textbook variational Bayes), else (1 + t)^(-0.7)."""
        plan = self._plan()
        return 1.0 if not plan.is_private and plan.sampling_rate == 1.0 else RobbinsMonro()(t)

    def default_clip(self) -> float:
        """Clip norm when the plan has none: a public function of constructor arguments and the number of columns."""
        largest = self.max_record_norm()
        if np.isinf(largest):
            raise ValueError(
                f"{type(self).__name__} has no default clip norm: write PrivacyPlan(..., clip_norm=...), or "
                "privacy=budget.plan(clip_norm=...)."
            )
        return largest

    def max_record_norm(self) -> float:
        """Largest norm that a valid record can have; ``inf`` if there is no bound."""
        return np.inf

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """Plan of a non-private fit (``privacy=None``), which may look at the data."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=20)

    @property
    def chunk_size(self) -> int:
        """Records per E-step call. A speed and memory knob: it changes no result beyond rounding."""
        return self.__dict__.get("_chunk_size") or self.default_chunk_size()

    @chunk_size.setter
    def chunk_size(self, value: int) -> None:
        self._chunk_size = value

    def default_chunk_size(self) -> int:
        """Value of :attr:`chunk_size` unless it is set."""
        return 1024

    def valid_records(self, records) -> np.ndarray:
        """Which records can be used, one boolean each. By default, those whose numbers are all finite, in existing columns."""
        if isinstance(records, Records):
            return _usable_rows(records.X) & _usable_rows(records.y)
        return _usable_rows(records)

    def check_arguments(self) -> None:
        """Raise TypeError or ValueError for constructor arguments that cannot work."""
        check_privacy(self.privacy, PrivacyBudget, PrivacyPlan, StreamPlan, None)
        if getattr(self, "on_invalid", "drop") not in ("drop", "raise"):
            raise ValueError(f'`on_invalid` must be "drop" or "raise", got {self.on_invalid!r}.')
        self.check_parameters()

    def check_parameters(self) -> None:
        """Raise ValueError for this model's own arguments that cannot work. Runs before the data are touched."""

    def check_features(self) -> None:
        """Raise ValueError if ``n_features_in_`` columns (a public number) cannot work. Runs before values are used."""

    def least_posterior_size(self) -> int:
        """Smallest size of a posterior (count of numbers), given the settings; :func:`vips.load` refuses a smaller one.

        Override it for posteriors that grow faster than the blocks.
        """
        return 0

    def describe(self) -> dict:
        """``unit``, ``released`` and ``declared_public`` of the privacy report."""
        return {"unit": self.unit, "released": self.released()}

    def released(self, *others: str) -> tuple[str, ...]:
        """What each phase of a fit releases, and what else does, in words."""
        return released_in(phases_of(self, self._plan().n_steps)) + others

    @property
    def is_private(self) -> bool:
        """Whether a fit adds noise."""
        plan = self._stated_plan()
        return isinstance(plan, PrivacyPlan | StreamPlan) and plan.is_private

    def _stated_plan(self) -> PrivacyPlan | StreamPlan | None:
        """``privacy``; of a budget, the plan that spends it in steps of full batches, which cost no more than one."""
        privacy = self.privacy
        return privacy.plan(n_steps=self.planned_steps) if isinstance(privacy, PrivacyBudget) else privacy

    def fit(
        self,
        X,
        y=None,
        *,
        ledger: PrivacyLedger | None = None,
        checkpoint: str | os.PathLike | None = None,
        executor: object = None,
        groups: object = None,
    ) -> Self:
        """Fit by (private) stochastic variational Bayes.

        Parameters
        ----------
        X : array, memory-mapped array, CSR matrix, data frame or Arrow table of shape (n_records, n_features); or a data source
            Data frames may be of pandas, polars or another library that exports Arrow streams (docs/preprocessing.md). Sources
            (``vips.data``) hold their own labels. A Dask collection is a source.
        y : array of shape (n_records, ...), optional
            Ignored by models of records without labels.
        ledger : PrivacyLedger, optional
            Charged with all steps before a value is read. None is the ledger whose block encloses the call, if any.
        checkpoint : path, optional
            File that is rewritten after every step, with released values only. If it exists, the fit continues from it.
        executor : None, "serial", "threads", "processes", "joblib" or dask.distributed.Client
            Computes the sums, partition by partition; noise is always drawn in this process. Executors differ by rounding only;
            see docs/scale.md.
        groups : array, series or list of length n_rows, optional
            Ids of persons: whole numbers, strings or bytes; 7 and "7" are one. All rows with one id are then one record, which
            the guarantee protects as a whole: one coin, one clip, one share of the sum. Rows without an id are left out of a
            private fit. The report's unit names the series. ``PrivacyPlan(max_rows_per_group=...)`` bounds a person's rows. For
            data sources: :func:`vips.data.regroup`, whose result protects persons without ``groups``.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            Private fits: from public facts only (arguments, dtype, number of columns), before a value is read;
            defective records count for nothing. Non-private fits validate values as scikit-learn does.
        LedgerError, CheckpointError
            If the rest of the budget is too small, or ledger or checkpoint belong to another fit. Nothing is changed then.
        SourceError, PartitionError
            If a part of a source cannot be read or is not as declared, or workers fail. No noise is drawn for that step.
        """
        self.check_arguments()
        if isinstance(self.privacy, StreamPlan):
            raise TypeError(
                "A StreamPlan is for batches that arrive one by one: call partial_fit(batch), or pass a PrivacyPlan."
            )
        executor = executors.resolve(executor)
        ledger = self._ledger(ledger)
        self._forget()
        journal = Journal()
        try:
            data = self._grouped(self._data(X, y), groups, "X" if y is None else "X, y")
            self.check_features()
            self._fitting_plan = plan = self._complete(self._stated_plan() or self.default_plan(data.n_records))
            plan.check_blocks(self.blocks())
            unit = unit_of_group(data.group_name or "group") if data.has_groups else None
            journal.begin(self, plan, ledger, checkpoint, unit)
            settling = self._settling(plan)
            posterior, noisy_totals = engine.run(self, data, plan, journal, executor, settling)
            if settling is not None and not settling.distance <= self.tolerance:
                warnings.warn(self._not_settled(plan.n_steps, settling.distance), ConvergenceWarning, stacklevel=2)
            self.posterior_ = posterior
            if self.is_private:
                self.noisy_totals_ = noisy_totals
            facts = self.describe()
            release = Release(
                what="fit",
                plan=plan,
                released=facts["released"],
                declared=facts.get("declared_public", ()),
                on_invalid=getattr(self, "on_invalid", "drop"),
                repeated_steps=journal.repeated_steps(),
                ledger=journal.run.entry,
                sha256=fingerprint_of(lambda: released_arrays(self)),
            )
            only_noise = is_only_noise(self.telling_blocks(), noisy_totals.average, noisy_totals.noise_std)
            self.privacy_ = PrivacyReport((release,), unit or facts["unit"], only_noise)
        except BaseException as error:  # Ctrl-C included
            try:
                journal.close()
            except (OSError, LedgerError) as failed:
                error.add_note(
                    f"The ledger could not be written, and the run stays charged until it is closed: {failed}"
                )
            finally:
                self._forget()  # a half-fitted model must not look fitted
            raise
        finally:
            self.__dict__.pop("_fitting_plan", None)
        return self

    @available_if(_has_stream)
    def partial_fit(
        self,
        X,
        y=None,
        *,
        ledger: PrivacyLedger | None = None,
        checkpoint: str | os.PathLike | None = None,
        executor: object = None,
        groups: object = None,
    ) -> Self:
        """Learn from the next batch of a stream; ``privacy`` is a :class:`~vips.StreamPlan`. See docs/streams.md.

        Parameters
        ----------
        X, y, executor
            As in :meth:`fit`; a batch may have any number of records. ``X=None`` continues a stream from its checkpoint, and
            takes no batch.
        ledger : PrivacyLedger, optional
            Charged once, with the whole stream, before the first batch is read. Pass it in every call.
        checkpoint : path, optional
            Released state of the stream; ``NAME.secret`` beside it keeps the state of the noise, for its owner only. From there
            another process goes on. None keeps the noise in this process, and the stream ends with it.
        groups : optional
            As in :meth:`fit`, in every batch or in none. Persons who were in ``participation`` batches are left out of others.

        Returns
        -------
        self

        Raises
        ------
        StreamError
            If the stream has ended, or its noise is lost, in use, or an older copy; after an interruption also once, to say
            that the batch of the interrupted call counts.
        ValueError, TypeError, LedgerError, SourceError, PartitionError
            As in :meth:`fit`. The model is then as before.
        """
        from vips.streams.stream import fit_batch

        return fit_batch(self, X, y, groups, ledger, checkpoint, executor)

    def rho(self, t: int) -> float | dict[str, float]:
        """Weight of step t in the average after it: :meth:`step_size`, and in a stream the last batch's share of all."""
        return 1.0 / self.privacy.weight(t) if isinstance(self.privacy, StreamPlan) else self.step_size(t)

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted model to a file of arrays and JSON, without pickle; ``vips.load`` reads it.

        Parameters
        ----------
        path : str or path
            An existing file is replaced atomically.

        Raises
        ------
        NotFittedError
        TypeError
            If a constructor argument cannot be written as data (a function as ``schedule``, say).
        """
        check_is_fitted(self, "posterior_")
        save_model(self, path)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.is_private and not self._stated_plan().reproducible_noise
        return tags

    def __dir__(self) -> list[str]:
        """Names of the attributes that exist. scikit-learn reads each of them to find out, which would compute the noise-aware
        posterior."""
        slow = "noise_aware_posterior_"
        names = [name for name in object.__dir__(self) if name != slow and hasattr(self, name)]
        is_listed = type(self).to_noise_aware_posterior is not ConjugateExponentialModel.to_noise_aware_posterior
        if "_is_shown" in self.__dict__:
            is_listed &= "_noise_aware" in self.__dict__
        return [*names, slow] if is_listed and hasattr(self, "noisy_totals_") else names

    def _get_fitted_attr_html(self, doc_link: str = "") -> str:
        """scikit-learn's table for notebooks, which reads every name in ``dir``: without a noise-aware posterior to compute."""
        shown = copy.copy(self)
        shown._is_shown = True
        return super(ConjugateExponentialModel, shown)._get_fitted_attr_html(doc_link)

    def _ledger(self, ledger: PrivacyLedger | None) -> PrivacyLedger | None:
        """The ledger to charge, if any, after a check that this fit can be charged."""
        if ledger is None and open_ledger.takes_prepaid(self.privacy):
            return None  # a trial of a search, which was charged whole
        ledger = ledger_to_charge(ledger, self.__dict__.get("_sent_from"), getattr(self.privacy, "sent_from", None))
        if ledger is not None and not self.is_private:
            raise LedgerError(
                "This fit adds no noise, so that no budget could pay for it. Write privacy=PrivacyBudget(epsilon, delta); for "
                "public data, fit it outside of the ledger."
            )
        if ledger is not None and getattr(self, "on_invalid", "drop") == "raise":
            raise LedgerError(
                'on_invalid="raise" lets an error depend on a record, which no ledger can pay for: use "drop".'
            )
        return ledger

    def _plan(self) -> PrivacyPlan:
        plan = self.__dict__.get("_fitting_plan") or self._stated_plan()
        return plan.of_draws if isinstance(plan, StreamPlan) else plan or self.default_plan(0)

    def _complete(self, plan: PrivacyPlan) -> PrivacyPlan:
        plan = plan.with_phases(weights_of(phases_of(self, plan.n_steps)))
        return plan if plan.clip_norm is not None else replace(plan, clip_norm=float(self.default_clip()))

    def _settling(self, plan: PrivacyPlan) -> Settling | None:
        """What stops a fit early: of an ordinary one, whose number of steps nobody has stated."""
        is_ordinary = self.privacy is None and plan.sampling_rate == 1.0
        return Settling(self.tolerance) if is_ordinary and self.tolerance is not None else None

    def _not_settled(self, n_steps: int, distance: float) -> str:
        return (
            f"{type(self).__name__} has not settled in {n_steps:,} steps: its posterior is about {distance:.2g} of its size "
            "from its limit. For another number of steps, write privacy=PrivacyPlan.non_private(n_steps=...)."
        )

    def _data(self, X, y) -> DataSource:
        self.__dict__.pop("_names_of_columns", None)  # of a fit before
        X, y = from_arrow(X), None if self.ignores_labels else from_arrow(y)
        source = as_source(X, y)
        if source is None:
            return self._checked_arrays(X, y)
        if isinstance(source, InMemoryData) and source.has_groups:  # else they would be taken for rows
            raise ValueError("The data hold records of several rows already: pass X, y and `groups` to fit.")
        if isinstance(source, InMemoryData):  # not checked yet: for some dtypes an error could depend on a record
            return self._checked_arrays(*source.arrays).divided_like(source)
        if isinstance(source, TextSource):
            raise TypeError(
                f"{type(source).__name__} holds texts, and a model takes numbers. Learn their words first: "
                f"make_private_pipeline(PrivateCountVectorizer(), {type(self).__name__}(...), "
                "privacy=PrivacyBudget(epsilon, delta)).fit(source)."
            )
        if isinstance(source, SequenceSource):
            raise TypeError(
                f"{type(source).__name__} holds sequences, and {type(self).__name__} takes rows of a table."
            )
        self.n_features_in_ = source.n_features
        if source.feature_names is not None:
            self.feature_names_in_ = np.array(source.feature_names, dtype=object)
        return source

    def _check_groups(self, data: DataSource, groups: object, records: str = "X, y") -> None:
        """Raise ValueError or TypeError if these records cannot be persons, or not under this plan."""
        stated = self._stated_plan()
        bounds_rows = getattr(stated, "max_rows_per_group", None) is not None
        if groups is None and not data.has_groups:
            if bounds_rows:
                raise ValueError(
                    "`max_rows_per_group` bounds the rows of a person: pass the persons' ids as `groups` to fit, or a source "
                    "that vips.data.regroup wrote."
                )
            return
        if groups is not None:
            check_groups_of_source(data, groups, records)
        if not bounds_rows and self.is_private and stated.rounds_records:
            plan = type(stated).__name__
            raise ValueError(
                f'noise="discrete" rounds every row: with persons, write {plan}(max_rows_per_group=...), a public number.'
            )

    def _grouped(self, data: DataSource, groups: object, records: str = "X, y") -> DataSource:
        """The same rows, where all rows of one person are one record. ``records`` is how the call of ``fit`` names them."""
        self._check_groups(data, groups, records)
        if groups is None or data.has_groups:
            return data
        numbers = group_numbers(groups, data.n_records)
        if not self.is_private and (numbers < 0).any():
            raise ValueError(
                "`groups` hold missing ids, or values that are no ids: pass whole numbers, strings or bytes."
            )
        return data.grouped(numbers, name_of(groups))

    def _checked_arrays(self, X, y) -> InMemoryData:
        y = None if self.ignores_labels else y
        return self._private_data(X, y) if self.is_private else self._plain_data(X, y)

    def _private_data(self, X, y) -> InMemoryData:
        data = check_data(X, y)
        validate_data(self, X, skip_check_array=True)  # number and names of columns: public
        return data

    def _plain_data(self, X, y) -> InMemoryData:
        if y is None:
            X = self._validated(X)
        else:
            X, y = self._validated(X, y, multi_output=True)
        self.check_values(X, y)
        return InMemoryData(X, y)

    def _validated(self, X, *y, **settings):
        """Arrays of numbers, dense or CSR; reads values. ``settings`` are those of ``validate_data``."""
        if isinstance(X, DataSource):
            raise TypeError(
                f"After the fit {type(self).__name__} takes records in memory, got {type(X).__name__}. Take a partition at a "
                "time: [model.transform(partition.open().X) for partition in source.partitions], say."
            )
        X, *y = map(from_arrow, (X, *y))
        refuse_dates(X)
        return validate_data(self, whole_csr(X), *y, accept_sparse="csr", dtype=NUMERIC_DTYPES, **settings)

    def check_values(self, X, y) -> None:
        """Further checks of the values in a non-private fit; may raise, and name values."""

    def _forget(self) -> None:
        self.__dict__.pop("_noise_aware", None)
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)


def _usable_rows(X) -> np.ndarray:
    """Which rows have only finite numbers and, in CSR, only existing columns; shape (n_records,).

    SciPy's ``toarray`` and products would write an entry of another column into another record's row, or beyond the array.
    """
    if sp.issparse(X):
        bad = (X.indices < 0) | (X.indices >= X.shape[1])
        return rows_without(bad | ~np.isfinite(X.data), X.indptr)
    if X.dtype.kind not in "fc":
        return np.ones(X.shape[0], dtype=bool)
    is_finite = np.isfinite(X).reshape(X.shape[0], int(np.prod(X.shape[1:])))
    return np.ones(X.shape[0], dtype=bool) if is_finite.all() else is_finite.all(axis=1)  # the first costs a fifth
