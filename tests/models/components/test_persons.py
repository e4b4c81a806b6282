"""Matches of fits whose records are persons: do their intervals hold, however rows of a person depend on each other?"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.models.mixtures.test_matched_classes import LEVELS, SHARES, matched_order, records, tables
from tests.mutants import check_notices
from vips import BayesianGaussianMixture, LatentClassAnalysis, PrivacyPlan
from vips.core.units import unit_of_group
from vips.models.components.matching import match, steps
from vips.models.components.matching.persons import most_factor, ways_of
from vips.models.gaussian_mixtures.contract import GaussianSimulator
from vips.models.mixtures.posterior import ClassSimulator

PLAN = PrivacyPlan.from_epsilon(
    epsilon=8.0, delta=1e-5, sampling_rate=1.0, n_steps=20, reproducible_noise=True, clip_norm=1.0
)
PERSON = unit_of_group("person")
NORMS = np.random.default_rng(0).uniform(0.2, 1.5, 400)


@pytest.fixture(scope="module", autouse=True)
def enough_simulated_records():
    with pytest.MonkeyPatch.context() as patch:
        for simulator in (ClassSimulator, GaussianSimulator):
            patch.setattr(simulator, "sizes", (3_000, 8_000, 2_000))
        yield


def fitted(codes, ids, **of_plan):
    plan = replace(PLAN, **{"clip_norm": None} | of_plan)
    return LatentClassAnalysis(3, categories=LEVELS, privacy=plan, random_state=1).fit(codes, groups=ids)


def squares(model) -> np.ndarray:
    """(estimate - truth)² / variance of shares and answers that are not rare."""
    truth = np.concatenate([SHARES, np.hstack(tables()).ravel()])
    posterior = model.posterior_.in_order(matched_order(model.posterior_))
    parts = [posterior.weights, *posterior.columns["answers"]]
    mean = np.concatenate([parts[0].mean, np.hstack([part.mean for part in parts[1:]]).ravel()])
    std = np.concatenate([parts[0].std, np.hstack([part.std for part in parts[1:]]).ravel()])
    return ((mean - truth) / std)[truth > 0.05] ** 2


def check_the_same_rows(most, n=1_200):
    """Persons of eight rows that are the same vary as much as is allowed; there is hardly any noise."""
    values = []
    for seed in range(2):
        codes, ids = records(n, seed=seed), np.repeat(np.arange(n), 8)
        model = fitted(codes[ids], ids, max_rows_per_group=most, noise_multiplier=1.0)
        assert model.why_no_intervals() == "", "no intervals"
        values.append(squares(model).mean())
    assert np.mean(values) < 1.5, f"intervals are too narrow: {values}"


@pytest.mark.slow
def test_intervals_hold_where_rows_of_a_person_are_the_same():
    check_the_same_rows(8)


@pytest.mark.slow
def test_intervals_hold_where_persons_have_all_rows():
    check_the_same_rows(None, 2_500)


@pytest.mark.slow
def test_rows_that_are_taken_as_independent_are_noticed(monkeypatch):
    def factors_are_forgotten(patch):
        patch.setattr(steps, "most_factor", lambda report, ways: np.ones(ways.shape[1]))
        patch.setattr(match.Match, "check", lambda _: None)  # which would refuse

    check_notices(lambda: check_the_same_rows(8), factors_are_forgotten, monkeypatch, "too narrow")


def check_independent_rows():
    """Most persons have several rows, some of which are far from their component."""
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(4_000), rng.integers(1, 6, 4_000))
    X = np.where(rng.random(len(ids)) < 0.4, -1.0, 1.0)[:, None] * [1.0, 0.5, 0.0] + 0.5 * rng.standard_normal(
        (len(ids), 3)
    )
    model = BayesianGaussianMixture(2, max_norm=4.0, privacy=replace(PLAN, clip_norm=None), random_state=0)
    assert model.fit(X, groups=ids).why_no_intervals() == "", "no intervals"
    low, high = model.posterior_.draws["weights"].interval(0.99)
    assert low[model.means_[:, 0].argmin()] < 0.4 < high[model.means_[:, 0].argmin()]


def test_mixtures_of_persons_have_intervals():
    check_independent_rows()


@pytest.mark.slow
def test_a_clip_of_single_rows_is_noticed(monkeypatch):
    def rows_of_their_own(patch):
        patch.setattr(steps, "ways_of", lambda report, norms: report.plan.clip_weights(norms)[None])

    check_notices(check_independent_rows, rows_of_their_own, monkeypatch, "no intervals")


@pytest.mark.slow
def test_a_person_of_many_rows_counts_as_one():
    codes, ids = records(8_000, seed=7), np.arange(8_000) // 2
    most = np.tile(np.zeros((1, len(LEVELS)), int), (100_000, 1))
    model = fitted(np.vstack([codes, most]), np.append(ids, np.full(100_000, -1)))
    assert model.why_no_intervals() == ""
    assert squares(model).mean() < 1.5


@pytest.mark.slow
def test_classes_that_noise_hides_are_refused():
    hidden = fitted(records(300), np.arange(300) // 2, noise_multiplier=60.0)
    assert "no intervals" in hidden.why_no_intervals()


def report(unit, **of_plan):
    return SimpleNamespace(unit=unit, plan=replace(PLAN, **of_plan))


def test_rows_of_their_own_are_clipped_alone():
    ways = ways_of(report("one row"), NORMS)
    np.testing.assert_array_equal(ways, [PLAN.clip_weights(NORMS)])
    np.testing.assert_array_equal(most_factor(report("one row"), ways), 1.0)


def test_persons_of_the_same_rows_have_a_closed_form():
    ways = ways_of(report(PERSON), NORMS)
    for way, size in zip(ways[[0, 1, 4]], (1, 2, 10), strict=True):
        np.testing.assert_allclose(way, np.minimum(size, 1.0 / NORMS), rtol=1e-6)
    for way, size in zip(ways[[3, 6]], (2, 10), strict=True):  # of independent rows, by the mean norm of a run
        assert np.isclose(way @ NORMS, len(NORMS), rtol=0.05 if size == 10 else 0.2)
    few = ways_of(report(PERSON, max_rows_per_group=5, clip_norm=5.0), NORMS)
    np.testing.assert_allclose(few[1], np.minimum(1.0, 1.0 / NORMS), rtol=1e-6)
    assert (few <= 1.0).all()


def test_persons_vary_by_no_more_than_is_said():
    """Where all persons are of one way: the squares of their weights, of which the mean way is told as many persons more."""
    ways = ways_of(report(PERSON), NORMS)
    most = most_factor(report(PERSON), ways)
    for way in ways:
        assert (way**2 <= most * ways.mean(axis=0) * way * (1.0 + 1e-9)).all()
    few = report(PERSON, max_rows_per_group=5, clip_norm=5.0)
    assert most_factor(few, ways_of(few, np.full(100, 0.5))) == pytest.approx(5.0)
