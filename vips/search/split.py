"""Which persons are held out: each by a coin of its own, whatever the other records are.

A fixed number of held-out records, or a shuffle of all of them, would let one record decide on which side another one is.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import scipy.sparse as sp

from vips._secret_bits import secret_bits, secret_bytes
from vips.data import Sequences
from vips.data._groups import ids_and_numbers
from vips.privacy.mechanism.sampling import poisson_sample

__all__ = ["Split", "rows_of", "split_rows"]


@dataclass(frozen=True)
class Split:
    """Rows of both parts, ascending; all rows of a person are in one of them, rows of nobody in neither.

    Attributes
    ----------
    fitted, held_out : ndarray of int64
    fitted_persons : ndarray of int64, or None
        Number of the person of each fitted row; None if every row is a record.
    held_out_persons : ndarray of int64
        The same of the held-out rows, counted from 0 without gaps.
    """

    fitted: np.ndarray
    held_out: np.ndarray
    fitted_persons: np.ndarray | None
    held_out_persons: np.ndarray


def split_rows(n_rows: int, groups: object, share: float) -> Split:
    """Hold each record out with probability ``share``, by coins under a fresh key of the operating system.

    Parameters
    ----------
    n_rows : int
    groups : container of ids, or None
        None: every row is a record.
    share : float
        Between 0 and 1.

    Guarantees
    ----------
    - Coins are independent, and none depends on a value: with ids, a coin is a keyed hash of the person's canonical id.
    - All rows of one id are on one side.
    """
    if groups is None:
        is_held = np.zeros(n_rows, bool)
        is_held[poisson_sample(0, n_rows, share, secret_bits(128), 0, 0)] = True
        held = np.flatnonzero(is_held)
        return Split(np.flatnonzero(~is_held), held, None, np.arange(len(held)))
    ids, numbers = ids_and_numbers(groups, n_rows)
    key, limit = secret_bytes(32), int(share * 2.0**64)
    coins = np.array([_coin(person, key) < limit for person in ids] or [False], bool)
    has_person = numbers >= 0
    is_held = has_person & coins[np.maximum(numbers, 0)]
    is_fitted = has_person & ~is_held
    persons = np.unique(numbers[is_held], return_inverse=True)[1].astype(np.int64)
    return Split(np.flatnonzero(is_fitted), np.flatnonzero(is_held), numbers[is_fitted], persons)


def _coin(canonical: bytes, key: bytes) -> int:
    return int.from_bytes(blake2b(canonical, key=key, digest_size=8).digest(), "little")


def rows_of(values, rows: np.ndarray):
    """Some rows of an array, a sparse matrix, sequences, a data frame, a series or a list; None of None."""
    if values is None:
        return None
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    if isinstance(values, np.ndarray | Sequences) or sp.issparse(values):
        return values[rows]
    return [values[i] for i in rows.tolist()]
