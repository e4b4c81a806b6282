"""Linear dynamical systems: fits without and with privacy, and what one sequence can change."""

from __future__ import annotations

import numpy as np
import pytest

import vips
from tests.models.dynamics import brute_force
from tests.plans import every
from vips import LinearDynamicalSystem, PrivacyPlan
from vips.data import Sequences
from vips.models.dynamics.posterior import Dynamics, DynamicsPosterior

K, P = 2, 3
RNG = np.random.default_rng(0)


def driven(n, rng=RNG, low=1, high=30):
    """Sequences of a system, some with gaps."""
    model = fitted_to(brute_force.a_system(seed=5))
    records = model.sample(n, rng, lengths=rng.integers(low, high, n))[0]
    records.values[rng.random(records.values.shape) < 0.03] = np.nan
    return records


def fitted_to(of, **arguments):
    """A model with these parameters."""
    model = LinearDynamicalSystem(len(of.start), **arguments)
    model.n_features_in_, model.last_posterior_ = len(of.offset), DynamicsPosterior(of, 1.0, 10.0)
    return model


DATA = driven(40)
HOSTILE = [
    np.empty((0, P)),
    np.full((30, P), np.nan),
    np.array([[0.0, np.nan, 2.0], [np.inf, -1.0, 0.5], [1e300, 1.0, 1.0], [1.7e308] * 3, [-np.inf] * 3, [1e-310] * 3]),
    np.full((5_000, P), 3.0),
    np.full((999, P), 1e9),
]


def arrays(posterior):
    return list(vars(posterior.dynamics).values())


def at_a_posterior(**arguments):
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=1)
    model = LinearDynamicalSystem(K, privacy=plan, **({"max_norm": 4.0} | arguments))
    model.n_features_in_ = P
    return model, DynamicsPosterior(brute_force.a_system(), 1.0, 10.0)


def test_the_bound_is_the_likelihood():
    for n_steps in (2, 8):
        model = LinearDynamicalSystem(K, privacy=every(n_steps)).fit(DATA)
        bound = model.bound(DATA, model.last_posterior_)
        np.testing.assert_allclose(model.score_samples(DATA).sum(), bound, rtol=1e-9)  # in other coordinates


@pytest.mark.slow
def test_em_ends_where_the_likelihood_is_level():
    from tests.models.dynamics.test_smoothing import slopes

    data = driven(12, np.random.default_rng(3), 3, 8)
    ends = [LinearDynamicalSystem(1, privacy=every(n)).fit(data).last_posterior_.dynamics for n in (2, 3000)]
    start, end = (slopes(lambda of: sum(brute_force.conditioned(of, row)[2] for row in data), of) for of in ends)
    assert np.abs(end).max() < 1e-3 < 1.0 < np.abs(start).max()


def test_attributes_are_one_system():
    model = LinearDynamicalSystem(K, privacy=every(5)).fit(DATA)
    names = (
        "transition_matrix", "transition_covariance", "observation_matrix", "observation_offset", "observation_variance",
        "initial_state_mean", "initial_state_covariance",
    )  # fmt: skip
    of = brute_force.Dynamics(*(getattr(model, f"{name}_") for name in names))
    values = list(DATA)[3]
    mean, cov, log_likelihood = brute_force.conditioned(of, values)
    record = Sequences.from_list([values])
    np.testing.assert_allclose(model.smooth(record)[0].ravel(), mean, rtol=1e-8)
    np.testing.assert_allclose(model.transform(record), model.smooth(record)[0], rtol=1e-8)
    np.testing.assert_allclose(model.smooth(record)[1][-1], cov[-K:, -K:], rtol=1e-8)
    np.testing.assert_allclose(model.score_samples(record).sum(), log_likelihood, rtol=1e-9)
    A, Q = model.transition_matrix_, model.transition_covariance_
    np.testing.assert_allclose(A @ A.T + Q, np.eye(K), atol=1e-9)
    for filtered, value in zip(model.filter(record), model.smooth(record), strict=True):
        np.testing.assert_allclose(filtered[-1], value[-1], rtol=1e-8)


def test_forecasts_are_those_of_the_joint_gaussian():
    model = LinearDynamicalSystem(K, privacy=every(5)).fit(DATA)
    of, values = model.last_posterior_.canonical, list(DATA)[5]
    longer = np.vstack([values, np.full((4, P), np.nan)])
    mean, cov, _ = brute_force.conditioned(of, longer)
    expected = mean[-4 * K :].reshape(4, K) @ of.loadings.T + of.offset
    means, lower, upper = model.forecast([values, np.empty((0, P))], n_steps=4, level=0.9)
    np.testing.assert_allclose(means[0], expected, rtol=1e-8)
    for t in range(4):
        block = cov[-(4 - t) * K :, -(4 - t) * K :][:K, :K]
        deviation = np.sqrt(np.diag(of.loadings @ block @ of.loadings.T) + of.noise_variance)
        np.testing.assert_allclose(upper[0, t] - means[0, t], 1.6448536269514722 * deviation, rtol=1e-8)
    np.testing.assert_allclose(lower, 2.0 * means - upper, rtol=1e-9)
    np.testing.assert_allclose(means[1, 0], of.loadings @ of.start + of.offset, rtol=1e-9)
    one = model.predict(Sequences.from_list([longer[: len(values) + 1]]))[-1]
    np.testing.assert_allclose(one, means[0, 0], rtol=1e-8)


def test_intervals_cover_what_comes():
    rng = np.random.default_rng(1)
    model = LinearDynamicalSystem(K, privacy=every(20)).fit(driven(400, rng, 10, 20))
    true = fitted_to(brute_force.a_system(seed=5))
    new = true.sample(2_000, rng, lengths=np.full(2_000, 10))[0].values.reshape(-1, 10, P)
    _, lower, upper = model.forecast(list(new[:, :7]), n_steps=3, level=0.8)
    assert ((lower < new[:, 7:]) & (new[:, 7:] < upper)).mean() == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("max_length", [2, 50])
def test_no_sequence_is_longer_than_the_largest_norm(max_length):
    model, posterior = at_a_posterior(max_length=max_length)
    values = np.zeros((max_length, P))
    values[:, 0] = 100.0
    norm = model._moment_statistics(Sequences.from_list([values]), posterior).norms(model.blocks())[0]
    assert 0.7 * model.max_record_norm() < norm <= model.max_record_norm()


def test_fits_without_privacy_take_gaps_and_empty_sequences():
    gaps = [np.empty((0, P)), np.full((30, P), np.nan), *DATA]
    model, without = (LinearDynamicalSystem(K, privacy=every(8)).fit(data) for data in (gaps, DATA))
    np.testing.assert_allclose(model.score_samples(DATA).sum(), without.score_samples(DATA).sum(), rtol=1e-2)
    empty = LinearDynamicalSystem(K, privacy=every(3)).fit([np.empty((0, P))] * 4)
    assert all(np.isfinite(array).all() for array in arrays(empty.last_posterior_))


def test_steps_longer_than_the_norm_are_scaled_down():
    model, posterior = at_a_posterior()
    long, short = np.array([[3.0, np.nan, 40.0]]), np.array([[0.3, np.nan, 4.0]])
    short *= 4.0 / np.sqrt(np.nansum(short**2))
    sums, expected = (
        model._moment_statistics(Sequences.from_list([sequence]), posterior).weighted_sum(np.ones(1))
        for sequence in (long, short)
    )
    for name, value in sums.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-12)


@pytest.fixture(scope="module")
def many():
    rng = np.random.default_rng(4)
    true = fitted_to(brute_force.a_system(seed=5))
    return true, *(true.sample(n, rng, lengths=rng.integers(5, 20, n))[0] for n in (6_000, 500))


@pytest.mark.parametrize(("epsilon", "least"), [pytest.param(1.0, 0.6, marks=pytest.mark.slow), (4.0, 0.95)])
def test_private_fits_learn(many, epsilon, least):
    true, train, test = many
    plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=1e-6, sampling_rate=1.0, n_steps=1)
    model = LinearDynamicalSystem(K, privacy=plan, max_norm=15.0, typical_length=12).fit(train)
    centred, cov = test.values - train.values.mean(axis=0), np.cov(train.values.T)
    alone = -0.5 * (
        (centred * np.linalg.solve(cov, centred.T).T).sum() + len(centred) * np.linalg.slogdet(2 * np.pi * cov)[1]
    )
    assert model.score_samples(test).sum() - alone > least * (true.score_samples(test).sum() - alone)
    assert model.last_posterior_.n_sequences == pytest.approx(6_000, rel=0.5)


def test_noise_that_hides_everything_leaves_a_valid_model():
    plan = PrivacyPlan(noise_multiplier=50.0, sampling_rate=1.0, n_steps=1)
    model = LinearDynamicalSystem(K, privacy=plan, max_norm=8.0).fit(DATA)
    drawn, states = model.sample(20, 0)
    assert np.isfinite(drawn.values).all()
    assert states.shape == (len(drawn.values), K)
    assert np.isfinite(model.forecast(DATA, n_steps=3)[2]).all()


@pytest.mark.parametrize(
    ("data", "lengths", "arguments", "error", "message"),
    [
        (np.zeros((5, 1)), None, {}, ValueError, "Pass `lengths`"),
        (np.zeros((5, 1)), [2, 2], {}, ValueError, "add up"),
        (np.zeros((5, 1)), [2, 3], {"n_lags": 2}, ValueError, "at least 3"),
        (np.array([["a"], ["b"]]), [1, 1], {}, TypeError, "numbers"),
        (DATA, None, {"max_norm": None}, ValueError, "max_norm"),
        (DATA, None, {"n_components": 0}, ValueError, "n_components"),
        (DATA, None, {"schedule": 3}, (TypeError, ValueError), "schedule"),
    ],
)
def test_what_cannot_work_is_refused(data, lengths, arguments, error, message):
    plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.5, n_steps=3)
    with pytest.raises(error, match=message):
        LinearDynamicalSystem(**({"n_components": K, "privacy": plan, "max_norm": 1.0} | arguments)).fit(data, lengths)


def test_samples_are_of_the_model():
    model = LinearDynamicalSystem(K, privacy=every(3)).fit(DATA)
    of = model.last_posterior_.canonical
    drawn, states = model.sample(20_000, 0, lengths=np.full(20_000, 3))
    _, cov, H, _, R = brute_force.joint(of, 3)
    covariance = np.cov(drawn.values.reshape(20_000, -1).T)
    expected = H @ cov @ H.T + np.diag(R)
    np.testing.assert_allclose(covariance, expected, atol=0.04 * expected.max())
    np.testing.assert_allclose(np.cov(states.reshape(20_000, -1).T), cov, atol=0.04 * cov.max())
    of_their_own = model.sample(4_000, 1)[0]
    assert of_their_own.lengths.mean() == pytest.approx(DATA.lengths.mean(), rel=0.1)
    one, states = model.sample(1, 0, lengths=[7])
    assert (len(one), one.values.shape, states.shape) == (1, (7, P), (7, K))


@pytest.mark.slow
def test_fits_can_be_compared():
    plan = PrivacyPlan.from_epsilon(epsilon=4.0, delta=1e-6, sampling_rate=1.0, n_steps=1)
    rng = np.random.default_rng(8)
    train, test = driven(2_000, rng), driven(100, rng)
    private = LinearDynamicalSystem(K, privacy=plan, max_norm=20.0).fit(train)
    comparison = vips.compare(private, LinearDynamicalSystem(K, privacy=every(5)).fit(train), test)
    assert "log likelihood per step" in str(comparison)


@pytest.mark.slow
def test_tables_of_a_known_system():
    """Half-lives and periods of a damped swing and a slow level, by hand; variances by simulation."""
    turn, shrink = 2 * np.pi / 12, 0.5 ** (1 / 8)
    moves = np.zeros((3, 3))
    moves[:2, :2] = shrink * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    moves[2, 2] = 0.5 ** (1 / 20)
    of = Dynamics(
        moves, 0.1 * np.eye(3), np.eye(3)[[0, 2]], np.array([5.0, 6.0]), np.array([0.5, 2.0]), np.zeros(3), np.eye(3)
    )
    model = LinearDynamicalSystem(3)
    model.n_features_in_, model.last_posterior_ = 2, DynamicsPosterior(of, 1.0, 10.0)
    modes = model.modes()
    np.testing.assert_allclose(modes["half-life"], [20.0, 8.0, 8.0], rtol=1e-9)
    np.testing.assert_allclose(modes["period"], [np.inf, 12.0, 12.0], rtol=1e-9)
    drawn = model.sample(1, random_state=0, lengths=[400_000])[0].values
    table = model.summary()
    np.testing.assert_allclose(table["mean"], drawn.mean(axis=0), atol=0.1)
    np.testing.assert_allclose(table["noise"] ** 2 / (1.0 - table["explained"]), drawn.var(axis=0), rtol=0.05)
    later = [np.cov(drawn[:-1, j], drawn[1:, j])[0, 1] for j in range(2)]
    np.testing.assert_allclose(table["next"] * table["explained"] * drawn.var(axis=0), later, rtol=0.1)


def test_a_forecast_can_be_drawn():
    pytest.importorskip("matplotlib").use("Agg")
    model = LinearDynamicalSystem(2, privacy=every(30)).fit(DATA)
    series = np.asarray(DATA[:1].values)
    axes = model.plot_forecast(series, n_steps=7, columns=[1])
    mean, _, upper = model.forecast([series], n_steps=7)
    line = axes.lines[1]
    np.testing.assert_allclose(line.get_xdata(), len(series) + np.arange(7))
    np.testing.assert_allclose(line.get_ydata(), mean[0, :, 1])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [model.column_names()[1]]
    assert axes.collections[0].get_paths()[0].get_extents().ymax == pytest.approx(upper[0, :, 1].max())
