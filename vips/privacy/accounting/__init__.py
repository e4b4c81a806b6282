"""From a plan to (ε, δ): one class per accountant, one registry; calibration; events for dp_accounting."""

from vips.privacy.accounting.base import ACCOUNTANTS, Accountant
from vips.privacy.accounting.calibration import calibrate_noise, largest_n_steps
from vips.privacy.accounting.domination import dominating_mu
from vips.privacy.accounting.pld import composed_epsilon
from vips.privacy.accounting.registry import event, get_accountant

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "calibrate_noise",
    "composed_epsilon",
    "dominating_mu",
    "event",
    "get_accountant",
    "largest_n_steps",
]
