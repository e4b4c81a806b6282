"""Latent classes that are matched to released totals: do they hold the truth, and are the others refused?"""

from dataclasses import replace

import numpy as np
import pytest

from tests.mutants import check_notices
from vips import LatentClassAnalysis, PrivacyPlan, StreamPlan, load
from vips.expfam import Dirichlet, Draws
from vips.models.components.matching import match
from vips.models.mixtures import posterior as classes

LEVELS = (3, 3, 2, 4, 3, 3, 2, 3)
SHARES = np.array([0.5, 0.3, 0.2])
PLAN = PrivacyPlan.from_epsilon(epsilon=2.0, delta=1e-5, sampling_rate=1.0, n_steps=20)


def tables(seed=3):
    rng = np.random.default_rng(seed)
    return [rng.dirichlet(np.full(size, 0.8), 3) for size in LEVELS]


def records(n, seed=0, missing=0.15, levels=LEVELS):
    rng = np.random.default_rng(seed)
    classes = rng.choice(3, n, p=SHARES)
    codes = np.column_stack([(rng.random((n, 1)) >= np.cumsum(t, axis=1)[classes]).sum(axis=1) for t in tables()])
    return np.where(rng.random(codes.shape) < missing, -1, codes)


def fitted(codes, privacy=PLAN, n_components=3, levels=LEVELS, **arguments):
    """Noise is reproducible."""
    if isinstance(privacy, PrivacyPlan):
        privacy = type(privacy)(**{**vars(privacy), "reproducible_noise": True})
    model = LatentClassAnalysis(n_components, categories=levels, privacy=privacy, random_state=1)
    return model.fit(codes, **arguments)


@pytest.fixture(scope="module")
def model():
    return fitted(records(8_000))


def matched_order(posterior):
    truth, ours = np.hstack(tables()), posterior.profiles
    order = np.abs(truth[:, None] - ours).sum(axis=-1).argmin(axis=1)
    assert len(set(order)) == 3
    return order


def share_held(model) -> float:
    order = matched_order(model.posterior_)
    posterior = model.posterior_.in_order(order)
    held = []
    for truth, part in zip((SHARES, *tables()), (posterior.weights, *posterior.columns["answers"]), strict=True):
        lower, upper = part.interval(0.95)
        held += list(((lower <= truth) & (truth <= upper))[truth > 0.02])
    return float(np.mean(held))


def check_that_intervals_hold():
    held = [share_held(fitted(records(12_000, seed=seed))) for seed in range(2)]
    assert np.mean(held) > 0.9, f"intervals hold {held}"


def test_estimates_are_nearer_than_those_of_the_fit(model):
    truth, fit = np.hstack(tables()), model.last_posterior_
    ours = model.posterior_.profiles
    assert share_held(model) > 0.8
    errors = [np.sqrt(np.mean((p[matched_order(fit)] - truth) ** 2)) for p in (fit.profiles, ours)]
    assert errors[1] < 0.7 * errors[0]


def test_what_people_read_is_the_match(model, tmp_path):
    posterior = model.posterior_
    assert isinstance(posterior.weights, Draws)
    np.testing.assert_array_equal(model.weights_, posterior.weights.mean)
    np.testing.assert_array_equal(model.components_, posterior.profiles)
    summary = model.summary()
    assert {"lower", "upper"} <= set(summary.columns)
    assert (summary["lower"] < summary["share"]).all()
    assert (summary["share"] < summary["upper"]).all()
    assert model.summary(level=0.5)["upper"].sum() < summary["upper"].sum()
    profiles = model.class_profiles(level=0.95)
    np.testing.assert_allclose(profiles.xs("mean", axis=1, level=1), model.class_profiles())
    assert (profiles.xs("lower", axis=1, level=1) <= profiles.xs("upper", axis=1, level=1)).all(axis=None)
    codes = records(50, seed=9)
    model.save(tmp_path / "classes.vips")
    loaded = load(tmp_path / "classes.vips")
    np.testing.assert_allclose(loaded.predict_proba(codes), model.predict_proba(codes), rtol=1e-6)
    assert loaded.match().chi2 == pytest.approx(model.match().chi2)
    assert model.findings()["misfit of the released totals (standard deviations)"] == model.match().misfit


def test_answers_that_copy_each_other_are_refused():
    codes = records(20_000, missing=0.0)
    copied = np.random.default_rng(1).random(len(codes)) < 0.5
    codes[copied, 1] = codes[copied, 0]
    refused = fitted(codes, n_components=2)
    assert refused.match().misfit > 3.0
    assert "not those of such records" in refused.why_no_intervals()
    with pytest.raises(NotImplementedError, match="not those of such records"):
        refused.class_profiles(level=0.95)
    np.testing.assert_array_equal(refused.weights_, refused.last_posterior_.weights.mean)
    assert "noise" in refused.summary().columns


def test_fits_without_noise_and_streams_have_no_match():
    codes = records(400)
    with pytest.raises(NotImplementedError, match="kept"):
        fitted(codes, PrivacyPlan.non_private(n_steps=5)).match()
    stream = StreamPlan(epsilon=1.0, delta=1e-6, n_batches=3)
    model = LatentClassAnalysis(2, categories=LEVELS, privacy=stream, random_state=0).partial_fit(codes)
    with pytest.raises(NotImplementedError, match="streams"):
        model.match()


@pytest.mark.slow
def test_skipped_questions_do_not_shift_shares():
    """Who says no is not asked four further questions: the clip treats both alike."""
    rng = np.random.default_rng(0)
    no = rng.random(20_000) < 0.5
    codes = np.column_stack([no.astype(int), *(np.where(no, -1, rng.integers(0, 2, len(no))) for _ in range(4))])
    for n_components in (1, 2):
        model = fitted(codes, n_components=n_components, levels=(2,) * 5)
        said = model.weights_ @ model.components_[:, 1]
        assert said == pytest.approx(no.mean(), abs=0.02)


@pytest.mark.slow
def test_posteriors_of_a_file_that_no_fit_makes_can_be_read():
    model = fitted(records(2_000))
    shares = np.array([1.0, 1e-300, 1e-300])
    model.last_posterior_ = replace(model.last_posterior_, weights=Dirichlet(shares))
    model.forget_computed()
    assert len(model.summary()) == 3
    assert np.isfinite(model.predict_proba(records(20))).all()


# -- as many simulated records as users have ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("many_simulated_records")
def test_intervals_hold_where_some_answers_are_missing():
    check_that_intervals_hold()


def clips_are_forgotten(patch):
    seen = classes.ClassSimulator.seen_in_persons

    def mutant(*arguments):
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(PrivacyPlan, "clip_weights", lambda plan, norms: np.ones(len(norms)))
            return seen(*arguments)

    patch.setattr(classes.ClassSimulator, "seen_in_persons", mutant)


def missing_answers_are_forgotten(patch):
    simulated = classes.ClassSimulator.simulated

    def mutant(self, charts, *arguments):
        shares, missing, *of_columns = charts
        return simulated(self, [shares, replace(missing, p=[1.0, 0.0] + 0.0 * missing.p), *of_columns], *arguments)

    patch.setattr(classes.ClassSimulator, "simulated", mutant)


@pytest.mark.slow
@pytest.mark.usefixtures("many_simulated_records")
@pytest.mark.parametrize("mutant", [clips_are_forgotten, missing_answers_are_forgotten])
def test_mutants_are_noticed(mutant, monkeypatch):
    monkeypatch.setattr(match, "_N_STARTS", 0)  # no other start helps
    monkeypatch.setattr(match.Match, "check", lambda _: None)  # nor a refusal
    monkeypatch.setattr(classes, "check_told", lambda *_: None)
    check_notices(check_that_intervals_hold, mutant, monkeypatch, "intervals hold")


@pytest.mark.slow
@pytest.mark.usefixtures("many_simulated_records")
def test_classes_that_noise_hides_are_refused():
    hidden = fitted(records(300), PrivacyPlan.from_epsilon(epsilon=0.3, delta=1e-5, sampling_rate=1.0, n_steps=20))
    with pytest.raises(NotImplementedError, match=r"Noise hides|not those of such records"):
        hidden.class_profiles(level=0.95)


@pytest.mark.slow
@pytest.mark.usefixtures("many_simulated_records")
def test_sampled_steps_are_matched_too():
    plan = PrivacyPlan.from_epsilon(epsilon=4.0, delta=1e-5, sampling_rate=0.3, n_steps=30)
    assert share_held(fitted(records(8_000, seed=5), plan)) > 0.85
