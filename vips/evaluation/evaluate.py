"""``evaluate``: scores of a classifier on private records, from one released histogram of risk and outcome."""

from __future__ import annotations

import numpy as np

from vips._support.pipelines import model_of
from vips.core.budget import PrivacyBudget, plan_of_one_release
from vips.core.ledger.charge import charged, ledger_to_charge
from vips.core.ledger.ledger import PrivacyLedger
from vips.core.plan import PrivacyPlan
from vips.core.sums import Block
from vips.evaluation.estimates import EDGES, N_BINS
from vips.evaluation.evaluation import Evaluation
from vips.evaluation.predictions import check_predictions, probabilities, table_in_memory
from vips.models import BayesianLogisticRegression
from vips.models._coefficient_tables import classes_of
from vips.preprocessing._encoder_settings import persons_of
from vips.report.report import PrivacyReport, Release

__all__ = ["BLOCKS", "evaluate"]

BLOCKS = {"histogram": Block((2, N_BINS))}
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
    place = _places(classes, y, X.shape[0], plan)
    persons, unit = persons_of(groups, X.shape[0], plan, unit)
    check_predictions(predict, X, len(classes))
    with charged(ledger, f"evaluation of {type(model).__name__}", unit, plan.relation, event=plan) as run:
        cells = _cells(
            probabilities(predict, X, len(classes)), place, None if positive is None else classes.index(positive)
        )
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


def _places(classes: list, y, n_rows: int, plan: PrivacyPlan) -> np.ndarray:
    """Place of each row's class; -1 for a label that is none. Raises from public facts."""
    model = BayesianLogisticRegression(privacy=plan, max_norm=1.0, classes=classes)
    model.check_arguments()
    labels = model.records_of(np.zeros((n_rows, 1)), y).arrays[1]
    place, is_known = model.likelihood.places(labels)
    return np.where(is_known, place, -1)


def _cells(predicted: np.ndarray, place: np.ndarray, positive: int | None) -> np.ndarray:
    """The cell of each row in the histogram, outcome by risk; -1 for a row that counts as nothing."""
    if positive is None:
        risk, outcome = predicted.max(axis=1, initial=0.0), predicted.argmax(axis=1) == place
    else:
        risk, outcome = predicted[:, positive], place == positive
    cells = outcome * N_BINS + np.searchsorted(
        EDGES, risk
    )  # a risk of ½ is below: the first of two classes is predicted
    return np.where(np.isnan(risk) | (place < 0), -1, cells)


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
