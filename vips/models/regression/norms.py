"""Norms of regression records: those of a label, and the largest over all labels.

A clip that looks at the residual cuts surprising labels off, and makes slopes too steep. If the norm that is reported is the
largest over all labels, the engine's weight is a function of x and released values, and the weighted residual w(x) (y - p) x
has mean zero at the true coefficients. For two labels this is the conditionally unbiased score of bounded influence of Künsch,
Stefanski and Carroll (1989): of all functions of y with conditional mean 0 and norm at most C, it has the largest slope.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vips._compute.rowwise import row_norms
from vips.expfam import polya_gamma_mean
from vips.models.regression.scores import VARIANCE_SCALE

__all__ = ["Lengths"]


@dataclass(frozen=True)
class Lengths:
    """What a record's norm needs to know of its row x.

    Parameters
    ----------
    of_row : ndarray of shape (n_records,)
        ‖x‖.
    of_square : ndarray of shape (n_records,)
        ‖x xᵀ‖ = ‖x‖², or the norm √Σ_i x_i⁴ of its diagonal if only that is summed.
    """

    of_row: np.ndarray
    of_square: np.ndarray

    def norms(self, residual: np.ndarray, precision: np.ndarray, scale: Mapping[str, float]) -> np.ndarray:
        """Joint norm of records with these r and ω, both (n_records, n_outputs), over the blocks in ``scale``."""
        score, length = self.of_row * row_norms(residual), row_norms(precision)
        norms = np.hypot(score / scale["linear"], self.of_square * length / scale["precision"])
        if "variance" in scale:
            norms = np.hypot(norms, score / (scale["linear"] * VARIANCE_SCALE))
        if "cross" in scale:
            norms = np.hypot(norms, np.hypot(self.of_row / scale["cross"], 1.0 / scale["weight"]) * length)
        return norms

    def largest_norms(self, centre: np.ndarray, tilt: np.ndarray, labels, scale: Mapping[str, float]) -> np.ndarray:
        """The largest of these norms over labels.

        Parameters
        ----------
        centre, tilt : ndarray of shape (n_records, n_outputs)
            What ω is multiplied with in the residual κ - ω centre, and c.
        labels : (ndarray, ndarray) of shape (n_labels, n_outputs)
            b and κ.
        """
        norms, unit = np.zeros(len(centre)), polya_gamma_mean(tilt, 1.0)
        for shape, linear in zip(*labels, strict=True):
            precision = shape * unit
            norms = np.maximum(norms, self.norms(linear - precision * centre, precision, scale))
        return norms
