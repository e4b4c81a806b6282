"""A pipeline that fits copies of its steps."""

from __future__ import annotations

import os
from contextlib import suppress
from inspect import signature
from typing import TYPE_CHECKING, Any, Self

from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils import Bunch
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from vips.data._tables import from_arrow
from vips.preprocessing._allowed_steps import is_passthrough

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["PipelineOfCopies"]


def _if_steps_have(method: str):
    return available_if(lambda pipeline: hasattr(pipeline._pipeline(), method))


def _if_last_has(method: str):
    return available_if(lambda pipeline: hasattr(pipeline._pipeline().steps[-1][1], method))


class PipelineOfCopies(Pipeline):
    """A :class:`sklearn.pipeline.Pipeline` whose ``fit`` leaves its parameter ``steps`` alone; a subclass writes ``fit``.

    Attributes
    ----------
    steps_ : list of (str, step)
        Fitted copies of the steps. Before ``fit``, ``named_steps``, indexing and slicing give the steps of the parameter;
        after it, those of ``steps_``.
    """

    def _pipeline(self) -> Pipeline:
        """A scikit-learn pipeline of the steps: of the fitted ones, if there are any."""
        return Pipeline(self.__dict__.get("steps_", self.steps))

    def _keep(self, steps: list[tuple[str, object]]) -> None:
        """These are the fitted steps. The last one names columns as those before it do, unless it knows names."""
        self.steps_ = steps
        if len(steps) > 1:
            with suppress(AttributeError, NotFittedError, TypeError, ValueError):  # steps that name no columns
                steps[-1][1]._names_of_columns = self._pipeline()[:-1].get_feature_names_out()

    def _fitted(self) -> Pipeline:
        check_is_fitted(self)
        return self._pipeline()

    @property
    def named_steps(self) -> Bunch:
        """Steps by name: fitted copies after ``fit``."""
        return self._pipeline().named_steps

    def __getitem__(self, index) -> Any:
        """One step, or a pipeline of some: fitted copies after ``fit``."""
        part = self._pipeline()[index]
        if not isinstance(index, slice):
            return part
        sliced = super().__getitem__(index)
        if self.__sklearn_is_fitted__():
            sliced.steps_ = part.steps
        return sliced

    def set_output(self, *, transform: str | None = None) -> Self:
        """Container of the results of all steps, now and after another ``fit``; as in scikit-learn's pipeline."""
        super().set_output(transform=transform)
        if self.__sklearn_is_fitted__():
            self._pipeline().set_output(transform=transform)
        return self

    @_if_last_has("summary")
    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """``summary`` of the last step, in units of the columns if the only other step is a table encoder.

        ``level`` is that of intervals, where the table has some.
        """
        summary, given = self._fitted()[-1].summary, {"level": level, "features": self._encoder_of_table()}
        return summary(**{name: given[name] for name in signature(summary).parameters if name in given})

    @_if_last_has("plot_coefficients")
    def plot_coefficients(self, level: float = 0.95, *, ax: Axes | None = None) -> Axes:
        """``plot_coefficients`` of the last step, in the same units."""
        return self._fitted()[-1].plot_coefficients(level, features=self._encoder_of_table(), ax=ax)

    @_if_last_has("top_words")
    def top_words(self, n: int = 10, *, relevance: float = 1.0, as_frame: bool = False) -> Any:
        """``top_words`` of the last step."""
        return self._fitted()[-1].top_words(n, relevance=relevance, as_frame=as_frame)

    @_if_last_has("evidence")
    def evidence(self) -> Any:
        """``evidence`` of the last step."""
        return self._fitted()[-1].evidence()

    @_if_last_has("plot_topics")
    def plot_topics(self, n_words: int = 10, *, topics=None, relevance: float = 1.0, axes=None) -> np.ndarray:
        """``plot_topics`` of the last step."""
        return self._fitted()[-1].plot_topics(n_words, topics=topics, relevance=relevance, axes=axes)

    @_if_last_has("to_html")
    def to_html(self, path: str | os.PathLike, *, baseline=None, n_words: int = 30) -> None:
        """``to_html`` of the last step, with the statement of the whole pipeline."""
        self._fitted()[-1].to_html(path, baseline=baseline, n_words=n_words, privacy=self.privacy_)

    def _encoder_of_table(self):
        steps = [step for _, step in self._fitted().steps if not is_passthrough(step)]
        return steps[0] if len(steps) == 2 and hasattr(steps[0], "in_column_units") else None

    @_if_steps_have("predict")
    def predict(self, X, **params) -> Any:
        """``predict`` of the last step, for transformed rows."""
        return self._fitted().predict(from_arrow(X), **params)

    @_if_steps_have("predict_proba")
    def predict_proba(self, X, **params) -> np.ndarray:
        """``predict_proba`` of the last step, for transformed rows."""
        return self._fitted().predict_proba(from_arrow(X), **params)

    @_if_steps_have("predict_log_proba")
    def predict_log_proba(self, X, **params) -> np.ndarray:
        """``predict_log_proba`` of the last step, for transformed rows."""
        return self._fitted().predict_log_proba(from_arrow(X), **params)

    @_if_steps_have("decision_function")
    def decision_function(self, X, **params) -> np.ndarray:
        """``decision_function`` of the last step, for transformed rows."""
        return self._fitted().decision_function(from_arrow(X), **params)

    @_if_steps_have("score_samples")
    def score_samples(self, X) -> np.ndarray:
        """``score_samples`` of the last step, for transformed rows."""
        return self._fitted().score_samples(from_arrow(X))

    @_if_steps_have("score")
    def score(self, X, y=None, sample_weight=None, **params) -> float:
        """``score`` of the last step, for transformed rows."""
        return self._fitted().score(from_arrow(X), from_arrow(y), sample_weight=sample_weight, **params)

    @_if_steps_have("transform")
    def transform(self, X, **params) -> Any:
        """``transform`` of all steps, one after the other."""
        return self._fitted().transform(from_arrow(X), **params)

    @_if_steps_have("inverse_transform")
    def inverse_transform(self, X, **params) -> Any:
        """``inverse_transform`` of all steps, from the last to the first."""
        return self._fitted().inverse_transform(X, **params)

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Names of the features that ``transform`` gives."""
        return self._pipeline().get_feature_names_out(input_features)

    @property
    def classes_(self) -> np.ndarray:
        """Classes of the last step."""
        return self._pipeline().classes_

    @property
    def n_features_in_(self) -> int:
        """Number of columns that the first step was fitted to; ``"passthrough"`` is no step."""
        return self._first_step().n_features_in_

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of these columns."""
        return self._first_step().feature_names_in_

    def _first_step(self):
        return next((step for _, step in self._pipeline().steps if not is_passthrough(step)), None)

    def __sklearn_is_fitted__(self) -> bool:
        return "steps_" in self.__dict__
