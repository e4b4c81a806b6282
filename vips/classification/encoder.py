"""Tables of classes by values as an encoder: a row's features are the log odds of its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from vips._support.arguments import arguments
from vips._support.fitted import all_or_nothing, forget_fit
from vips._support.printable import listed
from vips.classification.log_odds import log_odds_of_tables, scale_of_rows
from vips.classification.tables import ClassTable, ColumnCells, as_frame, class_counts, columns_stated, release_table
from vips.core.budget import PrivacyBudget
from vips.core.ledger.ledger import PrivacyLedger, charged, ledger_to_charge
from vips.core.plan import PrivacyPlan
from vips.data._cell_values import as_numbers, refuse_unread
from vips.data._columns import as_table, column, columns_of, is_frame, names_of, warn_of_undeclared
from vips.models import BayesianLogisticRegression
from vips.persistence.settings import decode, encode
from vips.preprocessing import _encoder as shared
from vips.preprocessing._encoder import SavableEncoder, checked_plan
from vips.preprocessing._grids import DAYS, NUMBERS
from vips.preprocessing._learnt_columns import Counting, Persons
from vips.report.report import PrivacyReport

__all__ = ["ClassTables", "places_of_labels"]

_MOST_CELLS = max(NUMBERS.n_cells, DAYS.n_cells)


@arguments
class ClassTables(TransformerMixin, SavableEncoder, BaseEstimator):
    """Counts of every class by the values of every column, in one release; features are log odds that follow from them.

    Parameters
    ----------
    columns, classes
        See :class:`PrivateClassifier`.
    privacy : PrivacyBudget, PrivacyPlan or None
        Of the release. A plan is one step of full batches. None: exact counts.
    threshold_delta : float or None
        Beside a plan, where categories are learnt; see :class:`TableEncoder`.

    Attributes
    ----------
    class_counts_, tables_, log_odds_, privacy_, n_features_in_, feature_names_in_
        See :class:`PrivateClassifier`.

    Notes
    -----
    *Guarantees.*

    - Everything is charged before a value is read. No value causes an error or a warning.
    - A record moves all tables together by norm √(number of columns + 1) at most.
    - Row i of ``transform`` depends on row i and released values only.
    """

    columns: Mapping | Sequence | None = field(default=None, kw_only=False)
    privacy: PrivacyBudget | PrivacyPlan | None = None
    threshold_delta: float | None = None
    classes: Sequence | None = None

    unit = "one row of X with its label"
    learns = ()

    # -- fit ------------------------------------------------------------------------------------------------------

    @all_or_nothing
    def fit(self, X, y, *, ledger: PrivacyLedger | None = None, groups: object = None) -> Self:
        """Release the tables; arguments and errors as in :meth:`PrivateClassifier.fit`."""
        forget_fit(self)
        X = as_frame(X)
        stated = columns_stated(self.columns, X)
        sent = getattr(self.privacy, "sent_from", None)
        ledger = None if self.privacy is None else ledger_to_charge(ledger, sent, plan=self.privacy)
        plan, delta = None, 0.0
        if self.privacy is not None:
            plan = checked_plan(self.privacy, len(stated) + 1)
            delta = shared.checked_delta(self.threshold_delta, stated, self.privacy, ledger)
        validate_data(self, X, skip_check_array=True)  # number and names of columns
        warn_of_undeclared(X, self.columns, names_of(y, groups))
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        place, n_classes = places_of_labels(y, X.shape[0], self.classes, self.privacy)
        numbers, unit = shared.persons_of(groups, X.shape[0], plan, self.unit)
        what = f"{type(self).__name__}: tables of {len(stated)} columns"
        statement = {} if plan is None else {"relation": plan.relation, "event": plan, "delta": delta}
        for name, cells in stated.items() if plan is None else ():
            if (kind := cells if isinstance(cells, str) else cells.kind) != "category":
                refuse_unread(name, column(X, name), ~np.isnan(as_numbers(column(X, name), kind)), f"no {kind}")
        with charged(ledger, what, unit, **statement) as run:
            counting = Counting.of(Persons(numbers), plan, delta, stated.values(), run.release_once)
            rows = np.zeros(len(place), dtype=np.int64)
            counts = class_counts(rows, 1, place, n_classes, counting.persons)
            self.class_counts_ = counting.with_noise(counts)[:, 0]
            self.tables_ = {
                name: release_table(column(X, name), cells, place, n_classes, counting)
                for name, cells in stated.items()
            }
        self.log_odds_ = log_odds_of_tables(self.tables_, self.class_counts_, self.table_std)
        if plan is not None:
            self.privacy_ = self._statement(plan, delta, unit, run.entry)
        return self

    def _statement(self, plan: PrivacyPlan, delta: float, unit: str, entry: dict | None) -> PrivacyReport:
        names = listed([str(name) for name in self.tables_])
        released = (
            "numbers of records of each class",
            f"numbers of each class by cells of {len(self.tables_)} columns ({names})",
            *(("their frequent categories",) if delta else ()),
        )
        mechanism = shared.counted_cells(plan, delta, "all columns by the classes")
        return shared.report_of_encoder(self, plan, delta, unit, released, self.declared_public, mechanism, entry)

    def learns_columns(self, X) -> bool:
        """Tables are always released; raises what ``fit`` would raise because of X."""
        columns_stated(self.columns, as_frame(X))
        return True

    def has_threshold(self, X) -> bool:
        """Whether categories are to be learnt, a public fact; raises what ``fit`` would raise because of X."""
        return "category" in columns_stated(self.columns, as_frame(X)).values()

    # -- after fit ------------------------------------------------------------------------------------------------

    @property
    def supplies(self) -> Mapping[str, float]:
        """Arguments of a model that the encoder supplies if they are None: the norm of most rows."""
        return MappingProxyType({} if self.privacy is None else {"max_norm": self.max_norm})

    max_norm = 1.0

    @property
    def table_std(self) -> float:
        """Standard deviation of the noise on every count."""
        return 0.0 if self.privacy is None else checked_plan(self.privacy, len(self.tables_) + 1).noise_std()

    @property
    def declared_public(self) -> tuple[str, ...]:
        """Declared bounds and categories, in words."""
        declared = {} if self.columns is None else self.columns
        named = declared if isinstance(declared, Mapping) else dict(zip(self.tables_, declared, strict=True))
        return tuple(
            f"{name}: {_in_words(table.cells)}"
            for name, table in self.tables_.items()
            if not isinstance(named.get(name, ""), str)
        )

    @property
    def n_features_out(self) -> int:
        """Number of features: one for each column, and for each class of more than two."""
        return sum(len(of_outputs) for of_outputs in self.log_odds_.values())

    def transform(self, X) -> np.ndarray:
        """Features from each row alone: the log odds of its cells, each plus their average over the columns.

        Other columns of a frame than those that a mapping declares are ignored.

        Stretched like this, the regression's prior expects about equal weights, as in naive Bayes, unless there is evidence of
        others.

        Returns
        -------
        ndarray of shape (n_rows, n_features_out)
        """
        check_is_fitted(self, "log_odds_")
        X = as_table(X)
        is_by_name = is_frame(X) and isinstance(self.columns, Mapping)
        X = as_frame(X)
        if not is_by_name:
            validate_data(self, X, skip_check_array=True, reset=False)
        columns_of(X, self.tables_)
        cells = {name: table.cells.codes(column(X, name)) for name, table in self.tables_.items()}
        # (n_outputs, n_rows, n_columns)
        by_output = np.stack([self.log_odds_[name][:, codes] for name, codes in cells.items()], axis=-1)
        by_output += by_output.mean(axis=-1, keepdims=True)
        return scale_of_rows(self.tables_, self.log_odds_) * np.hstack(list(by_output))

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> np.ndarray:
        """Names of the columns, with the place of the class behind them where there are more than two; shape (n_features,)."""
        check_is_fitted(self, "log_odds_")
        n_outputs = self.n_features_out // len(self.log_odds_)
        names = [f"{name}_{k}" if n_outputs > 1 else str(name) for k in range(n_outputs) for name in self.log_odds_]
        return np.array(names, dtype=object)

    # -- files ----------------------------------------------------------------------------------------------------

    def learnt_to_json(self) -> dict:
        cells = [[encode(name), encode([*vars(table.cells).values()])] for name, table in self.tables_.items()]
        counts = [encode(table.counts) for table in self.tables_.values()]
        class_counts, names = encode(self.class_counts_), shared.names_to_json(self)
        return {"tables": cells, "counts": counts, "class_counts": class_counts, **names}

    def restore_fit(self, values: dict) -> None:
        self.class_counts_ = _counts(values["class_counts"], 1)
        self.tables_ = {
            decode(name): ClassTable(ColumnCells(*decode(cells)), _counts(counts, 2))
            for (name, cells), counts in zip(values["tables"], values["counts"], strict=True)
        }
        for table in self.tables_.values():
            if table.cells.kind != "category" and table.cells.n_cells > _MOST_CELLS:
                raise ValueError("its tables have more cells than any column of numbers")
            if table.counts.shape != (len(self.class_counts_), table.cells.n_cells + 1):
                raise ValueError("its tables have other shapes than their cells")
        shared.restore_names(self, values)
        self.log_odds_ = log_odds_of_tables(self.tables_, self.class_counts_, self.table_std)
        if self.privacy is not None:
            plan = checked_plan(self.privacy, len(self.tables_) + 1)
            learnt = {None: "category"} if PrivacyReport.from_json(values["report"]).releases[0].threshold_delta else {}
            delta = shared.checked_delta(self.threshold_delta, learnt, self.privacy, None)
            facts = shared.saved_facts(values["report"], plan, delta, of_budget=self.threshold_delta is None)
            self.privacy_ = self._statement(plan, *facts)
        elif "report" in values:
            raise ValueError("its statement is not that of its settings")


def places_of_labels(y, n_rows: int, classes: Sequence | None, privacy: object) -> tuple[np.ndarray, int]:
    """Place of each row's class, n_classes for a label that is none; and n_classes. Under a plan, raises from public facts."""
    plan = privacy if isinstance(privacy, PrivacyPlan) else None
    model = BayesianLogisticRegression(privacy=plan, max_norm=plan and 1.0, classes=classes)
    model.check_arguments()
    labels = model.records_of(np.zeros((n_rows, 1)), y).arrays[1]  # whose classes are known from here on
    place, is_known = model.likelihood.places(labels)
    n_classes = len(model.likelihood.labels)
    return np.where(is_known, place, n_classes), n_classes


def _counts(values: object, n_dimensions: int) -> np.ndarray:
    """An array of numbers in a file."""
    counts = decode(values)
    if not isinstance(counts, np.ndarray) or counts.ndim != n_dimensions or counts.dtype.kind != "f":
        raise ValueError("its tables are no numbers")
    return counts


def _in_words(cells: ColumnCells) -> str:
    if cells.kind == "category":
        return f"categories {listed([str(category) for category in cells.categories])}"
    return f"[{cells.edges[0]:g}, {cells.edges[-1]:g}]"
