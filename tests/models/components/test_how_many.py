"""How many components one fit's totals tell of: right where they can be told, and merged charts keep what records give."""

import numpy as np
import pytest
from hmmlearn import hmm
from sklearn.mixture import GaussianMixture

from tests.mutants import check_notices
from vips import (
    BayesianGaussianMixture,
    BayesianLogisticRegression,
    CategoricalHMM,
    GaussianHMM,
    LatentClassAnalysis,
    PoissonHMM,
    PrivacyPlan,
    how_many,
)
from vips.data import Sequences
from vips.models.components.matching import match as matches
from vips.models.components.matching.charts import Gaussians, Rates, Simplexes
from vips.models.components.matching.how_many import HowMany
from vips.models.components.matching.match import ChartMatch

PLAN = PrivacyPlan.from_epsilon(epsilon=2.0, delta=1e-5, sampling_rate=1.0, n_steps=20, reproducible_noise=True)
SHARES = np.array([0.5, 0.3, 0.2])


def of_classes(n_classes, n_records=6_000, seed=0):
    """Answers to six questions."""
    rng = np.random.default_rng(seed)
    chances = np.array([[0.1] * 3 + [0.8] * 3, [0.8] * 3 + [0.2] * 3, [0.9] * 6])[:n_classes]
    shares = SHARES[:n_classes] / SHARES[:n_classes].sum()
    return (rng.random((n_records, 6)) < chances[rng.choice(n_classes, n_records, p=shares)]).astype(int)


def fit_of_classes(n_classes, fitted=3):
    return LatentClassAnalysis(fitted, categories=[2] * 6, privacy=PLAN, random_state=1).fit(of_classes(n_classes))


@pytest.fixture(scope="module")
def models():
    return {n: fit_of_classes(n) for n in (1, 2)}


def check_numbers(models):
    said = {n: how_many(model).best for n, model in models.items()}
    assert said == {n: n for n in models}, f"other numbers: {said}"


def test_classes_are_counted(models):
    check_numbers(models)
    told = how_many(models[2])
    assert list(told.criteria) == list(told.misfits) == [1, 2, 3]
    assert told.criteria[2] == 0.0
    assert told.misfits[1] > 10.0
    assert str(told) == "The released totals tell of 2 classes; noise would hide others."
    assert told.to_frame().loc[2, "criterion"] == 0.0
    assert told is how_many(models[2])  # computed once


def parameters_cost_nothing(patch):
    patch.setattr(matches, "_PER_PARAMETER", -1.0)


def the_variance_is_forgotten(patch):
    """Without log |V| and penalty, more components are always nearer."""
    patch.setattr(ChartMatch, "criterion", property(lambda self: self.chi2))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [parameters_cost_nothing, the_variance_is_forgotten])
def test_mutants_are_noticed(mutant, models, monkeypatch):
    for model in models.values():
        model._computed.pop("how_many", None)
    check_notices(lambda: check_numbers(models), mutant, monkeypatch, "other numbers")
    for model in models.values():
        model._computed.pop("how_many", None)


@pytest.mark.slow
def test_components_and_states_are_counted():
    rng = np.random.default_rng(1)
    means = np.array([[-1.0, 0.0], [1.0, 0.5]])
    X = means[(rng.random(4_000) < 0.4).astype(int)] + 0.3 * rng.standard_normal((4_000, 2))
    mixture = BayesianGaussianMixture(3, max_norm=3.0, privacy=PLAN, random_state=0).fit(X)
    told = how_many(mixture)
    assert (told.best, told.name) == (2, "components")
    states = (rng.random((4_000, 10)) < 0.2).cumsum(axis=1) % 2
    counts = Sequences.from_list(list(rng.poisson(np.where(states, 6.0, 1.0))[:, :, None]))
    chain = PoissonHMM(3, max_count=20, n_features=1, typical_length=10, max_length=10, privacy=PLAN, random_state=0)
    told = how_many(chain.fit(counts))
    assert (told.best, told.name) == (2, "states")


@pytest.mark.parametrize(
    ("criteria", "misfits", "words"),
    [
        (
            [90.0, 0.0, 4.0],
            [9.0, 0.1, 0.0],
            "2 classes; noise would hide others. 3 would explain the totals about as well.",
        ),
        ([0.0, 40.0, 80.0], [0.1, 0.1, 0.0], "tell of no different classes; noise would hide some."),
        ([90.0, 40.0, 0.0], [9.0, 5.0, 0.0], "at least 3 classes: fit more"),
        ([90.0, 0.0, 40.0], [9.0, 5.0, 5.0], "No number of classes up to 3 explains"),
    ],
)
def test_numbers_are_said_in_words(criteria, misfits, words):
    told = HowMany(
        best=1 + int(np.argmin(criteria)),
        criteria=dict(enumerate(criteria, 1)),
        misfits=dict(enumerate(misfits, 1)),
        name="classes",
    )
    assert words in str(told)
    import matplotlib as mpl

    mpl.use("Agg")
    assert told.plot().get_xlabel() == "number of classes"


def test_models_without_components_are_refused():
    with pytest.raises(TypeError, match="not BayesianLogisticRegression"):
        how_many(BayesianLogisticRegression())
    plain = LatentClassAnalysis(2, random_state=0).fit(of_classes(2, 300))
    with pytest.raises(ValueError, match=r"how_many\(model, X\) fits every number"):
        how_many(plain)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:PoissonHMM has not settled")
def test_ordinary_fits_are_counted_by_bic():
    rng = np.random.default_rng(3)
    is_first = rng.random(600) < 0.4
    X = np.where(is_first[:, None], [0.0, 0.0], [3.0, 1.0]) + rng.standard_normal((600, 2))
    states = (rng.random((30, 20)) < 0.2).cumsum(axis=1) % 2
    answers = (rng.random((600, 8)) < np.where(is_first, 0.2, 0.8)[:, None]).astype(int)
    cases = {
        "components": (BayesianGaussianMixture(3, random_state=0), X),
        "classes": (LatentClassAnalysis(3, random_state=0), answers),
        "states": (
            PoissonHMM(3, max_count=30, random_state=0),
            list(rng.poisson(np.where(states, 7.0, 1.0))[:, :, None]),
        ),
    }
    for name, (model, records) in cases.items():
        told = how_many(model.fit(records), records)
        assert (told.best, told.name, list(told.bounds)) == (2, name, [1, 2, 3])
        assert str(told) == f"BIC is least with 2 {name} of up to 3; the bound is largest with 2, to within 3 nat."
        assert told.to_frame().loc[2, "criterion"] == 0.0
    by_em = how_many(BayesianGaussianMixture(2, inference="em").fit(X), X)  # the log likelihood is largest with most
    assert str(by_em) == "BIC is least with 2 components of up to 2: fit more to see whether there are others."
    assert list(by_em.to_frame()) == ["criterion"]


@pytest.mark.filterwarnings("error")  # a single component has settled at once
@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_bic_of_mixtures_is_that_of_scikit_learn(kind):
    X = np.random.default_rng(0).standard_normal((300, 3)) * [1.0, 2.0, 3.0]
    ours = BayesianGaussianMixture(1, covariance_type=kind, inference="em", reg_covar=0.0).fit(X)
    theirs = GaussianMixture(1, covariance_type=kind, reg_covar=0.0).fit(X)
    assert ours.bic(X) == pytest.approx(theirs.bic(X), rel=1e-6)


@pytest.mark.parametrize(
    ("ours", "theirs", "values"),
    [
        (GaussianHMM(1, covariance_type="full", inference="em"), "GaussianHMM", np.random.default_rng(0).normal(size=(60, 2))),
        (GaussianHMM(1, covariance_type="diag", inference="em"), "GaussianHMM", np.random.default_rng(0).normal(size=(60, 2))),
        (PoissonHMM(1, max_count=40, inference="em"), "PoissonHMM", np.random.default_rng(0).poisson(4.0, (60, 2))),
        (CategoricalHMM(1, n_symbols=3, inference="em"), "CategoricalHMM", np.random.default_rng(0).integers(0, 3, (60, 1))),
    ],
)  # fmt: skip
def test_bic_of_chains_is_that_of_hmmlearn(ours, theirs, values):
    """But for priors, of which hmmlearn's fits have some: both at the same parameters."""
    kind = {"covariance_type": ours.covariance_type} if theirs == "GaussianHMM" else {}
    peer = getattr(hmm, theirs)(1, **kind)
    model = ours.fit(values, [30, 30])
    peer.startprob_, peer.transmat_ = model.startprob_, model.transmat_
    if theirs == "GaussianHMM":
        peer.means_, covars = model.means_, model.covars_
        peer.covars_ = covars if ours.covariance_type == "full" else np.diagonal(covars, axis1=1, axis2=2)
    elif theirs == "PoissonHMM":
        peer.lambdas_ = model.lambdas_
    else:
        peer.n_features, peer.emissionprob_ = 3, model.emissionprob_
    peer.n_features = values.shape[1] if theirs != "CategoricalHMM" else 3
    assert model.bic(values, [30, 30]) == pytest.approx(peer.bic(values, [30, 30]), rel=1e-6)


def test_no_likelihood_counts_components_of_a_private_fit(models):
    with pytest.raises(NotImplementedError, match="does not maximise"):
        models[1].bic(of_classes(1, 300))
    with pytest.raises(ValueError, match="reads no records again"):
        how_many(models[1], of_classes(1, 300))


# -- merged charts ----------------------------------------------------------------------------------------------------

WEIGHTS = np.array([[0.0, 0.6, 0.4], [1.0, 0.0, 0.0]])
COVARIANCES = np.array([[[1.0, 0.3], [0.3, 0.5]], [[0.2, 0.0], [0.0, 0.4]], [[0.3, -0.1], [-0.1, 0.6]]])
MEANS = np.array([[0.0, 1.0], [2.0, -1.0], [-1.0, 0.5]])
CHARTS = {
    "simplexes": Simplexes(np.array([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]]), 1.0),
    "rates": Rates(np.array([[1.0, 4.0], [2.0, 2.0], [0.5, 9.0]]), 1.0, 0.1),
    "full": Gaussians(MEANS, np.linalg.cholesky(COVARIANCES), False, np.zeros(2), np.eye(2), (1.0, 2.0)),
    "diagonal": Gaussians(
        MEANS, np.sqrt(COVARIANCES * np.eye(2)), True, np.zeros(2), np.eye(2), (1.0, 2.0)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHARTS)
def test_merged_components_have_the_moments_of_their_mixture(name):
    merged = CHARTS[name].merged(WEIGHTS)
    if isinstance(merged, Gaussians):
        mean = WEIGHTS @ MEANS
        covariances = CHARTS[name].covariances
        second = covariances + MEANS[:, :, None] * MEANS[:, None, :]
        expected = np.einsum("nk,kij->nij", WEIGHTS, second) - mean[:, :, None] * mean[:, None, :]
        np.testing.assert_allclose(merged.mean, mean)
        is_compared = np.eye(2, dtype=bool) if merged.is_diagonal else np.ones((2, 2), bool)
        np.testing.assert_allclose(merged.covariances[:, is_compared], expected[:, is_compared])
    else:
        field = "p" if name == "simplexes" else "rates"
        np.testing.assert_allclose(getattr(merged, field), WEIGHTS @ getattr(CHARTS[name], field))


@pytest.mark.parametrize("name", CHARTS)
def test_equal_components_are_nearest(name):
    doubled = CHARTS[name].merged(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]))
    apart = doubled.apart()
    np.testing.assert_allclose(apart, apart.T)
    np.testing.assert_allclose([apart[1, 2], *np.diagonal(apart)], 0.0, atol=1e-12)
    assert apart[0, 1] > 0.1


def test_merged_states_are_in_the_same_places():
    """Shares of the steps, and what follows each state, add up."""
    rng = np.random.default_rng(0)
    codes = [rng.integers(0, 4, (6, 1)) for _ in range(2_000)]
    model = CategoricalHMM(3, n_symbols=4, max_length=6, typical_length=6, privacy=PLAN, random_state=0)
    model.fit(Sequences.from_list(codes))
    simulator, charts = model.simulator(), model.match().charts
    into = np.array([0, 1, 0])
    shares, fewer = simulator.components(charts)[0], simulator.merged(charts, into)
    np.testing.assert_allclose(fewer[0].p.sum(), 1.0)
    np.testing.assert_allclose(fewer[1].p.sum(axis=1), 1.0)
    expected = np.array([shares[[0, 2]].sum(), shares[1]])
    np.testing.assert_allclose(simulator.components(fewer)[0], expected, atol=0.02)
