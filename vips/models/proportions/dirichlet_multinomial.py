"""Proportions of categories.

    θ ~ Dirichlet(α, …, α),   x_n | θ ~ Multinomial(θ)        (one category per record, or a few)

A histogram with a posterior: the simplest model of the class, whose exact posterior is known.

The posterior of a private fit is a mixture over draws of true counts given noisy ones. A count S ≥ 0 is released with Gaussian
noise of known deviation s. S itself is a Poisson count, whose rate has a Gamma(α, 0) prior, so that

    p(S | noisy) ∝ Γ(S + α) / Γ(S + 1) · exp(-(noisy - S)² / 2s²)

and, given S, the rate is Gamma(α + S, 1). Rates divided by their sum have the Dirichlet posterior of proportions, for any
number of records.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln

from vips._support.arguments import arguments, number
from vips.core.contract import weighs_records
from vips.core.plan import PrivacyPlan
from vips.core.records.partition import rows_without
from vips.core.sums import Block, BySquaredWeights, DenseStatistics, Joint
from vips.expfam import Dirichlet, Draws
from vips.model import ConjugateExponentialModel
from vips.models import _typical as typical
from vips.models._likelihood import log_likelihoods
from vips.models._variance_ratios import SQUARES_SCALE, WITH_SQUARES, variance_ratios
from vips.parts import Score, divided
from vips.report.report import rows_like_one

__all__ = ["DirichletMultinomial", "draw_rates"]

_N_DRAWS = 2000
_N_GRID = 1024
# Counts further than this many standard deviations of the noise from the noisy count are neglected.
_REACH = 8.0
# Entries that are processed at once.
_PIECE = 4096


@arguments
class DirichletMultinomial(ConjugateExponentialModel):
    """Posterior of the proportions of categories, private or not.

    Parameters
    ----------
    prior : float
        α > 0, one for all categories.
    max_total : float
        Public bound on the L2 norm of a row: 1 where each record is in one category. Longer rows are scaled down to it by the
        clip of a private fit.
    privacy : PrivacyBudget, PrivacyPlan, StreamPlan or None
        None is a non-private fit. One full-batch step is enough; further steps are averaged.
    on_invalid : {"drop", "raise"}
        What a private fit does with a row with negative or infinite entries: ignore it, or stop. The latter is
        outside the guarantee.
    random_state : int, Generator, RandomState or None
        Seeds the sampling of non-private fits. Noise is never seeded.

    Attributes
    ----------
    posterior_ : Dirichlet, or Draws of a private fit
        Of the proportions; in private fits given the noisy counts.
    last_posterior_ : Dirichlet
        Takes noisy counts at face value, negative ones as 0.
    privacy_ : PrivacyReport
    n_features_in_ : int

    Notes
    -----
    *Privacy.*
    Unit: one row of X. Relation: add or remove one. Released: the noisy counts of every step, hence the posterior. Public by
    declaration: the categories (columns), ``max_total``, ``prior``.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import DirichletMultinomial, PrivacyPlan
    >>> X = np.eye(3)[np.random.default_rng(0).choice(3, 5000, p=[0.7, 0.2, 0.1])]
    >>> plan = PrivacyPlan.from_epsilon(epsilon=0.5, delta=1e-6, sampling_rate=1.0, n_steps=1)
    >>> model = DirichletMultinomial(privacy=plan).fit(X)
    >>> lower, upper = model.posterior_.interval(0.95)
    >>> bool((upper - lower).max() < 0.1)
    True
    """

    prior: float = number(1e-6, 1e12, "a number between 1e-6 and 1e12", default=1.0)
    max_total: float = number(1e-6, 1e12, "a number between 1e-6 and 1e12", default=1.0)
    on_invalid: str = "drop"

    unit = "one row of X"
    planned_steps = 1  # every step would release the same counts
    ignores_labels = takes_sparse = True
    adds_up = True
    exact_rows = True

    def check_features(self) -> None:
        if self.n_features_in_ < 2:
            raise ValueError(
                f"Found {self.n_features_in_} feature(s) in X while a minimum of 2 is required: one column for each category."
            )

    def check_values(self, X, y) -> None:
        if (X.data if sp.issparse(X) else X).min(initial=0) < 0:
            raise ValueError("Negative values in data passed to DirichletMultinomial: entries count categories.")

    def blocks(self) -> dict[str, Block]:
        counts = {"counts": Block((self.n_features_in_,))}
        return counts | (
            {"squares": Block((self.n_features_in_,), scale=SQUARES_SCALE)} if weighs_records(self) else {}
        )

    def valid_records(self, records) -> np.ndarray:
        if not sp.issparse(records):
            return super().valid_records(records) & (records >= 0).all(axis=1)
        columns = records.indices
        bad = ~((records.data >= 0) & (records.data < np.inf)) | (columns < 0) | (columns >= self.n_features_in_)
        return rows_without(bad, records.indptr)

    def expected_statistics(self, records, posterior) -> Joint:
        """Rows of a person are clipped by the sum of their norms: so many then count as their average."""
        if sp.issparse(records):
            records = sp.csr_array(records).astype(np.float64).toarray()
        squares = [BySquaredWeights(DenseStatistics({"squares": records}))] if weighs_records(self) else []
        return Joint(DenseStatistics({"counts": records}), *squares)

    def to_posterior(self, average, noise_std, previous) -> Dirichlet:
        return Dirichlet(self.prior + np.maximum(average["counts"], 0.0))

    def step_size(self, t: int) -> float:
        """1/t: every step sees the same counts."""
        return 1.0 / t

    def max_record_norm(self) -> float:
        """``max_total``; with weights their squares, too."""
        return float(self.max_total) * (WITH_SQUARES if weighs_records(self) else 1.0)

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """One full-batch step."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=1)

    def typical_records(self, n_records: int, n_features: int | None, rng: np.random.Generator) -> tuple[Any, Any]:
        d = typical.n_columns(self, n_features)
        return self.max_total * np.eye(d)[rng.choice(d, n_records, p=rng.dirichlet(np.full(d, 4.0)))], None

    def held_out_scores(self, X, y=None) -> list[Score]:
        """Log likelihood per count."""
        total, n_counts = self.predictions(X), np.asarray(sp.csr_array(X).sum(axis=1), dtype=np.float64).ravel()
        name = "log likelihood per count (higher is better)"
        return [Score(name, lambda counts: divided(counts @ total, counts @ n_counts))]

    def predictions(self, X) -> np.ndarray:
        """Log likelihood of each row."""
        X = sp.csr_array(X)
        return log_likelihoods(X, np.ones((X.shape[0], 1)), self.posterior_.mean[:, None])

    def describe(self) -> dict:
        return {
            "unit": self.unit,
            "released": ("noisy counts of the categories in every step", "hence the posterior of their proportions"),
            "declared_public": (
                f"number of categories: {self.n_features_in_}",
                f"max_total = {self.max_total:g}: longer rows are scaled down to it",
                "prior",
            ),
        }

    def to_noise_aware_posterior(self) -> Draws:
        """Mixture over the possible true counts.

        A sum of weights w varies as Σ w² does: as w̃ times a count, with the average w̃ = Σ w² / Σ w of each category.
        """
        totals, rows = self.noisy_totals_, np.full(self.n_features_in_, float(rows_like_one(self.privacy_)))
        counts, noise_std = totals.average["counts"], totals.noise_std["counts"]
        if "squares" in totals.average:
            seen = np.maximum(counts, noise_std)
            rows *= np.minimum(variance_ratios(totals.average["squares"], totals.noise_std["squares"], seen), 1.0)
        rates = rows * draw_rates(
            counts / rows, noise_std / rows, float(self.prior), _N_DRAWS, np.random.default_rng(0)
        )
        return Draws(rates / rates.sum(axis=1, keepdims=True))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags

    def default_chunk_size(self) -> int:
        """About 30 MB of counts."""
        return max(64, 4_000_000 // max(self.n_columns, 1))


def draw_rates(noisy: np.ndarray, noise_std: float, prior: float, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of Poisson rates given noisy counts, shape (n_draws, *noisy.shape).

    Parameters
    ----------
    noisy : ndarray
    noise_std : float or ndarray of the same shape
        s > 0.
    prior : float
        α > 0.
    """
    flat, noise_std = np.ravel(noisy), np.broadcast_to(noise_std, np.shape(noisy)).ravel()
    draws = np.empty((n_draws, len(flat)))
    for first in range(0, len(flat), _PIECE):
        piece = slice(first, first + _PIECE)
        draws[:, piece] = _counts(flat[piece], noise_std[piece], prior, n_draws, rng)
    return rng.standard_gamma(prior + draws).reshape(n_draws, *np.shape(noisy))


def _counts(
    noisy: np.ndarray, noise_std: np.ndarray, prior: float, n_draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draws of S from a grid of cells; the weight of a cell is the density at its midpoint."""
    least = np.maximum(noisy - _REACH * noise_std, 0.0)
    # far below 0 the noise's density falls like an exponential of mean s² / |noisy|
    tail = np.minimum(_REACH * noise_std, 40.0 * noise_std**2 / np.maximum(-noisy, 1e-300))
    width = np.where(noisy > 0.0, noisy + _REACH * noise_std - least, tail)
    middles = least[:, None] + width[:, None] * (np.arange(_N_GRID) + 0.5) / _N_GRID
    log_weights = gammaln(middles + prior) - gammaln(middles + 1.0)
    log_weights -= 0.5 * np.square((noisy[:, None] - middles) / noise_std[:, None])
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    cumulative = np.cumsum(weights, axis=1)
    cumulative /= cumulative[:, -1:]
    uniform = rng.random((n_draws, len(noisy)))
    cells = np.empty(uniform.shape, dtype=np.int64)
    for i in range(len(noisy)):
        cells[:, i] = np.searchsorted(cumulative[i], uniform[:, i], side="right")
    cells = np.minimum(cells, _N_GRID - 1)
    return least + width * (cells + rng.random(cells.shape)) / _N_GRID
