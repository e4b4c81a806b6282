"""Estimators that remember in which scope of a ledger they were pickled, so that a fit elsewhere is charged there."""

from __future__ import annotations

import copy
from typing import Self

from sklearn.base import BaseEstimator

from vips.core.ledger.open_ledger import SentFrom, sent_from

__all__ = ["RemembersItsLedger"]


class RemembersItsLedger(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base of estimators that are charged to the ledger whose scope encloses ``fit``."""

    sent_from: SentFrom = None  # set by pickling alone
    _kept_by_clone: tuple[str, ...] = ("sent_from",)

    def __getstate__(self) -> dict:
        return super().__getstate__() | {"sent_from": sent_from(self.sent_from)}

    def __copy__(self) -> Self:
        return self._copied(dict(vars(self)))

    def __deepcopy__(self, memo: dict) -> Self:
        return self._copied(copy.deepcopy(dict(vars(self)), memo))

    def _copied(self, state: dict) -> Self:
        """Without ``__getstate__``: a copy stays in this process, only pickling sets ``sent_from``."""
        copied = type(self).__new__(type(self))
        copied.__dict__.update(state)
        return copied

    def __sklearn_clone__(self) -> Self:
        """The same settings and the same origin, without fitted attributes."""
        cloned = super().__sklearn_clone__()
        cloned.__dict__.update({name: getattr(self, name) for name in self._kept_by_clone if name in vars(self)})
        return cloned
