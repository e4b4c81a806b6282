"""A pipeline of a private encoder and a private model, with one budget."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import Bunch
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from vips._support.fitted import all_or_nothing, forget_fit, refuse_untaken
from vips._support.validation import check_integer, check_number
from vips.core.budget import PrivacyBudget, check_privacy
from vips.core.contract import completed_plan
from vips.core.ledger.ledger import PrivacyLedger, delta_for_threshold
from vips.core.ledger.origin import RemembersItsLedger
from vips.core.ledger.pricing import of_plan
from vips.core.ledger.run import LedgerRun
from vips.core.records.tables import from_arrow
from vips.data._columns import as_table, columns_of, names_of
from vips.data._texts import TextSource
from vips.door import Beside, ledger_of_fit, with_exposures, with_weights
from vips.exceptions import CheckpointError
from vips.executors import resolve as executors
from vips.model import ConjugateExponentialModel
from vips.persistence.checkpoint import alone_at
from vips.preprocessing._budget import Budget, split_budget
from vips.preprocessing._column_kinds import Number, kind_of_column
from vips.preprocessing._encoder import column_kinds, grouped_texts, unit_of_persons, unit_of_source
from vips.preprocessing._private_words import PrivateCountVectorizer
from vips.preprocessing._saved import behind_encoder, checkpointed, restored_parts, run_of, save_pipeline, without_plans
from vips.preprocessing._table import TableEncoder
from vips.report.report import PrivacyReport
from vips.report.unread import Seen, warn_of_unread

__all__ = ["MadePipeline", "PrivatePipeline", "make_private_pipeline", "restored_pipeline"]

_ROUNDING = 1e-9  # of bounds around 0


def _if_steps_have(method: str):
    return available_if(lambda pipeline: hasattr(pipeline._pipeline(), method))


def _of_model(name: str, *, encodes: bool = False) -> Any:
    """A method that a pipeline has if its model has one of this name.

    If it ``encodes``, it takes rows as the pipeline does. Coefficients are in units of the columns after an encoder of tables.
    """

    def method(self, *args: Any, **kwargs: Any) -> Any:
        of_model = getattr(self._fitted()[-1], name)
        if encodes:
            X, *args = args if args else (kwargs.pop("X"),)
            return of_model(self.encoded(X), *args, **kwargs)
        if "features" in signature(of_model).parameters:
            kwargs["features"] = self._encoder_of_table()
        return of_model(*args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"``{name}`` of the model{', for :meth:`encoded` rows' if encodes else ''}; arguments as there."
    return available_if(lambda pipeline: hasattr(pipeline._pipeline()[-1], name))(method)


class PrivatePipeline(Pipeline):
    """A private encoder and a model, fitted together within one budget.

    The budget is split by a public rule before the first release: an encoder that learns something gets ``encoder_share`` of
    the inverse noise variance, and the threshold of categories, if any are learnt, a tenth of δ. Where all columns are
    declared, all of it is the model's. The model takes all records in each of ``n_steps`` steps. Encoder and fit are composed
    as one Gaussian mechanism.

    Parameters
    ----------
    steps : list of (str, step)
        A :class:`TableEncoder` or :class:`PrivateCountVectorizer`, and a vips model, both without a plan. ``fit``
        changes neither the list nor the steps: it fits copies.
    privacy : PrivacyBudget
        Of both together.
    n_steps : int
        Steps of the model's fit.
    encoder_share : float
        Between 0.001 and 0.999. docs/preprocessing.md says how the default was chosen.
    max_weight : float or None
        Largest weight of a row in the model's sums, for ``fit(..., sample_weight=w)``: see :class:`PrivacyPlan`.

    Attributes
    ----------
    steps_ : list of (str, step)
        Fitted copies. Before ``fit``, ``named_steps``, indexing and slicing give the steps of the parameter; after it, those
        of ``steps_``.
    privacy_ : PrivacyReport
        Of encoder and fit together; also that of the fitted model.

    Notes
    -----
    *Privacy.*
    Unit: that of the model, a row or, with ``groups``, all rows of one id. Released: what the encoder learnt, and the noisy
    totals of the model's fit. Public: names and dtypes of columns, and all arguments of the steps. Where the model's
    ``max_norm`` or ``vocabulary`` is None, it is the encoder's.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from vips import BayesianLogisticRegression, PrivacyBudget
    >>> from vips.preprocessing import TableEncoder, make_private_pipeline
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"age": rng.integers(18, 90, 20_000), "town": rng.choice(["A", "B"], 20_000)})
    >>> y = (table["age"] + 30 * (table["town"] == "A") + rng.normal(0, 20, 20_000) > 70).to_numpy()
    >>> steps = TableEncoder(), BayesianLogisticRegression()
    >>> pipeline = make_private_pipeline(*steps, privacy=PrivacyBudget(1.0, 1e-6)).fit(table, y)
    >>> pipeline.score(table, y) > 0.7
    True
    >>> round(pipeline.privacy_.epsilon(), 3)
    1.0
    """

    # Classes of the first step, and of `privacy`.
    encoders: tuple[type, ...] = (TableEncoder, PrivateCountVectorizer)
    budgets: tuple[type | None, ...] = (PrivacyBudget,)

    # Settings of scikit-learn's pipeline that this one does not have.
    transform_input, memory, verbose = None, None, False
    max_weight: float | None = None  # of pipelines without this argument

    def __init__(
        self,
        steps: list,
        *,
        privacy: PrivacyBudget,
        n_steps: int = 20,
        encoder_share: float = 0.15,
        max_weight: float | None = None,
    ) -> None:
        self.steps = steps
        self.privacy = privacy
        self.n_steps = n_steps
        self.encoder_share = encoder_share
        self.max_weight = max_weight

    @all_or_nothing
    def fit(
        self,
        X,
        y=None,
        *,
        ledger: PrivacyLedger | None = None,
        checkpoint: str | os.PathLike | None = None,
        executor: object = None,
        groups: object = None,
        exposure=None,
        sample_weight=None,
        public_X=None,
        public_y=None,
    ) -> Self:
        """Learn the columns, then fit the model on the encoded rows.

        Parameters
        ----------
        X : data frame of shape (n_rows, n_columns); list of strings; or a source of texts
            For a source, words are learnt and counted one partition at a time, again in every step.
        y : array of shape (n_rows,), optional
            A source holds its own labels.
        ledger : PrivacyLedger, optional
            Charged once, with encoder and fit. None is the ledger whose block encloses the call, if any.
        checkpoint : path, optional
            As for models. A second file, with ".encoder" after this name, keeps what the encoder learnt: if it exists, it is
            used, and nothing is learnt or charged again.
        executor, groups : optional
            See :meth:`ConjugateExponentialModel.fit`. All rows of one id are one record, of the encoder and of the fit.
        exposure : array or series of shape (n_rows,), optional
            For a model that takes it, a regression of counts.
        sample_weight : array or series of shape (n_rows,), optional
            See :meth:`ConjugateExponentialModel.fit`. They weigh in the model; columns are learnt without them.
        public_X, public_y : optional
            Public records for a model that takes them, a regression: the encoder encodes them, and learns nothing from them.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            From public facts only: arguments, container, names and dtypes of columns.
        PrivacyBudgetError, LedgerError
            If the ledger has no room for both. Nothing is charged then.
        CheckpointError
            If a file of the checkpoint belongs to another fit, another fit works with it, or only the model's is there. Nothing
            is charged then.
        """
        forget_fit(self)
        self._check_steps()
        executors.resolve(executor)
        X = from_arrow(X)
        (encoder_name, encoder), (model_name, model) = clone(self.steps, safe=False)
        encoder.beside = names_of(y, groups, exposure, sample_weight)
        if isinstance(X, TextSource):
            X, groups = _checked_source(X, y, encoder, groups), None
        budget = self._give_plans(encoder, model, X)
        _check_effects(encoder, model, X)
        _check_origin(encoder, model, X)
        lacking = [name for name in encoder.supplies if model.get_params(deep=False).get(name, 0) is None]
        stand_in = clone(model).set_params(**{name: encoder.supplies[name] for name in lacking})
        beside = {
            "exposure": exposure,
            "sample_weight": sample_weight,
            "public_X": from_arrow(public_X),
            "public_y": public_y,
        }
        beside = {name: value for name, value in beside.items() if value is not None}
        refuse_untaken(model, signature(model.fit).parameters, beside)
        ledger = self._checked_with_model(stand_in, X, y, ledger, beside)
        if "public_X" in beside:
            encoder.learns_columns(beside["public_X"])
            if getattr(encoder, "columns", ()) is None:  # all columns of X
                columns_of(beside["public_X"], dict.fromkeys(X.columns))
        if budget.threshold_delta is not None:
            encoder.set_params(threshold_delta=delta_for_threshold(budget.threshold_delta, ledger))
        whole = budget.encoder and budget.whole(completed_plan(stand_in, budget.fit))
        unit = encoder.unit if groups is None else unit_of_persons(groups)
        if isinstance(X, TextSource):
            unit = unit_of_source(X, encoder.privacy, encoder.unit)
        with _alone_at(checkpoint) as checkpoint:
            saved = _saved_encoder(encoder, checkpoint, ledger, unit)
            run = LedgerRun(ledger, None if saved is None else run_of(saved))
            try:
                if saved is None:
                    if ledger is not None and whole is not None:
                        what = f"{type(self).__name__}: {type(encoder).__name__} and {type(model).__name__}"
                        run.charge(of_plan(whole, ledger.relation, encoder.threshold_delta or 0.0), what, unit)
                    paid = run if whole is None else run.part(budget.encoder, whole)
                    of_source = {"executor": executor} if isinstance(X, TextSource) else {}
                    encoder.fit(X, y, ledger=paid, groups=groups, **of_source).set_output(transform="default")
                    if checkpoint is not None:
                        encoder.save(_beside(checkpoint))
                else:
                    encoder = saved
                features = _features(encoder, X)
                supplied = {name: getattr(encoder, name) for name in lacking} | _places_of_effects(encoder, model)
                model.set_params(**supplied, **self._chosen(encoder, model))
                if "public_X" in beside:
                    beside["public_X"] = encoder.transform(beside["public_X"])
                paid = ledger if whole is None else run.part(budget.fit, whole, before=1)
                model.fit(features, y, ledger=paid, checkpoint=checkpoint, executor=executor, groups=groups, **beside)
            except BaseException:
                run.close()
                raise
        model.privacy_ = behind_encoder(model.privacy_, encoder)
        self._keep([(encoder_name, encoder), (model_name, model)])
        if not self.privacy_.only_noise:  # of which the model has warned
            warn_of_unread(self)
        return self

    @property
    def privacy_(self) -> PrivacyReport:
        """The report of encoder and fit together."""
        return self._fitted()[-1].privacy_

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted pipeline to a file of arrays and JSON, without pickle; ``vips.load`` reads it.

        Raises
        ------
        NotFittedError
        TypeError
            If a setting cannot be written as data.
        """
        save_pipeline(self, path)

    # -- after fit ------------------------------------------------------------------------------------------------

    def _pipeline(self) -> Pipeline:
        """A scikit-learn pipeline of the steps: of the fitted ones, if there are any."""
        return Pipeline(self.steps_ if self.__sklearn_is_fitted__() else self.steps)

    def _keep(self, steps: list[tuple[str, object]]) -> None:
        """These are the fitted steps. The model names columns as the encoder does."""
        self.steps_ = steps
        (_, encoder), (_, model) = steps
        model.names_of_columns = encoder.get_feature_names_out()

    def _fitted(self) -> Pipeline:
        check_is_fitted(self)
        return self._pipeline()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "steps_")

    @property
    def named_steps(self) -> Bunch:
        """Steps by name: fitted copies after ``fit``."""
        return self._pipeline().named_steps

    def __getitem__(self, index) -> Any:
        """One step, or a scikit-learn pipeline of these: fitted copies after ``fit``."""
        return self._pipeline()[index]

    summary = _of_model("summary")
    summary_of_effects = _of_model("summary_of_effects")
    plot_coefficients = _of_model("plot_coefficients")
    top_words = _of_model("top_words")
    evidence = _of_model("evidence")
    plot_topics = _of_model("plot_topics")
    to_html = _of_model("to_html")
    predict = _of_model("predict", encodes=True)
    predict_interval = _of_model("predict_interval", encodes=True)
    predict_proba = _of_model("predict_proba", encodes=True)
    predict_log_proba = _of_model("predict_log_proba", encodes=True)
    decision_function = _of_model("decision_function", encodes=True)
    score_samples = _of_model("score_samples", encodes=True)

    def counts_read(self) -> list[Seen]:
        """Noisy counts of what was read of each column: see :meth:`vips.parts.SelfDescription.counts_read`."""
        model, encoder = self._fitted()[-1], self._encoder_of_table()
        return [] if encoder is None else encoder.columns_seen(model.feature_totals())

    def _encoder_of_table(self) -> TableEncoder | None:
        encoder = self[0]
        return encoder if isinstance(encoder, TableEncoder) else None

    def encoded(self, X) -> Any:
        """Rows as predictions take them: cells that are not known become averages of the fitted records, from released values.

        What ``pipeline[0].transform`` gives is what the fit has seen: there, such cells are zeros.
        """
        encoder, model = (step for _, step in self._fitted().steps)
        totals = None if self._encoder_of_table() is None else model.feature_totals()
        return encoder.transform(from_arrow(X)) if totals is None else encoder.averaged(from_arrow(X), totals)

    @_if_steps_have("score")
    def score(self, X, y=None, sample_weight=None, **params) -> float:
        """``score`` of the model, for :meth:`encoded` rows."""
        if sample_weight is not None:
            params["sample_weight"] = sample_weight
        return self[-1].score(self.encoded(X), from_arrow(y), **params)

    @_if_steps_have("transform")
    def transform(self, X, **params) -> Any:
        """``transform`` of the encoder, then of the model."""
        return self[-1].transform(self.encoded(X), **params)

    @_if_steps_have("transform")
    def fit_transform(self, X, y=None, **params) -> Any:
        """``fit(X, y, **params).transform(X)``."""
        return self.fit(X, y, **params).transform(X)

    @_if_steps_have("fit_predict")
    def fit_predict(self, X, y=None, **params) -> Any:
        """``fit(X, y, **params).predict(X)``."""
        return self.fit(X, y, **params).predict(X)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Container of the results of ``transform``, now and after another ``fit``; as in scikit-learn's pipeline."""
        super().set_output(transform=transform)
        if self.__sklearn_is_fitted__():
            self._pipeline().set_output(transform=transform)
        return self

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Names of the features that ``transform`` gives."""
        return self._pipeline().get_feature_names_out(input_features)

    @property
    def classes_(self) -> np.ndarray:
        """Classes of the model."""
        return self._pipeline().classes_

    @property
    def n_features_in_(self) -> int:
        """Number of columns that the encoder was fitted to."""
        return self[0].n_features_in_

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of these columns."""
        return self[0].feature_names_in_

    # -- in the fit -----------------------------------------------------------------------------------------------

    def _check_steps(self) -> None:
        check_privacy(self.privacy, *self.budgets)
        check_integer("n_steps", self.n_steps)
        check_number("encoder_share", self.encoder_share, 0.001, 0.999, "between 0.001 and 0.999")
        if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in self.steps):
            raise TypeError(
                "`steps` are pairs of a name and a step, as those of scikit-learn's Pipeline. Without names write "
                "make_private_pipeline(encoder, model, privacy=...)."
            )
        steps = [step for _, step in self.steps]
        are_two = len(steps) == 2 and type(steps[0]) in self.encoders
        if not are_two or not isinstance(steps[1], ConjugateExponentialModel):
            names = ", ".join(type(step).__name__ for step in steps)
            raise TypeError(
                "A PrivatePipeline has two steps, a TableEncoder or PrivateCountVectorizer and a vips model, got "
                f"[{names}]. Another step could learn from all records. A function of each row alone: apply it to the table "
                "first."
            )
        if steps[1].reads_tables:
            raise TypeError(
                f"{type(steps[1]).__name__} reads the table itself, and all that an encoder could learn of it is declared: "
                "fit it to the table, without a pipeline."
            )
        if steps[0].privacy is not None or steps[0].threshold_delta is not None or steps[-1].privacy is not None:
            raise ValueError(
                "A PrivatePipeline makes the plans of its encoder and its model from its own budget: leave `privacy` and "
                "`threshold_delta` out of these."
            )
        self._validate_steps()

    def _chosen(self, encoder, model) -> dict[str, object]:
        """Further settings of the model, from released numbers."""
        return {}

    def _budget(self, learns: bool, has_threshold: bool) -> Budget:
        if self.privacy is None:
            return Budget(None, None, None)
        budget = split_budget(self.privacy, self.n_steps, self.encoder_share if learns else 0.0, has_threshold)
        if self.max_weight is None:
            return budget
        return replace(budget, fit=replace(budget.fit, max_weight=self.max_weight))

    def _give_plans(self, encoder, model, X) -> Budget:
        """Encoder and model have their parts of the budget, and one unit."""
        budget = self._budget(encoder.learns_columns(X), encoder.has_threshold(X))
        if budget.encoder is not None:
            encoder.set_params(privacy=budget.encoder, threshold_delta=budget.threshold_delta)
        encoder.unit = model.unit
        model.set_params(privacy=budget.fit)
        return budget

    def _checked_with_model(self, model, X, y, ledger: PrivacyLedger | None, beside: dict) -> PrivacyLedger | None:
        """What would stop the model is raised before the encoder's release; returns the ledger to charge."""
        is_source = isinstance(X, TextSource)
        model.check_arguments()
        weights, labels = beside.get("sample_weight"), np.zeros(0) if is_source and X.has_labels else y
        model.beside = Beside(**{name: beside[name] for name in beside if name != "sample_weight"})
        if beside.keys() & {"public_X", "public_y"}:
            model.check_beside(X)
        records = model.records_of(np.zeros((0 if is_source else len(X), 1)), labels)
        with_weights(model, with_exposures(model, records), weights)
        return ledger_of_fit(model, ledger)


class MadePipeline(RemembersItsLedger, PrivatePipeline):
    """Base of pipelines that make their ``steps`` from arguments of their own."""

    def get_params(self, deep: bool = True) -> dict:
        """The arguments; steps have none of their own."""
        return BaseEstimator.get_params(self, deep)

    def set_params(self, **params) -> Self:
        """Set arguments."""
        return BaseEstimator.set_params(self, **params)

    def sent(self, model: ConjugateExponentialModel) -> ConjugateExponentialModel:
        """The model, which is charged to the ledger that this pipeline is charged to."""
        model.sent_from = self.sent_from
        return model


@contextmanager
def _alone_at(checkpoint: str | os.PathLike | None) -> Iterator[os.PathLike | None]:
    """No other fit works with the two files of this checkpoint until the block ends; it yields the checkpoint for the model."""
    if checkpoint is None:
        yield None
        return
    with alone_at(checkpoint) as alone, alone_at(_beside(checkpoint)):
        yield alone


def _saved_encoder(encoder, checkpoint: str | os.PathLike | None, ledger: PrivacyLedger | None, unit: str):
    """The encoder of an interrupted fit, if any."""
    if checkpoint is None:
        return None
    path = _beside(checkpoint)
    encoder.to_json()  # raises for a setting that cannot be saved
    saved = checkpointed(encoder, path, ledger, unit)
    if saved is None and os.path.exists(checkpoint):
        raise CheckpointError(
            f"{os.fspath(checkpoint)} is there, but {path} is not. The fit's first steps would be those of features that "
            "another release of the encoder has made, which nothing here would count. Neither file was touched: bring the "
            "second one back, or begin another fit."
        )
    if saved is not None:
        saved.unit = encoder.unit
    return saved


def _beside(checkpoint: str | os.PathLike) -> str:
    return f"{os.fspath(checkpoint)}.encoder"


def _checked_source(source: TextSource, y, encoder, groups: object) -> TextSource:
    """The documents, where all of one person are one record; what would stop the fit is raised before a release."""
    if y is not None:
        raise TypeError(f"{type(source).__name__} holds its own labels: pass them to it, not to `fit`.")
    encoder.has_threshold(source)  # refuses what is no encoder of texts
    return grouped_texts(source, groups)


def _features(encoder, X):
    """The encoded rows; raises ValueError if the release shows no feature."""
    if not encoder.n_features_out:
        raise ValueError(
            "The encoder has learnt no feature: no word stood out from the noise. Its release stays charged. A larger ε, a "
            "larger `encoder_share`, or more documents would show more; or declare the words. Documents are strings: lists of "
            'words have none; " ".join(words) is one.'
        )
    return encoder.transform(X)


def _settings(encoder) -> dict:
    """Arguments of an encoder as a file has them, without the plan."""
    settings, plans = encoder.to_json()["parameters"], ("privacy", "threshold_delta")
    return {name: value for name, value in settings.items() if name not in plans}


def make_private_pipeline(*steps, privacy: PrivacyBudget, **settings) -> PrivatePipeline:
    """A :class:`PrivatePipeline` that names its steps by their classes, as ``sklearn.pipeline.make_pipeline`` does."""
    return PrivatePipeline(make_pipeline(*steps).steps, privacy=privacy, **settings)


def restored_pipeline(
    kinds: Iterable[type[PrivatePipeline]], header: dict, arrays: dict[str, np.ndarray], known: Mapping[str, type]
) -> PrivatePipeline:
    """The pipeline that ``save`` wrote, of one of these classes; ``known`` classes of models, by name."""
    kind = {kind.__name__: kind for kind in kinds}[header["class"]]
    fitted, settings = restored_parts(header, arrays, known, kind.encoders)
    pipeline = kind(**({"steps": without_plans(fitted)} if kind is PrivatePipeline else {}), **settings)
    pipeline._check_steps()
    if [(name, type(step)) for name, step in fitted] != [(name, type(step)) for name, step in pipeline.steps]:
        raise ValueError(f"its steps are not those of a {kind.__name__}")
    if _settings(fitted[0][1]) != _settings(pipeline.steps[0][1]):
        raise ValueError(f"its encoder's settings are not those of the {kind.__name__}")
    *learnt, fit = fitted[-1][1].privacy_.releases
    has_threshold = any(release.threshold_delta > 0.0 for release in learnt)
    stated, names = fitted[-1][1].privacy, ("n_steps", "noise_multiplier", "relation", "sampling")
    is_other = any(getattr(stated, name, None) != getattr(fit.plan, name) for name in names)
    is_forged = fit.plan.has_guarantee if pipeline.privacy is None else is_other
    if is_forged:
        raise ValueError("its settings are not those of its plans")
    if pipeline.privacy is not None:
        pipeline._budget(bool(learnt), has_threshold).check_spent(*(learnt or [None]), fit)
    pipeline._keep(fitted)
    return pipeline


def _check_effects(encoder, model, X) -> None:
    """Raise ValueError for effects of persons that are no columns of numbers, before anything is charged."""
    if not hasattr(model, "random_effects"):
        return
    model.check_effects()
    effects = [name for name in model.random_effects if name != "intercept"]
    columns, kinds = _columns_and_kinds(encoder, X) if effects else ({}, {})
    for name in effects:
        if kinds.get(name) in (None, "category") or isinstance((columns or {}).get(name), list):
            raise ValueError(
                f"`random_effects` names {name!r}, which is no column of numbers. A category has several features: make a "
                "column of zeros and ones of the one that matters, declare it as (0, 1), and name that."
            )


def _columns_and_kinds(encoder, X) -> tuple[Mapping, dict]:
    """What is declared of each column, by name, and its kind: see :func:`column_kinds`; empty without a table."""
    if not hasattr(encoder, "columns"):
        return {}, {}
    columns, kinds = encoder.columns, column_kinds(encoder.columns, as_table(X))
    if not isinstance(columns, list):
        return columns or {}, kinds
    names = [name for name in getattr(X, "columns", ()) if isinstance(name, str)]
    names = names or [f"x{i}" for i in range(len(columns))]
    return dict(zip(names, columns, strict=False)), dict(zip(names, kinds.values(), strict=False))


def _check_origin(encoder, model, X) -> None:
    """Raise ValueError for a regression without an intercept and a column whose 0 the encoder moves, before anything is
    charged."""
    if getattr(model, "fit_intercept", True):
        return
    columns, kinds = _columns_and_kinds(encoder, X)
    for name, kind in kinds.items():
        declared, bounds = columns.get(name), "learnt"
        if kind == "category" or (kind == "declared" and not isinstance(declared, tuple)):
            continue
        advice = f"declare numbers with bounds around 0, {{{name!r}: (-b, b)}}"
        if kind == "declared":
            number = kind_of_column(declared, repr(name))
            assert isinstance(number, Number)
            if abs(number.low + number.high) <= _ROUNDING * (number.high - number.low):
                continue
            bounds, largest = str(number), number.text_of(max(abs(number.low), abs(number.high)))
            if not number.is_date:
                advice = f"declare bounds around 0, {{{name!r}: (-{largest}, {largest})}}, which cost little"
        raise ValueError(
            "A regression without an intercept is bound to one expected value where all features are 0, and a TableEncoder "
            f"moves the middle of a column's bounds there. Those of {name!r} are {bounds}: {advice}; or fit an intercept."
        )


def _places_of_effects(encoder, model) -> dict[str, tuple]:
    """Effects of persons among the features of the encoder; empty for a model that has none."""
    if not hasattr(model, "random_effects"):
        return {}
    names = list(encoder.get_feature_names_out())
    return {"random_effects": tuple(n if n == "intercept" else names.index(str(n)) for n in model.random_effects)}
