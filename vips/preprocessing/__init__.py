"""Preprocessing that learns nothing from the records: scales, categories and bounds are declared."""

from vips.preprocessing._one_hot import PublicOneHotEncoder
from vips.preprocessing._pipeline import PublicPipeline, make_public_pipeline
from vips.preprocessing._scaler import PublicScaler
from vips.preprocessing._table import TableEncoder

__all__ = ["PublicOneHotEncoder", "PublicPipeline", "PublicScaler", "TableEncoder", "make_public_pipeline"]
