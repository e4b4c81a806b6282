"""The warning of noise-aware posteriors about a clip that binds."""

from __future__ import annotations

import warnings

from vips.exceptions import PrivacyWarning
from vips.model import ConjugateExponentialModel

__all__ = ["warn_of_binding_clip"]


def warn_of_binding_clip(model: ConjugateExponentialModel) -> None:
    """Warn that intervals may miss the truth if the fit's clip norm, a public number, is below the largest norm of a record."""
    clip_norm, largest = model.privacy_.plan.clip_norm, model.max_norm()
    if clip_norm < largest * (1.0 - 1e-9):
        warnings.warn(
            f"The clip norm {clip_norm:.3g} is below the largest norm of a record, {largest:.3g}: clipping biases the "
            "parameters, and intervals of the noise-aware posterior need not hold. To interpret parameters, "
            "fit with PrivacyPlan(..., clip_norm=model.max_norm()).",
            PrivacyWarning,
            stacklevel=4,
        )
