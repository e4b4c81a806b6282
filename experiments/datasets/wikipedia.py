"""Word counts of 120,000 English Wikipedia articles."""

from __future__ import annotations

import scipy.sparse as sp
from sklearn.utils import Bunch

from experiments.datasets.home import find_files

__all__ = ["load_wikipedia"]

_PER_FILE, _N_FILES = 20_000, 6
_HOW_TO_GET = (
    "It is a set of document-term counts made from public dumps: files wiki_counts_00.npz to wiki_counts_05.npz "
    "(scipy.sparse CSR, 20,000 articles each, 7,702 columns) and wiki_vocab.txt, one word per line; data/README.md "
    "describes them. For a corpus that needs no file, use load_docstrings()."
)


def load_wikipedia(n_documents: int = 120_000) -> Bunch:
    """Counts of the first ``n_documents`` articles over a public vocabulary of 7,702 words.

    The articles are in random order, so that any range of rows is a random sample. Files are looked for in
    ``VIPS_DATA_HOME``; only as many as needed are read.

    Returns
    -------
    Bunch
        ``counts``: CSR of shape (n_documents, 7702), int16; ``vocabulary``: list of str, word of each column.

    Raises
    ------
    FileNotFoundError
        If a file is missing; the message names the folder.
    ValueError
        If ``n_documents`` is not between 1 and 120,000.
    """
    if not 1 <= n_documents <= _PER_FILE * _N_FILES:
        raise ValueError(f"`n_documents` must be between 1 and {_PER_FILE * _N_FILES}, got {n_documents!r}.")
    names = [f"wiki_counts_{part:02d}.npz" for part in range(-(-n_documents // _PER_FILE))]
    *parts, words = find_files([*names, "wiki_vocab.txt"], "Wikipedia", _HOW_TO_GET)
    counts = sp.vstack([sp.load_npz(part) for part in parts], format="csr")
    return Bunch(counts=counts[:n_documents], vocabulary=words.read_text(encoding="utf-8").split())
