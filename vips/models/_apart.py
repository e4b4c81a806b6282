"""Fits to public or simulated records, apart from the fit that the user asked for."""

from __future__ import annotations

from sklearn.base import clone
from sklearn.utils.validation import column_or_1d

from vips import engine
from vips.data import InMemoryData
from vips.door import validated
from vips.persistence.checkpoint import Journal

__all__ = ["copy_of", "fit_apart", "fit_to_public"]


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
    plan = model.completed_plan(model.stated_plan() or model.default_plan(X.shape[0]))
    model.use_plan(plan)
    model.last_posterior_, model.noisy_totals_ = engine.run(
        model, InMemoryData(X, y), plan, Journal(), settling=model.settling_of(plan)
    )
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
