"""Records to plan with, from what models and encoders declare: nobody's records."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips._validation import check_number
from vips.datasets import make_table
from vips.models._typical import persons
from vips.planning.trial import Like
from vips.preprocessing._private_pipeline import PrivatePipeline

__all__ = ["assumptions", "generated"]

_FARTHEST, _HALVINGS = 40.0, 40  # of the intercept that gives an outcome


def generated(
    model,
    n_records: int,
    n_features: int | None,
    rng: np.random.Generator,
    *,
    effects: Mapping | None = None,
    guess: Mapping | None = None,
    outcome: float | None = None,
) -> Like:
    """Records of a model or pipeline.

    Parameters
    ----------
    model : model or PrivatePipeline
    n_records : int
    n_features : int or None
        Of records that are rows of numbers.
    rng : Generator
    effects, guess : mapping, optional
        See :func:`vips.datasets.make_table`; of pipelines whose columns have names.
    outcome : float, optional
        Share of the last one of two classes, or average count.

    Raises
    ------
    ValueError
        If too little is known about such records; with what to give.
    """
    try:
        _check_outcome(model[-1] if isinstance(model, PrivatePipeline) else model, outcome)
        if not isinstance(model, PrivatePipeline):
            if effects or guess:
                raise NotImplementedError("`effects` and `guess` are for pipelines, whose columns have names.")
            X, *others = model.typical_records(n_records, n_features, rng)
            if outcome is not None:
                others[0] = _labels(model, rng.standard_normal(len(others[0])), outcome, rng)
            return Like(X, *others)
        encoder, last = model[0], model[-1]
        if not isinstance(getattr(encoder, "columns", None), Mapping):
            raise NotImplementedError(
                "The columns of this pipeline are not declared by name, or it takes texts: give records that resemble the "
                "private ones, like=, generated or public."
            )
        groups = persons(n_records, rng) if last.reads_persons else None
        n_rows = n_records if groups is None else len(groups)
        table = make_table(encoder.columns, n_rows, guess=guess, effects=effects, random_state=rng)
        if not last.needs_labels:
            return Like(table.data)
        predictor = table.predictor if effects else rng.standard_normal(n_rows)
        predictor = predictor + last.typical_effects(table.data, groups, rng)
        return Like(table.data, _labels(last, predictor, outcome, rng), groups)
    except NotImplementedError as missing:
        raise ValueError(str(missing)) from None


def assumptions(model, guess: Mapping | None, outcome: float | None) -> str:
    """What generated records are like that nobody has said, and how to say it."""
    last = model[-1] if isinstance(model, PrivatePipeline) else model
    columns = getattr(model[0], "columns", None) if isinstance(model, PrivatePipeline) else None
    unsaid = {name: declared for name, declared in (columns or {}).items() if name not in (guess or {})}
    kinds = {isinstance(declared, list) or declared == "category" for declared in unsaid.values()}
    assumed = ["values are spread over their bounds"] * (False in kinds) + ["categories are equally frequent"] * (
        True in kinds
    )
    ask = ["guess={name: (mean, deviation)}"] * (False in kinds) + ["guess={name: shares}"] * (True in kinds)
    has_outcome = _has_outcome(last) and outcome is None
    if has_outcome:
        assumed.append(
            "about half of the outcomes are yes" if hasattr(last, "predict_proba") else "counts are about 1 on average"
        )
        ask.append("outcome=")
    if not assumed:
        return ""
    return (
        f"Assumed, since nobody has said otherwise: {', '.join(assumed)}. Where that is wrong, as for rare outcomes or wide "
        f"bounds, intervals are several times wider: say what is public, {', '.join(ask)}, or give like=."
    )


def _has_outcome(model) -> bool:
    """Whether an average of its labels says how much they tell: of two classes, and of counts."""
    if not model.needs_labels or not hasattr(model, "likelihood"):
        return False
    return getattr(model, "classes", None) is None or len(model.classes) == 2


def _check_outcome(model, outcome: float | None) -> None:
    """Raise ValueError for an average of labels that a model does not have."""
    if outcome is not None and not _has_outcome(model):
        raise ValueError(
            f"`outcome` is the share of the last one of two classes, or an average count: a {type(model).__name__} as declared "
            "has neither. Leave it out, or give like=."
        )


def _labels(model, predictor: np.ndarray, outcome: float | None, rng: np.random.Generator) -> np.ndarray:
    """Labels of these predictors, moved by what gives the outcome."""
    if outcome is None:
        return model.typical_labels(predictor, rng)
    seed, (_, most) = rng.integers(2**32), model.typical_labels(np.array([-_FARTHEST, _FARTHEST]), rng)

    def labels(move: float) -> np.ndarray:
        return model.typical_labels(predictor + move, np.random.default_rng(seed))

    def average(values: np.ndarray) -> float:
        return float(np.mean(values == most if hasattr(model, "predict_proba") else values))

    check_number(
        "outcome",
        outcome,
        0.0,
        1.0 if hasattr(model, "predict_proba") else float(most),
        "between the least and the largest possible average",
        open_low=True,
        open_high=True,
    )
    low, high = -_FARTHEST, _FARTHEST
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if average(labels(middle)) < outcome else (low, middle)
    return labels(high)
