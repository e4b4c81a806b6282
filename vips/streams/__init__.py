"""Models that learn from batches which keep arriving: ``partial_fit``."""
