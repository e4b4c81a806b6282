"""Pipelines in a comparison: their models are compared, and rows are given as the pipelines take them."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import joblib
import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from vips.preprocessing import PrivatePipeline, TableEncoder

__all__ = ["check_steps", "common_pipeline", "encoded", "named"]

# Attributes of a step that do not decide what it does to a row.
_IGNORED = {"privacy", "privacy_", "threshold_delta", "unit", "round_totals_", "n_records_", "count_records"}


def check_steps(fitted) -> None:
    """Raise TypeError for a pipeline of scikit-learn with a step that may have learnt from the records without saying so."""
    if isinstance(fitted, Pipeline) and not isinstance(fitted, PrivatePipeline):
        others = [type(step).__name__ for step in _steps(fitted) if not _is_declared(step)]
        if others:
            raise TypeError(
                f"A pipeline of scikit-learn does not say what {', '.join(others)} learnt from the records. Compare pipelines "
                "whose steps before the model are a TableEncoder of declared columns, private pipelines, or the models "
                "themselves with rows that are transformed."
            )


def _is_declared(step) -> bool:
    """Whether this is an encoder that learnt nothing."""
    return isinstance(step, TableEncoder) and not hasattr(step, "privacy_")


def common_pipeline(private, baseline) -> Pipeline | None:
    """The pipeline whose steps come before both models; None without pipelines.

    Raises
    ------
    NotFittedError
        If a pipeline is not fitted.
    ValueError
        If two pipelines make other columns of the same rows, so that the coefficients of their models mean different things.
    """
    pipelines = [model for model in (private, baseline) if isinstance(model, Pipeline)]
    for pipeline in pipelines:
        check_is_fitted(pipeline)
    if len(pipelines) == 2 and not _are_alike(*pipelines):
        raise ValueError(
            "The two pipelines make different columns of the same rows (other steps, or other bounds, categories or words), so "
            "that their coefficients cannot be compared one by one. Fit the baseline to what the private pipeline makes: "
            "baseline.fit(pipeline[:-1].transform(X), y), and pass that model."
        )
    return pipelines[0] if pipelines and len(pipelines[0].steps) > 1 else None


def encoded(pipeline: Pipeline, X):
    """Rows as the model of the pipeline predicts them."""
    return pipeline.encoded(X) if isinstance(pipeline, PrivatePipeline) else pipeline[:-1].transform(X)


def named(model, pipeline: Pipeline):
    """The model with the names of the columns that a pipeline makes, and their units after an encoder of tables.

    Raises
    ------
    ValueError
        If the model was fitted to columns of other names.
    """
    try:
        names = pipeline[:-1].get_feature_names_out()
    except AttributeError:
        return model
    known = getattr(model, "feature_names_in_", None)
    if known is not None and not np.array_equal(known, names):
        raise ValueError(
            "The models have different features: one was fitted to columns that the pipeline does not make. Fit it to "
            "pipeline[:-1].transform(X)."
        )
    model = copy.copy(model)
    model.names_of_columns = names
    encoder = pipeline[0] if len(pipeline.steps) == 2 else None
    model.units_of_columns = encoder.in_column_units() if isinstance(encoder, TableEncoder) else None
    return model


def _are_alike(first: Pipeline, second: Pipeline) -> bool:
    """Whether the steps before both models do the same to a row."""
    first, second = list(_steps(first)), list(_steps(second))
    return len(first) == len(second) and all(_do_the_same(*pair) for pair in zip(first, second, strict=True))


def _steps(pipeline: Pipeline) -> Iterator[object]:
    for step in list(pipeline.named_steps.values())[:-1]:
        if step is not None and not isinstance(step, str):  # "passthrough"
            yield step


def _do_the_same(one, other) -> bool:
    if one is other:
        return True
    ours, theirs = (
        {name: value for name, value in vars(step).items() if name not in _IGNORED and not name.startswith("_")}
        for step in (one, other)
    )
    return (
        type(one) is type(other)
        and ours.keys() == theirs.keys()
        and all(_equal(ours[name], theirs[name]) for name in ours)
    )


def _equal(one, other) -> bool:
    if one is other:
        return True
    try:
        return joblib.hash(one) == joblib.hash(other)
    except Exception:  # a function that cannot be pickled is equal to itself alone
        return False
