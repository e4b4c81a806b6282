"""``python -m experiments deep_networks``: is a second hidden layer worth its share of the budget?

A deep belief network of layers K₁ and K₂, fitted layer by layer (Hinton, Osindero and Teh 2006): a network of K₁ hidden units
to the records, and one of K₂ to a draw of their hidden units, in place of the prior of these. At a given ε the first fit has
three quarters of the budget (of μ²), the second the rest. Beside it, one layer of K₁ + K₂ units, and one of K₁, with all of it.

Records: images of MNIST (pixel above 0), and the categories of Adult as zeros and ones. Scores: the mean evidence lower bound
of held-out records, in nats. For the deep network that is the bound of the first layer, with E_q log p(h) replaced by the
second layer's bound of hidden units drawn from q; what this replacement gains is the column "gain".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.special import log_expit
from tqdm.auto import tqdm

from experiments import stand_ins
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import PrivacyBudget, PrivacyPlan, SigmoidBeliefNetwork

DELTA, EPSILONS, N_STEPS, FIRST_SHARE, N_DRAWS = 1e-5, (None, 4.0, 1.0), 20, 0.75, 5
SIZES = {"images": (50, 50), "categories": (20, 20)}
N_IMAGES, N_HELD_OUT, QUICK = 20_000, 2_000, 300


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments deep_networks", __doc__)
    parser.add_argument("--seeds", type=int, default=3, help="fits of each kind")
    options = parser.parse_args(arguments)
    folder, n_seeds = folder_of("deep_networks", options), 1 if options.quick else options.seeds
    rows = []
    for name, sizes in SIZES.items():
        training, held_out = _records(name, options.quick)
        sizes = (4, 3) if options.quick else sizes
        for epsilon in tqdm(EPSILONS, name, disable=None):
            scores = [compared(training, held_out, sizes, epsilon, seed) for seed in range(n_seeds)]
            of_all = {key: [score[key] for score in scores] for key in scores[0]}
            rows.append({"records": name, "epsilon": epsilon, "layers": sizes, **of_all})
    print(text := as_text(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def _records(name: str, quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Zeros and ones to fit, and others to score."""
    if name == "images":
        images = stand_ins.mnist(quick)
        parts = images.data[:N_IMAGES], images.test_data[:N_HELD_OUT]
    else:
        table = pd.DataFrame(stand_ins.adult(quick).data).select_dtypes(exclude="number")
        order = np.random.default_rng(0).permutation(len(table))
        known = pd.get_dummies(table).to_numpy()[order]
        parts = known[N_HELD_OUT:], known[:N_HELD_OUT]
        if quick:
            parts = known[: len(known) // 2], known[len(known) // 2 :]
    training, held_out = (np.asarray(part > 0, dtype=np.uint8) for part in parts)
    return (training[:QUICK], held_out[:QUICK]) if quick else (training, held_out)


def compared(training, held_out, sizes: tuple[int, int], epsilon: float | None, seed: int) -> dict[str, float]:
    """Mean bounds of held-out records: of one layer of either size, and of two."""
    first, second = sizes
    plans = [None] * 3
    if epsilon is not None:
        whole = PrivacyBudget(epsilon, DELTA).plan(n_steps=N_STEPS)
        plans = [whole, *(_share(whole, share) for share in (FIRST_SHARE, 1.0 - FIRST_SHARE))]
    fits = {
        k: SigmoidBeliefNetwork(k, privacy=plans[0], random_state=seed).fit(training) for k in (first, first + second)
    }
    below = (
        fits[first]
        if epsilon is None
        else SigmoidBeliefNetwork(first, privacy=plans[1], random_state=seed).fit(training)
    )
    rng = np.random.default_rng(seed)
    above = SigmoidBeliefNetwork(second, privacy=plans[2], random_state=seed).fit(_hidden(below, training, rng))
    gain = _gain(below, above, held_out, rng)
    return {
        "one layer": fits[first + second].score(held_out),
        "first alone": fits[first].score(held_out),
        "two layers": below.score(held_out) + gain,
        "gain": gain,
    }


def _share(plan: PrivacyPlan, share: float) -> PrivacyPlan:
    """The plan with this share of μ²."""
    return replace(plan, noise_multiplier=plan.noise_multiplier / np.sqrt(share))


def _hidden(model: SigmoidBeliefNetwork, records: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Hidden units of records, drawn from q."""
    probabilities = model.transform(records)
    return (rng.random(probabilities.shape) < probabilities).astype(np.uint8)


def _gain(
    below: SigmoidBeliefNetwork, above: SigmoidBeliefNetwork, records: np.ndarray, rng: np.random.Generator
) -> float:
    """E_q of the second layer's bound less log p(h) of the first one's prior; nats a record."""
    bias, gains = below.intercept_hidden_, []
    for _ in range(N_DRAWS):
        hidden = _hidden(below, records, rng)
        prior = np.where(hidden, log_expit(bias), log_expit(-bias)).sum(axis=1)
        gains.append(float(np.mean(above.score_samples(hidden) - prior)))
    return float(np.mean(gains))


def as_text(rows: list[dict]) -> str:
    lines = [
        "| records | layers | ε | one layer of both | the first alone | two layers | gain of the second |",
        "|" + "---|" * 7,
    ]
    for row in rows:
        told = [
            f"{np.mean(row[key]):.2f} ± {np.std(row[key]):.2f}"
            for key in ("one layer", "first alone", "two layers", "gain")
        ]
        epsilon = "∞" if row["epsilon"] is None else f"{row['epsilon']:g}"
        lines.append(f"| {row['records']} | {row['layers'][0]}, {row['layers'][1]} | {epsilon} | {' | '.join(told)} |")
    return "\n".join(lines) + "\n"
