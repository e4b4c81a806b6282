"""Linear dynamical systems read from their match: intervals hold where the clip binds, and what is read is the match."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from tests.mutants import check_notices
from vips import LinearDynamicalSystem, PrivacyPlan, compare, load
from vips.data import Sequences
from vips.models.components.matching.match import Match
from vips.models.dynamics import matching
from vips.models.dynamics.matching import SystemSimulator
from vips.models.dynamics.posterior import Dynamics
from vips.models.dynamics.smoothing import filtered, forecasts, samples

TRUTH = Dynamics(
    0.95 * np.array([[0.8, -0.3], [0.3, 0.8]]), 0.3 * np.eye(2), np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]),
    np.array([0.5, 0.0, -0.3]), np.array([0.3, 0.4, 0.3]), np.zeros(2), np.eye(2),
)  # fmt: skip
PLAN = PrivacyPlan.from_epsilon(epsilon=4.0, delta=1e-6, sampling_rate=1.0, n_steps=1)


@pytest.fixture(scope="module", autouse=True)
def few_draws():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vips.models.components.matching.match.N_DRAWS", 500)
        yield


@pytest.fixture(scope="module")
def more_simulated_sequences(many_generated_sequences):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SystemSimulator, "sizes", (2_000, 4_000, 2_000))
        yield


def sequences(n, seed=0, missing=0.05):
    rng = np.random.default_rng(seed)
    drawn, _ = samples(TRUTH, rng.integers(6, 25, n), rng)
    values = np.where(rng.random(drawn.values.shape) < missing, np.nan, drawn.values)
    return Sequences(values, drawn.offsets)


def fitted(seed=0, n=4_000, plan=PLAN, **settings):
    arguments = {"max_norm": 2.0, "typical_length": 6, "privacy": plan} | settings
    return LinearDynamicalSystem(2, **arguments).fit(sequences(n, seed))


@pytest.fixture(scope="module")
def fit():
    """A fit with limits: with as few simulated sequences as here one match in twelve refuses them."""
    return next(fit for fit in (fitted(n=2_000) for _ in range(6)) if "mean, lower" in fit.summary())


@pytest.fixture(scope="module")
def fits(more_simulated_sequences):
    return [fitted(seed) for seed in range(2)]


def check_that_intervals_hold(models):
    """In units of their deviations: of 15 numbers a fit that depend on each other."""
    for model in models:
        draws, of = model.posterior_.draws, TRUTH.canonical()
        for name, truth in (
            ("explained", of.explained()),
            ("offset", of.offset),
            ("noise_variance", of.noise_variance),
        ):
            z = (draws[name].mean - truth) / draws[name].std
            assert np.abs(z).max() < 5.0, f"intervals of {name} miss the truth"
            assert draws[name].std.max() < 0.1
        assert abs(model.match().n_records - 4_000) < 400, "numbers of sequences miss the truth"


def clips_are_forgotten(patch):
    patch.setattr(PrivacyPlan, "clip_weights", lambda plan, norms: np.ones(len(norms)))


def long_steps_are_forgotten(patch):
    patch.setattr(LinearDynamicalSystem, "_usable", lambda self, records: records)


def again(model):
    """The same fit, of which nothing was computed yet."""
    copied = LinearDynamicalSystem(**model.get_params())
    vars(copied).update({name: value for name, value in vars(model).items() if name != "_computed"})
    return copied


def test_scores_are_derivatives_of_the_likelihood(fit):
    simulator, charts = SystemSimulator.of(fit), fit.match().charts
    records, (system, first) = simulator.simulated(charts, 50, np.random.default_rng(1)), charts[:2]
    scores = simulator.scores(records, charts)

    def likelihood(step):
        of = system.system(step)
        return filtered(records, replace(of, start=first.mean[0], start_cov=first.covariances[0])).log_likelihood

    for place, step in enumerate(1e-5 * np.eye(system.size)):
        slopes = (likelihood(step) - likelihood(-step)) / 2e-5
        np.testing.assert_allclose(scores[:, place], slopes, atol=1e-5 * np.abs(slopes).max())
    many = simulator.scores(simulator.simulated(charts, 1_000, np.random.default_rng(2)), charts)
    z = many.mean(axis=0) / np.maximum(many.std(axis=0), 1e-12) * np.sqrt(1_000)
    assert np.abs(z).max() < 6.0


def test_turns_of_the_state_change_nothing_that_is_seen(fit):
    system = fit.match().charts[0]
    turned = system.system(1e-3 * system._turns()[:, 0])
    change = np.abs(turned.loadings - system.of.loadings).max()
    assert change > 1e-4
    np.testing.assert_allclose(turned.explained(), system.of.explained(), atol=0.02 * change)


@pytest.mark.slow
def test_what_people_read_is_the_match(fit, tmp_path):
    model, X = fit, sequences(50, 9)
    summary, draws = model.summary(), model.posterior_.draws
    for name in ("mean", "noise", "explained", "next"):
        assert ((summary[f"{name}, lower"] < summary[name]) & (summary[name] < summary[f"{name}, upper"])).all()
    assert (model.summary(level=0.5)["next, upper"] < summary["next, upper"]).all()
    np.testing.assert_allclose(model.observation_offset_, draws["offset"].mean, atol=0.01)
    np.testing.assert_allclose(model.observation_matrix_, draws["loadings"].mean, atol=0.05)
    model.save(tmp_path / "system.vips")
    loaded = load(tmp_path / "system.vips")
    np.testing.assert_allclose(loaded.transform(X), model.transform(X), rtol=1e-6)
    plain = LinearDynamicalSystem(2, privacy=PrivacyPlan.non_private(n_steps=20)).fit(sequences(500, 3))
    assert model.score(X) > plain.score(X) - 0.5
    names = [mover.name for mover in compare(model, plain).movers(5)]
    assert len(names) == 5


def test_what_cannot_be_matched_is_refused_in_words(monkeypatch):
    assert "Noise hides" in fitted(n=20, plan=replace(PLAN, noise_multiplier=50.0)).why_no_intervals()
    monkeypatch.setattr(matching, "_MOST_TOTALS", 100)
    refused = fitted(n=300)
    assert "too many moments" in refused.why_no_intervals()
    with pytest.warns(UserWarning, match="too many moments"):
        assert "mean, lower" not in refused.summary().columns


@pytest.mark.slow
@pytest.mark.usefixtures("more_simulated_sequences")
def test_intervals_hold_where_steps_and_sequences_are_clipped_and_cells_are_missing(fits):
    check_that_intervals_hold(fits)
    assert all(model.match().misfit < 3.0 for model in fits)


@pytest.mark.slow
@pytest.mark.usefixtures("more_simulated_sequences")
@pytest.mark.parametrize("mutant", [clips_are_forgotten, long_steps_are_forgotten])
def test_mutants_are_noticed(mutant, fits, monkeypatch):
    monkeypatch.setattr(Match, "check", lambda _: None)  # nor a refusal
    mutants = [again(model) for model in fits]
    check_notices(lambda: check_that_intervals_hold(mutants), mutant, monkeypatch, "miss the truth")


@pytest.mark.slow
@pytest.mark.usefixtures("more_simulated_sequences")
def test_forecasts_include_how_uncertain_the_parameters_are(fits):
    """By the law of total variance, over draws of the parameters; each draw's states have the covariance I in the long run."""
    model = fits[0]
    assert not model.why_no_intervals()
    new, systems = sequences(50, seed=9), model.posterior_.systems()
    n_draws = len(model.posterior_.draws["moves"].draws)
    assert len(systems) == len(range(0, n_draws, n_draws // 40))
    for of in systems:
        np.testing.assert_allclose(of.moves @ of.moves.T + of.moves_cov, np.eye(2), atol=1e-9)
    mean, lower, upper = model.forecast(new, n_steps=5, level=0.9)
    alone = [forecasts(new, [of], 5, 0.9) for of in systems]
    means = np.array([of_system[0] for of_system in alone])
    half = norm.ppf(0.95)
    variances = np.array([((of_system[2] - of_system[0]) / half) ** 2 for of_system in alone])
    np.testing.assert_allclose(mean, means.mean(axis=0))
    np.testing.assert_allclose(((upper - mean) / half) ** 2, variances.mean(axis=0) + means.var(axis=0), rtol=1e-9)
    assert (upper - lower).mean() > np.mean([of_system[2] - of_system[1] for of_system in alone])
