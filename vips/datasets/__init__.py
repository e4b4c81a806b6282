"""Real corpora and tables, and generators. Nothing is downloaded unless you ask for it (``load_mnist(download=True)``)."""

from vips.datasets._adult import load_adult
from vips.datasets._diabetes import load_diabetes_readmission
from vips.datasets._docstrings import load_docstrings
from vips.datasets._generators import make_lda_corpus
from vips.datasets._images import load_digits_binary, load_mnist
from vips.datasets._masc import load_masc
from vips.datasets._pathways import make_pathways
from vips.datasets._sparse_binary import make_sparse_binary
from vips.datasets._text import corpus_from_texts
from vips.datasets._wikipedia import load_wikipedia

__all__ = [
    "corpus_from_texts",
    "load_adult",
    "load_diabetes_readmission",
    "load_digits_binary",
    "load_docstrings",
    "load_masc",
    "load_mnist",
    "load_wikipedia",
    "make_lda_corpus",
    "make_pathways",
    "make_sparse_binary",
]
