"""The warning of noise-aware posteriors about a clip that binds."""

from __future__ import annotations

import math
import warnings

from vips.exceptions import PrivacyWarning
from vips.model import ConjugateExponentialModel
from vips.privacy.units import is_group

__all__ = ["warn_of_binding_clip"]


def warn_of_binding_clip(model: ConjugateExponentialModel) -> None:
    """Warn that intervals may miss the truth if clipping may have biased the parameters."""
    if not model.clip_biases():
        return
    plan, remedy = model.privacy_.plan, "clip_norm=model.max_record_norm()"
    n_rows, largest = 1, model.max_record_norm()
    if is_group(model.privacy_.unit):
        n_rows = plan.max_rows_per_group or math.inf
        remedy = f"max_rows_per_group=r, clip_norm=r * {largest:.3g}"
    bound = "which may have any number of rows" if n_rows == math.inf else f"{n_rows * largest:.3g}"
    warnings.warn(
        f"The clip norm {plan.clip_norm:.3g} is below the largest norm of a record, {bound}: clipping biases the "
        "parameters, and intervals of the noise-aware posterior need not hold. To interpret parameters, "
        f"fit with PrivacyPlan(..., {remedy}).",
        PrivacyWarning,
        stacklevel=4,
    )
