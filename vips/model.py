"""What a user calls: ``fit``, ``partial_fit``, ``save``, and the attributes of a fitted model."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from vips import door
from vips._support.arguments import arguments
from vips._support.fitted import all_or_nothing, forget_fit
from vips._support.validation import levels_to_user
from vips.core import engine
from vips.core.budget import PrivacyBudget
from vips.core.contract import Contract, completed_plan, stated_plan
from vips.core.exact.blas_threads import one_blas_thread
from vips.core.ledger.ledger import PrivacyLedger
from vips.core.ledger.origin import RemembersItsLedger
from vips.core.plan import PrivacyPlan
from vips.core.records.partition import Records
from vips.core.stream_plan import StreamPlan
from vips.core.units import unit_of_group
from vips.data._columns import names_of, warn_of_undeclared
from vips.data._step_index import is_in_slots
from vips.door import Beside
from vips.exceptions import LedgerError
from vips.executors import resolve as executors
from vips.expfam._headline import Headline
from vips.parts import SelfDescription, telling_blocks
from vips.persistence.checkpoint import Journal
from vips.persistence.fitted import released_arrays, save_model
from vips.report.only_noise import is_only_noise
from vips.report.report import PrivacyReport, Release
from vips.report.report_fields import fingerprint_of
from vips.report.unread import IN_SLOTS, warn_of_unread
from vips.report.words import declared_of
from vips.settling import Settling, drift

if TYPE_CHECKING:
    from vips.models.components.matching.match import Match

__all__ = ["ConjugateExponentialModel", "Records"]


# Probability of a drift below which the totals of a private fit still moved.
_MOVES = 0.01
# Names of the contract that users call.
_OF_USERS = {"is_private", "signal", "findings"}


@dataclass(frozen=True)
class _Missing:
    """Why something cannot be computed."""

    reason: str


def _has_stream(model: ConjugateExponentialModel) -> bool:
    """Whether there is a ``partial_fit``."""
    if not isinstance(model.privacy, StreamPlan):
        raise AttributeError(
            "partial_fit needs a StreamPlan: privacy=StreamPlan(epsilon=1.0, delta=1e-6, n_batches=365), say."
        )
    return True


@arguments
class ConjugateExponentialModel(Contract, SelfDescription, RemembersItsLedger):
    """Base class of models in the conjugate-exponential family.

    A subclass writes four methods, and a constructor that stores ``privacy`` (a :class:`~vips.PrivacyPlan`, or None for
    a non-private fit) and ``random_state``; ``on_invalid`` ("drop" or "raise") is an optional third argument. ``fit`` is
    inherited. During a fit the number of columns is ``self.n_features_in_``.

    Attributes
    ----------
    posterior_ : object
        Posterior of the parameters. In a private fit of a model that can tell, the one given that totals are noisy, which is
        computed when it is first read; :meth:`why_no_intervals` says where it is not.
    last_posterior_ : object
        The posterior of the last step, which takes noisy totals at face value; without noise it is ``posterior_``.
    privacy_ : PrivacyReport
        What the fit did to the data and what that costs.
    noisy_totals_ : NoisyTotals
        Private fits only: the average of noisy totals from which the posterior was computed, and the noise in it.

    Notes
    -----
    *Privacy.* See :class:`~vips.PrivacyPlan`, and :class:`vips.core.contract.Contract` for what a subclass promises.
    """

    privacy: PrivacyBudget | PrivacyPlan | StreamPlan | None = None
    random_state: Any = None

    last_posterior_: ClassVar[Any]  # each family has its own
    _kept_by_clone = ("_chunk_size", "sent_from")
    _chunk_size = None
    # Keywords of `fit` that the class takes, of those that stand beside rows.
    _beside: ClassVar[tuple[str, ...]] = ("sample_weight",)
    _computed = None  # dict of what was computed from released values, once it was asked for; a fit makes it anew
    # What reading `posterior_` does before it is computed: "compute" it, give the "last" one, or "hide" it.
    _first_reading = "compute"
    # Further names that answer to the engine or to comparisons, which `dir` leaves out: see `__dir__`.
    _unlisted = (
        "advice", "beside", "bound", "check_beside", "forget_computed", "name_of_ratio",
        "name_of_score", "once", "read_rows", "records_of", "sent_from", "settling_of", "table_of",
    )  # fmt: skip

    def __init_subclass__(cls, **settings: Any) -> None:
        """A class that states what it takes beside rows shows that in the signature of its ``fit``."""
        if "_beside" in vars(cls):
            cls.fit = all_or_nothing(cls.fit, cls._beside)  # type: ignore[method-assign]
        super().__init_subclass__(**settings)

    @property
    def posterior_(self) -> Any:
        """Posterior of the parameters, for which totals of a private fit are noisy if the model can tell; computed once, from
        released values only, so it costs no budget."""
        check_is_fitted(self, "last_posterior_")
        if self._first_reading == "compute" or not self._has_noise() or "posterior" in (self._computed or {}):
            try:
                return self._noise_aware_posterior()
            except NotImplementedError as missing:
                self._say_unaware(str(missing))
        elif self._first_reading == "hide":
            raise AttributeError("`posterior_` is not computed yet.")
        return self.last_posterior_

    def _say_unaware(self, reason: str) -> None:
        """Let intervals of the last step's posterior warn that they do not know the noise."""
        last, moves = self.last_posterior_, self._drift() < _MOVES
        reason += " The released totals still moved in the later steps: the fit has not settled." if moves else ""
        for part in last.values() if isinstance(last, Mapping) else [last]:
            if isinstance(part, Headline):
                part.unaware = reason

    def _drift(self) -> float:
        """See :func:`vips.settling.drift`; NaN of fits that keep steps for other ends, or none."""
        is_aware = type(self).to_noise_aware_posterior is not Contract.to_noise_aware_posterior
        return np.nan if is_aware or not self._has_noise() else drift(self.noisy_totals_)

    def why_no_intervals(self) -> str:
        """Why intervals of ``posterior_`` say nothing of the noise, in words; empty where they do, and without noise."""
        check_is_fitted(self, "last_posterior_")
        try:
            if self._has_noise():
                self._noise_aware_posterior()
                self.check_intervals()
        except NotImplementedError as missing:
            return str(missing)
        return ""

    @property
    def chunk_size(self) -> int:
        """Records per E-step call. A speed and memory knob: it changes no result beyond rounding."""
        return self._chunk_size or self.default_chunk_size()

    @chunk_size.setter
    def chunk_size(self, value: int) -> None:
        self._chunk_size = value

    @partial(all_or_nothing, beside=_beside)
    def fit(
        self,
        X,
        y=None,
        *,
        exposure: object = None,
        sample_weight: object = None,
        ledger: PrivacyLedger | None = None,
        checkpoint: str | os.PathLike | None = None,
        executor: object = None,
        groups: object = None,
        public_X: object = None,
        public_y: object = None,
    ) -> Self:
        """Fit by (private) stochastic variational Bayes.

        Parameters
        ----------
        X : array, memory-mapped array, CSR matrix, data frame or Arrow table of shape (n_records, n_features); or a data source
            Data frames may be of pandas, polars or another library that exports Arrow streams (docs/preprocessing.md). Sources
            (``vips.data``) hold their own labels. A Dask collection is a source.
        y : array of shape (n_records, ...), optional
            Ignored by models of records without labels.
        exposure : array or series of shape (n_records,), optional
            Over how much time, or among how many, each count was made: expected counts are the exposure times those for an
            exposure of 1. A record whose exposure is not above 0 is defective. For arrays and data frames.
        sample_weight : array or series of shape (n_records,), optional
            How much each record counts, as the weights of a survey do, for arrays and data frames: one of weight 2 counts as
            two. A private fit needs ``privacy=budget.plan(max_weight=W)``: larger weights count as W, and records whose weight
            is missing or negative are left out. Only w/W matters then; docs/what_epsilon_bounds.md says what it costs.
        ledger : PrivacyLedger, optional
            Charged with all steps before a value is read. None is the ledger whose block encloses the call, if any.
        checkpoint : path, optional
            File that is rewritten after every step, with released values only. If it exists, the fit continues from it. One
            fit at a time: ``.NAME.lock`` beside it says so to others.
        executor : None, "processes", "joblib" or dask.distributed.Client
            Computes the sums, partition by partition; noise is always drawn in this process. None: threads of this process, as
            many as it has processors, or ``OMP_NUM_THREADS``. Executors differ by rounding only; see docs/scale.md.
        groups : array, series or list of length n_rows, optional
            Ids of persons: whole numbers, strings or bytes; 7 and "7" are one. All rows with one id are then one record, which
            the guarantee protects as a whole: one coin, one clip, one share of the sum. Rows without an id are left out of a
            private fit. The report's unit names the series. ``PrivacyPlan(max_rows_per_group=...)`` bounds a person's rows. For
            data sources: :func:`vips.data.regroup`, whose result protects persons without ``groups``.
        public_X, public_y : optional
            Records that anybody may know, of the same columns and labels, and as similar as there are: a private fit starts at
            their posterior and takes it for its prior, at a weight that it learns from released totals (docs/logistic.md). They
            cost nothing, and nothing protects them.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            Private fits: from public facts only (arguments, dtype, number of columns), before a value is read;
            defective records count for nothing. Non-private fits validate values as scikit-learn does.
        LedgerError, CheckpointError
            If the rest of the budget is too small, ledger or checkpoint belong to another fit, or another fit works with the
            checkpoint. Nothing is changed then.
        SourceError, PartitionError
            If a part of a source cannot be read or is not as declared, or workers fail. No noise is drawn for that step.

        After any error the model is as it was: what an earlier fit has paid for is not lost.
        """
        self.check_arguments()
        if isinstance(self.privacy, StreamPlan):
            raise TypeError(
                "A StreamPlan is for batches that arrive one by one: call partial_fit(batch), or pass a PrivacyPlan."
            )
        executor = executors.resolve(executor)
        ledger = door.ledger_of_fit(self, ledger)
        self.beside = Beside(exposure, groups, public_X, public_y)
        self.check_beside(X)
        self._forget()
        journal = Journal()
        try:
            records = door.with_exposures(self, self.records_of(X, y))
            weighted = door.with_weights(self, records, sample_weight)
            data = door.persons_of(self, weighted, groups, "X" if y is None else "X, y")
            self.check_features()
            del self.beside
            warn_of_undeclared(X, self.declared_columns, names_of(y, groups, sample_weight))
            plan = completed_plan(self, stated_plan(self) or self.default_plan(data.n_records))
            if sample_weight is not None and plan.max_weight is None:
                plan = replace(plan, max_weight=np.inf)
            self.use_plan(plan)
            plan.check_blocks(self.blocks())
            start = None if self.is_private else self.begin(weighted)
            unit = unit_of_group(data.group_name or "group") if data.has_groups else None
            journal.begin(self, plan, ledger, checkpoint, unit)
            settling = self.settling_of(plan)
            self.last_posterior_, noisy_totals = engine.run(self, data, plan, journal, executor, settling, start)
            if settling is not None and not settling.distance <= self.tolerance:
                message = self._not_settled(plan.n_steps, settling.distance)
                warnings.warn(message, ConvergenceWarning, stacklevel=levels_to_user())
            if self.is_private:
                self.noisy_totals_ = noisy_totals
            else:
                self.finish(weighted)
            facts = self.describe()
            release = Release(
                what="fit",
                plan=plan,
                released=facts["released"],
                declared=declared_of(facts, plan),
                on_invalid=self.on_invalid,
                repeated_steps=journal.repeated_steps(plan),
                ledger=journal.run.entry,
                sha256=fingerprint_of(lambda: released_arrays(self)),
            )
            only_noise = is_only_noise(telling_blocks(self), noisy_totals.average, noisy_totals.noise_std)
            prepared = {"preprocessing": IN_SLOTS} if is_in_slots(X) else {}
            self.privacy_ = PrivacyReport((release,), unit or facts["unit"], only_noise, **prepared)
            warn_of_unread(self)
        except BaseException as error:  # Ctrl-C included
            try:
                journal.close()
            except (OSError, LedgerError) as failed:
                error.add_note(
                    f"The ledger could not be written, and the run stays charged until it is closed: {failed}"
                )
            raise
        finally:
            self.use_plan(None)
            vars(self).pop("takes_one_label", None)
            journal.leave()
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

        try:
            return fit_batch(self, X, y, groups, ledger, checkpoint, executor)
        finally:  # exposures of a batch are records, which nothing keeps, whatever became of the batch
            for name in ("beside", "takes_one_label"):
                vars(self).pop(name, None)

    @available_if(lambda model: type(model).to_match is not Contract.to_match)
    def match(self) -> Match:
        """Parameters whose simulated records give the totals that a private fit has released, and how well they do.

        ``misfit`` says how far the totals are from those of such records, in standard deviations. It is computed once, from
        released values only, so it costs no budget.

        Raises
        ------
        NotFittedError
        NotImplementedError
            If the fit has not kept what this needs, as in streams, or a record is more than a row.
        """
        check_is_fitted(self, "last_posterior_")
        with one_blas_thread():  # products are small, and threads of a busy machine wait for each other
            return self.once("match", self.to_match)

    def findings(self) -> dict[str, float]:
        """Numbers about the fit that a comparison shows, by name: how far the released totals are from those of the match, if
        there is one, and if another start of the match repaired the fit, how far they are from where it ended; without a match
        whether the fit has settled, as far as kept steps tell."""
        with suppress(NotImplementedError):
            match = self.once("match", self.to_match)
            where_it_ended = {} if match.astray is None else {"misfit where the fit went astray": match.astray}
            return {"misfit of the released totals (standard deviations)": match.misfit} | where_it_ended
        moves = self._drift()
        return {} if np.isnan(moves) else {"probability of so large a drift of the released totals": moves}

    def __sklearn_is_fitted__(self) -> bool:
        return "last_posterior_" in vars(self)

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
        check_is_fitted(self, "last_posterior_")
        save_model(self, path)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.takes_sparse
        tags.non_deterministic = self.is_private and not stated_plan(self).reproducible_noise
        return tags

    def __dir__(self) -> list[str]:
        """Names of the attributes that users read and call, and that exist: not those of the contract. Nothing is computed."""
        quick = copy.copy(self)
        quick._computed = dict(self._computed or {})
        quick._first_reading = "last" if self._first_reading == "compute" else self._first_reading
        hidden = _names_of_contract(type(self)) - vars(self).keys()
        return [name for name in object.__dir__(self) if name not in hidden and hasattr(quick, name)]

    def _get_fitted_attr_html(self, doc_link: str = "") -> str:
        """scikit-learn's table for notebooks, which reads all names in ``dir``: nothing that is still to compute."""
        shown = copy.copy(self)
        shown._computed = dict(self._computed or {})
        shown._first_reading = "hide"
        return super(ConjugateExponentialModel, shown)._get_fitted_attr_html(doc_link)

    def check_features(self) -> None:
        """Raise ValueError if ``n_features_in_`` columns, a public number, cannot work. Runs before values are used."""
        if self.n_features_in_ < 1:
            raise ValueError("X has no columns.")

    def check_beside(self, X) -> None:
        """Raise ValueError if what stands beside these rows cannot work, from public facts, before a value is read."""

    def settling_of(self, plan: PrivacyPlan) -> Settling | None:
        """What stops a fit early: of an ordinary one, whose number and sizes of steps nobody has stated."""
        is_ordinary = self.privacy is None and plan.sampling_rate == 1.0 and self.schedule is None
        return Settling(self.tolerance, self.in_units) if is_ordinary and self.tolerance is not None else None

    def _not_settled(self, n_steps: int, distance: float) -> str:
        how = (
            f"is about {distance:.2g} of its size from its limit" if distance < 1.0 else "still moves as fast as before"
        )
        return (
            f"{type(self).__name__} has not settled in {n_steps:,} steps: its posterior {how}. "
            "For another number of steps, write privacy=PrivacyPlan.non_private(n_steps=...)."
        )

    beside = Beside()  # until its values are read

    # How records come in. A model that takes something else overrides them.
    records_of = door.rows_of
    table_of = door.table_of
    read_rows = door.validated

    def forget_computed(self) -> None:
        """Forget what was computed from released values: others have come."""
        self._computed = {}

    def once(self, name: str, compute: Callable[[], Any]) -> Any:
        """What ``compute`` gives, or its NotImplementedError; computed once for each fit."""
        if self._computed is None:  # of a file
            self.forget_computed()
        if name not in self._computed:
            try:
                self._computed[name] = compute()
            except NotImplementedError as missing:
                self._computed[name] = _Missing(str(missing))
        value = self._computed[name]
        if isinstance(value, _Missing):
            raise NotImplementedError(value.reason)
        return value

    def _noise_aware_posterior(self) -> Any:
        """The posterior that knows the noise, computed once; raises NotImplementedError where there is none."""
        return self.once("posterior", self.to_noise_aware_posterior) if self._has_noise() else self.last_posterior_

    def _has_noise(self) -> bool:
        return hasattr(self, "noisy_totals_") and self.privacy_.plan.is_private

    def _forget(self) -> None:
        self.forget_computed()
        vars(self).pop("names_of_columns", None)  # of the encoder before the last fit
        forget_fit(self)


def _names_of_contract(cls: type) -> set[str]:
    """What a class answers to the engine and to comparisons, and users do not call."""
    names = {name for contract in (Contract, SelfDescription) for name in vars(contract) if not name.startswith("_")}
    return (names | {name for base in cls.__mro__ for name in vars(base).get("_unlisted", ())}) - _OF_USERS
