"""What a fit writes between two steps, in which order, and how it continues after an interruption.

Commit protocol of step t::

    sum ─▶ ledger: "t released" (durable) ─▶ + noise ─▶ checkpoint of step t (atomic) ─▶ only now used by step t + 1

A kill before the ledger's entry leaves nothing. A kill between the entry and the checkpoint leaves the ledger ahead: the
resumed fit repeats the step with fresh noise and is charged for both. A checkpoint holds released values only, never a
generator's state or key: noise generators run backwards, and a noisy total minus its noise is the exact total.

From the charge to the last step no other fit works with the checkpoint (``vips/_support/file_locks.py``).

A kill while the checkpoint is written leaves ``.NAME.partial`` beside it, with the noisy total of a step that will be repeated:
whoever can read the folder can see both totals. There is only one such name (an empty ``.NAME.*.partial`` is of a kill before
the fit). The next start removes the file. Unless a ledger counts the step already, it also counts one more repeated step in the
checkpoint, from which the report takes the number.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vips._support.file_locks import one_writer
from vips._support.files import check_writable, name_in_partial, sync_folder
from vips.core.contract import moves_averages
from vips.core.ledger.ledger import PrivacyLedger
from vips.core.ledger.pricing import of_plan
from vips.core.ledger.run import LedgerRun
from vips.core.plan import PrivacyPlan
from vips.core.plan_phases import weight_of_step
from vips.core.posteriors import posterior_arrays, restore_posterior, under
from vips.core.stream_plan import StreamPlan
from vips.core.sums import ReleasedStep
from vips.exceptions import CheckpointError, PrivacyWarning
from vips.persistence.archive import read_archive, write_archive
from vips.persistence.settings import describe
from vips.persistence.steps import TOO_LARGE, as_lists, from_lists, restore_steps, step_arrays

__all__ = ["FitState", "Journal", "alone_at", "identity"]


_MOST_REPEATED = 10**9


@dataclass(frozen=True)
class FitState:
    """Everything that a step needs from the steps before it; all of it released.

    ``posterior`` and ``steps`` are dicts of arrays: the engine knows their type.
    """

    step: int
    average: dict[str, np.ndarray]
    noise_std: dict[str, float | np.ndarray]
    posterior: dict[str, np.ndarray]
    steps: dict[str, np.ndarray]


def alone_at(checkpoint: str | os.PathLike) -> AbstractContextManager[os.PathLike]:
    """A block in which no other fit works with this checkpoint; raises CheckpointError if one does. Pass on what it yields."""
    try:  # before anything is charged
        check_writable(checkpoint)
    except OSError as error:
        raise CheckpointError(f"No checkpoint can be written to {os.fspath(checkpoint)}: {error}") from error
    return one_writer(checkpoint, "A fit with a checkpoint", "fit without `checkpoint`", CheckpointError)


class Journal:
    """Ledger and checkpoint of one fit; either, both or none.

    Attributes
    ----------
    run : LedgerRun
        Through which the fit releases its totals.
    start : FitState or None
        Where an interrupted fit stopped.
    repeated : float
        Steps that were released twice and that no ledger counts, by their weights.
    """

    def __init__(self) -> None:
        self.run = LedgerRun(None)
        self._path: Path | None = None
        self._header: dict | None = None
        self.start: FitState | None = None
        self.repeated = 0
        self._alone = ExitStack()

    def begin(
        self,
        model,
        plan: PrivacyPlan,
        ledger: PrivacyLedger | LedgerRun | None,
        checkpoint: str | os.PathLike | None,
        unit: str | None = None,
    ) -> None:
        """Charge the fit unless it is paid for, or continue the one in the checkpoint. Looks at public facts only.

        ``unit`` is what the fit protects, if it is not what the model calls a record.

        The journal holds the run before the run is charged, so that ``close`` gives the charge back after an interruption.

        Raises
        ------
        CheckpointError
            If the checkpoint belongs to another model or plan, or another fit works with it, or the ledger is missing.
        LedgerError
            If the ledger refuses.
        """
        if checkpoint is None:
            self._charge(model, plan, ledger, unit)
            return
        self._path, header = Path(os.path.realpath(checkpoint)), identity(model, plan, unit)
        header["columns"] = list(getattr(model, "feature_names_in_", ()))
        self._alone.enter_context(alone_at(checkpoint))
        saved, arrays = self._saved(model, plan, ledger, header) if self._path.exists() else (None, {})
        if saved is not None and saved["run"] is not None:
            self.run = ledger if isinstance(ledger, LedgerRun) else LedgerRun(ledger, saved["run"])
            self.run.resume(saved["step"], plan)
        else:
            self._charge(model, plan, ledger, unit)
        self._header = header | {"run": None if self.run.ledger is None else self.run.run}
        self._count_interrupted_step(plan, saved, arrays)
        if saved is None or saved["step"] == 0:
            return
        average, posterior, steps = (under(arrays, prefix) for prefix in ("average", "posterior", "steps"))
        self.start = FitState(saved["step"], average, saved["noise_std"], posterior, steps)
        if saved["step"] == plan.n_steps:
            warnings.warn(
                f"{self._path} holds a finished fit: its posterior is used, the data are not.",
                PrivacyWarning,
                stacklevel=4,
            )

    def restored(self, like):
        """The posterior of the checkpoint, of the type of ``like``.

        Raises
        ------
        CheckpointError
            If the file holds no posterior of this type.
        """
        with self._readable():
            return restore_posterior(like, self.start.posterior)

    def restored_steps(self, model, plan: PrivacyPlan) -> list[ReleasedStep]:
        """The kept steps of the checkpoint.

        Raises
        ------
        CheckpointError
            If the file does not hold those that the fit has kept.
        """
        with self._readable():
            return restore_steps(model, plan.n_steps, self.start.step, self.start.steps)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, ArithmeticError) as error:  # of linear algebra, too
            raise CheckpointError(
                f"{self._path} cannot be used: {str(error).rstrip('.')}. It was not touched."
            ) from None

    def _charge(self, model, plan: PrivacyPlan, ledger: PrivacyLedger | None, unit: str | None) -> None:
        if isinstance(ledger, LedgerRun):
            self.run = ledger
            self.run.begin()
        elif ledger is not None:
            self.run = LedgerRun(ledger)
            self.run.charge(of_plan(plan, ledger.relation), type(model).__name__, unit or model.describe()["unit"])

    def _saved(self, model, plan, ledger, header: dict) -> tuple[dict, dict[str, np.ndarray]]:
        """Header and arrays of the checkpoint, if it is one of this fit."""
        path = self._path
        saved, arrays = _read(path)
        _check_same(saved, header, plan, path)
        run = ledger if isinstance(ledger, LedgerRun) else LedgerRun(ledger, saved["run"])
        if saved["run"] != (None if run.ledger is None else run.run):
            raise CheckpointError(
                f"{path} was begun {'without' if saved['run'] is None else 'with'} a ledger, or under another charge: go on in "
                "the same way, so that every released step is counted once."
            )
        _check_numbers(arrays, path)
        shapes = {name: block.shape for name, block in model.blocks().items()} if saved["step"] else {}
        saved_shapes = {name: value.shape for name, value in under(arrays, "average").items()}
        if saved_shapes != shapes:
            raise CheckpointError(f"{path} holds blocks of other names or shapes than the model's. It was not touched.")
        try:
            saved["noise_std"] = from_lists(saved.get("noise_std"), shapes, differ=moves_averages(model))
        except ValueError as error:
            raise CheckpointError(f"{path} cannot be used: {error}. It was not touched.") from None
        return saved, arrays

    def _count_interrupted_step(self, plan: PrivacyPlan, saved: dict | None, arrays: Mapping[str, np.ndarray]) -> None:
        """If a partial file shows that writing a step was interrupted, count that step, then remove the file."""
        self.repeated = 0 if saved is None else saved["repeated"]
        if not os.path.lexists(self._partial):
            return
        if self._partial.is_dir() and not self._partial.is_symlink():
            raise CheckpointError(f"{self._partial} is a folder, where checkpoints are written first. Move it away.")
        if self.run.ledger is None:
            self.repeated += weight_of_step(plan.phases, 1 + (0 if saved is None else saved["step"]))
            step = {"step": 0, "noise_std": {}}
            if saved is not None:
                step = {"step": saved["step"], "noise_std": as_lists(saved["noise_std"])}
            write_archive(self._path, "checkpoint", self._header | step | {"repeated": self.repeated}, arrays)
        self._partial.unlink()
        sync_folder(self._path.parent)

    @property
    def _partial(self) -> Path:
        return self._path.with_name(f".{name_in_partial(self._path.name)}.partial")

    def repeated_steps(self, plan: PrivacyPlan) -> float:
        """Steps that were released twice, by their weights: charged by the ledger beyond the plan, or counted by none."""
        return self.repeated if self.run.ledger is None else self.run.repeated_steps(plan)

    def commit(
        self, step: int, noisy: Mapping, average: Mapping, noise_std: Mapping, posterior, steps: Iterable[ReleasedStep]
    ) -> None:
        """Write the state after a step. Its values must not be used, shown or logged before this returns."""
        if self._path is None:
            return
        arrays = {f"noisy/{name}": value for name, value in noisy.items()}
        arrays |= {f"average/{name}": value for name, value in average.items()}
        arrays |= {f"posterior/{name}": value for name, value in posterior_arrays(posterior).items()}
        arrays |= {f"steps/{name}": value for name, value in step_arrays(steps).items()}
        header = self._header | {"step": step, "noise_std": as_lists(noise_std), "repeated": self.repeated}
        write_archive(self._path, "checkpoint", header, arrays, self._partial)

    def close(self) -> None:
        """The fit ends early: give unreleased steps back."""
        self.run.close()

    def leave(self) -> None:
        """The fit has ended: others may work with its checkpoint."""
        self._alone.close()


def identity(model, plan: PrivacyPlan | StreamPlan, unit: str | None) -> dict:
    """What a fit is: model, arguments, plan, columns, unit."""
    parameters = {name: describe(value) for name, value in model.get_params(deep=False).items() if name != "privacy"}
    if hasattr(model, "public_records_"):
        parameters["public records"] = describe(model.public_records_)
    return {
        "model": f"{type(model).__module__}.{type(model).__qualname__}",
        "parameters": parameters,
        "plan": describe(plan),
        "n_features": model.n_features_in_,
        "unit": unit or model.describe()["unit"],
    }


def _read(path: Path) -> tuple[dict, dict[str, np.ndarray]]:
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder: name a file, which the fit writes.")
    try:
        return read_archive(path, "checkpoint")
    except ValueError as error:
        raise CheckpointError(f"{error} It was not touched; move it away to fit from the start.") from error


def _check_same(saved: dict, header: dict, plan: PrivacyPlan, path: Path) -> None:
    """Raise CheckpointError unless the checkpoint belongs to this fit and is complete."""
    different = [name for name in header if saved.get(name) != header[name]]
    if "parameters" in different and isinstance(saved.get("parameters"), dict):
        ours, theirs = header["parameters"], saved["parameters"]
        different += [f"parameter {name!r}" for name in ours if theirs.get(name, ...) != ours[name]]
    if different:
        raise CheckpointError(
            f"{path} is the checkpoint of another fit (different: {', '.join(different)}). It was not touched; write "
            "another path, or move it away."
        )
    least, has_phases = 0 if saved.get("repeated") else 1, bool(plan.phases)
    for name, kinds, low, most in (
        ("step", (int,), least, plan.n_steps),
        ("repeated", (int, float), 0, _MOST_REPEATED),
    ):
        value = saved.get(name)
        if type(value) not in kinds or not low <= value <= most or (not has_phases and value != int(value)):
            raise CheckpointError(f"{path} names {name} {value!r} of {most}. It was not touched.")
    if not isinstance(saved.get("run", 0), str | None):
        raise CheckpointError(f"{path} does not say which run of a ledger it belongs to. It was not touched.")


def _check_numbers(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Raise CheckpointError unless all arrays hold numbers, of a plausible size."""
    for name, array in arrays.items():
        is_total = name.startswith(("average/", "noisy/"))
        if array.dtype.kind not in ("f" if is_total else "biuf") or np.isnan(array).any():
            raise CheckpointError(f"{path} holds no numbers in {name!r}. It was not touched.")
        sizes = np.abs(array) if is_total else np.abs(array[np.isfinite(array)])  # posteriors may have an infinity
        if not (sizes < TOO_LARGE).all():
            raise CheckpointError(f"{path} holds numbers in {name!r} that no fit makes. It was not touched.")
