"""Compares a private posterior with another one: how far apart they are, why, and what this costs in predictions."""

from vips._support.alignment import Alignment, align
from vips.expfam.divergences import kl, marginals, total_variation_bound, wasserstein
from vips.tools.comparison.compare import compare
from vips.tools.comparison.comparison import Comparison, Divergences, Mover, Row

__all__ = [
    "Alignment", "Comparison", "Divergences", "Mover", "Row", "align", "compare", "kl", "marginals",
    "total_variation_bound", "wasserstein",
]  # fmt: skip
