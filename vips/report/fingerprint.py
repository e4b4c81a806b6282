"""The fingerprint of what was released, by which a page and a file are known to be of one fit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping

import numpy as np

__all__ = ["as_bytes", "fingerprint", "fingerprint_of"]


def fingerprint(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of arrays with their names, on every machine the same.

    Each array, in the order of names, is a line of JSON with name, dtype and shape, then its numbers row by row,
    least significant byte first.

    Examples
    --------
    >>> fingerprint({"a": np.zeros(2)}) == fingerprint({"a": np.zeros(2, dtype=">f8")})
    True
    >>> fingerprint({"a": np.zeros(2)}) == fingerprint({"a": np.array([0.0, 5e-324])})
    False
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        values = np.asarray(arrays[name], order="C")
        values = values.astype(values.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{json.dumps([name, values.dtype.str, values.shape])}\n".encode())
        digest.update(values.reshape(-1).view(np.uint8))
    return digest.hexdigest()


def fingerprint_of(released: Callable[[], Mapping[str, np.ndarray]]) -> str:
    """That of the arrays that a function gives; empty if these cannot be saved, which must not end a fit."""
    try:
        return fingerprint(released())
    except Exception:
        return ""


def as_bytes(values: object) -> np.ndarray:
    """What JSON can say, as an array of the bytes of its text with sorted names."""
    return np.frombuffer(json.dumps(values, sort_keys=True).encode(), np.uint8)
