"""Plans, budgets and reports: the public names of privacy, from :mod:`vips.core` and :mod:`vips.report`."""

from vips.core.budget import PrivacyBudget
from vips.core.ledger.ledger import current_ledger
from vips.core.mechanism.lattice import Lattice
from vips.core.plan import PrivacyPlan
from vips.core.stream_plan import StreamPlan
from vips.exceptions import PrivacyWarning
from vips.report.report import PrivacyReport, Release
from vips.report.words import belief_after, gaussian_success, hits, success

__all__ = [
    "Lattice",
    "PrivacyBudget",
    "PrivacyPlan",
    "PrivacyReport",
    "PrivacyWarning",
    "Release",
    "StreamPlan",
    "belief_after",
    "current_ledger",
    "gaussian_success",
    "hits",
    "success",
]
