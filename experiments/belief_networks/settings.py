"""``python -m experiments sbn_settings``: default clip, scales, ridge, step and start against their alternatives.

Fitted: 10,000 of the first 50,000 training images of MNIST; scored: hidden pixels of 2,000 of the next 10,000. No test image
is used. A fifth of the images gets a fifth of the noise: this imitates 50,000 images at ε, with the same ratio of
signal to noise in every total, in a fifth of the time. It is not a private fit at that ε.
"""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
from tqdm import tqdm

from experiments.belief_networks.scoring import Scored, score
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from experiments.stand_ins import mnist
from vips import PrivacyPlan, SigmoidBeliefNetwork
from vips.models.belief_networks import sigmoid as network
from vips.models.belief_networks import update as sbn_update

EPSILONS, DELTA = (0.5, 1.0), 1e-4
N_HIDDEN, SAMPLING_RATE, N_STEPS = 30, 0.5, 20
N_DEVELOPMENT, N_FITTED, N_SCORED = 50_000, 10_000, 2_000


def scales(**changes: float) -> dict:
    return {(network, "_SCALES"): network._SCALES | changes}


# name, changed constants of a module, arguments of the model
SETTINGS = [
    ("default", {}, {}),
    ("clip norm × ½", {(network, "_CLIP_NORM"): 0.5 * network._CLIP_NORM}, {}),
    ("clip norm × 2", {(network, "_CLIP_NORM"): 2.0 * network._CLIP_NORM}, {}),
    ("clip norm × 8", {(network, "_CLIP_NORM"): 8.0 * network._CLIP_NORM}, {}),
    ("scale of precisions × ½", scales(precision=0.5 * network._SCALES["precision"]), {}),
    ("scale of precisions × 2", scales(precision=2.0 * network._SCALES["precision"]), {}),
    ("scale of visible biases × ½", scales(visible=0.5 * network._SCALES["visible"]), {}),
    ("scale of visible biases × 2", scales(visible=2.0 * network._SCALES["visible"]), {}),
    ("all scales 1", {(network, "_SCALES"): dict.fromkeys(network._SCALES, 1.0)}, {}),
    ("no ridge", {(sbn_update, "_RIDGE"): 0.0}, {}),
    ("ridge × 2", {(sbn_update, "_RIDGE"): 2.0 * sbn_update._RIDGE}, {}),
    ("half the damping's step", {(sbn_update, "_DAMPING"): 0.5 * sbn_update._DAMPING}, {}),
    ("whole steps", {(sbn_update, "_DAMPING"): 1.0}, {}),
    ("starting weights × ½", {(sbn_update, "_FIRST_STD"): 0.5 * sbn_update._FIRST_STD}, {}),
    ("starting weights × 2", {(sbn_update, "_FIRST_STD"): 2.0 * sbn_update._FIRST_STD}, {}),
    ("1 sweep", {}, {"max_iter": 1}),
    ("6 sweeps", {}, {"max_iter": 6}),
    ("normal prior", {}, {"penalty": "normal"}),
]


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments sbn_settings", __doc__)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args(arguments)
    folder = folder_of("sbn_settings", options)
    n_development, n_fitted, n_scored = (1200, 300, 50) if options.quick else (N_DEVELOPMENT, N_FITTED, N_SCORED)
    n_hidden, epsilons, settings = (
        (10, EPSILONS[-1:], SETTINGS[:2]) if options.quick else (N_HIDDEN, EPSILONS, SETTINGS)
    )
    seeds = range(1 if options.quick else options.seeds)
    images = mnist(options.quick).data
    fitted = images[np.random.default_rng(7).permutation(n_development)[:n_fitted]]
    scored = Scored(images[n_development:], n_scored)
    plans = {epsilon: stand_in(epsilon, n_fitted / N_DEVELOPMENT) for epsilon in epsilons}
    rows = []
    with tqdm(total=len(settings) * len(plans) * len(seeds), desc="fits", disable=None) as progress:
        for name, constants, arguments_ in settings:
            rows.append({"setting": name, "hidden": {epsilon: [] for epsilon in plans}})
            with changed(constants):
                for epsilon, plan in plans.items():
                    for seed in seeds:
                        model = SigmoidBeliefNetwork(n_hidden, privacy=plan, random_state=seed, **arguments_)
                        model.fit(fitted)
                        rows[-1]["hidden"][epsilon].append(score(model.reconstruct, scored, seed)["hidden"])
                        progress.update()
            tqdm.write(line(rows[-1]))
    text = table(rows)
    print(text)
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def stand_in(epsilon: float, share: float) -> PrivacyPlan:
    """The noise of ε for all images, times the share of them that is fitted."""
    plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling_rate=SAMPLING_RATE, n_steps=N_STEPS)
    return PrivacyPlan(noise_multiplier=share * plan.noise_multiplier, sampling_rate=SAMPLING_RATE, n_steps=N_STEPS)


def line(row: dict) -> str:
    cells = [f"{np.mean(values):.4f} ({min(values):.4f} to {max(values):.4f})" for values in row["hidden"].values()]
    return f"| {row['setting']} | {' | '.join(cells)} |"


def table(rows: list[dict]) -> str:
    heads = ["setting", *(f"noise of ε = {epsilon:g}" for epsilon in rows[0]["hidden"])]
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|", *map(line, rows)]
    return "Shares of hidden pixels predicted right, mean (range over fits).\n\n" + "\n".join(lines) + "\n"


@contextmanager
def changed(constants: dict):
    """With other constants of modules, meanwhile."""
    before = {place: getattr(*place) for place in constants}
    for place, value in constants.items():
        setattr(*place, value)
    try:
        yield
    finally:
        for place, value in before.items():
            setattr(*place, value)
