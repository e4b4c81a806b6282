"""What mixtures have in common: which component a record is from, and how probable it is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np
from sklearn.base import DensityMixin

from vips.core.sums import Block, RecordStatistics
from vips.model import ConjugateExponentialModel
from vips.models._variance_ratios import SQUARES, SQUARES_SCALE, CountedSquares
from vips.parts import Score, average

__all__ = ["Mixture", "information_criterion"]


class Mixture(DensityMixin, ConjugateExponentialModel):
    """Base of models whose statistics hold ``shares`` and ``log_likelihood``, and whose posteriors can be put ``in_order``."""

    unit = "one row of X"
    name_of_score: str  # of a record, for comparisons
    name_of_components = "components"
    ignores_labels = True
    planned_steps = 60
    tolerance = 1e-3
    _unlisted = ("block_of_squares", "name_of_components", "with_squares")

    @abstractmethod
    def _inferred(self, X):
        """Statistics of new records at the posterior, with ``shares`` and ``log_likelihood``."""

    def block_of_squares(self) -> dict[str, Block]:
        """A block of a private fit with weights: counts of the components by squared weights."""
        return {SQUARES: Block((self.n_components,), scale=SQUARES_SCALE)} if self.weighs_records else {}

    def with_squares(self, statistics: RecordStatistics) -> RecordStatistics:
        """Statistics with that block, if there is one."""
        return CountedSquares(statistics) if self.weighs_records else statistics

    def predict(self, X) -> np.ndarray:
        """The most probable component of each record, shape (n_records,)."""
        return self.predict_proba(X).argmax(axis=1)

    def predict_proba(self, X) -> np.ndarray:
        """Probabilities of the components given each record, shape (n_records, n_components)."""
        return self._inferred(X).shares

    def score_samples(self, X) -> np.ndarray:
        """Log probability (or density) of each record, in nats, shape (n_records,)."""
        return self._inferred(X).log_likelihood

    def score(self, X, y=None) -> float:
        """Mean of :meth:`score_samples`."""
        return float(self.score_samples(X).mean())

    def bic(self, X) -> float:
        """Bayesian information criterion of an ordinary fit on its records, as in scikit-learn: smaller is better."""
        scores = self.score_samples(X)
        return information_criterion(self, scores, self._n_free(), len(scores))

    @abstractmethod
    def _n_free(self) -> int:
        """Number of free parameters."""

    def predictions(self, X) -> np.ndarray:
        """Log probability of each record, for comparisons."""
        return self.score_samples(X)

    def held_out_scores(self, X, y=None) -> list[Score]:
        """Log probability per record."""
        scores = self.score_samples(X)
        return [Score(f"{self.name_of_score} per record (higher is better)", lambda counts: average(counts, scores))]

    def in_order(self, posterior, order: np.ndarray):
        """The same components in another order; a dict holds draws."""
        if isinstance(posterior, Mapping):
            return {name: part.taken(order) for name, part in posterior.items()}
        return posterior.in_order(order)


def information_criterion(model, log_likelihoods: np.ndarray, n_free: int, n: int) -> float:
    """-2 log likelihood + log n · free parameters, of an ordinary fit.

    Raises
    ------
    NotImplementedError
        For a private fit, whose likelihood is not the largest.
    """
    if hasattr(model, "noisy_totals_"):
        raise NotImplementedError(
            "A private fit does not maximise its likelihood: vips.how_many(model) counts components."
        )
    return float(np.log(n) * n_free - 2.0 * log_likelihoods.sum())
