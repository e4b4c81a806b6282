"""Plans as events of dp_accounting, which composes them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from vips._support.files import no_fork

if TYPE_CHECKING:
    from vips.core.plan import PrivacyPlan

__all__ = ["fit_event", "library", "neighbours"]


@cache
def library() -> Any:
    """dp_accounting, imported on first use: that takes half a second."""
    with no_fork():  # a child forked during the import could never import it
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    return dp_accounting


def neighbours(relation: str) -> Any:
    kinds = library().NeighboringRelation
    return kinds.ADD_OR_REMOVE_ONE if relation == "add_or_remove" else kinds.REPLACE_ONE


def fit_event(plan: PrivacyPlan, name: str) -> Any:
    """The whole fit as a dp_accounting ``DpEvent``, for one of its accountants under ``plan.relation``.

    Under add-or-remove, one event is right for both. Under replace-one, dp_accounting's privacy loss distributions double the
    sensitivity themselves, its Rényi divergences do not. So the events are written such that an accountant for which they would
    be wrong refuses them. With σ relative to one record's share, also where that is rounded:

    ======================  ========================================  =====================================
    sampling, relation      ``"pld"``                                 ``"rdp"``
    ======================  ========================================  =====================================
    any, add or remove      Gaussian(σ), sampled at q                 the same
    poisson, replace one    Gaussian(σ), sampled at q                 none
    full, replace one       Gaussian(σ), sampled at 1, which "rdp"    zCDP(2/σ²), which "pld" refuses
                            refuses
    ======================  ========================================  =====================================

    Parameters
    ----------
    plan : PrivacyPlan
        A plan that this accountant can analyse: ``registry.event`` checks that.
    name : {"pld", "rdp"}
    """
    events = library()
    if plan.noise_multiplier == 0.0:
        return events.NonPrivateDpEvent()
    full, replaced = plan.sampling_rate == 1.0, plan.relation == "replace_one"
    if name == "rdp" and replaced:
        step = events.ZCDpEvent(rho=0.5 / plan.sensitive_noise_multiplier() ** 2)
    else:
        step = events.GaussianDpEvent(plan.noise_per_share())
    if not full or (name == "pld" and replaced):
        step = events.PoissonSampledDpEvent(plan.sampling_rate, step)
    return events.SelfComposedDpEvent(step, plan.n_steps)
