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

from dataclasses import replace

import numpy as np
from sklearn.base import clone

from vips.core.plan import PrivacyPlan
from vips.expfam import Dirichlet
from vips.tools.comparison.comparison import Row
from vips.tools.comparison.movement import match, parts_of
from vips.tools.comparison.rows import bootstrap
from vips.tools.comparison.text import PRIVATE, X_TEST, combined

__all__ = ["arm_rows", "arm_score_rows", "fit_arms", "plans_of_arms"]

# Standard deviation of the noise that replaces none, ÷ clip norm: the least that a plan accepts.
_NO_NOISE = 1e-12
# Clip norm that replaces none, for models whose records have no largest norm.
_NO_CLIP = 1e6


def plans_of_arms(plan: PrivacyPlan, largest_norm: float) -> tuple[PrivacyPlan, PrivacyPlan]:
    """Plans of the plain and the clipped arm, from that of the private fit and the largest norm of a record, or inf."""
    without_noise = {"noise_multiplier": _NO_NOISE, "noise": "gaussian", "reproducible_noise": True}
    seeded = replace(plan, **without_noise, report_delta=None, sent_from=None)
    largest = max(largest_norm if np.isfinite(largest_norm) else _NO_CLIP, plan.clip_norm)
    return replace(seeded, clip_norm=largest), seeded


def fit_arms(private, X, y=None) -> list:
    """Fit the plain and the clipped arm to the training data. Neither is private, whatever ε its report states."""
    seed = {"random_state": 0} if getattr(private, "random_state", None) is None else {}
    fitted = []
    for plan in plans_of_arms(private.privacy_.plan, private.largest_norm_in_fit()):
        arm = clone(private).set_params(privacy=plan, **seed)
        arm.sent_from = None  # the ledger that paid for the private fit; no ledger pays for an arm
        fitted.append(arm.fit(X, y) if private.needs_labels else arm.fit(X))
    return fitted


def arm_rows(private, baseline, arms: list, X, X_test) -> list[Row]:
    """How far clipping, noise and other causes moved parameters and predictions (of test records, or else of fitted ones).

    Parameters are means of the last steps' posteriors, each arm's aligned with the private fit's (for topics: square roots of
    probabilities; in units of columns: divided by deviations of the private fit).
    """
    models, deviations = (*arms, private, baseline), 1.0
    if private.units_of_columns is not None:
        parts = parts_of(private, private.last_posterior_)
        deviations = np.concatenate([np.ravel(part.distribution.std) for part in parts if part.are_parameters])
    rows = _share_rows("parameters", PRIVATE, *(_coordinates(private, model) / deviations for model in models))
    predictions = [model.predictions(X if X_test is None else X_test) for model in models]
    if predictions[0] is None:  # a model class without predictions
        return rows
    source = PRIVATE if X_test is None else combined(PRIVATE, X_TEST)
    return rows + _share_rows("predictions", source, *predictions)


def _share_rows(
    what: str, source: str, plain: np.ndarray, clipped: np.ndarray, private: np.ndarray, baseline: np.ndarray
) -> list[Row]:
    """Effects of clipping and of noise on a vector; their shares are NaN if nothing moved."""
    clipping, noise, together = clipped - plain, private - clipped, private - plain
    size = float(np.vdot(together, together))
    share = float(np.vdot(clipping, together)) / size if size > 0.0 else float("nan")
    moved = {"clipping": clipping, "noise": noise, "neither (plain arm to baseline)": baseline - plain}
    values = {
        f"share of clipping in the shift of {what}": share,
        f"share of noise in the shift of {what}": 1.0 - share,
        **{
            f"shift of {what} by {cause}, root mean square": float(np.sqrt(np.mean(np.square(by_cause))))
            for cause, by_cause in moved.items()
        },
    }
    return [Row(quantity=quantity, value=value, source=source) for quantity, value in values.items()]


def _coordinates(private, model) -> np.ndarray:
    alignment = match(private, private.last_posterior_, model.last_posterior_)
    parts = parts_of(private, model.last_posterior_, None if alignment is None else alignment.order)
    all_means = [
        np.sqrt(part.distribution.mean) if isinstance(part.distribution, Dirichlet) else part.distribution.mean
        for part in parts
        if part.are_parameters
    ]
    return np.concatenate([np.ravel(means) for means in all_means])


def arm_score_rows(private, arms: list, X, y, settings) -> list[Row]:
    """How clipping and noise changed the scores on test records; ``settings`` as of :func:`~.rows.score_rows`."""
    source, rows = combined(PRIVATE, X_TEST), []
    plain, clipped, noisy = (model.held_out_scores(X, y) for model in (*arms, private))
    for what, after, before in (("clipping", clipped, plain), ("noise", noisy, clipped)):
        for one, other in zip(after, before, strict=True):
            _, _, (value, interval) = bootstrap([one, other], X, *settings)
            rows.append(Row(quantity=f"{one.name}, change by {what}", value=value, interval=interval, source=source))
    return rows
