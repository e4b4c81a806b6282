"""``python -m experiments anybody``: do intervals of private regressions hold what maximum likelihood finds in any table?

Each fit draws rows of a whole table with replacement, at δ = 1e-6 with all defaults. The target is exact: maximum likelihood of
the whole table. Tables are Adult, visits of patients, and generated ones of 400,000 rows: normal columns within bounds that
are right, 10 or 30 times too wide, strong effects, an effect that is not linear, a long-tailed count beside a coin, prices, and
counts. Errors and deviations are over the deviation of maximum likelihood by sampling alone. Beside them stands one release of
moments (``moments.py``), which gives no intervals. ``--epsilon`` replaces the ε of the cells, ``--tables`` chooses tables.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import expit
from tqdm.auto import tqdm

from experiments.options import folder_of, parser_of
from experiments.regression.moments import slopes_of_moments
from experiments.regression.readmissions import generated_visits, load_visits
from experiments.results import write_json, write_text
from experiments.stand_ins import adult, found_or
from vips import BayesianLogisticRegression, BayesianNegativeBinomialRegression, PrivacyBudget, PrivacyWarning
from vips.preprocessing import TableEncoder, make_private_pipeline

DELTA, N_FITS, N_ROWS, QUICK_FITS, QUICK_ROWS, QUICK_CELL = 1e-6, 20, 400_000, 1, 5_000, (2_000, 4.0)
COIN = ["a", "b"]
COUNTED = (20_000, 1.0), (5_000, 4.0), (50_000, 1.0)


@dataclass(frozen=True)
class Table:
    """A whole table.

    Parameters
    ----------
    data : DataFrame
    y : ndarray of shape (n_rows,)
    columns : dict
        Bounds and categories, as :class:`~vips.preprocessing.TableEncoder` takes them.
    dispersion, max_count : float, int or None
        Declared, of counts.
    exposure : ndarray of shape (n_rows,), optional
    """

    data: pd.DataFrame
    y: np.ndarray
    columns: dict
    dispersion: float | None = None
    max_count: int | None = None
    exposure: np.ndarray | None = None

    def drawn(self, n: int, rng: np.random.Generator) -> Table:
        """A table of ``n`` rows, with replacement."""
        rows = rng.integers(0, len(self.y), n)
        exposure = None if self.exposure is None else self.exposure[rows]
        data = self.data.iloc[rows].reset_index(drop=True)
        return Table(data, self.y[rows], self.columns, self.dispersion, self.max_count, exposure)

    def design(self) -> dict[str, np.ndarray]:
        """Columns by the names that summaries have, categories against the first one."""
        design = {}
        for name, known in self.columns.items():
            if isinstance(known, tuple):
                design[name] = self.data[name].clip(*known).to_numpy(float)
            else:
                design |= {
                    f"{name}: {of} against {known[0]}": (self.data[name] == of).to_numpy(float) for of in known[1:]
                }
        return design

    def model(self) -> BayesianLogisticRegression | BayesianNegativeBinomialRegression:
        if self.dispersion is None:
            return BayesianLogisticRegression()
        bounds = None if self.exposure is None else (1.0, 100.0)
        return BayesianNegativeBinomialRegression(
            dispersion=self.dispersion, max_count=self.max_count, exposure_bounds=bounds
        )

    def maximum_likelihood(self) -> tuple[pd.Series, pd.Series]:
        """Slopes, and √n times their deviations by sampling: a sandwich."""
        design = self.design()
        X = np.column_stack(list(design.values()))
        scale = X.std(axis=0)
        rows = np.column_stack([(X - X.mean(axis=0)) / scale, np.ones(len(X))])
        b = np.zeros(rows.shape[1])
        if self.dispersion is not None:
            b[-1] = np.log(self.y.mean() / (1.0 if self.exposure is None else self.exposure.mean()))
        for _ in range(100):
            residual, curvature = self._derivatives(rows @ b)
            information = (rows * curvature[:, None]).T @ rows
            step = np.linalg.solve(information, rows.T @ residual)
            b += step * min(1.0, 2.0 / np.abs(step).max())
            if np.abs(step).max() < 1e-9:
                break
        root = np.linalg.solve(information, (rows * residual[:, None]).T)
        deviations = np.sqrt(len(rows) * np.square(root).sum(axis=1))
        return tuple(pd.Series(values[:-1] / scale, list(design)) for values in (b, deviations))

    def _derivatives(self, psi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First derivative of each row's log likelihood, and minus the second."""
        if self.dispersion is None:
            p = expit(psi)
            return self.y - p, p * (1.0 - p)
        mean, r = np.exp(psi) * (1.0 if self.exposure is None else self.exposure), self.dispersion
        return (self.y - mean) / (1.0 + mean / r), mean * (1.0 + self.y / r) / (1.0 + mean / r) ** 2


# -- tables --------------------------------------------------------------------------------------------------------


def of_adult(quick: bool, columns: dict, target: str = "income") -> Table:
    """Adult: who earns more than 50,000 dollars, or is married."""
    people = adult(quick)
    data = people.data.assign(
        spouse=np.where(people.data["relationship"].isin(["Husband", "Wife"]), "yes", "no"),
        coin=_coin(len(people.data)),
    )
    married = data["marital-status"] == "Married-civ-spouse"
    return Table(data, (people.target if target == "income" else married.to_numpy()).astype(int), columns)


def of_visits(quick: bool, columns: dict) -> Table:
    """Visits of patients with diabetes: was the patient readmitted within 30 days?"""
    names = [name for name in columns if name != "coin"]
    visits = found_or(lambda: load_visits(names), lambda: generated_visits(columns), quick)
    return Table(visits.data.assign(coin=_coin(len(visits.data))), visits.target.astype(int), columns)


def of_normal(quick: bool, bounds: float = 4.0, effects=(0.8, -0.5, 0.3), quadratic: float = 0.0) -> Table:
    """Three normal columns within ±4, declared within ``bounds``, and yes or no."""
    X, rng = _normal(quick)
    psi = -0.5 + X @ effects + quadratic * (X[:, 0] ** 2 - 1.0)
    return Table(_frame(X), (rng.random(len(X)) < expit(psi)).astype(int), _within(bounds))


def of_long_tail(quick: bool) -> Table:
    """A column of counts, mostly 0 and rarely 60, whose effect ends at 3; a normal one; a coin."""
    rng, n = np.random.default_rng(1), QUICK_ROWS if quick else N_ROWS
    events = rng.negative_binomial(0.15, 0.15 / 0.35, n)
    events = np.where(rng.random(n) < 0.0008, events + rng.integers(8, 60, n), events).clip(0, 76)
    data = pd.DataFrame({"events": events.astype(float), "x": rng.normal(5.0, 2.0, n).clip(0, 16), "coin": _coin(n)})
    p = expit(-0.3 + 0.6 * np.minimum(events, 3) + 0.1 * (data["x"] - 5.0)).to_numpy()
    return Table(data, (rng.random(n) < p).astype(int), {"events": (0, 76), "x": (0, 16), "coin": COIN})


def of_prices(quick: bool, deviation: float) -> Table:
    """Log-normal prices, on whose logarithm the outcome depends; a normal column."""
    rng, n = np.random.default_rng(2), QUICK_ROWS if quick else N_ROWS
    prices = np.exp(rng.normal(3.0, deviation, n)).clip(0.0, 2000.0)
    data = pd.DataFrame({"price": prices, "x": rng.normal(50.0, 10.0, n).clip(0.0, 100.0)})
    p = expit(0.5 * (np.log(prices + 1.0) - 3.0) + 0.03 * (data["x"] - 50.0) - 0.8).to_numpy()
    return Table(data, (rng.random(n) < p).astype(int), {"price": (0, 2000), "x": (0, 100)})


def of_counts(
    quick: bool, log_mean: float = 0.0, bounds: float = 4.0, quadratic: float = 0.0, dispersion: float = 2.0,
    max_count: int = 30, exposed: tuple[float, float] | None = None,
) -> Table:  # fmt: skip
    """Three normal columns and counts of this dispersion, declared as 2; ``exposed``: mean and deviation of log exposures."""
    X, rng = _normal(quick)
    exposure = None if exposed is None else np.exp(rng.normal(*exposed, len(X))).clip(1.0, 100.0)
    mean = np.exp(log_mean + X @ (0.4, -0.3, 0.2) + quadratic * (X[:, 0] ** 2 - 1.0))
    mean = mean if exposure is None else mean * exposure
    y = np.minimum(rng.negative_binomial(dispersion, dispersion / (dispersion + mean)), max_count)
    return Table(_frame(X), y, _within(bounds), 2.0, max_count, exposure)


def _normal(quick: bool) -> tuple[np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(QUICK_ROWS if quick else N_ROWS, 3)).clip(-4.0, 4.0), rng


def _coin(n: int) -> np.ndarray:
    return np.random.default_rng(3).choice(COIN, n)


def _frame(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=["x", "y", "z"])


def _within(bounds: float) -> dict:
    return dict.fromkeys(["x", "y", "z"], (-bounds, bounds))


_NUMBERS = {"age": (17, 90), "education-num": (1, 16), "hours-per-week": (1, 99)}
_WIDE, _SEX = {"age": (0, 1000), "education-num": (0, 100), "hours-per-week": (0, 1000)}, {"sex": ["Female", "Male"]}
_GAINS = {"capital-gain": (0, 99_999), "capital-loss": (0, 4356)}
_STAY = {"age": (0, 100), "time_in_hospital": (1, 14), "number_diagnoses": (1, 16)}
_STAY |= {"insulin": ["No", "Steady", "Up", "Down"]}
_MARRIED = {"age": (17, 90), "hours-per-week": (1, 99), "spouse": ["no", "yes"]}
_TAILS = {"number_inpatient": (0, 21), "number_emergency": (0, 76), "coin": COIN}

# name: (whole table, (records, ε) of its cells)
TABLES: dict[str, tuple[Callable[[bool], Table], tuple[tuple[int, float], ...]]] = {
    "Adult": (lambda quick: of_adult(quick, _NUMBERS | _SEX), ((20_000, 1.0), (5_000, 1.0), (100_000, 1.0))),
    "Adult, capital": (lambda quick: of_adult(quick, _NUMBERS | _GAINS | _SEX), ((20_000, 1.0), (5_000, 1.0))),
    "Adult, wide bounds": (lambda quick: of_adult(quick, _WIDE | _SEX), ((20_000, 1.0),)),
    "Adult, married": (lambda quick: of_adult(quick, _MARRIED, "married"), ((20_000, 1.0), (5_000, 1.0))),
    "readmissions": (
        lambda quick: of_visits(quick, _STAY | {"number_inpatient": (0, 10)}),
        ((70_000, 1.0), (20_000, 1.0)),
    ),
    "readmissions, tails": (lambda quick: of_visits(quick, _STAY | _TAILS), ((70_000, 1.0), (20_000, 1.0))),
    "normal": (of_normal, ((20_000, 1.0), (5_000, 1.0), (1_000, 1.0))),
    "normal, bounds × 10": (lambda quick: of_normal(quick, 40.0), ((20_000, 1.0), (5_000, 1.0))),
    "normal, bounds × 30": (lambda quick: of_normal(quick, 120.0), ((20_000, 1.0), (5_000, 1.0))),
    "strong effects": (
        lambda quick: of_normal(quick, effects=(4.0, -3.0, 2.0)),
        ((20_000, 1.0), (5_000, 1.0), (20_000, 1_000.0)),
    ),
    "quadratic": (
        lambda quick: of_normal(quick, effects=(0.6, -0.4, 0.2), quadratic=0.35),
        ((20_000, 1.0), (50_000, 1.0)),
    ),
    "long tail and coin": (of_long_tail, ((100_000, 1.0), (20_000, 1.0))),
    "prices": (lambda quick: of_prices(quick, 1.2), ((100_000, 1.0), (20_000, 1.0), (5_000, 1.0))),
    "prices, short tail": (lambda quick: of_prices(quick, 0.6), ((20_000, 1.0), (5_000, 1.0))),
    "counts, mean 1": (of_counts, COUNTED),
    "counts, mean 5": (lambda quick: of_counts(quick, 1.6, max_count=100), COUNTED),
    "counts, bounds × 30": (lambda quick: of_counts(quick, bounds=120.0), COUNTED),
    "counts, quadratic": (lambda quick: of_counts(quick, quadratic=0.2, max_count=100), COUNTED),
    "counts, exposures": (lambda quick: of_counts(quick, -1.0, exposed=(1.0, 1.0)), COUNTED),
    "counts, rare": (lambda quick: of_counts(quick, -4.6, max_count=10, exposed=(1.8, 0.9)), COUNTED),
    "counts, dispersion ½": (lambda quick: of_counts(quick, dispersion=0.5), COUNTED),
}


# -- fits ----------------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments anybody", __doc__)
    parser.add_argument("--fits", type=int, default=N_FITS, help="of each cell")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES), metavar="TABLE")
    parser.add_argument("--epsilon", type=float, help="in place of that of each cell")
    parser.add_argument("--seed", type=int, default=0, help="of the rows of the first fit; noise is never seeded")
    options = parser.parse_args(arguments)
    folder, rows = folder_of("anybody", options), []
    for name in tqdm(options.tables, disable=None):
        make, cells = TABLES[name]
        whole = make(options.quick)
        truth = whole.maximum_likelihood()
        for n, epsilon in [QUICK_CELL] if options.quick else cells:
            epsilon, n_fits = options.epsilon or epsilon, QUICK_FITS if options.quick else options.fits
            seeds = range(options.seed, options.seed + n_fits)
            fits = [one_fit(whole.drawn(n, np.random.default_rng([seed, n])), epsilon, truth, seed) for seed in seeds]
            rows.append({"table": name, "records": n, "epsilon": epsilon} | summary(fits))
            tqdm.write(line(rows[-1]))
    print(text := table(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def one_fit(drawn: Table, epsilon: float, truth: tuple[pd.Series, pd.Series], seed: int) -> dict:
    """Errors, deviations and those of moments, over the deviation of maximum likelihood; is the target held? By coefficient."""
    target, deviation = truth[0], truth[1] / np.sqrt(len(drawn.y))
    pipeline = make_private_pipeline(TableEncoder(drawn.columns), drawn.model(), privacy=PrivacyBudget(epsilon, DELTA))
    given, start = {} if drawn.exposure is None else {"exposure": drawn.exposure}, time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        told = pipeline.fit(drawn.data[list(drawn.columns)], drawn.y, **given).summary().loc[target.index]
    moments = slopes_of_moments(drawn, epsilon, DELTA, np.random.default_rng([seed, 7]))
    return {
        "seconds": time.process_time() - start,
        "warned": any(issubclass(warning.category, PrivacyWarning) for warning in caught),
        "held": ((told["lower"] <= target) & (target <= told["upper"])).tolist(),
        "error": ((told["mean"] - target) / deviation).tolist(),
        "width": (told["std"] / deviation).tolist(),
        "moments": ((moments - target.to_numpy()) / deviation).tolist(),
    }


def summary(fits: list[dict]) -> dict:
    """All coefficients together; those without limits count in the errors of moments alone."""
    names = "held", "error", "width", "moments"
    held, error, width, moments = (np.array([fit[name] for fit in fits], float) for name in names)
    told = np.isfinite(width)
    z = error[told] / width[told]
    return {
        "fits": len(fits),
        "told": float(told.mean()),
        "held": float(held[told].mean()) if told.any() else np.nan,
        "rms z": _root_mean_square(z),
        "error": _root_mean_square(error[told]),
        "width": float(width[told].mean()) if told.any() else np.nan,
        "moments": _root_mean_square(moments),
        "warned": int(sum(fit["warned"] for fit in fits)),
        "seconds": float(np.mean([fit["seconds"] for fit in fits])),
    }


def _root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else np.nan


def line(row: dict) -> str:
    numbers = (f"{row[name]:.2f}" for name in ("held", "rms z", "error", "width"))
    first = f"| {row['table']} | {row['records']:,} | {row['epsilon']:g} | {' | '.join(numbers)} | {row['moments']:.2f}"
    return f"{first} | {row['told']:.2f} | {row['warned']} of {row['fits']} | {row['seconds']:.1f} |"


def table(rows: list[dict]) -> str:
    """Markdown."""
    heads = [
        "table", "records", "ε", "held by 95 %", "rms z", "error", "deviation", "error of moments", "share with limits",
        "warned", "seconds",
    ]  # fmt: skip
    return "\n".join(["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|", *map(line, rows)]) + "\n"
