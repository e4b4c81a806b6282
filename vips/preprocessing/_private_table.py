"""Encodes a table whose bounds and categories are learnt privately.

A record's vector holds, for every learnt column, the cell of its value: norm 1 a column, √k for k columns. All counts
together are one release of a Gaussian mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from vips._fitted import forget_fit
from vips.data._columns import column, columns_of, is_frame
from vips.data._tables import from_arrow
from vips.persistence.settings import decode, encode
from vips.preprocessing._encoder_file import SavableEncoder, names_to_json, restore_names
from vips.preprocessing._encoder_report import counted_cells, released_texts, report_of_encoder, saved_facts
from vips.preprocessing._encoder_settings import (
    LEARNT_KINDS,
    check_quantiles,
    checked_delta,
    checked_plan,
    column_kinds,
    declared_as,
    persons_of,
)
from vips.preprocessing._feature_names import distinct, names_of_columns
from vips.preprocessing._histograms import MOST_CATEGORIES, Persons, threshold
from vips.preprocessing._learnt_columns import OTHER, Learnt, learn_column, prepared
from vips.preprocessing._table import TableEncoder, check_columns, features_of, unit_scale
from vips.privacy import PrivacyBudget, PrivacyPlan, PrivacyReport
from vips.privacy.ledger.charge import charged, ledger_to_charge
from vips.privacy.ledger.ledger import PrivacyLedger

__all__ = ["PrivateTableEncoder"]


class PrivateTableEncoder(TransformerMixin, SavableEncoder, BaseEstimator):
    """Features of a data frame; bounds and categories that are not declared are learnt privately.

    Parameters
    ----------
    columns : mapping of str to (low, high), list, "number", "date" or "category"; or None
        A tuple or a list declares a column, as in :class:`TableEncoder`. A word says what to learn: bounds of a number, bounds
        of a date (in days since 1970), or categories. Columns that are not named are left out. None takes all columns, each
        by its dtype; the categories of a boolean column are public.
    privacy : PrivacyBudget or PrivacyPlan
        Of this release. A plan is one step, ``PrivacyPlan(..., sampling="full", n_steps=1)``, with Gaussian noise and without
        ``clip_norm``.
    threshold_delta : float or None
        Beside a plan, where categories are learnt: probability, at most, that any category is released which a single record
        has. It adds to the plan's δ. A budget holds its own.
    quantiles : (float, float)
        Shares of the records at which bounds cut off.
    unit_norm : bool
        Divide every row by the square root of the number of columns.
    sparse_output : bool
        CSR instead of a dense array.

    Attributes
    ----------
    columns_ : dict
        Declared and learnt columns, in the form of :class:`TableEncoder`'s ``columns``. A learnt list of categories ends with
        "(other)", and "(missing)" where missing values are frequent.
    indicators_ : tuple of str
        Numeric columns that have an indicator for missing values, in the order of the last features.
    privacy_ : PrivacyReport
    max_norm : float
        No row has a larger L2 norm: 1 with ``unit_norm``, else the square root of the number of columns. Public.
    n_features_out : int
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Privacy
    -------
    Unit: one row of X; with ``groups``, all rows of one id. Released: noisy counts of a public grid's cells, of missing values,
    and of categories above the threshold; hence ``columns_`` and ``indicators_``. Guarantee: that of the plan, with
    ``threshold_delta`` added to δ; docs/guarantee.md has the proof. Public: names and dtypes of columns, ``columns``, and
    the other arguments. Not covered: choosing these by looking at the records; ``transform`` of the fitted records, whose
    rows are private.

    Guarantees
    ----------
    - Everything is charged to the ledger before a value is read. No value causes an error or a warning.
    - Row i of ``transform`` depends on row i and released values only. Its norm is at most ``max_norm``, in exact
      arithmetic; it has no NaN.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from vips import PrivacyBudget
    >>> from vips.preprocessing import PrivateTableEncoder
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"income": rng.lognormal(8.0, 0.3, 20_000), "town": rng.choice(["A", "B"], 20_000)})
    >>> encoder = PrivateTableEncoder(privacy=PrivacyBudget(0.2, 1e-7)).fit(table)
    >>> encoder.columns_["town"]
    ['A', 'B', '(other)']
    >>> low, high = encoder.columns_["income"]
    >>> low < 2_000 and 5_000 < high < 9_000
    True
    """

    unit = "one row of X"
    # Arguments of a model that the encoder supplies if they are None, with values for checks before the fit.
    supplies = MappingProxyType({"max_norm": 1.0})
    learns = ()

    def __init__(
        self,
        columns: Mapping | None = None,
        *,
        privacy: PrivacyBudget | PrivacyPlan | None = None,
        threshold_delta: float | None = None,
        quantiles: tuple[float, float] = (0.005, 0.995),
        unit_norm: bool = True,
        sparse_output: bool = False,
    ) -> None:
        self.columns = columns
        self.privacy = privacy
        self.threshold_delta = threshold_delta
        self.quantiles = quantiles
        self.unit_norm = unit_norm
        self.sparse_output = sparse_output

    # -- fit ------------------------------------------------------------------------------------------------------

    def fit(self, X, y=None, *, ledger: PrivacyLedger | None = None, groups: object = None) -> Self:
        """Learn the columns that are not declared, in one release.

        Parameters
        ----------
        X : data frame of shape (n_rows, n_columns)
        y : ignored
        ledger : PrivacyLedger, optional
            Charged before a value is read. None is the ledger whose block encloses the call, if any.
        groups : array, series or list of length n_rows, optional
            Ids of persons: all rows with one id are then one record. Rows without an id are left out.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            From public facts only: arguments, container, names and dtypes of columns.
        LedgerError
            If the rest of the budget is too small. Nothing is charged then.
        """
        forget_fit(self)
        X = from_arrow(X)
        kinds = column_kinds(self.columns, X)
        learnt_kinds = {name: kind for name, kind in kinds.items() if kind in LEARNT_KINDS}
        plan = checked_plan(self.privacy, len(learnt_kinds))
        ledger = ledger_to_charge(ledger, plan.sent_from)
        delta = checked_delta(self.threshold_delta, learnt_kinds, self.privacy, ledger)
        check_quantiles(self.quantiles)
        validate_data(self, X, skip_check_array=True)  # number and names of columns
        numbers, unit = persons_of(groups, X.shape[0], plan, self.unit)
        persons = Persons(numbers, plan.max_rows_per_group)
        entry, learnt = self._learnt(X, learnt_kinds, plan, delta, ledger, persons, groups is not None, unit)
        declared = {
            name: declared_as(self.columns, name) for name, kind in kinds.items() if kind in ("declared", "missing")
        }
        self.columns_ = {name: learnt[name].declared if name in learnt else declared[name] for name in kinds}
        self.indicators_ = tuple(name for name, learnt_column in learnt.items() if learnt_column.has_missing)
        self._kinds = kinds
        self.privacy_ = self._statement(plan, delta, unit, entry)
        return self

    def _statement(self, plan: PrivacyPlan, delta: float, unit: str, entry: dict | None) -> PrivacyReport:
        """What was released and what was declared follows from the settings and the kinds of columns."""
        learnt = {name: kind for name, kind in self._kinds.items() if kind in LEARNT_KINDS}
        declared = {
            name: declared_as(self.columns, name)
            for name, kind in self._kinds.items()
            if kind in ("declared", "missing")
        }
        public = TableEncoder(declared).declared_public if declared else ()
        facts = released_texts(learnt), public, counted_cells(plan, delta), entry
        return report_of_encoder(self, plan, delta, unit, *facts)

    def _learnt(
        self, X, kinds, plan, delta, ledger, persons, of_persons, unit
    ) -> tuple[dict | None, dict[object, Learnt]]:
        """Charge, count, add noise; then everything is computed from noisy counts."""
        most = min(MOST_CATEGORIES, plan.max_rows_per_group or MOST_CATEGORIES) if of_persons else 1
        n_categories = sum(kind == "category" for kind in kinds.values())
        std = plan.noise_std()
        cut = threshold(delta, std, most * n_categories) if n_categories else math.inf

        def with_noise(totals: np.ndarray) -> np.ndarray:
            return run.release_once(plan, {"counts": totals})["counts"]

        what = f"{type(self).__name__}: bounds and categories of {len(kinds)} columns"
        with charged(ledger, what, unit, plan.relation, event=plan, delta=delta) as run:
            released = {
                name: learn_column(
                    column(X, name), kind, persons, with_noise, std, cut=cut, most=most if of_persons else None,
                    quantiles=self.quantiles, n_columns=len(kinds),
                    declared=self.columns[name] if kind == "missing" else None,
                )
                for name, kind in kinds.items()
            }  # fmt: skip
        return run.entry, {name: learnt() for name, learnt in released.items()}

    def has_threshold(self, X) -> bool:
        """Whether categories are to be learnt, a public fact; raises what ``fit`` would raise because of X."""
        return "category" in column_kinds(self.columns, X).values()

    # -- after fit ------------------------------------------------------------------------------------------------

    def transform(self, X) -> np.ndarray | sp.csr_array:
        """Features of each row, from that row and released values alone.

        Parameters
        ----------
        X : data frame of shape (n_rows, n_columns)
            Other columns than the fitted ones are ignored.

        Returns
        -------
        ndarray or CSR of shape (n_rows, n_features), float64
        """
        check_is_fitted(self, "columns_")
        X = from_arrow(X)
        if not is_frame(X):
            raise TypeError(f"X must be a data frame, got {type(X).__name__}.")
        columns_of(X, self.columns_)
        columns, missing = {}, {}
        for name, kind in self._kinds.items():
            if kind == "declared":
                columns[name] = column(X, name)
                continue
            learnt = Learnt(self.columns_[name], name in self.indicators_)
            columns[name], is_missing = prepared(column(X, name), kind, learnt)
            if is_missing is not None:
                missing["missing", name] = is_missing
        columns |= {key: missing[key] for key in self._indicator_keys()}
        frame, prepared_columns = _Frame(columns, X.shape[0]), self._prepared_columns()
        check_columns(prepared_columns, frame)
        features = features_of(prepared_columns, frame, self.sparse_output)
        if self.unit_norm:
            features *= unit_scale(len(self.columns_))
        return features

    @property
    def max_norm(self) -> float:
        """Bound on the L2 norm of every row."""
        check_is_fitted(self, "columns_")
        return 1.0 if self.unit_norm else math.sqrt(len(self.columns_))

    @property
    def n_features_out(self) -> int:
        """Number of features."""
        check_is_fitted(self, "columns_")
        return self._table().n_features_out

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> np.ndarray:
        """Names of numeric columns, ``column_category`` for indicators, ``column_missing`` last; shape (n_features,).

        Where some would be the same, these read ``column='category'`` and ``column is missing``.
        """
        check_is_fitted(self, "columns_")
        categories = [(name, None if isinstance(known, tuple) else known) for name, known in self.columns_.items()]
        return np.array(names_of_columns(categories, self.indicators_), dtype=object)

    def in_column_units(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """As :meth:`TableEncoder.in_column_units`. A missing number stands against the middle of its column's bounds."""
        names, matrix, shift = self._table().in_column_units()
        names[len(names) - len(self.indicators_) :] = [f"{name}: missing" for name in self.indicators_]
        names = distinct(names, names)
        scale = unit_scale(len(self.columns_)) if self.unit_norm else 1.0
        return names, scale * matrix, scale * shift

    def _table(self) -> TableEncoder:
        """The encoder of prepared columns. A number and its indicator have norm 1 together: one of them is 0."""
        return TableEncoder(self._prepared_columns(), unit_norm=False)

    def _prepared_columns(self) -> dict:
        return self.columns_ | {key: [True] for key in self._indicator_keys()}

    def _indicator_keys(self) -> list[tuple[str, object]]:
        return [("missing", name) for name in self.indicators_]

    # -- files ----------------------------------------------------------------------------------------------------

    def learnt_to_json(self) -> dict:
        return {
            "columns": encode(self.columns_),
            "indicators": encode(self.indicators_),
            "kinds": encode(self._kinds),
            **names_to_json(self),
        }

    def restore_fit(self, values: dict) -> None:
        self.columns_, self._kinds = decode(values["columns"]), decode(values["kinds"])
        self.indicators_ = tuple(decode(values["indicators"]))
        restore_names(self, values)
        self._check_restored()
        learnt = {name: kind for name, kind in self._kinds.items() if kind in LEARNT_KINDS}
        plan = checked_plan(self.privacy, len(learnt))
        delta = checked_delta(self.threshold_delta, learnt, self.privacy, None)
        _ = self._table().declared_public  # raises for bounds or categories that are none
        facts = saved_facts(values["report"], plan, delta, of_budget=self.threshold_delta is None)
        self.privacy_ = self._statement(plan, *facts)

    def _check_restored(self) -> None:
        """Raise ValueError unless the columns have the forms that their kinds have."""
        columns, kinds = self.columns_, self._kinds
        is_known = list(kinds) == list(columns) and set(kinds.values()) <= {"declared", *LEARNT_KINDS}
        if not is_known or not all(self._has_form(name) for name in kinds):
            raise ValueError("its columns are not those that an encoder learns")
        if not {kinds.get(name) for name in self.indicators_} <= {*LEARNT_KINDS} - {"category"}:
            raise ValueError("its indicators are of columns that have none")

    def _has_form(self, name) -> bool:
        """Whether a column's bounds or categories are such as its kind has."""
        kind, known = self._kinds[name], self.columns_[name]
        if kind == "declared":
            return repr(known) == repr(declared_as(self.columns, name))
        if kind == "category":
            return isinstance(known, list) and OTHER in known
        return isinstance(known, tuple) and len(known) == 2

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        tags.non_deterministic = True
        return tags


class _Frame:
    """Prepared columns, as :class:`TableEncoder` reads a data frame."""

    def __init__(self, columns: dict, n_rows: int) -> None:
        self._columns, self.columns, self.shape = columns, list(columns), (n_rows, len(columns))
        self.dtypes = [values.dtype for values in columns.values()]

    def __getitem__(self, name):
        return self._columns[name]
