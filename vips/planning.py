"""``plan_for``: sampling rate, steps and settings of a private fit, from public numbers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sklearn.base import clone

from vips._validation import check_integer
from vips.counting import NoisyCount
from vips.model import ConjugateExponentialModel
from vips.privacy import PrivacyBudget, PrivacyPlan
from vips.privacy.budget import check_privacy

__all__ = ["Recommendation", "plan_for"]

_MOST_RECORDS = 300_000  # in a step; larger samples cost time and no ε


@dataclass(frozen=True)
class Recommendation:
    """What to fit, and what to expect.

    Attributes
    ----------
    plan : PrivacyPlan
    settings : dict
        Arguments of the model that the noise decides.
    signal_to_noise : float or None
        Of a word's count, for topics.
    says : str
        Reasons, and what to expect.
    """

    plan: PrivacyPlan
    settings: dict = field(default_factory=dict)
    signal_to_noise: float | None = None
    says: str = ""

    def apply(self, model: ConjugateExponentialModel) -> ConjugateExponentialModel:
        """An unfitted copy of ``model`` with this plan and these settings."""
        return clone(model).set_params(privacy=self.plan, **self.settings)

    def __str__(self) -> str:
        return self.says


def plan_for(
    model: ConjugateExponentialModel,
    *,
    n_records: int | NoisyCount,
    privacy: PrivacyBudget,
    document_length: int = 100,
    purpose: str = "reading",
) -> Recommendation:
    """Plan a private fit before any budget is spent.

    Full batches lose nothing to composition, so that steps cost no ε; samples only save time. One release is enough for a model
    whose statistics do not depend on its parameters.

    Parameters
    ----------
    model : ConjugateExponentialModel
        Not fitted. Of topics, ``vocabulary`` must be given.
    n_records : int or NoisyCount
        About how many records there are. Declare it, or buy it with :func:`vips.count_records`: an exact count of the records
        is private. From a noisy count the plan takes ``at_least()``, which most probably is not too large.
        ``PrivateTopics`` buys it by itself.
    privacy : PrivacyBudget
        Of the fit alone. A count has cost its own before.
    document_length : int
        Of topics: about how many different words a document has. Public, too.
    purpose : {"reading", "perplexity"}
        Of topics: as many as are mostly real, or as many as predict words best.

    Returns
    -------
    Recommendation

    Raises
    ------
    ValueError
        If an argument is out of range, or the model lacks a vocabulary.

    Examples
    --------
    >>> from vips import LatentDirichletAllocation, PrivacyBudget, plan_for
    >>> topics = LatentDirichletAllocation(vocabulary=5000)
    >>> plan_for(topics, n_records=3_000, privacy=PrivacyBudget(0.5, 1e-6)).settings
    {'n_components': 1}
    >>> plan_for(topics, n_records=100_000, privacy=PrivacyBudget(1.0, 1e-6)).settings
    {'n_components': 25}
    """
    if not isinstance(model, ConjugateExponentialModel):
        raise TypeError(f"`model` must be a model of vips, got {type(model).__name__}.")
    check_privacy(privacy, PrivacyBudget)
    counted = isinstance(n_records, NoisyCount)
    n_records = n_records.at_least() if counted else n_records
    check_integer("n_records", n_records)
    check_integer("document_length", document_length)
    rate = min(1.0, _MOST_RECORDS / n_records)
    n_steps = model.planned_steps if rate == 1.0 else 40
    plan = privacy.plan(n_steps=n_steps, sampling_rate=None if rate == 1.0 else rate)
    batches = (
        "full batches, which cost no ε" if rate == 1.0 else f"samples of about {_MOST_RECORDS:,} records, to save time"
    )
    says = f"At least {n_records:,} records. " if counted else ""
    says += f"{n_steps} step{'s' * (n_steps > 1)} of {batches}."
    if not hasattr(model, "advice"):
        return Recommendation(plan, says=says)
    stand_in = clone(model).set_params(privacy=plan)
    stand_in.check_parameters()
    advice = stand_in.advice(
        replace(plan, clip_norm=plan.clip_norm or stand_in.default_clip()), n_records, document_length, purpose
    )
    return Recommendation(plan, {"n_components": advice.n_components}, advice.signal_to_noise, f"{says} {advice}")
