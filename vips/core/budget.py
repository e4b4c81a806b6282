"""What may be spent: three numbers that add up, whatever is released and however releases are chosen.

=======  ===========  ================================  ==========================================================
symbol   name         limit in a budget of (ε, δ)       who spends it
=======  ===========  ================================  ==========================================================
μ²       ``mu2``      the μ² of (ε - pure, 0.9 δ)       everything Gaussian: fits, encoders, set unions, counts
δ₀       ``delta_0``  δ/10                              thresholds, tails of sampled plans, δ of (ε, δ) statements
ε₀       ``pure``     0, or what a ledger sets aside    mechanisms of pure ε, such as Laplace noise
=======  ===========  ================================  ==========================================================

Together they are private at ε = ε₀ + (the ε of μ at 0.9 δ), δ = δ₀ + 0.9 δ: docs/guarantee.md. One number is never traded for
another after a release: that would depend on what was seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any

import numpy as np

from vips._support.validation import check_choice, check_delta, check_integer, check_number
from vips.core.accounting.calibration import noise_for_mu
from vips.core.accounting.domination import gaussian_mu
from vips.core.accounting.gaussian import gaussian_epsilon
from vips.core.ledger import open_ledger
from vips.core.plan import PrivacyPlan
from vips.core.rounding import rounded_down
from vips.core.stream_plan import StreamPlan
from vips.exceptions import LedgerError, PrivacyBudgetError

__all__ = ["ANY_UNIT", "Cost", "PrivacyBudget", "check_privacy", "checked_terms", "new_terms", "plan_of_one_release"]

# The default unit of a ledger: it accepts whatever a model calls one record.
ANY_UNIT = "one record"
GAUSSIAN_SHARE = 0.9  # of δ; the rest is the limit of δ₀
_LEAST_DELTA = 1e-290
_NOTHING = "Nothing is left of this budget, and nothing was charged."


@dataclass(frozen=True)
class Cost:
    """What a release is charged: μ², δ₀ and ε₀, each rounded up."""

    mu2: float = 0.0
    delta_0: float = 0.0
    pure: float = 0.0

    def epsilon(self, delta: float) -> float:
        """ε of the whole budget if this were all that it paid for; ``delta`` is the budget's."""
        mu = math.sqrt(self.mu2)
        return self.pure + (gaussian_epsilon(mu, GAUSSIAN_SHARE * delta) if mu > 0.0 else 0.0)


@dataclass(frozen=True, init=False)
class PrivacyBudget(open_ledger.KeepsItsScope):
    """A part of what may be spent on one data set: the thing that gets it as ``privacy=`` plans itself.

    Parameters
    ----------
    epsilon, delta : float
        All that is spent together is (``epsilon``, ``delta``)-private. A budget fits a ledger with the same numbers.
    relation : {"add_or_remove", "replace_one"}
        Neighbouring relation, as in :class:`PrivacyPlan`.

    Attributes
    ----------
    mu2, delta_0, pure : float
        The three numbers that it holds; see ``vips/core/budget.py``.
    delta : float

    Examples
    --------
    >>> budget = PrivacyBudget(2.0, 1e-6)
    >>> budget
    PrivacyBudget(epsilon=2, delta=1e-06)
    >>> budget.split(2)[0]
    PrivacyBudget(epsilon=1.372, delta=1e-06)
    """

    mu2: float
    delta_0: float
    pure: float
    delta: float
    relation: str
    sampled_share: float = field(default=1.0, compare=False, repr=False)  # of δ₀, for one sampled plan
    sent_from: open_ledger.SentFrom = field(default=None, compare=False, repr=False)

    def __init__(self, epsilon: float, delta: float, *, relation: str = "add_or_remove") -> None:
        check_number("epsilon", epsilon, 0.0, math.inf, "a positive number", open_low=True, open_high=True)
        check_delta(delta)
        check_choice("relation", relation, ("add_or_remove", "replace_one"))
        self._set(*limits(float(epsilon), float(delta), 0.0), float(delta), relation)

    @classmethod
    def of_parts(
        cls, mu2: float, delta_0: float, pure: float, delta: float, relation: str, sampled_share: float = 1.0
    ) -> PrivacyBudget:
        """The budget that holds these numbers, of a whole whose δ is ``delta``."""
        for name, value in (("mu2", mu2), ("delta_0", delta_0), ("pure", pure)):
            check_number(name, value, 0.0, 1e100, "a finite number ≥ 0")
        check_delta(delta)
        check_choice("relation", relation, ("add_or_remove", "replace_one"))
        budget = cls.__new__(cls)
        budget._set(mu2, delta_0, pure, delta, relation, sampled_share)
        return budget

    def _set(self, *values: object) -> None:
        """Set the fields in their order."""
        names = [entry.name for entry in fields(self)]
        for name, value in ({"sampled_share": 1.0, "sent_from": None} | dict(zip(names, values, strict=False))).items():
            object.__setattr__(self, name, value)

    @property
    def epsilon(self) -> float:
        """ε of what it holds: ε₀, and the ε of μ at 0.9 δ."""
        return Cost(self.mu2, self.delta_0, self.pure).epsilon(self.delta)

    def __repr__(self) -> str:
        aside = f", of which {self.pure:.4g} is pure" if self.pure else ""
        return f"PrivacyBudget(epsilon={self.epsilon:.4g}, delta={self.delta:g}{aside})"

    def stream(self, *, n_batches: int, **settings: Any) -> StreamPlan:
        """The plan of a stream that spends it; ``settings`` are further fields of :class:`StreamPlan`."""
        if self.relation != "add_or_remove":
            raise ValueError(
                "A stream protects against adding or removing a record: write a budget with that relation."
            )
        if not self.mu2 > 0.0:
            raise PrivacyBudgetError(_NOTHING)
        gaussian = Cost(self.mu2).epsilon(self.delta) * (1.0 - 1e-9)
        whole: dict[str, Any] = {"epsilon": gaussian, "delta": GAUSSIAN_SHARE * self.delta, "n_batches": n_batches}
        return StreamPlan(**whole, sent_from=self.sent_from, **settings)

    def split(self, *shares: float) -> tuple[PrivacyBudget, ...]:
        """Parts that together are at most this budget.

        Parameters
        ----------
        *shares : float
            One whole number: so many equal parts. More numbers: parts in these proportions (of μ²; ε is about in proportion to
            its root).
        """
        if len(shares) == 1:
            if not isinstance(shares[0], int | np.integer):
                raise ValueError(
                    f"Write a number of equal parts, split(3), or shares one by one, split(1, 2); got {shares[0]!r}."
                )
            check_integer("shares", shares[0])
            shares = (1.0,) * int(shares[0])
        for share in shares:
            check_number("share", share, 0.0, 1e12, "a positive number", open_low=True)
        shares = tuple(map(float, shares))
        whole = sum(map(Fraction, shares))
        numbers = self.mu2, self.delta_0, self.pure
        parts = []
        for share in shares:
            mu2, delta_0, pure = (rounded_down(Fraction(number) * Fraction(share) / whole) for number in numbers)
            part = PrivacyBudget.of_parts(mu2, delta_0, pure, self.delta, self.relation, self.sampled_share)
            object.__setattr__(part, "sent_from", self.sent_from)
            parts.append(part)
        return tuple(parts)

    def scaled(self, factor: float) -> PrivacyBudget:
        """The budget with ``factor`` times the μ², which is about the square of ε; for plans, as it may hold more."""
        check_number("factor", factor, 0.0, 1e12, "a positive number", open_low=True)
        return PrivacyBudget.of_parts(self.mu2 * factor, self.delta_0, self.pure, self.delta, self.relation)

    def plan(self, *, n_steps: int | None = None, sampling_rate: float | None = None, **settings: Any) -> PrivacyPlan:
        """The plan that spends it.

        Parameters
        ----------
        n_steps : int, optional
            None: 20 steps of full batches, which cost no more than one.
        sampling_rate : float, optional
            None: full batches. Samples spend all of δ₀, too. A ledger takes a twentieth of what is left there: plan
            ``ledger.remaining()``, or pass the budget itself, which is planned when it is charged.
        **settings
            Further fields of :class:`PrivacyPlan`: ``clip_norm``, ``noise``, ``max_rows_per_group``, ``max_weight``.

        Raises
        ------
        PrivacyBudgetError
            If it holds nothing.

        Examples
        --------
        >>> round(PrivacyBudget(1.0, 1e-6).plan().noise_multiplier, 2)
        18.99
        """
        sampling: dict[str, Any] = {"sampling": "full"} if sampling_rate is None else {"sampling_rate": sampling_rate}
        one = PrivacyPlan(
            noise_multiplier=1.0, n_steps=20 if n_steps is None else n_steps, relation=self.relation,
            sent_from=self.sent_from, **sampling, **{"report_delta": self.delta} | settings,
        )  # fmt: skip
        if not self.mu2 > 0.0:
            raise PrivacyBudgetError(_NOTHING)
        if one.sampling_rate == 1.0:
            sensitivity = one.noise_multiplier / one.sensitive_noise_multiplier()
            return replace(one, noise_multiplier=sensitivity * math.sqrt(one.n_steps / self.mu2) * (1.0 + 1e-11))
        if not self.delta_0 > 0.0:
            raise PrivacyBudgetError('No δ₀ is left of this budget, which samples need: write sampling="full".')
        return replace(
            one,
            noise_multiplier=noise_for_mu(one, math.sqrt(self.mu2) * (1.0 - 1e-11), self.sampled_share * self.delta_0),
        )


def check_privacy(privacy: Any, *kinds: type | None) -> None:
    """Raise TypeError unless ``privacy`` is of one of these kinds, or None where that is one of them."""
    if not any(privacy is None if kind is None else isinstance(privacy, kind) for kind in kinds):
        allowed = " or ".join("None" if kind is None else f"a {kind.__name__}" for kind in kinds)
        raise TypeError(
            f"`privacy` must be {allowed}, got {type(privacy).__name__}: write PrivacyBudget(epsilon, delta)."
        )


def plan_of_one_release(privacy: Any, what: str, clip_norm: float, **settings: Any) -> PrivacyPlan:
    """The plan by which ``what`` releases a sum over all records of norm ``clip_norm`` once; ``settings`` are for a budget.

    Raises
    ------
    TypeError, ValueError
        If ``privacy`` is neither a budget nor such a plan.
    """
    check_privacy(privacy, PrivacyBudget, PrivacyPlan)
    plan: PrivacyPlan = privacy.plan(n_steps=1, **settings) if isinstance(privacy, PrivacyBudget) else privacy
    right = "write PrivacyBudget(epsilon, delta)."
    if not plan.has_guarantee:
        raise ValueError(f"{what} without noise, or with noise that somebody knows, has no guarantee: {right}")
    if plan.n_steps > 1 or plan.sampling_rate < 1.0 or plan.clip_norm not in (None, clip_norm):
        raise ValueError(f"{what} is one release of all records, whose norm it bounds by itself: {right}")
    return replace(plan, clip_norm=clip_norm)


def limits(epsilon: float, delta: float, pure: float) -> tuple[float, float, float]:
    """μ², δ₀ and ε₀ of (ε, δ) with ``pure`` set aside, rounded down."""
    gaussian_delta = GAUSSIAN_SHARE * delta
    if not gaussian_delta > _LEAST_DELTA:
        raise ValueError(f"δ = {delta:g} is no budget that a ledger can keep: write one above 1e-290.")
    mu = gaussian_mu(epsilon - pure, gaussian_delta)
    return mu * mu * (1.0 - 1e-12), rounded_down(Fraction(delta) - Fraction(gaussian_delta)), pure


def new_terms(
    epsilon: float, delta: float, dataset: str, unit: str, relation: str, pure: float,
    kept: list[float] | None = None,
) -> dict:  # fmt: skip
    """What a ledger promises, fixed when it is made, ready for JSON; or an error that names what is wrong. Its limits may be
    ``kept``."""
    check_number("epsilon", epsilon, 0.0, math.inf, "a positive number", open_low=True, open_high=True)
    check_delta(delta)
    check_number("pure", pure, 0.0, epsilon, "a part of `epsilon`")
    for name, value in (("dataset", dataset), ("unit", unit)):
        if not isinstance(value, str) or not value:
            raise LedgerError(f"`{name}` must be a name in words, got {value!r}.")
    check_choice("relation", relation, ("add_or_remove", "replace_one"))
    epsilon, delta, pure = float(epsilon), float(delta), float(pure)
    computed = limits(epsilon, delta, pure)
    mu2, delta_0, pure = kept or computed
    is_within = mu2 > 0.0 and 0.0 < delta_0 <= (1.0 - GAUSSIAN_SHARE) * delta * (1.0 + 1e-9)
    most = (epsilon - pure) * (1.0 + 1e-9) + 1e-12
    if not is_within or gaussian_epsilon(math.sqrt(mu2), GAUSSIAN_SHARE * delta) > most:
        raise ValueError(
            f"ε = {epsilon:g}, of which {pure:g} is pure, at δ = {delta:g} is no budget that a ledger can keep."
        )
    terms = {"epsilon": epsilon, "delta": delta, "dataset": dataset, "unit": unit, "relation": relation}
    return terms | {"limits": [mu2, delta_0, pure]}


def checked_terms(body: dict) -> dict:
    """The terms in a ledger's first entry. Its limits are kept, because another machine could round them otherwise. An error of
    any kind if they are not those of a ledger, or promise more than (ε, δ)."""
    kept = [float(limit) for limit in body["limits"]]
    names = ("epsilon", "delta", "dataset", "unit", "relation")
    return new_terms(**{name: body[name] for name in names}, pure=kept[2], kept=kept)
