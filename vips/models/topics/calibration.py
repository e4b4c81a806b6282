"""Intervals of topics that are calibrated by simulation: post-processing, which costs no budget.

``noise_aware.py`` accounts for the noise of the totals. Three more errors remain: shares are inferred one document at a time,
a clip weighs documents, and the fit ends before it has converged. A parametric bootstrap measures them. Stand-ins, fits to
documents that were drawn from the released topics, make the same errors against topics that are known.

=========  ==========================================================================================================
symbol     meaning
=========  ==========================================================================================================
x          noisy count over the denoised total of its topic
σ          deviation of x that the noise and the documents explain, by ``noise_aware.py``
β°         topics from which documents of stand-ins are drawn
e_b        x of stand-in b less β°: its error
m          median of e_b; of two stand-ins the smaller error, 0 if they differ in sign
λ          how well m_{-b} predicts e_b, from 0 to 1
m_{-b}     the same of the other stand-ins
f          0.95 quantile of |e_b - λ m_{-b}|/1.96σ, the median of those of the stand-ins; at least 1
=========  ==========================================================================================================

The calibrated posterior is that of counts whose noisy values are x - λ m, with deviation √((f σ)² + (0.2 λ m)²). λ and f are
functions of x/σ.
First two stand-ins of the released topics give m; then three of the topics less λ m: the errors that the fit makes are those at
the truth, not those at its own result.

A stand-in starts where the fit did, if ``random_state`` is a number. Otherwise the start is not known, stand-ins start at
random, their errors agree less, and intervals are wider.

Topics of stand-ins that match no topic of β° are left out: f holds for topics that a fit found. A fit that ended in another
optimum (two true topics in one) looks like a good one to its stand-ins: its intervals hold less often.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from vips.expfam import ScaledDirichlet
from vips.models.topics.noise_aware import count_moments, error_factors
from vips.models.topics.stand_ins import released_counts, stand_in, start_of

__all__ = ["calibrated_topics"]

_FITS = (2, 3)  # stand-ins of each round
_LEVEL, _QUANTILE = 0.95, 1.959964
_MATCHES = 0.3  # squared Hellinger distance (from 0 to 2) of a topic that was found
_FEWEST_CELLS, _MOST_GROUPS = 100, 8
_UNSURE = 0.2  # of the correction counts as its standard deviation
_LEAST_FACTOR = 1.0  # σ is never doubted downwards: documents of stand-ins are simpler than records
_LEAST, _MOST = 1e-100, 1e100


@dataclass(frozen=True)
class _Counts:
    """What a fit released: noisy counts, their deviations, totals of topics, and topics."""

    noisy: np.ndarray
    std: np.ndarray  # σ in units of counts
    totals: np.ndarray
    topics: np.ndarray

    @classmethod
    def of(cls, model) -> _Counts:
        (noisy, noise_std), prior = released_counts(model), model.word_concentration()
        counts = np.maximum(model.last_posterior_.concentration - prior, 0.0)
        amplified, spread = error_factors(noisy, noise_std, counts, prior, model.topic_concentration())
        with np.errstate(all="ignore"):
            std = np.sqrt((noise_std * amplified) ** 2 + spread * np.maximum(counts, 1.0))
        totals = np.maximum(counts.sum(axis=1, keepdims=True), _LEAST)
        concentration = model.last_posterior_.concentration  # not its mean, which the posterior would keep
        return cls(noisy, std, totals, concentration / concentration.sum(axis=1, keepdims=True))

    @property
    def share(self) -> np.ndarray:
        """x."""
        return self.noisy / self.totals

    @property
    def error(self) -> np.ndarray:
        """σ."""
        return self.std / self.totals

    def posterior(self, bias, factor, prior: float) -> ScaledDirichlet:
        """Given x - ``bias``, with deviations ``factor`` times σ and a part of the bias."""
        std = np.hypot(factor * self.std, _UNSURE * np.abs(bias) * self.totals)
        moments = count_moments(self.noisy - bias * self.totals, std, prior)
        return ScaledDirichlet(*(np.clip(np.nan_to_num(moment, nan=1.0), _LEAST, _MOST) for moment in moments))


def calibrated_topics(model) -> ScaledDirichlet:
    """Topic-word probabilities of a private fit; a function of released numbers and fixed seeds.

    Costs about as many fits of the same plan as there are stand-ins, to at most 20,000 documents.

    Parameters
    ----------
    model : LatentDirichletAllocation
        Fitted with noise.
    """
    fit, prior, start = _Counts.of(model), model.word_concentration(), start_of(model)
    bias, factor = np.zeros_like(fit.noisy), np.ones_like(fit.noisy)
    seed = 0
    for n_fits in _FITS:
        topics = fit.posterior(bias, factor, prior).mean
        stands = [_Counts.of(stand_in(model, topics, seed + i, start)) for i in range(n_fits)]
        seed += n_fits
        bias, factor = _errors(fit, topics, stands)
    return fit.posterior(bias, factor, prior)


def _errors(fit: _Counts, topics: np.ndarray, stands: list[_Counts]) -> tuple[np.ndarray, np.ndarray]:
    """λ m and f of every cell of the fit, from stand-ins of ``topics``."""
    order, is_near = np.array([_matched(stand.topics, topics) for stand in stands]).transpose(1, 0, 2)
    is_near = is_near.astype(bool)[:, :, None]  # (stand-ins, topics, 1)
    if is_near.mean() < 0.5:  # of noise: then all topics count, and are far off
        is_near = np.ones_like(is_near)
    share, sigma = (
        np.array([getattr(stand, name)[o] for stand, o in zip(stands, order, strict=True)])
        for name in ("share", "error")
    )
    errors = np.where(is_near, share - topics, np.nan)
    others = np.array([_agreed(np.delete(errors, b, axis=0)) for b in range(len(stands))])
    known = np.isfinite(errors) & np.isfinite(others)
    if known.sum() < _FEWEST_CELLS:
        return np.zeros_like(fit.noisy), np.ones_like(fit.noisy)
    size, error, other = (array[known] for array in (share / sigma, errors / sigma, others / sigma))
    stand = np.broadcast_to(np.arange(len(stands))[:, None, None], errors.shape)[known]
    slope, factor = _by_group(_log_size(size), error, other, stand)
    at = _log_size(fit.share / fit.error)
    return slope(at) * np.nan_to_num(_agreed(errors)), factor(at)


def _agreed(errors: np.ndarray) -> np.ndarray:
    """The smaller of two errors, or 0 if their signs differ; the median of three. So one stand-in that went astray decides
    nothing. Errors that are not known (NaN) do not count."""
    low, high = np.fmin.reduce(errors, axis=0), np.fmax.reduce(errors, axis=0)
    if len(errors) < 3:
        return np.clip(0.0, low, high)
    with np.errstate(all="ignore"):
        n = np.isfinite(errors).sum(axis=0)
        middle = np.nansum(errors, axis=0) - low - high
    return np.where(n == 3, middle, np.where(n == 2, np.clip(0.0, low, high), low))


def _log_size(size: np.ndarray) -> np.ndarray:
    return np.log1p(np.maximum(size, 0.0))


def _by_group(size: np.ndarray, error: np.ndarray, other: np.ndarray, stand: np.ndarray):
    """λ and f as functions of the size, linear between the middles of groups of cells of about the same size."""
    n_groups = int(np.clip(len(size) // _FEWEST_CELLS, 1, _MOST_GROUPS))
    groups = np.array_split(np.argsort(size, kind="stable"), n_groups)
    middles = np.array([np.median(size[group]) for group in groups])
    slopes, factors = [], []
    for group in groups:
        e, o = error[group], other[group]
        weight = 1.0 / (1.0 + o**2 + e**2)  # large errors of single cells do not decide
        slope = float(np.clip((weight * e * o).sum() / max((weight * o**2).sum(), _LEAST), 0.0, 1.0))
        slopes.append(slope)
        residuals, of_stand = np.abs(e - slope * o), stand[group]
        quantiles = [np.quantile(residuals[of_stand == b], _LEVEL) for b in np.unique(of_stand)]
        factors.append(max(float(np.median(quantiles)) / _QUANTILE, _LEAST_FACTOR))
    return (lambda at: np.interp(at, middles, slopes)), (lambda at: np.interp(at, middles, factors))


def _matched(simulated: np.ndarray, topics: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which topic of a stand-in matches each topic, and whether it is near."""
    distances = 2.0 - 2.0 * np.sqrt(topics) @ np.sqrt(simulated).T
    rows, order = linear_sum_assignment(distances)
    return order, distances[rows, order] < _MATCHES
