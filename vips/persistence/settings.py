"""Public settings of a model as JSON and back: numbers, dates, words, arrays, types, plans, step sizes. Nothing is executed."""

from __future__ import annotations

import math
from dataclasses import fields
from datetime import date, datetime

import numpy as np
import scipy.sparse as sp

from vips.core.budget import PrivacyBudget
from vips.core.plan import PrivacyPlan
from vips.core.plan_phases import Phase
from vips.core.step_size import PolynomialAveraging, RobbinsMonro
from vips.core.stream_plan import StreamPlan, StreamState
from vips.expfam import DiagonalGaussian, Gamma, Gaussian

__all__ = ["decode", "describe", "encode"]

_DATACLASSES = PrivacyBudget, PrivacyPlan, Phase, StreamPlan, StreamState, RobbinsMonro, PolynomialAveraging
_COLLECTIONS = {kind.__name__: kind for kind in (list, tuple, set, frozenset)}
_CLASSES = {cls.__name__: cls for cls in _DATACLASSES}
_GAUSSIANS = {cls.__name__: cls for cls in (Gaussian, DiagonalGaussian)}
_TAG = "__vips__"
_KINDS = "biufUO"
_MOST_TIMES = 16  # characters of an array of strings, all padded to the longest, over those in the file


def encode(value: object) -> object:
    """JSON of a setting.

    Raises
    ------
    TypeError
        For anything that cannot be read back without running code, such as a function.
    """
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, np.generic) and not isinstance(value, np.void):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_TAG: "float", "value": str(value)}
    if isinstance(value, date):
        return {_TAG: "time" if isinstance(value, datetime) else "date", "value": value.isoformat()}
    if isinstance(value, list | tuple):
        return {_TAG: type(value).__name__, "value": [encode(item) for item in value]}
    if isinstance(value, set | frozenset):  # in an order that does not depend on the process
        return {_TAG: type(value).__name__, "value": sorted(map(encode, value), key=repr)}
    if isinstance(value, range):
        return {_TAG: "range", "value": [value.start, value.stop, value.step]}
    if isinstance(value, dict):
        return {_TAG: "dict", "value": [[encode(key), encode(item)] for key, item in value.items()]}
    if sp.issparse(value) and value.ndim == 2:
        rows = sp.csr_array(value)
        parts = {name: encode(getattr(rows, name)) for name in ("data", "indices", "indptr")}
        return {_TAG: "csr", "n_columns": rows.shape[1], "value": parts}
    if isinstance(value, np.ndarray) and value.dtype.kind in _KINDS:
        return {_TAG: "array", "dtype": value.dtype.str, "value": encode(value.tolist())}
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return {_TAG: "dtype", "value": np.dtype(value).str}
    if type(value) in _CLASSES.values():
        values = {field.name: encode(getattr(value, field.name)) for field in fields(value) if field.compare}
        return {_TAG: type(value).__name__, "value": values}
    if isinstance(value, Gamma):
        return {_TAG: "Gamma", "value": [encode(value.shape), encode(value.rate)]}
    for name, family in _GAUSSIANS.items():  # of a posterior, its mean and its precision
        if isinstance(value, family):
            return {_TAG: name, "value": [encode(value.mean), encode(value.precision)]}
    raise TypeError(
        f"{value!r} cannot be saved: only numbers, dates, words, lists, sets, ranges, mappings, arrays, dtypes, distributions, "
        "plans and step sizes can."
    )


def decode(value: object) -> object:
    """Inverse of ``encode``."""
    if not isinstance(value, dict):
        return value
    kind, content = value.get(_TAG), value.get("value")
    if kind == "float":
        return float(content)
    if kind in ("time", "date"):
        return (datetime if kind == "time" else date).fromisoformat(content)
    if kind in _COLLECTIONS:
        return _COLLECTIONS[kind](map(decode, content))
    if kind == "range":
        return range(*map(int, content))
    if kind == "dict":
        return {decode(key): decode(item) for key, item in content}
    if kind == "array":
        return _array(decode(content), np.dtype(value["dtype"]))
    if kind == "csr":
        parts = {name: decode(part) for name, part in content.items()}
        shape = (len(parts["indptr"]) - 1, int(value["n_columns"]))
        rows = sp.csr_array((parts["data"], parts["indices"], parts["indptr"]), shape=shape)
        rows.check_format()
        return rows
    if kind == "dtype":
        return np.dtype(content).type
    if kind == "Gamma":
        return Gamma(*map(decode, content))
    if kind in _GAUSSIANS:
        return _GAUSSIANS[kind](*map(decode, content))
    if kind in _CLASSES:
        make = PrivacyBudget.of_parts if kind == PrivacyBudget.__name__ else _CLASSES[kind]
        return make(**{name: decode(item) for name, item in content.items()})
    raise ValueError(f"Unknown kind of setting {kind!r}.")


def _array(items: list, dtype: np.dtype) -> np.ndarray:
    """Items as an array. Its size follows from the items, not from a number in the file."""
    if dtype.kind not in _KINDS:
        raise ValueError(f"a setting has dtype {dtype}")
    if dtype.kind != "U":
        return np.array(items, dtype=dtype)
    lengths = [len(item) for item in items]
    as_strings = len(items) * max(lengths, default=0)  # a few may be far longer than the others
    return np.array(items, dtype=object if as_strings > _MOST_TIMES * (len(items) + sum(lengths)) else str)


def describe(value: object) -> object:
    """Like ``encode``, but only names what cannot be saved: enough to tell settings apart, not to restore them."""
    try:
        return encode(value)
    except TypeError:
        return {_TAG: "other", "value": getattr(value, "__qualname__", type(value).__qualname__)}
