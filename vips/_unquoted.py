"""How to report an error whose message could quote a record."""

from __future__ import annotations

import os
import traceback

__all__ = ["class_and_place"]


def class_and_place(error: BaseException) -> str:
    """The class of a caught error, and the function, file and line that raised it. Its message is left out."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {place.name} ({os.path.basename(place.filename)}, line {place.lineno})"
