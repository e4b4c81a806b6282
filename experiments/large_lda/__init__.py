"""A private topic model of more documents than fit into memory, on a local Dask cluster that loses a worker on the way."""
