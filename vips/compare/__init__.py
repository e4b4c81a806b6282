"""A private posterior beside another one: how far apart, why, and what that costs in predictions."""

from vips.compare._compare import compare
from vips.compare.alignment import Alignment, align
from vips.compare.comparison import Comparison, Divergences, Mover, Row
from vips.compare.divergences import kl, marginals, total_variation_bound, wasserstein

__all__ = [
    "Alignment",
    "Comparison",
    "Divergences",
    "Mover",
    "Row",
    "align",
    "compare",
    "kl",
    "marginals",
    "total_variation_bound",
    "wasserstein",
]
