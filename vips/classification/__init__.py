"""Private prediction from tables of classes by values."""
