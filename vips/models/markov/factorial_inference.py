"""E-step of a factorial hidden Markov model: structured mean field (Ghahramani and Jordan, 1997).

Given a sequence, chains are taken as independent of each other, and each is exact: the forward-backward algorithm runs on one
chain after the other, with what each step has left when the others' expected effects are taken off.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vips.core.exact.threads import run_ranges
from vips.core.sums import DenseStatistics
from vips.data._sequences import Sequences
from vips.models._chains import inferred
from vips.models.markov import kernels
from vips.models.markov.factorial_posterior import FactorialPosterior
from vips.models.markov.statistics import first_shares

__all__ = ["Inferred", "factorial_statistics", "inferred_chains"]

_LEAST_STEPS = 2_000  # below it, one thread


@dataclass(frozen=True, repr=False)
class Inferred:
    """What structured mean field finds.

    Parameters
    ----------
    z : ndarray of shape (n_steps, d)
        Steps, whitened; 0 where they are missing.
    is_missing : ndarray of bool, shape (n_steps,)
    shares : ndarray of shape (n_steps, M K)
        Probabilities of the states of each chain.
    pairs : ndarray of shape (n_sequences, M, K, K)
        Σ_t of the probabilities of the states at t - 1 and t.
    log_likely : ndarray of shape (n_steps, M K)
        Of the last round, but for a constant in each step and chain.
    bound : ndarray of shape (n_sequences,)
        Lower bounds of the log likelihood.
    """

    z: np.ndarray
    is_missing: np.ndarray
    shares: np.ndarray
    pairs: np.ndarray
    log_likely: np.ndarray
    bound: np.ndarray


def inferred_chains(records: Sequences, posterior: FactorialPosterior, max_iter: int) -> Inferred:
    """States of each sequence after ``max_iter`` rounds over the chains; a function of that sequence alone, to the last bit.

    Parameters
    ----------
    records : Sequences
        A step with a number that is not finite is a missing step.
    posterior : FactorialPosterior
    max_iter : int
    """
    X, tables, offsets = np.require(records.values, np.float64, ["C", "W"]), posterior.tables, records.offsets
    (M, K), (n_steps, d) = posterior.start.concentration.shape, X.shape
    is_missing = np.empty(n_steps, bool)
    kernels.fill_missing(X, is_missing)
    z, scores, squares = np.empty((n_steps, d)), np.empty((n_steps, M * K)), np.empty(n_steps)
    _in_threads(
        lambda first, last: kernels.fill_steps(
            X, is_missing, posterior.centre, posterior.whitening, tables.gains, tables.precision, first, last, z, scores,
            squares,
        ),
        np.arange(n_steps + 1),
    )  # fmt: skip
    start, moves = posterior.chain
    shares, log_likely = np.full((n_steps, M * K), 1.0 / K), np.empty((n_steps, M * K))
    likely, log_scale, pairs = np.empty((n_steps, K)), np.empty(n_steps), np.empty((len(records), M, K, K))
    for _ in range(max_iter):
        bound = np.zeros(len(records))
        for m in range(M):

            def fill(first: int, last: int, m: int = m) -> None:
                kernels.fill_evidence(
                    scores, is_missing, tables.overlap, shares, m, K, first, last, log_likely, likely, log_scale
                )

            _in_threads(fill, np.arange(n_steps + 1))
            shares_of_chain, pairs[:, m], log_normaliser = inferred(offsets, start[m], moves[m], likely, log_scale)
            shares[:, m * K : (m + 1) * K] = shares_of_chain
            bound += log_normaliser
    expected, log_det = np.empty(len(records)), np.log(np.diag(posterior.whitening)).sum()
    _in_threads(
        lambda first, last: kernels.fill_expected_log(
            offsets, is_missing, scores, squares, tables.overlap, shares, tables.constant + log_det, log_likely, K, first,
            last, expected,
        ),
        offsets,
    )  # fmt: skip
    return Inferred(z, is_missing, shares, pairs, log_likely, bound + expected)


def factorial_statistics(records: Sequences, posterior: FactorialPosterior, max_iter: int) -> DenseStatistics:
    """Expected statistics of each sequence."""
    inference, offsets = inferred_chains(records, posterior, max_iter), records.offsets
    (M, K), n, d = posterior.start.concentration.shape, len(records), len(posterior.mean)
    both, linear, second = np.empty((n, M * K, M * K)), np.empty((n, M * K, d)), np.empty((n, d, d))
    _in_threads(
        lambda first, last: kernels.add_sums(
            offsets, inference.is_missing, inference.z, inference.shares, K, first, last, both, linear, second
        ),
        offsets,
    )
    start = first_shares(records, inference.shares).reshape(n, M, K)
    return DenseStatistics({
        "start": start, "moves": inference.pairs, "both": both, "linear": linear, "second": second,
    })  # fmt: skip


def _in_threads(fill, cumulative_work: np.ndarray) -> None:
    run_ranges(fill, cumulative_work, least_work=_LEAST_STEPS)
