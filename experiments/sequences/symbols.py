"""``python -m experiments sequences``: hidden Markov models of sentences and of generated pathways, private and not.

Sentences of MASC over 1,001 words, 12 states; pathways of 5 to 60 events of 40 kinds, from a chain of 8 states. Log likelihood
per step of a tenth of the sequences, which was not fitted, and the share of the way from frequencies of the symbols to the fit
without privacy. States of words against their parts of speech (normalised mutual information); moves of pathways against the
true ones (largest total variation of a row, after matching states by their symbols).
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import normalized_mutual_info_score

from experiments.datasets import load_masc
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from experiments.stand_ins import found_or
from vips import CategoricalHMM, PrivacyPlan
from vips.data import Sequences

EPSILONS, DELTA, N_SEEDS, N_STEPS = (0.5, 1.0, 4.0), 1e-5, 3, 60
N_PATHS, N_STATES, N_EVENTS = 50_000, 8, 40


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments sequences", __doc__)
    parser.add_argument("--seeds", type=int, default=N_SEEDS, help="private fits of each kind")
    options = parser.parse_args(arguments)
    folder = folder_of("sequences", options)
    rows = [*of_sentences(options.quick, options.seeds), *of_pathways(options.quick, options.seeds)]
    print(text := as_text(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def of_sentences(quick: bool, n_seeds: int) -> list[dict]:
    """Rows of the table for sentences."""
    bunch = found_or(load_masc, generated_sentences, quick)
    lines, n_lines = Sequences.from_lengths(bunch.words, bunch.lengths), len(bunch.lengths)
    order = np.random.default_rng(1).permutation(n_lines)
    test, train = order[: n_lines // 10], order[n_lines // 10 :]
    parts = Sequences(bunch.classes, lines.offsets)[test].values[:, 0]

    def agreement(model: CategoricalHMM) -> float:
        return float(normalized_mutual_info_score(parts, model.predict(lines[test])))

    settings = {"n_components": 12, "n_symbols": len(bunch.vocabulary) + 1}
    return rows_of(
        "sentences", lines[train[:1_000] if quick else train], lines[test], settings, agreement, quick, n_seeds
    )


def of_pathways(quick: bool, n_seeds: int) -> list[dict]:
    """Rows of the table for generated pathways."""
    n_paths = 1_000 if quick else N_PATHS
    paths, moves, events = pathways(n_paths + n_paths // 10)

    def distance(model: CategoricalHMM) -> float:
        apart = ((np.sqrt(model.emissionprob_)[:, None] - np.sqrt(events)) ** 2).sum(axis=2)
        matched, true = linear_sum_assignment(apart)
        difference = model.transmat_[np.ix_(matched, matched)] - moves[np.ix_(true, true)]
        return float(0.5 * np.abs(difference).sum(axis=1).max())

    settings = {"n_components": N_STATES, "n_symbols": N_EVENTS}
    return rows_of("pathways", paths[:n_paths], paths[n_paths:], settings, distance, quick, n_seeds)


def rows_of(name, train: Sequences, test: Sequences, settings: dict, measure, quick: bool, n_seeds: int) -> list[dict]:
    """Fits without and with privacy."""
    n_steps, n_seeds = (12, 1) if quick else (N_STEPS, n_seeds)
    counts = np.bincount(train.values[:, 0], minlength=settings["n_symbols"]) + 1.0 / settings["n_symbols"]
    alone = float(np.log(counts / counts.sum())[test.values[:, 0]].mean())
    rows = [{"data": name, "method": "frequencies", "epsilon": None, "log likelihood": alone}]
    best = None
    for epsilon in (None, *EPSILONS):
        plan = PrivacyPlan.non_private(sampling_rate=1.0, n_steps=100 if not quick else n_steps)
        if epsilon is not None:
            plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling_rate=1.0, n_steps=n_steps)
        scores, measures = [], []
        for seed in range(1 if epsilon is None else n_seeds):
            model = CategoricalHMM(**settings, privacy=plan, random_state=seed).fit(train)
            scores.append(model.score_samples(test).sum() / len(test.values))
            measures.append(measure(model))
        best = float(np.mean(scores)) if epsilon is None else best
        rows.append({
            "data": name, "method": "vips", "epsilon": epsilon, "log likelihood": float(np.mean(scores)),
            "each": [(score - alone) / (best - alone) for score in scores], "measure": float(np.mean(measures)),
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def pathways(n: int) -> tuple[Sequences, np.ndarray, np.ndarray]:
    """Generated sequences, with the true moves and events of the states."""
    rng = np.random.default_rng(5)
    moves = 0.5 * np.eye(N_STATES) + 0.5 * rng.dirichlet(np.full(N_STATES, 0.3), N_STATES)
    events = rng.dirichlet(np.full(N_EVENTS, 0.15), N_STATES)
    return drawn(n, moves, events, rng), moves, events


def drawn(n: int, moves: np.ndarray, events: np.ndarray, rng: np.random.Generator) -> Sequences:
    """Sequences of 5 to 60 steps, whose first state is uniform."""
    lengths = rng.integers(5, 61, n)
    sequences = Sequences.from_lengths(np.zeros(lengths.sum(), np.int64), lengths)
    state = rng.integers(0, len(moves), n)
    for t in range(60):
        alive = np.flatnonzero(lengths > t)
        if t:
            state[alive] = (rng.random((len(alive), 1)) >= np.cumsum(moves, axis=1)[state[alive], :-1]).sum(axis=1)
        seen = (rng.random((len(alive), 1)) >= np.cumsum(events, axis=1)[state[alive], :-1]).sum(axis=1)
        sequences.values[sequences.offsets[alive] + t, 0] = seen
    return sequences


def generated_sentences():
    """As ``load_masc``, of a chain of four states."""
    from sklearn.utils import Bunch

    rng = np.random.default_rng(0)
    sequences = drawn(1_200, np.roll(np.eye(4), 1, axis=1) * 0.8 + 0.05, rng.dirichlet(np.full(101, 0.1), 4), rng)
    words = sequences.values[:, 0]
    return Bunch(words=words, lengths=sequences.lengths, classes=words % 4, vocabulary=[f"word{i}" for i in range(100)])


def as_text(rows: list[dict]) -> str:
    lines = [
        "| sequences | method | ε | log likelihood a step | share of the way | of each fit | states |",
        "|" + "---|" * 7,
    ]
    for row in rows:
        epsilon = "" if row["method"] == "frequencies" else "∞" if row["epsilon"] is None else f"{row['epsilon']:g}"
        private = row["epsilon"] is not None
        share = f"{np.mean(row['each']):.2f}" if private else ""
        of_each = ", ".join(f"{value:.2f}" for value in row["each"]) if private else ""
        states = f"{row['measure']:.2f}" if "measure" in row else ""
        numbers = f"{row['log likelihood']:.3f} | {share} | {of_each} | {states}"
        lines.append(f"| {row['data']} | {row['method']} | {epsilon} | {numbers} |")
    return "\n".join(lines) + "\n"
