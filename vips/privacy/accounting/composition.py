"""Joint ε of several fits of the same records, whatever accountants their plans need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from vips.privacy.accounting.base import ACCOUNTANTS
from vips.privacy.accounting.events import library
from vips.privacy.accounting.pld import composed_epsilon
from vips.privacy.accounting.renyi import WHOLE_ORDERS, renyi_divergence

__all__ = ["joint_epsilon"]

# What the privacy of one step depends on; the clip norm only scales the noise.
_OF_A_STEP = ("noise_multiplier", "sampling_rate", "sampling", "relation", "noise")


def joint_epsilon(plans: Sequence, delta: float) -> tuple[float, str]:
    """Joint ε of plans that were fixed beforehand, at ``delta``, and the name of the accountant.

    By privacy loss distributions if they can analyse every plan, else by Rényi divergences, else as the sum of every plan's ε
    at an equal share of δ.

    Parameters
    ----------
    plans : sequence of PrivacyPlan
        At least one; all private, and of one relation.
    delta : float in (0, 1)

    Raises
    ------
    ValueError
        If the plans have different relations.
    """
    if len({plan.relation for plan in plans}) != 1:
        raise ValueError("Plans of different relations have no joint ε.")
    if not all(plan.is_private for plan in plans):
        return math.inf, "pld"
    plans = _merged(plans)
    if all(ACCOUNTANTS["pld"].can_analyse(plan) for plan in plans):
        return composed_epsilon(plans, delta), "pld"
    try:
        divergences = [math.fsum(plan.n_steps * renyi_divergence(plan, a) for plan in plans) for a in WHOLE_ORDERS]
    except ValueError:  # no Rényi bound for one of them
        return math.fsum(plan.epsilon(delta / len(plans)) for plan in plans), "basic"
    epsilon = library().rdp.rdp_privacy_accountant.compute_epsilon(WHOLE_ORDERS, divergences, delta)[0]
    return max(0.0, float(epsilon)), "rdp"


def _merged(plans: Sequence) -> list:
    """The same steps in fewer plans: one for all that differ in their numbers of steps only."""
    steps = {}
    for plan in plans:
        settings = tuple(getattr(plan, name) for name in _OF_A_STEP)
        first, n_steps = steps.get(settings, (plan, 0))
        steps[settings] = first, n_steps + plan.n_steps
    return [replace(plan, n_steps=n_steps) for plan, n_steps in steps.values()]
