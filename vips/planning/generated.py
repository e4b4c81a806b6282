"""Records to plan with, from what models and encoders declare: nobody's records."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips._support.validation import check_number
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
    unsaid = [declared for name, declared in (columns or {}).items() if name not in (guess or {})]
    kinds = {isinstance(declared, list) or declared == "category" for declared in unsaid}
    outcomes = (
        "about half of the outcomes are yes" if hasattr(last, "predict_proba") else "counts are those without effects"
    )
    said = [
        (False in kinds, "values are spread over their bounds", "guess={name: (mean, deviation)}"),
        (True in kinds, "categories are equally frequent", "guess={name: shares}"),
        (_has_outcome(last) and outcome is None, outcomes, "outcome="),
        (
            hasattr(last, "target_range"),
            "targets scatter by an eighth of `target_range` around what the columns say",
            "",
        ),
    ]
    assumed, ask = ([row[k] for row in said if row[0]] for k in (1, 2))
    if not any(is_unsaid for is_unsaid, *_ in said):
        return ""
    ways = ", ".join([*filter(None, ask), "like="])
    return (
        f"Assumed, since nobody has said otherwise: {', '.join(assumed)}. Where that is wrong, as for rare outcomes or wide "
        f"bounds, intervals are several times wider, or narrower: say what is public ({ways})."
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
    seed, (_, largest) = rng.integers(2**32), model.typical_labels(np.array([-_FARTHEST, _FARTHEST]), rng)
    is_class = hasattr(model, "predict_proba")
    most = 1.0 if is_class else float(largest)
    check_number("outcome", outcome, 0.0, most, f"between 0 and {most:g}", open_low=True, open_high=True)
    low, high = -_FARTHEST, _FARTHEST
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        labels = model.typical_labels(predictor + middle, np.random.default_rng(seed))
        is_low = np.mean(labels == largest if is_class else labels) < outcome
        low, high = (middle, high) if is_low else (low, middle)
    return labels
