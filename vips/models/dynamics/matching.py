"""Linear dynamical systems as simulated sequences: what a match moves, and what is read from it.

The charts are those of moves and columns, of the first state, of lengths and of missing cells. Scores are expectations given
the sequences, which are linear in the statistics of EM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self

import numpy as np

from vips.data._sequences import Sequences
from vips.expfam import Draws
from vips.models.components.matching.charts import Chart, Gaussians, Simplexes
from vips.models.components.matching.lengths import SequenceSimulator, possible_lengths
from vips.models.components.matching.match import ChartMatch, best_match
from vips.models.components.matching.steps import totals_of
from vips.models.dynamics.posterior import Dynamics, DynamicsPosterior, stable
from vips.models.dynamics.statistics import state_statistics

__all__ = ["SystemSimulator", "Systems", "match_of", "matched_system"]

_LARGEST = 0.9999  # modulus of an eigenvalue of A
_LARGE_CHANGE = 0.3  # in a move
_APART = 0.03  # deviations of other starts
_PRECISION, _GAUGE = 1e-2, 1e8  # of the prior, and of turns of the state that nobody can see
_MISSING_AT_START, _CONCENTRATION = 0.01, 1.0
_TOLD = 5.0  # standard deviations of the number of sequences
_PRIOR_OF_FIRST = 1.0  # sequences
_MOST_TOTALS = 2_000


@dataclass(frozen=True)
class Systems(Chart):
    """A, C, d and R of a system whose Q stays: by other coordinates of the state it is as good as any.

    Coordinates are those of A, of C and d in units of the columns' deviations, and of log R.

    Parameters
    ----------
    of : Dynamics
    """

    of: Dynamics

    @property
    def size(self) -> int:
        p, K = self.of.loadings.shape
        return K * K + p * (K + 2)

    @cached_property
    def units(self) -> np.ndarray:
        """Units of the columns, shape (p,)."""
        return np.sqrt(self.of.noise_variance + np.square(self.of.loadings).sum(axis=1))

    def scores(self, sums: Mapping[str, np.ndarray]) -> np.ndarray:
        """Scores of sequences with these statistics of EM at the system, by block: see ``statistics.py``."""
        of, K, n = self.of, self.of.loadings.shape[1], len(sums["start"])
        whole = np.column_stack([of.loadings, of.offset])
        moved = np.linalg.inv(of.moves_cov) @ (sums["cross"] - of.moves @ (sums["states"] - sums["end"]))
        told = np.einsum("pj,npij->npi", whole, sums["seen"])
        columns = (sums["loadings"] - told) / of.noise_variance[:, None]
        squares = sums["squares"] + np.einsum("pi,npi->np", whole, told - 2.0 * sums["loadings"])
        logs = 0.5 * (squares / of.noise_variance - sums["seen"][:, :, K, K])
        columns *= self.units[:, None]
        parts = moved, columns[..., :K], columns[..., K], logs
        return np.hstack([part.reshape(n, -1) for part in parts])

    def moved(self, step: np.ndarray, cov: np.ndarray | None = None) -> Self:
        return replace(self, of=self.system(step))

    def largest(self, step: np.ndarray) -> float:
        return float(np.abs(step).max(initial=0.0)) / _LARGE_CHANGE

    def prior(self) -> tuple[np.ndarray, np.ndarray]:
        turns = self._turns()
        return np.zeros(self.size), _PRECISION * np.eye(self.size) + _GAUGE * turns @ turns.T

    def draws(self, steps: np.ndarray) -> np.ndarray:
        return steps

    def named(self, name: str, draws: np.ndarray) -> dict[str, Draws]:
        """Draws of the parameters in canonical coordinates, their signs as those of the match."""
        match, systems = self.of.canonical(), [self.system(step).canonical() for step in draws]
        signs = np.sign([np.einsum("pk,pk->k", of.loadings, match.loadings) for of in systems])
        moves, loadings = np.array([of.moves for of in systems]), np.array([of.loadings for of in systems])
        return {
            "moves": Draws(signs[:, :, None] * moves * signs[:, None]),
            "loadings": Draws(loadings * signs[:, None]),
            "offset": Draws(np.array([of.offset for of in systems])),
            "noise_variance": Draws(np.array([of.noise_variance for of in systems])),
            "explained": Draws(np.array([of.explained() for of in systems])),
        }

    def moved_apart(self, shares: np.ndarray, rng: np.random.Generator) -> Self:
        return self

    def system(self, step: np.ndarray) -> Dynamics:
        """After a move."""
        p, K = self.of.loadings.shape
        moves, columns, offset, logs = np.split(step, np.cumsum([K * K, p * K, p]))
        return replace(
            self.of,
            moves=stable(self.of.moves + moves.reshape(K, K), _LARGEST),
            loadings=self.of.loadings + columns.reshape(p, K) * self.units[:, None],
            offset=self.of.offset + offset * self.units,
            noise_variance=self.of.noise_variance * np.exp(np.clip(logs, -1.0, 1.0)),
        )

    def _turns(self) -> np.ndarray:
        """Orthonormal moves that turn the state and leave Q, shape (size, K (K - 1) / 2)."""
        of, (p, K) = self.of, self.of.loadings.shape
        turns, inverse = np.zeros((self.size, K * (K - 1) // 2)), np.linalg.inv(self.of.moves_cov)
        for turn, (i, j) in zip(turns.T, zip(*np.triu_indices(K, 1), strict=True), strict=True):
            skew = np.zeros((K, K))
            skew[i, j], skew[j, i] = 1.0, -1.0
            by = skew @ inverse
            turn[: K * K] = (by @ of.moves - of.moves @ by).ravel()
            turn[K * K : K * (K + p)] = (-of.loadings @ by / self.units[:, None]).ravel()
        return np.linalg.qr(turns)[0]


@dataclass(frozen=True)
class SystemSimulator(SequenceSimulator):
    """Sequences of a linear dynamical system.

    Parameters
    ----------
    used : ndarray of int
        Totals that are matched: all but pairs of different steps of the openings.
    """

    used: np.ndarray
    sizes, doubtful = (4_000, 20_000, 3_000), 3.0

    @classmethod
    def of(cls, model) -> Self:
        """The simulator of a private fit.

        Raises
        ------
        NotImplementedError
            If noise hides how many sequences there are, columns are too many, and as :func:`totals_of` does.
        """
        used = _used(model.blocks())
        if len(used) > _MOST_TOTALS:
            raise NotImplementedError(f"{model.n_features_in_} columns have too many moments: there are no intervals.")
        fitted, plan = model.last_posterior_, model.privacy_.plan
        if any(set(step.totals) != set(model.blocks()) for group in totals_of(model).groups for step in group):
            raise NotImplementedError("Steps have released other totals than moments: there are no intervals.")
        std = plan.noise_std() / plan.sampling_rate * model.blocks()["opening"].scale / model.constant() ** 2
        if fitted.n_sequences < _TOLD * std / np.sqrt(model.n_features_in_ * plan.n_steps):
            raise NotImplementedError("Noise hides how many sequences there are. So there are no intervals.")
        mean = float(np.clip(fitted.n_steps / fitted.n_sequences, 1.0, model.max_length))
        return cls(model, possible_lengths(mean, model.max_length), mean, used)

    def simulated(self, charts: Sequence[Chart], n_records: int, rng: np.random.Generator) -> Sequences:
        """Sequences. Lengths are stratified."""
        system, first, lengths, missing = charts
        of, (p, K) = system.of, system.of.loadings.shape
        numbers = self.drawn_lengths(lengths, n_records, rng)
        shape = n_records, int(self.lengths[-1])
        normal, errors = rng.standard_normal((*shape, K)), rng.standard_normal((*shape, p))
        is_missing, is_there = rng.random((*shape, p)) < missing.p[:, 1], np.arange(shape[1]) < numbers[:, None]
        shocks, states = normal @ np.linalg.cholesky(of.moves_cov).T, np.empty((*shape, K))
        states[:, 0] = first.mean[0] + normal[:, 0] @ first.factor[0].T
        for t in range(1, shape[1]):
            states[:, t] = states[:, t - 1] @ of.moves.T + shocks[:, t]
        values = states @ of.loadings.T + of.offset + errors * np.sqrt(of.noise_variance)
        offsets = np.concatenate([[0], np.cumsum(numbers)])
        return Sequences(np.where(is_missing, np.nan, values)[is_there], offsets)

    def taken(self, flat: np.ndarray) -> np.ndarray:
        return flat[..., self.used]

    def scores(self, records: Sequences, charts: Sequence[Chart]) -> np.ndarray:
        system, first, lengths, missing = charts
        at = _system_at(system, first)
        sums = state_statistics(records, DynamicsPosterior(at)).weighted(np.ones(len(records)))
        inverse, (i, j) = np.linalg.inv(first.factor[0]), np.tril_indices(len(at.start))
        images, away = (sums["start"] - at.start) @ inverse.T, np.einsum("ni,j->nij", sums["start"], at.start)
        second = sums["begin"] - away - np.swapaxes(away, 1, 2) + np.outer(at.start, at.start)
        second = (inverse @ second @ inverse.T)[:, i, j] - (i == j)
        n_seen = np.add.reduceat(np.isfinite(records.values).astype(float), records.offsets[:-1])
        cells = np.stack([n_seen, records.lengths[:, None] - n_seen], axis=-1)
        return np.hstack([
            system.scores(sums),
            images,
            np.where(i == j, 0.5, 1.0) * second,
            lengths.scores(np.searchsorted(self.lengths, records.lengths)),
            missing.scores(cells),
        ])  # fmt: skip

    def match(self) -> ChartMatch:
        """The system whose sequences give the totals of the fit, from the fit's own on."""
        model, of = self.model, self.model.last_posterior_.canonical
        if not np.abs(of.loadings).max(axis=0).all():
            raise NotImplementedError(
                "Noise hides an entry of the state: there are no intervals. Fewer would show more."
            )
        sizes = (_PRIOR_OF_FIRST, _PRIOR_OF_FIRST)
        first = Gaussians(of.start[None], np.linalg.cholesky(of.start_cov)[None], False, of.start, of.start_cov, sizes)
        missing = np.tile([1.0 - _MISSING_AT_START, _MISSING_AT_START], (len(of.offset), 1))
        charts = [Systems(of), first, self.first_law(), Simplexes(missing, _CONCENTRATION)]
        return best_match(self, totals_of(model, self.taken), charts, partial(_moved_a_little, charts))


def _moved_a_little(charts: Sequence[Chart], rng: np.random.Generator) -> list[Chart]:
    """Another start: a system near that of the fit."""
    system, *others = charts
    return [replace(system, of=system.system(_APART * rng.standard_normal(system.size))), *others]


def match_of(model) -> ChartMatch:
    """The match of a private fit.

    Raises
    ------
    NotImplementedError
        If no move can be computed, and as :meth:`SystemSimulator.of` does.
    """
    try:
        return SystemSimulator.of(model).match()
    except np.linalg.LinAlgError:
        raise NotImplementedError("The released moments tell nothing of a system: there are no intervals.") from None


def matched_system(match: ChartMatch, fitted: DynamicsPosterior) -> DynamicsPosterior:
    """The system of an accepted match, with draws of its parameters in canonical coordinates."""
    match.check()
    system, first, *_ = match.best()
    draws = match.charts[0].named("", match.draws()[0])
    return DynamicsPosterior(_system_at(system, first), fitted.n_sequences, fitted.n_steps, draws=draws)


def _system_at(system: Systems, first: Gaussians) -> Dynamics:
    """With the first state of its own chart."""
    return replace(system.of, start=first.mean[0], start_cov=first.covariances[0])


def _used(blocks) -> np.ndarray:
    """Places of the totals but for pairs of different steps of the openings, whose constants stand for their numbers."""
    D, n_opening = blocks["second"].shape[0], blocks["opening"].shape[0]
    n_before = D * (D + 1) // 2 + blocks["lagged"].shape[0] * D * D
    rows, columns = np.tril_indices(n_opening)
    is_first = rows < D
    is_of_a_column = (rows // D == columns // D) & (rows % D >= D // 2) & ((rows - columns) % (D // 2) == 0)
    return np.concatenate([np.arange(n_before), n_before + np.flatnonzero(is_first | is_of_a_column)])
