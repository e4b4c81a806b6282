"""Figures 2 and 3 and Table 1 of the paper, on its own axes: its private LDA, and ours beside it.

    python -m experiments figure2     perplexity against ε, for each mini-batch size; circles: outside of the paper's theorem
    python -m experiments figure3     perplexity against documents seen
    python -m experiments table1      topics, with the probabilities of their words

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

import html
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from experiments.stand_ins import wikipedia
from experiments.topics import paper_recipe
from vips import LatentDirichletAllocation, PrivacyPlan

__all__ = ["figure2", "figure3", "table1"]

N_PAPER, N_TRAIN, N_TEST, N_TOPICS, DELTA = 400_000, 118_000, 2_000, 50, 1e-4
BATCHES, SIGMAS, SIGMA, BATCH = (5_000, 10_000, 20_000), (1.0, 1.1, 1.24, 1.5, 2.0), 1.24, 20_000
QUICK = {"train": 600, "test": 100, "topics": 5, "batches": (100, 300), "sigmas": (1.24, 1.5, 2.0), "steps": 4}
MOMENTS, STRONG, NONE, OURS = "moments accountant", "strong composition", "non-private", "vips"
N_POINTS, N_SHOWN, N_WORDS = 10, 10, 8


class Setting:
    """Documents, and the paper's numbers or those of a quick run."""

    def __init__(self, quick: bool) -> None:
        n_train, n_test = (QUICK["train"], QUICK["test"]) if quick else (N_TRAIN, N_TEST)
        corpus = wikipedia(n_train + n_test, quick)
        self.quick, self.vocabulary = quick, corpus.vocabulary
        self.train, self.test = corpus.counts[:n_train], corpus.counts[-n_test:]
        self.n_topics = QUICK["topics"] if quick else N_TOPICS
        self.batches, self.sigmas = (QUICK["batches"], QUICK["sigmas"]) if quick else (BATCHES, SIGMAS)

    def n_steps(self, batch_size: int) -> int:
        """One pass through the paper's articles."""
        return QUICK["steps"] if self.quick else N_PAPER // batch_size

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

    def fit(self, method: str, sigma: float, batch_size: int, each_step=None) -> LatentDirichletAllocation:
        """One fit of the paper's loop, or of ours at the same ε."""
        if method == OURS:
            plan = PrivacyPlan.from_epsilon(
                epsilon=self.epsilon(sigma, batch_size), delta=DELTA, sampling="full", n_steps=paper_recipe.N_STEPS
            )
            model = LatentDirichletAllocation(self.n_topics, vocabulary=self.vocabulary, privacy=plan, random_state=0)
            return model.fit(self.train)
        model = paper_recipe.fit(
            self.train,
            self.n_topics,
            self.sigma_of(method, sigma, batch_size),
            0,
            batch_size,
            self.n_steps(batch_size),
            each_step,
        )
        model.vocabulary = self.vocabulary
        return model


def figure2(arguments: list[str]) -> None:
    """Perplexity against ε, by mini-batch size."""
    options = parser_of("experiments figure2", __doc__).parse_args(arguments)
    folder, setting, rows = folder_of("figure2", options), Setting(options.quick), []
    jobs = list(_jobs_of_figure2(setting))
    for method, batch_size, sigma in tqdm(jobs, desc="fits", disable=None):
        perplexity = setting.fit(method, sigma, batch_size).perplexity(setting.test)
        epsilon = None if method == NONE else setting.epsilon(sigma, batch_size)
        row = {"method": method, "batch_size": batch_size, "sigma": sigma, "epsilon": epsilon, "perplexity": perplexity}
        rows.append(row | {"sigma_used": None if method == OURS else setting.sigma_of(method, sigma, batch_size)})
        tqdm.write(str(rows[-1]))
    lines = ["| method | S | σ | σ used | ε | held-out perplexity |", "|" + "---|" * 6]
    for row in rows:
        used, epsilon = (f"{row[name]:.2f}" if row[name] else "" for name in ("sigma_used", "epsilon"))
        lines.append(
            f"| {row['method']} | {row['batch_size']:,} | {row['sigma']:g} | {used} | {epsilon} | {row['perplexity']:.0f} |"
        )
    print(text := "\n".join(lines) + "\n")
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)
        _plot(rows, "batch_size", "epsilon", "ε at δ = 10⁻⁴", "S = {:,}", folder / "figure2.png")


def _jobs_of_figure2(setting: Setting) -> Iterator[tuple[str, int, float]]:
    for batch_size in setting.batches:
        yield NONE, batch_size, 0.0
        for method in (MOMENTS, STRONG, OURS):
            for sigma in setting.sigmas[:: 2 if method == OURS else 1]:
                yield method, batch_size, sigma


def figure3(arguments: list[str]) -> None:
    """Perplexity against the number of documents seen, σ = 1.24."""
    options = parser_of("experiments figure3", __doc__).parse_args(arguments)
    folder, setting, rows = folder_of("figure3", options), Setting(options.quick), []
    for batch_size in setting.batches:
        n_steps = setting.n_steps(batch_size)
        recorded = set(np.unique(np.geomspace(1, n_steps, N_POINTS).round().astype(int)).tolist())
        for method in (NONE, MOMENTS, STRONG):

            def record(t, model, method=method, batch_size=batch_size, recorded=recorded):
                if t in recorded:
                    row = {"method": method, "batch_size": batch_size, "documents": t * batch_size}
                    rows.append(row | {"perplexity": model.perplexity(setting.test)})

            setting.fit(method, SIGMA, batch_size, record)
            print(rows[-1], flush=True)
        final = setting.fit(OURS, SIGMA, batch_size).perplexity(setting.test)
        rows.append({"method": OURS, "batch_size": batch_size, "documents": n_steps * batch_size, "perplexity": final})
    lines = ["| method | S | documents seen | held-out perplexity |", "|" + "---|" * 4]
    lines += [
        f"| {row['method']} | {row['batch_size']:,} | {row['documents']:,} | {row['perplexity']:.0f} |" for row in rows
    ]
    print(text := "\n".join(lines) + "\n")
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)
        _plot(rows, "batch_size", "documents", "documents seen", "S = {:,}", folder / "figure3.png")


def _in_lines(words: list[str]) -> str:
    """A topic, in lines of at most 110 characters."""
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) > 108:
            lines.append("    ")
        lines[-1] += f"  {word}"
    return "\n".join(lines)


def table1(arguments: list[str]) -> None:
    """Topics of all methods, σ = 1.24 and S = 20,000."""
    options = parser_of("experiments table1", __doc__).parse_args(arguments)
    folder, setting, topics_of_methods = folder_of("table1", options), Setting(options.quick), {}
    batch_size = setting.batches[-1]
    for method in (NONE, MOMENTS, STRONG, OURS):
        model = setting.fit(method, SIGMA, batch_size)
        topics = model.last_posterior_.concentration
        largest = np.argsort(-topics.sum(axis=1))[:N_SHOWN]
        words = topics[largest] / topics[largest].sum(axis=1, keepdims=True)
        topics_of_methods[method] = [
            [(setting.vocabulary[v], float(row[v])) for v in np.argsort(-row, kind="stable")[:N_WORDS]] for row in words
        ]
    lines = []
    for method, topics in topics_of_methods.items():
        lines += [method, "-" * len(method)]
        lines += [_in_lines([f"{word} {probability:.4f}" for word, probability in topic]) for topic in topics] + [""]
    print(text := "\n".join(lines))
    if folder is not None:
        write_json(folder / "results.json", topics_of_methods)
        write_text(folder / "table1.txt", text)
        write_text(folder / "table1.html", _html(topics_of_methods))


def _html(topics_of_methods: dict[str, list]) -> str:
    """One table for each method, a column for each topic."""
    parts = []
    for method, topics in topics_of_methods.items():
        head = "".join(f"<th>topic {i + 1}</th>" for i in range(len(topics)))
        cells = "".join(
            "<tr>" + "".join(f"<td>{html.escape(t[j][0])} <small>{t[j][1]:.4f}</small></td>" for t in topics) + "</tr>"
            for j in range(len(topics[0]))
        )
        parts.append(f"<h2>{html.escape(method)}</h2><div class='wide'><table><tr>{head}</tr>{cells}</table></div>")
    style = "body{font-family:sans-serif;margin:2em}td,th{padding:.2em .6em;text-align:left}.wide{overflow-x:auto}"
    title = "Table 1: topics and the probabilities of their words"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{style}</style></head>'
        f"<body><h1>{title}</h1>{''.join(parts)}</body></html>\n"
    )


def _plot(rows: list[dict], panel: str, x: str, label: str, title: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    panels = sorted({row[panel] for row in rows})
    figure, axes = plt.subplots(
        1, len(panels), figsize=(3.6 * len(panels), 3.6), sharey=True, layout="constrained", squeeze=False
    )
    for value, ax in zip(panels, axes[0], strict=True):
        for method, style in ((MOMENTS, "o-"), (STRONG, "s--"), (NONE, "k:"), (OURS, "*-")):
            chosen = [row for row in rows if row[panel] == value and row["method"] == method]
            if not chosen:
                continue
            if len(chosen) == 1:
                ax.axhline(
                    chosen[0]["perplexity"],
                    color="k" if method == NONE else "C2",
                    linestyle=":",
                    label=f"{method}, at the end" if x == "documents" else method,
                )
                continue
            ax.plot([row[x] for row in chosen], [row["perplexity"] for row in chosen], style, label=method)
            if method == MOMENTS and x == "epsilon":
                unproved = [row for row in chosen if 16 * row["sigma"] * row[panel] >= N_PAPER]
                ax.plot([row[x] for row in unproved], [row["perplexity"] for row in unproved], "C6o", ms=12, mfc="none")
        ax.set(title=title.format(value), xlabel=label, xscale="log" if x == "documents" else "linear")
        ax.xaxis.set_minor_formatter(NullFormatter())
    axes[0, 0].set_ylabel("held-out perplexity")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)
