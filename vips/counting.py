"""A noisy number of records, which a budget pays for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from vips._support.validation import check_level
from vips.core.budget import PrivacyBudget, plan_of_one_release
from vips.core.ledger.ledger import PrivacyLedger, charged, ledger_to_charge
from vips.core.ledger.run import LedgerRun
from vips.core.plan import PrivacyPlan
from vips.core.records.groups import check_groups_of_source, check_ids, group_numbers, name_of
from vips.core.records.source import DataSource
from vips.core.records.tables import from_arrow
from vips.core.sums import Block
from vips.core.units import unit_of_group
from vips.data._dask import as_source
from vips.report import words
from vips.report.report import PrivacyReport, Release

__all__ = ["NoisyCount", "count_records"]

_BLOCKS = {"count": Block(())}


@dataclass(frozen=True)
class NoisyCount:
    """A noisy number of records. Everything in it is public.

    Attributes
    ----------
    value : int
        The number of records plus noise, rounded to a whole number; it may be negative.
    std : float
        Standard deviation of the noise.
    privacy : PrivacyReport
        What the count cost, what one record is, and the ledger that counted it.
    """

    value: int
    std: float
    privacy: PrivacyReport

    def at_least(self, level: float = 0.95) -> int:
        """A number that is at most that of the records with probability ``level``, over the noise; at least 1.

        What a plan should count on: with fewer records than planned for, noise hides more than the plan says.
        """
        check_level(level)
        return max(1, math.ceil(self.value - self._reach(level)))

    def interval(self, level: float = 0.95) -> tuple[int, int]:
        """Two numbers between which that of the records is with probability ``level``, over the noise; at least 0."""
        check_level(level)
        reach = self._reach(0.5 + 0.5 * level)
        return max(0, math.ceil(self.value - reach)), max(0, math.floor(self.value + reach))

    def _reach(self, level: float) -> float:
        """The quantile of the noise, and of the rounding to a whole number."""
        return self.std * float(ndtri(level)) + 0.5

    def __str__(self) -> str:
        lower, upper = self.interval()
        delta, ledger = self.privacy.delta, self.privacy.ledger
        cost = "" if delta is None else f" It costs {words.loss(self.privacy.epsilon(), delta)}."
        charge = "" if ledger is None else f" Charged to {ledger['dataset']!r} as run {ledger['run']}."
        return (
            f"{self.value:,} records, with noise of standard deviation {self.std:.3g}; between {lower:,} and {upper:,} with "
            f"probability 95 %. Unit: {self.privacy.unit}.{cost}{charge}"
        )


def count_records(
    X,
    *,
    privacy: PrivacyBudget | PrivacyPlan,
    unit: str = "one record",
    ledger: PrivacyLedger | None = None,
    groups: object = None,
) -> NoisyCount:
    """Buy the number of records: with noise, charged, and for the same unit as a fit.

    ``plan_for(model, n_records=count_records(X, privacy=plan), ...)`` plans a fit without a declared number. ``len(X)`` is
    private: a plan, a report or a choice that depends on it reveals it, and no ε covers that.

    Parameters
    ----------
    X : array, CSR matrix, data frame, list of texts, Dask collection or data source
        What ``fit`` gets. A defective record counts as well.
    privacy : PrivacyBudget or PrivacyPlan
        Of the count alone. A plan is one step of all records, ``sampling="full"``, without ``clip_norm``, because a record
        counts 1; noise has a standard deviation of ``noise_multiplier``.
    unit : str
        What one record is, as the model of the fit calls it ("one document", say). A ledger may insist on a name.
    ledger : PrivacyLedger, optional
        Charged before a record is looked at. None is the ledger whose block encloses the call, if any.
    groups : array, series or list of length n_rows, optional
        Ids of persons: what is counted is persons, each once, whatever the number of their rows. Rows without an id belong to
        nobody. A source that :func:`vips.data.regroup` wrote counts persons without ``groups``.

    Returns
    -------
    NoisyCount

    Raises
    ------
    TypeError, ValueError
        From public facts only: arguments, and the container.
    LedgerError
        If the rest of the budget is too small. Nothing is charged then.

    Guarantees
    ----------
    - A record (with ``groups``, a person) moves the count by at most 1; on the lattice of ``noise="discrete"``, by the same
      whole number of its units.
    - The noise is drawn once, as for the total of a step of a fit.
    - Everything is charged before the records are counted.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import LatentDirichletAllocation, PrivacyBudget, count_records, plan_for
    >>> X = np.zeros((100_000, 5))
    >>> count = count_records(X, privacy=PrivacyBudget(0.05, 1e-6), unit="one document")
    >>> abs(count.value - 100_000) < 1000, round(count.std)
    (True, 70)
    >>> topics = LatentDirichletAllocation(vocabulary=5000)
    >>> plan_for(topics, n_records=count, privacy=PrivacyBudget(0.95, 1e-6)).plan.n_steps
    20
    """
    plan = plan_of_one_release(privacy, "A count", 1.0)
    if plan.max_rows_per_group is not None:
        raise ValueError("A person counts 1: leave `max_rows_per_group` out.")
    if not isinstance(unit, str) or not unit:
        raise ValueError(f"`unit` must say what one record is, got {unit!r}.")
    ledger = ledger_to_charge(ledger, plan.sent_from)
    if "replace_one" in (plan.relation, ledger and ledger.relation):
        raise ValueError(
            "Under replace-one the number of records is public: declare it, plan_for(..., n_records=their number), and nothing "
            "is charged."
        )
    X = from_arrow(X)
    source = as_source(X)
    # a dict has the length of its columns' names
    is_no_table = isinstance(X, str | bytes | Mapping | Set) or getattr(X, "ndim", 1) == 0
    if is_no_table or (source is None and not (hasattr(X, "shape") or hasattr(X, "__len__"))):
        raise TypeError(f"X must be a table, a list of texts or a data source, got {type(X).__name__}.")
    if groups is not None:
        if source is not None:
            check_groups_of_source(source, groups)
        check_ids(groups)
    if groups is not None or (source is not None and source.has_groups):
        unit = unit_of_group((source.group_name if groups is None else name_of(groups)) or "group")
    with charged(ledger, "number of records", unit, event=plan) as run:
        n_records = _number(X if source is None else source, groups)
        noisy, std = _with_noise(n_records, plan, run)
    release = Release(what="count", plan=plan, released=("the number of records",), ledger=run.entry)
    return NoisyCount(round(noisy), std, PrivacyReport((release,), unit))


def _number(X, groups: object) -> int:
    """The exact number of records: private."""
    in_memory = X.shape[0] if hasattr(X, "shape") else None
    n_rows = X.n_records if isinstance(X, DataSource) else len(X) if in_memory is None else in_memory
    return int(n_rows) if groups is None else int(group_numbers(groups, n_rows).max(initial=-1)) + 1  # numbered from 0


def _with_noise(n_records: int, plan: PrivacyPlan, run: LedgerRun) -> tuple[float, float]:
    """The number plus noise, and the standard deviation of the noise. On a lattice, a record counts whole units."""
    lattice, share, counted = plan.lattice(_BLOCKS), np.array(1.0), 1.0
    if lattice is not None:
        share = lattice.rounded(share, _BLOCKS["count"])
        counted = float(lattice.values(share, _BLOCKS["count"]))
    noisy = run.release_once(plan, {"count": n_records * share})["count"]
    return float(noisy) / counted, plan.noise_std() / counted
