"""The page: statements about privacy, circles of the map, the table, and the file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vips._pages.page import environment, write_page
from vips._support.alignment import align
from vips.models.topics.evidence import counts_of
from vips.models.topics.page.values import distances, place, values_as_json
from vips.models.topics.words import TopicWords
from vips.report import certificate
from vips.report.certificate.page import cover_view, ledger_view
from vips.report.report import PrivacyReport

__all__ = ["Fit", "write_topics"]

_PARTS = [(__package__, "topics.css"), (__package__, "topics.js")]
_WIDTH, _MARGIN = 400.0, 8.0
# Part of the map's square that all circles of a fit cover together.
_COVERED = 0.08
_N_IN_TABLE = 10


@dataclass(frozen=True)
class Fit:
    """One of the fits on a page.

    Attributes
    ----------
    words : TopicWords
    report : PrivacyReport
    signal : float or None
        Share of signal in the released totals.
    labels : list of str or None
        "real", "doubtful" or "noise" for each topic; None for a fit without noise, and for a single topic.
    """

    words: TopicWords
    report: PrivacyReport
    signal: float | None
    labels: list[str] | None = None

    @classmethod
    def of(cls, model) -> Fit:
        """A fitted model."""
        evidence = model.evidence()
        labels = None if evidence is None else evidence.labels
        return cls(TopicWords.of_model(model), model.privacy_, model.signal().get("topic_word"), labels)


def write_topics(path: str | os.PathLike, fits: Sequence[Fit], n_words: int) -> None:
    """Write a page about a fit, or about a fit and its baseline, whole or not at all."""
    words, labels, order, apart = [fit.words for fit in fits], [fit.labels for fit in fits], None, None
    if len(fits) == 2:
        matched = align(words[0].probabilities, words[1].probabilities)
        order, apart = matched.order, matched.distances
        words[1] = replace(words[1], probabilities=words[1].probabilities[order], shares=words[1].shares[order])
        labels[1] = labels[1] and [labels[1][k] for k in order]
    names = _names(fits)
    statements = _statements(fits, names)
    n_topics, n_all = words[0].probabilities.shape
    write_page(
        path,
        environment(__package__, certificate.__name__),
        "topics_page.html",
        _PARTS,
        title="Topics",
        names=names,
        n_topics=n_topics,
        n_all=n_all,
        statements=statements,
        is_released=all(fit.report.has_guarantee for fit in fits),
        cover={"together": statements[0]["together"]},
        map=_map(words, labels),
        topics=_table(words, labels, order, apart),
        n_shown=min(n_words, n_all),
        verdict=None if labels[0] is None else counts_of(labels[0]),
        data=values_as_json(words, n_words),
    )


def _names(fits: Sequence[Fit]) -> list[str]:
    first = "private fit" if fits[0].report.plan.is_private else "fit without noise"
    return [first, "baseline"][: len(fits)]


def _statements(fits: Sequence[Fit], names: Sequence[str]) -> list[dict]:
    """What each fit promises; the first also what all promise together."""
    reports, views = [fit.report for fit in fits], []
    for i, (fit, name) in enumerate(zip(fits, names, strict=True)):
        others = reports[1:] if i == 0 else ()
        view = cover_view(fit.report, ledger_view(None, [fit.report, *others]), others)
        views.append(view | {"name": name, "signal": None if fit.signal is None else f"{100.0 * fit.signal:.0f}"})
    return views


def _map(fits: Sequence[TopicWords], labels: Sequence[list[str] | None]) -> dict:
    """Circles, the largest first, so that no circle hides a smaller one."""
    layout = place(distances(np.concatenate([fit.probabilities for fit in fits])))
    unit = np.sqrt(_COVERED / np.pi) * _WIDTH
    radii = unit * np.sqrt(np.concatenate([fit.shares for fit in fits]))
    edge = _MARGIN + max(radii.max(), 0.75 * unit)  # a word of a single topic gives it the radius `unit`
    low, high = layout.points.min(axis=0), layout.points.max(axis=0)
    scale = (_WIDTH - 2.0 * edge) / max(*(high - low), 1e-9)
    height = max(scale * (high - low)[1] + 2.0 * edge, 0.5 * _WIDTH)
    centres = np.array([_WIDTH, height]) / 2.0 + scale * (layout.points - 0.5 * (low + high)) * [1.0, -1.0]
    n_topics = len(fits[0].shares)
    circles = [
        {
            "topic": i % n_topics,
            "fit": i // n_topics,
            "x": f"{centres[i, 0]:.1f}",
            "y": f"{centres[i, 1]:.1f}",
            "r": f"{radii[i]:.2f}",
            "share": f"{100.0 * fits[i // n_topics].shares[i % n_topics]:.3g}",
            "label": _label(labels[i // n_topics], i % n_topics),
        }
        for i in np.argsort(-radii, kind="stable").tolist()
    ]
    pairs = zip(centres[:n_topics], centres[n_topics:], strict=False)  # none without a baseline
    return {
        "height": f"{height:.1f}",
        "width": f"{_WIDTH:g}",
        "unit": f"{unit:.3f}",
        "circles": circles,
        "lines": [[f"{value:.1f}" for value in (*ours, *theirs)] for ours, theirs in pairs],
        "shown": f"{100.0 * layout.share:.0f}",
    }


def _table(
    fits: Sequence[TopicWords],
    labels: Sequence[list[str] | None],
    order: np.ndarray | None,
    apart: np.ndarray | None,
) -> list[dict]:
    """A row for each topic, with its most probable words in each fit."""
    top = [fit.top(_N_IN_TABLE) for fit in fits]
    return [
        {
            "number": k,
            "other": None if order is None else int(order[k]),
            "apart": None if apart is None else float(apart[k]),
            "fits": [
                {
                    "share": f"{100.0 * fit.shares[k]:.3g}",
                    "words": [fit.names[v] for v in best[k]],
                    "label": _label(labels_of_fit, k),
                }
                for fit, best, labels_of_fit in zip(fits, top, labels, strict=True)
            ],
        }
        for k in range(len(fits[0].shares))
    ]


def _label(labels: list[str] | None, topic: int) -> str | None:
    return None if labels is None else labels[topic]
