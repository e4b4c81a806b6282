"""Candidates: what is searched, checked before any budget is spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import ParameterGrid

from vips._pipelines import model_of
from vips.model import ConjugateExponentialModel
from vips.preprocessing import PublicPipeline
from vips.privacy import PrivacyPlan

__all__ = ["Candidate", "as_candidates", "calibrated"]


@dataclass(frozen=True)
class Candidate:
    """Settings, and an unfitted estimator that has them.

    Attributes
    ----------
    settings : dict
    estimator : estimator
    """

    settings: dict
    estimator: BaseEstimator

    @property
    def plan(self) -> PrivacyPlan:
        """Rate, steps and noise of its fit."""
        return model_of(self.estimator).privacy

    def with_plan(self, plan: PrivacyPlan) -> Candidate:
        """The same settings with another plan."""
        name = "privacy"
        if isinstance(self.estimator, PublicPipeline):
            name = f"{self.estimator.steps[-1][0]}__privacy"
        return Candidate(self.settings, clone(self.estimator).set_params(**{name: plan}))


def as_candidates(estimator: object, candidates: object) -> list[Candidate]:
    """One candidate for each dict of settings; a dict of lists stands for all combinations.

    Raises
    ------
    TypeError, ValueError
        From public facts: an estimator that cannot be searched, settings that do not exist or cannot work.
    """
    _check_estimator(estimator)
    settings = _settings(candidates)
    found = []
    for each in settings:
        candidate = Candidate(dict(each), clone(estimator).set_params(**each))
        _check_estimator(candidate.estimator)
        found.append(_with_default_plan(candidate))
    for candidate in found:
        _check_plan(candidate.plan)
        _check_settings(candidate.estimator)
    if len({candidate.plan.relation for candidate in found}) != 1:
        raise ValueError("All candidates need plans of one `relation`: a search has one statement.")
    if len({model_of(candidate.estimator).unit for candidate in found}) != 1:
        raise ValueError("All candidates must protect one unit: a search has one statement.")
    return found


def calibrated(candidates: list[Candidate], plans: Sequence[PrivacyPlan]) -> list[Candidate]:
    """The candidates with these plans, after checks of all arguments."""
    with_plans = [each.with_plan(plan) for each, plan in zip(candidates, plans, strict=True)]
    for candidate in with_plans:
        model_of(candidate.estimator).check_arguments()
    return with_plans


def _settings(candidates: object) -> list[dict]:
    if isinstance(candidates, Mapping):
        return list(ParameterGrid(candidates))
    is_list = isinstance(candidates, Sequence) and not isinstance(candidates, str | bytes)
    if not is_list or not candidates or not all(isinstance(each, Mapping) for each in candidates):
        raise TypeError(
            "`candidates` must be a list of dicts of settings, e.g. [{'prior': 1.0}, {'prior': 10.0}], or a dict of lists, "
            f"e.g. {{'prior': [1.0, 10.0]}}, got {candidates!r}."
        )
    return list(candidates)


def _check_estimator(estimator: object) -> None:
    if isinstance(estimator, PublicPipeline) and isinstance(estimator.steps[-1][1], ConjugateExponentialModel):
        return
    if not isinstance(estimator, ConjugateExponentialModel):
        raise TypeError(
            f"`estimator` must be a vips model or a PublicPipeline, got {type(estimator).__name__}. An encoder that learns "
            "has a budget of its own: release it first (PrivateTableEncoder, PrivateCountVectorizer), and search the model "
            "with what it released."
        )


def _with_default_plan(candidate: Candidate) -> Candidate:
    model = model_of(candidate.estimator)
    if model.privacy is not None and not isinstance(model.privacy, PrivacyPlan):
        raise TypeError(f"`privacy` must be a PrivacyPlan or None, got {type(model.privacy).__name__}.")
    if model.privacy is not None:
        return candidate
    return candidate.with_plan(PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=model.planned_steps))


def _check_plan(plan: PrivacyPlan) -> None:
    if not plan.has_guarantee:
        raise ValueError(
            "A candidate's plan has no guarantee: leave `reproducible_noise` out, and write noise_multiplier=1.0; the search "
            "sets the noise."
        )
    if plan.noise != "gaussian":
        raise ValueError(
            'The noise of a score is Gaussian in double precision: noise="discrete" would harden half of it. Leave it out.'
        )


def _check_settings(estimator: BaseEstimator) -> None:
    if getattr(model_of(estimator), "on_invalid", "drop") == "raise":
        raise ValueError('on_invalid="raise" lets an error depend on a record: use "drop".')
    for name, value in estimator.get_params().items():
        if isinstance(value, np.random.Generator | np.random.RandomState):
            raise ValueError(
                f"`{name}` is a generator, which every trial would start in the same state. Write None, or an integer."
            )
