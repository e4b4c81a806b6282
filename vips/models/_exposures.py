"""Exposures beside counts: over how much time, or among how many, each count was made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from sklearn.metrics import r2_score

from vips._support.validation import check_number
from vips.door import Beside

__all__ = [
    "MOST",
    "check_counts",
    "check_planned",
    "counts_and_exposures",
    "score_of_counts",
    "times_exposure",
    "with_exposure",
]

MOST = 1_000_000  # upper limit of `max_count`


def score_of_counts(self, X, y, sample_weight=None, exposure=1.0) -> float:
    """R² of the counts that ``predict`` expects for these exposures."""
    return float(r2_score(y, self.predict(X, exposure), sample_weight=sample_weight))


def with_exposure(self, exposure) -> Self:
    """The model, whose next batch of a stream has these exposures."""
    self.beside = Beside(exposure)
    return self


def times_exposure(exposure, rates: np.ndarray) -> np.ndarray:
    """Expected counts of rows whose exposure of 1 has these rates, shape (n,)."""
    exposure = np.asarray(exposure, dtype=np.float64)
    if exposure.shape not in ((), rates.shape) or not ((exposure > 0.0) & np.isfinite(exposure)).all():
        raise ValueError("`exposure` must be a finite number above 0, or one for each row.")
    return exposure * rates


def counts_and_exposures(
    y: np.ndarray, max_count: int | None, bounds: tuple[float, float] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Counts, larger ones reduced to ``max_count``, and exposures, those beyond the bounds brought there, 1 where y has one
    column; NaN for what is none. Both of shape (n_records,)."""
    y = np.asarray(y, dtype=np.float64)
    counts, exposures = (y, np.ones(len(y))) if y.ndim == 1 else y.T[:2]
    counts = np.where((counts >= 0.0) & (counts == np.floor(counts)) & np.isfinite(counts), counts, np.nan)
    exposures = np.where((exposures > 0.0) & np.isfinite(exposures), exposures, np.nan)
    counts = np.minimum(counts, np.inf if max_count is None else max_count)
    return counts, exposures if bounds is None else np.clip(exposures, *bounds)


def check_planned(model) -> None:
    """Raise NotImplementedError if records of the model have exposures, which generated ones have not."""
    if model.exposure_bounds is not None:
        raise NotImplementedError(
            "Counts with exposures are not planned: leave `exposure_bounds` out, as if all were 1."
        )


def check_counts(model, learns_dispersion: bool = False) -> None:
    """Raise ValueError for bounds of exposures, a dispersion or a largest count that cannot work."""
    bounds = model.exposure_bounds
    if bounds is not None:
        if not isinstance(bounds, Sequence | np.ndarray) or len(bounds) != 2:
            raise ValueError(f"`exposure_bounds` must be two numbers above 0, the lower one first, got {bounds!r}.")
        low, high = bounds
        check_number("exposure_bounds[0]", low, 1e-10, 1e10, "between 1e-10 and 1e10")
        check_number("exposure_bounds[1]", high, low, 1e10, "at least the lower bound, and up to 1e10")
    if model.dispersion is not None or not learns_dispersion:
        words = "or None" if learns_dispersion else "which is not learnt"
        check_number("dispersion", model.dispersion, 1e-6, 1e6, f"a number between 1e-6 and 1e6, {words}")
    if model.max_count is None and model.is_private:
        raise ValueError(
            "`max_count` is required for a private fit: a record's share in the sum grows with its count, and a bound that "
            "is learnt from the counts would reveal the largest. Declare a bound; larger counts are reduced to it."
        )
