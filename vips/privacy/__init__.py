"""Sampling, clipping, noise and accounting. Imports no model."""

from vips.exceptions import PrivacyWarning
from vips.privacy.budget import PrivacyBudget
from vips.privacy.mechanism.lattice import Lattice
from vips.privacy.plan import PrivacyPlan
from vips.privacy.report import PrivacyReport, Release
from vips.privacy.stream_plan import StreamPlan

__all__ = [
    "Lattice",
    "PrivacyBudget",
    "PrivacyPlan",
    "PrivacyReport",
    "PrivacyWarning",
    "Release",
    "StreamPlan",
]
