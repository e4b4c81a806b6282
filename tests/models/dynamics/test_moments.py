"""Released moments, and the system that is computed from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models.dynamics import brute_force
from tests.models.dynamics.test_smoothing import DATA, LISTS, P, slopes
from vips.models.dynamics import moments, windows
from vips.models.dynamics.start import system_of
from vips.models.dynamics.statistics import moment_blocks, moment_statistics

LAGS, CONSTANT, UNIT = 3, 0.4, 4.0


def rows_of(values):
    seen = np.isfinite(values)
    return np.hstack([np.where(seen, values, 0.0), CONSTANT * seen])


def test_moments_are_sums_over_pairs_of_steps():
    statistics, blocks = moment_statistics(DATA, LAGS, CONSTANT), moment_blocks(P, LAGS, UNIT)
    norms = statistics.norms(blocks)
    for n, values in enumerate(LISTS):
        rows = rows_of(values)
        opening = np.zeros((LAGS + 1, 2 * P))
        opening[: len(rows)] = rows[: LAGS + 1]
        expected = {
            "second": rows.T @ rows,
            "lagged": np.array([rows[k:].T @ rows[:-k] for k in range(1, LAGS + 1)]),
            "opening": np.outer(opening, opening),
        }
        for name, value in statistics.weighted_sum(np.eye(len(LISTS))[n]).items():
            np.testing.assert_allclose(value, expected[name], atol=1e-12, err_msg=name)
        norm = np.sqrt(sum((value**2).sum() / blocks[name].scale ** 2 for name, value in expected.items()))
        assert norm <= norms[n] <= norm * (1.0 + 1e-7)


@pytest.mark.parametrize("n_states", [1, 2, 4])
def test_the_likelihood_of_windows_is_that_of_dense_matrices(n_states):
    of, values = brute_force.a_system(K=n_states), np.random.default_rng(1).normal(2.0, 3.0, (20, 4, P))
    windows_seen = (values - of.offset).reshape(20, -1)
    second, mean = windows_seen.T @ windows_seen / 20, windows_seen.mean(axis=0)
    exact = np.mean([brute_force.conditioned(of, window)[2] for window in values]) / 4
    assert windows.log_likelihood(of, second, mean) == pytest.approx(exact, rel=1e-10)


def long_sequences(n, T, gaps, seed=0):
    """Sequences of a stationary system, and the covariance of a window of it."""
    of = brute_force.a_system(seed=5)
    of = replace(of, start=np.zeros(2), start_cov=of.stationary())
    rng, states = np.random.default_rng(seed), np.empty((n, T, 2))
    roots = [np.linalg.cholesky(covariance) for covariance in (of.start_cov, of.moves_cov)]
    for t in range(T):
        draws = rng.normal(size=(n, 2))
        states[:, t] = draws @ roots[0].T if t == 0 else states[:, t - 1] @ of.moves.T + draws @ roots[1].T
    values = states @ of.loadings.T + of.offset + rng.normal(size=(n, T, P)) * np.sqrt(of.noise_variance)
    values[rng.random(values.shape) < gaps] = np.nan
    return of, values


def totals_of(values, noise=0.0, seed=0):
    from vips.data import Sequences

    records = Sequences.from_list(list(values))
    totals = moment_statistics(records, LAGS, CONSTANT).weighted_sum(np.ones(len(records)))
    rng = np.random.default_rng(seed)
    noisy = {name: value + noise * rng.normal(size=value.shape) for name, value in totals.items()}
    return noisy, dict.fromkeys(totals, noise)


@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_without_noise_covariances_are_those_of_the_pairs(gaps):
    _, values = long_sequences(50, 8, gaps)
    estimates = moments.of_totals(*totals_of(values), CONSTANT)
    offset = np.array([0.1, -0.2, 0.3])
    about = estimates.lags.about(offset)
    for k in range(LAGS + 1):
        later, earlier = values[:, k:] - offset, values[:, : 8 - k] - offset
        for i in range(P):
            for j in range(P):
                np.testing.assert_allclose(about[k, i, j], np.nanmean(later[..., i] * earlier[..., j]), rtol=1e-9)
    np.testing.assert_allclose(estimates.n_sequences, 50 * (1.0 - gaps) ** 2 if gaps else 50, rtol=0.2)
    if not gaps:
        np.testing.assert_allclose(estimates.means, values.mean(axis=(0, 1)), rtol=1e-9)
        np.testing.assert_allclose(estimates.n_steps, 400, rtol=1e-9)


def test_pairs_that_are_too_few_give_no_lag():
    _, values = long_sequences(50, 2, 0.0)
    assert moments.of_totals(*totals_of(values), CONSTANT).n_lags == 1
    assert moments.of_totals(*totals_of(np.full((5, 4, P), np.nan)), CONSTANT) is None
    assert moments.of_totals(*totals_of(values, noise=1e4), CONSTANT) is None


def test_the_likelihood_of_windows_is_that_of_their_gaussian():
    of, w = brute_force.a_system(), 4
    mean, cov, H, d, R = brute_force.joint(of, w)
    rng = np.random.default_rng(2)
    seen = rng.normal(size=(30, w * P)) * 2.0
    second, average = seen.T @ seen / 30, seen.mean(axis=0)
    S = H @ cov @ H.T + np.diag(R)
    errors = seen - H @ mean
    expected = -0.5 * (
        (errors * np.linalg.solve(S, errors.T).T).sum(axis=1).mean() + np.linalg.slogdet(2 * np.pi * S)[1]
    )
    np.testing.assert_allclose(windows.log_likelihood(of, second, average), expected / w, rtol=1e-10)
    expectation = windows.expected(of, second, average)
    exact = [brute_force.conditioned(of, (row + d).reshape(w, P)) for row in seen]
    states = np.mean([x.reshape(w, 2) for x, _, _ in exact], axis=0)
    np.testing.assert_allclose(expectation.mean, states, atol=1e-10)
    second_of_states = np.mean([np.outer(x, x) + V for x, V, _ in exact], axis=0)
    np.testing.assert_allclose(expectation.second.reshape(w * 2, w * 2), second_of_states, atol=1e-10)
    cross = np.mean([row.reshape(w, P).T @ x.reshape(w, 2) for row, (x, _, _) in zip(seen, exact, strict=True)], axis=0)
    np.testing.assert_allclose(expectation.cross, cross, atol=1e-10)


def test_em_on_windows_ends_where_their_likelihood_is_level():
    _, values = long_sequences(200, 10, 0.0)
    estimates = moments.of_totals(*totals_of(values), CONSTANT)
    products = np.array([[estimates.lags.about(estimates.means)[abs(i - j)] for j in range(3)] for i in range(3)])
    products = np.array([[products[i, j] if i >= j else products[j, i].T for j in range(3)] for i in range(3)])
    second = moments.window(products, 0.0, np.ones(P))
    nothing = np.zeros(len(second))
    before = replace(brute_force.a_system(seed=5), start=np.zeros(2))
    likelihoods = [windows.log_likelihood(before, second, nothing)]
    for _ in range(5):
        before = windows.refined(before, second, 1, 0.999, 1e-6)
        likelihoods.append(windows.log_likelihood(before, second, nothing))
    assert (np.diff(likelihoods) > 0.0).all()
    tight = pytest.MonkeyPatch()
    with tight.context() as patch:
        patch.setattr(windows, "_TOL", 1e-14)
        of = windows.refined(before, second, 20_000, 0.999, 1e-6)
    level = slopes(lambda x: windows.log_likelihood(replace(x, start=np.zeros(2)), second, nothing), of)
    start = slopes(lambda x: windows.log_likelihood(replace(x, start=np.zeros(2)), second, nothing), before)
    assert np.abs(level).max() < 1e-4 < 1e-2 < np.abs(start).max()


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_a_system_is_found_from_its_moments(gaps):
    of, values = long_sequences(8_000, 12, gaps)
    system = system_of(moments.of_totals(*totals_of(values), CONSTANT), 2, 1e-6)
    true = of.canonical()
    np.testing.assert_allclose(system.offset, of.offset, atol=0.1)  # deviations of the columns are about 3
    np.testing.assert_allclose(system.noise_variance, of.noise_variance, rtol=0.2)
    eigenvalues = [np.sort_complex(np.linalg.eigvals(dynamics.moves)) for dynamics in (system, true)]
    np.testing.assert_allclose(*eigenvalues, atol=0.03)
    covariances = [dynamics.loadings @ dynamics.stationary() @ dynamics.loadings.T for dynamics in (system, true)]
    np.testing.assert_allclose(*covariances, atol=0.05 * np.abs(covariances[1]).max())
    starts = [dynamics.loadings @ dynamics.start_cov @ dynamics.loadings.T for dynamics in (system, true)]
    np.testing.assert_allclose(*starts, atol=0.1 * np.abs(starts[1]).max())


def test_noise_that_hides_all_leaves_columns_alone():
    _, values = long_sequences(300, 8, 0.0)
    system = system_of(moments.of_totals(*totals_of(values, noise=300.0), CONSTANT), 2)
    assert np.isfinite(system.noise_variance).all()
    assert (system.noise_variance > 0.0).all()
    assert np.linalg.eigvalsh(system.start_cov)[0] > 0.0
    assert np.abs(np.linalg.eigvals(system.moves)).max() < 1.0


def test_windows_have_no_variance_below_the_noise():
    rng, least = np.random.default_rng(0), np.array([0.5, 2.0])
    products = 3.0 * rng.normal(size=(4, 4, 2, 2))
    unit = np.sqrt(np.tile(least, 4))
    for noise, lowest in ((0.1, 0.2), (0.0, 1e-6)):
        covariance = moments.window(products, noise, least) / np.outer(unit, unit)
        assert np.linalg.eigvalsh(covariance)[0] >= lowest * (1.0 - 1e-6)


def test_columns_share_what_noise_hides():
    """Numbers and sums of pairs of steps are nearer to the true ones than noisy totals; without noise they are the totals."""
    _, values = long_sequences(300, 8, 0.0)
    exact, noisy = (moments.Pairs.of(totals_of(values, noise)[0]["lagged"], CONSTANT, noise) for noise in (0.0, 100.0))
    np.testing.assert_allclose(exact.counts[:, 0, 1], [2100.0, 1800.0, 1500.0])
    assert np.square(noisy.counts - exact.counts).mean() < 0.5 * (100.0 / CONSTANT**2) ** 2
    assert np.square(noisy.later - exact.later).mean() < 0.7 * (100.0 / CONSTANT) ** 2


@pytest.mark.parametrize("seed", range(20))
def test_any_totals_give_a_valid_system(seed):
    """Noise of any size, of any sign."""
    rng = np.random.default_rng(seed)
    _, values = long_sequences(40, 6, 0.1, seed)
    totals, noise_std = totals_of(values, noise=10.0 ** rng.uniform(-1, 4), seed=seed)
    with np.errstate(all="raise"):
        given = moments.of_totals(totals, noise_std, CONSTANT)
        if given is None:
            return
        system = system_of(given, 3)
    assert all(np.isfinite(value).all() for value in vars(system).values())
    for cov in (system.moves_cov, system.start_cov, np.diag(system.noise_variance)):
        assert np.linalg.eigvalsh(cov)[0] > 0.0
    assert np.abs(np.linalg.eigvals(system.moves)).max() < 1.0
