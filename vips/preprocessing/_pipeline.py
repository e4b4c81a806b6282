"""A scikit-learn pipeline that ends in a private model, and whose other steps learn nothing from the records."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from sklearn import config_context, get_config
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from vips.model import ConjugateExponentialModel
from vips.preprocessing._allowed_steps import DECLARED, ROW_WISE, is_passthrough, problem_with, with_inner_steps
from vips.preprocessing._fitted_copies import PipelineOfCopies
from vips.privacy import PrivacyReport

__all__ = ["PublicPipeline", "make_public_pipeline"]


def _last_step_has(method: str):
    return available_if(lambda pipeline: hasattr(pipeline.steps[-1][1], method))


class PublicPipeline(PipelineOfCopies):
    """A :class:`sklearn.pipeline.Pipeline` whose last step is a vips model.

    Before a private model it takes only steps that treat each row alone and learn nothing: ``PublicScaler``,
    ``PublicOneHotEncoder``, ``TableEncoder``; scikit-learn's ``Normalizer``, ``Binarizer`` and ``FunctionTransformer``;
    ``"passthrough"``; and ``ColumnTransformer``, ``FeatureUnion`` and ``Pipeline`` made of these. ``fit`` refuses any other
    step before it looks at the data. Before a model without noise, anything goes.

    Parameters
    ----------
    steps : list of (str, step)
        As in :class:`sklearn.pipeline.Pipeline`. ``fit`` changes neither the list nor the steps: it fits copies.
    transform_input, memory, verbose
        As there. ``memory`` must be None before a private model.

    Attributes
    ----------
    steps_ : list of (str, step)
        Fitted copies of the steps. After ``fit``, ``named_steps``, indexing and slicing give these:
        ``pipeline.named_steps["model"].posterior_``, ``pipeline[-1].posterior_``. Before it they give the steps of the
        parameter, as ``pipeline.steps`` always does.
    privacy_ : PrivacyReport
        The last step's, with what the other steps declare.

    Privacy
    -------
    The last step's guarantee is one for the rows given to ``fit``, because what reaches the model as row i is a function of
    row i and of declared settings. Promised by you: the function of a ``FunctionTransformer`` treats each row alone, raises
    for none, and gives a dtype and a number of columns that do not depend on values; ``"passthrough"``, ``Normalizer`` and
    ``Binarizer`` are given columns of NumPy numbers, and the last two at least one row.

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

    def fit(self, X, y=None, **params):
        """Fit the last step on the transformed rows.

        Parameters
        ----------
        X, y
            Records, as the first step takes them, and labels, as the last one does.
        **params
            ``ledger=``, ``checkpoint=`` and ``executor=`` go to the last step, as ``laststep__ledger=`` would. With
            scikit-learn's metadata routing switched on, its rules apply instead.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a step before a private model could learn from the records, before these are touched.
        TypeError
            If the last step is not a vips model.
        """
        private = self._check_steps(X)
        for learnt in ("steps_", "_declared_in_fit"):
            self.__dict__.pop(learnt, None)
        params = self._to_last_step(params)
        with ExitStack() as quiet:
            if private:  # a NaN must not stop a step of scikit-learn's: it is the model that leaves the record out
                quiet.enter_context(config_context(assume_finite=True))
                quiet.enter_context(np.errstate(all="ignore"))
            self.steps_ = self._fitted_copies(X, y, params)
        self._declared_in_fit = self._declarations(private)
        return self

    @_last_step_has("transform")
    def fit_transform(self, X, y=None, **params):
        """``fit(X, y, **params).transform(X)``."""
        return self.fit(X, y, **params).transform(X)

    @_last_step_has("fit_predict")
    def fit_predict(self, X, y=None, **params):
        """``fit(X, y, **params).predict(X)``."""
        return self.fit(X, y, **params).predict(X)

    @property
    def privacy_(self) -> PrivacyReport:
        """The last step's report, with what the other steps declared when it was fitted."""
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
        model = self.steps[-1][1] if len(self.steps) else None
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
        self._validate_steps()
        for name, step in self._steps_before_model():
            problem = problem_with(name, step, sparse=sp.issparse(X))
            if problem:
                raise ValueError(problem)
        return True

    def _fitted_copies(self, X, y, params: dict) -> list[tuple[str, object]]:
        pipeline = Pipeline(
            clone(self.steps, safe=False),
            transform_input=self.transform_input,
            memory=self.memory,
            verbose=self.verbose,
        )
        return pipeline.fit(X, y, **params).steps

    def _steps_before_model(self) -> list[tuple[str, object]]:
        return [inner for name, step in self.steps[:-1] for inner in with_inner_steps(name, step)]

    def _declarations(self, private: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the steps declare, and their classes; nothing unless the model is private."""
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

    def __sklearn_tags__(self):
        """Of the input, those of the first step; of the target, those of the model."""
        tags = super().__sklearn_tags__()
        if not len(self.steps):
            return tags
        every = [get_tags(step) for _, step in self.steps if not is_passthrough(step)]
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
