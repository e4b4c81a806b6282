"""A noisy number of records, which a budget pays for."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from vips._validation import check_level, check_number
from vips.data import DataSource, as_source
from vips.data._groups import check_groups_of_source, check_ids, group_numbers, name_of
from vips.data._tables import from_arrow
from vips.privacy.ledger.charge import charged, ledger_to_charge
from vips.privacy.ledger.ledger import PrivacyLedger
from vips.privacy.mechanism.geometric import geometric_noise, std_of_noise, tail_of_noise
from vips.privacy.units import unit_of_group

__all__ = ["NoisyCount", "count_records"]


@dataclass(frozen=True)
class NoisyCount:
    """A noisy number of records. Everything in it is public.

    Attributes
    ----------
    value : int
        The number of records plus noise; it may be negative.
    std : float
        Standard deviation of the noise.
    epsilon : float
        The count is ``epsilon``-differentially private when a record is added or removed; δ is 0.
    unit : str
        What one record is.
    ledger : dict or None
        Name of the data set and of the run, if a ledger counted it.
    """

    value: int
    std: float
    epsilon: float
    unit: str
    ledger: dict | None = None

    def at_least(self, level: float = 0.95) -> int:
        """A number that is at most that of the records with probability ``level``, over the noise; at least 1.

        What a plan should count on: with fewer records than planned for, noise hides more than the plan says.
        """
        check_level(level)
        return max(1, self.value - tail_of_noise(self.epsilon, 1.0 - level))

    def __str__(self) -> str:
        charge = "" if self.ledger is None else f" Charged to {self.ledger['dataset']!r} as run {self.ledger['run']}."
        return (
            f"{self.value:,} records, with noise of standard deviation {self.std:.3g}; at least {self.at_least():,} with "
            f"probability 95 %. Unit: {self.unit}. Guarantee: differential privacy with ε = {self.epsilon:.4g} and δ = 0 when "
            f"a record is added or removed, by two-sided geometric noise.{charge}"
        )


def count_records(
    X,
    *,
    epsilon: float,
    unit: str = "one record",
    ledger: PrivacyLedger | None = None,
    groups: object = None,
) -> NoisyCount:
    """Buy the number of records: with noise, charged, and for the same unit as a fit.

    ``plan_for(model, n_records=count_records(X, epsilon=0.05), ...)`` plans a fit without a declared number. ``len(X)`` is
    private: a plan, a report or a choice that depends on it reveals it, and no ε covers that.

    Parameters
    ----------
    X : array, CSR matrix, data frame, list of texts, Dask collection or data source
        What ``fit`` gets. A defective record counts as well.
    epsilon : float
        Of the count alone. Noise has a standard deviation of about √2/ε: 28 records for 0.05.
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
    - A record (with ``groups``, a person) moves the count by at most 1. The noise is sampled exactly, afresh in every call,
      from random bits of the operating system: pure ε-differential privacy.
    - Everything is charged before the records are counted.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import LatentDirichletAllocation, count_records, plan_for
    >>> X = np.zeros((100_000, 5))
    >>> count = count_records(X, epsilon=0.05, unit="one document")
    >>> abs(count.value - 100_000) < 1000, round(count.std)
    (True, 28)
    >>> plan_for(LatentDirichletAllocation(vocabulary=5000), n_records=count, epsilon=0.95, delta=1e-6).plan.n_steps
    20
    """
    check_number("epsilon", epsilon, 1e-9, 1e3, "between 1e-9 and 1000")
    if not isinstance(unit, str) or not unit:
        raise ValueError(f"`unit` must say what one record is, got {unit!r}.")
    ledger = ledger_to_charge(ledger)
    if ledger is not None and ledger.relation == "replace_one":
        raise ValueError(
            f"The ledger of {ledger.dataset!r} counts under replace-one, where the number of records is public: declare it, "
            "plan_for(..., n_records=their number), and nothing is charged."
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
    with charged(ledger, "number of records", unit, epsilon=float(epsilon)) as charge:
        n_records = _number(X if source is None else source, groups)
        charge.release()
        noisy = n_records + geometric_noise(float(epsilon))
    return NoisyCount(noisy, std_of_noise(float(epsilon)), float(epsilon), unit, charge.entry)


def _number(X, groups: object) -> int:
    """The exact number of records: private."""
    in_memory = X.shape[0] if hasattr(X, "shape") else None
    n_rows = X.n_records if isinstance(X, DataSource) else len(X) if in_memory is None else in_memory
    return int(n_rows) if groups is None else int(group_numbers(groups, n_rows).max(initial=-1)) + 1  # numbered from 0
