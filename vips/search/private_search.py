"""``PrivateSearch``: the best of a secret number of private fits, by a private score on records that are held out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import MetaEstimatorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from vips._fitted import forget_fit
from vips._validation import check_number
from vips.data import as_source
from vips.data._checks import checked_csr
from vips.data._groups import check_ids, name_of
from vips.data._tables import from_arrow
from vips.exceptions import PrivacyBudgetError
from vips.privacy import PrivacyBudget, PrivacyPlan
from vips.privacy.budget import check_privacy
from vips.privacy.ledger.charge import ledger_to_charge
from vips.privacy.ledger.ledger import PrivacyLedger
from vips.privacy.ledger.origin import RemembersItsLedger
from vips.privacy.ledger.pricing import SEARCH_SHARE
from vips.privacy.selection import Selection, TrialCount, plans_of_trial
from vips.privacy.units import unit_of_group
from vips.search.candidates import Candidate, as_candidates, calibrated
from vips.search.one_trial import OneTrial, fit_prepaid
from vips.search.report import report_of_search
from vips.search.scores import half_width, rehearse_scores
from vips.search.split import rows_of, split_rows
from vips.search.trials import best_of

__all__ = ["PrivateSearch"]


def _if_estimator_has(method: str):
    return available_if(lambda search: hasattr(getattr(search, "best_estimator_", None) or search.estimator, method))


class PrivateSearch(MetaEstimatorMixin, RemembersItsLedger):
    """Choose settings within one privacy budget, and fit with them.

    A random, secret number of trials. Each fits a candidate drawn at random to the records that are not held out, and scores it
    on those that are, both privately. Only the best trial is released: its model, its settings and its noisy score. Whether
    that pays is another question: docs/private_search.md.

    Parameters
    ----------
    estimator : vips model
        Its ``privacy`` gives sampling rate, steps and clip norm; the search sets the noise. None: full batches.
    candidates : list of dict, or dict of lists
        Settings for ``set_params``; a dict of lists stands for all combinations. ``privacy`` may be among them.
    score : str or callable
        "log_likelihood" or "accuracy", as far as the model knows it (``model.score_ranges()``); higher is better. Or
        ``score(model, X, y)``, which gets the rows of one person at a time (``y`` is None without labels) and returns a number.
    score_range : (float, float), optional
        A person's score is clipped to it. Public. None is the model's range; a score of your own needs one.
    privacy : PrivacyBudget
        Of the whole search, which is (ε, δ)-private. Of a part of a budget, and of what a ledger has left, a search spends its
        pure part or its μ², and δ₀: much less than (ε, δ), because a search is no Gaussian mechanism (docs/private_search.md).
    mean_trials : float, optional
        E[K] > 1. None is the number of candidates, at least 2: a candidate is then tried with a probability of about a half.
    shape : float
        η ≥ 0 of the number of trials, truncated negative binomial; 1 is geometric.
    held_out : float
        Probability, between 0 and 1, that a person is held out.

    Attributes
    ----------
    best_estimator_ : estimator
        Fitted, of the best trial; None if every trial failed. Save it: ``best_estimator_.save(path)``.
    best_params_ : dict
        Its settings, as given in ``candidates``.
    best_score_ : float
        Its noisy score: the sum over held-out persons of the clipped score less the middle of the range, and noise. Of the best
        trial, hence too high on average. ``-inf`` if every trial failed.
    privacy_ : PrivacyReport
        Of the whole search; also that of the best estimator.

    Privacy
    -------
    Unit: that of the model, a row or, with ``groups``, all rows of one id. Released: the attributes. Secret: the number of
    trials, and all but the best one; they leave no file, log, warning, count or error. A trial that fails has the lowest score.
    Public: all arguments. Not covered: how long the search takes, and counters of the process; what a score or a model
    of your own keeps or writes.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import BayesianLogisticRegression, PrivacyBudget, PrivateSearch
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, (20_000, 4))
    >>> y = rng.random(20_000) < 1.0 / (1.0 + np.exp(-X @ [4.0, -4.0, 2.0, 0.0]))
    >>> model = BayesianLogisticRegression(max_norm=1.0)
    >>> search = PrivateSearch(model, {"prior": [1.0, 1e4]}, privacy=PrivacyBudget(2.0, 1e-6)).fit(X, y)
    >>> search.predict_proba(X[:3]).shape
    (3, 2)
    >>> 1.99 < search.privacy_.epsilon() <= 2.0
    True
    """

    def __init__(
        self,
        estimator: object,
        candidates: Sequence[Mapping] | Mapping[str, Sequence],
        *,
        score: str | Callable = "log_likelihood",
        score_range: tuple[float, float] | None = None,
        privacy: PrivacyBudget,
        mean_trials: float | None = None,
        shape: float = 1.0,
        held_out: float = 0.2,
    ) -> None:
        self.estimator = estimator
        self.candidates = candidates
        self.score = score
        self.score_range = score_range
        self.privacy = privacy
        self.mean_trials = mean_trials
        self.shape = shape
        self.held_out = held_out

    def fit(self, X, y=None, *, groups: object = None, ledger: PrivacyLedger | None = None) -> Self:
        """Search, and keep the best trial.

        Parameters
        ----------
        X : array, CSR matrix, data frame or Arrow table of shape (n_rows, n_features), or sequences
            In memory.
        y : array of shape (n_rows,), optional
        groups : array, series or list of length n_rows, optional
            Ids of persons, as for models: all rows of one id are fitted together, or held out together.
        ledger : PrivacyLedger, optional
            Charged with the whole search before the first trial. Nothing is ever given back, and another ``fit`` pays again.
            None is the ledger whose block encloses the call, if any.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            From public facts: arguments, containers, dtypes, numbers of rows and columns.
        PrivacyBudgetError, LedgerError
            If the ledger has no room. Nothing is charged then.
        """
        forget_fit(self)
        candidates = self._candidates()
        ledger = self._ledger(ledger, candidates)
        trials, candidates, score_plan = self._planned(candidates, ledger)
        X, y = _readable(X, y, groups)
        model = candidates[0].model
        unit = model.unit if groups is None else unit_of_group(name_of(groups) or "group")
        fitted = _fitted_without_rows(candidates, X, y, groups)
        score_range = self._range(fitted)
        if not callable(self.score):
            none = np.zeros(0, np.int64)
            for candidate in fitted:
                rehearse_scores(candidate, rows_of(X, none), rows_of(y, none), self.score)
        plan = replace(score_plan, clip_norm=half_width(score_range))
        plans = dict.fromkeys([*(replace(candidate.plan, clip_norm=None) for candidate in candidates), score_plan])
        selection = Selection(trials, tuple(plans))
        charge = _charged(ledger, selection, f"PrivateSearch of {type(model).__name__}", unit)
        score = self.score
        self.best_score_, (self.best_estimator_, self.best_params_) = _search(
            trials,
            lambda: OneTrial(candidates, X, y, split_rows(_n_rows(X), groups, self.held_out), score, score_range, plan),
        )
        best = self.best_estimator_
        self.privacy_ = report_of_search(
            selection, plan, None if best is None else best.privacy_, unit, charge, len(candidates),
            (_name_of(score), score_range, float(self.held_out)),
        )  # fmt: skip
        if best is not None:
            best.privacy_ = self.privacy_
        return self

    def _candidates(self) -> list[Candidate]:
        check_privacy(self.privacy, PrivacyBudget)
        check_number("held_out", self.held_out, 0.0, 1.0, "between 0 and 1", open_low=True, open_high=True)
        return as_candidates(self.estimator, self.candidates, self.privacy.relation)

    def _planned(
        self, candidates: list[Candidate], ledger: PrivacyLedger | None
    ) -> tuple[TrialCount, list[Candidate], PrivacyPlan]:
        """What all trials share, from arguments and ledger."""
        trials = TrialCount(max(2.0, len(candidates)) if self.mean_trials is None else self.mean_trials, self.shape)
        plans = tuple(candidate.plan for candidate in candidates)
        fits, score_plan = plans_of_trial(trials, *_statement(self.privacy, ledger), plans)
        return trials, calibrated(candidates, fits), score_plan

    def _ledger(self, ledger: PrivacyLedger | None, candidates: list[Candidate]) -> PrivacyLedger | None:
        """The ledger to charge, if any."""
        origins = [getattr(owner, "sent_from", None) for owner in (self, self.estimator)]
        plans = (candidate.plan for candidate in candidates)
        return ledger_to_charge(ledger, *origins, *(sent.sent_from for sent in (self.privacy, *plans)))

    def _range(self, fitted: list) -> tuple[float, float]:
        """The range of the score, from the arguments or from what the models know."""
        if not callable(self.score):
            for model in fitted:
                known = model.score_ranges()
                if self.score not in known:
                    instead = f"write one of {', '.join(map(repr, known))}, or" if known else "write"
                    raise ValueError(
                        f"{type(model).__name__} has no score {self.score!r}: {instead} a function score(model, X, y) "
                        "of the rows of one person, with `score_range=(low, high)`."
                    )
        if self.score_range is not None:
            low, high = self.score_range
            check_number("score_range[0]", low, -1e12, 1e12, "a finite number")
            check_number("score_range[1]", high, low, 1e12, "a finite number above the low end", open_low=True)
            return float(low), float(high)
        if callable(self.score):
            raise ValueError(
                "A score of your own needs `score_range=(low, high)`: noise is in proportion to its width."
            )
        ranges = {model.score_ranges()[self.score] for model in fitted}
        if len(ranges) != 1 or None in ranges:
            raise ValueError(
                f"The range of {self.score!r} is not known, or not the same for all candidates: write "
                "`score_range=(low, high)`."
            )
        return ranges.pop()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "privacy_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        for name in (
            "estimator_type",
            "classifier_tags",
            "regressor_tags",
            "transformer_tags",
            "target_tags",
            "input_tags",
        ):
            setattr(tags, name, getattr(inner, name))
        tags.non_deterministic = True
        return tags

    @property
    def classes_(self) -> np.ndarray:
        """Classes of the best estimator."""
        return self._best().classes_

    @_if_estimator_has("predict")
    def predict(self, X) -> Any:
        """``predict`` of the best estimator."""
        return self._best().predict(X)

    @_if_estimator_has("predict_proba")
    def predict_proba(self, X) -> np.ndarray:
        """``predict_proba`` of the best estimator."""
        return self._best().predict_proba(X)

    @_if_estimator_has("decision_function")
    def decision_function(self, X) -> np.ndarray:
        """``decision_function`` of the best estimator."""
        return self._best().decision_function(X)

    @_if_estimator_has("transform")
    def transform(self, X) -> Any:
        """``transform`` of the best estimator."""
        return self._best().transform(X)

    @_if_estimator_has("score_samples")
    def score_samples(self, X) -> np.ndarray:
        """``score_samples`` of the best estimator."""
        return self._best().score_samples(X)

    def _best(self):
        check_is_fitted(self)
        if self.best_estimator_ is None:
            raise NotFittedError(
                "Every trial of this search failed, so that it has no best estimator. Its charge stays."
            )
        return self.best_estimator_


def _statement(budget: PrivacyBudget, ledger: PrivacyLedger | None) -> tuple[float, float]:
    """(ε, δ) of a search that spends the budget; in a ledger, the charge is at a share of what is left of δ₀ there."""
    if budget.is_whole:
        return budget.epsilon, budget.delta
    share = math.inf if ledger is None else SEARCH_SHARE * ledger.remaining().delta_0
    epsilon, delta = budget.pure_epsilon, min(budget.delta_0, share)
    if not (epsilon > 0.0 and delta > 0.0):
        raise PrivacyBudgetError("Nothing that could pay for a search is left of this budget. Nothing was charged.")
    return epsilon, delta


def _search(trials: TrialCount, prepare: Callable[[], OneTrial]) -> tuple[float, tuple]:
    """The best trial. An error before the first one is a search in which all fail: it could depend on a record."""
    try:
        run = prepare()
    except Exception:
        return -np.inf, (None, None)
    score, trial = best_of(trials, run)
    return score, (None, None) if trial is None else trial


def _charged(ledger: PrivacyLedger | None, selection: Selection, what: str, unit: str) -> dict | None:
    """Charge a search, as (ε, δ) at the ledger's δ₀; the entry for reports."""
    if ledger is None:
        return None
    return ledger.entry(ledger.charge_event(what, unit=unit, relation=selection.relation, event=selection))


def _fitted_without_rows(candidates: list[Candidate], X, y, groups) -> list:
    """All candidates, fitted to the table without its rows: raises what public facts raise, before any charge."""
    none = np.zeros(0, np.int64)
    persons = None if groups is None else none
    one_step = (candidate.with_plan(candidate.plan.with_n_steps(1)) for candidate in candidates)
    return [fit_prepaid(candidate, rows_of(X, none), rows_of(y, none), persons) for candidate in one_step]


def _readable(X, y, groups):
    """X and y in containers of which rows can be taken; checks of public facts."""
    if as_source(X, y) is not None:
        raise TypeError(
            f"A search splits records in memory, and cannot split a {type(X).__name__}: pass arrays, a CSR matrix or a data "
            "frame."
        )
    X, y = from_arrow(X), from_arrow(y)
    X = checked_csr(X) if sp.issparse(X) else X
    if not hasattr(X, "__len__") and not hasattr(X, "shape"):
        raise TypeError(f"X must be a table in memory, got {type(X).__name__}.")
    if y is not None and len(y) != _n_rows(X):
        raise ValueError("X and y have different numbers of rows.")
    if groups is not None:
        check_ids(groups)
        if len(groups) != _n_rows(X):
            raise ValueError("X and groups have different numbers of rows.")
    return X, y


def _n_rows(X) -> int:
    return X.shape[0] if hasattr(X, "shape") else len(X)


def _name_of(score: str | Callable) -> str:
    return score if isinstance(score, str) else getattr(score, "__name__", type(score).__name__)
