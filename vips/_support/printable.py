"""Makes text from outside, such as names in a file, safe to show on a terminal and in a figure; and errors that could quote
a record."""

from __future__ import annotations

import os
import traceback
import unicodedata
from collections.abc import Sequence

__all__ = ["PLAIN_TEXT", "class_and_place", "lines_of_table", "listed", "printable", "shortened", "strings_for_pandas"]

# For Matplotlib's texts that hold names: dollar signs and backslashes are plain characters, whatever Matplotlib's settings are.
PLAIN_TEXT = {"parse_math": False, "usetex": False}

# Control characters, surrogates, and separators of lines and paragraphs.
_CATEGORIES = frozenset(("Cc", "Cs", "Zl", "Zp"))
# The characters that change the direction of writing: Unicode's property Bidi_Control.
_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: object) -> str:
    r"""The text with escapes such as ``\x1b``, ``\n`` or ``\u202e`` in place of characters that would act on a terminal.

    Letters of every language stay as they are.

    Examples
    --------
    >>> print(printable("naïve \x1b[2J"))
    naïve \x1b[2J
    """
    text = str(text)
    if text.isprintable():
        return text
    acts = {
        character for character in text if character in _DIRECTIONS or unicodedata.category(character) in _CATEGORIES
    }
    return "".join(c.encode("unicode_escape").decode("ascii") if c in acts else c for c in text)


def shortened(items: Sequence[str], most: int = 3) -> str:
    """The first few, with dots for the others."""
    return ", ".join([*items[:most], "..."] if len(items) > most else items)


def listed(names: Sequence[str], most: int = 1000) -> str:
    """All names; of very many, how many are left out."""
    n_more = len(names) - most
    return ", ".join(names if n_more <= 0 else [*names[:most], f"and {n_more:,} more"])


def lines_of_table(frame) -> list[str]:
    """Lines of a data frame of pandas, one for each row below those of the head, whatever its names and cells hold."""
    shown = frame.rename(index=_escaped_string, columns=_escaped_string)
    for place, kind in enumerate(shown.dtypes):
        if kind.kind not in "biufcmM":
            shown.isetitem(place, shown.iloc[:, place].astype(object).map(_escaped_string))
    return shown.to_string().split("\n")


def _escaped_string(value: object) -> object:
    return printable(value) if isinstance(value, str) else value


def strings_for_pandas(strings: list[str]):
    """A column of strings, as Python objects if one of them holds an unpaired surrogate, which Arrow refuses."""
    import pandas as pd

    try:
        return pd.Series(strings)
    except UnicodeEncodeError:
        return pd.Series(strings, dtype=object)


def class_and_place(error: BaseException) -> str:
    """The class of a caught error, and the function, file and line that raised it. Its message is left out."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {place.name} ({os.path.basename(place.filename)}, line {place.lineno})"
