"""Private encoders and pipelines as files: arrays and JSON, without pickle. What is read is checked: it may be forged."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips.exceptions import CheckpointError
from vips.persistence.archive import one_error, read_archive, write_archive
from vips.persistence.fitted import contents, restored
from vips.persistence.settings import decode, encode
from vips.preprocessing._encoder_report import EncoderReport
from vips.preprocessing._encoder_settings import LEARNT_KINDS, checked_delta, checked_plan, declared_as
from vips.preprocessing._learnt_columns import OTHER
from vips.preprocessing._private_table import PrivateTableEncoder
from vips.privacy.ledger.ledger import PrivacyLedger

__all__ = ["checkpointed", "restored_parts", "save_encoder", "save_pipeline"]

_REPORT = ("plan", "threshold_delta", "unit", "released", "declared_public", "ledger")
_SETTINGS = ("epsilon", "delta", "n_steps", "encoder_share", "relation")


def save_pipeline(pipeline, path: str | os.PathLike) -> None:
    """Write a fitted pipeline of an encoder and a model; see :meth:`PrivatePipeline.save`."""
    check_is_fitted(pipeline)
    if len(pipeline.steps_) != 2:
        names = ", ".join(repr(name) for name, _ in pipeline.steps_[1:-1])
        raise TypeError(f"Only a pipeline of an encoder and a model can be saved; this one also has {names}.")
    (encoder_name, encoder), (model_name, model) = pipeline.steps_
    header, arrays = contents(model)
    settings = {name: encode(getattr(pipeline, name)) for name in _SETTINGS}
    names = [encoder_name, model_name]
    write_archive(path, "pipeline", {"names": names, **settings, "encoder": _to_json(encoder), "model": header}, arrays)


def restored_parts(header: dict, arrays: dict[str, np.ndarray], known: Mapping[str, type]) -> tuple[list, list, dict]:
    """Fitted steps of a file's header and arrays, the same steps before the fit, and the settings of the pipeline."""
    encoder, model = _from_json(header["encoder"]), restored(header["model"], arrays, known)
    if encoder.n_features_out != model.n_features_in_:
        raise ValueError("its encoder and its model have different numbers of features")
    steps = list(zip(map(str, header["names"]), (encoder, model), strict=True))
    plain = [(name, type(step)(**_without_plan(step))) for name, step in steps]
    return steps, plain, {name: decode(header[name]) for name in _SETTINGS}


def save_encoder(encoder: PrivateTableEncoder, path: str | os.PathLike) -> None:
    """Write a fitted encoder."""
    write_archive(path, "encoder", {"encoder": _to_json(encoder)}, {})


def checkpointed(
    encoder: PrivateTableEncoder, path: str | os.PathLike, ledger, unit: str
) -> PrivateTableEncoder | None:
    """The encoder that an interrupted fit with the same settings has learnt; None if there is no file.

    Raises
    ------
    CheckpointError
        If the file is of another fit, or that fit was charged elsewhere. It is not touched.
    """
    if not os.path.exists(path):
        return None
    try:
        header, _ = read_archive(path, "encoder")
        with one_error(path):
            saved = _from_json(header["encoder"])
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    if _to_json(encoder)["parameters"] != _to_json(saved)["parameters"] or saved.privacy_.unit != unit:
        raise CheckpointError(f"{path} is of a fit with other settings or another unit. It was not touched.")
    entry = saved.privacy_.ledger
    if (entry is None) != (ledger is None) or (entry and not _has_run(ledger, entry["run"])):
        raise CheckpointError(f"{path} was begun with another ledger, or without one: go on in the same way.")
    return saved


def _has_run(ledger: PrivacyLedger, run: str) -> bool:
    return any(each.run == run for each in ledger.runs())


def _without_plan(step) -> dict:
    return (
        step.get_params(deep=False)
        | {"privacy": None}
        | ({"threshold_delta": None} if isinstance(step, PrivateTableEncoder) else {})
    )


def _to_json(encoder: PrivateTableEncoder) -> dict:
    parameters = encoder.get_params(deep=False)
    if parameters["columns"] is not None:
        parameters["columns"] = list(parameters["columns"].items())
    saved = {"parameters": {name: encode(value) for name, value in parameters.items()}}
    if not hasattr(encoder, "columns_"):
        return saved
    report = encoder.privacy_
    return saved | {
        "columns": encode(list(encoder.columns_.items())),
        "indicators": encode(encoder.indicators_),
        "kinds": encode(list(encoder._kinds.items())),
        "n_features_in": encoder.n_features_in_,
        "names_in": encode(list(getattr(encoder, "feature_names_in_", []))),
        "report": {name: encode(getattr(report, name)) for name in _REPORT if name != "ledger"}
        | {"ledger": report.ledger},
    }


def _from_json(values: dict) -> PrivateTableEncoder:
    parameters = {name: decode(value) for name, value in values["parameters"].items()}
    if parameters["columns"] is not None:
        parameters["columns"] = dict(parameters["columns"])
    encoder = PrivateTableEncoder(**parameters)
    report = values["report"]
    if not isinstance(report["ledger"], dict | None):
        raise ValueError("its entry in a ledger is none")
    ledger = report["ledger"] and {name: str(report["ledger"][name]) for name in ("dataset", "run")}
    encoder.columns_, encoder._kinds = dict(decode(values["columns"])), dict(decode(values["kinds"]))
    encoder.indicators_ = tuple(decode(values["indicators"]))
    names, encoder.n_features_in_ = decode(values["names_in"]), int(values["n_features_in"])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("its names of columns are none")
    if names:  # of strings only, as in scikit-learn
        encoder.feature_names_in_ = np.array(names, dtype=object)
    encoder.privacy_ = EncoderReport(
        **{name: decode(report[name]) for name in _REPORT if name != "ledger"}, ledger=ledger
    )
    _check_parts(encoder)
    _ = encoder._table().declared_public  # raises for bounds or categories that are none
    return encoder


def _check_parts(encoder: PrivateTableEncoder) -> None:
    """Raise an error unless the columns have the forms that their kinds have, and the statement is that of the settings."""
    columns, kinds, report = encoder.columns_, encoder._kinds, encoder.privacy_
    is_known = list(kinds) == list(columns) and set(kinds.values()) <= {"declared", *LEARNT_KINDS}
    if not is_known or not all(_has_form(encoder, name) for name in kinds):
        raise ValueError("its columns are not those that an encoder learns")
    if not {kinds.get(name) for name in encoder.indicators_} <= {"number", "date"}:
        raise ValueError("its indicators are of columns that have none")
    learnt = {name: kind for name, kind in kinds.items() if kind in LEARNT_KINDS}
    plan, delta = checked_plan(encoder.privacy, len(learnt)), checked_delta(encoder.threshold_delta, learnt)
    texts = (report.unit, *report.released, *report.declared_public)
    is_stated = isinstance(report.threshold_delta, float) and all(isinstance(text, str) for text in texts)
    if not is_stated or report.plan != plan or report.threshold_delta != delta:
        raise ValueError("its statement is not that of its settings")


def _has_form(encoder: PrivateTableEncoder, name) -> bool:
    """Whether a column's bounds or categories are such as its kind has."""
    kind, known = encoder._kinds[name], encoder.columns_[name]
    if kind == "declared":
        return repr(known) == repr(declared_as(encoder.columns, name))
    if kind == "category":
        return isinstance(known, list) and OTHER in known
    return isinstance(known, tuple) and len(known) == 2
