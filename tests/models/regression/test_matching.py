"""Matched gradients: closed forms against quadrature and simulation, and how often intervals hold the truth."""

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import multivariate_normal
from sklearn.linear_model import LogisticRegression

import vips
from tests.laws.cases import BetaBernoulli
from tests.mutants import check_notices
from vips import (
    BayesianBinomialRegression,
    BayesianLogisticRegression,
    PrivacyBudget,
    PrivacyPlan,
    PrivacyWarning,
)
from vips.expfam.gaussian import posterior_probabilities
from vips.models.regression.matching import (
    Prior,
    ReleasedGradients,
    RowLaw,
    best_prior,
    clip_weights,
    matched,
    weighted_law,
)
from vips.preprocessing import TableEncoder, make_private_pipeline

ALPHA = 0.1


def table(n_records, d, rng, n_trials=1):
    """Rows of the unit ball, and labels of coefficients drawn from the prior."""
    X = rng.normal(size=(n_records, d))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    w, b = rng.normal(size=d) / np.sqrt(ALPHA), rng.normal()
    return X, rng.binomial(n_trials, expit(X @ w + b)), w


def unclipped(model):
    model.privacy = replace(model.privacy, clip_norm=model.max_record_norm())
    return model


def coverage(n_records, epsilon, n_fits, seed, sampling_rate=1.0):
    """Coverage of 95 % intervals of both posteriors, for coefficients drawn from the prior."""
    rng, held = np.random.default_rng(seed), []
    plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=1e-5, sampling_rate=sampling_rate, n_steps=20)
    for _ in range(n_fits):
        X, y, w = table(n_records, 4, rng)
        model = unclipped(BayesianLogisticRegression(privacy=plan, max_norm=1.0, prior=ALPHA)).fit(X, y)
        is_inside = []
        for posterior in (model.last_posterior_, model.posterior_):
            lower, upper = posterior.interval(0.95)
            is_inside.append((lower[:4] < w) & (w < upper[:4]))
        held.append(is_inside)
    return np.mean(held, axis=(0, 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_records", "epsilon", "sampling_rate"), [(500, 0.1, 1.0), (500, 1.0, 1.0), (5000, 1.0, 1.0), (5000, 8.0, 0.05)]
)
def test_intervals_hold_the_truth(n_records, epsilon, sampling_rate):
    """Both posteriors are matched: under the learnt precision of the prior, and under a flat one."""
    learnt, flat = coverage(n_records, epsilon, 12, n_records, sampling_rate)
    assert learnt > 0.72  # 0.92 or more, less four standard errors
    assert flat > 0.72


# -- the law of rows ----------------------------------------------------------------------------------------------

LAW = RowLaw(1000.0, np.array([0.3, -0.2, 0.25]), np.diag([0.2, 0.1, 0.0]) + 0.05 * np.outer([1, 1, 0], [1, 1, 0]))
POINT = np.array([2.0, -1.5, -3.0])


def rows_of(law, n, rng):
    root = np.linalg.cholesky(law.cov + 1e-14 * np.eye(3))
    return law.mean + rng.normal(size=(n, 3)) @ root.T


def _moments_are_those_of_rows():
    """F and H by 200 x 200 nodes over both columns, not over ψ alone."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    root = np.linalg.cholesky(LAW.cov[:2, :2])
    z = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2)
    mass = np.outer(weights, weights).ravel() / weights.sum() ** 2
    rows = np.column_stack([LAW.mean[:2] + z @ root.T, np.full(len(z), 0.25)])
    p = expit(rows @ POINT)
    np.testing.assert_allclose(LAW.total(POINT), LAW.count * (rows.T @ (mass * p)), rtol=1e-6)
    expected = LAW.count * (rows.T * (mass * p * (1.0 - p))) @ rows
    np.testing.assert_allclose(LAW.curvature(POINT), expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


def _law_is_read_off_weighted_rows():
    rows = rows_of(LAW, 1_000_000, np.random.default_rng(0))
    psi = np.abs(rows @ POINT)
    precision = LAW.count / len(rows) * (rows.T * (np.tanh(psi / 2) / (2 * psi))) @ rows
    weighted, _ = weighted_law(precision, 0.0, 0.25)
    law = weighted.unweighted(POINT)
    assert law.count == pytest.approx(LAW.count, rel=0.005)
    np.testing.assert_allclose(law.mean, LAW.mean, atol=0.004)
    np.testing.assert_allclose(law.cov, LAW.cov, atol=0.004)


def _coefficients_without_noise_are_the_root():
    """Far points with exact totals: their match is the root, with the inverse Fisher information as covariance."""
    points = POINT + np.random.default_rng(1).normal(size=(6, 3))
    totals = np.array([LAW.total(POINT) - LAW.total(point) for point in points])
    steps = steps_of(points, totals)
    mean, precision = matched(steps, FLAT, points[0], np.zeros(3), 20)
    np.testing.assert_allclose(mean, POINT, atol=1e-4)
    np.testing.assert_allclose(precision, LAW.curvature(POINT), rtol=1e-3, atol=1e-2)


FLAT = Prior(1e-9 * np.eye(3), np.zeros(3))


def steps_of(points, totals, **settings):
    k = len(points)
    given = {"counts": np.ones(k), "weights": np.ones(k), "noise_std": 0.0, "sampling_rate": 1.0, "law": LAW,
             "left": np.zeros((3, 3)), "precision_trace": 50.0}  # fmt: skip
    return ReleasedGradients(points, totals, **(given | settings))


def _covariance_is_that_of_draws(s=0.0, q=1.0, error=0.0, spread=0.1):
    """True coefficients drawn from the prior, and totals of their law: with noise, samples, or an error of the curvature."""
    rng, k, off = np.random.default_rng(2), 5, []
    prior = Prior(np.diag([4.0, 4.0, 1.0]), np.diag([4.0, 4.0, 1.0]) @ POINT)
    for _ in range(400):
        w = POINT + rng.normal(size=3) / np.sqrt(np.diagonal(prior.precision))
        points = POINT + spread * rng.normal(size=(k, 3))
        curvature = LAW.curvature(w)
        root = np.linalg.cholesky(curvature)
        exact = np.array([LAW.total(w) - LAW.total(point) for point in points]) + root @ rng.normal(size=3)
        exact += np.sqrt((1.0 / q - 1.0) / COUNTS)[:, None] * (rng.normal(size=(k, 3)) @ root.T)
        exact += (w - points) @ (error * rng.normal(size=(3, 3)))
        totals = WEIGHTS[:, None] * exact + s / np.sqrt(COUNTS)[:, None] * rng.normal(size=(k, 3))
        given = {"left": error**2 * np.ones((3, 3)), "precision_trace": np.trace(curvature)}
        steps = steps_of(points, totals, counts=COUNTS, weights=WEIGHTS, noise_std=s, sampling_rate=q, **given)
        mean, precision = matched(steps, prior, POINT, 1.0 / np.diagonal(prior.precision), 20)
        off.append((mean - w) @ np.linalg.cholesky(precision))
    off = np.array(off)
    np.testing.assert_allclose(off.T @ off / len(off), np.eye(3), atol=0.25)


COUNTS, WEIGHTS = np.array([1.0, 2.0, 5.0, 10.0, 10.0]), np.array([2.0, 1.5, 1.0, 1.0, 1.0])


def _weighted_totals_have_the_noise_of_their_average():
    """Totals r_t (F(μ) - F(b_t)) give y = F(μ), with the noise s²/Σ n_t r_t²."""
    points = POINT + np.random.default_rng(6).normal(size=(5, 3))
    totals = WEIGHTS[:, None] * np.array([LAW.total(POINT) - LAW.total(point) for point in points])
    loud, quiet = (steps_of(points, totals, counts=COUNTS, weights=WEIGHTS, noise_std=s) for s in (3.0, 0.0))
    np.testing.assert_allclose(loud.match()[0], LAW.total(POINT))
    varies = (steps.variance_of_match(LAW.curvature(POINT), np.zeros(3)) for steps in (loud, quiet))
    np.testing.assert_allclose(next(varies) - next(varies), 9.0 / 33.5 * np.eye(3), atol=1e-9)


WITH = {"noise": {"s": 60.0, "spread": 0.8}, "samples": {"q": 0.02}, "error": {"error": 10.0}}


def test_moments_are_those_of_rows():
    _moments_are_those_of_rows()


def test_the_law_is_read_off_weighted_rows():
    _law_is_read_off_weighted_rows()


def test_coefficients_without_noise_are_the_root():
    _coefficients_without_noise_are_the_root()


def test_weighted_totals_have_the_noise_of_their_average():
    _weighted_totals_have_the_noise_of_their_average()


@pytest.mark.representatives("noise")
@pytest.mark.parametrize("what", WITH)
def test_the_covariance_is_that_of_draws(what):
    _covariance_is_that_of_draws(**WITH[what])


def without_a_term(name):
    """A mutant: the formula without its second term."""

    def mutant(patch):
        if name == "total":
            slopes = RowLaw.total
            patch.setattr(RowLaw, "total", lambda law, b: law.mean * slopes(law, b)[2] / law.mean[2])
        if name == "third derivative":
            original = RowLaw.curvature
            along = LAW.cov @ POINT
            patch.setattr(RowLaw, "curvature", lambda law, b: original(law, b) + 20.0 * np.outer(along, along))
        if name == "law":
            patch.setattr(RowLaw, "unweighted", lambda law, point: replace(law, count=law.count / 0.18))
        if name in ("noise_std", "left", "counts", "weights", "sampling_rate"):
            original, value = ReleasedGradients.variance_of_match, 0.0 if name in ("noise_std", "left") else 1.0
            patch.setattr(
                ReleasedGradients,
                "variance_of_match",
                lambda steps, *others: original(replace(steps, **{name: 0.0 * getattr(steps, name) + value}), *others),
            )
        if name == "totals are not divided":
            original_match = ReleasedGradients.match
            patch.setattr(
                ReleasedGradients,
                "match",
                lambda steps: original_match(replace(steps, totals=steps.totals * steps.weights[:, None])),
            )

    return mutant


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("total", _moments_are_those_of_rows),
        ("third derivative", _moments_are_those_of_rows),
        ("law", _law_is_read_off_weighted_rows),
        ("total", _coefficients_without_noise_are_the_root),
        ("noise_std", partial(_covariance_is_that_of_draws, **WITH["noise"])),
        pytest.param("left", partial(_covariance_is_that_of_draws, **WITH["error"]), marks=pytest.mark.slow),
        ("totals are not divided", _weighted_totals_have_the_noise_of_their_average),
        ("counts", _weighted_totals_have_the_noise_of_their_average),
        ("weights", _weighted_totals_have_the_noise_of_their_average),
        pytest.param("sampling_rate", partial(_covariance_is_that_of_draws, **WITH["samples"]), marks=pytest.mark.slow),
    ],
)
def test_mutant_is_noticed(name, check, monkeypatch):
    check_notices(check, without_a_term(name), monkeypatch)


def test_noise_in_the_precision_is_shrunk_but_not_the_means():
    rng, s = np.random.default_rng(3), 30.0
    upper = np.triu(rng.normal(size=(3, 3)), 1) / np.sqrt(2.0)
    exact = LAW.count * (LAW.cov + np.outer(LAW.mean, LAW.mean))
    noisy = exact + s * (upper + upper.T + np.diag(rng.normal(size=3)))
    law, left = weighted_law(noisy, s, 0.25)
    assert law.count == pytest.approx(noisy[2, 2] / 0.0625)
    np.testing.assert_allclose(law.mean, 0.25 * noisy[2] / noisy[2, 2])
    assert np.linalg.eigvalsh(law.cov[:2, :2]).min() > 0.0
    assert (left <= s**2).all()
    hidden, _ = weighted_law(noisy, 1e6, 0.25)
    assert abs(hidden.cov[0, 1]) < 1e-3 * hidden.cov[0, 0]
    clear, none_left = weighted_law(exact, 0.0, 0.25)
    np.testing.assert_allclose(clear.cov, LAW.cov, atol=1e-12)
    assert not none_left.any()


def test_the_best_prior_is_the_most_probable_one():
    """Against densities of SciPy."""
    rng = np.random.default_rng(4)
    points = POINT + 0.1 * rng.normal(size=(4, 3))
    totals = np.array([LAW.total(POINT) - LAW.total(point) for point in points]) + 5.0 * rng.normal(size=(4, 3))
    steps = steps_of(points, totals, noise_std=5.0)
    at, curvature = POINT - 0.5, LAW.curvature(POINT - 0.5)
    priors = [Prior(scale * np.eye(3), scale * centre) for scale in (1.0, 50.0) for centre in (POINT, POINT - 1.0)]
    varies = steps.variance_of_match(curvature, (steps.match()[1] - at) ** 2)
    density = [
        multivariate_normal(
            curvature @ (np.linalg.solve(prior.precision, prior.linear) - at),
            varies + curvature @ np.linalg.solve(prior.precision, curvature),
        ).logpdf(steps.match()[0] - LAW.total(at))
        for prior in priors
    ]
    best = int(np.argmax(density))
    assert best_prior(steps, priors, at, 0.0) == best
    gain = max(density) - density[1]
    others = [priors[1], *priors]
    assert best_prior(steps, others, at, gain - 0.1) == best + 1
    assert best_prior(steps, others, at, gain + 0.1) == 0


def test_clip_weights_are_means_over_rows():
    points = np.stack([POINT, 0.0 * POINT])[None]
    weights = clip_weights([LAW], points, POINT[None], lambda psi, length: length * (1.0 + np.abs(psi[:, 0])))
    psi = np.random.default_rng(5).normal(LAW.mean @ POINT, np.sqrt(POINT @ LAW.cov @ POINT), 1_000_000)
    np.testing.assert_allclose(weights, [1.0, 1.0 / np.mean(1.0 / (1.0 + np.abs(psi)))], rtol=0.01)


# -- fits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_steps", [9, 140])
def test_kept_steps_are_those_of_the_fit(n_steps):
    """The points at which the last phase computed its totals, and these noisy totals; averages where there are many."""
    X, y, _ = table(100, 3, np.random.default_rng(2))
    plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.7, n_steps=n_steps)
    for covariance in ("full", "diagonal"):
        model = BayesianLogisticRegression(privacy=plan, max_norm=2.0, prior=1.0, covariance=covariance)
        looked, totals = [], []
        original, update = PrivacyPlan.add_noise, model.to_posterior

        def watch(self, total, *others, original=original, totals=totals):
            noisy = original(self, total, *others)
            totals.append(noisy["linear"] / 0.7)
            return noisy

        def seen(average, noise_std, previous, looked=looked, update=update, units=model):
            if previous is not None:
                looked.append(units._point(previous)[0])
            return update(average, noise_std, previous)

        model.to_posterior = seen
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PrivacyPlan, "add_noise", watch)
            model.fit(X, y)
        kept = model.last_posterior_.kept
        assert kept.points.shape[1] == min(n_steps, 64)
        first, length = max(n_steps // 10, 1) if covariance == "full" else 0, int(kept.counts[0])
        assert kept.counts.sum() == n_steps - first
        for place in np.flatnonzero(kept.counts):
            of_place = slice(first, first + length)
            np.testing.assert_allclose(kept.points[0, place], np.mean(looked[of_place], axis=0), atol=1e-9)
            np.testing.assert_allclose(kept.totals[0, place], np.mean(totals[of_place], axis=0), atol=1e-6)
            first += length


def test_a_fit_with_hardly_any_noise_is_the_ordinary_fit():
    rng = np.random.default_rng(7)
    X = 0.3 * rng.normal(size=(20_000, 3)) @ np.linalg.cholesky(np.eye(3) + 0.5) + 0.1
    y = (rng.random(20_000) < expit(X @ [3.0, -2.0, 1.0] - 1.0)).astype(int)
    plan = PrivacyPlan(noise_multiplier=1e-6, sampling_rate=1.0, n_steps=40)
    model = BayesianLogisticRegression(privacy=replace(plan, clip_norm=100.0), max_norm=4.0).fit(X, y)
    design = np.column_stack([X, np.ones(len(X))])
    root = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(X, y)
    p = root.predict_proba(X)[:, 1]
    std = np.sqrt(np.diagonal(np.linalg.inv((design.T * (p * (1.0 - p))) @ design)))
    expected = np.append(root.coef_[0], root.intercept_)
    np.testing.assert_allclose((model.posterior_.mean - expected) / std, 0.0, atol=0.1)
    np.testing.assert_allclose(model.posterior_.std, std, rtol=0.03)


@pytest.mark.repeated("False")
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_indicators_narrow_intervals_and_are_those_of_the_encoder(fit_intercept):
    rng = np.random.default_rng(8)
    frame = pd.DataFrame(
        {"age": rng.uniform(0, 100, 4000), "ward": rng.choice(list("ABCDE"), 4000), "sex": rng.choice(["f", "m"], 4000)}
    )
    y = (rng.random(4000) < expit(0.03 * (frame["age"] - 50) + 0.8 * (frame["ward"] == "B"))).astype(int)
    frame["payer"] = rng.choice(list("XYZ"), 4000)
    encoder = TableEncoder({"age": (0, 100), "ward": list("ABCDE"), "sex": ["f", "m"], "payer": list("XYZ")})
    X = encoder.fit_transform(frame)
    for first, last, value in encoder.indicators:
        np.testing.assert_allclose(X[:, first:last].sum(axis=1), value)
    plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=20, reproducible_noise=True)
    widths = []
    for indicators in (encoder.indicators, None):
        model = BayesianLogisticRegression(
            privacy=plan, max_norm=1.0, fit_intercept=fit_intercept, indicators=indicators, random_state=0
        ).fit(X, y)
        widths.append(model.summary(features=encoder)["std"].drop("intercept", errors="ignore").mean())
    assert widths[0] < 0.95 * widths[1]
    pipeline = make_private_pipeline(
        TableEncoder(encoder.columns), BayesianLogisticRegression(), privacy=PrivacyBudget(1.0, 1e-6)
    )
    assert pipeline.fit(frame, y)[-1].indicators == encoder.indicators


@pytest.mark.parametrize("indicators", [[(0, 2)], [(0, 9, 1.0)], [(2, 1, 1.0)], 3, [("a", "b", 1.0)]])
def test_impossible_indicators_are_refused(indicators):
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=2)
    with pytest.raises(ValueError, match="indicators"):
        BayesianLogisticRegression(privacy=plan, max_norm=1.0, indicators=indicators).fit(
            np.zeros((4, 3)), np.array([0, 1, 0, 1])
        )


def test_a_clip_that_looks_at_labels_is_warned_of(tmp_path):
    X, y, _ = table(3000, 3, np.random.default_rng(3))
    plan = PrivacyPlan(noise_multiplier=10.0, sampling_rate=1.0, n_steps=20)
    model = BayesianLogisticRegression(privacy=plan, max_norm=1.0, influence="clipped").fit(X, y)
    with pytest.warns(PrivacyWarning, match="max_record_norm"):
        assert model.summary() is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = unclipped(BayesianLogisticRegression(privacy=plan, max_norm=1.0)).fit(X, y)
        model.summary()


def test_predictions_are_under_the_learnt_precision_and_coefficients_under_a_flat_prior(tmp_path):
    X, y, _ = table(3000, 3, np.random.default_rng(3))
    plan = PrivacyPlan(noise_multiplier=10.0, sampling_rate=1.0, n_steps=20)
    model = BayesianLogisticRegression(privacy=plan, max_norm=1.0).fit(X, y)
    posterior, design = model.last_posterior_, np.hstack([X[:200], np.ones((200, 1))])
    variance = np.einsum("ni,ij,nj->n", design, posterior.cov, design)
    expected = posterior_probabilities(design @ posterior.mean, variance)
    np.testing.assert_allclose(model.predict_proba(X[:200])[:, 1], expected, rtol=1e-6)
    np.testing.assert_array_equal(model.coef_[0], model.posterior_.mean[:3])
    np.testing.assert_array_equal(model.coef_[0], model.summary()["mean"][:3])
    assert np.abs(model.coef_ - posterior.mean[:3]).max() > 1e-3
    model.save(tmp_path / "model.npz")
    again = vips.load(tmp_path / "model.npz")
    assert again.noisy_totals_.noise_std == model.noisy_totals_.noise_std
    np.testing.assert_array_equal(again.posterior_.mean, model.posterior_.mean)


def test_several_outputs_and_counts_have_a_noise_aware_posterior():
    rng = np.random.default_rng(4)
    X, y, _ = table(3000, 3, rng, n_trials=4)
    plan = PrivacyPlan(noise_multiplier=5.0, sampling_rate=1.0, n_steps=10)
    counts = unclipped(BayesianBinomialRegression(n_trials=4, privacy=plan, max_norm=1.0)).fit(X, y)
    assert counts.posterior_.cov.shape == (4, 4)
    three = unclipped(BayesianLogisticRegression(classes=(0, 1, 2), privacy=plan, max_norm=1.0, fit_intercept=False))
    three.fit(X, np.minimum(y, 2))
    assert three.posterior_.mean.shape == (2, 3)
    assert (three.posterior_.std > three.last_posterior_.std).mean() > 0.5


def test_without_an_intercept_gradients_tell_how_long_rows_are():
    """Precisions without a constant tell only the product of the number of rows and their length."""
    rng = np.random.default_rng(8)
    X = rng.uniform(-1.0, 1.0, (20_000, 3))
    y = rng.random(20_000) < expit(X @ [1.0, -1.0, 0.5])
    plan = PrivacyPlan(noise_multiplier=20.0, sampling_rate=1.0, n_steps=20)
    model = BayesianLogisticRegression(privacy=plan, max_norm=1.8, fit_intercept=False).fit(X, y)
    assert model.misfit() > 1e-6  # 1e-13 if rows are taken for as long as they may be
    assert (np.abs(model.posterior_.mean - [1.0, -1.0, 0.5]) < 6.0 * model.posterior_.std).all()


def test_models_and_fits_without_a_noise_aware_posterior_say_so():
    X, y, _ = table(200, 3, np.random.default_rng(5))
    plain = BayesianLogisticRegression().fit(X, y)
    np.testing.assert_array_equal(plain.posterior_.mean, plain.last_posterior_.mean)
    assert not plain.why_no_intervals()
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=2)
    paper = BayesianLogisticRegression(statistics="paper", privacy=plan, max_norm=1.0).fit(X, y)
    assert paper.posterior_ is paper.last_posterior_
    assert 'statistics="centred"' in paper.why_no_intervals()
    other = BetaBernoulli(privacy=plan).fit((X > 0.0).astype(float))
    assert other.posterior_ is other.last_posterior_
    assert "BetaBernoulli takes noisy totals at face value" in other.why_no_intervals()
    assert other.noisy_totals_.average


@pytest.mark.slow
def test_a_diagonal_covariance_can_be_noise_aware_for_independent_features():
    rng, held, plan = np.random.default_rng(6), [], PrivacyPlan.from_epsilon(
        epsilon=1.0, delta=1e-5, sampling_rate=1.0, n_steps=40
    )  # fmt: skip
    for _ in range(5):
        X, y, w = table(20_000, 20, rng)
        model = BayesianLogisticRegression(privacy=plan, max_norm=1.0, prior=ALPHA, covariance="diagonal")
        model = unclipped(model).fit(X + 0.05, y)
        bounds = (posterior.interval(0.95) for posterior in (model.last_posterior_, model.posterior_))
        held.append([((lower[:20] < w) & (w < upper[:20])).mean() for lower, upper in bounds])
    naive, aware = np.mean(held, axis=0)
    assert aware > max(0.7, naive + 0.15)


def test_noise_alone_at_a_wide_norm_has_intervals():
    """Coefficients of noise are so long there that no row would have a curvature."""
    plan = PrivacyPlan.from_epsilon(epsilon=0.1, delta=1e-6, sampling_rate=1.0, n_steps=3)
    model = BayesianLogisticRegression(privacy=plan, max_norm=1e6, covariance="diagonal")
    posterior = model.fit(np.zeros((0, 4)), np.zeros(0)).posterior_
    assert np.isfinite(posterior.mean).all()
    assert np.isfinite(posterior.std).all()
