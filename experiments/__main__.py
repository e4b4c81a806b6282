"""``python -m experiments NAME``: run one experiment; without a name, list them.

Every experiment has the options ``--quick``, the same code on a tiny instance, and ``--out FOLDER``.
"""

from __future__ import annotations

import importlib
import sys

# figures and tables of the paper, by their numbers: the experiments that make them
PAPER = {
    "figure2": ("lda_figure2",),
    "figure3": ("lda_figure3",),
    "figure4": ("polya_gamma",),
    "figure5": ("blr_stroke", "blr_adult"),
    "figure7": ("sbn_mnist",),
    "table1": ("lda_table1",),
    "appendix": ("gaussian_mixture",),
}
# name: (module, or module:function, description)
EXPERIMENTS = {
    "demo": (
        "topics.demo",
        "private beside non-private topics of a real corpus that needs no download (two minutes)",
    ),
    "lda_wikipedia": (
        "topics.wikipedia",
        "held-out perplexity on 118,000 Wikipedia articles: non-private, ours, the paper's recipe (25 minutes)",
    ),
    "lda_figure2": (
        "topics.paper_figures:figure2",
        "Figure 2 of the paper: perplexity against σ and mini-batch size (30 minutes)",
    ),
    "lda_figure3": (
        "topics.paper_figures:figure3",
        "Figure 3 of the paper: perplexity against documents seen (20 minutes)",
    ),
    "lda_table1": (
        "topics.paper_figures:table1",
        "Table 1 of the paper: topics with the probabilities of their words (3 minutes)",
    ),
    "topic_labels": (
        "topics.labels",
        "topics labelled real, doubtful or noise beside the true topics of generated documents (30 minutes)",
    ),
    "audit": (
        "privacy.audit",
        "lower bounds on ε beside the claimed ε; audits of the models and of broken copies of the code (5 minutes)",
    ),
    "attacks": (
        "privacy.attacks",
        "what an attack on the release finds on generated records, beside the bound (ten minutes)",
    ),
    "accounting": (
        "privacy.accounting",
        "δ against ε by every accountant, with a plot (half a minute)",
    ),
    "ledger_costs": (
        "privacy.ledger_costs",
        "what one fit costs a ledger, beside dp_accounting's privacy loss distributions (2 minutes)",
    ),
    "blr_adult": (
        "regression.adult",
        "Figure 5 of the paper on UCI Adult: AUC of logistic regressions against ε (15 minutes)",
    ),
    "blr_diabetes": (
        "regression.diabetes",
        "the same on 69,973 hospital patients with 1,923 binary features (45 minutes)",
    ),
    "few_records": (
        "classification.few_records",
        "AUC of private classifiers on four tables, with 1,000 to 40,000 records (an hour)",
    ),
    "evaluations": (
        "classification.evaluations",
        "scores of vips.evaluate: how often their intervals hold the scores of all persons (15 minutes)",
    ),
    "weights": (
        "regression.weights",
        "weights of a survey: how often intervals hold what is true of all people (3 minutes)",
    ),
    "mixed_effects": (
        "regression.mixed_effects",
        "effects of persons: how often intervals of coefficients and of deviations hold (an hour)",
    ),
    "counts": (
        "regression.counts",
        "rate ratios of counts with exposures: how often intervals hold, with a wrong dispersion, too (10 minutes)",
    ),
    "spatial": (
        "regression.spatial",
        "rates of areas: coverage, and log scores beside areas alone and one common rate, ε = ½ to 4 and none (20 minutes)",
    ),
    "hospital": (
        "regression.hospital",
        "coefficients of 60 generated hospital tables, ε = 1 per patient, all defaults: coverage and bias (15 minutes)",
    ),
    "anybody": (
        "regression.anybody",
        "logistic and count regressions on 19 tables with exact targets: coverage, error and width (15 minutes)",
    ),
    "hospital_family": (
        "regression.family",
        "the same columns, every kind of regression, ε = 1 and 4: coverage, bias and width (40 minutes)",
    ),
    "plans": (
        "privacy.plans",
        "widths of intervals that `plan_for` predicts, and those of fits, for eight models and three tables (20 minutes)",
    ),
    "readmissions": (
        "regression.readmissions",
        "coefficients of a real table of visits at ε = 1 per patient, patients redrawn: coverage (2 minutes)",
    ),
    "public_records": (
        "regression.public_records",
        "private fits with public records of the same and of other populations, beside either alone (15 minutes)",
    ),
    "blr_stroke": (
        "regression.stroke",
        "the same on generated records of the shape of the paper's stroke data, 12,586 by 4,146 (15 minutes)",
    ),
    "blr_posterior": (
        "regression.gibbs",
        "posteriors of logistic regression against Gibbs sampling (half a minute)",
    ),
    "linear_regression": (
        "regression.linear",
        "linear regression beside AdaSSP at equal ε: coefficients and held-out R², generated records and Adult (5 minutes)",
    ),
    "latent_classes": (
        "mixtures.latent_classes",
        "latent classes of Adult beside independent private marginals: held-out likelihood, synthetic tables (4 minutes)",
    ),
    "gaussian_mixture": (
        "mixtures.gaussian",
        "Gaussian mixtures of digits beside EM and DP-EM (Park et al., 2017): held-out density (20 minutes)",
    ),
    "sequences": (
        "sequences.symbols",
        "hidden Markov models of sentences and of generated pathways: held-out likelihood, states (8 minutes)",
    ),
    "vectors": (
        "sequences.vectors",
        "Gaussian hidden Markov models of generated vectors: held-out likelihood, moves (10 minutes)",
    ),
    "dynamics": (
        "sequences.dynamics",
        "linear dynamical systems of generated series: held-out likelihood, with and without noisy EM (5 minutes)",
    ),
    "switching": (
        "sequences.switching",
        "switching linear dynamical systems of generated series: regimes found, held-out likelihood (10 minutes)",
    ),
    "few_series": (
        "sequences.few_series",
        "EM and variational Bayes of linear dynamical systems with few series (a minute)",
    ),
    "factorial": (
        "sequences.factorial",
        "factorial hidden Markov models of generated series: states found, held-out likelihood (15 minutes)",
    ),
    "class_labels": (
        "mixtures.class_labels",
        "do latent classes labelled real match true ones? Generated tables with classes and without (5 minutes)",
    ),
    "synthetic_tables": (
        "tables.synthetic",
        "synthetic tables of three real ones beside MST and AIM: marginals, predictions, log odds (3 minutes, or hours)",
    ),
    "table_coverage": (
        "tables.coverage",
        "private tables of Adult: how often limits of shares, pairs, means and regressions hold (5 minutes)",
    ),
    "deep_networks": (
        "belief_networks.deep",
        "a second layer of hidden units beside one layer of as many: held-out bounds (20 minutes)",
    ),
    "sbn_mnist": (
        "belief_networks.mnist",
        "Figure 7 of the paper: sigmoid belief networks on MNIST, hidden pixels of test images (90 minutes)",
    ),
    "generated_images": (
        "belief_networks.gan",
        "images drawn by networks beside an autoencoder and adversarial networks at equal ε: distances from MNIST (an hour)",
    ),
    "polya_gamma": (
        "regression.polya_gamma",
        "Figure 4 of the paper: E[ω] against its argument, with samples beside it (10 seconds)",
    ),
    "sbn_settings": (
        "belief_networks.settings",
        "how the defaults of sigmoid belief networks were chosen, on training images (20 minutes)",
    ),
    "coverage": (
        "privacy.coverage",
        "how often intervals of private fits hold the truth: naive and noise-aware (an hour on one core)",
    ),
    "vocabulary": (
        "topics.vocabulary",
        "words that a private vocabulary covers of three texts, by weighting (two minutes)",
    ),
    "raw_texts": (
        "topics.raw_texts",
        "topics of 116,000 Wikipedia articles as raw text, with nothing declared (ten minutes)",
    ),
    "topics_grid": (
        "topics.planning",
        "planned topics beside a release of word frequencies, by number of articles and ε (an hour)",
    ),
    "large_lda": (
        "topics.million_documents",
        "a million documents on a Dask cluster that loses a worker, against a serial fit (20 minutes)",
    ),
    "million_sequences": (
        "sequences.million",
        "seconds and memory of private hidden Markov models of up to a million sequences in files (5 minutes)",
    ),
    "million_texts": (
        "topics.million_texts",
        "words and topics of up to a million texts in Parquet files, and their memory (20 minutes)",
    ),
    "change_points": (
        "privacy.change_points",
        "private change points and online tests of the lecture notes, a figure of Cummings et al. (a minute)",
    ),
    "correlated_fits": (
        "privacy.correlated_fits",
        "noise correlated over the steps of a fit, beside independent noise at equal ε: three models (20 minutes)",
    ),
    "other_tools": (
        "other_tools",
        "d3p and NumPyro on Adult, an autoencoder by Opacus on MNIST, at equal ε (40 minutes with both tools)",
    ),
    "streams": (
        "topics.streams",
        "topics of documents that keep arriving, beside refitting: a generated year, Wikipedia in 60 batches (20 minutes)",
    ),
    "lda_settings": (
        "topics.settings",
        "how the defaults of LDA were chosen, on other articles (20 minutes)",
    ),
}


def main() -> int:
    name, arguments = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else (None, [])
    if name not in EXPERIMENTS and name not in PAPER:
        print("usage: python -m experiments NAME [options]\n\nThe paper by its numbers (docs/paper.md):\n")
        for number, names in PAPER.items():
            print(f"  {number:16s} {' and '.join(names)}")
        print()
        for experiment, (_, what) in EXPERIMENTS.items():
            print(f"  {experiment:16s} {what}")
        print(
            "\n--quick runs the same code on a tiny instance, in seconds, without data files or a network, and writes nothing."
        )
        print(
            "--out FOLDER writes the results there. NAME --help says what else it takes, such as --seeds and --format."
        )
        return 2
    names = PAPER.get(name, (name,))
    for experiment in names:
        if len(names) > 1 and "--out" in arguments[:-1]:  # a folder for each
            place = arguments.index("--out") + 1
            run(experiment, [*arguments[:place], f"{arguments[place]}/{experiment}", *arguments[place + 1 :]])
        else:
            run(experiment, arguments)
    return 0


def run(name: str, arguments: list[str]) -> None:
    """Run one experiment."""
    module, _, function = EXPERIMENTS[name][0].partition(":")
    getattr(importlib.import_module(f"experiments.{module}"), function or "main")(arguments)


if __name__ == "__main__":
    sys.exit(main())
