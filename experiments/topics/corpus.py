"""Generated documents in shards on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed
from tqdm.auto import tqdm

from vips.datasets import make_lda_corpus

__all__ = ["held_out", "write_shards"]

WORD_PRIOR, DOC_PRIOR = 0.05, 0.1


def write_shards(folder: Path, n_documents: int, per_shard: int, n_topics: int, n_words: int, length: int) -> None:
    """Write documents of one set of topics, a file for every ``per_shard``; existing files are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    topics = _topics(n_topics, n_words)
    missing = [i for i in range(-(-n_documents // per_shard)) if not (folder / f"documents_{i:05d}.npz").exists()]
    shards = Parallel(n_jobs=-1, return_as="generator_unordered")(
        delayed(_write)(
            folder / f"documents_{i:05d}.npz", topics, min(per_shard, n_documents - i * per_shard), length, i
        )
        for i in missing
    )
    for _ in tqdm(shards, total=len(missing), desc="generating", disable=None):
        pass


def held_out(n_documents: int, n_topics: int, n_words: int, length: int) -> sp.csr_array:
    """Further documents of the same topics."""
    return _documents(_topics(n_topics, n_words), n_documents, length, 10**6)


def _topics(n_topics: int, n_words: int) -> np.ndarray:
    """Topics with word frequencies as in a language: Zipf's law, with another order of most words in each topic."""
    rng = np.random.default_rng(0)
    base = 1.0 / (10.0 + np.arange(n_words))
    return rng.dirichlet(WORD_PRIOR * n_words * base / base.sum(), n_topics)


def _documents(topics: np.ndarray, n_documents: int, length: int, seed: int) -> sp.csr_array:
    counts = make_lda_corpus(
        n_documents, topics=topics, document_length=length, doc_topic_prior=DOC_PRIOR, random_state=seed
    ).counts
    return sp.csr_array((counts.data.astype(np.int32), counts.indices.astype(np.int32), counts.indptr), counts.shape)


def _write(path: Path, topics: np.ndarray, n_documents: int, length: int, seed: int) -> None:
    partial = path.with_suffix(".part")
    with open(partial, "wb") as file:
        sp.save_npz(file, _documents(topics, n_documents, length, seed), compressed=False)
    partial.rename(path)  # whole or not at all
