"""LDA against scikit-learn and gensim: the same documents, one pass, the same tolerance, in one run.

    python -m experiments.benchmarks.lda            (make bench)

Every library runs in its own process, because threads are fixed at start-up and peak memory is a number per
process. Compilation and loading are outside the timed part. Each process runs ``--repeats`` times, in turn, from as
many starting points (vips five times from each), and the median is reported. Quality is the perplexity of 500 further
documents under each fitted model, by the same code. The limit for two threads is measured beside them: two processes that
share nothing, each doing all of the work with one thread, at the same time. A library that is not installed is left out.

``--threads``: only fits with one thread and with two, private and not, and two processes side by side.
``--quick``: a small corpus, once, in this process, which keeps its number of threads; without the two processes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import scipy.sparse as sp

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text

BATCHES, TOLERANCE, MAX_ITER = 10, 1e-3, 100
OFFSET, DECAY = 1.0, 0.7


class Size(NamedTuple):
    """Sizes of corpus, model, and square matrices of a product; number of runs of vips from each starting point; and whether
    each library has its own process."""

    documents: int
    words: int
    topics: int
    length: int
    matrix: int
    n_ours: int
    alone: bool


FULL, QUICK = Size(40_000, 7700, 50, 500, 3000, 5, True), Size(400, 300, 5, 50, 200, 1, False)


def fit_vips(counts, size: Size, seed=0):
    from vips import LatentDirichletAllocation, PrivacyPlan, RobbinsMonro

    plan = PrivacyPlan.non_private(sampling_rate=1.0 / BATCHES, n_steps=BATCHES)
    return LatentDirichletAllocation(
        size.topics, vocabulary=size.words, privacy=plan, schedule=RobbinsMonro(OFFSET, DECAY),
        mean_change_tol=TOLERANCE, max_doc_update_iter=MAX_ITER, random_state=seed,
    ).fit(counts)  # fmt: skip


def fit_private(counts, size: Size):
    """A fit with the plan of the Wikipedia experiment at ε = 2.44, δ = 1e-4, and defaults otherwise."""
    from vips import LatentDirichletAllocation, PrivacyPlan

    plan = PrivacyPlan(noise_multiplier=2.24, sampling_rate=0.3, n_steps=20)
    return LatentDirichletAllocation(size.topics, vocabulary=size.words, privacy=plan, random_state=0).fit(counts)


def run_vips(counts, size: Size, seed):
    fit_vips(counts[:300], size)  # compiles
    return timed(lambda: fit_vips(counts, size, seed).components_)


def fit_in_batches(counts, size: Size, seed=0):
    """A private fit of as many steps, on samples of the same size, as ``fit_vips``; defaults otherwise."""
    from vips import LatentDirichletAllocation, PrivacyPlan

    plan = PrivacyPlan(noise_multiplier=2.24, sampling_rate=1.0 / BATCHES, n_steps=BATCHES)
    return LatentDirichletAllocation(size.topics, vocabulary=size.words, privacy=plan, random_state=seed).fit(counts)


def run_private(counts, size: Size, seed):
    fit_in_batches(counts[:300], size)
    return timed(lambda: fit_in_batches(counts, size, seed).components_)


def run_side_by_side(counts, size: Size, seed, fit_one=fit_vips):
    """The same fit in two processes at once; seconds of one of them."""
    fit_one(counts[:300], size)
    context = multiprocessing.get_context("fork")
    start, results = context.Barrier(2, timeout=60), context.SimpleQueue()

    def fit():
        start.wait()
        results.put(timed(lambda: fit_one(counts, size, seed).components_)[1])

    processes = [context.Process(target=fit) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError("One of the two processes failed.")
    both = [results.get() for _ in processes]
    return np.zeros((1, 1)), {key: statistics.mean(result[key] for result in both) for key in both[0]}


def run_sklearn(counts, size: Size, seed):
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(
        size.topics, doc_topic_prior=1 / size.topics, topic_word_prior=1 / size.topics, learning_offset=OFFSET,
        learning_decay=DECAY, batch_size=counts.shape[0] // BATCHES, mean_change_tol=TOLERANCE,
        max_doc_update_iter=MAX_ITER, total_samples=counts.shape[0], random_state=seed, n_jobs=1,
    )  # fmt: skip
    counts = counts.astype(np.float64)

    def fit():  # partial_fit: `fit` would add a pass to compute a perplexity
        for batch in np.array_split(np.arange(counts.shape[0]), BATCHES):
            model.partial_fit(counts[batch])
        return model.components_

    return timed(fit)


def run_gensim(counts, size: Size, seed):
    from gensim.models import LdaModel

    documents = [
        list(zip(map(int, counts[[d]].indices), map(int, counts[[d]].data), strict=True))
        for d in range(counts.shape[0])
    ]
    words = {i: str(i) for i in range(size.words)}

    def fit():
        model = LdaModel(
            documents, num_topics=size.topics, id2word=words, alpha=1 / size.topics, eta=1 / size.topics, passes=1,
            chunksize=counts.shape[0] // BATCHES, update_every=1, eval_every=None, iterations=MAX_ITER,
            gamma_threshold=TOLERANCE, offset=OFFSET, decay=DECAY, random_state=seed,
        )  # fmt: skip
        return model.state.get_lambda()

    return timed(fit)


def timed(fit):
    wall, cpu = time.perf_counter(), time.process_time()
    components = fit()
    return components, {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


@contextmanager
def clocked(owner: type, name: str, spent: dict[str, float], key: str) -> Iterator[None]:
    """While active, add the seconds spent in a method to ``spent[key]``."""
    original = getattr(owner, name)

    def wrapper(*args):
        start = time.perf_counter()
        result = original(*args)
        spent[key] += time.perf_counter() - start
        return result

    with mock.patch.object(owner, name, wrapper):  # afterwards an inherited method is inherited again
        yield


def run_privacy_share(counts, size: Size, _seed):
    """Seconds of a private fit for clipping, noise and ε, and in total."""
    from vips import PrivacyPlan
    from vips.models.topics.statistics import DocumentStatistics

    fit_private(counts[:300], size)
    spent = {"clip_s": 0.0, "noise_s": 0.0}
    with ExitStack() as clocks:
        clocks.enter_context(clocked(PrivacyPlan, "clip_weights", spent, "clip_s"))
        clocks.enter_context(clocked(DocumentStatistics, "norms", spent, "clip_s"))
        clocks.enter_context(clocked(PrivacyPlan, "add_noise", spent, "noise_s"))
        start = time.perf_counter()
        model = fit_private(counts, size)
        spent["fit_s"] = time.perf_counter() - start
    import dp_accounting.pld  # noqa: F401  (import time is not accounting)

    start = time.perf_counter()
    model.privacy_.epsilon(1e-5)
    spent["epsilon_s"] = time.perf_counter() - start
    return model.components_, spent


def run_peak(counts, size: Size, _seed):
    """Single-precision matrix product, GFlop/s."""
    n = size.matrix
    a = np.ones((n, n), np.float32)
    a @ a
    best = min(seconds(lambda: a @ a) for _ in range(3))
    return np.zeros((1, 1)), {"gflops": 2 * n**3 / best / 1e9}


def run_kernel(counts, size: Size, _seed):
    """One E-step with fitted topics: documents per second, and arithmetic operations."""
    from vips import LatentDirichletAllocation
    from vips.models.topics.statistics import DocumentStatistics, TopicPosterior

    rng = np.random.default_rng(0)
    posterior = TopicPosterior(rng.gamma(100.0, 0.01, (size.topics, size.words)))
    model = LatentDirichletAllocation(size.topics)
    part = counts[:2000]
    DocumentStatistics(part[:50], posterior, 1 / size.topics, TOLERANCE, 2, model.dtype)
    few, many = (
        seconds(lambda m=m: DocumentStatistics(part, posterior, 1 / size.topics, 0.0, m, model.dtype)) for m in (1, 41)
    )
    flops = 40 * 4.0 * part.nnz * size.topics  # two products of (words × topics) an update
    return np.zeros((1, 1)), {"gflops": flops / (many - few) / 1e9}


def seconds(function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


RUNS = {
    "vips": run_vips,
    "vips side by side": run_side_by_side,
    "private": run_private,
    "private side by side": partial(run_side_by_side, fit_one=fit_in_batches),
    "scikit-learn": run_sklearn,
    "gensim": run_gensim,
    "privacy share": run_privacy_share,
    "matrix product": run_peak,
    "kernel": run_kernel,
}


def run_one(name: str, size: Size, folder: Path, seed: int) -> dict:
    """Run one library in this process; write its topics to the folder."""
    counts = sp.load_npz(folder / "train.npz")
    before = peak_mib()
    components, result = RUNS[name](counts, size, seed)
    csr = counts.data.nbytes + counts.indices.nbytes + counts.indptr.nbytes
    np.save(folder / "components.npy", components)
    return result | {"peak_mib": peak_mib(), "before_mib": before, "csr_mib": csr / 2**20}


def peak_mib() -> float:
    """Largest resident size of this process so far. Linux keeps it per program; elsewhere it may include the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run_alone(name: str, size: Size, folder: Path, seed: int, threads: int) -> dict:
    """Run one library at full size, in its own process with the given number of threads."""
    variables = ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | {variable: str(threads) for variable in variables}
    environment.pop("OPENBLAS_CORETYPE", None)
    command = [sys.executable, "-m", "experiments.benchmarks.lda", "--child", name, "--folder", str(folder)]
    command += ["--seed", str(seed)]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return json.loads(output.strip().splitlines()[-1])


def measure(name: str, threads: int, size: Size, folder: Path, seed: int) -> dict:
    run = run_one if not size.alone else partial(run_alone, threads=threads)
    result = run(name, size, folder, seed)
    components = np.load(folder / "components.npy")
    if components.size > 1:
        from experiments.scoring import model_of_topics  # not at the children's start-up, whose memory is measured

        result["perplexity"] = model_of_topics(components).perplexity(sp.load_npz(folder / "test.npz"))
    return result


def contenders(size: Size, only_threads: bool = False) -> list[tuple[str, int]]:
    """(name, threads) of each run; libraries that are not installed are left out."""
    ours = [("vips", 1), ("vips", 2), ("private", 1), ("private", 2)]
    if size.alone:
        ours += [("vips side by side", 1), ("private side by side", 1)]
    if only_threads:
        return ours * size.n_ours
    if not size.alone:
        print("Two processes side by side are left out of a quick run.")
    peers = [("scikit-learn", 1)]
    if find_spec("gensim") is None:
        print("gensim is left out: it is not installed (pip install 'vips[bench]').")
    else:
        peers.append(("gensim", 1))
    return [*ours * size.n_ours, *peers, ("privacy share", 1), ("matrix product", 1), ("kernel", 1)]


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of("experiments.benchmarks.lda", __doc__)
    parser.add_argument("--documents", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", action="store_true", help="only compare threads")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    size = QUICK if options.quick else FULL
    if options.child:
        print(json.dumps(run_one(options.child, size, options.folder, options.seed)))
        return
    results = folder_of("benchmarks", options)
    if options.quick:
        options.repeats = 1
    size = size._replace(documents=options.documents or size.documents)
    from vips.datasets import make_lda_corpus

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = make_lda_corpus(
            size.documents + 500, n_topics=size.topics, n_words=size.words, document_length=size.length, random_state=0
        )
        sp.save_npz(folder / "train.npz", corpus.counts[: size.documents], compressed=False)
        sp.save_npz(folder / "test.npz", corpus.counts[size.documents :], compressed=False)
        compared = contenders(size, options.threads)
        runs: dict[str, list[dict]] = {}
        for seed in range(options.repeats):
            for name, threads in compared:
                runs.setdefault(f"{name}, {threads} thread{'s' * (threads > 1)}", []).append(
                    measure(name, threads, size, folder, seed)
                )
                print(".", end="", file=sys.stderr, flush=True)
    median = {
        name: {key: statistics.median(run[key] for run in repeated) for key in repeated[0]}
        for name, repeated in runs.items()
    }
    text = "\n".join(of_threads(runs)) + "\n" if options.threads else report(median, runs, size)
    print("\n" + text)
    if options.threads:
        return
    if results is not None:
        write_text(results / "lda.md", f"```\n{text}```\n")
        write_json(results / "lda.json", {"documents": size.documents, "median": median, "runs": runs})


def report(median: dict, runs: dict, size: Size) -> str:
    """The medians in words."""
    lines = []
    ours = median["vips, 1 thread"]
    peers = [name for name in ("scikit-learn", "gensim") if f"{name}, 1 thread" in median]
    lines.append(
        f"{size.documents} documents of {size.length} words, V = {size.words}, K = {size.topics}, one pass; medians"
    )
    for name in ("vips, 1 thread", "vips, 2 threads", *(f"{peer}, 1 thread" for peer in peers)):
        row = median[name]
        lines.append(
            f"  {name:22s} {size.documents / row['cpu_s']:6.0f} documents per CPU second  wall {row['wall_s']:5.2f} s  "
            f"peak {row['peak_mib']:4.0f} MiB  held-out perplexity {row['perplexity']:7.1f}"
        )
    for peer in peers:
        lines.append(
            f"  documents per CPU second, vips / {peer}: {median[f'{peer}, 1 thread']['cpu_s'] / ours['cpu_s']:.1f}"
        )
    lines += of_threads(runs)
    share = median["privacy share, 1 thread"]
    private = share["clip_s"] + share["noise_s"] + share["epsilon_s"]
    lines.append(
        f"  clipping + noise + accounting: {100 * private / (share['fit_s'] + share['epsilon_s']):.1f} % of a private fit "
        f"(clip {share['clip_s']:.3f} s, noise {share['noise_s']:.3f} s, ε {share['epsilon_s']:.3f} s of "
        f"{share['fit_s']:.2f} s)"
    )
    lines.append(
        f"  peak memory above the CSR matrix: {ours['peak_mib'] - ours['csr_mib']:.0f} MiB (CSR {ours['csr_mib']:.0f} MiB)"
    )
    kernel, peak = median["kernel, 1 thread"]["gflops"], median["matrix product, 1 thread"]["gflops"]
    lines.append(
        f"  E-step {kernel:.0f} of {peak:.0f} GFlop/s of a matrix product (single precision): {100 * kernel / peak:.0f} %"
    )
    return "\n".join(lines) + "\n"


def of_threads(runs: dict) -> list[str]:
    """Two threads over one, by medians and by the fastest runs, because other processes only slow them down.

    Two processes side by side share nothing but the machine: their speed is the limit for two threads.
    """
    lines = []
    for what, name, alone, n_fits in (
        ("two threads / one, wall clock", "vips, 2 threads", "vips", 1),
        ("two processes with a fit each / one", "vips side by side, 1 thread", "vips", 2),
        ("private fit: two threads / one", "private, 2 threads", "private", 1),
        ("private fit: two processes with a fit each / one", "private side by side, 1 thread", "private", 2),
    ):
        if name not in runs:
            continue
        median_ratio, ratio_of_fastest = (
            n_fits
            * statistic(run["wall_s"] for run in runs[f"{alone}, 1 thread"])
            / statistic(run["wall_s"] for run in runs[name])
            for statistic in (statistics.median, min)
        )
        lines.append(f"  {what}: {median_ratio:.2f} (fastest runs: {ratio_of_fastest:.2f})")
    return lines


if __name__ == "__main__":
    main()
