"""Valid views of noisy totals of factorial hidden Markov models."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips.models.markov.posterior import private_chain

__all__ = ["view"]

_LEAST = 1e-3  # of the steps: those of a state
_ROUNDS = 20


def view(totals: Mapping[str, np.ndarray], noise_std: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Totals that some sequences could have.

    No count is negative, two states of one chain exclude each other, and the states of each chain add up to 1 in every step:
    tables of two chains get the margins of both, by iterative proportional fitting, and all chains have the same sum of steps.
    """
    M, K = totals["start"].shape
    chains = [private_chain(*chain, noise_std) for chain in zip(totals["start"], totals["moves"], strict=True)]
    start, moves = (np.array(parts) for parts in zip(*chains, strict=True))
    both, every = totals["both"].reshape(M, K, M, K), np.arange(M)
    # K entries off the diagonal add up to a count, too, each with half of its variance
    counts = np.diag(totals["both"]).reshape(M, K)
    others = both.sum(axis=3)
    others[every, :, every] = 0.0
    counts = (counts + others.sum(axis=2) * 2.0 / K) / (1.0 + (M - 1) * 2.0 / K)
    n_steps = max(counts.sum() / M, 1.0)
    counts = np.maximum(counts, _LEAST * n_steps)
    counts = n_steps * counts / counts.sum(axis=1, keepdims=True)
    both = np.maximum(both, _LEAST * n_steps / K**2)
    for m in range(M):
        both[m, :, m] = np.diag(counts[m])
        for other in range(m):
            table = both[m, :, other]
            for _ in range(_ROUNDS):
                table = table * (counts[m] / table.sum(axis=1))[:, None]
                table = table * (counts[other] / table.sum(axis=0))
            both[m, :, other], both[other, :, m] = table, table.T
    linear = totals["linear"].reshape(M, K, -1)
    sums = linear.sum(axis=1)
    linear = linear + (counts / n_steps)[:, :, None] * (sums.mean(axis=0) - sums)[:, None]
    return dict(totals) | {
        "start": start, "moves": moves, "both": both.reshape(M * K, M * K), "linear": linear.reshape(M * K, -1),
    }  # fmt: skip
