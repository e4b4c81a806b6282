"""``python -m experiments counts``: do intervals of rate ratios hold, with exposures, and with a wrong dispersion?

Counts of mean 1 or 3 for a middle exposure, of true dispersion 2; exposures differ by a factor of up to 20 and depend on a
column. δ = 1e-6, rows of norm 1 at most, and `max_count` is 20 times the mean. Coverage and median length of 95 % intervals of
two slopes and the intercept, over 25 tables each.
"""

from __future__ import annotations

import warnings

import numpy as np
from tqdm.auto import tqdm

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import BayesianNegativeBinomialRegression, PrivacyBudget, PrivacyWarning

TRUE_DISPERSION, SLOPES, MIDDLE, BOUNDS = 2.0, (1.0, -0.5), 50.0, (10.0, 250.0)
MEANS, DECLARED, SIZES, EPSILONS, N_TABLES = (1.0, 3.0), (2.0, 10.0), (5_000, 20_000), (1.0, 4.0), 25


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments counts", __doc__)
    parser.add_argument("--tables", type=int, default=N_TABLES, help="of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the tables; noise is never seeded")
    options = parser.parse_args(arguments)
    folder, rng = folder_of("counts", options), np.random.default_rng(options.seed)
    n_tables, sizes = (1, (1_000,)) if options.quick else (options.tables, SIZES)
    kinds = [(m, r, n, epsilon) for m in MEANS for r in DECLARED for n in sizes for epsilon in EPSILONS]
    names, rows = ("mean", "dispersion", "records", "epsilon"), []
    for kind in tqdm(kinds, disable=None):
        rows.append(dict(zip(names, kind, strict=True)) | repeated(*kind, n_tables, rng))
    print(text := as_text(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def drawn(mean: float, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, counts and exposures."""
    X = rng.uniform(-1.0, 1.0, (n, 2)) / np.sqrt(2.0)
    exposure = MIDDLE * np.exp(np.clip(0.5 * X[:, 0] + rng.normal(0.0, 0.5, n), -1.5, 1.5))
    means = exposure / MIDDLE * mean * np.exp(X @ SLOPES)
    return X, rng.poisson(means * rng.gamma(TRUE_DISPERSION, 1.0 / TRUE_DISPERSION, n)), exposure


def repeated(mean: float, dispersion: float, n: int, epsilon: float, n_tables: int, rng: np.random.Generator) -> dict:
    """Coverage and median lengths."""
    truth, lower, upper = np.array([*SLOPES, np.log(mean / MIDDLE)]), *np.empty((2, n_tables, 3))
    model = BayesianNegativeBinomialRegression(
        dispersion=dispersion,
        max_count=int(20 * mean),
        exposure_bounds=BOUNDS,
        max_norm=1.0,
        privacy=PrivacyBudget(epsilon, 1e-6),
    )
    for table in range(n_tables):
        X, y, exposure = drawn(mean, n, rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)  # of tables in which nothing stands out
            summary = model.fit(X, y, exposure=exposure).summary()
        lower[table], upper[table] = summary["lower"], summary["upper"]
    holds = (lower <= truth) & (truth <= upper)
    return {"coverage": holds.mean(axis=0).tolist(), "length": np.median(upper - lower, axis=0).tolist()}


def as_text(rows: list[dict]) -> str:
    lines = [
        "| mean | declared dispersion | records | ε | coverage: slopes | intercept | length: slopes | intercept |",
        "|" + "---|" * 8,
    ]
    for row in rows:
        (a, b, c), (d, e, f) = row["coverage"], row["length"]
        told = f"{a:.2f}, {b:.2f} | {c:.2f} | {d:.2f}, {e:.2f} | {f:.2f}"
        lines.append(f"| {row['mean']:g} | {row['dispersion']:g} | {row['records']:,} | {row['epsilon']:g} | {told} |")
    return "\n".join(lines) + "\n"
