"""A private classifier of tables: tables of classes by values, then logistic regression on their log odds."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Self

import numpy as np
from sklearn.base import ClassifierMixin

from vips._support.arguments import arguments
from vips._support.fitted import all_or_nothing
from vips.classification.encoder import ClassTables
from vips.classification.tables import ClassTable
from vips.core.budget import PrivacyBudget
from vips.core.ledger.ledger import PrivacyLedger
from vips.models import BayesianLogisticRegression
from vips.preprocessing._column_kinds import MISSING, OTHER
from vips.preprocessing._private_pipeline import MadePipeline
from vips.report.unread import Seen

__all__ = ["PrivateClassifier"]


@arguments
class PrivateClassifier(ClassifierMixin, MadePipeline):
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
    encoder_share : float
        Of the budget (the inverse noise variance), for the tables; between 0 and 1, without these.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    class_counts_ : ndarray of shape (n_classes,)
        Noisy numbers of records, in the order of ``classes_``.
    n_classes_ : int
    table_std_ : float
        Standard deviation of the noise on every count.
    tables_ : dict
        A :class:`ClassTable` of noisy counts for each column.
    log_odds_ : dict
        For each column, log odds less their average in each cell: shape (n_outputs, n_cells + 1), of the second class as
        written, or of each class of more than two. The last cell is that of missing values.
    steps_ : list of (str, step)
        The fitted tables, and a :class:`BayesianLogisticRegression` of their log odds.
    privacy_ : PrivacyReport
        Of tables and regression together.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    *Privacy.*
    Unit: one row of X with its label; with ``groups``, all rows of one id. Released: ``class_counts_``, ``tables_`` and the
    noisy totals of the regression; everything else follows from these. A table shows the categories that are declared or
    stand above a threshold. Public: names and dtypes of columns, and all arguments. docs/guarantee.md has the proof.

    *Guarantees.*

    - Everything is charged to the ledger once, before a value is read. No value causes an error or a warning.
    - A record moves all tables together by norm √(number of columns + 1) at most.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from vips import PrivacyBudget, PrivateClassifier
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"age": rng.integers(18, 90, 5_000), "town": rng.choice(["A", "B"], 5_000)})
    >>> y = (np.abs(table["age"] - 50) + 30 * (table["town"] == "A") + rng.normal(0, 10, 5_000) > 40).to_numpy()
    >>> columns = {"age": (18, 90), "town": ["A", "B"]}
    >>> model = PrivateClassifier(columns, privacy=PrivacyBudget(1.0, 1e-6)).fit(table, y)
    >>> model.score(table, y) > 0.8
    True
    >>> 0.99 < model.privacy_.epsilon() <= 1.0
    True
    """

    columns: Mapping | Sequence | None = field(default=None, kw_only=False)
    privacy: PrivacyBudget | None = None
    classes: Sequence | None = None
    n_steps: int = 10
    encoder_share: float = 0.8

    unit = ClassTables.unit
    encoders = (ClassTables,)
    budgets = (PrivacyBudget, None)

    @all_or_nothing
    def fit(
        self,
        X,
        y,
        *,
        ledger: PrivacyLedger | None = None,
        checkpoint: str | os.PathLike | None = None,
        groups: object = None,
    ) -> Self:
        """Release the tables, then fit the regression.

        Parameters
        ----------
        X : data frame, Arrow table or array of shape (n_rows, n_columns)
        y : array of shape (n_rows,)
        ledger, checkpoint, groups : optional
            See :meth:`PrivatePipeline.fit`, which raises the same errors.

        Returns
        -------
        self
        """
        return super().fit(X, y, ledger=ledger, checkpoint=checkpoint, groups=groups)

    @property
    def steps(self) -> list[tuple[str, object]]:
        """What ``fit`` fits copies of."""
        regression = BayesianLogisticRegression(classes=self.classes)
        return [("tables", ClassTables(self.columns, classes=self.classes)), ("regression", self.sent(regression))]

    def score(self, X, y, sample_weight=None) -> float:
        """Share of records whose class ``predict`` gives; see :meth:`BayesianLogisticRegression.score`."""
        return MadePipeline.score(self, X, y, sample_weight)

    @property
    def class_counts_(self) -> np.ndarray:
        """Noisy numbers of records of each class."""
        counts = self[0].class_counts_
        return counts if self.classes is None else counts[np.argsort(self.classes)]

    @property
    def n_classes_(self) -> int:
        """Number of classes."""
        return len(self.class_counts_)

    @property
    def tables_(self) -> dict[object, ClassTable]:
        """Noisy counts of each column."""
        return self[0].tables_

    @property
    def table_std_(self) -> float:
        """Standard deviation of the noise on every count."""
        return self[0].table_std

    @property
    def log_odds_(self) -> dict[object, np.ndarray]:
        """Log odds less their average, in each cell of each column."""
        return self[0].log_odds_

    def counts_read(self) -> list[Seen]:
        """From the tables, and from the numbers of records of each class."""
        std, classes = self.table_std_, self.class_counts_
        of_all = float(classes.sum()), float(std * np.sqrt(len(classes)))
        seen = [Seen("y", "class", classes, std, *of_all, values=self.classes_.tolist())]
        stated = self.columns or dict.fromkeys(self.tables_, "")
        stated = stated.values() if isinstance(stated, Mapping) else stated
        for (name, table), declared in zip(self.tables_.items(), stated, strict=True):
            title, counts, kind = repr(name), table.counts.sum(axis=0), table.cells.kind
            is_declared = {"may_be_missing": MISSING in (declared or "")}
            if kind == "category":  # the cell behind them is that of other categories, NaN where these were learnt
                n_read = None if OTHER in (declared or OTHER) else len(table.cells.categories)
                values = (*table.cells.categories, None)[:n_read]
                counts = counts[: len(values)]
                seen.append(Seen(title, kind, counts, of_all[1], *of_all, values=values, **is_declared))
            else:
                seen.append(Seen(title, kind, of_all[0] - counts[-1:], 2.0 * of_all[1], *of_all, **is_declared))
        return seen

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        tags.non_deterministic = self.privacy is not None
        return tags
