"""Parameters whose simulated records give the totals that a fit has released, with their uncertainty."""

from vips.models.components.matching.own import MatchedModel

__all__ = ["MatchedModel"]
