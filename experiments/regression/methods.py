"""Our model and DP-SGD, as methods: ``fit(X, y, epsilon, seed)`` returns a function from records to scores.

Rows have norm at most 1; labels are 0 and 1. ``TunedMethod`` chooses the settings that a method's source leaves open:
separately for each ε, on a fifth of the training part of split 0, and then for all splits. The choice uses records but is not
part of any ε in the tables. This favours the other methods, since ours runs with its defaults. No test record of split 0 is
used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from vips import BayesianLogisticRegression, PrivacyPlan

__all__ = ["Method", "SgdSettings", "TunedMethod", "dp_sgd", "dp_sgd_method", "non_private", "ours"]

Scores = Callable[[object], np.ndarray]
N_STEPS = 20


@dataclass
class Method:
    """One line of a table: ``fit(X, y, epsilon, seed)`` returns scores of records."""

    name: str
    fit: Callable[..., Scores]
    private: bool = True
    note: str = ""  # after the name in tables and legends
    settings: str = ""
    splits: int | None = None  # fewer than all, if a fit takes long

    def settings_at(self, epsilon: float | None) -> str:
        """Description of the settings; called before the fits with this ε."""
        return self.settings


class TunedMethod(Method):
    """A method whose settings are chosen for each ε among ``candidates``, on a part of the given training records.

    ``fit_with(settings, X, y, epsilon, seed)`` is its fit. It chooses the best AUC on the last fifth, fitted on the others.
    """

    def __init__(self, name: str, fit_with: Callable[..., Scores], candidates: Sequence, X, y, **fields) -> None:
        super().__init__(
            name, lambda X, y, epsilon, seed: fit_with(self.choose(epsilon), X, y, epsilon, seed), **fields
        )
        self.fit_with, self.candidates, self.data, self.chosen = fit_with, candidates, (X, y), {}

    def choose(self, epsilon: float):
        if len(self.candidates) == 1:
            return self.candidates[0]
        if epsilon not in self.chosen:
            X, y = self.data
            n_fit = int(0.8 * len(y))
            fits = [self.fit_with(candidate, X[:n_fit], y[:n_fit], epsilon, 0) for candidate in self.candidates]
            self.chosen[epsilon] = self.candidates[int(np.argmax([auc(y[n_fit:], score(X[n_fit:])) for score in fits]))]
        return self.chosen[epsilon]

    def settings_at(self, epsilon: float | None) -> str:
        return f"{self.settings} {self.choose(epsilon)}".strip()


def ours(delta: float, n_steps: int = N_STEPS, name: str = "ours", splits: int | None = None, **arguments) -> Method:
    """Full batch; every other setting at its default."""

    def fit(X, y, epsilon, seed):
        plan = plan_for(epsilon, delta, 1.0, n_steps)
        return BayesianLogisticRegression(privacy=plan, max_norm=1.0, **arguments).fit(X, y).decision_function

    return Method(name, fit, splits=splits, settings=f"{n_steps} full-batch steps, defaults")


def non_private(name: str = "non-private", splits: int | None = None, **arguments) -> Method:
    """The same model without noise, at its defaults."""

    def fit(X, y, epsilon, seed):
        return BayesianLogisticRegression(max_norm=1.0, **arguments).fit(X, y).decision_function

    return Method(name, fit, private=False, splits=splits)


class SgdSettings(NamedTuple):
    """``learning_rate`` is relative to the clip: a step is learning_rate × noisy sum ÷ (clip_norm × expected batch)."""

    sampling_rate: float
    n_steps: int
    clip_norm: float
    learning_rate: float


QUICK_SGD_PLANS = ((1.0, 100),)  # exact accounting of full batches is fast
# Larger learning rates, and more records in fewer steps, were no better on Adult (validation part).
SGD_PLANS, SGD_CLIPS, SGD_RATES = (
    ((0.05, 400), (0.02, 2000), (0.02, 5000)),
    (0.1, 0.3, 1.0),
    (0.25, 1.0, 4.0, 16.0, 64.0),
)


def dp_sgd(settings: SgdSettings, X, y, epsilon: float, seed: int, delta: float) -> Scores:
    """DP-SGD with a constant column, Poisson sampling and the mean of the second half of the iterates.

    A record's gradient is r x with r = σ(x'w) - y, so that its norm |r| ‖x‖ is known without forming it. The number of
    records is assumed to be public, as in all DP-SGD code.
    """
    rng = np.random.default_rng(seed)
    sigma = plan_for(epsilon, delta, settings.sampling_rate, settings.n_steps).noise_multiplier
    X = with_constant(X)
    n_records, d = X.shape
    lengths = np.sqrt(np.asarray((X * X).sum(axis=1)).ravel())
    w, average, clip = np.zeros(d), np.zeros(d), settings.clip_norm
    first = settings.n_steps // 2
    for step in range(settings.n_steps):
        rows = np.flatnonzero(rng.random(n_records) < settings.sampling_rate)
        batch = X[rows]
        residual = expit(batch @ w) - y[rows]
        residual *= np.minimum(1.0, clip / np.maximum(np.abs(residual) * lengths[rows], 1e-300))
        noisy = batch.T @ residual + rng.normal(0.0, sigma * clip, d)
        w = w - settings.learning_rate * noisy / (clip * settings.sampling_rate * n_records)
        if step >= first:
            average += w / (settings.n_steps - first)
    return partial(linear_scores, coef=average[:-1])


def dp_sgd_method(X, y, delta: float, plans: Sequence[tuple[float, int]] = SGD_PLANS) -> Method:
    """DP-SGD with settings chosen on these training records; ``plans`` are pairs of sampling rate and number of steps."""
    grid = [SgdSettings(*plan, clip, rate) for plan in plans for clip in SGD_CLIPS for rate in SGD_RATES]
    return TunedMethod("DP-SGD", partial(dp_sgd, delta=delta), grid, X, y, note="tuned for each ε")


@lru_cache
def plan_for(epsilon: float, delta: float, sampling_rate: float, n_steps: int) -> PrivacyPlan:
    """A plan by exact accounting; cached, because a search for the noise under sampling takes seconds."""
    return PrivacyPlan.from_epsilon(epsilon=epsilon, delta=delta, sampling_rate=sampling_rate, n_steps=n_steps)


def auc(y, scores) -> float:
    return float(roc_auc_score(y, np.nan_to_num(scores)))


def linear_scores(X, coef: np.ndarray) -> np.ndarray:
    """Scores without the intercept, which does not change their order."""
    return X @ coef


def with_constant(X):
    ones = np.ones((X.shape[0], 1))
    return sp.csr_array(sp.hstack([X, ones], format="csr")) if sp.issparse(X) else np.hstack([X, ones])
