"""``python -m experiments table_coverage``: how often limits of a private table hold what is true of all people.

20,000 people are drawn from Adult with replacement, and their table is released once; what is true is that of all 48,842, by
the same bins; so are 40,000 of 99,000 visits of patients with diabetes, with 20 columns. Held: share of limits that hold it, of
95 %; "refused" are effects without limits; "worst" is the row that was held least often. Widths are those of the fit without
noise to the same people. Log odds are compared with maximum likelihood's of the people themselves, squares of numbers corrected
for the width of bins (Sheppard), but for categories that it puts more than six from the usual one: these hardly ever, or
always, have the answer.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit
from tqdm.auto import tqdm

from experiments.options import folder_of, parser_of
from experiments.regression.readmissions import generated_visits, load_visits
from experiments.results import write_json, write_text
from experiments.stand_ins import adult, found_or
from vips import PrivacyBudget, PrivacyWarning, PrivateTable
from vips.data._declared_dtypes import OTHER

EPSILONS, DELTA, N_RELEASES, QUICK = (0.5, 1.0, 4.0), 1e-6, 40, 1_000
FARTHEST = 6.0  # log odds of a category that people tell
NUMBERS = {
    "age": (17, 90),
    "education-num": (1, 16),
    "capital-gain": (0, 0, 5_000, 10_000, 100_000),
    "hours-per-week": (1, 35, 40, 40, 42, 50, 60, 99),
}
FEW = ["age", "hours-per-week", "sex", "race"]
MORE = ["workclass", "education", "marital-status", "occupation", "relationship"]
OF_VISITS = {
    "race": ["Caucasian", "AfricanAmerican", "Hispanic", "Asian", "Other"],
    "gender": ["Female", "Male"],
    "age": (0, 100),
    "admission_type_id": [1, 2, 3, "(other)"],
    "admission_source_id": [1, 7, "(other)"],
    "time_in_hospital": (1, 14),
    "num_lab_procedures": (1, 100),
    "num_procedures": (0, 6),
    "num_medications": (1, 60),
    "number_outpatient": (0, 0, 2, 4, 40),
    "number_emergency": (0, 0, 2, 4, 40),
    "number_inpatient": (0, 0, 2, 3, 5, 20),
    "number_diagnoses": (1, 16),
    "max_glu_serum": ["None", "Norm", "(other)"],
    "A1Cresult": ["None", "Norm", ">7", ">8"],
    "metformin": ["No", "Steady", "(other)"],
    "insulin": ["No", "Steady", "Up", "Down"],
    "change": ["No", "Ch"],
    "diabetesMed": ["No", "Yes"],
}


class Table(NamedTuple):
    """All people, what may be in their columns, the column that effects explain, by a few and by more others, and numbers of
    people to draw."""

    people: pd.DataFrame
    columns: dict
    goal: str
    few: list[str]
    more: list[str]
    n_rows: int

    @property
    def questions(self) -> dict[str, Callable[[PrivateTable], pd.DataFrame]]:
        number = [name for name in self.few if isinstance(self.columns[name], tuple)][-1]
        others = [self.goal, *(name for name in self.few if name != number)]
        questions = {
            "shares": lambda table: table.summary(),
            f"pairs of {self.more[1]} and {self.goal}": lambda table: table.pairs(self.more[1], self.goal),
            "means": lambda table: table.means(),
            f"{number} on {len(others)} columns": lambda table: table.regress(number, others),
        }
        for features in (self.few, [*self.few, *self.more]):
            name = f"{self.goal} on {len(features)} columns"
            questions |= {
                name: partial(PrivateTable.regress, target=self.goal, features=features),
                f"log odds of {name}": partial(
                    PrivateTable.regress, target=self.goal, features=features, kind="logistic"
                ),
            }
        return questions


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments table_coverage", __doc__)
    parser.add_argument("--releases", type=int, default=N_RELEASES, help="of each budget")
    parser.add_argument("--tables", nargs="*", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--seed", type=int, default=0, help="of the first people that are drawn")
    options = parser.parse_args(arguments)
    folder, rows = folder_of("table_coverage", options), []
    for data in options.tables:
        table = TABLES[data](options.quick)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)  # effects that noise hides are counted
            seeds = range(options.seed, options.seed + (1 if options.quick else options.releases))
            epsilons = EPSILONS[1:2] if options.quick else EPSILONS
            rows += [{"table": data} | row for row in results(table, seeds, epsilons)]
        if folder is not None:
            write_json(folder / "results.json", rows)
    print(text := as_text(rows))
    if folder is not None:
        write_text(folder / "results.md", text)


def adults(quick: bool) -> Table:
    bunch = adult(quick)
    people = bunch.data.assign(income=np.where(bunch.target, "high", "low"))
    columns = {name: values for name, values in bunch.columns.items() if isinstance(values, list)}
    columns |= NUMBERS | {"income": ["low", "high"]}
    return Table(people[: 2 * QUICK] if quick else people, columns, "income", FEW, MORE, QUICK if quick else 20_000)


def visits(quick: bool) -> Table:
    bunch = found_or(lambda: load_visits(OF_VISITS), lambda: generated_visits(_DRAWN), quick)
    people = bunch.data.assign(again=np.where(bunch.target, "yes", "no"))
    people = people[people["race"].notna() & people["gender"].isin(OF_VISITS["gender"])].reset_index(drop=True)
    few = ["number_inpatient", "age", "time_in_hospital", "insulin", "A1Cresult"]
    more = [name for name in OF_VISITS if name not in few]
    columns, n_rows = OF_VISITS | {"again": ["no", "yes"]}, QUICK if quick else 40_000
    return Table(people[: 2 * QUICK] if quick else people, columns, "again", few, more, n_rows)


_DRAWN = {
    name: (known[0], known[-1]) if isinstance(known, tuple) else [value for value in known if value != OTHER]
    for name, known in OF_VISITS.items()
}
TABLES = {"adult": adults, "visits": visits}


def results(table: Table, seeds: Iterable[int], epsilons: Sequence[float]) -> list[dict]:
    people, columns = table.people, table.columns
    everybody = PrivateTable(columns=columns).fit(people)
    true = {name: question(everybody) for name, question in table.questions.items()}
    for features in (table.few, [*table.few, *table.more]):
        name = f"log odds of {table.goal} on {len(features)} columns"
        true[name] = log_odds(people, everybody, table.goal, features)
    limits = {(epsilon, name): [] for epsilon in epsilons for name in true}
    for seed in tqdm(seeds, disable=None):
        sample = people.iloc[np.random.default_rng(seed).integers(0, len(people), table.n_rows)]
        without_noise = PrivateTable(columns=columns).fit(sample)
        plain = {name: question(without_noise) for name, question in table.questions.items()}
        for epsilon in epsilons:
            budget = PrivacyBudget(epsilon=epsilon, delta=DELTA)
            noisy = PrivateTable(columns=columns, outcome=table.goal, privacy=budget).fit(sample)
            for name, question in table.questions.items():
                limits[epsilon, name].append(beside(question(noisy), true[name], plain[name]))
    return [row(epsilon, name, pd.concat(tables)) for (epsilon, name), tables in limits.items()]


def log_odds(people: pd.DataFrame, everybody: PrivateTable, goal: str, features: list[str]) -> pd.DataFrame:
    """Maximum likelihood's, of each category against each other one of its column."""
    columns = dict(zip(everybody.column_names(), everybody.readable_columns(), strict=True))
    parts, within, names = [np.ones((len(people), 1))], [np.zeros((len(people), 1))], [""]
    for name in features:
        column, cells = columns[name], people[name]
        if column.numbers is not None and not isinstance(everybody.columns[name], list):
            levels = column.levels(pd.to_numeric(cells).to_numpy(np.float64))
            part, hidden = column.numbers[levels][:, None], column.within[levels][:, None]
        else:
            answers = column.labels[1:-1] if column.numbers is not None else column.labels[:-1]
            cells = cells.where(cells.isin(answers), OTHER).astype(str).to_numpy()
            part = (cells[:, None] == np.array(answers, dtype=str)).astype(np.float64)
            hidden = np.zeros(part.shape)
        is_one = part.shape[1] == 1
        names += [name] if is_one else [(name, answer) for answer in answers]
        parts.append(part)
        within.append(hidden)
    x, within, y = np.hstack(parts), np.hstack(within), people[goal].to_numpy() == everybody.columns[goal][1]
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
    lines = [
        "| table | ε | asked | held (worst row) | refused | width over that without noise |",
        "|---|---|---|---|---|---|",
    ]
    for result in rows:
        held = f"{result['held']:.3f} ({result['worst']:.2f})"
        asked = f"| {result['table']} | {result['epsilon']:g} | {result['asked']}"
        lines.append(f"{asked} | {held} | {result['refused']:.2f} | {result['width']:.1f} |")
    return "\n".join(lines) + "\n"
