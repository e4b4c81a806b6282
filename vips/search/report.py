"""The privacy report of a search: one release, whose cost is that of all trials."""

from __future__ import annotations

from vips.privacy import PrivacyPlan, PrivacyReport, Release, words
from vips.privacy.selection import Selection

__all__ = ["report_of_search"]

_NOT_COVERED = (
    "how long the search takes, what memory it uses, and what counters of its process show (of caches, say): all grow with the "
    "number of trials, which is secret",
    "what a score or a model of your own keeps, writes or sends",
    "candidates that were chosen by looking at these records",
)


def report_of_search(
    selection: Selection,
    plan: PrivacyPlan,
    fit: PrivacyReport | None,
    unit: str,
    ledger: dict | None,
    n_candidates: int,
    score: tuple[str, tuple[float, float], float],
) -> PrivacyReport:
    """The report of the search, and of the fit that it chose: a fit that was chosen has no other guarantee.

    Parameters
    ----------
    selection : Selection
        The law of the number of trials, and the plans of a trial.
    plan : PrivacyPlan
        Of the noisy score.
    fit : PrivacyReport or None
        Of the chosen fit, which is one trial; None if all failed.
    unit : str
    ledger : dict or None
        The ledger's entry of the charge.
    n_candidates : int
    score : (str, (float, float), float)
        Name of the score, the range to which that of each person is clipped, and the probability that a person is held out.
    """
    trials, (name, (low, high), held_out) = selection.trials, score
    mechanism = (
        f"a secret number of trials ({trials.mean:g} on average, truncated negative binomial of shape {trials.shape:g}). Each "
        f"fits one of {n_candidates} candidates, drawn at random, to the records that are not held out, and adds noise to the "
        f"sum of {name!r} over those that are (each with probability {held_out:g}), clipped to a range from {low:.4g} to "
        f"{high:.4g} per person"
    )
    found = {"released": ("that no trial succeeded",), "plan": plan}
    if fit is not None:
        of_fit = fit.releases[-1]
        found = {name: getattr(of_fit, name) for name in ("plan", "released", "declared", "on_invalid", "sha256")}
        mechanism += f". The fit of the best trial: {words.steps(of_fit.plan)}"
    release = Release(what="search", mechanism=mechanism, selection=selection, ledger=ledger, **found)
    return PrivacyReport(
        (release,),
        unit,
        only_noise=fit is not None and fit.only_noise,
        tuning=f"chosen among {n_candidates} candidates by vips.PrivateSearch; ε counts all trials",
        also_not_covered=_NOT_COVERED,
    )
