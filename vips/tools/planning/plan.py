"""``plan_for``: what a private fit will say, from public numbers, or which ε it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from vips._support.extras import imported
from vips._support.pipelines import model_of
from vips._support.validation import check_integer, check_number
from vips.core.budget import PrivacyBudget, check_privacy
from vips.core.plan import PrivacyPlan
from vips.core.stream_plan import StreamPlan
from vips.counting import NoisyCount
from vips.model import ConjugateExponentialModel
from vips.preprocessing._private_pipeline import MadePipeline, PrivatePipeline
from vips.tools.planning.trial import Law, Like, Trials, assumptions, generated, widths_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["Recommendation", "plan_for"]

_MOST_RECORDS = 300_000  # in a step; larger samples cost time and no ε
# Records of the first trials, of those where these have no intervals, and numbers of fits; with and without labels.
_OF_TRIAL = {True: (4_000, 12_000, 3), False: (2_500, 7_500, 3)}
_GENERATED = 20_000  # at least
_BESIDE = 5  # planned widths beside those of a fit
_ROUNDS, _NEAR, _STEP = 8, 0.05, 30.0  # of the search for ε: it ends so near the width; factor of μ² in a round


@dataclass(frozen=True)
class Recommendation:
    """What to fit, and what to expect.

    Attributes
    ----------
    budget : PrivacyBudget
        Of the fit.
    plan : PrivacyPlan, StreamPlan or None
        None for a pipeline, which plans itself.
    n_records : int
    settings : dict
        Arguments of the model that the noise decides.
    signal_to_noise : float or None
        Of a word's count, for topics.
    says : str
        Reasons, and what to expect.
    law : Law or None
        Of the widths, by the number of records and μ².
    """

    budget: PrivacyBudget
    plan: PrivacyPlan | StreamPlan | None
    n_records: int
    settings: dict = field(default_factory=dict)
    signal_to_noise: float | None = None
    says: str = ""
    law: Law | None = field(default=None, repr=False)

    @property
    def widths(self) -> pd.DataFrame | None:
        """A row for each coefficient, in the columns' units, or the median of other parameters of one kind.

        "width" is that of the 95 % interval, "without noise" what sampling leaves of it. None where no intervals are to be
        expected: ``says`` has the reason.
        """
        if self.law is None:
            return None
        pd, n, law = imported("pandas", "widths"), self.n_records, self.law
        values = {"width": law.widths(n, self.budget.mu2), "without noise": law.widths(n, np.inf)}
        return pd.DataFrame(values, index=pd.Index(law.names, name="95 % interval"))

    def apply(self, model):
        """An unfitted copy of the model or pipeline with this budget and these settings."""
        return clone(model).set_params(privacy=self.plan or self.budget, **self.settings)

    def realised(self, fitted) -> pd.DataFrame:
        """Beside the widths of the plan, those of a fit: "planned" and "realised".

        Raises
        ------
        NotImplementedError
            If the fit has no intervals; with the reason.
        """
        widths, pd = widths_of(fitted), imported("pandas", "realised()")
        planned = pd.Series(dtype=float)
        if self.law is not None:
            planned = pd.Series(self.law.widths(self.n_records, self.budget.mu2), index=self.law.names)
        return pd.DataFrame({"planned": planned, "realised": pd.Series(widths)}).reindex(list(widths))

    def beside(self, fitted) -> str:
        """What the plan says, and up to five planned widths beside those of a fit; without them if it has no intervals."""
        try:
            widths = self.realised(fitted)
        except NotImplementedError as missing:
            return f"{self.says} {missing}"
        both = widths.dropna(subset="planned").head(_BESIDE).fillna(np.inf).itertuples()
        listed = [f"{name} {planned:.2g} planned, {realised:.2g} realised" for name, planned, realised in both]
        return f"{self.says} Widths of 95 % intervals: {'; '.join(listed)}." if listed else self.says

    def plot(self, names: list[str] | None = None, *, ax: Axes | None = None) -> Axes:
        """Widths against ε, and the ε of the plan.

        Parameters
        ----------
        names : list of str, optional
            Rows of ``widths``; by default the first five.
        ax : matplotlib.axes.Axes, optional

        Raises
        ------
        ValueError
            If there are no widths.
        """
        if self.law is None:
            raise ValueError(f"There are no widths to draw. {self.says}")
        ax = ax or imported("matplotlib.pyplot", "plot()").subplots(layout="constrained")[1]
        budgets = [self.budget.scaled(factor) for factor in np.geomspace(0.01, 100.0, 41)]
        curves = np.array([self.law.widths(self.n_records, b.mu2) for b in budgets])
        for i, name in enumerate(self.law.names[:5] if names is None else names):
            at = self.law.names.index(name)
            ax.plot([b.epsilon for b in budgets], curves[:, at], color=f"C{i}", label=name)
            least = self.law.widths(self.n_records, np.inf)[at]
            ax.axhline(least, color=f"C{i}", linestyle=":", linewidth=1.0)
        ax.axvline(self.budget.epsilon, color="0.5")
        ax.set(xscale="log", yscale="log", xlabel="ε", ylabel="width of the 95 % interval")
        ax.legend(frameon=False, title=f"{self.n_records:,} records; dotted: without noise")
        return ax

    def __str__(self) -> str:
        return self.says


def plan_for(
    model: ConjugateExponentialModel | PrivatePipeline,
    *,
    n_records: int | NoisyCount,
    privacy: PrivacyBudget | StreamPlan | None = None,
    width: Mapping[str, float] | None = None,
    delta: float = 1e-6,
    like: Any = None,
    outcome: float | None = None,
    guess: Mapping | None = None,
    effects: Mapping | None = None,
    n_features: int | None = None,
    document_length: int = 100,
    purpose: str = "reading",
) -> Recommendation:
    """Plan a private fit before any budget is spent: what to expect of a budget, or which budget is needed.

    Full batches lose nothing to composition, so that steps cost no ε; samples only save time. One release is enough for a model
    whose statistics do not depend on its parameters. Widths of intervals come from two fits to a few thousand generated
    records, with the noise that the private fit will have in its means (``vips/tools/planning/trial.py``).

    Parameters
    ----------
    model : model, PrivatePipeline or PrivateTopics
        Not fitted. LatentDirichletAllocation needs a ``vocabulary``.
    n_records : int or NoisyCount
        About how many records there are, or persons. Declare it, or buy it with :func:`vips.count_records`: an exact count of
        the records is private. From a noisy count the plan takes ``at_least()``, which most probably is not too large.
        ``PrivateTopics`` buys it by itself.
    privacy : PrivacyBudget or StreamPlan, optional
        Of the fit alone. A count has cost its own before. None: what ``width`` needs is found. A StreamPlan is for topics:
        ``n_records`` are then those of all batches together.
    width : mapping of str to float, optional
        Widest 95 % intervals that answer the question, by rows of ``widths``: {"age": 0.01}.
    delta : float
        Of the budget that is found.
    like : records, (X, y) or (X, y, groups), optional
        Records that resemble the private ones: public ones, or generated ones with a guess of the parameters, say by
        :func:`vips.datasets.make_table`. Never the private records. By default, records are generated from what model and
        encoder declare.
    outcome : float, optional
        What is public of the target of generated records: the share of the last one of two classes, or the average count. Where
        yes is rare, intervals are several times as wide as by default.
    guess, effects : mapping of str, optional
        What is public of the columns of a pipeline's generated records, and effects as large as they may be, as
        :func:`vips.datasets.make_table` takes them. The plan says what it assumes of other columns; without ``effects`` the
        target depends on none of them.
    n_features : int, optional
        Number of columns, where neither ``like`` nor the model says it.
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
        If an argument is out of range, or the model lacks a vocabulary; if no ε gives this ``width``, with the number of
        records that does.

    Examples
    --------
    >>> from vips import BayesianLogisticRegression, LatentDirichletAllocation, PrivacyBudget, plan_for
    >>> from vips.preprocessing import TableEncoder, make_private_pipeline
    >>> encoder = TableEncoder({"age": (18, 100), "ward": ["A", "B"]})
    >>> visits = make_private_pipeline(encoder, BayesianLogisticRegression(), privacy=PrivacyBudget(1.0, 1e-6))
    >>> advice = plan_for(visits, n_records=20_000, privacy=PrivacyBudget(1.0, 1e-6))
    >>> bool(advice.widths.loc["age", "width"] < 0.01)
    True
    >>> needed = plan_for(visits, n_records=20_000, width={"age": 0.01}).budget
    >>> needed.epsilon < 0.5
    True

    >>> topics = LatentDirichletAllocation(vocabulary=5000)
    >>> plan_for(topics, n_records=3_000, privacy=PrivacyBudget(0.5, 1e-6)).settings
    {'n_components': 1}
    """
    check_privacy(privacy, PrivacyBudget, StreamPlan, None)
    if privacy is None and not width:
        raise ValueError("Give a budget, privacy=PrivacyBudget(ε, δ), or the width that you need, width={name: 0.01}.")
    if isinstance(privacy, StreamPlan):
        return _of_stream(model, privacy, *_numbers(model, n_records, document_length), document_length, purpose)
    public = {"outcome": outcome, "guess": guess, "effects": effects}
    if like is not None and any(value is not None for value in public.values()):
        raise ValueError(f"Give records, `like`, or what they are to be generated from, {', '.join(public)}; not both.")
    if isinstance(model, MadePipeline) and hasattr(model, "expected"):
        return _of_texts(model, privacy, n_records, {"document_length": document_length, "purpose": purpose})
    planner = Planner(model, n_records, like, n_features, document_length, purpose, bool(width), **public)
    return planner.at(privacy, width) if privacy is not None else planner.needed(PrivacyBudget(1.0, delta), width)


def _numbers(model, n_records: int | NoisyCount, document_length: int) -> tuple[int, list[str]]:
    """The number of records, and what to say of it; raises TypeError or ValueError for what cannot be planned."""
    is_pipeline = isinstance(model, PrivatePipeline) and (
        not isinstance(model, MadePipeline) or hasattr(model, "expected")
    )
    if not is_pipeline and not isinstance(model, ConjugateExponentialModel):
        raise TypeError(
            f"`model` must be a model of vips, or a pipeline by make_private_pipeline, got {type(model).__name__}."
        )
    if getattr(model, "max_weight", None) is not None:
        raise ValueError("Fits with weights are not planned: leave `max_weight` out, as if all weights were equal.")
    counted = isinstance(n_records, NoisyCount)
    n_records = n_records.at_least() if counted else n_records
    check_integer("n_records", n_records)
    check_integer("document_length", document_length)
    return n_records, [f"At least {n_records:,} records."] * counted


def _advice(model, plan: PrivacyPlan | StreamPlan, n_records: int, document_length: int, purpose: str):
    stand_in = clone(model).set_params(privacy=plan)
    stand_in.check_parameters()
    clipped = replace(plan, clip_norm=plan.clip_norm or stand_in.default_clip())
    return stand_in.advice(clipped, n_records, document_length, purpose)


def _of_stream(model, plan: StreamPlan, n_records: int, says: list[str], document_length: int, purpose: str):
    """What to expect after the last batch of a stream of topics."""
    if not hasattr(model, "advice") or not plan.is_private:
        raise TypeError(
            "Streams are planned for topics (LatentDirichletAllocation), with noise; others take any StreamPlan."
        )
    advice = _advice(model, plan, n_records, document_length, purpose)
    passes = f"{plan.n_batches} batches, with {n_records:,} records in all, each seen once: less clear than a fit."
    says = [*says, passes, f"After the last batch: {advice}"]
    budget, settings = PrivacyBudget(plan.epsilon, plan.delta), {"n_components": advice.n_components}
    return Recommendation(budget, plan, n_records, settings, advice.signal_to_noise, " ".join(says))


def _of_texts(model, budget: PrivacyBudget | None, n_records: int | NoisyCount, settings: dict) -> Recommendation:
    """What to expect of a pipeline that learns words, then topics."""
    if budget is None:
        raise ValueError("Topics have no widths: give a budget, privacy=PrivacyBudget(ε, δ).")
    n_records, says = _numbers(model, n_records, settings["document_length"])
    expected = clone(model).set_params(privacy=budget, **settings).expected(n_records)
    return Recommendation(budget, None, n_records, settings, says=" ".join([*says, expected]))


def _like(model, like, n: int, n_features: int | None, needed: bool, public: Mapping[str, Any]) -> Like | str:
    """Records of trials, or why there are none."""
    last = model_of(model)
    try:
        if type(last).to_noise_aware_posterior is ConjugateExponentialModel.to_noise_aware_posterior:
            last.to_noise_aware_posterior()  # says that such fits have no intervals
        if like is not None:
            return Like.of(like)
        return generated(model, n, n_features, np.random.default_rng(0), **public)
    except (NotImplementedError, ValueError) as missing:
        if needed or any(value is not None for value in public.values()):
            raise ValueError(str(missing)) from None
        return str(missing)


def _in_words(plan: PrivacyPlan) -> str:
    batches = f"samples of about {_MOST_RECORDS:,} records, to save time"
    batches = "full batches, which cost no ε" if plan.sampling_rate == 1.0 else batches
    return f"{plan.n_steps} step{'s' * (plan.n_steps > 1)} of {batches}."


class Planner:
    """Plans of one model at one budget after another; arguments are those of :func:`plan_for`."""

    def __init__(
        self,
        model,
        n_records: int | NoisyCount,
        like: Any = None,
        n_features: int | None = None,
        document_length: int = 100,
        purpose: str = "reading",
        needs_widths: bool = True,
        **public: Any,
    ) -> None:
        self.model, self.document_length, self.purpose = model, document_length, purpose
        self.n_records, self.says = _numbers(model, n_records, document_length)
        self.is_pipeline = isinstance(model, PrivatePipeline)
        self.reason, self.trials = "", []
        *sizes, n_fits = _OF_TRIAL[model_of(model).needs_labels]
        if model_of(model).small_trials:  # the second trials have more records, if the first have no intervals
            sizes = [sizes[0], *(sizes[1:] if self.n_records > sizes[0] else [])]
        else:
            sizes = [min(self.n_records, _MOST_RECORDS)]
        records = _like(model, like, max(_GENERATED, *sizes), n_features, needs_widths, public)
        self.assumed = "" if like is not None else assumptions(model, public.get("guess"), public.get("outcome"))
        if isinstance(records, str):
            self.reason = records
        else:
            self.trials = [Trials(model, records, self.n_records, n, n_fits) for n in sizes]

    def at(self, budget: PrivacyBudget, width: Mapping[str, float] | None = None) -> Recommendation:
        """What to expect of a budget, of these widths first."""
        law = self._law(budget)
        if law is not None and width is not None:
            check_widths(width, law)
        return self._recommendation(budget, law, width)

    def needed(self, budget: PrivacyBudget, width: Mapping[str, float]) -> Recommendation:
        """The plan of the least budget that gives these widths, from where the search begins.

        The law near one budget says where to look next, between the largest that is too small and the least that is enough.
        """
        too_small, enough, best = 0.0, np.inf, None
        for _ in range(_ROUNDS):
            law, mu2, excess = self._law(budget), np.nan, np.inf
            if law is not None:
                check_widths(width, law, self.n_records)
                mu2, excess = law.mu2_for(width, self.n_records), law.excess(width, self.n_records, budget.mu2)
            if excess > 1.0 + _NEAR:
                too_small = budget.mu2
            else:
                enough, best = budget.mu2, (budget, law)
                if excess > 1.0 - _NEAR:
                    break
            mu2 = float(np.clip(mu2, budget.mu2 / _STEP, budget.mu2 * _STEP))
            if not too_small < mu2 < enough:
                mu2 = np.sqrt(too_small * enough) if np.isfinite(enough) else budget.mu2 * _STEP
            budget = budget.scaled(mu2 / budget.mu2)
        if best is None:
            raise ValueError(self.reason or f"No ε up to {budget.epsilon:.3g} gives this width.")
        return self._recommendation(*best, width)

    def _plan(self, budget: PrivacyBudget) -> PrivacyPlan | None:
        """None for a pipeline, which plans itself."""
        if self.is_pipeline:
            return None
        rate = min(1.0, _MOST_RECORDS / self.n_records)
        n_steps = self.model.planned_steps if rate == 1.0 else 40
        return budget.plan(n_steps=n_steps, sampling_rate=None if rate == 1.0 else rate)

    def _law(self, budget: PrivacyBudget) -> Law | None:
        """None if no trial has intervals; then ``reason`` says why."""
        for trials in self.trials:
            try:
                return trials.law(budget, self._plan(budget))
            except NotImplementedError as missing:
                self.reason = f"In trials with generated records no intervals came out. {missing}"
            except ImportError as missing:  # pandas
                self.reason = str(missing)
        return None

    def _recommendation(self, budget: PrivacyBudget, law: Law | None, width: Mapping[str, float] | None):
        plan, settings, signal_to_noise = self._plan(budget), {}, None
        says = [*self.says] + ([] if plan is None else [_in_words(plan)])
        if hasattr(self.model, "advice"):
            advice = _advice(self.model, plan, self.n_records, self.document_length, self.purpose)
            settings, signal_to_noise = {"n_components": advice.n_components}, advice.signal_to_noise
            says.append(str(advice))
        elif law is None:
            says.append(self.reason)
        if law is not None:
            says += [_of_widths(law, self.n_records, budget, width), self.assumed]
        says = " ".join(filter(None, says))
        return Recommendation(budget, plan, self.n_records, settings, signal_to_noise, says, law)


def check_widths(width: Mapping[str, float], law: Law, n_records: int | None = None) -> None:
    """Raise TypeError or ValueError for widths of nothing; for so many records, also for those that no ε gives."""
    if not isinstance(width, Mapping):
        raise TypeError(f"`width` must name what it is the width of, width={{{law.names[0]!r}: 0.01}}; got {width!r}.")
    if unknown := [str(name) for name in width if name not in law.names]:
        raise ValueError(f"`width` names {', '.join(unknown)}; there are: {', '.join(law.names)}.")
    for name, limit in width.items():
        check_number(f"width[{name!r}]", limit, 0.0, np.inf, "a positive number", open_low=True, open_high=True)
    if n_records is not None and not np.isfinite(law.mu2_for(width, n_records)):
        n = law.records_for({name: 0.8 * limit for name, limit in width.items()})
        raise ValueError(
            f"No ε gives this width: without noise, too, {n_records:,} records leave more uncertain. About {n:,.0f} "
            "records would do."
        )


def _of_widths(law: Law, n_records: int, budget: PrivacyBudget, width: Mapping[str, float] | None) -> str:
    widths, least = law.widths(n_records, budget.mu2), law.widths(n_records, np.inf)
    shown = width or law.names[:3]
    listed = ", ".join(f"{name} {widths[law.names.index(name)]:.2g}" for name in shown)
    ratio = np.median(widths / np.maximum(least, 1e-300))
    return (
        f"At ε = {budget.epsilon:.2g}, 95 % intervals are about this wide: {listed}; {ratio:.1f} times as wide as without "
        f"noise. The fit takes about {max(law.seconds * n_records, 1.0):,.0f} s on this machine."
    )
