"""Real corpora and generators. Nothing is downloaded; nothing is fetched behind your back."""

from vips.datasets._docstrings import load_docstrings
from vips.datasets._generators import make_lda_corpus
from vips.datasets._text import corpus_from_texts
from vips.datasets._wikipedia import load_wikipedia

__all__ = ["corpus_from_texts", "load_docstrings", "load_wikipedia", "make_lda_corpus"]
