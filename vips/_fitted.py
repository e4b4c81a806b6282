"""What a fit has set on an estimator: attributes whose names end with an underscore, as in scikit-learn."""

from __future__ import annotations

__all__ = ["fitted_attributes", "forget_fit"]


def fitted_attributes(estimator) -> dict[str, object]:
    """Fitted attributes, by name."""
    return {name: value for name, value in vars(estimator).items() if name.endswith("_") and not name.startswith("_")}


def forget_fit(estimator) -> None:
    """Remove them, so that an estimator whose next fit fails does not look fitted."""
    for name in fitted_attributes(estimator):
        delattr(estimator, name)
