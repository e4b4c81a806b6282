"""Five splits, every method at every ε; a table and the picture of Figure 5."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from tqdm import tqdm

from experiments.options import fill, folder_of, parser_of
from experiments.regression.methods import Method, TunedMethod, auc
from experiments.results import as_table, write_json, write_table

__all__ = ["compare", "options_for", "plot", "split", "table", "unit_rows"]

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0)
QUICK_RECORDS, QUICK_CANDIDATES = 1000, 2


def options_for(name: str, arguments: list[str], description: str, *shared: str, **flags: str) -> argparse.Namespace:
    """The common options of the experiments, and further ``flags`` with their help; ``folder`` for results, or None.

    A seed decides which records a split fits and which it scores.
    """
    parser = parser_of(f"experiments {name}", description, "epsilons", "seeds", "format", *shared)
    parser.add_argument(
        "--diffprivlib", metavar="PYTHON", help="interpreter that has diffprivlib; see experiments/regression/erm.py"
    )
    parser.add_argument(
        "--methods", nargs="+", metavar="NAME", help="only these methods: non-private, ours, …; all by default"
    )
    for flag, text in flags.items():
        parser.add_argument(f"--{flag}", action="store_true", help=text)
    options = parser.parse_args(arguments)
    fill(options, {"epsilons": EPSILONS, "seeds": 5}, {"epsilons": (1.0,), "seeds": 1})
    options.folder = folder_of(name, options)
    return options


def split(n_records: int, s: int) -> tuple[np.ndarray, np.ndarray]:
    """Training and test records of split s."""
    order = np.random.default_rng(100 + s).permutation(n_records)
    n_train = int(0.8 * n_records)
    return order[:n_train], order[n_train:]


def unit_rows(X: sp.csr_array, n_active: int) -> sp.csr_array:
    """Rows ÷ √n_active, a declared number; rows that are still longer than 1 are scaled down to 1. Each row by itself."""
    X = sp.csr_array(X, dtype=np.float64) / np.sqrt(n_active)
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    return sp.csr_array(sp.diags_array(1.0 / np.maximum(norms, 1.0)) @ X)


def compare(
    X, y, methods: Callable[[object, np.ndarray], Iterable[Method]], delta: float, name: str, options
) -> list[dict]:
    """Fit and score everything; write ``results.json``, ``results.md`` and ``figure5.png``. Returns the rows.

    ``methods`` creates the methods from the training part of split 0, on which some choose their settings. A quick run uses
    few records, and chooses among few settings.
    """
    y = np.asarray(y).astype(int)
    if options.quick:
        X, y = X[:QUICK_RECORDS], y[:QUICK_RECORDS]
    title = f"{name}: {len(y):,} records, {X.shape[1]:,} features"
    parts = [split(len(y), s) for s in range(options.seeds)]
    first = parts[0][0]
    rows = []
    compared = [m for m in methods(X[first], y[first]) if m.name in (options.methods or [m.name])]
    for method in compared if options.quick else ():
        if isinstance(method, TunedMethod):
            method.candidates = method.candidates[:QUICK_CANDIDATES]
    for method in tqdm(compared, desc="methods", disable=None):
        for epsilon in options.epsilons if method.private else [None]:
            row = {"method": method.name, "note": method.note, "epsilon": epsilon}
            row |= {"settings": method.settings_at(epsilon), "auc": [], "seconds": []}
            for s, (train, test) in enumerate(parts[: method.splits]):
                start = time.perf_counter()
                score = method.fit(X[train], y[train], epsilon=epsilon, seed=1000 + s)
                row["seconds"].append(time.perf_counter() - start)
                row["auc"].append(auc(y[test], score(X[test])))
            rows.append(row)
            tqdm.write(
                f"{method.name:38s} ε = {epsilon!s:5s} {_cell(row)}  {np.median(row['seconds']):.1f} s a fit  {row['settings']}"
            )
            if options.folder is not None:
                _write(options.folder, rows, delta, title, options.format)
    if options.format != "markdown":
        print(table(rows, options.format))
    return rows


def _write(folder: Path, rows: list[dict], delta: float, title: str, form: str) -> None:
    write_json(folder / "results.json", {"title": title, "delta": delta, "rows": rows})
    note = f"{title}; δ = {delta:g}. AUC, mean ± standard deviation over splits."
    write_table(folder, "results", table(rows, form, note), form)
    plot(rows, folder / "figure5.png", title)


def _cell(row: dict) -> str:
    if len(row["auc"]) == 1:
        return f"{row['auc'][0]:.4f} (one split)"
    return f"{np.mean(row['auc']):.4f} ± {np.std(row['auc'], ddof=1):.4f}"


def _label(row: dict) -> str:
    return row["method"] + (f" ({row['note']})" if row["note"] else "")


def _by_method(rows: list[dict]) -> dict[str, list[dict]]:
    grouped: dict[str, list[dict]] = {}
    for row in rows:
        grouped.setdefault(_label(row), []).append(row)
    return grouped


def table(rows: list[dict], form: str = "markdown", note: str = "") -> str:
    """A line for each method, a column for each ε."""
    epsilons = sorted({row["epsilon"] for row in rows} - {None})
    heads = [
        "method",
        *(f"ε = {epsilon:g}" for epsilon in epsilons),
        "without noise",
        "splits",
        "seconds a fit",
        "settings",
    ]
    lines = []
    for label, fits in _by_method(rows).items():
        cells = {row["epsilon"]: _cell(row) for row in fits}
        seconds = np.median(np.concatenate([row["seconds"] for row in fits]))
        settings = {row["settings"] for row in fits}
        settings = settings.pop() if len(settings) == 1 else "by ε: results.json"
        values = [*(cells.get(key, "") for key in [*epsilons, None]), str(len(fits[0]["auc"])), f"{seconds:.1f}"]
        lines.append([label, *values, settings])
    return as_table(heads, lines, form, note)


def plot(rows: list[dict], path, title: str) -> None:
    """AUC against ε: Figure 5 of the paper."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 5.6), layout="constrained")
    across = iter((("black", ":"), ("gray", "-."), ("silver", "--")))  # without noise
    epsilons = sorted({row["epsilon"] for row in rows} - {None})
    for label, fits in _by_method(rows).items():
        mean = np.array([np.mean(row["auc"]) for row in fits])
        if fits[0]["epsilon"] is None:
            color, style = next(across)
            axes.axhline(mean[0], color=color, linestyle=style, label=f"{label}: {mean[0]:.3f}")
            continue
        spread = np.array([np.std(row["auc"], ddof=1) if len(row["auc"]) > 1 else 0.0 for row in fits])
        style = "o-" if label.startswith("ours") else "s--"
        axes.errorbar([row["epsilon"] for row in fits], mean, spread, fmt=style, capsize=3, label=label)
    axes.set(xscale="log", xlabel="ε", ylabel="AUC on held-out records", title=title)
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)
