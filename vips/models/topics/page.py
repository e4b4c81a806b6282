"""The page of topics: a table of them, and what the fits promise, as one file."""

from __future__ import annotations

import os
from collections.abc import Sequence

from vips._pages.page import environment, write_page
from vips._support.alignment import align
from vips.models.topics.evidence import counts_of
from vips.models.topics.words import TopicWords
from vips.report import certificate
from vips.report.certificate.page import statements_of

__all__ = ["write_topics"]


def write_topics(path: str | os.PathLike, models: Sequence, n_words: int) -> None:
    """Write a page about a fitted model, or about a model and its baseline, whole or not at all."""
    words = [TopicWords.of_model(model) for model in models]
    names = ["private fit" if models[0].privacy_.plan.is_private else "fit without noise", "baseline"][: len(models)]
    labels = [evidence and evidence.labels for evidence in (model.evidence() for model in models)]
    matched = align(words[0].probabilities, words[1].probabilities) if len(models) == 2 else None
    statements, engine = statements_of(models, names), environment(__package__, certificate.__name__)
    write_page(
        path,
        engine,
        "topics.html",
        [(__package__, "topics.css")],
        title="Topics",
        names=names,
        n_all=len(words[0].names),
        statements=statements,
        is_released=all(model.privacy_.has_guarantee for model in models),
        cover={"together": statements[0]["together"]},
        verdict=None if labels[0] is None else counts_of(labels[0]),
        topics=[_row(k, words, labels, matched, n_words) for k in range(len(words[0].shares))],
    )


def _row(k: int, fits: Sequence[TopicWords], labels: Sequence[list[str] | None], matched, n_words: int) -> dict:
    """A topic, with its most probable words in each fit."""
    numbers = [k] if matched is None else [k, int(matched.order[k])]
    return {
        "number": k,
        "other": numbers[-1],
        "apart": None if matched is None else float(matched.distances[k]),
        "fits": [
            {
                "share": f"{100.0 * fit.shares[number]:.3g}",
                "words": [fit.names[v] for v in fit.top(n_words)[number]],
                "label": of_fit and of_fit[number],
            }
            for fit, of_fit, number in zip(fits, labels, numbers, strict=True)
        ],
    }
