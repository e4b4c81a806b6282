"""One trial: a private fit of a candidate drawn at random, and its noisy score on records that are held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vips._secret_bits import secret_below
from vips.privacy import PrivacyPlan
from vips.privacy.ledger.run import LedgerRun
from vips.search.candidates import Candidate
from vips.search.scores import noisy_score, values_of_persons
from vips.search.split import Split, rows_of

__all__ = ["OneTrial", "fit_prepaid"]


@dataclass(frozen=True, repr=False)
class OneTrial:
    """Called once for each trial, and each time alike: nothing is kept from one to the next.

    Guarantees
    ----------
    A record takes part in the fit or in the score, never in both. Noise of both, and the choice of the candidate, come from
    bits of the operating system that no other trial uses.
    """

    candidates: list[Candidate]
    X: object
    y: object
    split: Split
    score: str | Callable
    score_range: tuple[float, float]
    score_plan: PrivacyPlan

    def __call__(self) -> tuple[float, tuple[object, dict]]:
        candidate = self.candidates[secret_below(len(self.candidates))]
        rows = self.split.fitted
        fitted = fit_prepaid(candidate, rows_of(self.X, rows), rows_of(self.y, rows), self.split.fitted_persons)
        values = values_of_persons(fitted, self.X, self.y, self.split, self.score, self.score_range)
        return noisy_score(values, self.score_range, self.score_plan), (fitted, candidate.settings)


def fit_prepaid(candidate: Candidate, X, y, persons):
    """A fitted copy of the candidate; the charge of the search has paid for it."""
    copy, paid = candidate.with_plan(candidate.plan).model, {"ledger": LedgerRun.prepaid(candidate.plan)}
    return copy.fit(X, y, **paid) if persons is None else copy.fit(X, y, groups=persons, **paid)
