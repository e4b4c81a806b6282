"""A private classifier of tables: tables of classes by values, then logistic regression on their log odds."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from vips._fitted import forget_fit
from vips._printable import listed
from vips.classification.columns import ColumnCells, as_frame, columns_stated
from vips.classification.features import log_odds_of_tables, scale_of_rows
from vips.classification.saved import save_classifier, tables_fingerprint
from vips.classification.tables import budget_of, check_settings, class_counts, release_table
from vips.data._columns import column, columns_of
from vips.data._groups import group_numbers
from vips.models import BayesianLogisticRegression
from vips.preprocessing._budget import Budget
from vips.preprocessing._encoder_report import counted_cells
from vips.preprocessing._encoder_settings import unit_of_persons
from vips.preprocessing._histograms import MOST_CATEGORIES, Persons, threshold
from vips.privacy import PrivacyBudget, PrivacyPlan, PrivacyReport, Release
from vips.privacy.ledger.charge import charged, delta_for_threshold, ledger_to_charge
from vips.privacy.ledger.ledger import PrivacyLedger
from vips.privacy.ledger.origin import RemembersItsLedger
from vips.privacy.ledger.run import LedgerRun

__all__ = ["PrivateClassifier"]


class PrivateClassifier(ClassifierMixin, RemembersItsLedger):
    """Classes of the rows of a table, private as a whole: for predictions, not for coefficients.

    One release counts every class by the values of every column, with noise. From it follows, for each cell of a column, by how
    much the log odds of a class are above or below average there: one feature for each column. Logistic regression on these
    features then weighs the columns against each other. docs/classification.md compares it with other methods.

    Parameters
    ----------
    columns : mapping or list of (low, high), list, "number", "date" or "category"; or None
        By column name, or one entry for each column. A tuple declares bounds, a list declares categories; a word says what to
        learn from the same release: where numbers or dates lie, or which categories are frequent. Columns that a mapping
        does not name are left out. None learns all columns, each by its dtype.
    privacy : PrivacyBudget or None
        Of everything together. None: a fit without noise.
    classes : sequence or None
        As in :class:`BayesianLogisticRegression`: None is 0 and 1 in a private fit.
    n_steps : int
        Steps of the regression, of all records each.
    table_share : float
        Of the budget (the inverse noise variance), for the tables; between 0 and 1, without these.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    class_counts_ : ndarray of shape (n_classes,)
        Noisy numbers of records.
    n_classes_ : int
    table_std_ : float
        Standard deviation of the noise on every count.
    tables_ : dict
        A :class:`ClassTable` of noisy counts for each column.
    log_odds_ : dict
        For each column, log odds less their average in each cell: shape (n_outputs, n_cells + 1), of the second class, or of
        each class of more than two. The last cell is that of missing values.
    model_ : BayesianLogisticRegression
        Of the log odds.
    privacy_ : PrivacyReport
        Of tables and regression together.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Privacy
    -------
    Unit: one row of X with its label; with ``groups``, all rows of one id. Released: ``class_counts_``, ``tables_`` and the
    noisy totals of the regression; everything else follows from these. A table shows the categories that are declared or
    stand above a threshold. Public: names and dtypes of columns, and all arguments. docs/guarantee.md has the proof.

    Guarantees
    ----------
    - Everything is charged to the ledger once, before a value is read. No value causes an error or a warning.
    - A record moves all tables together by norm √(number of columns + 1) at most.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from vips import PrivacyBudget, PrivateClassifier
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"age": rng.integers(18, 90, 5_000), "town": rng.choice(["A", "B"], 5_000)})
    >>> y = (np.abs(table["age"] - 50) + 30 * (table["town"] == "A") > 40).to_numpy()
    >>> columns = {"age": (18, 90), "town": ["A", "B"]}
    >>> model = PrivateClassifier(columns, privacy=PrivacyBudget(1.0, 1e-6)).fit(table, y)
    >>> model.score(table, y) > 0.8
    True
    >>> 0.99 < model.privacy_.epsilon() <= 1.0
    True
    """

    unit = "one row of X with its label"

    def __init__(
        self,
        columns: Mapping | Sequence | None = None,
        *,
        privacy: PrivacyBudget | None = None,
        classes: Sequence | None = None,
        n_steps: int = 10,
        table_share: float = 0.8,
    ) -> None:
        self.columns = columns
        self.privacy = privacy
        self.classes = classes
        self.n_steps = n_steps
        self.table_share = table_share

    # -- fit ------------------------------------------------------------------------------------------------------

    def fit(self, X, y, *, ledger: PrivacyLedger | None = None, groups: object = None) -> Self:
        """Release the tables, then fit the regression.

        Parameters
        ----------
        X : data frame, Arrow table or array of shape (n_rows, n_columns)
        y : array of shape (n_rows,)
        ledger : PrivacyLedger, optional
            Charged once, with everything. None is the ledger whose block encloses the call, if any.
        groups : array, series or list of length n_rows, optional
            Ids of persons: all rows with one id are then one record. Rows without an id are left out.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            From public facts only: arguments, container, names and dtypes of columns.
        PrivacyBudgetError, LedgerError
            If the ledger has no room. Nothing is charged then.
        """
        forget_fit(self)
        check_settings(self)
        X = as_frame(X)
        stated = columns_stated(self.columns, X)
        validate_data(self, X, skip_check_array=True)  # number and names of columns
        budget = budget_of(self, stated)
        norm, plan = (None, None) if budget is None else (1.0, budget.fit)
        model = BayesianLogisticRegression(privacy=plan, max_norm=norm, classes=self.classes)
        ledger = self._ledger(ledger)
        if budget is not None and budget.threshold_delta is not None:
            budget = replace(budget, threshold_delta=delta_for_threshold(budget.threshold_delta, ledger))
        labels, persons = self._checked(model, X, y, groups)
        unit = self.unit if groups is None else unit_of_persons(groups)
        what = f"{type(self).__name__}: tables of {len(stated)} columns, and a regression on them"
        cost = {}
        if budget is not None:
            event = _as_one(budget)
            cost = {"relation": event.relation, "event": event, "delta": budget.threshold_delta or 0.0}
        with charged(ledger, what, unit, **cost) as run:
            self._release(X, labels, stated, budget, persons, groups is not None, run.release_once)
            self.log_odds_ = log_odds_of_tables(self.tables_, self.class_counts_, self.table_std_)
            paid = {} if plan is None else {"ledger": LedgerRun.prepaid(plan)}
            self.model_ = model.fit(self._features(X), y, groups=groups, **paid)
        self.classes_ = self.model_.classes_
        if budget is not None:
            facts = stated, budget, self.model_.privacy_, run.entry, tables_fingerprint(self)
            self.model_.privacy_ = _of_both(*facts)
        return self

    def _ledger(self, ledger: PrivacyLedger | None) -> PrivacyLedger | None:
        ledger = ledger_to_charge(ledger, self.sent_from, getattr(self.privacy, "sent_from", None))
        if ledger is not None and self.privacy is None:
            raise ValueError(
                "This fit adds no noise, so that no budget could pay for it. Write privacy=PrivacyBudget(epsilon, delta); for "
                "public data, fit outside of the ledger."
            )
        return ledger

    def _checked(self, model: BayesianLogisticRegression, X, y, groups) -> tuple[np.ndarray, Persons]:
        """Place of each row's class, n_classes for a label that is none; and the records. Raises what would stop the fit."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        model.check_arguments()
        n_rows = X.shape[0]
        rows = model.records_of(np.zeros((n_rows, 1)), y)
        place, known = model.likelihood.places(rows.arrays[1])
        self.n_classes_ = len(model.likelihood.labels)
        numbers = None if groups is None else group_numbers(groups, n_rows)
        return np.where(known, place, self.n_classes_), Persons(numbers)

    def _release(self, X, place, stated, budget, persons, of_persons: bool, release) -> None:
        """Tables and class counts."""
        n_categories = sum(cells == "category" for cells in stated.values())
        most = MOST_CATEGORIES if of_persons else None
        std, cut, with_noise = 0.0, 0.0, np.asarray
        if budget is not None:
            plan = budget.encoder
            std = plan.noise_std()
            cut = threshold(budget.threshold_delta, std, (most or 1) * n_categories) if n_categories else math.inf

            def with_noise(counts: np.ndarray) -> np.ndarray:
                return release(plan, {"counts": counts})["counts"]

        n_classes, self.table_std_ = self.n_classes_, std
        rows = np.zeros(len(place), dtype=np.int64)
        self.class_counts_ = with_noise(class_counts(rows, 1, place, n_classes, persons))[:, 0]
        self.tables_ = {
            name: release_table(X, name, cells, place, n_classes, persons, with_noise, std, cut, most, len(stated))
            for name, cells in stated.items()
        }

    # -- from released numbers ------------------------------------------------------------------------------------

    def _features(self, X) -> np.ndarray:
        """Features from each row alone: the log odds of its cells, each plus their average over the columns. Stretched like
        this, the regression's prior expects about equal weights, as in naive Bayes, unless there is evidence of others."""
        by_column = [
            self.log_odds_[name][:, table.cells.codes(column(X, name))] for name, table in self.tables_.items()
        ]
        by_output = np.stack(by_column, axis=-1)  # (n_outputs, n_rows, n_columns)
        by_output += by_output.mean(axis=-1, keepdims=True)
        return scale_of_rows(self.tables_, self.log_odds_) * np.hstack(list(by_output))

    @property
    def privacy_(self) -> PrivacyReport:
        """The report of tables and regression together."""
        check_is_fitted(self, "model_")
        return self.model_.privacy_

    # -- after fit ------------------------------------------------------------------------------------------------

    def features(self, X) -> np.ndarray:
        """What the regression sees of each row: shape (n_rows, n_outputs · n_columns)."""
        check_is_fitted(self, "model_")
        X = as_frame(X)
        validate_data(self, X, skip_check_array=True, reset=False)
        columns_of(X, self.tables_)
        return self._features(X)

    def score(self, X, y, sample_weight=None) -> float:
        """Share of rows whose class :meth:`predict` gives."""
        return super().score(X, y, sample_weight)

    def predict_proba(self, X) -> np.ndarray:
        """Probabilities of the classes, shape (n_rows, n_classes); rows sum to 1."""
        features = self.features(X)
        return self.model_.predict_proba(features)

    def predict_log_proba(self, X) -> np.ndarray:
        """Logarithm of :meth:`predict_proba`."""
        return np.log(self.predict_proba(X))

    def decision_function(self, X) -> np.ndarray:
        """Log odds of the second class, shape (n_rows,); log probabilities of more than two classes."""
        features = self.features(X)
        return self.model_.decision_function(features)

    def predict(self, X) -> np.ndarray:
        """The most probable class of each row."""
        features = self.features(X)
        return self.model_.predict(features)

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted classifier to a file of arrays and JSON, without pickle; ``vips.load`` reads it."""
        check_is_fitted(self, "model_")
        save_classifier(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        tags.non_deterministic = self.privacy is not None
        return tags


def _as_one(budget: Budget) -> PrivacyPlan:
    """Tables and regression as one release of a Gaussian mechanism: 1/σ² adds up."""
    inverse = sum(plan.n_steps / plan.noise_multiplier**2 for plan in (budget.encoder, budget.fit))
    return replace(budget.encoder, noise_multiplier=1.0 / math.sqrt(inverse), clip_norm=None)


def _of_both(
    stated: Mapping[object, ColumnCells | str], budget: Budget, report: PrivacyReport, entry: dict | None, sha256: str
) -> PrivacyReport:
    """The report of tables and regression, which one charge has paid for.

    Parameters
    ----------
    stated : mapping
        Cells of declared columns, or what to learn.
    report : PrivacyReport
        Of the regression.
    entry : dict or None
        The ledger's.
    sha256 : str
        Fingerprint of the tables.
    """
    names, delta = listed([str(name) for name in stated]), budget.threshold_delta or 0.0
    tables = Release(
        what="tables",
        plan=budget.encoder,
        released=(
            "numbers of records of each class",
            f"numbers of each class by cells of {len(stated)} columns ({names})",
            *(("their frequent categories",) if "category" in stated.values() else ()),
        ),
        declared=tuple(
            f"{name}: {_in_words(cells)}" for name, cells in stated.items() if isinstance(cells, ColumnCells)
        ),
        mechanism=counted_cells(budget.encoder, delta, "all columns by the classes"),
        threshold_delta=delta,
        ledger=entry,
        sha256=sha256,
    )
    regression = replace(report.releases[-1], what="regression", ledger=entry)
    before = replace(report, releases=(tables,))
    return replace(report, releases=(regression,)).after(before)


def _in_words(cells: ColumnCells) -> str:
    if cells.kind == "category":
        return f"categories {listed([str(category) for category in cells.categories])}"
    return f"[{cells.edges[0]:g}, {cells.edges[-1]:g}]"
