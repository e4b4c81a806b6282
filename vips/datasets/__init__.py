"""Generators of records, and digits of scikit-learn."""

from vips.datasets._generators import load_digits_binary, make_lda_corpus, make_pathways, make_sparse_binary
from vips.datasets._tables import make_table

__all__ = ["load_digits_binary", "make_lda_corpus", "make_pathways", "make_sparse_binary", "make_table"]
