"""LDA against scikit-learn and gensim: the same documents, one pass, the same tolerance, in one run.

    python -m experiments.benchmarks.lda            (make bench)

Every contender runs in a process of its own, because threads are fixed at start-up and peak memory is a number per
process. Compilation and loading are outside the timed part. Each process is run ``--repeats`` times, in turn, from as
many starting points, ours five times from each, and the median is reported. Quality is the perplexity of 500 further
documents under each fitted model, by the same code. How far two threads can get is measured beside them: two processes that
share nothing, each doing all of the work with one thread, at the same time.
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
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from experiments.results import results_folder, write_json, write_text

N_WORDS, N_TOPICS, LENGTH, BATCHES, TOLERANCE, MAX_ITER = 7700, 50, 500, 10, 1e-3, 100
OFFSET, DECAY = 1.0, 0.7


def fit_vips(counts, seed=0, executor=None):
    from vips import LatentDirichletAllocation, PrivacyPlan, RobbinsMonro

    plan = PrivacyPlan.non_private(sampling_rate=1.0 / BATCHES, n_steps=BATCHES)
    return LatentDirichletAllocation(
        N_TOPICS, vocabulary=N_WORDS, privacy=plan, schedule=RobbinsMonro(OFFSET, DECAY),
        mean_change_tol=TOLERANCE, max_doc_update_iter=MAX_ITER, random_state=seed,
    ).fit(counts, executor=executor)  # fmt: skip


def fit_private(counts):
    """The plan of the Wikipedia experiment at ε = 2.44, δ = 1e-4, everything else at its default."""
    from vips import LatentDirichletAllocation, PrivacyPlan

    plan = PrivacyPlan(noise_multiplier=2.24, sampling_rate=0.3, n_steps=20)
    return LatentDirichletAllocation(N_TOPICS, vocabulary=N_WORDS, privacy=plan, random_state=0).fit(counts)


def run_vips(counts, seed, executor=None):
    fit_vips(counts[:300])  # compiles
    return timed(lambda: fit_vips(counts, seed, executor).components_)


def run_side_by_side(counts, seed):
    """The same in two processes at once; seconds of one of them."""
    fit_vips(counts[:300])
    context = multiprocessing.get_context("fork")
    start, results = context.Barrier(2, timeout=60), context.SimpleQueue()

    def fit():
        start.wait()
        results.put(timed(lambda: fit_vips(counts, seed).components_)[1])

    processes = [context.Process(target=fit) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError("One of the two processes failed.")
    both = [results.get() for _ in processes]
    return np.zeros((1, 1)), {key: statistics.mean(result[key] for result in both) for key in both[0]}


def run_sklearn(counts, seed):
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(
        N_TOPICS, doc_topic_prior=1 / N_TOPICS, topic_word_prior=1 / N_TOPICS, learning_offset=OFFSET,
        learning_decay=DECAY, batch_size=counts.shape[0] // BATCHES, mean_change_tol=TOLERANCE,
        max_doc_update_iter=MAX_ITER, total_samples=counts.shape[0], random_state=seed, n_jobs=1,
    )  # fmt: skip
    counts = counts.astype(np.float64)

    def fit():  # partial_fit: `fit` would add a pass to compute a perplexity
        for batch in np.array_split(np.arange(counts.shape[0]), BATCHES):
            model.partial_fit(counts[batch])
        return model.components_

    return timed(fit)


def run_gensim(counts, seed):
    from gensim.models import LdaModel

    documents = [
        list(zip(map(int, counts[[d]].indices), map(int, counts[[d]].data), strict=True))
        for d in range(counts.shape[0])
    ]
    words = {i: str(i) for i in range(N_WORDS)}

    def fit():
        model = LdaModel(
            documents, num_topics=N_TOPICS, id2word=words, alpha=1 / N_TOPICS, eta=1 / N_TOPICS, passes=1,
            chunksize=counts.shape[0] // BATCHES, update_every=1, eval_every=None, iterations=MAX_ITER,
            gamma_threshold=TOLERANCE, offset=OFFSET, decay=DECAY, random_state=seed,
        )  # fmt: skip
        return model.state.get_lambda()

    return timed(fit)


def timed(fit):
    wall, cpu = time.perf_counter(), time.process_time()
    components = fit()
    return components, {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def run_privacy_share(counts, _seed):
    """Seconds of a private fit spent on clipping, noise and ε, and on everything."""
    from vips import PrivacyPlan
    from vips.models._lda_statistics import DocumentStatistics

    fit_private(counts[:300])
    spent = {"clip_s": 0.0, "noise_s": 0.0}

    def clocked(owner, name, key):
        original = getattr(owner, name)

        def wrapper(*args):
            start = time.perf_counter()
            result = original(*args)
            spent[key] += time.perf_counter() - start
            return result

        setattr(owner, name, wrapper)

    clocked(PrivacyPlan, "clip_weights", "clip_s")
    clocked(DocumentStatistics, "norms", "clip_s")
    clocked(PrivacyPlan, "add_noise", "noise_s")
    start = time.perf_counter()
    model = fit_private(counts)
    spent["fit_s"] = time.perf_counter() - start
    import dp_accounting.pld  # noqa: F401  (import time is not accounting)

    start = time.perf_counter()
    model.privacy_.epsilon(1e-5)
    spent["epsilon_s"] = time.perf_counter() - start
    return model.components_, spent


def run_peak(counts, _seed):
    """Single-precision matrix product, GFlop/s."""
    a = np.ones((3000, 3000), np.float32)
    a @ a
    best = min(_seconds(lambda: a @ a) for _ in range(3))
    return np.zeros((1, 1)), {"gflops": 2 * 3000**3 / best / 1e9}


def run_kernel(counts, _seed):
    """One E-step from the fitted model's point of view: documents per second, and the arithmetic it needs."""
    from vips import LatentDirichletAllocation
    from vips.models._lda_statistics import DocumentStatistics, TopicPosterior

    rng = np.random.default_rng(0)
    posterior = TopicPosterior(rng.gamma(100.0, 0.01, (N_TOPICS, N_WORDS)))
    model = LatentDirichletAllocation(N_TOPICS)
    part = counts[:2000]
    DocumentStatistics(part[:50], posterior, 1 / N_TOPICS, TOLERANCE, 2, model.dtype)
    few, many = (
        _seconds(lambda m=m: DocumentStatistics(part, posterior, 1 / N_TOPICS, 0.0, m, model.dtype)) for m in (1, 41)
    )
    flops = 40 * 4.0 * part.nnz * N_TOPICS  # two products of (words × topics) an update
    return np.zeros((1, 1)), {"gflops": flops / (many - few) / 1e9}


def _seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


RUNS = {
    "vips": run_vips,
    "vips by partitions": partial(run_vips, executor="threads"),
    "vips side by side": run_side_by_side,
    "scikit-learn": run_sklearn,
    "gensim": run_gensim,
    "privacy share": run_privacy_share,
    "matrix product": run_peak,
    "kernel": run_kernel,
}


def child(name: str, folder: Path, seed: int) -> None:
    counts = sp.load_npz(folder / "train.npz")
    before = peak_mib()
    components, result = RUNS[name](counts, seed)
    csr = counts.data.nbytes + counts.indices.nbytes + counts.indptr.nbytes
    result |= {"peak_mib": peak_mib(), "before_mib": before, "csr_mib": csr / 2**20}
    np.save(folder / "components.npy", components)
    print(json.dumps(result))


def peak_mib() -> float:
    """Largest resident size of this process so far. Linux keeps it per program; elsewhere it may include the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name: str, threads: int, folder: Path, seed: int) -> dict:
    variables = ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | {variable: str(threads) for variable in variables}
    environment.pop("OPENBLAS_CORETYPE", None)
    command = [sys.executable, "-m", "experiments.benchmarks.lda", "--child", name, "--folder", str(folder)]
    command += ["--seed", str(seed)]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    result = json.loads(output.strip().splitlines()[-1])
    components = np.load(folder / "components.npy")
    if components.size > 1:
        from experiments.scoring import model_of_topics  # not in the children's start-up, whose memory is measured

        result["perplexity"] = model_of_topics(components).perplexity(sp.load_npz(folder / "test.npz"))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=40_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.folder, options.seed)
        return
    from vips.datasets import make_lda_corpus

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = make_lda_corpus(
            options.documents + 500, n_topics=N_TOPICS, n_words=N_WORDS, document_length=LENGTH, random_state=0
        )
        sp.save_npz(folder / "train.npz", corpus.counts[: options.documents], compressed=False)
        sp.save_npz(folder / "test.npz", corpus.counts[options.documents :], compressed=False)
        contenders = [("vips", 1), ("vips", 2), ("vips by partitions", 2), ("vips side by side", 1)] * 5  # short: noisy
        contenders += [("scikit-learn", 1), ("gensim", 1), ("privacy share", 1)]
        contenders += [("matrix product", 1), ("kernel", 1)]
        runs: dict[str, list[dict]] = {}
        for seed in range(options.repeats):
            for name, threads in contenders:
                runs.setdefault(f"{name}, {threads} thread{'s' * (threads > 1)}", []).append(
                    measure(name, threads, folder, seed)
                )
                print(".", end="", file=sys.stderr, flush=True)
    median = {
        name: {key: statistics.median(run[key] for run in repeated) for key in repeated[0]}
        for name, repeated in runs.items()
    }
    text = report(median, runs, options.documents)
    print("\n" + text)
    write_text(results_folder("benchmarks") / "lda.md", f"```\n{text}```\n")
    write_json(
        results_folder("benchmarks") / "lda.json", {"documents": options.documents, "median": median, "runs": runs}
    )


def report(median: dict, runs: dict, documents: int) -> str:
    """The medians in words. Threads are compared by the fastest runs, too: others on the machine only slow them down.

    Two processes side by side share nothing but the machine: what they do is the most that threads could.
    """
    lines = []
    ours = median["vips, 1 thread"]
    lines.append(f"{documents} documents of {LENGTH} words, V = {N_WORDS}, K = {N_TOPICS}, one pass; medians")
    for name in ("vips, 1 thread", "vips, 2 threads", "scikit-learn, 1 thread", "gensim, 1 thread"):
        row = median[name]
        lines.append(
            f"  {name:24s} {documents / row['cpu_s']:8.0f} documents per CPU second   wall {row['wall_s']:6.2f} s   "
            f"peak {row['peak_mib']:6.0f} MiB   held-out perplexity {row['perplexity']:7.1f}"
        )
    for peer in ("scikit-learn", "gensim"):
        lines.append(
            f"  documents per CPU second, vips / {peer}: {median[f'{peer}, 1 thread']['cpu_s'] / ours['cpu_s']:.1f}"
        )
    one, two, partitions, beside = (
        [statistic(run["wall_s"] for run in runs[name]) for statistic in (statistics.median, min)]
        for name in (
            "vips, 1 thread",
            "vips, 2 threads",
            "vips by partitions, 2 threads",
            "vips side by side, 1 thread",
        )
    )
    for what, seconds in (
        ("two threads / one, wall clock", two),
        ('two threads with executor="threads" / one', partitions),
        ("two processes with a fit each / one", [s / 2 for s in beside]),
    ):
        lines.append(f"  {what}: {one[0] / seconds[0]:.2f} (fastest runs: {one[1] / seconds[1]:.2f})")
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


if __name__ == "__main__":
    main()
