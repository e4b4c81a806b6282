"""Encodes a table of numbers, dates and categories as features of bounded norm: columns are declared, or learnt privately.

A row of k columns becomes (u_1, ..., u_k) / √k: u_j is a number in [-1, 1], or indicators with at most a single 1, so that
every ‖u_j‖ ≤ 1. (In [0, 1] a number would vary half as much within the same norm, and share a direction with the intercept.)

To learn, a record's vector holds, for every learnt column, the cell of its value: norm 1 a column, √k for k columns. All counts
together are one release of a Gaussian mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from itertools import accumulate
from types import MappingProxyType
from typing import Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from vips._support.arguments import arguments
from vips._support.fitted import all_or_nothing, forget_fit
from vips._support.printable import listed
from vips._support.validation import check_number
from vips.core.budget import PrivacyBudget
from vips.core.ledger.ledger import PrivacyLedger, charged, ledger_to_charge
from vips.core.plan import PrivacyPlan
from vips.data._columns import as_table, column, columns_of, is_frame, names_of, warn_of_undeclared
from vips.data._dask import as_source
from vips.data._pieces import TableInPieces
from vips.parts import FeatureTotals
from vips.persistence.settings import decode, encode
from vips.preprocessing import _column_kinds as column_features
from vips.preprocessing import _encoder as shared
from vips.preprocessing._column_kinds import MISSING, OTHER, Categories, Number, kind_of_column
from vips.preprocessing._encoder import LEARNT_KINDS, SavableEncoder, column_kinds
from vips.preprocessing._learnt_columns import Counting, Persons, learn_column
from vips.report.report import PrivacyReport
from vips.report.unread import Seen

__all__ = ["TableEncoder"]


@arguments
class TableEncoder(TransformerMixin, SavableEncoder, BaseEstimator):
    """Features of a table. Bounds and categories are declared, which costs nothing, or learnt privately.

    scikit-learn's scalers and encoders learn bounds and categories from the records, or fail at a record that has another one:
    both reveal something about a record.

    Parameters
    ----------
    columns : mapping of str to declaration, list of declarations, or None
        By name for data frames: the features come in this order, and columns that are not named are left out. Or a list with
        one declaration for each column. Take them from documentation, or from the possible range of the quantity; not from the
        records. A declaration is

        - ``(low, high)``, two numbers or two dates, for a numeric column, which is scaled to [-1, 1] between them;
          ``(low, high, "(missing)")`` adds a feature that says that the number is missing;
        - a list of categories (strings, whole or finite numbers, truth values, each once). "(other)" among them stands for all
          other values, "(missing)" for missing ones;
        - "number", "date" or "category", in a data frame: bounds, bounds in days since 1970, or categories are learnt.

        None learns all columns of a data frame, each by its dtype; the categories of a boolean column are public.
    privacy : PrivacyBudget, PrivacyPlan or None
        Of the release, if something is learnt. A plan is one step, ``PrivacyPlan(..., sampling="full", n_steps=1)``, with
        Gaussian noise and without ``clip_norm``.
    threshold_delta : float or None
        Beside a plan, where categories are learnt: probability, at most, that any category is released which a single record
        has. It adds to the plan's δ. A budget holds its own.
    quantiles : (float, float)
        Shares of the records at which learnt bounds cut off.
    unit_norm : bool
        Divide every row by the square root of the number of columns.
    sparse_output : bool
        CSR instead of a dense array.

    Attributes
    ----------
    columns_ : dict or list
        Declared and learnt columns, as ``columns`` takes them. A learnt list of categories ends with "(other)", and "(missing)"
        where missing values are frequent; so do learnt bounds.
    unread_ : dict
        If something was learnt: by name of a learnt column of numbers or dates, about what share of its cells could not be
        read, such as "<5"; from noisy counts, and only where that stands out from the noise.
    privacy_ : PrivacyReport
        If something was learnt.
    max_norm : float
        No row has a larger L2 norm: 1 with ``unit_norm``, else the square root of the number of columns. Public.
    indicators : tuple of (int, int, float)
        Features of each column of categories, for a regression.
    n_features_out : int
        Number of features; known before ``fit`` where all columns are declared.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    *Privacy.*
    Where all columns are declared, nothing is learnt and nothing is charged. Unit: one row of X; with ``groups``, all rows of
    one id. Released: noisy counts of a public grid's cells, of missing and of unreadable values, and of categories above the
    threshold; hence ``columns_`` and ``unread_``. Guarantee: that of the plan, with ``threshold_delta`` added to δ;
    docs/guarantee.md has the proof. Public: names and dtypes of columns, ``columns``, and the other arguments. Not covered:
    choosing these by looking at the records; ``transform`` of the fitted records, whose rows are private.

    *Guarantees.*

    - Everything is charged to the ledger before a value is read. No value causes an error or a warning; errors come from
      declared settings, names and dtypes of columns.
    - Row i of ``transform`` depends on row i and released values only. Its norm is at most ``max_norm``, in exact
      arithmetic; it has no NaN.
    - What a cell means depends on its column's declaration and on the cell alone. A missing number, or one that cannot be
      read, becomes the middle of the bounds; a category that is missing or not declared becomes zeros.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from vips import PrivacyBudget
    >>> from vips.preprocessing import TableEncoder
    >>> encoder = TableEncoder({"colour": ["blue", "red"], "age": (0, 100)}, unit_norm=False)
    >>> encoder.fit_transform(pd.DataFrame({"age": [25, 130], "colour": ["red", "green"]}))
    array([[ 0. ,  1. , -0.5],
           [ 0. ,  0. ,  1. ]])
    >>> encoder.get_feature_names_out().tolist()
    ['colour_blue', 'colour_red', 'age']

    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"income": rng.lognormal(8.0, 0.3, 20_000), "town": rng.choice(["A", "B"], 20_000)})
    >>> encoder = TableEncoder(privacy=PrivacyBudget(0.2, 1e-7)).fit(table)
    >>> encoder.columns_["town"]
    ['A', 'B', '(other)']
    >>> low, high = encoder.columns_["income"]
    >>> low < 2_000 and 5_000 < high < 9_000
    True
    """

    columns: Mapping | Sequence | None = field(default=None, kw_only=False)
    privacy: PrivacyBudget | PrivacyPlan | None = None
    threshold_delta: float | None = None
    quantiles: tuple[float, float] = (0.005, 0.995)
    unit_norm: bool = True
    sparse_output: bool = False

    unit = "one row of X"
    beside = ()  # names of what the fit of a pipeline takes beside X
    # In a pipeline of scikit-learn, what is charged or grouped is so for the encoder, too.
    __metadata_request__fit = {"ledger": True, "groups": True}
    # Arguments of a model that the encoder supplies if they are None, with values for checks before the fit.
    supplies = MappingProxyType({"max_norm": 1.0, "indicators": ()})
    learns = ()

    # -- fit ------------------------------------------------------------------------------------------------------

    @all_or_nothing
    def fit(self, X, y=None, *, ledger: PrivacyLedger | None = None, groups: object = None) -> Self:
        """Compare the declaration with public facts about ``X``; learn the columns that are not declared, in one release.

        Parameters
        ----------
        X : data frame, Arrow table or ndarray of shape (n_rows, n_columns)
            Zero rows are enough where nothing is learnt.
        y : ignored
        ledger : PrivacyLedger, optional
            Charged before a value is read, if something is learnt. None is the ledger whose block encloses the call, if any.
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
        pieces, X = X, _in_memory(X)
        kinds = column_kinds(self.columns, X)
        learnt_kinds = {key: kind for key, kind in kinds.items() if kind in LEARNT_KINDS}
        if learnt_kinds:
            plan = shared.checked_plan(self.privacy, len(learnt_kinds))
            ledger = ledger_to_charge(ledger, plan.sent_from, plan=self.privacy)
            delta = shared.checked_delta(self.threshold_delta, learnt_kinds, self.privacy, ledger)
            low, high = self.quantiles
            check_number("quantiles[0]", low, 0.0, 0.5, "in [0, 0.5)", open_high=True)
            check_number("quantiles[1]", high, 0.5, 1.0, "in (0.5, 1]", open_low=True)
        validate_data(self, X, skip_check_array=True)  # number and names of columns
        warn_of_undeclared(X, self.columns, names_of(y, groups) + self.beside)
        learnt = {}
        if learnt_kinds:
            X = pieces.loaded(learnt_kinds) if isinstance(pieces, TableInPieces) else X
            numbers, unit = shared.persons_of(groups, X.shape[0], plan, self.unit)
            persons = Persons(numbers, plan.max_rows_per_group)
            entry, learnt = self._learnt(X, learnt_kinds, plan, delta, ledger, persons, unit)
            self.unread_ = {key: column.unread for key, column in learnt.items() if column.unread is not None}
        declarations = {key: learnt[key].declaration if key in learnt else self._declared(key) for key in kinds}
        self._kinds = kinds
        self.columns_ = list(declarations.values()) if isinstance(self.columns, list) else declarations
        if learnt_kinds:
            self.privacy_ = self._statement(plan, delta, unit, entry)
        return self

    def _declared(self, key) -> tuple | list:
        """The declaration of a column; of a boolean one that is not named, both values."""
        return [False, True] if self.columns is None else self.columns[key]

    def _statement(self, plan: PrivacyPlan, delta: float, unit: str, entry: dict | None) -> PrivacyReport:
        """What was released and what was declared follows from the settings and the kinds of columns."""
        learnt = {key: kind for key, kind in self._kinds.items() if kind in LEARNT_KINDS}
        released, mechanism = shared.released_texts(learnt, self.unread_), shared.counted_cells(plan, delta)
        return shared.report_of_encoder(self, plan, delta, unit, released, self.declared_public, mechanism, entry)

    def _learnt(self, X, kinds, plan, delta, ledger, persons, unit) -> tuple[dict | None, dict]:
        """Charge, count, add noise; then declarations are computed from noisy counts alone."""
        what = f"{type(self).__name__}: bounds and categories of {len(kinds)} columns"
        with charged(ledger, what, unit, plan.relation, event=plan, delta=delta) as run:
            counting = Counting.of(persons, plan, delta, kinds.values(), run.release_once)
            counting = replace(counting, quantiles=self.quantiles)
            released = {key: learn_column(column(X, key), kind, counting) for key, kind in kinds.items()}
        return run.entry, {key: learnt() for key, learnt in released.items()}

    def learns_columns(self, X) -> bool:
        """Whether something is to be learnt, a public fact; raises what ``fit`` would raise because of X."""
        return not set(column_kinds(self.columns, _in_memory(X)).values()).isdisjoint(LEARNT_KINDS)

    def has_threshold(self, X) -> bool:
        """Whether categories are to be learnt, a public fact; raises what ``fit`` would raise because of X."""
        return "category" in column_kinds(self.columns, _in_memory(X)).values()

    # -- after fit ------------------------------------------------------------------------------------------------

    def transform(self, X) -> np.ndarray | sp.csr_array:
        """Features of each row, from that row and released values alone.

        Parameters
        ----------
        X : data frame, Arrow table or ndarray of shape (n_rows, n_columns)
            Other columns of a frame than the fitted ones are ignored.

        Returns
        -------
        ndarray or CSR of shape (n_rows, n_features), float64
        """
        check_is_fitted(self, "columns_")
        if isinstance(X, TableInPieces):
            return X.encoded(self.transform, self.n_features_out)
        return self._features(X, self._resolved())

    def averaged(self, X, totals: FeatureTotals) -> np.ndarray | sp.csr_array:
        """Features of rows to predict, after a fit with these ``totals``.

        As :meth:`transform`; but a cell that is missing, cannot be read or has an unknown category becomes the average of the
        fitted records in its column. So does "(other)" or "(missing)", where no such records can be told from noise.
        """
        check_is_fitted(self, "columns_")
        averaged, scale = {}, self._scale()
        for key, (kind, place) in self._places().items():
            of_column = FeatureTotals(totals.squares[place], totals.noise_std[place], totals.means[place] / scale)
            averaged[key] = kind.averaged(of_column)
        return self._features(X, averaged)

    def columns_seen(self, totals: FeatureTotals | None) -> list[Seen]:
        """What was read of each column: released shares, and noisy counts of a fit with these ``totals`` and a known size."""
        unread = getattr(self, "unread_", {})
        if totals is None or math.isnan(totals.size):
            nothing = Seen("", "number", np.array(math.nan), 0.0, math.nan, 0.0)
            of_keys = ((repr(key), self._kinds[key], share) for key, share in unread.items())
            return [replace(nothing, what=what, kind=kind, unread=share) for what, kind, share in of_keys]
        seen, unit = [], self._scale() ** 2
        for key, (kind, place) in self._places().items():
            of_column = FeatureTotals(totals.squares[place] / unit, totals.noise_std[place] / unit, totals.means[place])
            of_column = replace(of_column, size=totals.size, size_std=totals.size_std)
            seen.append(replace(kind.counts_read(repr(key), of_column), unread=unread.get(key, 0.0)))
        return seen

    def _features(self, X, kinds: dict[object, Number | Categories]) -> np.ndarray | sp.csr_array:
        X = _in_memory(X)
        if not (is_frame(X) and isinstance(self.columns_, dict)):
            validate_data(self, X, skip_check_array=True, reset=False)
        keys, in_frame = columns_of(X, self.columns_), is_frame(X)
        columns = [(kind, column(X, key)) for key, kind in zip(keys, kinds.values(), strict=True)]
        for key, (kind, values) in zip(keys, columns, strict=True):
            kind.check(getattr(values, "dtype", None), repr(key), f"X[{key!r}]" if in_frame else "X", in_frame)
        if self.sparse_output:
            features = sp.hstack([kind.sparse_features(values) for kind, values in columns], format="csr")
            features.sort_indices()
        else:
            features, last = np.zeros((X.shape[0], sum(kind.n_features for kind, _ in columns))), 0
            for kind, values in columns:
                first, last = last, last + kind.n_features
                kind.fill(values, features[:, first:last])
        features *= self._scale()
        return features

    def _scale(self) -> float:
        """Scale of all features: 1 / √n_columns, rounded down, so that n_columns entries of this size have norm at most 1."""
        n_columns = len(self._resolved())
        scale = 1.0 / math.sqrt(n_columns) if self.unit_norm else 1.0
        while self.unit_norm and n_columns * Fraction(scale) ** 2 > 1:
            scale = math.nextafter(scale, 0.0)
        return scale

    def _resolved(self) -> dict[object, Number | Categories]:
        """What each column is; before ``fit``, if all of them are declared."""
        if "columns_" not in vars(self) and not _is_declared(self.columns):
            check_is_fitted(self, "columns_")
        columns = vars(self).get("columns_", self.columns)
        named = columns if isinstance(columns, Mapping) else dict(enumerate(columns))
        kinds = vars(self).get("_kinds", {})
        are_dates = {key: kinds.get(key) == "date" for key in named}
        return {key: kind_of_column(declared, repr(key), are_dates[key]) for key, declared in named.items()}

    def _places(self) -> dict[object, tuple[Number | Categories, slice]]:
        """The same, each with its features among all."""
        kinds = self._resolved()
        stops = accumulate(kind.n_features for kind in kinds.values())
        columns = zip(kinds.items(), stops, strict=True)
        return {key: (kind, slice(stop - kind.n_features, stop)) for (key, kind), stop in columns}

    @property
    def max_norm(self) -> float:
        """Bound on the L2 norm of every row: 1, or √n_columns, rounded up."""
        n_columns = 1 if self.unit_norm else len(self._resolved())
        root = math.sqrt(n_columns)
        return root if Fraction(root) ** 2 >= n_columns else math.nextafter(root, math.inf)

    @property
    def indicators(self) -> tuple[tuple[int, int, float], ...]:
        """Columns of several categories: the first feature, the one after the last, and the value of a row's own category.

        A regression takes them as ``indicators``. Rows whose category is missing or not declared have none.
        """
        value, columns = float(self._scale()), self._places().values()
        several = (place for kind, place in columns if isinstance(kind, Categories) and kind.n_features > 1)
        return tuple((place.start, place.stop, value) for place in several)

    @property
    def n_features_out(self) -> int:
        """Number of features."""
        return sum(kind.n_features for kind in self._resolved().values())

    @property
    def declared_public(self) -> tuple[str, ...]:
        """Declared bounds and categories, in short strings for a privacy report."""
        learnt = {key for key, kind in vars(self).get("_kinds", {}).items() if kind in LEARNT_KINDS}
        texts, kinds = [], {key: kind for key, kind in self._resolved().items() if key not in learnt}
        wordings = {Number: "bounds of {} numeric column{}", Categories: "categories of {} column{}"}
        for kind_of_text, what in wordings.items():
            columns = [f"{name}: {kind}" for name, kind in kinds.items() if isinstance(kind, kind_of_text)]
            if columns:
                texts.append(f"{what.format(len(columns), 's' * (len(columns) > 1))} ({listed(columns)})")
        return tuple(texts)

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> np.ndarray:
        """Names of numeric columns, ``column_missing`` behind them, ``column_category`` for indicators; shape (n_features,).

        Where some would be the same, these read ``column='category'`` and ``column is missing``.
        """
        columns = zip(self._names(input_features), self._resolved().values(), strict=True)
        return np.array(column_features.names_of_columns(columns), dtype=object)

    def in_column_units(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """How coefficients of the features read in units of the columns; public.

        A number's coefficient is per unit of its column, or per day; a missing one stands against the middle of the bounds. A
        category's is against the first one of its column; a column of a single category has no other to stand against.

        Returns
        -------
        names : list of str
            Of the rows of ``matrix``.
        matrix : ndarray of shape (n_rows, n_features)
            Coefficients in units of the columns are ``matrix @ coef``.
        shift : ndarray of shape (n_features,)
            The intercept becomes ``intercept + shift @ coef``.
        """
        scale = self._scale()
        names, precise, rows, shift = [], [], [], np.zeros(self.n_features_out)
        for name, (kind, place) in zip(self._names(), self._places().values(), strict=True):
            start = place.start
            if isinstance(kind, Number):
                slope = 2.0 * scale / (kind.high - kind.low)
                names += [name, f"{name}: missing, against {kind.middle}"][: kind.n_features]
                precise += [name, f"{name} is missing"][: kind.n_features]
                rows += [{start: slope}, {start + 1: scale}][: kind.n_features]
                shift[start] = -0.5 * (kind.low + kind.high) * slope
            elif kind.n_features == 1:
                names.append(f"{name}: {kind.categories[0]}")
                precise.append(f"{name}: {kind.categories[0]!r}")
                rows.append({start: scale})
            else:
                first, *others = kind.categories
                names += [f"{name}: {category} against {first}" for category in others]
                precise += [f"{name}: {category!r} against {first!r}" for category in others]
                rows += [{start + i: scale, start: -scale} for i in range(1, kind.n_features)]
                shift[start] = scale
        matrix = np.zeros((len(rows), self.n_features_out))
        for row, entries in zip(matrix, rows, strict=True):
            row[list(entries)] = list(entries.values())
        return column_features.distinct(names, precise), matrix, shift

    def _names(self, input_features: Sequence[str] | None = None) -> list[str]:
        """Names of the columns; those declared by name are known before ``fit``."""
        columns = vars(self).get("columns_", self.columns)
        is_by_name = isinstance(columns, Mapping)
        if is_by_name and input_features is None:
            return [str(name) for name in columns]
        check_is_fitted(self, "columns_")
        known = getattr(self, "feature_names_in_", None)
        if input_features is not None:
            if known is not None and list(input_features) != list(known):
                raise ValueError("input_features is not equal to feature_names_in_")
            if len(input_features) != self.n_features_in_:
                raise ValueError(f"input_features should have length equal to {self.n_features_in_}.")
            known = input_features
        if is_by_name:
            return [str(name) for name in columns]
        return [f"x{i}" for i in range(self.n_features_in_)] if known is None else [str(name) for name in known]

    # -- files ----------------------------------------------------------------------------------------------------

    def learnt_to_json(self) -> dict:
        kinds, unread = list(self._kinds.values()), getattr(self, "unread_", None)
        known = {"columns": encode(self.columns_), "kinds": encode(kinds), "unread": encode(unread)}
        return known | shared.names_to_json(self)

    def restore_fit(self, values: dict) -> None:
        self.columns_, kinds = decode(values["columns"]), decode(values["kinds"])
        shared.restore_names(self, values)
        named = self.columns_ if isinstance(self.columns_, dict) else dict(enumerate(self.columns_))
        self._kinds = dict(zip(named, kinds, strict=True))
        if not all(self._has_form(key, known) for key, known in named.items()):
            raise ValueError("its columns are not those that an encoder learns")
        _ = self.declared_public  # raises for bounds or categories that are none
        learnt = {key: kind for key, kind in self._kinds.items() if kind in LEARNT_KINDS}
        if learnt:
            plan = shared.checked_plan(self.privacy, len(learnt))
            delta = shared.checked_delta(self.threshold_delta, learnt, self.privacy, None)
            self.unread_ = shares = decode(values["unread"])
            of_numbers = {key for key, kind in learnt.items() if kind != "category"}
            if not shares.keys() <= of_numbers or not all(0.0 < share <= 1.0 for share in shares.values()):
                raise ValueError("its columns have shares that no fit gives")
            facts = shared.saved_facts(values["report"], plan, delta, of_budget=self.threshold_delta is None)
            self.privacy_ = self._statement(plan, *facts)

    def _has_form(self, key, known) -> bool:
        """Whether a column's bounds or categories are such as its kind has."""
        kind = self._kinds[key]
        if kind == "declared":
            return repr(known) == repr(self._declared(key))
        if kind == "category":
            return isinstance(known, list) and OTHER in known
        return kind in LEARNT_KINDS and isinstance(known, tuple) and known[2:] in ((), (MISSING,))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        tags.non_deterministic = not _is_declared(self.columns)
        return tags


def _in_memory(X):
    """A data frame of pandas, without rows where a table comes in pieces; or an array."""
    if isinstance(X, TableInPieces):
        return X.head
    if as_source(X) is not None:
        raise TypeError(f"TableEncoder needs a table in memory, got {type(X).__name__}.")
    return as_table(X)


def _is_declared(columns: object) -> bool:
    """Whether all columns are declared."""
    declarations = columns.values() if isinstance(columns, Mapping) else columns if isinstance(columns, list) else [""]
    return not any(isinstance(declared, str) for declared in declarations)
