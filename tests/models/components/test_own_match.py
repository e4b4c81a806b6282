"""A model outside the package whose parameters are matched by two methods, at a clip that binds."""

import numpy as np
import pytest
from scipy.stats import poisson

from tests.mutants import check_notices
from vips import Block, DenseStatistics, PrivacyPlan, StreamPlan, compare
from vips.expfam import Dirichlet, Gamma
from vips.models.components.matching import MatchedModel, Rates, Simplexes
from vips.models.components.matching.match import Match

SHARES, RATES = np.array([0.7, 0.3]), np.array([1.0, 6.0])
PLAN = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=12, clip_norm=1.2)


class Visits(MatchedModel):
    """Numbers of visits, at most 20, of two kinds of people."""

    adds_up = True

    def __init__(self, privacy=None, random_state=None):
        self.privacy, self.random_state = privacy, random_state

    def blocks(self):
        return {"people": Block((2,)), "visits": Block((2,), scale=5.0)}

    def expected_statistics(self, records, posterior):
        visits = np.clip(records[:, 0], 0, 20)
        likely = posterior["shares"].mean * poisson.pmf(visits[:, None], posterior["rates"].mean)
        shares = likely / likely.sum(axis=1, keepdims=True)
        return DenseStatistics({"people": shares, "visits": shares * visits[:, None]})

    def to_posterior(self, average, noise_std, previous):
        people, visits = (np.maximum(average[name], 0) for name in ("people", "visits"))
        return {"shares": Dirichlet(1 + people), "rates": Gamma(np.array([1.0, 5.0]) + visits, 1 + people)}

    def charts(self, posterior):
        shares, rates = posterior["shares"].mean[None], posterior["rates"].mean[None]
        return {"shares": Simplexes(shares, 1.0), "rates": Rates(rates, 1.0, 0.1)}

    def simulated(self, charts, n_records, rng):
        kind = (rng.random(n_records) >= charts["shares"].p[0, 0]).astype(int)
        visits = np.minimum(poisson.ppf(rng.random(n_records), charts["rates"].rates[0, kind]), 20)
        people = np.eye(2)[kind][:, None]
        scores = charts["shares"].scores(people), charts["rates"].scores(people * visits[:, None, None], people)
        return visits[:, None], np.hstack(scores)


def fitted(seed, privacy=PLAN):
    rng = np.random.default_rng(seed)
    visits = rng.poisson(RATES[(rng.random(8_000) >= SHARES[0]).astype(int)])[:, None]
    return Visits(privacy=privacy).fit(visits)


def check_that_intervals_hold():
    """In units of their deviations; six of them are at most 5 with a probability of 1 - 3e-6."""
    for seed in range(2):
        posterior = fitted(seed).posterior_
        for name, truth in (("shares", SHARES), ("rates", RATES)):
            draws = posterior[name]
            z = (draws.mean - truth) / draws.std
            assert np.abs(z).max() < 5.0, f"intervals miss {name}"
            assert draws.std.max() < 0.3, f"intervals of {name} are too wide"


def test_intervals_hold_and_the_last_step_is_off():
    check_that_intervals_hold()
    last = fitted(0).last_posterior_["rates"]
    assert abs(last.mean[1] - RATES[1]) > 0.4


def test_a_match_is_compared_with_an_ordinary_fit():
    comparison = compare(fitted(0), fitted(0, PrivacyPlan.non_private(n_steps=60)))
    assert {mover.name for mover in comparison.movers(4)} == {"shares[0]", "shares[1]", "rates[0]", "rates[1]"}
    assert abs(comparison.movers(1)[0].standardized) < 5.0


def clips_are_forgotten(patch):
    patch.setattr(PrivacyPlan, "clip_weights", lambda plan, norms: np.ones(len(norms)))


def scores_have_another_sign(patch):
    simulated = Visits.simulated

    def mutant(self, *arguments):
        records, scores = simulated(self, *arguments)
        return records, -scores

    patch.setattr(Visits, "simulated", mutant)


@pytest.mark.parametrize("mutant", [clips_are_forgotten, scores_have_another_sign])
def test_mutants_are_noticed(mutant, monkeypatch):
    monkeypatch.setattr(Match, "check", lambda _: None)  # no refusal
    fits = iter([fitted(0), fitted(1)])  # by the right code
    monkeypatch.setattr("tests.models.components.test_own_match.fitted", lambda seed: next(fits))
    check_notices(check_that_intervals_hold, mutant, monkeypatch, "intervals")


def test_streams_and_fits_without_noise_have_no_match():
    plain = fitted(0, PrivacyPlan.non_private(n_steps=12))
    assert plain.posterior_ is plain.last_posterior_
    with pytest.raises(NotImplementedError, match="kept"):
        plain.match()
    stream = Visits(privacy=StreamPlan(epsilon=1.0, delta=1e-6, n_batches=3, clip_norm=1.2)).partial_fit(
        np.ones((9, 1))
    )
    assert "streams" in stream.why_no_intervals()


def test_persons_are_refused_in_words():
    """Dense statistics of a person's rows are clipped by the norm of their sum."""
    visits = np.random.default_rng(0).poisson(2.0, (600, 1))
    assert "the norm of their sum" in Visits(privacy=PLAN).fit(visits, groups=np.arange(600) // 2).why_no_intervals()
