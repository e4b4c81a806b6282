"""A model outside of vips: the mean of a normal distribution with known variance 1."""

import numpy as np

from vips import Block, ConjugateExponentialModel, DenseStatistics, Score
from vips.expfam import DiagonalGaussian


class GaussianMean(ConjugateExponentialModel):
    """The mean of rows of length at most ``radius``, under the prior N(0, 1)."""

    def __init__(self, radius=3.0, *, privacy=None, random_state=None):
        self.radius, self.privacy, self.random_state = radius, privacy, random_state

    def blocks(self):
        return {"total": Block((self.n_features_in_,)), "count": Block((), scale=self.radius)}

    def initial(self, rng):
        return {"total": np.zeros(self.n_features_in_), "count": np.zeros(())}

    def expected_statistics(self, records, posterior):
        return DenseStatistics({"total": records, "count": np.ones(len(records))})

    def to_posterior(self, average, noise_std, previous):
        precision = 1.0 + max(float(average["count"]), 0.0)
        return DiagonalGaussian(average["total"] / precision, np.full(self.n_features_in_, precision))

    def max_record_norm(self):
        return float(np.hypot(self.radius, 1.0 / self.radius))

    def held_out_scores(self, X, y=None):
        errors = np.sum((X - self.last_posterior_.mean) ** 2, axis=1)
        return [Score("mean squared distance (lower is better)", lambda counts: counts @ errors / counts.sum(axis=1))]
