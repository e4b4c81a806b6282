"""A model outside the package whose parameters are matched by one method, at a clip that binds."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.stats import poisson
from threadpoolctl import threadpool_info, threadpool_limits

from tests.mutants import check_notices
from vips import Block, DenseStatistics, PrivacyPlan, StreamPlan, compare
from vips.expfam import DiagonalGaussian, Dirichlet, Gamma
from vips.models.components.matching import MatchedModel
from vips.models.components.matching import own as own_module
from vips.models.components.matching.coupled import CoupledGenerator
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

    def simulated(self, parameters, n_records, rng):
        return rng.poisson(parameters["rates"][rng.choice(2, n_records, p=parameters["shares"])])


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


def slopes_have_another_sign(patch):
    patch.setattr(own_module, "replace", lambda moments, slopes, **others: replace(moments, slopes=-slopes, **others))


@pytest.mark.parametrize("mutant", [clips_are_forgotten, slopes_have_another_sign])
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


class Times(MatchedModel):
    """Mean of the logarithms of times, of which none above 3 is seen: those above count as 3."""

    def __init__(self, privacy=None, random_state=None):
        self.privacy, self.random_state = privacy, random_state

    def blocks(self):
        return {"logs": Block(()), "count": Block(())}

    def expected_statistics(self, records, posterior):
        return DenseStatistics({"logs": np.log(np.clip(records[:, 0], 0.05, 3.0)), "count": np.ones(len(records))})

    def to_posterior(self, average, noise_std, previous):
        count = max(average["count"], 0.0)
        return DiagonalGaussian(np.full(1, average["logs"] / (count + 0.01)), np.full(1, count + 0.01))

    def simulated(self, parameters, n_records, rng):
        return rng.lognormal(parameters, 1.0, n_records)


def test_a_posterior_of_one_gaussian_far_narrower_than_its_prior():
    """The last step takes censored times at face value. Its mean is off by 0.13, ten deviations; 5.5 of them are a chance of
    4e-8."""
    times = np.random.default_rng(0).lognormal(0.5, 1.0, (20_000, 1))
    plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=2, clip_norm=1.5)
    model = Times(privacy=plan).fit(times)
    assert model.posterior_.draws.shape[1:] == (1,)
    assert abs(model.posterior_.mean[0] - 0.5) < 5.5 * model.posterior_.std[0] < 0.15
    assert model.last_posterior_.mean[0] < 0.4


@pytest.mark.parametrize(
    ("law", "parameters", "frozen"),
    [
        ("poisson", (3.0,), stats.poisson(3.0)),
        ("binomial", (9, 0.3), stats.binom(9, 0.3)),
        ("negative_binomial", (2.5, 0.4), stats.nbinom(2.5, 0.4)),
        ("gamma", (0.7, 2.0), stats.gamma(0.7, scale=2.0)),
        ("beta", (0.5, 2.0), stats.beta(0.5, 2.0)),
    ],
)
def test_laws_that_are_inverted(law, parameters, frozen):
    """Draws are those of the law, nearly the same where parameters are, and stratified: the error of their mean is far below
    that of independent draws, with which matches were off by a third of their deviations."""
    draws = getattr(CoupledGenerator(0), law)(*parameters, size=20_000)
    moved = getattr(CoupledGenerator(0), law)(parameters[0], *(1.001 * of for of in parameters[1:]), 20_000)
    assert abs(draws.mean() - frozen.mean()) < 0.3 * frozen.std() / np.sqrt(20_000)
    assert draws.std() == pytest.approx(frozen.std(), rel=0.1)
    assert np.abs(moved - draws).mean() < 0.01 * frozen.std()


def test_a_simplex_of_coupled_draws():
    draws = CoupledGenerator(0).dirichlet([1.0, 2.0, 3.0], size=5_000)
    assert draws.mean(axis=0) == pytest.approx([1 / 6, 1 / 3, 1 / 2], abs=0.02)


def test_a_part_that_is_no_distribution_is_refused_in_words():
    class Plain(Times):
        def to_posterior(self, average, noise_std, previous):
            return {"mean": average["logs"]}

    assert "a Dirichlet, a Gamma or a Gaussian" in Plain(privacy=PLAN).fit(np.ones((50, 1))).why_no_intervals()


class Spread(Times):
    """With squares, which the posterior does not need."""

    def blocks(self):
        return super().blocks() | {"squares": Block(())}

    def expected_statistics(self, records, posterior):
        logs = np.log(np.clip(records[:, 0], 0.05, 3.0))
        return DenseStatistics({"logs": logs, "count": np.ones(len(records)), "squares": 0.5 * logs**2})


@pytest.mark.parametrize(("deviation", "is_told"), [(1.0, False), (1.4, True)])
def test_a_sum_that_the_posterior_does_not_need_tells_records_of_another_law(deviation, is_told):
    """The misfit is about a draw of N(0, 1) for records of the model, and about 33 for others."""
    times = np.random.default_rng(0).lognormal(0.5, deviation, (20_000, 1))
    plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=4, clip_norm=1.5)
    assert (Spread(privacy=plan).fit(times).match().misfit > 6.0) == is_told


def test_a_match_takes_one_thread_of_blas():
    class Seen(Visits):
        def to_match(self):
            return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    with threadpool_limits(2):
        assert Seen(privacy=PLAN).fit(np.ones((50, 1))).match() == {1}
