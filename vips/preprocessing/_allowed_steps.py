"""Which steps may stand before a private model: those that treat each row alone and learn nothing."""

from __future__ import annotations

from collections.abc import Iterator

from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer

from vips.preprocessing._one_hot import PublicOneHotEncoder
from vips.preprocessing._scaler import PublicScaler
from vips.preprocessing._table import TableEncoder

__all__ = ["DECLARED", "OF_TEXTS", "ROW_WISE", "is_passthrough", "problem_with", "with_inner_steps"]

# Exact classes: a subclass may learn from the records in its own `fit`.
DECLARED = (PublicScaler, PublicOneHotEncoder, TableEncoder)
OF_TEXTS = (CountVectorizer, HashingVectorizer)
ROW_WISE = (*DECLARED, *OF_TEXTS, Normalizer, Binarizer, FunctionTransformer)
_CONTAINERS = (Pipeline, FeatureUnion, ColumnTransformer)


def is_passthrough(step) -> bool:
    """Whether ``step`` passes its input on unchanged."""
    return step is None or (isinstance(step, str) and step == "passthrough")


def with_inner_steps(name: str, step) -> Iterator[tuple[str, object]]:
    """``step``, and the steps that it is made of."""
    yield name, step
    if isinstance(step, Pipeline):
        inner = step.steps
    elif isinstance(step, FeatureUnion):
        inner = step.transformer_list
    elif isinstance(step, ColumnTransformer):
        inner = [*(entry[:2] for entry in step.transformers), ("remainder", step.remainder)]
    else:
        inner = []
    for inner_name, inner_step in inner:
        yield from with_inner_steps(f"{name} > {inner_name}", inner_step)


def problem_with(name: str, step, sparse: bool, first: str | None = None) -> str | None:
    """Why ``step`` is not allowed before a private model; None if it is. Its inner steps are not checked here. ``first`` is the
    name of the step that the user's records go to."""
    if is_passthrough(step) or (isinstance(step, str) and step == "drop"):
        return None
    kind, title = type(step), f"Step {name!r} ({type(step).__name__})"
    if kind not in ROW_WISE + _CONTAINERS:
        return (
            f"{title} may learn from all records (as StandardScaler learns a mean). The parameters of the private model "
            "after it would release this without noise. Use vips.preprocessing.PublicScaler, "
            "PublicOneHotEncoder or TableEncoder with declared bounds and categories, CountVectorizer(vocabulary=words) with "
            "public words, or FunctionTransformer for a function of each row alone; or learn privately, with "
            "make_private_pipeline and a PrivateTableEncoder or PrivateCountVectorizer."
        )
    if kind in OF_TEXTS:
        return (
            _problem_with_texts(title, step)
            if name == first
            else f"{title} takes documents: it must be the first step."
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
        return f"{title} has workers, whose warnings could reveal values of a record. Write n_jobs=None."
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


def _problem_with_texts(title: str, step) -> str | None:
    if step.input != "content":
        return f'{title} would read files that documents name. Write input="content".'
    if type(step) is CountVectorizer and step.vocabulary is None:
        return (
            f"{title} would learn words from the documents, rare ones too. Write CountVectorizer(vocabulary=words) with public "
            "words, or learn them privately: make_private_pipeline with a PrivateCountVectorizer."
        )
    return None


def _can_be_sparse(name: str, step) -> bool:
    """Whether a step inside has sparse output. If a function has, the fit to the table without rows notices."""
    return any(getattr(inner, "sparse_output", False) for _, inner in with_inner_steps(name, step))
