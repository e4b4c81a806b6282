"""Matches, beside closed forms: totals of categories determine as many parameters."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.stats import chi2, norm

from tests.mutants import check_notices
from vips.core.phases import FitPhase
from vips.core.sums import Block, ReleasedStep
from vips.models.components.matching import match as matching
from vips.models.components.matching import simulator as simulation
from vips.models.components.matching import steps
from vips.models.components.matching.charts import Chart, Simplexes
from vips.models.components.matching.match import Match, Totals, best_match
from vips.models.components.matching.simulator import Simulator, moments_of

P, N, NOISE = np.array([0.5, 0.3, 0.15, 0.05]), 4_000.0, 20.0
STEPS = [ReleasedStep(1, {}, None)]


@dataclass
class Categories(Simulator):
    """Records of one column, seen as they are, with a clip weight; ``pairs`` are seen in each of two groups."""

    weight: float = 0.6

    def simulated(self, charts, n_records, rng):
        draws = (np.arange(n_records) + rng.random()) / n_records
        return (draws[:, None] >= np.cumsum(charts[0].p[0])).sum(axis=1)

    def scores(self, records, charts):
        return charts[0].scores(np.eye(4)[records][:, None, :])

    def seen(self, records, steps):
        return self.weight * np.eye(4)[records]


def totals_at(values, *, sampled=0.0):
    return Totals(np.asarray(values, float), np.full(4, NOISE**2), np.full((4, 4), sampled), [STEPS])


def start():
    return [Simplexes(np.full((1, 4), 0.25), 1e-6)]


def check_closed_form():
    """N̂ and p̂ are those of y, and their variances follow from that of y = N w p̂ by the chain rule."""
    values = 0.6 * N * P + NOISE * np.array([1.0, -0.5, 0.3, 0.8])
    for sampled in (0.0, 3.0):
        match = best_match(Categories(), totals_at(values, sampled=sampled), start())
        p = values / values.sum()
        assert match.n_records == pytest.approx(values.sum() / 0.6, rel=2e-3), "another number of records"
        np.testing.assert_allclose(match.charts[0].p[0], p, atol=2e-3, err_msg="other probabilities")
        second = 0.36 * np.diag(p)
        cov = match.n_records * (second - 0.36 * np.outer(p, p) + sampled * second) + NOISE**2 * np.eye(4)
        slopes = (np.eye(4) - p[:, None]) / (match.n_records * 0.6)  # of p by y
        expected = np.sqrt(np.diagonal(slopes @ cov @ slopes.T))
        np.testing.assert_allclose(match.draws()[0].std(axis=0), expected, rtol=0.06, err_msg="other deviations")
        assert match.chi2 < 0.1, "totals are not matched"
        assert match.degrees == pytest.approx(0.0, abs=0.1)


def test_categories_are_matched_as_in_closed_form():
    check_closed_form()


def noise_is_forgotten(patch):
    variance = matching._variance
    patch.setattr(matching, "_variance", lambda totals, *args: variance(replace(totals, noise_var=np.ones(4)), *args))


def samples_are_forgotten(patch):
    variance = matching._variance
    patch.setattr(
        matching, "_variance", lambda totals, *args: variance(replace(totals, sampled_var=np.zeros((4, 4))), *args)
    )


def slopes_are_too_steep(patch):
    def mutant(*arguments):
        moments = moments_of(*arguments)
        return replace(moments, slopes=2.0 * moments.slopes)

    patch.setattr(simulation, "moments_of", mutant)


def records_vary_as_one(patch):
    def mutant(*arguments):
        moments = moments_of(*arguments)
        return replace(moments, cov=0.0 * moments.cov)

    patch.setattr(simulation, "moments_of", mutant)


@pytest.mark.parametrize(
    "mutant", [noise_is_forgotten, samples_are_forgotten, slopes_are_too_steep, records_vary_as_one]
)
def test_mutants_are_noticed(mutant, monkeypatch):
    check_notices(check_closed_form, mutant, monkeypatch, "other")


def check_bound():
    """The last total is three deviations of its noise below 0, where no probability follows: the others are matched exactly."""
    p = np.array([0.5, 0.3, 0.2, 0.0])
    match = best_match(Categories(), totals_at(0.6 * N * p - NOISE * np.array([0.0, 0.0, 0.0, 3.0])), start())
    assert match.n_records == pytest.approx(N, rel=5e-3), "another number of records"
    np.testing.assert_allclose(match.best()[0].p[0], p, atol=2e-4, err_msg="other probabilities")
    np.testing.assert_allclose(match.draws()[0][:, :3].mean(axis=0), p[:3], atol=2e-4, err_msg="another mean of draws")
    largest = 1.96 * np.sqrt(1.0 - 2.0 / np.pi) * NOISE / (0.6 * N)  # deviation of half a normal law
    assert np.quantile(match.draws()[0][:, 3], 0.975) == pytest.approx(largest, rel=0.15), "another limit"
    assert match.chi2 == pytest.approx(9.0, rel=0.2), "another distance"
    assert match.degrees == pytest.approx(1.0, abs=0.1), "other degrees of freedom"


def test_what_is_at_its_bound_stays_there_and_does_not_move_the_others():
    check_bound()


def probabilities_fall_below_zero(patch):
    patch.setattr(Simplexes, "bounds", Chart.bounds)


def draws_add_up_to_one(patch):
    draws = Simplexes.draws

    def mutant(chart, steps):
        p = draws(chart, steps)
        return p / p.sum(axis=1, keepdims=True)

    patch.setattr(Simplexes, "draws", mutant)


def bounds_tell_nothing(patch):
    patch.setattr(matching, "_OF_BOUND", 0.0)


@pytest.mark.parametrize("mutant", [probabilities_fall_below_zero, draws_add_up_to_one, bounds_tell_nothing])
def test_mutants_at_bounds_are_noticed(mutant, monkeypatch):
    check_notices(check_bound, mutant, monkeypatch, "other|another")


def check_last_move():
    """Totals hardly tell where it would lead, far from where records were simulated."""
    place = matching._place(Categories(), totals_at(0.6 * N * P), start(), N, 5_000)
    weak = replace(place, curvature=1e-3 * place.curvature)
    step, _, chi2, _ = weak.at_best(0.0)
    assert weak.charts[0].largest(step[:-1]) < 0.11, "too large a move"
    assert chi2 < weak.chi2


def test_the_last_move_is_small(monkeypatch):
    check_last_move()
    check_notices(check_last_move, lambda patch: patch.setattr(matching, "_SMALL_MOVE", 1e9), monkeypatch, "too large")


def test_a_move_that_cannot_be_computed_is_no_match(monkeypatch):
    def fails(*arguments):
        raise RuntimeError("Maximum number of iterations reached.")

    monkeypatch.setattr(matching, "nnls", fails)
    with pytest.raises(NotImplementedError, match="tell nothing"):
        check_bound()


def test_simulated_means_are_closer_than_their_number_allows():
    """Scores explain all of what categories give, so that nothing is left of the simulation's error."""
    moments = moments_of(Categories(), [Simplexes(P[None], 1.0)], [STEPS], 4_000)
    np.testing.assert_allclose(moments.mean, 0.6 * P, atol=1e-4)
    np.testing.assert_allclose(moments.slopes, 0.6 * (np.diag(P) - np.outer(P, P)), atol=2e-3)
    assert np.abs(moments.unexplained).max() < 1e-4


def test_a_start_that_repairs_the_fit_is_said(monkeypatch):
    moved, calls = matching._moved, []

    def stuck_at_first(simulator, totals, charts, n_records, sizes, more):
        calls.append(charts)
        return moved(simulator, totals, charts, n_records, *((sizes, more) if len(calls) > 1 else (sizes[:1], 0)))

    totals = totals_at(0.6 * N * P)
    assert best_match(Categories(), totals, start(), lambda rng: start()).astray is None
    monkeypatch.setattr(matching, "_moved", stuck_at_first)
    match = best_match(Categories(), totals, start(), lambda rng: start())
    assert match.misfit < 3.0 < match.astray


def test_too_many_totals_are_refused_in_words():
    """Both groups see the same records, in totals that contradict each other."""

    class Twice(Categories):
        def seen(self, records, steps):
            return 0.5 * super().seen(records, steps)

    y = 0.3 * N * P
    totals = Totals(np.concatenate([y, y[::-1]]), np.full(8, NOISE**2), np.zeros((8, 8)), [STEPS, STEPS])
    match = best_match(Twice(), totals, start())
    assert match.degrees == pytest.approx(4.0, abs=0.1)
    assert match.misfit > 3.0
    with pytest.raises(NotImplementedError, match="not those of such records"):
        match.check()
    same = replace(totals, values=np.concatenate([y, y + 5.0]))
    best_match(Twice(), same, start()).check()


@pytest.mark.parametrize("degrees", [1, 8, 40, 400])
def test_one_fit_of_right_models_in_740_is_refused_whatever_the_number_of_totals(degrees):
    limit = Match(n_records=1e4, chi2=chi2.isf(norm.sf(3.0), degrees), degrees=degrees, move=0.0)
    np.testing.assert_allclose(limit.misfit, 3.0, atol=0.05)


def test_a_match_that_has_not_settled_says_so():
    with pytest.raises(NotImplementedError, match=r"has not settled: its last move is 0\.40"):
        Match(n_records=1e4, chi2=3.0, degrees=8.0, move=0.4).check()


def test_a_prior_is_that_of_a_dirichlet():
    """With nothing but its prior, an entry has a Dirichlet's mean and variance."""
    chart = Simplexes(np.full((2, 4), 0.25), 3.0)
    gradient, precision = chart.prior()
    np.testing.assert_allclose(gradient, 0.0, atol=1e-12)
    steps = np.random.default_rng(0).multivariate_normal(np.zeros(8), np.linalg.inv(precision), 20_000)
    draws = chart.draws(steps)
    np.testing.assert_allclose(draws.mean(axis=0), 0.25, atol=0.01)
    np.testing.assert_allclose(draws.var(axis=0), 3.0 / (16.0 * 13.0), rtol=0.1)  # of Dirichlet(3, 3, 3, 3)


def test_moves_stay_among_probabilities():
    rng = np.random.default_rng(0)
    chart = Simplexes(rng.dirichlet(np.ones(3), 5), 1.0)
    for scale in (0.1, 3.0, 1e3):
        step = scale * rng.standard_normal(15)
        moved = chart.moved(step, 0.01 * np.eye(15))
        assert (moved.p > 0.0).all()
        np.testing.assert_allclose(moved.p.sum(axis=1), 1.0)
        draws = chart.draws(step[None]).reshape(5, 3)
        assert ((draws >= 0.0) & (draws <= 1.0)).all()
        is_inside = (draws > 0.0).all(axis=1)
        np.testing.assert_allclose(draws[is_inside].sum(axis=1), 1.0)


def test_steps_are_kept_in_groups_of_bounded_size():
    phases = [FitPhase("first", 1, blocks={"a": Block((3,))}), FitPhase("last", 200, blocks={"b": Block((5,))})]
    kept = steps.of_groups(phases)
    assert kept[0] == 1
    assert {2, 101, 102, 201} <= set(kept)
    assert len(kept) == 81
    assert kept == sorted(set(kept))
    wide = [FitPhase("steps", 3, blocks={"b": Block((2_000,))})]
    assert steps.of_groups(wide) == []
    assert len(steps.of_groups([FitPhase("steps", 10**12, blocks={"b": Block((5,))})])) == 81  # of a forged file
    assert steps.of_groups([FitPhase("steps", 1, blocks={"b": Block((5,))})]) == [1]


def test_entries_of_symmetric_blocks_stand_once():
    blocks = {"a": Block((2,)), "b": Block((2, 2), symmetric=True)}
    arrays = {"a": np.array([[1.0, 2.0]]), "b": np.array([[[3.0, 4.0], [4.0, 5.0]]])}
    np.testing.assert_array_equal(steps.entries(arrays, blocks), [[1.0, 2.0, 3.0, 4.0, 5.0]])


@pytest.mark.parametrize("most_seen", [1, 2, 5, 60])
def test_records_see_all_posteriors_alike(most_seen):
    """Averages over records are those over posteriors, however many a record sees, and however few records there are."""
    for n_steps in range(1, 61):
        of_steps = np.random.default_rng(0).normal(size=n_steps)
        for n_records in (*range(1, 61, 1 + n_steps % 4), 1_000):
            seen = np.zeros(n_records)
            for rows, numbers, weight in simulation.portions(n_records, n_steps, most_seen):
                assert 1 <= len(numbers) <= max(most_seen, -(-n_steps // n_records))
                seen[rows] += weight * of_steps[numbers].sum()
            assert seen.mean() == pytest.approx(of_steps.mean())
