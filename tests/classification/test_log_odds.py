"""Log odds of cells, beside integrals and sums over all paths, and without noise beside scikit-learn."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB

from vips import PrivacyBudget, PrivateClassifier
from vips.classification import log_odds as module
from vips.classification.log_odds import posterior_log_odds, total_log_odds
from vips.classification.tables import bounded, listed

ALL = (-0.7, 5000.0)  # log odds over all records, their number


def test_the_likelihood_is_an_integral_over_the_size_of_a_cell():
    of_class, of_others, std = np.array([30.0, -4.0, 0.0]), np.array([25.0, 3.0, 90.0]), (6.0, 8.0)
    log_likelihood = module._log_likelihood(of_class, of_others, std, *ALL, module._STATES)
    means = np.geomspace(1.0, ALL[1], module._SIZES)
    for i, (a, b) in enumerate(zip(of_class, of_others, strict=True)):
        variances = [s**2 + max(count, 1.0) for s, count in zip(std, (a, b), strict=True)]
        expected = []
        for delta in module._STATES[::12]:
            p = expit(ALL[0] + delta)

            def density(size, a=a, b=b, p=p, variances=variances):
                prior = np.mean(np.exp(-size / means) / means)
                miss = (a - size * p) ** 2 / variances[0] + (b - size * (1 - p)) ** 2 / variances[1]
                return prior * np.exp(-0.5 * miss)

            expected.append(np.log(quad(density, 0.0, 1000.0, limit=500, points=[1.0, 10.0, 50.0, 100.0])[0]))
        differences = log_likelihood[i, ::12] - expected
        np.testing.assert_allclose(differences, differences[0], atol=1e-4)


def test_chains_are_averaged_over_all_paths(monkeypatch):
    monkeypatch.setattr(module, "_STATES", np.linspace(-2.0, 2.0, 5))
    module._chains.cache_clear()
    chains = log_priors, jumps, steps = module._chains(True)
    module._chains.cache_clear()
    priors = np.exp(log_priors)
    steps = (1.0 - jumps[:, None, None]) * steps + jumps[:, None, None] * priors[:, None]
    np.testing.assert_allclose(steps.sum(axis=2), 1.0)
    np.testing.assert_allclose((priors[:, None] @ steps)[:, 0], priors, atol=1e-12)
    likelihood = np.random.default_rng(0).random((4, 5))
    others, evidence = module._forward_backward(np.log(likelihood), *chains)
    means = (np.exp(others) * likelihood) @ module._STATES
    for k in (0, 7, 24):
        total, sums = 0.0, np.zeros(4)
        for path in itertools.product(range(5), repeat=4):
            weight = priors[k, path[0]] * np.prod([steps[k, a, b] for a, b in itertools.pairwise(path)])
            weight *= np.prod(likelihood[np.arange(4), path])
            total += weight
            sums += weight * module._STATES[list(path)]
        assert evidence[k] == pytest.approx(np.log(total))
        np.testing.assert_allclose(means[k], sums / total)


def test_noise_alone_is_shrunk_and_signal_is_not():
    rng = np.random.default_rng(0)
    positions = bounded(10.0, 42.0).positions(np.full(32, 1 / 32))
    noise = rng.normal(0.0, 300.0, (2, 32))
    assert np.abs(posterior_log_odds(*noise, (300.0, 300.0), *ALL, positions)).max() < 0.5
    sizes = np.full(8, 40_000.0)
    truth = np.array([-3.0, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
    p = expit(ALL[0] + truth)
    log_odds = posterior_log_odds(sizes * p, sizes * (1 - p), (5.0, 5.0), ALL[0], 3.2e5)
    np.testing.assert_allclose(log_odds, truth, atol=0.05)


def test_neighbours_help_each_other_and_trends_are_found():
    """The error of cells in a column of numbers is below that of the same cells as categories."""
    rng = np.random.default_rng(1)
    cells = bounded(10.0, 42.0)
    positions, errors = cells.positions(np.full(32, 1 / 32)), {"jump": [], "line": []}
    for name, truth in (("jump", np.repeat([-1.0, 1.0], 16)), ("line", 1.2 * positions[0])):
        for _ in range(10):
            p, size, std = expit(truth), 400.0, 60.0
            counts = np.array([size * p, size * (1 - p)]) + rng.normal(0.0, std, (2, 32))
            both = [posterior_log_odds(*counts, (std, std), 0.0, 12_800.0, places) for places in (positions, None)]
            errors[name].append([np.sqrt(np.mean((log_odds - truth) ** 2)) for log_odds in both])
        ordered, alone = np.mean(errors[name], axis=0)
        assert ordered < 0.8 * alone


def test_totals_of_noise_are_even_odds():
    assert total_log_odds(-50.0, -80.0, 100.0) == 0.0
    assert total_log_odds(2e6, 1e6, 10.0) == pytest.approx(np.log(2.0), abs=1e-4)


def test_without_noise_it_is_naive_bayes_and_logistic_regression():
    """Many records give the log odds of scikit-learn's CategoricalNB, and the probabilities of its LogisticRegression."""
    rng = np.random.default_rng(0)
    n = 60_000
    X = pd.DataFrame({"a": rng.integers(0, 4, n), "b": rng.integers(0, 3, n), "c": rng.integers(0, 2, n)})
    X["c"] = np.where(rng.random(n) < 0.6, X["a"] % 2, X["c"])  # not independent of a
    score = np.array([-1.0, 0.0, 0.5, 1.0])[X["a"]] + np.array([1.0, 0.0, -0.5])[X["b"]] - 1.0 * X["c"]
    y = (rng.random(n) < expit(score - 0.5)).astype(int)
    fitted = PrivateClassifier({"a": [0, 1, 2, 3], "b": [0, 1, 2], "c": [0, 1]}).fit(X, y)
    bayes = CategoricalNB(alpha=1e-9).fit(X, y)
    for name, log_p in zip(X.columns, bayes.feature_log_prob_, strict=True):
        odds, shares = log_p[1] - log_p[0], np.bincount(X[name]) / n
        expected = odds - shares @ odds
        np.testing.assert_allclose(fitted.log_odds_[name][0, : len(odds)], expected, atol=0.01)
    features = fitted[:-1].transform(X)
    reference = LogisticRegression(C=1e6).fit(features, y)
    np.testing.assert_allclose(fitted.predict_proba(X), reference.predict_proba(features), atol=0.005)


def test_cells_hold_every_value_once():
    cells = bounded(0.0, 99_999.0)
    edges = np.array(cells.edges)
    assert (np.diff(edges) > 0.0).all()
    assert edges[0] == 0.0
    assert edges[-1] == 99_999.0
    codes = cells.codes(np.array([-5.0, 0.0, 1.0, 500.0, 99_998.0, 1e9, np.nan, -np.inf]))
    assert codes[0] == codes[1] == 0
    assert codes[3] > codes[2]  # finer near 0
    assert codes[4] == codes[5] == cells.n_cells - 1
    assert codes[6] == codes[7] == cells.n_cells
    words = listed(["a", 1, None, "a"])
    assert words.categories == ("a", 1)
    assert words.codes(np.array(["a", True, 1.0, "x", None, b"a"], dtype=object)).tolist() == [0, 1, 1, 2, 3, 3]


def test_precise_counts_far_from_every_prior_are_believed():
    """A prior without mass near a cell's likelihood has no say; it does not make NaN."""
    of_class, of_others = np.array([9e6, 1e6, 5e4, 0.0]), np.array([1e4, 9e6, 9e6, 9e9])
    for positions in (None, bounded(10.0, 42.0).positions(np.full(32, 1 / 32))[:, :4]):
        log_odds = posterior_log_odds(of_class, of_others, (0.0, 0.0), 0.0, 1e10, positions)
        assert log_odds[0] > 5.9
        np.testing.assert_allclose(log_odds[1:3], np.log(of_class[1:3] / of_others[1:3]), atol=0.03)
        assert log_odds[3] < -5.0


def test_features_are_finite_for_every_table():
    """Counts of any sign and size, precise or not, in tables of any shape; and one column that tells the class."""
    rng, cells = np.random.default_rng(0), bounded(0.0, 1.0)
    all_positions = cells.positions(np.full(cells.n_cells, 1 / cells.n_cells))
    for _ in range(80):
        n_cells, std = int(rng.integers(2, 40)), float(rng.choice([0.0, 1.0, 300.0]))
        signs = rng.choice([-1.0, 0.0, 1.0], (2, n_cells), p=[0.2, 0.2, 0.6])
        counts = signs * 10.0 ** rng.uniform(-3.0, 15.0, (2, n_cells))
        total, n_records = rng.normal(0.0, 5.0), float(np.abs(counts).sum())
        positions = all_positions[:, :n_cells] if rng.random() < 0.7 else None
        log_odds = posterior_log_odds(*counts, (std, std), total, n_records, positions)
        assert np.isfinite(log_odds).all(), f"a table of {n_cells} cells has features that are not finite"
        assert np.abs(log_odds).max() <= 6.0 + 1e-12


def test_trends_of_logs_equal_sums_of_densities():
    """Where densities do not underflow, they give the same posterior means."""
    rng = np.random.default_rng(2)
    positions = np.linspace(-1.0, 1.0, 6)[None]
    counts, std = rng.normal(40.0, 10.0, (2, 6)), (20.0, 20.0)
    likelihood = np.exp(module._log_likelihood(*counts, std, 0.0, 480.0, module._STATES))
    priors = np.exp(module._trends(positions))
    np.testing.assert_allclose(priors.sum(axis=2), 1.0)
    others, evidence = module._independent(np.log(likelihood), module._trends(positions))
    np.testing.assert_allclose(np.exp(evidence), np.prod((likelihood * priors).sum(axis=2), axis=1))
    np.testing.assert_allclose(np.exp(others), priors / (likelihood * priors).sum(axis=2, keepdims=True))
    dense = np.array([np.interp(module._FINE, module._STATES, np.exp(row)) for row in others[0]])
    np.testing.assert_allclose(np.exp(module._interpolated(others[0])), dense, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize(("n", "slope", "epsilon"), [(20_000, 30.0, 5.0), (100_000, 4.0, 1.0)])
def test_a_column_that_tells_the_class_is_learnt(n, slope, epsilon):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["x", "z"])
    y = (rng.random(n) < expit(slope * X["x"])).astype(int)
    fitted = PrivateClassifier({"x": (-4, 4), "z": (-4, 4)}, privacy=PrivacyBudget(epsilon, 1e-6)).fit(X, y)
    best = np.mean((X["x"] > 0.0) == y)
    assert fitted.score(X, y) > best - 0.02
