"""A :class:`PrivateCountVectorizer` as JSON, and back. What is read is checked: it may be forged."""

from __future__ import annotations

import math

from vips.persistence.settings import decode, encode
from vips.preprocessing._encoder_report import report_from_json, report_to_json
from vips.preprocessing._private_words import PrivateCountVectorizer

__all__ = ["from_json", "to_json"]


def to_json(words: PrivateCountVectorizer) -> dict:
    """Settings and, after a fit, what was learnt.

    Raises
    ------
    TypeError
        If a setting cannot be written as data, such as a function.
    """
    saved = {"parameters": {name: encode(value) for name, value in words.get_params(deep=False).items()}}
    if not hasattr(words, "vocabulary_"):
        return saved
    return saved | {
        "words": list(words.vocabulary_),
        "n_records": encode(words.n_records_),
        "totals": encode(words.round_totals_),
        "report": report_to_json(words.privacy_),
    }


def from_json(values: dict) -> PrivateCountVectorizer:
    """Inverse of ``to_json``, for a fitted one."""
    words = PrivateCountVectorizer(**{name: decode(value) for name, value in values["parameters"].items()})
    names = (words.analyzer, words.token_pattern, words.strip_accents)
    if any(not isinstance(each, str | None) for each in names) or words.preprocessor or words.tokenizer:
        raise ValueError("what a word is cannot be read from a file here")
    plan = words.checked_settings()
    learnt = values["words"]
    if (
        not isinstance(learnt, list)
        or not all(isinstance(word, str) for word in learnt)
        or sorted(set(learnt)) != learnt
    ):
        raise ValueError("its words are not those that a vocabulary has")
    words.vocabulary_ = {word: column for column, word in enumerate(learnt)}
    words.n_records_ = decode(values["n_records"])
    if (words.n_records_ is not None) != words.count_records or not _are_finite(words.n_records_ or 0.0):
        raise ValueError("its number of records is not a number")
    words.round_totals_ = decode(values["totals"])
    if (
        not isinstance(words.round_totals_, tuple)
        or len(words.round_totals_) != 2
        or not _are_finite(*words.round_totals_)
    ):
        raise ValueError("its totals are not two numbers")
    delta = float(words.threshold_delta)
    report = report_from_json(values["report"], plan, delta)
    words.privacy_ = words._statement(plan, delta, report["unit"], report["ledger"])
    return words


def _are_finite(*numbers: object) -> bool:
    return all(isinstance(each, float) and math.isfinite(each) for each in numbers)
