"""Checks before two models are compared: public facts, before any work; and what pipelines do to rows before their models."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import joblib
import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from vips._support.validation import check_integer, check_level
from vips.core.ledger.ledger import current_ledger
from vips.model import ConjugateExponentialModel
from vips.preprocessing import PrivatePipeline, TableEncoder

__all__ = ["check_models", "check_private_data", "check_scores", "check_steps", "common_pipeline", "encoded", "named"]
# Attributes of a step that do not decide what it does to a row.
_IGNORED = {"privacy", "privacy_", "threshold_delta", "unit", "round_totals_", "n_records_", "count_records"}


def check_models(private, baseline) -> tuple:
    """The two models, the private one first; an error if they are not fitted, not of one class, shape and words, or neither is
    private."""
    for name, model in (("private", private), ("baseline", baseline)):
        if not isinstance(model, ConjugateExponentialModel):
            raise TypeError(f"`{name}` must be a fitted model of vips, got {type(model).__name__}.")
    if type(private) is not type(baseline):
        raise TypeError(
            f"`private` is a {type(private).__name__} and `baseline` a {type(baseline).__name__}: their parameters mean "
            "different things. Compare two models of one class."
        )
    for name, model in (("private", private), ("baseline", baseline)):
        if not hasattr(model, "last_posterior_"):
            raise ValueError(f"`{name}` is not fitted: call {name}.fit(...) first.")
    if not private.privacy_.plan.is_private:
        private, baseline = baseline, private
    if not private.privacy_.plan.is_private:
        raise ValueError(
            "Neither fit added noise, so there is no private fit to compare. Fit one of them with a plan, e.g. "
            "privacy=PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=20)."
        )
    for name in ("n_features_in_", *private.settings_of_meaning):
        ours, theirs = (getattr(model, name, None) for model in (private, baseline))
        if ours != theirs:
            raise ValueError(
                f"The private model has {name} = {ours} and the baseline {name} = {theirs}: their parameters cannot be "
                "compared one by one. Fit the baseline with the private model's."
            )
    theirs = _names(baseline)
    for what, ours in _names(private).items():
        if ours is not None and theirs[what] is not None and not np.array_equal(ours, theirs[what]):
            raise ValueError(
                f"The models have different {what} (or the same in another order), so that column i of one is not column i of "
                "the other. Fit the baseline on the private model's."
            )
    return private, baseline


def check_scores(private, X_test, y_test, n_bootstrap, level) -> None:
    """Raise ValueError if the test records or the settings of the bootstrap are invalid."""
    if X_test is None and y_test is not None:
        raise ValueError("`y_test` was given without `X_test`.")
    if X_test is not None and np.shape(X_test)[:1] == (0,):
        raise ValueError("`X_test` holds no records.")
    if X_test is not None and private.needs_labels:
        if y_test is None:
            raise ValueError(
                f"Predictions of a {type(private).__name__} are scored against labels: pass `y_test`, too."
            )
        if np.shape(y_test)[:1] != np.shape(X_test)[:1]:
            raise ValueError("`X_test` and `y_test` have different numbers of rows.")
    check_integer("n_bootstrap", n_bootstrap)
    check_level(level)


def check_private_data(private, X, y, may_use_private_data: bool) -> None:
    """Raise ValueError if training data are given without permission, or permission without training data."""
    if X is None and y is None:
        if may_use_private_data:
            raise ValueError("`may_use_private_data=True` does nothing without the training data: pass `X` (and `y`).")
        return
    if not may_use_private_data:
        raise ValueError(
            "`X` holds training data. To separate clipping from noise, compare fits the model to it again without noise, which "
            "no privacy budget pays for: the numbers are private data, only for people who may see the records. If "
            "you are one of them, write may_use_private_data=True; otherwise leave `X` and `y` out."
        )
    if X is None:
        raise ValueError("`y` was given without `X`.")
    if private.needs_labels and y is None:
        raise ValueError(f"A {type(private).__name__} is fitted to labels: pass `y`, too.")
    if current_ledger() is not None:
        raise ValueError(
            "Fits without noise cannot be charged to a ledger, and a ledger is open here. Compare with training data outside "
            "its `with` block, if these records may be used without any budget."
        )


def _names(model) -> dict[str, object]:
    """Words, features and classes of a model; None where it has none, or only their number."""
    words, classes = getattr(model, "vocabulary", None), getattr(model, "classes_", None)
    return {
        "words": None if isinstance(words, int | np.integer) else words,
        "features": getattr(model, "feature_names_in_", None),
        "classes": getattr(getattr(model, "likelihood", None), "labels", classes),
    }


# -- pipelines -----------------------------------------------------------------------------------------------------


def check_steps(fitted) -> None:
    """Raise TypeError for a pipeline of scikit-learn with a step that may have learnt from the records without saying so."""
    if isinstance(fitted, Pipeline) and not isinstance(fitted, PrivatePipeline):
        others = [
            type(step).__name__
            for step in _steps(fitted)
            if not isinstance(step, TableEncoder) or hasattr(step, "privacy_")  # has learnt something
        ]
        if others:
            raise TypeError(
                f"A pipeline of scikit-learn does not say what {', '.join(others)} learnt from the records. Compare pipelines "
                "whose steps before the model are a TableEncoder of declared columns, private pipelines, or the models "
                "themselves with rows that are transformed."
            )


def common_pipeline(private, baseline) -> Pipeline | None:
    """The pipeline whose steps come before both models; None without pipelines. Two must make the same columns of the same
    rows, or the coefficients of their models mean different things: ValueError."""
    pipelines = [model for model in (private, baseline) if isinstance(model, Pipeline)]
    for pipeline in pipelines:
        check_is_fitted(pipeline)
    steps = [list(_steps(pipeline)) for pipeline in pipelines]
    if len(steps) == 2 and not (len(steps[0]) == len(steps[1]) and all(map(_do_the_same, *steps))):
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
    """The model with the names of the columns that a pipeline makes, and their units after an encoder of tables; ValueError if
    it was fitted to columns of other names."""
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
    if type(one) is not type(other) or ours.keys() != theirs.keys():
        return False
    return all(_equal(ours[name], theirs[name]) for name in ours)


def _equal(one, other) -> bool:
    if one is other:
        return True
    try:
        return joblib.hash(one) == joblib.hash(other)
    except Exception:  # a function that cannot be pickled is equal to itself alone
        return False
