"""``rehearse``: the whole of a private fit on generated records."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from vips._support.pipelines import model_of
from vips._support.validation import check_integer
from vips.core.budget import PrivacyBudget
from vips.core.ledger import PrivacyLedger
from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.model import ConjugateExponentialModel
from vips.preprocessing._private_pipeline import PrivatePipeline
from vips.preprocessing._table import TableEncoder
from vips.report.report import PrivacyReport
from vips.tools.auditing.attack import Attack, attacked_fits, check_attack
from vips.tools.planning.trial import Like, check_outside_of_ledgers, generated

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Rehearsal", "rehearse"]

_DELTA, _ROOM = 1e-6, 1.2  # of a plan in a ledger, whose limits are 0.5 to 5 % tighter


@dataclass(frozen=True)
class Rehearsal:
    """What happened.

    Attributes
    ----------
    fitted : model or pipeline
        Of generated records: every method of it can be tried.
    summary : pandas.DataFrame or None
        ``fitted.summary()``, with the stated effect of each coefficient as "stated", NaN where there is none.
    report : PrivacyReport
        As the private fit will have it.
    epsilon : float
        That the rehearsal's own ledger says was spent.
    seconds : float
    warnings : tuple of str
        Of the fit and of the summary.
    attack : Attack or None
        What an attack on the release reaches, if it was asked for: a text for the certificate of the private fit, too.
    """

    fitted: Any
    summary: pd.DataFrame | None
    report: PrivacyReport
    epsilon: float
    seconds: float
    warnings: tuple[str, ...]
    attack: Attack | None = None

    def __str__(self) -> str:
        says = [
            f"The fit took {self.seconds:.1f} s, and spent ε = {self.epsilon:.3g}: of a rehearsal's ledger, nobody's."
        ]
        if self.summary is not None and "stated" in self.summary:
            table = self.summary.dropna(subset=["stated"])
            held = int(((table["lower"] <= table["stated"]) & (table["stated"] <= table["upper"])).sum())
            says.append(f"{held} of {len(table)} intervals hold the stated effect.")
        return "\n".join([*says, *([] if self.attack is None else [str(self.attack)]), *self.warnings])


def rehearse(
    model: ConjugateExponentialModel | PrivatePipeline,
    *,
    n_records: int,
    like: Any = None,
    effects: Mapping | None = None,
    guess: Mapping | None = None,
    n_features: int | None = None,
    attack: int = 0,
    random_state: RandomStateLike = None,
) -> Rehearsal:
    """Run a private fit on generated records, at no budget: does the code work, what will intervals be, how long will it take?
    What does an attack find?

    Parameters
    ----------
    model : model or PrivatePipeline
        With its ``privacy``. A copy is fitted, charged to a ledger of its own that is then deleted.
    n_records : int
        About how many records there are, or persons: a public number.
    like : records, (X, y) or (X, y, groups), optional
        Records that resemble the private ones; drawn anew until there are ``n_records``. Never the private records.
    effects, guess : mapping, optional
        Of a pipeline whose columns are declared by name: the effects of columns, and what is public about them, as
        :func:`vips.datasets.make_table` takes them.
    n_features : int, optional
        Number of columns, where neither ``like`` nor the model says it.
    attack : int
        Number of further fits to attack, at least 200; 0 for none. 500 take up to a minute for a regression
        (docs/what_epsilon_bounds.md).
    random_state : int, Generator, RandomState or None
        Of the records; noise is as in any private fit.

    Returns
    -------
    Rehearsal

    Raises
    ------
    ValueError
        If records cannot be generated, with what to give; if an attack is asked for, and records are persons of several rows or
        fewer than 400; and all that the private fit would raise.

    Examples
    --------
    >>> from vips import BayesianLogisticRegression, PrivacyBudget, rehearse
    >>> from vips.preprocessing import TableEncoder, make_private_pipeline
    >>> encoder = TableEncoder({"age": (18, 100), "ward": ["A", "B"]})
    >>> visits = make_private_pipeline(encoder, BayesianLogisticRegression(), privacy=PrivacyBudget(1.0, 1e-6))
    >>> rehearsal = rehearse(visits, n_records=10_000, effects={"age": 0.05, "ward": {"B": 0.5}})
    >>> float(rehearsal.summary.loc["age", "stated"])
    0.05
    >>> 0.9 < rehearsal.epsilon <= 1.0
    True
    """
    if not isinstance(model, ConjugateExponentialModel | PrivatePipeline):
        raise TypeError(f"`model` must be a model or a pipeline of vips, got {type(model).__name__}.")
    check_outside_of_ledgers("rehearse")
    if model.privacy is None:
        raise ValueError("A rehearsal is that of a private fit: give the model its `privacy`.")
    if getattr(model, "max_weight", None) is not None or getattr(model.privacy, "max_weight", None) is not None:
        raise ValueError("Fits with weights are not rehearsed: leave `max_weight` out, as if all weights were equal.")
    check_integer("n_records", n_records)
    if like is not None and (effects or guess):
        raise ValueError(
            "Give records, `like`, or what they are to be generated from, `effects` and `guess`; not both."
        )
    rng = as_generator(random_state)
    if like is None:
        records = generated(model, n_records, n_features, rng, effects=effects, guess=guess)
    else:
        records = Like.of(like).drawn(n_records, rng)
    check_attack(attack, records)
    if isinstance(model.privacy, PrivacyBudget):
        limits = model.privacy.epsilon, model.privacy.delta
    else:  # with room for this fit
        delta = getattr(model.privacy, "report_delta", None) or _DELTA
        limits = _ROOM * model.privacy.epsilon(delta), delta
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        path, relation = Path(folder) / "rehearsal.ledger", model.privacy.relation
        ledger = PrivacyLedger(path, *limits, "generated records", relation=relation)
        started = time.perf_counter()
        fitted = records.fit(clone(model), ledger=ledger)
        seconds, spent = time.perf_counter() - started, ledger.spent()
        summary = fitted.summary() if hasattr(fitted, "summary") else None
    # coefficients behind an encoder of tables are those of its columns
    if effects and summary is not None and isinstance(model[0], TableEncoder):
        stated = _stated(model[0].columns, effects)
        summary = summary.assign(stated=[stated.get(name, np.nan) for name in summary.index])
    says = tuple(dict.fromkeys(str(warning.message) for warning in caught))
    attacked = attacked_fits(fitted, records, attack, rng) if attack else None
    return Rehearsal(fitted, summary, model_of(fitted).privacy_, spent, seconds, says, attacked)


def _stated(columns: Mapping, effects: Mapping) -> dict[str, float]:
    """Effects by the names of coefficients; of categories, against the first one of their column."""
    stated = {}
    for column, effect in effects.items():
        if isinstance(effect, Mapping):
            first, *others = columns[column]
            least = effect.get(first, 0.0)
            stated |= {f"{column}: {other} against {first}": effect.get(other, 0.0) - least for other in others}
        else:
            stated[str(column)] = effect
    return stated
