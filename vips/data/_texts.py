"""Texts that are read a partition at a time. A partition opens as an array of documents, which an encoder counts."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vips._support.validation import check_integer
from vips.core.records.arrays import PARTITION_SIZE, RangesOfRecords
from vips.core.records.groups import runs_of_rows
from vips.core.records.partition import OpenPartition
from vips.core.records.ragged import Ragged
from vips.core.records.source import Partition, PartitionedSource
from vips.exceptions import SourceError

__all__ = [
    "InMemoryTexts", "PackedTexts", "TextFiles", "TextPartitions", "TextSource", "bytes_of", "bytes_of_arrow",
    "check_encoding", "documents_array", "is_text_type", "text_of",
]  # fmt: skip

_OF_OTHER_THINGS = ("idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined")
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


class TextSource(PartitionedSource):
    """Documents, partition by partition: what ``PrivateCountVectorizer`` and pipelines that begin with one are fitted to.

    ``partition(i).open().X`` is an array of objects, shape (n_documents,): strings, or bytes in UTF-8; or ``PackedTexts``. What
    is no text has no words.
    """

    n_features = 1


class InMemoryTexts(RangesOfRecords, TextSource):
    """A list of documents, in ranges of records.

    Parameters
    ----------
    documents : list, array or series of strings
    partition_size : int
        Records of a partition; the last may be shorter.

    Raises
    ------
    TypeError
        For what is no sequence, and for a single text.
    """

    def __init__(self, documents: Sequence, partition_size: int = PARTITION_SIZE) -> None:
        check_integer("partition_size", partition_size)
        is_sequence = hasattr(documents, "__len__") and hasattr(documents, "__getitem__")
        if isinstance(documents, str | bytes | dict) or not is_sequence or getattr(documents, "ndim", 1) != 1:
            raise TypeError(
                f"InMemoryTexts takes a list, an array or a series of texts, got {type(documents).__name__}."
            )
        if hasattr(documents, "iloc"):  # else a slice could be one of labels
            documents = documents.to_numpy(dtype=object)
        self._documents, self._starts, self._partition_size = documents, None, int(partition_size)
        self._n_rows = len(documents)

    @property
    def n_rows(self) -> int:
        """Number of documents: private."""
        return self._n_rows

    def grouped(self, numbers: np.ndarray, name: str | None = None) -> InMemoryTexts:
        """The documents as records of several: all with one number are one record, and those with -1 are left out."""
        if self.has_groups:
            raise ValueError("The documents have groups already, and another order than they were given in.")
        order, starts = runs_of_rows(numbers)
        documents = self._documents if order is None else documents_array(self._documents)[order]
        source = InMemoryTexts(documents, self._partition_size)
        source._starts, source.group_name = starts, name
        return source

    def partition(self, i: int) -> Partition:
        rows, starts = self.rows_of(i)
        return DocumentsInMemory(f"partition {i}", self._documents[rows], starts)


@dataclass(frozen=True, repr=False)
class DocumentsInMemory(Partition):
    """Some documents."""

    name: str
    documents: Sequence
    starts: np.ndarray | None
    holds_records = True

    def open(self) -> OpenPartition:
        return OpenPartition(documents_array(self.documents), starts=self.starts)


class TextPartitions(TextSource):
    """Documents that functions give, one function for each partition.

    Parameters
    ----------
    functions : iterable of callables
        Each returns a list of documents, the same one every time: ``[partial(read_month, year, month) for ...]``, say. Workers
        in other processes call them, too. An error stops the fit with a message that does not quote the function's.
    """

    def __init__(self, functions: Iterable[Callable[[], Sequence]]) -> None:
        functions = tuple(functions)
        if not all(map(callable, functions)):
            raise TypeError("TextPartitions takes functions, each of which returns a list of documents.")
        super().__init__(DocumentsOfFunction(f"partition {i}", function) for i, function in enumerate(functions))


@dataclass(frozen=True, repr=False)
class DocumentsOfFunction(Partition):
    """Documents that a function returns."""

    name: str
    function: Callable[[], Sequence]

    def open(self) -> OpenPartition:
        try:
            return OpenPartition(documents_array(self.function()))
        except SourceError:
            raise
        except Exception as error:
            problem = type(error).__name__
        # outside of `except`, so that the original error, which may quote a document, is not attached
        raise SourceError(f"{self.name} cannot be read: its function raised {problem}.")


class TextFiles(TextSource):
    """A folder of text files, one document a file. Files are read when their partition is computed.

    A file that begins with the mark of UTF-8 or UTF-16 is in that encoding. A word with bytes that are none of the encoding is
    left out.

    Memory: the documents of a partition, and about 100 bytes for the name of each file.

    Parameters
    ----------
    folder : path
    pattern : str
        Pattern of the names of files in the folder; ``"**/*.txt"`` includes those of inner folders.
    partition_size : int
        Files of a partition, in the order of their names.
    encoding : str
        Of files without a mark.
    """

    def __init__(
        self, folder: str | os.PathLike, *, pattern: str = "*.txt", partition_size: int = 1000, encoding: str = "utf-8"
    ) -> None:
        check_integer("partition_size", partition_size)
        check_encoding(encoding, "encoding")
        folder, size = Path(os.path.abspath(folder)), int(partition_size)
        if not folder.is_dir():
            raise SourceError(f"{folder} is not a folder.")
        names = sorted(os.path.relpath(path, folder) for path in folder.glob(pattern) if path.is_file())
        if not names:
            raise SourceError(f"{folder} holds no file {pattern}.")
        folder, parts = str(folder), [tuple(names[first : first + size]) for first in range(0, len(names), size)]
        partitions = (
            FilesOfFolder(f"{folder}, part {i}", folder, part, _stamp(folder, part), encoding)
            for i, part in enumerate(parts)
        )
        super().__init__(partitions, map(len, parts))


@dataclass(frozen=True, repr=False)
class FilesOfFolder(Partition):
    """Some files of a folder."""

    name: str
    folder: str
    names: tuple[str, ...]
    stamp: tuple[int, int] | None
    encoding: str

    def open(self) -> OpenPartition:
        if self.stamp is None or _stamp(self.folder, self.names) != self.stamp:
            raise SourceError(f"{self.name}: a file has changed since the data source was made, or cannot be read.")
        documents = np.empty(len(self.names), object)
        for i, name in enumerate(self.names):
            try:
                documents[i] = text_of(Path(self.folder, name).read_bytes(), self.encoding)
            except OSError as error:
                problem = error.strerror
                break
        else:
            return OpenPartition(documents)
        raise SourceError(f"{self.name} cannot be read: {problem}.")


def _stamp(folder: str, names: Iterable[str]) -> tuple[int, int] | None:
    """Size of the files together, and the time of the last change; None if one cannot be read."""
    try:
        statuses = [os.stat(os.path.join(folder, name)) for name in names]
    except OSError:
        return None
    return sum(status.st_size for status in statuses), max(status.st_mtime_ns for status in statuses)


class PackedTexts(Ragged):
    """Documents as they lie on disk: bytes in UTF-8, which are read one document at a time."""

    @classmethod
    def of(cls, documents: Iterable[object]) -> PackedTexts:
        """Documents; what is no text is empty."""
        coded = [bytes_of(document) for document in documents]
        lengths = np.fromiter(map(len, coded), np.int64, len(coded))
        return cls(np.frombuffer(b"".join(coded), np.uint8), None, lengths)

    def __getitem__(self, index):
        """A document; or some of them, as NumPy indexes rows."""
        if not isinstance(index, int | np.integer):
            return super().__getitem__(index)
        begin = self.begins[index]
        return self.storage[begin : begin + self.lengths[index]].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        return map(self.__getitem__, range(len(self)))


def text_of(document: bytes, encoding: str) -> str:
    """The text of a file, without words that hold bytes of another encoding: pieces of a name are no words.

    A mark at its beginning says in which encoding a file is. No bytes raise.
    """
    for mark, marked in _MARKS.items():
        if document.startswith(mark):
            document, encoding = document[len(mark) :], marked
    text = document.decode(encoding, "replace")
    return " ".join(word for word in text.split() if "\ufffd" not in word) if "\ufffd" in text else text


def check_encoding(encoding: str, name: str) -> None:
    """Raise ValueError unless ``encoding`` is one of texts, with which no bytes raise or warn."""
    try:
        b"a".decode(encoding, "replace")
        if codecs.lookup(encoding).name in _OF_OTHER_THINGS:
            raise LookupError
    except (LookupError, UnicodeError):
        raise ValueError(
            f"{name}: there is no encoding {encoding!r} of texts. Write utf-8, latin-1 or cp1252, say."
        ) from None


def bytes_of(document: object) -> bytes:
    """The document in UTF-8, if it is text; bytes as they are; else nothing. A plain object, whatever the document is."""
    with suppress(Exception):  # even its class may raise, or be a lie
        if isinstance(document, bytes):
            return bytes(memoryview(document))
        return str.encode(document, "utf-8", "replace") if isinstance(document, str) else b""
    return b""


def is_text_type(kind) -> bool:
    """Whether columns of this Arrow type hold texts, which may be stored as a dictionary."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_string(kind) or types.is_large_string(kind) or str(kind) == "string_view"


def bytes_of_arrow(chunk) -> list[bytes | None]:
    """Documents of an Arrow array as bytes, because they need not be valid text; None for what is missing.

    A dictionary is not written out: Arrow raises where that takes more than 2 GB, which depends on the documents. A place that
    it does not have is no text.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(chunk.type):
        texts = bytes_of_arrow(chunk.dictionary)
        return [texts[i] if i is not None and 0 <= i < len(texts) else None for i in chunk.indices.to_pylist()]
    if str(chunk.type) == "string_view":
        chunk = chunk.cast(pa.large_string())
    return chunk.cast(pa.large_binary()).to_pylist()


def documents_array(documents: Sequence) -> np.ndarray:
    """Documents in an array of objects, shape (n_documents,), whatever they are."""
    if isinstance(documents, np.ndarray) and documents.dtype == object and documents.ndim == 1:
        return documents
    array = np.empty(len(documents), object)
    for i, document in enumerate(documents):
        array[i] = document
    return array
