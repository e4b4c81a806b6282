"""One batch of a stream: sum, correlated noise, secret, release.

Protocol of batch t::

    charge ─▶ clipped sum s_t ─▶ R_t = γ R_{t-1} + s_t + w_t ─▶ secret of t, with R_t (durable) ─▶ the ledger's entry: t and
    the hash of R_t (durable) ─▶ posterior ─▶ attributes ─▶ checkpoint of t

A kill before the secret is written leaves nothing: the batch was not seen, and can be passed again. A kill after it leaves a
release that is determined: nothing is given back, and the next call completes it, and says that the batch counts. The entry
stops copies of the files: of each batch, one release is on record. Attributes come before the checkpoint,
so that a model whose call was interrupted between them is told as well.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from vips._support.fitted import forget_fit
from vips.core import engine
from vips.core.execution.local import Threads
from vips.core.ledger.pricing import fields_of, of_plan
from vips.core.ledger.run import LedgerRun
from vips.core.mechanism.noise import Randomness
from vips.core.phases import phases_of
from vips.core.posteriors import posterior_arrays, restore_posterior
from vips.core.records.groups import ids_and_numbers, name_of
from vips.core.stream_plan import StreamPlan, StreamState
from vips.core.sums import NoisyTotals
from vips.core.units import unit_of_group
from vips.door import check_persons, ledger_of_fit, with_exposures
from vips.exceptions import LedgerError, StreamError
from vips.executors import resolve as executors
from vips.parts import telling_blocks
from vips.persistence.archive import one_error, restored_from, write_archive
from vips.persistence.checkpoint import identity
from vips.persistence.fitted import released_arrays
from vips.report.only_noise import is_only_noise
from vips.report.report import PrivacyReport, Release
from vips.report.report_fields import fingerprint_of
from vips.streams.release import CorrelatedNoise
from vips.streams.secret import Register, Secret, SecretFile, SecretMemory

__all__ = ["fit_batch"]

_KIND = "stream"


def fit_batch(model, X, y=None, groups=None, ledger=None, checkpoint=None, executor=None):
    """See :meth:`ConjugateExponentialModel.partial_fit`."""
    model.check_arguments()
    if not model.adds_up:
        raise TypeError(
            f"The statistics of {type(model).__name__} are sums at one posterior only: they do not add up over batches."
        )
    executor, ledger = executors.resolve(executor), ledger_of_fit(model, ledger)
    known = getattr(model, "stream_", None)
    name = uuid.uuid4().hex if known is None or checkpoint is not None else known.name
    place = SecretMemory(name) if checkpoint is None else SecretFile(checkpoint)
    with place.locked():
        is_new = known is None if checkpoint is None else not (place.exists() or os.path.exists(checkpoint))
        if is_new and known is not None:
            raise StreamError(
                f"This model's stream has {known.t} batches, and {checkpoint} has none. Pass the checkpoint that it began "
                "with, or a new model."
            )
        stream = _Stream(model, place, checkpoint, ledger)
        if is_new:
            stream.begin(name)
        elif stream.resume() and X is not None:
            raise StreamError(
                f"The call before was interrupted after it had counted its batch, or another model went on with this stream. "
                f"{stream.t} batches count, and their release is complete now. Do not pass their records again; go on with the "
                "next batch."
            )
        if X is not None:
            stream.take(X, y, groups, executor)
    return model


class _Stream:
    """A model's stream while a batch is taken."""

    def __init__(self, model, place, checkpoint, ledger) -> None:
        self.model, self.place, self.checkpoint, self.ledger = model, place, checkpoint, ledger
        self.plan = model.privacy
        self.t, self.posterior, self.secret, self.run = 0, None, None, None
        self.begun: LedgerRun | None = None  # of a first batch, once it may be charged

    def begin(self, name: str) -> None:
        self.name = name

    def resume(self) -> bool:
        """Continue a stream; whether it has a release that this model has not shown yet."""
        model, secret = self.model, self.place.read()
        known = getattr(model, "stream_", None)
        if known is not None and known.name != secret.stream:
            raise StreamError(
                f"{self.checkpoint} holds another stream than this model's. Pass the checkpoint that it began with, or a new "
                "model. Nothing was changed."
            )
        self.name, self.secret, self.run = secret.stream, secret, secret.header["run"]
        with self._undone_by_errors():
            if known is None:
                forget_fit(model)
            self._begin_as(secret)
        if self.checkpoint is None:
            self.t, self.posterior = model.stream_.t, model.last_posterior_
        else:
            self.t, self.posterior = self._read_checkpoint()
        if secret.t not in (self.t, self.t + 1):
            raise StreamError(
                f"The stream's secret is at batch {secret.t}, its released state at {self.t}: one of them is an older copy. "
                "Noise would be used twice, so that this stream cannot go on."
            )
        is_pending = secret.t == self.t + 1
        self._record(secret)
        if is_pending:
            self._release(secret)
        else:
            self._show()
        return is_pending or (known is not None and known.t != self.t)

    def take(self, X, y, groups, executor) -> None:
        """One batch."""
        if self.t >= self.plan.n_batches:
            raise StreamError(f"The plan is for {self.plan.n_batches} batches, and all of them were released.")
        with self._undone_by_errors():
            if self.secret is None:
                forget_fit(self.model)  # an ordinary one, whose attributes hold records
            secret = self._secret_after(X, y, groups, executor)
            self.place.write(secret)  # from here on nothing is given back
            self._record(secret)
        self._release(secret)

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _secret_after(self, X, y, groups, executor) -> Secret:
        """The secret after this batch, with the release R_t. A stream that begins is charged before a value is read."""
        model, columns, t = self.model, getattr(self.model, "n_features_in_", None), self.t + 1
        data = with_exposures(model, model.records_of(X, y))
        vars(model).pop("beside", None)
        if self.t and data.n_features != columns:
            raise ValueError(f"The batch has {data.n_features} columns, those before had {columns}.")
        model.check_features()
        plan = self.plan = self._completed(self.plan)
        with self._fitting():
            blocks = model.blocks()
            searched = plan.searched(blocks)
            data, register, unit = self._persons(data, groups)
            header = self._header(unit) | {"register": groups is not None, "searched": searched}
            if self.t:
                self._check_same(header)
            elif self.ledger is not None:
                self.begun = LedgerRun(self.ledger)
                self.begun.charge(of_plan(plan.whole, self.ledger.relation), type(model).__name__, unit)
                header["run"] = self.run = self.begun.run
            if self.posterior is None:
                self.posterior = self._first_posterior()
            coins = Randomness.for_fit(None, False)  # nothing is sampled
            with (executor or Threads()).over(data) as workers:
                (phase,) = phases_of(model, 1, blocks)
                total = engine.clipped_sum(model, phase, data, self.posterior, plan.of_draws, coins, t, workers)
        mechanism = CorrelatedNoise(plan, blocks) if self.secret is None else self._mechanism(self.secret, blocks)
        mechanism.release(total, t)
        return Secret(self.name, t, *mechanism.state, register, header)

    def _mechanism(self, secret: Secret, blocks: dict) -> CorrelatedNoise:
        return CorrelatedNoise(self.plan, blocks, secret.t, (secret.released, secret.buffers))

    def _completed(self, plan: StreamPlan) -> StreamPlan:
        if plan.clip_norm is not None or not plan.is_private:
            return plan
        return replace(plan, clip_norm=self.model.clip_for(plan.max_rows_per_group))

    def _persons(self, data, groups) -> tuple:
        """Data in which each person is one record, without persons who were in enough batches; the register; the unit."""
        register = Register() if self.secret is None else self.secret.register
        check_persons(self.model, data, groups)
        if groups is None:
            unit = unit_of_group(data.group_name or "group") if data.has_groups else self.model.describe()["unit"]
            return data, register, unit
        ids, numbers = ids_and_numbers(groups, data.n_records)
        is_in, register = register.admitted(ids, self.plan.participation)
        numbers = np.where((numbers >= 0) & np.append(is_in, False)[numbers], numbers, -1)
        data = data.grouped(numbers, name_of(groups))
        return data, register, unit_of_group(data.group_name or "group")

    def _header(self, unit: str) -> dict:
        return identity(self.model, self.plan, unit) | {"run": self.run}

    def _begin_as(self, secret: Secret) -> None:
        """Take the number of columns, noise, factorisation and lattice with which the stream began. StreamError if it is
        another model's, or not as its header says."""
        model = self.model
        model.n_features_in_, self.plan = secret.header["n_features"], self._completed(model.privacy)
        self._check_same(secret.header)
        try:
            with one_error(self.checkpoint or "The state of this stream"):
                self.plan = self.plan.with_searched(secret.header["searched"])
                with self._fitting():
                    blocks = model.blocks()
                self.plan.check_lattice(blocks)
                shapes = {name: block.shape for name, block in blocks.items()}
                n_buffers = self.plan.strategy.n_buffers if self.plan.is_private else 0
                secret.check(shapes, n_buffers, np.int64 if self.plan.rounds_records else np.float64)
        except ValueError as error:
            raise StreamError(f"{error} It was not touched.") from error

    @contextmanager
    def _undone_by_errors(self) -> Iterator[None]:
        """After an error the model is as before, and a charge of which nothing was released is given back."""
        attributes = dict(vars(self.model))
        try:
            yield
        except BaseException as error:
            vars(self.model).clear()
            vars(self.model).update(attributes)
            if self.begun is not None and not self.place.outlives_errors():
                try:
                    self.begun.close()
                except (OSError, LedgerError) as failed:
                    error.add_note(f"The ledger could not be written; close the run {self.begun.run}: {failed}")
            raise

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        """The model's methods see the plan of one batch."""
        self.model.use_plan(self.plan.of_draws)
        try:
            yield
        finally:
            self.model.use_plan(None)

    def _check_same(self, header: dict) -> None:
        """Raise StreamError if this call belongs to another stream than ``header`` says."""
        ours = self._header(header["unit"]) | {"register": header["register"]}
        known = header if self.secret is None else self.secret.header
        for name in (name for name in ours if name not in ("run", "unit", "register")):
            if json.dumps(ours[name], sort_keys=True) != json.dumps(known[name], sort_keys=True):
                raise StreamError(f"The stream was begun with other settings (different: {name}). Nothing was changed.")
        if header["unit"] != known["unit"]:
            raise StreamError(
                f"The stream protects {known['unit']!r}, this batch would protect {header['unit']!r}. Pass `groups` in every "
                "batch or in none, under one name."
            )
        if header["register"] != known["register"]:
            raise StreamError(
                f"The stream was begun {'with' if known['register'] else 'without'} `groups`, and this batch comes "
                f"{'with' if header['register'] else 'without'} them: pass `groups` in every batch, or in none."
            )
        if (known["run"] is None) != (self.ledger is None):
            raise StreamError(
                f"The stream was begun {'without' if known['run'] is None else 'with'} a ledger: go on in the same way."
            )
        if self.ledger is not None and self.ledger.run(known["run"]).plan != fields_of(self.plan.whole):
            raise StreamError("The ledger was charged for another noise than this stream's. Nothing was changed.")

    def _record(self, secret: Secret) -> None:
        """The ledger's entry of this release; nothing if it is there already."""
        if self.ledger is not None:
            self.ledger.release_batch(secret.header["run"], secret.t, secret.digest())

    def _release(self, secret: Secret) -> None:
        """From R_t to the posterior, the checkpoint and the model's attributes."""
        model = self.model
        with self._fitting():
            blocks = model.blocks()
            mechanism = self._mechanism(secret, blocks)
            self.posterior = model.to_posterior(mechanism.values(), mechanism.std_of_average(), self.posterior)
        self.t, self.secret, self.run = secret.t, secret, secret.header["run"]
        self._show()
        if self.checkpoint is not None:
            arrays = {f"posterior/{name}": value for name, value in posterior_arrays(self.posterior).items()}
            write_archive(self.checkpoint, _KIND, {"stream": self.name, "t": self.t}, arrays)

    def _read_checkpoint(self) -> tuple[int, object]:
        """Number of batches and posterior of the checkpoint; those of no batch if there is no file yet."""
        with self._fitting():
            first = self._first_posterior()
        if not os.path.exists(self.checkpoint):
            return 0, first

        def released(header: dict, arrays: dict) -> tuple[int, object]:
            if header.get("stream") != self.name or type(header.get("t")) is not int:
                raise ValueError("it and its secret belong to different streams")
            posterior = {name.removeprefix("posterior/"): value for name, value in arrays.items()}
            return header["t"], restore_posterior(first, posterior)

        try:
            return restored_from(self.checkpoint, {_KIND: released})
        except ValueError as error:
            raise StreamError(f"{error} It was not touched.") from error

    def _first_posterior(self):
        """The posterior after no batch."""
        return self.model.start(Randomness.for_fit(self.model.random_state, False).initial)[1]

    def _show(self) -> None:
        """The model's attributes."""
        model, plan, secret = self.model, self.plan, self.secret
        blocks = model.blocks()
        mechanism = self._mechanism(secret, blocks)
        totals = NoisyTotals(mechanism.values(), mechanism.std_of_average())
        unit, has_register = secret.header["unit"], secret.header["register"]
        model.last_posterior_, model.noisy_totals_ = self.posterior, totals
        facts = model.describe()
        ledger = None if self.run is None else self.ledger.entry(self.run)
        kept = "kept by a register of persons" if has_register else "a promise of the caller, which nothing checks"
        public = (
            f"{plan.n_batches} batches at most, of any size, {secret.t} of them released; after each the total so far, "
            f"discounted by {plan.decay:g} a batch, with correlated noise ({plan.mechanism})",
            "all releases are one Gaussian mechanism",
            f"{unit} is in at most {plan.participation} of the batches: {kept}",
        )
        model.forget_computed()
        release = Release(
            what="stream",
            plan=plan.whole,
            released=facts["released"],
            declared=(*facts.get("declared_public", ()), *public),
            on_invalid=model.on_invalid,
            ledger=ledger,
            sha256=fingerprint_of(lambda: released_arrays(model)),
        )
        only_noise = is_only_noise(telling_blocks(model), totals.average, totals.noise_std)
        model.privacy_ = PrivacyReport((release,), unit, only_noise)
        model.n_batches_seen_ = secret.t
        model.stream_ = StreamState(self.name, secret.t, self.run)
