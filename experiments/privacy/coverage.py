"""``python -m experiments coverage``: how often credible intervals of private fits hold the truth.

Parameters are drawn from the model's own prior (or, if marked so, from elsewhere), data are simulated, and private models are
fitted. Do intervals at four levels hold the true parameters? Compared are intervals of the last step's posterior, which takes
noisy totals at face value, of ``posterior_``, and of a fit without privacy. ``coverage_simulate.py`` defines the parameters of
each model, ``coverage_oracle.py`` the knowledge of the oracle.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tqdm.auto import tqdm

from experiments.options import folder_of, parser_of
from experiments.privacy.coverage_simulate import MODELS, Model
from experiments.results import read_json, write_json, write_text
from vips import PrivacyPlan

LEVELS = (0.5, 0.8, 0.9, 0.95)
DELTA = 1e-5
N_BASELINES = 5  # fits in a cell that are compared with a fit without privacy and an oracle
QUICK_CELL, QUICK_FITS, QUICK_BASELINES = (500, 4.0), 0.6, 1


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments coverage", __doc__)
    parser.add_argument(
        "--fits",
        type=float,
        default=100.0,
        help="fits in each cell of regression; 10 times as many of proportions, 0.1 of topics, 0.4 of classes and networks",
    )
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=list(MODELS), help="run only these; keep results of the others"
    )
    parser.add_argument("--records", type=int, nargs="+", help="run only cells of so many records")
    parser.add_argument("--epsilons", type=float, nargs="+", help="run only cells of these ε")
    options = parser.parse_args(arguments)
    folder = folder_of("coverage", options)
    path = None if folder is None else folder / "results.json"
    known = read_json(path) if path is not None and path.exists() else []
    if options.quick:
        options.fits = QUICK_FITS
        options.models = [
            name for name in options.models if not MODELS[name].is_misspecified and "rows" not in MODELS[name].arguments
        ]
    chosen = {name: _cells(MODELS[name], options) for name in options.models}
    rows = [row for row in known if (row["n_records"], row["epsilon"]) not in chosen.get(row["model"], [])]
    for name, cells in chosen.items():
        model = replace(MODELS[name], **MODELS[name].quick) if options.quick else MODELS[name]
        n_fits = max(1 if options.quick else 2, round(options.fits * model.fits))
        for n_records, epsilon in tqdm(cells, desc=name, disable=None):
            rows.append({"model": name, "n_records": n_records, "epsilon": epsilon, "fits": n_fits})
            rows[-1] |= cell(model, n_records, epsilon, n_fits, QUICK_BASELINES if options.quick else N_BASELINES)
            tqdm.write(line(rows[-1]))
        rows.sort(key=lambda row: (list(MODELS).index(row["model"]), row["n_records"], row["epsilon"]))
        if path is not None and (name == options.models[-1] or not options.quick):
            write_json(path, rows)
            write_text(path.with_suffix(".md"), table(rows))
            plot(rows, path.with_name("coverage.png"))
    print(table(rows))


def _cells(model: Model, options) -> list[tuple[int, float]]:
    """Numbers of records and ε to run."""
    if options.quick:
        return [QUICK_CELL]
    return [
        (n, epsilon)
        for n in model.n_records
        for epsilon in model.epsilons
        if n in (options.records or (n,)) and epsilon in (options.epsilons or (epsilon,))
    ]


def cell(model: Model, n_records: int, epsilon: float, n_fits: int, n_baselines: int) -> dict:
    """Coverage by level, its standard error over fits, median width at 95 %, and mean error of the middles of intervals, for
    each kind of posterior."""
    plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, **model.plan)
    rng = np.random.default_rng([n_records, int(10 * epsilon)])
    held: dict[str, list] = {}
    widths: dict[str, list] = {}
    misses: dict[str, list] = {}
    for fit in range(n_fits):
        simulated = model.simulate(n_records, plan, rng, fit < n_baselines, **model.arguments)
        truth = simulated.truth
        if not len(truth):  # the fit did not find the truth's topics or hidden units
            continue
        for name, interval in simulated.asked.items():
            bounds = [interval(level) for level in LEVELS]
            held.setdefault(name, []).append([((low < truth) & (truth < high)).mean() for low, high in bounds])
            widths.setdefault(name, []).append(np.mean(bounds[-1][1] - bounds[-1][0]))
            misses.setdefault(name, []).append(np.abs(np.mean(bounds[0], axis=0) - truth).mean())
        if simulated.oracle is not None:
            widths.setdefault("oracle", []).append(simulated.oracle)
            widths.setdefault("noise-aware ÷ oracle", []).append(widths["noise-aware"][-1] / simulated.oracle)
    return {
        "coverage": {name: np.mean(values, axis=0).tolist() for name, values in held.items()},
        "error": {name: (np.std(values, axis=0) / np.sqrt(len(values))).tolist() for name, values in held.items()},
        "width": {name: float(np.median(values)) for name, values in widths.items()},
        "misses": {name: float(np.nanmean(values)) for name, values in misses.items()},
        "found": len(held.get("noise-aware", [])),
    }


def line(row: dict) -> str:
    """One cell of the table."""
    coverage, width = row["coverage"], row["width"]

    def at_95(name: str) -> str:
        return f"{coverage[name][-1]:.3f}" if name in coverage else ""

    error = f" ± {row['error']['noise-aware'][-1]:.3f}" if "noise-aware" in coverage else ""
    others = " / ".join(f"{value:.2f}" for value in coverage.get("noise-aware", [])[:-1])
    names = "naive", "noise-aware", "without privacy"
    cells = [row["model"], f"{row['n_records']:,}", f"{row['epsilon']:g}", at_95("naive"), at_95("noise-aware") + error]
    cells += [others, at_95("without privacy"), *(f"{width[name]:.3g}" if name in width else "" for name in names)]
    ratio = "noise-aware ÷ oracle"
    misses = row["misses"]
    of_misses = f"{misses['noise-aware'] / misses['naive']:.2f}" if "naive" in misses else ""
    cells += [f"{width[ratio]:.2f}" if ratio in width else "", of_misses, f"{row['found']} of {row['fits']}"]
    return "| " + " | ".join(cells) + " |"


def table(rows: list[dict]) -> str:
    """All cells."""
    heads = [
        "model", "records", "ε", "naive 95 %", "noise-aware 95 %", "50 / 80 / 90 %", "without privacy 95 %", "width, naive",
        "noise-aware", "without privacy", "noise-aware ÷ oracle", "error ÷ naive", "fits with intervals",
    ]  # fmt: skip
    return "\n".join(["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|", *map(line, rows)]) + "\n"


def plot(rows: list[dict], path) -> None:
    """Coverage against level, a panel for each model that is well specified; one line per cell; of naive ones its end."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    models = [
        name for name, model in MODELS.items() if not model.is_misspecified and name in {r["model"] for r in rows}
    ]
    figure, panels = plt.subplots(1, len(models), figsize=(3.2 * len(models), 3.8), sharey=True, squeeze=False)
    colours = {"naive": "tab:red", "noise-aware": "tab:blue"}
    for panel, model in zip(panels[0], models, strict=True):
        panel.plot([0.0, 1.0], [0.0, 1.0], color="0.6", linewidth=0.8)
        for row in (row for row in rows if row["model"] == model):
            for name in colours.keys() & row["coverage"].keys():
                first = len(LEVELS) - 1 if name == "naive" else 0
                panel.plot(LEVELS[first:], row["coverage"][name][first:], color=colours[name], alpha=0.6, marker=".")
        panel.set(title=model, xlabel="level of the interval", xlim=(0.45, 1.0), ylim=(0.0, 1.0))
    panels[0, 0].set_ylabel("share that hold the truth")
    handles = [plt.Line2D([], [], color=colour, label=name) for name, colour in colours.items()]
    panels[0, 0].legend(handles=handles, loc="upper left")
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
