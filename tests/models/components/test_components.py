"""Components: against SciPy, against the exact evidence, and whatever the noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tests.mutants import check_notices
from vips.models.components.bins import bins_of_counts, bins_of_numbers
from vips.models.components.categories import Categories
from vips.models.components.columns import Columns
from vips.models.components.component import Frame
from vips.models.components.counts import Counts
from vips.models.components.matching.charts import Rates, Simplexes
from vips.models.components.matching.simulator import counts_at
from vips.models.components.numbers import Numbers

K = 3
COUNTS = Counts((9, 4), 0.7, 0.3, frame=Frame(np.array([2.0, 1.0]), np.array([1.5, 0.8])))
NUMBERS = Numbers((0.0, -5.0), (10.0, 5.0), 0.8, frame=Frame(np.array([4.0, 0.5]), np.array([2.0, 1.5])))
CATEGORIES = Categories((3, 2), 0.6)
MIXED = Columns((NUMBERS, COUNTS, CATEGORIES), ((0, 3), (1, 5), (2, 4)))
KINDS = [COUNTS, NUMBERS, CATEGORIES, MIXED]
of_kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)
HOSTILE = [np.nan, np.inf, -np.inf, -1.0, 0.5, 1e300, -1e300, 1e-310, 77.0, 2.0**63]


def table(kind, n, seed=0, missing=0.2):
    """Values of rows of this kind, some of them missing."""
    rng = np.random.default_rng(seed)
    if kind is MIXED:
        values = np.empty((n, 6))
        for part, places in zip(kind.components, kind.columns, strict=True):
            values[:, list(places)] = table(part, n, seed, missing)
        return values
    draws = {
        COUNTS: lambda: rng.poisson([2.0, 1.0], (n, 2)),
        NUMBERS: lambda: rng.normal([4.0, 0.5], [2.0, 1.5], (n, 2)),
        CATEGORIES: lambda: rng.integers(0, [3, 2], (n, 2)),
    }[kind]()
    return np.where(rng.random((n, 2)) < missing, np.nan, draws)


def rows_of(kind, cells):
    return np.hstack([np.ones((len(cells), 1)), kind.statistics(cells)])


def shares_of(n, seed=1):
    return np.random.default_rng(seed).dirichlet(np.ones(K), n)


def totals_of(kind, n=200):
    cells = kind.cells(table(kind, n))
    return shares_of(n).T @ rows_of(kind, cells)


def densities(kind, cells, posterior):
    """Log densities of the cells in each component at the posterior's means, shape (n, K, columns), by SciPy."""
    if kind is COUNTS:
        return stats.poisson.logpmf(cells[:, None], posterior.mean)
    if kind is NUMBERS:
        means, deviations = kind.in_units(posterior)
        return stats.norm.logpdf(cells[:, None], means, deviations)
    if kind is CATEGORIES:
        codes = np.nan_to_num(cells).astype(int)
        logs = [np.log(part.mean)[:, codes[:, j]].T for j, part in enumerate(posterior)]
        return np.where(np.isnan(cells)[:, None], np.nan, np.stack(logs, axis=2))
    of_parts, start = [], 0
    for part, of_part in zip(kind.components, posterior.values(), strict=True):
        of_parts.append(densities(part, cells[:, start : start + part.n_columns], of_part))
        start += part.n_columns
    return np.concatenate(of_parts, axis=2)


@of_kinds
def test_likelihood_is_that_of_the_cells_that_are_there(kind):
    cells, posterior = kind.cells(table(kind, 50)), kind.posterior(totals_of(kind))
    likelihood = rows_of(kind, cells) @ kind.natural(posterior, True).T + kind.log_base(cells)[:, None]
    np.testing.assert_allclose(likelihood, np.nansum(densities(kind, cells, posterior), axis=2), rtol=1e-10, atol=1e-10)


def evidence(kind, cells):
    """log p(cells) under one component, each cell given those before it."""
    if kind is MIXED:
        parts = np.split(cells, np.cumsum([part.n_columns for part in kind.components])[:-1], axis=1)
        return sum(evidence(part, of_part) for part, of_part in zip(kind.components, parts, strict=True))
    total = 0.0
    for j, column in enumerate(cells.T):
        seen = column[~np.isnan(column)]
        for i, x in enumerate(seen):
            before = seen[:i]
            if kind is COUNTS:
                shape, rate = kind.shape + before.sum(), kind.rate + i
                total += stats.nbinom.logpmf(x, shape, rate / (rate + 1.0))
            elif kind is CATEGORIES:
                levels = kind.levels[j]
                total += np.log((kind.prior + (before == x).sum()) / (kind.prior * levels + i))
            else:
                centre, scale = kind.frame.centre[j], kind.frame.scale[j]
                y, kappa = (before - centre) / scale, kind.prior + i
                mean = y.sum() / kappa
                a, b = 0.5 * kappa, 0.5 * (kind.prior + (y**2).sum() - kappa * mean**2)
                width = np.sqrt(b * (kappa + 1.0) / (a * kappa))
                total += stats.t.logpdf(x, 2.0 * a, centre + scale * mean, scale * width)
    return total


@of_kinds
def test_bound_of_one_component_is_the_evidence(kind):
    """Its posterior is exact, so that expected logarithms less the divergence are the logarithm of the evidence."""
    cells = kind.cells(table(kind, 30))
    rows = rows_of(kind, cells)
    posterior = kind.posterior(rows.sum(axis=0)[None])
    expected = (rows @ kind.natural(posterior, False).T).sum() + kind.log_base(cells).sum()
    np.testing.assert_allclose(expected - kind.divergence(posterior), evidence(kind, cells), rtol=1e-10)


@of_kinds
@pytest.mark.parametrize("noise", [1e-6, 1.0, 1e3, 1e9, 1e30])
def test_no_noise_makes_a_posterior_impossible(kind, noise):
    exact = totals_of(kind)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        noisy = exact + noise * rng.standard_normal(exact.shape)
        noisy[:, 0] = exact[:, 0] * rng.choice([0.0, 1e-12, 1.0, 1e6], K)
        totals = kind.denoised(noisy, np.full(noisy.shape, noise))
        posterior = kind.posterior(totals)  # whose distributions check their numbers
        for plug_in in (True, False):
            assert np.isfinite(kind.natural(posterior, plug_in)).all()
        assert np.isfinite(kind.drawn(posterior, np.arange(K), rng)).all()


@of_kinds
def test_a_little_noise_changes_little(kind):
    exact = 1e5 * totals_of(kind)
    noisy = exact + np.random.default_rng(0).standard_normal(exact.shape)
    noisy[:, 0] = exact[:, 0]
    parameters = kind.natural(kind.posterior(kind.denoised(noisy, np.ones(exact.shape))), True)
    np.testing.assert_allclose(parameters, kind.natural(kind.posterior(exact), True), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", [COUNTS, NUMBERS])
def test_what_noise_hides_is_near_the_mean_of_all(kind):
    totals = 1e3 * totals_of(kind)
    noisy = totals + 1e8 * np.random.default_rng(0).standard_normal(totals.shape)
    noisy[:, 0] = totals[:, 0]
    posterior = kind.posterior(kind.denoised(noisy, np.full(totals.shape, 1e8)))
    means = posterior.mean if kind is COUNTS else kind.in_units(posterior)[0]
    assert (np.abs(means - kind.frame.centre) < 0.05 * kind.frame.scale).all()


@of_kinds
def test_a_row_is_a_function_of_itself_to_the_last_bit(kind):
    values = table(kind, 300)
    values[: len(HOSTILE)] = np.array(HOSTILE)[:, None]
    cells = kind.cells(values)
    together, base = kind.statistics(cells), kind.log_base(cells)
    assert np.isfinite(together).all()
    for i in range(0, 300, 7):
        alone = kind.cells(values[i : i + 1])
        np.testing.assert_array_equal(kind.statistics(alone)[0], together[i])
        np.testing.assert_array_equal(kind.log_base(alone)[0], base[i])


def test_values_that_are_none():
    nan = np.nan
    np.testing.assert_array_equal(
        COUNTS.cells(np.column_stack([HOSTILE, HOSTILE])).T,
        [[nan, nan, nan, nan, nan, 9, nan, nan, 9, 9], [nan, nan, nan, nan, nan, 4, nan, nan, 4, 4]],
    )
    np.testing.assert_array_equal(
        NUMBERS.cells(np.column_stack([HOSTILE, HOSTILE])).T,
        [[nan, nan, nan, 0, 0.5, 10, 0, 1e-310, 10, 10], [nan, nan, nan, -1, 0.5, 5, -5, 1e-310, 5, 5]],
    )
    assert np.isnan(CATEGORIES.cells(np.column_stack([HOSTILE, HOSTILE]))).all()
    np.testing.assert_array_equal(CATEGORIES.cells(np.array([[2, 2], [0, 1]])), [[2.0, nan], [0.0, 1.0]])


def test_private_numbers_and_counts_stop_at_the_limit():
    numbers, counts = (type(kind)(*kind_arguments(kind), limit=1.5, frame=kind.frame) for kind in (NUMBERS, COUNTS))
    np.testing.assert_allclose(numbers.statistics(np.array([[10.0, -5.0]]))[0, 2:4], [1.5, -1.5])
    np.testing.assert_allclose(counts.statistics(np.array([[9.0, 0.0]]))[0, 2:], [1.5, -1.25])


def kind_arguments(kind):
    return (kind.low, kind.high, kind.prior) if kind is NUMBERS else (kind.max_count, kind.shape, kind.rate)


@pytest.mark.parametrize("kind", [COUNTS, NUMBERS, MIXED])
def test_marginals_give_coordinates(kind):
    """In a frame of its own marginals, a table has mean 0 and variance 1, up to the width of bins."""
    cells = kind.cells(table(kind, 20_000, missing=0.1))
    framed = kind.framed(kind.bins.counts(kind.bins.indicators(cells).sum(axis=0), 0.0))
    parts, start = (framed.components if kind is MIXED else (framed,)), 0
    for part in parts:
        of_part = cells[:, start : start + part.n_columns]
        start += part.n_columns
        if isinstance(part, Categories):
            continue
        y = part.statistics(of_part)[:, part.n_columns : 2 * part.n_columns]
        y = y[~np.isnan(of_part).any(axis=1)]
        np.testing.assert_allclose(y.mean(axis=0), 0.0, atol=0.05)
        np.testing.assert_allclose(y.std(axis=0), 1.0, atol=0.05)


def test_bins_hold_every_value_once():
    counts = bins_of_counts((5, 1000, 19), 20)
    assert counts.sizes[0] == 6
    assert counts.sizes[2] == 20
    assert counts.sizes[1] <= 20
    cells = np.repeat(np.arange(1001.0)[:, None], 3, axis=1)
    inside = np.minimum(cells, [5, 1000, 19])
    assert (counts.indicators(inside).sum(axis=1) == 3).all()
    for j, edges in enumerate(counts.edges):
        codes = counts.codes(inside)[:, j]
        assert ((edges[codes] <= inside[:, j]) & (inside[:, j] < edges[codes + 1])).all()
    numbers = bins_of_numbers((0.0,), (1.0,), 4)
    np.testing.assert_array_equal(numbers.codes(np.array([[0.0], [0.25], [1.0], [np.nan]]))[:, 0], [0, 1, 3, -1])


def test_whole_numbers_are_in_bins_as_rounded_ones_are():
    """A match takes them for real numbers: bins that end at whole ones refused the limits of fits to ages."""
    ages = np.random.default_rng(0).normal(50.0, 8.0, (100_000, 1)).clip(0.0, 110.0)
    bins = bins_of_numbers((0.0,), (110.0,), 32)
    assert len(bins.edges[0]) == 33
    assert (bins.edges[0][[0, -1]] == [0.0, 110.0]).all()
    assert (np.diff(bins.edges[0]) > 0.0).all()
    np.testing.assert_array_equal(bins.codes(ages), bins.codes(ages.round()))
    narrow = bins_of_numbers((0.0,), (20.0,), 32)
    np.testing.assert_allclose(np.diff(narrow.edges[0]), 20.0 / 32.0)


@pytest.mark.parametrize("noise", [1.0, 1e6])
def test_noisy_marginals_are_counts(noise):
    noisy = noise * np.random.default_rng(0).standard_normal(sum(MIXED.bins.sizes))
    counts = MIXED.bins.counts(noisy, noise)
    assert (counts >= 0.0).all()
    framed = MIXED.framed(counts)
    assert all((part.frame.scale > 0.0).all() for part in framed.components[:2])
    assert all((part.frame.scale > 0.0).all() for part in MIXED.framed(np.zeros_like(counts)).components[:2])


@of_kinds
def test_components_begin_around_the_marginals(kind):
    marginals = kind.bins.indicators(kind.cells(table(kind, 500))).sum(axis=0)
    offsets = 0.05 * np.random.default_rng(0).standard_normal((K, len(kind.means)))
    totals = kind.begun(600.0, marginals, offsets)
    np.testing.assert_allclose(totals[:, 0], 200.0)
    alike = kind.begun(600.0, marginals, np.zeros_like(offsets))
    moved = (totals - alike)[:, 1 + kind.means]
    np.testing.assert_allclose(moved, 200.0 * offsets, rtol=1e-9, atol=1e-9)
    natural = kind.natural(kind.posterior(alike), True)
    np.testing.assert_allclose(natural, np.broadcast_to(natural[0], natural.shape))
    far = kind.begun(600.0, marginals, 1e3 * offsets)
    assert np.isfinite(kind.natural(kind.posterior(far), True)).all()


@of_kinds
def test_draws_are_those_of_the_posterior(kind):
    posterior, rng = kind.posterior(totals_of(kind, 5_000)), np.random.default_rng(2)
    drawn = kind.drawn(posterior, np.full(20_000, 1), rng)
    parts, ends = (kind.components, kind.columns) if kind is MIXED else ((kind,), (tuple(range(kind.n_columns)),))
    of_parts = posterior.values() if kind is MIXED else (posterior,)
    for part, places, of_part in zip(parts, ends, of_parts, strict=True):
        for i, j in enumerate(places):
            if part is CATEGORIES:
                shares = np.bincount(drawn[:, j].astype(int), minlength=part.levels[i]) / len(drawn)
                np.testing.assert_allclose(shares, of_part[i].mean[1], atol=0.02)
            else:
                mean = of_part.mean[1, i] if part is COUNTS else part.in_units(of_part)[0][1, i]
                np.testing.assert_allclose(drawn[:, j].mean(), mean, atol=0.06)
    assert not np.isnan(kind.cells(drawn)).any()


@of_kinds
def test_chances_of_bins_are_those_of_draws(kind):
    posterior, rng = kind.posterior(totals_of(kind, 5_000)), np.random.default_rng(3)
    drawn = kind.cells(kind.drawn(posterior, np.full(20_000, 2), rng))
    shares = kind.bins.indicators(drawn).mean(axis=0)
    np.testing.assert_allclose(shares, kind.chances(posterior)[2], atol=0.02)


@pytest.mark.parametrize("kind", [Counts((6,)), Counts((200, 30), own_bins=bins_of_counts((200, 30), 12))])
def test_values_of_bins_are_steps_of_em(kind):
    rng = np.random.default_rng(0)
    rates = rng.gamma(4.0, 1.0, (2, kind.n_columns))
    expected = np.hstack([
        np.diff(stats.poisson.cdf(np.append(edges[1:-1] - 1.0, np.inf), rates[:, j, None]), prepend=0.0)
        for j, edges in enumerate(kind.bins.edges)
    ])  # fmt: skip
    np.testing.assert_allclose(kind.in_bins(rates), expected, atol=1e-12)
    start = kind.some_values(np.ones(sum(kind.bins.sizes)), 2, rng)
    bounds = []
    for _ in range(300):
        bounds.append((expected * np.log(np.maximum(kind.in_bins(start), 1e-300))).sum())
        start = kind.values_of_bins(expected, start)
    assert (np.diff(bounds) > -1e-9).all()
    np.testing.assert_allclose(start, rates, rtol=1e-3)


# -- to be matched ----------------------------------------------------------------------------------------------------


def moved(charts, steps):
    """The charts after a move, in the coordinates of all."""
    ends = np.cumsum([chart.size for chart in charts])
    parts = np.split(steps, ends[:-1])
    return [chart.moved(part, np.zeros((chart.size,) * 2)) for chart, part in zip(charts, parts, strict=True)]


def check_scores(kind):
    """Against differences of log densities by SciPy, along random moves."""
    values, shares = table(kind, 40), shares_of(40)
    cells, charts = kind.in_parts(values) if kind is MIXED else values, kind.charts(kind.posterior(totals_of(kind)))
    scores, rng = kind.scores(charts, values, shares), np.random.default_rng(2)
    for _ in range(4):
        step = rng.standard_normal(scores.shape[1])
        logs = [
            np.nansum(densities(kind, cells, kind.sure_of(moved(charts, size * step))), axis=2)
            for size in (1e-5, -1e-5)
        ]
        slopes = (shares * (logs[0] - logs[1])).sum(axis=1) / 2e-5
        np.testing.assert_allclose(scores @ step, slopes, rtol=1e-4, atol=1e-4, err_msg="slopes")


@of_kinds
def test_scores_are_derivatives_of_log_densities(kind):
    check_scores(kind)


def missing_numbers_are_zeros(patch):
    scores = Numbers.scores
    patch.setattr(
        Numbers, "scores", lambda self, charts, values, shares: scores(self, charts, np.nan_to_num(values), shares)
    )


def rates_move_too_far(patch):
    patch.setattr(
        Rates, "moved", lambda self, step, cov: replace(self, rates=self.rates + 2.0 * step.reshape(self.rates.shape))
    )


def probabilities_are_free(patch):
    patch.setattr(Simplexes, "scores", lambda self, counts: counts.reshape(len(counts), -1))


@pytest.mark.parametrize("mutant", [missing_numbers_are_zeros, rates_move_too_far, probabilities_are_free])
def test_mutants_of_scores_are_noticed(mutant, monkeypatch):
    check_notices(lambda: check_scores(MIXED), mutant, monkeypatch, "slopes")


@of_kinds
def test_simulated_rows_have_the_density_of_their_component(kind):
    """Scores of such rows have mean 0, and each cell follows from its draw alone."""
    charts, members = kind.charts(kind.posterior(totals_of(kind))), np.repeat(np.arange(K), 20_000)
    draws = np.random.default_rng(0).random((len(members), kind.n_columns))
    values = kind.simulated(charts, members, draws)
    scores = kind.scores(charts, values, np.eye(K)[members])
    assert np.abs(scores.mean(axis=0) / scores.std(axis=0)).max() < 5.0 / np.sqrt(len(members))
    np.testing.assert_array_equal(kind.simulated(charts, members[7:], draws[7:]), values[7:])


def test_counts_are_those_of_scipys_quantiles():
    draws, rates = np.random.default_rng(0).random((2_000, 5)), np.array([1e-3, 0.4, 3.0, 40.0, 1e4])
    np.testing.assert_array_equal(
        counts_at(draws, np.stack([np.ones(5), rates]), np.ones(len(draws), int)), stats.poisson.ppf(draws, rates)
    )


@of_kinds
def test_posteriors_of_draws_have_their_means_and_intervals(kind):
    charts, rng, order = kind.charts(kind.posterior(totals_of(kind))), np.random.default_rng(0), np.array([2, 0, 1])
    draws = [chart.draws(0.1 * rng.standard_normal((4_000, chart.size))) for chart in charts]
    posterior, exact = kind.of_draws(charts, draws, order), kind.sure_of(charts)
    posterior, exact = (of.values() if kind is MIXED else (of,) for of in (posterior, exact))
    for part, of_part, at in zip(getattr(kind, "components", [kind]), posterior, exact, strict=True):
        if isinstance(part, Numbers):
            np.testing.assert_allclose(of_part.mean, at.mean[order], atol=0.02)
            np.testing.assert_allclose(of_part.variance, at.variance[order], rtol=0.03)
            width = np.subtract(*of_part.means.interval(0.68)[::-1])
            np.testing.assert_allclose(width, 0.2 * np.sqrt(at.variance[order]), rtol=0.08)
            of_part, at = of_part.precision, at.precision
        for one, its in zip(*map(parts_of, (of_part, at)), strict=True):
            np.testing.assert_allclose(one.mean, its.mean[order], rtol=0.03)
            low, high = one.interval(0.68)
            factor = 0.2 if isinstance(part, Counts | Numbers) else 0.2 * (1.0 - its.mean[order])
            np.testing.assert_allclose(np.log(high / low), factor, rtol=0.25, atol=0.05)


def parts_of(posterior):
    return posterior if isinstance(posterior, tuple) else [posterior]
