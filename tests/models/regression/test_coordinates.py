"""Coordinates that a private fit learns by zooms: what they do to rows, coefficients, files and the guarantee."""

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import expit

from tests.mutants import check_notices
from tests.steps import with_updates
from vips import (
    BayesianBinomialRegression,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    MixedLogisticRegression,
    PrivacyBudget,
    PrivacyPlan,
    PrivacyWarning,
)
from vips.models._coordinates import Coordinates, Zooms
from vips.models.regression.contract import AugmentedRegression
from vips.preprocessing import TableEncoder, make_private_pipeline

RNG = np.random.default_rng(0)
EASY = PrivacyPlan(noise_multiplier=1e-6, sampling_rate=1.0, n_steps=20)
NOISY = PrivacyPlan(noise_multiplier=10.0, sampling_rate=1.0, n_steps=11)


def table(n, rng, d=3):
    """Columns of different means and deviations, labels, and their coefficients."""
    X = rng.normal(size=(n, d)) * 0.05 * np.arange(1, d + 1) + 0.1 * np.arange(d)
    w = 4.0 * np.resize([1.0, -1.0, 0.5], d)
    return X, (rng.random(n) < expit(X @ w - 0.3)).astype(int), w


def moments_of(X, zooms):
    """What a zoom releases of these rows, whose constant is ½, without noise."""
    rows = zooms.coordinates.rows(np.column_stack([X, np.full(len(X), 0.5)]))
    return (rows * np.minimum(1.0, 1.25 / np.square(rows).sum(axis=1))[:, None]).T @ rows


def zoomed(X, std=0.0, aims=(0.5, 0.25, 1.0, 1.0), centred=True):
    zooms = Zooms.declared(X.shape[1], 1.0, 0.5)
    for aim in aims:
        zooms = zooms.after(moments_of(X, zooms), std, aim, centred)
    return zooms


def _rows_are_centred_and_scaled():
    X, *_ = table(20_000, np.random.default_rng(1))
    rows = zoomed(X).coordinates.rows(np.column_stack([X, np.full(len(X), 0.5)]))
    np.testing.assert_allclose(rows[:, :3].mean(axis=0), 0.0, atol=0.01)
    np.testing.assert_allclose(rows[:, :3].std(axis=0), 1.0 / np.sqrt(3.0), rtol=0.02)
    np.testing.assert_array_equal(rows[:, 3], 0.5)


def _coefficients_move_with_rows():
    coordinates = Coordinates(np.array([0.3, -0.2, 0.0]), np.array([5.0, 0.1, 2.0]))
    design, w = np.column_stack([RNG.normal(size=(9, 2)), np.full(9, 0.25)]), RNG.normal(size=(2, 3))
    moved = coordinates.rows(design) @ coordinates.coefficients(w, 0.25).T
    np.testing.assert_allclose(moved, design @ w.T)


def without_the_intercept(patch):
    patch.setattr(Coordinates, "coefficients", lambda self, coefficients, constant: coefficients / self.scale)


def not_centred(patch):
    original = Zooms.after
    patch.setattr(Zooms, "after", lambda self, moments, std, size, centred: original(self, moments, std, size, False))


def narrowed_by_clipped_rows(patch):
    """Each zoom by its own variance alone."""
    original = Zooms.after
    patch.setattr(Zooms, "after", lambda self, *others: original(replace(self, seen=0.0 * self.seen), *others))


def test_rows_are_centred_and_scaled(monkeypatch):
    _rows_are_centred_and_scaled()
    check_notices(_rows_are_centred_and_scaled, not_centred, monkeypatch, "Not equal")


def test_coefficients_move_with_rows(monkeypatch):
    _coefficients_move_with_rows()
    check_notices(_coefficients_move_with_rows, without_the_intercept, monkeypatch, "Not equal")


def _rare_values_stay_where_they_are():
    """They are clipped: a zoom that believed its variance would stretch them again and again."""
    X = np.column_stack([RNG.normal(size=20_000) * 0.1, (RNG.random(20_000) < 0.005) * 0.5])
    scale = zoomed(X).coordinates.scale[:2] * X.std(axis=0) * np.sqrt(2.0)
    np.testing.assert_allclose(scale, 1.0, rtol=0.1)


def test_rare_values_stay_where_they_are(monkeypatch):
    _rare_values_stay_where_they_are()
    check_notices(_rare_values_stay_where_they_are, narrowed_by_clipped_rows, monkeypatch, "Not equal")


def test_bounds_that_are_far_too_wide_are_found():
    """Columns as narrow as a thousandth of their bounds, and far from the middle."""
    X = 1e-3 * RNG.normal(size=(20_000, 2)) + [0.4, -0.2]
    zooms = zoomed(X, std=20.0, aims=[0.5] * 8 + [1.0, 1.0])
    np.testing.assert_allclose(zooms.coordinates.scale[:2] * X.std(axis=0) * np.sqrt(2.0), 1.0, rtol=0.1)
    assert not zooms.hidden.any()


@pytest.mark.parametrize("moments", [np.zeros((4, 4)), np.diag([1e4, 0.0, 0.0, 1e3]), 1e-300 * np.eye(4)])
@pytest.mark.parametrize("std", [1e-12, 1e-3, 10.0, 1e30])
def test_columns_of_noise_have_finite_factors(moments, std):
    zooms = Zooms.declared(3, 1.0, 0.25).after(moments - std * np.diag([1.0, 0.0, 2.0, 0.0]), std, 1.0, True)
    assert np.isfinite(zooms.coordinates.rows(np.full((1, 4), 0.5))).all()
    assert zooms.hidden[2]


def test_constant_and_empty_columns_are_hidden_and_have_no_limits():
    X, y, _ = table(5_000, np.random.default_rng(2))
    frame = pd.DataFrame(np.column_stack([X, np.full(len(X), 0.4), np.zeros(len(X))]), columns=list("abcde"))
    encoder = TableEncoder({"a": (-1, 1), "b": (-1, 1), "c": (-1, 1), "d": (0, 1), "e": (-1e6, 1e6)})
    model = make_private_pipeline(encoder, BayesianLogisticRegression(), privacy=PrivacyBudget(2.0, 1e-6)).fit(frame, y)
    with pytest.warns(PrivacyWarning, match=r"Noise hides how much d, e varies.*Tighter bounds"):
        table_ = model.summary()
    assert table_[["std", "lower", "upper", "odds ratio, lower"]].loc[["d", "e", "intercept"]].isna().all(axis=None)
    assert table_.loc[["a", "b", "c"]].notna().all(axis=None)
    assert table_["mean"].notna().all()
    assert model[-1].hidden_columns_ == ["d", "e"]
    with pytest.warns(PrivacyWarning, match="Noise hides how much d, e"):
        lower, upper = model[-1].predict_interval(model[0].transform(frame[:3]))
    assert np.isnan(np.append(lower, upper)).all()
    with pytest.warns(PrivacyWarning, match="nothing is known of its effect"):
        model.predict(frame[:3])


def test_a_long_tail_is_warned_of():
    rng = np.random.default_rng(3)
    events = np.where(rng.random(40_000) < 0.002, rng.integers(8, 60, 40_000), rng.poisson(0.2, 40_000)).astype(float)
    X = np.column_stack([events / 76.0, rng.normal(size=40_000).clip(-4, 4) / 4.0])
    y = (rng.random(40_000) < expit(-0.3 + 0.6 * np.minimum(events, 3))).astype(int)
    plan = PrivacyPlan(noise_multiplier=5.0, sampling_rate=1.0, n_steps=20)
    model = BayesianLogisticRegression(privacy=plan, max_norm=1.5).fit(X, y)
    with pytest.warns(PrivacyWarning, match="variance of x0 is in few rows"):
        assert model.summary()["lower"].notna().all()
    declared = BayesianLogisticRegression(privacy=plan, max_norm=1.5, indicators=[(0, 1, 1.0)]).fit(X, y)
    assert declared.posterior_.search.zooms.long_tailed().tolist() == [True, False]


@pytest.mark.parametrize(("bend", "columns"), [("square", "x0"), ("product", "x0, x1"), (None, "")])
def test_terms_that_counts_leave_out_are_warned_of_and_a_wrong_dispersion_is_known_to_limits(bend, columns):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(20_000, 3)).clip(-4, 4)
    left_out = {"square": 0.3 * (X[:, 0] ** 2 - 1.0), "product": 0.3 * X[:, 0] * X[:, 1], None: 0.0}[bend]
    mean, dispersion = np.exp(0.5 + 0.3 * X[:, 0] + left_out), 4.0 if bend else 0.4
    y = np.minimum(rng.negative_binomial(dispersion, dispersion / (dispersion + mean)), 60)
    plan = PrivacyPlan(noise_multiplier=20.0, sampling_rate=1.0, n_steps=20)
    model = BayesianNegativeBinomialRegression(privacy=plan, max_norm=1.5, max_count=60, dispersion=4.0).fit(X / 4.0, y)
    if bend:
        with pytest.warns(PrivacyWarning, match=f"do not depend on {columns} as the model says"):
            model.summary()
    else:
        model.summary()
        assert (np.abs(model.coef_ - [1.2, 0.0, 0.0]) < 4.5 * model.posterior_.std[:3]).all()


@pytest.mark.representatives("True-settings0")
@pytest.mark.parametrize("settings", [{}, {"classes": [0, 1, 2]}, {"prior": 0.1}])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_fit_with_hardly_any_noise_has_the_coefficients_of_all_records(settings, sparse):
    """Whatever the coordinates: their mean, and its deviation, are those of rows as they come."""
    X, y, _ = table(20_000, np.random.default_rng(3))
    if "classes" in settings:
        y = y + (np.random.default_rng(4).random(len(y)) < 0.3)
    plan = PrivacyPlan(noise_multiplier=1e-6, sampling_rate=1.0, n_steps=40, clip_norm=10.0)
    X = sp.csr_array(X) if sparse else X
    model = BayesianLogisticRegression(privacy=plan, max_norm=1.0, **settings).fit(X, y)
    plain = BayesianLogisticRegression(max_norm=1.0, **settings | {"prior": settings.get("prior", 0.02)}).fit(X, y)
    distance = (model.posterior_.mean - plain.last_posterior_.mean) / plain.last_posterior_.std
    np.testing.assert_allclose(distance, 0.0, atol=0.15)


@pytest.mark.slow
def test_counts_and_persons_have_coordinates():
    X, y, w = table(20_000, np.random.default_rng(5))
    p, rng = expit(X @ w - 0.3), np.random.default_rng(6)
    binomial = BayesianBinomialRegression(n_trials=4, privacy=EASY, max_norm=1.0).fit(X, rng.binomial(4, p))
    counts = np.minimum(rng.negative_binomial(2.0, 1.0 - p), 9)
    negative = BayesianNegativeBinomialRegression(dispersion=2.0, max_count=9, privacy=EASY, max_norm=1.0).fit(
        X, counts
    )
    persons = BayesianLogisticRegression(privacy=EASY, max_norm=1.0).fit(X, y, groups=np.arange(len(X)) // 3)
    for model in (binomial, persons, negative):
        np.testing.assert_allclose(model.coef_.ravel(), w, atol=1.0)


def test_fits_that_learn_no_coordinates():
    X, y, _ = table(500, np.random.default_rng(7))
    for settings in ({"covariance": "diagonal"}, {"statistics": "paper"}):
        model = BayesianLogisticRegression(**{"privacy": NOISY, "max_norm": 1.0} | settings).fit(X, y)
        assert model.last_posterior_.search is None
    plain = BayesianLogisticRegression(privacy=PrivacyPlan.non_private(sampling_rate=1.0, n_steps=10)).fit(X, y)
    assert plain.last_posterior_.search is None


def test_one_event_a_step_and_the_accounting_of_equal_steps():
    X, y, _ = table(500, np.random.default_rng(8))
    model = BayesianLogisticRegression(privacy=NOISY, max_norm=1.0).fit(X, y)
    assert model.last_posterior_.search.zooms.n_zooms == 4
    assert model.privacy_.plan.phases == ()
    assert model.privacy_.epsilon(1e-6) == pytest.approx(NOISY.epsilon(1e-6))


def test_coordinates_follow_from_released_totals_alone():
    """With frozen totals in its steps, a fit to other records has the same coordinates and coefficients."""
    fits = []
    for seed in range(2):
        X, y, _ = table(300 + seed, np.random.default_rng(seed))
        model = BayesianLogisticRegression(privacy=NOISY, max_norm=1.0)
        rng = np.random.default_rng(9)

        def frozen(update, rng=rng):
            def updated(average, noise_std, posterior):
                totals = {name: rng.normal(5.0, 1.0, np.shape(value)) for name, value in average.items()}
                return update(totals, noise_std, posterior)

            return updated

        with_updates(model, frozen)
        fits.append(model.fit(X, y).last_posterior_)
    first, second = (fit.to_arrays() for fit in fits)
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=name)


def test_coordinates_have_sizes_above_zero():
    with pytest.raises(ValueError, match="finite"):
        Coordinates(np.zeros(2), np.array([1.0, 0.0]))


def test_totals_of_columns_are_those_of_rows_as_they_come():
    X, y, _ = table(20_000, np.random.default_rng(11))
    model = BayesianLogisticRegression(privacy=EASY, max_norm=1.0).fit(X, y)
    totals = model.feature_totals()
    np.testing.assert_allclose(totals.means, X.mean(axis=0), atol=0.01)
    ratio = totals.squares / totals.size / np.square(X).mean(axis=0)
    np.testing.assert_allclose(ratio, 1.0, rtol=0.1)  # weighted by p (1 - p)


@pytest.mark.parametrize(
    "make", [BayesianLogisticRegression, partial(BayesianLinearRegression, target_range=(-1.0, 2.0))]
)
def test_totals_count_rows_of_rare_categories_like_others(make):
    rng, n = np.random.default_rng(12), 20_000
    is_rare = rng.random(n) < 0.005
    X = np.column_stack([is_rare, ~is_rare, rng.normal(0.5, 0.1, n)]) / 2.0
    totals = make(privacy=EASY, max_norm=1.0).fit(X, rng.integers(0, 2, n)).feature_totals()
    assert totals.squares[0] / totals.squares[1] == pytest.approx(is_rare.sum() / (n - is_rare.sum()), rel=0.15)
    np.testing.assert_allclose(totals.means[2], X[:, 2].mean(), atol=0.002)


def one_deviation(plan, total, blocks, randomness, step):
    """As if each entry of a sum were one deviation of its noise."""
    return {name: np.full(block.shape, plan.noise_std() * block.scale) for name, block in blocks.items()}


def _noise_of_zooms_is_that_of_their_moments(name):
    seen, after = [], Zooms.after

    def noted(self, moments, std, *others, **named):
        seen.append((moments[0, 0], std))
        return after(self, moments, std, *others, **named)

    plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.5, n_steps=11, clip_norm=1.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Zooms, "after", noted)
        patch.setattr(PrivacyPlan, "add_noise", one_deviation)
        ZOOMING[name](privacy=plan, max_norm=1.0).fit(np.zeros((3, 2)), np.arange(3) % 2)
    assert len(seen) == 4
    for moment, std in seen:
        assert std == pytest.approx(moment, rel=1e-12), "zooms are told of other noise than their moments have"


ZOOMING = {
    "logistic": BayesianLogisticRegression,
    "counts": partial(BayesianNegativeBinomialRegression, max_count=3),
    "linear": partial(BayesianLinearRegression, target_range=(-1.0, 2.0)),
    "mixed": partial(MixedLogisticRegression, random_effects=("intercept",)),
}


def noise_without_the_unit_of_moments(patch):
    """That of the sum."""
    for owner, block in ((AugmentedRegression, "moments"), (BayesianLinearRegression, "second")):

        def mutant(self, average, noise_std, previous, original=owner._zoomed, block=block):
            after = Zooms.after
            with pytest.MonkeyPatch.context() as inner:
                inner.setattr(
                    Zooms, "after", lambda zooms, moments, _, *others, **named: after(
                        zooms, moments, noise_std[block], *others, **named
                    )
                )  # fmt: skip
                return original(self, average, noise_std, previous)

        patch.setattr(owner, "_zoomed", mutant)


@pytest.mark.filterwarnings("ignore::vips.PrivacyWarning")
@pytest.mark.parametrize("name", ZOOMING)
def test_noise_of_zooms_is_that_of_their_moments(name, monkeypatch):
    _noise_of_zooms_is_that_of_their_moments(name)
    if name != "mixed":  # whose moments are summed in their own unit
        check = lambda: _noise_of_zooms_is_that_of_their_moments(name)  # noqa: E731
        check_notices(check, noise_without_the_unit_of_moments, monkeypatch, "told of other noise")


def test_counts_of_columns_are_those_of_the_first_zoom_and_rows_that_a_target_clips_count_at_least_as_much():
    X, *_ = table(20_000, np.random.default_rng(12))
    counts = zoomed(X).counts_of(3)
    np.testing.assert_allclose(counts.squares, np.square(X).sum(axis=0), rtol=1e-12)
    assert counts.size == pytest.approx(len(X))
    X[:, 2] = np.random.default_rng(13).uniform(0.5, 1.0, len(X))  # a target
    counts = zoomed(X).counts_of(2)
    assert (counts.squares / counts.size >= np.square(X[:, :2]).mean(axis=0)).all()
    assert Zooms.declared(3, 1.0, 0.5).counts_of(3) is None


def _of_prices(n: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Log-normal prices, two normal columns, and labels that depend on the logarithm of the price."""
    rng = np.random.default_rng(5)
    X = np.column_stack([np.exp(rng.normal(3.0, 1.2, n)).clip(0.0, 2000.0), rng.normal(size=(n, 2)).clip(-4.0, 4.0)])
    return pd.DataFrame(X, columns=["price", "x", "z"]), (rng.random(n) < expit(0.5 * np.log(X[:, 0]) - 2.3)).astype(
        int
    )


def _fitted_to_prices(X, y, bound: float = 2000.0) -> object:
    encoder = TableEncoder({"price": (0.0, bound), "x": (-4.0, 4.0), "z": (-4.0, 4.0)})
    return make_private_pipeline(encoder, BayesianLogisticRegression(), privacy=PrivacyBudget(1.0, 1e-6)).fit(X, y)


def test_clips_hardly_move_the_effect_of_a_column_with_a_long_tail():
    """In limits that know sampling, from maximum likelihood of the model's straight line, which is not the truth."""
    X, y = _of_prices(50_000)
    ordinary, errors = BayesianLogisticRegression().fit(X.to_numpy(), y).coef_.ravel()[0], []
    for _ in range(6):
        with pytest.warns(PrivacyWarning, match="variance of price is in few rows"):
            told = _fitted_to_prices(X, y).summary().loc["price"]
        errors.append((told["mean"] - ordinary) / told["std"])
    assert np.mean(errors) < 2.0


@pytest.mark.parametrize(("bound", "is_untold"), [(2000.0, True), (200.0, False)])
def test_noise_that_hides_a_long_tail_is_warned_of(bound, is_untold):
    pipeline = _fitted_to_prices(*_of_prices(3_500), bound)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pipeline.summary()
    assert any("Noise hides whether a part of the variance of price" in str(of.message) for of in caught) == is_untold


def test_a_narrow_column_in_wide_bounds_that_a_later_zoom_saw_is_not_called_unread():
    rng = np.random.default_rng(6)
    X = pd.DataFrame(rng.normal(size=(20_000, 3)).clip(-4.0, 4.0), columns=["x", "y", "z"])
    encoder = TableEncoder(dict.fromkeys(X, (-40.0, 40.0)))
    for model in [BayesianLogisticRegression()] * 5 + [BayesianLinearRegression(target_range=(-4.0, 4.0))]:
        pipeline = make_private_pipeline(encoder, model, privacy=PrivacyBudget(1.0, 1e-6))
        with warnings.catch_warnings():
            warnings.filterwarnings("error", ".*was read.*")
            pipeline.fit(X, rng.integers(0, 2, len(X))).summary()


def test_rows_with_a_rare_category_keep_their_weight():
    """Each of four rare flags turns the effect of a number: maximum likelihood is in between."""
    rng, n = np.random.default_rng(8), 40_000
    flags, x = rng.random((n, 4)) < [0.005, 0.01, 0.015, 0.02], rng.normal(size=n).clip(-4.0, 4.0)
    y = rng.random(n) < expit(np.where(flags.any(axis=1), -1.0, 1.0) * x - 0.5)
    columns = {f"flag {i}": [False, True] for i in range(4)} | {"x": (-4.0, 4.0)}
    X = pd.DataFrame(flags, columns=list(columns)[:4]).assign(x=x)
    pipeline = make_private_pipeline(
        TableEncoder(columns), BayesianLogisticRegression(), privacy=PrivacyBudget(1.0, 1e-6)
    )
    ordinary, errors = BayesianLogisticRegression().fit(X.to_numpy(float), y).coef_.ravel()[-1], []
    for _ in range(4):
        told = pipeline.fit(X, y).summary().loc["x"]
        errors.append((told["mean"] - ordinary) / told["std"])
    assert np.mean(errors) < 3.0  # 6.9 if rare flags had the deviation of other columns
