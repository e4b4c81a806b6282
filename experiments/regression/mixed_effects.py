"""``python -m experiments mixed_effects``: do intervals of coefficients and of deviations of persons hold?

Persons of 1 to 20 visits (a geometric number, 5 on average) with two columns of a person and one of a visit:

    visits      P(yes) = σ(-1 + 1 x₁ - 0.5 x₂ + 0.5 x₃ + z), z ~ N(0, 1): about 0.3
    slopes      the coefficient of x₃ differs among persons, too, with a deviation of 0.6
    rare        as visits, with -3.5: about 0.04
    counts      negative binomial counts of mean exp(0.5 + the same + z), z ~ N(0, 0.7²), dispersion 2; ``max_count`` 100
    exposed     counts whose mean is that times an exposure from 0.2 to 4, evenly in its logarithm

Coverage of 95 % intervals over coefficients and intercept, and over deviations; mean error in units of the posterior's
deviation, and how many fits have intervals; beside them a regression without effects of persons, with ``groups``.

``--reference``: ordinary fits to 1,000 persons beside Gibbs sampling, and beside variational Bayes with independent q(β) and
q(z): distances of means in posterior deviations, the largest one of the coefficients, and those of the variances of effects.
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
from vips.expfam import polya_gamma_mean
from vips.reference import gibbs_mixed_logistic

KINDS, SIZES, EPSILONS, N_FITS, DELTA = (
    ("visits", "slopes", "rare", "counts", "exposed"),
    (3_000, 20_000),
    (1.0, 4.0),
    40,
    1e-6,
)
COEFFICIENTS, INTERCEPTS = (
    (1.0, -0.5, 0.5),
    {"visits": -1.0, "slopes": -1.0, "rare": -3.5, "counts": 0.5, "exposed": 0.5},
)
DEVIATIONS = {"visits": (1.0,), "slopes": (1.0, 0.6), "rare": (1.0,), "counts": (0.7,), "exposed": (0.7,)}
LARGEST_NORM, LARGEST_COUNT, DISPERSION, BOUNDS = 1.8, 100, 2.0, (0.2, 4.0)


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments mixed_effects", __doc__)
    parser.add_argument("--fits", type=int, default=N_FITS, help="of each kind")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="numbers of persons")
    parser.add_argument("--seed", type=int, default=0, help="of the persons; noise is never seeded")
    parser.add_argument(
        "--reference", action="store_true", help="ordinary fits beside Gibbs sampling, and nothing else"
    )
    options = parser.parse_args(arguments)
    folder, n_fits = folder_of("mixed_effects", options), 2 if options.quick else options.fits
    if options.reference or options.quick:
        print(beside_gibbs(*((100, 50) if options.quick else (1_000, 3_000)), options.seed))
    if options.reference:
        return
    cells = [(kind, n, epsilon) for kind in options.kinds for n in options.sizes for epsilon in EPSILONS]
    if options.quick:
        cells = [("visits", 3_000, 4.0)]
    rows = []
    for kind, n, epsilon in tqdm(cells, disable=None):
        rows.append(repeated(kind, n, epsilon, n_fits, options.seed))
    print(text := as_text(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def persons(kind: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Columns and outcome of visits, and whose they are, with exposures if there are any, as ``fit`` takes them."""
    person = np.repeat(np.arange(n), np.clip(rng.geometric(0.2, n), 1, 20))
    X = np.column_stack(
        [rng.uniform(-1.0, 1.0, n)[person], rng.integers(0, 2, n)[person], rng.uniform(-1.0, 1.0, len(person))]
    )
    effects = rng.normal(0.0, DEVIATIONS[kind], (n, len(DEVIATIONS[kind])))[person]
    predictor = INTERCEPTS[kind] + X @ COEFFICIENTS + effects[:, 0]
    if kind == "slopes":
        predictor += effects[:, 1] * X[:, 2]
    given = {"groups": person}
    if kind == "exposed":
        given["exposure"] = np.exp(rng.uniform(*np.log(BOUNDS), len(person)))
    if kind in ("counts", "exposed"):
        mean = np.exp(predictor) * given.get("exposure", 1.0)
        return X, rng.poisson(rng.gamma(DISPERSION, mean / DISPERSION)), given
    return X, (rng.random(len(person)) < 1.0 / (1.0 + np.exp(-predictor))).astype(int), given


def models(kind: str, privacy: PrivacyBudget | None) -> tuple:
    """With effects of persons, and without."""
    settings = {"privacy": privacy, "max_norm": LARGEST_NORM}
    effects = {"random_effects": ("intercept", 2) if kind == "slopes" else ("intercept",)}
    if kind in ("counts", "exposed"):
        bounds = BOUNDS if kind == "exposed" else None
        settings |= {"dispersion": DISPERSION, "max_count": LARGEST_COUNT, "exposure_bounds": bounds}
        return MixedNegativeBinomialRegression(**settings, **effects), BayesianNegativeBinomialRegression(**settings)
    return MixedLogisticRegression(**settings, **effects), BayesianLogisticRegression(**settings)


def one_fit(kind: str, n: int, epsilon: float, rng: np.random.Generator) -> dict:
    """Error, half length of the interval and whether it holds, of each coefficient, intercept last, and deviation."""
    (X, y, given), (mixed, plain) = persons(kind, n, rng), models(kind, PrivacyBudget(epsilon, DELTA))
    start = time.perf_counter()
    mixed.fit(X, y, **given)
    row = {"seconds": time.perf_counter() - start, "refused": bool(mixed.why_no_intervals())}
    truth = np.array([*COEFFICIENTS, INTERCEPTS[kind]])
    row["plain"] = _read(plain.fit(X, y, **given).posterior_, truth)
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
            "coverage": float(holds.mean()) if told else None,
            "std of coverage": float(holds.mean(axis=1).std() / np.sqrt(len(told))) if told else None,
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
            has_any = told["coverage"] is not None
            cells += [f"{told['coverage']:.3f} ± {told['std of coverage']:.3f}" if has_any else ""]
            cells += [", ".join(f"{value:.2f}" for value in told["bias"])]
        cells += [f"{row['plain']['coverage']:.2f}", f"{row['seconds']:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def beside_gibbs(n: int, n_samples: int, seed: int) -> str:
    """Markdown: distances of ordinary fits, and of variational Bayes, from Gibbs sampling."""
    lines = [
        "| persons | coefficients | variances | of variational Bayes: coefficients | variances |",
        "|" + "---|" * 5,
    ]
    for kind in ("visits", "slopes", "rare"):
        X, y, given = persons(kind, n, np.random.default_rng([seed, n]))
        person = given["groups"]
        x = np.column_stack([X, np.ones(len(X))])
        u = x[:, [3, 2]] if kind == "slopes" else x[:, [3]]
        fit = models(kind, None)[0].fit(X, y, **given)
        draws = gibbs_mixed_logistic(x, y, person, effects=u, n_samples=n_samples, random_state=seed)
        variances = np.diagonal(draws.effects_cov, axis1=1, axis2=2)
        cells = [kind]
        for coefficients, cov in ((fit.posterior_.coefficients.mean, fit.effects_cov_), _variational(x, u, y, person)):
            apart = (coefficients - draws.coef.mean(axis=0)) / draws.coef.std(axis=0)
            of_variances = (np.diagonal(cov) - variances.mean(axis=0)) / variances.std(axis=0)
            cells += [f"{np.abs(apart).max():.2f}", ", ".join(f"{value:.2f}" for value in of_variances)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _variational(x: np.ndarray, u: np.ndarray, y: np.ndarray, person: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """β, and E[Ω], of the fixed point of variational Bayes with independent q(β), q(z_i) and q(Ω), Ω as for Gibbs sampling."""
    starts, kappa, d, q = np.flatnonzero(np.diff(person, prepend=-1)), y - 0.5, x.shape[1], u.shape[1]
    mean, cov, n = np.zeros(d), np.zeros((d, d)), len(starts)
    effects, own_cov, inverse = np.zeros((n, q)), np.zeros((n, q, q)), np.eye(q)
    for _ in range(500):
        fixed, random = x @ mean, (u * effects[person]).sum(axis=1)
        tilt = np.sqrt(
            (fixed + random) ** 2
            + np.einsum("nd,de,ne->n", x, cov, x)
            + np.einsum("nq,nqr,nr->n", u, own_cov[person], u)
        )
        omega = polya_gamma_mean(tilt, 1.0)
        cov = np.linalg.inv((x * omega[:, None]).T @ x + 0.01 * np.eye(d))
        mean = cov @ (x.T @ (kappa - omega * random))
        weighted = u * omega[:, None]
        own_cov = np.linalg.inv(inverse + np.add.reduceat(weighted[:, :, None] * u[:, None, :], starts))
        effects = np.einsum("nqr,nr->nq", own_cov, np.add.reduceat(u * (kappa - omega * (x @ mean))[:, None], starts))
        scale = np.eye(q) + effects.T @ effects + own_cov.sum(axis=0)
        inverse = (q + 1 + n) * np.linalg.inv(scale)
    return mean, scale / n
