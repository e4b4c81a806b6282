"""A pipeline of a private encoder and a private model, with one budget."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

from vips._validation import check_choice, check_delta, check_integer, check_number
from vips.data import TextSource
from vips.data._tables import from_arrow
from vips.exceptions import CheckpointError, PrivacyBudgetError
from vips.execution import resolve as executors
from vips.model import ConjugateExponentialModel
from vips.persistence.checkpoint import check_place
from vips.preprocessing._allowed_steps import problem_with, with_inner_steps
from vips.preprocessing._budget import Budget, split_budget
from vips.preprocessing._encoder_settings import grouped_texts, unit_of_persons, unit_of_source
from vips.preprocessing._fitted_copies import PipelineOfCopies
from vips.preprocessing._pipeline_report import PipelineReport, beside_an_encoder
from vips.preprocessing._private_steps import fit_and_transform
from vips.preprocessing._private_table import PrivateTableEncoder
from vips.preprocessing._private_words import PrivateCountVectorizer
from vips.preprocessing._saved import (
    check_that_it_can_be_saved,
    checkpointed,
    restored_parts,
    save_encoder,
    save_pipeline,
)
from vips.privacy.ledger.admitted import step_divergence
from vips.privacy.ledger.ledger import PrivacyLedger

__all__ = ["PrivatePipeline", "make_private_pipeline"]


class PrivatePipeline(PipelineOfCopies):
    """A private encoder, steps that learn nothing, and a model, fitted together within (ε, δ).

    The budget is split by a public rule before the first release: the encoder gets ``encoder_share`` of the inverse noise
    variance, and the threshold of categories, if any are learnt, a tenth of δ. The model takes all records in each
    of ``n_steps`` steps. Encoder and fit are composed as one Gaussian mechanism.

    Parameters
    ----------
    steps : list of (str, step)
        First a :class:`PrivateTableEncoder` or :class:`PrivateCountVectorizer`, last a vips model, both without a plan; in
        between any step that
        :class:`PublicPipeline` allows. ``fit`` changes neither the list nor the steps: it fits copies.
    epsilon, delta : float
        The budget of both together.
    n_steps : int
        Steps of the model's fit.
    encoder_share : float
        Between 0 and 1, without these. docs/preprocessing.md says how the default was chosen.
    relation : {"add_or_remove", "replace_one"}

    Attributes
    ----------
    steps_ : list of (str, step)
        Fitted copies. After ``fit``, ``named_steps`` and indexing give these.
    privacy_ : PipelineReport
        Of encoder and fit together. The model's own ``privacy_``, and its certificate, count the fit alone, and say so.

    Privacy
    -------
    Unit: that of the model, a row or, with ``groups``, all rows of one id. Released: what the encoder learnt, and the noisy
    totals of the model's fit. Public: names and dtypes of columns, and all arguments of the steps. Where the model's
    ``feature_norm`` or ``vocabulary`` is None, it is the encoder's.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from vips import BayesianLogisticRegression
    >>> from vips.preprocessing import PrivateTableEncoder, make_private_pipeline
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"age": rng.integers(18, 90, 20_000), "town": rng.choice(["A", "B"], 20_000)})
    >>> y = (table["age"] + 30 * (table["town"] == "A") + rng.normal(0, 20, 20_000) > 70).to_numpy()
    >>> model = BayesianLogisticRegression()
    >>> pipeline = make_private_pipeline(PrivateTableEncoder(), model, epsilon=1.0, delta=1e-6).fit(table, y)
    >>> pipeline.score(table, y) > 0.7
    True
    >>> round(pipeline.privacy_.epsilon(), 3)
    1.0
    """

    transform_input, memory, verbose = (
        None,
        None,
        False,
    )  # settings of scikit-learn's pipeline that this one does not have

    def __init__(
        self,
        steps: list,
        *,
        epsilon: float,
        delta: float,
        n_steps: int = 20,
        encoder_share: float = 0.15,
        relation: str = "add_or_remove",
    ) -> None:
        self.steps = steps
        self.epsilon = epsilon
        self.delta = delta
        self.n_steps = n_steps
        self.encoder_share = encoder_share
        self.relation = relation

    def fit(
        self,
        X,
        y=None,
        *,
        ledger: PrivacyLedger | None = None,
        checkpoint: str | os.PathLike | None = None,
        executor: object = None,
        groups: object = None,
        public_X=None,
        public_y=None,
    ) -> Self:
        """Learn the columns, then fit the model on the encoded rows.

        Parameters
        ----------
        X : data frame of shape (n_rows, n_columns); list of strings; or a source of texts
            Of a source, words are learnt and counted partition by partition, in every step of the fit anew.
        y : array of shape (n_rows,), optional
            A source holds its own labels.
        ledger : PrivacyLedger, optional
            Its filter is charged twice, for the encoder and for the fit. None is the ledger whose block encloses the call, if
            any.
        checkpoint : path, optional
            As for models. A second file, with ".encoder" after this name, keeps what the encoder learnt: if it exists, it is
            used, and nothing is learnt or charged again.
        executor, groups : optional
            See :meth:`ConjugateExponentialModel.fit`. All rows of one id are one record, of the encoder and of the fit.
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
            If a file of the checkpoint belongs to another fit, or only the model's is there. Nothing is charged then.
        """
        self.__dict__.pop("steps_", None)
        self._check_steps()
        X = from_arrow(X)
        *before, (model_name, model) = clone(self.steps, safe=False)
        (encoder_name, encoder), *between = before
        if isinstance(X, TextSource):
            executors.resolve(executor)
            X, groups = self._checked_source(X, y, encoder, between, groups), None
        budget = self._budget(encoder, X)
        encoder.set_params(privacy=budget.encoder, threshold_delta=budget.threshold_delta)
        encoder.unit = model.unit
        model.set_params(privacy=budget.fit)
        lacking = [name for name in encoder.supplies if model.get_params(deep=False).get(name, 0) is None]
        stand_in = clone(model).set_params(**{name: encoder.supplies[name] for name in lacking})
        ledger = self._checked_with_model(stand_in, X, y, ledger)
        public = {} if public_X is None and public_y is None else {"public_X": public_X, "public_y": public_y}
        if public:
            _check_public(stand_in, public)
        encoder = self._fitted_encoder(encoder, X, budget, ledger, checkpoint, groups, executor)
        features = encoder.transform(X)
        if not encoder.n_features_out:
            raise ValueError(
                "The encoder has learnt no feature: no word stood out from the noise. Its release stays charged. A larger ε, a "
                "larger `encoder_share`, or more documents would show more; or declare the words."
            )
        if between:
            features = fit_and_transform(between, features)
        model.set_params(**{name: getattr(encoder, name) for name in lacking}, **self._chosen(encoder, model))
        if public:
            rows = encoder.transform(from_arrow(public_X))
            public["public_X"] = make_pipeline(*(step for _, step in between)).transform(rows) if between else rows
        model.fit(features, y, ledger=ledger, checkpoint=checkpoint, executor=executor, groups=groups, **public)
        model.privacy_ = beside_an_encoder(model.privacy_, encoder.learns)
        self._keep([(encoder_name, encoder), *between, (model_name, model)])
        return self

    @property
    def privacy_(self) -> PipelineReport:
        """The statement of encoder and fit together."""
        check_is_fitted(self)
        return PipelineReport(self.steps_[0][1].privacy_, self.steps_[-1][1].privacy_, float(self.delta))

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted pipeline to a file of arrays and JSON, without pickle; ``vips.load`` reads it.

        Raises
        ------
        NotFittedError
        TypeError
            If there are steps between encoder and model, or a setting cannot be written as data.
        """
        save_pipeline(self, path)

    @classmethod
    def _of_file(cls, header: dict, arrays: dict[str, np.ndarray], known: Mapping[str, type]) -> Self:
        """The pipeline that :meth:`save` wrote; ``known`` classes of models, by name."""
        fitted, steps, settings = restored_parts(header, arrays, known)
        pipeline = cls(steps, **settings)
        pipeline._check_steps()
        pipeline._check_plans(fitted[0][1], fitted[-1][1])
        pipeline._keep(fitted)
        return pipeline

    def __getitem__(self, index) -> Any:
        """One step, or a scikit-learn pipeline of some: fitted copies after ``fit``."""
        return self._pipeline()[index]

    def _check_steps(self) -> None:
        check_number("epsilon", self.epsilon, 0.0, np.inf, "a positive number", open_low=True, open_high=True)
        check_delta(self.delta)
        check_integer("n_steps", self.n_steps)
        check_number("encoder_share", self.encoder_share, 0.0, 1.0, "between 0 and 1", open_low=True, open_high=True)
        check_choice("relation", self.relation, ("add_or_remove", "replace_one"))
        steps = [step for _, step in self.steps]
        if len(steps) < 2 or type(steps[0]) not in (PrivateTableEncoder, PrivateCountVectorizer):
            raise TypeError(
                "The first step of a PrivatePipeline must be a PrivateTableEncoder or a PrivateCountVectorizer, and the last "
                "one a model."
            )
        if not isinstance(steps[-1], ConjugateExponentialModel):
            raise TypeError(f"The last step of a PrivatePipeline must be a vips model, got {type(steps[-1]).__name__}.")
        if steps[0].privacy is not None or steps[0].threshold_delta is not None or steps[-1].privacy is not None:
            raise ValueError(
                "A PrivatePipeline makes the plans of its encoder and its model from `epsilon` and `delta`: leave `privacy` "
                "and `threshold_delta` out."
            )
        self._validate_steps()
        inner = (each for name, step in self.steps[1:-1] for each in with_inner_steps(name, step))
        for name, step in inner:
            problem = problem_with(name, step, sparse=getattr(steps[0], "sparse_output", True))
            if problem:
                raise ValueError(problem)

    def _check_plans(self, encoder, model) -> None:
        """Raise ValueError unless fitted steps spent what the settings say: a file may be forged."""
        has_threshold = encoder.privacy_.threshold_delta > 0.0
        budget = split_budget(
            float(self.epsilon),
            float(self.delta),
            int(self.n_steps),
            float(self.encoder_share),
            self.relation,
            has_threshold,
        )
        pairs = ((budget.encoder, encoder.privacy_.plan), (budget.fit, model.privacy_.plan))
        same = all(
            ours.relation == theirs.relation
            and ours.n_steps == theirs.n_steps
            and math.isclose(ours.noise_multiplier, theirs.noise_multiplier, rel_tol=1e-4)
            for ours, theirs in pairs
        )
        if not same or not math.isclose(encoder.privacy_.threshold_delta, budget.threshold_delta or 0.0):
            raise ValueError("its settings are not those of its plans")

    def _chosen(self, encoder, model) -> dict[str, object]:
        """Further settings of the model, from released numbers."""
        return {}

    def _budget(self, encoder, X) -> Budget:
        return split_budget(
            float(self.epsilon), float(self.delta), int(self.n_steps), float(self.encoder_share), self.relation,
            encoder.has_threshold(X),
        )  # fmt: skip

    def _checked_source(self, X: TextSource, y, encoder, between: list, groups: object) -> TextSource:
        """The documents, where all of one person are one record; what would stop the fit is raised before a release."""
        if y is not None:
            raise TypeError(f"{type(X).__name__} holds its own labels: pass them to it, not to `fit`.")
        if between:
            raise TypeError(
                f"Step {between[0][0]!r} is between the encoder and the model: with {type(X).__name__} a pipeline has no "
                "steps there, because no table of counts is made. Leave the step out, or pass a list of texts."
            )
        encoder.has_threshold(X)  # refuses what is no encoder of texts
        return grouped_texts(X, groups)

    def _checked_with_model(self, model, X, y, ledger: PrivacyLedger | None) -> PrivacyLedger | None:
        """What would stop the model is raised before the encoder's release; returns the ledger to charge."""
        is_source = isinstance(X, TextSource)
        model.check_arguments()
        model._data(np.zeros((0 if is_source else len(X), 1)), y)
        if y is None and not (is_source and X.has_labels) and getattr(model, "needs_labels", False):
            raise ValueError(f"{type(model).__name__} requires y to be passed, but the target y is None.")
        return model._ledger(ledger)

    def _fitted_encoder(self, encoder, X, budget: Budget, ledger, checkpoint, groups, executor):
        """The encoder after its release, or that of an interrupted fit."""
        path = None if checkpoint is None else f"{os.fspath(checkpoint)}.encoder"
        is_source = isinstance(X, TextSource)
        unit = encoder.unit if groups is None else unit_of_persons(groups)
        unit = unit_of_source(X, budget.encoder, encoder.unit) if is_source else unit
        if path is not None:
            check_that_it_can_be_saved(encoder)
            check_place(checkpoint)
            check_place(path)
        saved = None if path is None else checkpointed(encoder, path, ledger, unit)
        if saved is not None:
            saved.unit = encoder.unit
            return saved
        if path is not None and os.path.exists(checkpoint):
            raise CheckpointError(
                f"{os.fspath(checkpoint)} is there, but {path} is not. The fit's first steps would be those of features that "
                "another release of the encoder has made, which nothing here would count. Neither file was touched: bring the "
                "second one back, or begin another fit."
            )
        if ledger is not None:
            _check_room(ledger, budget)
        of_source = {"executor": executor} if is_source else {}
        encoder.fit(X, ledger=ledger, groups=groups, **of_source).set_output(transform="default")
        if path is not None:
            save_encoder(encoder, path)
        return encoder


def _check_public(model, public: dict) -> None:
    """Raise an error, before anything is released, if the model takes no such public records."""
    if not hasattr(model, "_checked_public"):
        raise TypeError(f"{type(model).__name__} takes no `public_X`: regressions do.")
    model._checked_public(public["public_X"], public["public_y"])


def _check_room(ledger: PrivacyLedger, budget: Budget) -> None:
    """Raise PrivacyBudgetError unless the ledger has room for encoder and fit."""
    needed = sum(plan.n_steps * step_divergence(plan, ledger.order) for plan in (budget.encoder, budget.fit))
    left = ledger.remaining()["divergence"]
    if needed > left:
        raise PrivacyBudgetError(
            f"The privacy budget of {ledger.dataset!r} has no room for this pipeline: needed are {needed:.4g} of Rényi "
            f"divergence of order {ledger.order}, and {max(0.0, left):.4g} is left. Nothing was charged."
        )


def make_private_pipeline(*steps, epsilon: float, delta: float, **settings) -> PrivatePipeline:
    """A :class:`PrivatePipeline` that names its steps by their classes, as ``sklearn.pipeline.make_pipeline`` does."""
    return PrivatePipeline(make_pipeline(*steps).steps, epsilon=epsilon, delta=delta, **settings)
