"""Preprocessing for private fits: scales, categories and bounds are declared, or learnt privately."""

from vips.preprocessing._inspection import Inspection, inspect
from vips.preprocessing._private_pipeline import PrivatePipeline, make_private_pipeline
from vips.preprocessing._private_topics import PrivateTopics
from vips.preprocessing._private_words import PrivateCountVectorizer
from vips.preprocessing._table import TableEncoder

__all__ = [
    "Inspection", "PrivateCountVectorizer", "PrivatePipeline", "PrivateTopics", "TableEncoder", "inspect",
    "make_private_pipeline",
]  # fmt: skip
