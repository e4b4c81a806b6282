"""What a ledger promises, fixed when it is made: its budget, its unit, its relation, and the three limits."""

from __future__ import annotations

import math
import reprlib

from vips._support.printable import printable
from vips._support.validation import check_choice, check_delta, check_number
from vips.core.accounting.gaussian import gaussian_epsilon
from vips.core.budget import GAUSSIAN_SHARE, limits
from vips.exceptions import LedgerError

__all__ = ["ANY_UNIT", "checked_purpose", "checked_terms", "new_terms"]

# The default unit of a ledger: it accepts whatever a model calls one record.
ANY_UNIT = "one record"
_LONGEST_PURPOSE = 200  # characters


def new_terms(epsilon: float, delta: float, dataset: str, unit: str, relation: str, pure: float) -> dict:
    """The terms with their limits, ready for JSON, or an error that names the wrong one."""
    check_number("epsilon", epsilon, 0.0, math.inf, "a positive number", open_low=True, open_high=True)
    check_delta(delta)
    check_number("pure", pure, 0.0, epsilon, "a part of `epsilon`")
    for name, value in (("dataset", dataset), ("unit", unit)):
        if not isinstance(value, str) or not value:
            raise LedgerError(f"`{name}` must be a name in words, got {value!r}.")
    check_choice("relation", relation, ("add_or_remove", "replace_one"))
    epsilon, delta, pure = float(epsilon), float(delta), float(pure)
    terms = {"epsilon": epsilon, "delta": delta, "dataset": dataset, "unit": unit, "relation": relation}
    terms |= {"limits": list(limits(epsilon, delta, pure))}
    _check_limits(terms)
    return terms


def checked_terms(body: dict) -> dict:
    """The terms in a ledger's first entry. Its limits are kept, because another machine could round them otherwise.

    Raises
    ------
    Exception
        Of any kind, if they are not those of a ledger, or promise more than (ε, δ).
    """
    mu2, delta_0, pure = (float(limit) for limit in body["limits"])
    names = ("epsilon", "delta", "dataset", "unit", "relation")
    terms = new_terms(**{name: body[name] for name in names}, pure=pure)
    terms |= {"limits": [mu2, delta_0, pure]}
    _check_limits(terms)
    return terms


def checked_purpose(purpose: object) -> str:
    """A text that one line of every screen can show, or LedgerError."""
    if not isinstance(purpose, str) or len(purpose) > _LONGEST_PURPOSE or purpose != printable(purpose):
        raise LedgerError(
            f"`purpose` must be a text of one line, of at most {_LONGEST_PURPOSE} characters, without control characters, got "
            f"{reprlib.repr(purpose)}."
        )
    return purpose


def _check_limits(terms: dict) -> None:
    """Raise ValueError if the limits promise more than (ε, δ), or nothing."""
    epsilon, delta, (mu2, delta_0, pure) = terms["epsilon"], terms["delta"], terms["limits"]
    is_within = mu2 > 0.0 and 0.0 < delta_0 <= (1.0 - GAUSSIAN_SHARE) * delta * (1.0 + 1e-9)
    if (
        not is_within
        or gaussian_epsilon(math.sqrt(mu2), GAUSSIAN_SHARE * delta) > (epsilon - pure) * (1.0 + 1e-9) + 1e-12
    ):
        raise ValueError(
            f"ε = {epsilon:g}, of which {pure:g} is pure, at δ = {delta:g} is no budget that a ledger can keep."
        )
