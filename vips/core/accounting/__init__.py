"""From a plan to (ε, δ): one class per accountant, one registry; calibration; events for dp_accounting.

Each accountant refuses what it cannot analyse.

============  ==========================================================================================================
``"pld"``     privacy loss distributions; without sampling, the exact Gaussian
``"rdp"``     Rényi divergences (dp_accounting)
``"moments"`` the paper's: valid, never the smallest, kept to reproduce its numbers
``"strong"``  exact Gaussian per step, amplified by sampling, then theorem 3.20 of Dwork and Roth (2014)
``"basic"``   the same per step; ε and δ add up
============  ==========================================================================================================
"""

from vips.core.accounting.base import ACCOUNTANTS, Accountant, get_accountant
from vips.core.accounting.calibration import calibrate_noise, largest_n_steps
from vips.core.accounting.domination import dominating_mu
from vips.core.accounting.events import RDPAccountant, event
from vips.core.accounting.moments import MomentsAccountant
from vips.core.accounting.pld import PLDAccountant, composed_epsilon
from vips.core.accounting.stepwise import BasicAccountant, StrongAccountant

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

for _each in (PLDAccountant(), RDPAccountant(), MomentsAccountant(), StrongAccountant(), BasicAccountant()):
    ACCOUNTANTS[_each.name] = _each
