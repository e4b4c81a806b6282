"""``python -m experiments table_coverage``: how often limits of a private table hold what is true of all people.

20,000 people are drawn from Adult with replacement, and their table is released once; what is true is that of all 48,842, by
the same bins. Held: share of limits that hold it, of 95 %; "refused" are effects without limits; "worst" is the row that was
held least often. Widths are those of the fit without noise to the same people. Log odds are compared with maximum likelihood's
of the people themselves, squares of numbers corrected for the width of bins (Sheppard), but for categories that it puts more
than six from the usual one: of these hardly any, or all, earn much.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from scipy.special import expit

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from experiments.stand_ins import adult
from vips import PrivacyBudget, PrivacyWarning, PrivateTable

EPSILONS, DELTA, N_ROWS, N_RELEASES = (0.5, 1.0, 4.0), 1e-6, 20_000, 40
FARTHEST = 6.0  # log odds of a category that people tell
NUMBERS = {
    "age": (17, 90),
    "education-num": (1, 16),
    "capital-gain": (0, 0, 5_000, 10_000, 100_000),
    "hours-per-week": (1, 35, 40, 40, 42, 50, 60, 99),
}
FEW = ["age", "hours-per-week", "sex", "race"]
MORE = ["workclass", "education", "marital-status", "occupation", "relationship"]
ASKED = {
    "shares": lambda table: table.summary(),
    "pairs of education and income": lambda table: table.pairs("education", "income"),
    "means": lambda table: table.means(),
    "income on 4 columns": lambda table: table.regress("income", FEW),
    "income on 9 columns": lambda table: table.regress("income", [*FEW, *MORE]),
    "log odds of income on 4 columns": lambda table: table.regress("income", FEW, kind="logistic"),
    "log odds of income on 9 columns": lambda table: table.regress("income", [*FEW, *MORE], kind="logistic"),
    "hours on 4 columns": lambda table: table.regress("hours-per-week", ["age", "sex", "income", "marital-status"]),
}


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments table_coverage", __doc__)
    parser.add_argument("--releases", type=int, default=N_RELEASES, help="of each budget")
    options = parser.parse_args(arguments)
    folder = folder_of("table_coverage", options)
    n_rows, n_releases = (1_000, 1) if options.quick else (N_ROWS, options.releases)
    people, columns = declared(options.quick)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # effects that noise hides are counted
        rows = results(people, columns, n_rows, n_releases)
    print(text := as_text(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def declared(quick: bool) -> tuple[pd.DataFrame, dict]:
    """All people, and what may be in their columns."""
    bunch = adult(quick)
    people = bunch.data.assign(income=np.where(bunch.target, "high", "low"))
    columns = {name: values for name, values in bunch.columns.items() if isinstance(values, list)}
    return people, columns | NUMBERS | {"income": ["low", "high"]}


def results(people: pd.DataFrame, columns: dict, n_rows: int, n_releases: int) -> list[dict]:
    everybody = PrivateTable(columns=columns).fit(people)
    true = asked(everybody)
    for name, features in (("4", FEW), ("9", [*FEW, *MORE])):
        true[f"log odds of income on {name} columns"] = log_odds(people, everybody, features)
    limits = {(epsilon, name): [] for epsilon in EPSILONS for name in ASKED}
    for release in range(n_releases):
        sample = people.iloc[np.random.default_rng(release).integers(0, len(people), n_rows)]
        plain = asked(PrivateTable(columns=columns).fit(sample))
        for epsilon in EPSILONS:
            budget = PrivacyBudget(epsilon=epsilon, delta=DELTA)
            noisy = asked(PrivateTable(columns=columns, outcome="income", privacy=budget).fit(sample))
            for name in ASKED:
                limits[epsilon, name].append(beside(noisy[name], true[name], plain[name]))
    return [row(epsilon, name, pd.concat(tables)) for (epsilon, name), tables in limits.items()]


def asked(table: PrivateTable) -> dict[str, pd.DataFrame]:
    return {name: question(table) for name, question in ASKED.items()}


def log_odds(people: pd.DataFrame, everybody: PrivateTable, features: list[str]) -> pd.DataFrame:
    """Maximum likelihood's, of each category against each other one of its column."""
    columns = dict(zip(everybody.column_names(), everybody.readable_columns(), strict=True))
    parts, within, names = [np.ones((len(people), 1))], [np.zeros((len(people), 1))], [""]
    for name in features:
        column, cells = columns[name], people[name]
        if name in NUMBERS:
            levels = column.levels(pd.to_numeric(cells).to_numpy(np.float64))
            part, hidden = column.numbers[levels][:, None], column.within[levels][:, None]
        else:
            answers = column.labels[1:-1] if column.numbers is not None else column.labels[:-1]
            part = (cells.to_numpy()[:, None] == np.array(answers)).astype(np.float64)
            hidden = np.zeros(part.shape)
        is_one = part.shape[1] == 1
        names += [name] if is_one else [(name, answer) for answer in answers]
        parts.append(part)
        within.append(hidden)
    x, within, y = np.hstack(parts), np.hstack(within), people["income"].to_numpy() == "high"
    beta = np.zeros(x.shape[1])
    for _ in range(50):  # Newton's steps under a wide prior, which chooses among equal likelihoods
        chances = expit(x @ beta)
        slopes = chances * (1.0 - chances)
        by_bins = slopes @ within - 1e-4
        beta += np.linalg.solve((x.T * slopes) @ x - np.diag(by_bins), x.T @ (y - chances) + by_bins * beta)
    coefficients, effects = dict(zip(names, beta, strict=True)), {}
    for key, effect in coefficients.items():
        if not isinstance(key, tuple):
            effects[key] = effect
            continue
        others = (other for other in coefficients if isinstance(other, tuple) and other[0] == key[0] and other != key)
        effects |= {f"{key[0]}: {key[1]} vs {other[1]}": effect - coefficients[other] for other in others}
    return pd.DataFrame({"effect": effects}).query("abs(effect) < @FARTHEST")


def beside(noisy: pd.DataFrame, true: pd.DataFrame, plain: pd.DataFrame) -> pd.DataFrame:
    """Whether the limits of each row hold what is true, whether it has some, and their width. Effects are compared where the
    most frequent category is the same."""
    value = true.iloc[:, 0].reindex(noisy.index)
    noisy, value = noisy[value.notna()], value[value.notna()]
    width = (plain["upper"] - plain["lower"]).reindex(noisy.index)
    is_given = noisy["lower"].notna()
    return pd.DataFrame({
        "held": ((noisy["lower"] <= value) & (value <= noisy["upper"])).where(is_given),
        "refused": ~is_given,
        "width": (noisy["upper"] - noisy["lower"]) / width,
    })  # fmt: skip


def row(epsilon: float, name: str, limits: pd.DataFrame) -> dict:
    held = limits["held"].dropna().astype(float)
    by_row = held.groupby(level=list(range(held.index.nlevels))).mean()
    return {
        "epsilon": epsilon,
        "asked": name,
        "held": float(held.mean()),
        "worst": float(by_row.min()),
        "refused": float(limits["refused"].mean()),
        "width": float(limits["width"].median()),
    }


def as_text(rows: list[dict]) -> str:
    lines = ["| ε | asked | held (worst row) | refused | width over that without noise |", "|---|---|---|---|---|"]
    for result in rows:
        held = f"{result['held']:.3f} ({result['worst']:.2f})"
        lines.append(
            f"| {result['epsilon']:g} | {result['asked']} | {held} | {result['refused']:.2f} | {result['width']:.1f} |"
        )
    return "\n".join(lines) + "\n"
