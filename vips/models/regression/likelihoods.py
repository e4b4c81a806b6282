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
from functools import lru_cache

import numpy as np
from scipy.special import expit, gammaln
from scipy.stats import binom, nbinom

from vips.models._exposures import counts_and_exposures

__all__ = ["Binomial", "Classes", "Likelihood", "NegativeBinomial", "Residuals", "most_deviations"]


# Deviations of a count whose residual counts whole: a multiple of C, so that limits clip no more than C does, between these.
_DEVIATIONS_OF_SIZE, _MOST_DEVIATIONS = 2.5, (5.0, 12.0)
_N_NODES, _LEAST_LOG, _MOST_LOG, _MOST_LOGIT = 1500, -14.0, 3.0, 15.0  # of tables of expected residuals
_TYPICAL = 0.1  # mean of counts over their largest, where nothing is known


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
    is_limited : bool
        Whether :meth:`scores` limits residuals, so that coefficients are wrong where expected labels are.
    """

    n_outputs = 1
    offset = 0.0
    is_limited = False
    largest_shape: float
    largest_linear: float

    def offsets(self, y: np.ndarray) -> float | np.ndarray:
        """Offset of each record, shape (n_records, 1), or of all."""
        return self.offset

    def unit(self, psi: float) -> float:
        """Unit of residuals, twice the root of the information of a label at ψ: 1 for classes."""
        return 1.0

    def scores(self, y: np.ndarray, psi: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
        """What a private step sums: residuals r, and the information E[r s] of a label with the score s.

        Parameters
        ----------
        y : ndarray of shape (n_records,) or (n_records, n_columns)
        psi : ndarray of shape (n_records, n_outputs)
            With the offset.
        size : float
            C, with which limits of residuals grow.

        Returns
        -------
        residual, information : ndarray of shape (n_records, n_outputs)
            r = κ - E[ω] ψ at the point ψ, that is y - σ(ψ) for two classes.
        """
        shape, linear = self.terms(y)
        p = expit(psi)
        return linear + shape * (0.5 - p), shape * p * (1.0 - p)

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
    is_limited = True

    def extreme_labels(self) -> np.ndarray:
        """0 and the largest count: squares of residuals and precisions are convex functions of the count."""
        return np.array([0.0, self.largest])

    @abstractmethod
    def residuals(self, most: float) -> Residuals:
        """How residuals are limited to so many deviations."""

    @abstractmethod
    def moments(self, psi: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean and deviation of a count at ψ, and its information."""

    def unit(self, psi: float) -> float:
        return float(2.0 * np.sqrt(self.moments(np.array(psi))[2]))

    def scores(self, y: np.ndarray, psi: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
        """As in the base class, with residuals over their deviation limited, less the expectation of what is left.

        So a rare large count does not fill the clip norm, and coefficients are not biased where the model holds (Cantoni and
        Ronchetti, 2001). With more records C is larger and the limit wider: in the end the mean alone must be right.
        """
        most = most_deviations(size)
        residuals = self.residuals(most)
        psi = residuals.inside(psi)
        mean, std, information = self.moments(psi)
        expected, slope = residuals.at(psi)
        limited = np.clip((self.limited(y) - mean) / std, -most, most)
        root = np.sqrt(information)
        return (limited - expected) * root, slope * root

    def limited(self, y: np.ndarray) -> np.ndarray:
        """Counts that the likelihood knows, NaN for others; shape (n_records, 1)."""
        counts = self.counts(y)
        return np.where(counts > self.largest, np.nan, counts)

    def counts(self, y: np.ndarray) -> np.ndarray:
        """Counts as floats, NaN for invalid ones; shape (n_records, 1)."""
        return counts_and_exposures(y, None, None)[0][:, None]


@dataclass(frozen=True)
class Binomial(_Counts):
    """Counts out of ``n_trials``."""

    n_trials: int

    @property
    def is_limited(self) -> bool:
        return self.n_trials > 1

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
        y = self.limited(y)
        return np.where(np.isnan(y), np.nan, float(self.n_trials)), y - 0.5 * self.n_trials

    def scores(self, y: np.ndarray, psi: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
        return super().scores(y, psi, size) if self.is_limited else Likelihood.scores(self, y, psi, size)

    def unit(self, psi: float) -> float:
        return float(np.sqrt(self.n_trials))

    def moments(self, psi: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        p = expit(psi)
        information = self.n_trials * p * (1.0 - p)
        return self.n_trials * p, np.sqrt(information), information

    def residuals(self, most: float) -> Residuals:
        return _residuals_of_trials(self.n_trials, most)

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

    def offsets(self, y: np.ndarray) -> float | np.ndarray:
        return -np.log(self.dispersion) if y.ndim == 1 else self.log_exposures(y)[:, None] - np.log(self.dispersion)

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

    def moments(self, psi: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        r, mean = self.dispersion, self.dispersion * np.exp(psi)
        return mean, np.sqrt(mean * (1.0 + mean / r)), mean / (1.0 + mean / r)

    def residuals(self, most: float) -> Residuals:
        return _residuals_of_counts(float(self.dispersion), self.max_count, most)

    def rates(self, y: np.ndarray) -> np.ndarray:
        """Counts and exposures over their largest; shape (n_records, 2)."""
        counts, exposures = counts_and_exposures(y, self.max_count, self.exposure_bounds)
        return np.column_stack([counts / self.max_count, exposures / self._largest_exposure])

    def log_rate(self, sums: np.ndarray, noise_std: float) -> float:
        """Logarithm of the average rate from noisy sums of :meth:`rates`, each at least the noise in it."""
        counts, exposures = np.maximum(sums, noise_std)
        return float(np.log(counts * self.max_count / (exposures * self._largest_exposure)))

    def typical_log_rate(self) -> float:
        """The same for the middle one of the declared exposures, where nothing was released."""
        exposure = 1.0 if self.exposure_bounds is None else np.mean(self.exposure_bounds)
        return float(np.log(_TYPICAL * self.max_count / exposure))

    @property
    def _largest_exposure(self) -> float:
        return 1.0 if self.exposure_bounds is None else float(self.exposure_bounds[1])

    def limited(self, y: np.ndarray) -> np.ndarray:
        """Counts up to ``max_count``, NaN beside an exposure that is none; shape (n_records, 1)."""
        counts, exposures = counts_and_exposures(y, self.max_count, self.exposure_bounds)
        return np.where(np.isnan(exposures), np.nan, counts)[:, None]

    def expected(self, psi: np.ndarray) -> np.ndarray:
        return self.dispersion * np.exp(psi)

    def log_base_measure(self, y: np.ndarray) -> float:
        y, r = self.limited(y), float(self.dispersion)
        return float(np.sum(gammaln(y + r) - gammaln(r) - gammaln(y + 1.0)))


def most_deviations(size: float) -> float:
    """Deviations to which residuals of counts are limited at this C."""
    return float(np.clip(_DEVIATIONS_OF_SIZE * size, *_MOST_DEVIATIONS))


@dataclass(frozen=True)
class Residuals:
    """Expectations of residuals that are limited to a number of deviations, tabulated over ψ: at nodes of equal distance.

    Parameters
    ----------
    psi : ndarray of shape (n_nodes,)
    expected : ndarray of shape (n_nodes,)
        E e of a count of the model, where e is its limited residual.
    slope : ndarray of shape (n_nodes,)
        E[e s] with the score s = d log p / dψ.
    """

    psi: np.ndarray
    expected: np.ndarray
    slope: np.ndarray

    def inside(self, psi: np.ndarray) -> np.ndarray:
        """ψ between the ends of the table."""
        return np.clip(psi, self.psi[0], self.psi[-1])

    def at(self, psi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Expectation and slope at ψ inside: each a function of that ψ alone, to the last bit."""
        place = (psi - self.psi[0]) / (self.psi[1] - self.psi[0])
        node = np.clip(np.nan_to_num(place), 0, len(self.psi) - 2).astype(np.intp)
        share = place - node
        return tuple(
            (1.0 - share) * values[node] + share * values[node + 1] for values in (self.expected, self.slope)
        )  # fmt: skip


@lru_cache(maxsize=64)
def _residuals_of_counts(dispersion: float, max_count: int, most: float) -> Residuals:
    """Residuals of negative binomial counts, those above ``max_count`` taken for it."""
    log_mean = np.linspace(_LEAST_LOG, np.log(max_count) + _MOST_LOG, _N_NODES)
    r, mean = dispersion, np.exp(log_mean)
    distributions = [nbinom(r + k, r / (r + mean)) for k in range(3)]
    std, pairs = np.sqrt(mean * (1.0 + mean / r)), mean**2 * (1.0 + 1.0 / r)
    expected, slope = _limited_moments(distributions, mean, std, pairs, max_count, most)
    return Residuals(log_mean - np.log(r), expected, slope / (1.0 + mean / r))


@lru_cache(maxsize=64)
def _residuals_of_trials(n: int, most: float) -> Residuals:
    """Residuals of binomial counts."""
    logit = np.linspace(-_MOST_LOGIT, _MOST_LOGIT, _N_NODES)
    p = expit(logit)
    distributions = [binom(n - k, p) for k in range(3)]
    moments = n * p, np.sqrt(n * p * (1.0 - p)), n * (n - 1) * p**2
    return Residuals(logit, *_limited_moments(distributions, *moments, n, most))


def _limited_moments(distributions, mean, std, pairs, largest: float, most: float) -> tuple[np.ndarray, np.ndarray]:
    """E e and E[e (y - m)] of e = (min(y, largest) - m)/s within ± ``most``.

    Sums over y of y p and y (y - 1) p are those of p itself for distributions next to it, which ``distributions`` lists.
    ``pairs`` is E y (y - 1).
    """
    least = np.ceil(mean - most * std)
    last = np.maximum(np.floor(np.minimum(mean + most * std, largest)), least - 1.0)
    of_largest = np.clip((largest - mean) / std, -most, most)
    totals = np.array([np.ones(len(mean)), mean, pairs])
    below = totals * [of.cdf(least - 1.0 - k) for k, of in enumerate(distributions)]
    inside = totals * [of.cdf(last - k) for k, of in enumerate(distributions)] - below
    above = totals * [of.sf(last - k) for k, of in enumerate(distributions)]
    squares = inside[2] + inside[1] - 2.0 * mean * inside[1] + mean**2 * inside[0]
    expected = (inside[1] - mean * inside[0]) / std - most * below[0] + of_largest * above[0]
    slope = squares / std - most * (below[1] - mean * below[0]) + of_largest * (above[1] - mean * above[0])
    return expected, np.maximum(slope, 0.0)
