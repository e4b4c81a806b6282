"""Posterior of the coefficients of a regression, and what its steps pass on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips.expfam import DiagonalGaussian
from vips.models._centred import CentredGaussian
from vips.models._coordinates import Zooms
from vips.models._search import Search

__all__ = ["CoefficientPosterior", "DiagonalCoefficientPosterior"]

_MOST_STEPS = 1e15  # of files


class _Learnt:
    """Values that a step passes to the next one besides the coefficients; all of them released.

    ``alpha_shape``, ``alpha_rate``: q(α_j), shape (n_outputs,); ``step``: number of steps so far; ``public``: weight of public
    records in the prior, shape (n_outputs,), or None; ``search``: of private fits by Newton's steps, else None.
    """

    alpha_shape: np.ndarray
    alpha_rate: np.ndarray
    step: int
    public: np.ndarray | None
    search: Search | None

    def _learn(self, alpha_shape, alpha_rate, step: int, public=None, search: Search | None = None) -> None:
        self.alpha_shape, self.alpha_rate, self.step = np.atleast_1d(alpha_shape), np.atleast_1d(alpha_rate), step
        self.public, self.search = public, search

    @property
    def zooms(self) -> Zooms | None:
        """Zooms of a fit that searched, else None."""
        return None if self.search is None else self.search.zooms

    def to_arrays(self) -> dict[str, np.ndarray]:
        learnt = {"alpha_shape": self.alpha_shape, "alpha_rate": self.alpha_rate, "step": np.array(self.step)}
        learnt |= {} if self.public is None else {"public": self.public}
        return super().to_arrays() | learnt | ({} if self.search is None else self.search.to_arrays())

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]):
        if not (0 <= arrays["step"] < _MOST_STEPS and (arrays["alpha_rate"] > 0.0).all()):
            raise ValueError("the posterior's step or precisions are none that a fit makes")
        of_full = {name: arrays[name] for name in ("public", "centre") if name in arrays}
        if "search_size" in arrays:
            of_full["search"] = search = Search.from_arrays(arrays)
            if search.kept.counts.sum() != arrays["step"]:
                raise ValueError("the posterior's step is not that of its kept steps")
            if "centre" in arrays and not np.array_equal(arrays["centre"], search.zooms.coordinates.shift):
                raise ValueError("the posterior's centre is not that of its coordinates")
        learnt = arrays["alpha_shape"], arrays["alpha_rate"], int(arrays["step"])
        return cls(arrays["mean"], arrays["precision"], *learnt, **of_full)


class CoefficientPosterior(_Learnt, CentredGaussian):
    """Posterior of the coefficients, and of the intercept in the last place if there is one.

    Parameters
    ----------
    mean : array of shape (d,) or (n_outputs, d)
    precision : array of shape (d, d) or (n_outputs, d, d)
        Of the coefficients, and of the intercept at ``centre``.
    alpha_shape, alpha_rate : array of shape (n_outputs,)
        Of the Gamma posterior of the prior precision α.
    step : int
        Steps that this posterior has seen.
    public : array of shape (n_outputs,), optional
        Weight of public records in the prior, from 0 to 1.
    search : Search, optional
        What noisy steps released.
    centre : array of shape (d,), optional
        See :class:`~vips.models._centred.CentredGaussian`.
    """

    def __init__(
        self, mean, precision, alpha_shape=1.0, alpha_rate=1.0, step=0, public=None, search=None, centre=None
    ) -> None:
        super().__init__(mean, precision, centre)
        self._learn(alpha_shape, alpha_rate, step, public, search)


class DiagonalCoefficientPosterior(_Learnt, DiagonalGaussian):
    """As :class:`CoefficientPosterior`, with independent coefficients: ``precision`` has the shape of the mean."""

    def __init__(self, mean, precision, alpha_shape=1.0, alpha_rate=1.0, step: int = 0) -> None:
        super().__init__(mean, precision)
        self._learn(alpha_shape, alpha_rate, step)

    @property
    def around(self) -> DiagonalCoefficientPosterior:
        """Itself: rows of a diagonal fit are not centred."""
        return self
