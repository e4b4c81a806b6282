"""Reads fitted models. It never looks code up by a name in the file, so that a file from elsewhere cannot run code."""

from __future__ import annotations

import os

from vips import models
from vips.model import ConjugateExponentialModel
from vips.persistence.archive import one_error, read_archive
from vips.persistence.fitted import restored
from vips.preprocessing import PrivatePipeline

__all__ = ["load"]


def load(
    path: str | os.PathLike, model_class: type[ConjugateExponentialModel] | None = None
) -> ConjugateExponentialModel | PrivatePipeline:
    """A model that ``model.save(path)`` wrote, or a :class:`~vips.preprocessing.PrivatePipeline` that its ``save`` wrote.

    Parameters
    ----------
    path : str or path
    model_class : class, optional
        Needed for a model class that is not part of vips.

    Raises
    ------
    ValueError
        If the file is neither, or comes from a newer version or an unknown class.
    """
    names = [getattr(models, name) for name in models.__all__] if model_class is None else [model_class]
    known = {cls.__name__: cls for cls in names}
    header, arrays = read_archive(path, "model", "pipeline")
    with one_error(path):
        read = PrivatePipeline._of_file if header["kind"] == "pipeline" else restored
        return read(header, arrays, known)
