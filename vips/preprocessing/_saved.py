"""Private encoders and pipelines as files: arrays and JSON, without pickle. What is read is checked: it may be forged."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips.exceptions import CheckpointError
from vips.persistence.archive import restored_from, write_archive
from vips.persistence.fitted import contents, restored
from vips.persistence.settings import decode, encode
from vips.preprocessing._private_words import PrivateCountVectorizer
from vips.preprocessing._table import TableEncoder
from vips.report.report import PrivacyReport
from vips.report.words import declared_of

__all__ = [
    "behind_encoder", "checkpointed", "restored_encoder", "restored_parts", "run_of", "save_pipeline", "without_plans",
]  # fmt: skip

_ENCODERS = (TableEncoder, PrivateCountVectorizer)


def save_pipeline(pipeline, path: str | os.PathLike, **besides: object) -> None:
    """Write a fitted encoder and model, and what the header holds besides; see :meth:`PrivatePipeline.save`."""
    check_is_fitted(pipeline)
    (encoder_name, encoder), (model_name, model) = pipeline.steps_
    of_model, arrays = contents(model)
    settings = {name: encode(value) for name, value in pipeline.get_params(deep=False).items() if name != "steps"}
    header = {
        "class": type(pipeline).__name__,
        "names": [encoder_name, model_name],
        "parameters": settings,
        "encoder": encoder.to_json() | encoder.fit_to_json(),
        "model": of_model,
    }
    write_archive(path, "pipeline", header | besides, arrays)


def restored_parts(
    header: dict, arrays: dict[str, np.ndarray], known: Mapping[str, type], encoders: Iterable[type]
) -> tuple[list, dict]:
    """Fitted steps of a file's header and arrays, and the arguments of the pipeline."""
    encoder, model = _from_json(header["encoder"], encoders), restored(header["model"], arrays, known)
    if encoder.n_features_out != model.n_features_in_:
        raise ValueError("its encoder and its model have different numbers of features")
    fit = model.privacy_.releases[-1]
    fit = replace(fit, declared=declared_of(model.describe(), fit.plan))
    model.privacy_ = behind_encoder(replace(model.privacy_, releases=(fit,)), encoder)
    steps = list(zip(map(str, header["names"]), (encoder, model), strict=True))
    return steps, {name: decode(value) for name, value in header["parameters"].items()}


def without_plans(steps: list) -> list:
    """The same steps before a fit, as the arguments of a pipeline."""
    parameters = [(name, type(step), step.get_params(deep=False)) for name, step in steps]
    plans = "privacy", "threshold_delta"
    return [(name, kind(**given | dict.fromkeys(given.keys() & plans))) for name, kind, given in parameters]


def behind_encoder(report: PrivacyReport, encoder) -> PrivacyReport:
    """The report of a fit to encoded records, with what the encoder released, or what was declared to it."""
    learnt = getattr(encoder, "privacy_", None)
    return report.behind(encoder.declared_public) if learnt is None else report.after(learnt, encoder.learns)


def restored_encoder(
    header: dict, arrays: dict[str, np.ndarray], known: Mapping[str, type] | None = None, encoders=_ENCODERS
):
    """The fitted encoder of a file's header, of one of these classes."""
    return _from_json(header["encoder"], encoders)


def checkpointed(encoder, path: str | os.PathLike, ledger, unit: str):
    """The encoder that an interrupted fit with the same settings has learnt; None if there is no file. CheckpointError if the
    file is of another fit, or that fit was charged elsewhere: it is not touched."""
    if not os.path.exists(path):
        return None
    try:
        saved = restored_from(path, {"encoder": partial(restored_encoder, encoders=[type(encoder)])})
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    # of the budget, a ledger may have had another δ for the threshold then
    ours, theirs = (step.to_json()["parameters"] | {"threshold_delta": None} for step in (encoder, saved))
    report, run = getattr(saved, "privacy_", None), run_of(saved)
    if type(encoder) is not type(saved) or ours != theirs or (report is not None and report.unit != unit):
        raise CheckpointError(f"{path} is of a fit with other settings or another unit. It was not touched.")
    if report is None:  # nothing was learnt or charged
        return saved
    if (run is None) != (ledger is None) or (run and run not in {entry.run for entry in ledger.runs()}):
        raise CheckpointError(f"{path} was begun with another ledger, or without one: go on in the same way.")
    return saved


def run_of(encoder) -> str | None:
    """The run of a ledger that has paid for what an encoder learnt, if any."""
    report = getattr(encoder, "privacy_", None)
    return None if report is None or report.ledger is None else report.ledger["run"]


def _from_json(values: dict, encoders: Iterable[type]):
    name, known = values["class"], {cls.__name__: cls for cls in encoders}
    if name not in known:
        raise ValueError(f"its encoder is a {name!r}")
    return known[name].from_json(values)
