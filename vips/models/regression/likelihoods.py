"""What a label says in a Pólya-Gamma regression: b and κ of exp(κ ψ) / (2 cosh(ψ/2))^b.

    two classes        y ~ σ(ψ)                            b = 1,       κ = y - ½
    more classes       stick-breaking, one ψ a break       b = 1 or 0,  κ = ±½ or 0
    binomial           y ~ Binomial(n, σ(ψ))               b = n,       κ = y - n/2
    negative binomial  y ~ NB(r, σ(ψ)), E y = r exp(ψ)     b = y + r,   κ = (y - r)/2

ψ is the linear predictor x'w plus an offset: of negative binomial counts -log r, so that E y = exp(x'w); else 0.

Polson, Scott and Windle (2013), arXiv:1205.0310v3; K classes: Linderman, Johnson and Adams (2015), arXiv:1506.05843.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, gammaln

from vips.models._exposures import counts_and_exposures

__all__ = ["Binomial", "Classes", "Likelihood", "NegativeBinomial"]


# Deviations of the logarithm of exposures, relative to the distance of its bounds.
_DEVIATIONS = np.array([0.15, 0.03])


class Likelihood(ABC):
    """Likelihood of a label given ψ.

    Attributes
    ----------
    n_outputs : int
        Number of ψ.
    largest_shape, largest_linear : float
        Public bounds on b and on |κ|.
    offset : float
        Of ψ; where records differ in it, that of most of them.
    largest_offset : float
        Public bound on its size.
    """

    n_outputs = 1
    offset = 0.0
    largest_shape: float
    largest_linear: float

    @property
    def largest_offset(self) -> float:
        return abs(self.offset)

    def offsets(self, y: np.ndarray) -> float | np.ndarray:
        """Offset of each record, shape (n_records, 1), or of all."""
        return self.offset

    def laws_of_offset(self) -> list[tuple[float, float]]:
        """Means and variances of the offsets that are possible by public facts; the first one if nothing is known."""
        return [(self.offset, 0.0)]

    @abstractmethod
    def terms(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """b and κ of labels, both of shape (n_records, n_outputs); NaN for a label that does not exist."""

    @abstractmethod
    def extreme_labels(self) -> np.ndarray:
        """Public labels, among which is one with the largest norm for every x; infinite if there is no bound."""

    @abstractmethod
    def expected(self, psi: np.ndarray) -> np.ndarray:
        """Expected outcome at ψ, which grows with it; raises ValueError for several outputs."""

    def log_base_measure(self, y: np.ndarray) -> float:
        """Σ_n of the log of the factor that does not depend on ψ."""
        return 0.0


@dataclass(frozen=True, eq=False)
class Classes(Likelihood):
    """One of several classes.

    Parameters
    ----------
    labels : ndarray of shape (n_classes,)
        In the order in which they were declared; of two, the last one is "yes". Labels of strings come as their places.
    """

    labels: np.ndarray
    largest_shape = 1.0
    largest_linear = 0.5

    @property
    def n_outputs(self) -> int:
        return len(self.labels) - 1

    @property
    def are_words(self) -> bool:
        return self.labels.dtype.kind == "U"

    def places(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Place of each label among the classes, and whether it is one of them."""
        classes = np.arange(len(self.labels)) if self.are_words and y.dtype.kind == "f" else self.labels
        order = np.argsort(classes)
        place = order[np.minimum(np.searchsorted(classes, y, sorter=order), len(classes) - 1)]
        return place, classes[place] == y

    def terms(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Regression j sees records of class j (κ = ½) and of later classes (κ = -½); two classes: y = 1 has κ = ½."""
        place, known = self.places(y)
        known = known[:, None]
        if len(self.labels) == 2:
            return np.where(known, 1.0, np.nan), np.where(known, place[:, None] - 0.5, np.nan)
        output = np.arange(self.n_outputs)
        sees, is_own = place[:, None] >= output, place[:, None] == output
        return np.where(known, sees, np.nan), np.where(known, sees * (is_own - 0.5), np.nan)

    def extreme_labels(self) -> np.ndarray:
        return np.arange(float(len(self.labels))) if self.are_words else self.labels

    def expected(self, psi: np.ndarray) -> np.ndarray:
        """Probability of the class declared last."""
        if self.n_outputs > 1:
            raise ValueError(f"Intervals of predictions are for two classes, not for {len(self.labels)}.")
        return expit(psi)


class _Counts(Likelihood):
    """Whole numbers from 0 to a public bound, infinite if there is none."""

    largest: float

    def extreme_labels(self) -> np.ndarray:
        """0 and the largest count: squares of residuals and precisions are convex functions of the count."""
        return np.array([0.0, self.largest])

    def counts(self, y: np.ndarray) -> np.ndarray:
        """Counts as floats, NaN for invalid ones; shape (n_records, 1)."""
        return counts_and_exposures(y, None, None)[0][:, None]


@dataclass(frozen=True)
class Binomial(_Counts):
    """Counts out of ``n_trials``."""

    n_trials: int

    @property
    def largest(self) -> int:
        return self.n_trials

    @property
    def largest_shape(self) -> float:
        return float(self.n_trials)

    @property
    def largest_linear(self) -> float:
        return 0.5 * self.n_trials

    def terms(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y = self.counts(y)
        y[y > self.n_trials] = np.nan
        return np.where(np.isnan(y), np.nan, float(self.n_trials)), y - 0.5 * self.n_trials

    def expected(self, psi: np.ndarray) -> np.ndarray:
        return self.n_trials * expit(psi)

    def log_base_measure(self, y: np.ndarray) -> float:
        y, n = self.counts(y), float(self.n_trials)
        return float(np.sum(gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(n - y + 1.0)))


@dataclass(frozen=True)
class NegativeBinomial(_Counts):
    """Counts with a variance of m + m²/r around a mean of m; counts above ``max_count`` are reduced to it.

    ``y`` has one column, or counts and exposures, which are brought between the bounds, if there are any.
    """

    dispersion: float
    max_count: int | None
    exposure_bounds: tuple[float, float] | None = None

    @property
    def offset(self) -> float:
        middle = 0.0 if self.exposure_bounds is None else 0.5 * np.log(self.exposure_bounds).sum()
        return float(middle - np.log(self.dispersion))

    @property
    def largest_offset(self) -> float:
        bounds = 1.0 if self.exposure_bounds is None else self.exposure_bounds
        return float(np.abs(np.log(bounds) - np.log(self.dispersion)).max())

    def offsets(self, y: np.ndarray) -> float | np.ndarray:
        return -np.log(self.dispersion) if y.ndim == 1 else self.log_exposures(y)[:, None] - np.log(self.dispersion)

    def laws_of_offset(self) -> list[tuple[float, float]]:
        """Laws of exposures whose logarithms are nearly equal, or differ by as much as bounds leave them."""
        if self.exposure_bounds is None:
            return super().laws_of_offset()
        low, high = np.log(self.exposure_bounds)
        means, deviations = (
            low + (high - low) * np.array([0.5, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9]),
            (high - low) * _DEVIATIONS,
        )
        return [(float(mean - np.log(self.dispersion)), float(std**2)) for mean in means for std in deviations]

    def log_exposures(self, y: np.ndarray) -> np.ndarray:
        """Shape (n_records,); 0 without exposures, and NaN for one that is not above 0."""
        return np.log(counts_and_exposures(y, self.max_count, self.exposure_bounds)[1])

    @property
    def largest(self) -> float:
        return np.inf if self.max_count is None else self.max_count

    @property
    def largest_shape(self) -> float:
        return 1.0 if self.max_count is None else self.max_count + float(self.dispersion)

    @property
    def largest_linear(self) -> float:
        r = float(self.dispersion)
        return 0.5 * (r if self.max_count is None else max(r, self.max_count - r))

    def terms(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y = self.limited(y)
        return y + self.dispersion, 0.5 * (y - self.dispersion)

    def limited(self, y: np.ndarray) -> np.ndarray:
        """Counts up to ``max_count``, NaN beside an exposure that is none; shape (n_records, 1)."""
        counts, exposures = counts_and_exposures(y, self.max_count, self.exposure_bounds)
        return np.where(np.isnan(exposures), np.nan, counts)[:, None]

    def expected(self, psi: np.ndarray) -> np.ndarray:
        return self.dispersion * np.exp(psi)

    def log_base_measure(self, y: np.ndarray) -> float:
        y, r = self.limited(y), float(self.dispersion)
        return float(np.sum(gammaln(y + r) - gammaln(r) - gammaln(y + 1.0)))
