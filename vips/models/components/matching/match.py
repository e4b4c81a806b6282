"""Parameters whose simulated records give the released totals, and how sure they are: post-processing, at no budget.

A step releases T_t = Σ_i w_i s(x_i; m_t) + noise at the *public* posterior m_t. Given m_t its noise is independent of all that
came before, so all steps observe the same parameters θ, whatever the fit did in between: an early m_t, a clip that binds, or a
mean field that is too narrow is no error, because simulated records are seen in the same way.

=========  =========================================================================================================
symbol     meaning
=========  =========================================================================================================
y          totals, averaged over the steps of each group: first phases, and both halves of the last one
μ(θ), J    mean statistics of a simulated record, and their derivative, which is Cov(s, score) (Fisher's identity)
V          variance of y: N Cov(s) of the records, N²/M of the simulation, that of the noise, and that of sampled steps
N          number of records, which is matched, too; with weights w over the largest, Σ w
κ          then Σ w² / Σ w of records like this one, from sums by components; N Cov(s) is N E[κ (s - μ)(s - μ)']
P, g       precision and gradient of the prior
=========  =========================================================================================================

A move of Gauss and Newton for y ~ N(N μ(θ), V) is (A'V⁻¹A + P)⁻¹(A'V⁻¹(y - Nμ) + g) with A = [N J, N μ]; the covariance is
(A'V⁻¹A + P)⁻¹. A move after which χ² = (y - Nμ)'V⁻¹(y - Nμ) is larger is taken back, and a shorter one is taken.

Probabilities and rates are not below 0. While moves go on they stay a little above it, where simulated records tell of them;
the last move may lead to 0. What it leads there has about the variance of half a normal law.

χ² has about as many degrees of freedom as there are totals more than parameters that these tell. If it is far above, the totals
are not those of such a model, or the match went astray: then there are no intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.linalg import block_diag, cho_solve, null_space, solve_triangular
from scipy.optimize import nnls

from vips.core.exact.blas_threads import one_blas_thread
from vips.core.sums import ReleasedStep
from vips.models.components.matching.charts import Chart
from vips.models.components.matching.simulator import Moments, Simulator

__all__ = ["ACCEPTED", "N_DRAWS", "ChartMatch", "Match", "Totals", "best_match", "check_told", "match_near"]

N_DRAWS = 2_000  # of the parameters
_FIRST, _LAST, _MORE, _OF_TRIAL = 5, 3, 5, 7  # moves; _MORE only while they are large
_SMALL_MOVE, _LARGE_MOVE = 0.1, 1.0
_FEWEST = 30.0  # records
_PRIOR_OF_SIZE = 1e-8  # precision of log N
_LARGEST_CHANGE = 0.3  # of log N in a move
_PER_RECORD, _FEWEST_SIMULATED = 4.0, 2_000  # simulated records: at most for each one of the totals, and at least
_WORSE, _WORSE_BY = 1.02, 3.0  # factor and sum by which χ² may rise
_MOST_DAMPING = 100.0
_OF_BOUND = 1.0 / (1.0 - 2.0 / np.pi) - 1.0  # precision that a normal law gains where it is cut at its mean
_TELL_NOTHING = "The released totals tell nothing of the parameters at which the fit ended: there are no intervals."
ACCEPTED, _SETTLED = 3.0, 0.3  # standard deviations of χ², and size of the last move
_PER_PARAMETER = 2.5  # by which -2 log likelihood must fall; 2 is Akaike's
_N_STARTS, _REPEATED = 8, 2  # of these, and the best ones of them, which are then matched


@dataclass(frozen=True)
class Totals:
    """What a fit has released, group by group of its steps.

    Parameters
    ----------
    values : ndarray of shape (n_totals,)
        Averages over the steps of each group.
    noise_var : ndarray of shape (n_totals,)
        Of the noise in them.
    sampled_var : ndarray of shape (n_totals, n_totals)
        Factor of N E s s' by which Poisson samples of the steps add to the variance; 0 between groups.
    groups : list of list of ReleasedStep
    ratios : ndarray of shape (K,), optional
        With weights w over the largest one: Σ w² / Σ w of the records in each component of the last step's posterior.
    """

    values: np.ndarray
    noise_var: np.ndarray
    sampled_var: np.ndarray
    groups: Sequence[Sequence[ReleasedStep]]
    ratios: np.ndarray | None = None

    @property
    def records_in_one(self) -> float:
        """How many records are in one of weight 1, at most."""
        return 1.0 if self.ratios is None else 1.0 / float(self.ratios.min())


@dataclass(frozen=True, kw_only=True)
class Match:
    """How well simulated records of the best parameters give the totals.

    Parameters
    ----------
    n_records : float
    chi2, degrees : float
        Distance of the totals from those of the parameters, and its mean if they are from such records.
    move : float
        Size of the last move, by parameters that people read.
    astray : float or None
        Where another start gives the totals better: ``misfit`` of the match that begins where the fit ended.
    """

    n_records: float
    chi2: float
    degrees: float
    move: float
    astray: float | None = None

    @property
    def misfit(self) -> float:
        """How far χ² is above that of records of the parameters, in standard deviations: about a draw of N(0, 1) if it is
        theirs, also where degrees of freedom are few and χ² is skewed (Wilson and Hilferty)."""
        degrees = max(self.degrees, 1.0)
        variance = 2.0 / (9.0 * degrees)
        return float((np.cbrt(self.chi2 / degrees) - 1.0 + variance) / np.sqrt(variance))

    def check(self) -> None:
        """Raise NotImplementedError if the match is not accepted."""
        if self.misfit < ACCEPTED and not self.move < _SETTLED:
            raise NotImplementedError(
                f"The match of parameters to the released totals has not settled: its last move is {self.move:.2f}, and not "
                f"below {_SETTLED}. So there are no intervals."
            )
        if not self.misfit < ACCEPTED:
            raise NotImplementedError(
                "The released totals are not those of such records, or the fit went astray: they are "
                f"{self.misfit:.1f} standard deviations from those of the best parameters. So there are no intervals."
            )


@dataclass(frozen=True, kw_only=True)
class ChartMatch(Match):
    """Parameters in charts, and a normal approximation around them.

    Parameters
    ----------
    charts : list of Chart
        At which records were simulated last.
    step : ndarray of shape (n_coordinates + 1,)
        From there to the best parameters.
    cov : ndarray of shape (n_coordinates + 1, n_coordinates + 1)
        Of the coordinates of all charts, and of log N.
    log_det : float
        Of the variance V of the totals.
    """

    charts: Sequence[Chart] = field(repr=False)
    step: np.ndarray = field(repr=False)
    cov: np.ndarray = field(repr=False)
    log_det: float = field(repr=False)

    @property
    def criterion(self) -> float:
        """-2 log likelihood of the totals, but for a constant, and 2.5 for each parameter: the least one says how many."""
        return self.chi2 + self.log_det + _PER_PARAMETER * sum(chart.n_free for chart in self.charts)

    def best(self) -> list[Chart]:
        """The best parameters; those that may be 0 are hardly above it."""
        return [chart.moved(self.step[of]) for chart, of in _places(self.charts)]

    def draws(self) -> list[np.ndarray]:
        """Joint draws of each chart's parameters, shape (N_DRAWS, size); the same in every call, and pairs around the match."""
        try:
            factor = np.linalg.cholesky(self.cov[:-1, :-1])
        except np.linalg.LinAlgError:
            raise NotImplementedError(_TELL_NOTHING) from None
        normal = np.random.default_rng(0).standard_normal((N_DRAWS // 2, len(factor)))
        steps = self.step[:-1] + np.concatenate([normal, -normal]) @ factor.T
        return [chart.draws(of) for chart, of in zip(self.charts, _split(steps, self.charts), strict=True)]


def check_told(shares: np.ndarray, components: str, least: float = 5.0) -> None:
    """Raise NotImplementedError if noise hides a component: its share is less than ``least`` of its deviations."""
    hidden = shares.mean(axis=0) < least * shares.std(axis=0)
    if hidden.any():
        raise NotImplementedError(
            f"Noise hides {hidden.sum()} of the {len(hidden)} {components}: their shares are below {least:g} of their standard "
            f"deviations. So there are no intervals. Fewer {components}, or a larger ε, would show more."
        )


@dataclass(frozen=True)
class _Place:
    """Parameters, what simulation says there, and the move from them, without damping."""

    charts: Sequence[Chart]
    n_records: float
    chi2: float
    log_det: float
    curvature: np.ndarray
    slope: np.ndarray
    moments: Moments

    @cached_property
    def cov(self) -> np.ndarray:
        """About the covariance of the coordinates, and of log N."""
        return np.linalg.inv(self.curvature)

    def move(self, damping: float) -> tuple[np.ndarray, list[float]]:
        """A move, and its sizes before it is shortened."""
        step, _ = self._within_bounds(damping, self.cov)
        sizes = self._sizes(step)
        return step * min(1.0, _LARGE_MOVE / max(*sizes, 1e-300)), sizes

    def moved(self, step: np.ndarray) -> tuple[list[Chart], float]:
        charts = [chart.moved(step[of], self.cov[of, of]) for chart, of in _places(self.charts)]
        change = np.clip(step[-1], -_LARGEST_CHANGE, _LARGEST_CHANGE)
        return charts, max(self.n_records * float(np.exp(change)), _FEWEST)

    def at_best(self, damping: float) -> tuple[np.ndarray, np.ndarray, float, float]:
        """A small move, to 0 where it leads there; the covariance there, of which bounds tell something, too; χ² there, and its
        degrees of freedom: totals more than parameters, of which those at bounds do not count, and those that a prior tells
        count less."""
        step, met = self._within_bounds(damping)
        if damping > 0.0:  # bounds count where the best parameters meet them
            _, met = self._within_bounds(0.0)
        step *= min(1.0, _SMALL_MOVE / max(*self._sizes(step), 1e-300))
        gradient, precision = _prior(self.charts)
        told_of = self.curvature - precision
        chi2 = self.chi2 - 2.0 * step @ (self.slope - gradient) + step @ told_of @ step
        free = null_space(met) if len(met) else np.eye(len(step))
        told = np.trace(np.linalg.solve(free.T @ self.curvature @ free, free.T @ told_of @ free))
        variances = np.einsum("bi,ij,bj->b", met, self.cov, met)
        cov = np.linalg.inv(self.curvature + (met.T * (_OF_BOUND / variances)) @ met)
        return step, cov, float(chi2), float(max(len(self.moments.mean) - told, 0.0))

    def _sizes(self, step: np.ndarray) -> list[float]:
        """Sizes of the move of each chart, and of log N."""
        return [*(chart.largest(step[of]) for chart, of in _places(self.charts)), abs(step[-1]) / _LARGEST_CHANGE]

    def _within_bounds(self, damping: float, cov: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The best step δ by slope'δ - δ'Hδ/2 that leads no parameter below its floor (0 without ``cov``), and the slopes of
        those that it leads there: least distance programming (Lawson and Hanson 1974, chapter 23)."""
        H = self.curvature + damping * np.diag(np.diagonal(self.curvature))
        bounds = [c.bounds(None if cov is None else cov[of, of]) for c, of in _places(self.charts)]
        slopes = block_diag(*(slopes for slopes, _ in bounds), np.zeros((0, 1)))
        room = np.concatenate([room for _, room in bounds])
        factor = np.linalg.cholesky(H)
        step = cho_solve((factor, True), self.slope)
        if (slopes @ step >= -room).all():
            return step, slopes[:0]
        across = solve_triangular(factor, slopes.T, lower=True)
        lack = -room - slopes @ step
        try:
            weights, _ = nnls(np.vstack([across, lack]), np.append(np.zeros(len(H)), 1.0))
        except (RuntimeError, ValueError) as error:  # too many iterations, or not finite
            raise np.linalg.LinAlgError(str(error)) from error
        pull = across @ weights / max(1.0 - lack @ weights, 1e-300)
        return step + solve_triangular(factor.T, pull), slopes[weights > 0.0]


@np.errstate(all="ignore")  # as in a fit: posteriors of a file may be any
def best_match(
    simulator: Simulator,
    totals: Totals,
    charts: Sequence[Chart],
    other: Callable[[np.random.Generator], Sequence[Chart]] | None = None,
) -> ChartMatch:
    """The match that begins at ``charts``; if it is doubtful, the best one of those from some draws of ``other`` starts, too.

    Raises
    ------
    NotImplementedError
        If no move from ``charts`` can be computed.
    """
    few, many, of_trial = simulator.sizes
    try:
        match = _matched(*_moved(simulator, totals, charts, None, [few] * _FIRST + [many] * _LAST, _MORE))
    except np.linalg.LinAlgError:
        raise NotImplementedError(_TELL_NOTHING) from None
    if other is None or (match.misfit < simulator.doubtful and match.move < _SETTLED):
        return match
    trials, rng = [], np.random.default_rng(0)
    for _ in range(_N_STARTS):
        with suppress(np.linalg.LinAlgError):
            trials.append(_moved(simulator, totals, other(rng), None, [of_trial] * _OF_TRIAL, 0)[0])
    best = sorted(trials, key=lambda place: place.chi2)[:_REPEATED]
    matches = [match]
    for place in best:
        with suppress(np.linalg.LinAlgError):
            again = _moved(simulator, totals, place.charts, place.n_records, [many] * _LAST, _MORE)
            matches.append(_matched(*again))
    nearest = min(matches, key=lambda match: match.misfit)
    return nearest if nearest is match else replace(nearest, astray=match.misfit)


@one_blas_thread()  # as ``model.match``
@np.errstate(all="ignore")
def match_near(simulator: Simulator, totals: Totals, starts: Iterable[Sequence[Chart]]) -> ChartMatch | None:
    """The match that begins at the best of these starts, by fewer moves; None if none can be computed."""
    few, _, of_trial = simulator.sizes
    trials = []
    for charts in starts:
        with suppress(np.linalg.LinAlgError):
            trials.append(_place(simulator, totals, charts, None, of_trial))
    for place in sorted(trials, key=lambda place: place.chi2 + place.log_det):
        with suppress(np.linalg.LinAlgError):
            moves = [of_trial] * _FIRST + [2 * few] * _LAST
            return _matched(*_moved(simulator, totals, place.charts, place.n_records, moves, _MORE))
    return None


def _matched(place: _Place, damping: float, sizes: Sequence[float]) -> ChartMatch:
    step, cov, chi2, degrees = place.at_best(damping)
    return ChartMatch(
        charts=place.charts,
        step=step,
        cov=cov,
        log_det=place.log_det,
        n_records=place.n_records,
        chi2=chi2,
        degrees=degrees,
        move=_of_read(sizes, place.charts),
    )


def _of_read(sizes: Sequence[float], charts: Sequence[Chart]) -> float:
    """The largest size of a move of parameters that people read, and of log N."""
    return max(*(size for size, chart in zip(sizes, charts, strict=False) if chart.is_read), sizes[-1])


def _moved(simulator, totals, charts, n_records, sizes: Sequence[int], more: int) -> tuple[_Place, float, list[float]]:
    """The best place after moves with so many simulated records each, and up to ``more`` with the last number; the damping of
    the next move, and its sizes."""
    best, damping, next_sizes, most = None, 0.0, [np.inf], np.inf
    for number in range(len(sizes) + more):
        if number >= len(sizes) and _of_read(next_sizes, charts) < _SMALL_MOVE:
            break
        n_simulated = int(min(sizes[min(number, len(sizes) - 1)], most))
        place = _place(simulator, totals, charts, n_records, n_simulated)
        if number == 0:
            per_record = _PER_RECORD * totals.records_in_one
            most = max(per_record * place.n_records, _FEWEST_SIMULATED)
        is_worse = (
            best is not None
            and best.moments.n_records == n_simulated
            and place.chi2 > _WORSE * best.chi2 + _WORSE_BY
            and damping < _MOST_DAMPING
        )
        if is_worse:
            damping = max(10.0 * damping, 0.3)
        else:
            best, damping = place, 0.0 if damping < 0.1 else damping / 5.0
        step, next_sizes = best.move(damping)
        charts, n_records = best.moved(step)
    return best, damping, next_sizes


def _place(simulator, totals: Totals, charts, n_records: float | None, n_simulated: int) -> _Place:
    moments = simulator.moments(charts, totals.groups, n_simulated, totals.ratios)
    if n_records is None:
        n_records = _fitting_size(totals, moments)
    A = n_records * np.column_stack([moments.slopes, moments.mean])
    residual = totals.values - n_records * moments.mean
    variance = _variance(totals, moments, n_records)
    if not (np.isfinite(variance).all() and np.isfinite(A).all()):
        raise np.linalg.LinAlgError("The moments of simulated records are not finite.")
    factor = np.linalg.cholesky(variance)
    weighed = cho_solve((factor, True), np.column_stack([A, residual]))
    gradient, precision = _prior(charts)
    curvature = A.T @ weighed[:, :-1] + precision
    return _Place(
        charts,
        n_records,
        float(residual @ weighed[:, -1]),
        2.0 * float(np.log(np.diagonal(factor)).sum()),
        0.5 * (curvature + curvature.T),
        A.T @ weighed[:, -1] + gradient,
        moments,
    )


def _variance(totals: Totals, moments: Moments, n_records: float) -> np.ndarray:
    of_simulation = n_records**2 / moments.n_records * moments.unexplained
    of_records = n_records * (moments.cov + totals.sampled_var * moments.second)
    of_ways = n_records**2 * moments.apart
    return of_records + of_ways + of_simulation + np.diag(totals.noise_var + 1e-9 * n_records)


def _fitting_size(totals: Totals, moments: Moments) -> float:
    """The number of records that fits best, by the largest totals."""
    weights = moments.mean / (totals.noise_var + 1e-9)
    return max(float(weights @ totals.values) / max(float(weights @ moments.mean), 1e-300), _FEWEST)


def _prior(charts: Sequence[Chart]) -> tuple[np.ndarray, np.ndarray]:
    """Prior of all charts, and of log N."""
    size = sum(chart.size for chart in charts) + 1
    gradient, precision = np.zeros(size), np.zeros((size, size))
    for chart, of in _places(charts):
        gradient[of], precision[of, of] = chart.prior()
    precision[-1, -1] = _PRIOR_OF_SIZE
    return gradient, precision


def _places(charts: Sequence[Chart]) -> list[tuple[Chart, slice]]:
    """Charts, and where their coordinates are."""
    ends = np.cumsum([chart.size for chart in charts])
    return [(chart, slice(end - chart.size, end)) for chart, end in zip(charts, ends, strict=True)]


def _split(steps: np.ndarray, charts: Sequence[Chart]) -> list[np.ndarray]:
    return np.split(steps, np.cumsum([chart.size for chart in charts])[:-1], axis=-1)
