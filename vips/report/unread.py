"""What a private fit has not read: columns, categories and symbols of which nothing stands out from the noise.

A cell that cannot be read counts as missing, and decides no error. How often cells were read follows from totals that are
released anyway, so that saying it costs nothing.

A noisy count c with noise of deviation s, beside the noisy count n of all records with noise of deviation s', is unread if

    c ≤ z s   and   c - p n < -z (s + p s')          z the quantile of 1 - LEVEL/m of the normal law, m the number of counts

The second is a test of "at least a share p has it", whatever the dependence of the two noises: where that is true of all
counts, one is called unread with probability LEVEL = 0.001 at most. The first keeps quiet about what is rare and seen.
A column of which the second alone holds, with p = 3/4, is called mostly unread, unless missing cells were declared. Distances
from a bound add up to such a count, too, in units of what lies between both: of values that are all at the bound it is 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from vips._support.printable import listed
from vips._support.validation import levels_to_user
from vips.exceptions import PrivacyWarning
from vips.report.only_noise import LEVEL, NO_SIGNAL

__all__ = ["IN_SLOTS", "TELLS_OF_NOISE", "Seen", "off_bound", "unread", "warn_of_unread"]

_HOW = "vips.inspect shows, to the holder of the data, which cells are read."
TELLS_OF_NOISE = f"(?s).*{_HOW}"  # a pattern of these warnings

_LEAST, _RAREST = 0.1, 0.01  # p of a column, and of a category or symbol: at most that, and a tenth of its even share
_MOST = 0.75  # p of a column that is called mostly unread
IN_SLOTS = "steps at equal distances in time, many of which may be missing"  # as a report's preprocessing


@dataclass(frozen=True)
class Seen:
    """Noisy counts of what was read of a column, or of steps.

    Parameters
    ----------
    what : str
        The column, in words.
    kind : str
        What it holds: "number", "date", "category", "symbol", …
    counts : ndarray of shape (n,)
        Of each of ``values``, or a single one.
    std : float or ndarray of shape (n,)
    total, total_std : float
        The count of all records, and the noise in it.
    values : sequence
        Declared categories, or symbols; empty for numbers. What is None counts as read, and is not named.
    least : float
        p of all counts together.
    are_independent : bool
        Whether the noises in the counts are.
    may_be_missing : bool
        Whether missing cells were declared, or are not what the counts lack.
    unread : float
        A released share of cells that are neither missing nor readable.
    """

    what: str
    kind: str
    counts: np.ndarray
    std: float | np.ndarray
    total: float
    total_std: float
    values: Sequence = ()
    least: float = _LEAST
    are_independent: bool = True
    may_be_missing: bool = False
    unread: float = 0.0

    @property
    def n_named(self) -> int:
        """How many values are named."""
        return sum(value is not None for value in self.values)

    @property
    def n_tests(self) -> int:
        """How many tests there are: of the column as a whole, with p of two sizes, and of each value."""
        return 2 + self.n_named

    def is_unread(self, z: float) -> bool:
        """Whether the column as a whole is."""
        count, std = self._of_all()
        return bool(self._are_rare(count, std, self.least, z) and count <= z * std)

    def is_mostly_unread(self, z: float) -> bool:
        """Whether more than a quarter of the column is."""
        return self.unread < _RAREST and not self.may_be_missing and bool(self._are_rare(*self._of_all(), _MOST, z))

    def unread_values(self, z: float) -> list:
        """The values that are."""
        if not self.n_named:
            return []
        are_rare = self._are_rare(self.counts, self.std, min(_RAREST, _LEAST / self.n_named), z)
        unread = np.logical_and(are_rare, self.counts <= z * np.asarray(self.std))
        return [value for value, is_unread in zip(self.values, unread, strict=True) if is_unread and value is not None]

    def _of_all(self) -> tuple[float, float]:
        stds = np.broadcast_to(self.std, np.shape(self.counts))
        return np.sum(self.counts), np.sqrt(np.square(stds).sum()) if self.are_independent else stds.sum()

    def _are_rare(self, counts, std, least: float, z: float) -> np.ndarray:
        return counts - least * self.total < -z * (std + least * self.total_std)


def off_bound(read: Seen, side: str, count: float, std: float, least: float) -> Seen:
    """What was ``read``, at this side of a bound: by the sum of distances from it, which are at least so large on average."""
    of_read = {"total": read.counts, "total_std": read.std, "least": least, "may_be_missing": True}
    return replace(read, kind=f"{read.kind} {side}", counts=count, std=std, **of_read)


def unread(seen: Sequence[Seen]) -> list[str]:
    """A sentence for each column, or for those of its values, that cannot be told from what nobody has."""
    z = -ndtri(LEVEL / max(sum(of.n_tests for of in seen), 1))
    sentences = []
    for of in seen:
        values = of.unread_values(z)
        if of.is_unread(z) or 0 < of.n_named == len(values):
            sentences.append(f"{of.what}: no {of.kind} was read above the noise; how are they written?")
            continue
        if of.unread >= _RAREST:
            sentences.append(
                f"{of.what}: in about {of.unread:.0%} of the cells no {of.kind} was read; how are they written?"
            )
        if of.is_mostly_unread(z):
            asked = "are the others missing, or written otherwise?"
            sentences.append(f"{of.what}: in fewer than three quarters of the cells a {of.kind} was read; {asked}")
        if values:
            named = listed([repr(value) for value in values])
            sentences.append(f"{of.what}: of {of.kind} {named} nothing was read above the noise; is it written so?")
    return sentences


def warn_of_unread(fitted) -> None:
    """Warn of a private fit that has read nothing, or nothing of a column, category or symbol; silent where it adds no noise.

    ``fitted`` is a model or a pipeline with ``privacy_`` and ``counts_read()``: released values alone decide.
    """
    if not fitted.privacy_.plan.is_private:
        return
    seen = () if fitted.privacy_.only_noise else fitted.counts_read()
    if fitted.privacy_.preprocessing == IN_SLOTS:
        seen = [replace(of, may_be_missing=True) for of in seen]
    if sentences := [f"There is {NO_SIGNAL}."] if fitted.privacy_.only_noise else unread(seen):
        warnings.warn(" ".join([*sentences, _HOW]), PrivacyWarning, stacklevel=levels_to_user())
