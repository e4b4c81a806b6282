"""``python -m experiments million_texts``: memory of a private vocabulary, and of topics, against the number of texts.

Texts: the first 60 words of real docstrings, repeated, each with a name that no other text has. So the number of different
words grows with the texts. They are in a Parquet file, 10,000 in a row group. Each fit runs in its own process, whose largest
resident memory is sampled, with that of its children: the vocabulary from the file, serially; topics of it in two steps, from
the file; and the vocabulary of the same texts as a list. At the largest number two Dask workers learn the vocabulary, too.

``--quick``: a few generated texts.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np

from experiments.dask_cluster import local_cluster
from experiments.datasets import load_docstrings
from experiments.memory import run_alone, run_here
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import LatentDirichletAllocation, PrivacyPlan
from vips.data import ParquetTexts
from vips.preprocessing import PrivateCountVectorizer

EPSILON, DELTA, N_WORDS, PER_GROUP = 1.0, 1e-7, 60, 10_000
SIZES, QUICK_SIZES, LARGEST_LIST = (10_000, 100_000, 300_000, 1_000_000), (2_000, 6_000), 300_000
HOW = {
    "words": "vocabulary, from files",
    "topics": "topics, from files",
    "dask": "vocabulary, from files, two Dask workers",
    "list": "vocabulary, from a list",
}


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments million_texts", __doc__)
    parser.add_argument("--fit", choices=tuple(HOW), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sizes", type=int, nargs="+")
    options = parser.parse_args(arguments)
    if options.fit:
        print(json.dumps(fit(options.fit, options.file)))
        return
    folder = folder_of("million_texts", options)
    sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
    texts = generated() if options.quick else docstrings()
    temporary, rows = Path(tempfile.mkdtemp(prefix="vips-texts-")), []
    try:
        for size in sizes:
            path = temporary / f"{size}.parquet"
            write(path, texts, size, PER_GROUP // 100 if options.quick else PER_GROUP)
            for how in HOW:
                if (how == "list" and size > LARGEST_LIST) or (how == "dask" and (size < max(sizes) or options.quick)):
                    continue
                alone = ["million_texts", "--fit", how, "--file", str(path)]
                measured = run_here(fit, how, path) if options.quick else run_alone(alone)
                rows.append({"texts": size, "how": how} | measured)
                print(rows[-1], flush=True)
            path.unlink()
    finally:
        shutil.rmtree(temporary)
    print(text := table(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def docstrings() -> list[str]:
    """The beginnings of real documents."""
    return [" ".join(text.split()[:N_WORDS]) for text in load_docstrings().texts]


def generated() -> list[str]:
    """Texts of ``--quick``."""
    rng = np.random.default_rng(0)
    return [" ".join(f"word{i}" for i in rng.zipf(1.5, 30) % 500) for _ in range(300)]


def write(path: Path, texts: list[str], size: int, per_group: int) -> None:
    """The texts again and again, each with a name of its own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    documents = (f"{texts[i % len(texts)]} name{i:07d}" for i in range(size))
    with pq.ParquetWriter(path, pa.schema([("text", pa.string())])) as file:
        while batch := list(islice(documents, per_group)):
            file.write_table(pa.table({"text": batch}))


def fit(how: str, path: Path) -> dict:
    """Run one fit; say how long it took, and what was learnt."""
    plan = PrivacyPlan.from_epsilon(epsilon=EPSILON, delta=DELTA, sampling="full", n_steps=1)
    words = PrivateCountVectorizer(privacy=plan, threshold_delta=DELTA, stop_words="english")
    source = ParquetTexts(path, "text")
    start = time.perf_counter()
    if how == "list":
        words.fit([text.decode() for partition in source.partitions for text in partition.open().X])
    elif how == "dask":
        with local_cluster(2, memory_limit="2GiB") as (_, client):
            words.fit(source, executor=client)
    else:
        words.fit(source)
    if how == "topics":
        start = time.perf_counter()
        steps = PrivacyPlan.from_epsilon(epsilon=EPSILON, delta=DELTA, sampling="full", n_steps=2)
        topics = LatentDirichletAllocation(20, vocabulary=words.vocabulary, privacy=steps, random_state=0)
        topics.fit(words.transform(source))
    seconds = time.perf_counter() - start
    names = sum(word.startswith("name0") for word in words.vocabulary_)
    return {"seconds": seconds, "words": len(words.vocabulary_), "names": names}


def table(rows: list[dict]) -> str:
    """Markdown."""
    lines = [
        "| texts | fit | words learnt | names learnt | largest resident memory of a process, MiB | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row['texts']:,} | {HOW[row['how']]} | {row['words']:,} | {row['names']} | {row['MiB']:,.0f} "
        f"| {row['seconds']:.0f} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"
