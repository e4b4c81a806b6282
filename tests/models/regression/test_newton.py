"""Coefficients from released scores and information: closed forms, draws, and how often intervals hold the truth."""

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
from tests.mutants import noticed
from tests.releases import releases
from vips import BayesianBinomialRegression, BayesianLogisticRegression, PrivacyBudget, PrivacyPlan, PrivacyWarning
from vips.expfam.gaussian import posterior_probabilities
from vips.models import _newton as newton
from vips.models._newton import Prior, Released, best_prior
from vips.preprocessing import TableEncoder, make_private_pipeline

POINT = np.array([1.0, -0.5, -0.5])
FLAT = Prior(1e-9 * np.eye(3), np.zeros(3))
RATIOS = (0.02, 25.0)


def table(n_records, d, rng, n_trials=1):
    """Rows of the unit ball, and labels of drawn coefficients."""
    X = rng.normal(size=(n_records, d))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    w, b = 3.0 * rng.normal(size=d), rng.normal()
    return X, rng.binomial(n_trials, expit(X @ w + b)), w


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_records", "epsilon", "sampling_rate"), [(500, 1.0, 1.0), (5000, 0.3, 1.0), (5000, 1.0, 1.0), (5000, 8.0, 0.05)]
)
def test_intervals_hold_the_truth(n_records, epsilon, sampling_rate):
    rng, held = np.random.default_rng(n_records), []
    plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=1e-5, sampling_rate=sampling_rate, n_steps=20)
    for _ in range(12):
        X, y, w = table(n_records, 4, rng)
        model = BayesianLogisticRegression(privacy=plan, max_norm=1.0).fit(X, y)
        lower, upper = (bound[:4] for bound in model.posterior_.interval(0.95))
        held += [
            held
            for held, name in zip((lower < w) & (w < upper), "0123", strict=True)
            if f"x{name}" not in model.hidden_columns_
        ]
    assert np.mean(held) > 0.8  # 0.92 or more, less three standard errors of 48 intervals


# -- the linear model -------------------------------------------------------------------------------------------------

ROWS = np.column_stack([np.random.default_rng(0).normal(size=(400, 2)), np.full(400, 0.5)])
LABELS = (np.random.default_rng(1).random(400) < expit(ROWS @ POINT)).astype(float)


def scores_of(points):
    """What a step without noise releases about the rows at each point: scores, information, squares."""
    released = []
    for point in points:
        p = expit(ROWS @ point)
        residual = LABELS - p
        released.append(
            (ROWS.T @ residual, (ROWS.T * (p * (1.0 - p))) @ ROWS, np.square(ROWS * residual[:, None]).sum(axis=0))
        )
    return [np.array(values) for values in zip(*released, strict=True)]


def released_of(points, scores, informations, squares, stds=(1e-9, 1e-9, 1e-9), sampled=0.0):
    k = len(points)
    return Released(
        points, scores, informations, squares, np.zeros((k, 0)), np.tile(stds, (k, 1)), np.full(k, sampled), RATIOS
    )


def _coefficients_without_noise_are_the_root():
    """Each step at the estimate of those before: the root of the scores, and the sandwich with squares for its filling."""
    points, estimate = np.zeros((1, 3)), np.zeros(3)
    for _ in range(12):
        scores, informations, squares = scores_of(points)
        estimate, precision = released_of(points, scores, informations, squares).matched(FLAT, estimate)
        points = np.vstack([points, estimate])
    root = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10).fit(ROWS, LABELS).coef_[0]
    np.testing.assert_allclose(estimate, root, atol=1e-5)
    (_,), (H,), (B,) = scores_of([root])
    R = np.sqrt(B / np.diagonal(H))
    np.testing.assert_allclose(
        np.linalg.inv(precision), np.linalg.inv(H) @ (R[:, None] * H * R) @ np.linalg.inv(H), rtol=1e-3
    )


def symmetric(rng):
    upper = np.triu(rng.normal(size=(3, 3)), 1) / np.sqrt(2.0)
    return upper + upper.T + np.diag(rng.normal(size=3))


def _covariance_is_that_of_draws(s=1e-3, q=1.0, ratio=1.0, n=100):
    """True coefficients drawn from the prior, and fits to a linear score: with noise, samples, or other squares."""
    rng, k, off = np.random.default_rng(2), 5, []
    prior = Prior(np.diag([4.0, 4.0, 1.0]), np.diag([4.0, 4.0, 1.0]) @ POINT)
    (_,), (H,), _ = scores_of([POINT])
    root = np.sqrt(ratio) * np.linalg.cholesky(H)
    for _ in range(n):
        w = POINT + rng.normal(size=3) / np.sqrt(np.diagonal(prior.precision))
        at, of_records, points, scores = POINT, root @ rng.normal(size=3), [], []
        informations = np.array([H + 0.1 * s * symmetric(rng) for _ in range(k)])
        squares = ratio * np.tile(np.diagonal(H), (k, 1))
        for t in range(1, k + 1):
            sampled = np.sqrt(1.0 / q - 1.0) * root @ rng.normal(size=3)
            points.append(at)
            scores.append(H @ (w - at) + of_records + sampled + s * rng.normal(size=3))
            arrays = np.array(points), np.array(scores), informations[:t], squares[:t]
            steps = released_of(*arrays, stds=(s, 0.1 * s, 1e-6), sampled=1.0 / q - 1.0)
            at, precision = steps.matched(prior, at)
        off.append((at - w) @ np.linalg.cholesky(precision))
    values = np.linalg.eigvalsh(np.transpose(off) @ off / len(off))
    assert values.min() > 0.4  # scores from far away make it cautious
    assert values.max() < 1.5


WITH = {"noise": {"s": 20.0}, "samples": {"q": 0.05}, "squares": {"ratio": 4.0}}


def test_coefficients_without_noise_are_the_root():
    _coefficients_without_noise_are_the_root()


@pytest.mark.representatives("noise")
@pytest.mark.parametrize("what", WITH)
def test_the_covariance_is_that_of_draws(what):
    _covariance_is_that_of_draws(**WITH[what])


def without(name, value):
    """A mutant: the formula with another value in place of what was released."""

    def mutant(patch):
        original = Released._linear
        patch.setattr(
            Released,
            "_linear",
            lambda self, *others: original(replace(self, **{name: value(getattr(self, name))}), *others),
        )

    return mutant


def carried_by_nothing(patch):
    patch.setattr(newton, "_NEAR", 0.0)
    original = Released._linear
    patch.setattr(Released, "_linear", lambda self, estimate, H: original(self, 0.5 * estimate, H))


test_mutant_is_noticed = noticed(
    (carried_by_nothing, _coefficients_without_noise_are_the_root),
    (without("points", np.zeros_like), _coefficients_without_noise_are_the_root),
    (without("squares", lambda squares: 4.0 * squares), _coefficients_without_noise_are_the_root),
    (without("stds", lambda stds: 0.1 * stds), partial(_covariance_is_that_of_draws, **WITH["noise"], n=30)),
    (without("variance", np.zeros_like), partial(_covariance_is_that_of_draws, **WITH["samples"], n=30)),
    (without("ratios", lambda _: (1.0, 1.0)), partial(_covariance_is_that_of_draws, **WITH["squares"], n=30)),
)


def test_directions_that_noise_hides_are_not_certain():
    """Information of nothing but noise: the deviation is that of the prior, and the mean stays near it."""
    rng = np.random.default_rng(3)
    informations = np.array([300.0 * symmetric(rng) for _ in range(8)])
    scores = 430.0 * rng.normal(size=(8, 3))
    steps = released_of(np.zeros((8, 3)), scores, informations, np.ones((8, 3)), (430.0, 300.0, 1.0))
    mean, precision = steps.matched(Prior(np.eye(3), np.zeros(3)), np.zeros(3))
    assert np.sqrt(np.diagonal(np.linalg.inv(precision))).min() > 0.7
    assert np.abs(mean).max() < 1.0


def test_the_best_prior_is_the_most_probable_one():
    """Against densities of SciPy."""
    rng = np.random.default_rng(4)
    points = POINT + 0.1 * rng.normal(size=(4, 3))
    scores, informations, squares = scores_of(points)
    steps = released_of(points, scores + 5.0 * rng.normal(size=(4, 3)), informations, squares, (5.0, 1e-6, 1e-6))
    priors = [Prior(scale * np.eye(3), scale * centre) for scale in (1.0, 50.0) for centre in (POINT, POINT - 1.0)]
    total, M, V = steps.linear_model(POINT)
    density = [
        multivariate_normal(
            M @ np.linalg.solve(prior.precision, prior.linear), V + M @ np.linalg.solve(prior.precision, M)
        ).logpdf(total)
        for prior in priors
    ]
    best = int(np.argmax(density))
    assert best_prior(steps, priors, POINT, 0.0) == best
    gain = max(density) - density[1]
    others = [priors[1], *priors]
    assert best_prior(steps, others, POINT, gain - 0.1) == best + 1
    assert best_prior(steps, others, POINT, gain + 0.1) == 0


def test_scores_that_were_carried_well_scatter_by_their_noise():
    rng, values = np.random.default_rng(5), []
    for off in (0.0, 3.0):
        points = POINT + 0.05 * rng.normal(size=(12, 3))
        points[:, 0] += off * (np.arange(12) < 3)
        scores, informations, squares = scores_of(points)
        steps = released_of(points, scores + 2.0 * rng.normal(size=(12, 3)), informations, squares, (2.0, 1e-6, 1e-6))
        values.append(newton.misfit([steps], [steps.matched(FLAT, POINT)[0]]))
        moved = replace(steps, scores=steps.scores + 20.0 * np.arange(12)[:, None])
        assert newton.misfit([moved], [moved.matched(FLAT, POINT)[0]]) < 1e-6
    assert min(values) > 1e-4


# -- fits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_steps", [9, 140])
def test_kept_steps_are_those_of_the_fit(n_steps):
    """The points at which scores were taken, and these noisy totals; averages where there are many."""
    X, y, _ = table(100, 3, np.random.default_rng(2))
    plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.7, n_steps=n_steps)
    model = BayesianLogisticRegression(privacy=plan, max_norm=2.0)
    looked, update = [], model.to_posterior

    def seen(average, noise_std, previous):
        if previous is not None:
            looked.append((previous.search.point[0], previous.search.size))
        return update(average, noise_std, previous)

    model.to_posterior = seen
    with releases() as steps:
        model.fit(X, y)
    totals = [step.noisy["linear"] / 0.7 for step in steps[n_steps - len(looked) :]]
    kept = model.last_posterior_.search.kept
    n_zooms = 3 if n_steps == 9 else 4 * 7
    assert kept.points.shape[1] == min(n_steps - n_zooms, 64)
    assert kept.counts.sum() == n_steps - n_zooms == len(looked)
    first, length = 0, int(kept.counts[0])
    for place in np.flatnonzero(kept.counts):
        of_place = slice(first, first + length)
        points, sizes = (np.array(values) for values in zip(*looked[of_place], strict=True))
        np.testing.assert_allclose(kept.points[0, place], points.mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(kept.sizes[place], np.square(sizes).mean())
        np.testing.assert_allclose(kept.scores[0, place], (sizes[:, None] * totals[of_place]).mean(axis=0), atol=1e-6)
        first += length


@pytest.mark.parametrize("n_steps", range(1, 9))
def test_fits_of_few_steps(n_steps):
    """One zoom for each three steps; means within six deviations, and something learnt where there is a zoom."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(20_000, 2)) / 4.0
    y = (rng.random(20_000) < expit(X @ [3.0, -2.0] - 0.5)).astype(int)
    plan = PrivacyPlan.from_epsilon(epsilon=2.0, delta=1e-6, sampling_rate=1.0, n_steps=n_steps)
    model = BayesianLogisticRegression(privacy=plan, max_norm=2.0).fit(X, y)
    assert model.posterior_.search.zooms.n_zooms == (0, 1, 1, 1, 2, 2, 2, 3)[n_steps - 1]
    assert (np.abs(model.posterior_.mean - [3.0, -2.0, -0.5]) < 6.0 * model.posterior_.std).all()
    assert n_steps < 4 or model.posterior_.std.max() < 0.5


def test_a_fit_with_hardly_any_noise_is_the_ordinary_fit():
    rng = np.random.default_rng(7)
    X = 0.3 * rng.normal(size=(20_000, 3)) @ np.linalg.cholesky(np.eye(3) + 0.5) + 0.1
    y = (rng.random(20_000) < expit(X @ [3.0, -2.0, 1.0] - 1.0)).astype(int)
    plan = PrivacyPlan(noise_multiplier=1e-6, sampling_rate=1.0, n_steps=40, clip_norm=100.0)
    model = BayesianLogisticRegression(privacy=plan, max_norm=4.0).fit(X, y)
    design = np.column_stack([X, np.ones(len(X))])
    root = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(X, y)
    p = root.predict_proba(X)[:, 1]
    std = np.sqrt(np.diagonal(np.linalg.inv((design.T * (p * (1.0 - p))) @ design)))
    expected = np.append(root.coef_[0], root.intercept_)
    np.testing.assert_allclose((model.posterior_.mean - expected) / std, 0.0, atol=0.02)
    np.testing.assert_allclose(model.posterior_.std, std, rtol=0.05)


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
    assert widths[0] < widths[1]
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


def test_predictions_and_coefficients_have_one_posterior(tmp_path):
    X, y, _ = table(3000, 3, np.random.default_rng(3))
    plan = PrivacyPlan(noise_multiplier=10.0, sampling_rate=1.0, n_steps=20)
    model = BayesianLogisticRegression(privacy=plan, max_norm=1.0).fit(X, y)
    posterior, design = model.last_posterior_, np.hstack([X[:200], np.ones((200, 1))])
    assert posterior is model.posterior_
    variance = np.einsum("ni,ij,nj->n", design, posterior.cov, design)
    expected = posterior_probabilities(design @ posterior.mean, variance)
    np.testing.assert_allclose(model.predict_proba(X[:200])[:, 1], expected, rtol=1e-6)
    np.testing.assert_array_equal(model.coef_[0], model.posterior_.mean[:3])
    np.testing.assert_array_equal(model.coef_[0], model.summary()["mean"][:3])
    with pytest.raises(AttributeError, match="no α"):
        model.alpha_  # noqa: B018
    model.save(tmp_path / "model.npz")
    again = vips.load(tmp_path / "model.npz")
    assert again.noisy_totals_.noise_std == model.noisy_totals_.noise_std
    np.testing.assert_array_equal(again.posterior_.mean, model.posterior_.mean)
    assert again.misfit() == model.misfit()


def test_a_prior_of_the_users_is_that_of_natural_coefficients():
    """A strong one holds its mean, wherever rows were moved; a learnt precision follows the coefficients."""
    X, y, _ = table(2000, 3, np.random.default_rng(9))
    plan = PrivacyPlan(noise_multiplier=10.0, sampling_rate=1.0, n_steps=20)
    given = vips.expfam.Gaussian(np.array([1.0, -2.0, 3.0, 0.5]), 1e9 * np.eye(4))
    model = BayesianLogisticRegression(privacy=plan, max_norm=1.0, prior=given).fit(X + 0.3, y)
    np.testing.assert_allclose(model.posterior_.mean, given.mean, atol=1e-3)
    fixed = BayesianLogisticRegression(privacy=plan, max_norm=1.0, prior=1e6).fit(X, y)
    assert np.abs(fixed.coef_).max() < 0.01
    learnt = BayesianLogisticRegression(privacy=plan, max_norm=1.0, prior=vips.expfam.Gamma(1.0, 1.0)).fit(X, y)
    assert learnt.alpha_ == pytest.approx(
        2.5 / (1.0 + 0.5 * (learnt.coef_**2 + learnt.posterior_.var[:3]).sum()), rel=0.05
    )


def test_several_outputs_and_counts_have_a_noise_aware_posterior():
    rng = np.random.default_rng(4)
    X, y, _ = table(3000, 3, rng, n_trials=4)
    plan = PrivacyPlan(noise_multiplier=5.0, sampling_rate=1.0, n_steps=10)
    counts = BayesianBinomialRegression(n_trials=4, privacy=plan, max_norm=1.0).fit(X, y)
    assert counts.posterior_.cov.shape == (4, 4)
    three = BayesianLogisticRegression(classes=(0, 1, 2), privacy=plan, max_norm=1.0, fit_intercept=False)
    three.fit(X, np.minimum(y, 2))
    assert three.posterior_.mean.shape == (2, 3)
    assert three.misfit() > 1e-6


def test_without_an_intercept_rows_are_scaled_and_not_centred():
    rng = np.random.default_rng(8)
    X = rng.uniform([-0.7, -1.0, -1.0], [1.3, 1.0, 1.0], (20_000, 3))
    y = rng.random(20_000) < expit(X @ [1.0, -1.0, 0.5])
    plan = PrivacyPlan(noise_multiplier=20.0, sampling_rate=1.0, n_steps=20)
    model = BayesianLogisticRegression(privacy=plan, max_norm=2.3, fit_intercept=False).fit(X, y)
    zooms = model.last_posterior_.search.zooms
    assert not zooms.coordinates.shift.any()
    assert zooms.count == pytest.approx(20_000, rel=0.15)
    assert (np.abs(model.posterior_.mean - [1.0, -1.0, 0.5]) < 6.0 * model.posterior_.std).all()
    assert model.posterior_.std.max() < 0.1


def test_models_and_fits_without_a_noise_aware_posterior_say_so():
    X, y, _ = table(200, 3, np.random.default_rng(5))
    plain = BayesianLogisticRegression().fit(X, y)
    np.testing.assert_array_equal(plain.posterior_.mean, plain.last_posterior_.mean)
    assert not plain.why_no_intervals()
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=2)
    for settings in ({"statistics": "paper"}, {"covariance": "diagonal"}):
        stepped = BayesianLogisticRegression(privacy=plan, max_norm=1.0, **settings).fit(X, y)
        assert stepped.posterior_ is stepped.last_posterior_
        assert np.isnan(stepped.misfit())
        for name, value in settings.items():
            assert f'{name}="' in stepped.why_no_intervals()
            assert value not in stepped.why_no_intervals()
    other = BetaBernoulli(privacy=plan).fit((X > 0.0).astype(float))
    assert other.posterior_ is other.last_posterior_
    assert "BetaBernoulli takes noisy totals at face value" in other.why_no_intervals()
    assert other.noisy_totals_.average


def test_noise_alone_at_a_wide_norm_hides_all_columns():
    plan = PrivacyPlan.from_epsilon(epsilon=0.1, delta=1e-6, sampling_rate=1.0, n_steps=12)
    model = BayesianLogisticRegression(privacy=plan, max_norm=1e6)
    posterior = model.fit(np.zeros((0, 4)), np.zeros(0)).posterior_
    assert np.isfinite(posterior.mean).all()
    assert np.isfinite(posterior.std).all()
    assert len(model.hidden_columns_) >= 3
    with pytest.warns(PrivacyWarning, match="Noise hides how much"):
        table_ = model.summary()
    assert table_["lower"].isna().sum() >= 4


def released_along(informations):
    """Released values of two coefficients and an intercept, whose information along the first two is this in each step."""
    k, along = len(informations), np.array([0.8, 0.6, 0.0])
    points = np.linspace(0.0, 5.0, k)[:, None] * along
    H = 20.0 * np.eye(3) + (np.array(informations) - 20.0)[:, None, None] * np.outer(along, along)
    stds = np.column_stack([np.ones(k), 2.0 * np.ones(k), np.ones(k)])
    diagonals = np.diagonal(H, axis1=1, axis2=2)
    return Released(points, np.zeros((k, 3)), H, diagonals, np.zeros((k, 0)), stds, np.zeros(k), RATIOS)


def test_effects_whose_size_noise_hides_have_no_limits():
    at, precision = np.array([4.0, 3.0, 0.0]), np.diag([1.0, 1.0, 50.0])
    fell = [20.0] * 6 + [0.1] * 24
    assert released_along(fell).unbounded(at, precision, True).tolist() == [True, True, False]
    # an effect across the estimate is known
    assert not released_along(fell).unbounded(np.array([-3.0, 4.0, 0.0]), precision, True).any()
    assert not released_along([20.0] * 6 + [4.0] * 24).unbounded(at, precision, True).any()  # seen where it ended
    assert not released_along([0.1] * 30).unbounded(at, precision, True).any()  # seen nowhere: another matter
    rng, told = np.random.default_rng(8), []
    X = rng.normal(size=(5000, 3)).clip(-4.0, 4.0)
    y = (rng.random(5000) < expit(X @ [10.0, 5.0, -3.0])).astype(int)
    for _ in range(4):  # each is told nine times in ten or more
        model = BayesianLogisticRegression(privacy=PrivacyBudget(1.0, 1e-6), max_norm=4.0 * np.sqrt(3)).fit(X, y)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            limits = model.summary()["lower"].to_numpy()
            lower, _ = model.predict_interval(X[:2])
        told += [np.isnan(limits[:3]).any()]
        assert np.isnan(lower).all() == told[-1] == any("how large the effect of x0" in str(w.message) for w in caught)
    assert any(told)
