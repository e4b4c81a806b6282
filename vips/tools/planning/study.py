"""``plan_study``: several releases about the same people under one budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vips.core.budget import PrivacyBudget, check_privacy
from vips.counting import NoisyCount
from vips.tools.planning.plan import Planner, Recommendation

__all__ = ["Study", "plan_study"]

_LARGEST, _ROUNDS = 1e3, 2  # times as wide as wanted, and rounds of trials near the shares


@dataclass(frozen=True)
class Study:
    """Several releases, and what to expect of each.

    Attributes
    ----------
    budget : PrivacyBudget
        Of all together: that of the ledger.
    releases : dict of str to Recommendation
        Their budgets are parts of it.
    says : str
    """

    budget: PrivacyBudget
    releases: dict[str, Recommendation]
    says: str

    def __str__(self) -> str:
        return self.says


def plan_study(
    models: Mapping[str, Any],
    *,
    n_records: int | NoisyCount,
    width: Mapping[str, Mapping[str, float]],
    privacy: PrivacyBudget | None = None,
    delta: float = 1e-6,
    like: Mapping[str, Any] | None = None,
) -> Study:
    """Plan several releases about the same people.

    μ² of releases adds up, whatever the models. So the budget that widths need is the sum of those of the releases; a budget
    that is given is divided so that all intervals are wider, or narrower, than wanted by the same factor.

    Parameters
    ----------
    models : mapping of str to model or pipeline
        Not fitted.
    n_records : int or NoisyCount
    width : mapping of str to mapping
        For each release the widths that are wanted, as :func:`plan_for` takes them.
    privacy : PrivacyBudget, optional
        Of all together. None: what the widths need.
    delta : float
        Of the budget that is found.
    like : mapping of str to records, optional
        See :func:`plan_for`.

    Returns
    -------
    Study

    Raises
    ------
    ValueError
        If a release has no widths that are wanted, or as :func:`plan_for` does.

    Examples
    --------
    >>> from vips import BayesianLogisticRegression, LatentClassAnalysis, PrivacyBudget, plan_study
    >>> from vips.preprocessing import TableEncoder, make_private_pipeline
    >>> encoder = TableEncoder({"age": (18, 100), "ward": ["A", "B"]})
    >>> visits = make_private_pipeline(encoder, BayesianLogisticRegression(), privacy=PrivacyBudget(1.0, 1e-6))
    >>> women = make_private_pipeline(encoder, BayesianLogisticRegression(), privacy=PrivacyBudget(1.0, 1e-6))
    >>> wanted = {"all": {"age": 0.02}, "women": {"age": 0.02}}
    >>> study = plan_study({"all": visits, "women": women}, n_records=20_000, width=wanted)
    >>> sorted(study.releases), study.budget.epsilon < 0.3
    (['all', 'women'], True)
    """
    check_privacy(privacy, PrivacyBudget, None)
    if not (models and isinstance(width, Mapping) and set(models) == set(width) and all(width.values())):
        raise ValueError("`width` must say for each of the models which widths are wanted.")
    like, start = like or {}, PrivacyBudget(1.0, delta if privacy is None else privacy.delta)
    planners = {name: Planner(model, n_records, like.get(name)) for name, model in models.items()}
    releases = {name: planner.needed(start, width[name]) for name, planner in planners.items()}
    for _ in range(0 if privacy is None else _ROUNDS):  # all widths come to exceed what is wanted by one factor
        parts = privacy.split(*_mu2_of_equal_excess(releases, width, privacy.mu2))
        releases = {name: planner.at(part) for (name, planner), part in zip(planners.items(), parts, strict=True)}
        if missing := [name for name, release in releases.items() if release.law is None]:
            raise ValueError(f"{missing[0]}: {releases[missing[0]].says}")
    mu2 = float(sum(release.budget.mu2 for release in releases.values()))
    whole = next(iter(releases.values())).budget
    budget = privacy or whole.scaled(mu2 / whole.mu2)
    shares = {name: release.budget.mu2 / mu2 for name, release in releases.items()}
    says = [f"{name} (share {shares[name]:.0%}): {release.says}" for name, release in releases.items()]
    return Study(budget, releases, "\n".join([f"ε = {budget.epsilon:.2g} for all releases together.", *says]))


def _mu2_of_equal_excess(releases: Mapping[str, Recommendation], width, whole: float) -> list[float]:
    """μ² of each release, which add up to ``whole``, by bisection of the factor."""

    def needed(factor: float) -> list[float]:
        wider = {name: {row: factor * limit for row, limit in of.items()} for name, of in width.items()}
        return [release.law.mu2_for(wider[name], release.n_records) for name, release in releases.items()]

    low, high = np.log(1.0 / _LARGEST), np.log(_LARGEST)
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if sum(needed(np.exp(middle))) > whole else (low, middle)
    return needed(np.exp(high))
