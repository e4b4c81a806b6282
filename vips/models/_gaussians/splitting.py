"""How components begin, in a mixture or a chain: one, which is split along its longest axis, and so on (binary splitting).

A split keeps count, mean and covariance of what is split: its halves are at m ± 0.8 √λ v, with λ and v the largest
eigenvalue of the covariance and its eigenvector, and lose 0.64 λ along v.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vips.core.contract import scheduled
from vips.core.exact.blas import eigh
from vips.core.phases import FitPhase
from vips.core.step_size import PolynomialAveraging
from vips.models._gaussians.posterior import MixturePosterior
from vips.models._gaussians.update import Moments, Priors, next_posterior

__all__ = [
    "GROWING", "first_posterior", "growing_phases", "lengths_of_growth", "n_splits_in_step", "next_components", "split",
    "step_size_of_all", "with_learnt_priors",
]  # fmt: skip

_SHIFT = 0.8  # in standard deviations
GROWING = 0.5  # step size while components are split
_AVERAGING, _LARGEST = PolynomialAveraging(power=4.0), 0.3
_UPDATES = 12  # least sum of the step sizes after growth, for which a short fit takes longer steps
_PRIOR_SHARE = 0.001  # of the covariance of all records: as a prior, the whole would hide components that are thin


def step_size_of_all(model, has_begun: bool, n_steps: int, s: int) -> float:
    """ρ of the steps s = 1, 2, … of all components, ``n_steps`` in all: as the contract's ``scheduled``, where a private fit
    takes min(0.3, 5/(s + 4)), or longer steps if they are less than 40. The first one is 1, but where components
    ``has_begun`` by growing: totals of these count on."""

    def averaging(t: int) -> float:
        return min(max(_LARGEST, _UPDATES / n_steps), _AVERAGING(t))

    if s == 1 and has_begun:
        return averaging(1) if model.schedule is None else model.schedule(1)
    return scheduled(model, s, averaging)


def first_posterior(model, priors: Priors, place: tuple[np.ndarray, np.ndarray], **others) -> MixturePosterior:
    """One component over the ball of ``max_norm``, or where the columns lie; the others wait at the same place.

    Parameters
    ----------
    model : ConjugateExponentialModel
        With ``n_components``, ``covariance_type`` and ``max_norm``.
    priors : Priors
    place : tuple of ndarray of shape (d,)
        Centre and units of the columns.
    others
        Further fields of the posterior.
    """
    (centre, units), n, d, kind = place, model.n_components, len(place[0]), model.covariance_type
    spread = np.full(d, float(model.max_norm) if model.is_private else 1.0) * units / np.sqrt(d)
    shape = {"full": (n, d, d), "tied": (1, d, d)}.get(kind, (n, 1, d))
    nothing = np.zeros((d, d) if kind in ("full", "tied") else (1, d))
    fields = {
        "covariance_type": kind,
        "concentration": np.ones(n),
        "mean": np.tile(centre, (n, 1)),
        "mean_precision": np.ones(n),
        "dof": np.full(n, priors.dof),
        "factor": np.broadcast_to(np.diag(spread) if shape[1] == d else spread, shape),
        "tail": np.zeros(n),
        "n_active": 1,
        "parent": np.arange(n),
        "portion": np.ones(n),
        "prior_mean": np.zeros(d) if priors.mean is None else priors.mean,
        "prior_covariance": nothing if priors.covariance is None else priors.covariance,
        "directions": np.zeros((n, d)),
    }
    return MixturePosterior(**fields | others)


def with_learnt_priors(model, previous: MixturePosterior, moments: Moments, priors: Priors) -> MixturePosterior:
    """Mean and covariance of all records, which are the totals of the only component, where none are given."""
    given, count = {}, max(moments.count[0], 2.0)
    if priors.mean is None:
        given["prior_mean"] = moments.mean[0]
    if priors.covariance is None:
        share = _PRIOR_SHARE if model.is_private else count / (count - 1.0)
        given["prior_covariance"] = share * moments.covariance[0]
    return replace(previous, **given)


def next_components(model, totals, previous: MixturePosterior, priors: Priors, n_splits: int) -> MixturePosterior:
    """The posterior that these totals give, without noise, whose largest components were split."""
    moments = Moments.of(totals, previous).first(previous.n_active)
    if previous.n_active == 1:
        previous = with_learnt_priors(model, previous, moments, priors)
    n_active = min(previous.n_active + n_splits, model.n_components)
    kind, directions = model.covariance_type, previous.directions
    moments, parent, portion = split(moments, previous.n_active, n_splits, directions, kind, priors.units)
    posterior = next_posterior(moments, previous, priors, n_active)
    return replace(posterior, parent=parent, portion=portion, tail=posterior.tail[parent])


def n_splits_in_step(n_components: int, n_steps: int) -> int:
    """As few as leave two thirds of the steps for what follows, and at least 1. Public numbers."""
    return max(1, -(-(n_components - 1) // max(1, n_steps // 3)))


def lengths_of_growth(n_components: int, n_steps: int, interval: int) -> list[int]:
    """Numbers of steps after each of which components are split, until there are ``n_components``.

    Parameters
    ----------
    n_components, n_steps : int
    interval : int
        Steps from one split to the next.
    """
    n_rounds = -(-(n_components - 1) // n_splits_in_step(n_components, n_steps))
    return [1, *[interval] * (n_rounds - 1)] if n_rounds else []


def growing_phases(lengths: Sequence[int], n_steps: int, **settings) -> list[FitPhase]:
    """Phases of so many steps, as far as ``n_steps`` reach; a phase that they cut ends without a split.

    The first step of all has step size 1, the others ``GROWING``. ``settings`` are those of :class:`vips.FitPhase`.
    """
    phases = []
    for i, length in enumerate(lengths):
        cut = {} if length <= n_steps else {"end": None}
        sizes = (lambda s: 1.0 if s == 1 else GROWING) if i == 0 else lambda s: GROWING
        phases.append(FitPhase("growing", min(length, n_steps), step_size=sizes, **settings | cut))
        n_steps -= phases[-1].n_steps
    return phases


def split(
    moments: Moments, n_active: int, n_splits: int, directions: np.ndarray, kind: str, units: np.ndarray
) -> tuple[Moments, np.ndarray, np.ndarray]:
    """Split the components with the largest count × variance along the longest axis.

    Parameters
    ----------
    moments : Moments
        Of K components, of which the first ``n_active`` are in use.
    n_splits : int
    directions : ndarray of shape (K, d)
        Public draws: along them spherical components are split.
    kind : str
        Type of covariance.
    units : ndarray of shape (d,)
        In which columns are compared.

    Returns
    -------
    moments : Moments
    parent, portion : ndarray of shape (K,)
        The component from which each one comes, and its portion of that one's records.
    """
    count, weight, mean = moments.count.copy(), moments.weight.copy(), moments.mean.copy()
    covariance = moments.covariance.copy()
    parent, portion = np.arange(len(count)), np.ones(len(count))
    squares = np.outer(units, units) if kind in ("full", "tied") else np.square(units)
    for new in range(n_active, min(n_active + n_splits, len(count))):
        variances, axes = zip(
            *(_longest(matrix, kind, directions[new]) for matrix in covariance / squares), strict=True
        )
        old = int(np.argmax(count[:new] * np.broadcast_to(variances, len(count))[:new]))
        place = min(old, len(covariance) - 1)
        shift = _SHIFT * np.sqrt(variances[place]) * axes[place] * units
        share = count[old] / max(count.sum(), 1e-300) if kind == "tied" else 1.0
        lost = shift[:, None] * shift if kind in ("full", "tied") else np.square(shift)[None]
        if kind == "spherical":
            lost = np.full_like(lost, lost.mean())
        covariance[place] -= share * lost
        if len(covariance) > 1:
            covariance[new] = covariance[old]
        mean[new], mean[old] = mean[old] + shift, mean[old] - shift
        for values in (count, weight, portion):
            values[old] *= 0.5
            values[new] = values[old]
        parent[new] = parent[old]
    return replace(moments, count=count, weight=weight, mean=mean, covariance=covariance), parent, portion


def _longest(covariance: np.ndarray, kind: str, direction: np.ndarray) -> tuple[float, np.ndarray]:
    """The largest variance, and its axis."""
    if kind in ("full", "tied"):
        values, vectors = eigh(covariance)
        return max(float(values[-1]), 0.0), vectors[:, -1]
    if kind == "diag":
        axis = int(np.argmax(covariance[0]))
        return max(float(covariance[0, axis]), 0.0), np.eye(len(covariance[0]))[axis]
    return max(float(covariance[0, 0]), 0.0), direction / max(np.linalg.norm(direction), 1e-300)
