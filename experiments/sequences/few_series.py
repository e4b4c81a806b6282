"""``python -m experiments few_series``: EM and variational Bayes of linear dynamical systems with few series to learn from.

Series of 20 to 60 steps, six columns and three states, as in ``python -m experiments dynamics``, without privacy. Log
likelihood per step of 500 series that were not fitted, under the fitted parameters, less that under the true ones; average over
ten sets.
"""

from __future__ import annotations

import numpy as np

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from experiments.sequences.dynamics import drawn, the_system
from vips import LinearDynamicalSystem, PrivacyPlan
from vips.models.dynamics.posterior import DynamicsPosterior

SIZES, N_SETS, N_TEST, N_STEPS = (2, 5, 10, 50), 10, 500, 100
METHODS = {"em": "EM", "vb": "variational Bayes"}


def main(arguments: list[str]) -> None:
    options = parser_of("experiments few_series", __doc__).parse_args(arguments)
    folder, true, rng = folder_of("few_series", options), the_system(), np.random.default_rng(3)
    test, rows = drawn(true, N_TEST, 0.0, rng), []
    plan, steps = PrivacyPlan.non_private(sampling_rate=1.0, n_steps=N_STEPS), len(test.values)
    best = LinearDynamicalSystem(3)
    best.n_features_in_, best.last_posterior_ = test.values.shape[1], DynamicsPosterior(true)
    for size in SIZES[:1] if options.quick else SIZES:
        losses_of_methods = {method: [] for method in METHODS}
        for _ in range(2 if options.quick else N_SETS):
            train = drawn(true, size, 0.0, rng)
            for method, losses in losses_of_methods.items():
                model = LinearDynamicalSystem(3, inference=method, privacy=plan).fit(train)
                losses.append((model.score_samples(test).sum() - best.score_samples(test).sum()) / steps)
        rows.append({"series": size} | {method: float(np.mean(losses)) for method, losses in losses_of_methods.items()})
    print(text := as_text(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def as_text(rows: list[dict]) -> str:
    lines = [f"| series | {' | '.join(METHODS.values())} |", "|" + "---|" * (1 + len(METHODS))]
    lines += [f"| {row['series']} | {' | '.join(f'{row[method]:.3f}' for method in METHODS)} |" for row in rows]
    return "\n".join(lines) + "\n"
