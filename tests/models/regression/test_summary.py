"""Coefficients as people read them: units of the columns, references, signal against noise, plots, draws."""

import sys
import types
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import clone

from vips import (
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    CategoricalHMM,
    LatentDirichletAllocation,
    PrivacyBudget,
    PrivacyPlan,
    PrivacyWarning,
    load,
)
from vips.expfam import Gaussian
from vips.models._coefficient_tables import in_units, signal_of
from vips.models.regression.posterior import CoefficientPosterior
from vips.preprocessing import TableEncoder, make_private_pipeline

COLUMNS = {"age": (10, 90), "ward": ["A", "B", "C"], "smoker": [True]}
PLAN = PrivacyPlan(noise_multiplier=2.0, sampling_rate=1.0, n_steps=20)


def patients(n, seed=0):
    """Slope 0.04 a year, ward B 0.9 and C -0.6 against A, smokers 0.5; intercept -2.4 at age 0."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"age": rng.uniform(10, 90, n), "ward": rng.choice(["A", "B", "C"], n), "smoker": rng.random(n) < 0.3}
    )
    psi = (
        0.04 * frame["age"] + 0.9 * (frame["ward"] == "B") - 0.6 * (frame["ward"] == "C") + 0.5 * frame["smoker"] - 2.4
    )
    return frame, (rng.random(n) < 1 / (1 + np.exp(-psi))).astype(int)


TRUTH = [0.04, 0.9, -0.6, 0.5, -2.4]
NAMES = ["age", "ward: B against A", "ward: C against A", "smoker: True", "intercept"]


def fitted_to(frame, y, encoder, **settings):
    return BayesianLogisticRegression(max_norm=1.0, **settings).fit(encoder.fit_transform(frame), y)


def test_a_model_reads_in_units_of_the_columns():
    frame, y = patients(40_000)
    encoder = TableEncoder(COLUMNS)
    model = fitted_to(frame, y, encoder, privacy=PLAN)
    table = model.summary(features=encoder)
    assert table.index.tolist() == NAMES
    assert table.index.name == "log odds of y = 1"
    np.testing.assert_array_less(np.abs(table["mean"] - TRUTH), 4.5 * table["std"])
    assert (table["std"] < [0.002, 0.15, 0.15, 0.15, 0.2]).all()
    np.testing.assert_allclose(table["odds ratio"], np.exp(table["mean"]))
    np.testing.assert_allclose(table["P(> 0)"], norm.cdf(table["mean"] / table["std"]))
    np.testing.assert_allclose(table["upper"] - table["mean"], norm.ppf(0.975) * table["std"])
    narrow = model.summary(0.5, features=encoder)
    assert (narrow["upper"] - narrow["lower"] < 0.5 * (table["upper"] - table["lower"])).all()
    assert table.attrs["signal"].share > 0.9


def test_units_of_columns_give_the_same_predictor():
    """On rows, feature by feature: the linear predictor of the table is that of the encoded rows."""
    frame, y = patients(500)
    encoder = TableEncoder(COLUMNS)
    X = encoder.fit_transform(frame)
    model = BayesianLogisticRegression(max_norm=1.0).fit(X, y)
    mean = model.summary(features=encoder)["mean"]
    by_hand = frame["age"] * mean["age"] + frame["smoker"] * mean["smoker: True"] + mean["intercept"]
    for ward in "BC":
        by_hand = by_hand + (frame["ward"] == ward) * mean[f"ward: {ward} against A"]
    np.testing.assert_allclose(by_hand, model.decision_function(X), rtol=1e-9)


def test_deviations_of_differences_use_the_covariance():
    frame, y = patients(500)
    encoder = TableEncoder({"ward": ["A", "B", "C"]})
    model = BayesianLogisticRegression(max_norm=1.0).fit(encoder.fit_transform(frame), y)
    cov = model.posterior_.cov
    expected = np.sqrt(cov[1, 1] + cov[0, 0] - 2.0 * cov[0, 1])
    assert model.summary(features=encoder).loc["ward: B against A", "std"] == pytest.approx(expected)


def test_a_private_encoder_has_names_and_units_too():
    frame, y = patients(30_000)
    pipeline = make_private_pipeline(
        TableEncoder(), BayesianLogisticRegression(), privacy=PrivacyBudget(20.0, 1e-6)
    ).fit(frame, y)
    mean = pipeline.summary()["mean"]
    assert mean["age"] == pytest.approx(0.04, abs=0.008)
    assert mean["ward: B against A"] == pytest.approx(0.9, abs=0.3)


def test_an_empty_category_is_no_finding():
    """A direction without records, in which a fit wanders, has the deviation of the prior."""
    frame, y = patients(20_000)
    columns = {"age": (10, 90), "ward": ["A", "B", "C", "empty"]}
    plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, reproducible_noise=True)  # an interval misses 1 time in 20
    encoder = TableEncoder(columns)
    model = fitted_to(frame, y, encoder, privacy=plan, random_state=0)
    row = model.summary(features=encoder).loc["ward: empty against A"]
    assert row["lower"] < 0.0 < row["upper"]
    assert row["std"] > 0.5


def test_a_fit_to_nothing_says_so_and_one_to_something_does_not():
    frame, y = patients(8_000)
    encoder = TableEncoder(COLUMNS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        fitted_to(frame, y, encoder, privacy=PLAN).summary(features=encoder)
    plan = PrivacyPlan(noise_multiplier=400.0, sampling_rate=1.0, n_steps=20, reproducible_noise=True)
    noise = fitted_to(frame[:200], y[:200], encoder, privacy=plan, prior=1.0, random_state=0)
    with pytest.warns(PrivacyWarning, match="No coefficient stands out"):
        table = noise.summary(features=encoder)
    assert table.attrs["signal"].share < 0.9


def test_p_values_of_nothing_are_uniform():
    """Posteriors of estimates without effects, computed in closed form."""
    rng, p_values = np.random.default_rng(0), []
    root = rng.normal(size=(5, 5))
    information, prior = root @ root.T + 3.0 * np.eye(5), np.array([1.0, 1.0, 1.0, 1.0, 0.01])
    precision = information + np.diag(prior)
    for _ in range(400):
        estimate = np.append(np.zeros(4), 2.0) + np.linalg.cholesky(np.linalg.inv(information)) @ rng.normal(size=5)
        posterior = CoefficientPosterior(np.linalg.solve(precision, information @ estimate), precision)
        p_values.append(signal_of(posterior, prior[None], 4).p_value)
    for level in (0.05, 0.25, 0.5, 0.75):
        assert np.mean(np.array(p_values) < level) == pytest.approx(level, abs=0.09)


def test_several_classes_and_counts():
    rng = np.random.default_rng(1)
    X = rng.uniform(-0.5, 0.5, (900, 2))
    classes = BayesianLogisticRegression(max_norm=1.0).fit(X, rng.choice(["a", "b", "c"], 900))
    table = classes.summary()
    assert table.index.names == ["y", "log odds against later classes"]
    assert table.index.tolist() == [(label, name) for label in "ab" for name in ("x0", "x1", "intercept")]
    np.testing.assert_array_equal(table["mean"], classes.last_posterior_.mean.ravel())
    counts = BayesianNegativeBinomialRegression(fit_intercept=False).fit(X, rng.poisson(2.0, 900)).summary()
    assert counts.index.tolist() == ["x0", "x1"]
    assert "rate ratio" in counts.columns


def test_a_forest_plot_has_a_line_for_each_coefficient():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    frame, y = patients(2000)
    encoder = TableEncoder(COLUMNS)
    axes = fitted_to(frame, y, encoder).plot_coefficients(features=encoder)
    assert [label.get_text() for label in axes.get_yticklabels()] == NAMES[:-1]
    assert axes.get_xlabel() == "log odds of y = 1, with its 95 % interval"
    matplotlib.pyplot.close(axes.figure)


def test_draws_for_arviz(monkeypatch):
    """ArviZ itself is optional: what it is given."""
    given = {}
    stand_in = types.SimpleNamespace(from_dict=lambda **settings: given.update(settings) or settings)
    monkeypatch.setitem(sys.modules, "arviz", stand_in)
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-0.5, 0.5, (600, 2)), rng.integers(0, 3, 600)
    model = BayesianLogisticRegression(max_norm=1.0).fit(X, y)
    model.to_arviz(n_draws=3000, random_state=1)
    assert given["posterior"]["coef"].shape == (1, 3000, 2, 2)
    assert given["dims"] == {"coef": ["class", "feature"], "intercept": ["class"]}
    assert given["coords"] == {"feature": ["x0", "x1"], "class": [0, 1]}
    mean, std = given["posterior"]["coef"][0].mean(axis=0), model.last_posterior_.std[:, :2]
    np.testing.assert_allclose(mean, model.last_posterior_.mean[:, :2], atol=0.1 * std.max())


def test_tables_plots_and_reports_name_the_class(tmp_path):
    """By its column, in a pipeline and in a file, too."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    frame, y = patients(4000)
    readmitted = pd.Series(np.where(y, "<30", "NO"), name="readmitted")
    model = BayesianLogisticRegression(classes=["NO", "<30"])
    pipeline = make_private_pipeline(TableEncoder(COLUMNS), model, privacy=PrivacyBudget(5.0, 1e-6)).fit(
        frame, readmitted
    )
    pipeline.save(tmp_path / "p.vips")
    for fitted in (pipeline, load(tmp_path / "p.vips")):
        table = fitted.summary()
        assert table.index.name == "log odds of readmitted = '<30'"  # the last one as written, the first one if sorted
        assert table.loc["age", "mean"] > 0.0
        axes = fitted.plot_coefficients()
        assert axes.get_xlabel().startswith("log odds of readmitted = '<30', ")
        matplotlib.pyplot.close(axes.figure)
        assert 'classes of readmitted: NO and <30 (the last one is "yes")' in str(fitted.privacy_)
    fitted = BayesianLogisticRegression(max_norm=1.0).fit(np.eye(3), np.arange(3))
    assert fitted.fit(np.eye(3), readmitted[:3]).summary().index.name.endswith("'NO'")
    assert fitted.fit(np.eye(3), np.arange(3)).summary().index.names[0] == "y"  # of this fit


@pytest.mark.parametrize("labels", [lambda y: np.where(y, "yes", "no"), lambda y: np.where(y, 2, 7)])
def test_labels_that_are_no_class_are_called_possible(labels):
    """Nothing exact is said of them: the words follow from released totals."""
    frame, y = patients(4000)
    labels = labels(y)
    classes = ["No", "Yes"] if labels.dtype.kind == "U" else [0, 1]
    model = BayesianLogisticRegression(classes=classes)
    pipeline = make_private_pipeline(TableEncoder(COLUMNS), model, privacy=PrivacyBudget(1.0, 1e-6))
    # noise alone is not called so once in 200 fits
    assert any(pipeline.fit(frame, labels).privacy_.only_noise for _ in range(4))
    assert "usual causes: too few records for this ε; labels that are no declared class" in str(pipeline.privacy_)
    with pytest.warns(PrivacyWarning, match=r"Or perhaps no label is one of \[.*\], the declared classes"):
        pipeline.summary()


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (BayesianLogisticRegression(max_norm=2.0, classes=[0, 1]), "labelled"),
        (LatentDirichletAllocation(2, vocabulary=3), "counts"),
        (CategoricalHMM(2, n_symbols=3), "sequences"),
    ],
)
@pytest.mark.parametrize(("rows", "head"), [(None, "of each patient"), (3, "of rows")])
@pytest.mark.representatives("None-of each patient-model0-labelled", "3-of rows-model1-counts")
@pytest.mark.filterwarnings("ignore::vips.PrivacyWarning")
def test_a_summary_says_whose_effects_it_has(model, kind, rows, head):
    X = np.random.default_rng(0).integers(0, 3, (600, 3))
    data = {"labelled": (X / 3.0, X[:, 0] > 1.0), "counts": (X,), "sequences": (list(X),)}[kind]
    plan = PrivacyBudget(1.0, 1e-6).plan(n_steps=5, max_rows_per_group=rows)
    model = clone(model).set_params(privacy=plan)
    model.fit(*data, groups=pd.Series(np.arange(600) // 3, name="patient_id"))
    assert model.summary().columns.name == head
    model.set_params(privacy=PrivacyPlan.non_private(n_steps=5)).fit(*data)
    assert model.summary().columns.name is None


def test_a_hidden_column_far_from_its_origin_leaves_a_covariance():
    """Its coefficient is hardly known, and the intercept as little: rounding makes both one."""
    posterior = Gaussian.from_covariance(np.array([1.0, 2.0, 0.5]), np.diag([1e10, 1.0, 1e-4]))
    units = None, np.diag([0.25, 1.0]), np.array([-9.5, 0.3])
    variances = np.diagonal(in_units(posterior, units, has_intercept=True).cov)
    np.testing.assert_allclose(variances, [1e10 / 16.0, 1.0, 9.5**2 * 1e10], rtol=1e-6)
