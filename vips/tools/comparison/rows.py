"""Numbers of a comparison as rows, each with its source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from vips.parts import Score
from vips.tools.comparison.comparison import Row
from vips.tools.comparison.movement import Movement
from vips.tools.comparison.text import X_TEST, combined, source_of

__all__ = ["Sources", "bootstrap", "fit_rows", "score_rows"]
_BLOCK = 4_000_000  # resampled records at a time

Interval = tuple[float, float]


@dataclass(frozen=True)
class Sources:
    """Sources of the private model's numbers, of the baseline's, and of numbers from both."""

    private: str
    baseline: str
    both: str

    @classmethod
    def of(cls, private, baseline) -> Sources:
        """Sources for two fitted models."""
        ours, theirs = source_of(private.privacy_), source_of(baseline.privacy_)
        return cls(ours, theirs, combined(ours, theirs))

    def row(self, quantity: str, private: float, baseline: float, value: float, **more) -> Row:
        """A row with numbers of both models."""
        return Row(
            quantity=quantity, private=float(private), baseline=float(baseline), value=float(value), source=self.both,
            private_source=self.private, baseline_source=self.baseline, **more,
        )  # fmt: skip

    def between(self, quantity: str, value: float, **more) -> Row:
        """A row with a number of the pair."""
        return Row(quantity=quantity, value=float(value), source=self.both, **more)


def fit_rows(private, baseline, alignment, divergences, movements: Sequence[Movement], sources: Sources) -> list[Row]:
    """Rows of the fits alone: matched components, posteriors, findings, and shares of signal.

    ``divergences`` are those of each part of the posteriors, of which ``movements`` holds the parameters.
    """
    rows, labels = [], (
        "KL(private ‖ baseline)", "KL(baseline ‖ private)", "2-Wasserstein distance", "total variation, at most",
    )  # fmt: skip
    if alignment is not None:
        rows += [
            sources.between("distance of matched components, mean", alignment.distances.mean()),
            sources.between("distance of matched components, largest", alignment.distances.max()),
        ]
    parameters = {movement.private.name for movement in movements}
    for name, divergence in divergences.items():
        rows += [
            sources.between(f"{label}, {name}", value, is_detail=name not in parameters)
            for label, value in zip(labels, divergence.total, strict=True)
            if not math.isnan(value)
        ]
    for movement in movements:
        name, sizes = movement.private.name, np.abs(movement.standardized)
        stds = [float(np.median(std)) for std in movement.stds]
        rows += [
            sources.between(f"shift in pooled standard deviations, median, {name}", np.median(sizes)),
            sources.between(f"shift in pooled standard deviations, largest, {name}", sizes.max()),
            sources.row(f"posterior standard deviation, median, {name}", *stds, stds[0] - stds[1]),
        ]
    findings = baseline.findings()
    for name, ours in private.findings().items():  # such as the number of real topics
        if name in findings:
            rows.append(sources.row(name, ours, findings[name], ours - findings[name]))
        else:
            only = {"source": sources.private, "private_source": sources.private}
            rows.append(Row(quantity=name, private=ours, value=ours, **only))
    signal = baseline.signal()
    for name, share in private.signal().items():
        other = signal.get(name, 1.0)  # 1 for a fit without noise
        rows.append(sources.row(f"share of signal, {name}", share, other, share - other, is_detail=True))
    return rows


def score_rows(private, baseline, X, y, sources: Sources, settings) -> list[Row]:
    """Scores of both models on test records; ``settings``: number of resamples, level, generator."""
    sources, rows = Sources(*(combined(source, X_TEST) for source in astuple(sources))), []
    for ours, other in zip(private.held_out_scores(X, y), baseline.held_out_scores(X, y), strict=True):
        (a, of_a), (b, of_b), (difference, interval) = bootstrap([ours, other], X, *settings)
        intervals = {"private_interval": of_a, "baseline_interval": of_b, "interval": interval}
        rows.append(sources.row(ours.name, a, b, difference, **intervals))
    return rows


# -- intervals -----------------------------------------------------------------------------------------------------


def bootstrap(
    scores: list[Score], X, n_resamples: int, level: float, rng: np.random.Generator
) -> list[tuple[float, Interval]]:
    """Values and intervals of two scores, and of the first minus the second, all on the same resamples of the records X."""
    n_records = X.shape[0] if hasattr(X, "shape") else len(X)
    everyone = np.ones((1, n_records))
    values = [score.of_counts(everyone)[0] for score in scores]
    blocks, per_block = [], max(1, _BLOCK // n_records)
    for start in range(0, n_resamples, per_block):
        size = min(per_block, n_resamples - start)
        taken = [np.bincount(rng.integers(0, n_records, n_records), minlength=n_records) for _ in range(size)]
        counts = np.array(taken, dtype=np.float64)
        blocks.append(np.stack([score.of_counts(counts) for score in scores]))
    draws = np.concatenate(blocks, axis=1)
    tails = 0.5 - 0.5 * level, 0.5 + 0.5 * level
    columns = [*zip(values, draws, strict=True), (values[0] - values[1], draws[0] - draws[1])]
    return [(float(value), _quantiles(draw, tails)) for value, draw in columns]


def _quantiles(draws: np.ndarray, tails: tuple[float, float]) -> Interval:
    draws = draws[np.isfinite(draws)]  # a resample may hold one class only, which has no AUC
    if not len(draws):
        return float("nan"), float("nan")
    lower, upper = np.quantile(draws, tails)
    return float(lower), float(upper)
