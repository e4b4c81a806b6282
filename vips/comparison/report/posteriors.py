"""Both posteriors side by side: the parameters that moved most, topics by their words, hidden units by their weights.

Each function returns the values for the section's template, or None if the model has no such section.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vips._pages.text import Cell, number
from vips.comparison.movement import Movement, largest
from vips.comparison.report.charts import draw_marginals, image
from vips.comparison.text import PRIVATE, RELEASED

if TYPE_CHECKING:
    from vips.comparison.comparison import Comparison

__all__ = ["marginals_view", "movers_view", "topics_view", "weights_view"]

_N_MARGINALS, _N_MOVERS, _N_WORDS, _N_UNITS = 12, 50, 10, 40


def movers_view(comparison: Comparison) -> dict:
    """The table of the parameters that moved most."""
    movers = comparison.movers(_N_MOVERS)
    rows = [
        (
            mover.name,
            [
                Cell(value)
                for value in (
                    mover.private, mover.private_std, mover.baseline, mover.baseline_std, mover.difference,
                    mover.standardized, mover.wasserstein,
                )
            ],
        )
        for mover in movers
    ]  # fmt: skip
    return _sources(comparison) | {"rows": rows, "which": _which(rows, comparison.movements)}


def marginals_view(comparison: Comparison) -> dict:
    """Overlaid marginals of the parameters that moved most."""
    figures = [
        _marginal(comparison, movement, index, place)
        for place, (movement, index) in enumerate(largest(comparison.movements, _N_MARGINALS))
    ]
    return _sources(comparison) | {"figures": figures}


def topics_view(comparison: Comparison) -> dict | None:
    """Matched topics, shown by their most probable words; None for other models."""
    topics = _part(comparison, "topics")
    if topics is None or comparison.alignment is None:
        return None
    words = topics.private.columns
    ours, theirs = (_top(part.distribution.mean, words) for part in (topics.private, topics.baseline))
    distances, divergence = comparison.alignment.distances, comparison.divergences["topics"].kl_private_baseline
    rows = [
        {
            "number": int(k),
            "private": [(word, word in theirs[k]) for word in ours[k]],
            "baseline": [(word, word in ours[k]) for word in theirs[k]],
            "cells": [Cell(len(set(ours[k]) & set(theirs[k]))), Cell(distances[k]), Cell(divergence[k])],
        }
        for k in np.argsort(-distances, kind="stable")
    ]
    return _sources(comparison) | {"topics": rows, "n_words": len(ours[0])}


def weights_view(comparison: Comparison) -> dict | None:
    """Weights of matched hidden units as images; None for other models, and if the number of columns is not a square."""
    weights = _part(comparison, "weights")
    side = 0 if weights is None else math.isqrt(len(weights.private.columns))
    if weights is None or comparison.alignment is None or side < 2 or side**2 != len(weights.private.columns):
        return None
    ours, theirs = (part.distribution.mean.T for part in (weights.private, weights.baseline))
    columns, distances = weights.private.columns, comparison.alignment.distances
    chosen = np.argsort(-distances, kind="stable")[:_N_UNITS]
    # otherwise a few extreme weights would make the others invisible
    largest = float(np.quantile(np.abs([ours, theirs]), 0.99))
    units = [
        {
            "number": int(k),
            "distance": distances[k],
            "images": [
                (image(rows[k].reshape(side, side), largest), f"{fit}, {_weights_in_words(rows[k], columns)}")
                for fit, rows in (("Private fit", ours), ("Baseline", theirs))
            ],
        }
        for k in chosen
    ]
    which = "" if len(chosen) == len(ours) else f"the {len(chosen)} of {len(ours)} that are furthest apart, "
    return _sources(comparison) | {"units": units, "which": which, "side": side, "largest": largest}


def _which(rows: Sequence, movements: Sequence[Movement]) -> str:
    n_all = sum(len(movement.difference) for movement in movements)
    if n_all == len(rows):
        return f"All {n_all} parameters"
    return f"The {len(rows)} of {n_all:,} parameters that moved most"


def _marginal(comparison: Comparison, movement: Movement, index: int, place: int) -> dict:
    """One figure: curves of both fits."""
    (mean, other), (std, other_std) = (
        tuple(float(values[index]) for values in pair) for pair in (movement.means, movement.stds)
    )
    described = (
        f"Two curves. Private fit: mean {number(mean)}, standard deviation {number(std)}. "
        f"Baseline: mean {number(other)}, standard deviation {number(other_std)}."
    )
    chart = draw_marginals(*movement.marginals(np.array([index])), described, f"marginal-{place}")
    return {"chart": chart, "name": movement.name(index), "private": mean, "baseline": other}


def _sources(comparison: Comparison) -> dict[str, str]:
    """Sources of numbers from the private fit alone, from the baseline alone, and from both."""
    ours, theirs = (RELEASED if report.has_guarantee else PRIVATE for report in comparison.privacy)
    return {"private": ours, "baseline": theirs, "both": comparison.source}


def _part(comparison: Comparison, title: str) -> Movement | None:
    return next((movement for movement in comparison.movements if movement.private.name == title), None)


def _top(means: np.ndarray, words: list[str]) -> list[list[str]]:
    """The most probable words of each topic."""
    n_words = min(_N_WORDS, len(words))
    return [[words[v] for v in np.argsort(-row, kind="stable")[:n_words]] for row in means]


def _weights_in_words(row: np.ndarray, columns: list[str]) -> str:
    low, high = int(np.argmin(row)), int(np.argmax(row))
    return f"weights from {number(row[low])} at {columns[low]} to {number(row[high])} at {columns[high]}"
