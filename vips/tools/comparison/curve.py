"""Scores of a model at several ε, with repeated fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone

from vips._pages.tables import html_table
from vips._support.extras import imported
from vips._support.printable import PLAIN_TEXT, printable
from vips.core.contract import stated_plan
from vips.core.ledger.ledger import current_ledger
from vips.core.plan import PrivacyPlan
from vips.model import ConjugateExponentialModel
from vips.report.report import PrivacyReport

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["UtilityCurve", "privacy_utility_curve"]

PUBLIC = "public test data, private fits"
PRIVATE = "PRIVATE: computed without noise, not to be released"
NO_GUARANTEE = "PRIVATE: fits without a guarantee, not to be released"


@dataclass(frozen=True)
class UtilityCurve:
    """Scores of fits at several ε.

    Parameters
    ----------
    epsilons : tuple of float
    delta : float
    scores : ndarray of shape (n_epsilons, n_repeats)
    baseline : ndarray of shape (n_repeats,) or None
        Scores of non-private fits; None unless scores are private.
    source : str
        Source of the scores, which decides whether they may be shown.
    reports : tuple of PrivacyReport
        Privacy statements of all fits, in the order of their scores, those without noise last; empty in a curve made by hand.
    """

    epsilons: tuple[float, ...]
    delta: float
    scores: np.ndarray
    baseline: np.ndarray | None
    source: str
    reports: tuple[PrivacyReport, ...] = ()

    def __str__(self) -> str:
        lines = [f"  {name:<12} {scores}" for name, scores in self._rows()]
        return "\n".join([f"Scores at δ = {self.delta:g} ({printable(self.source)})", *lines])

    def _repr_html_(self) -> str:
        """For notebooks."""
        return html_table(f"Scores at δ = {self.delta:g} ({self.source})", ("", "mean (range)"), self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        """The fits at each ε, and those without noise, with mean and range of their scores."""
        rows = [(f"ε = {epsilon:g}", _spread(row)) for epsilon, row in zip(self.epsilons, self.scores, strict=True)]
        return rows if self.baseline is None else [*rows, ("not private", _spread(self.baseline))]

    def to_frame(self) -> pd.DataFrame:
        """One row for each fit: ``epsilon`` (inf for a non-private fit), ``repeat``, ``score``, ``source``; needs pandas."""
        pd = imported("pandas", "to_frame()")
        rows = dict(zip(self.epsilons, self.scores, strict=True))
        rows |= {} if self.baseline is None else {np.inf: self.baseline}
        records = [
            {"epsilon": epsilon, "repeat": repeat, "score": float(score), "source": self.source}
            for epsilon, scores in rows.items()
            for repeat, score in enumerate(scores)
        ]
        return pd.DataFrame(records)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Means and ranges against ε, with the non-private line if there is one; needs matplotlib. Returns the axes."""
        plt = imported("matplotlib.pyplot", "plot()")
        axes = plt.subplots(layout="constrained")[1] if axes is None else axes
        mean = self.scores.mean(axis=1)
        spread = np.abs(np.stack([self.scores.min(axis=1), self.scores.max(axis=1)]) - mean)
        axes.errorbar(self.epsilons, mean, spread, marker="o", capsize=3, label="private, mean and range")
        if self.baseline is not None:
            axes.axhline(self.baseline.mean(), color=plt.rcParams["text.color"], linestyle=":", label="not private")
        axes.set(xscale="log", xlabel=f"ε (δ = {self.delta:g})", ylabel="score")
        axes.set_title(self.source, **PLAIN_TEXT)
        axes.legend()
        return axes


def privacy_utility_curve(
    model: ConjugateExponentialModel,
    X,
    epsilons: Sequence[float],
    y=None,
    *,
    delta: float,
    X_public_test=None,
    y_public_test=None,
    n_repeats: int = 3,
    score: Callable | None = None,
    scores_are_private: bool = False,
    n_jobs: int | None = None,
) -> UtilityCurve:
    """Fit clones of a model at several ε and score them.

    Every fit is a separate release: together they cost far more than the largest ε. A ledger that is open around the call
    (``with ledger:``) is charged for each fit.

    Parameters
    ----------
    model : ConjugateExponentialModel
        With a private plan. All its settings but the noise are kept.
    X, y : array or CSR matrix, array
        Private records.
    epsilons : sequence of float
    delta : float
    X_public_test, y_public_test : optional
        Public records to score on.
    n_repeats : int
        Number of fits at each ε, each with independent noise.
    score : callable, optional
        ``score(model, X, y)``; by default ``model.score``.
    scores_are_private : bool
        Score on the private records if there are no public ones, and add non-private fits. Both release results that depend on
        the records without noise: such a curve is only for people who may see the records, and says so wherever it is shown.
    n_jobs : int, optional
        Number of processes, as in joblib.

    Returns
    -------
    UtilityCurve

    Raises
    ------
    TypeError, ValueError
        Before any fit: if the model is a pipeline, or its plan not private; if there are no public test data and
        ``scores_are_private`` is False; if it is True and a ledger is open.
    """
    if not isinstance(model, ConjugateExponentialModel):
        raise TypeError(
            f"`model` must be a model with a private plan, got {type(model).__name__}. Fit what learns an encoding, too, once "
            "for each budget: clone(pipeline).set_params(privacy=PrivacyBudget(epsilon, delta)).fit(X, y)."
        )
    if model.privacy is None or not model.is_private:
        raise ValueError(
            "`model` needs a private plan, e.g. privacy=PrivacyPlan(noise_multiplier=1.0, ...); each ε replaces its noise."
        )
    if X_public_test is None and not scores_are_private:
        raise ValueError(
            "Scores on private records are released without noise. Pass public records as `X_public_test`, or state that only "
            "people who may see the records will see the curve: scores_are_private=True."
        )
    if scores_are_private and current_ledger() is not None:
        raise ValueError(
            "A ledger is open, but private scores and non-private fits are releases that no budget can pay for. Call "
            "privacy_utility_curve outside its `with` block."
        )
    if n_repeats < 1 or len(epsilons) < 1:
        raise ValueError("`epsilons` and `n_repeats` must give at least one fit.")
    tested = (X, y) if X_public_test is None else (X_public_test, y_public_test)
    plan = stated_plan(model)
    plans = [plan.with_epsilon(float(epsilon), delta) for epsilon in epsilons]
    if scores_are_private:
        plans.append(PrivacyPlan.non_private(sampling_rate=plan.sampling_rate, n_steps=plan.n_steps))
    jobs = (delayed(_fit_and_score)(model, plan, X, y, tested, score) for plan in plans for _ in range(n_repeats))
    all_scores, reports = zip(*Parallel(n_jobs=n_jobs)(jobs), strict=True)
    scores = np.reshape(all_scores, (len(plans), n_repeats))
    baseline = scores[-1] if scores_are_private else None
    # as ``PrivacyReport.has_guarantee``: seeded noise can be subtracted again, and errors may depend on records
    has_guarantee = plan.has_guarantee and model.on_invalid == "drop"
    source = PRIVATE if scores_are_private else PUBLIC if has_guarantee else NO_GUARANTEE
    epsilons, scores = tuple(float(e) for e in epsilons), scores[: len(epsilons)]
    return UtilityCurve(epsilons, float(delta), scores, baseline, source, reports)


def _fit_and_score(model, plan: PrivacyPlan, X, y, tested, score: Callable | None) -> tuple[float, PrivacyReport]:
    fitted = clone(model)
    fitted.privacy = plan
    fitted.fit(X) if y is None else fitted.fit(X, y)
    test, labels = tested
    if score is not None:
        value = score(fitted, test, labels)
    else:
        value = fitted.score(test) if labels is None else fitted.score(test, labels)
    return float(value), fitted.privacy_


def _spread(scores: np.ndarray) -> str:
    return f"{scores.mean():.4g} ({scores.min():.4g} to {scores.max():.4g})"
