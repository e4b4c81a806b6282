"""Raw documents as lists of words, and their counts as a data source. No document causes an error: what is no text has none.

Texts of a source are counted where their partition is opened, and every step opens every partition. Texts of persons, in a
folder that :func:`vips.data.regroup` wrote, are counted once: counts are kept inside that folder, which only its owner may
read. Other sources have no such place, and are counted in every step.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, pairwise, repeat

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer

from vips._support.files import whole_file
from vips._support.no_warnings import without_warnings
from vips.core.records.checks import checked_csr
from vips.core.records.groups import arrow_values, runs_of_rows
from vips.core.records.partition import OpenPartition
from vips.core.records.ragged import places
from vips.core.records.source import DataSource, Partition
from vips.data._cell_values import one_form
from vips.data._dask import is_dask
from vips.data._npy import tried_again
from vips.data._texts import TextSource, bytes_of, bytes_of_arrow, is_text_type

__all__ = ["Analyser", "CountedTexts", "as_documents", "chunks_of", "counted_records", "counts_of_words", "text_of"]

_CHUNK = 1024  # records
_ARRAYS = ("data", "indices", "indptr")  # of kept counts
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
    """The document, if it is text, with marks in place of what is not valid, and accents as part of their letters; bytes are
    decoded as UTF-8. Else empty.

    The result is a plain string whatever subclass the document is of.
    """
    return one_form(bytes_of(document).decode("utf-8", "replace"))


class Analyser:
    """The words of a document, as scikit-learn's :class:`~sklearn.feature_extraction.text.CountVectorizer` finds them.

    ``settings`` are its arguments that decide what a word is; they may raise what they do there.
    """

    def __init__(self, settings: dict) -> None:
        try:
            CountVectorizer(**settings, vocabulary=["a"]).fit_transform(["a"])  # checks the settings
        except re.error as error:
            raise ValueError(
                f"`token_pattern` {settings['token_pattern']!r} is no regular expression: {error}. It finds a word, as "
                r'r"\w\w+" does.'
            ) from None
        self._analyse = CountVectorizer(**settings).build_analyzer()

    def __call__(self, document: object) -> list[str]:
        """Words in their order. Empty for what is not text, and where a function among the settings raises an error."""
        try:
            words = self._analyse(text_of(document))
            if type(words) is list and {str}.issuperset(map(type, words)):
                return words
            # plain strings: an object of a subclass could hold the document
            return [str.__str__(word) for word in words if isinstance(word, str)]
        except KeyboardInterrupt:
            raise
        except BaseException:  # also of tokenizers that exit or panic: an error would depend on the document
            return []

    def numbers(
        self, documents: Iterable, numbers_of: Callable[[list[str]], Iterable[int]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """What ``numbers_of`` gives for the words of each document, and where each document starts; both int64."""
        lengths = [0]

        def of_each() -> Iterator[Iterable[int]]:
            for document in documents:
                numbers = list(numbers_of(self(document)))
                lengths.append(len(numbers))
                yield numbers

        return np.fromiter(chain.from_iterable(of_each()), np.int64), np.cumsum(lengths)


def counted_records(
    settings: dict,
    documents: Sequence,
    numbers: np.ndarray | None,
    most: int | None,
    index: defaultdict[str, int],
    length: int = 1,
    known: Container[str] = (),
) -> sp.csr_array:
    """How often each record has each word, or phrase: CSR of shape (n_records, n_words), the columns of a record in order.

    Parameters
    ----------
    settings : dict
        Of an :class:`Analyser`.
    numbers : ndarray of shape (n_documents,), or None
        Number of each document's person, -1 for nobody; None if every document is a record.
    most : int or None
        Documents of a person that count.
    index : defaultdict of str to int
        Words and their numbers, to which new words are added.
    length, known : int, container of str
        Of the words; or of phrases, and what was released before: see :func:`phrases`.
    """
    analyser = Analyser(settings)

    def numbers_of(words: list[str]) -> Iterable[int]:
        return map(index.__getitem__, words if length == 1 else phrases(words, length, known))

    if numbers is None:
        words, starts = analyser.numbers(documents, numbers_of)
        return _counts(words, starts, len(index))
    order, runs = runs_of_rows(numbers)
    order, lengths = np.arange(len(documents)) if order is None else order, np.diff(runs)
    if most is not None:
        order, lengths = order[places(lengths) < most], np.minimum(lengths, most)
    words, starts = analyser.numbers(map(documents.__getitem__, order.tolist()), numbers_of)
    return _counts(words, starts[np.concatenate([[0], np.cumsum(lengths)])], len(index))


def phrases(words: list[str], length: int, known: Container[str]) -> Iterator[str]:
    """Phrases of this length in a document, two words or more, that begin and end with a known phrase of one word less.

    Guarantees
    ----------
    They depend on this document and on what was released before alone. None of them is known.
    """
    shorter = [" ".join(words[i : i + length - 1]) in known for i in range(len(words) - length + 2)]
    for i, (begins, ends) in enumerate(pairwise(shorter)):
        if begins and ends and (phrase := " ".join(words[i : i + length])) not in known:
            yield phrase


def chunks_of(counts: sp.csr_array) -> list[tuple[np.ndarray, np.ndarray]]:
    """Records in chunks: numbers of their different words, and where each record starts."""
    firsts = range(0, max(counts.shape[0], 1), _CHUNK)
    starts = [counts.indptr[first : first + _CHUNK + 1] for first in firsts]
    return [(counts.indices[start[0] : start[-1]], start - start[0]) for start in starts]


def _counts(words: np.ndarray, starts: np.ndarray, n_words: int) -> sp.csr_array:
    """How often each word is among those of a record; negative ones are left out."""
    known = words >= 0
    starts = np.concatenate([[0], np.cumsum(known)])[starts]
    of_places = np.int32 if starts[-1] <= np.iinfo(np.int32).max else np.int64
    entries = np.ones(starts[-1], np.int64), words[known].astype(of_places), starts.astype(of_places)
    counts = sp.csr_array(entries, shape=(len(starts) - 1, n_words))
    counts.sum_duplicates()
    return counts


def counts_of_words(settings: dict, vocabulary: Mapping[str, int], documents: Sequence) -> sp.csr_array:
    """Counts of each document's words, from that document alone: CSR of shape (n_documents, n_words), int64."""
    if not vocabulary:
        return sp.csr_array((len(documents), 0), dtype=np.int64)

    def numbers_of(words: list[str]) -> Iterator[int]:
        return map(vocabulary.get, words, repeat(-1))

    words, starts = without_warnings(lambda: Analyser(settings).numbers(documents, numbers_of))
    return _counts(words, starts, len(vocabulary))


# -- counts as a source --------------------------------------------------------------------------------------------


class CountedTexts(DataSource):
    """Counts of the words of a source of texts, for models. ``settings`` say what a word is; words have the columns of
    ``vocabulary``.

    Guarantees
    ----------
    - Counts that are kept are those of this object, with these settings and this vocabulary: no other object reads them.
    - Their folder has permissions 0700, and its files 0600, whatever the umask. It is there before a text is read, also if it
      stays empty, and is removed with this object. A process that is killed leaves it; you may delete it.
    - Whether counts can be kept changes no count, and raises nothing.
    """

    def __init__(self, texts: TextSource, settings: dict, vocabulary: Mapping[str, int]) -> None:
        self._texts = texts
        self._counted = partial(counts_of_words, settings, vocabulary)  # one object for all partitions
        self.n_features, self.has_labels = len(vocabulary), texts.has_labels
        self.group_name = texts.group_name
        self._folder = None if texts.folder is None else _folder_of_counts(self, texts.folder)

    @property
    def has_groups(self) -> bool:
        return self._texts.has_groups

    @property
    def n_partitions(self) -> int:
        return self._texts.n_partitions

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of records of each partition: private, unless the relation is "replace_one". Counts no word."""
        return self._texts.sizes

    def partition(self, i: int) -> Partition:
        kept = None if self._folder is None else os.path.join(self._folder, f"{i:05d}.npy")
        return CountedPartition(self._texts.partitions[i], self._counted, self.n_features, kept)


@dataclass(frozen=True, repr=False)
class CountedPartition(Partition):
    """A partition of texts, how to count them, and the file where their counts are kept, or None."""

    texts: Partition
    counted: Callable[[Sequence], sp.csr_array]
    n_words: int
    kept: str | None

    @property
    def name(self) -> str:
        return self.texts.name

    @property
    def holds_records(self) -> bool:
        return self.texts.holds_records

    def open(self) -> OpenPartition:
        opened = self.texts.open()  # which looks whether its files have changed
        counts = None if self.kept is None else _read(self.kept, len(opened.X), self.n_words)
        if counts is None:
            counts = self.counted(opened.X)
            if self.kept is not None:
                _write(self.kept, counts)
        return replace(opened, X=counts)


def _folder_of_counts(owner: CountedTexts, folder: str) -> str | None:
    """A new folder in ``folder``, which is removed with its owner; None if nothing can be written there."""
    try:
        path = tempfile.mkdtemp(prefix="counts-", dir=folder)
    except OSError:
        return None
    weakref.finalize(owner, _remove, path, os.getpid())
    return path


def _remove(path: str, process: int) -> None:
    if os.getpid() == process:  # not in a fork
        shutil.rmtree(path, ignore_errors=True)


@tried_again
def _read(path: str, n_rows: int, n_words: int) -> sp.csr_array | None:
    """Counts of a file; None if they are not there."""
    counts = sp.csr_array((n_rows, n_words), dtype=np.int64)
    try:
        with open(path, "rb") as file:
            counts.data, counts.indices, counts.indptr = (np.load(file, allow_pickle=False) for _ in _ARRAYS)
        counts = checked_csr(counts)
    except (OSError, ValueError, EOFError):
        return None
    exists = not len(counts.indices) or 0 <= counts.indices.min() <= counts.indices.max() < n_words
    return counts if exists and counts.data.dtype.kind in "iu" else None


def _write(path: str, counts: sp.csr_array) -> None:
    with suppress(OSError), whole_file(path, mode=0o600) as file:  # a full disk, or a folder that was removed
        for name in _ARRAYS:
            np.save(file, getattr(counts, name), allow_pickle=False)
