"""Bayesian logistic regression against the textbook, brute force, Gibbs sampling, and hostile input."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.integrate import quad
from scipy.special import expit, logsumexp
from scipy.stats import gamma, norm
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from experiments.datasets import load_adult
from vips import BayesianLogisticRegression, PrivacyPlan
from vips.expfam import Gamma
from vips.preprocessing import TableEncoder
from vips.reference import gibbs_logistic

FULL_BATCH = PrivacyPlan.non_private(sampling_rate=1.0, n_steps=12)


def logistic_data(n, coefficients, intercept=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, len(coefficients)))
    return X, (rng.random(n) < expit(X @ coefficients + intercept)).astype(int)


# -- without noise ----------------------------------------------------------------------------------------------


def textbook(X, y, n_steps, a0=1.0, b0=1.0):
    """Section 5 of the paper, one record at a time, without an intercept."""
    d = X.shape[1]
    mean, cov, alpha = np.zeros(d), np.eye(d) * b0 / a0, a0 / b0
    for _ in range(n_steps):
        precision, linear = alpha * np.eye(d), np.zeros(d)
        for x, label in zip(X, y, strict=True):
            c = np.sqrt(x @ (cov + np.outer(mean, mean)) @ x)
            precision += np.tanh(c / 2) / (2 * c) * np.outer(x, x)
            linear += (label - 0.5) * x
        cov = np.linalg.inv(precision)
        mean = cov @ linear
        alpha = (a0 + d / 2) / (b0 + 0.5 * (mean @ mean + np.trace(cov)))
    return mean, cov, alpha


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("statistics", ["centred", "paper"])
def test_a_full_batch_without_noise_is_the_textbook_update(statistics, container):
    X, y = logistic_data(60, [1.0, -2.0, 0.5])
    model = BayesianLogisticRegression(
        privacy=FULL_BATCH, fit_intercept=False, prior=Gamma(2.0, 3.0), statistics=statistics
    )
    model.fit(container(X), y)
    mean, cov, alpha = textbook(X, y, FULL_BATCH.n_steps, 2.0, 3.0)
    np.testing.assert_allclose(model.last_posterior_.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(model.last_posterior_.cov, cov, rtol=1e-10, atol=1e-14)
    assert model.alpha_ == pytest.approx(alpha, rel=1e-10)


def test_single_precision_forms_change_little():
    X, y = logistic_data(300, [1.0, -2.0, 0.5])
    double, single = (
        BayesianLogisticRegression(dtype=dtype, privacy=PrivacyPlan.non_private())
        .fit(sp.csr_array(X), y)
        .last_posterior_.mean
        for dtype in (float, np.float32)
    )
    assert 0.0 < np.abs(double - single).max() < 1e-5


def test_the_diagonal_posterior_is_the_mean_field_optimum():
    """A fixed point of coordinate updates, one coefficient at a time."""
    X, y = logistic_data(400, [1.0, -0.5, 0.8, 0.0])
    X = X + 1.0  # correlated through their means, so that updating all at once needs its correction
    model = BayesianLogisticRegression(covariance="diagonal", prior=0.7).fit(X, y)
    rows = np.column_stack([X, np.ones(len(X))])
    prior = np.array([0.7] * 4 + [0.01])
    mean, var = np.zeros(5), np.ones(5)
    for _ in range(3000):
        omega = expected_omega(np.sqrt((rows @ mean) ** 2 + rows**2 @ var))
        for i in range(5):
            precision = prior[i] + omega @ rows[:, i] ** 2
            offset = rows @ mean - rows[:, i] * mean[i]
            mean[i], var[i] = rows[:, i] @ (y - 0.5 - omega * offset) / precision, 1.0 / precision
    np.testing.assert_allclose(model.last_posterior_.mean, mean, atol=1e-5)
    np.testing.assert_allclose(model.last_posterior_.var, var, rtol=1e-4)


def expected_omega(c):
    return np.tanh(c / 2) / (2 * c)


@pytest.mark.repeated("separable", "fixed prior")
@pytest.mark.parametrize("data", ["ordinary", "separable", "three classes", "fixed prior"])
def test_the_bound_never_falls(data):
    X, y = logistic_data(150, [2.0, -1.0], 0.5)
    settings = {"prior": 0.3} if data == "fixed prior" else {}
    if data == "separable":
        y = (X[:, 0] > 0).astype(int)
    if data == "three classes":
        y = np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.5, 0.5])
    bounds = []
    for n_steps in range(1, 25):
        plan = PrivacyPlan.non_private(sampling_rate=1.0, n_steps=n_steps)
        bounds.append(BayesianLogisticRegression(privacy=plan, **settings).fit(X, y).bound_)
    assert (np.diff(bounds) >= -1e-9 * np.abs(bounds[-1])).all()
    assert bounds[-1] > bounds[0] + 0.1


def log_likelihood(X, y, w):
    """The log likelihood of each column of w, of shape (n_grid,)."""
    psi = X @ w
    return (y[:, None] * psi - np.logaddexp(0.0, psi)).sum(axis=0)


def test_one_coefficient_against_integration_over_it_and_its_precision():
    X, y = logistic_data(150, [1.2], seed=3)
    w, log_alpha = np.linspace(-1.0, 4.0, 801), np.linspace(-9.0, 5.0, 401)
    alpha = np.exp(log_alpha)[:, None]
    joint = log_likelihood(X, y, w[None]) + norm.logpdf(w, scale=alpha**-0.5)
    joint = joint + gamma.logpdf(alpha, 1.0, scale=1.0) + log_alpha[:, None]
    evidence = logsumexp(joint) + np.log((w[1] - w[0]) * (log_alpha[1] - log_alpha[0]))
    weights = np.exp(joint - joint.max()).sum(axis=0)
    weights /= weights.sum()
    mean = weights @ w
    std = np.sqrt(weights @ (w - mean) ** 2)
    model = BayesianLogisticRegression(fit_intercept=False, prior=Gamma(1.0, 1.0)).fit(X, y)
    assert evidence - 1.0 < model.bound_ < evidence
    assert abs(model.last_posterior_.mean[0] - mean) < 0.1 * std
    assert 0.65 < model.last_posterior_.std[0] / std < 1.0
    assert model.laplace_posterior(X, y).std[0] == pytest.approx(std, rel=0.1)


@pytest.mark.slow
def test_coefficient_and_intercept_against_integration():
    X, y = logistic_data(200, [1.5], -0.7, seed=1)
    w, b = (axis.ravel() for axis in np.meshgrid(np.linspace(0, 4, 301), np.linspace(-3, 1, 301), indexing="ij"))
    rows = np.column_stack([X, np.ones(len(X))])
    joint = log_likelihood(rows, y, np.stack([w, b])) + norm.logpdf(w, scale=0.5**-0.5) + norm.logpdf(b, scale=10.0)
    evidence = logsumexp(joint) + np.log((4.0 / 300) ** 2)
    weights = np.exp(joint - logsumexp(joint))
    mean = np.array([weights @ w, weights @ b])
    std = np.sqrt([weights @ (w - mean[0]) ** 2, weights @ (b - mean[1]) ** 2])
    model = BayesianLogisticRegression(prior=0.5).fit(X, y)
    assert evidence - 0.5 < model.bound_ < evidence
    assert (np.abs(model.last_posterior_.mean - mean) < 0.1 * std).all()
    np.testing.assert_allclose(model.laplace_posterior(X, y).std, std, rtol=0.1)


def real_and_generated():
    yield pytest.param(*logistic_data(400, [0.4, -0.3, 0.2, 0.0, 0.1], 0.3), id="weak signal")
    yield pytest.param(
        *logistic_data(2000, [1.1, -0.8, 0.5, 0.0, 0.3, -0.6]), id="strong signal", marks=pytest.mark.slow
    )
    cancer = load_breast_cancer()
    yield pytest.param(StandardScaler().fit_transform(cancer.data)[:, [1, 4, 9]], cancer.target, id="breast cancer")


@pytest.mark.slow
@pytest.mark.parametrize(("X", "y"), list(real_and_generated()))
@pytest.mark.repeated("breast cancer")
def test_posterior_against_gibbs(X, y):
    exact = gibbs_logistic(X, y, fit_intercept=True, n_samples=8000, n_burn_in=500, random_state=0)
    model = BayesianLogisticRegression(prior=Gamma(1.0, 1.0)).fit(X, y)
    posterior, error = model.last_posterior_, 4.0 / np.sqrt(exact.effective_sample_size().min())
    assert (np.abs(posterior.mean - exact.mean) < (0.1 + error) * exact.std).all()
    ratio = posterior.std / exact.std
    assert ((ratio > 0.6) & (ratio < 1.0 + error)).all(), f"variational over exact deviations: {ratio}"
    corrected = model.laplace_posterior(X, y)
    np.testing.assert_allclose(corrected.std, exact.std, rtol=0.1)
    correlation = exact.cov / np.outer(exact.std, exact.std)
    np.testing.assert_allclose(corrected.cov / np.outer(corrected.std, corrected.std), correlation, atol=0.1)


# -- predictions ------------------------------------------------------------------------------------------------


def test_probabilities_are_averaged_over_the_posterior():
    X, y = logistic_data(30, [1.0, -2.0], seed=5)
    model = BayesianLogisticRegression().fit(X, y)
    rows = np.array([[0.5, 0.1], [3.0, -4.0], [40.0, 60.0]])  # the last with a deviation far above 2
    augmented = np.column_stack([rows, np.ones(3)])
    for row, probability in zip(augmented, model.predict_proba(rows), strict=True):
        mean, std = row @ model.last_posterior_.mean, np.sqrt(row @ model.last_posterior_.cov @ row)
        points = np.clip([0.0], mean - 9 * std, mean + 9 * std)
        exact, _ = quad(
            lambda a, mean=mean, std=std: expit(a) * norm.pdf(a, mean, std), mean - 10 * std, mean + 10 * std,
            points=points, limit=300,
        )  # fmt: skip
        assert probability[1] == pytest.approx(exact, abs=3e-5)
        assert probability.sum() == pytest.approx(1.0)
    np.testing.assert_array_equal(model.predict(rows), model.predict_proba(rows).argmax(axis=1))


def test_three_classes_by_stick_breaking():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    scores = np.column_stack([np.zeros(3000), X @ [2.0, 0.0], X @ [0.0, 2.0]])
    y = np.array(["a", "b", "c"])[(scores + rng.gumbel(size=scores.shape)).argmax(axis=1)]
    model = BayesianLogisticRegression().fit(X, y)
    assert model.coef_.shape == (2, 2)
    assert model.last_posterior_.cov.shape == (2, 3, 3)
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(X), model.classes_[probabilities.argmax(axis=1)])
    assert np.mean(model.predict(X) == y) > 0.95 * np.mean(np.array(["a", "b", "c"])[scores.argmax(axis=1)] == y)
    # the first stick is the regression of "a" against the rest, with the sign turned
    first = BayesianLogisticRegression().fit(X, y == "a")
    np.testing.assert_allclose(model.last_posterior_.mean[0], first.last_posterior_.mean, rtol=1e-5)


# -- the public ball ----------------------------------------------------------------------------------------------


def noiseless(**changes):
    return PrivacyPlan(noise_multiplier=0.0, sampling_rate=1.0, n_steps=8, **changes)


def test_longer_rows_are_scaled_down_in_fits_and_predictions():
    X, y = logistic_data(200, [1.0, -2.0])
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    short = X * np.minimum(1.0, 0.8 / norms)
    one = BayesianLogisticRegression(max_norm=0.8).fit(X, y)
    other = BayesianLogisticRegression(max_norm=0.8).fit(short, y)
    np.testing.assert_allclose(one.last_posterior_.mean, other.last_posterior_.mean, rtol=1e-10)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(short), rtol=1e-10)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_change_of_units_changes_nothing(covariance, fit_intercept):
    """Clip, block scales, views and the intercept's constant all follow ``max_norm``."""
    X, y = logistic_data(300, [1.0, -2.0], 0.5)
    settings = {"covariance": covariance, "fit_intercept": fit_intercept, "privacy": noiseless()}
    one = BayesianLogisticRegression(max_norm=2.0, prior=0.5, **settings).fit(X, y)
    other = BayesianLogisticRegression(max_norm=200.0, prior=0.5e4, **settings).fit(100 * X, y)
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(100 * X), rtol=1e-8)


# -- private fits -------------------------------------------------------------------------------------------------


def private(epsilon=1.0, **changes):
    settings = {"epsilon": epsilon, "delta": 1e-6, "sampling_rate": 1.0, "n_steps": 20} | changes
    return PrivacyPlan.from_epsilon(**settings)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("sampling_rate", [1.0, 0.2])
@pytest.mark.repeated("1.0-diagonal")
def test_a_private_fit_ranks_like_the_truth(covariance, sampling_rate):
    X, y = logistic_data(40_000, [0.5, -1.0, 0.7, 0.0], -1.0)
    plan = private(sampling_rate=sampling_rate, n_steps=40)
    model = BayesianLogisticRegression(privacy=plan, max_norm=3.0, covariance=covariance).fit(X[:30_000], y[:30_000])
    truth = roc_auc_score(y[30_000:], X[30_000:] @ [0.5, -1.0, 0.7, 0.0])
    assert roc_auc_score(y[30_000:], model.decision_function(X[30_000:])) > truth - 0.01
    assert not hasattr(model, "bound_")


@pytest.mark.slow
def test_adult_at_epsilon_one():
    try:
        adult = load_adult()
    except (FileNotFoundError, OSError) as error:
        pytest.skip(str(error))
    X, y = TableEncoder(adult.columns).fit_transform(adult.data), np.asarray(adult.target)
    order = np.random.default_rng(100).permutation(len(y))
    train, test = order[: int(0.8 * len(y))], order[int(0.8 * len(y)) :]
    model = BayesianLogisticRegression(privacy=private(delta=1e-5), max_norm=1.0).fit(X[train], y[train])
    assert roc_auc_score(y[test], model.decision_function(X[test])) > 0.888


def test_what_is_not_declared_is_asked_for():
    X, y = logistic_data(10, [1.0])
    with pytest.raises(ValueError, match="`max_norm` is required"):
        BayesianLogisticRegression(privacy=private()).fit(X, y)
    with pytest.raises(ValueError, match="requires y"):
        BayesianLogisticRegression(privacy=private(), max_norm=1.0).fit(X)
    with pytest.raises(ValueError, match="one label for each row"):
        BayesianLogisticRegression(privacy=private(), max_norm=1.0).fit(X, np.zeros((10, 2)))
    with pytest.raises(TypeError, match="numbers"):
        BayesianLogisticRegression(privacy=private(), max_norm=1.0).fit(X, np.array(["a", "b"] * 5))


def test_undeclared_labels_and_defective_rows_count_for_nothing():
    X, y = logistic_data(100, [1.0, -2.0])
    settings = {"privacy": PrivacyPlan(noise_multiplier=1e-9, sampling_rate=1.0, n_steps=5), "max_norm": 5.0}
    alone = BayesianLogisticRegression(**settings).fit(X, y).last_posterior_.mean
    bad_X = np.vstack([X, np.ones((3, 2)), [[np.nan, 1.0], [np.inf, 0.0]]])
    bad_y = np.concatenate([y, [2.0, np.nan, 0.5], [1.0, 0.0]])
    np.testing.assert_allclose(
        BayesianLogisticRegression(**settings).fit(bad_X, bad_y).last_posterior_.mean, alone, rtol=1e-4
    )
    with pytest.raises(ValueError, match="not valid"):
        BayesianLogisticRegression(on_invalid="raise", **settings).fit(bad_X, bad_y)


def degenerate():
    rng = np.random.default_rng(0)
    X, y = logistic_data(50, [1.0, -1.0])
    yield pytest.param(X, np.zeros(50), id="one class")
    yield pytest.param(np.ones((50, 2)), y, id="constant features")
    yield pytest.param(X, (X[:, 0] > 0).astype(int), id="separable")
    yield pytest.param(np.zeros((50, 2)), y, id="all zero")
    yield pytest.param(X[:0], y[:0], id="no record")
    yield pytest.param(X[:1], y[:1], id="one record")
    yield pytest.param(np.column_stack([X[:, 0], X[:, 0]]), y, id="duplicated column")
    yield pytest.param(X * [1e-6, 1e6], y, id="different scales")
    yield pytest.param(rng.normal(size=(50, 2)) * 1e150, y, id="huge")


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize(("X", "y"), list(degenerate()))
def test_degenerate_records_give_finite_private_posteriors_in_silence(X, y, covariance):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "There is no signal|Noise hides")  # of released totals
        for container in (np.asarray, sp.csr_array):
            for sampling_rate, epsilon in ((1.0, 1e-2), (0.3, 10.0)):
                plan = private(epsilon, sampling_rate=sampling_rate, n_steps=5)
                model = BayesianLogisticRegression(privacy=plan, max_norm=1.0, covariance=covariance)
                model.fit(container(X), y)
                assert np.isfinite(model.last_posterior_.mean).all()
                assert np.isfinite(model.last_posterior_.std).all()
                assert np.isfinite(model.predict_proba(np.ones((1, 2)))).all()


@pytest.mark.parametrize(
    ("X", "y"), [case for case in degenerate() if case.id not in ("one class", "no record", "one record")]
)
def test_degenerate_records_give_finite_plain_posteriors(X, y):
    model = BayesianLogisticRegression().fit(X, y)
    assert np.isfinite(model.last_posterior_.mean).all()
    assert (model.last_posterior_.std > 0.0).all()


def test_one_class_needs_declared_classes_in_a_plain_fit():
    X = np.ones((5, 2))
    with pytest.raises(ValueError, match="one class only"):
        BayesianLogisticRegression().fit(X, np.zeros(5))
    assert (BayesianLogisticRegression(classes=[0, 1]).fit(X, np.zeros(5)).predict(X) == 0).all()
    with pytest.raises(ValueError, match="not in `classes`"):
        BayesianLogisticRegression(classes=[0, 1]).fit(X, [0, 1, 2, 0, 1])


@pytest.mark.parametrize(
    "setting",
    [
        {"max_norm": 0.0}, {"max_norm": np.inf}, {"prior": (1.0,)}, {"prior": -1.0}, {"prior": (1.0, 0.0)},
        {"covariance": "block"}, {"statistics": "raw"}, {"covariance": "diagonal", "statistics": "paper"},
        {"classes": [1]}, {"classes": [1, 1]}, {"classes": [0, np.nan]}, {"dtype": np.int64}, {"schedule": 0.5},
        {"on_invalid": "ignore"}, {"prior": "gamma"},
    ],
    ids=str,
)  # fmt: skip
def test_impossible_settings_are_refused(setting):
    X, y = logistic_data(10, [1.0])
    model = BayesianLogisticRegression(**setting)
    with pytest.raises(ValueError, match=f"`?{list(setting)[-1]}[`=]"):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_curvatures_of_a_private_fit_are_not_released():
    X, y = logistic_data(50, [1.0])
    model = BayesianLogisticRegression(privacy=private(), max_norm=1.0).fit(X, y)
    with pytest.raises(ValueError, match="without noise"):
        model.laplace_posterior(X, y)


def test_the_report_names_what_was_declared():
    X, y = logistic_data(50, [1.0])
    report = str(BayesianLogisticRegression(privacy=private(), max_norm=2.5).fit(X, y).privacy_)
    assert "max_norm = 2.5" in report
    assert "classes of y: 0 and 1" in report
    assert "noisy scores, information and squares of scores" in report


# -- what a review found ------------------------------------------------------------------------------------------


def test_what_y_may_be_depends_on_its_container_alone():
    X = np.eye(3)
    model = BayesianLogisticRegression(privacy=private(), max_norm=1.0)
    for y in ([0, 1, 0], [[0], [1], [0]], [[0], [1, 2], [0]], sp.csr_array(np.ones((3, 1)))):
        with pytest.raises(TypeError, match="private fit needs y"):
            model.fit(X, y)
    for y in (np.array([[0], [1], [0]]), pd.DataFrame({"y": [0, 1, 0]})):
        with pytest.warns(DataConversionWarning, match="column-vector") as caught:
            model.fit(X, y)
        assert caught[0].filename == __file__
        with pytest.warns(DataConversionWarning, match="column-vector"):
            model.fit(X[:0], y[:0])
    with pytest.raises(TypeError, match="`classes` are strings, but y has dtype float64"):
        BayesianLogisticRegression(privacy=private(), max_norm=1.0, classes=["no", "yes"]).fit(X, np.ones(3))


def test_alpha_is_not_learnt_from_noise():
    """On pure noise α stays near its prior's mean; the floor of the view once drove it to hundreds."""
    model = BayesianLogisticRegression(privacy=private(0.5), max_norm=1.0, covariance="diagonal")
    model.fit(np.zeros((100, 800)), np.zeros(100))
    assert 0.3 < model.alpha_ < 3.0
