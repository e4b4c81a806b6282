"""Expected statistics of sequences of vectors. A record is one whole sequence of T steps.

In the step of the start, with z_t = (y_t ∘ o_t, c o_t), where o_t says which entries are observed and c is public:

===========  ========================  ==========================================
block        shape                     statistic
===========  ========================  ==========================================
second       (2p, 2p)                  Σ_t z_t z_tᵀ
lagged       (n_lags, 2p, 2p)          Σ_t z_{t+k} z_tᵀ, k = 1, 2, …
opening      (2pw, 2pw)                u uᵀ, u = (z_1, …, z_w), w = n_lags + 1
===========  ========================  ==========================================

In steps of EM and of variational Bayes, where E is given the sequence and s_t = (x_t, 1):

===========  ========================  ==========================================
block        shape                     statistic
===========  ========================  ==========================================
start        (K,)                      E x_1
begin, end   (K, K)                    E x_1 x_1ᵀ, E x_T x_Tᵀ
states       (K, K)                    Σ_t E x_t x_tᵀ
cross        (K, K)                    Σ_t E x_t x_{t-1}ᵀ
seen         (p, K + 1, K + 1)         Σ_t E s_t s_tᵀ, where the column is observed
loadings     (p, K + 1)                Σ_t y_t E s_tᵀ, of each column
squares      (p,)                      Σ_t y_t²
counts       (2,)                      1, T
===========  ========================  ==========================================
"""

from __future__ import annotations

import numpy as np

from vips.core.exact.threads import run_ranges
from vips.core.sums import Block, DenseStatistics, Joint, Quadratic
from vips.data._sequences import Sequences
from vips.models.dynamics import sums
from vips.models.dynamics.smoothing import LEAST_STEPS, cumulative_work
from vips.models.dynamics.variational import expected_states

__all__ = ["moment_blocks", "moment_statistics", "state_blocks", "state_statistics"]

_OPENING = 0.5  # scale of the block "opening": a sequence has one opening, and many steps


def moment_blocks(p: int, n_lags: int, unit: float) -> dict[str, Block]:
    """Blocks of the start; ``unit`` is the square of a long row's norm."""
    D, w = 2 * p, n_lags + 1
    return {
        "second": Block((D, D), symmetric=True, scale=unit),
        "lagged": Block((n_lags, D, D), scale=unit),
        "opening": Block((D * w, D * w), symmetric=True, scale=_OPENING * unit),
    }


def state_blocks(p: int, K: int) -> dict[str, Block]:
    """Blocks of EM and of variational Bayes."""
    square = Block((K, K), symmetric=True)
    return {
        "start": Block((K,)), "begin": square, "end": square, "states": square, "cross": Block((K, K)),
        "seen": Block((p, K + 1, K + 1), symmetric=True), "loadings": Block((p, K + 1)), "squares": Block((p,)),
        "counts": Block((2,)),
    }  # fmt: skip


def moment_statistics(records: Sequences, n_lags: int, constant: float) -> Joint:
    """Statistics of the start.

    Parameters
    ----------
    records : Sequences
        Entries that are not finite are missing.
    n_lags : int
    constant : float
        c.
    """
    values, offsets, n = records.values, records.offsets, len(records)
    is_seen = np.isfinite(values)
    rows = np.ascontiguousarray(np.hstack([np.where(is_seen, values, 0.0), constant * is_seen]))
    D, w = rows.shape[1], n_lags + 1
    second, lagged = np.zeros((n, D, D)), np.zeros((n, n_lags, D, D))

    def add_range(first: int, last: int) -> None:
        sums.add_lagged(rows, offsets, first, last, second, lagged)

    run_ranges(add_range, offsets, least_work=LEAST_STEPS)
    places = offsets[:-1, None] + np.arange(w)
    is_step = places < offsets[1:, None]
    openings = np.zeros((n, w, D))
    openings[is_step] = rows[places[is_step]]
    return Joint(
        DenseStatistics({"second": second, "lagged": lagged}), Quadratic("opening", openings.reshape(n, w * D))
    )


def state_statistics(records: Sequences, posterior) -> DenseStatistics:
    """Statistics of EM, or of variational Bayes. With EM sequences without gaps need no covariance of their own."""
    n, (p, K) = len(records), posterior.dynamics.loadings.shape
    offsets, values = records.offsets, records.values
    begin, end, states, cross = (np.zeros((n, K, K)) for _ in range(4))
    seen, loadings, squares = np.zeros((n, p, K + 1, K + 1)), np.zeros((n, p, K + 1)), np.zeros((n, p))
    paths = expected_states(records, posterior)
    whole, gappy, mean = paths.whole, paths.gappy, paths.mean
    for length in np.unique(records.lengths[whole]):
        these = whole[records.lengths[whole] == length]
        known = posterior.known_sums(int(length))
        for target, value in zip((begin, end, states, cross), known, strict=True):
            target[these] = value
        seen[these, :, :K, :K] = known[2]

    def add_range(first: int, last: int) -> None:
        sums.add_states(values, offsets, first, last, mean, begin, end, states, cross, seen, loadings, squares)

    def of_gaps(first: int, last: int) -> None:
        sums.add_covariances(
            values, offsets, gappy, first, last, paths.cov, paths.lagged, begin, end, states, cross, seen
        )

    run_ranges(add_range, offsets, least_work=LEAST_STEPS)
    run_ranges(of_gaps, cumulative_work(records, gappy), least_work=LEAST_STEPS)
    start = np.zeros((n, K))
    filled = records.lengths > 0
    start[filled] = mean[offsets[:-1][filled]]
    counts = np.stack([filled, records.lengths], axis=1).astype(np.float64)
    return DenseStatistics({
        "start": start, "begin": begin, "end": end, "states": states, "cross": cross, "seen": seen, "loadings": loadings,
        "squares": squares, "counts": counts,
    })  # fmt: skip
