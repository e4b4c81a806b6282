"""The model of a pipeline that ends with one."""

from __future__ import annotations

from sklearn.pipeline import Pipeline

__all__ = ["model_of"]


def model_of(fitted):
    """The last step of a pipeline; a model itself."""
    return fitted[-1] if isinstance(fitted, Pipeline) else fitted
