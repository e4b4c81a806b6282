"""Reads fitted models. It never looks code up by a name in the file, so that a file from elsewhere cannot run code."""

from __future__ import annotations

import os
from typing import Any, TypeVar, overload

from vips import models
from vips.classification.classifier import PrivateClassifier
from vips.model import ConjugateExponentialModel
from vips.persistence.archive import one_error, read_archive
from vips.persistence.fitted import restored
from vips.preprocessing import PrivatePipeline

__all__ = ["load"]

_READERS = {"model": restored, "pipeline": PrivatePipeline._of_file, "classifier": PrivateClassifier._of_file}


_Model = TypeVar("_Model", bound=ConjugateExponentialModel)


@overload
def load(path: str | os.PathLike, model_class: None = None) -> Any: ...
@overload
def load(path: str | os.PathLike, model_class: type[_Model]) -> _Model: ...
def load(path: str | os.PathLike, model_class: type[ConjugateExponentialModel] | None = None) -> Any:
    """A model, a :class:`~vips.preprocessing.PrivatePipeline` or a :class:`~vips.PrivateClassifier` that its ``save`` wrote.

    Parameters
    ----------
    path : str or path
    model_class : class, optional
        Needed for a model class that is not part of vips.

    Raises
    ------
    ValueError
        If the file is none of these, or comes from a newer version or an unknown class.
    """
    names = [getattr(models, name) for name in models.__all__] if model_class is None else [model_class]
    known = {cls.__name__: cls for cls in names}
    header, arrays = read_archive(path, *_READERS)
    with one_error(path):
        return _READERS[header["kind"]](header, arrays, known)
