"""A fitted model, or a pipeline that ends with one: the model, and the privacy statement."""

from __future__ import annotations

from sklearn.pipeline import Pipeline

__all__ = ["model_of", "statement_of"]


def model_of(fitted):
    """The last step of a pipeline; a model itself."""
    return fitted[-1] if isinstance(fitted, Pipeline) else fitted


def statement_of(fitted):
    """The privacy statement: of a private pipeline, one that counts its encoder, too."""
    report = fitted.privacy_ if hasattr(fitted, "privacy_") else model_of(fitted).privacy_
    return report.as_one_fit() if hasattr(report, "as_one_fit") else report
