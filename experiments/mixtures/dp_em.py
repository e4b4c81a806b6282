"""DP-EM of Park et al. (2017) for Gaussian mixtures, to which appendix D of the paper leads.

Raw moments, a random start, the last iterate.

A record x of norm at most 1 adds r_k, r_k x and r_k x xᵀ to the sums of each component: together a vector of norm at most √3,
which is released once a step. Means and covariances follow from the noisy sums; negative eigenvalues are raised.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from vips import Block, ConjugateExponentialModel, PrivacyPlan, RecordStatistics, rowwise_product

__all__ = ["DPEM"]

_LEAST_SHARE = 1e-6  # of a component
_LEAST_VALUE = 1e-3  # eigenvalue of a covariance: smaller ones make densities of other records vanish


class DPEM(ConjugateExponentialModel):
    """A Gaussian mixture by EM on noisy raw moments. Rows have norm at most ``max_norm``.

    Parameters
    ----------
    n_components : int
    max_norm : float
    privacy : PrivacyPlan or None
    random_state : int or None
        Of the first means, uniform in a ball.
    """

    exact_rows = False

    def __init__(
        self, n_components: int, max_norm: float, privacy: PrivacyPlan | None = None, random_state: object = None
    ) -> None:
        self.n_components = n_components
        self.max_norm = max_norm
        self.privacy = privacy
        self.random_state = random_state

    def blocks(self) -> dict[str, Block]:
        k, d = self.n_components, self.n_features_in_
        return {"count": Block((k,)), "first": Block((k, d)), "second": Block((k, d, d), symmetric=True)}

    def initial(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Public draws: equal counts, means in the ball, covariances of a third of it."""
        k, d = self.n_components, self.n_features_in_
        means = rng.standard_normal((k, d))
        means *= (rng.random(k) ** (1.0 / d) / np.linalg.norm(means, axis=1))[:, None]
        second = np.eye(d) / (3.0 * d) + means[:, :, None] * means[:, None, :]
        return {"count": np.ones(k), "first": means, "second": second}

    def step_size(self, t: int) -> float:
        return 1.0

    def max_record_norm(self) -> float:
        return float(np.sqrt(3.0))

    def to_posterior(self, average, noise_std, previous) -> dict[str, np.ndarray]:
        d = self.n_features_in_
        count = np.maximum(average["count"], _LEAST_SHARE * np.abs(average["count"]).sum() + 1e-12)
        means = average["first"] / count[:, None]
        covariances = average["second"] / count[:, None, None] - means[:, :, None] * means[:, None, :]
        values, vectors = np.linalg.eigh(0.5 * (covariances + np.swapaxes(covariances, 1, 2)))
        values = np.maximum(values, _LEAST_VALUE)
        return {
            "log_weights": np.log(count / count.sum()),
            "means": means,
            "roots": vectors / np.sqrt(values)[:, None, :],
            "log_dets": -0.5 * np.log(values).sum(axis=1) - 0.5 * d * np.log(2.0 * np.pi),
        }

    def expected_statistics(self, records, posterior) -> RecordStatistics:
        rows = self._scaled(np.asarray(records, dtype=np.float64))
        joint = self._log_joint(rows, posterior)
        return _Moments(rows, np.exp(joint - logsumexp(joint, axis=1, keepdims=True)))

    def score(self, X) -> float:
        """Mean log density of records, in their own units."""
        joint = self._log_joint(self._scaled(np.asarray(X, dtype=np.float64)), self.last_posterior_)
        return float(logsumexp(joint, axis=1).mean() - self.n_features_in_ * np.log(self.max_norm))

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        return X / np.maximum(norms, self.max_norm)

    def _log_joint(self, rows: np.ndarray, posterior) -> np.ndarray:
        joint = np.empty((len(rows), self.n_components))
        for k, root in enumerate(posterior["roots"]):
            images = rowwise_product(rows - posterior["means"][k], root)
            joint[:, k] = posterior["log_weights"][k] + posterior["log_dets"][k] - 0.5 * np.square(images).sum(axis=1)
        return joint


class _Moments(RecordStatistics):
    def __init__(self, rows: np.ndarray, shares: np.ndarray) -> None:
        self._rows, self._shares = rows, shares

    def norms(self, blocks) -> np.ndarray:
        squares = np.square(self._rows).sum(axis=1)
        return np.sqrt(np.square(self._shares).sum(axis=1) * (1.0 + squares + squares**2)) * (1.0 + 1e-9)

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        present = np.flatnonzero(weights)
        rows, shares = self._rows[present], weights[present, None] * self._shares[present]
        second = np.stack([(rows * share[:, None]).T @ rows for share in shares.T])
        return {"count": shares.sum(axis=0), "first": shares.T @ rows, "second": second}
