"""Classes of numbers, counts and categories: against scikit-learn, against latent classes, and what one record can change."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import norm, poisson
from sklearn.mixture import GaussianMixture

import vips
from tests.memory import NOISE, peak_of
from tests.models.mixtures.tables import LEVELS, answers, one_hot, textbook_step
from tests.plans import every
from vips import MixedLatentClassAnalysis, PrivacyPlan
from vips.data import NpySource
from vips.expfam import Dirichlet
from vips.models.components.categories import Answers
from vips.models.components.columns import Posteriors
from vips.models.mixtures import mixed
from vips.persistence.archive import read_archive, write_archive
from vips.persistence.settings import encode
from vips.report.unread import TELLS_OF_NOISE

pd = pytest.importorskip("pandas")
K = 3
COLUMNS = {"age": (0, 110), "visits": range(41), "sex": ["f", "m"], "income": (0.0, 20.0), "town": ["a", "b", "c"]}


def people(n, seed=0, missing=0.05):
    """A data frame of three kinds of people, and their kinds."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(K, n, p=[0.5, 0.3, 0.2])
    table = pd.DataFrame({
        "unused": np.arange(n),
        "age": rng.normal(np.array([30.0, 55.0, 80.0])[kind], np.array([8.0, 7.0, 5.0])[kind]).round(),
        "visits": rng.poisson(np.array([1.0, 3.0, 9.0])[kind]),
        "sex": np.where(rng.random(n) < np.array([0.2, 0.8, 0.5])[kind], "f", "m"),
        "income": rng.normal(np.array([3.0, 7.0, 2.0])[kind], np.array([1.0, 2.0, 0.5])[kind]),
        "town": np.array(["a", "b", "c"])[(kind + (rng.random(n) < 0.3)) % 3],
    })  # fmt: skip
    table = table.astype({"age": float, "visits": float, "sex": object, "town": object})
    for name in COLUMNS:
        table.loc[rng.random(n) < missing, name] = None if name in ("sex", "town") else np.nan
    return table, kind


def model_of(privacy, **settings):
    return MixedLatentClassAnalysis(
        **({"n_components": K, "columns": COLUMNS, "random_state": 0} | settings), privacy=privacy
    )


def agreement(model, table, kind):
    predicted = model.predict(table)
    return sum(max(np.mean((predicted == k) & (kind == j)) for j in range(K)) for k in range(K))


# -- where it coincides with other models ---------------------------------------------------------------------------


def test_numbers_alone_are_scikit_learns_mixture():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(centre, 1.0, (200, 4)) for centre in (-3.0, 0.0, 2.0)])
    settings = {"n_components": K, "columns": [(-20, 20)] * 4, "inference": "em", "random_state": 0}
    start, end = (MixedLatentClassAnalysis(**settings, privacy=every(n)).fit(X) for n in (3, 23))
    columns, posterior = start._columns(start.last_posterior_.frame).components[0], start.last_posterior_
    means, deviations = columns.in_units(posterior.columns["numbers"])
    peer = GaussianMixture(
        K, covariance_type="diag", reg_covar=0.0, max_iter=20, tol=0.0, weights_init=start.weights_, means_init=means,
        precisions_init=deviations**-2.0,
    )  # fmt: skip
    with pytest.warns(Warning, match="converge"):
        peer.fit(X)
    means, deviations = (
        end._columns(end.last_posterior_.frame).components[0].in_units(end.last_posterior_.columns["numbers"])
    )
    np.testing.assert_allclose(end.weights_, peer.weights_, rtol=1e-8)
    np.testing.assert_allclose(means, peer.means_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(deviations**2, peer.covariances_, rtol=1e-8)
    np.testing.assert_allclose(end.score_samples(X), peer.score_samples(X), rtol=1e-8)
    np.testing.assert_allclose(end.predict_proba(X), peer.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("inference", ["vb", "em"])
def test_categories_alone_are_latent_classes(inference):
    codes = answers(300)
    settings = {"n_components": K, "columns": list(LEVELS), "inference": inference, "random_state": 0}
    start, end = (MixedLatentClassAnalysis(**settings, privacy=every(n)).fit(codes) for n in (3, 13))

    def arrays(model):
        tables = [part.concentration for part in model.last_posterior_.columns["answers"]]
        return model.last_posterior_.weights.concentration, np.hstack(tables)

    weights, tables = arrays(start)
    priors = (1.0 / K, 1.0) if inference == "vb" else (1e-12, 1e-12)
    for _ in range(10):
        weights, tables, _ = textbook_step(one_hot(codes), weights, tables, priors, inference == "vb")
    for ours, theirs in zip(arrays(end), (weights, tables), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)
    peer = vips.LatentClassAnalysis(K, categories=list(LEVELS), inference=inference, privacy=every(1)).fit(codes)
    columns = Posteriors(answers=Answers(map(Dirichlet, np.split(tables, np.cumsum(LEVELS)[:-1], axis=1))))
    peer.last_posterior_ = replace(peer.last_posterior_, weights=Dirichlet(weights), columns=columns)
    np.testing.assert_allclose(end.score_samples(codes), peer.score_samples(codes), rtol=1e-8)
    np.testing.assert_allclose(end.predict_proba(codes), peer.predict_proba(codes), atol=1e-9)


def test_counts_alone_are_a_poisson_mixture():
    rng = np.random.default_rng(1)
    X = rng.poisson(np.array([[1.0, 9.0], [6.0, 2.0], [12.0, 12.0]])[rng.integers(0, K, 400)]).astype(float)
    settings = {"n_components": K, "columns": [range(61)] * 2, "inference": "em", "random_state": 0}
    start, end = (MixedLatentClassAnalysis(**settings, privacy=every(n)).fit(X) for n in (3, 13))
    weights, rates = start.weights_, start.last_posterior_.columns["counts"].mean
    for _ in range(10):
        joint = np.log(weights) + poisson.logpmf(X[:, None], rates).sum(axis=2)
        shares = np.exp(joint - joint.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        weights, rates = shares.mean(axis=0), shares.T @ X / shares.sum(axis=0)[:, None]
    np.testing.assert_allclose(end.weights_, weights, rtol=1e-8)
    np.testing.assert_allclose(end.last_posterior_.columns["counts"].mean, rates, rtol=1e-8)


# -- all kinds of columns -------------------------------------------------------------------------------------------


def log_density(model, row):
    """Log density of one row in each class, by SciPy."""
    posterior, total = model.last_posterior_, np.log(model.weights_)
    numbers = [name for name in COLUMNS if isinstance(COLUMNS[name], tuple)]
    means, deviations = model._columns(posterior.frame).components[0].in_units(posterior.columns["numbers"])
    for i, name in enumerate(numbers):
        if not pd.isna(row[name]):
            total = total + norm.logpdf(np.clip(row[name], *COLUMNS[name]), means[:, i], deviations[:, i])
    if not pd.isna(row["visits"]):
        total = total + poisson.logpmf(row["visits"], posterior.columns["counts"].mean[:, 0])
    for name, part in zip(("sex", "town"), posterior.columns["answers"], strict=True):
        if row[name] in COLUMNS[name]:
            total = total + np.log(part.mean[:, COLUMNS[name].index(row[name])])
    return total


def test_densities_are_those_of_scipy():
    table, _ = people(300)
    model = model_of(every(20)).fit(table)
    logs = np.array([log_density(model, row) for _, row in table.iterrows()])
    largest = logs.max(axis=1)
    scores = largest + np.log(np.exp(logs - largest[:, None]).sum(axis=1))
    np.testing.assert_allclose(model.score_samples(table), scores, rtol=1e-9)
    np.testing.assert_allclose(model.predict_proba(table), np.exp(logs - scores[:, None]), atol=1e-10)


def check_kinds(model):
    table, kind = people(8_000)
    model.fit(table)
    assert agreement(model, table, kind) > 0.94
    summary = model.summary().sort_values("mean age")
    np.testing.assert_allclose(summary["mean age"], [30.0, 55.0, 80.0], atol=2.0)
    np.testing.assert_allclose(summary["std age"], [8.0, 7.0, 5.0], atol=3.0)
    np.testing.assert_allclose(summary["mean visits"], [1.0, 3.0, 9.0], atol=0.5)
    np.testing.assert_allclose(summary["share"], [0.5, 0.3, 0.2], atol=0.05)
    assert ("lower" in summary) == model.privacy.is_private
    assert "sex = f" in summary["typical answers"].iloc[1]


def test_kinds_of_people_are_found():
    check_kinds(model_of(every(60)))


def test_missing_at_random_does_not_bias():
    """Where a third of the cells is missing, classes are those of the whole table."""
    table, _ = people(8_000, missing=0.33)
    summary = model_of(every(100)).fit(table).summary().sort_values("mean age")
    np.testing.assert_allclose(summary["mean age"], [30.0, 55.0, 80.0], atol=1.0)
    np.testing.assert_allclose(summary["mean visits"], [1.0, 3.0, 9.0], atol=0.3)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.repeated("True")
def test_classes_begin_apart(wide, monkeypatch):
    """In the directions in which records vary together; where there are very many means, anywhere."""
    if wide:
        monkeypatch.setattr(mixed, "_MOST_MEANS", 3)
    table, _ = people(5_000, missing=0.0)
    first = model_of(every(2)).fit(table)
    features = first.components(first.last_posterior_)[0]
    apart = features - features.mean(axis=0)
    assert np.linalg.matrix_rank(apart, tol=1e-6) == K - 1
    whole = model_of(every(100)).fit(table)
    truth = whole.components(whole.last_posterior_)[0]
    truth = truth - truth.mean(axis=0)
    basis = np.linalg.svd(truth, full_matrices=False)[2][: K - 1]
    explained = np.square(apart @ basis.T).sum() / np.square(apart).sum()
    assert wide or explained > 0.95


HOSTILE = {
    "age": ["old", None, np.inf, -np.inf, 1e300, np.nan, object(), b"3", 2.0**63, 1j],
    "visits": [0.5, None, -1, np.inf, 1e300, "many", object(), [1], 2**70, np.nan],
    "sex": ["x", None, 1, np.nan, object(), b"f", ["f"], float("inf"), {"f"}, 1j],
    "income": [None] * 10,
    "town": [object()] * 10,
}


def test_no_value_raises_in_a_private_fit():
    table, _ = people(50)
    table = table.astype(object)
    hostile = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in HOSTILE.items()})
    whole = pd.concat([table[list(COLUMNS)], hostile], ignore_index=True)
    model = model_of(PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=8)).fit(whole)
    assert np.isfinite(model.score_samples(whole)).all()
    nothing = pd.DataFrame({name: pd.Series([None], dtype=object) for name in COLUMNS})
    np.testing.assert_allclose(model.predict_proba(nothing)[0], model.weights_, rtol=1e-10)


def test_numbers_beyond_their_bounds_are_cut():
    table, _ = people(200)
    model = model_of(every(10)).fit(table)
    beyond, at = table.head(4).copy(), table.head(4).copy()
    beyond[["age", "visits"]], at[["age", "visits"]] = [1e9, 1e9], [110.0, 40.0]
    np.testing.assert_array_equal(model.score_samples(beyond), model.score_samples(at))


def test_a_far_number_counts_no_more_than_one_at_the_limit_in_a_private_fit():
    model = MixedLatentClassAnalysis(
        2, columns=[(0, 1000), 2], privacy=PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=8)
    )
    model.n_features_in_ = 2
    _, posterior = model.start(np.random.default_rng(0))
    marginals = np.zeros(model._columns().n_marginals)
    marginals[:2] = 500.0  # all numbers below 63
    posterior = model._classes_of_marginals({"marginals": marginals[None]}, {"marginals": 0.0}, posterior)
    statistics = model.expected_statistics(np.array([[1000.0, 1.0], [300.0, 1.0], [30.0, 1.0]]), posterior)
    norms = statistics.norms(model._blocks_of_classes())
    np.testing.assert_allclose(norms[0] / statistics.shares[0] @ statistics.shares[0], norms[1] / statistics.shares[1]
                               @ statistics.shares[1], rtol=0.2)  # fmt: skip
    assert norms.max() <= model.max_record_norm() * (1.0 + 1e-8)


def test_samples_are_tables_like_the_fitted_one():
    table, _ = people(3_000, missing=0.0)
    table = table.astype({"age": int, "visits": "int32", "town": "category"})
    model = model_of(every(30)).fit(table)
    drawn, component = model.sample(4_000, random_state=1)
    assert list(drawn.columns) == list(COLUMNS)
    assert (drawn.dtypes == table[list(COLUMNS)].dtypes).all()
    np.testing.assert_allclose(drawn["age"].mean(), table["age"].mean(), rtol=0.03)
    np.testing.assert_allclose(drawn["visits"].mean(), table["visits"].mean(), rtol=0.06)
    assert drawn["age"].between(0, 110).all()
    assert component.shape == (4_000,)
    model.fit(drawn)


def test_arrays_and_sources_hold_numbers_and_codes(tmp_path):
    table, _ = people(500)
    codes = table[list(COLUMNS)].copy()
    for name in ("sex", "town"):
        codes[name] = [COLUMNS[name].index(value) if value in COLUMNS[name] else np.nan for value in codes[name]]
    X = codes.to_numpy(float)
    declared = [(0, 110), range(41), 2, (0.0, 20.0), 3]
    of_frame = model_of(every(5)).fit(table).last_posterior_.to_arrays()
    np.save(tmp_path / "x.npy", X)
    for data in (X, NpySource(tmp_path / "x.npy")):
        fitted = model_of(every(5), columns=declared).fit(data)
        for name, value in fitted.last_posterior_.to_arrays().items():
            np.testing.assert_allclose(value, of_frame[name], rtol=1e-9, atol=1e-12)
    assert fitted.sample(3)[0].shape == (3, 5)
    with pytest.raises(TypeError, match="declare the number of codes"):
        model_of(every(5), columns=list(COLUMNS.values())).fit(NpySource(tmp_path / "x.npy"))


@pytest.mark.slow
def test_files_hold_the_model(tmp_path):
    table, _ = people(300)
    model = model_of(PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=12)).fit(table)
    model.save(tmp_path / "m.vips")
    loaded = vips.load(tmp_path / "m.vips")
    assert loaded.columns == COLUMNS
    np.testing.assert_allclose(loaded.score_samples(table), model.score_samples(table), rtol=1e-6)
    pd.testing.assert_frame_equal(loaded.summary(), model.summary())


@pytest.mark.slow
def test_comparisons_match_classes():
    table, _ = people(3_000)
    baseline = model_of(every(40)).fit(table)
    plan = PrivacyPlan(noise_multiplier=0.05, sampling_rate=1.0, n_steps=40)
    private = model_of(plan, random_state=5).fit(table)
    parts = {part.name for part in private.posterior_parts(private.last_posterior_)}
    assert parts == {"weights", "means", "precisions", "rates", "answers: sex", "answers: town"}
    order = vips.compare(private, baseline).alignment.order
    np.testing.assert_allclose(private.weights_, baseline.weights_[order], atol=0.05)
    posterior = private.in_order(private.posterior_, order)
    np.testing.assert_array_equal(posterior.weights.mean, private.weights_[order])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (None, "`columns` must be"),
        ([], "`columns` must be"),
        ([(3, 1)], "bounds of a number"),
        ([(0, np.inf)], "bounds of a number"),
        ([(0, 1, 2)], "bounds of a number"),
        ([range(1, 4)], r"write range\(n\)"),
        ([range(1)], r"write range\(n\)"),
        ([["a", "a"]], "twice"),
        ([(0, 1), 2], "X has 1 columns, but 2 are declared"),
    ],
)
def test_declarations_that_cannot_work_are_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        MixedLatentClassAnalysis(2, columns=columns).fit(np.ones((3, 1)))


def test_base_measure_counts_factorials():
    model = model_of(every(2), columns=[range(41)], n_components=1).fit(np.array([[3.0], [0.0], [np.nan], [40.0]]))
    rate = model.last_posterior_.columns["counts"].mean[0, 0]
    expected = 3.0 * np.log(rate) - rate - gammaln(4.0)
    np.testing.assert_allclose(model.score_samples(np.array([[3.0], [np.nan]])), [expected, 0.0], atol=1e-12)


@pytest.mark.parametrize("model_class", [MixedLatentClassAnalysis, vips.LatentClassAnalysis])
@pytest.mark.repeated("MixedLatentClassAnalysis")
def test_a_file_that_declares_very_many_codes_takes_no_memory(model_class, tmp_path):
    codes, argument = answers(20, missing=0.0), model_class.argument
    model_class(2, **{argument: list(LEVELS)}, privacy=every(3)).fit(codes).save(tmp_path / "small.vips")
    header, arrays = read_archive(tmp_path / "small.vips", "model")
    many, small = [100_000] * 100, header["parameters"] | {argument: None}
    learnt = {name: value for name, value in header["learnt"].items() if name != "categories_"}
    forged = header | {"parameters": small | {argument: encode(many)}, "learnt": learnt | {"n_features_in_": 100}}
    write_archive(tmp_path / "forged.vips", "model", forged, arrays)

    def load():
        with pytest.raises(ValueError, match="its posterior is far smaller"):
            vips.load(tmp_path / "forged.vips")

    assert peak_of(load) < 2 * NOISE


def test_bounds_may_be_numpys():
    table, _ = people(200)
    columns = COLUMNS | {"age": (np.int64(0), np.float32(110))}
    MixedLatentClassAnalysis(2, columns=columns, privacy=every(2)).fit(table)
    with pytest.raises(ValueError, match="are a pair"):
        MixedLatentClassAnalysis(2, columns=[(0.0, 1e-170)]).fit(np.zeros((3, 1)))


def test_means_of_noise_stay_within_the_bounds():
    plan = PrivacyPlan(noise_multiplier=5.0, sampling="full", n_steps=10)
    for seed in range(2):
        model = MixedLatentClassAnalysis(2, columns=[(0.0, 1e6)], privacy=plan, random_state=seed).fit(
            np.full((50, 1), 3e5)
        )
        means = model.summary()["mean x0"]
        assert means.between(-1.0, 1e6 + 1.0).all()


def test_numbers_in_texts_are_numbers_and_what_is_none_is_missing_or_an_error():
    """As the encoder of tables reads them, in every container; a private fit raises for no cell."""
    table, _ = people(200)
    words = table.assign(age=table["age"].astype(str).where(table["age"].notna(), None))
    expected, noisy = model_of(every(3)).fit(table), PrivacyPlan(noise_multiplier=5.0, sampling="full", n_steps=2)
    for texts in (words, words.astype({"age": "string"}), words.astype({"age": object})):
        np.testing.assert_array_equal(model_of(every(3)).fit(texts).predict_proba(texts), expected.predict_proba(table))
        hostile = texts.assign(age=["<5", *texts["age"][1:]])
        with pytest.raises(ValueError, match="Column 'age' holds '<5', which is no number"):
            model_of(every(3)).fit(hostile)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", TELLS_OF_NOISE)  # of released totals
            warnings.filterwarnings("ignore", "X has columns that are not declared")  # of names
            model_of(noisy).fit(hostile)


@pytest.mark.slow
@pytest.mark.usefixtures("many_simulated_records")
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_kinds_of_people_are_found_privately(epsilon):
    check_kinds(model_of(PrivacyPlan.from_epsilon(epsilon=epsilon, delta=1e-5, sampling_rate=1.0, n_steps=60)))


@pytest.mark.slow
@pytest.mark.usefixtures("many_simulated_records")
def test_means_of_numbers_and_counts_are_matched(tmp_path):
    """Intervals of the summary hold the truth, and a saved file keeps them."""
    plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-5, sampling_rate=1.0, n_steps=20)
    plan = replace(plan, reproducible_noise=True)
    truth = np.array([[30.0, 55.0, 80.0], [1.0, 3.0, 9.0], [3.0, 7.0, 2.0]])
    held = []
    for seed in range(3):
        table, _ = people(6_000, seed=seed)
        model = model_of(plan).fit(table)
        summary = model.summary().sort_values("mean age")
        for name, means in zip(("mean age", "mean visits", "mean income"), truth, strict=True):
            held += list((summary[f"{name}, lower"] < means) & (means < summary[f"{name}, upper"]))
    assert np.mean(held) > 0.85
    model.save(tmp_path / "classes.vips")
    loaded = vips.load(tmp_path / "classes.vips").summary()
    pd.testing.assert_frame_equal(loaded, model.summary(), rtol=1e-4)
