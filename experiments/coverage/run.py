"""``python -m experiments coverage``: how often credible intervals of private fits hold the truth.

Data are simulated, parameters drawn from the model's own prior (and, marked so, from elsewhere), fits are private, and
intervals at four levels are asked for the true parameters: those of ``posterior_``, which takes noisy totals at face value,
and those of ``noise_aware_posterior_``. Widths are beside those of an exact posterior without any privacy. Logistic regression
is fitted with ``clip_norm=model.max_norm()``: a clip that binds biases slopes, whatever the noise.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from tqdm.auto import tqdm

from experiments.results import results_folder, write_json, write_text
from vips import BayesianLogisticRegression, DirichletMultinomial, PrivacyPlan

LEVELS = (0.5, 0.8, 0.9, 0.95)
CELLS = [(n, epsilon) for n in (500, 5_000, 50_000) for epsilon in (0.1, 0.5, 1.0, 4.0)]
DELTA, ALPHA, N_FEATURES, N_CATEGORIES = 1e-5, 0.1, 5, 8
N_MANY = 400_000  # records that a misspecified model's best coefficients are taken from


def logistic(n_records: int, plan: PrivacyPlan | None, rng: np.random.Generator, misspecified: bool = False):
    """Truth and fitted model. Misspecified: a tenth of the labels are coins; the truth is what many records would give."""
    w, intercept = rng.normal(size=N_FEATURES) / np.sqrt(ALPHA), rng.normal()

    def table(n: int) -> tuple[np.ndarray, np.ndarray]:
        X = rng.normal(size=(n, N_FEATURES))
        X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
        y = rng.random(n) < expit(X @ w + intercept)
        return X, np.where(rng.random(n) < 0.1, rng.random(n) < 0.5, y) if misspecified else y

    X, y = table(n_records)
    if misspecified:
        w = LogisticRegression(C=np.inf).fit(*table(N_MANY)).coef_[0]
    model = BayesianLogisticRegression(privacy=plan, feature_norm=1.0, prior=ALPHA)
    if plan is None:
        return w, model.fit(X, y.astype(int)).laplace_posterior(X, y.astype(int))
    model.privacy = replace(plan, clip_norm=model.max_norm())
    return w, model.fit(X, y.astype(int))


def proportions(n_records: int, plan: PrivacyPlan | None, rng: np.random.Generator, misspecified: bool = False):
    """Truth and fitted model. Misspecified: proportions fall like powers of ½, which the prior hardly expects."""
    theta = rng.dirichlet(np.ones(N_CATEGORIES))
    if misspecified:
        theta = 0.5 ** np.arange(N_CATEGORIES)
        theta /= theta.sum()
    X = np.eye(N_CATEGORIES)[rng.choice(N_CATEGORIES, n_records, p=theta)]
    model = DirichletMultinomial(privacy=plan).fit(X)
    return theta, model.posterior_ if plan is None else model


MODELS: dict[str, tuple[Callable, int, bool]] = {
    "logistic regression": (logistic, 20, False),
    "logistic regression, misspecified": (logistic, 20, True),
    "proportions": (proportions, 1, False),
    "proportions, misspecified": (proportions, 1, True),
}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments coverage", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--fits",
        type=int,
        default=40,
        help="fits in each cell of logistic regression; ten times as many of proportions",
    )
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=list(MODELS), help="only these; others stay as they are"
    )
    parser.add_argument("--quick", action="store_true", help="two small cells; writes nothing")
    options = parser.parse_args(arguments)
    path = results_folder("coverage") / "results.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() and not options.quick else []
    rows = [row for row in known if row["model"] not in options.models]
    for name in options.models:
        simulate, n_steps, misspecified = MODELS[name]
        cells = [(500, 1.0), (2000, 4.0)] if options.quick else CELLS
        if misspecified and not options.quick:
            cells = [cell for cell in cells if cell[0] == 5_000]
        n_fits = options.fits * (1 if simulate is logistic else 10)
        for n_records, epsilon in tqdm(cells, desc=name, disable=None):
            plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling_rate=1.0, n_steps=n_steps)
            rng = np.random.default_rng([n_records, int(10 * epsilon)])
            row = {"model": name, "n_records": n_records, "epsilon": epsilon, "fits": n_fits}
            simulate_one = partial(simulate, n_records, rng=rng, misspecified=misspecified)
            rows.append(row | cell(simulate_one, plan, n_fits))
            tqdm.write(line(rows[-1]))
    rows.sort(key=lambda row: list(MODELS).index(row["model"]))
    text = table(rows)
    print(text)
    if not options.quick:
        write_json(path, rows)
        write_text(path.with_suffix(".md"), text)
        plot(rows, path.with_name("coverage.png"))


def cell(simulate: Callable, plan: PrivacyPlan, n_fits: int) -> dict:
    """Coverage by level and median width at 95 % of the two posteriors; and the width without privacy."""
    held: dict[str, list] = {"naive": [], "noise-aware": []}
    widths: dict[str, list] = {"naive": [], "noise-aware": [], "exact": []}
    for fit in range(n_fits):
        truth, model = simulate(plan=plan)
        for name, posterior in (("naive", model.posterior_), ("noise-aware", model.noise_aware_posterior_)):
            intervals = [[side[..., : len(truth)] for side in posterior.interval(level)] for level in LEVELS]
            held[name].append([((low < truth) & (truth < high)).mean() for low, high in intervals])
            widths[name].append(np.mean(intervals[-1][1] - intervals[-1][0]))
        if fit < 5:
            truth, exact = simulate(plan=None)
            low, high = exact.interval(LEVELS[-1])
            widths["exact"].append(np.mean((high - low)[: len(truth)]))
    return {
        "coverage": {name: np.mean(values, axis=0).tolist() for name, values in held.items()},
        "error": {name: (np.std(values, axis=0) / np.sqrt(n_fits)).tolist() for name, values in held.items()},
        "width": {name: float(np.median(values)) for name, values in widths.items()},
    }


def line(row: dict) -> str:
    """One cell of the table."""
    coverage, error, width = row["coverage"], row["error"]["noise-aware"][-1], row["width"]
    shown = [f"{value:.3f}" for value in coverage["noise-aware"][:-1]]
    return (
        f"| {row['model']} | {row['n_records']:,} | {row['epsilon']:g} | {coverage['naive'][-1]:.3f} "
        f"| {coverage['noise-aware'][-1]:.3f} ± {error:.3f} | {' / '.join(shown)} "
        f"| {width['naive']:.3g} | {width['noise-aware']:.3g} | {width['exact']:.3g} |"
    )


def table(rows: list[dict]) -> str:
    """All cells."""
    heads = [
        "model", "records", "ε", "naive 95 %", "noise-aware 95 %", "noise-aware 50 / 80 / 90 %", "width, naive", "noise-aware",
        "without privacy",
    ]  # fmt: skip
    return "\n".join(["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|", *map(line, rows)]) + "\n"


def plot(rows: list[dict], path) -> None:
    """Coverage against level, a panel for each model that is well specified; one line per cell."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    models = [name for name in MODELS if not name.endswith("misspecified")]
    figure, panels = plt.subplots(1, len(models), figsize=(9, 4), sharey=True, layout="constrained")
    for panel, model in zip(panels, models, strict=True):
        panel.plot([0.0, 1.0], [0.0, 1.0], color="0.6", linewidth=0.8)
        for row in (row for row in rows if row["model"] == model):
            for name, colour in (("naive", "tab:red"), ("noise-aware", "tab:blue")):
                panel.plot(LEVELS, row["coverage"][name], color=colour, alpha=0.6, marker=".")
        panel.set(title=model, xlabel="level of the interval", xlim=(0.45, 1.0), ylim=(0.0, 1.0))
    panels[0].set_ylabel("share that hold the truth")
    colours = (("naive", "tab:red"), ("noise-aware", "tab:blue"))
    handles = [plt.Line2D([], [], color=colour, label=name) for name, colour in colours]
    panels[0].legend(handles=handles, loc="upper left")
    figure.savefig(path, dpi=130)
    plt.close(figure)
