"""Effects of persons: scores against numbers made otherwise, fits against a maximum, privacy of persons, and what users see."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import expit, log_expit, logsumexp
from scipy.stats import nbinom
from sklearn.base import clone

import vips
from vips import (
    MixedLogisticRegression,
    MixedNegativeBinomialRegression,
    PrivacyBudget,
    PrivacyPlan,
    PrivacyWarning,
    Records,
)
from vips.core import engine
from vips.core.execution.partitions import MOST_ROWS
from vips.core.phases import phases_of
from vips.data import InMemoryData, Runs, regroup
from vips.data._grouped import with_numbers_of_persons
from vips.models._coordinates import Zooms
from vips.models.regression.mixed import contract, kernels
from vips.models.regression.mixed.posterior import Frame, MixedPosterior, factor_of
from vips.preprocessing import TableEncoder, make_private_pipeline
from vips.reference import gibbs_mixed_logistic

BUDGET = PrivacyBudget(epsilon=4.0, delta=1e-6)
FULL = PrivacyPlan(noise_multiplier=5.0, sampling="full", n_steps=20, clip_norm=1.5)
_GRID = np.linspace(-7.0, 7.0, 141)


def visits(n, seed=0, intercept=-1.0, deviation=1.0):
    """Columns, outcomes and persons; coefficients (1, 0.5)."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(n), rng.integers(1, 9, n))
    X = np.column_stack([rng.uniform(-1.0, 1.0, n)[person], rng.uniform(-1.0, 1.0, len(person))])
    predictor = intercept + X @ [1.0, 0.5] + deviation * rng.normal(size=n)[person]
    return X, (rng.random(len(person)) < expit(predictor)).astype(int), person


def log_likelihood_of(theta, x, u, y, dispersion, exposure=1.0):
    """Log marginal likelihood of one person, by a fine grid: nothing of the package."""
    d, q = x.shape[1], u.shape[1]
    grid = _GRID[:: min(q, 2)]
    factor, places = np.zeros((q, q)), np.stack([g.ravel() for g in np.meshgrid(*[grid] * q)], axis=1)
    rows, columns = np.tril_indices(q)
    factor[rows, columns] = np.where(rows == columns, np.exp(theta[d:]), theta[d:])
    psi = (x @ theta[:d])[None] + places @ factor.T @ u.T
    if dispersion is None:
        log_y = log_expit(np.where(y == 1, psi, -psi)).sum(axis=1)
    else:
        log_y = nbinom.logpmf(y, dispersion, dispersion / (dispersion + exposure * np.exp(psi))).sum(axis=1)
    return logsumexp(log_y - 0.5 * np.square(places).sum(axis=1)) + q * np.log((grid[1] - grid[0]) / np.sqrt(2 * np.pi))


def prepared(model, d, plan=None):
    model.n_features_in_ = d
    model.use_plan(plan or PrivacyPlan.non_private(n_steps=5, sampling_rate=1.0))
    return model


def at(theta, d, columns):
    frame = Frame(Zooms.beginning(np.zeros(d), np.ones(d), d), 1.0, np.array(columns))
    return MixedPosterior(np.asarray(theta, float), np.eye(len(theta)), frame)


@pytest.mark.parametrize("effects", [("intercept",), ("intercept", 1), (0,)])
@pytest.mark.parametrize(("dispersion", "exposed"), [(None, False), (2.0, False), (2.0, True)])
@pytest.mark.representatives("None-False-effects0", "None-False-effects1", "2.0-False-effects2", "2.0-True-effects1")
def test_scores_and_information_are_derivatives(effects, dispersion, exposed):
    rng = np.random.default_rng(1)
    model = (
        MixedLogisticRegression(random_effects=effects)
        if dispersion is None
        else MixedNegativeBinomialRegression(random_effects=effects, dispersion=dispersion)
    )
    prepared(model, 2)
    q = len(effects)
    columns = [-1 if name == "intercept" else name for name in effects]
    theta = np.concatenate([[0.7, -0.4, 0.3], rng.normal(0.0, 0.3, q * (q + 1) // 2)])
    posterior, lengths = at(theta, 2, columns), (6, 1, 3)
    X = rng.uniform(-0.6, 0.6, (sum(lengths), 2))
    y = rng.integers(0, 2 if dispersion is None else 7, sum(lengths)).astype(float)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    exposure = rng.uniform(0.3, 3.0, len(y)) if exposed else np.ones(len(y))
    labels = np.column_stack([y, exposure]) if exposed else y
    arrays = model.expected_statistics(Runs(Records(X, labels), starts), posterior).arrays
    x, u = posterior.frame.design(X)
    for i in range(len(lengths)):
        rows = slice(starts[i], starts[i + 1])

        def log_likelihood(values, rows=rows):
            return log_likelihood_of(values, x[rows], u[rows], y[rows], dispersion, exposure[rows])

        h, units = 1e-3, np.eye(len(theta)) * 1e-3
        gradient = [(log_likelihood(theta + e) - log_likelihood(theta - e)) / (2 * h) for e in units]
        np.testing.assert_allclose(arrays["score"][i], gradient, atol=2e-3)
        hessian = np.zeros((len(theta), len(theta)))
        for j, e in enumerate(units):
            for k, f in enumerate(units[: j + 1]):
                hessian[j, k] = hessian[k, j] = sum(
                    sign * other * log_likelihood(theta + sign * e + other * f) for sign in (1, -1) for other in (1, -1)
                )
        np.testing.assert_allclose(arrays["information"][i], -hessian / (4 * h * h), atol=5e-3)


def test_scores_of_counts_that_are_nearly_poisson_ones():
    model, posterior = prepared(MixedNegativeBinomialRegression(dispersion=1e4), 1), at([0.5, 0.0, 0.7], 1, [-1])
    X, y = np.array([[0.5], [-0.3], [0.1]]), np.array([14.0, 9.0, 11.0])
    score = model.expected_statistics(Runs(Records(X, y), np.array([0, 3])), posterior).arrays["score"][0]
    x, u = posterior.frame.design(X)
    up, down = (
        [log_likelihood_of(posterior.parameters + h, x, u, y, 1e4) for h in sign * 1e-4 * np.eye(3)] for sign in (1, -1)
    )
    np.testing.assert_allclose(score, (np.array(up) - down) / 2e-4, rtol=1e-3)


@pytest.mark.parametrize(("mean", "dispersion"), [(3.0, 0.3), (40.0, 2.0), (1200.0, 1e5)])
def test_drawn_counts_have_their_distribution(mean, dispersion):
    shares, psi = np.linspace(0.013, 0.987, 15), np.log(mean / dispersion)
    counts = [kernels._count_at(share, psi, dispersion, 5000.0) for share in shares]
    np.testing.assert_array_equal(counts, nbinom.ppf(shares, dispersion, dispersion / (dispersion + mean)))


def distance_from_the_most_probable(model, X, y, person, exposure=None):
    """In standard deviations, from the parameters at which the log posterior is largest."""
    posterior = model.last_posterior_
    x, u = posterior.frame.design(X)
    prior, exposure = model._prior_precision(posterior.frame), np.ones(len(y)) if exposure is None else exposure
    rows = np.split(np.arange(len(y)), np.flatnonzero(np.diff(person)) + 1)

    def loss(theta):
        logs = (log_likelihood_of(theta, x[r], u[r], y[r], vars(model).get("dispersion"), exposure[r]) for r in rows)
        return 0.5 * theta @ prior @ theta - sum(logs)

    best, factor = posterior.parameters, np.linalg.cholesky(posterior.parameters_cov)
    for _ in range(2):  # Newton's steps
        steps = 0.05 * factor.T
        slopes = np.array([loss(best + step) - loss(best - step) for step in steps]) / 0.1
        best = best - factor @ slopes
    return np.abs((posterior.parameters - best) / np.sqrt(np.diagonal(posterior.parameters_cov))).max()


def test_an_ordinary_fit_is_the_most_probable():
    X, y, person = visits(200)
    model = MixedLogisticRegression().fit(X, y, groups=person)
    assert distance_from_the_most_probable(model, X, y, person) < 0.02


@pytest.mark.slow
def test_an_ordinary_fit_is_near_the_exact_posterior():
    X, y, person = visits(800, seed=3)
    model = MixedLogisticRegression().fit(X, y, groups=person)
    draws = gibbs_mixed_logistic(np.column_stack([X, np.ones(len(X))]), y, person, n_samples=1500, random_state=0)
    posterior = model.posterior_
    distance = (posterior.coefficients.mean - draws.coef.mean(axis=0)) / draws.coef.std(axis=0)
    assert np.abs(distance).max() < 0.2  # of which the chain's own error is about 0.05
    np.testing.assert_allclose(posterior.coefficients.std, draws.coef.std(axis=0), rtol=0.12)
    assert abs(posterior.effects.mean[0, 0] - draws.effects_cov.mean()) < 0.4 * draws.effects_cov.std()


def test_rows_may_be_in_any_order_and_ids_of_any_kind():
    X, y, person = visits(200)
    order = np.random.default_rng(1).permutation(len(y))
    fits = [
        MixedLogisticRegression().fit(X, y, groups=person),
        MixedLogisticRegression().fit(X[order], y[order], groups=[f"p{i}" for i in person[order]]),
        MixedLogisticRegression().fit(sp.csr_array(X), y, groups=pd.Series(person, name="patient")),
        MixedLogisticRegression(classes=["no", "yes"]).fit(X, np.where(y, "yes", "no"), groups=person),
    ]
    for fit in fits[1:]:
        np.testing.assert_allclose(fit.coef_, fits[0].coef_, rtol=1e-6)
        np.testing.assert_allclose(fit.effects_cov_, fits[0].effects_cov_, rtol=1e-5)


def test_the_columns_units_do_not_matter():
    X, y, person = visits(300)
    fit = MixedLogisticRegression(random_effects=("intercept", 1)).fit(X, y, groups=person)
    other = MixedLogisticRegression(random_effects=("intercept", 1), prior=1e-9).fit(
        X * [1.0, 100.0] + [0.0, 500.0], y, groups=person
    )
    np.testing.assert_allclose(other.coef_, fit.coef_ / [1.0, 100.0], rtol=0.02)
    moved = np.array([[1.0, -5.0], [0.0, 0.01]])
    np.testing.assert_allclose(other.effects_cov_, moved @ fit.effects_cov_ @ moved.T, rtol=0.1)


# -- privacy ----------------------------------------------------------------------------------------------------------


def sums(model, plan, records, persons, phase=-1, posterior=None):
    """The clipped sum of a phase, divided by scales, as one vector of isometric coordinates."""
    phase = phases_of(model, plan.n_steps)[phase]
    data = InMemoryData(records.X, records.y).grouped(persons)
    total = engine.clipped_sum(model, phase, data, posterior or model._first_posterior(), plan, plan.randomness(0), 1)
    parts = []
    for name, block in phase.blocks.items():
        value = total[name] / block.scale
        if block.symmetric:
            upper = np.triu_indices(len(value))
            value = value[upper] * np.where(upper[0] == upper[1], 1.0, np.sqrt(2.0))
        parts.append(np.ravel(value))
    return np.concatenate(parts)


def strange_persons(rng):
    """Rows of one person each: many rows, extreme and defective ones, surprising labels."""
    many = np.tile([[0.6, -0.6]], (100_000, 1))
    return {
        "many rows": Records(many, np.ones(100_000)),
        "many rows, both labels": Records(many, np.resize([0.0, 1.0], 100_000)),
        "long rows": Records(np.full((3, 2), 1e9), np.array([1.0, 0.0, 1.0])),
        "overflow": Records(np.full((3, 2), 1.7e308), np.array([1.0, 0.0, 1.0])),
        "not finite": Records(np.array([[np.nan, 1.0], [np.inf, 1.0], [0.1, 0.2]]), np.array([1.0, 1.0, 0.0])),
        "labels": Records(rng.uniform(-1, 1, (4, 2)), np.array([np.nan, 0.5, 77.0, -1.0])),
        "surprising": Records(rng.uniform(-1, 1, (30, 2)), np.ones(30)),
        "tiny": Records(np.full((2, 2), 1e-310), np.array([1.0, 0.0])),
    }


THETAS = {
    "start": None,
    "surprised": [0.5, 0.2, -12.0, 0.5],
    "wide": [4.0, -4.0, 0.0, 2.5],
    "narrow": [0.0, 0.0, -2.0, -5.0],
}


@pytest.mark.parametrize("where", THETAS)
@pytest.mark.parametrize("phase", [0, -1])
@pytest.mark.parametrize("labels", ["classes", "counts", "rates"])
def test_one_person_moves_a_sum_by_no_more_than_the_clip_norm(where, phase, labels):
    counts, bounds = labels != "classes", (0.1, 300.0) if labels == "rates" else None
    model = (
        MixedNegativeBinomialRegression(
            privacy=FULL, max_norm=1.0, max_count=50, dispersion=0.3, exposure_bounds=bounds
        )
        if counts
        else MixedLogisticRegression(privacy=FULL, max_norm=1.0)
    )
    model = prepared(model, 2, FULL)
    model.takes_one_label = not bounds
    posterior = None if THETAS[where] is None else at(THETAS[where], 2, [-1])
    X, y, person = visits(30)
    exposures = np.resize([1.0, 300.0, 1e-300, np.nan, 0.0, 1e300], 200_000)

    def labelled(y):
        return np.column_stack([y, exposures[: len(y)]]) if bounds else y.astype(float)

    before = sums(model, FULL, Records(X, labelled(y)), person, phase, posterior)
    for name, rows in strange_persons(np.random.default_rng(0)).items():
        together = Records(np.vstack([X, rows.X]), labelled(np.append(y, 50.0 * rows.y if counts else rows.y)))
        after = sums(model, FULL, together, np.append(person, np.full(len(rows.y), 999)), phase, posterior)
        assert np.isfinite(after).all(), name
        assert np.linalg.norm(after - before) <= FULL.clip_norm * (1.0 + 1e-9), name


def test_clips_of_rows_would_be_noticed(monkeypatch):
    """A broken copy, in which rows are records of their own."""
    monkeypatch.setattr(MixedLogisticRegression, "expected_statistics", _row_by_row)
    with pytest.raises(AssertionError):
        test_one_person_moves_a_sum_by_no_more_than_the_clip_norm("surprised", -1, "classes")


_STATISTICS = MixedLogisticRegression.expected_statistics


def _row_by_row(self, records, posterior):
    of_rows = _STATISTICS(self, records.rows if isinstance(records, Runs) else records, posterior)
    if isinstance(records, Runs):
        of_rows.arrays = {
            name: np.add.reduceat(value, records.starts[:-1], axis=0) for name, value in of_rows.arrays.items()
        }
        of_rows.norms = lambda blocks: np.full(len(records.starts) - 1, 0.1)  # as if every row were clipped
    return of_rows


def test_a_persons_share_is_a_function_of_the_persons_rows_to_the_last_bit():
    model, (X, y, person) = prepared(MixedLogisticRegression(privacy=FULL, max_norm=1.0), 2, FULL), visits(40)
    posterior = at([0.7, -0.4, 0.3, 0.1], 2, [-1])
    starts = np.append(np.flatnonzero(np.diff(person, prepend=-1)), len(y))
    together = model.expected_statistics(Runs(Records(X, y.astype(float)), starts), posterior).arrays
    for i in (0, 7, 39):
        rows = slice(starts[i], starts[i + 1])
        alone = model.expected_statistics(
            Runs(Records(X[rows], y[rows].astype(float)), np.array([0, rows.stop - rows.start])), posterior
        ).arrays
        for name, value in alone.items():
            np.testing.assert_array_equal(value[0], together[name][i])


def test_rows_beyond_the_bound_are_not_read():
    X, y, _ = visits(400)
    most = FULL.with_n_steps(20)
    model = prepared(MixedLogisticRegression(privacy=most, max_norm=1.0), 2, most)
    long, first = Records(X[:1500], y[:1500].astype(float)), Records(X[:MOST_ROWS], y[:MOST_ROWS].astype(float))
    np.testing.assert_array_equal(
        sums(model, most, long, np.zeros(1500, int)), sums(model, most, first, np.zeros(MOST_ROWS, int))
    )


@pytest.mark.parametrize("kind", ["numbers", "zeros and ones"])
def test_clipped_scores_have_no_expectation(kind, monkeypatch):
    """Under the model, whatever the clip cuts; without what is taken off, rare outcomes would be cut most. Persons whose rows
    are equal have draws of their own."""
    rng, n = np.random.default_rng(1), 20_000
    X = (
        rng.uniform(-0.7, 0.7, (5 * n, 2))
        if kind == "numbers"
        else 0.7 * np.repeat(rng.integers(0, 2, (n, 2)), 5, axis=0)
    )
    posterior = at([0.5, 0.2, -7.0, 0.3], 2, [-1])
    x, u = posterior.frame.design(X)
    person = np.repeat(np.arange(n), 5)
    psi = x @ posterior.parameters[:3] + u[:, 0] * posterior.factor[0, 0] * rng.normal(size=n)[person]
    y = (rng.random(5 * n) < expit(psi)).astype(float)
    words = contract.words_of_ids(person, 5 * n)
    records, of_nobody = (
        Runs(Records(X, labels), np.arange(0, 5 * n + 1, 5)) for labels in (np.column_stack([y, words]), y)
    )

    def largest_score(records):
        """In standard errors."""
        model = prepared(MixedLogisticRegression(privacy=FULL, max_norm=1.0), 2, FULL)
        model._has_words = records is not of_nobody
        scores = model.expected_statistics(records, posterior).arrays["score"]
        return np.max(np.abs(scores.mean(axis=0)) / (scores.std(axis=0) / np.sqrt(n)))

    assert largest_score(records) < 3.5
    assert kind == "numbers" or largest_score(of_nobody) > 5.0
    monkeypatch.setattr(contract, "_N_SIMULATED", 0)
    assert largest_score(records) > 5.0


def test_numbers_of_ids_are_those_of_the_id_alone():
    words = contract.words_of_ids(["a", "b", None, "a", "c"], 5)
    assert words[0] == words[3]
    assert words[2] == 0.0
    assert len(set(words)) == 4
    assert contract.words_of_ids(["c", "a"], 2).tolist() == [words[4], words[0]]
    assert contract.words_of_ids([7, "7", 7.0], 3).tolist() == [contract.words_of_ids([7], 1)[0]] * 3


# -- what users see ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    X, y, person = visits(2500, seed=5)
    table = pd.DataFrame(X, columns=["age", "dose"])
    model = MixedLogisticRegression(privacy=BUDGET, max_norm=1.5)
    return model.fit(table, pd.Series(y, name="fall"), groups=pd.Series(person, name="patient"))


def test_a_private_fit_finds_coefficients_and_deviation(fitted):
    distance = (fitted.posterior_.coefficients.mean - [1.0, 0.5, -1.0]) / fitted.posterior_.coefficients.std
    assert np.abs(distance).max() < 5.0
    assert 0.7 < np.sqrt(fitted.effects_cov_[0, 0]) < 1.4
    assert fitted.privacy_.unit == "all rows of one patient"
    assert "rows of one and the same person" in str(fitted.privacy_)
    assert "counts about as much" not in str(fitted.privacy_)


def test_tables(fitted):
    table = fitted.summary()
    assert list(table.index) == ["age", "dose", "intercept"]
    assert table.index.name == "log odds of fall = 1"
    assert (table["averaged"].abs() < table["mean"].abs()).all()
    effects = fitted.summary_of_effects()
    assert list(effects.index) == ["deviation of intercept", "intraclass correlation"]
    deviation, share = effects["median"]
    assert share == pytest.approx(deviation**2 / (deviation**2 + np.pi**2 / 3.0), rel=1e-6)
    assert (effects["lower"] < effects["median"]).all()


def test_averaged_coefficients_are_those_of_a_regression_without_effects():
    X, y, person = visits(6000, deviation=2.0)
    mixed = MixedLogisticRegression().fit(X, y, groups=person)
    plain = vips.BayesianLogisticRegression().fit(X, y)
    averaged = mixed.summary()["averaged"].to_numpy()
    np.testing.assert_allclose(averaged, [*plain.coef_[0], plain.intercept_[0]], atol=0.08)
    assert mixed.coef_[0] > 1.2 * plain.coef_[0, 0]
    new = visits(3000, seed=9, deviation=2.0)
    predicted = mixed.predict_proba(new[0])[:, 1]
    assert predicted.mean() == pytest.approx(new[1].mean(), abs=0.02)


def test_counts():
    rng, n = np.random.default_rng(0), 2000
    person = np.repeat(np.arange(n), rng.integers(1, 6, n))
    X = rng.uniform(-1.0, 1.0, (len(person), 1))
    mean = np.exp(0.5 + X[:, 0] + 0.6 * rng.normal(size=n)[person])
    y = rng.poisson(rng.gamma(2.0, mean / 2.0))
    for privacy in (None, BUDGET):
        model = MixedNegativeBinomialRegression(dispersion=2.0, max_count=60, privacy=privacy, max_norm=1.0)
        model.fit(X, y, groups=person)
        assert model.coef_[0] == pytest.approx(1.0, abs=0.25)
        assert model.intercept_ == pytest.approx(0.5, abs=0.2)
        assert np.sqrt(model.effects_cov_[0, 0]) == pytest.approx(0.6, abs=0.15)
        assert model.predict(X).mean() == pytest.approx(y.mean(), rel=0.12)
    assert model.summary_of_effects()["median"]["intraclass correlation"] < 1.0


def visits_of_different_lengths(n, seed=0):
    """Columns, counts, persons and exposures; coefficients (0.5, -0.4), intercept 0.3, deviation 0.6."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(n), rng.integers(1, 9, n))
    X, exposure = rng.uniform(-1.0, 1.0, (len(person), 2)), np.exp(rng.uniform(np.log(0.2), np.log(4.0), len(person)))
    mean = exposure * np.exp(0.3 + X @ [0.5, -0.4] + 0.6 * rng.normal(size=n)[person])
    return X, rng.poisson(mean * rng.gamma(2.0, 0.5, len(mean))), person, exposure


@pytest.mark.slow
def test_rates_are_the_most_probable_and_the_unit_of_exposures_moves_the_intercept_alone():
    X, y, person, exposure = visits_of_different_lengths(300)
    days, weeks = (
        MixedNegativeBinomialRegression(dispersion=2.0, prior=1e-9).fit(X, y, exposure=e, groups=person)
        for e in (exposure, pd.Series(exposure * 2.0))
    )
    np.testing.assert_allclose(weeks.coef_, days.coef_, atol=1e-4)
    np.testing.assert_allclose(weeks.effects_cov_, days.effects_cov_, rtol=1e-3)
    assert weeks.intercept_ == pytest.approx(days.intercept_ - np.log(2.0), abs=1e-3)
    np.testing.assert_allclose(weeks.predict(X[:5], 2.0), days.predict(X[:5]), rtol=1e-3)
    assert distance_from_the_most_probable(days, X, y, person, exposure) < 0.02


@pytest.mark.slow
def test_private_rates_with_plans_of_every_kind(tmp_path):
    X, y, person, exposure = visits_of_different_lengths(1_200)
    settings = {"dispersion": 2.0, "max_count": 60, "max_norm": 1.5, "exposure_bounds": (0.2, 4.0)}
    for privacy in (
        PrivacyBudget(epsilon=10.0, delta=1e-6),
        PrivacyPlan(noise_multiplier=0.5, sampling_rate=0.5, n_steps=20),
        PrivacyPlan(noise_multiplier=0.5, sampling="full", n_steps=10, noise="discrete"),
    ):
        model = MixedNegativeBinomialRegression(**settings, privacy=privacy)
        model.fit(X, y, exposure=exposure, groups=person)
        assert np.abs(model.coef_ - [0.5, -0.4]).max() < 0.25
        assert model.intercept_ == pytest.approx(0.3, abs=0.3)
    assert "exposures between (0.2, 4.0)" in str(model.privacy_)
    model.save(tmp_path / "rates")
    np.testing.assert_array_equal(vips.load(tmp_path / "rates").predict(X[:3], 2.0), 2.0 * model.predict(X[:3]))
    table = pd.DataFrame(X, columns=["age", "dose"])
    pipeline = make_private_pipeline(
        TableEncoder({"age": (-1, 1), "dose": (-1, 1)}),
        MixedNegativeBinomialRegression(dispersion=2.0, max_count=60, exposure_bounds=(0.2, 4.0)),
        privacy=PrivacyBudget(epsilon=10.0, delta=1e-6),
    ).fit(table, y, exposure=exposure, groups=person)
    assert pipeline.summary()["mean"]["age"] == pytest.approx(0.5, abs=0.2)
    source = regroup(X, y, by=person, to=tmp_path / "persons")
    for arguments, groups, says in (
        ((source,), None, "no place for it"),
        ((X, y), person, "`exposure_bounds` are required"),
    ):
        bounds = settings if says == "no place for it" else settings | {"exposure_bounds": None}
        with pytest.raises((TypeError, ValueError), match=says):
            MixedNegativeBinomialRegression(**bounds, privacy=BUDGET).fit(*arguments, exposure=exposure, groups=groups)
    with pytest.raises(ValueError, match="pass fit"):
        MixedNegativeBinomialRegression(**settings, privacy=BUDGET).fit(X, y, groups=person)


@pytest.mark.parametrize(
    "model",
    [
        MixedLogisticRegression(max_norm=1.0, random_effects=("intercept", 1)),
        MixedNegativeBinomialRegression(max_norm=1.0, max_count=20),
        make_private_pipeline(
            TableEncoder({"age": (20, 90), "sex": ["f", "m"]}),
            MixedLogisticRegression(random_effects=("intercept", "age")),
            privacy=PrivacyBudget(8.0, 1e-6),
        ),
    ],
    ids=["slopes", "counts", "pipeline"],
)
@pytest.mark.slow
def test_plans_and_rehearsals_draw_persons(model):
    settings = {} if hasattr(model, "steps") else {"n_features": 2}
    advice = vips.plan_for(model, n_records=20_000, privacy=PrivacyBudget(8.0, 1e-6), **settings)
    assert np.isfinite(advice.widths["width"]).all()
    private = model if hasattr(model, "steps") else clone(model).set_params(privacy=PrivacyBudget(8.0, 1e-6))
    rehearsal = vips.rehearse(private, n_records=3_000, random_state=0, **settings)
    assert "all rows of one" in rehearsal.report.unit
    assert rehearsal.fitted.summary_of_effects()["median"].iloc[0] > 0.5


@pytest.mark.slow
def test_a_pipeline_of_a_table():
    X, y, person = visits(2_500)
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": 55 + 35 * X[:, 0], "dose": 2.5 + 2.5 * X[:, 1], "sex": rng.choice(["f", "m"], len(y))})
    table.loc[::50, "dose"] = np.nan
    pipeline = make_private_pipeline(
        TableEncoder({"age": (20, 90), "sex": ["f", "m"], "dose": (0, 5)}),
        MixedLogisticRegression(random_effects=("intercept", "dose")),
        privacy=PrivacyBudget(16.0, 1e-6),
    ).fit(table, y, groups=person)
    assert not pipeline[-1].why_no_intervals()  # which noise between both sexes would hide
    summary = pipeline.summary()
    assert summary["mean"]["age"] == pytest.approx(1.0 / 35.0, rel=0.3)
    assert list(pipeline.summary_of_effects().index)[:2] == ["deviation of intercept", "deviation of dose"]
    for effects, words in (("sex", "no column of numbers"), ("height", "no column of numbers")):
        wrong = make_private_pipeline(
            TableEncoder({"age": (20, 90), "sex": ["f", "m"], "dose": (0, 5)}),
            MixedLogisticRegression(random_effects=(effects,)),
            privacy=BUDGET,
        )
        with pytest.raises(ValueError, match=words):
            wrong.fit(table[:100], y[:100], groups=person[:100])


@pytest.mark.parametrize(
    ("columns", "effect"),
    [
        ({"age": "number"}, "dose"),
        ({"age": "number", "sex": "category"}, "sex"),
        (None, "sex"),
        ({"age": "number"}, "height"),
        ({"age": "number"}, ["age"]),
    ],
)
def test_nothing_is_charged_for_an_effect_that_is_no_column_of_numbers(tmp_path, columns, effect):
    X, y, person = visits(100)
    table = pd.DataFrame(X, columns=["age", "dose"]).assign(sex="f")
    ledger = vips.PrivacyLedger(tmp_path / "ledger", dataset="visits", epsilon=9.0, delta=1e-4)
    model = MixedLogisticRegression(random_effects=(effect,))
    with pytest.raises(ValueError, match=r"no column of numbers|must list one to 3"):
        make_private_pipeline(TableEncoder(columns), model, privacy=BUDGET).fit(table, y, groups=person, ledger=ledger)
    assert not ledger.runs()


@pytest.mark.parametrize("columns", [{0: (-1, 1), 1: (-1, 1)}, None])
def test_effects_of_columns_whose_names_are_numbers(columns):
    X, y, person = visits(300)
    pipeline = make_private_pipeline(
        TableEncoder(columns), MixedLogisticRegression(random_effects=(1,)), privacy=BUDGET
    )
    pipeline.fit(pd.DataFrame(X), y, groups=person)
    assert pipeline[-1].posterior_.frame.columns.tolist() == [1]


def test_other_plans_and_sources(tmp_path):
    X, y, person = visits(800)
    for plan in (
        PrivacyPlan(noise_multiplier=0.5, sampling_rate=0.3, n_steps=20),
        PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=20, noise="discrete"),
        PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=20, max_rows_per_group=3),
        PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=3),  # too few to learn coordinates
    ):
        model = MixedLogisticRegression(privacy=plan, max_norm=1.5).fit(X, y, groups=person)
        assert np.abs(model.coef_ - [1.0, 0.5]).max() < 0.8
    source = regroup(X, y, by=person, to=tmp_path / "persons")
    number = next(with_numbers_of_persons(source).chunks(10**6)).y[:, 1]
    assert len(np.unique(number)) == 800 == 1 + np.count_nonzero(np.diff(number))
    assert 0.0 <= number.min() < number.max() <= 1.0
    assert with_numbers_of_persons(InMemoryData(X, y)) is None
    model = MixedLogisticRegression(privacy=FULL, max_norm=1.5).fit(source)
    assert np.abs(model.coef_ - [1.0, 0.5]).max() < 0.8
    of_source = MixedLogisticRegression().fit(source)
    np.testing.assert_allclose(of_source.coef_, MixedLogisticRegression().fit(X, y, groups=person).coef_, rtol=1e-6)


def test_noise_that_hides_is_said():
    X, y, person = visits(60)
    model = MixedLogisticRegression(privacy=PrivacyBudget(0.1, 1e-6), max_norm=1.5).fit(X, y, groups=person)
    with pytest.warns(PrivacyWarning, match="A larger ε or more persons"):
        table = model.summary()
    assert table["lower"].isna().all()
    assert np.isfinite(table["mean"]).all()


@pytest.mark.slow
def test_a_category_that_nobody_has_is_named_and_without_it_there_are_intervals():
    X, y, person = visits(2_000)
    table = pd.DataFrame({"age": X[:, 0], "ward": np.where(X[:, 1] > 0.0, "A", "B")})
    for wards, hidden in ((["A", "B", "C"], "about ward_C. A larger"), (["A", "B"], "")):
        encoder = TableEncoder({"age": (-1, 1), "ward": wards})
        pipeline = make_private_pipeline(encoder, MixedLogisticRegression(), privacy=PrivacyBudget(16.0, 1e-6))
        why = pipeline.fit(table, y, groups=person)[-1].why_no_intervals()
        assert hidden in why
        assert bool(why) == bool(hidden)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"random_effects": "age"}, "must list one to 3"),
        ({"random_effects": ()}, "must list one to 3"),
        ({"random_effects": 0}, "must list one to 3"),
        ({"random_effects": ("intercept", "height")}, "no column of X: age, dose"),
        ({"random_effects": ("age", 0)}, "twice"),
        ({"random_effects": (7,)}, "no column of X"),
        ({"prior": -1.0}, "precision between"),
        ({"classes": [0, 1, 2]}, "one class against the others"),
        ({"privacy": BUDGET.plan(max_weight=2)}, "no weights"),
        ({"privacy": BUDGET, "max_norm": None}, "max_norm"),
    ],
)
def test_errors_say_what_to_write(arguments, words):
    X, y, person = visits(20)
    table = pd.DataFrame(X, columns=["age", "dose"])
    with pytest.raises(ValueError, match=words):
        MixedLogisticRegression(**{"max_norm": 1.0} | arguments).fit(table, y, groups=person)


def test_ordinary_fits_refuse_what_are_no_counts_and_effects_of_a_constant():
    X, _, person = visits(20)
    for y in (np.full(len(X), -1), np.full(len(X), 0.5)):
        with pytest.raises(ValueError, match="whole numbers from 0"):
            MixedNegativeBinomialRegression().fit(X, y, groups=person)
    X[:, 1] = 1.0
    for table in (X, sp.csr_array(X)):
        for effects in ((1,), ("intercept", 1)):
            with pytest.raises(ValueError, match="one value in all rows"):
                MixedLogisticRegression(random_effects=effects).fit(table, np.arange(len(X)) % 2, groups=person)


def test_many_columns_are_refused():
    with pytest.raises(ValueError, match="takes 1 to 60"):
        MixedLogisticRegression().fit(np.zeros((10, 61)), np.resize([0, 1], 10), groups=range(10))


@pytest.mark.parametrize("privacy", [None, FULL])
def test_a_fit_without_ids_warns_that_each_row_is_a_person(privacy):
    X, y, person = visits(20)
    model = MixedLogisticRegression(privacy=privacy, max_norm=1.0, classes=[0, 1])
    with pytest.warns(
        PrivacyWarning, match=r"^Each row counts as a person .* fit\(X, y, groups=ids\), or fit BayesianLog"
    ):
        model.fit(X, y)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Each row")
        model.fit(X, y, groups=person)


def test_factors():
    factor = factor_of(np.array([np.log(2.0), 0.5, np.log(3.0)]), 2)
    np.testing.assert_allclose(factor, [[2.0, 0.0], [0.5, 3.0]])


def test_a_long_tail_is_warned_of_and_columns_of_persons_zeros_and_ones_and_times_are_not():
    rng = np.random.default_rng(3)
    person = np.repeat(np.arange(1_500), rng.integers(1, 7, 1_500))
    n, age = len(person), rng.normal(size=1_500)[person]
    columns = {"price": (0, 200), "age": (-9, 9), "ill": (0, 1), "visit": (0, 6), "sex": ["f", "m"]}
    visit = np.concatenate([np.arange(count) for count in np.bincount(person)])
    table = pd.DataFrame({"price": rng.lognormal(1.0, 1.0, n), "age": age, "ill": rng.random(n) < 0.1, "visit": visit})
    table = table.astype(float).assign(sex=np.where(person % 3, "f", "m"))
    y = (rng.random(n) < expit(0.8 * np.log(table["price"]) - 1.0)).astype(int)
    plan = PrivacyPlan(noise_multiplier=0.01, sampling="full", n_steps=12)
    encoder = TableEncoder(columns)
    model = MixedLogisticRegression(
        privacy=plan, max_norm=encoder.max_norm, classes=[0, 1], indicators=encoder.indicators
    )
    X = pd.DataFrame(encoder.fit_transform(table), columns=encoder.get_feature_names_out())
    with pytest.warns(PrivacyWarning, match="^A part of the variance of price is in few rows"):
        model.fit(X, y, groups=person).summary()
    assert not contract.long_tailed(model.fit(X.assign(price=X["age"]), y, groups=person)).any()
