"""Labels in words, as numbers: for a private fit, whose conversion of labels may not depend on other records, or raise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from vips.data._checks import check_container

__all__ = ["label_codes"]


def label_codes(y, classes: Sequence[str]) -> np.ndarray:
    """Position of each label among the declared classes; NaN for every other value, whatever it is.

    Parameters
    ----------
    y : array or series of shape (n_rows,)
        Of strings or objects.
    classes : sequence of str

    Returns
    -------
    ndarray of shape (n_rows,), float64

    Raises
    ------
    TypeError
        For a container or a dtype that holds no strings: public facts.
    """
    check_container(y, "y")
    if getattr(y.dtype, "kind", "O") not in "OUT":
        raise TypeError(f"`classes` are strings, but y has dtype {y.dtype}. Declare the labels as they are in y.")
    position = {str(label): float(code) for code, label in enumerate(classes)}
    return np.fromiter((_code(value, position) for value in _values(y)), np.float64, len(y))


def _code(value, position: dict[str, float]) -> float:
    with suppress(Exception):
        if isinstance(value, str):
            return position.get(value, math.nan)
    return math.nan


def _values(y) -> list:
    """The labels. Iterating over a PyArrow column fails at a value that Python does not have: it becomes None."""
    with suppress(Exception):
        return list(y)
    return [_value(y, i) for i in range(len(y))]


def _value(y, i: int):
    with suppress(Exception):
        return getattr(y, "iloc", y)[i]
    return None
