"""The door through which records come in: what users pass to a fit, as a data source; and to a fitted model, as arrays.

A private fit looks at containers, dtypes and numbers of columns, which are public. An ordinary fit validates values as
scikit-learn does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.base import is_regressor
from sklearn.utils import get_tags
from sklearn.utils.validation import column_or_1d, validate_data

from vips.core.contract import Contract, stated_plan
from vips.core.ledger.ledger import PrivacyLedger, ledger_to_charge
from vips.core.ledger.run import LedgerRun
from vips.core.records.arrays import InMemoryData
from vips.core.records.checks import check_data, refuse_dates, whole_csr
from vips.core.records.groups import check_groups_of_source, group_numbers, name_of
from vips.core.records.source import DataSource
from vips.core.records.tables import from_arrow, without_mask
from vips.core.stream_plan import StreamPlan
from vips.data._dask import as_source
from vips.data._labels import one_for_each_row, refuse_blanks
from vips.data._sequence_source import SequenceSource
from vips.data._texts import TextSource
from vips.exceptions import LedgerError

__all__ = [
    "Beside",
    "check_persons",
    "ledger_of_fit",
    "numbers_of_rows",
    "persons_of",
    "rows_of",
    "table_of",
    "validated",
    "with_exposures",
    "with_weights",
]

# Dtypes that an ordinary fit keeps; others are converted to the first.
_NUMBERS = (np.float64, np.float32, np.int64, np.int32, np.int16, np.int8, np.uint8, np.uint16, np.uint32, bool)


@dataclass(frozen=True)
class Beside:
    """What a fit was given beside rows, labels and weights; see :meth:`ConjugateExponentialModel.fit`."""

    exposure: object = None
    groups: object = None
    public_X: object = None
    public_y: object = None


def rows_of(model: Contract, X, y) -> DataSource:
    """The rows of a table, or a source of rows, with the labels that the model takes; sets ``n_features_in_``, and
    ``target_name_`` to the name of a series of labels.

    Raises
    ------
    TypeError, ValueError
        Private fits: from public facts only.
    """
    X, y = from_arrow(X), None if model.ignores_labels else from_arrow(y)
    source = as_source(X, y)
    if model.needs_labels and ((y is None) if source is None else not source.has_labels):
        raise ValueError(f"{type(model).__name__} requires y to be passed, but the target y is None.")
    if isinstance(source, InMemoryData):  # not checked yet: for some dtypes an error could depend on a record
        if source.has_groups:  # else they would be taken for rows
            raise ValueError("The data hold records of several rows already: pass X, y and `groups` to fit.")
        X, y = source.arrays
        return model.table_of(X, None if model.ignores_labels else y).divided_like(source)
    if source is None:
        if model.needs_labels and (name := name_of(y)) is not None:
            model.target_name_ = name
        return model.table_of(X, y)
    if isinstance(source, TextSource):
        raise TypeError(
            f"{type(source).__name__} holds texts, and a model takes numbers. Learn their words first: "
            f"make_private_pipeline(PrivateCountVectorizer(), {type(model).__name__}(...), "
            "privacy=PrivacyBudget(epsilon, delta)).fit(source)."
        )
    if isinstance(source, SequenceSource):
        raise TypeError(f"{type(source).__name__} holds sequences, and {type(model).__name__} takes rows of a table.")
    model.check_source(source)
    model.n_features_in_ = source.n_features
    if source.feature_names is not None:
        model.feature_names_in_ = np.array(source.feature_names, dtype=object)
    return source


def table_of(model: Contract, X, y) -> InMemoryData:
    """A table in memory: of public facts alone for a private fit, with its values checked for an ordinary one."""
    if model.is_private:
        if model.takes_one_label:
            y = model.labels_of(one_for_each_row(y, "target" if is_regressor(model) else "label"))
        data = check_data(X, y)
        validate_data(model, X, skip_check_array=True)  # number and names of columns: public
        model.check_table(data.arrays[0])
        return data
    if y is None:
        X = validated(model, X)
    elif model.takes_one_label:
        refuse_blanks(y)
        X, y = validated(model, X, y, y_numeric=is_regressor(model))
        y = column_or_1d(y)
    else:
        X, y = validated(model, X, y, multi_output=True)
    model.check_values(X, y)
    return InMemoryData(X, y)


def validated(model: Contract, X, *y, **settings):
    """Arrays of numbers, dense or CSR; reads values. ``settings`` are those of scikit-learn's ``validate_data``."""
    if isinstance(X, DataSource):
        raise TypeError(
            f"After the fit {type(model).__name__} takes records in memory, got {type(X).__name__}. Take a partition at a "
            "time: [model.transform(partition.open().X) for partition in source.partitions], say."
        )
    X, *y = (without_mask(from_arrow(values)) for values in (X, *y))
    refuse_dates(X)
    settings = {"ensure_all_finite": "allow-nan" if get_tags(model).input_tags.allow_nan else True} | settings
    return validate_data(model, whole_csr(X), *y, accept_sparse="csr", dtype=_NUMBERS, **settings)


def numbers_of_rows(model: Contract, values, name: str, n_records: int) -> np.ndarray:
    """A number ≥ 0 of each row beside its label: a weight, or an exposure. A private fit looks at public facts only."""
    values = one_for_each_row(from_arrow(values), "number", name)
    if model.is_private:
        try:
            return check_data(np.zeros((n_records, 1)), values).arrays[1].astype(np.float64)
        except (TypeError, ValueError) as error:
            raise type(error)(f"`{name}` is read like y. {error}") from None
    try:
        values = np.asarray(values).astype(np.float64)
    except (TypeError, ValueError):
        values = np.full(n_records, np.nan)
    if values.shape != (n_records,):
        raise ValueError(
            f"`{name}` must have one number for each of {n_records:,} rows, got an array of shape {values.shape}."
        )
    if not ((values >= 0.0) & np.isfinite(values)).all():
        raise ValueError(f"`{name}` must hold finite numbers, none below 0.")
    return values


def _check_has_place(data: DataSource, name: str) -> None:
    """Raise TypeError for what stands beside rows of a data source."""
    if not isinstance(data, InMemoryData):
        raise TypeError(f"`{name}` is for arrays and data frames: a data source has no place for it.")


def with_weights(model: Contract, data: DataSource, sample_weight: object) -> DataSource:
    """The same rows with their weights."""
    declared = getattr(stated_plan(model), "max_weight", None)
    if sample_weight is None:
        if declared is not None:
            raise ValueError("`max_weight` is declared: pass fit(..., sample_weight=...).")
        return data
    _check_has_place(data, "sample_weight")
    if model.is_private and declared is None:
        raise ValueError(
            "`max_weight` is required for a private fit with weights: a bound that is learnt from them would reveal the "
            "largest. Declare it: privacy=budget.plan(max_weight=5), or make_private_pipeline(..., max_weight=5). Larger "
            "weights count as 5."
        )
    weights = numbers_of_rows(model, sample_weight, "sample_weight", data.arrays[0].shape[0])
    if not model.is_private and not weights.any():
        raise ValueError("`sample_weight` must hold at least one number that is not zero.")
    return data.with_weights(weights)


def with_exposures(model: Contract, data: DataSource) -> DataSource:
    """The same rows with exposures in the last column of y, if there are any; ``takes_one_label`` is then false."""
    exposure, bounds = model.beside.exposure, getattr(model, "exposure_bounds", None)
    if exposure is None:
        if bounds is not None:
            in_stream = isinstance(model.privacy, StreamPlan)
            call = "with_exposure(exposure).partial_fit(X, y)" if in_stream else "fit(X, y, exposure=...)"
            raise ValueError(f"`exposure_bounds` are declared: pass {call}.")
        return data
    _check_has_place(data, "exposure")
    if model.is_private and bounds is None:
        raise ValueError(
            "`exposure_bounds` are required for a private fit with exposures: bounds that are learnt from them would "
            "reveal the largest. Declare them, e.g. exposure_bounds=(1, 365); exposures beyond are brought there."
        )
    X, y = data.arrays
    exposure = numbers_of_rows(model, exposure, "exposure", len(y))
    if not model.is_private and not exposure.all():
        raise ValueError("`exposure` must hold finite numbers above 0.")
    model.takes_one_label = False
    return InMemoryData(X, np.column_stack([y, exposure])).divided_like(data)


def ledger_of_fit(model, ledger: PrivacyLedger | None) -> PrivacyLedger | None:
    """The ledger to charge, if any, after a check that this fit can be charged."""
    sent = model.sent_from, getattr(model.privacy, "sent_from", None)
    ledger = ledger_to_charge(ledger, *sent, plan=model.privacy)
    if isinstance(ledger, LedgerRun):
        return ledger
    if ledger is not None and not model.is_private:
        raise LedgerError(
            "This fit adds no noise, so that no budget could pay for it. Write privacy=PrivacyBudget(epsilon, delta); for "
            "public data, fit it outside of the ledger."
        )
    if ledger is not None and model.on_invalid == "raise":
        raise LedgerError(
            'on_invalid="raise" lets an error depend on a record, which no ledger can pay for: use "drop".'
        )
    return ledger


def check_persons(model: Contract, data: DataSource, groups: object, arguments: str = "X, y") -> None:
    """Raise ValueError or TypeError if these records cannot be persons, or not under the model's plan.

    ``arguments`` are those of ``fit``, in words.
    """
    stated = stated_plan(model)
    bounds_rows = getattr(stated, "max_rows_per_group", None) is not None
    if groups is None and not data.has_groups:
        if bounds_rows:
            raise ValueError(
                "`max_rows_per_group` bounds the rows of a person: pass the persons' ids as `groups` to fit, or a source "
                "that vips.data.regroup wrote."
            )
        return
    if groups is not None:
        check_groups_of_source(data, groups, arguments)
    if not (bounds_rows or model.reads_persons) and model.is_private and stated.rounds_records:
        plan = type(stated).__name__
        raise ValueError(
            f'noise="discrete" rounds every row: with persons, write {plan}(max_rows_per_group=...), a public number.'
        )


def persons_of(model: Contract, data: DataSource, groups: object, arguments: str = "X, y") -> DataSource:
    """The same rows, where all rows of one person are one record. ``arguments`` as for :func:`check_persons`."""
    check_persons(model, data, groups, arguments)
    if groups is None or data.has_groups:
        return data
    numbers = group_numbers(groups, data.n_records)
    if not model.is_private and (numbers < 0).any():
        raise ValueError("`groups` hold missing ids, or values that are no ids: pass whole numbers, strings or bytes.")
    return data.grouped(numbers, name_of(groups))
