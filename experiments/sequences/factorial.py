"""``python -m experiments factorial``: factorial hidden Markov models of generated series, private and not.

20,000 series of 30 steps and five columns, whose chains stay in nine steps of ten. Bound of the log likelihood per step of
series that were not fitted, as the share of the way from independent Gaussian steps to the best of four fits without privacy;
and the correlation of the true states with what the fit says of them. Averages over three private fits from draws of their own,
and the worst of them.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import multivariate_normal

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import FactorialHMM, PrivacyPlan
from vips.data import Sequences

CASES, EPSILONS, DELTA, N_SERIES, N_STEPS = ((2, 2), (3, 2), (3, 3)), (4.0, 1.0, 0.5), 1e-5, 20_000, 40
LENGTH, COLUMNS, STAYS, NOISE, MAX_NORM, RESTARTS, N_FITS = 30, 5, 0.9, 0.5, 7.0, 4, 3


def main(arguments: list[str]) -> None:
    options = parser_of("experiments factorial", __doc__).parse_args(arguments)
    folder, rows = folder_of("factorial", options), []
    cases, n = (CASES[:1], 1_000) if options.quick else (CASES, N_SERIES)
    for n_chains, n_states in cases:
        rng = np.random.default_rng(n_chains * n_states)
        effects = rng.normal(size=(n_chains, n_states, COLUMNS))
        effects -= effects.mean(axis=1, keepdims=True)
        (train, _), (test, states) = (generated(size, effects, rng) for size in (n, 500))
        alone = multivariate_normal.logpdf(test.values, train.values.mean(axis=0), np.cov(train.values.T)).mean()
        plan = PrivacyPlan.non_private(sampling_rate=1.0, n_steps=N_STEPS)
        plain = [
            FactorialHMM(n_chains, n_states, privacy=plan, random_state=seed).fit(train)
            for seed in range(1 if options.quick else RESTARTS)
        ]
        steps = len(test.values)
        bounds = [model.score_samples(test).sum() / steps for model in plain]
        for epsilon in (None, *EPSILONS):
            models = plain
            if epsilon is not None:
                plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling_rate=1.0, n_steps=N_STEPS)
                arguments = {"privacy": plan, "max_norm": MAX_NORM, "typical_length": LENGTH}
                models = [
                    FactorialHMM(n_chains, n_states, random_state=seed, **arguments).fit(train)
                    for seed in range(1 if options.quick else N_FITS)
                ]
            shares = [(model.score_samples(test).sum() / steps - alone) / (max(bounds) - alone) for model in models]
            rows.append({
                "chains": n_chains, "states": n_states, "epsilon": epsilon, "alone": alone, "best": max(bounds),
                "share": float(np.mean(shares)), "worst": min(shares),
                "found": float(np.mean([correlation(model, test, states) for model in models])),
            })  # fmt: skip
            print(rows[-1], flush=True)
    print(text := as_text(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def generated(n: int, effects: np.ndarray, rng: np.random.Generator) -> tuple[Sequences, np.ndarray]:
    """Series, and the states of their chains, shape (n_steps, n_chains)."""
    n_chains, n_states = effects.shape[:2]
    states = np.empty((n, LENGTH, n_chains), np.int64)
    states[:, 0] = rng.integers(n_states, size=(n, n_chains))
    for t in range(1, LENGTH):
        moved = rng.integers(n_states, size=(n, n_chains))
        states[:, t] = np.where(rng.random((n, n_chains)) < STAYS, states[:, t - 1], moved)
    states = states.reshape(-1, n_chains)
    seen = effects[np.arange(n_chains), states].sum(axis=1)
    seen += NOISE * rng.standard_normal(seen.shape)
    return Sequences(seen, np.arange(n + 1) * LENGTH), states


def correlation(model: FactorialHMM, test: Sequences, states: np.ndarray) -> float:
    """Average over true states of the largest correlation with the probability of a fitted one."""
    shares = model.predict_proba(test).reshape(len(states), -1)
    true = (states[:, :, None] == np.arange(model.n_components)).reshape(len(states), -1)
    with np.errstate(invalid="ignore"):
        both = np.abs(np.corrcoef(shares.T, true.T.astype(float)))[: shares.shape[1], shares.shape[1] :]
    return float(np.nan_to_num(both).max(axis=0).mean())


def as_text(rows: list[dict]) -> str:
    lines = ["| chains × states | ε | share of the way | the worst fit | states found |", "|" + "---|" * 5]
    for row in rows:
        epsilon = "∞" if row["epsilon"] is None else f"{row['epsilon']:g}"
        lines.append(
            f"| {row['chains']} × {row['states']} | {epsilon} | {row['share']:.3f} | {row['worst']:.3f} | "
            f"{row['found']:.2f} |"
        )
    return "\n".join(lines) + "\n"
