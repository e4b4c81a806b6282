"""``python -m experiments switching``: two regimes of a rotation, private and not.

20,000 series of 25 to 39 steps and five columns; a state of two numbers turns by 0.9 or by -0.15 radian a step, and the regime
changes in a twentieth of the steps. Bound of the log likelihood per step of series that were not fitted, and the share of the
way from one linear dynamical system to the true parameters; steps whose regime is found (with the true parameters: first row).
"""

from __future__ import annotations

import numpy as np

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import LinearDynamicalSystem, PrivacyPlan, SwitchingLinearDynamicalSystem
from vips.models.dynamics.posterior import Dynamics
from vips.models.dynamics.switching_posterior import SwitchingPosterior

EPSILONS, DELTA, N_SERIES, N_STEPS, N_ITER, MAX_NORM = (4.0, 1.0, 0.5), 1e-5, 20_000, 30, 4, 8.0


def main(arguments: list[str]) -> None:
    options = parser_of("experiments switching", __doc__).parse_args(arguments)
    folder = folder_of("switching", options)
    rng, n = np.random.default_rng(0), 250 if options.quick else N_SERIES
    true = the_system(rng)
    train, test = (true.sample(size, rng, lengths=rng.integers(25, 40, size)) for size in (n, 200))
    one = LinearDynamicalSystem(2, privacy=PrivacyPlan.non_private(sampling_rate=1.0, n_steps=5)).fit(train[0])
    steps = len(test[0].values)
    alone, best = one.score_samples(test[0]).sum() / steps, true.score_samples(test[0]).sum() / steps
    rows = [{"method": "true parameters", "epsilon": None, "bound": best, "regimes": agreement(true, test)}]
    for epsilon in (None, *EPSILONS):
        plan = PrivacyPlan.non_private(sampling_rate=1.0, n_steps=N_STEPS)
        if epsilon is not None:
            plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling_rate=1.0, n_steps=N_STEPS)
        model = SwitchingLinearDynamicalSystem(
            2, 2, max_iter=N_ITER, privacy=plan, max_norm=MAX_NORM, random_state=0
        ).fit(train[0])
        bound = model.score_samples(test[0]).sum() / steps
        rows.append({
            "method": "fit", "epsilon": epsilon, "bound": bound, "share": (bound - alone) / (best - alone),
            "regimes": agreement(model, test),
        })  # fmt: skip
        print(rows[-1], flush=True)
    print(text := as_text(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def the_system(rng: np.random.Generator) -> SwitchingLinearDynamicalSystem:
    """Two regimes that turn the state at different speeds."""

    def turn(w: float) -> np.ndarray:
        return 0.97 * np.array([[np.cos(w), -np.sin(w)], [np.sin(w), np.cos(w)]])

    cov, eye = 0.1 * np.eye(2), np.eye(2)
    of = Dynamics(turn(0.9), cov, rng.normal(size=(5, 2)), np.zeros(5), np.full(5, 0.4), np.zeros(2), eye)
    moves, covs = np.array([turn(0.9), turn(-0.15)]), np.array([cov, cov])
    model = SwitchingLinearDynamicalSystem(2, 2)
    model.n_features_in_, chain = 5, np.array([[0.95, 0.05], [0.05, 0.95]])
    model.last_posterior_ = SwitchingPosterior(of, moves, covs, np.full(2, 0.5), chain, np.zeros((2, 2, 2)))
    return model


def agreement(model: SwitchingLinearDynamicalSystem, test: tuple) -> float:
    """Share of the steps whose regime is found."""
    agreed = float(np.mean(model.predict(test[0]) == test[2]))
    return max(agreed, 1.0 - agreed)


def as_text(rows: list[dict]) -> str:
    lines = ["| method | ε | bound a step | share of the way | regimes found |", "|" + "---|" * 5]
    for row in rows:
        is_fit = row["method"] == "fit"
        epsilon = "" if not is_fit else "∞" if row["epsilon"] is None else f"{row['epsilon']:g}"
        share = f"{row['share']:.3f}" if is_fit else ""
        lines.append(f"| {row['method']} | {epsilon} | {row['bound']:.3f} | {share} | {row['regimes']:.3f} |")
    return "\n".join(lines) + "\n"
