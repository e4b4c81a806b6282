"""Sampling, clipping, noise and accounting. Imports no model."""

from vips.privacy.plan import PrivacyPlan
from vips.privacy.report import PrivacyReport

__all__ = ["PrivacyPlan", "PrivacyReport"]
