"""``evaluate``: scores of a classifier on private records, from one released histogram of risk and outcome."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from vips._support.no_warnings import without_warnings
from vips._support.pipelines import model_of
from vips.classification.encoder import places_of_labels
from vips.core.budget import PrivacyBudget, plan_of_one_release
from vips.core.exact.blas_threads import one_blas_thread
from vips.core.exact.rowwise import PIECE
from vips.core.ledger.ledger import PrivacyLedger, charged, ledger_to_charge
from vips.core.plan import PrivacyPlan
from vips.core.records.checks import checked_csr
from vips.core.records.partition import rows_without
from vips.core.records.tables import from_arrow, without_mask
from vips.core.sums import Block
from vips.data._dask import as_source
from vips.models._coefficient_tables import classes_of
from vips.preprocessing._encoder import persons_of
from vips.report.report import PrivacyReport, Release
from vips.tools.evaluation.estimates import EDGES, N_BINS
from vips.tools.evaluation.evaluation import Evaluation

__all__ = ["BLOCKS", "check_predictions", "evaluate", "probabilities", "table_in_memory"]

BLOCKS = {"histogram": Block((2, N_BINS))}
# Rows of each call of the model. All calls have as many, since the rounding of BLAS depends on that number.
_N_TOGETHER = 2 * PIECE
_FITTED = "records on which the model was fitted: its scores are too good there, and the ε of both releases add up"


def evaluate(
    model,
    X,
    y,
    *,
    privacy: PrivacyBudget | PrivacyPlan,
    positive: object = None,
    groups: object = None,
    ledger: PrivacyLedger | None = None,
    unit: str = "one row of X with its label",
) -> Evaluation:
    """Buy the scores of a classifier on private records: AUC, log loss, Brier score, errors, calibration.

    What is released is one noisy histogram: how many records have which risk, and which of these have the outcome. Take records
    that were not fitted.

    Parameters
    ----------
    model : fitted classifier
        With ``predict_proba`` and ``classes_``, of vips or of scikit-learn, or a pipeline: it is taken for public.
    X : array, CSR matrix, data frame or Arrow table of shape (n_rows, n_columns)
        What ``predict_proba`` takes. A row for which the model has no probability counts as nothing.
    y : array or series of shape (n_rows,)
        Labels. A row with another label than those of ``classes_`` counts as nothing.
    privacy : PrivacyBudget or PrivacyPlan
        Of the evaluation alone. A plan is one step of all records, ``sampling="full"``.
    positive : label, optional
        The class whose probability is the risk, against all others; of two classes by default the one declared last. With more
        classes and None, the prediction itself is scored: the risk is the probability of the most probable class, and the
        outcome is that it is right.
    groups : array, series or list of length n_rows, optional
        Ids of persons. Persons then weigh alike: of a person, the average of all rows counts.
    ledger : PrivacyLedger, optional
        Charged before a record is predicted; ids and labels, which are read before, raise and release nothing. None is the
        ledger whose block encloses the call, if any.
    unit : str
        What one record is, if it is no person: a ledger may insist on a name.

    Returns
    -------
    Evaluation

    Raises
    ------
    TypeError, ValueError
        From public facts only: arguments, container, dtypes and names of columns, and what the model says to a row of zeros.
    LedgerError
        If the rest of the budget is too small. Nothing is charged then.

    Guarantees
    ----------
    - A record (with ``groups``, a person) adds at most 1 to the cells of the histogram together, if the model predicts for each
      row by itself. On the lattice of ``noise="discrete"`` what it adds is rounded, within the stated factor.
    - The noise is drawn once. Everything is charged before a value is read.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import BayesianLogisticRegression, PrivacyBudget, evaluate
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 2))
    >>> y = rng.random(20_000) < 1 / (1 + np.exp(-X @ [2.0, -1.0]))
    >>> model = BayesianLogisticRegression(privacy=PrivacyBudget(1.0, 1e-6), max_norm=2.0).fit(X[:10_000], y[:10_000])
    >>> scores = evaluate(model, X[10_000:], y[10_000:], privacy=PrivacyBudget(0.5, 1e-6))
    >>> 0.7 < scores.auc.lower < scores.auc.value < scores.auc.upper < 0.85
    True
    """
    predict, classes = getattr(model, "predict_proba", None), getattr(model, "classes_", None)
    if predict is None or np.ndim(classes) != 1:
        raise TypeError(
            f"`evaluate` takes a fitted classifier, with `predict_proba` and `classes_`, got {type(model).__name__}."
        )
    classes = np.asarray(classes).tolist()
    if len(classes) < 2:
        raise ValueError(f"The model knows one class only, {classes[0]!r}: nothing can be told from its predictions.")
    if positive is None and len(classes) == 2:
        positive = (classes_of(model_of(model)) or classes)[1]
    if positive is not None and positive not in classes:
        raise ValueError(f"`positive` must be one of the classes {classes}, got {positive!r}.")
    if not isinstance(unit, str) or not unit:
        raise ValueError(f"`unit` must say what one record is, got {unit!r}.")
    plan = plan_of_one_release(privacy, "An evaluation", 1.0)
    if plan.max_rows_per_group is not None:
        raise ValueError("A person counts 1, whatever the number of rows: leave `max_rows_per_group` out.")
    ledger = ledger_to_charge(ledger, plan.sent_from)
    X = table_in_memory(X)
    place, _ = places_of_labels(y, X.shape[0], classes, plan)
    persons, unit = persons_of(groups, X.shape[0], plan, unit)
    check_predictions(predict, X, len(classes))
    with charged(ledger, f"evaluation of {type(model).__name__}", unit, plan.relation, event=plan) as run:
        predicted = probabilities(predict, X, len(classes))
        cells = _cells(predicted, place, None if positive is None else classes.index(positive))
        noisy = run.release_once(plan, {"histogram": _histogram(cells, persons, plan)})["histogram"]
    release = Release(
        what="evaluation",
        plan=plan,
        released=(f"the histogram of risk and outcome, in {N_BINS} bins of the log odds",),
        declared=("the model that predicts", "its classes"),
        mechanism=(
            "a record, or the average of a person's rows, adds 1 to the cells of one histogram; Gaussian noise of standard "
            f"deviation {plan.noise_std():.4g} on each cell (noise multiplier {plan.noise_multiplier:.4g})"
        ),
        ledger=run.entry,
    )
    report = PrivacyReport((release,), unit, also_not_covered=(_FITTED,))
    outcome = "the most probable class is right" if positive is None else f"y is {positive!r}"
    return Evaluation(np.asarray(noisy, dtype=np.float64), plan.noise_std(), outcome, positive is None, report)


def _cells(predicted: np.ndarray, place: np.ndarray, positive: int | None) -> np.ndarray:
    """The cell of each row in the histogram, outcome by risk; -1 for a row that counts as nothing."""
    if positive is None:
        risk, outcome = predicted.max(axis=1, initial=0.0), predicted.argmax(axis=1) == place
    else:
        risk, outcome = predicted[:, positive], place == positive
    # a risk of ½ is below: the first of two classes is predicted
    cells = outcome * N_BINS + np.searchsorted(EDGES, risk)
    return np.where(np.isnan(risk) | (place == predicted.shape[1]), -1, cells)


def _histogram(cells: np.ndarray, persons: np.ndarray | None, plan: PrivacyPlan) -> np.ndarray:
    """The exact histogram, private; in whole units of the plan's lattice, if it has one."""
    block, lattice = BLOCKS["histogram"], plan.lattice(BLOCKS)
    persons = np.arange(len(cells)) if persons is None else persons
    counts = (cells >= 0) & (persons >= 0)
    pairs, n_rows = np.unique(persons[counts] * np.int64(2 * N_BINS) + cells[counts], return_counts=True)
    persons, cells = pairs // (2 * N_BINS), pairs % (2 * N_BINS)
    shares = n_rows / np.bincount(persons, n_rows)[persons]
    total = np.zeros(2 * N_BINS, np.float64 if lattice is None else np.int64)
    np.add.at(total, cells, shares if lattice is None else lattice.rounded(shares, block))
    return total.reshape(block.shape)


# -- probabilities of private rows ---------------------------------------------------------------------------------


def table_in_memory(X):
    """X as an array, a CSR matrix or a data frame of pandas; raises TypeError or ValueError from public facts."""
    X = without_mask(from_arrow(X))
    if sp.issparse(X):
        return checked_csr(X)
    if hasattr(X, "iloc") and getattr(X, "ndim", 0) == 2:
        return X
    if as_source(X) is not None or not isinstance(X, np.ndarray) or X.ndim != 2:
        raise TypeError(
            f"X must be an array, CSR matrix or data frame in memory, one row a record, got {type(X).__name__}."
        )
    return np.asarray(X)


def check_predictions(predict: Callable, X, n_classes: int) -> None:
    """Raise what the model raises for a row of zeros and missing texts in a table like X, of which no value is read."""
    row = _stand_in(X)
    try:
        shape = np.shape(predict(_rows(row, np.zeros(_N_TOGETHER, np.intp))))
    except Exception as error:
        error.add_note("`evaluate` asked for a row of zeros and missing texts, before it reads a private row.")
        raise
    if shape != (_N_TOGETHER, n_classes):
        raise ValueError(f"`predict_proba` must give {n_classes} probabilities for each row, got shape {shape}.")


def probabilities(predict: Callable, X, n_classes: int) -> np.ndarray:
    """Probabilities of each class, shape (n_rows, n_classes); NaN for a row that has none.

    If ``predict`` takes each row by itself, the result for a row depends on it and on its place in a call.
    """
    out = np.full((X.shape[0], n_classes), np.nan)
    usable = np.arange(len(out))
    if sp.issparse(X):  # compiled code would read beyond the end of an array
        usable = np.flatnonzero(rows_without((X.indices < 0) | (X.indices >= X.shape[1]), X.indptr))

    def predict_all() -> None:
        with one_blas_thread(), np.errstate(all="ignore"):
            for first in range(0, len(usable), _N_TOGETHER):
                rows = usable[first : first + _N_TOGETHER]
                _predict(predict, X, rows, np.arange(len(rows)), out)

    without_warnings(predict_all)
    out[~((out >= 0.0) & (out <= 1.0 + 1e-9)).all(axis=1)] = np.nan
    return out


def _predict(predict: Callable, X, rows: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    """Fill ``out`` at ``rows[places]``.

    Other places of a call hold a copy of the first of these rows, and every row stays in its place. Where the model raises,
    each half by itself: what remains without a prediction are the rows at which it raises.
    """
    together = np.full(_N_TOGETHER, rows[places[0]])
    together[places] = rows[places]
    try:
        out[rows[places]] = np.asarray(predict(_rows(X, together)), dtype=np.float64)[places]
    except Exception:  # it depends on a record
        if len(places) > 1:
            for half in np.array_split(places, 2):
                _predict(predict, X, rows, half, out)


def _rows(X, rows: np.ndarray):
    return X.iloc[rows].reset_index(drop=True) if hasattr(X, "iloc") else X[rows]


def _stand_in(X):
    """A row in a container like X: zeros, and missing values in columns of other dtypes."""
    if not hasattr(X, "iloc"):
        return type(X)((1, X.shape[1]), dtype=X.dtype) if sp.issparse(X) else np.zeros((1, X.shape[1]), X.dtype)
    import pandas as pd

    is_number = [getattr(dtype, "kind", "O") in "biuf" for dtype in X.dtypes]
    columns = [pd.Series([0 if n else None], dtype=dtype) for n, dtype in zip(is_number, X.dtypes, strict=True)]
    row = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=[0])
    row.columns = X.columns
    return row
