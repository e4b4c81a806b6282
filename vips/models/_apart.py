"""Fits to public or simulated records, apart from the fit that the user asked for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import column_or_1d

from vips.core import engine
from vips.core.contract import completed_plan, stated_plan
from vips.core.mechanism.noise import Randomness
from vips.core.phases import phases_of
from vips.core.records.arrays import InMemoryData
from vips.core.sums import NoisyTotals
from vips.door import validated
from vips.persistence.checkpoint import Journal

__all__ = ["copy_of", "fit_apart", "fit_to_public", "stream_apart"]


def copy_of(model, **settings):
    """An unfitted copy for records with the same columns; ``settings`` are constructor arguments that differ."""
    copy = clone(model).set_params(**settings)
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(model, name):
            setattr(copy, name, getattr(model, name))
    return copy


def fit_apart(model, X, y=None):
    """Fit a copy to records that need no protection, whatever noise its plan adds.

    It charges no ledger, not even one whose block encloses the call, and checks no values.

    Parameters
    ----------
    model : ConjugateExponentialModel
        From :func:`copy_of`. Its ``last_posterior_`` and ``noisy_totals_`` are set.
    X, y
        Public or simulated records.

    Returns
    -------
    model
    """
    plan = completed_plan(model, stated_plan(model) or model.default_plan(X.shape[0]))
    model.use_plan(plan)
    records = InMemoryData(X, y)
    if not model.is_private:
        model.begin(records)
    model.last_posterior_, model.noisy_totals_ = engine.run(
        model, records, plan, Journal(), settling=model.settling_of(plan)
    )
    return model


def stream_apart(model, batches: Sequence, noise_std: float, rng: np.random.Generator):
    """Let a copy learn from batches that need no protection, as ``partial_fit`` would, with noise from ``rng``.

    Parameters
    ----------
    model : ConjugateExponentialModel
        From :func:`copy_of`, with a StreamPlan that has a clip norm and as many batches. Its ``last_posterior_`` and
        ``noisy_totals_`` are set.
    batches : sequence
        Of public or simulated records.
    noise_std : float
        Standard deviation of the noise in the last total, for blocks of scale 1.

    Returns
    -------
    model
    """
    plan, coins = model.privacy, Randomness.for_fit(None, False)  # nothing is sampled
    deviations = noise_std * plan.strategy.deviations() / plan.strategy.deviations()[-1]
    of_draw = noise_std / plan.strategy.deviations()[-1]
    model.use_plan(plan.of_draws)
    (phase,), blocks, posterior = phases_of(model, 1), model.blocks(), model.start(rng)[1]
    average = {name: np.zeros(block.shape) for name, block in blocks.items()}
    buffers = {name: np.zeros((plan.strategy.n_buffers, *block.shape)) for name, block in blocks.items()}
    for t, batch in enumerate(batches, start=1):
        total = engine.clipped_sum(model, phase, InMemoryData(batch, None), posterior, plan.of_draws, coins, t)
        for name, block in blocks.items():
            fresh = of_draw * block.scale * rng.standard_normal(block.shape)
            average[name] = plan.decay * average[name] + total[name] + plan.strategy.step(t, fresh, buffers[name])
        std = {name: deviations[t - 1] * block.scale for name, block in blocks.items()}
        posterior = model.to_posterior(average, std, posterior)
    model.last_posterior_, model.noisy_totals_ = posterior, NoisyTotals(average, std)
    return model


def fit_to_public(model, X, y=None, **settings):
    """Posterior of public records, without noise, and the records as they were checked.

    Parameters
    ----------
    model : ConjugateExponentialModel
        During its own fit, before the first step.
    X, y
        Public records. Their values are checked as in a fit without privacy.
    **settings
        As in :func:`copy_of`; ``privacy`` and ``schedule`` are None.

    Returns
    -------
    posterior
    records : (X, y)
    """
    public = copy_of(model, privacy=None, schedule=None, **settings)
    if y is None:
        X = validated(public, X, reset=False)
    else:
        X, y = validated(public, X, y, reset=False)
        y = column_or_1d(y)
    public.check_values(X, y)
    return fit_apart(public, X, y).last_posterior_, (X, y)
