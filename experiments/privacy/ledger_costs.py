"""``python -m experiments ledger_costs``: what one fit costs a ledger, beside dp_accounting's privacy loss distributions.

The table has, for each plan, its ε by dp_accounting from below and from above; the ε that a ledger shows if all of δ/10 were
its δ₀; and the ε of a first charge, which takes a twentieth of that.
"""

from __future__ import annotations

import itertools
import math

from dp_accounting.pld import privacy_loss_distribution as losses_of

from experiments.options import folder_of, parser_of
from experiments.results import write_text
from vips import PrivacyPlan
from vips.core.accounting import dominating_mu
from vips.core.accounting.gaussian import gaussian_epsilon

RATES, STEPS, NOISES = (0.001, 0.01, 0.1, 1.0), (1, 20, 500, 10_000), (0.5, 1.0, 2.0, 5.0, 50.0)
DELTAS = (1e-3, 1e-5, 1e-8, 1e-12)
HEADS = "| rate | steps | noise | δ | ε from below | ε from above | ledger | ÷ above | first charge | ÷ above |"


def plans() -> list[tuple[PrivacyPlan, float]]:
    """Plans of a grid, with δ in turn."""
    grid = itertools.product(RATES, STEPS, NOISES)
    useful = [(q, n, s) for q, n, s in grid if q * math.sqrt(n * math.expm1(min(1.0 / s**2, 50.0))) < 8.0]
    made = [PrivacyPlan(noise_multiplier=s, sampling_rate=q, n_steps=n) for q, n, s in useful]
    return [(plan, DELTAS[i % len(DELTAS)]) for i, plan in enumerate(made)]


def bounds(plan: PrivacyPlan, delta: float) -> list[float]:
    """ε by dp_accounting, optimistic and pessimistic."""
    both = []
    for is_upper in (False, True):
        losses = losses_of.from_gaussian_mechanism(
            plan.noise_multiplier, sampling_prob=plan.sampling_rate, pessimistic_estimate=is_upper,
            value_discretization_interval=1e-4,
        )  # fmt: skip
        both.append(losses.self_compose(plan.n_steps).get_epsilon_for_delta(delta))
    return both


def row(plan: PrivacyPlan, delta: float) -> list[float]:
    """The numbers of a row, after the settings."""
    below, above = bounds(plan, delta)
    costs = [gaussian_epsilon(dominating_mu(plan, share * delta), 0.9 * delta) for share in (0.1, 0.005)]
    ratios = [cost / above if above else math.inf for cost in costs]
    return [below, above, costs[0], ratios[0], costs[1], ratios[1]]


def main(arguments: list[str]) -> None:
    options = parser_of("experiments ledger_costs", __doc__).parse_args(arguments)
    folder = folder_of("ledger_costs", options)
    chosen = plans()[:4] if options.quick else plans()
    lines = [HEADS, "| --- " * (HEADS.count("|") - 1) + "|"]
    for plan, delta in chosen:
        numbers = row(plan, delta)
        assert not math.isfinite(numbers[0]) or numbers[2] >= numbers[0], "a ledger charges less than a fit reveals"
        settings = f"{plan.sampling_rate:g} | {plan.n_steps} | {plan.noise_multiplier:g} | {delta:g}"
        lines.append(f"| {settings} | {' | '.join(f'{number:.4g}' for number in numbers)} |")
        print(lines[-1], flush=True)
    if folder is not None:
        write_text(folder / "table.md", "\n".join(lines) + "\n")
