"""Is it the clip or the noise? Three arms that differ in nothing else.

    plain    ──clip──▶    clipped    ──noise──▶    private
      a                      b                        c              c - a = (b - a) + (c - b)

share of clipping = ⟨b - a, c - a⟩ / ‖c - a‖², share of noise = ⟨c - b, c - a⟩ / ‖c - a‖²: they sum to 1, and one of them is
negative where it works against the other.

Plain and clipped are the private fit over again (same schedule, same view, same sampling) with a noise that vanishes beside
rounding, not with the code path of a non-private fit: models start, step, scale and repair differently there, and that would
be counted as noise. A clip that cannot bind takes the place of no clip. What then lies between plain arm and baseline is
neither.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import clone

from vips.comparison.matching import match, parts_of
from vips.expfam import Dirichlet
from vips.privacy import PrivacyPlan

__all__ = ["Arms", "Shares", "fit_arms", "plans_of_arms", "shares_of_parameters", "shares_of_predictions"]

# Standard deviation of the noise that stands for none, ÷ clip norm: the least that a plan takes.
_NO_NOISE = 1e-12
# Clip norm that stands for none, for models whose records have no largest norm.
_NO_CLIP = 1e6


@dataclass(frozen=True)
class Arms:
    """Two fits beside the private one."""

    plain: object
    clipped: object


@dataclass(frozen=True)
class Shares:
    """What clipping and noise each did to a vector.

    Attributes
    ----------
    clipping, noise, rest : float
        Root mean squares of b - a, c - b, and of the baseline less a.
    clipping_share, noise_share : float
        Of c - a; they sum to 1. NaN where nothing moved.
    """

    clipping: float
    noise: float
    rest: float
    clipping_share: float
    noise_share: float

    @classmethod
    def of(cls, plain: np.ndarray, clipped: np.ndarray, private: np.ndarray, baseline: np.ndarray) -> Shares:
        """From the same vector in the three arms and the baseline."""
        clipping, noise, together = clipped - plain, private - clipped, private - plain
        size = float(np.vdot(together, together))
        share = float(np.vdot(clipping, together)) / size if size > 0.0 else float("nan")
        return cls(*(_rms(d) for d in (clipping, noise, baseline - plain)), share, 1.0 - share)


def plans_of_arms(plan: PrivacyPlan, max_norm: float) -> tuple[PrivacyPlan, PrivacyPlan]:
    """Of the plain and the clipped arm.

    Parameters
    ----------
    plan : PrivacyPlan
        Of the private fit, its clip norm filled in.
    max_norm : float
        Largest norm of a record, or inf.
    """
    seeded = replace(
        plan, noise_multiplier=_NO_NOISE, noise="gaussian", reproducible_noise=True, report_delta=None, sent_from=None
    )
    largest = max(max_norm if np.isfinite(max_norm) else _NO_CLIP, plan.clip_norm)
    return replace(seeded, clip_norm=largest), seeded


def fit_arms(private, X, y=None) -> Arms:
    """Fit the plain and the clipped arm to the training data. Neither is private, whatever its report says of ε."""
    seed = {"random_state": 0} if getattr(private, "random_state", None) is None else {}
    fitted = []
    for plan in plans_of_arms(private.privacy_.plan, private.max_norm()):
        arm = clone(private).set_params(privacy=plan, **seed)
        vars(arm).pop("_sent_from", None)  # of a private fit that a ledger paid for; no ledger pays for an arm
        fitted.append(arm.fit(X, y) if private.needs_labels else arm.fit(X))
    return Arms(*fitted)


def shares_of_parameters(private, baseline, arms: Arms) -> Shares:
    """Of the posterior means (of topics: of the square roots of probabilities), each arm aligned with the private fit."""
    return Shares.of(*(_coordinates(private, model) for model in (arms.plain, arms.clipped, private, baseline)))


def shares_of_predictions(private, baseline, arms: Arms, X) -> Shares | None:
    """Of what the models say of the records ``X``; None for a model class whose predictions are not known."""
    vectors = [model.predictions(X) for model in (arms.plain, arms.clipped, private, baseline)]
    return None if vectors[0] is None else Shares.of(*vectors)


def _coordinates(private, model) -> np.ndarray:
    alignment = match(private, private.posterior_, model.posterior_)
    parts = parts_of(model, model.posterior_, None if alignment is None else alignment.order)
    found = [
        np.sqrt(part.distribution.mean) if isinstance(part.distribution, Dirichlet) else part.distribution.mean
        for part in parts
        if part.are_parameters
    ]
    return np.concatenate([np.ravel(means) for means in found])


def _rms(difference: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(difference))))
