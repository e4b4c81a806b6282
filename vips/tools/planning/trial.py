"""A small fit to generated records with the noise of a large one: how wide its intervals will be.

A fit to n' records with n'/n of the noise has the same noise in every mean as a fit to n records, and n/n' times the variance
of sampling. A second fit, almost without noise, tells that variance. So the width w of an interval follows the law

    w² = s/n + c/(n² μ²)

whose s and c come from these two fits: the width for every n, and for every μ of a budget. Records are given, or generated from
what models and encoders declare.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from vips._support.pipelines import model_of
from vips._support.printable import listed
from vips._support.validation import check_number
from vips.core.budget import PrivacyBudget
from vips.core.ledger.open_ledger import paying
from vips.core.plan import PrivacyPlan
from vips.core.records.groups import group_numbers
from vips.datasets import make_table
from vips.exceptions import LedgerError
from vips.models._typical import persons
from vips.preprocessing._private_pipeline import PrivatePipeline

__all__ = ["Law", "Like", "Trials", "assumptions", "generated", "widths_of"]

_LEVEL = 0.95
# How many times less noise tells what sampling leaves, with and without labels. With next to none, a match notices that its fit
# has not quite settled.
_LESS_NOISE = {True: 1e3, False: 10.0}
_FARTHEST, _HALVINGS = 40.0, 40  # of the intercept that gives an outcome


@dataclass(frozen=True)
class Like:
    """Records that resemble the private ones, and which of them are one person's."""

    X: Any
    y: Any = None
    groups: Any = None

    @classmethod
    def of(cls, like: Any) -> Like:
        """Records, (X, y) or (X, y, groups)."""
        return cls(*like) if isinstance(like, tuple) else cls(like)

    @property
    def n_rows(self) -> int:
        return self.X.shape[0] if hasattr(self.X, "shape") else len(self.X)

    def drawn(self, n_records: int, rng: np.random.Generator) -> Like:
        """As many records, each with all of its rows: without replacement, as long as there are enough."""
        if self.groups is None:
            starts, lengths, rows = np.arange(self.n_rows), np.ones(self.n_rows, np.int64), np.arange(self.n_rows)
        else:
            numbers = group_numbers(self.groups, self.n_rows)
            rows = np.argsort(numbers, kind="stable")[(numbers < 0).sum() :]
            _, starts, lengths = np.unique(numbers[rows], return_index=True, return_counts=True)
        n = len(starts)
        persons = np.concatenate([rng.permutation(n) for _ in range(-(-n_records // n))])[:n_records]
        lengths = lengths[persons]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        chosen = self.take(rows[np.repeat(starts[persons], lengths) + within])
        return chosen if self.groups is None else replace(chosen, groups=np.repeat(np.arange(n_records), lengths))

    def take(self, rows: np.ndarray) -> Like:
        """Some rows, in that order, without ids."""
        return Like(_rows(self.X, rows), None if self.y is None else _rows(self.y, rows))

    def fit(self, model, **settings: object) -> Any:
        """The model, fitted to them."""
        labels = () if self.y is None else (self.y,)
        return model.fit(self.X, *labels, **settings, **({} if self.groups is None else {"groups": self.groups}))


def _rows(values, rows: np.ndarray):
    if hasattr(values, "iloc"):
        return values.iloc[rows].reset_index(drop=True)
    return [values[row] for row in rows] if isinstance(values, list | tuple) else values[rows]


@dataclass(frozen=True)
class Law:
    """The law of the widths of 95 % intervals."""

    names: list[str]
    of_sampling: np.ndarray  # s of each quantity
    of_noise: np.ndarray  # c
    seconds: float  # that the fit will take for each record, about

    def widths(self, n_records: float, mu2: float) -> np.ndarray:
        """Shape (n_quantities,)."""
        return np.sqrt(self.of_sampling / n_records + self.of_noise / (n_records**2 * mu2))

    def excess(self, width: Mapping[str, float], n_records: float, mu2: float) -> float:
        """The largest ratio of a width to the one that is wanted."""
        widths = dict(zip(self.names, self.widths(n_records, mu2), strict=True))
        return max(widths[name] / limit for name, limit in width.items())

    def mu2_for(self, width: Mapping[str, float], n_records: float) -> float:
        """The least μ² at which no width is larger; infinite if sampling alone makes one so."""
        wanted = np.array([width.get(name, np.inf) for name in self.names])
        left = wanted**2 - self.of_sampling / n_records
        return float(np.max(self.of_noise / (n_records**2 * left))) if (left > 0.0).all() else np.inf

    def records_for(self, width: Mapping[str, float]) -> float:
        """The least number of records at which no width is larger without noise."""
        return float(max(self.of_sampling[self.names.index(name)] / limit**2 for name, limit in width.items()))


def check_outside_of_ledgers(what: str) -> None:
    """Raise LedgerError inside of a block ``with ledger:``, which would be charged with fits to other records than its own."""
    if scope := paying():
        raise LedgerError(
            f"{what} fits models to generated or public records, and inside of `with` {scope.path} its people would pay for "
            f"them: nothing was charged. Call {what} before the block, or after it."
        )


class Trials:
    """Fits of copies of a model to at most ``n_trial`` of the ``n_records`` that are planned; laws are of the medians of
    ``n_fits`` of them."""

    def __init__(self, model, like: Like, n_records: int, n_trial: int, n_fits: int) -> None:
        check_outside_of_ledgers("plan_for")
        self.model, self.n_records, self.n = model, n_records, min(n_records, n_trial)
        has_labels = model_of(model).needs_labels
        self.less, seeds = _LESS_NOISE[has_labels], n_fits * [0] if has_labels else range(n_fits)
        self.samples = [like.drawn(self.n, np.random.default_rng(seed)) for seed in seeds]
        self._with_less: tuple[float, list[dict[str, float]]] | NotImplementedError = (0.0, [])  # noise, by its μ²

    def law(self, privacy: PrivacyBudget, plan: PrivacyPlan | None) -> Law:
        """The law near this budget; ``plan`` is a model's, and None for a pipeline, which plans itself.
        NotImplementedError with the reason if such fits have no intervals."""
        less = self.n_records / self.n
        (mu2, of_less), started = self._fits_with_less(privacy, plan, less), time.perf_counter()
        widths = self._widths(privacy, plan, less)
        seconds = (time.perf_counter() - started) / (len(widths) * self.n)
        # columns that are learnt may differ
        names = [name for name in widths[0] if all(name in of for of in widths + of_less)]
        squares, least = (
            _medians([[of[name] ** 2 for name in names] for of in fits], names) for fits in (widths, of_less)
        )
        of_noise = np.maximum(squares - least, 0.0) / (1.0 - privacy.mu2 / mu2)
        without = np.maximum(squares - of_noise, 0.0)
        return Law(names, self.n * without, (squares - without) * self.n_records**2 * privacy.mu2, seconds)

    def _fits_with_less(self, privacy: PrivacyBudget, plan: PrivacyPlan | None, less: float) -> tuple[float, list]:
        """Widths with far less noise, and its μ²; where there are none, no budget helps, and it is seen once."""
        if isinstance(self._with_less, NotImplementedError):
            raise self._with_less
        if privacy.mu2 * self.less > self._with_less[0]:
            try:
                self._with_less = privacy.mu2 * self.less**2, self._widths(privacy, plan, self.less * less)
            except NotImplementedError as missing:
                self._with_less = NotImplementedError(f"Not even with far less noise: {missing}")
                raise self._with_less from None
        return self._with_less

    def _widths(self, privacy: PrivacyBudget, plan: PrivacyPlan | None, less_noise: float) -> list[dict[str, float]]:
        """Widths of the fits that have intervals, with so many times less noise; NotImplementedError if most have none."""
        widths, missing = [], NotImplementedError()
        for sample in self.samples:
            try:
                widths.append(widths_of(self._fitted(sample, privacy, plan, less_noise)))
            except NotImplementedError as reason:
                missing = reason
        if 2 * len(widths) < len(self.samples):
            raise missing
        return widths

    def _fitted(self, records: Like, privacy: PrivacyBudget, plan: PrivacyPlan | None, less_noise: float) -> Any:
        """A copy, fitted with so many times less noise."""
        model = clone(self.model)
        scaled: PrivacyBudget | PrivacyPlan = privacy.scaled(less_noise**2)
        if plan is not None:
            scaled = replace(plan, noise_multiplier=plan.noise_multiplier / less_noise)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return records.fit(model.set_params(privacy=scaled))


def _medians(squares: list[list[float]], names: list[str]) -> np.ndarray:
    """Medians over the fits that give limits, by name; NotImplementedError for names to which most give none."""
    has_none = np.isnan(squares).mean(axis=0) > 0.5
    if has_none.any():
        without = listed([name for name, is_one in zip(names, has_none, strict=True) if is_one])
        raise NotImplementedError(
            f"Noise hides too much for limits of {without}: tighter bounds, more records or a larger ε would tell."
        )
    return np.nanmedian(squares, axis=0)


def widths_of(fitted) -> dict[str, float]:
    """Widths of the intervals that people read: of each coefficient, and the median of other parameters of one kind."""
    model = model_of(fitted)
    if reason := model.why_no_intervals():
        raise NotImplementedError(reason)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if model.needs_labels:
            table = fitted.summary(_LEVEL)
            names = [": ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in table.index]
            return dict(zip(names, table["upper"] - table["lower"], strict=True))
        widths = {}
        for part in model.posterior_parts(model.posterior_):
            if part.are_parameters:
                lower, upper = part.distribution.interval(_LEVEL)
                widths[part.name] = float(np.median(upper - lower))
    return widths


# -- records from what models and encoders declare: nobody's -------------------------------------------------------


def generated(
    model,
    n_records: int,
    n_features: int | None,
    rng: np.random.Generator,
    *,
    effects: Mapping | None = None,
    guess: Mapping | None = None,
    outcome: float | None = None,
) -> Like:
    """Records of a model or pipeline; ValueError, with what to give, if too little is known about such records.

    ``n_features`` is needed by models alone, ``effects`` and ``guess`` are for pipelines (:func:`vips.datasets.make_table`);
    ``outcome`` is the share of the last one of two classes, or the average count.
    """
    try:
        last = model_of(model)
        if outcome is not None and not _has_outcome(last):
            raise ValueError(
                f"`outcome` is the share of the last one of two classes, or an average count: a {type(last).__name__} as "
                "declared has neither. Leave it out, or give like=."
            )
        if not isinstance(model, PrivatePipeline):
            if effects or guess:
                raise NotImplementedError("`effects` and `guess` are for pipelines, whose columns have names.")
            X, *others = model.typical_records(n_records, n_features, rng)
            if outcome is not None:
                others[0] = _labels(model, rng.standard_normal(len(others[0])), outcome, rng)
            return Like(X, *others)
        encoder = model[0]
        if not isinstance(getattr(encoder, "columns", None), Mapping):
            raise NotImplementedError(
                "The columns of this pipeline are not declared by name, or it takes texts: give records that resemble the "
                "private ones, like=, generated or public."
            )
        groups = persons(n_records, rng) if last.reads_persons else None
        n_rows = n_records if groups is None else len(groups)
        table = make_table(encoder.columns, n_rows, guess=guess, effects=effects, random_state=rng)
        if not last.needs_labels:
            return Like(table.data)
        predictor = table.predictor if effects else rng.standard_normal(n_rows)
        predictor = predictor + last.typical_effects(table.data, groups, rng)
        return Like(table.data, _labels(last, predictor, outcome, rng), groups)
    except NotImplementedError as missing:
        raise ValueError(str(missing)) from None


def assumptions(model, guess: Mapping | None, outcome: float | None) -> str:
    """What generated records are like that nobody has said, and how to say it."""
    last = model_of(model)
    columns = getattr(model[0], "columns", None) if isinstance(model, PrivatePipeline) else None
    unsaid = [declared for name, declared in (columns or {}).items() if name not in (guess or {})]
    kinds = {isinstance(declared, list) or declared == "category" for declared in unsaid}
    is_class = hasattr(last, "predict_proba")
    scatter = "targets scatter by an eighth of `target_range` around what the columns say"
    outcomes = "about half of the outcomes are yes" if is_class else "counts are those without effects"
    said = [
        (False in kinds, "values are spread over their bounds", "guess={name: (mean, deviation)}"),
        (True in kinds, "categories are equally frequent", "guess={name: shares}"),
        (_has_outcome(last) and outcome is None, outcomes, "outcome="),
        (hasattr(last, "target_range"), scatter, ""),
    ]
    assumed, ask = ([row[k] for row in said if row[0]] for k in (1, 2))
    if not assumed:
        return ""
    ways = ", ".join([*filter(None, ask), "like="])
    return (
        f"Assumed, since nobody has said otherwise: {', '.join(assumed)}. Where that is wrong, as for rare outcomes or wide "
        f"bounds, intervals are several times wider, or narrower: say what is public ({ways})."
    )


def _has_outcome(model) -> bool:
    """Whether an average of its labels says how much they tell: of two classes, and of counts."""
    if not model.needs_labels or not hasattr(model, "likelihood"):
        return False
    return getattr(model, "classes", None) is None or len(model.classes) == 2


def _labels(model, predictor: np.ndarray, outcome: float | None, rng: np.random.Generator) -> np.ndarray:
    """Labels of these predictors, moved by what gives the outcome."""
    if outcome is None:
        return model.typical_labels(predictor, rng)
    seed, (_, largest) = rng.integers(2**32), model.typical_labels(np.array([-_FARTHEST, _FARTHEST]), rng)
    is_class = hasattr(model, "predict_proba")
    most = 1.0 if is_class else float(largest)
    check_number("outcome", outcome, 0.0, most, f"between 0 and {most:g}", open_low=True, open_high=True)
    low, high = -_FARTHEST, _FARTHEST
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        labels = model.typical_labels(predictor + middle, np.random.default_rng(seed))
        is_low = np.mean(labels == largest if is_class else labels) < outcome
        low, high = (middle, high) if is_low else (low, middle)
    return labels
