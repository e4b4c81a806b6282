"""Posterior of a hidden Markov model whose states are Gaussian, and its order under a mask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from vips.core.exact.compiled import aligned
from vips.core.exact.lanes import WIDTH
from vips.core.exact.threads import run_ranges
from vips.core.sums.gaussian_kernels import TILE, fill_densities
from vips.core.sums.gaussians import Tables
from vips.models._gaussians.posterior import MixturePosterior
from vips.models.markov.posterior import ChainPosterior, chain_of

__all__ = ["GaussianChainPosterior", "densities"]

_LEAST_STEPS = 2_000  # below it, one thread

_PREFIX = "gaussians_"


@dataclass(frozen=True, repr=False)
class GaussianChainPosterior(ChainPosterior):
    """Posterior of first states, moves, and Gaussians.

    Parameters
    ----------
    gaussians : MixturePosterior
        A component for each state; its shares of components are not used.
    """

    gaussians: MixturePosterior

    def __repr__(self) -> str:
        return (
            f"<GaussianChainPosterior of {len(self.gaussians.mean)} states with {self.gaussians.mean.shape[1]} columns>"
        )

    @cached_property
    def tables(self) -> Tables:
        """For the E-step: densities without shares of components."""
        tables, is_active = self.gaussians.tables, np.arange(len(self.gaussians.mean)) < self.gaussians.n_active
        return replace(tables, constants=np.where(is_active, 0.5 * self.gaussians.log_determinants, -np.inf))

    def in_units(self, centre: np.ndarray, units: np.ndarray) -> GaussianChainPosterior:
        """See :meth:`MixturePosterior.in_units`."""
        return replace(self, gaussians=self.gaussians.in_units(centre, units))

    def in_order(self, order: np.ndarray) -> GaussianChainPosterior:
        """The same states in another order."""
        return replace(self, **self._chain_in_order(order), gaussians=self.gaussians.in_order(order))

    def to_arrays(self) -> dict[str, np.ndarray]:
        arrays = self.gaussians.to_arrays()
        return self._arrays_of_chain() | {f"{_PREFIX}{name}": value for name, value in arrays.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> GaussianChainPosterior:
        """Inverse of ``to_arrays``.

        Raises
        ------
        ValueError
            If the arrays do not fit together.
        """
        values = {name.removeprefix(_PREFIX): value for name, value in arrays.items() if name.startswith(_PREFIX)}
        gaussians = MixturePosterior.from_arrays(values)
        (K, d), kind = gaussians.mean.shape, gaussians.covariance_type
        shape = {"full": (K, d, d), "diag": (K, 1, d)}.get(kind)
        if len(arrays["start"]) != K or gaussians.factor.shape != shape:
            raise ValueError(f"the posterior's states do not fit together, or have no covariances of type {kind!r}")
        return cls(**chain_of(arrays), gaussians=gaussians)


def densities(X: np.ndarray, tables: Tables) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Densities of each step in each state over the largest, (n_steps, K); its logarithm; and which steps are missing."""
    n, (K, d) = len(X), tables.shifts.shape
    likely, log_scale, is_missing = aligned((n, K)), np.empty(n), np.empty(n, bool)

    def fill(start: int, stop: int) -> None:
        fill_densities(
            X, tables.rows, tables.shifts, tables.log_constants, tables.excess, tables.tail, False, start * TILE,
            min(stop * TILE, n), aligned((2, d, TILE)), aligned((3, K, TILE)), aligned((2, TILE)),
            np.empty(TILE, np.int64), np.empty(WIDTH, np.int64), likely, log_scale, is_missing,
        )  # fmt: skip

    run_ranges(fill, np.arange(-(-n // TILE) + 1) * TILE, least_work=_LEAST_STEPS)
    return likely, log_scale, is_missing
