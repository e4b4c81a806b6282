"""Ordinary fits do not depend on where the origin of a column lies, nor, under default priors, on its unit."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from tests.mutants import check_notices
from vips import (
    BayesianBinomialRegression,
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    FactorAnalysis,
    GaussianHMM,
    MixedLogisticRegression,
    MixedNegativeBinomialRegression,
    PrivacyBudget,
    ProbabilisticPCA,
    Records,
    SpatialCounts,
    StreamPlan,
    load,
)
from vips.preprocessing import TableEncoder, make_private_pipeline

RNG = np.random.default_rng(0)
N = 400
X = RNG.normal(size=(N, 2)) @ [[1.0, 0.3], [0.0, 1.0]]
YES = (RNG.random(N) < expit(X @ [1.0, -0.5] + 0.3)).astype(int)
CLASS = (X[:, 0] + RNG.normal(size=N) > 0.0).astype(int) + (X[:, 1] + RNG.normal(size=N) > 0.0)
COUNT = RNG.poisson(np.exp(X @ [0.4, -0.2] + 0.5))
NUMBER = 1.0 + X @ [1.0, -0.5] + RNG.normal(size=N)
GROUPED = X + np.outer(YES, [5.0, 3.0])
PERSONS = {"groups": np.arange(N) // 4}
ORIGIN = [(1e6, 1.0, 1e-6), (1e8, 1.0, 1e-3)]
UNIT = [(0.0, 1e3, 1e-6), (0.0, 1e-3, 1e-6), (1e6, 1e3, 1e-6), (0.0, 1e-8, 1e-6), (0.0, 1e8, 1e-6)]
# model, target, other arguments of fit, and changes of a column that it follows. λ of a linear regression is scikit-learn's,
# and depends a little on units.
FAMILIES = [
    (BayesianLogisticRegression(), YES, {}, ORIGIN + UNIT),
    (BayesianLogisticRegression(), CLASS, {}, ORIGIN + UNIT),
    (BayesianBinomialRegression(n_trials=60), COUNT, {}, ORIGIN + UNIT),
    (BayesianNegativeBinomialRegression(dispersion=5.0), COUNT, {}, ORIGIN + UNIT),
    (MixedLogisticRegression(), YES, PERSONS, ORIGIN + UNIT),
    (MixedNegativeBinomialRegression(dispersion=5.0), COUNT, PERSONS, ORIGIN + UNIT),
    (BayesianLinearRegression(), NUMBER, {}, ORIGIN),
    (BayesianLinearRegression(penalty="ard"), NUMBER, {}, ORIGIN),
    (ProbabilisticPCA(1), None, {}, ORIGIN),
    (FactorAnalysis(1), None, {}, ORIGIN + UNIT),
    (BayesianGaussianMixture(2, random_state=0), None, {}, ORIGIN + UNIT),
    (BayesianGaussianMixture(2, random_state=0, inference="em"), None, {}, ORIGIN + UNIT),
    (BayesianGaussianMixture(2, random_state=0, covariance_type="diag"), None, {}, ORIGIN + UNIT),
    (BayesianGaussianMixture(2, random_state=0, dof=5.0), None, {}, ORIGIN + UNIT),
    (GaussianHMM(2, random_state=0), None, {}, ORIGIN + UNIT),
    (GaussianHMM(2, random_state=0, covariance_type="diag"), None, {}, ORIGIN + UNIT),
]


def named(value):
    return type(value).__name__ if hasattr(value, "fit") else ""


def estimates(model, at, shift, scale):
    """Predictions, and what was learnt of the columns as they were; coefficients with their deviations."""
    units, origin = np.array([scale, 1.0]), np.array([shift, 0.0])
    if hasattr(model, "get_covariance"):
        covariance = model.get_covariance() / units / units[:, None]
        return [model.score_samples(at) + np.log(scale), covariance, (model.mean_ - origin) / units]
    if isinstance(model, GaussianHMM):
        return [*model.predict_proba(at), (model.means_ - origin) / units, model.covars_ / units / units[:, None]]
    if isinstance(model, BayesianGaussianMixture):
        variances = model.covariances_ / (np.outer(units, units) if model.covariance_type == "full" else units**2)
        return [model.predict_proba(at), (model.means_ - origin) / units, variances]
    predicted = model.predict_proba(at) if hasattr(model, "predict_proba") else model.predict(at)
    d = at.shape[1]
    coefficients, deviations = (np.atleast_2d(a)[:, :d] for a in (model.posterior_.mean, model.posterior_.std))
    return [predicted, coefficients * [scale, 1.0], deviations * [scale, 1.0]]


@pytest.mark.parametrize(
    ("model", "y", "arguments", "changes"),
    [
        pytest.param(*family[:3], changes, id=f"{named(family[0])}-{i}-{n}", marks=pytest.mark.slow if n else ())
        for i, family in enumerate(FAMILIES)
        for n, changes in enumerate([family[3][::3], family[3]])
    ],
)
def test_estimates_follow_a_column_and_predictions_stay(model, y, arguments, changes):
    table = X if y is not None or hasattr(model, "transform") else GROUPED
    table = list(table.reshape(40, 10, 2)) if isinstance(model, GaussianHMM) else table
    right = estimates(model.fit(table, y, **arguments), table, 0.0, 1.0)
    for shift, scale, tolerance in changes:
        moved = np.asarray(table) * [scale, 1.0] + [shift * scale, 0.0]
        moved = list(moved) if isinstance(table, list) else moved
        got = estimates(model.fit(moved, y, **arguments), moved, shift * scale, scale)
        for value, expected in zip(got, right, strict=True):
            np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance, err_msg=f"{shift, scale}")


@pytest.mark.parametrize("penalty", ["ridge", "ard"])
def test_a_linear_regression_is_hardly_moved_by_a_unit(penalty):
    right = estimates(BayesianLinearRegression(penalty=penalty).fit(X, NUMBER), X, 0.0, 1.0)
    for scale in (1e-8, 1e-6, 1e-3, 1e3, 1e8):
        at = X * [scale, 1.0]
        got = estimates(BayesianLinearRegression(penalty=penalty).fit(at, NUMBER), at, 0.0, scale)
        assert (np.abs(got[1] - right[1]) < 0.2 * right[2]).all()
        np.testing.assert_allclose(got[2], right[2], rtol=0.02)


def test_a_linear_regression_says_that_a_target_in_a_large_unit_has_too_wide_intervals():
    with pytest.warns(UserWarning, match="alpha_2=0"):
        BayesianLinearRegression().fit(X, 1e-6 * NUMBER)
    right, small = BayesianLinearRegression(), BayesianLinearRegression(alpha_2=0.0)
    deviations = right.fit(X, NUMBER).posterior_.std, small.fit(X, 1e-6 * NUMBER).posterior_.std
    np.testing.assert_allclose(1e6 * deviations[1], deviations[0], rtol=0.02)


@pytest.mark.filterwarnings("error")
def test_no_warning_of_overflow_reaches_users():
    for scale in (1e-60, 1e8, 1e60):
        assert ProbabilisticPCA(1).fit(scale * X).score(X * scale) < np.inf


def test_mixtures_follow_missing_steps_tables_of_mostly_zeros_and_weights():
    X, rng = GROUPED, np.random.default_rng(1)
    zeros = np.where(rng.random(X.shape) < 0.9, 0.0, X)
    steps = np.where(rng.random((40, 10, 1)) < 0.1, np.nan, X.reshape(40, 10, 2))
    tailed = BayesianGaussianMixture(2, random_state=0, dof=5.0)
    fits = [
        lambda s: tailed.fit(s * zeros).predict_proba(s * zeros),
        lambda s: tailed.fit(s * X, sample_weight=1.0 + CLASS).predict_proba(s * X),
        lambda s: np.concatenate(GaussianHMM(2, random_state=0).fit(list(s * steps)).predict_proba(list(s * steps))),
    ]
    for fit in fits:
        np.testing.assert_allclose(fit(1e-6), fit(1.0), atol=1e-6)


def of_tails(n=1000):
    """Columns of long tails, and an effect of each."""
    rng = np.random.default_rng(3)
    mistyped, few = rng.normal(55.0, 12.0, n), np.where(rng.random(n) < 0.02, rng.poisson(8.0, n), 0.0)
    mistyped[0] = 9_999.0
    return [(rng.pareto(1.5, n), 0.17), (rng.standard_cauchy(n), 0.1), (mistyped, 0.04), (few, 0.15)]


def check_long_tails_do_not_shrink_coefficients():
    """Within one standard error of maximum likelihood, with its limits."""
    rng = np.random.default_rng(5)
    for x, effect in of_tails():
        predictor = np.clip(effect * (x - np.median(x)), -8.0, 8.0)
        X, y = np.column_stack([x, rng.random(len(x))]), (rng.random(len(x)) < expit(predictor)).astype(int)
        if x.max() > 9_000.0:
            y[x.argmax()] = 1  # as its effect says: another answer ruins maximum likelihood as well
        row = BayesianLogisticRegression().fit(X, y).summary().iloc[0]
        flat = BayesianLogisticRegression(prior=1e-6).fit(X, y).laplace_posterior(X, y)
        off, width = (row["mean"] - flat.mean[0]) / flat.std[0], row["std"] / flat.std[0]
        assert abs(off) < 1.0, f"{off:.1f} errors from the most likely slope"
        assert 0.7 < width < 1.4, f"limits {width:.2f} as wide"


def test_long_tails_do_not_shrink_coefficients():
    check_long_tails_do_not_shrink_coefficients()


def test_a_prior_by_ranges_would_be_noticed(monkeypatch):
    def ranges(model, records, rows_of):
        rows = rows_of(next(iter(records.chunks(10_000))))
        return rows.mean(axis=0), np.maximum(np.ptp(rows, axis=0), 1e-9)

    def by_ranges(patch):
        patch.setattr("vips.models.regression.contract.means_and_spreads", ranges)

    check_notices(
        check_long_tails_do_not_shrink_coefficients, by_ranges, monkeypatch, "errors from the most likely slope"
    )


def test_what_was_fitted_far_from_zero_is_saved_and_compared(tmp_path):
    near, far = (BayesianLogisticRegression().fit(X + at, YES) for at in (0.0, 1e8))
    far.save(tmp_path / "far")
    read = load(tmp_path / "far")
    np.testing.assert_array_equal(read.predict_proba(X + 1e8), far.predict_proba(X + 1e8))
    pd.testing.assert_frame_equal(read.summary(), far.summary())
    np.testing.assert_allclose(far.summary().iloc[:2], near.summary().iloc[:2], rtol=1e-3)
    assert far.posterior_.kl(read.posterior_) == pytest.approx(0.0, abs=1e-9)
    draws = far.posterior_.sample(4000, 0)
    np.testing.assert_allclose(draws[:, :2].std(axis=0), near.posterior_.std[:2], rtol=0.1)
    np.testing.assert_allclose(far.posterior_.around.cov, far.posterior_.at(far.posterior_.centre).cov)


def test_a_private_fit_has_its_prior_where_and_as_wide_as_what_it_has_released():
    """Bounds as wide as these leave the year with 1/200 of them."""
    rng = np.random.default_rng(1)
    year = rng.integers(2000, 2021, 20_000)
    y = (rng.random(len(year)) < expit(0.1 * (year - 2010.0))).astype(int)
    for model, persons in (
        (BayesianLogisticRegression(), {}),
        (MixedLogisticRegression(), {"groups": np.arange(20_000) // 4}),
    ):
        pipeline = make_private_pipeline(TableEncoder({"year": (0, 2100)}), model, privacy=PrivacyBudget(40.0, 1e-6))
        mean = pipeline.fit(pd.DataFrame({"year": year.astype(float)}), y, **persons)[-1].coef_ / 1050.0
        assert mean == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(("model", "y"), [
    (BayesianLogisticRegression(), (RNG.random(N) < 0.02).astype(int)),
    (BayesianNegativeBinomialRegression(dispersion=100.0), COUNT),
], ids=named)  # fmt: skip
def test_limits_of_ordinary_fits_are_those_of_the_likelihood(model, y):
    """Also with weights, which count as records do."""
    summary = model.fit(X, y).summary()
    np.testing.assert_allclose(summary["std"], model.laplace_posterior(X, y).std)
    assert (summary["std"] > 1.2 * model.last_posterior_.std).all()
    lower, upper = model.predict_interval(X[:1])
    assert np.log(upper / lower) > 0.0
    weighted = model.fit(X, y, sample_weight=np.full(N, 4.0)).summary()
    repeated = model.fit(np.tile(X, (4, 1)), np.tile(y, 4)).summary()
    np.testing.assert_allclose(weighted["std"], repeated["std"], rtol=1e-4)


def test_dispersions_do_not_depend_on_the_unit_of_weights():
    y, area = RNG.poisson(RNG.gamma(2.0, 0.5, 2000)), RNG.integers(0, 2, 2000)
    right = BayesianNegativeBinomialRegression(dispersion=2.0).fit(area[:, None], y).dispersion_
    of_areas = SpatialCounts(areas=["0", "1"]).fit(area, y).findings()["dispersion of counts"]
    for unit in (0.3, 3.0, 300.0):
        weights = np.full(2000, unit)
        model = BayesianNegativeBinomialRegression(dispersion=2.0).fit(area[:, None], y, sample_weight=weights)
        assert model.dispersion_ == pytest.approx(right, rel=0.01)
        areas = SpatialCounts(areas=["0", "1"]).fit(area, y, sample_weight=weights)
        assert areas.findings()["dispersion of counts"] == pytest.approx(of_areas, rel=0.01)


@pytest.mark.parametrize(
    "model",
    [BayesianLinearRegression(max_norm=9.0, target_range=(0.0, 9.0)), ProbabilisticPCA(1, max_norm=9.0)],
    ids=named,
)
def test_a_private_fit_takes_nothing_from_an_ordinary_one_before(model):
    """A stream keeps what was fitted; means of an ordinary fit would be released without noise."""
    sums = []
    for first in (X, X + 5.0):
        model.set_params(privacy=None).fit(first, NUMBER)
        model.set_params(privacy=StreamPlan(epsilon=1.0, delta=1e-6, n_batches=4))
        records = Records(X, NUMBER) if model.needs_labels else X
        sums.append(model.expected_statistics(records, None).weighted_sum(np.ones(N))["second"])
    np.testing.assert_array_equal(*sums)
