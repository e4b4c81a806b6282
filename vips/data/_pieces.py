"""A table as data frames that follow each other, and its features in a file without a name."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable

import numpy as np

from vips._support.extras import imported
from vips.exceptions import SourceError

__all__ = ["TableInPieces"]


class TableInPieces:
    """A table that :class:`~vips.preprocessing.TableEncoder` reads a piece at a time.

    Parameters
    ----------
    pieces : function that returns an iterable of data frames
        At least one, all with the same columns and dtypes, and the same ones in each call. Columns of numbers may have dtypes
        of numbers that differ; the first piece has the dtype of all.
    order : ndarray of int64, optional
        Rows of the pieces, counted from 0 through all of them, in the order that the table has. Other rows are left out.
    n_read : int, optional
        Number of rows of all pieces together, if it is known; else they are counted.
    """

    def __init__(
        self, pieces: Callable[[], Iterable], order: np.ndarray | None = None, n_read: int | None = None
    ) -> None:
        self.pieces, self._order, self._n_read = pieces, order, n_read
        self.head = next(iter(pieces())).iloc[:0]
        self.columns, self.dtypes = self.head.columns, self.head.dtypes

    def __len__(self) -> int:
        return self._count() if self._order is None else len(self._order)

    def __getitem__(self, name):
        """A column without rows: its name and dtype."""
        return self.head[name]

    def loaded(self, names: Iterable, ids: str | None = None):
        """A data frame of these columns, in memory. Equal texts of a column are one object, as are equal ids."""
        pandas, names = imported("pandas", by="A table"), list(names)
        texts: dict[object, dict] = {name: {} for name in names if name == ids or self.dtypes[name] is np.dtype(object)}
        pieces = (
            # objects stay objects, whatever the cells of a piece are, and ids keep all of their digits
            piece[names].assign(**{
                name: pandas.Series(_once(piece[name], known), piece.index, object) for name, known in texts.items()
            })
            for piece in self.pieces()
        )  # fmt: skip
        table = pandas.concat(pieces, ignore_index=True)
        return table if self._order is None else table.iloc[self._order].reset_index(drop=True)

    def encoded(self, encode: Callable, n_features: int) -> np.ndarray:
        """Features of all rows, float32, mapped from a file without a name, which ends with the array.

        ``encode`` computes features of a data frame row by row. OSError if the temporary folder lacks the space.
        """
        if not len(self):
            return np.zeros((0, n_features), np.float32)
        place, first = np.full(self._count(), -1), 0
        place[slice(None) if self._order is None else self._order] = np.arange(len(self))
        reserve = getattr(os, "posix_fallocate", lambda file, _, n_bytes: os.truncate(file, n_bytes))
        with tempfile.TemporaryFile() as file:
            try:  # a full disk is an error here, and no signal later
                reserve(file.fileno(), 0, 4 * len(self) * n_features)
            except OSError as error:
                place_of_file = (
                    f"{tempfile.gettempdir()}: it lacks the space for the features. TMPDIR names another folder."
                )
                raise OSError(error.errno, f"{error.strerror} in {place_of_file}") from None
            features = np.memmap(file, np.float32, "r+", shape=(len(self), n_features))
        for piece in self.pieces():
            places, first = place[first : first + len(piece)], first + len(piece)
            if len(places) < len(piece):
                break
            features[places[places >= 0]] = encode(piece[places >= 0])
        if first != len(place):
            raise SourceError("The table has changed since it was first read: it has another number of rows.")
        return features

    def _count(self) -> int:
        if self._n_read is None:
            self._n_read = sum(map(len, self.pieces()))
        return self._n_read


def _once(cells: Iterable, known: dict) -> list:
    return [known.setdefault(cell, cell) for cell in cells]
