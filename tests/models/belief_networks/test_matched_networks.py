"""Belief networks that are matched to released totals: do they hold the truth, and are the others refused?"""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

import vips
from tests.mutants import check_notices
from vips import PrivacyPlan, SigmoidBeliefNetwork
from vips.core.sums.networks import Derivatives
from vips.models.belief_networks import matching

pytestmark = pytest.mark.usefixtures("many_generated_records")


def records(n_records, n_visible, rng):
    """Parameters and records of a network with one hidden unit, which every record determines."""
    c, w, b = rng.normal(size=n_visible), 3.0 * rng.choice([-1.0, 1.0], n_visible), rng.normal(scale=0.5)
    z = rng.random((n_records, 1)) < expit(b)
    return c, w, b, rng.random((n_records, n_visible)) < expit(z * w + c)


def fitted(X, noise_multiplier, n_steps=20, n_components=1, sampling=None, groups=None, **arguments):
    """At the default clip, which binds: all records have about the same weight."""
    sampling = sampling or {"sampling": "full"}
    plan = PrivacyPlan(noise_multiplier=noise_multiplier, n_steps=n_steps, reproducible_noise=True, **sampling)
    return SigmoidBeliefNetwork(n_components, privacy=plan, random_state=0, **arguments).fit(X, groups=groups)


def as_found(model, c, w, b):
    """The same network, with the label of its unit as the fit found it."""
    turned = model.last_posterior_.weights.mean[:, 0] @ w < 0.0
    return (c + w, -w, -b) if turned else (c, w, b)


def errors(model, posterior, truth):
    """In standard deviations: of c, of w, of b."""
    means = posterior.visible_bias.mean, posterior.weights.mean[:, 0], posterior.hidden_bias.mean
    variances = posterior.visible_bias.var, posterior.weight_variances[:, 0], posterior.hidden_bias.var
    return [(m - t) / np.sqrt(v) for m, t, v in zip(means, as_found(model, *truth), variances, strict=True)]


def share_held(errors):
    return float((np.abs(errors) < 1.96).mean())


@pytest.fixture(scope="module")
def model():
    *truth, X = records(4000, 40, np.random.default_rng(0))
    model = fitted(X, 3.0)
    model.truth = truth
    return model


def check_that_intervals_hold(n_steps=20, sampling=None):
    *truth, X = records(4000, 40, np.random.default_rng(0))
    check_intervals(fitted(X, 3.0, n_steps, sampling=sampling), truth)


def check_intervals(model, truth):
    """Under little noise, so that most errors are those of the fit; 80 intervals each."""
    assert not model.why_no_intervals(), "intervals are refused"
    visible, weights, hidden = errors(model, model.posterior_, truth)
    assert share_held(np.append(visible, weights)) > 0.88, "intervals miss the truth"
    assert abs(hidden[0]) < 3.0, "intervals miss the truth"
    assert 0.02 < np.median(np.sqrt(model.posterior_.visible_bias.var)) < 0.3, "intervals are too wide"


def test_intervals_hold_the_truth(model):
    check_intervals(model, model.truth)


@pytest.mark.slow
def test_sampled_steps_are_matched_too():
    check_that_intervals_hold(40, {"sampling_rate": 0.5})


def test_estimates_are_nearer_than_those_of_the_fit_whose_intervals_miss_the_truth(model):
    truth = as_found(model, *model.truth)
    distances = [
        np.linalg.norm(posterior.weights.mean[:, 0] - truth[1])
        for posterior in (model.last_posterior_, model.posterior_)
    ]
    assert distances[1] < 0.5 * distances[0]
    assert share_held(errors(model, model.last_posterior_, model.truth)[1]) < 0.8


def totals_at_the_truth(model, truth, n):
    """What the sweep says at the true network."""
    groups = matching.groups_of(model)
    totals = (
        matching._Totals.of(groups, matching._of_visible),
        matching._Totals.of(groups, lambda blocks: blocks["hidden"][None]),
    )
    c, w, b = as_found(model, *truth)
    return matching._sweep(model, groups, totals, np.append(np.column_stack([c, w]), b), n)[0]


def check_totals_at_the_truth():
    """With hardly any noise: the totals of three groups, in their deviations."""
    *truth, X = records(4000, 12, np.random.default_rng(1))
    match = totals_at_the_truth(fitted(X, 1e-6, n_steps=7), truth, 4_000)
    assert abs(match.n_records - 4000.0) < 80.0, "the clip"
    assert match.chi2 / (3 * 25) < 1.5, "totals"  # its mean is 1


def test_simulated_totals_are_those_of_records():
    check_totals_at_the_truth()


def check_step(sampled=0.0, size_var=0.0):
    """Records x ~ N(θ, 1) that are seen as 0.7 x + ½: totals are linear, so that one move is exact, and has a closed form."""
    rng, n, N, noise_var = np.random.default_rng(0), 200_000, 500.0, 300.0
    normal = rng.standard_normal(n // 2)
    x = np.append(normal, -normal)
    totals = matching._Totals(np.array([[900.0]]), np.array([[noise_var]]), np.array([[sampled]]))
    move, cov, chi2 = matching._step(
        (0.7 * x + 0.5)[None, None], x[None, None], totals, (N, size_var), np.zeros((1, 1)), np.array([2.0])
    )
    mean, var = 0.5, 0.7**2
    total_var = N * var + sampled * N * (var + mean**2) + size_var * mean**2 + noise_var
    precision = (N * 0.7) ** 2 / total_var + 2.0
    residual = 900.0 - N * mean
    np.testing.assert_allclose(cov[0, 0, 0], 1.0 / precision, rtol=0.02, err_msg="other deviations")
    np.testing.assert_allclose(move[0, 0], N * 0.7 * residual / total_var / precision, rtol=0.02, err_msg="other moves")
    np.testing.assert_allclose(chi2[0], residual**2 / total_var, rtol=0.02, err_msg="other distances")


def check_steps():
    check_step()
    check_step(sampled=3.0)
    check_step(size_var=2e3)


def test_a_step_has_a_closed_form():
    check_steps()


def check_few_simulated_records():
    """Simulation must find no information in statistics that have nothing to do with the parameters."""
    rng, curvatures = np.random.default_rng(0), []
    totals = matching._Totals(np.zeros((1, 8)), np.full((1, 8), 1.0), np.zeros((8, 8)))
    for _ in range(20):
        s, u = rng.standard_normal((1, 8, 200)), rng.standard_normal((1, 2, 200))
        _, cov, _ = matching._step(s, u, totals, (5_000.0, 0.0), np.zeros((1, 2)), np.ones(2))
        curvatures.append(np.trace(np.linalg.inv(cov[0])) - 2.0)
    assert np.mean(curvatures) < 8.0, "information of noise"


def test_the_error_of_the_simulation_is_no_information():
    check_few_simulated_records()


def check_slopes():
    """Fisher's identity: covariances with the scores are differences of simulated means."""
    c, w, b, X = records(2000, 6, np.random.default_rng(2))
    model, n = fitted(X, 0.1, n_steps=12), 40_000
    group = matching.groups_of(model)[-1]

    def seen_at(weight):
        rng, rows = np.random.default_rng(0), np.column_stack([c, w])
        rows[0, 1] = weight
        design = np.column_stack([np.ones(n), rng.random(n) < expit(b)])
        p = expit(design @ rows.T)
        y = (rng.random(p.shape) < p).astype(float)
        s = matching._seen(matching._sights(model, group, y), n, lambda of: of.derivatives.of_units(slice(0, 1)))
        return s[0], (y - p)[:, 0] * design.T

    (low, _), (high, _), (s, u) = (seen_at(w[0] + step) for step in (-0.3, 0.3, 0.0))
    difference, slope = (high.mean(axis=1) - low.mean(axis=1)) / 0.6, s @ u[1] / n
    np.testing.assert_allclose(slope, difference, atol=0.1 * np.abs(difference).max(), err_msg="other slopes")


def test_slopes_are_those_of_the_means():
    check_slopes()


def test_statistics_by_unit_add_up_to_those_of_the_fit():
    *_, X = records(60, 5, np.random.default_rng(3))
    model = fitted(X, 1.0, n_steps=3, n_components=2)
    statistics, weights = model.expected_statistics(X, model.last_posterior_), np.random.default_rng(0).random(60)
    total = statistics.weighted_sum(weights)
    by_unit = statistics.derivatives.of_units(slice(1, 4)) @ weights
    np.testing.assert_allclose(by_unit[:, 0], total["visible"][1:4])
    np.testing.assert_allclose(by_unit[:, 1:], total["weights"][1:4])
    np.testing.assert_allclose(statistics.centred.T @ weights, total["hidden"])


def the_clip_is_not_simulated(patch):
    sights = matching._sights
    patch.setattr(
        matching,
        "_sights",
        lambda *given: [sight._replace(weights=np.ones_like(sight.weights)) for sight in sights(*given)],
    )


def totals_are_taken_for_those_of_another_step(patch):
    groups_of = matching.groups_of

    def mutant(model):
        groups = groups_of(model)
        return [replace(group, steps=groups[-1].steps) for group in groups]

    patch.setattr(matching, "groups_of", mutant)


def hidden_units_are_taken_for_known(patch):
    """Without the part of the derivative that their variances cause."""
    patch.setattr(
        Derivatives,
        "of_units",
        lambda self, units: np.concatenate(
            [self._arrays[1][:, units].T[:, None], self._arrays[1][:, units].T[:, None] * self._arrays[2].T], axis=1
        ),
    )


def moves_go_the_wrong_way(patch):
    step = matching._step
    patch.setattr(matching, "_step", lambda s, u, totals, *others: step(s, -u, totals, *others))


def samples_are_forgotten(patch):
    step = matching._step
    patch.setattr(
        matching,
        "_step",
        lambda s, u, totals, *others: step(s, u, replace(totals, sampled=0.0 * totals.sampled), *others),
    )


def noise_is_forgotten(patch):
    step = matching._step
    patch.setattr(
        matching,
        "_step",
        lambda s, u, totals, *others: step(s, u, replace(totals, noise_var=0.0 * totals.noise_var), *others),
    )


def the_number_of_records_is_taken_for_known(patch):
    step = matching._step
    patch.setattr(matching, "_step", lambda s, u, totals, size, *others: step(s, u, totals, (size[0], 0.0), *others))


def records_are_paired_with_themselves(patch):
    patch.setattr(matching, "_of_pairs", lambda curvature, *others: curvature)


def weights_of_records_have_no_label(patch):
    """Scores by y alone."""
    seen = matching._seen
    patch.setattr(matching, "_seen", lambda sights, n, of: np.abs(seen(sights, n, of)))


@pytest.mark.parametrize(
    ("check", "mutant", "says"),
    [
        pytest.param(
            check_that_intervals_hold, moves_go_the_wrong_way, "intervals are refused", marks=pytest.mark.slow
        ),
        (check_totals_at_the_truth, the_clip_is_not_simulated, "the clip|totals"),
        (check_totals_at_the_truth, totals_are_taken_for_those_of_another_step, "the clip|totals"),
        (check_totals_at_the_truth, hidden_units_are_taken_for_known, "totals"),
        (check_steps, moves_go_the_wrong_way, "other moves"),
        (check_steps, samples_are_forgotten, "other"),
        (check_steps, noise_is_forgotten, "other"),
        (check_steps, the_number_of_records_is_taken_for_known, "other"),
        (check_few_simulated_records, records_are_paired_with_themselves, "information of noise"),
        (check_slopes, weights_of_records_have_no_label, "other slopes"),
    ],
)
def test_mutants_are_noticed(check, mutant, says, monkeypatch):
    check_notices(check, mutant, monkeypatch, says)


def test_what_people_read_is_the_match(model, tmp_path):
    posterior, X = model.posterior_, records(50, 40, np.random.default_rng(9))[-1]
    np.testing.assert_array_equal(model.components_, posterior.weights.mean.T)
    np.testing.assert_array_equal(model.intercept_visible_, posterior.visible_bias.mean)
    summary = model.summary()
    assert (summary["lower"] < summary["mean"]).all()
    assert (summary["mean"] < summary["upper"]).all()
    assert summary.loc["hidden 0 → x3", "mean"] == posterior.weights.mean[3, 0]
    lower, upper = posterior.interval(0.95)["hidden_bias"]
    np.testing.assert_allclose(summary.loc["bias of hidden 0", ["lower", "upper"]], np.append(lower, upper))
    narrow = model.summary(level=0.5)
    assert ((narrow["upper"] - narrow["lower"]) < (summary["upper"] - summary["lower"])).all()
    assert model.findings()["misfit of the released totals (standard deviations)"] == model.match().misfit
    model.save(tmp_path / "network.vips")
    loaded = vips.load(tmp_path / "network.vips")
    np.testing.assert_allclose(loaded.transform(X), model.transform(X))
    assert loaded.match().chi2 == pytest.approx(model.match().chi2)


@pytest.mark.slow
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
@pytest.mark.repeated("diagonal")
def test_a_match_has_the_family_of_the_fit(covariance):
    *_, X = records(2000, 10, np.random.default_rng(5))
    posterior = fitted(X, 1.0, covariance=covariance, n_components=1).posterior_
    assert (posterior.weights.mean.shape, posterior.weight_variances.shape) == ((10, 1), (10, 1))
    assert (posterior.weights.precision.ndim == 3) == (covariance == "full")


@pytest.mark.slow
def test_groups_of_steps_that_contradict_each_other_are_refused():
    refused = fitted(records(4000, 10, np.random.default_rng(0))[-1], 3.0)
    steps = [
        replace(step, totals=step.totals | {"visible": -step.totals["visible"]}) if step.number > 10 else step
        for step in refused.noisy_totals_.steps
    ]
    refused.noisy_totals_ = replace(refused.noisy_totals_, steps=tuple(steps))
    assert steps[-1].number == 20
    assert refused.match().misfit > 3.0
    assert "not those of such records" in refused.why_no_intervals()
    np.testing.assert_array_equal(refused.components_, refused.last_posterior_.weights.mean.T)
    assert list(refused.summary().columns) == ["mean"]


def test_units_that_noise_hides_have_no_intervals():
    hidden = fitted(np.zeros((5, 8), bool), 5.0, n_steps=4)
    assert re.search(r"Records do not tell|not those of such records", hidden.why_no_intervals())


def test_fits_without_noise_and_of_persons_and_of_too_many_totals_have_no_match():
    *_, X = records(300, 6, np.random.default_rng(6))
    with pytest.raises(NotImplementedError, match="kept"):
        SigmoidBeliefNetwork(1, random_state=0).fit(X).match()
    with pytest.raises(NotImplementedError, match="all rows of a person"):
        fitted(X, 1.0, groups=np.arange(300) // 2).match()
    wide = fitted(np.zeros((20, 3_000), bool), 1.0, n_steps=2, n_components=2)
    assert wide.noisy_totals_.steps == ()
    with pytest.raises(NotImplementedError, match="kept"):
        wide.match()


@pytest.mark.slow
def test_synthetic_records_have_the_pairs_of_others(monkeypatch):
    """The clip makes weights of the fit too large."""
    monkeypatch.setattr(matching, "_FEW", 3_000)
    monkeypatch.setattr(matching, "_MANY", 8_000)
    *_, X = records(40_000, 12, np.random.default_rng(0))
    model = fitted(X[:20_000], 3.0)

    def error() -> float:
        rows = model.sample(20_000, random_state=0)[0]
        return np.abs(rows.T.astype(float) @ rows - X[20_000:].T.astype(float) @ X[20_000:]).max() / 20_000

    matched = error()
    monkeypatch.setattr(type(model), "posterior_", property(lambda model: model.last_posterior_))
    assert 3.0 * matched < error()


@pytest.mark.slow
def test_intervals_hold_the_truth_over_data_sets():
    held = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "_MANY", 8_000)
        for seed in range(5):
            *truth, X = records(3000, 60, np.random.default_rng(100 + seed))
            model = fitted(X, 3.0)
            both = (errors(model, p, truth) for p in (model.last_posterior_, model.posterior_))
            held.append([(share_held(visible), share_held(weights)) for visible, weights, _ in both])
    naive, aware = np.mean(held, axis=0)
    assert naive[1] < 0.85
    assert (aware > 0.9).all()
    assert (aware < 0.99).all()
