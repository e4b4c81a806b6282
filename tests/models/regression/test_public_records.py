"""A Gaussian as prior, and public records as start and prior."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.base import clone
from sklearn.metrics import log_loss

import vips
from tests.mutants import noticed
from vips import BayesianBinomialRegression, BayesianLogisticRegression, PrivacyBudget, PrivacyLedger, PrivacyPlan
from vips.core import engine
from vips.exceptions import CheckpointError
from vips.expfam import DiagonalGaussian, Gaussian, polya_gamma_mean
from vips.models._newton import Released
from vips.models.regression import contract
from vips.preprocessing import TableEncoder, make_private_pipeline

N_FEATURES = 4
SLOPES = np.array([4.0, -4.0, 2.0, 0.0])


def plan_of(noise_multiplier=1.0, n_steps=20, **settings):
    return PrivacyPlan(noise_multiplier=noise_multiplier, n_steps=n_steps, sampling_rate=1.0, **settings)


def table(n, seed, slopes=SLOPES):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.5, 0.5, (n, N_FEATURES))
    return X, (rng.random(n) < expit(X @ slopes - 0.5)).astype(int)


def model_of(plan=None, **settings):
    return BayesianLogisticRegression(privacy=plan, max_norm=1.0, classes=[0, 1], **settings)


def loss(model, X, y):
    return log_loss(y, model.predict_proba(X)[:, 1])


# -- a given prior ------------------------------------------------------------------------------------------------


def given():
    mixing = np.random.default_rng(3).normal(size=(N_FEATURES + 1, N_FEATURES + 1))
    return Gaussian(np.array([1.0, -1.0, 0.5, 2.0, -0.3]), mixing @ mixing.T + 3.0 * np.eye(N_FEATURES + 1))


def fixed_point(X, y, prior):
    """The textbook's updates, written out: Λ = Λ₀ + Σ ω x x', Λ μ = Λ₀ μ₀ + Σ (y - ½) x."""
    rows = np.column_stack([X, np.ones(len(X))])
    mean, cov = prior.mean, np.linalg.inv(prior.precision)
    for _ in range(500):
        tilt = np.sqrt((rows @ mean) ** 2 + np.einsum("ni,ij,nj->n", rows, cov, rows))
        precision = prior.precision + (rows.T * polya_gamma_mean(tilt)) @ rows
        cov = np.linalg.inv(precision)
        mean = cov @ (prior.precision @ prior.mean + rows.T @ (y - 0.5))
    return mean, precision


def test_a_given_prior_is_the_textbooks():
    X, y = table(200, 0)
    fitted = model_of(PrivacyPlan.non_private(sampling_rate=1.0, n_steps=100), prior=given()).fit(X, y)
    mean, precision = fixed_point(X, y, given())
    np.testing.assert_allclose(fitted.last_posterior_.mean, mean, atol=1e-9)
    np.testing.assert_allclose(fitted.last_posterior_.precision, precision, rtol=1e-9)
    with pytest.raises(AttributeError, match="no α"):
        fitted.alpha_  # noqa: B018


def test_the_bound_is_that_of_the_given_prior():
    """Over all Gaussians with that precision the bound is largest at the fixed point, and it is below the evidence."""
    X, y = table(50, 1)
    fitted = model_of(PrivacyPlan.non_private(sampling_rate=1.0, n_steps=100), prior=given()).fit(X, y)
    draws = given().sample(40_000, np.random.default_rng(0))
    psi = draws[:, :-1] @ X.T + draws[:, -1:]
    evidence = np.log(np.mean(np.exp((psi * y - np.logaddexp(0.0, psi)).sum(axis=1))))
    assert evidence - 0.5 < fitted.bound_ < evidence + 0.02


def test_laplace_uses_the_given_prior():
    X, y = table(80, 2)
    fitted = model_of(PrivacyPlan.non_private(sampling_rate=1.0, n_steps=100), prior=given()).fit(X, y)
    rows = np.column_stack([X, np.ones(len(X))])

    def minus_log(w):
        off = w - given().mean
        return np.logaddexp(0.0, rows @ w).sum() - y @ (rows @ w) + 0.5 * off @ given().precision @ off

    slopes = expit(rows @ fitted.last_posterior_.mean)
    expected = given().precision + (rows.T * (slopes * (1.0 - slopes))) @ rows
    np.testing.assert_allclose(fitted.laplace_posterior(X, y).precision, expected, rtol=1e-6)
    np.testing.assert_allclose(fitted.last_posterior_.mean, minimize(minus_log, given().mean).x, atol=0.15)


def test_records_of_an_earlier_fit_count_once_more():
    """Records A as prior of a fit to B are nearly A and B together: the earlier bound's curvature is kept."""
    (X, y), (X2, y2) = table(2000, 3), table(2000, 4)
    first = model_of(prior=1.0).fit(X, y)
    second = model_of(prior=first.last_posterior_).fit(X2, y2)
    both = model_of(prior=1.0).fit(np.vstack([X, X2]), np.append(y, y2))
    np.testing.assert_allclose(
        second.last_posterior_.mean, both.last_posterior_.mean, atol=0.5 * both.last_posterior_.std.max()
    )
    np.testing.assert_allclose(second.last_posterior_.std, both.last_posterior_.std, rtol=0.05)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_a_private_fit_with_a_given_prior(covariance, tmp_path):
    X, y = table(2500, 5)
    prior = given() if covariance == "full" else DiagonalGaussian(given().mean, np.full(5, 3.0))
    plain = model_of(prior=prior, covariance=covariance).fit(X, y)
    private = model_of(plan_of(1e-6, n_steps=40), prior=prior, covariance=covariance).fit(X, y)
    np.testing.assert_allclose(private.coef_, plain.coef_, atol=0.15)  # weights of the clip make them differ a little
    hidden = model_of(plan_of(1e6), prior=prior, covariance=covariance).fit(X, y)
    if covariance == "full":
        for posterior in (hidden.last_posterior_, hidden.posterior_):  # a curvature that is all noise moves it a little
            assert (np.abs(posterior.mean - prior.mean) < 2.0 * prior.std).all()
        assert 0.0 < hidden.signal_of_coefficients().p_value <= 1.0
    assert "prior of the coefficients: a given Gaussian" in private.privacy_.declared_public
    private.save(tmp_path / "model")
    loaded = vips.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.last_posterior_.mean, private.last_posterior_.mean)
    np.testing.assert_array_equal(loaded.prior.precision, prior.precision)
    np.testing.assert_array_equal(clone(private).prior.mean, prior.mean)


def test_of_several_classes_and_of_counts():
    X, y = table(1000, 6)
    y = y + (X[:, 3] > 0.2)
    model = BayesianLogisticRegression(privacy=plan_of(1e-3, n_steps=5), max_norm=1.0, classes=[0, 1, 2])
    earlier = clone(model).set_params(privacy=None).fit(X, y)
    assert model.set_params(prior=earlier.last_posterior_).fit(X, y).coef_.shape == (2, N_FEATURES)
    public = clone(model).set_params(prior=1.0).fit(X, y, public_X=X[:500], public_y=y[:500])
    assert public.public_weight_.shape == (2,)
    counts = BayesianBinomialRegression(n_trials=2, privacy=plan_of(n_steps=5), max_norm=1.0)
    assert counts.fit(X, y, public_X=X[:500], public_y=y[:500]).public_records_[0] == 500


# -- public records -----------------------------------------------------------------------------------------------


def _few_records_stay_with_what_was_public():
    public, (X, y) = table(500, 7), table(300, 8)
    alone = model_of().fit(*public)
    plan = dataclasses.replace(plan_of(100.0), reproducible_noise=True)
    both = model_of(plan, random_state=2).fit(X, y, public_X=public[0], public_y=public[1])
    np.testing.assert_allclose(both.predict_proba(X), alone.predict_proba(X), atol=0.03)
    assert both.public_weight_ == 1.0


def test_where_noise_hides_everything_the_public_fit_remains():
    _few_records_stay_with_what_was_public()


def test_public_records_help_and_their_posterior_is_released_by_nobody_else():
    public, private, (X, y) = table(500, 9), table(2000, 10), table(20_000, 11)
    plan = dataclasses.replace(plan_of(30.0), reproducible_noise=True)
    alone, without = model_of().fit(*public), model_of(plan, random_state=0).fit(*private)
    both = model_of(plan, random_state=0).fit(*private, public_X=public[0], public_y=public[1])
    np.testing.assert_allclose(both.public_posterior_.mean, alone.last_posterior_.mean)
    assert loss(both, X, y) < min(loss(alone, X, y) * 1.02, loss(without, X, y))
    assert both.findings()["weight of public records"] == both.public_weight_.mean()
    assert any("500 public records" in words for words in both.privacy_.declared_public)
    assert "500 public records" in str(both.privacy_)


def _flipped_labels_are_disbelieved(n):
    """A fit to many records leaves them, one to few is no worse than they are."""
    (X0, y0), private, (X, y) = table(1000, 12), table(n, 13), table(20_000, 14)
    plan = dataclasses.replace(plan_of(5.0), reproducible_noise=True)
    alone, without = model_of().fit(X0, 1 - y0), model_of(plan, random_state=0).fit(*private)
    both = model_of(plan, random_state=0).fit(*private, public_X=X0, public_y=1 - y0)
    assert loss(both, X, y) < loss(alone, X, y) * 1.02
    if n > 1000:
        assert both.public_weight_ == 0.0
        assert loss(both, X, y) < loss(without, X, y) * 1.02


@pytest.mark.parametrize("n", [300, 5000])
def test_public_records_of_another_population_are_disbelieved(n):
    _flipped_labels_are_disbelieved(n)


def _released_totals_decide():
    """Two fits with the same noisy totals are the same, whatever the private records are."""
    public = table(200, 15)
    fits = []
    for seed in (16, 17):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PrivacyPlan, "add_noise", frozen)
            X, y = table(400, seed, SLOPES * (-1.0) ** seed)
            fits.append(model_of(plan_of(2.0, n_steps=4)).fit(X, y, public_X=public[0], public_y=public[1]))
    for name, value in fits[0].last_posterior_.to_arrays().items():
        assert np.array_equal(value, fits[1].last_posterior_.to_arrays()[name]), f"{name} depends on the records"


def frozen(plan, total, blocks, randomness, step):
    """Noisy totals that were drawn beforehand, in place of those of a private fit."""
    if not plan.is_private:
        return total
    rng = np.random.default_rng(step)
    drawn = {name: rng.normal(20.0, 5.0, block.shape) for name, block in blocks.items()}
    return {name: v + np.swapaxes(v, -1, -2) if blocks[name].symmetric else v for name, v in drawn.items()}


def test_only_released_totals_and_public_records_decide():
    _released_totals_decide()


def weight_from_exact_totals(patch):
    """The weight of public records is chosen by residuals without noise."""
    exact, sums, best = [], engine.clipped_sum, contract.best_prior

    def clipped_sum(model, *others):
        total = sums(model, *others)
        exact.append(total.get("linear"))
        return total

    def mutant(steps, *others):
        scores = np.tile(exact[-1], (len(steps.scores), 1))
        return best(dataclasses.replace(steps, scores=scores), *others)

    patch.setattr(engine, "clipped_sum", clipped_sum)
    patch.setattr(contract, "best_prior", mutant)


def noise_taken_for_signal(patch):
    original = Released._linear
    patch.setattr(
        Released, "_linear", lambda self, *others: original(dataclasses.replace(self, stds=1e-6 * self.stds), *others)
    )


def never_disbelieved(patch):
    patch.setattr(contract, "best_prior", lambda *others: 0)


test_mutant_is_noticed = noticed(
    (weight_from_exact_totals, _released_totals_decide),
    (noise_taken_for_signal, lambda: _few_records_stay_with_what_was_public()),
    (never_disbelieved, lambda: _flipped_labels_are_disbelieved(5000)),
)


def test_a_fit_with_public_records_is_saved_and_continued(tmp_path):
    public, private = table(200, 18), table(400, 19)
    arguments = {"public_X": public[0], "public_y": public[1], "checkpoint": tmp_path / "fit"}
    plan = dataclasses.replace(plan_of(3.0, n_steps=3), reproducible_noise=True)
    fitted = model_of(plan, random_state=0).fit(*private, **arguments)
    fitted.save(tmp_path / "model")
    loaded = vips.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.public_weight_, fitted.public_weight_)
    np.testing.assert_array_equal(loaded.posterior_.mean, fitted.posterior_.mean)
    other = arguments | {"public_y": 1 - public[1]}
    with pytest.raises(CheckpointError, match="public records"):
        model_of(plan, random_state=0).fit(*private, **other)
    with pytest.raises(CheckpointError, match="parameters"):
        model_of(plan, random_state=0).fit(*private, checkpoint=tmp_path / "fit")


def test_an_interrupted_fit_goes_on_as_if_nothing_had_happened(tmp_path, monkeypatch):
    public, private = table(1000, 12), table(2000, 13)
    arguments = {"public_X": public[0], "public_y": 1 - public[1]}  # the weight falls, and the fit starts anew
    plan = dataclasses.replace(plan_of(5.0, n_steps=6), reproducible_noise=True)
    whole = model_of(plan, random_state=0).fit(*private, **arguments)
    original = BayesianLogisticRegression.to_posterior

    def stops(self, average, noise_std, previous):
        if self.is_private and previous is not None and previous.step == 3:
            raise KeyboardInterrupt
        return original(self, average, noise_std, previous)

    with monkeypatch.context() as patch:
        patch.setattr(BayesianLogisticRegression, "to_posterior", stops)
        with pytest.raises(KeyboardInterrupt):
            model_of(plan, random_state=0).fit(*private, **arguments, checkpoint=tmp_path / "fit")
    resumed = model_of(plan, random_state=0).fit(*private, **arguments, checkpoint=tmp_path / "fit")
    assert whole.public_weight_ < 1.0
    for name, value in whole.last_posterior_.to_arrays().items():
        np.testing.assert_allclose(resumed.last_posterior_.to_arrays()[name], value, rtol=1e-9, atol=1e-12)


def test_a_later_fit_without_them_forgets_them():
    public, private = table(200, 18), table(400, 19)
    model = model_of(plan_of(n_steps=2)).fit(*private, public_X=public[0], public_y=public[1])
    assert not hasattr(model.fit(*private), "public_posterior_")
    assert model.last_posterior_.public is None


def test_public_records_charge_nothing(tmp_path):
    public, private = table(200, 20), table(400, 21)
    plan = plan_of(5.0, n_steps=2)
    with PrivacyLedger(tmp_path / "l.ledger", dataset="patients", epsilon=10.0, delta=1e-6) as ledger:
        model_of(plan).fit(*private, public_X=public[0], public_y=public[1])
        model_of(plan).fit(*private)
    assert [run.charged for run in ledger.runs()] == [2, 2]


def test_pipelines_encode_public_records():
    rng = np.random.default_rng(22)
    frame = pd.DataFrame({"age": rng.integers(18, 90, 3000), "town": rng.choice(["A", "B"], 3000)})
    y = (frame["age"] + rng.normal(0.0, 10.0, 3000) > 55).to_numpy()
    arguments = {"public_X": frame[:500], "public_y": y[:500]}
    learnt = make_private_pipeline(
        TableEncoder(), BayesianLogisticRegression(), privacy=PrivacyBudget(2.0, 1e-6), n_steps=5
    )
    learnt.fit(frame[500:], y[500:], **arguments)
    assert learnt[-1].public_records_[0] == 500
    assert "500 public records" in str(learnt.privacy_)


X, Y = table(30, 23)


@pytest.mark.parametrize(
    ("settings", "arguments", "says"),
    [
        ({}, {"public_X": X}, "go together"),
        ({}, {"public_X": X[:, :3], "public_y": Y}, "3 features"),
        ({}, {"public_X": X, "public_y": Y + 5}, "not in `classes`"),
        ({}, {"public_X": np.full_like(X, np.nan), "public_y": Y}, "NaN"),
        ({"privacy": None}, {"public_X": X, "public_y": Y}, "append the public records"),
        ({"prior": given()}, {"public_X": X, "public_y": Y}, "prior of its own"),
        ({"covariance": "diagonal"}, {"public_X": X, "public_y": Y}, "needs statistics"),
        ({"covariance": "diagonal", "prior": given()}, {}, "independent coefficients"),
        ({"fit_intercept": False, "prior": given()}, {}, r"have \(1, 4\)"),
        ({"prior": (np.zeros(2), np.eye(2))}, {}, "Gaussian"),
    ],
)
def test_what_cannot_work_is_refused_before_a_private_value_is_read(settings, arguments, says):
    unread = np.full_like(X, np.nan)
    with pytest.raises((ValueError, TypeError), match=says):
        model_of(**({"plan": plan_of()} if "privacy" not in settings else {})).set_params(**settings).fit(
            unread if settings.get("privacy", 0) is not None else X, Y, **arguments
        )


def test_a_model_is_no_prior():
    with pytest.raises(TypeError, match=r"prior=model\.posterior_"):
        model_of(prior=model_of().fit(X, Y)).fit(X, Y)


def test_a_fit_that_does_not_search_gives_public_records_their_whole_weight(monkeypatch):
    monkeypatch.setattr("vips.models.regression.contract._MOST_SEARCHED", 40)
    rng = np.random.default_rng(0)
    X, y = 0.03 * rng.normal(size=(60, 41)), rng.integers(0, 2, 60)
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=2)
    model = BayesianLogisticRegression(privacy=plan, max_norm=1.0, prior=100.0)
    model.fit(X, y, public_X=X[:20], public_y=y[:20])
    assert model.last_posterior_.search is None
    assert model.findings()["weight of public records"] == 1.0
