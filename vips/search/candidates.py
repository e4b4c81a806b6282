"""Candidates: what is searched, checked before any budget is spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from vips.model import ConjugateExponentialModel
from vips.privacy import PrivacyPlan

__all__ = ["Candidate", "as_candidates", "calibrated"]


@dataclass(frozen=True)
class Candidate:
    """Settings, and an unfitted model that has them.

    Attributes
    ----------
    settings : dict
    model : ConjugateExponentialModel
    """

    settings: dict
    model: ConjugateExponentialModel

    @property
    def plan(self) -> PrivacyPlan:
        """Rate, steps and noise of its fit."""
        return self.model.stated_plan()

    def with_plan(self, plan: PrivacyPlan) -> Candidate:
        """The same settings with another plan."""
        return Candidate(self.settings, clone(self.model).set_params(privacy=plan))


def as_candidates(estimator: object, candidates: object, relation: str) -> list[Candidate]:
    """One candidate for each dict of settings; a dict of lists stands for all combinations. ``relation`` is the budget's.

    Raises
    ------
    TypeError, ValueError
        From public facts: an estimator that cannot be searched, settings that do not exist or cannot work.
    """
    _check_estimator(estimator)
    checked = [
        _with_default_plan(Candidate(dict(settings), clone(estimator).set_params(**settings)), relation)
        for settings in _settings(candidates)
    ]
    for candidate in checked:
        _check_plan(candidate.plan, relation)
        _check_settings(candidate.model)
    if len({candidate.model.unit for candidate in checked}) != 1:
        raise ValueError("All candidates must protect one unit: a search has one statement.")
    return checked


def calibrated(candidates: list[Candidate], plans: Sequence[PrivacyPlan]) -> list[Candidate]:
    """The candidates with these plans, after checks of all arguments."""
    with_plans = [candidate.with_plan(plan) for candidate, plan in zip(candidates, plans, strict=True)]
    for candidate in with_plans:
        candidate.model.check_arguments()
    return with_plans


def _settings(candidates: object) -> list[dict]:
    if isinstance(candidates, Mapping):
        return list(ParameterGrid(candidates))
    is_list = isinstance(candidates, Sequence) and not isinstance(candidates, str | bytes)
    if not is_list or not candidates or not all(isinstance(settings, Mapping) for settings in candidates):
        raise TypeError(
            "`candidates` must be a list of dicts of settings, e.g. [{'prior': 1.0}, {'prior': 10.0}], or a dict of lists, "
            f"e.g. {{'prior': [1.0, 10.0]}}, got {candidates!r}."
        )
    return list(candidates)


def _check_estimator(estimator: object) -> None:
    if not isinstance(estimator, ConjugateExponentialModel):
        raise TypeError(
            f"`estimator` must be a vips model, got {type(estimator).__name__}. Encode the records first, and search the model "
            "with the result: a TableEncoder of declared columns learns nothing; an encoder that learns has a budget of its "
            "own."
        )


def _with_default_plan(candidate: Candidate, relation: str) -> Candidate:
    privacy, n_steps = candidate.model.privacy, candidate.model.planned_steps
    if isinstance(privacy, PrivacyPlan):
        return candidate
    if privacy is not None:
        raise TypeError(
            f"`privacy` of a candidate must be a PrivacyPlan or None, got {type(privacy).__name__}: what may be spent is "
            "written once, in PrivateSearch(..., privacy=PrivacyBudget(epsilon, delta))."
        )
    return candidate.with_plan(PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=n_steps, relation=relation))


def _check_plan(plan: PrivacyPlan, relation: str) -> None:
    if plan.relation != relation:
        raise ValueError(
            f"The search's budget counts under {relation!r}, a candidate's plan under {plan.relation!r}: write one `relation` "
            f"in both, as in PrivacyBudget(epsilon, delta, relation={plan.relation!r})."
        )
    if not plan.has_guarantee:
        raise ValueError(
            "A candidate's plan has no guarantee: leave `reproducible_noise` out, and write noise_multiplier=1.0; the search "
            "sets the noise."
        )
    if plan.noise != "gaussian":
        raise ValueError(
            'The noise of a score is Gaussian in double precision: noise="discrete" would harden half of it. Leave it out.'
        )


def _check_settings(model: ConjugateExponentialModel) -> None:
    if model.on_invalid == "raise":
        raise ValueError('on_invalid="raise" lets an error depend on a record: use "drop".')
    for name, value in model.get_params().items():
        if isinstance(value, np.random.Generator | np.random.RandomState):
            raise ValueError(
                f"`{name}` is a generator, which every trial would start in the same state. Write None, or an integer."
            )
