"""Posterior of a switching linear dynamical system, its E-step and its M-step; and valid views of noisy totals,
and of the parameters that they give.

Coordinates are those of the start, in which states have variance 1: so a least eigenvalue has a meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from vips.core.exact.threads import run_ranges
from vips.core.sums import Block, DenseStatistics
from vips.data._sequences import Sequences
from vips.models._definite import floored
from vips.models.dynamics import sums, switching_kernels
from vips.models.dynamics.moments import shared
from vips.models.dynamics.posterior import Dynamics, DynamicsPosterior, stable
from vips.models.dynamics.smoothing import LEAST_STEPS
from vips.models.dynamics.update import divided_by, next_dynamics, raised

__all__ = [
    "Inferred",
    "SwitchingPosterior",
    "inferred",
    "next_switching",
    "repaired",
    "switching_blocks",
    "switching_statistics",
    "view",
]

_APART = 0.4  # of the first moves of a regime from those of all, for states of variance 1
_STAYS = 0.9  # share of steps in which a regime stays, at first
_LEAST = 1e-6  # of an eigenvalue of a covariance, as a share of the states' mean one
_PRIOR = 1e-3  # of a count of regimes
_VISIBLE = 10.0  # deviations of the noise in a count below which nothing is seen
_LARGEST = 0.995  # modulus of an eigenvalue of the moves
_LEAST_MOVES, _LEAST_START, _LEAST_NOISE = (
    0.02,
    0.05,
    0.02,
)  # of eigenvalues of covariances, and of variances of columns' noise


@dataclass(frozen=True, repr=False)
class SwitchingPosterior:
    """Parameters at which a fit is.

    Parameters
    ----------
    dynamics : Dynamics
        What regimes share; its ``moves`` and ``moves_cov`` are those of the start.
    moves, moves_cov : ndarray of shape (M, K, K)
        Of each regime.
    regime_start, regime_moves : ndarray of shape (M,), (M, M)
        Probabilities of the first regime, and of the next one.
    draws : ndarray of shape (M, K, K)
        Public: how regimes differ at first.
    n_sequences, n_steps : float
    """

    dynamics: Dynamics
    moves: np.ndarray
    moves_cov: np.ndarray
    regime_start: np.ndarray
    regime_moves: np.ndarray
    draws: np.ndarray
    n_sequences: float = 0.0
    n_steps: float = 0.0

    def __repr__(self) -> str:
        M, K = self.moves.shape[:2]
        return f"<SwitchingPosterior of {M} regimes, {K} states, {len(self.dynamics.offset)} columns>"

    @classmethod
    def of_system(cls, system: DynamicsPosterior, draws: np.ndarray) -> SwitchingPosterior:
        """Regimes around the moves of one system."""
        of, (M, K) = system.dynamics.canonical(), draws.shape[:2]
        moves = np.array([stable(of.moves + _APART * draw / np.sqrt(K), 0.98) for draw in draws])
        if M == 1:
            moves = of.moves[None]
        stays = np.full((M, M), (1.0 - _STAYS) / max(M - 1, 1)) + (_STAYS - (1.0 - _STAYS) / max(M - 1, 1)) * np.eye(M)
        start, stays = np.full(M, 1.0 / M), stays if M > 1 else np.ones((1, 1))
        cov = np.repeat(of.moves_cov[None], M, axis=0)
        return cls(of, moves, cov, start, stays, draws, system.n_sequences, system.n_steps)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        names = (field.name for field in fields(self) if field.name != "dynamics")
        arrays = {name: np.asarray(getattr(self, name)) for name in names}
        return arrays | {f"shared_{name}": value for name, value in vars(self.dynamics).items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> SwitchingPosterior:
        """Inverse of ``to_arrays``.

        Raises
        ------
        ValueError
            If the arrays do not fit together, or are not valid.
        """
        shared = {name.removeprefix("shared_"): value for name, value in arrays.items() if name.startswith("shared_")}
        of = DynamicsPosterior.from_arrays(shared | {"n_sequences": 0.0, "n_steps": 0.0}).dynamics
        regimes = [
            np.asarray(arrays[name], np.float64)
            for name in ("moves", "moves_cov", "regime_start", "regime_moves", "draws")
        ]
        M, K = len(regimes[2]), len(of.start)
        if [part.shape for part in regimes] != [(M, K, K), (M, K, K), (M,), (M, M), (M, K, K)]:
            raise ValueError("the regimes do not fit to the dynamics")
        if not all(np.isfinite(part).all() for part in regimes):
            raise ValueError("the regimes are not finite")
        if np.linalg.eigvalsh(regimes[1]).min() <= 0.0 or min(regimes[2].min(), regimes[3].min()) < 0.0:
            raise ValueError("a covariance of the regimes is not positive definite, or a probability is negative")
        if not (np.allclose(regimes[2].sum(), 1.0) and np.allclose(regimes[3].sum(axis=1), 1.0)):
            raise ValueError("the probabilities of the regimes do not add up to 1")
        return cls(of, *regimes, float(arrays["n_sequences"]), float(arrays["n_steps"]))


@dataclass(frozen=True, repr=False)
class Inferred:
    """Shares of the regimes (n_steps, M), sums of those at neighbouring steps (n, M, M), moments of the states, and bounds of
    the log likelihood of each sequence."""

    shares: np.ndarray
    pairs: np.ndarray
    mean: np.ndarray
    cov: np.ndarray
    lagged: np.ndarray
    bound: np.ndarray


def inferred(records: Sequences, posterior: SwitchingPosterior, max_iter: int) -> Inferred:
    """Structured mean field of each sequence, after ``max_iter`` rounds."""
    of, (M, K), n_steps = posterior.dynamics, posterior.moves.shape[:2], len(records.values)
    inference = Inferred(
        np.empty((n_steps, M)), np.empty((len(records), M, M)), np.empty((n_steps, K)), np.empty((n_steps, K, K)),
        np.empty((n_steps, K, K)), np.empty(len(records)),
    )  # fmt: skip
    shared = (of.loadings, of.offset, of.noise_variance, of.start, np.linalg.inv(of.start_cov))
    regimes = (posterior.moves, np.linalg.inv(posterior.moves_cov), np.linalg.slogdet(posterior.moves_cov)[1])
    arrays = [np.ascontiguousarray(part) for part in (*regimes, posterior.regime_start, posterior.regime_moves)]
    log_det = float(np.linalg.slogdet(of.start_cov)[1])

    def run(first: int, last: int) -> None:
        switching_kernels.infer(
            records.values, records.offsets, first, last, *map(np.ascontiguousarray, shared), log_det, *arrays, max_iter,
            *vars(inference).values(),
        )  # fmt: skip

    run_ranges(run, records.offsets, least_work=LEAST_STEPS)
    return inference


def switching_blocks(p: int, K: int, M: int, scale: float = 1.0) -> dict[str, Block]:
    """Blocks of EM."""
    square, squares = Block((K, K), symmetric=True), Block((M, K, K), symmetric=True)
    blocks = {
        "start": Block((K,)), "begin": square, "before": squares, "after": squares, "cross": Block((M, K, K)),
        "regimes": Block((M,)), "first_regime": Block((M,)), "pairs": Block((M, M)),
        "seen": Block((p, K + 1, K + 1), symmetric=True), "loadings": Block((p, K + 1)), "squares": Block((p,)),
        "counts": Block((2,)),
    }  # fmt: skip
    return {name: replace(block, scale=scale) for name, block in blocks.items()}


def switching_statistics(records: Sequences, posterior: SwitchingPosterior, max_iter: int) -> DenseStatistics:
    """Expected statistics of each sequence: as those of one system (``statistics.py``), and sums over the steps of a regime."""
    n, (M, K), p = len(records), posterior.moves.shape[:2], len(posterior.dynamics.offset)
    values, offsets, every = records.values, records.offsets, np.arange(n)
    paths = inferred(records, posterior, max_iter)
    begin, end, states, cross = (np.zeros((n, K, K)) for _ in range(4))
    seen, loadings, squares = np.zeros((n, p, K + 1, K + 1)), np.zeros((n, p, K + 1)), np.zeros((n, p))
    before, after, both = (np.zeros((n, M, K, K)) for _ in range(3))
    regimes, first_regime = np.zeros((n, M)), np.zeros((n, M))

    def add_range(first: int, last: int) -> None:
        sums.add_states(values, offsets, first, last, paths.mean, begin, end, states, cross, seen, loadings, squares)
        sums.add_covariances(
            values, offsets, every, first, last, paths.cov, paths.lagged, begin, end, states, cross, seen
        )
        sums.add_regimes(
            offsets, first, last, paths.shares, paths.mean, paths.cov, paths.lagged, before, after, both,
            regimes, first_regime,
        )  # fmt: skip

    run_ranges(add_range, offsets, least_work=LEAST_STEPS)
    start, filled = np.zeros((n, K)), records.lengths > 0
    start[filled] = paths.mean[offsets[:-1][filled]]
    counts = np.stack([filled, records.lengths], axis=1).astype(np.float64)
    return DenseStatistics({
        "start": start, "begin": begin, "before": before, "after": after, "cross": both, "regimes": regimes,
        "first_regime": first_regime, "pairs": paths.pairs, "seen": seen, "loadings": loadings, "squares": squares,
        "counts": counts,
    })  # fmt: skip


def next_switching(totals: Mapping[str, np.ndarray], previous: SwitchingPosterior) -> SwitchingPosterior:
    """The parameters that maximise the expected log density; those of ``previous`` where the totals say nothing."""
    n, n_steps = totals["counts"]
    # the moves of the shared system stand still: its totals of moves are empty
    K = len(previous.dynamics.start)
    empty = {name: np.zeros((K, K)) for name in ("end", "states", "cross")}
    dynamics = next_dynamics({**totals, **empty, "counts": np.array([n, n])}, previous.dynamics)
    moves, moves_cov = previous.moves.copy(), previous.moves_cov.copy()
    for m, count in enumerate(totals["regimes"]):
        if count > K:
            cross, before = totals["cross"][m], totals["before"][m]
            moves[m] = divided_by(before, cross)
            residual = totals["after"][m] - moves[m] @ cross.T - cross @ moves[m].T + moves[m] @ before @ moves[m].T
            moves_cov[m] = raised(residual / count, _LEAST * np.trace(totals["after"][m]) / (K * count))
    start, pairs = totals["first_regime"] + _PRIOR, totals["pairs"] + _PRIOR
    return replace(
        previous, dynamics=dynamics, moves=moves, moves_cov=moves_cov, regime_start=start / start.sum(),
        regime_moves=pairs / pairs.sum(axis=1, keepdims=True), n_sequences=float(n), n_steps=float(n_steps),
    )  # fmt: skip


def view(totals: Mapping[str, np.ndarray], noise_std: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Totals without negative counts or moments. Where noise is larger than the differences between the columns' moments of the
    states, columns share their average. What noise hides counts as not seen, so that its parameters stay as they are."""
    denoised = dict(totals)
    for name in ("regimes", "pairs", "first_regime"):
        denoised[name] = np.maximum(totals[name], 0.0)
    denoised["counts"] = np.maximum(totals["counts"], 1.0)
    seen = shared(totals["seen"], noise_std["seen"], (0,))
    least = max(noise_std["seen"], _LEAST_MOVES * denoised["counts"][1])
    denoised["seen"] = np.array([floored(moments, least) for moments in seen])
    denoised["before"] = np.array([
        floored(moments, max(noise_std["before"], _LEAST_MOVES * count))
        for moments, count in zip(totals["before"], denoised["regimes"], strict=True)
    ])  # fmt: skip
    denoised["regimes"] = np.where(denoised["regimes"] > _VISIBLE * noise_std["before"], denoised["regimes"], 0.0)
    if not denoised["counts"][1] > _VISIBLE * noise_std["seen"]:
        denoised["seen"] = np.zeros(denoised["seen"].shape)
    if not denoised["counts"][0] > _VISIBLE * noise_std["begin"]:
        denoised["counts"] = np.array([0.0, denoised["counts"][1]])
    return denoised


def repaired(posterior: SwitchingPosterior) -> SwitchingPosterior:
    """With moves that are stable, and covariances and variances that are not too small."""
    of = posterior.dynamics
    variance = np.square(of.loadings).sum(axis=1) + of.noise_variance
    return replace(
        posterior,
        moves=np.array([stable(moves, _LARGEST) for moves in posterior.moves]),
        moves_cov=np.array([floored(covariance, _LEAST_MOVES) for covariance in posterior.moves_cov]),
        dynamics=replace(
            of, start_cov=floored(of.start_cov, _LEAST_START),
            noise_variance=np.maximum(of.noise_variance, _LEAST_NOISE * variance),
        ),
    )  # fmt: skip
