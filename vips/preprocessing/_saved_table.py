"""Encoders of tables as JSON, and back. What is read is checked: it may be forged."""

from __future__ import annotations

import numpy as np

from vips.persistence.settings import decode, encode
from vips.preprocessing._encoder_report import report_from_json, report_to_json
from vips.preprocessing._encoder_settings import LEARNT_KINDS, checked_delta, checked_plan, declared_as
from vips.preprocessing._learnt_columns import OTHER
from vips.preprocessing._private_table import PrivateTableEncoder
from vips.preprocessing._table import TableEncoder

__all__ = ["declared_from_json", "declared_to_json", "from_json", "to_json"]


def to_json(encoder: PrivateTableEncoder) -> dict:
    saved = {"parameters": {name: encode(value) for name, value in encoder.get_params(deep=False).items()}}
    if not hasattr(encoder, "columns_"):
        return saved
    return saved | {
        "columns": encode(encoder.columns_),
        "indicators": encode(encoder.indicators_),
        "kinds": encode(encoder._kinds),
        **_names_to_json(encoder),
        "report": report_to_json(encoder.privacy_),
    }


def from_json(values: dict) -> PrivateTableEncoder:
    encoder = PrivateTableEncoder(**{name: decode(value) for name, value in values["parameters"].items()})
    encoder.columns_, encoder._kinds = decode(values["columns"]), decode(values["kinds"])
    encoder.indicators_ = tuple(decode(values["indicators"]))
    _restore_names(encoder, values)
    _check_columns(encoder)
    learnt = {name: kind for name, kind in encoder._kinds.items() if kind in LEARNT_KINDS}
    plan, delta = checked_plan(encoder.privacy, len(learnt)), checked_delta(encoder.threshold_delta, learnt)
    _ = encoder._table().declared_public  # raises for bounds or categories that are none
    report = report_from_json(values["report"], plan, delta)
    encoder.privacy_ = encoder._statement(plan, delta, report["unit"], report["ledger"])
    return encoder


def declared_to_json(encoder: TableEncoder) -> dict:
    parameters = {name: encode(value) for name, value in encoder.get_params(deep=False).items()}
    return {"parameters": parameters, **_names_to_json(encoder)}


def declared_from_json(values: dict) -> TableEncoder:
    encoder = TableEncoder(**{name: decode(value) for name, value in values["parameters"].items()})
    _ = encoder.declared_public  # raises for bounds or categories that are none
    _restore_names(encoder, values)
    return encoder


def _names_to_json(encoder) -> dict:
    names = encode(list(getattr(encoder, "feature_names_in_", [])))
    return {"n_features_in": encoder.n_features_in_, "names_in": names}


def _restore_names(encoder, values: dict) -> None:
    names, encoder.n_features_in_ = decode(values["names_in"]), int(values["n_features_in"])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("its names of columns are not strings")
    if names:  # of strings only, as in scikit-learn
        encoder.feature_names_in_ = np.array(names, dtype=object)


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
