"""Sparse binary records from a known logistic regression, shaped like health records."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.utils import Bunch

from vips.core.mechanism.random_state import RandomStateLike, as_generator

__all__ = ["make_sparse_binary"]

_CHUNK = 1024
_N_CONDITIONS = 20  # latent conditions, each of which causes its own features
_CONDITION_SHARE = 0.3  # share of a record's ones that conditions cause
_COEF_SHARE = 0.1  # share of features that have an effect; common features more often
_SIGNAL = 2.0  # standard deviation of the linear predictor over the records


def make_sparse_binary(
    n_records: int = 12_586,
    n_features: int = 4_146,
    positive_rate: float = 0.14,
    *,
    n_active: float = 40.0,
    random_state: RandomStateLike = None,
) -> Bunch:
    """Draw sparse binary records and their labels from a logistic regression with known coefficients.

    The defaults have the shape of a study of health records, 12,586 patients and 4,146 drugs and conditions: a few features
    are common, most are rare, some occur together. A tenth of the features have an effect, a few of them a large one. With
    the defaults, scikit-learn's logistic regression reaches an AUC of 0.80 to 0.85 on records that it has not seen.

    Parameters
    ----------
    n_records, n_features : int
    positive_rate : float
        Expected share of positive labels, between 0 and 1; the intercept is solved for.
    n_active : float
        About how many features a record has.
    random_state : int, Generator or None

    Returns
    -------
    Bunch
        ``data``: CSR of shape (n_records, n_features), uint8 zeros and ones; ``target``: (n_records,) bool; ``coef``:
        (n_features,); ``intercept``: float.
    """
    if not 0.0 < positive_rate < 1.0:
        raise ValueError(f"`positive_rate` must be between 0 and 1, got {positive_rate!r}.")
    if not 0.0 < n_active < n_features:
        raise ValueError(f"`n_active` must be between 0 and n_features = {n_features}, got {n_active!r}.")
    rng = as_generator(random_state)
    frequency = _long_tail(n_features, n_active * (1.0 - _CONDITION_SHARE))[rng.permutation(n_features)]
    prevalence = rng.uniform(0.02, 0.2, _N_CONDITIONS)
    brings = rng.exponential(size=(_N_CONDITIONS, n_features)) * (rng.random((_N_CONDITIONS, n_features)) < 0.02)
    brings *= n_active * _CONDITION_SHARE / max(prevalence @ brings.sum(axis=1), 1e-300)
    chunks = []
    for start in range(0, n_records, _CHUNK):
        n_rows = min(_CHUNK, n_records - start)
        has = (rng.random((n_rows, _N_CONDITIONS)) < prevalence).astype(float)
        absent = (1.0 - frequency) * np.exp(-has @ brings)  # neither the base rate nor a condition causes the feature
        chunks.append(sp.csr_array((rng.random((n_rows, n_features)) >= absent).astype(np.uint8)))
    data = sp.vstack(chunks, format="csr") if chunks else sp.csr_array((0, n_features), dtype=np.uint8)

    expected = 1.0 - (1.0 - frequency) * np.exp(-prevalence @ brings)
    coef = _coefficients(expected, brings, prevalence, rng)
    predictor = data @ coef
    intercept = 0.0
    if n_records:
        reach = np.abs(predictor).max() + 50.0
        intercept = float(brentq(lambda b: expit(predictor + b).mean() - positive_rate, -reach, reach))
    target = rng.random(n_records) < expit(predictor + intercept)
    return Bunch(data=data, target=target, coef=coef, intercept=intercept)


def _long_tail(n_features: int, total: float) -> np.ndarray:
    """Frequencies of a few common and many rare features, adding up to ``total``, at most 0.6 each."""
    weight = (np.arange(n_features) + 5.0) ** -1.1

    def frequencies(scale: float) -> np.ndarray:
        return np.minimum(scale * weight, 0.6)

    largest = 0.6 / weight[-1]
    if frequencies(largest).sum() <= total:
        return np.full(n_features, total / n_features)
    return frequencies(brentq(lambda scale: frequencies(scale).sum() - total, 0.0, largest))


def _coefficients(
    frequency: np.ndarray, brings: np.ndarray, prevalence: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Heavy-tailed effects of some features; the linear predictor has standard deviation about ``_SIGNAL``."""
    n_features = len(frequency)
    n_effects = max(1, round(_COEF_SHARE * n_features))
    chosen = rng.choice(n_features, n_effects, replace=False, p=frequency / frequency.sum())
    coef = np.zeros(n_features)
    coef[chosen] = rng.standard_t(4, n_effects)
    through_conditions = (-np.expm1(-brings) * (1.0 - frequency)) @ coef  # features that occur together add up
    variance = np.sum(coef**2 * frequency * (1.0 - frequency)) + np.sum(
        through_conditions**2 * prevalence * (1.0 - prevalence)
    )
    return coef * _SIGNAL / np.sqrt(variance)
