"""Parameters whose simulated records give the totals that a fit has released, with their uncertainty."""

from vips.models.components.matching.charts import Gaussians, Rates, Simplexes
from vips.models.components.matching.own import MatchedModel

__all__ = ["Gaussians", "MatchedModel", "Rates", "Simplexes"]
