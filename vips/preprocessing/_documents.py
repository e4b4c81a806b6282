"""Raw documents as lists of words. No document causes an error or a warning: what is not text has no words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from vips.data._groups import arrow_values

__all__ = ["Analyser", "as_documents", "text_of"]

_ALTERNATIVE = 'a list of strings, a one-dimensional array, or a series such as table["text"]'


def as_documents(X) -> Sequence:
    """The documents of a container, one entry each. Reads none.

    Raises
    ------
    TypeError, ValueError
        From the container, its dtype and dimensions: public facts.
    """
    if isinstance(X, str | bytes):
        raise ValueError("Iterable over raw text documents expected, string object received: write [text].")
    if getattr(X, "ndim", 1) != 1:
        raise ValueError(f"Documents must be {_ALTERNATIVE}, got {X.ndim} dimensions.")
    arrow = arrow_values(X)
    if arrow is not None:
        return _of_arrow(arrow)
    dtype = getattr(X, "dtype", None)
    if not isinstance(X, list | tuple) and dtype is None:
        raise TypeError(f"Documents must be {_ALTERNATIVE}, got {type(X).__name__}.")
    if dtype is not None and getattr(dtype, "kind", "O") not in "OUST":
        raise TypeError(f"Documents must be text, got dtype {dtype}: a series of strings has dtype str or object.")
    return X if dtype is None else np.asarray(X, dtype=object)


def _of_arrow(values) -> list:
    """As bytes, which are decoded one by one: text in Arrow need not be valid."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view"):
        raise TypeError(f"Documents must be text, got Arrow's type {kind}.")
    return values.cast(pa.large_binary()).to_pylist()


def text_of(document: object) -> str:
    """The document, if it is text; bytes are decoded as UTF-8, with a mark in place of what is not valid. Else empty."""
    if isinstance(document, bytes):
        return document.decode("utf-8", "replace")
    return document if isinstance(document, str) else ""


class Analyser:
    """The words of a document, as scikit-learn's :class:`~sklearn.feature_extraction.text.CountVectorizer` finds them.

    Parameters
    ----------
    settings : dict
        Arguments of ``CountVectorizer`` that decide what a word is.

    Raises
    ------
    ValueError, TypeError
        As ``CountVectorizer`` does, from the settings alone.
    """

    def __init__(self, settings: dict) -> None:
        CountVectorizer(**settings, vocabulary=["a"]).fit_transform(["a"])  # checks the settings
        self._analyse = CountVectorizer(**settings).build_analyzer()

    def __call__(self, document: object) -> list[str]:
        """Words in their order. Empty for what is not text, and where a function among the settings raises an error."""
        with suppress(Exception):
            return [word for word in self._analyse(text_of(document)) if isinstance(word, str)]
        return []

    def distinct(self, documents: Sequence, index: dict[str, int]) -> Iterator[np.ndarray]:
        """Numbers of each document's different words; words that are not in ``index`` are added to it."""
        for document in documents:
            words = dict.fromkeys(self(document))
            yield np.fromiter((index.setdefault(word, len(index)) for word in words), np.int64, len(words))
