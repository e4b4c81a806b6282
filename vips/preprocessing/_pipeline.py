"""A scikit-learn pipeline that ends in a private model, and whose other steps learn nothing from the records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn import get_config
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from vips.data._tables import from_arrow
from vips.model import ConjugateExponentialModel
from vips.preprocessing._allowed_steps import (
    DECLARED,
    OF_TEXTS,
    ROW_WISE,
    is_passthrough,
    problem_with,
    with_inner_steps,
)
from vips.preprocessing._fitted_copies import PipelineOfCopies
from vips.preprocessing._private_steps import fit_and_transform
from vips.privacy import PrivacyReport

__all__ = ["PublicPipeline", "make_public_pipeline"]


def _last_step_has(method: str):
    return available_if(lambda pipeline: hasattr(pipeline.steps[-1][1], method))


class PublicPipeline(PipelineOfCopies):
    """A :class:`sklearn.pipeline.Pipeline` whose last step is a vips model.

    Before a private model it allows only steps that treat each row alone and learn nothing: ``PublicScaler``,
    ``PublicOneHotEncoder``, ``TableEncoder``; scikit-learn's ``Normalizer``, ``Binarizer`` and ``FunctionTransformer``;
    ``"passthrough"``; and ``ColumnTransformer``, ``FeatureUnion`` and ``Pipeline`` made of these. ``fit`` refuses any other
    step before it looks at the data. Before a model without noise, any step is allowed.

    Parameters
    ----------
    steps : list of (str, step)
        As in :class:`sklearn.pipeline.Pipeline`. ``fit`` changes neither the list nor the steps: it fits copies.
    transform_input, memory
        As in :class:`sklearn.pipeline.Pipeline`. None before a private model.
    verbose : bool
        As in :class:`sklearn.pipeline.Pipeline`. Steps before a private model print nothing, because their time is not public.

    Attributes
    ----------
    steps_ : list of (str, step)
        Fitted copies of the steps. After ``fit``, ``named_steps``, indexing and slicing give these:
        ``pipeline.named_steps["model"].posterior_``, ``pipeline[-1].posterior_``. Before it they give the steps of the
        parameter, as ``pipeline.steps`` always does.
    privacy_ : PrivacyReport
        The last step's report, with the declarations of the other steps.

    Privacy
    -------
    The last step's guarantee holds for the rows given to ``fit``, because row i as the model sees it is a function of
    row i and of declared settings. Steps before a private model are fitted to the table without its rows, so that they learn
    nothing, and errors of ``fit`` depend on public facts only: containers, dtypes, names and number of columns. You promise
    that the function of a ``FunctionTransformer`` treats each row alone, raises for no row, accepts a table without rows, and
    returns a dtype and columns that do not depend on values. If it breaks the promise, ``fit`` may stop with a ``RuntimeError``
    that quotes nothing. Not covered: what the function prints or writes; and ``transform`` and ``predict``, which read the
    records that they are given.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import FunctionTransformer
    >>> from vips import LatentDirichletAllocation, PrivacyPlan
    >>> from vips.preprocessing import make_public_pipeline
    >>> plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.5, n_steps=2)
    >>> model = LatentDirichletAllocation(2, vocabulary=5, privacy=plan)
    >>> pipeline = make_public_pipeline(FunctionTransformer(np.abs), model).fit(np.ones((10, 5)))
    >>> pipeline.privacy_.preprocessing
    'in this pipeline each row alone, nothing learnt from the records: FunctionTransformer'
    """

    def fit(self, X, y=None, **params) -> Self:
        """Fit the last step on the transformed rows.

        Parameters
        ----------
        X, y
            Records for the first step, and labels for the last one.
        **params
            ``ledger=``, ``checkpoint=`` and ``executor=`` go to the last step, as ``laststep__ledger=`` would. With
            scikit-learn's metadata routing switched on, its rules apply instead.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If the last step is not a vips model, or a step before a private model could learn from the records; raised before
            the data are touched. If the container, columns or dtypes are not those that a step before a private model needs;
            raised before a value is read.
        RuntimeError
            If a step before a private model breaks its promise: it raises because of a value, or its dtype, columns or number
            of rows depend on values. The step's own message is not shown.
        Others
            Errors of the last step's ``fit``; and of any step before a model without noise.
        """
        private = self._check_steps(X)
        for learnt in ("steps_", "_declared_in_fit"):
            self.__dict__.pop(learnt, None)
        params = self._to_last_step(params)
        self._keep(self._fitted_privately(X, y, params) if private else self._fitted_plainly(X, y, params))
        self._declared_in_fit = self._declarations(private)
        return self

    @_last_step_has("transform")
    def fit_transform(self, X, y=None, **params) -> Any:
        """``fit(X, y, **params).transform(X)``."""
        return self.fit(X, y, **params).transform(X)

    @_last_step_has("fit_predict")
    def fit_predict(self, X, y=None, **params) -> Any:
        """``fit(X, y, **params).predict(X)``."""
        return self.fit(X, y, **params).predict(X)

    @property
    def privacy_(self) -> PrivacyReport:
        """The last step's report, with the declarations of the other steps at the time of the fit."""
        check_is_fitted(self, "_declared_in_fit")
        declared, names = self._declared_in_fit
        report = self.steps_[-1][1].privacy_
        report = replace(report, declared_public=(*report.declared_public, *declared))
        if not names:
            return report
        return replace(
            report,
            preprocessing=f"in this pipeline each row alone, nothing learnt from the records: {', '.join(names)}",
        )

    def _check_steps(self, X) -> bool:
        """Whether the last step is private; raises if it is and another step is not allowed."""
        model = self.steps[-1][1] if isinstance(self.steps, list | tuple) and self.steps else None
        if not isinstance(model, ConjugateExponentialModel):
            raise TypeError(
                f"The last step of a PublicPipeline must be a vips model, got {type(model).__name__}. For other estimators "
                "use sklearn.pipeline.Pipeline."
            )
        if not model.is_private:
            return False
        if self.memory is not None:
            raise ValueError(
                "`memory` would keep transformed records on disk. Leave it at None before a private model."
            )
        if self.transform_input is not None:
            raise ValueError(
                "`transform_input` concerns parameters of `fit` that no private model has. Leave it at None."
            )
        self._validate_steps()
        for name, step in self._steps_before_model():
            problem = problem_with(name, step, sparse=sp.issparse(X), first=self.steps[0][0])
            if problem:
                raise ValueError(problem)
        self._check_words(model)
        return True

    def _check_words(self, model) -> None:
        """Raise ValueError if words are counted in another order than the model names them."""
        steps = [step for _, step in self.steps[:-1] if not is_passthrough(step)]
        words = getattr(model, "vocabulary", None)
        if (
            len(steps) != 1
            or type(steps[0]) is not CountVectorizer
            or words is None
            or isinstance(words, int | np.integer)
        ):
            return
        counted = clone(steps[0]).get_feature_names_out()
        if not np.array_equal(counted, np.asarray(words, dtype=object)):
            raise ValueError(
                "The CountVectorizer counts other words than the model's `vocabulary` names, or in another order (a set is "
                "sorted), so that topics would be labelled with wrong words. Give both the same list."
            )

    def _fitted_privately(self, X, y, params: dict) -> list[tuple[str, object]]:
        *before, (name, model) = clone(self.steps, safe=False)
        params = self._arguments_of_model(params)
        features = fit_and_transform(before, X)
        if params.get("public_X") is not None:
            params["public_X"] = fit_and_transform(before, params["public_X"])  # the steps learn nothing
        model.fit(features, y, **params)
        return [*before, (name, model)]

    def _fitted_plainly(self, X, y, params: dict) -> list[tuple[str, object]]:
        pipeline = Pipeline(
            clone(self.steps, safe=False),
            transform_input=self.transform_input,
            memory=self.memory,
            verbose=self.verbose,
        )
        return pipeline.fit(from_arrow(X), from_arrow(y), **params).steps

    def _steps_before_model(self) -> list[tuple[str, object]]:
        return [inner for name, step in self.steps[:-1] for inner in with_inner_steps(name, step)]

    def _declarations(self, private: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Declarations of the steps, and their classes; empty unless the model is private."""
        if not private:
            return (), ()
        declared, names = [], []
        for name, step in self._steps_before_model():
            if type(step) in ROW_WISE:
                names.append(type(step).__name__)
            if type(step) in DECLARED:
                declared += step.declared_public
            elif type(step) is FunctionTransformer:
                declared.append(f"the function of step {name!r} (promised: it treats each row alone)")
            elif type(step) in OF_TEXTS:
                declared.append(f"what a word is in step {name!r}")
        return tuple(declared), tuple(names)

    def _to_last_step(self, params: dict) -> dict:
        if get_config()["enable_metadata_routing"]:
            return params
        routed = {}
        for name, value in params.items():
            full = name if "__" in name else f"{self.steps[-1][0]}__{name}"
            if full in routed:
                raise TypeError(f"`{full.split('__')[-1]}` is given twice: for the pipeline and for its last step.")
            routed[full] = value
        return routed

    def _arguments_of_model(self, params: dict) -> dict:
        """The ``params`` from :meth:`_to_last_step`, under their names in the model's ``fit``."""
        name = self.steps[-1][0]
        if get_config()["enable_metadata_routing"]:
            return process_routing(self, "fit", **params)[name].fit
        others = sorted(full for full in params if not full.startswith(f"{name}__"))
        if others:
            raise TypeError(f"Steps before a private model take no parameters of `fit`, got {', '.join(others)}.")
        return {full.removeprefix(f"{name}__"): value for full, value in params.items()}

    def __sklearn_tags__(self):
        """Input tags of the first step, target tags of the model."""
        tags = super().__sklearn_tags__()
        try:
            every = [get_tags(step) for _, step in self.steps if not is_passthrough(step)]
        except (AttributeError, TypeError, ValueError):  # wrong steps, which `fit` will report
            return tags
        if not every:
            return tags
        tags.input_tags = replace(
            every[0].input_tags,
            sparse=all(step.input_tags.sparse for step in every),
            allow_nan=all(step.input_tags.allow_nan for step in every),
        )
        tags.target_tags = every[-1].target_tags
        tags.non_deterministic = any(step.non_deterministic for step in every)
        return tags


def make_public_pipeline(*steps, verbose: bool = False) -> PublicPipeline:
    """A :class:`PublicPipeline` that names its steps by their classes, as ``sklearn.pipeline.make_pipeline`` does."""
    return PublicPipeline(make_pipeline(*steps).steps, verbose=verbose)
