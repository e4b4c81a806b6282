"""A :class:`PrivateTableEncoder` as JSON, and back. What is read is checked: it may be forged."""

from __future__ import annotations

import numpy as np

from vips.persistence.settings import decode, encode
from vips.preprocessing._encoder_report import report_from_json, report_to_json
from vips.preprocessing._encoder_settings import LEARNT_KINDS, checked_delta, checked_plan, declared_as
from vips.preprocessing._learnt_columns import OTHER
from vips.preprocessing._private_table import PrivateTableEncoder

__all__ = ["from_json", "to_json"]


def to_json(encoder: PrivateTableEncoder) -> dict:
    parameters = encoder.get_params(deep=False)
    if parameters["columns"] is not None:
        parameters["columns"] = list(parameters["columns"].items())
    saved = {"parameters": {name: encode(value) for name, value in parameters.items()}}
    if not hasattr(encoder, "columns_"):
        return saved
    return saved | {
        "columns": encode(list(encoder.columns_.items())),
        "indicators": encode(encoder.indicators_),
        "kinds": encode(list(encoder._kinds.items())),
        "n_features_in": encoder.n_features_in_,
        "names_in": encode(list(getattr(encoder, "feature_names_in_", []))),
        "report": report_to_json(encoder.privacy_),
    }


def from_json(values: dict) -> PrivateTableEncoder:
    parameters = {name: decode(value) for name, value in values["parameters"].items()}
    if parameters["columns"] is not None:
        parameters["columns"] = dict(parameters["columns"])
    encoder = PrivateTableEncoder(**parameters)
    encoder.columns_, encoder._kinds = dict(decode(values["columns"])), dict(decode(values["kinds"]))
    encoder.indicators_ = tuple(decode(values["indicators"]))
    names, encoder.n_features_in_ = decode(values["names_in"]), int(values["n_features_in"])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("its names of columns are none")
    if names:  # of strings only, as in scikit-learn
        encoder.feature_names_in_ = np.array(names, dtype=object)
    _check_columns(encoder)
    learnt = {name: kind for name, kind in encoder._kinds.items() if kind in LEARNT_KINDS}
    plan, delta = checked_plan(encoder.privacy, len(learnt)), checked_delta(encoder.threshold_delta, learnt)
    _ = encoder._table().declared_public  # raises for bounds or categories that are none
    report = report_from_json(values["report"], plan, delta)
    encoder.privacy_ = encoder._statement(plan, delta, report["unit"], report["ledger"])
    return encoder


def _check_columns(encoder: PrivateTableEncoder) -> None:
    """Raise ValueError unless the columns have the forms that their kinds have."""
    columns, kinds = encoder.columns_, encoder._kinds
    is_known = list(kinds) == list(columns) and set(kinds.values()) <= {"declared", *LEARNT_KINDS}
    if not is_known or not all(_has_form(encoder, name) for name in kinds):
        raise ValueError("its columns are not those that an encoder learns")
    if not {kinds.get(name) for name in encoder.indicators_} <= {*LEARNT_KINDS} - {"category"}:
        raise ValueError("its indicators are of columns that have none")


def _has_form(encoder: PrivateTableEncoder, name) -> bool:
    """Whether a column's bounds or categories are such as its kind has."""
    kind, known = encoder._kinds[name], encoder.columns_[name]
    if kind == "declared":
        return repr(known) == repr(declared_as(encoder.columns, name))
    if kind == "category":
        return isinstance(known, list) and OTHER in known
    return isinstance(known, tuple) and len(known) == 2
