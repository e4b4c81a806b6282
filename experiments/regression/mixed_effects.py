"""``python -m experiments mixed_effects``: do intervals of coefficients and of deviations of persons hold?

Persons of 1 to 20 visits (a geometric number, 5 on average) with two columns of a person and one of a visit:

    visits      P(yes) = σ(-1 + 1 x₁ - 0.5 x₂ + 0.5 x₃ + z), z ~ N(0, 1): about 0.3
    slopes      the coefficient of x₃ differs among persons, too, with a deviation of 0.6
    rare        as visits, with -3.5: about 0.04
    counts      negative binomial counts of mean exp(0.5 + the same + z), z ~ N(0, 0.7²), dispersion 2; ``max_count`` 30

Coverage of 95 % intervals over coefficients and intercept, and over deviations; mean error in units of the posterior's
deviation, and how many fits have intervals; beside them a regression without effects of persons, with ``groups``.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from tqdm.auto import tqdm

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import (
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    MixedLogisticRegression,
    MixedNegativeBinomialRegression,
    PrivacyBudget,
    PrivacyWarning,
)

KINDS, SIZES, EPSILONS, N_FITS, DELTA = ("visits", "slopes", "rare", "counts"), (3_000, 20_000), (1.0, 4.0), 40, 1e-6
COEFFICIENTS, INTERCEPTS = (1.0, -0.5, 0.5), {"visits": -1.0, "slopes": -1.0, "rare": -3.5, "counts": 0.5}
DEVIATIONS = {"visits": (1.0,), "slopes": (1.0, 0.6), "rare": (1.0,), "counts": (0.7,)}
LARGEST_NORM, LARGEST_COUNT, DISPERSION = 1.8, 30, 2.0


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments mixed_effects", __doc__)
    parser.add_argument("--fits", type=int, default=N_FITS, help="of each kind")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seed", type=int, default=0, help="of the persons; noise is never seeded")
    options = parser.parse_args(arguments)
    folder, n_fits = folder_of("mixed_effects", options), 2 if options.quick else options.fits
    cells = [(kind, n, epsilon) for kind in options.kinds for n in SIZES for epsilon in EPSILONS]
    if options.quick:
        cells = [("visits", 3_000, 4.0)]
    rows = []
    for kind, n, epsilon in tqdm(cells, disable=None):
        rows.append(repeated(kind, n, epsilon, n_fits, options.seed))
    print(text := as_text(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def persons(kind: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns and outcome of visits, and whose they are."""
    person = np.repeat(np.arange(n), np.clip(rng.geometric(0.2, n), 1, 20))
    X = np.column_stack(
        [rng.uniform(-1.0, 1.0, n)[person], rng.integers(0, 2, n)[person], rng.uniform(-1.0, 1.0, len(person))]
    )
    effects = rng.normal(0.0, DEVIATIONS[kind], (n, len(DEVIATIONS[kind])))[person]
    predictor = INTERCEPTS[kind] + X @ COEFFICIENTS + effects[:, 0]
    if kind == "slopes":
        predictor += effects[:, 1] * X[:, 2]
    if kind == "counts":
        return X, rng.poisson(rng.gamma(DISPERSION, np.exp(predictor) / DISPERSION)), person
    return X, (rng.random(len(person)) < 1.0 / (1.0 + np.exp(-predictor))).astype(int), person


def models(kind: str, privacy: PrivacyBudget | None) -> tuple:
    """With effects of persons, and without."""
    settings = {"privacy": privacy, "max_norm": LARGEST_NORM}
    effects = {"random_effects": ("intercept", 2) if kind == "slopes" else ("intercept",)}
    if kind == "counts":
        settings |= {"dispersion": DISPERSION, "max_count": LARGEST_COUNT}
        return MixedNegativeBinomialRegression(**settings, **effects), BayesianNegativeBinomialRegression(**settings)
    return MixedLogisticRegression(**settings, **effects), BayesianLogisticRegression(**settings)


def one_fit(kind: str, n: int, epsilon: float, rng: np.random.Generator) -> dict:
    """Error, half length of the interval and whether it holds, of each coefficient, intercept last, and deviation."""
    (X, y, person), (mixed, plain) = persons(kind, n, rng), models(kind, PrivacyBudget(epsilon, DELTA))
    start = time.perf_counter()
    mixed.fit(X, y, groups=person)
    row = {"seconds": time.perf_counter() - start, "refused": bool(mixed.why_no_intervals())}
    truth = np.array([*COEFFICIENTS, INTERCEPTS[kind]])
    row["plain"] = _read(plain.fit(X, y, groups=person).posterior_, truth)
    if not row["refused"]:
        table = mixed.summary_of_effects().filter(like="deviation", axis=0)
        deviations = np.array(DEVIATIONS[kind])
        row["coefficients"] = _read(mixed.posterior_.coefficients, truth)
        row["deviations"] = _judged(*(table[name].to_numpy() for name in ("median", "lower", "upper")), deviations)
    return row


def _read(posterior, truth: np.ndarray) -> dict:
    return _judged(posterior.mean, *posterior.interval(0.95), truth)


def _judged(mean: np.ndarray, lower: np.ndarray, upper: np.ndarray, truth: np.ndarray) -> dict:
    std = (upper - lower) / 3.92
    return {
        "error": ((mean - truth) / std).tolist(),
        "std": std.tolist(),
        "holds": ((lower <= truth) & (truth <= upper)).tolist(),
    }


def repeated(kind: str, n: int, epsilon: float, n_fits: int, seed: int) -> dict:
    """Coverage, mean error and deviation over the fits that have intervals."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        fits = [one_fit(kind, n, epsilon, np.random.default_rng([seed, n, i])) for i in range(n_fits)]
    row = {"kind": kind, "persons": n, "epsilon": epsilon, "fits": n_fits}
    row["with intervals"] = sum(not fit["refused"] for fit in fits)
    row["seconds"] = float(np.median([fit["seconds"] for fit in fits]))
    for part in ("coefficients", "deviations", "plain"):
        told = [fit[part] for fit in fits if part in fit]
        holds, error, std = (np.array([values[name] for values in told]) for name in ("holds", "error", "std"))
        row[part] = {
            "coverage": float(holds.mean()) if told else np.nan,
            "std of coverage": float(holds.mean(axis=1).std() / np.sqrt(len(told))) if told else np.nan,
            "bias": error.mean(axis=0).tolist() if told else [],
            "std": np.median(std, axis=0).tolist() if told else [],
        }
    return row


def as_text(rows: list[dict]) -> str:
    lines = [
        "| persons | | ε | with intervals | coefficients held | bias | deviations held | bias | without effects held | s |",
        "|" + "---|" * 10,
    ]
    for row in rows:
        cells = [row["kind"], f"{row['persons']:,}", f"{row['epsilon']:g}", f"{row['with intervals']} of {row['fits']}"]
        for part in ("coefficients", "deviations"):
            told = row[part]
            cells += [f"{told['coverage']:.3f} ± {told['std of coverage']:.3f}"]
            cells += [", ".join(f"{value:.2f}" for value in told["bias"])]
        cells += [f"{row['plain']['coverage']:.2f}", f"{row['seconds']:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
