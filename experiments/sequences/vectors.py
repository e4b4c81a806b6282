"""``python -m experiments vectors``: Gaussian hidden Markov models of generated vectors, private and not.

Four kinds of data: 4 states in 3 columns and 8 states in 5, of 5,000 and 20,000 sequences of 20 to 60 steps. Log likelihood per
step of a tenth more, which was not fitted, and the share of the way from one Gaussian to the fit without privacy; the largest
total variation of a row of the moves from the true one, after matching states by their means.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import GaussianHMM, PrivacyPlan
from vips.data import Sequences

EPSILONS, DELTA, N_SEEDS, N_STEPS = (0.5, 1.0, 4.0), 1e-5, 3, 60
KINDS = ((4, 3, 5_000), (4, 3, 20_000), (8, 5, 5_000), (8, 5, 20_000))


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments vectors", __doc__)
    parser.add_argument("--seeds", type=int, default=N_SEEDS, help="private fits of each kind, each to data of its own")
    options = parser.parse_args(arguments)
    folder, rows = folder_of("vectors", options), []
    for n_states, n_columns, n in ((3, 2, 300),) if options.quick else KINDS:
        rows += of_kind(n_states, n_columns, n, 1 if options.quick else options.seeds, 15 if options.quick else N_STEPS)
    print(text := as_text(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def of_kind(n_states: int, n_columns: int, n: int, n_seeds: int, n_steps: int) -> list[dict]:
    """Rows of the table for one kind of data."""
    of_fits: dict = {epsilon: [] for epsilon in (None, *EPSILONS)}
    for seed in range(n_seeds):
        data, moves, means = generated(n + n // 10, n_states, n_columns, seed)
        train, test = data[:n], data[n:]
        alone = per_step(GaussianHMM(1, privacy=every(n_steps)).fit(train), test)
        free = GaussianHMM(n_states, privacy=every(n_steps)).fit(train)
        best = per_step(free, test)
        of_fits[None].append((best - alone, 1.0, distance(free, moves, means)))
        for epsilon in EPSILONS:
            plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling_rate=1.0, n_steps=n_steps)
            # a public bound: the generator's means are about 2 √d from the origin
            model = GaussianHMM(n_states, max_norm=6.0 * np.sqrt(n_columns), privacy=plan).fit(train)
            share = (per_step(model, test) - alone) / (best - alone)
            of_fits[epsilon].append((share * (best - alone), share, distance(model, moves, means)))
    rows = []
    for epsilon, fits in of_fits.items():
        gains, shares, distances = zip(*fits, strict=True)
        rows.append({
            "states": n_states, "columns": n_columns, "sequences": n, "epsilon": epsilon, "gain": float(np.mean(gains)),
            "shares": list(shares), "distances": list(distances),
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def every(n_steps: int) -> PrivacyPlan:
    return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=n_steps)


def per_step(model: GaussianHMM, test: Sequences) -> float:
    return model.score_samples(test).sum() / len(test.values)


def distance(model: GaussianHMM, moves: np.ndarray, means: np.ndarray) -> float:
    apart = ((model.means_[:, None] - means) ** 2).sum(axis=2)
    matched, true = linear_sum_assignment(apart)
    return float(0.5 * np.abs(model.transmat_[np.ix_(matched, matched)] - moves[np.ix_(true, true)]).sum(axis=1).max())


def generated(n: int, n_states: int, n_columns: int, seed: int) -> tuple[Sequences, np.ndarray, np.ndarray]:
    """Sequences of 20 to 60 steps, with the true moves and means."""
    rng = np.random.default_rng(seed)
    moves = 0.7 * np.eye(n_states) + 0.3 * rng.dirichlet(np.full(n_states, 0.5), n_states)
    means = 2.0 * rng.standard_normal((n_states, n_columns))
    squares = 0.4 * rng.standard_normal((n_states, n_columns, n_columns))
    factors = np.linalg.cholesky(0.3 * np.eye(n_columns) + squares @ np.swapaxes(squares, 1, 2))
    lengths = rng.integers(20, 61, n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    states, state = np.empty(offsets[-1], np.int64), rng.integers(0, n_states, n)
    for t in range(60):
        alive = np.flatnonzero(lengths > t)
        if t:
            state[alive] = (rng.random((len(alive), 1)) >= np.cumsum(moves, axis=1)[state[alive], :-1]).sum(axis=1)
        states[offsets[alive] + t] = state[alive]
    noise = rng.standard_normal((len(states), n_columns))
    return Sequences(means[states] + np.einsum("nij,nj->ni", factors[states], noise), offsets), moves, means


def as_text(rows: list[dict]) -> str:
    lines = [
        "| states | columns | sequences | ε | gain, nats a step | share of the way | of each fit | largest row of moves |",
        "|" + "---|" * 8,
    ]
    for row in rows:
        epsilon = "∞" if row["epsilon"] is None else f"{row['epsilon']:g}"
        of_each = "" if row["epsilon"] is None else ", ".join(f"{value:.2f}" for value in row["shares"])
        lines.append(
            f"| {row['states']} | {row['columns']} | {row['sequences']:,} | {epsilon} | {row['gain']:.2f} "
            f"| {np.mean(row['shares']):.2f} | {of_each} | {', '.join(f'{value:.2f}' for value in row['distances'])} |"
        )
    return "\n".join(lines) + "\n"
