"""What a fit has set on an estimator: attributes whose names end with an underscore, as in scikit-learn."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from inspect import Signature, signature, unwrap
from typing import Any, TypeVar

__all__ = ["BESIDE", "all_or_nothing", "fitted_attributes", "forget_fit", "refuse_untaken"]

# What may stand beside the rows of a fit, besides labels and persons: keywords, of which each class takes some.
BESIDE = ("exposure", "sample_weight", "public_X", "public_y")

Method = TypeVar("Method", bound=Callable[..., Any])


def fitted_attributes(estimator) -> dict[str, object]:
    """Fitted attributes, by name."""
    return {name: value for name, value in vars(estimator).items() if name.endswith("_") and not name.startswith("_")}


def forget_fit(estimator) -> None:
    """Remove them, so that the next fit sees nothing of the last one."""
    for name in fitted_attributes(estimator):
        delattr(estimator, name)


def all_or_nothing(fit: Method, beside: Collection[str] = BESIDE) -> Method:
    """A ``fit`` that leaves the estimator as it was if it raises, Ctrl-C included.

    So it is never half fitted, and what an earlier fit has paid for is not lost. It takes and shows of the keywords in `BESIDE`
    those in ``beside`` alone, and refuses others by name.
    """
    fit = unwrap(fit)
    taken, untaken = signature(fit), [name for name in BESIDE if name not in beside]
    taken = taken.replace(parameters=[taken.parameters[name] for name in taken.parameters if name not in untaken])

    @wraps(fit)
    def fit_or_restore(estimator, *arguments, **settings):
        refuse_untaken(estimator, taken.parameters, settings)
        settings = {name: settings[name] for name in settings if name not in BESIDE or name in taken.parameters}
        _check_call(taken, fit.__name__, estimator, *arguments, **settings)
        before = dict(vars(estimator))
        try:
            return fit(estimator, *arguments, **settings)
        except BaseException:
            vars(estimator).clear()
            vars(estimator).update(before)
            raise

    fit_or_restore.__signature__ = taken  # type: ignore[attr-defined]
    for name in untaken:
        entry = rf"(?m)^( +)(?:\w+, )*{name}(?:, \w+)* : .*\n(?:\1 .*\n)*"
        fit_or_restore.__doc__ = re.sub(entry, "", fit_or_restore.__doc__ or "")
    return fit_or_restore  # type: ignore[return-value]


def refuse_untaken(estimator, taken: Collection[str], settings: Mapping[str, object]) -> None:
    """Raise TypeError for the first of `BESIDE` that is passed to a ``fit`` that takes others; None is none."""
    for name in BESIDE:
        if settings.get(name) is not None and name not in taken:
            raise TypeError(f"{type(estimator).__name__} takes no `{name}`: leave it out.")


def _check_call(taken: Signature, name: str, estimator, *arguments, **settings) -> None:
    """Raise Python's TypeError for arguments that ``fit`` does not take, under the name of the class that people wrote."""
    try:
        taken.bind(estimator, *arguments, **settings)
    except TypeError as error:
        instead = ": write `sample_weight`" if "weights" in settings and "sample_weight" in taken.parameters else ""
        raise TypeError(f"{type(estimator).__name__}.{name}() {error}{instead}") from None
