"""``python -m experiments spatial``: rates of areas, private and not: do intervals hold, and what does the map add?

120 areas at random places, six of them without anybody; persons with exposures from ½ to 2 and negative binomial counts of
dispersion 2. The true log rates are a Gaussian field with a kernel exp(-distance / 0.3), which no fitted prior equals, or
independent, with standard deviation ½. δ = 1e-6, `max_count` is 15. Coverage of 95 % intervals of the rates of all areas, of
those that are not hidden, of those without anybody, and of all under the model without neighbours; the correlation of true and
fitted log rates; and the mean log score of 5,000 new persons less that of true rates, in thousandths: of the model, of areas
alone (the model without neighbours, and ratios of noisy sums of the same ε), of one common rate, and, in every fourth fit, of a
private regression on the 25 smoothest maps, a field of low rank.
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy.stats import nbinom
from tqdm.auto import tqdm

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import BayesianNegativeBinomialRegression, PrivacyBudget, PrivacyWarning, SpatialCounts
from vips.models.spatial.areas import Areas

N_AREAS, N_EMPTY, N_NEW, N_MAPS, N_FITS, EVERY = 120, 6, 5_000, 25, 40, 4
STD, REACH, DISPERSION, MOST, BOUNDS, DELTA = 0.5, 0.3, 2.0, 15, (0.5, 2.0), 1e-6
KINDS, SIZES, EPSILONS = ("map", "independent"), (5_000, 20_000), (0.5, 1.0, 4.0, np.inf)
METHODS = ("model", "without neighbours", "ratios", "common rate", "regression")


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments spatial", __doc__)
    parser.add_argument("--fits", type=int, default=N_FITS, help="in each cell")
    parser.add_argument("--seed", type=int, default=7, help="of the maps and persons; noise is never seeded")
    options = parser.parse_args(arguments)
    folder, rng = folder_of("spatial", options), np.random.default_rng(options.seed)
    n_fits, sizes = (1, (1_000,)) if options.quick else (options.fits, SIZES)
    cells = [(kind, n, epsilon) for kind in KINDS for n in sizes for epsilon in EPSILONS]
    rows = []
    for kind, n, epsilon in tqdm(cells, disable=None):
        fits = [one_fit(kind, n, epsilon, i % EVERY == 0, rng) for i in range(n_fits)]
        values = {name: np.array([fit[name] for fit in fits if np.isfinite(fit[name])]) for name in fits[0]}
        row = {"kind": kind, "records": n, "epsilon": epsilon}
        for name, value in values.items():
            row[name] = float(value.mean()) if len(value) else np.nan
            row[f"{name}_error"] = float(value.std() / len(value) ** 0.5) if len(value) else np.nan
        rows.append(row)
    print(text := as_text(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def one_fit(kind: str, n: int, epsilon: float, with_regression: bool, rng: np.random.Generator) -> dict[str, float]:
    """Coverage, correlation, and scores of one generated table; the regression takes longest."""
    places = rng.uniform(size=(N_AREAS, 2))
    distances = np.linalg.norm(places[:, None] - places, axis=2)
    cov = np.exp(-distances / REACH) if kind == "map" else np.eye(N_AREAS)
    truth = STD * np.linalg.cholesky(cov + 1e-9 * np.eye(N_AREAS)) @ rng.standard_normal(N_AREAS)
    people = rng.lognormal(0.0, 0.7, N_AREAS)
    people[rng.choice(N_AREAS, N_EMPTY, replace=False)] = 0.0
    (area, exposure, counts), new = (persons(size, truth, people, rng) for size in (n, N_NEW))
    budget = None if np.isinf(epsilon) else PrivacyBudget(epsilon, DELTA)
    bounds = {"max_count": MOST, "exposure_bounds": BOUNDS, "privacy": budget}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # of maps in which nothing stands out
        model = SpatialCounts(areas=range(N_AREAS), coordinates=places, **bounds).fit(area, counts, exposure=exposure)
        apart = SpatialCounts(areas=range(N_AREAS), **bounds).fit(area, counts, exposure=exposure)
        by_maps = (
            regression_on_maps(places, area, counts, exposure, bounds) if with_regression else np.full(N_AREAS, np.nan)
        )
        rates, of_apart = model.rates(), apart.rates()
    ratios = noisy_ratios(area, counts, exposure, budget, rng)
    held, held_apart = (
        ((table["lower"] <= np.exp(truth)) & (np.exp(truth) <= table["upper"])).to_numpy()
        for table in (rates, of_apart)
    )
    told = (rates["hidden by"] == "").to_numpy()
    fitted = {
        "model": rates["rate"].to_numpy(),
        "without neighbours": of_apart["rate"].to_numpy(),
        "ratios": ratios,
        "common rate": np.full(N_AREAS, counts.sum() / exposure.sum()),
        "regression": by_maps,
    }
    best = log_score(np.exp(truth), *new)
    return {
        "coverage": held.mean(),
        "coverage_told": held[told].mean() if told.any() else np.nan,
        "coverage_empty": held[people == 0.0].mean(),
        "coverage_apart": held_apart.mean(),
        "length": float(np.log(rates["upper"] / rates["lower"]).mean()),
        "hidden": 1.0 - told.mean(),
        "correlation": np.corrcoef(truth, model.posterior_.mean)[0, 1],
    } | {name: 1e3 * (log_score(values, *new) - best) for name, values in fitted.items()}


def persons(n: int, truth: np.ndarray, people: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Areas, exposures and counts."""
    area, exposure = rng.choice(N_AREAS, n, p=people / people.sum()), rng.uniform(*BOUNDS, n)
    return area, exposure, rng.poisson(exposure * np.exp(truth[area]) * rng.gamma(DISPERSION, 1.0 / DISPERSION, n))


def log_score(rates: np.ndarray, area: np.ndarray, exposure: np.ndarray, counts: np.ndarray) -> float:
    means = exposure * rates[area]
    return float(nbinom.logpmf(counts, DISPERSION, DISPERSION / (DISPERSION + means)).mean())


def noisy_ratios(area, counts, exposure, budget: PrivacyBudget | None, rng: np.random.Generator) -> np.ndarray:
    """Sums of counts by area over sums of exposures, of which a record's vector has norm √2; at least ½ and ½."""
    std = 0.0 if budget is None else np.sqrt(2.0) * budget.plan(n_steps=1).noise_multiplier
    above = np.bincount(area, np.minimum(counts, MOST), N_AREAS) + std * MOST * rng.standard_normal(N_AREAS)
    below = np.bincount(area, exposure, N_AREAS) + std * BOUNDS[1] * rng.standard_normal(N_AREAS)
    return np.maximum(above, 0.5) / np.maximum(below, 0.5)


def regression_on_maps(places, area, counts, exposure, bounds: dict) -> np.ndarray:
    """Rates of a private regression whose columns are the smoothest maps, each as long as its prior deviation."""
    values, maps = np.linalg.eigh(Areas.of(range(N_AREAS), places).correlation(0.97))
    maps = (maps * np.sqrt(values))[:, -N_MAPS:]
    maps /= np.linalg.norm(maps, axis=1).max()
    model = BayesianNegativeBinomialRegression(dispersion=DISPERSION, max_norm=1.0, **bounds)
    return model.fit(maps[area], counts, exposure=exposure).predict(maps)


def as_text(rows: list[dict]) -> str:
    columns = {
        "coverage": 3, "coverage_told": 2, "coverage_empty": 2, "coverage_apart": 3, "length": 2, "hidden": 2, "correlation": 2
    } | dict.fromkeys(METHODS, 1)  # fmt: skip
    heads = [
        "true rates",
        "persons",
        "ε",
        "coverage",
        "of areas not hidden",
        "of empty ones",
        "without neighbours: coverage",
        "length (log)",
        "hidden",
    ]
    heads.append("correlation")
    lines = [f"| {' | '.join([*heads, *METHODS])} |", "|" + "---|" * (len(heads) + len(METHODS))]
    for row in rows:
        told = [f"{row[name]:.{n}f} ± {row[f'{name}_error']:.{n}f}" for name, n in columns.items()]
        told = ["none" if word.startswith("nan") else word for word in told]
        epsilon = "none" if np.isinf(row["epsilon"]) else f"{row['epsilon']:g}"
        lines.append(f"| {row['kind']} | {row['records']:,} | {epsilon} | {' | '.join(told)} |")
    return "\n".join(lines) + "\n"
