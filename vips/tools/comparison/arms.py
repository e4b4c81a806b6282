"""Does the clip or the noise make the difference? Three arms that differ in nothing else.

    plain    ──clip──▶    clipped    ──noise──▶    private
      a                      b                        c              c - a = (b - a) + (c - b)

share of clipping = ⟨b - a, c - a⟩ / ‖c - a‖², share of noise = ⟨c - b, c - a⟩ / ‖c - a‖²: they sum to 1, and one of them is
negative where it works against the other.

Plain and clipped repeat the private fit (same schedule, same view, same sampling) with noise far below rounding. They do not
use the code path of a non-private fit: there, models start, step, scale and repair differently, which would count as noise. The
plain arm's clip cannot bind. The difference between plain arm and baseline is then due to neither clip nor noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import clone

from vips.core.plan import PrivacyPlan
from vips.expfam import Dirichlet
from vips.tools.comparison.movement import match, parts_of

__all__ = ["Arms", "Shares", "fit_arms", "plans_of_arms", "shares_of_parameters", "shares_of_predictions"]

# Standard deviation of the noise that replaces none, ÷ clip norm: the least that a plan accepts.
_NO_NOISE = 1e-12
# Clip norm that replaces none, for models whose records have no largest norm.
_NO_CLIP = 1e6


@dataclass(frozen=True)
class Arms:
    """Two fits beside the private one."""

    plain: object
    clipped: object


@dataclass(frozen=True)
class Shares:
    """Effects of clipping and of noise on a vector.

    Attributes
    ----------
    clipping, noise, neither : float
        Root mean squares of b - a, of c - b, and of the baseline minus a.
    clipping_share, noise_share : float
        Shares of c - a; they sum to 1. NaN if nothing moved.
    """

    clipping: float
    noise: float
    neither: float
    clipping_share: float
    noise_share: float

    @classmethod
    def of(cls, plain: np.ndarray, clipped: np.ndarray, private: np.ndarray, baseline: np.ndarray) -> Shares:
        """From the same vector in the three arms and the baseline."""
        clipping, noise, together = clipped - plain, private - clipped, private - plain
        size = float(np.vdot(together, together))
        share = float(np.vdot(clipping, together)) / size if size > 0.0 else float("nan")
        sizes = (float(np.sqrt(np.mean(np.square(d)))) for d in (clipping, noise, baseline - plain))
        return cls(*sizes, share, 1.0 - share)


def plans_of_arms(plan: PrivacyPlan, largest_norm: float) -> tuple[PrivacyPlan, PrivacyPlan]:
    """Plans of the plain and the clipped arm.

    Parameters
    ----------
    plan : PrivacyPlan
        Plan of the private fit, with its clip norm filled in.
    largest_norm : float
        Largest norm of a record, or inf.
    """
    without_noise = {"noise_multiplier": _NO_NOISE, "noise": "gaussian", "reproducible_noise": True}
    seeded = replace(plan, **without_noise, report_delta=None, sent_from=None)
    largest = max(largest_norm if np.isfinite(largest_norm) else _NO_CLIP, plan.clip_norm)
    return replace(seeded, clip_norm=largest), seeded


def fit_arms(private, X, y=None) -> Arms:
    """Fit the plain and the clipped arm to the training data. Neither is private, whatever ε its report states."""
    seed = {"random_state": 0} if getattr(private, "random_state", None) is None else {}
    fitted = []
    for plan in plans_of_arms(private.privacy_.plan, private.largest_norm_in_fit()):
        arm = clone(private).set_params(privacy=plan, **seed)
        arm.sent_from = None  # the ledger that paid for the private fit; no ledger pays for an arm
        fitted.append(arm.fit(X, y) if private.needs_labels else arm.fit(X))
    return Arms(*fitted)


def shares_of_parameters(private, baseline, arms: Arms) -> Shares:
    """Shares for the means of the last steps' posteriors (for topics: square roots of probabilities; in units of columns:
    divided by deviations of the private fit), each arm aligned with the private fit."""
    deviations = 1.0
    if private.units_of_columns is not None:
        parts = parts_of(private, private.last_posterior_)
        deviations = np.concatenate([np.ravel(part.distribution.std) for part in parts if part.are_parameters])
    models = arms.plain, arms.clipped, private, baseline
    return Shares.of(*(_coordinates(private, model) / deviations for model in models))


def shares_of_predictions(private, baseline, arms: Arms, X) -> Shares | None:
    """Shares for the predictions of the records ``X``; None for a model class without predictions."""
    vectors = [model.predictions(X) for model in (arms.plain, arms.clipped, private, baseline)]
    return None if vectors[0] is None else Shares.of(*vectors)


def _coordinates(private, model) -> np.ndarray:
    alignment = match(private, private.last_posterior_, model.last_posterior_)
    parts = parts_of(private, model.last_posterior_, None if alignment is None else alignment.order)
    all_means = [
        np.sqrt(part.distribution.mean) if isinstance(part.distribution, Dirichlet) else part.distribution.mean
        for part in parts
        if part.are_parameters
    ]
    return np.concatenate([np.ravel(means) for means in all_means])
