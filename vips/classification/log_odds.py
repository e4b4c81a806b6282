"""Log odds of a class in each cell of a column, as posterior means given noisy counts.

In cell c the counts of the class and of all others are T_c p_c and T_c (1 - p_c), with independent normal errors: the noise
that was added, and that of a sample. The unknowns are

    T_c      a size, with a prior that is flat in log T (a mixture of exponential laws)
    δ_c      logit p_c minus the logit over all cells; its prior is N(0, τ²) on a grid
    chain    in a column of numbers δ moves from cell to cell by small steps, or jumps to a fresh draw; categories are all fresh
    trend    or, in a column of numbers, δ is N(slope · position, τ²), where the position is the value, or its rank

T is integrated out in closed form, δ by sums over the grid (for chains, the forward-backward algorithm). τ, steps, jumps
and slopes are averaged over public lists, weighted by their likelihood. So cells which noise hides are shrunk to 0 or to a
trend, and neighbours help each other as far as the counts say. All of it is post-processing.

Everything is computed in logs: precise counts may leave a prior no mass that a float could hold. From the log odds of all
tables follow the features of a regression.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from scipy.special import erfcx, expit, log_ndtr

from vips.classification.tables import ClassTable
from vips.parts import STANDS_OUT

__all__ = ["MOST_LOG_ODDS", "log_odds_of_tables", "posterior_log_odds", "scale_of_rows", "total_log_odds"]

MOST_LOG_ODDS = 3.0  # in a feature
_STATES = np.linspace(-6.0, 6.0, 49)  # of δ
_FINE = np.linspace(-6.0, 6.0, 241)  # for the mean, where a cell's counts are precise
_TAUS = (0.1, 0.3, 0.6, 1.0, 2.0)
_FRESH = ((1.0, 1.0),)  # probability of a fresh draw, size of a step
_CHAINS = (*_FRESH, (0.02, 0.1), (0.02, 0.3), (0.1, 0.3), (0.3, 0.3))
_SLOPES = (0.15, 0.3, 0.6, 1.2, 2.4)  # of δ between the middle and the end of the positions; of both signs
_AROUND_TREND = (0.1, 0.3)  # τ
_BLOCK = 1024  # cells at a time: memory does not grow with their number
_SIZES = 12  # exponential laws, of means between 1 and all records
# Longest row of features, in units of the root of the log odds' mean square under independent columns.
_ROW_NORM = 1.5 * math.sqrt(2.0)


def total_log_odds(of_class: float, of_others: float, std: float) -> float:
    """Log odds of a class over all records, from noisy counts: towards even odds where these are noise."""
    of_class, of_others = max(of_class, 0.0) + std + 0.5, max(of_others, 0.0) + std + 0.5
    return float(np.log(of_class) - np.log(of_others))


def posterior_log_odds(
    of_class: np.ndarray,
    of_others: np.ndarray,
    std: tuple[float, float],
    total: float,
    n_records: float,
    positions: np.ndarray | None = None,
) -> np.ndarray:
    """Posterior means of δ in each cell, within ±6, from noisy counts of the class and of all others.

    ``std`` are the deviations of their noise, ``total`` the log odds over all of about ``n_records`` records. In a column of
    numbers ``positions`` says where the cells are, in [-2, 2]: shape (n_kinds, n_cells).
    """
    blocks = [slice(first, first + _BLOCK) for first in range(0, len(of_class), _BLOCK)]
    settings = (std, total, n_records)
    likelihood = np.concatenate([_log_likelihood(of_class[c], of_others[c], *settings, _STATES) for c in blocks])
    if positions is None:
        priors = _chains(False)[0][:, None]
        in_cells = np.concatenate([_log_sum(likelihood[c] + priors, 2) for c in blocks], axis=1)
        others, evidence = (lambda c: priors - in_cells[:, c]), in_cells.sum(axis=(1, 2))
    else:
        chains, trends = _forward_backward(likelihood, *_chains(True)), _independent(likelihood, _trends(positions))
        both = np.concatenate([chains[0], trends[0]])
        others = lambda c: both[:, c]  # noqa: E731
        evidence = np.concatenate([chains[1] - np.log(len(chains[1])), trends[1] - np.log(len(trends[1]))])
    means = []
    for c in blocks:
        known = _log_sum(evidence[:, None, None] + others(c), 0)[0]  # about δ without the counts of the cell itself
        posterior = _log_likelihood(of_class[c], of_others[c], *settings, _FINE) + _interpolated(known)
        posterior = np.exp(posterior - posterior.max(axis=1, keepdims=True))
        means.append(posterior @ _FINE / posterior.sum(axis=1))
    return np.concatenate(means)


def _interpolated(logs: np.ndarray) -> np.ndarray:
    """Logs of values on the fine grid, between which values at _STATES are interpolated linearly, shape (n_cells, n_fine)."""
    place = (_FINE - _STATES[0]) / (_STATES[1] - _STATES[0])
    below = np.clip(np.floor(place).astype(int), 0, len(_STATES) - 2)
    with np.errstate(divide="ignore"):
        shares = np.log(np.clip([below + 1 - place, place - below], 0.0, 1.0))
    return np.logaddexp(logs[:, below] + shares[0], logs[:, below + 1] + shares[1])


def _log_likelihood(of_class, of_others, std, total: float, n_records: float, states: np.ndarray) -> np.ndarray:
    """log p(counts | δ) at each state δ, T integrated out, shape (n_cells, n_states); up to a constant in each cell.

    In units of the errors, counts are a point m and the cell's mean is T u(δ): the exponential law of T with mean 1/λ leaves
    a Gaussian integral over T ≥ 0.
    """
    pairs = zip((of_class, of_others), std, strict=True)
    deviations = [np.sqrt(noise_std**2 + np.maximum(counts, 1.0)) for counts, noise_std in pairs]
    p = expit(total + states)
    m = [(counts / deviation)[:, None] for counts, deviation in zip((of_class, of_others), deviations, strict=True)]
    u = [share / deviation[:, None] for share, deviation in zip((p, 1.0 - p), deviations, strict=True)]
    length = np.sqrt(u[0] ** 2 + u[1] ** 2)
    along = (m[0] * u[0] + m[1] * u[1]) / length
    parts = []
    for mean in np.geomspace(1.0, max(n_records, 10.0), _SIZES):
        shifted = along - 1.0 / (mean * length)
        parts.append(_log_integral(shifted) - np.log(length) - np.log(mean))
    return _log_sum(np.array(parts), 0)[0]


def _log_integral(x: np.ndarray) -> np.ndarray:
    """log Φ(x) + x²/2, also where these almost cancel."""
    below = np.minimum(x, 0.0)
    return np.where(x < 0.0, np.log(0.5 * erfcx(-np.sqrt(0.5) * below)), log_ndtr(x) + 0.5 * x**2)


def _independent(likelihood: np.ndarray, priors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What is known about δ of each cell without its own counts, divided by the evidence of these, shape (n_priors, n_cells,
    n_states); and the evidence of each prior. Priors have that shape, or (n_priors, 1, n_states). All are logs."""
    evidence = _log_sum(likelihood + priors, 2)
    return priors - evidence, evidence.sum(axis=(1, 2))


def _trends(positions: np.ndarray) -> np.ndarray:
    """Log priors along every trend, shape (n_trends, n_cells, n_states)."""
    slopes = np.array([sign * slope for slope in _SLOPES for sign in (-1.0, 1.0)])
    centres = (slopes[:, None, None] * positions).reshape(-1, positions.shape[1])
    log_priors = [-0.5 * ((_STATES - centres[:, :, None]) / tau) ** 2 for tau in _AROUND_TREND]
    log_priors = np.concatenate(log_priors)
    return log_priors - _log_sum(log_priors, 2)


def _log_sum(logs: np.ndarray, axis: int) -> np.ndarray:
    """Log of the sum of exponentials; the axis stays, of length 1. SciPy's takes four times as long."""
    largest = logs.max(axis=axis, keepdims=True)
    return largest + np.log(np.exp(logs - largest).sum(axis=axis, keepdims=True))


def _forward_backward(
    likelihood: np.ndarray, priors: np.ndarray, jumps: np.ndarray, steps: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same for chains, which jump to a draw from ``priors`` with probability ``jumps``, and else make one of ``steps``."""
    n_cells = len(likelihood)
    others, evidence = np.empty((len(priors), n_cells, priors.shape[1])), np.zeros(len(priors))
    with np.errstate(divide="ignore"):
        jump, stay = np.log(jumps)[:, None], np.log1p(-jumps)[:, None]
    current = priors
    for i in range(n_cells):
        others[:, i] = current
        current = current + likelihood[i]
        size = _log_sum(current, 1)
        evidence += size[:, 0]
        current = np.logaddexp(stay + _log_product(current - size, steps), jump + priors)
    behind = np.zeros_like(priors)
    for i in reversed(range(n_cells)):
        others[:, i] += behind
        others[:, i] -= _log_sum(others[:, i] + likelihood[i], 1)
        behind = behind + likelihood[i]
        moved = _log_product(behind, steps.swapaxes(1, 2))
        behind = np.logaddexp(stay + moved, jump + _log_sum(priors + behind, 1))
        behind -= _log_sum(behind, 1)
    return others, evidence


def _log_product(logs: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Log of the product of exp(logs), shape (n_chains, n_states), and the matrices ``steps``: minus infinity at 0."""
    largest = logs.max(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        return largest + np.log((np.exp(logs - largest)[:, None] @ steps)[:, 0])


@lru_cache
def _chains(is_ordered: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every τ and every kind of chain: the log of its stationary law, the probability of a jump, and its other steps."""
    priors, jumps, steps = [], [], []
    for tau in _TAUS:
        log_prior = -0.5 * (_STATES / tau) ** 2
        for fresh, size in _CHAINS if is_ordered else _FRESH:
            proposed = np.exp(-0.5 * ((_STATES[:, None] - _STATES) / size) ** 2)
            proposed /= proposed.sum(axis=1).max()
            accepted = proposed * np.exp(np.minimum(0.0, log_prior - log_prior[:, None]))  # keeps the prior stationary
            np.fill_diagonal(accepted, 0.0)
            np.fill_diagonal(accepted, 1.0 - accepted.sum(axis=1))
            priors.append(log_prior - _log_sum(log_prior, 0))
            jumps.append(fresh)
            steps.append(accepted)
    return np.array(priors), np.array(jumps), np.array(steps)


# -- from tables to features ---------------------------------------------------------------------------------------


def log_odds_of_tables(
    tables: Mapping[object, ClassTable], class_counts: np.ndarray, std: float
) -> dict[object, np.ndarray]:
    """For each column, log odds less their average in each cell: of the second class, or of each class of more than two."""
    outputs = [1] if len(class_counts) == 2 else range(len(class_counts))
    noisy = class_counts, std
    return {name: np.array([_centred_log_odds(table, k, *noisy) for k in outputs]) for name, table in tables.items()}


def scale_of_rows(tables: Mapping[object, ClassTable], log_odds: Mapping[object, np.ndarray]) -> float:
    """The factor that bounds most rows of features by norm 1; from noisy numbers."""
    squares = sum(float((_shares(table) * log_odds[name] ** 2).sum()) for name, table in tables.items())
    return 1.0 / (_ROW_NORM * math.sqrt(squares)) if squares > 0.0 else 1.0


def _centred_log_odds(table: ClassTable, k: int, class_counts: np.ndarray, std: float) -> np.ndarray:
    """Log odds of class k in each cell, less their average; shape (n_cells,). ``std`` is that of the noise in a count.

    NaN in the table marks categories below the threshold.
    """
    of_class, of_others = table.counts[k], np.delete(table.counts, k, axis=0).sum(axis=0)
    stds = (std, std * math.sqrt(len(class_counts) - 1))
    total = total_log_odds(class_counts[k], float(np.delete(class_counts, k).sum()), std)
    n_records = max(1.0, float(class_counts.sum()))
    log_odds, share = np.zeros(len(of_class)), _shares(table)
    if table.cells.kind == "category":
        parts = [(np.isfinite(of_class), None)]
    else:  # the last cell is that of missing values
        parts = [(slice(0, -1), table.cells.positions(share[:-1])), (slice(-1, None), None)]
    for part, positions in parts:
        log_odds[part] = posterior_log_odds(of_class[part], of_others[part], stds, total, n_records, positions)
    log_odds[~_says_something(table, std)] = 0.0
    return np.clip(log_odds - (log_odds * share).sum(), -MOST_LOG_ODDS, MOST_LOG_ODDS)


def _says_something(table: ClassTable, std: float) -> np.ndarray:
    """Whether a cell is one of values, or has records that noise does not hide: shape (n_cells + 1,).

    In others the log odds are those of all records.
    """
    is_seen = table.counts.sum(axis=0) > STANDS_OUT * std * math.sqrt(len(table.counts))  # not where these are NaN
    is_seen[: -2 if table.cells.kind == "category" else -1] = True
    return is_seen


def _shares(table: ClassTable) -> np.ndarray:
    """Shares of the records in each cell, from noisy counts."""
    counts = np.maximum(np.nan_to_num(table.counts.sum(axis=0)), 0.0)
    return counts / max(counts.sum(), 1e-300)
