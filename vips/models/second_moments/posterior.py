"""Posterior of the coefficients of a linear regression."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips.models._centred import CentredGaussian
from vips.models._coordinates import Zooms
from vips.models._search import Search

__all__ = ["LinearPosterior"]


class LinearPosterior(CentredGaussian):
    """Coefficients, and the intercept in the last place if there is one.

    Parameters
    ----------
    mean, precision : array of shape (d,), (d, d)
        Of the coefficients, and of the intercept at ``centre``.
    linear, information : array of shape (d,), (d, d)
        Of the likelihood of these: exp(hᵀw - ½ wᵀWw).
    noise_precision : float
        α, the precision of the target around its expected value.
    prior_precision : array of shape (n_features,)
        λ of each coefficient.
    n_iter : int
    centre : array of shape (d,), optional
        See :class:`~vips.models._centred.CentredGaussian`.
    zooms : Zooms, optional
        Coordinates of columns and target in the sums of the next step.
    search : Search, optional
        Of a private fit: what its scores released.
    """

    def __init__(
        self, mean, precision, linear=None, information=None, noise_precision=1.0, prior_precision=1.0, n_iter=0,
        centre=None, zooms: Zooms | None = None, search: Search | None = None,
    ) -> None:  # fmt: skip
        super().__init__(mean, precision, centre)
        self.zooms, self.search = zooms, search
        d = self.mean.shape[-1]
        self.linear = np.zeros(d) if linear is None else np.asarray(linear)
        self.information = np.zeros((d, d)) if information is None else np.asarray(information)
        self.noise_precision, self.n_iter = float(noise_precision), int(n_iter)
        self.prior_precision = np.atleast_1d(np.asarray(prior_precision, dtype=np.float64))

    def to_arrays(self) -> dict[str, np.ndarray]:
        learnt = {
            "linear": self.linear,
            "information": self.information,
            "noise_precision": np.array(self.noise_precision),
            "prior_precision": self.prior_precision,
            "n_iter": np.array(self.n_iter),
        }
        searched = self.zooms if self.search is None else self.search
        return super().to_arrays() | learnt | ({} if searched is None else searched.to_arrays())

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> LinearPosterior:
        names = ("mean", "precision", "linear", "information", "noise_precision", "prior_precision", "n_iter", "centre")
        search = Search.from_arrays(arrays) if "search_size" in arrays else None
        zooms = Zooms.from_arrays(arrays) if search is None else search.zooms
        if not len(zooms.coordinates.scale) == len(zooms.seen) == len(arrays["prior_precision"]) + 1:
            raise ValueError("the posterior's coordinates are not those of its columns and the target")
        if search is not None and search.point.shape != (1, len(arrays["mean"])):
            raise ValueError("the posterior's point is not that of its coefficients")
        return cls(*(arrays[name] for name in names), zooms, search)
