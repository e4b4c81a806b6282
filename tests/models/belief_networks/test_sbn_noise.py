"""Biases and weights of belief networks given noisy totals."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

import vips
from vips import PrivacyPlan, PrivacyWarning, RobbinsMonro, SigmoidBeliefNetwork
from vips.models.belief_networks import noise_aware
from vips.models.belief_networks.trail import KEPT, Trail

pytestmark = pytest.mark.usefixtures("many_generated_records")


def records(n_records, n_visible, rng):
    """Parameters and records of a network with one hidden unit, which every record determines."""
    c, w, b = rng.normal(size=n_visible), 3.0 * rng.choice([-1.0, 1.0], n_visible), rng.normal(scale=0.5)
    z = rng.random((n_records, 1)) < expit(b)
    return c, w, b, rng.random((n_records, n_visible)) < expit(z * w + c)


def fitted(X, noise_multiplier, n_steps=20, **arguments):
    """At the default clip, which binds: all records have about the same weight."""
    plan = PrivacyPlan(noise_multiplier=noise_multiplier, sampling="full", n_steps=n_steps, reproducible_noise=True)
    return SigmoidBeliefNetwork(1, privacy=plan, random_state=0, **arguments).fit(X)


def as_found(model, c, w, b):
    """The same network, with the label of its unit as the fit found it."""
    turned = model.posterior_.weights.mean[:, 0] @ w < 0.0
    return (c + w, -w, -b) if turned else (c, w, b)


def errors(model, posterior, truth):
    """In standard deviations: of c, of w, of b."""
    means = posterior.visible_bias.mean, posterior.weights.mean[:, 0], posterior.hidden_bias.mean
    variances = posterior.visible_bias.var, posterior.weight_variances[:, 0], posterior.hidden_bias.var
    return [(m - t) / np.sqrt(v) for m, t, v in zip(means, as_found(model, *truth), variances, strict=True)]


def share_held(errors):
    return float((np.abs(errors) < 1.96).mean())


def check_intervals_hold_the_truth_where_those_of_the_fit_do_not():
    """Under little noise, so that most errors are those of the fit; 80 intervals each."""
    *truth, X = records(4000, 40, np.random.default_rng(0))
    model = fitted(X, 3.0)
    visible, weights, hidden = errors(model, model.noise_aware_posterior_, truth)
    assert share_held(np.append(visible, weights)) > 0.88, "intervals miss the truth"
    assert abs(hidden[0]) < 3.0, "intervals miss the truth"
    _, naive, naive_hidden = errors(model, model.posterior_, truth)
    assert share_held(naive) < 0.8
    assert abs(naive_hidden[0]) > 3.0
    deviation = np.median(np.sqrt(model.noise_aware_posterior_.visible_bias.var))
    assert 0.03 < deviation < 0.3, "intervals are too wide"  # about those of 40 logistic regressions


def test_intervals_hold_the_truth_where_those_of_the_fit_do_not():
    check_intervals_hold_the_truth_where_those_of_the_fit_do_not()


@pytest.mark.slow
def test_synthetic_records_of_the_noise_aware_posterior_have_the_pairs_of_others():
    rng = np.random.default_rng(0)
    *_, X = records(40_000, 12, rng)
    model = fitted(X[:20_000], 3.0)
    others, *synthetic = (
        each.T.astype(float) @ each / 20_000
        for each in (X[20_000:], *(model.sample(20_000, rng, noise_aware=aware) for aware in (True, False)))
    )
    aware, naive = (np.abs(each - others).max() for each in synthetic)
    assert 3.0 * aware < naive


def check_simulated_totals_are_those_of_records():
    """With hardly any noise and two steps: the trail is that of the second step, at the network that the first one left."""
    c, w, b, X = records(4000, 12, np.random.default_rng(1))
    model = fitted(X, 1e-6, n_steps=2)
    trail, blocks, plan = model.posterior_.trail, model.blocks(), model.privacy_.plan
    kept = noise_aware._Records(trail, model.posterior_, blocks, plan.clip_weights, model.max_iter)
    of_one = kept.moments(noise_aware._Network(np.column_stack([c, w]), np.array([b])), seed=0)
    totals = noise_aware._released(trail, blocks, plan.noise_std(), 1.0)
    n, rows_var, hidden_var = noise_aware._expected(totals, of_one)
    assert abs(n - 4000.0) < 80.0, "the clip"
    rest = totals.rows - n * of_one.rows
    squares = np.einsum("ja,jab,jb->j", rest, np.linalg.inv(rows_var), rest) / 2.0
    assert squares.mean() < 2.5, "totals"  # twelve averages of two squares, of mean 1
    assert abs(totals.hidden - n * of_one.hidden)[0] < 4.0 * np.sqrt(hidden_var[0, 0]), "totals"


def test_simulated_totals_are_those_of_records():
    check_simulated_totals_are_those_of_records()


def check_slopes_are_those_of_the_means():
    """By a difference of simulated means, of one visible unit; records' hidden units change with it."""
    c, w, b, X = records(2000, 6, np.random.default_rng(2))
    model = fitted(X, 0.1, n_steps=12)
    kept = noise_aware._Records(
        model.posterior_.trail, model.posterior_, model.blocks(), model.privacy_.plan.clip_weights, model.max_iter
    )
    low, high = (np.column_stack([c, w]) for _ in range(2))
    low[0, 1], high[0, 1] = low[0, 1] - 0.3, high[0, 1] + 0.3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise_aware, "_N_RECORDS", 20_000)
        means = [kept.moments(noise_aware._Network(rows, np.array([b])), seed=0) for rows in (low, high)]
        slope = kept.moments(noise_aware._Network(0.5 * (low + high), np.array([b])), seed=1).rows_slope
    difference = (means[1].rows - means[0].rows)[0] / 0.6
    np.testing.assert_allclose(slope[0, :, 1], difference, atol=0.1 * np.abs(difference).max())


def test_slopes_are_those_of_the_means():
    check_slopes_are_those_of_the_means()


def check_stand_ins_notice_deviations_that_are_too_small(monkeypatch):
    *_, X = records(2000, 20, np.random.default_rng(3))
    model, given = fitted(X, 1.0, n_steps=12), []
    factors, deviations = noise_aware._factors, noise_aware._deviations
    monkeypatch.setattr(noise_aware, "_factors", lambda *arguments: given.extend(arguments) or factors(*arguments))
    model.to_noise_aware_posterior()
    usual = factors(*given)
    monkeypatch.setattr(noise_aware, "_deviations", lambda network: 0.25 * deviations(network))
    small = factors(*given)
    assert (usual >= 1.0).all()
    assert (usual < 2.0).all(), "factors"
    assert (small > 2.0).all(), "factors"


def test_stand_ins_notice_deviations_that_are_too_small(monkeypatch):
    check_stand_ins_notice_deviations_that_are_too_small(monkeypatch)


@pytest.mark.parametrize("schedule", [None, RobbinsMonro()])
def test_the_trail_is_the_average_of_the_last_totals(schedule, monkeypatch):
    *_, X = records(200, 5, np.random.default_rng(4))
    released, networks = [], []
    add_noise, to_posterior = PrivacyPlan.add_noise, SigmoidBeliefNetwork.to_posterior

    def recorded(model, average, noise_std, previous):
        networks.append(previous)  # of the E-steps
        return to_posterior(model, average, noise_std, previous)

    monkeypatch.setattr(PrivacyPlan, "add_noise", lambda *given: released.append(add_noise(*given)) or released[-1])
    monkeypatch.setattr(SigmoidBeliefNetwork, "to_posterior", recorded)
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=5)
    trail = SigmoidBeliefNetwork(2, privacy=plan, schedule=schedule).fit(X).posterior_.trail
    assert trail.n_steps == 3
    for name in KEPT:
        expected = 2.0 * np.mean([total[name] for total in released[2:]], axis=0)
        np.testing.assert_allclose(getattr(trail, name), expected, rtol=1e-9, atol=1e-9)
    expected = np.mean([network.weights.mean for network in networks[2:]], axis=0)
    np.testing.assert_allclose(trail.at_weights, expected)


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
@pytest.mark.filterwarnings("ignore:Noise hides:vips.PrivacyWarning")
def test_a_file_of_the_fit_gives_the_same_intervals(covariance, tmp_path):
    """A file holds released values only, and no record."""
    *_, X = records(300, 6, np.random.default_rng(5))
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=4)
    model = SigmoidBeliefNetwork(2, privacy=plan, covariance=covariance).fit(X)
    model.save(tmp_path / "model.npz")
    again, bounds = vips.load(tmp_path / "model.npz").noise_aware_posterior_, model.noise_aware_posterior_.interval(0.9)
    for name, (lower, upper) in again.interval(0.9).items():
        np.testing.assert_array_equal(lower, bounds[name][0])
        np.testing.assert_array_equal(upper, bounds[name][1])


def test_a_fit_to_nothing_stays_wide():
    model = fitted(np.zeros((5, 8), bool), 5.0, n_steps=4)
    with pytest.warns(PrivacyWarning, match="hides"):
        lower, upper = model.noise_aware_posterior_.interval(0.95)["visible_bias"]
    assert np.median(upper - lower) > 4.0


def test_a_fit_without_a_trail_says_so():
    *_, X = records(50, 4, np.random.default_rng(6))
    model = fitted(X, 1.0, n_steps=2)
    model.posterior_ = replace(model.posterior_, trail=None)
    with pytest.raises(AttributeError, match="did not keep the totals"):
        _ = model.noise_aware_posterior_


@pytest.mark.filterwarnings("ignore:Noise hides:vips.PrivacyWarning")
def test_the_clip_is_warned_of_for_persons_only():
    """The clip of rows is simulated; how persons' rows hang together is not known."""
    *_, X = records(1000, 20, np.random.default_rng(7))
    plan = PrivacyPlan(noise_multiplier=0.1, sampling_rate=1.0, n_steps=10, reproducible_noise=True)
    model = SigmoidBeliefNetwork(1, privacy=plan, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        _ = model.fit(X).noise_aware_posterior_
    model.fit(X, groups=np.arange(1000) // 2)
    with pytest.warns(PrivacyWarning, match="max_rows_per_group"):
        _ = model.noise_aware_posterior_


@pytest.mark.slow
def test_intervals_hold_the_truth_over_data_sets():
    held = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise_aware, "_N_RECORDS", 5_000)
        for seed in range(5):
            *truth, X = records(3000, 60, np.random.default_rng(100 + seed))
            model = fitted(X, 3.0)
            both = (errors(model, p, truth) for p in (model.posterior_, model.noise_aware_posterior_))
            held.append([(share_held(visible), share_held(hidden)) for visible, _, hidden in both])
    naive, aware = np.mean(held, axis=0)
    assert naive[0] < 0.85
    assert 0.9 < aware[0] < 0.99
    assert naive[1] < aware[1]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("at_weights", np.nan), ("count", np.inf), ("visible", 1j), ("n_steps", -1), ("at_visible_var", 0.0)],
)
def test_a_trail_that_no_fit_leaves_is_refused(name, wrong):
    average = {"count": 9.0, "hidden": np.ones(2), "visible": np.ones(3), "weights": np.ones((3, 2))}
    arrays = Trail.start(average).to_arrays()
    assert Trail.from_arrays(arrays).n_steps == 0
    arrays |= {"n_steps": np.array(4), "at_visible_var": np.ones(3)}
    assert Trail.from_arrays(arrays).n_steps == 4
    with pytest.raises(ValueError, match=r"must hold finite|must be at least 0|positive"):
        Trail.from_arrays(arrays | {name: np.full(arrays[name].shape, wrong)})
