"""Raw documents as lists of words. No document causes an error: what is not text has no words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer

from vips._no_warnings import without_warnings
from vips.data import DataSource, TextSource
from vips.data._dask import is_dask
from vips.data._groups import arrow_values, runs_of_rows
from vips.data._texts import bytes_of, bytes_of_arrow, is_text_type

__all__ = ["Analyser", "as_documents", "chunks_of_records", "counts_of_words", "text_of"]

_CHUNK = 1024  # records

_ALTERNATIVE = 'a list of strings, a one-dimensional array, or a series such as table["text"]'


def as_documents(X) -> Sequence | TextSource:
    """The documents of a container, one entry each; or ``X`` if it is a source of texts. Reads none.

    Errors are from the container, its dtype and dimensions: public facts.
    """
    if isinstance(X, TextSource):
        return X
    if isinstance(X, DataSource):
        raise TypeError(
            f"{type(X).__name__} holds numbers: words are learnt from a source of texts, such as "
            "vips.data.ParquetTexts(path, column) or vips.data.TextFiles(folder)."
        )
    if is_dask(X):
        raise TypeError(
            "Texts in a Dask collection are written to files first: "
            'X.to_frame("text").to_parquet(folder), then vips.data.ParquetTexts(folder, "text").'
        )
    if isinstance(X, str | bytes):
        raise ValueError("Iterable over raw text documents expected, string object received: write [text].")
    if getattr(X, "ndim", 1) != 1:
        raise ValueError(f"Documents must be {_ALTERNATIVE}, got {X.ndim} dimensions.")
    arrow = arrow_values(X)
    if arrow is not None:
        return _OfArrow(arrow)
    dtype = getattr(X, "dtype", None)
    if not isinstance(X, list | tuple) and dtype is None:
        raise TypeError(f"Documents must be {_ALTERNATIVE}, got {type(X).__name__}.")
    if dtype is not None and getattr(dtype, "kind", "O") not in "OUST":
        raise TypeError(f"Documents must be text, got dtype {dtype}: a series of strings has dtype str or object.")
    return X if dtype is None else np.asarray(X, dtype=object)


class _OfArrow(Sequence):
    """Documents as bytes, which are decoded one by one: text in Arrow need not be valid. Read when one is asked for."""

    def __init__(self, values) -> None:
        import pyarrow as pa

        if not is_text_type(values.type):
            raise TypeError(f"Documents must be text, got Arrow's type {values.type}.")
        self._read = None
        self._chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]

    def __len__(self) -> int:
        return sum(len(chunk) for chunk in self._chunks)

    def __getitem__(self, place):
        if self._read is None:
            self._read = [document for chunk in self._chunks for document in bytes_of_arrow(chunk)]
        return self._read[place]


def text_of(document: object) -> str:
    """The document, if it is text, with marks in place of what is not valid; bytes are decoded as UTF-8. Else empty.

    The result is a plain string whatever subclass the document is of.
    """
    return bytes_of(document).decode("utf-8", "replace")


class Analyser:
    """The words of a document, as scikit-learn's :class:`~sklearn.feature_extraction.text.CountVectorizer` finds them.

    ``settings`` are its arguments that decide what a word is; they may raise what they do there.
    """

    def __init__(self, settings: dict) -> None:
        CountVectorizer(**settings, vocabulary=["a"]).fit_transform(["a"])  # checks the settings
        self._analyse = CountVectorizer(**settings).build_analyzer()

    def __call__(self, document: object) -> list[str]:
        """Words in their order. Empty for what is not text, and where a function among the settings raises an error."""
        try:
            # plain strings: an object of a subclass could hold the document
            return [str.__str__(word) for word in self._analyse(text_of(document)) if isinstance(word, str)]
        except KeyboardInterrupt:
            raise
        except BaseException:  # also of tokenizers that exit or panic: an error would depend on the document
            return []

    def distinct(self, documents: Sequence, index: dict[str, int]) -> Iterator[np.ndarray]:
        """Numbers of each document's different words; words that are not in ``index`` are added to it."""
        for document in documents:
            words = dict.fromkeys(self(document))
            yield np.fromiter((index.setdefault(word, len(index)) for word in words), np.int64, len(words))


def chunks_of_records(
    settings: dict, documents: Sequence, numbers: np.ndarray | None, most: int | None, index: dict[str, int]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Records in chunks: numbers of their different words, and where each record starts.

    Parameters
    ----------
    settings : dict
        Of an :class:`Analyser`.
    numbers : ndarray of shape (n_documents,), or None
        Number of each document's person, -1 for nobody; None if every document is a record.
    most : int or None
        Documents of a person that count.
    index : dict of str to int
        Words and their numbers, to which new words are added.
    """
    distinct = partial(Analyser(settings).distinct, index=index)
    if numbers is None:
        words_of_records = distinct(documents)
    else:
        order, starts = runs_of_rows(numbers)
        order = np.arange(len(documents)) if order is None else order
        runs = (order[a : b if most is None else min(b, a + most)] for a, b in pairwise(starts))
        words_of_records = (np.unique(np.concatenate(list(distinct(documents[i] for i in rows)))) for rows in runs)
    chunk: list[np.ndarray] = []
    for words in words_of_records:
        chunk.append(words)
        if len(chunk) == _CHUNK:
            yield _joined(chunk)
            chunk = []
    yield _joined(chunk)


def _joined(records: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    starts = np.concatenate([[0], np.cumsum([len(words) for words in records], dtype=np.int64)])
    return np.concatenate(records) if records else np.zeros(0, np.int64), starts.astype(np.int64)


def counts_of_words(settings: dict, vocabulary: Mapping[str, int], documents: Sequence) -> sp.csr_array:
    """Counts of each document's words, from that document alone: CSR of shape (n_documents, n_words), int64."""
    if not vocabulary:
        return sp.csr_array((len(documents), 0), dtype=np.int64)
    counter = CountVectorizer(analyzer=list, vocabulary=vocabulary)
    return without_warnings(lambda: sp.csr_array(counter.transform(map(Analyser(settings), documents))))
