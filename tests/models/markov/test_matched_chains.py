"""Chains of a factorial model that are matched to released totals: are scores and slopes derivatives, do intervals hold?"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import vips
from tests.models.markov.test_factorial import TEST, TRAIN, a_posterior
from tests.models.markov.test_matched_states import LENGTHS, check_slopes
from tests.mutants import check_notices
from vips import FactorialHMM, PrivacyPlan
from vips.data import Sequences
from vips.models.components.matching import match as matches
from vips.models.components.matching.charts import Gaussians, Simplexes, Tilts
from vips.models.components.matching.lengths import possible_lengths
from vips.models.components.matching.match import Match
from vips.models.components.matching.simulator import moments_of
from vips.models.components.matching.steps import totals_of
from vips.models.markov import matching
from vips.models.markov.factorial_matching import Effects, FactorialSimulator
from vips.models.markov.factorial_posterior import Prior

pytestmark = pytest.mark.usefixtures("many_generated_sequences")
PLAN = PrivacyPlan.from_epsilon(epsilon=4.0, delta=1e-5, sampling_rate=1.0, n_steps=24, reproducible_noise=True)
PRIOR = Prior(1.0, 2.0, 1e-3)

# -- lengths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("humps", [((8, 31),), ((5, 11), (27, 33))])
def test_law_of_lengths_gives_the_weights_of_lengths_of_any_kind(humps):
    """A clip at a typical length weighs them; the nearest law by likelihood has their mean weight."""
    simulator = FactorialSimulator(SimpleNamespace(max_length=100), possible_lengths(19.5, 100), 19.5, PRIOR)
    law, lengths = simulator.first_law(), simulator.lengths
    true = np.any([(lengths >= first) & (lengths <= last) for first, last in humps], axis=0)
    true = true / true.sum()

    def distance(tilts):
        at = law.moved(tilts)
        log_p = np.log(at.base) + at.features @ at.tilts
        return logsumexp(log_p) - true @ log_p, (at.p - true) @ at.features

    nearest = law.moved(minimize(distance, law.tilts, jac=True, method="BFGS").x).p
    for typical in (12.0, 20.0, 28.0):
        weights = np.minimum(lengths, typical)
        assert abs(nearest @ weights / (true @ weights) - 1.0) < 3e-3


# -- scores -----------------------------------------------------------------------------------------------------------


def test_few_long_sequences_are_simulated_at_once():
    """Draws are made for all steps that a sequence may have: of at most two million steps, whatever the lengths."""
    for mean, at_once in ((5.0, 4_000), (100.0, 500), (2_500.0, 200)):
        lengths = possible_lengths(mean, 10_000)
        simulator = FactorialSimulator(SimpleNamespace(max_length=10_000), lengths, mean, PRIOR)
        assert simulator.at_once == at_once
        assert simulator.at_once * lengths[-1] <= 2_000_000


def simulator_and_charts():
    """Two chains of three states, and two columns."""
    model = SimpleNamespace(n_features_in_=2, n_components=3, n_chains=2)
    rng, of_two = np.random.default_rng(0), np.array([[0.6, 0.0], [0.2, 0.5]])
    base = Gaussians(np.array([[0.5, -1.0]]), of_two[None], False, np.zeros(2), np.eye(2), (1.0, 2.0))
    features = np.array([[-1.0, 0.5], [0.0, -1.0], [1.0, 0.5]])
    charts = [
        Simplexes(rng.dirichlet(np.ones(3), 2), 1.0),
        Simplexes(rng.dirichlet(np.ones(3), 6), 1.0),
        Tilts(np.array([0.3, 0.4, 0.3]), features, np.array([0.2, -0.1]), 10.0),
        Simplexes(np.array([[0.8, 0.2]]), 1.0),
        Effects(base, rng.normal(size=(2, 2, 2)), 1.0),
    ]
    return FactorialSimulator(model, LENGTHS, 4.0, PRIOR), charts


def log_likelihood(sequence, charts):
    """By adding up over the states of both chains, step by step."""
    start, moves, lengths, missing, seen = charts
    total, moves = np.log(lengths.p[list(LENGTHS).index(len(sequence))]), moves.p.reshape(2, 3, 3)
    effects, at = np.concatenate([np.zeros((2, 1, 2)), seen.effects], axis=1), np.multiply.outer(*start.p)
    for t, x in enumerate(sequence):
        at = at if t == 0 else moves[0].T @ at @ moves[1]
        is_missing = int(np.isnan(x).any())
        total += np.log(missing.p[0, is_missing])
        if not is_missing:
            means = seen.base.mean[0] + effects[0, :, None] + effects[1]
            at = at * multivariate_normal.pdf(x - means, cov=seen.base.covariances[0])
        total += np.log(at.sum())
        at = at / at.sum()
    return total


def check_scores():
    check_slopes(*simulator_and_charts(), log_likelihood)


def test_scores_are_derivatives_of_the_log_likelihood():
    check_scores()


def other_chains_are_forgotten(patch):
    apart = FactorialSimulator.apart
    patch.setattr(FactorialSimulator, "apart", lambda *args: tuple(part[:, ::-1] for part in apart(*args)))


def means_are_forgotten(patch):
    scores = Effects.scores
    patch.setattr(Effects, "scores", lambda self, shares, X: scores(replace(self, effects=0 * self.effects), shares, X))


@pytest.mark.parametrize("mutant", [other_chains_are_forgotten, means_are_forgotten])
def test_mutants_of_scores_are_noticed(mutant, monkeypatch):
    check_notices(check_scores, mutant, monkeypatch, "another slope")


def test_simulated_sequences_are_of_the_model():
    simulator, charts = simulator_and_charts()
    records = simulator.simulated(charts, 20_000, np.random.default_rng(1))
    scores = simulator.scores(records, charts)
    z = scores.mean(axis=0) / (scores.std(axis=0) / np.sqrt(len(scores)) + 1e-12)
    assert np.abs(z).max() < 4.5


def test_charts_and_posteriors_are_two_forms_of_the_same():
    posterior = a_posterior()
    model = SimpleNamespace(n_features_in_=2, n_components=3, n_chains=2)
    simulator = FactorialSimulator(model, LENGTHS, 4.0, PRIOR)
    (chart,), steps = simulator.first(posterior), np.full((2, 3), 40.0)
    match = SimpleNamespace(best=lambda: [chart])
    (again,) = simulator.first(replace(posterior, **simulator.posterior(match, posterior, steps)))
    np.testing.assert_allclose(again.mean, chart.mean, atol=1e-12)
    np.testing.assert_allclose(again.base.covariances, chart.base.covariances, rtol=1e-12)
    back = np.linalg.inv(posterior.whitening)
    state = np.array([1, 2])  # of each chain
    mean = posterior.centre + back @ posterior.mean[:, [1, 3 + 2]].sum(axis=1)
    np.testing.assert_allclose(chart.mean[state @ [3, 1]], mean)


# -- fits -------------------------------------------------------------------------------------------------------------

TRUE = {
    "start": np.full((2, 2), 0.5),
    "moves": np.broadcast_to([[0.9, 0.1], [0.1, 0.9]], (2, 2, 2)),
    "offset": np.array([5.0, 0.0, -3.0]),
    "covariance": 0.25 * np.eye(3),
}


def cut(X):
    """The first 6 to 20 steps of sequences of 20."""
    lengths = np.random.default_rng(3).integers(6, 21, len(X))
    values = X.values.reshape(-1, 20, 3)[np.arange(20) < lengths[:, None]]
    return Sequences(values, np.concatenate([[0], np.cumsum(lengths)]))


SHORT = cut(TRAIN)


def fitted(X=SHORT, privacy=PLAN, n_chains=2, **settings):
    """Noise is reproducible."""
    arguments = {"max_norm": 9.0, "max_length": 20, "typical_length": 20, "n_features": 3, "random_state": 0}
    groups = settings.pop("groups", None)
    return FactorialHMM(n_chains, 2, privacy=privacy, **arguments | settings).fit(X, groups=groups)


@pytest.fixture(scope="module")
def fit():
    return fitted()


def held(model) -> list[bool]:
    draws = model.posterior_.draws
    limits = {name: draws[name].interval(0.95) for name in TRUE}
    within = [((limits[name][0] <= true) & (true <= limits[name][1])).ravel() for name, true in TRUE.items()]
    apart = np.sort(np.abs(np.diff(draws["means"].draws, axis=2)[:, :, 0]), axis=1)
    lower, upper = np.quantile(apart, [0.025, 0.975], axis=0)
    true = np.array([[0.0, 3.0, 2.0], [4.0, 0.0, 2.0]])
    return [*np.concatenate(within), *((lower <= true + 0.01) & (true - 0.01 <= upper)).ravel()]


def check_that_intervals_hold(model):
    share = np.mean(held(model))
    assert share > 0.8, f"intervals hold {share}"


@pytest.mark.slow
def test_intervals_hold(fit):
    assert not fit.why_no_intervals()
    check_that_intervals_hold(fit)


def clips_are_forgotten(patch):
    patch.setattr(PrivacyPlan, "clip_weights", lambda plan, norms: np.ones(len(norms)))


@pytest.mark.slow
def test_mutants_are_noticed(fit, monkeypatch):
    for module, name, value in ((matches, "_N_STARTS", 0), (matching, "check_told", lambda *_: None)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(Match, "check", lambda _: None)
    copied = FactorialHMM(**fit.get_params())
    vars(copied).update({name: value for name, value in vars(fit).items() if name != "_computed"})
    check_notices(lambda: check_that_intervals_hold(copied), clips_are_forgotten, monkeypatch, "intervals hold")


def check_covariances_are_slopes(model):
    """Covariances with scores against differences of means of the same draws, moved: within errors of the simulation."""
    simulator, totals, charts = model._simulator(), totals_of(model), model.match().charts
    n, h, effects = 4_000, 0.05, charts[4]
    moments, first = moments_of(simulator, charts, totals.groups, n), sum(chart.size for chart in charts[:4])
    sizes = simulator.scores(simulator.simulated(charts, n, np.random.default_rng(0)), charts).std(axis=0)
    for column in range(effects.size):
        step, at = h * np.eye(effects.size)[column], first + column
        moved = ([*charts[:4], effects.moved(sign * step)] for sign in (1, -1))
        ends = [moments_of(simulator, of, totals.groups, n).mean for of in moved]
        z = np.subtract(*ends) / (2 * h) - moments.slopes[:, at]
        z /= sizes[at] * np.sqrt(np.diagonal(moments.cov) / n) + 1e-9
        assert np.sqrt(np.mean(z**2)) < 2.0, f"coordinate {column} has another slope: {np.sqrt(np.mean(z**2))}"


@pytest.mark.slow
def test_covariances_with_scores_are_slopes(fit):
    check_covariances_are_slopes(fit)


@pytest.mark.slow
def test_mutants_of_slopes_are_noticed(fit, monkeypatch):
    check_notices(lambda: check_covariances_are_slopes(fit), means_are_forgotten, monkeypatch, "another slope")


@pytest.mark.slow
def test_what_people_read_is_the_match(fit, tmp_path):
    posterior, summary = fit.posterior_, fit.summary()
    for name, value in (
        ("moves", fit.transmat_), ("start", fit.startprob_), ("means", fit.means_), ("offset", fit.offset_),
        ("covariance", fit.covar_),
    ):  # fmt: skip
        np.testing.assert_allclose(value, posterior.draws[name].mean, atol=0.02)
    np.testing.assert_allclose(summary["share"], posterior.draws["shares"].mean.ravel(), atol=0.01)
    assert ((summary["lower"] < summary["share"]) & (summary["share"] < summary["upper"])).all()
    assert (fit.summary(level=0.5)["upper effect on x0"] < summary["upper effect on x0"]).all()
    assert fit.findings()["misfit of the released totals (standard deviations)"] == fit.match().misfit
    turned = posterior.in_order(np.array([1, 0]))
    np.testing.assert_array_equal(turned.draws["means"].mean, posterior.draws["means"].mean[::-1])
    np.testing.assert_array_equal(turned.draws["offset"].mean, posterior.draws["offset"].mean)
    widths = [part.distribution.interval(0.95) for part in fit.posterior_parts(posterior)]
    np.testing.assert_allclose(
        np.sort(widths[0][1].ravel()), np.sort(posterior.draws["start"].interval(0.95)[1].ravel())
    )
    fit.save(tmp_path / "chains.vips")
    loaded = vips.load(tmp_path / "chains.vips")
    np.testing.assert_allclose(loaded.score_samples(TEST), fit.score_samples(TEST), rtol=1e-6)
    assert loaded.match().chi2 == pytest.approx(fit.match().chi2)


@pytest.mark.slow
def test_estimates_are_not_those_of_the_last_step(fit):
    assert np.abs(fit.transmat_ - fit.last_posterior_.means_of_chain()[1]).max() > 1e-4
    assert not fit.last_posterior_.draws


def test_what_cannot_be_matched_is_refused_in_words():
    few = Sequences(TRAIN.values[:4_000], TRAIN.offsets[:201])
    with pytest.raises(NotImplementedError, match="kept"):
        fitted(few, PrivacyPlan.non_private(n_steps=4)).match()
    many = fitted(few, replace(PLAN, n_steps=3), n_chains=7)
    assert not many.noisy_totals_.steps
    assert "128 joint states" in many.why_no_intervals()
    with pytest.warns(vips.exceptions.PrivacyWarning, match="128 joint states"):
        assert "lower" not in many.summary()
    strict = PrivacyPlan.from_epsilon(epsilon=0.1, delta=1e-5, sampling_rate=1.0, n_steps=24)
    with pytest.raises(NotImplementedError, match="Noise hides how many"):
        fitted(few, strict).match()
