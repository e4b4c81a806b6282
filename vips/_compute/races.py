"""Reading of array headers by several threads."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["tried_again"]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_ATTEMPTS = 50


def tried_again(read: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """A function that opens and reads files of NumPy, called again after a ``SystemError``.

    NumPy parses the header of an array with ``ast.literal_eval``. In Python 3.11 a parse fails with ``SystemError: AST
    constructor recursion depth mismatch`` when another thread parses at the same time (CPython issue 106905).
    """

    @functools.wraps(read)
    def attempts(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        for _ in range(_ATTEMPTS - 1):
            try:
                return read(*args, **kwargs)
            except SystemError:
                continue
        return read(*args, **kwargs)

    return attempts
