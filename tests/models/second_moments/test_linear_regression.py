"""Linear regression: scikit-learn's posterior without noise, and intervals that hold the truth with noise."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import ARDRegression, BayesianRidge

from tests.models.short_audit import shorten
from tests.mutants import add, check_notices
from vips import BayesianLinearRegression, PrivacyBudget, PrivacyPlan, PrivacyWarning, audit
from vips.core.sums.regressions import SquaresOfShares
from vips.models import _newton
from vips.models._coefficient_tables import BENT
from vips.models.second_moments import noise_aware
from vips.models.second_moments.noise_aware import Denoised, noise_aware_coefficients

TABLE = {"max_norm": 1.0, "target_range": (-6.0, 6.0)}


def table(n, rng, noise=0.5, d=4):
    X = rng.normal(size=(n, d))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    w = rng.normal(size=d)
    return X, X @ w + rng.normal() + noise * rng.normal(size=n), w


def plan(epsilon=1.0):
    return PrivacyPlan.from_epsilon(epsilon=epsilon, delta=1e-5, sampling_rate=1.0, n_steps=1)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("prior", "reference"), [("ridge", BayesianRidge), ("ard", ARDRegression)])
def test_without_noise_it_is_scikit_learn(prior, reference, fit_intercept):
    rng = np.random.default_rng(0)
    X = rng.normal([3.0, 0.0, -2.0, 0.0, 1.0], size=(150, 5))
    y = X @ rng.normal(size=5) + 10.0 + rng.normal(size=150)
    expected = reference(fit_intercept=fit_intercept, tol=1e-3).fit(X, y)
    declared = {"max_norm": 50.0, "target_range": (-100.0, 200.0)}
    for records, bounds in ((X, {}), (sp.csr_array(X), {}), (X, declared)):
        model = BayesianLinearRegression(penalty=prior, fit_intercept=fit_intercept, tol=1e-3, **bounds).fit(records, y)
        for name in ("coef_", "intercept_", "alpha_", "lambda_", "sigma_"):
            np.testing.assert_allclose(
                getattr(model, name), getattr(expected, name), rtol=1e-6, atol=1e-8, err_msg=name
            )
        assert model.n_iter_ == expected.n_iter_
        np.testing.assert_allclose(model.predict(records), expected.predict(X), rtol=1e-6)
        assert model.score(records, y) == pytest.approx(expected.score(X, y))
    if not fit_intercept:
        np.testing.assert_allclose(
            model.predict(X, return_std=True)[1], expected.predict(X, return_std=True)[1], rtol=1e-6
        )


def test_deviation_of_predictions_includes_that_of_the_intercept():
    rng = np.random.default_rng(1)
    X, y, _ = table(60, rng)
    model = BayesianLinearRegression().fit(X, y)
    reference = BayesianRidge(tol=1e-6).fit(X, y)
    squares = reference.predict(X, return_std=True)[1] ** 2 + 1.0 / (model.alpha_ * 60)
    np.testing.assert_allclose(model.predict(X, return_std=True)[1] ** 2, squares, rtol=1e-6)


def test_long_rows_weigh_less():
    """As with weights k², of a least-squares fit; the target is in the declared range."""
    rng = np.random.default_rng(2)
    X, y, _ = table(400, rng)
    X = np.concatenate([X, 5.0 * X[:50]])
    y = np.concatenate([y, y[:50]])
    model = BayesianLinearRegression(**TABLE).fit(X, y)
    k = np.minimum(1.0, 1.0 / np.linalg.norm(X, axis=1))
    rows = np.column_stack([X, np.ones(len(X))]) * k[:, None]
    squares = np.linalg.lstsq(rows, y * k, rcond=None)[0]
    np.testing.assert_allclose(model.last_posterior_.mean, squares, atol=0.02)


def _held(prior, n_records, epsilon, n_fits):
    rng, naive, aware = np.random.default_rng(n_records), [], []
    for _ in range(n_fits):
        X, y, w = table(n_records, rng)
        model = BayesianLinearRegression(penalty=prior, privacy=plan(epsilon), **TABLE).fit(X, y)
        for held, posterior in ((naive, model.last_posterior_), (aware, model.posterior_)):
            lower, upper = (side[: len(w)] for side in posterior.interval(0.95))
            held.append((lower < w) & (w < upper))
    return np.mean(naive), np.mean(aware)


@pytest.mark.parametrize(
    ("prior", "n_records", "epsilon"),
    [
        ("ridge", 5000, 1.0),
        pytest.param("ridge", 1000, 0.5, marks=pytest.mark.slow),
        pytest.param("ard", 1000, 4.0, marks=pytest.mark.slow),
    ],
)
def test_intervals_hold_the_truth_where_naive_ones_do_not(prior, n_records, epsilon):
    naive, aware = _held(prior, n_records, epsilon, 60)
    assert aware > 0.88  # of 240 intervals: 6 standard deviations below 0.95, were they independent
    assert naive < aware - 0.05


def _without_noise(patch):
    def certain(moments, *arguments):
        return noise_aware_coefficients(replace(moments, noise_std=1e-6), *arguments)

    patch.setattr("vips.models.second_moments.linear_regression.noise_aware_coefficients", certain)


def test_noise_left_out_of_the_posterior_is_noticed(monkeypatch):
    def check():
        assert _held("ridge", 1000, 0.5, 20)[1] > 0.8, "intervals miss the truth"

    check()
    check_notices(check, _without_noise, monkeypatch, "intervals miss the truth")


def _products(std, d=12, n_matrices=400):
    """Errors of Q u, Q from a law of which all rotations are alike: with noise, denoised, and as large as ``Denoised`` says."""
    rng, errors = np.random.default_rng(3), []
    for _ in range(n_matrices):
        factor = rng.normal(size=(d, d)) * np.linspace(1.0, 2.0, d)
        moments, noise, vector = factor @ factor.T, rng.normal(size=(d, d)), rng.normal(size=d)
        noisy = moments + 0.5 * (noise + noise.T) * std
        denoised = Denoised.of(noisy, std)
        squared_errors = [np.sum(((matrix - moments) @ vector) ** 2) for matrix in (noisy, denoised.matrix)]
        errors.append([*squared_errors, np.trace(denoised.covariance_of_product(vector))])
    return np.mean(errors, axis=0)


def _stated():
    for std in (1.0, 10.0):
        raw, denoised, stated = _products(std)
        assert 0.8 < stated / denoised < 1.25, "another covariance"
        assert denoised < (1.02 if std == 1.0 else 0.6) * raw, "as much noise as before"


def test_denoised_moments_are_nearer_and_know_how_near(monkeypatch):
    def larger(patch):
        original = Denoised.covariance_of_product
        patch.setattr(Denoised, "covariance_of_product", lambda *arguments: 2.0 * original(*arguments))

    def noisy(patch):
        patch.setattr(Denoised, "of", lambda M, std: Denoised(M, np.eye(len(M)), np.ones(M.shape), std))

    _stated()
    check_notices(_stated, larger, monkeypatch, "another covariance")
    monkeypatch.undo()
    check_notices(_stated, noisy, monkeypatch, "as much noise as before")


def test_moments_without_noise_stay_as_they_are():
    matrix = np.cov(np.random.default_rng(4).normal(size=(6, 40)))
    for std in (0.0, 1e-9):
        np.testing.assert_allclose(Denoised.of(matrix, std).matrix, matrix, atol=1e-8)
    np.testing.assert_allclose(Denoised.of(np.array([[3.0]]), 1e-3).matrix, [[3.0]])


def test_noise_that_vanishes_leaves_the_exact_posterior():
    X, y, _ = table(3000, np.random.default_rng(4))
    tiny = PrivacyPlan(noise_multiplier=1e-4, sampling_rate=1.0, n_steps=1)
    private = BayesianLinearRegression(privacy=tiny, **TABLE).fit(X, y)
    exact = BayesianLinearRegression().fit(X, y).last_posterior_
    np.testing.assert_allclose(private.posterior_.mean, exact.mean, atol=2e-3)
    np.testing.assert_allclose(private.posterior_.std, exact.std, rtol=0.02)
    np.testing.assert_allclose(private.last_posterior_.std, exact.std, rtol=0.02)


def test_only_noise():
    """Without records there is a posterior, and it knows nothing."""
    for seed in range(5):
        privacy = PrivacyPlan(noise_multiplier=1.0 + seed, sampling_rate=1.0, n_steps=1)
        model = BayesianLinearRegression(privacy=privacy, **TABLE).fit(np.zeros((0, 3)), np.zeros(0))
        assert np.isfinite(model.predict(np.ones((2, 3)), return_std=True)).all()
        assert (model.posterior_.std[:3] > 0.3).all()


def check_bounds_far_too_wide():
    """Noise in a variance that is hidden would be taken for the column: effects come out as 0."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(20_000, 2)).clip(-4.0, 4.0)
    y = X @ [0.4, -0.3] + rng.normal(size=20_000)
    settings = {"target_range": (-6.0, 6.0), "privacy": plan(1.0)}
    near = BayesianLinearRegression(max_norm=4.0 * np.sqrt(2.0), **settings).fit(X, y).summary()
    assert near["lower"].notna().all()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrivacyWarning)
        far = BayesianLinearRegression(max_norm=120.0 * np.sqrt(2.0), **settings).fit(X, y).summary()
    assert far[["std", "lower", "upper", "P(> 0)"]].isna().all(axis=None), "limits of columns that noise hides"
    assert any("Noise hides how much x0, x1 varies" in str(warning.message) for warning in caught)


def test_bounds_of_columns_and_target_may_be_far_too_wide():
    """30 times: z has a deviation of about 1, and errors are below twice those of least squares."""
    rng = np.random.default_rng(7)
    X = rng.normal([0.0, 30.0], 1.0, (20_000, 2))
    y = X @ [0.4, -0.3] + rng.normal(size=20_000)
    settings = {"target_range": (-180.0, 180.0), "privacy": PrivacyBudget(1.0, 1e-6)}
    model = BayesianLinearRegression(max_norm=120.0 * np.sqrt(2.0), **settings).fit(X, y)
    with pytest.warns(PrivacyWarning, match="Noise hides whether a part of the variance of y"):
        table = model.summary()
    assert (np.abs(table["mean"] - [0.4, -0.3, 0.0]) < 6.0 * table["std"]).all()
    assert (table["std"].iloc[:2] < 3.0 / np.sqrt(20_000)).all()  # about 1.5


def test_a_target_with_a_long_tail_is_named():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(20_000, 2)).clip(-4.0, 4.0)
    for draw, is_long in ((rng.normal, False), (rng.lognormal, True)):
        y = draw(size=20_000) + 0.2 * X[:, 0]
        settings = {"target_range": (-200.0, 200.0), "privacy": PrivacyBudget(8.0, 1e-6)}
        model = BayesianLinearRegression(max_norm=4.0 * np.sqrt(2.0), **settings).fit(X, y)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PrivacyWarning)
            model.summary()
        assert any("the variance of y is in few rows" in str(warning.message) for warning in caught) == is_long


def test_columns_that_noise_hides_have_no_limits(monkeypatch):
    check_bounds_far_too_wide()

    def all_are_seen(patch):
        patch.setattr("vips.models._coordinates._SEEN", -np.inf)

    check_notices(check_bounds_far_too_wide, all_are_seen, monkeypatch, "limits of columns")


def check_persons(n_steps=8):
    """Rows of one person that say nearly the same: least squares, and deviations by person."""
    rng = np.random.default_rng(9)
    ids, treated = np.repeat(np.arange(3000), 10), rng.integers(0, 2, 3000)
    X = np.column_stack([treated[ids], rng.uniform(size=30_000)])
    y = X @ [4.0, 3.0] + 8.0 * rng.normal(size=3000)[ids] + 4.0 * rng.normal(size=30_000)
    plan = PrivacyPlan(noise_multiplier=0.02, sampling_rate=1.0, n_steps=n_steps)
    model = BayesianLinearRegression(privacy=plan, max_norm=1.5, target_range=(-75.0, 75.0)).fit(X, y, groups=ids)
    least_squares = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)[0]
    np.testing.assert_allclose(model.coef_, least_squares[:2], atol=0.06, err_msg="drawn to 0")
    by_person = 2.0 * np.sqrt((8.0**2 + 4.0**2 / 10) / 3000)
    assert 0.92 < model.summary()["std"].iloc[0] / by_person < 1.3, "deviation of an effect of persons"


def test_a_persons_weight_does_not_look_at_targets_and_its_rows_may_say_the_same(monkeypatch):
    check_persons()
    check_moments = lambda: check_persons(1)  # noqa: E731
    check_moments()

    def by_target(patch):
        patch.setattr(BayesianLinearRegression, "_largest_norms", lambda self, rows: None)

    def independent(patch):
        patch.setattr(BayesianLinearRegression, "_rows_like_one", lambda self: 1.0)

    def of_rows(patch):
        add(patch, SquaresOfShares, "starts", property(lambda self: None, lambda self, starts: None))

    check_notices(check_moments, independent, monkeypatch, "deviation of an effect")
    monkeypatch.undo()
    check_notices(check_moments, by_target, monkeypatch, "drawn to 0|deviation of an effect")
    monkeypatch.undo()
    check_notices(check_persons, of_rows, monkeypatch, "deviation of an effect")


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_noise_that_vanishes_leaves_least_squares_and_its_sandwich(fit_intercept):
    """Errors have a deviation that grows with the first column; no row is clipped, and no residual limited."""
    rng, n = np.random.default_rng(10), 3000
    X = rng.uniform(-1.0, 1.0, (n, 2)) + 0.3
    y = X @ [2.0, -1.0] + 1.5 * fit_intercept + (0.2 + np.abs(X[:, 0])) * rng.uniform(-1.0, 1.0, n)
    tiny = PrivacyPlan(noise_multiplier=1e-6, sampling_rate=1.0, n_steps=16)
    settings = {"fit_intercept": fit_intercept, "max_norm": 2.0, "target_range": (-9.0, 9.0)}
    posterior = BayesianLinearRegression(privacy=tiny, **settings).fit(X, y).posterior_
    rows = np.column_stack([X, np.ones(n)]) if fit_intercept else X
    root, *_ = np.linalg.lstsq(rows, y, rcond=None)
    inverse = np.linalg.inv(rows.T @ rows)
    sandwich = inverse @ (rows.T * np.square(y - rows @ root)) @ rows @ inverse
    np.testing.assert_allclose(posterior.mean, root, atol=0.003)
    np.testing.assert_allclose(posterior.std[:2], np.sqrt(np.diagonal(sandwich))[:2], rtol=0.05)


def check_errors_that_grow():
    """Deviations of the first coefficient over those of least squares with a sandwich, whose errors grow with that column."""
    rng, n = np.random.default_rng(11), 20_000
    X = rng.normal(size=(n, 2)).clip(-3.0, 3.0)
    y = X @ [0.5, -0.5] + (0.3 + np.abs(X[:, 0])) * rng.normal(size=n)
    settings = {"max_norm": 3.0 * np.sqrt(2.0), "target_range": (-15.0, 15.0), "privacy": PrivacyBudget(20.0, 1e-6)}
    std = BayesianLinearRegression(**settings).fit(X, y).posterior_.std[0]
    sandwich = np.sqrt(np.mean(np.square(X[:, 0] * (0.3 + np.abs(X[:, 0])))) / n)
    assert 0.85 < std / sandwich < 1.2, "deviations of errors that are alike"


def test_errors_may_grow_with_a_column(monkeypatch):
    def alike(patch):
        patch.setattr(noise_aware, "variance_ratios", lambda noisy, std, curvature: np.ones(len(curvature)))

    check_errors_that_grow()
    check_notices(check_errors_that_grow, alike, monkeypatch, "deviations of errors")


@pytest.mark.parametrize("of", ["rows", "weights", "persons"])
def test_the_deviation_of_residuals_is_that_of_rows(of):
    """Squares of scores are by squared weights, a fifth of them in sum; and a person's rows cancel in them, and weigh less."""
    rng, n = np.random.default_rng(13), 20_000
    X = rng.normal(size=(n, 2)).clip(-4.0, 4.0)
    y = X @ [1.0, 0.5] + rng.exponential(size=n)
    budget = PrivacyBudget(20.0, 1e-6)
    of_plan, of_fit = {
        "rows": ({}, {}),
        "weights": ({"max_weight": 5.0}, {"sample_weight": np.ones(n)}),
        "persons": ({}, {"groups": rng.integers(0, n // 4, n)}),
    }[of]
    settings = {"max_norm": 4.0 * np.sqrt(2.0), "target_range": (-10.0, 15.0)}
    model = BayesianLinearRegression(privacy=budget.plan(n_steps=16, **of_plan), **settings).fit(X, y, **of_fit)
    assert 0.9 < model.alpha_**-0.5 < 1.1
    mean, std = model.predict(X, return_std=True)
    assert 0.93 < np.mean(np.abs(y - mean) < 1.96 * std) < 0.97
    # residuals are limited to deviations that they have: else the intercept of long tails comes out too small
    assert abs(model.intercept_ - 1.0) < 4.0 * model.posterior_.std[-1]


def check_a_bend_is_named():
    rng, n = np.random.default_rng(12), 20_000
    X = rng.normal(size=(n, 2)).clip(-4.0, 4.0)
    settings = {"max_norm": 9.0, "target_range": (-12.0, 25.0), "privacy": PrivacyBudget(1.0, 1e-6)}
    for bend in (0.0, 0.3):
        y = X @ [1.0, 0.5] + bend * X[:, 0] ** 2 + rng.normal(size=n)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PrivacyWarning)
            BayesianLinearRegression(**settings).fit(X, y).summary()
        said = [str(warning.message) for warning in caught if "by straight lines" in str(warning.message)]
        assert [message[:40] for message in said] == [BENT.format(columns="x0")[:40]] * (bend > 0.0), (
            f"a bend of {bend}"
        )


def test_a_column_with_a_bend_is_named(monkeypatch):
    def straight(patch):
        patch.setattr(_newton.Released, "bent", lambda self, bends, *others: np.zeros(len(bends), bool))

    check_a_bend_is_named()
    check_notices(check_a_bend_is_named, straight, monkeypatch, "a bend of 0.3")


def check_a_bend_of_third_order_is_named():
    """Squares and products of columns do not show it."""
    rng, n = np.random.default_rng(13), 20_000
    X = rng.normal(size=(n, 2)).clip(-4.0, 4.0)
    settings = {"max_norm": 6.0, "target_range": (-30.0, 30.0), "privacy": PrivacyBudget(2.0, 1e-6)}
    for bend in (0.0, 0.25):
        y = X @ [1.0, 0.5] + bend * X[:, 0] ** 3 + np.exp(0.3 * X[:, 1]) * rng.normal(size=n)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PrivacyWarning)
            BayesianLinearRegression(**settings).fit(X, y).summary()
        said = [str(warning.message) for warning in caught if "by straight lines" in str(warning.message)]
        assert [message[:40] for message in said] == [BENT.format(columns="x0")[:40]] * (bend > 0.0), f"{bend} x³"


def test_a_column_with_a_bend_of_third_order_is_named(monkeypatch):
    def untilted(patch):
        patch.setattr(_newton.Released, "tilted", lambda self, at: np.zeros(len(at), bool))

    check_a_bend_of_third_order_is_named()
    check_notices(check_a_bend_of_third_order_is_named, untilted, monkeypatch, "0.25 x³")


def test_columns_that_vary_together_get_no_limits():
    """Age and year of birth, which a visit in one of two years hardly tells apart; a third column has limits."""
    rng, n = np.random.default_rng(14), 20_000
    age, other = rng.normal(50.0, 18.0, n).clip(0.0, 110.0), rng.normal(size=n)
    born = rng.integers(2014, 2016, n) - age
    y = 0.3 * age + 0.3 * (born - 1965.0) + other + 3.0 * rng.normal(size=n)
    X = (np.column_stack([age, born, other]) - [55.0, 1960.0, 0.0]) / [55.0, 60.0, 5.0]
    settings = {"max_norm": np.sqrt(3.0), "target_range": (-60.0, 60.0), "privacy": PrivacyBudget(1.0, 1e-6)}
    with pytest.warns(PrivacyWarning, match="Noise hides the effects of x0, x1: these columns hardly vary"):
        table = BayesianLinearRegression(**settings).fit(X, y).summary()
    assert table["lower"].isna().tolist()[:3] == [True, True, False]


@pytest.mark.parametrize(("codes", "target_range"), [(0.003, (0.0, 1000.0)), (0.0, (10.0, 30.0))])
def test_codes_among_targets_are_warned_of(codes, target_range):
    """Three targets of a thousand are 999: seen, or what noise may hide, unless bounds leave no room for it."""
    rng, n = np.random.default_rng(15), 5000
    X = rng.normal(size=(n, 3)).clip(-4.0, 4.0) / 4.0
    y = np.where(rng.random(n) < codes, 999.0, 20.0 + X @ [3.2, -2.0, 1.2] + rng.normal(size=n))
    settings = {"max_norm": np.sqrt(3.0), "target_range": target_range, "privacy": PrivacyBudget(1.0, 1e-6)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        BayesianLinearRegression(**settings).fit(X, y).summary()
    assert any("part of the variance of y is in few rows" in str(of.message) for of in caught) == (codes > 0.0)


def test_summary_audit_and_persons(monkeypatch):
    shorten(monkeypatch)
    rng = np.random.default_rng(5)
    X, y, w = table(3000, rng)
    model = BayesianLinearRegression(privacy=plan(4.0), **TABLE).fit(X, y)
    summary = model.summary()
    assert list(summary.columns) == ["mean", "std", "lower", "upper", "P(> 0)"]
    assert list(summary.index) == ["x0", "x1", "x2", "x3", "intercept"]
    np.testing.assert_allclose(summary["mean"][:4], w, atol=0.5)
    assert model.signal_of_coefficients().p_value < 1e-6
    assert "target_range = (-6, 6)" in str(model.privacy_)
    persons = BayesianLinearRegression(privacy=replace(plan(4.0), max_rows_per_group=2), **TABLE)
    assert "person" in persons.fit(X, y, groups=np.arange(3000) // 2).privacy_.unit or "group" in persons.privacy_.unit
    report = audit(BayesianLinearRegression(privacy=plan(4.0), **TABLE), X[:300], y[:300], n_runs=1000, random_state=0)
    assert report.passed


def test_bad_input():
    private = {"privacy": plan()}
    for settings, says in (
        ({"penalty": "flat"}, "`penalty`"),
        (private | {"target_range": (0, 1)}, "`max_norm` is required"),
        (private | {"max_norm": 1.0}, "`target_range` is required"),
        ({"target_range": (1.0, 1.0)}, "low < high"),
        ({"target_range": 3.0}, "`target_range` must be"),
        ({"max_iter": 0}, "`max_iter`"),
    ):
        with pytest.raises(ValueError, match=says):
            BayesianLinearRegression(**settings).fit("not data", "no target")
    with pytest.raises(ValueError, match="requires y"):
        BayesianLinearRegression().fit(np.eye(3))
