"""The noisy score of a trial: a sum over held-out persons, each of whom moves it by at most half of a public range."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from vips.data import Records
from vips.data._records import OpenPartition
from vips.execution.rehearsal import stand_ins_for
from vips.privacy import PrivacyPlan
from vips.privacy.mechanism.release import with_fresh_noise
from vips.search.split import Split, rows_of

__all__ = ["half_width", "noisy_score", "rehearse_scores", "sum_over_persons", "values_of_persons"]

# Rows that a model scores at a time: always so many, because products of other numbers of rows are rounded differently.
_CHUNK = 512


def values_of_persons(
    fitted, X, y, split: Split, score: str | Callable, score_range: tuple[float, float]
) -> np.ndarray:
    """Score of each held-out person, within the range, shape (n_persons,). Raises for no record.

    A callable gets the rows of one person at a time, and a copy of the model that nobody else gets. A score of the model's own
    is the average over the person's rows. What could not be computed is the low end.
    """
    n_persons = int(split.held_out_persons.max(initial=-1)) + 1
    if callable(score):
        order = np.argsort(split.held_out_persons, kind="stable")
        rows = np.split(split.held_out[order], np.cumsum(np.bincount(split.held_out_persons, minlength=n_persons))[:-1])
        values = [_called(score, fitted, X, y, rows_of_person) for rows_of_person in rows[:n_persons]]
        return _within(np.array(values, float).reshape(n_persons), score_range)
    values = _values_of_rows(fitted, rows_of(X, split.held_out), rows_of(y, split.held_out), score)
    counts = np.bincount(split.held_out_persons, minlength=n_persons)
    return np.bincount(split.held_out_persons, _within(values, score_range), n_persons) / counts


def sum_over_persons(values: np.ndarray, score_range: tuple[float, float]) -> float:
    """Σ over persons of the score, clipped to its range, less the middle of the range; rounded once.

    Guarantees
    ----------
    - One person more or less moves it by at most half of the width of the range.
    - NaN counts as the low end.
    """
    half = half_width(score_range)
    centred = np.where(np.isnan(values), -np.inf, values) - 0.5 * (score_range[0] + score_range[1])
    return math.fsum(np.clip(centred, -half, half).tolist())  # not before: the middle is rounded


def rehearse_scores(fitted, X, y, score: str) -> None:
    """Call the kernels that score rows like these, whatever the rows are: see ``vips/execution/rehearsal.py``.

    Parameters
    ----------
    fitted : ConjugateExponentialModel
        Fitted to no rows.
    X, y
        Tables without rows.
    """
    X, y = fitted.records_of(X, y).arrays
    labels = np.asarray(getattr(fitted, "classes_", (0.0, 1.0)))
    with suppress(Exception):  # a model of somebody else may not take such rows
        rows = stand_ins_for(OpenPartition(X, y), labels if labels.dtype.kind in "biuf" else np.arange(len(labels)))
        fitted.record_scores(rows.X if rows.y is None else Records(rows.X, rows.y), score)


def half_width(score_range: tuple[float, float]) -> float:
    """By how much a person may move the sum: the clip norm of the score."""
    return 0.5 * (score_range[1] - score_range[0])


def noisy_score(values: np.ndarray, score_range: tuple[float, float], plan: PrivacyPlan) -> float:
    """The sum with fresh noise of ``plan``, whose clip norm is half of the width of the range."""
    return float(with_fresh_noise(plan, {"score": np.array(sum_over_persons(values, score_range))})["score"])


def _within(values: np.ndarray, score_range: tuple[float, float]) -> np.ndarray:
    return np.clip(np.where(np.isnan(values), score_range[0], values), *score_range)


def _called(score: Callable, fitted, X, y, rows: np.ndarray) -> float:
    try:
        # what it changes in the copy, arrays included, reaches neither another person's score nor the released model
        return float(score(copy.deepcopy(fitted), rows_of(X, rows), rows_of(y, rows)))
    except KeyboardInterrupt:
        raise
    except BaseException:  # also of `sys.exit`: whether it is called may depend on the person
        return math.nan


def _values_of_rows(fitted, X, y, name: str) -> np.ndarray:
    """Row by row where some row stops the whole; a row that stops itself is NaN."""
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if n_rows == 0:
        return np.zeros(0)
    try:
        return _scored(fitted, X, y, name)
    except Exception:
        if n_rows == 1:
            return np.full(1, np.nan)
    single = (np.array([i]) for i in range(n_rows))
    return np.concatenate([_values_of_rows(fitted, rows_of(X, i), rows_of(y, i), name) for i in single])


def _scored(model, X, y, name: str) -> np.ndarray:
    X, y = model.records_of(X, y).arrays
    records = X if y is None else Records(X, y)
    valid = np.flatnonzero(model.valid_records(records))
    values = np.full(X.shape[0], np.nan)
    for first in range(0, len(valid), _CHUNK):
        rows = valid[first : first + _CHUNK]
        filled = np.append(rows, np.repeat(rows[-1], _CHUNK - len(rows)))
        values[rows] = model.record_scores(records[filled], name)[: len(rows)]
    return values
