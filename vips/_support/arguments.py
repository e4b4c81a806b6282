"""Arguments of constructors, each written once: an annotated attribute of its class, with its default and what it may be.

    @arguments
    class Mixture(ConjugateExponentialModel):
        n_components: int = whole(default=10, kw_only=False)
        answer_prior: float = positive(default=1.0)

A constructor stores them unchanged, as scikit-learn's ``clone`` and ``get_params`` expect. Type checkers know an argument with
a default by the word ``default``. Annotated attributes that are no arguments are ``ClassVar``. The values are checked when a
fit begins; None passes where it is the default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, TypeVar, dataclass_transform

from vips._support.validation import (
    check_choice,
    check_dtype_of_computation,
    check_integer,
    check_number,
    check_schedule,
)

__all__ = [
    "arguments",
    "check_arguments",
    "choice",
    "function_of_step",
    "number",
    "positive",
    "precision",
    "whole",
]

Class = TypeVar("Class", bound=type)


def whole(*, default: int | None, low: int = 1, high: int | None = None, kw_only: bool = True) -> Any:
    """An integer in this range."""
    return _checked(default, partial(check_integer, low=low, high=high), kw_only)


def number(low: float, high: float, allowed: str, *, default: float | None, **ends: bool) -> Any:
    """A real number in this range, which ``allowed`` says in words; ``ends`` are those of ``check_number``."""
    return _checked(default, partial(check_number, low=low, high=high, allowed=allowed, **ends))


def positive(*, default: float | None) -> Any:
    """A real number above 0, of any moderate size."""
    return number(1e-12, 1e12, "a number between 1e-12 and 1e12", default=default)


def choice(*words: str, default: str | None) -> Any:
    """One of these words."""
    return _checked(default, partial(check_choice, choices=words))


def precision(*, default: type) -> Any:
    """Single or double precision."""
    return _checked(default, lambda name, dtype: check_dtype_of_computation(dtype))


def function_of_step(example: str, *, default: None) -> Any:
    """A schedule; ``example`` shows one."""
    return _checked(default, lambda name, schedule: check_schedule(schedule, example))


@dataclass_transform(
    eq_default=False,
    kw_only_default=True,
    field_specifiers=(field, whole, number, positive, choice, precision, function_of_step),
)
def arguments(cls: Class) -> Class:
    """Class decorator: annotated attributes, also those of decorated base classes, are arguments of the constructor."""
    return dataclass(eq=False, repr=False, match_args=False, kw_only=True)(cls)


def check_arguments(estimator: object) -> None:
    """Raise ValueError for the first argument that is none of what it may be."""
    for argument in fields(estimator):  # type: ignore[arg-type]
        check, value = argument.metadata.get("check"), getattr(estimator, argument.name)
        if check is not None and (value is not None or argument.default is not None):
            check(argument.name, value)


def _checked(default: Any, check: Callable[[str, Any], None], kw_only: bool = True) -> Any:
    return field(default=default, kw_only=kw_only, metadata={"check": check})
