"""Topics of the docstrings of numpy, scipy and scikit-learn: private beside non-private. Needs no file and no network."""
