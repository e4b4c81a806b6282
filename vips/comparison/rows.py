"""Numbers of a comparison as rows, each with its source."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vips.comparison.arms import Arms, Shares, shares_of_parameters, shares_of_predictions
from vips.comparison.bootstrap import bootstrap
from vips.comparison.comparison import Row
from vips.comparison.movement import Movement
from vips.comparison.text import PRIVATE, X_TEST, combined, source_of

__all__ = [
    "Sources",
    "alignment_rows",
    "arm_rows",
    "arm_score_rows",
    "finding_rows",
    "posterior_rows",
    "score_rows",
    "signal_rows",
]


@dataclass(frozen=True)
class Sources:
    """Sources of the private model's numbers, of the baseline's, and of numbers from both."""

    private: str
    baseline: str
    both: str

    @classmethod
    def of(cls, private, baseline) -> Sources:
        """Sources for two fitted models."""
        ours, theirs = source_of(private), source_of(baseline)
        return cls(ours, theirs, combined(ours, theirs))

    def with_test(self) -> Sources:
        """Sources of numbers that also use test records."""
        return Sources(*(combined(source, X_TEST) for source in (self.private, self.baseline, self.both)))

    def row(self, quantity: str, private: float, baseline: float, value: float, **more) -> Row:
        """A row with numbers of both models."""
        return Row(
            quantity=quantity, private=float(private), baseline=float(baseline), value=float(value), source=self.both,
            private_source=self.private, baseline_source=self.baseline, **more,
        )  # fmt: skip

    def between(self, quantity: str, value: float, **more) -> Row:
        """A row with a number of the pair."""
        return Row(quantity=quantity, value=float(value), source=self.both, **more)


def alignment_rows(alignment, sources: Sources) -> list[Row]:
    """Distances of matched components; no rows if there are none."""
    if alignment is None:
        return []
    return [
        sources.between("distance of matched components, mean", alignment.distances.mean()),
        sources.between("distance of matched components, largest", alignment.distances.max()),
    ]


def posterior_rows(pairs, divergences, movements, sources: Sources) -> list[Row]:
    """Divergences of pairs of parts, and how far their means moved."""
    rows = []
    for ours, _ in pairs:
        name, divergence = ours.name, divergences[ours.name]
        labels = (
            "KL(private ‖ baseline)",
            "KL(baseline ‖ private)",
            "2-Wasserstein distance",
            "total variation, at most",
        )
        rows += [
            sources.between(f"{label}, {name}", value, is_detail=not ours.are_parameters)
            for label, value in zip(labels, divergence.total, strict=True)
            if not math.isnan(value)
        ]
    for movement in movements:
        name, sizes = movement.private.name, np.abs(movement.standardized)
        rows += [
            sources.between(f"shift in pooled standard deviations, median, {name}", np.median(sizes)),
            sources.between(f"shift in pooled standard deviations, largest, {name}", sizes.max()),
            _std_row(movement, name, sources),
        ]
    return rows


def _std_row(movement: Movement, name: str, sources: Sources) -> Row:
    ours, theirs = (float(np.median(std)) for std in movement.stds)
    return sources.row(f"posterior standard deviation, median, {name}", ours, theirs, ours - theirs)


def signal_rows(private, baseline, sources: Sources) -> list[Row]:
    """Share of signal in each released block; 1 for a fit without noise."""
    theirs = baseline.signal()
    return [
        sources.row(
            f"share of signal, {name}", share, theirs.get(name, 1.0), share - theirs.get(name, 1.0), is_detail=True
        )
        for name, share in private.signal().items()
    ]


def finding_rows(private, baseline, sources: Sources) -> list[Row]:
    """What the models find about themselves, such as the number of real topics."""
    theirs, rows = baseline.findings(), []
    for name, ours in private.findings().items():
        if name in theirs:
            rows.append(sources.row(name, ours, theirs[name], ours - theirs[name]))
        else:
            only = {"source": sources.private, "private_source": sources.private}
            rows.append(Row(quantity=name, private=ours, value=ours, **only))
    return rows


def score_rows(private, baseline, X, y, sources: Sources, settings) -> list[Row]:
    """Scores of both models on test records; ``settings``: number of resamples, level, generator."""
    sources, rows = sources.with_test(), []
    for ours, other in zip(private.held_out_scores(X, y), baseline.held_out_scores(X, y), strict=True):
        (a, private_interval), (b, baseline_interval), (difference, difference_interval) = bootstrap(
            [ours, other], _n_rows(X), *settings
        )
        intervals = {
            "private_interval": private_interval,
            "baseline_interval": baseline_interval,
            "interval": difference_interval,
        }
        rows.append(sources.row(ours.name, a, b, difference, **intervals))
    return rows


def arm_rows(private, baseline, arms: Arms, X, X_test) -> list[Row]:
    """How far clipping, noise and other causes moved parameters and predictions (of test records, or else of fitted ones)."""
    rows = _share_rows("parameters", shares_of_parameters(private, baseline, arms), PRIVATE)
    shares = shares_of_predictions(private, baseline, arms, X if X_test is None else X_test)
    source = PRIVATE if X_test is None else combined(PRIVATE, X_TEST)
    return rows if shares is None else rows + _share_rows("predictions", shares, source)


def _share_rows(what: str, shares: Shares, source: str) -> list[Row]:
    values = {
        f"share of clipping in the shift of {what}": shares.clipping_share,
        f"share of noise in the shift of {what}": shares.noise_share,
        f"shift of {what} by clipping, root mean square": shares.clipping,
        f"shift of {what} by noise, root mean square": shares.noise,
        f"shift of {what} by neither (plain arm to baseline), root mean square": shares.neither,
    }
    return [Row(quantity=quantity, value=value, source=source) for quantity, value in values.items()]


def arm_score_rows(private, arms: Arms, X, y, settings) -> list[Row]:
    """How clipping and noise changed the scores on test records."""
    source, rows = combined(PRIVATE, X_TEST), []
    plain, clipped, noisy = (model.held_out_scores(X, y) for model in (arms.plain, arms.clipped, private))
    for what, after, before in (("clipping", clipped, plain), ("noise", noisy, clipped)):
        for one, other in zip(after, before, strict=True):
            _, _, (value, interval) = bootstrap([one, other], _n_rows(X), *settings)
            rows.append(Row(quantity=f"{one.name}, change by {what}", value=value, interval=interval, source=source))
    return rows


def _n_rows(X) -> int:
    return X.shape[0] if hasattr(X, "shape") else len(X)
