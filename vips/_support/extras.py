"""Modules that only some methods need, and the extra that brings each."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["imported"]

_EXTRAS = {"jinja2": "plot", "pandas": "tables", "matplotlib": "plot", "matplotlib.pyplot": "plot", "arviz": "arviz"}


def imported(name: str, by: str) -> Any:
    """A module of an extra.

    Parameters
    ----------
    name : str
        Of the module.
    by : str
        What needs it, for the message.

    Raises
    ------
    ImportError
        With the command that installs it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        library = name.partition(".")[0]
        raise ImportError(f"{by} needs {library}: pip install 'vips[{_EXTRAS[name]}]'.") from error
