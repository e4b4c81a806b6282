"""``python -m experiments sbn_mnist``: Figure 7 of the paper, a table at our own settings, and pictures.

Figure 7 of the paper on MNIST (pixel above 0), and the same model at our own settings. Scores are of hidden pixels.

Fitted: the 60,000 training images. Scored: test images, which no choice used; defaults were chosen within the training images
(``settings.py``). A random half of every test image is hidden, and the network predicts it from the other half.
The paper's own measure, the share of *observed* pixels that are reconstructed, is shown for comparison only: it needs
no learning (the 3×3 tiles of ``tiles.py`` do well without data, and the identity is perfect).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

from experiments.belief_networks import figures, paper_recipe, tiles
from experiments.belief_networks.scoring import Scored, majority, score
from experiments.options import fill, folder_of, parser_of
from experiments.results import as_table, read_json, spread, write_json, write_table
from experiments.stand_ins import mnist
from vips import PrivacyPlan, SigmoidBeliefNetwork

DELTA = 1e-4
BATCH_SIZES, N_HIDDEN = (400, 800, 1600, 3200), 100  # the paper's
N_FIGURE_IMAGES = 2000  # test images for hidden pixels; the table uses all
EPSILONS, SAMPLING_RATE, N_STEPS = (0.5, 1.0, 2.35), 0.5, 20
PARTS = ("table", "figure7")
QUICK_TRAINING, QUICK_TEST, QUICK_HIDDEN, QUICK_BATCH = 500, 40, 10, 100

Fit = Callable[[np.ndarray, int], object]  # images and seed; gives a model


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments sbn_mnist", __doc__, "sizes", "seeds", "data", "format")
    parser.add_argument("--part", choices=PARTS, help="run one of the two parts; keep the other's results")
    parser.add_argument("--recipe-seeds", type=int, default=1, help="fits of the paper's recipe: minutes each")
    parser.add_argument("--table-seeds", type=int, default=3, help="fits of every line of the table")
    parser.add_argument("--methods", default="", help="run only lines with this in their name; keep the others")
    options = parser.parse_args(arguments)
    fill(options, {"sizes": BATCH_SIZES, "seeds": 10}, {"sizes": BATCH_SIZES[-1:], "seeds": 1})
    if options.quick:
        options.recipe_seeds = options.table_seeds = 1
    folder = folder_of("sbn_mnist", options)
    images = mnist(options.quick and not options.data)
    training, test = images.data, images.test_data
    if options.quick:
        training, test = training[:QUICK_TRAINING], test[:QUICK_TEST]
    for part in [options.part] if options.part else PARTS:
        run_part(part, training, test, options, folder, "Generated images" if images.generated else "MNIST")
    print("Nothing is written." if folder is None else f"Written: {folder}")


def run_part(part: str, training: np.ndarray, test: np.ndarray, options, folder: Path | None, data: str) -> None:
    """Fit and score the lines of one part; write each result at once."""
    lines = list((table_lines if part == "table" else figure7_lines)(options))
    scored = Scored(test, N_FIGURE_IMAGES if part == "figure7" else None)
    kept = {} if folder is None else {key(row): row for row in read(folder).get(part, [])}
    rows = [kept.pop(key(row), row) for row, *_ in lines]
    rows = unlearnt(training, scored) + [row for row in kept.values() if row["seconds"]] + rows
    lines = [line for line in lines if options.methods in line[0]["method"]]
    if part == "figure7":
        lines = [line for line in lines if line[0]["batch_size"] in options.sizes]
    models: dict[str, object] = {}  # the first model of every method
    with tqdm(total=sum(seeds for *_, seeds in lines), desc=part, disable=None) as progress:
        for row, fit, seeds in lines:
            for model in fits(row, fit, seeds, training, scored):
                models.setdefault(row["method"], model)
                progress.update()
            rows = [row if key(old) == key(row) else old for old in rows]
            tqdm.write(f"{row['method']}, {row.get('batch_size', '')}: {spread(row['hidden'], 4)}")
            if folder is not None:
                write(folder, part, rows, data, options.format)
    if options.quick or options.format != "markdown":
        print(table(part, rows, data, options.format))
    if folder is not None:
        draw(folder, part, rows, models, scored, data)


def key(row: dict) -> tuple:
    return row["method"], row.get("batch_size")


def unlearnt(training: np.ndarray, scored: Scored) -> list[dict]:
    """Scores without hidden units, and without learning."""
    predictions = {"majority value of each pixel": majority(training), "3×3 tiles, no learning": tiles.predict}
    rows = []
    for name, predict in predictions.items():
        values = score(predict, scored, 0)
        rows.append({"method": name, "seconds": []} | {key: [value] for key, value in values.items()})
    return rows


def fits(row: dict, fit: Fit, seeds: int, training: np.ndarray, scored: Scored) -> Iterator[object]:
    """Models of a line; their results are entered in ``row``."""
    row |= {"hidden": [], "observed": [], "seconds": []}
    for seed in range(seeds):
        start = time.perf_counter()
        model = fit(training, seed)
        row["seconds"].append(time.perf_counter() - start)
        for key, value in score(model.reconstruct, scored, seed).items():
            row[key].append(value)
        yield model


def ours(n_hidden: int, plan: PrivacyPlan) -> Fit:
    """All other settings at their defaults."""
    return lambda images, seed: SigmoidBeliefNetwork(n_hidden, privacy=plan, random_state=seed).fit(images)


def recipe(n_hidden: int, batch_size: int, sigma: float) -> Fit:
    return lambda images, seed: paper_recipe.fit(images, n_hidden, batch_size, sigma, seed)


def figure7_lines(options) -> Iterator[tuple[dict, Fit, int]]:
    """(row, fit, number of seeds): the paper's batch sizes, noise, number of hidden units and claimed ε."""
    n_hidden = QUICK_HIDDEN if options.quick else N_HIDDEN
    for size in options.sizes if options.quick else sorted({*BATCH_SIZES, *options.sizes}):
        batch_size = QUICK_BATCH if options.quick else size
        rate, n_steps = size / paper_recipe.N_CLAIMED, 60_000 // size
        claimed = paper_recipe.claimed_epsilon(size, n_steps, DELTA)
        plans = {
            "ours, without noise": PrivacyPlan.non_private(sampling_rate=rate, n_steps=n_steps),
            "ours, the paper's σ": PrivacyPlan(noise_multiplier=1.0, sampling_rate=rate, n_steps=n_steps),
        }
        if not options.quick:  # the search for this noise takes as long as a whole quick run
            plans["ours, the paper's ε"] = PrivacyPlan.from_epsilon(
                epsilon=claimed, delta=DELTA, sampling_rate=rate, n_steps=n_steps
            )
        shared = {"batch_size": size, "n_steps": n_steps}
        for method, plan in plans.items():
            yield {"method": method} | shared | privacy(plan), ours(n_hidden, plan), options.seeds
        strong = paper_recipe.sigma_by_strong_composition(claimed, DELTA, rate, n_steps)
        for method, sigma in (("moments", 1.0), ("strong composition", strong)):
            row = {"method": f"paper's recipe, {method}", "noise_multiplier": sigma, "claimed": claimed}
            yield row | shared, recipe(n_hidden, batch_size, sigma), options.recipe_seeds


def table_lines(options) -> Iterator[tuple[dict, Fit, int]]:
    """(row, fit, number of seeds): half the images in every step, and the paper's recipe at its largest batches."""
    widths, epsilons, size = (30, N_HIDDEN), EPSILONS, BATCH_SIZES[-1]
    batch_size, n_plain = size, 60
    if options.quick:
        widths, epsilons, batch_size, n_plain = (QUICK_HIDDEN,), EPSILONS[:1], QUICK_BATCH, 10
    largest, n_steps = widths[-1], 60_000 // size
    plan = PrivacyPlan.non_private(sampling_rate=0.1, n_steps=n_plain)
    yield {"method": f"non-private, K = {largest}", "n_steps": plan.n_steps}, ours(largest, plan), options.table_seeds
    shared = {"n_steps": n_steps, "batch_size": size, "claimed": paper_recipe.claimed_epsilon(size, n_steps, DELTA)}
    # a published version of its code divides the noise in means over S images by 60,000, the number of all images
    for note, sigma in (("", 1.0), (", noise ÷ N as in an early version", size / 60_000)):
        row = {"method": f"paper's recipe, K = {largest}{note}", "noise_multiplier": sigma} | shared
        yield row, recipe(largest, batch_size, sigma), options.recipe_seeds
    for n_hidden in widths:
        for epsilon in epsilons:
            plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling_rate=SAMPLING_RATE, n_steps=N_STEPS)
            row = {"method": f"ours, ε = {epsilon:g}, K = {n_hidden}", "n_steps": N_STEPS} | privacy(plan)
            yield row, ours(n_hidden, plan), options.table_seeds


def privacy(plan: PrivacyPlan) -> dict:
    return {"noise_multiplier": plan.noise_multiplier, "epsilon": plan.epsilon(DELTA)} if plan.is_private else {}


def read(folder: Path) -> dict:
    path = folder / "results.json"
    return read_json(path) if path.exists() else {}


def write(folder: Path, part: str, rows: list[dict], data: str, form: str) -> None:
    """Write the results of one part so far, beside those of the other part."""
    rows = [row for row in rows if "hidden" in row]
    write_json(folder / "results.json", read(folder) | {"delta": DELTA, part: rows})
    write_table(folder, part, table(part, rows, data, form), form)


def draw(folder: Path, part: str, rows: list[dict], models: dict[str, object], scored: Scored, data: str) -> None:
    """Draw Figure 7 from all known lines; the other picture only if this run fitted its models."""
    if part == "figure7":
        figures.plot_figure7([row for row in rows if "hidden" in row], data, folder / "figure7.png")
        return
    private = "ours, ε = 1, K = 30"
    names = f"non-private, K = {N_HIDDEN}", private, f"paper's recipe, K = {N_HIDDEN}"
    if models.keys() >= set(names):
        figures.draw_images({name: models[name] for name in names}, private, scored, folder / "images.png")


def table(part: str, rows: list[dict], data: str, form: str) -> str:
    """A line for each row. ε is by exact accounting; the paper's recipe claims an ε without a guarantee."""
    note = f"{data}, pixel above 0; δ = {DELTA:g}. Shares of pixels of test images, mean (range over fits). "
    note += {
        "table": "Hidden pixels of all test images, inferred from the other half.",
        "figure7": f"One pass, K = {N_HIDDEN}: Figure 7. Hidden pixels of {N_FIGURE_IMAGES} test images; observed pixels of "
        "100 for each seed, the paper's measure, which needs no learning.",
    }[part]
    heads = [
        "method",
        "S",
        "steps",
        "noise multiplier",
        "ε",
        "hidden pixels",
        "observed pixels",
        "fits",
        "seconds a fit",
    ]
    lines = []
    for row in rows:
        epsilon = f"{row['epsilon']:.2f}" if "epsilon" in row else ""
        if "claimed" in row:
            epsilon = f"claims {row['claimed']:.2f} (no guarantee)"
        sigma = f"{row['noise_multiplier']:.2f}" if "noise_multiplier" in row else ""
        seconds = f"{np.median(row['seconds']):.0f}" if row["seconds"] else ""
        cells = [row["method"], row.get("batch_size", ""), row.get("n_steps", ""), sigma, epsilon]
        lines.append([*cells, spread(row["hidden"], 4), spread(row["observed"], 4), len(row["seconds"]) or "", seconds])
    return as_table(heads, lines, form, note)
