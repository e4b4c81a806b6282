"""What a quick run of each experiment and benchmark must print and write, as far as this is known beforehand.

A check gets the printed text, and the folder of the results or what a file in it holds.
"""

import json
import math
import re
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from experiments import stand_ins
from experiments.classification import few_records
from experiments.privacy import accounting, change_points
from experiments.regression import anybody
from experiments.regression import stroke as blr_stroke
from experiments.regression.compare import QUICK_RECORDS, split
from experiments.results import read_json
from experiments.scoring import model_of_topics, unigram_perplexity
from experiments.topics import demo
from experiments.topics import wikipedia as lda_wikipedia
from tests.experiments.test_sbn_experiments import CLAIMS
from vips.models.topics.statistics import DocumentStatistics

CHECKS: dict[str, Callable] = {}


def check(name):
    """Register a function of the printed text and the results folder as the check of a run."""

    def keep(function):
        CHECKS[name] = function
        return function

    return keep


def check_saved(name, file="results.json"):
    """As :func:`check`, for a function of the printed text and what this file holds."""
    return lambda function: check(name)(lambda printed, folder: function(printed, read_json(folder / file)))


def numbers(text):
    return [float(number) for number in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", text)]


def after(printed, start, which=0):
    """Numbers after ``start`` in a line that begins with it: the first such line, or number ``which``."""
    line = [line.strip() for line in printed.splitlines() if line.strip().startswith(start)][which]
    return numbers(line.removeprefix(start))


def gaussian_delta(mu, epsilon):
    """δ of Gaussian differential privacy in closed form (Dong, Roth and Su, 2022)."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def best_auc(probability, target, records):
    return roc_auc_score(target[records], probability[records])


def rows_of(folder):
    return {row["method"]: row for row in read_json(folder / "results.json")["rows"]}


@check_saved("latent_classes")
def _(printed, rows):
    assert [row["epsilon"] for row in rows] == [None, 0.5, 0.5, 1.0, 1.0, 4.0, 4.0]
    # independent columns: their frequencies, without noise, are nearly the best; uniform ones are nearly as good
    uniform = -sum(math.log(len(values)) for values in stand_ins.COLUMNS.values() if isinstance(values, list))
    for row in rows:
        assert uniform - 12.0 < row["smallest"] <= row["log likelihood"] < uniform
        assert 0.0 < row["two-way error"] < 1.0
        assert f"{row['log likelihood']:.3f}" in printed


@check_saved("dynamics")
def _(printed, rows):
    assert [row["epsilon"] for row in rows] == [None, None, 0.5, 1.0, 4.0, 1.0, 4.0]
    alone, plain, *private = rows
    assert alone["log likelihood"] + 0.5 < plain["log likelihood"] < 0.0
    for row in private:
        assert f"{row['log likelihood']:.3f}" in printed
    assert private[2]["log likelihood"] < plain["log likelihood"] + 0.05
    assert private[2]["each"][0] > 0.5  # at ε = 4
    assert plain["moves"] < 0.1


@check("switching")
def _(printed, folder):
    true, plain, *private = read_json(folder / "results.json")
    assert [row["epsilon"] for row in private] == [4.0, 1.0, 0.5]
    assert 0.9 < true["regimes"] <= 1.0
    assert plain["share"] > 0.8
    assert plain["regimes"] > true["regimes"] - 0.05
    assert f"{private[0]['bound']:.3f}" in printed


@check_saved("few_series")
def _(printed, rows):
    assert [row["series"] for row in rows] == [2]
    assert all(row["em"] < row["vb"] < 0.0 for row in rows)
    assert all(f"{row['vb']:.3f}" in printed for row in rows)


@check("factorial")
def _(printed, folder):
    plain, *private = read_json(folder / "results.json")
    assert [row["epsilon"] for row in private] == [4.0, 1.0, 0.5]
    assert plain["best"] > plain["alone"] + 0.2
    assert plain["share"] == 1.0
    assert plain["found"] > 0.9
    assert private[0]["share"] > 0.7  # at ε = 4
    assert all(f"{row['share']:.3f}" in printed for row in private)


@check_saved("sequences")
def _(printed, rows):
    assert [row["epsilon"] for row in rows] == 2 * [None, None, 0.5, 1.0, 4.0]
    for alone, plain, *private in (rows[:5], rows[5:]):
        assert alone["log likelihood"] < plain["log likelihood"] < 0.0
        for row in private:
            assert f"{row['log likelihood']:.3f}" in printed
            assert 0.0 <= row["measure"] <= 1.0
        assert private[0]["log likelihood"] < private[-1]["log likelihood"] < plain["log likelihood"] + 0.05


@check("lda_figure2")
def _(printed, folder):
    rows = read_json(folder / "results.json")
    for batch_size in (100, 300):
        of = {(row["method"], row["sigma"]): row for row in rows if row["batch_size"] == batch_size}
        free = of.pop(("non-private", 0.0))["perplexity"][0]
        assert 1.0 < free < min(row["perplexity"][0] for row in of.values())
        np.testing.assert_allclose(of["moments accountant", 1.24]["epsilon"], 2.4411, atol=1e-4)  # the paper says 2.44
        for sigma in (1.24, 1.5, 2.0):
            one, other = of["moments accountant", sigma], of["strong composition", sigma]
            assert one["sigma_used"] == sigma < other["sigma_used"]
            assert one["perplexity"] < other["perplexity"]
            assert f"| {one['perplexity'][0]:.0f} |" in printed
    assert (folder / "figure2.png").exists()


@check("lda_figure3")
def _(printed, folder):
    rows = read_json(folder / "results.json")
    for batch_size in (100, 300):
        seen = [row for row in rows if row["batch_size"] == batch_size]
        free = [row for row in seen if row["method"] == "non-private"]
        assert [row["documents"] for row in free] == [batch_size * t for t in (1, 2, 3, 4)]
        assert free[-1]["perplexity"] < free[0]["perplexity"]
        last = {row["method"]: row["perplexity"] for row in seen}
        assert last["non-private"] < last["moments accountant"] < last["strong composition"]
        assert f"| {last['vips'][0]:.0f} |" in printed
    assert (folder / "figure3.png").exists()


@check_saved("lda_table1")
def _(printed, rows):
    methods = ["non-private", "moments accountant", "strong composition", "vips"]
    sharpest = dict.fromkeys(methods, 0.0)
    assert [row.pop("topic") for row in rows] == [1, 2, 3]
    for row in rows:
        assert list(row) == methods
        for method, words in row.items():
            probabilities = [probability for _, probability in words]
            assert len(words) == 10
            assert probabilities == sorted(probabilities, reverse=True)
            assert 0.0 < sum(probabilities) < 1.0
            sharpest[method] = max(sharpest[method], probabilities[0])
        line = " | ".join(f"{words[0][0]} {words[0][1]:.4f}" for words in row.values())
        assert f"| {line} |" in printed
    assert sharpest["strong composition"] < sharpest["non-private"]  # noise hides the words of topics
    assert "Generated documents." in printed


@check_saved("benchmarks.sequences", "sequences.json")
def _(printed, tables):
    for kind in ("full", "diag"):
        for name in ("vips", "vips, private", "hmmlearn", "hmmlearn, scaling", "hmmlearn, EM"):
            (row,) = tables[f"{name} {kind}"]
            assert math.isfinite(row["cpu_s"])  # differences of short runs, which may be below 0
            assert math.isfinite(row["log likelihood"])
            assert f"| {kind} | {name} |" in printed


@check("vectors")
def _(printed, folder):
    free, *private = read_json(folder / "results.json")
    assert [row["epsilon"] for row in private] == [0.5, 1.0, 4.0]
    assert free["gain"] > 0.2  # nats a step, of three states that are apart
    assert private[-1]["shares"][0] > 0.5
    for row in private:
        assert f"| {row['shares'][0]:.2f} |" in printed
        assert 0.0 <= row["distances"][0] <= 1.0


@check_saved("gaussian_mixture")
def _(printed, rows):
    ours = {row["epsilon"]: row["log density"] for row in rows if row["method"] == "vips"}
    theirs = {row["epsilon"]: row["log density"] for row in rows if row["method"].startswith("DP-EM")}
    assert set(ours) == set(theirs) == {0.5, 1.0, 4.0}
    best = next(row["log density"] for row in rows if row["method"] == "scikit-learn's EM")
    assert best > ours[4.0] > theirs[4.0]
    assert f"{ours[4.0]:.2f}" in printed


@check("class_labels")
def _(printed, folder):
    with_classes, without = read_json(folder / "results.json")
    assert (with_classes["true"], without["true"]) == (3, 1)
    assert with_classes["real, matched"] == with_classes["real"] > without["real"] == 0
    for row in (with_classes, without):
        assert sum(row[label] for label in ("real", "doubtful", "noise", "empty")) == 2 * 4


@check_saved("synthetic_tables")
def _(printed, rows):
    assert [(row["table"], row["method"]) for row in rows] == [
        (table, method) for table in ("adult", "visits", "digits") for method in ("the fitted rows", "all pairs")
    ]
    assert "MST and AIM are left out" in printed
    for people, ours in zip(rows[::2], rows[1::2], strict=True):
        assert 0.0 < ours["one-way"] < ours["two-way"] < ours["three-way"] < 1.0
        assert 0.0 < ours["auc"] < 1.0
        assert people["log odds"] == 0.0 < ours["log odds"]
        assert ours["seconds"] > 0.0
        assert f"{ours['two-way']:.3f} | {ours['three-way']:.3f} | {ours['auc']:.3f}" in printed


@check_saved("table_coverage")
def _(printed, rows):
    assert [row["table"] for row in rows] == ["adult"] * 8 + ["visits"] * 8
    for row in rows:
        assert f"{row['held']:.3f} ({row['worst']:.2f}) | {row['refused']:.2f}" in printed
    assert all(row["refused"] == 0.0 for row in rows if row["asked"] in ("shares", "means"))
    assert np.nanmean([row["held"] for row in rows]) > 0.7  # some have few limits


@check_saved("benchmarks.latent_classes", "latent_classes.json")
def _(printed, rows):
    assert ("StepMix is left out" in printed) == (find_spec("stepmix") is None) == ("StepMix" not in rows)
    for name, (row,) in rows.items():
        assert row["iterations"] == 5
        assert row["wall_s"] > 0.0
        assert f"| {name} | {row['wall_s']:.4f} |" in printed
    assert rows["vips, private"][0]["log likelihood"] < rows["vips"][0]["log likelihood"] < 0.0


@check("ledger_costs")
def _(printed, folder):
    rows = [line for line in printed.splitlines() if line.startswith("| 0.001 |")]
    assert len(rows) == 4
    for row in rows:
        below, above, cost, _, first, _ = map(float, row.strip("| ").split(" | ")[4:])
        assert below <= above <= cost <= first
    assert (folder / "table.md").read_text(encoding="utf-8").count("|") > 40


@check("accounting")
def _(printed, folder):
    saved = read_json(folder / "curves.json")
    deltas = np.array(saved["delta"])
    for title, settings in accounting.SETTINGS.items():
        curves = saved[title]
        strong, unsampled, moments, renyi, losses = (np.array(curves[route]) for route in accounting.ROUTES)
        assert (losses <= renyi).all()  # at very small δ it is a Rényi bound: docs/accounting.md
        assert (losses < renyi)[deltas > 1e-6].all()
        assert (renyi < moments).all()
        assert (moments < np.minimum(unsampled, strong)).all()
        # the smallest of (λ + 1) T/(2σ²) + log(1/δ)/λ over all λ > 0; the accountant takes integers
        n_steps, sigma = settings["n_steps"], settings["noise_multiplier"]
        least = n_steps / (2 * sigma**2) + np.sqrt(2 * n_steps * np.log(1 / deltas)) / sigma
        assert (least <= unsampled).all()
        np.testing.assert_allclose(unsampled, least, rtol=0.02)
    assert after(printed, "privacy loss distributions (default)") == [1.219]  # q = 0.05: docs/accounting.md
    assert (folder / "accounting.png").stat().st_size > 10_000


@check("demo")
def _(printed, folder):
    corpus = demo.documents(quick=True)
    test = corpus.counts[np.sort(np.random.default_rng(0).permutation(corpus.counts.shape[0])[: demo.N_TEST])]
    best = model_of_topics(1.0 + 1e6 * corpus.topics).perplexity(test)
    (unigram,) = after(printed, "word frequencies alone (not private)")
    private = after(printed, "private, ε = 4    δ = 1e-05")[-1]
    (plain,) = after(printed, "non-private", -1)
    assert 0.97 * best < min(plain, private)  # which of the two is better depends on the optimum that they end in
    assert max(plain, private) < 1.2 * best < unigram < 300
    sigma = json.loads((folder / "demo.json").read_text(encoding="utf-8"))["privacy"]["releases"][0]["plan"][
        "noise_multiplier"
    ]
    assert gaussian_delta(math.sqrt(demo.N_STEPS) / sigma, demo.SHOWN) == pytest.approx(demo.DELTA, rel=0.01)
    assert "differential privacy with ε = 4 at δ = 1e-05" in printed
    few, many = (after(printed, f"planned, ε = {epsilon}") for epsilon in ("0.5", "4"))  # topics, and perplexity
    assert 1 <= few[0] < many[0]
    assert 0.97 * best < many[1] < few[1] < unigram


@check("lda_wikipedia")
def _(printed, folder):
    counts = stand_ins.generated_documents(lda_wikipedia.QUICK_TRAIN + lda_wikipedia.QUICK_TEST).counts
    train, test = counts[: lda_wikipedia.QUICK_TRAIN], counts[-lda_wikipedia.QUICK_TEST :]
    rows = rows_of(folder)
    assert rows["unigram"]["perplexity"] == [unigram_perplexity(train, test)]
    assert 1.0 < rows["non-private"]["perplexity"][0] < rows["unigram"]["perplexity"][0]
    assert rows["non-private"]["perplexity"] < rows["ours"]["perplexity"]
    assert rows["paper's recipe, moments"]["noise_multiplier"] == pytest.approx(1.24, rel=5e-3)  # the paper's
    assert "| ours | 2.44 | 0.0001 | 2.24 |" in printed
    assert rows["non-private"]["perplexity"] < rows["public articles alone"]["perplexity"]
    assert rows["ours, full batches, public articles"]["perplexity"] < rows["unigram"]["perplexity"]


@check("lda_settings")
def _(printed, folder):
    plain, *private = (row["perplexity"][0] for row in read_json(folder / "results.json"))
    assert len(private) == 3
    assert all(1.0 < plain < perplexity < stand_ins.N_WORDS for perplexity in private)


@check_saved("audit")
def _(printed, saved):
    for row in saved["mechanisms"]:
        assert 0.0 <= row["bound"] <= row["claim"]
    exact = saved["mechanisms"][0]  # one Gaussian
    assert gaussian_delta(1.0 / exact["noise_multiplier"], exact["claim"]) == pytest.approx(exact["delta"], rel=1e-3)
    assert exact["ratio"] > 0.5
    assert all(not row["failed"] for row in saved["models"])
    (broken,) = saved["broken"]
    assert {"noise: size", "canary, all steps"} <= set(broken["failed"])
    assert "REFUTED" not in printed
    assert "NOTHING" not in printed


@check("attacks")
def _(printed, folder):
    rare, frequent = (row.split(" | ") for row in (folder / "table.md").read_text().splitlines()[2:])
    assert rare[-1] == frequent[-1] == "100% |"
    for shares in (rare[3:5], frequent[3:5]):
        assert all(0.0 < float(share.split()[0]) < 20.0 for share in shares)
    assert 6.0 < float(frequent[-2].rstrip("%")) < 6.9  # of a ledger, which keeps a little


@check("blr_adult")
def _(printed, folder):
    people = stand_ins.generated_adult()
    test = split(QUICK_RECORDS, 0)[1]
    best = best_auc(people.probability, people.target, test)
    rows = rows_of(folder)
    assert best - 0.1 < rows["non-private"]["auc"][0] < best + 0.03
    assert best - 0.1 < rows["ERM"]["auc"][0] < best + 0.03
    assert 0.5 < rows["ours"]["auc"][0] < best + 0.03
    assert read_json(folder / "results.json")["title"] == "Generated people: 1,000 records, 108 features"
    assert {"DP-SGD", "paper's recipe, moments", "paper's recipe, strong composition"} < set(rows)
    assert "Objective perturbation is left out" in printed


@check_saved("public_records")
def _(printed, rows):
    assert {(row["table"], row["public"]) for row in rows} == {
        (table, kind) for table in ("Adult", "generated") for kind in ("same", "flipped")
    }
    for row in rows:
        alone, without, both = (row[name][0] for name in ("alone", "without", "both"))
        assert min(alone, without, both) > 0.3  # no fit knows the labels
        assert both < alone * 1.3  # a weight that falls by chance costs less
        if (row["table"], row["public"]) == ("generated", "flipped"):
            assert both < 0.7 * alone
            assert row["weight"] < 0.2
    assert "Log loss against the public records alone: at most" in printed


@check("blr_diabetes")
def _(printed, folder):
    patients = stand_ins.generated_patients()
    test = split(QUICK_RECORDS, 0)[1]
    best = best_auc(expit(patients.data @ patients.coef), patients.target, test)  # from all features; the fits use 100
    rows = rows_of(folder)
    assert {"non-private, diagonal", "non-private, full", "ours, diagonal", "ours, full", "DP-SGD"} < set(rows)
    assert all(0.1 < row["auc"][0] < best + 0.1 for row in rows.values())


@check("blr_stroke")
def _(printed, folder):
    data = blr_stroke.records(quick=True)
    test = split(QUICK_RECORDS, 0)[1]
    best = best_auc(expit(data.data @ data.coef), data.target, test)
    rows = rows_of(folder)
    assert best - 0.1 < rows["non-private, diagonal"]["auc"][0] < best + 0.05
    assert 0.3 < rows["ours, diagonal"]["auc"][0] < best + 0.05
    lines = {line.split("  ")[0] for line in printed.splitlines()}
    assert {"non-private, diagonal", "ours, diagonal", "DP-SGD", "ERM"} <= lines


@check("blr_posterior")
def _(printed, folder):
    (row,) = read_json(folder / "results.json")
    assert row["mean"] < 0.3  # the error of the draws is 1/√n deviations
    assert row["draws"] > 100
    assert all(
        0.75 < ratio < 1.1 for ratio in row["variational"]
    )  # never wider than the exact posterior, but for that error
    np.testing.assert_allclose(row["laplace"], 1.0, atol=0.15)
    assert "| weak signal | 400, 5 |" in printed


@check_saved("linear_regression")
def _(printed, rows):
    assert [(row["table"], row["epsilon"]) for row in rows] == [
        (table, epsilon) for table in ("generated", "Adult") for epsilon in (0.5, 1.0, 4.0)
    ]
    error, r_squared = rows[0]["plain"]
    assert 0.0 < error < 0.5  # 500 records: 0.15 on average
    assert 0.35 < r_squared < 0.65  # 0.5 with the true coefficients
    for row in rows[:3]:
        assert row["plain"] == rows[0]["plain"]
        assert row["ours"][1] <= 0.65
    assert "| generated | 500 | 0.5 |" in printed


@check("few_records")
def _(printed, folder):
    rows = read_json(folder / "results.json")["rows"]
    people = stand_ins.generated_adult()
    best = best_auc(people.probability, people.target, split(few_records.QUICK_RECORDS, 0)[1])
    auc = {(row["table"], row["method"]): row["auc"][0] for row in rows}
    for method in ("PrivateClassifier, not private", "BayesianLogisticRegression, not private"):
        assert best - 0.12 < auc["adult", method] < best + 0.03
        assert 0.65 < auc["generated", method] < 1.0
    for method in ("PrivateClassifier", "BayesianLogisticRegression", "AdaSSP", "DP-SGD"):
        assert 0.4 < auc["adult", method] < best + 0.03
    assert (folder / "results.md").read_text(encoding="utf-8").count("**") == 4  # the best one of each table


@check_saved("evaluations")
def _(printed, rows):
    assert len(rows) == 5  # kinds of outcomes
    assert all(0.0 <= value <= 1.0 for row in rows for value in row["coverage"])
    lengths = {row["kind"]: row["length"] for row in rows}
    assert lengths["rare, 3 %"][0] > 2.0 * lengths["even"][0] > 0.0  # of the AUC
    assert "| 2,000 | 1 | weak |" in printed


@check_saved("weights")
def _(printed, rows):
    assert len(rows) == 12  # models, ε
    assert all(row["weighted"]["length"] > 0.0 for row in rows[:8])  # others may be refused
    assert "| shares | 1,000 | 4 |" in printed


@check_saved("deep_networks")
def _(printed, rows):
    assert [row["epsilon"] for row in rows] == 2 * [None, 4.0, 1.0]
    for row in rows:
        assert row["two layers"][0] < 0.0
        assert f"{row['gain'][0]:.2f} ± 0.00 |" in printed
    assert rows[0]["first alone"][0] > rows[2]["first alone"][0]  # without noise


@check("mixed_effects")
def _(printed, folder):
    (row,) = read_json(folder / "results.json")
    assert row["with intervals"] == row["fits"] == 2
    assert len(row["coefficients"]["std"]) == 4
    assert len(row["deviations"]["std"]) == 1
    assert "| visits | 3,000 | 4 | 2 of 2 |" in printed
    assert printed.index("of variational Bayes") < printed.index("| slopes |") < printed.index("with intervals")


@check_saved("spatial")
def _(printed, rows):
    assert len(rows) == 8  # kinds of maps, ε
    ordinary = [row for row in rows if row["epsilon"] == np.inf]
    assert all(row["coverage"] > 0.8 and row["model"] < 0.0 for row in ordinary)
    assert "| map | 1,000 | none |" in printed


@check_saved("counts")
def _(printed, rows):
    assert len(rows) == 8  # means, dispersions, ε
    assert all(length > 0.0 for row in rows for length in row["length"])
    assert "| 3 | 10 | 1,000 | 4 |" in printed


@check_saved("hospital")
def _(printed, rows):
    assert len(rows) == 4  # with and without dependent visits, declared and learnt
    for row in rows:
        assert 0.99 < row["epsilon"] <= 1.0 + 1e-6
        assert 0.3 < row["auc"] < 1.0
        assert set(row["coefficients"]) <= set(row["truth"])
        assert 0.0 < row["without privacy"] < row["error of probabilities"] < 0.5
        widths = [values[5] for values in row["coefficients"].values()]
        assert not widths or 0.1 < np.median(widths) < 5.0  # over the oracle's; noise hides all columns of some tables
    assert "error ÷ oracle" in printed


@check_saved("anybody")
def _(printed, rows):
    assert [row["table"] for row in rows] == list(anybody.TABLES)
    assert all(row["fits"] == 1 for row in rows)
    told = [row for row in rows if row["told"] > 0.5]  # one fit of few records may be refused
    assert len(told) > 0.7 * len(rows)
    for row in told:
        assert 0.2 < row["width"] < 8.0  # over that of maximum likelihood
        assert row["error"] < 8.0
    assert np.median([row["rms z"] for row in told]) < 2.0  # about 1
    better = [row["error"] < row["moments"] for row in told if row["table"].startswith("counts")]
    assert np.mean(better) > 0.7  # whose moments have the noise of the largest count
    assert "| counts, quadratic | 2,000 | 4 |" in printed


@check("hospital_family")
def _(printed, folder):
    rows = {row["kind"]: row for row in read_json(folder / "results.json")}
    assert len(rows) == 14
    for kind in ("yes or no, stream", "diagonal covariance"):
        assert rows.pop(kind)["with intervals"] == 0
    for row in rows.values():
        assert row["with intervals"] == row["fits"] == 2
        assert len(row["coefficients"]) == (24 if row["kind"] == "three classes" else 12)
        assert 0.2 < row["error over deviation"] < 3.0  # about 1 where deviations are right
    assert "do not add up over batches" in printed


@check("plans")
def _(printed, folder):
    rows = {row["case"]: row for row in read_json(folder / "results.json")}
    assert len(rows) == 12
    for name in ("hospital", "Adult, by guess", "logistic", "binomial", "linear", "proportions"):
        assert rows[name]["fits with intervals"] == 3
        assert 0.7 < rows[name]["ratio"] < 1.4
    assert "predicted ÷ realised" in printed


@check_saved("readmissions")
def _(printed, fits):
    assert len(fits) == 2
    for fit in fits:
        effects = fit["effects"]
        assert len(effects) == 15  # categories against the first one of their column
        mean, std, lower, upper, target, _ = effects["number_inpatient"]
        assert not lower >= mean  # no limits where noise hides the column
        assert not mean >= upper
        assert not std <= 0.0
        assert 0.2 < target < 0.6  # 0.4 where data are generated
    assert "held by 95 %" in printed


@check_saved("vocabulary")
def _(printed, rows):
    assert len(rows) == 6
    for row in rows:
        shares = [share for _, share in row["covered"].values()]
        assert 0.0 < shares[0] < shares[-1] < 1.0  # more for a larger ε
    assert "(default)" in printed


@check_saved("raw_texts")
def _(printed, row):
    assert row["words"] > 20
    assert row["topics"] > 1
    assert row["perplexity"] < 55.0  # of 60 words
    assert "retained gain" in printed


@check("topic_labels")
def _(printed, folder):
    with_topics, without = read_json(folder / "results.json")
    assert with_topics["real, matched"] == with_topics["real"] >= 2  # of 3
    assert without["real"] < with_topics["real"]
    assert "| true topics | words | documents |" in printed


@check_saved("million_sequences")
def _(printed, rows):
    assert [row["how"] for row in rows] == ["shards", "memory"] * 2
    assert 0.0 < rows[0]["files"] < rows[2]["files"]
    assert "largest resident memory" in printed


@check_saved("million_texts")
def _(printed, rows):
    assert [row["how"] for row in rows] == ["words", "topics", "list"] * 2
    for row in rows:
        assert row["names"] == 0  # which one text has each
        assert row["MiB"] > 0.0
    small, large = (np.array([row["words"] for row in rows[first : first + 3]]) for first in (0, 3))
    assert 20 < small.min() <= small.max() < large.min()  # files and lists alike
    assert "vocabulary, from files" in printed


@check("topics_grid")
def _(printed, folder):
    low, high = read_json(folder / "results.json")
    assert low["topics"] <= high["topics"]
    assert high["ratio"] < 0.97  # topics predict better than frequencies where the noise is small
    assert low["ratio"] < 1.1
    assert (folder / "topics_grid.png").stat().st_size > 5_000
    assert "of frequencies, same ε" in printed


@check_saved("sbn_mnist")
def _(printed, saved):
    images = stand_ins.generated_images()
    for part in ("table", "figure7"):
        rows = {row["method"]: row for row in saved[part]}
        assert all(0.0 < share < 1.0 for row in rows.values() for share in (*row["hidden"], *row["observed"]))
        majority = rows["majority value of each pixel"]["hidden"][0]
        assert majority > max(images.data.mean(), 1.0 - images.data.mean())
        plain = next(row for name, row in rows.items() if name.startswith(("non-private", "ours, without")))
        assert plain["hidden"][0] > majority
    _, _, claimed = CLAIMS[-1]
    assert [row["claimed"] for row in saved["figure7"] if "claimed" in row] == pytest.approx([claimed] * 2, abs=1e-4)
    assert [row["epsilon"] for row in saved["table"] if "epsilon" in row] == pytest.approx([0.5], rel=1e-3)
    assert "claims 4.83 (no guarantee)" in printed
    assert "Generated images, pixel above 0" in printed


@check_saved("sbn_settings")
def _(printed, rows):
    assert [row["setting"] for row in rows] == ["default", "clip norm × ½"]
    assert all(0.6 < share < 1.0 for row in rows for share in row["hidden"]["1.0"])
    assert "| setting | noise of ε = 1 |" in printed


@check("polya_gamma")
def _(printed, folder):
    for b in (1, 2, 4):
        at_zero, furthest = after(printed, f"b = {b}: E ω at c = 0")
        assert at_zero == b / 4
        assert furthest < 5.0
    saved = read_json(folder / "results.json")
    c = np.array(saved["tilt"])
    away = c != 0.0
    np.testing.assert_allclose(np.array(saved["b = 2"]["mean"])[away], np.tanh(c[away] / 2) / c[away])


@check("coverage")
def _(printed, folder):
    rows = {row["model"]: row for row in read_json(folder / "results.json")}
    assert len(rows) == 17
    proportions = rows["proportions"]
    # over 48 intervals at 95 %, eight of each fit
    assert proportions["coverage"]["noise-aware"][-1] > 0.75
    assert 0.7 < proportions["width"]["noise-aware ÷ oracle"] < 1.4
    for row in rows.values():
        assert all(0.0 <= share <= 1.0 for shares in row["coverage"].values() for share in shares)
        assert all(np.diff(shares).min() >= 0.0 for shares in row["coverage"].values())  # wider intervals hold more
    assert printed.count("| proportions | 500 | 4 |") >= 1


@check_saved("large_lda")
def _(printed, saved):
    assert saved["difference"] == 0.0  # the same bits on every executor, also after lost workers
    assert saved["serial"]["perplexity"] == saved["dask"]["perplexity"] < 300
    assert saved["dask"]["killed_workers"] in (0, 1)
    assert "concentration between both fits: 0." in printed


@check("benchmarks.lda")
def _(printed, folder):
    median = read_json(folder / "lda.json")["median"]
    ours, theirs = (median[f"{name}, 1 thread"]["perplexity"] for name in ("vips", "scikit-learn"))
    assert ours == pytest.approx(theirs, rel=0.15)
    assert ours < 300
    assert median["vips, 2 threads"]["perplexity"] == ours  # threads change nothing
    assert ("gensim is left out" in printed) == (find_spec("gensim") is None) == ("gensim, 1 thread" not in median)
    assert "documents per CPU second, vips / scikit-learn" in printed
    assert "Two processes side by side are left out" in printed
    assert "norms" not in vars(DocumentStatistics)  # it is inherited again: its clock is gone


@check("benchmarks.lda_scores")
def _(printed, folder):
    theirs, ours = read_json(folder / "lda_scores.json")
    assert ours["perplexity"] <= theirs["perplexity"] < 60
    assert "| quick | vips |" in printed


@check_saved("benchmarks.logistic", "logistic.json")
def _(printed, saved):
    assert saved["vips"]["auc"] == pytest.approx(saved["scikit-learn"]["auc"], abs=0.05)
    assert 1 <= saved["vips"]["full"]["steps_to_target"] <= 20  # those after which the target is set
    assert "NumPyro is left out: no --numpyro PYTHON." in printed
    assert "A step, private / non-private:" in printed


@check_saved("benchmarks.mixture", "mixture.json")
def _(printed, rows):
    assert {name for name in rows if name.startswith("scikit-learn")} == {
        "scikit-learn, EM",
        "scikit-learn, variational",
    }
    for name, (row,) in rows.items():
        assert math.isfinite(row["log density"])
        assert f"| {name} |" in printed


@check("benchmarks.noise")
def _(printed, folder):
    assert "20000 coordinates, σ = 1048576 steps" in printed
    assert after(printed, "NumPy, default_rng().normal")[-1] == 1.0
    assert after(printed, "rounded_gaussian(AESCounter)")[0] > 0.0
    assert "topic model, discrete" in printed
    assert printed.count("fit, ") == 5
    assert (folder / "noise.txt").read_text(encoding="utf-8") in printed


@check_saved("benchmarks.private", "private.json")
def _(printed, saved):
    assert saved["steps"]["non-private"][1] < saved["steps"]["private"][1]  # drawing noise
    assert len(saved["plans"]) == 8
    for row in saved["plans"]:
        assert row["found"] < row["noise"]
        assert row["found"] == pytest.approx(row["noise"], rel=0.03)
    assert "A step, private / non-private:" in printed


@check("benchmarks.sbn")
def _(printed, folder):
    private, plain = read_json(folder / "sbn.json")["rows"]
    assert (private["private"], plain["private"]) == (True, False)
    for row in (private, plain):
        assert row["n_products"] > 0
        # least_s: the time of its products at the speed of a large product
        assert row["least_s"] <= 1.5 * row["step_s"]
        assert row["best_step_s"] <= row["step_s"]
    assert "Growth with K:" in printed


@check_saved("benchmarks.scaling", "scaling.json")
def _(printed, saved):
    threads = saved["Threads: topics of documents in memory"]["1 thread"]
    # n q T documents are summed: 400 × 0.2 × 5
    assert threads["per_second"] * threads["seconds"] == pytest.approx(400)
    regressions = saved["Sources: logistic regression, 1 thread"]
    assert all(row["per_second"] * row["seconds"] == pytest.approx(600 * 5) for row in regressions.values())
    assert "Processes and Dask workers are left out" in printed
    assert printed.count("| 1.00 |") >= len(saved) - 1  # the first line of every table


@check_saved("benchmarks.waits", "waits.json")
def _(printed, rows):
    assert all(row["seconds"] >= 0.0 for row in rows)
    assert {"loading them", "import of a model"} <= {row["what"] for row in rows}
    assert "| words of 200 texts |" in printed


@check("streams")
def _(printed, folder):
    year, articles = (read_json(folder / f"{name}.json") for name in ("year", "wikipedia"))
    words, truth, without_noise = (row["perplexity"] for row in year[:3])
    assert all(truth[t] < without_noise[t] < words[t] for t in ("2", "6"))
    assert truth["2"] == pytest.approx(after(printed, "| true topics |")[0], abs=0.5)
    assert [row["method"] for row in articles][-2:] == ["refitted after every batch", "refitted every 2"]
    assert all(np.isfinite(list(row["perplexity"].values())).all() for row in year + articles)
    months = read_json(folder / "months.json")
    assert {row["decay"] for row in months} == {None, 1.0, 0.8}
    assert all(row["topics"] == sum(row[label] for label in ("real", "doubtful", "noise")) for row in months)


@check_saved("change_points")
def _(printed, results):
    shares = {(row["change"], row["method"], row["epsilon"]): row["further than"] for row in results["change points"]}
    exact, private = shares["large", "no noise", math.inf], shares["large", "permute and flip", 1.0]
    assert exact["10"] < 0.05 < private["10"] < 0.4 < shares["large", "permute and flip", 0.1]["10"]
    # one answer more at 52 % of 10,000: the mean of log(p/(1-p)) there, 0.08, and some curvature
    assert change_points.sensitivity_of_log_p() == pytest.approx(2 * math.sqrt(2 * math.log(1e7) / 10_000), rel=0.1)
    rejections = [row["rejections"] for row in results["online tests"]]
    assert rejections[0] > 20
    assert max(rejections[1:]) <= 10
    assert all(row["fdr"] < 0.35 for row in results["online tests"])


@check_saved("correlated_fits")
def _(printed, rows):
    assert [row["steps"] for row in rows] == [4, 20, 20, 20] * 2 + [4, 40, 40, 40] * 2 + [4, 20, 20, 20] * 2
    first, last = rows[0]["noise"], rows[4]["noise"]
    # 3/(t + 2): the first average is the first release, of four that have the ε of one with half the deviation
    mu = brentq(lambda mu: gaussian_delta(mu, 1.0) - 1e-5, 0.01, 5.0)
    assert first[0] == pytest.approx(2.0 / mu, rel=1e-2)
    assert max(last) < max(first) / 4


@check("other_tools")
def _(printed, folder):
    assert "The autoencoder is left out" in printed
    (people,), (images,) = (read_json(folder / f"{name}.json") for name in ("adult", "mnist"))
    assert people["score"][0] > 0.35  # 0.63 ± 0.07 from so few records
    assert 0.6 < images["score"][0] < 1.0


@check_saved("generated_images")
def _(printed, rows):
    adversarial = [name for loss in ("minimax", "non-saturating") for name in 2 * [f"adversarial, {loss}"]]
    torch = find_spec("torch") is not None
    assert [row["method"] for row in rows] == [
        "the training images",
        *2 * ["belief network, vips"],
        *torch * adversarial,
    ]
    assert ("Adversarial networks are left out" in printed) == (not torch)
    images, plain, private, *_ = rows
    assert 0.0 < images["distance"] < plain["distance"] < private["distance"]
    assert all(0.0 < row["digits"] < 1.0 for row in rows)
    assert "Generated stand-ins" in printed
