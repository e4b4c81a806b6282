"""``python -m experiments dynamics``: linear dynamical systems of generated series, private and not.

Series of 20 to 60 steps and six columns, driven by a state of three numbers: a rotation by half a radian a step, whose radius
shrinks by 0.95, and a level that shrinks by 0.8. Log likelihood per step of series that were not fitted, and the share of
the way from independent Gaussian steps to the fit without privacy. *EM after half* spends half of the budget on the moments,
and half on ten steps of EM. *Moves*: the largest distance of an eigenvalue of the moves from the true one.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_discrete_lyapunov
from scipy.optimize import linear_sum_assignment

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from experiments.sequences.noisy_em import N_STEPS_OF_EACH, EMAfterHalf
from vips import LinearDynamicalSystem, PrivacyPlan
from vips.data import Sequences
from vips.models.dynamics.posterior import Dynamics, DynamicsPosterior

EPSILONS, DELTA, N_SEEDS = (0.5, 1.0, 4.0), 1e-5, 5
N_COLUMNS, MAX_NORM, N_TEST, GAPS = 6, 8.0, 2_000, 0.2
KINDS = {"whole": (20_000, 0.0), "few": (2_000, 0.0), "a fifth of the entries missing": (20_000, GAPS)}


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments dynamics", __doc__)
    parser.add_argument("--seeds", type=int, default=N_SEEDS, help="private fits of each kind")
    options = parser.parse_args(arguments)
    folder = folder_of("dynamics", options)
    rows = []
    for name, (n, gaps) in list(KINDS.items())[: 1 if options.quick else None]:
        rows += rows_of(
            name, n // 10 if options.quick else n, gaps, 1 if options.quick else options.seeds, options.quick
        )
    print(text := as_text(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def rows_of(name: str, n: int, gaps: float, n_seeds: int, quick: bool) -> list[dict]:
    """Fits without and with privacy."""
    rng, true = np.random.default_rng(7), the_system()
    train, test = drawn(true, n, gaps, rng), drawn(true, n if quick else N_TEST, 0.0, rng)
    alone = of_independent_steps(train, test)
    best = LinearDynamicalSystem(
        3, privacy=PrivacyPlan.non_private(sampling_rate=1.0, n_steps=11 if quick else 101)
    ).fit(train)
    best_score = best.score_samples(test).sum() / len(test.values)
    rows = [
        {"data": name, "method": "independent steps", "epsilon": None, "log likelihood": alone},
        {"data": name, "method": "EM", "epsilon": None, "log likelihood": best_score, "moves": distance(best, true)},
    ]
    for method, make, epsilons, n_steps in (
        ("private", LinearDynamicalSystem, EPSILONS, 1),
        ("EM after half", EMAfterHalf, EPSILONS[1:], 2 * N_STEPS_OF_EACH),
    ):
        for epsilon in epsilons:
            plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling_rate=1.0, n_steps=n_steps)
            fits = [make(3, privacy=plan, max_norm=MAX_NORM).fit(train) for _ in range(n_seeds)]
            scores = [model.score_samples(test).sum() / len(test.values) for model in fits]
            rows.append({
                "data": name, "method": method, "epsilon": epsilon, "log likelihood": float(np.mean(scores)),
                "each": [(score - alone) / (best_score - alone) for score in scores],
                "moves": float(np.mean([distance(model, true) for model in fits])),
            })  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def the_system() -> Dynamics:
    """A rotation and a level, both stationary."""
    rng, (c, s) = np.random.default_rng(0), (np.cos(0.5), np.sin(0.5))
    moves = np.array([[0.95 * c, -0.95 * s, 0.0], [0.95 * s, 0.95 * c, 0.0], [0.0, 0.0, 0.8]])
    moves_cov = np.diag([0.1, 0.1, 0.36])
    loadings, offset = 0.6 * rng.normal(size=(N_COLUMNS, 3)), 0.2 * rng.normal(size=N_COLUMNS)
    stationary = solve_discrete_lyapunov(moves, moves_cov)
    return Dynamics(moves, moves_cov, loadings, offset, np.ones(N_COLUMNS), np.zeros(3), stationary)


def drawn(true: Dynamics, n: int, gaps: float, rng: np.random.Generator) -> Sequences:
    """Series of 20 to 60 steps, without a share ``gaps`` of the entries."""
    model = LinearDynamicalSystem(3)
    model.last_posterior_ = DynamicsPosterior(true)
    sequences = model.sample(n, rng, lengths=rng.integers(20, 61, n))[0]
    sequences.values[rng.random(sequences.values.shape) < gaps] = np.nan
    return sequences


def of_independent_steps(train: Sequences, test: Sequences) -> float:
    """Log likelihood per step of one Gaussian, without privacy."""
    whole = train.values[np.isfinite(train.values).all(axis=1)]
    errors, cov = test.values - np.nanmean(train.values, axis=0), np.cov(whole.T)
    squares = (errors * np.linalg.solve(cov, errors.T).T).sum(axis=1)
    return float(-0.5 * (squares.mean() + np.linalg.slogdet(2.0 * np.pi * cov)[1]))


def distance(model: LinearDynamicalSystem, true: Dynamics) -> float:
    """Largest distance of an eigenvalue of the moves from the true one, after the best matching."""
    apart = np.abs(np.linalg.eigvals(model.transition_matrix_)[:, None] - np.linalg.eigvals(true.moves))
    return float(apart[linear_sum_assignment(apart)].max())


def as_text(rows: list[dict]) -> str:
    lines = [
        "| series | method | ε | log likelihood a step | share of the way | of each fit | moves |",
        "|" + "---|" * 7,
    ]
    for row in rows:
        shown = [f"{value:.3f}" for value in row.get("each", ())]
        epsilon = f"{row['epsilon']:g}" if shown else "∞" if row["method"] == "EM" else ""
        share = f"{np.mean(row['each']):.3f}" if shown else ""
        moves = f"{row['moves']:.3f}" if "moves" in row else ""
        numbers = f"{row['log likelihood']:.3f} | {share} | {', '.join(shown)} | {moves}"
        lines.append(f"| {row['data']} | {row['method']} | {epsilon} | {numbers} |")
    return "\n".join(lines) + "\n"
