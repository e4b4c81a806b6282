"""Other places where sums are computed: processes of joblib, workers of Dask."""
