"""What a fit writes down between two steps, and fitted models, as files."""
