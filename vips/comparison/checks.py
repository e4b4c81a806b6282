"""Checks before two models are compared: public facts, before any work."""

from __future__ import annotations

import numpy as np

from vips._support.validation import check_integer, check_level
from vips.core.ledger.ledger import current_ledger
from vips.model import ConjugateExponentialModel

__all__ = ["check_models", "check_private_data", "check_scores"]


def check_models(private, baseline) -> tuple:
    """The two models, the private one first.

    Raises
    ------
    TypeError
        If they are not two models of one class.
    ValueError
        If they are not fitted, of different shapes or different words, or neither is private.
    """
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
    _check_alike(private, baseline)
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


def _check_alike(private, baseline) -> None:
    for name in ("n_features_in_", *private.settings_of_meaning):
        ours, theirs = (getattr(model, name, None) for model in (private, baseline))
        if ours != theirs:
            raise ValueError(
                f"The private model has {name} = {ours} and the baseline {name} = {theirs}: their parameters cannot be "
                "compared one by one. Fit the baseline with the private model's."
            )
    for what, names in (("words", _words), ("features", _features), ("classes", _classes)):
        ours, theirs = names(private), names(baseline)
        if ours is not None and theirs is not None and not np.array_equal(ours, theirs):
            raise ValueError(
                f"The models have different {what} (or the same in another order), so that column i of one is not column i of "
                "the other. Fit the baseline on the private model's."
            )


def _words(model) -> np.ndarray | None:
    vocabulary = getattr(model, "vocabulary", None)
    return None if vocabulary is None or isinstance(vocabulary, int | np.integer) else np.asarray(vocabulary)


def _features(model) -> np.ndarray | None:
    return getattr(model, "feature_names_in_", None)


def _classes(model) -> np.ndarray | None:
    return getattr(getattr(model, "likelihood", None), "labels", getattr(model, "classes_", None))
