"""Counts over different times: rates as by maximum likelihood, whatever the size of counts; and what one record may move."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.stats import nbinom, poisson

from tests.mutants import check_notices
from vips import (
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    MixedNegativeBinomialRegression,
    PrivacyBudget,
    PrivacyLedger,
    PrivacyPlan,
    SpatialCounts,
    load,
)
from vips.core.phases import phases_of
from vips.core.sums.regressions import RegressionSums
from vips.data import InMemoryData, Records
from vips.models.regression import likelihoods
from vips.preprocessing import TableEncoder, make_private_pipeline

ALMOST_NONE = PrivacyPlan(noise_multiplier=1e-9, sampling_rate=1.0, n_steps=1)
PRIVATE = {"privacy": ALMOST_NONE, "max_norm": 2.0, "max_count": 60, "exposure_bounds": (5.0, 500.0)}


def drawn(n, mean=3.0, dispersion=2.0, seed=0):
    """Rows, counts, exposures around 50, and the coefficients of rates."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    exposure = 50.0 * np.exp(0.5 * X[:, 0] + rng.normal(0.0, 0.5, n))
    truth = np.array([0.8, -0.4, np.log(mean / 50.0)])
    means = exposure * np.exp(X @ truth[:2] + truth[2])
    return X, rng.poisson(means * rng.gamma(dispersion, 1.0 / dispersion, n)), exposure, truth


def maximum_likelihood(X, y, exposure, log_probability):
    """Coefficients and standard errors, by SciPy; ``log_probability`` is that of counts given their means."""
    rows = np.column_stack([X, np.ones(len(X))])
    start = np.append(np.zeros(X.shape[1]), np.log(y.sum() / exposure.sum()))
    optimum = minimize(
        lambda w: -log_probability(y, exposure * np.exp(rows @ w)).mean(), start, method="BFGS", options={"gtol": 1e-7}
    )
    return optimum.x


def standard_errors(X, exposure, coefficients, dispersion):
    rows = np.column_stack([X, np.ones(len(X))])
    means = exposure * np.exp(rows @ coefficients)
    return np.sqrt(np.diagonal(np.linalg.inv((rows.T * (means / (1.0 + means / dispersion))) @ rows)))


@pytest.mark.parametrize(("mean", "dispersion"), [(0.6, 2.0), (3.0, 1.0), (292.0, 1.0), (292_000.0, 1.0), (3.0, 50.0)])
def test_rates_errors_and_dispersion_are_those_of_maximum_likelihood(mean, dispersion):
    X, y, exposure, _ = drawn(3_000, mean, dispersion)
    r = dispersion
    best = maximum_likelihood(X, y, exposure, lambda y, m: nbinom.logpmf(y, r, r / (r + m)))
    errors = standard_errors(X, exposure, best, r)
    model = BayesianNegativeBinomialRegression(dispersion=r, prior=1e-6).fit(X, y, exposure=exposure)
    assert (np.abs(model.posterior_.mean - best) < 0.1 * errors).all()
    np.testing.assert_allclose(model.laplace_posterior(X, y, exposure).std, errors, rtol=0.1)
    assert 1.0 / model.dispersion_ == pytest.approx(1.0 / r, rel=0.2, abs=0.02)
    assert model.predict(X, exposure).mean() == pytest.approx(y.mean(), rel=0.03)


@pytest.mark.parametrize(
    "model", [BayesianNegativeBinomialRegression(), MixedNegativeBinomialRegression(), SpatialCounts()]
)
def test_the_score_knows_exposures(model):
    X, y, exposure, _ = drawn(3_000)
    settings, rows = {}, X
    if isinstance(model, SpatialCounts):
        rows, model = np.arange(3_000) % 3, SpatialCounts(areas={0: [1], 1: [0, 2], 2: [1]})
    if isinstance(model, MixedNegativeBinomialRegression):
        settings = {"groups": np.arange(3_000) // 5}
    model.fit(rows, y, exposure=exposure, **settings)
    unexplained = np.square(y - exposure * model.predict(rows))
    assert model.score(rows, y, exposure=exposure) == pytest.approx(1.0 - unexplained.sum() / (3_000 * y.var()))
    assert model.score(rows, y, exposure=exposure) > 0.1 > 0.0 > model.score(rows, y)
    weights = np.where(unexplained < np.median(unexplained), 1.0, 0.0)
    assert model.score(rows, y, weights, exposure) > model.score(rows, y, exposure=exposure)


@pytest.mark.parametrize("factor", [100, 100_000])
def test_large_counts_settle_without_exposures(factor):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3000, 2)) / 2**0.5
    y = rng.negative_binomial(1, 1 / (1 + np.exp(1.0 + X[:, 0]))) * factor
    model = BayesianNegativeBinomialRegression().fit(X, y)
    assert model.predict(X).mean() == pytest.approx(y.mean(), rel=0.02)
    assert model.coef_[0] == pytest.approx(1.0, abs=0.2)


def test_a_large_dispersion_is_poisson_regression():
    X, y, exposure, _ = drawn(2_000, dispersion=1e4)
    best = maximum_likelihood(X, y, exposure, poisson.logpmf)
    model = BayesianNegativeBinomialRegression(dispersion=1e4, prior=1e-6).fit(X, y, exposure=exposure)
    assert (np.abs(model.posterior_.mean - best) < 0.1 * standard_errors(X, exposure, best, 1e4)).all()
    assert model.dispersion_ > 100.0


def test_the_unit_of_exposures_moves_the_intercept_alone():
    X, y, exposure, _ = drawn(2_000)
    days = BayesianNegativeBinomialRegression().fit(X, y, exposure=exposure)
    years = BayesianNegativeBinomialRegression().fit(X, y, exposure=pd.Series(exposure / 365.0))
    moved = years.posterior_.mean - days.posterior_.mean
    np.testing.assert_allclose(moved, [0.0, 0.0, np.log(365.0)], atol=1e-3)
    np.testing.assert_allclose(years.predict(X[:5], 2.0), 365.0 * days.predict(X[:5], 2.0), rtol=1e-3)
    without, one = (BayesianNegativeBinomialRegression().fit(X, y, exposure=e) for e in (None, np.ones(2_000)))
    np.testing.assert_allclose(without.posterior_.mean, one.posterior_.mean, rtol=1e-9)


@pytest.mark.slow
def test_a_private_fit_finds_the_rates():
    X, y, exposure, truth = drawn(8_000)
    settings = PRIVATE | {"privacy": PrivacyBudget(16.0, 1e-6)}
    model = BayesianNegativeBinomialRegression(dispersion=2.0, **settings).fit(X, y, exposure=exposure)
    table = model.summary()
    assert (np.abs(table["mean"] - truth) < 5.0 * table["std"]).all()
    assert (table["std"] < 0.1).all()
    assert "exposures between (5.0, 500.0)" in str(model.privacy_)


def check_defective_exposures_count_as_nothing():
    X, y, exposure, _ = drawn(2_000)
    bad = np.array([np.nan, 0.0, -3.0, np.inf, 1e-320 * 0.0])
    whole = BayesianNegativeBinomialRegression(**PRIVATE).fit(X, y, exposure=exposure)
    more = BayesianNegativeBinomialRegression(**PRIVATE).fit(
        np.vstack([X, X[: len(bad)]]), np.append(y, y[: len(bad)]), exposure=np.append(exposure, bad)
    )
    moved = np.abs(more.last_posterior_.mean - whole.last_posterior_.mean).max()
    assert moved < 1e-6, f"defective exposures move the coefficients by {moved:g}"


def test_defective_exposures_count_as_nothing():
    check_defective_exposures_count_as_nothing()


def test_defective_exposures_that_count_are_noticed(monkeypatch):
    def all_are_usable(patch):
        read = likelihoods.counts_and_exposures
        patch.setattr(likelihoods, "counts_and_exposures", lambda *args: np.nan_to_num(read(*args), nan=1.0))

    check_notices(check_defective_exposures_count_as_nothing, all_are_usable, monkeypatch, "move the coefficients")


def test_exposures_beyond_the_bounds_are_brought_there():
    X, y, exposure, _ = drawn(2_000)
    extreme = np.where(exposure > 60.0, 1e9, exposure)
    fits = [
        BayesianNegativeBinomialRegression(**PRIVATE).fit(X, y, exposure=e)
        for e in (extreme, np.minimum(extreme, 500.0))
    ]
    np.testing.assert_allclose(fits[0].last_posterior_.mean, fits[1].last_posterior_.mean, rtol=1e-6)


def check_norms_bound_a_record():
    """Also over all labels: the weight of a record depends on its row and exposure alone."""
    model = BayesianNegativeBinomialRegression(**PRIVATE)
    X, y, exposure, _ = drawn(200)
    model.fit(X, y, exposure=exposure)
    model.use_plan(model.privacy_.plan)
    blocks = phases_of(model, 20)[-1].blocks
    exposure = np.concatenate([exposure[:100], np.geomspace(1e-300, 1e300, 100)])
    for labels in (y, np.zeros(200), np.full(200, 10**9)):
        records = Records(X, np.column_stack([labels, exposure]))
        statistics = model.expected_statistics(records, model.last_posterior_)
        norms = statistics.norms(blocks)
        weights = model.privacy_.plan.clip_weights(norms)
        for i in range(200):
            total = statistics.weighted_sum(weights * (np.arange(200) == i))
            square = sum(np.sum((total[name] / block.scale) ** 2) for name, block in blocks.items())
            assert np.sqrt(square) <= weights[i] * norms[i] * (1.0 + 1e-9), "a record is longer than its norm"


def test_norms_bound_a_record():
    check_norms_bound_a_record()


def test_norms_that_forget_the_exposure_are_noticed(monkeypatch):
    def exposures_are_forgotten(patch):
        original = RegressionSums.norms
        patch.setattr(RegressionSums, "norms", lambda self, blocks: np.sort(original(self, blocks)))

    check_notices(check_norms_bound_a_record, exposures_are_forgotten, monkeypatch, "longer than its norm")


def test_persons_keep_their_exposures():
    X, y, exposure, _ = drawn(2_000)
    order = np.random.default_rng(1).permutation(2_000)
    ids = np.arange(2_000) // 2
    fits = [
        BayesianNegativeBinomialRegression(**PRIVATE).fit(X[rows], y[rows], exposure=exposure[rows], groups=ids[rows])
        for rows in (slice(None), order)
    ]
    np.testing.assert_allclose(fits[0].last_posterior_.mean, fits[1].last_posterior_.mean, rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "arguments", "says"),
    [
        ({"exposure_bounds": None}, {}, "`exposure_bounds` are required"),
        ({"exposure_bounds": (0.0, 3.0)}, {}, r"exposure_bounds\[0\]"),
        ({"exposure_bounds": (3.0, 2.0)}, {}, r"exposure_bounds\[1\]"),
        ({}, {"exposure": None}, "pass fit"),
        ({}, {"exposure": np.ones(3)}, "`exposure` is read like y. .* different numbers of rows"),
        ({}, {"exposure": ["1"] * 20}, "`exposure` is read like y"),
        ({}, {"public_X": np.ones((3, 2)), "public_y": np.ones(3)}, "Public records have no exposures"),
        (
            {},
            {"X": InMemoryData(np.ones((20, 2)), np.ones(20)), "y": None, "exposure": np.ones((20, 2))},
            "exposure must have one number for each row",
        ),
        ({"privacy": None}, {"exposure": np.zeros(20)}, "finite numbers above 0"),
        ({"privacy": None}, {"exposure": np.ones(3)}, "`exposure` must have one number for each of 20 rows"),
    ],
)
def test_what_cannot_work_is_refused(settings, arguments, says):
    X, y, exposure, _ = drawn(20)
    model = BayesianNegativeBinomialRegression(**PRIVATE | settings)
    with pytest.raises((TypeError, ValueError), match=says):
        model.fit(**{"X": X, "y": y, "exposure": exposure} | arguments)


def test_pipelines_pass_exposures_on(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(20, 90, 5_000), "sex": rng.choice(["f", "m"], 5_000)})
    exposure = pd.Series(rng.uniform(10.0, 200.0, 5_000))
    y = rng.poisson(exposure / 100.0 * np.exp(0.02 * (table["age"] - 50)))
    model = BayesianNegativeBinomialRegression(dispersion=100.0, max_count=30, exposure_bounds=np.array([5.0, 365.0]))
    encoder, budget = TableEncoder({"age": (20, 90), "sex": ["f", "m"]}), PrivacyBudget(16.0, 1e-6)
    pipeline = make_private_pipeline(encoder, model, privacy=budget)
    ledger = PrivacyLedger(tmp_path / "budget", 20.0, 1e-6, "patients")
    with pytest.raises(ValueError, match="pass fit"):
        pipeline.fit(table, y, ledger=ledger)
    with pytest.raises(ValueError, match="different numbers of rows"):
        pipeline.fit(table, y, exposure=exposure[:10], ledger=ledger)
    assert ledger.spent() == 0.0
    row = pipeline.fit(table, y, exposure=exposure, ledger=ledger).summary().loc["age"]
    assert abs(row["mean"] - 0.02) < 5.0 * row["std"] < 0.02
    np.testing.assert_allclose(pipeline.predict(table[:5], exposure=2.0), 2.0 * pipeline.predict(table[:5]))
    pipeline.save(tmp_path / "rates")
    np.testing.assert_allclose(load(tmp_path / "rates").predict(table[:5]), pipeline.predict(table[:5]))
    logistic = make_private_pipeline(encoder, BayesianLogisticRegression(), privacy=budget)
    with pytest.raises(TypeError, match="takes no `exposure`"):
        logistic.fit(table, y, exposure=exposure)
