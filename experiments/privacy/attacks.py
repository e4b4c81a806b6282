"""``python -m experiments attacks``: what an attack on the release finds, beside the bound of the plan.

Records are generated: rows of ten columns for regressions, texts of 50 words for topics, rows of three columns for a table.
"""

from __future__ import annotations

from experiments.options import folder_of, parser_of
from experiments.results import write_text
from vips import (
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    LatentDirichletAllocation,
    PrivacyBudget,
    PrivateTable,
    rehearse,
)
from vips.datasets import make_lda_corpus

N_RECORDS, N_FITS, N_WORDS = 2_000, 500, 500
QUICK_RECORDS, QUICK_FITS = 400, 200
EPSILONS, DELTA = (1.0, 4.0), 1e-6
HEADS = "| model | ε | accused | found: at random | the easiest | no attack more than | without noise |"
COLUMNS = {"town": ["A", "B", "C"], "age": (18, 90), "smoker": ["no", "yes"]}


def models(n_records: int) -> dict[str, tuple]:
    """Models by name, with what ``rehearse`` needs to know."""
    texts = make_lda_corpus(n_records, n_topics=10, n_words=N_WORDS, document_length=50, random_state=0).counts
    return {
        "table": (PrivateTable(columns=COLUMNS), {}),
        "logistic regression": (BayesianLogisticRegression(max_norm=1.0), {"n_features": 10}),
        "counts": (BayesianNegativeBinomialRegression(max_norm=1.0, max_count=20), {"n_features": 10}),
        "topics": (LatentDirichletAllocation(10, vocabulary=N_WORDS), {"like": texts}),
    }


def main(arguments: list[str]) -> None:
    options = parser_of("experiments attacks", __doc__).parse_args(arguments)
    folder = folder_of("attacks", options)
    n_records, n_fits = (QUICK_RECORDS, QUICK_FITS) if options.quick else (N_RECORDS, N_FITS)
    lines = [HEADS, "| --- " * (HEADS.count("|") - 1) + "|"]
    for name, (model, known) in list(models(n_records).items())[: 1 if options.quick else None]:
        for epsilon in EPSILONS[-1:] if options.quick else EPSILONS:
            model.set_params(privacy=PrivacyBudget(epsilon, DELTA))
            reach = rehearse(model, n_records=n_records, attack=n_fits, random_state=0, **known).attack
            for i, accused in enumerate(("0.1 %", "1 %")):
                shares = [
                    f"{100 * reach.reached[who][i]:.2f} ± {100 * reach.errors[who][i]:.2f} %" for who in reach.reached
                ]
                most, alone = reach.bounds[i], reach.without_noise[i]
                lines.append(f"| {name} | {epsilon:g} | {accused} | {' | '.join(shares)} | {most:.2%} | {alone:.0%} |")
            print(*lines[-2:], sep="\n", flush=True)
    if folder is not None:
        write_text(folder / "table.md", "\n".join(lines) + "\n")
