"""Reads what was fitted. It never looks code up by a name in the file, so that a file from elsewhere cannot run code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar, overload

from vips import models
from vips.classification.classifier import PrivateClassifier
from vips.model import ConjugateExponentialModel
from vips.persistence.archive import restored_from
from vips.persistence.fitted import restored, save_model
from vips.preprocessing import PrivatePipeline, PrivateTopics
from vips.preprocessing._private_pipeline import restored_pipeline
from vips.preprocessing._saved import restored_encoder, save_pipeline
from vips.report.unread import warn_of_unread

__all__ = ["load"]

_READERS = {
    "model": restored,
    "encoder": restored_encoder,
    "pipeline": partial(restored_pipeline, (PrivatePipeline, PrivateTopics, PrivateClassifier)),
}


_Model = TypeVar("_Model", bound=ConjugateExponentialModel)


@overload
def load(path: str | os.PathLike, model_class: None = None) -> Any: ...
@overload
def load(path: str | os.PathLike, model_class: type[_Model]) -> _Model: ...
def load(path: str | os.PathLike, model_class: type[ConjugateExponentialModel] | None = None) -> Any:
    """A model, an encoder, a :class:`~vips.preprocessing.PrivatePipeline` or a :class:`~vips.PrivateClassifier` that its
    ``save`` wrote.

    Parameters
    ----------
    path : str or path
    model_class : class, optional
        Needed for a model class that is not part of vips.

    Raises
    ------
    ValueError
        If the file is none of these, or comes from a newer version or an unknown class.

    Warns
    -----
    PrivacyWarning
        As ``fit`` did, of what it could not read.
    """
    names = [getattr(models, name) for name in models.__all__] if model_class is None else [model_class]
    known = {cls.__name__: cls for cls in names}
    fitted = _loaded(path, known)[0]
    if hasattr(fitted, "counts_read"):
        warn_of_unread(fitted)
        if isinstance(fitted, PrivatePipeline) and not fitted.privacy_.only_noise:
            warn_of_unread(fitted[-1])
    return fitted


def load_for_shell(path: str | os.PathLike) -> tuple[Any, object]:
    """What :func:`load` reads, and what :func:`save_for_shell` kept besides; None if ``save`` wrote the file. May be forged."""
    return _loaded(path, {name: getattr(models, name) for name in models.__all__})


def save_for_shell(model, path: str | os.PathLike, needs: dict) -> None:
    """As ``model.save``, in one file with what predictions need besides."""
    save = save_pipeline if isinstance(model, PrivatePipeline) else save_model
    save(model, path, shell=needs)


def _loaded(path: str | os.PathLike, known: Mapping[str, type]) -> tuple[Any, object]:
    def reader(kind: str):
        return lambda header, arrays: (_READERS[kind](header, arrays, known), header.get("shell"))

    return restored_from(path, {kind: reader(kind) for kind in _READERS})
