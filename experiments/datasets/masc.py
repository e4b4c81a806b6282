"""Sentences with parts of speech."""

from __future__ import annotations

import numpy as np
from sklearn.utils import Bunch

from experiments.datasets.home import find_files

__all__ = ["load_masc"]

_HOW_TO_GET = (
    "It is the Manually Annotated Sub-Corpus of the American National Corpus: a file masc_pos.npz of arrays word, coarse, "
    "coarse_names and line_start, and masc_vocab.txt, one word per line; data/README.md describes them."
)


def load_masc(n_words: int = 1_000) -> Bunch:
    """Lines of 392 texts, mostly a sentence each, as sequences of words. Lines of one word are left out.

    Parameters
    ----------
    n_words : int
        The most frequent words have the codes 0 to ``n_words - 1``; all others have the code ``n_words``.

    Returns
    -------
    Bunch
        ``words``: ndarray of int64, shape (n_steps,), line after line; ``lengths``: ndarray of shape (n_lines,), of the lines;
        ``classes``: ndarray of shape (n_steps,), one of 12 coarse parts of speech for each word, and ``class_names``;
        ``vocabulary``: list of ``n_words`` str.

    Raises
    ------
    FileNotFoundError
        If a file is missing; the message names the folder.
    """
    table, words = find_files(["masc_pos.npz", "masc_vocab.txt"], "MASC", _HOW_TO_GET)
    with np.load(table) as arrays:
        word, part = arrays["word"].astype(np.int64), arrays["coarse"]
        names, begins = [str(name) for name in arrays["coarse_names"]], arrays["line_start"].astype(np.int64)
    counts = np.bincount(word)
    frequent = 1 + np.argsort(-counts[1:], kind="stable")[:n_words]  # 0 stands for rare words
    codes = np.full(len(counts), len(frequent))
    codes[frequent] = np.arange(len(frequent))
    lengths = np.diff(np.append(begins, len(word)))
    kept = np.repeat(lengths > 1, lengths)
    known = words.read_text(encoding="utf-8").split("\n")
    return Bunch(
        words=codes[word][kept],
        lengths=lengths[lengths > 1],
        classes=part[kept],
        class_names=names,
        vocabulary=[known[i] for i in frequent],
    )
