"""A scikit-learn pipeline that ends in a private model, and whose other steps learn nothing from the records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from sklearn import config_context, get_config
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from vips.model import ConjugateExponentialModel
from vips.preprocessing._one_hot import PublicOneHotEncoder
from vips.preprocessing._scaler import PublicScaler
from vips.preprocessing._table import TableEncoder
from vips.privacy import PrivacyReport

__all__ = ["PublicPipeline", "make_public_pipeline"]

# Exact classes: what a subclass does in its own `fit` is not known.
_DECLARED = (PublicScaler, PublicOneHotEncoder, TableEncoder)
_ROW_WISE = (*_DECLARED, Normalizer, Binarizer, FunctionTransformer)
_CONTAINERS = (Pipeline, FeatureUnion, ColumnTransformer)


def _last_step_has(method: str):
    return available_if(lambda pipeline: hasattr(pipeline.steps[-1][1], method))


class PublicPipeline(Pipeline):
    """A :class:`sklearn.pipeline.Pipeline` whose last step is a vips model.

    Before a private model it takes only steps that treat each row alone and learn nothing: ``PublicScaler``,
    ``PublicOneHotEncoder``, ``TableEncoder``; scikit-learn's ``Normalizer``, ``Binarizer`` and ``FunctionTransformer``;
    ``"passthrough"``; and ``ColumnTransformer``, ``FeatureUnion`` and ``Pipeline`` made of these. ``fit`` refuses any other
    step before it looks at the data. Before a model without noise, anything goes.

    Parameters
    ----------
    steps, transform_input, memory, verbose
        As in :class:`sklearn.pipeline.Pipeline`. ``memory`` must be None before a private model.

    Attributes
    ----------
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
        self.__dict__.pop("_declared_in_fit", None)
        with ExitStack() as quiet:
            if private:  # a NaN must not stop a step of scikit-learn's: it is the model that leaves the record out
                quiet.enter_context(config_context(assume_finite=True))
                quiet.enter_context(np.errstate(all="ignore"))
            super().fit(X, y, **self._to_last_step(params))
        self._declared_in_fit = self._declarations()
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
        report = self.steps[-1][1].privacy_
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
        for name, step in self._before_model():
            problem = _problem(name, step, sparse=sp.issparse(X))
            if problem:
                raise ValueError(problem)
        return True

    def _before_model(self) -> Iterator[tuple[str, object]]:
        for name, step in self.steps[:-1]:
            yield from _with_inner_steps(name, step)

    def _declarations(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the steps declare, and their classes; nothing unless the model is private."""
        if not self.steps[-1][1].is_private:
            return (), ()
        declared, names = [], []
        for name, step in self._before_model():
            if type(step) in _ROW_WISE:
                names.append(type(step).__name__)
            if type(step) in _DECLARED:
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


def make_public_pipeline(*steps, verbose: bool = False) -> PublicPipeline:
    """A :class:`PublicPipeline` that names its steps by their classes, as ``sklearn.pipeline.make_pipeline`` does."""
    return PublicPipeline(make_pipeline(*steps).steps, verbose=verbose)


def _with_inner_steps(name: str, step) -> Iterator[tuple[str, object]]:
    """``step``, and the steps that it is made of."""
    yield name, step
    if type(step) is Pipeline:
        inner = step.steps
    elif type(step) is FeatureUnion:
        inner = step.transformer_list
    elif type(step) is ColumnTransformer:
        inner = [*(entry[:2] for entry in step.transformers), ("remainder", step.remainder)]
    else:
        inner = []
    for inner_name, inner_step in inner:
        yield from _with_inner_steps(f"{name} > {inner_name}", inner_step)


def _problem(name: str, step, sparse: bool) -> str | None:
    """Why ``step`` cannot stand before a private model, in words; None if it can. Steps inside are looked at elsewhere."""
    if step is None or (isinstance(step, str) and step in ("passthrough", "drop")):
        return None
    kind, title = type(step), f"Step {name!r} ({type(step).__name__})"
    if kind not in _ROW_WISE + _CONTAINERS:
        return (
            f"{title} may learn from all records (as StandardScaler learns a mean): what it learns would be released without "
            "noise, through the parameters of the private model behind it. Use vips.preprocessing.PublicScaler, "
            "PublicOneHotEncoder or TableEncoder with declared bounds and categories, or FunctionTransformer for a function "
            "of each row alone."
        )
    if kind is FunctionTransformer:
        inverse_checked = step.check_inverse and step.func is not None and step.inverse_func is not None
        if step.validate or inverse_checked:
            return (
                f"{title} checks values, so that an error or a warning would depend on a record. "
                "Write FunctionTransformer(..., validate=False, check_inverse=False)."
            )
    if kind is Pipeline and step.memory is not None:
        return f"{title} would keep transformed records on disk. Write memory=None."
    if getattr(step, "n_jobs", None) not in (None, 1):
        return f"{title} has workers, which warn about values that nothing may tell of. Write n_jobs=None."
    if kind is ColumnTransformer:
        if any(callable(entry[2]) and type(entry[2]) is not make_column_selector for entry in step.transformers):
            return (
                f"{title} selects columns by a function of the records. "
                "Write their names, or a sklearn.compose.make_column_selector."
            )
        if step.sparse_threshold > 0 and (sparse or _can_be_sparse(name, step)):
            return (
                f"{title} chooses between dense and sparse output by counting non-zeros, which are not public. "
                "Write sparse_threshold=0; for sparse output use FeatureUnion or TableEncoder(sparse_output=True)."
            )
    return None


def _can_be_sparse(name: str, step) -> bool:
    """Whether a step inside can have sparse output; of a function this is not known."""
    inner = [step for _, step in _with_inner_steps(name, step)]
    return any(getattr(step, "sparse_output", False) or type(step) is FunctionTransformer for step in inner)
