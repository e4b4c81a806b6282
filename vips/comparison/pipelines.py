"""Pipelines in a comparison: their models are compared, and rows are given as the pipelines take them."""

from __future__ import annotations

import copy

import joblib
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

__all__ = ["common_steps", "named"]


def common_steps(private, baseline) -> Pipeline | None:
    """The steps before the models; None without pipelines.

    Raises
    ------
    NotFittedError
        If a pipeline is not fitted.
    ValueError
        If two pipelines make other columns of the same rows, so that the coefficients of their models mean different things.
    """
    pipelines = [each for each in (private, baseline) if isinstance(each, Pipeline)]
    for pipeline in pipelines:
        check_is_fitted(pipeline)
    steps = [pipeline[:-1] for pipeline in pipelines if len(pipeline.steps) > 1]
    if len(pipelines) == 2 and (len(steps) == 1 or (steps and _identity(steps[0]) != _identity(steps[1]))):
        raise ValueError(
            "The two pipelines make different columns of the same rows (other steps, or other bounds and categories), so that "
            "their coefficients cannot be compared one by one. Fit the baseline to what the private pipeline makes: "
            "baseline.fit(pipeline[:-1].transform(X), y), and pass that model."
        )
    return steps[0] if steps else None


def named(model, steps: Pipeline):
    """The model with the names of the columns that the steps make; itself, if the steps name none."""
    if not hasattr(steps, "get_feature_names_out"):
        return model
    model = copy.copy(model)
    model._names_of_columns = steps.get_feature_names_out()
    return model


def _identity(steps: Pipeline) -> str:
    """A hash of what the steps do; their own privacy statements and budgets do not matter."""
    ignored = ("privacy", "privacy_", "threshold_delta", "unit")
    return joblib.hash([
        (type(step).__name__, {name: value for name, value in vars(step).items() if name not in ignored})
        if hasattr(step, "__dict__") else step
        for step in steps.named_steps.values()
    ])  # fmt: skip
