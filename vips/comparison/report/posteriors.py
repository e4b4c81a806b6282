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
from vips.comparison.report.densities import with_moments
from vips.comparison.text import PRIVATE, RELEASED

if TYPE_CHECKING:
    from vips.comparison.comparison import Comparison

__all__ = ["marginals_view", "movers_view", "topics_view", "weights_view"]

_N_MARGINALS, _N_MOVERS, _N_WORDS, _N_UNITS = 12, 50, 10, 40


def movers_view(comparison: Comparison) -> dict:
    """Tables of the parameters that moved most: first those of the noise-aware posterior, if there is one."""
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
    tables = [{"key": "movers-table", "rows": rows, "which": _which(rows, comparison.movements), "heading": ""}]
    if comparison.aware_movements:
        tables[0]["heading"] = "The posterior that takes noisy totals at face value"
        tables.insert(0, _aware_movers(comparison.aware_movements))
    return _sources(comparison) | {"tables": tables}


def marginals_view(comparison: Comparison) -> dict:
    """Overlaid marginals of the parameters that moved most, in the noise-aware posterior if there is one."""
    shown = comparison.aware_movements or comparison.movements
    by_name = {movement.private.name: movement for movement in comparison.movements}
    figures = [
        _marginal(comparison, by_name[movement.private.name], index, place)
        for place, (movement, index) in enumerate(largest(shown, _N_MARGINALS))
    ]
    return _sources(comparison) | {"figures": figures, "has_aware": bool(comparison.aware_movements)}


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


def _aware_movers(movements: Sequence[Movement]) -> dict:
    """The table of the noise-aware posterior, without distances: its distributions need not have any in closed form."""
    rows = []
    for movement, index in largest(movements, _N_MOVERS):
        (mean, other), (std, other_std) = movement.means, movement.stds
        values = (mean, std, other, other_std, movement.difference, movement.standardized)
        rows.append((movement.name(index), [Cell(float(quantity[index])) for quantity in values]))
    heading = "The noise-aware posterior of the private fit"
    return {"key": "aware-movers-table", "rows": rows, "which": _which(rows, movements), "heading": heading}


def _which(rows: Sequence, movements: Sequence[Movement]) -> str:
    n_all = sum(len(movement.difference) for movement in movements)
    if n_all == len(rows):
        return f"All {n_all} parameters"
    return f"The {len(rows)} of {n_all:,} parameters that moved most"


def _marginal(comparison: Comparison, movement: Movement, index: int, place: int) -> dict:
    """One figure: curves of both fits, and of the noise-aware posterior if there is one."""
    (mean, other), (std, other_std) = (
        tuple(float(values[index]) for values in pair) for pair in (movement.means, movement.stds)
    )
    aware = _aware(comparison, movement, index)
    described = (
        f"{'Two' if aware is None else 'Three'} curves. Private fit: mean {number(mean)}, standard deviation {number(std)}. "
        f"Baseline: mean {number(other)}, standard deviation {number(other_std)}."
    )
    if aware is not None:
        described += f" Noise-aware: mean {number(aware[0])}, standard deviation {number(aware[1] ** 0.5)}."
    private, baseline = movement.marginals(np.array([index]))
    shown = mean if aware is None else aware[0]
    third = None if aware is None else with_moments(private, *aware)
    chart = draw_marginals(private, baseline, third, described, f"marginal-{place}")
    return {"chart": chart, "name": movement.name(index), "private": shown, "baseline": other}


def _sources(comparison: Comparison) -> dict[str, str]:
    """Sources of numbers from the private fit alone, from the baseline alone, and from both."""
    ours, theirs = (RELEASED if report.has_guarantee else PRIVATE for report in comparison.privacy)
    return {"private": ours, "baseline": theirs, "both": comparison.source}


def _aware(comparison: Comparison, movement: Movement, index: int) -> tuple[float, float] | None:
    """Mean and variance of the same parameter in the private fit's noise-aware posterior."""
    for other in comparison.aware_movements:
        if other.private.name == movement.private.name:
            return float(other.means[0][index]), float(other.stds[0][index]) ** 2
    return None


def _part(comparison: Comparison, title: str) -> Movement | None:
    return next((movement for movement in comparison.movements if movement.private.name == title), None)


def _top(means: np.ndarray, words: list[str]) -> list[list[str]]:
    """The most probable words of each topic."""
    n_words = min(_N_WORDS, len(words))
    return [[words[v] for v in np.argsort(-row, kind="stable")[:n_words]] for row in means]


def _weights_in_words(row: np.ndarray, columns: list[str]) -> str:
    low, high = int(np.argmin(row)), int(np.argmax(row))
    return f"weights from {number(row[low])} at {columns[low]} to {number(row[high])} at {columns[high]}"
