"""From a plan to (ε, δ): one class per accountant, one registry; calibration; events for dp_accounting."""

from vips.core.accounting.base import ACCOUNTANTS, Accountant
from vips.core.accounting.calibration import calibrate_noise, largest_n_steps
from vips.core.accounting.domination import dominating_mu
from vips.core.accounting.pld import composed_epsilon
from vips.core.accounting.registry import event, get_accountant

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
