"""Hidden Markov models as simulated sequences: what a match moves, and what is read from it.

The charts of all models are those of first states, moves, lengths and missing cells; the last ones are of what is seen. Several
chains (``factorial_matching.py``) have rows of their own in the first two, and are simulated as one chain of joint states.

The lengths of sequences are private, so that a match has a law of lengths of its own (``lengths.py``). Lengths, and which cells
are missing, are taken as independent of the states.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from vips._support.alignment import align
from vips.core.sums.runs import SymbolSums
from vips.data._sequences import Sequences
from vips.expfam import Dirichlet, Draws
from vips.models._chains import inferred
from vips.models._gaussians.posterior import at_chart, chart_of
from vips.models.components.columns import Columns
from vips.models.components.matching.charts import Chart, Gaussians, Simplexes
from vips.models.components.matching.lengths import SequenceSimulator, possible_lengths
from vips.models.components.matching.match import Match, best_match, check_told
from vips.models.components.matching.simulator import levels_at, weights_in
from vips.models.components.matching.steps import totals_of
from vips.models.markov.posterior import FORBIDDEN, ChainPosterior

__all__ = ["ChainSimulator", "ColumnSimulator", "SymbolSimulator", "VectorSimulator", "drawn_states"]

_MISSING_AT_START = 0.01
_TOLD = 5.0  # standard deviations of the number of sequences
_STAYS = 0.5  # in other starts
_FIRST_OF_SEEN = 4  # after charts of first states, moves, lengths and missing cells


@dataclass(frozen=True)
class ChainSimulator(SequenceSimulator):
    """Sequences of a hidden Markov model.

    Parameters
    ----------
    prior : object
        Of what is seen.
    """

    prior: Any
    most_seen, sizes, doubtful = 2, (4_000, 10_000, 2_000), 3.0
    least_share = 2.0  # standard deviations of the share of a state

    @classmethod
    def of(cls, model, prior) -> Self:
        """The simulator of a private fit.

        Raises
        ------
        NotImplementedError
            If noise hides how many sequences there are, no step has counted moves, and as :func:`totals_of` does.
        """
        group, plan = totals_of(model).groups[-1], model.privacy_.plan
        if "start" not in group[-1].totals:
            raise NotImplementedError(
                f"All {plan.n_steps} steps were taken to find the states, and none has counted their moves. So there are "
                "no intervals; a plan of more steps has some."
            )
        start, moves = (np.mean([step.totals[name].sum() for step in group]) for name in ("start", "moves"))
        noise_std = plan.of_step(group[-1].number).noise_std() / plan.sampling_rate * model.blocks()["start"].scale
        std = noise_std * np.sqrt(group[-1].totals["start"].size / len(group))
        if start < _TOLD * std:
            raise NotImplementedError("Noise hides how many sequences there are. So there are no intervals.")
        mean = np.clip(1.0 + moves / start, 1.0, model.max_length)
        return cls(model, possible_lengths(mean, model.max_length), mean, prior)

    # -- chains -----------------------------------------------------------------------------------------------------

    def chains(self, start: Simplexes, moves: Simplexes) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities of first states and moves in the shapes of a posterior."""
        return start.p[0], moves.p

    def joint(self, start: Simplexes, moves: Simplexes) -> tuple[np.ndarray, np.ndarray]:
        """The same of all chains together, as of one."""
        return start.p[0], moves.p

    def apart(self, firsts: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How often these joint first states and moves are those of each row of the charts."""
        return firsts[:, None], pairs

    # -- what is seen -----------------------------------------------------------------------------------------------

    n_missing = 1  # numbers of a step that are missing alone

    @abstractmethod
    def first(self, posterior: ChainPosterior) -> list[Chart]:
        """The charts of what is seen at a posterior."""

    @abstractmethod
    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Draws from which values follow, for so many steps; the columns are the last axis."""

    @abstractmethod
    def values(self, charts: Sequence[Chart], states: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Values in these states, as numbers, shape (n_steps, d)."""

    def images(self, charts: Sequence[Chart], values: np.ndarray) -> np.ndarray:
        """What log probabilities and scores are computed from: by default the values."""
        return values

    @abstractmethod
    def logs(self, charts: Sequence[Chart], values: np.ndarray, images: np.ndarray) -> np.ndarray:
        """Log probability of each step in each state, less what all states share, shape (n_steps, K); 0 where it is missing."""

    @abstractmethod
    def scores_of_seen(
        self, charts: Sequence[Chart], records: Sequences, images: np.ndarray, shares: np.ndarray
    ) -> np.ndarray:
        """Scores of sequences whose steps have these shares of the states, shape (n_sequences, size)."""

    @abstractmethod
    def posterior(self, match: Match, fitted: ChainPosterior, steps: np.ndarray) -> dict[str, Any]:
        """Fields of a posterior at the match, whose states have so many steps."""

    def named(self, match: Match) -> dict[str, Draws]:
        """Draws of what is seen, by name."""
        return {}

    # -- simulation -------------------------------------------------------------------------------------------------

    def simulated(self, charts: Sequence[Chart], n_records: int, rng: np.random.Generator) -> Sequences:
        """Sequences. Lengths are stratified."""
        start, moves, lengths, missing, *seen = charts
        numbers = self.drawn_lengths(lengths, n_records, rng)
        shape, offsets = (n_records, self.lengths[-1]), np.concatenate([[0], np.cumsum(numbers)])
        exists = np.arange(shape[1]) < numbers[:, None]
        states = drawn_states(*self.joint(start, moves), offsets, rng.random(shape)[exists])
        values = self.values(seen, states, self.noise(shape, rng)[exists])
        is_missing = rng.random((*shape, self.n_missing))[exists] < missing.p[:, 1]
        return Sequences(np.where(is_missing, np.nan, values), offsets)

    def scores(self, records: Sequences, charts: Sequence[Chart]) -> np.ndarray:
        start, moves, lengths, missing, *seen = charts
        images = self.images(seen, records.values)
        logs = self.logs(seen, records.values, images)
        largest = logs.max(axis=1, keepdims=True)
        shares, pairs, _ = inferred(
            records.offsets, *self.joint(start, moves), np.exp(np.maximum(logs - largest, -500.0)), largest[:, 0]
        )
        begins, is_missing = records.offsets[:-1], np.isnan(records.values[:, : self.n_missing])
        n_missing = np.add.reduceat(is_missing.astype(float), begins)
        cells = np.stack([records.lengths[:, None] - n_missing, n_missing], axis=-1)
        firsts, pairs = self.apart(shares[begins], pairs)
        return np.hstack([
            start.scores(firsts),
            moves.scores(pairs),
            lengths.scores(np.searchsorted(self.lengths, records.lengths)),
            missing.scores(cells),
            self.scores_of_seen(seen, records, images, shares),
        ])  # fmt: skip

    def components(self, charts: Sequence[Chart]) -> tuple[np.ndarray, Sequence[Chart]]:
        """Shares of the steps."""
        start, moves, lengths, _, *seen = charts
        steps = _expected_steps(start.p[0], moves.p, self._survival(lengths))
        return steps / steps.sum(), [moves, *seen]

    def merged(self, charts: Sequence[Chart], into: np.ndarray) -> list[Chart]:
        start, moves, lengths, missing, *seen = charts
        _, weights = weights_in(into, self.components(charts)[0])
        belongs = (weights > 0.0).T.astype(float)
        fewer = replace(moves, p=weights @ moves.p @ belongs)
        apart = [chart.merged(weights) for chart in seen]
        return [replace(start, p=start.p @ belongs), fewer, lengths, missing, *apart]

    # -- the match --------------------------------------------------------------------------------------------------

    def match(self) -> Match:
        """Parameters whose sequences give the totals of the fit; the first start is the fit's posterior."""
        model = self.model
        chain = zip(model.last_posterior_.means_of_chain(), model.chain_priors(), strict=True)
        start, moves = (
            Simplexes.inside(p.reshape(-1, p.shape[-1]), float(prior.max()), prior.reshape(-1, p.shape[-1]) > FORBIDDEN)
            for p, prior in chain
        )
        missing = np.tile([1.0 - _MISSING_AT_START, _MISSING_AT_START], (self.n_missing, 1))
        charts = [
            start,
            moves,
            self.first_law(),
            Simplexes(missing, 1.0),
            *self.first(model.last_posterior_),
        ]
        return best_match(self, totals_of(model), charts, partial(self._moved_apart, charts))

    def matched_states(self, match: Match, fitted: ChainPosterior) -> ChainPosterior:
        """The fit's posterior with the parameters of the match, which E-steps take as known, and with draws of all parameters
        and of the shares of the states among all steps; states are in the order of the fit.

        Raises
        ------
        NotImplementedError
            If the match is refused, or noise hides a state.
        """
        match.check()
        (start, moves, *_), best = match.draws(), match.best()
        of_start, of_moves = self.chains(*best[:2])
        start, moves = start.reshape(-1, *of_start.shape), moves.reshape(-1, *of_moves.shape)
        steps = _expected_steps(start, moves / moves.sum(axis=-1, keepdims=True), self._survival(best[2]))
        shares = steps / steps.sum(axis=-1, keepdims=True)
        check_told(shares.reshape(len(shares), -1), "states", self.least_share)
        draws = {"shares": Draws(shares), "start": Draws(start, of_start), "moves": Draws(moves, of_moves)}
        matched = replace(self._at_match(match, fitted), draws=draws | self.named(match))
        return matched.in_order(self._order(matched, fitted, match))

    def some_lengths(self, match: Match, n: int, rng: np.random.Generator) -> np.ndarray:
        """Lengths of synthetic sequences."""
        return rng.choice(self.lengths, n, p=match.best()[2].p)

    # -- helpers ----------------------------------------------------------------------------------------------------

    def _at_match(self, match: Match, fitted: ChainPosterior) -> ChainPosterior:
        start, moves, lengths, missing, *_ = match.best()
        (start, moves), survival, n = self.chains(start, moves), self._survival(lengths), match.n_records
        steps, left = (n * _expected_steps(start, moves, alive) for alive in (survival, survival[1:]))
        return replace(
            fitted,
            start=_counted(start, n),
            moves=_counted(moves, left[..., None]),
            plug_in=True,
            **self.posterior(match, fitted, np.maximum(steps * missing.p[:, 0].mean(), 1.0)),
        )

    def _order(self, matched: ChainPosterior, fitted: ChainPosterior, match: Match) -> np.ndarray:
        """In which states of the match are those of the fit; masks give them an order of their own."""
        if (match.charts[0].p == 0.0).any() or (match.charts[1].p == 0.0).any():
            return np.arange(self.model.n_components)
        (theirs, distance), (ours, _) = map(self.model.components, (fitted, matched))
        return align(theirs, ours, distance).order

    def _survival(self, lengths: Chart) -> np.ndarray:
        """Probability that a sequence is longer than 0, 1, … steps."""
        return (np.arange(self.lengths[-1])[:, None] < self.lengths) @ lengths.p

    def _moved_apart(self, charts: Sequence[Chart], rng: np.random.Generator) -> list[Chart]:
        """Another start: states that often stay, and are seen around what is seen in all steps."""
        start, moves, lengths, missing, *seen = charts
        shares = _expected_steps(*self.chains(start, moves), np.ones(self.lengths[-1]))
        exists = [chart.p > 0.0 for chart in (start, moves)]
        even = [allowed / allowed.sum(axis=1, keepdims=True) for allowed in exists]
        same = exists[1] & (np.arange(len(moves.p))[:, None] % moves.p.shape[1] == np.arange(moves.p.shape[1]))
        stays = (1.0 - _STAYS) * even[1] + _STAYS * same
        stays /= stays.sum(axis=1, keepdims=True)
        shares = shares / shares.sum(axis=-1, keepdims=True)
        apart = [chart.moved_apart(shares, rng) for chart in seen]
        return [replace(start, p=even[0]), replace(moves, p=stays), lengths, missing, *apart]


class SymbolSimulator(ChainSimulator):
    """Sequences of symbols; ``prior`` is the concentration of their Dirichlets."""

    def first(self, posterior) -> list[Simplexes]:
        return [Simplexes.inside(posterior.emissions.mean, self.prior)]

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        return rng.random(shape)

    def values(self, charts: Sequence[Simplexes], states: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return levels_at(noise, charts[0].p[states])[:, None].astype(float)

    def logs(self, charts: Sequence[Simplexes], values: np.ndarray, images: np.ndarray) -> np.ndarray:
        (chart,) = charts
        codes = np.nan_to_num(values[:, 0], nan=chart.p.shape[1]).astype(np.int64)
        return np.vstack([np.log(chart.p.T), np.zeros(len(chart.p))])[codes]

    def scores_of_seen(
        self, charts: Sequence[Simplexes], records: Sequences, images: np.ndarray, shares: np.ndarray
    ) -> np.ndarray:
        (chart,), codes = charts, np.ascontiguousarray(records.values[:, 0])
        sums = SymbolSums("symbols", codes, records.offsets, shares, chart.p.shape[1])
        return chart.scores(sums.weighted(np.ones(len(records)))["symbols"])

    def posterior(self, match: Match, fitted, steps: np.ndarray) -> dict[str, Any]:
        return {"emissions": _counted(match.best()[-1].p, steps[:, None]), "contexts": None}

    def named(self, match: Match) -> dict[str, Draws]:
        return match.best()[-1].named("emissions", match.draws()[-1])


class VectorSimulator(ChainSimulator):
    """Sequences of vectors; ``prior`` says as how many steps the priors of means and covariances count."""

    def first(self, posterior) -> list[Gaussians]:
        return [chart_of(posterior.gaussians, self.prior)]

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((*shape, self.model.n_features_in_))

    def values(self, charts: Sequence[Gaussians], states: np.ndarray, noise: np.ndarray) -> np.ndarray:
        (chart,) = charts
        return chart.mean[states] + np.einsum("nij,nj->ni", chart.factor[states], noise)

    def images(self, charts: Sequence[Gaussians], values: np.ndarray) -> np.ndarray:
        return charts[0].images(np.nan_to_num(values))

    def logs(self, charts: Sequence[Gaussians], values: np.ndarray, images: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(values[:, :1]), 0.0, charts[0].logs(images))

    def scores_of_seen(
        self, charts: Sequence[Gaussians], records: Sequences, images: np.ndarray, shares: np.ndarray
    ) -> np.ndarray:
        shares = np.where(np.isnan(records.values[:, :1]), 0.0, shares)
        of_states = []
        for k in range(shares.shape[1]):  # scores of all states at once take much memory
            scores = charts[0].scores(shares[:, k : k + 1], images[:, k : k + 1])
            of_states.append(np.add.reduceat(scores, records.offsets[:-1]))
        return np.hstack(of_states)

    def posterior(self, match: Match, fitted, steps: np.ndarray) -> dict[str, Any]:
        return {"gaussians": at_chart(fitted.gaussians, match.best()[-1], steps)}

    def named(self, match: Match) -> dict[str, Draws]:
        return match.best()[-1].named("", match.draws()[-1])


class ColumnSimulator(ChainSimulator):
    """Sequences of rows of declared columns, which are ``prior``. A cell is missing alone."""

    prior: Columns

    @property
    def n_missing(self) -> int:
        return self.prior.n_columns

    def first(self, posterior) -> list[Chart]:
        return self.prior.charts(posterior.columns)

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        return rng.random((*shape, self.n_missing))

    def values(self, charts: Sequence[Chart], states: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return self.prior.simulated(charts, states, noise)

    def logs(self, charts: Sequence[Chart], values: np.ndarray, images: np.ndarray) -> np.ndarray:
        return self.prior.logs(charts, values)

    def scores_of_seen(
        self, charts: Sequence[Chart], records: Sequences, images: np.ndarray, shares: np.ndarray
    ) -> np.ndarray:
        return np.add.reduceat(self.prior.scores(charts, records.values, shares), records.offsets[:-1])

    def posterior(self, match: Match, fitted, steps: np.ndarray) -> dict[str, Any]:
        charts, draws = match.best()[_FIRST_OF_SEEN:], match.draws()[_FIRST_OF_SEEN:]
        return {"columns": self.prior.of_draws(charts, draws, np.arange(len(steps)))}


def drawn_states(start: np.ndarray, moves: np.ndarray, offsets: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """States of the steps of sequences, each from a uniform draw."""
    states, lengths = np.empty(offsets[-1], np.int64), np.diff(offsets)
    for t in range(int(lengths.max(initial=0))):  # all sequences at once
        places = offsets[:-1][lengths > t] + t
        states[places] = levels_at(draws[places], start[None] if t == 0 else moves[states[places - 1]])
    return states


def _expected_steps(start: np.ndarray, moves: np.ndarray, survival: np.ndarray) -> np.ndarray:
    """Steps of a sequence in each state, shape (..., K), given the probabilities that it lasts so long."""
    at, steps = start, np.zeros_like(start)
    for alive in survival:
        steps = steps + alive * at
        at = (at[..., None, :] @ moves)[..., 0, :]
    return steps


def _counted(p: np.ndarray, n: float | np.ndarray) -> Dirichlet:
    """A Dirichlet of these means, which counts as so many records; nothing for what is forbidden."""
    return Dirichlet(np.where(p > 0.0, np.maximum(n, 1e-3) * p, FORBIDDEN))
