"""Exposures beside counts: over how much time, or among how many, each count was made."""

from __future__ import annotations

from typing import Self

import numpy as np

from vips._validation import check_number
from vips.data import DataSource, InMemoryData
from vips.door import numbers_of_rows

__all__ = ["TakesExposures"]


class TakesExposures:
    """Mixin of models of counts with ``exposure_bounds``, whose ``fit`` calls ``with_exposure`` and ``forget_exposures``."""

    _unlisted = ("check_exposure_bounds", "forget_exposures", "with_exposure", "with_exposures")
    # During a fit: exposures until records are read, and whether there are any.
    _exposure: object = None
    _has_exposures = False

    def with_exposure(self, exposure) -> Self:
        """The model, whose next records have these exposures; for what fits models in its place."""
        self._exposure = exposure
        return self

    def forget_exposures(self) -> None:
        """The fit is over."""
        for name in ("_exposure", "_has_exposures"):
            vars(self).pop(name, None)

    @property
    def takes_one_label(self) -> bool:
        """False where an exposure stands beside each count."""
        return not self._has_exposures

    def with_exposures(self, records: DataSource) -> DataSource:
        """Records whose labels are counts, with exposures beside them if there are any."""
        if self._exposure is None:
            if self.exposure_bounds is not None:
                raise ValueError("`exposure_bounds` are declared: pass fit(X, y, exposure=...).")
            return records
        if not isinstance(records, InMemoryData):
            raise TypeError("`exposure` is for arrays and data frames: a data source has no place for it.")
        if self.is_private and self.exposure_bounds is None:
            raise ValueError(
                "`exposure_bounds` are required for a private fit with exposures: bounds that are learnt from them would "
                "reveal the largest. Declare them, e.g. exposure_bounds=(1, 365); exposures beyond are brought there."
            )
        X, y = records.arrays
        exposure = numbers_of_rows(self, self._exposure, "exposure", len(y))
        if not self.is_private and not exposure.all():
            raise ValueError("`exposure` must hold finite numbers above 0.")
        self._exposure, self._has_exposures = None, True
        return InMemoryData(X, np.column_stack([y, exposure])).divided_like(records)

    def check_exposure_bounds(self) -> None:
        """Raise ValueError unless they are two numbers above 0, the lower one first, or None."""
        if self.exposure_bounds is not None:
            low, high = self.exposure_bounds
            check_number("exposure_bounds[0]", low, 1e-10, 1e10, "between 1e-10 and 1e10")
            check_number("exposure_bounds[1]", high, low, 1e10, "at least the lower bound, and up to 1e10")
