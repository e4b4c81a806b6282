"""Sampling, clipping, noise and accounting. Imports no model."""

from vips.privacy._lattice import Lattice
from vips.privacy.plan import PrivacyPlan, PrivacyWarning
from vips.privacy.report import PrivacyReport

__all__ = ["Lattice", "PrivacyPlan", "PrivacyReport", "PrivacyWarning"]
