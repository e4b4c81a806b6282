"""Sources of numbers: the data from which they were computed."""

from __future__ import annotations

__all__ = ["PRIVATE", "RELEASED", "X_TEST", "combined", "source_of"]

RELEASED = "released"
X_TEST = "X_test: not protected"
PRIVATE = "private data"


def source_of(model) -> str:
    """Source of a fitted model's numbers: private data, unless the fit has a guarantee."""
    return RELEASED if model.privacy_.has_guarantee else PRIVATE


def combined(*sources: str) -> str:
    """Source of a number that is computed from several sources: all those that are not "released"."""
    parts = {part for source in sources for part in source.split("; ")}
    return "; ".join(source for source in (PRIVATE, X_TEST) if source in parts) or RELEASED
