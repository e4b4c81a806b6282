"""Reads fitted models. It never looks code up by a name in the file, so that a file from elsewhere cannot run code."""

from __future__ import annotations

import os

from vips import models
from vips.model import ConjugateExponentialModel
from vips.persistence.fitted import load_model

__all__ = ["load"]


def load(
    path: str | os.PathLike, model_class: type[ConjugateExponentialModel] | None = None
) -> ConjugateExponentialModel:
    """A model that ``model.save(path)`` wrote.

    Parameters
    ----------
    path : str or path
    model_class : class, optional
        Needed for a model class that is not part of vips.

    Raises
    ------
    ValueError
        If the file is not a saved model, or comes from a newer version or an unknown class.
    """
    known = [getattr(models, name) for name in models.__all__] if model_class is None else [model_class]
    return load_model(path, {cls.__name__: cls for cls in known})
