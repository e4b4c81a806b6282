"""Both posteriors side by side: the parameters that moved most, topics by their words, hidden units by their weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from vips.compare._movement import Movement, largest
from vips.compare._report.charts import draw_marginals, image
from vips.compare._report.densities import with_moments
from vips.compare._report.text import Cell, legend, name, number, sortable_table, source_tag
from vips.compare._sources import PRIVATE, RELEASED

if TYPE_CHECKING:
    from vips.compare.comparison import Comparison

__all__ = ["marginals_section", "movers_section", "topics_section", "weights_section"]

_N_MARGINALS, _N_MOVERS, _N_WORDS, _N_UNITS = 12, 50, 10, 40


def movers_section(comparison: Comparison) -> str:
    """A table of the parameters that moved most."""
    ours, theirs = _sources(comparison)
    movers = comparison.movers(_N_MOVERS)
    rows = [
        (
            name(mover.name),
            [
                Cell.of(value)
                for value in (
                    mover.private, mover.private_std, mover.baseline, mover.baseline_std, mover.difference,
                    mover.standardized, mover.wasserstein,
                )
            ],
        )
        for mover in movers
    ]  # fmt: skip
    n_all = sum(len(movement.difference) for movement in comparison.movements)
    which = f"All {n_all}" if n_all == len(movers) else f"The {len(movers)} of {n_all:,}"
    caption = (
        f"{which} parameters{'' if n_all == len(movers) else ' that moved most'}: posterior means and standard deviations; the "
        "difference of means, also in pooled posterior standard deviations; the 2-Wasserstein distance of the marginals. Which "
        f"parameters are listed, and in which order, was computed from {source_tag(comparison.source)}"
    )
    heads = (
        "parameter",
        f"private mean {source_tag(ours)}",
        f"private std {source_tag(ours)}",
        f"baseline mean {source_tag(theirs)}",
        f"baseline std {source_tag(theirs)}",
        f"difference {source_tag(comparison.source)}",
        f"difference in std {source_tag(comparison.source)}",
        f"2-Wasserstein {source_tag(comparison.source)}",
    )
    return sortable_table("movers-table", caption, heads, rows)


def marginals_section(comparison: Comparison) -> str:
    """Overlaid marginals of the parameters that moved most."""
    figures = []
    for place, (movement, index) in enumerate(largest(comparison.movements, _N_MARGINALS)):
        (mean, other), (std, other_std) = (
            tuple(float(values[index]) for values in pair) for pair in (movement.means, movement.stds)
        )
        described = (
            f"Two curves. Private fit: mean {number(mean)}, standard deviation {number(std)}. "
            f"Baseline: mean {number(other)}, standard deviation {number(other_std)}."
        )
        private, baseline = movement.marginals(np.array([index]))
        aware = _aware(comparison, movement, index)
        if aware is not None:
            described += f" Noise-aware: mean {number(aware[0])}, standard deviation {number(aware[1] ** 0.5)}."
            described = described.replace("Two curves", "Three curves")
        third = None if aware is None else with_moments(private, *aware)
        chart = draw_marginals(private, baseline, third, described, f"marginal-{place}")
        figures.append(
            f"<figure>{chart}<figcaption>{name(movement.name(index))}<br><small>{number(other)} → {number(mean)}</small>"
            "</figcaption></figure>"
        )
    lines = legend(*_sources(comparison), bool(comparison.aware_movements))
    return (
        f"{lines}\n<p>What each fit leaves open about the parameters that moved most. Each curve is scaled to its own peak; "
        "positive numbers, such as probabilities, are on a logarithmic scale. Below: baseline mean → private mean. Which "
        f"parameters these are was computed from {source_tag(comparison.source)}</p>\n"
        f'<div class="grid">\n{chr(10).join(figures)}\n</div>'
    )


def topics_section(comparison: Comparison) -> str:
    """Matched topics by their most probable words; empty for other models."""
    topics = _part(comparison, "topics")
    if topics is None or comparison.alignment is None:
        return ""
    words = topics.private.columns
    ours, theirs = (_top(part.distribution.mean, words) for part in (topics.private, topics.baseline))
    divergence = comparison.divergences["topics"].kl_private_baseline
    rows = [
        (
            f"topic {k}",
            [
                Cell(_marked(ours[k], theirs[k])),
                Cell(_marked(theirs[k], ours[k])),
                Cell.of(len(set(ours[k]) & set(theirs[k]))),
                Cell.of(comparison.alignment.distances[k]),
                Cell.of(divergence[k]),
            ],
        )
        for k in np.argsort(-comparison.alignment.distances, kind="stable")
    ]
    own, other = _sources(comparison)
    caption = (
        f"Matched topics, those furthest apart first, by their {len(ours[0])} most probable words; in <b>bold</b> those "
        "that both fits have. The distance is Hellinger's, between 0 and 1, of expected topics; KL is "
        "KL(private ‖ baseline). Which topics stand side by side, the marks and the order were computed from "
        f"{source_tag(comparison.source)}"
    )
    both = source_tag(comparison.source)
    heads = (
        "topic", f"private fit {source_tag(own)}", f"baseline {source_tag(other)}", f"words in common {both}",
        f"distance {both}", f"KL {both}",
    )  # fmt: skip
    return f'<div class="topics">{sortable_table("topics-table", caption, heads, rows)}</div>'


def weights_section(comparison: Comparison) -> str:
    """Weights of matched hidden units as images; empty for other models, and where columns make no square."""
    weights = _part(comparison, "weights")
    side = 0 if weights is None else math.isqrt(len(weights.private.columns))
    if weights is None or comparison.alignment is None or side < 2 or side**2 != len(weights.private.columns):
        return ""
    ours, theirs = (part.distribution.mean.T for part in (weights.private, weights.baseline))
    columns, distances = weights.private.columns, comparison.alignment.distances
    chosen = np.argsort(-distances, kind="stable")[:_N_UNITS]
    # a few extreme weights would leave the rest invisible
    largest = float(np.quantile(np.abs([ours, theirs]), 0.99))
    figures = []
    for k in chosen:
        pair = "".join(
            image(own[k].reshape(side, side), largest, f"{fit}, {_weights_in_words(own[k], columns)}")
            for fit, own in (("Private fit", ours), ("Baseline", theirs))
        )
        figures.append(
            f'<figure><div class="pair">{pair}</div><figcaption>hidden {k}<br><small>distance {number(distances[k])}</small>'
            "</figcaption></figure>"
        )
    which = "" if len(chosen) == len(ours) else f"the {len(chosen)} of {len(ours)} that are furthest apart, "
    own, other = _sources(comparison)
    return (
        f"<p>Weights of matched hidden units, {which}as images of {side} by {side} pixels in the order of the columns: left "
        f"the private fit {source_tag(own)}, right the baseline {source_tag(other)}. "
        '<span class="swatch positive" aria-hidden="true"></span> is a positive weight, <span class="swatch negative" '
        f'aria-hidden="true"></span> a negative one; stronger is larger, and full strength is {number(largest)} or more (the '
        f"largest 1 % of both fits). Which units stand side by side, their order, that strength and the distances were "
        f'computed from {source_tag(comparison.source)}</p>\n<div class="grid images">\n{chr(10).join(figures)}\n</div>'
    )


def _sources(comparison: Comparison) -> tuple[str, str]:
    """Of what is computed from the private fit alone, and from the baseline alone."""
    ours, theirs = (RELEASED if report.has_guarantee else PRIVATE for report in comparison.privacy)
    return ours, theirs


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


def _marked(own: list[str], other: list[str]) -> str:
    """Words, in bold those that the other list has, too."""
    return ", ".join(f"<b>{name(word)}</b>" if word in other else name(word) for word in own)


def _weights_in_words(row: np.ndarray, columns: list[str]) -> str:
    low, high = int(np.argmin(row)), int(np.argmax(row))
    return f"weights from {number(row[low])} at {columns[low]} to {number(row[high])} at {columns[high]}"
