"""The contract of sigmoid belief networks: blocks, E-step, M-step, clip, bound."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import scipy.sparse as sp

from vips._support.arguments import arguments, choice, function_of_step, number, precision, whole
from vips.core.exact.rowwise import PIECE
from vips.core.plan import PrivacyPlan
from vips.core.records.partition import rows_without
from vips.core.sums import Block
from vips.core.sums.networks import NetworkStatistics
from vips.model import ConjugateExponentialModel
from vips.models.belief_networks.inference import dense_rows, infer
from vips.models.belief_networks.matching import NetworkMatch, check_told, match_of, matched_network
from vips.models.belief_networks.posterior import NetworkPosterior, network_parts, reordered
from vips.models.belief_networks.prior import PRIORS
from vips.models.belief_networks.update import CENTRE, LARGEST_WEIGHT, first_posterior, first_weights, next_posterior
from vips.models.components.matching.steps import kept_steps
from vips.parts import Part

__all__ = ["BeliefNetwork"]


# Scales of the blocks, in units of the weights' gradient. Totals that are averaged over steps, and hardly differ between
# records, get a smaller part of a record's norm.
_SCALES = {
    "count": 8.0, "hidden": 8.0, "visible": 2.0, "visible_precision": 8.0, "weights": 1.0, "precision": 8.0, "outer": 32.0,
}  # fmt: skip
# Clip norm in units of √(J K): norms of records are about proportional to it.
_CLIP_NORM = 0.02
_LEAST_STEP = 0.2
_MOST_TOTALS = 4_000  # of all groups of kept steps


@arguments
class BeliefNetwork(ConjugateExponentialModel):
    """The methods that the engine calls. :class:`~vips.SigmoidBeliefNetwork` documents the arguments."""

    n_components: int = whole(default=30, kw_only=False)
    covariance: str = choice("diagonal", "full", default="diagonal")
    penalty: str = choice(*PRIORS, default="tpbn")
    max_iter: int = whole(default=3)
    binarize: float | None = number(
        -np.inf, np.inf, "a finite number or None", default=None, open_low=True, open_high=True
    )
    clip_share: float | None = number(0.0, 1.0, "above 0 and at most 1, or None", default=None, open_low=True)
    schedule: Callable[[int], float] | None = function_of_step("RobbinsMonro()", default=None)
    on_invalid: str = "drop"
    dtype: type = precision(default=np.float64)

    unit = "one row of X"
    exact_rows = True

    def least_posterior_size(self) -> int:
        return self.n_components**2  # the coupling

    def check_values(self, X, y) -> None:
        values = X.data if sp.issparse(X) else X
        if self.binarize is None and not ((values == 0) | (values == 1)).all():
            raise ValueError("X must be binary: every entry 0 or 1. Write X > 0.5, say, or binarize=0.5.")

    def blocks(self) -> dict[str, Block]:
        n_visible, n_hidden = self.n_features_in_, self.n_components
        shapes = {
            "count": (),
            "hidden": (n_hidden,),
            "visible": (n_visible,),
            "visible_precision": (n_visible,),
            "weights": (n_visible, n_hidden),
            "precision": (n_visible, n_hidden),
        }
        blocks = {name: Block(shape, scale=_SCALES[name]) for name, shape in shapes.items()}
        if self.covariance == "full":
            blocks["outer"] = Block((n_visible, n_hidden, n_hidden), symmetric=True, scale=_SCALES["outer"])
        return blocks

    def start(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], NetworkPosterior]:
        """Random weights."""
        average = self.initial(rng)
        return average, self._first(first_weights(rng, average["weights"].shape))

    def valid_records(self, records) -> np.ndarray:
        """Rows whose entries are all 0 or 1, or all finite with ``binarize``."""
        if not sp.issparse(records):
            return self._valid_entries(records).all(axis=1)
        columns = records.indices  # a column that does not exist would be written beyond the end of an array
        valid = rows_without((columns < 0) | (columns >= self.n_features_in_), records.indptr)
        valid[valid] = self._valid_entries(dense_rows(records[valid], np.dtype(np.float64))).all(axis=1)
        return valid

    def prepare(self, posterior: NetworkPosterior) -> None:
        posterior.spread(np.dtype(self.dtype))

    def expected_statistics(self, records, posterior: NetworkPosterior) -> NetworkStatistics:
        # hardened noise needs an E-step whose bits depend on the record alone, which BLAS does not promise
        alone = self.plan_of_fit().rounds_records
        units = infer(self._binary(records), posterior, self.max_iter, alone=alone)
        return units.statistics(posterior.weights.mean, CENTRE, self.covariance == "full", alone)

    def to_posterior(self, average, noise_std, previous: NetworkPosterior | None) -> NetworkPosterior:
        """See ``update.py``."""
        plan = self.plan_of_fit()
        if previous is None:
            return self._first(average["weights"])
        exact = not plan.is_private and plan.sampling_rate == 1.0
        return next_posterior(average, noise_std, previous, plan.is_private, exact)

    def _first(self, weights: np.ndarray) -> NetworkPosterior:
        return first_posterior(weights, self.penalty, self.covariance == "full")

    def kept_steps(self, n_steps: int) -> Collection[int]:
        return kept_steps(self, n_steps, _MOST_TOTALS, least_groups=3)

    def to_match(self) -> NetworkMatch:
        return match_of(self)

    def to_noise_aware_posterior(self) -> NetworkPosterior:
        return matched_network(self.match(), self)

    def check_intervals(self) -> None:
        """Steps must tell the hidden units."""
        check_told(self.match())

    def step_size(self, t: int) -> float | dict[str, float]:
        """ρ_t: the ``schedule`` if there is one; 1 in a non-private full-batch fit. Otherwise 1 for gradients, which are not
        averaged, and max(2/(t + 1), 1/5) for the other totals."""
        if self.schedule is not None:
            return self.schedule(t)
        plan = self.plan_of_fit()
        recent = max(2.0 / (t + 1.0), _LEAST_STEP) if plan.is_private or plan.sampling_rate < 1.0 else 1.0
        return dict.fromkeys(self.blocks(), recent) | {"weights": 1.0, "visible": 1.0}

    def default_clip(self) -> float:
        """0.02 √(J K), far below the norms of most records, so that all have about the same weight (docs/sbn.md); or
        ``clip_share`` times :meth:`max_record_norm`."""
        if self.clip_share is not None:
            return self.clip_share * self.max_record_norm()
        return _CLIP_NORM * float(np.sqrt(self.n_features_in_ * self.n_components))

    def max_record_norm(self) -> float:
        """Bound on the norms of a private fit's records: residuals are at most 1, ω and v at most ¼, weights at most 6."""
        n_visible, n_hidden, largest = self.n_features_in_, self.n_components, max(CENTRE, 1.0 - CENTRE)
        J, K = np.sqrt(n_visible), np.sqrt(n_hidden)
        norms = {
            "count": 1.0,
            "hidden": K * largest,
            "visible": J,
            "visible_precision": 0.25 * J,
            "weights": J * K * (largest + LARGEST_WEIGHT / 16.0),
            "precision": 0.25 * J * K,
            "outer": 0.25 * J * n_hidden,
        }
        return float(np.linalg.norm([norms[name] / block.scale for name, block in self.blocks().items()]))

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """60 steps on samples of about a tenth of the records, but not fewer than 2,000."""
        return PrivacyPlan.non_private(sampling_rate=min(1.0, max(0.1, 2000 / max(n_records, 1))), n_steps=60)

    def posterior_parts(self, posterior: NetworkPosterior) -> list[Part]:
        """Weights, biases, and scales of the prior."""
        if not isinstance(posterior, NetworkPosterior):
            return super().posterior_parts(posterior)
        return network_parts(posterior, self.column_names())

    def components(self, posterior: NetworkPosterior) -> tuple[np.ndarray, str]:
        """Hidden units are matched by their weights."""
        return posterior.weights.mean.T, "euclidean"

    def in_order(self, posterior: NetworkPosterior, order: np.ndarray) -> NetworkPosterior:
        return reordered(posterior, order)

    def describe(self) -> dict:
        return {
            "unit": self.unit,
            "released": (
                "noisy number of records, and noisy sums of the columns' and the hidden units' products, in every step",
                "hence the posterior of weights and biases",
            ),
            "declared_public": (
                f"number of columns: {self.n_features_in_}",
                "n_components, penalty and all other constructor arguments",
            ),
        }

    def bound(self, records, posterior: NetworkPosterior) -> float:
        """Evidence lower bound of these records and the parameters, for non-private fits and tests: not private."""
        units = infer(self._binary(records), posterior, self.max_iter)
        return float(units.bounds(posterior).sum()) - posterior.divergence()

    def default_chunk_size(self) -> int:
        """Whole pieces, few enough to stay in the cache; with a full covariance, one piece or about 30 MB of pairs of units."""
        n_pairs = self.n_components * (self.n_components + 1) // 2 if self.covariance == "full" else 1
        return min(2, max(1, 3_750_000 // n_pairs // PIECE)) * PIECE

    def _valid_entries(self, records: np.ndarray) -> np.ndarray:
        if self.binarize is not None:
            return np.isfinite(records)
        return (records == 0) | (records == 1)

    def _binary(self, records) -> np.ndarray:
        """Records as a dense array of zeros and ones."""
        dtype = np.dtype(self.dtype)
        if self.binarize is None:
            return dense_rows(records, dtype)
        return (dense_rows(records, np.dtype(np.float64)) > self.binarize).astype(dtype)
