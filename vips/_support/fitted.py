"""What a fit has set on an estimator: attributes whose names end with an underscore, as in scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

__all__ = ["all_or_nothing", "fitted_attributes", "forget_fit", "without_weights"]

Method = TypeVar("Method", bound=Callable[..., Any])


def fitted_attributes(estimator) -> dict[str, object]:
    """Fitted attributes, by name."""
    return {name: value for name, value in vars(estimator).items() if name.endswith("_") and not name.startswith("_")}


def forget_fit(estimator) -> None:
    """Remove them, so that the next fit sees nothing of the last one."""
    for name in fitted_attributes(estimator):
        delattr(estimator, name)


def all_or_nothing(fit: Method) -> Method:
    """A ``fit`` that leaves the estimator as it was if it raises, Ctrl-C included.

    So it is never half fitted, and what an earlier fit has paid for is not lost.
    """

    @wraps(fit)
    def fit_or_restore(estimator, *arguments, **settings):
        _check_call(fit, estimator, *arguments, **settings)
        before = dict(vars(estimator))
        try:
            return fit(estimator, *arguments, **settings)
        except BaseException:
            vars(estimator).clear()
            vars(estimator).update(before)
            raise

    return fit_or_restore


def without_weights(fit: Method) -> Method:
    """A ``fit`` of a class that takes no weights, which says so under the name of the class."""

    @wraps(fit)
    def fit_unweighted(estimator, *arguments, sample_weight: object = None, **settings):
        if sample_weight is not None:
            raise TypeError(f"{type(estimator).__name__} takes no weights: leave `sample_weight` out.")
        _check_call(fit, estimator, *arguments, **settings)
        return fit(estimator, *arguments, **settings)

    return fit_unweighted


def _check_call(fit: Callable, estimator, *arguments, **settings) -> None:
    """Raise Python's TypeError for arguments that ``fit`` does not take, under the name of the class that people wrote."""
    taken = signature(fit)
    try:
        taken.bind(estimator, *arguments, **settings)
    except TypeError as error:
        instead = ": write `sample_weight`" if "weights" in settings and "sample_weight" in taken.parameters else ""
        raise TypeError(f"{type(estimator).__name__}.{fit.__name__}() {error}{instead}") from None
