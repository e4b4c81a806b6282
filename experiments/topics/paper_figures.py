"""Figures 2 and 3 and Table 1 of the paper, on its own axes: its private LDA, and ours beside it.

    python -m experiments figure2     perplexity against ε, for each mini-batch size; circles: outside of the paper's theorem
    python -m experiments figure3     perplexity against documents seen
    python -m experiments table1      topics side by side, with the probabilities of their words

The paper fits 400,000 Wikipedia articles in one pass. Here are 118,000, and the loop passes through them 3.4 times, so that
batch sizes, steps and the ratio of signal to noise are the paper's. Perplexity is that of 2,000 articles which were not fitted;
the paper says so too, but its code takes the batch that was just fitted. ε is at δ = 10⁻⁴, by the paper's moments accountant
with its orders; it holds for 400,000 articles and Poisson samples, and not for the loop, whose batches are fixed
(docs/paper.md).

- *moments accountant*: the paper's loop with this σ.
- *strong composition*: the paper's loop with the σ that strong composition asks for the same ε.
- *non-private*: the paper's loop without noise.
- *vips*: ``LatentDirichletAllocation`` with all defaults at the same ε and δ, with full batches, for 118,000 articles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
from tqdm import tqdm

from experiments.options import fill, folder_of, parser_of
from experiments.results import as_table, spread, write_json, write_table
from experiments.stand_ins import wikipedia
from experiments.topics import paper_recipe
from experiments.topics.demo import matched
from vips import LatentDirichletAllocation, PrivacyPlan

__all__ = ["figure2", "figure3", "table1"]

N_PAPER, N_TRAIN, N_TEST, DELTA, BATCH = 400_000, 118_000, 2_000, 1e-4, 20_000
FULL = {"sigmas": (1.0, 1.1, 1.24, 1.5, 2.0), "sizes": (5_000, 10_000, 20_000), "topics": 50, "seeds": 1}
QUICK = {"sigmas": (1.24, 1.5, 2.0), "sizes": (100, 300), "topics": 5, "seeds": 1}
QUICK_TRAIN, QUICK_TEST, QUICK_STEPS = 600, 100, 4
SIGMA = {"sigmas": (1.24,)}  # of figure 3 and table 1
MOMENTS, STRONG, NONE, OURS = "moments accountant", "strong composition", "non-private", "vips"
N_POINTS, N_WORDS, SHOWN = 10, 10, (33, 35, 37)


class Setting:
    """Options, documents, and the paper's numbers or those of a quick run."""

    def __init__(self, name: str, arguments: list[str], full: dict = FULL, quick: dict = QUICK) -> None:
        parser = parser_of(f"experiments {name}", __doc__, *full, "data", "format")
        self.options = options = parser.parse_args(arguments)
        fill(options, full, quick)
        if "seeds" not in full and len(options.sigmas) + len(options.sizes) > 2:
            parser.error("Table 1 is of one σ and one S: give one number to --sigmas, and one to --sizes.")
        self.quick = options.quick
        for sigma, size in product(options.sigmas, options.sizes):
            try:
                self.sigma_of(STRONG, sigma, size)
            except ValueError:
                parser.error(f"No ε is known for σ = {sigma:g} and S = {size:,}: take a larger σ or a smaller S.")
        self.folder = folder_of(name, options)
        n_train, n_test = (QUICK_TRAIN, QUICK_TEST) if self.quick else (N_TRAIN, N_TEST)
        corpus = wikipedia(n_train + n_test, self.quick and not options.data)
        self.vocabulary, self.generated = corpus.vocabulary, corpus.generated
        self.train, self.test = corpus.counts[:n_train], corpus.counts[-n_test:]

    def n_steps(self, batch_size: int) -> int:
        """One pass through the paper's articles."""
        return QUICK_STEPS if self.quick else N_PAPER // batch_size

    def epsilon(self, sigma: float, batch_size: int) -> float:
        """What the paper states for this σ; a quick run states that of its batch of 20,000."""
        batch_size = BATCH if self.quick else batch_size
        plan = PrivacyPlan(noise_multiplier=sigma, sampling_rate=batch_size / N_PAPER, n_steps=N_PAPER // batch_size)
        return plan.epsilon(DELTA, "moments", orders="paper")

    def sigma_of(self, method: str, sigma: float, batch_size: int) -> float:
        """σ with which the paper's loop is run."""
        if method != STRONG:
            return 0.0 if method == NONE else sigma
        epsilon, batch_size = self.epsilon(sigma, batch_size), BATCH if self.quick else batch_size
        return paper_recipe.sigma_by_strong_composition(
            epsilon, DELTA, sampling_rate=batch_size / N_PAPER, n_steps=N_PAPER // batch_size
        )

    def fit(
        self, method: str, sigma: float, batch_size: int, seed: int = 0, each_step: Callable | None = None
    ) -> LatentDirichletAllocation:
        """One fit of the paper's loop, or of ours at the same ε."""
        n_topics = self.options.topics
        if method == OURS:
            plan = PrivacyPlan.from_epsilon(
                epsilon=self.epsilon(sigma, batch_size), delta=DELTA, sampling="full", n_steps=paper_recipe.N_STEPS
            )
            model = LatentDirichletAllocation(n_topics, vocabulary=self.vocabulary, privacy=plan, random_state=seed)
            return model.fit(self.train)
        noise, n_steps = self.sigma_of(method, sigma, batch_size), self.n_steps(batch_size)
        model = paper_recipe.fit(self.train, n_topics, noise, seed, batch_size, n_steps, each_step)
        model.vocabulary = self.vocabulary
        return model

    def show(self, rows: object, heads: list[str], cells: list[list], note: str) -> None:
        """Print a table, and write it beside the results."""
        if self.generated:
            note = f"Generated documents. {note}"
        print(text := as_table(heads, cells, self.options.format, note))
        if self.folder is not None:
            write_json(self.folder / "results.json", rows)
            write_table(self.folder, "results", text, self.options.format)

    def plot(self, rows: list[dict], x: str, label: str, path: str) -> None:
        if self.folder is not None:
            _plot(rows, x, label, "Generated documents" if self.generated else "", self.folder / path)


def figure2(arguments: list[str]) -> None:
    """Perplexity against ε, by mini-batch size."""
    setting = Setting("figure2", arguments)
    rows = list(_rows_of_figure2(setting))
    for row in tqdm(rows, desc="fits", disable=None):
        method, batch_size, sigma = (row[name] for name in ("method", "batch_size", "sigma"))
        row["perplexity"] = [
            setting.fit(method, sigma, batch_size, seed).perplexity(setting.test)
            for seed in range(setting.options.seeds)
        ]
        tqdm.write(str(row))
    cells = []
    for row in rows:
        used, epsilon = (f"{row[name]:.2f}" if row[name] else "" for name in ("sigma_used", "epsilon"))
        numbers = [f"{row['batch_size']:,}", f"{row['sigma']:g}", used, epsilon, spread(row["perplexity"], 0)]
        cells.append([row["method"], *numbers])
    heads = ["method", "S", "σ", "σ used", "ε", "held-out perplexity"]
    setting.show(rows, heads, cells, f"K = {setting.options.topics}, δ = {DELTA:g}.")
    for row in rows:
        row["panel"] = row["batch_size"], f"S = {row['batch_size']:,}"
    setting.plot(rows, "epsilon", "ε at δ = 10⁻⁴", "figure2.png")


def _rows_of_figure2(setting: Setting) -> Iterator[dict]:
    sigmas = setting.options.sigmas
    for batch_size in setting.options.sizes:
        yield {"method": NONE, "batch_size": batch_size, "sigma": 0.0, "epsilon": None, "sigma_used": 0.0}
        for method in (MOMENTS, STRONG, OURS):
            for sigma in sigmas[:: 2 if method == OURS else 1]:
                used = None if method == OURS else setting.sigma_of(method, sigma, batch_size)
                row = {"method": method, "batch_size": batch_size, "sigma": sigma, "sigma_used": used}
                yield row | {"epsilon": setting.epsilon(sigma, batch_size)}


def figure3(arguments: list[str]) -> None:
    """Perplexity against the number of documents seen."""
    setting, rows = Setting("figure3", arguments, FULL | SIGMA, QUICK | SIGMA), []
    for sigma, batch_size in product(setting.options.sigmas, setting.options.sizes):
        n_steps = setting.n_steps(batch_size)
        recorded = set(np.unique(np.geomspace(1, n_steps, N_POINTS).round().astype(int)).tolist())
        for method in (NONE, MOMENTS, STRONG, OURS):
            seen = dict.fromkeys([n_steps] if method == OURS else sorted(recorded))

            def record(t, model, seen=seen):
                if t in seen:
                    seen[t] = [*(seen[t] or []), model.perplexity(setting.test)]

            for seed in range(setting.options.seeds):
                model = setting.fit(method, sigma, batch_size, seed, record)
                if method == OURS:
                    record(n_steps, model)
            shared = {"method": method, "batch_size": batch_size, "sigma": sigma}
            rows += [shared | {"documents": t * batch_size, "perplexity": values} for t, values in seen.items()]
            print(rows[-1], flush=True)
    heads = ["method", "S", "σ", "documents seen", "held-out perplexity"]
    cells = [
        [
            row["method"],
            f"{row['batch_size']:,}",
            f"{row['sigma']:g}",
            f"{row['documents']:,}",
            spread(row["perplexity"], 0),
        ]
        for row in rows
    ]
    setting.show(rows, heads, cells, f"K = {setting.options.topics}, δ = {DELTA:g}.")
    for row in rows:
        row["panel"] = (row["sigma"], row["batch_size"]), f"S = {row['batch_size']:,}, σ = {row['sigma']:g}"
    setting.plot(rows, "documents", "documents seen", "figure3.png")


def table1(arguments: list[str]) -> None:
    """Three topics of each fit side by side. Fits of the paper's loop share their start, by which topics have numbers."""
    full = {"topics": FULL["topics"], "sizes": (BATCH,)} | SIGMA
    setting = Setting("table1", arguments, full, QUICK | SIGMA | {"sizes": QUICK["sizes"][-1:]})
    (sigma,), (batch_size,) = setting.options.sigmas, setting.options.sizes
    models = {method: setting.fit(method, sigma, batch_size) for method in (NONE, MOMENTS, STRONG, OURS)}
    n_topics = setting.options.topics
    shown = SHOWN if n_topics >= max(SHOWN) else range(1, min(len(SHOWN), n_topics) + 1)
    nearest = {i: j for i, j, _ in matched(models[NONE], models[OURS])}
    rows, cells = [], []
    for topic in shown:
        columns = {
            method: _words(model, nearest[topic - 1] if method == OURS else topic - 1)
            for method, model in models.items()
        }
        rows.append({"topic": topic} | columns)
        for place in zip(*columns.values(), strict=True):
            cells.append([topic, *(f"{word} {probability:.4f}" for word, probability in place)])
    heads = ["topic", *models]
    heads[-1] += ", its nearest topic"
    setting.show(rows, heads, cells, f"K = {n_topics}, σ = {sigma:g}, S = {batch_size:,}, δ = {DELTA:g}.")


def _words(model: LatentDirichletAllocation, topic: int) -> list[tuple[str, float]]:
    """Most probable words of a topic, with their probabilities."""
    row = model.last_posterior_.mean[topic]
    return [(model.vocabulary[v], float(row[v])) for v in np.argsort(-row, kind="stable")[:N_WORDS]]


def _plot(rows: list[dict], x: str, label: str, title: str, path: Path) -> None:
    """A picture for each ``row["panel"]``, a pair of a key and a title."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    panels = sorted({row["panel"] for row in rows})
    figure, axes = plt.subplots(
        1, len(panels), figsize=(max(3.6 * len(panels), 6.4), 3.6), sharey=True, layout="constrained", squeeze=False
    )
    for panel, ax in zip(panels, axes[0], strict=True):
        for method, style in ((MOMENTS, "o-"), (STRONG, "s--"), (NONE, "k:"), (OURS, "*-")):
            chosen = [row for row in rows if row["panel"] == panel and row["method"] == method]
            mean = np.array([np.mean(row["perplexity"]) for row in chosen])
            if (method, x) in ((NONE, "epsilon"), (OURS, "documents")):  # one number
                name, color = (method, "k") if method == NONE else (f"{method}, at the end", "C2")
                ax.axhline(mean[0], color=color, linestyle=":", label=name)
                continue
            ends = [[np.min(row["perplexity"]), np.max(row["perplexity"])] for row in chosen]
            error = np.abs(np.transpose(ends) - mean) if len(chosen[0]["perplexity"]) > 1 else None
            ax.errorbar([row[x] for row in chosen], mean, error, fmt=style, capsize=3, label=method)
            if method == MOMENTS and x == "epsilon":
                unproved = [row for row in chosen if 16 * row["sigma"] * row["batch_size"] >= N_PAPER]
                points = [np.mean(row["perplexity"]) for row in unproved]
                ax.plot([row[x] for row in unproved], points, "C6o", ms=12, mfc="none")
        ax.set(title=panel[1], xlabel=label, xscale="log" if x == "documents" else "linear")
        ax.xaxis.set_minor_formatter(NullFormatter())
    axes[0, 0].set_ylabel("held-out perplexity")
    figure.suptitle(title)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)
